// The memory that atomics may change which the transport itself executes at the target: key ->
// range. The key is the region's own name (MemoryKeys::id), since keys of adapters come and go
// with these. Only memory that its owner offers is in it: its keys have been packed for a
// peer. The adapter checks keys of its own operations; for these the transport is the adapter.
//
// Threads: insert and erase under a lock (registration is slow path), allows() from any progress thread without one
// (readers retry while a writer is busy). An erased key is refused as soon as erase() has returned, except to an
// operation that is being executed at that moment. So: insert() after registering, erase() before deregistering (the
// adapter may give the key to somebody else at once).
//
// An adapter keeps the pages of memory that its owner unmaps; this process would be killed. So unmapped() is
// called before memory is unmapped, from a hook of munmap() perhaps: nothing here allocates or frees while the
// lock is held. It waits for operations that are being executed there (User), also by keys that have been erased.
// An operation takes a few instructions and calls nothing, so that ends soon, and no thread can wait for itself.
//
// A forked child executes no operation of its parent, whose threads it does not have:
// no table from before fork() does anything, or waits for anybody, in the child.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace ucx_mp::verbs {

class KeyTable {
public:
    using Key = std::uint64_t;

    KeyTable();
    ~KeyTable();
    KeyTable(const KeyTable&) = delete;

    // `length` > 0. A key that is there already is replaced. May throw std::bad_alloc; the table is unchanged then.
    void insert(Key key, std::uint64_t address, std::uint64_t length);
    void erase(Key key); // of an unknown key: no effect
    void unmapped(std::uint64_t address,
                  std::uint64_t length); // takes overlaps out; of a region cut in two the larger part stays
    // [address, address + length) lies within the region of this key (no overflow), length > 0.
    [[nodiscard]] bool allows(Key key, std::uint64_t address, std::uint64_t length) const;

    // A thread that executes operations there, one at a time. It is gone before the table.
    class User {
    public:
        explicit User(const KeyTable& table);
        User(const User&) = delete;
        ~User();
        // allows(), for kMost bytes at most; the memory stays mapped until leave(), which follows in any case
        [[nodiscard]] bool enter(Key key, std::uint64_t address, std::uint64_t length) {
            at_.store(address, std::memory_order_relaxed);
            // An unmapping thread lets this one pass a barrier (membarrier). Where that is not possible, it is here.
            std::atomic_signal_fence(std::memory_order_seq_cst);
            if (fences_) [[unlikely]]
                at_.exchange(address, std::memory_order_seq_cst);
            return table_.allows(key, address, length);
        }
        void leave() { at_.store(0, std::memory_order_release); }
        static constexpr std::uint64_t kMost = 8;

    private:
        friend class KeyTable;
        const KeyTable& table_;
        std::atomic<std::uint64_t> at_{0}; // 0: nowhere
        User* next_ = nullptr;
        const bool fences_;
    };

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace ucx_mp::verbs
