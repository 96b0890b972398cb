// An open-addressing table under one sequence lock. Fields are atomics, read with acquire and written with release: a
// reader that has seen any part of a change therefore sees the odd sequence number too and reads again. No fences,
// which ThreadSanitizer does not understand.
//
// A table that has grown stays allocated, because a reader may still be in it: sizes double, so all former tables
// together are no larger than the current one.
#include "uct_mp/verbs/key_table.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace ucx_mp::verbs {
namespace {

constexpr std::uint64_t kPresent = std::uint64_t{1} << 63; // 0 is a legal key: an entry is marked above its bits
constexpr std::size_t kFirstCapacity = 64;
constexpr unsigned kSpins = 64; // a writer that is not scheduled holds readers up; give it the core

struct Entry {
    std::uint64_t tag = 0; // kPresent | key; 0: free
    std::uint64_t address = 0;
    std::uint64_t length = 0;
};

struct alignas(32) Slot {
    std::atomic<std::uint64_t> tag{0}, address{0}, length{0};

    [[nodiscard]] Entry load() const {
        return {tag.load(std::memory_order_acquire), address.load(std::memory_order_acquire),
                length.load(std::memory_order_acquire)};
    }
    void store(const Entry& e) {
        tag.store(e.tag, std::memory_order_release);
        address.store(e.address, std::memory_order_release);
        length.store(e.length, std::memory_order_release);
    }
};

struct Table {
    explicit Table(std::size_t capacity) : slots(capacity), mask(capacity - 1) {}

    // Keys of adapters are an index and a few low variant bits: spread by the golden ratio.
    [[nodiscard]] std::size_t home(std::uint64_t tag) const {
        return (static_cast<std::uint32_t>(tag) * 0x9e3779b97f4a7c15ull >> 32) & mask;
    }
    // The entry's slot, or the free one where it belongs. At most half of the slots are in use, so there is one; a
    // reader beside a writer may meet anything, hence the bound.
    [[nodiscard]] std::size_t find(std::uint64_t tag) const {
        std::size_t i = home(tag);
        for (std::size_t n = 0; n < mask; ++n, i = (i + 1) & mask) {
            const std::uint64_t there = slots[i].tag.load(std::memory_order_acquire);
            if (there == tag || there == 0) break;
        }
        return i;
    }

    std::vector<Slot> slots;
    std::size_t mask;
};

} // namespace

