// The memory domain: the adapters, what its interfaces share (paths, policy), and registered memory.
//
// Memory handles (uct_mem_h) are Memory objects, one per registration call, so that invalidating one never touches
// another user of the same cached region. Behind a handle is either a region of the registration cache, shared and
// kept, or memory regions of its own.
//
// Invalidation (error mode PEER). A key that is packed with UCT_MD_MKEY_PACK_FLAG_INVALIDATE belongs to memory regions
// of the handle's own (`revocable`), never to the cached ones: deregistering those makes the key invalid at once, while
// the cached region stays with whoever else uses it.
//
// Threads: any (UCX registers from several workers, and the registration cache deregisters from memory hooks).
#pragma once

#include <memory>
#include <mutex>

#include "uct_mp/channel/interface.h"
#include "uct_mp/ucx/compat.h"
#include "uct_mp/ucx/config.h"
#include "uct_mp/verbs/device.h"
#include "uct_mp/verbs/key_table.h"
#include "uct_mp/verbs/memory.h"

namespace ucx_mp::face {

// Registered with every adapter for as long as it lives; offered to peers, and known to the key table, for as long as a
// handle lives that its keys have been packed by.
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

private:
    verbs::Registration registration_;
    verbs::KeyTable* keys_ = nullptr; // set while registered
    std::uint64_t address_ = 0, length_ = 0;
    unsigned offers_ = 0; // handles that have packed
};

struct Region { // of the registration cache, which allocates it and knows nothing of constructors
    ucs_rcache_region_t super;
    alignas(RegisteredMemory) std::byte storage[sizeof(RegisteredMemory)];
    [[nodiscard]] RegisteredMemory& memory() { return *std::launder(reinterpret_cast<RegisteredMemory*>(storage)); }
};

// The base is what the core sees: a copy of the keys.
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
    verbs::Registration* keys_of = nullptr;      // of `region` or `own`
    Region* region = nullptr;                    // of the cache; null: `own`
    std::unique_ptr<RegisteredMemory> own;       // without the cache
    std::unique_ptr<RegisteredMemory> revocable; // made by the first key packed for invalidation
};

class Md : public uct_md_t {
public:
    static ucs_status_t open(uct_component_t* component, const char* name, const uct_md_config_t* options,
                             uct_md_h* out);
    [[nodiscard]] static Md& of(uct_md_h md) { return *static_cast<Md*>(md); }

    [[nodiscard]] const verbs::DeviceSet& devices() const { return devices_; }
    [[nodiscard]] const verbs::KeyTable& keys() const { return keys_; }
    // The domain's part; interfaces add theirs.
    [[nodiscard]] const channel::Config& config() const { return config_; }

    static ucs_status_t rkey_unpack(uct_component_t* component, const void* buffer, uct_rkey_t* rkey, void** handle);
    static ucs_status_t rkey_release(uct_component_t* component, uct_rkey_t rkey, void* handle);
    static void vfs_init(uct_md_h md);

private:
    Md() = default;
    ~Md();
    ucs_status_t open(const MdOptions& options);
    [[nodiscard]] bool test_packet_numbers(int wish);
    ucs_status_t open_cache(const MdOptions& options);

    static void close(uct_md_h md);
    static ucs_status_t query(uct_md_h md, uct_md_attr_t* attr);
    static ucs_status_t mem_reg(uct_md_h md, void* address, std::size_t length, unsigned flags, uct_mem_h* out);
    static ucs_status_t mem_dereg(uct_md_h md, const uct_md_mem_dereg_params_t* params);
    static ucs_status_t mkey_pack(uct_md_h md, uct_mem_h memh, const uct_md_mkey_pack_params_t* params, void* out);
    static ucs_status_t cache_reg(void* context, ucs_rcache_t* cache, void* arg, ucs_rcache_region_t* region,
                                  std::uint16_t flags);
    static void cache_dereg(void* context, ucs_rcache_t* cache, ucs_rcache_region_t* region);
    static void cache_dump(void* context, ucs_rcache_t* cache, ucs_rcache_region_t* region, char* buffer,
                           std::size_t max);
    static void memory_unmapped(ucm_event_type_t, ucm_event_t* event, void* self);
    Status make(RegisteredMemory& memory, void* address, std::size_t length, bool quiet);

    static uct_md_ops_t ops_;
    verbs::DeviceSet devices_;
    verbs::KeyTable keys_;
    channel::Config config_;
    ucs_rcache_t* cache_ = nullptr;
    ucs_linear_func_t reg_cost_{};
    std::mutex packing_;  // of keys, and withdrawing them: slow path
    bool hooked_ = false; // hears when memory is unmapped
};

} // namespace ucx_mp::face
