// Registering, packing keys, invalidating: the slow path of memory (with the cache: the path of every large message).
#include <cerrno>

#include "uct_mp/ucx/guard.h"
#include "uct_mp/ucx/md.h"

namespace ucx_mp::face {

Status Md::make(RegisteredMemory& memory, void* address, std::size_t length, bool quiet) {
    errno = 0;
    const Status status = memory.open(devices_, keys_, address, length);
    if (status == Status::ok) {
        ucs_trace("mp: registered %p..%p rkey 0x%x", address, static_cast<char*>(address) + length,
                  memory.registration().rkey[0]);
        return status;
    }
    const int error = errno;
    ucs_log(quiet ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_ERROR, "mp: cannot register %zu bytes at %p: %s%s", length,
            address, strerror(error), error == ENOMEM ? " (limit of locked memory, see ulimit -l)" : "");
    return status;
}

// Cache callbacks. Regions are zeroed memory; the object in them exists between a successful reg and dereg.

ucs_status_t Md::cache_reg(void* context, ucs_rcache_t*, void* arg, ucs_rcache_region_t* base, std::uint16_t flags) {
    Md& md = *static_cast<Md*>(context);
    Region* region = reinterpret_cast<Region*>(base);
    const unsigned user_flags = *static_cast<const unsigned*>(arg);
    const bool quiet = (flags & UCS_RCACHE_MEM_REG_HIDE_ERRORS) || (user_flags & UCT_MD_MEM_FLAG_HIDE_ERRORS);
    return guard("registering memory", [&] {
        auto* memory = new (region->storage) RegisteredMemory;
        const Status status =
            md.make(*memory, reinterpret_cast<void*>(base->super.start), base->super.end - base->super.start, quiet);
        if (status != Status::ok) memory->~RegisteredMemory();
        return to_ucs(status);
    });
}

void Md::cache_dereg(void*, ucs_rcache_t*, ucs_rcache_region_t* base) {
    reinterpret_cast<Region*>(base)->memory().~RegisteredMemory();
}

void Md::cache_dump(void*, ucs_rcache_t*, ucs_rcache_region_t* base, char* buffer, std::size_t max) {
    const verbs::Registration& keys = reinterpret_cast<Region*>(base)->memory().registration();
    std::snprintf(buffer, max, "lkey 0x%x rkey 0x%x on %u adapters", keys.lkey[0], keys.rkey[0], keys.count);
}

ucs_status_t Md::mem_reg(uct_md_h md, void* address, std::size_t length, unsigned flags, uct_mem_h* out) {
    Md& self = of(md);
    return guard("registering memory", [&] {
        auto memory = std::make_unique<Memory>(address, length);
        if (self.cache_) {
            ucs_rcache_region_t* region = nullptr;
            const ucs_status_t status =
                ucs_rcache_get(self.cache_, address, length, PROT_READ | PROT_WRITE, &flags, &region);
            if (status != UCS_OK) return status;
            memory->region = reinterpret_cast<Region*>(region);
            memory->copy_keys(memory->region->memory().registration());
        } else {
            memory->own = std::make_unique<RegisteredMemory>();
            const Status status = self.make(*memory->own, address, length, flags & UCT_MD_MEM_FLAG_HIDE_ERRORS);
            if (status != Status::ok) return to_ucs(status);
            memory->copy_keys(memory->own->registration());
        }
        *out = static_cast<verbs::MemoryKeys*>(memory.release());
        return UCS_OK;
    });
}

ucs_status_t Md::mkey_pack(uct_md_h md, uct_mem_h memh, const uct_md_mkey_pack_params_t* params, void* out) {
    Md& self = of(md);
    Memory& memory = *static_cast<Memory*>(static_cast<verbs::MemoryKeys*>(memh));
    const unsigned flags = params && (params->field_mask & UCT_MD_MKEY_PACK_FIELD_FLAGS) ? params->flags : 0;
    return guard("packing a key", [&] {
        const std::lock_guard lock(self.packing_);
        if (!(flags & UCT_MD_MKEY_PACK_FLAG_INVALIDATE)) {
            memory.memory().pack(out, !memory.packed);
            memory.packed = true;
            return UCS_OK;
        }
        if (!memory.revocable) {
            auto revocable = std::make_unique<RegisteredMemory>();
            const Status status = self.make(*revocable, memory.address, memory.length, false);
            if (status != Status::ok) return to_ucs(status);
            revocable->pack(out, true);
            memory.revocable = std::move(revocable);
            return UCS_OK;
        }
        memory.revocable->pack(out, false);
        return UCS_OK;
    });
}

ucs_status_t Md::mem_dereg(uct_md_h md, const uct_md_mem_dereg_params_t* params) {
    Md& self = of(md);
    if (!(params->field_mask & UCT_MD_MEM_DEREG_FIELD_MEMH) || !params->memh) return UCS_ERR_INVALID_PARAM;
    const unsigned flags = params->field_mask & UCT_MD_MEM_DEREG_FIELD_FLAGS ? params->flags : 0;
    const bool invalidate = flags & UCT_MD_MEM_DEREG_FLAG_INVALIDATE;
    uct_completion_t* completion = params->field_mask & UCT_MD_MEM_DEREG_FIELD_COMPLETION ? params->comp : nullptr;
    if (invalidate && !completion) return UCS_ERR_INVALID_PARAM;

    const std::unique_ptr<Memory> memory(static_cast<Memory*>(static_cast<verbs::MemoryKeys*>(params->memh)));
    const bool all_revoked = memory->revocable || !memory->region;
    // From here on no key that was packed for invalidation works.
    memory->revocable.reset();
    if (memory->packed) { // what stays in the cache is no longer offered to anybody
        const std::lock_guard lock(self.packing_);
        memory->memory().withdraw();
    }
    if (memory->keys_of) std::exchange(memory->keys_of, nullptr)->drop_copy(*memory);
    memory->own.reset();
    if (memory->region) {
        ucs_rcache_region_t* region = &memory->region->super;
        if (invalidate && !all_revoked) {
            // An ordinary key has been given away: it dies with the region, when the last user has let go.
            ucs_rcache_region_invalidate(
                self.cache_, region,
                [](void* arg) { uct_invoke_completion(static_cast<uct_completion_t*>(arg), UCS_OK); }, completion);
            completion = nullptr;
        }
        ucs_rcache_region_put(self.cache_, region);
    }
    if (invalidate && completion) uct_invoke_completion(completion, UCS_OK);
    return UCS_OK;
}

ucs_status_t Md::rkey_unpack(uct_component_t*, const void* buffer, uct_rkey_t* rkey, void** handle) {
    return guard("unpacking a key", [&] {
        auto keys = std::make_unique<verbs::RemoteKeys>();
        if (!verbs::unpack_keys(buffer, *keys)) {
            ucs_error("mp: a remote key with an impossible number of adapters");
            return UCS_ERR_INVALID_PARAM;
        }
        *handle = keys.get();
        *rkey = reinterpret_cast<uct_rkey_t>(keys.release());
        return UCS_OK;
    });
}

ucs_status_t Md::rkey_release(uct_component_t*, uct_rkey_t rkey, void*) {
    delete reinterpret_cast<verbs::RemoteKeys*>(rkey);
    return UCS_OK;
}

} // namespace ucx_mp::face