struct KeyTable::Impl {
    Impl() {
        tables.reserve(64); // sizes double: more there will never be
        tables.push_back(std::make_unique<Table>(kFirstCapacity));
        current.store(tables.back().get(), std::memory_order_release);
    }
    // Between these two, readers wait. Writers hold the mutex.
    void begin_change() { sequence.store(sequence.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
    // Sequentially consistent: visible to all before erase() returns.
    void end_change() { sequence.store(sequence.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst); }

    // With the mutex held; `larger` has been made without it.
    void adopt(std::unique_ptr<Table> larger) {
        for (const Slot& slot : tables.back()->slots)
            if (const Entry e = slot.load(); e.tag) larger->slots[larger->find(e.tag)].store(e);
        tables.push_back(std::move(larger));
        begin_change();
        current.store(tables.back().get(), std::memory_order_release);
        end_change();
    }
    [[nodiscard]] bool full() const { return (used + 1) * 2 > tables.back()->slots.size(); }

    void erase_at(Table& table, std::size_t hole) {
        begin_change();
        // Entries behind the hole move up unless they are at home between hole and their place: no tombstones are
        // needed, so that searches stay short however many keys come and go.
        for (std::size_t i = (hole + 1) & table.mask;; i = (i + 1) & table.mask) {
            const Entry e = table.slots[i].load();
            if (e.tag == 0) break;
            const std::size_t from_home = (i - table.home(e.tag)) & table.mask, from_hole = (i - hole) & table.mask;
            if (from_home < from_hole) continue;
            table.slots[hole].store(e);
            hole = i;
        }
        table.slots[hole].store({});
        end_change();
        if (--used == 0) lowest = ~std::uint64_t{0}, highest = 0;
    }

    std::uint64_t lowest = ~std::uint64_t{0}, highest = 0; // all memory that is in it lies between them
    std::mutex mutex;
    std::size_t used = 0;
    std::vector<std::unique_ptr<Table>> tables;         // the last one is current
    alignas(64) std::atomic<std::uint64_t> sequence{0}; // odd: a change is under way
    std::atomic<const Table*> current{nullptr};
};

KeyTable::KeyTable() : impl_(std::make_unique<Impl>()) {}
KeyTable::~KeyTable() = default;

void KeyTable::insert(Key key, std::uint64_t address, std::uint64_t length) {
    std::unique_ptr<Table> larger;
    std::unique_lock guard(impl_->mutex);
    while (impl_->full()) {
        const std::size_t capacity = impl_->tables.back()->slots.size() * 2;
        guard.unlock();
        larger = std::make_unique<Table>(capacity);
        guard.lock();
        if (impl_->tables.back()->slots.size() < capacity) impl_->adopt(std::move(larger));
    }
    Table& table = *impl_->tables.back();
    const Entry entry{kPresent | key, address, length};
    Slot& slot = table.slots[table.find(entry.tag)];
    if (slot.tag.load(std::memory_order_relaxed) == 0) ++impl_->used;
    impl_->lowest = std::min(impl_->lowest, address);
    impl_->highest = std::max(impl_->highest, address + (length - 1));
    impl_->begin_change();
    slot.store(entry);
    impl_->end_change();
    guard.unlock(); // before `larger` goes, if another thread was first
}

void KeyTable::erase(Key key) {
    const std::lock_guard guard(impl_->mutex);
    Table& table = *impl_->tables.back();
    const std::size_t place = table.find(kPresent | key);
    if (table.slots[place].tag.load(std::memory_order_relaxed) != 0) impl_->erase_at(table, place);
}

void KeyTable::unmapped(std::uint64_t address, std::uint64_t length) {
    const std::lock_guard guard(impl_->mutex);
    const std::uint64_t last = address + (length - 1);
    if (length == 0 || impl_->used == 0 || last < impl_->lowest || address > impl_->highest) return;
    Table& table = *impl_->tables.back();
    for (std::size_t i = 0; i < table.slots.size();) {
        const Entry e = table.slots[i].load();
        const std::uint64_t end = e.address + (e.length - 1);
        if (!e.tag || e.address > last || address > end) {
            ++i;
            continue;
        }
        // A region may be larger than what is used of it: a cache registers whole blocks of a heap that gives back its
        // end.
        const std::uint64_t before = address > e.address ? address - e.address : 0,
                            behind = last < end ? end - last : 0;
        if (before == 0 && behind == 0) {
            impl_->erase_at(table, i); // and another may be here
            continue;
        }
        impl_->begin_change();
        table.slots[i++].store(before >= behind ? Entry{e.tag, e.address, before} : Entry{e.tag, last + 1, behind});
        impl_->end_change();
    }
}

bool KeyTable::allows(Key key, std::uint64_t address, std::uint64_t length) const {
    const std::uint64_t tag = kPresent | key;
    for (unsigned tries = 1;; ++tries) {
        const std::uint64_t before = impl_->sequence.load(std::memory_order_acquire);
        if ((before & 1) == 0) {
            const Table& table = *impl_->current.load(std::memory_order_acquire);
            const Entry e = table.slots[table.find(tag)].load();
            if (impl_->sequence.load(std::memory_order_relaxed) == before)
                return e.tag == tag && length > 0 && address >= e.address && length <= e.length &&
                       address - e.address <= e.length - length;
        }
        if (tries % kSpins == 0) sched_yield();
    }
}

} // namespace ucx_mp::verbs
