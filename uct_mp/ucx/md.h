// The memory domain: the adapters, data shared by its interfaces (paths, policy), and registered memory.
//
// Memory handles (uct_mem_h) are Memory objects, one per registration call, so that invalidating one never touches
// another user of the same cached region. Behind a handle is either a region of the registration cache, shared and
// kept, or memory regions of its own.
//
// Invalidation (error mode PEER). A key that is packed with UCT_MD_MKEY_PACK_FLAG_INVALIDATE belongs to memory regions
// of the handle's own (`revocable`), never to the cached ones. Deregistering those makes the key invalid at once, while
// the cached region stays with whoever else uses it.
//
// Threads: any (UCX registers from several workers, and the registration cache deregisters from memory hooks).
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "uct_mp/channel/interface.h"
#include "uct_mp/ucx/compat.h"
#include "uct_mp/ucx/config.h"
#include "uct_mp/verbs/device.h"
#include "uct_mp/verbs/key_table.h"
#include "uct_mp/verbs/memory.h"

namespace ucx_mp::face::abi {
struct CacheOptionsStorage;
}

namespace ucx_mp::face {

// Registered with every adapter for as long as it lives. Offered to peers, and known to the key table, while a handle
// lives that has packed its keys.
class RegisteredMemory {
public:
    [[nodiscard]] Status open(const verbs::DeviceSet& devices, verbs::KeyTable& keys, void* address,
                              std::size_t length);
    RegisteredMemory() = default;
    RegisteredMemory(const RegisteredMemory&) = delete;
    ~RegisteredMemory();

    // Both by one thread at a time. `first`: of the caller's handle, which calls withdraw() at its end.
    void pack(void* out, bool first);
    void withdraw();
    [[nodiscard]] const verbs::Registration& registration() const { return registration_; }
    [[nodiscard]] verbs::Registration& registration() { return registration_; }

    // In the cache: handles that use it, and when the last one was given
    // back (Md's count). The least recently used region goes first.
    std::atomic<unsigned> users{0};
    std::atomic<std::uint64_t> left{0};

private:
    verbs::Registration registration_;
    verbs::KeyTable* keys_ = nullptr; // set while registered
    std::uint64_t address_ = 0, length_ = 0;
    unsigned offers_ = 0; // handles that have packed
};

// For the registration cache, which allocates it and knows nothing of constructors. UCX's part
// comes first; it begins with the range in every version, and is nowhere larger than this.
struct Region {
    static constexpr std::size_t kHeader = 96; // bytes
    std::uintptr_t start, end;
    std::byte rest[kHeader - 2 * sizeof(std::uintptr_t)];
    alignas(RegisteredMemory) std::byte storage[sizeof(RegisteredMemory)];

    [[nodiscard]] static Region& of(void* region) { return *static_cast<Region*>(region); }
    [[nodiscard]] RegisteredMemory& memory() { return *std::launder(reinterpret_cast<RegisteredMemory*>(storage)); }
};

// The core sees the base: a copy of the keys.
struct Memory : verbs::MemoryKeys {
    explicit Memory(void* from, std::size_t bytes) : address(from), length(bytes) {}
    ~Memory() {
        if (keys_of) keys_of->drop_copy(*this);
    }
    void copy_keys(verbs::Registration& from) {
        from.add_copy(*this);
        keys_of = &from;
    }
    [[nodiscard]] RegisteredMemory& memory() const { return region ? region->memory() : *own; }
    bool packed = false;
    void* address = nullptr; // as the user gave it
    std::size_t length = 0;
    verbs::Registration* keys_of = nullptr;      // those of `region` or `own`
    Region* region = nullptr;                    // of the cache; null: `own`
    std::unique_ptr<RegisteredMemory> own;       // without the cache
    std::unique_ptr<RegisteredMemory> revocable; // made by the first key packed for invalidation
};

class Md : public abi::MdBase {
public:
    Md() = default; // the layout sets the base; open() then
    Md(const Md&) = delete;
    ~Md();
    ucs_status_t open(const MdOptions& options, const abi::CacheOptionsStorage& cache_options);
    [[nodiscard]] static Md& of(uct_md_h md) { return *static_cast<Md*>(reinterpret_cast<abi::MdBase*>(md)); }
    [[nodiscard]] static uct_md_h handle(Md& md) { return reinterpret_cast<uct_md_h>(static_cast<abi::MdBase*>(&md)); }

    [[nodiscard]] const verbs::DeviceSet& devices() const { return devices_; }
    [[nodiscard]] const verbs::KeyTable& keys() const { return keys_; }
    // The domain's part; interfaces add theirs.
    [[nodiscard]] const channel::Config& config() const { return config_; }
    [[nodiscard]] TasksMode tasks_mode() const { return tasks_mode_; }
    // UCX_MP_RECOVERY_THREAD=yes: the user is told if there can be none.
    [[nodiscard]] bool insists_on_thread() const { return insists_on_thread_; }
    [[nodiscard]] std::size_t packed_key_size() const;
    [[nodiscard]] ucs_linear_func_t registration_cost() const { return reg_cost_; }
    void show_in_vfs();

    // Functions that UCX calls. memory.cc
    ucs_status_t register_memory(void* address, std::size_t length, unsigned flags, uct_mem_h* out);
    // `completion`: called when the keys are invalid, if `invalidate` is set.
    ucs_status_t deregister_memory(uct_mem_h memh, bool invalidate, uct_completion_t* completion);
    ucs_status_t pack_key(uct_mem_h memh, bool revocable, void* out);
    static ucs_status_t unpack_key(const void* buffer, uct_rkey_t* rkey, void** handle);
    static ucs_status_t release_key(uct_rkey_t rkey);
    // 0: of the same registration; else an order.
    static int compare_keys(uct_rkey_t first, uct_rkey_t second);

    // Functions that the registration cache calls. The object in a region
    // exists between a make_region() that succeeds and end_region().
    ucs_status_t make_region(Region& region, bool quiet);
    void end_region(Region& region);

private:
    [[nodiscard]] bool test_packet_numbers(int wish);
    ucs_status_t open_cache(const MdOptions& options, const abi::CacheOptionsStorage& cache_options);
    static void memory_unmapped(ucm_event_type_t, ucm_event_t* event, void* self);
    Status make(RegisteredMemory& memory, void* address, std::size_t length, bool quiet);
    Status make_own(RegisteredMemory& memory, void* address, std::size_t length, bool quiet);
    ucs_status_t find_region(void* address, std::size_t length, unsigned flags, void*& region);
    bool give_back(std::size_t bytes);
    void complain(const void* address, std::size_t length, int error, bool quiet);
    [[nodiscard]] std::string who_locks() const;

    verbs::DeviceSet devices_;
    verbs::KeyTable keys_;
    channel::Config config_;
    TasksMode tasks_mode_ = TasksMode::automatic;
    bool insists_on_thread_ = false;
    void* cache_ = nullptr;
    std::size_t cache_alignment_ = 0; // bytes, of the cache's regions
    ucs_linear_func_t reg_cost_{};
    mutable std::mutex listing_;            // guards `regions_`; nothing else is locked inside
    std::unordered_set<Region*> regions_;   // of the cache
    std::atomic<std::size_t> own_bytes_{0}; // of handles without the cache, and of revocable keys
    std::atomic<std::uint64_t> left_{0};    // see RegisteredMemory::left
    std::atomic<bool> complained_{false};
    std::mutex packing_;  // guards packing of keys, and withdrawing them: slow path
    bool hooked_ = false; // hears when memory is unmapped
};

} // namespace ucx_mp::face
