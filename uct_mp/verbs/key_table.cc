// An open-addressing table under one sequence lock. Fields are atomics, read with acquire and written with release: a
// reader that has seen any part of a change therefore sees the odd sequence number too and reads again. No fences,
// which ThreadSanitizer does not understand.
//
// A table that has grown stays allocated, because a reader may still be in it: sizes double, so all former tables
// together are no larger than the current one.
#include "uct_mp/verbs/key_table.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
    // The entry's slot, or the free one where it belongs. At most half of the slots are in
    // use, so there is one. A reader beside a writer may meet anything, hence the bound.
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

// How often this process is a forked child. Nothing is locked
// before fork(): other handlers for it may unmap memory then.
std::atomic<unsigned> g_forks{0};
unsigned count_forks() {
    static const int result = pthread_atfork(nullptr, nullptr, [] { g_forks.fetch_add(1, std::memory_order_relaxed); });
    (void)result; // no memory: a child may wait for a thread of its parent
    return g_forks.load(std::memory_order_relaxed);
}

int membarrier(int command) { return static_cast<int>(syscall(SYS_membarrier, command, 0, 0)); }
bool has_membarrier() {
    static const bool has = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
    return has;
}
// Makes seen what users stored before they looked into the table; later readers see the change.
void meet_users() {
    if (!has_membarrier() || membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return;
    (void)membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); // a forked child, perhaps
    if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) (void)membarrier(MEMBARRIER_CMD_GLOBAL);
}

struct Range {
    std::uint64_t first, last;
    [[nodiscard]] bool overlaps(const Range& other) const { return first <= other.last && other.first <= last; }
};

} // namespace

struct KeyTable::Impl {
    Impl() : made_in(count_forks()) {
        tables.reserve(64); // sizes double: more there will never be
        tables.push_back(std::make_unique<Table>(kFirstCapacity));
        current.store(tables.back().get(), std::memory_order_release);
    }
    // Between these two, readers wait. Writers hold the mutex.
    void begin_change() { sequence.store(sequence.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
    // Sequentially consistent: visible to all before erase() returns.
    void end_change() { sequence.store(sequence.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst); }

    // Called with the mutex held; `larger` has been made without it.
    void adopt(std::unique_ptr<Table> larger) {
        for (const Slot& slot : tables.back()->slots)
            if (const Entry e = slot.load(); e.tag) larger->slots[larger->find(e.tag)].store(e);
        tables.push_back(std::move(larger));
        begin_change();
        current.store(tables.back().get(), std::memory_order_release);
        end_change();
    }
    [[nodiscard]] bool full() const { return (used + 1) * 2 > tables.back()->slots.size(); }
    // The table is the parent's, and this is a child: a thread that is not here may hold the mutex, or be a user.
    [[nodiscard]] bool is_inherited() const { return made_in != g_forks.load(std::memory_order_relaxed); }

    // No operation begins there any more. Running ones are awaited when somebody unmaps memory, or there are many.
    void retire(std::uint64_t address, std::uint64_t length) {
        retired[retired_count++] = {address, address + (length - 1)};
        if (retired_count == retired.size()) await_users();
    }
    // Waits until nobody uses the retired tables any more. No bound: each use takes a few instructions.
    void await_users() {
        meet_users();
        for (const User* user = users; user; user = user->next_)
            for (unsigned i = 0; i < retired_count;) {
                const std::uint64_t at = user->at_.load(std::memory_order_acquire);
                if (at && retired[i].overlaps({at, at + (User::kMost - 1)}))
                    sched_yield();
                else
                    ++i;
            }
        retired_count = 0;
    }

    bool take_out(const Range& range);
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

    std::uint64_t lowest = ~std::uint64_t{0}, highest = 0; // all memory of the table lies between them
    const unsigned made_in;                                // value of g_forks then
    std::mutex mutex;
    User* users = nullptr;
    std::array<Range, 32> retired;
    unsigned retired_count = 0;
    std::size_t used = 0;
    std::vector<std::unique_ptr<Table>> tables;         // the last one is current
    alignas(64) std::atomic<std::uint64_t> sequence{0}; // odd: a change is under way
    std::atomic<const Table*> current{nullptr};
};

KeyTable::KeyTable() : impl_(std::make_unique<Impl>()) {}
KeyTable::~KeyTable() = default;

KeyTable::User::User(const KeyTable& table) : table_(table), fences_(!has_membarrier()) {
    if (table.impl_->is_inherited()) return;
    const std::lock_guard guard(table.impl_->mutex);
    next_ = table.impl_->users;
    table.impl_->users = this;
}

KeyTable::User::~User() {
    if (table_.impl_->is_inherited()) return;
    const std::lock_guard guard(table_.impl_->mutex);
    User** at = &table_.impl_->users;
    while (*at && *at != this) at = &(*at)->next_;
    if (*at) *at = next_;
}

void KeyTable::insert(Key key, std::uint64_t address, std::uint64_t length) {
    if (impl_->is_inherited()) return;
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
    const Entry before = slot.load();
    if (!before.tag) ++impl_->used;
    impl_->lowest = std::min(impl_->lowest, address);
    impl_->highest = std::max(impl_->highest, address + (length - 1));
    impl_->begin_change();
    slot.store(entry);
    impl_->end_change();
    if (before.tag) impl_->retire(before.address, before.length);
    guard.unlock(); // if another thread was first, `larger` is freed: not under the lock
}

void KeyTable::erase(Key key) {
    if (impl_->is_inherited()) return;
    const std::lock_guard guard(impl_->mutex);
    Table& table = *impl_->tables.back();
    const std::size_t place = table.find(kPresent | key);
    const Entry e = table.slots[place].load();
    if (!e.tag) return;
    impl_->erase_at(table, place);
    impl_->retire(e.address, e.length);
}

void KeyTable::unmapped(std::uint64_t address, std::uint64_t length) {
    if (length == 0 || impl_->is_inherited()) return;
    const std::lock_guard guard(impl_->mutex);
    const Range range{address, address + (length - 1)};
    const auto ends = impl_->retired.begin() + impl_->retired_count;
    bool used = std::any_of(impl_->retired.begin(), ends, [&](const Range& r) { return r.overlaps(range); });
    if (impl_->used && range.overlaps({impl_->lowest, impl_->highest})) used |= impl_->take_out(range);
    if (!used) return;
    impl_->retire(address, length);
    impl_->await_users();
}

// Takes out entries that overlap; false: there are none.
bool KeyTable::Impl::take_out(const Range& range) {
    const auto [address, last] = range;
    bool any = false;
    Table& table = *tables.back();
    for (std::size_t i = 0; i < table.slots.size();) {
        const Entry e = table.slots[i].load();
        const std::uint64_t end = e.address + (e.length - 1);
        if (!e.tag || !range.overlaps({e.address, end})) {
            ++i;
            continue;
        }
        any = true;
        // A region may be larger than its used part: a cache
        // registers whole blocks of a heap that gives back its end.
        const std::uint64_t before = address > e.address ? address - e.address : 0,
                            behind = last < end ? end - last : 0;
        if (before == 0 && behind == 0) {
            erase_at(table, i); // and another may be here
            continue;
        }
        begin_change();
        table.slots[i++].store(before >= behind ? Entry{e.tag, e.address, before} : Entry{e.tag, last + 1, behind});
        end_change();
    }
    return any;
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
        if (tries % kSpins != 0) continue;
        if (impl_->is_inherited()) return false; // a change that nobody ends any more
        sched_yield();
    }
}

} // namespace ucx_mp::verbs
