// Which memory may be changed by atomics that the transport executes itself at the target: key -> range. The key is the
// region's own name (MemoryKeys::id), since keys of adapters come and go with these. Only memory that its owner
// offers is in it: whose keys have been packed for a peer. The adapter checks keys of its own operations; for these we
// are the adapter.
//
// Threads: insert and erase under a lock (registration is slow path), allows() from any progress thread without one
// (readers retry while a writer is busy). An erased key is refused as soon as erase() has returned, except to an
// operation that is being executed at that moment. So: insert() after registering, erase() before deregistering (the
// adapter may give the key to somebody else at once). Memory of an erased key is unmapped no earlier than the progress
// threads' next poll.
//
// An adapter keeps the pages of memory that its owner unmaps; we would be killed. So who unmaps calls unmapped()
// before, from a hook of munmap() perhaps: nothing here allocates or frees while the lock is held.
#pragma once

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
                  std::uint64_t length); // what overlaps is taken out; of a region cut in two the larger part stays
    // [address, address + length) lies within the region of this key (no overflow), length > 0.
    [[nodiscard]] bool allows(Key key, std::uint64_t address, std::uint64_t length) const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace ucx_mp::verbs
