// Registering, packing keys, invalidating: the slow path of memory (with the cache: the path of every large message).
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "uct_mp/ucx/abi/layout.h"
#include "uct_mp/ucx/guard.h"
#include "uct_mp/ucx/md.h"
#include "uct_mp/verbs/registry.h"

namespace ucx_mp::face {

Status Md::make(RegisteredMemory& memory, void* address, std::size_t length, bool quiet) {
    errno = 0;
    const Status status = memory.open(devices_, keys_, address, length);
    if (status == Status::ok)
        ucs_trace("mp: registered %p..%p rkey 0x%x", address, static_cast<char*>(address) + length,
                  memory.registration().rkey[0]);
    else if (status != Status::no_memory) // a lack of memory is reported later, when nothing more can be given back
        complain(address, length, errno, quiet);
    return status;
}

// At least one line where memory is short, also if the caller
// goes another way: it is slower, and the user wants to know why.
void Md::complain(const void* address, std::size_t length, int error, bool quiet) {
    const bool first = error == ENOMEM && !complained_.exchange(true);
    const ucs_log_level_t level = !quiet ? UCS_LOG_LEVEL_ERROR : first ? UCS_LOG_LEVEL_WARN : UCS_LOG_LEVEL_DIAG;
    if (!ucs_log_is_enabled(level)) return; // who_locks() looks at all regions
    ucs_log(level, "mp: cannot register %zu bytes at %p: %s", length, address,
            verbs::registration_trouble(error, error == ENOMEM ? who_locks() : "").c_str());
}

// In KiB, counted for each adapter.
std::string Md::who_locks() const {
    const std::size_t all = devices_.registry()->locked(), times = devices_.devices().size();
    std::size_t used = own_bytes_, unused = 0;
    {
        const std::lock_guard lock(listing_);
        for (Region* const region : regions_) (region->memory().users ? used : unused) += region->end - region->start;
    }
    const auto kib = [](std::size_t bytes) { return std::to_string(bytes / 1024) + " KiB"; };
    used *= times, unused *= times;
    return kib(all) + " are registered with " + std::to_string(times) + " adapters: " + kib(used) +
           " that the program uses, " + kib(unused) + " that it has used, " + kib(all - std::min(all, used + unused)) +
           " of the transport";
}

// Gives back registered memory that is unused, the regions first that have
// been unused for longest. Not from within the cache, which has its lock.
bool Md::give_back(std::size_t bytes) {
    struct Unused {
        std::uint64_t left;
        std::uintptr_t start, end;
    };
    std::vector<Unused> list;
    {
        const std::lock_guard lock(listing_);
        for (Region* const region : regions_)
            if (region->memory().users == 0) list.push_back({region->memory().left, region->start, region->end});
    }
    std::ranges::sort(list, {}, &Unused::left);
    std::size_t given = 0;
    for (const Unused& each : list) {
        void* found = nullptr;
        const std::size_t length = each.end - each.start;
        // It is in the cache, or has gone since.
        if (abi::layout().find_in_cache(cache_, reinterpret_cast<void*>(each.start), length, cache_alignment_,
                                        UCT_MD_MEM_FLAG_HIDE_ERRORS, &found) != UCS_OK)
            continue;
        abi::cache_invalidate(
            cache_, found, [](void*) {}, nullptr); // when nobody uses it any more
        abi::cache_put(cache_, found);
        if ((given += length) >= bytes) break;
    }
    ucs_debug("mp: %zu bytes of unused memory are no longer registered", given);
    return given != 0;
}

// Registers without the cache, or beside it.
Status Md::make_own(RegisteredMemory& memory, void* address, std::size_t length, bool quiet) {
    Status status;
    do status = make(memory, address, length, quiet);
    while (status == Status::no_memory && cache_ && give_back(length));
    if (status == Status::no_memory) complain(address, length, ENOMEM, quiet);
    own_bytes_ += status == Status::ok ? length : 0;
    return status;
}

ucs_status_t Md::find_region(void* address, std::size_t length, unsigned flags, void*& region) {
    ucs_status_t status;
    do status = abi::layout().find_in_cache(cache_, address, length, cache_alignment_, flags, &region);
    while (status == UCS_ERR_NO_MEMORY && give_back(length));
    if (status == UCS_ERR_NO_MEMORY) complain(address, length, ENOMEM, flags & UCT_MD_MEM_FLAG_HIDE_ERRORS);
    return status;
}

ucs_status_t Md::make_region(Region& region, bool quiet) {
    return guard("registering memory", [&] {
        auto* memory = new (region.storage) RegisteredMemory;
        const Status status = make(*memory, reinterpret_cast<void*>(region.start), region.end - region.start, quiet);
        if (status != Status::ok) {
            memory->~RegisteredMemory();
            return to_ucs(status);
        }
        const std::lock_guard lock(listing_);
        regions_.insert(&region);
        return UCS_OK;
    });
}

void Md::end_region(Region& region) {
    {
        const std::lock_guard lock(listing_);
        regions_.erase(&region);
    }
    region.memory().~RegisteredMemory();
}

ucs_status_t Md::register_memory(void* address, std::size_t length, unsigned flags, uct_mem_h* out) {
    *out = UCT_MEM_HANDLE_NULL;
    return guard("registering memory", [&] {
        auto memory = std::make_unique<Memory>(address, length);
        if (cache_) {
            void* region = nullptr;
            if (const ucs_status_t status = find_region(address, length, flags, region); status != UCS_OK)
                return status;
            memory->region = &Region::of(region);
            ++memory->region->memory().users;
            memory->copy_keys(memory->region->memory().registration());
        } else {
            memory->own = std::make_unique<RegisteredMemory>();
            const Status status = make_own(*memory->own, address, length, flags & UCT_MD_MEM_FLAG_HIDE_ERRORS);
            if (status != Status::ok) return to_ucs(status);
            memory->copy_keys(memory->own->registration());
        }
        *out = static_cast<verbs::MemoryKeys*>(memory.release());
        return UCS_OK;
    });
}

ucs_status_t Md::pack_key(uct_mem_h memh, bool revocable, void* out) {
    Memory& memory = *static_cast<Memory*>(static_cast<verbs::MemoryKeys*>(memh));
    const ucs_status_t status = guard("packing a key", [&] {
        const std::lock_guard lock(packing_);
        if (!revocable) {
            memory.memory().pack(out, !memory.packed);
            memory.packed = true;
            return UCS_OK;
        }
        if (!memory.revocable) {
            auto made = std::make_unique<RegisteredMemory>();
            const Status status = make_own(*made, memory.address, memory.length, false);
            if (status != Status::ok) return to_ucs(status);
            made->pack(out, true);
            memory.revocable = std::move(made);
            return UCS_OK;
        }
        memory.revocable->pack(out, false);
        return UCS_OK;
    });
    if (status != UCS_OK) std::memset(out, 0, packed_key_size()); // of no adapter: no peer takes it for a key
    return status;
}

ucs_status_t Md::deregister_memory(uct_mem_h memh, bool invalidate, uct_completion_t* completion) {
    if (invalidate && !completion) return UCS_ERR_INVALID_PARAM;

    const std::unique_ptr<Memory> memory(static_cast<Memory*>(static_cast<verbs::MemoryKeys*>(memh)));
    const bool all_revoked = !memory->region || (memory->revocable && !memory->packed);
    // From here on no key that was packed for invalidation works.
    own_bytes_ -= (memory->revocable ? memory->length : 0) + (memory->own ? memory->length : 0);
    memory->revocable.reset();
    if (memory->packed) { // a region that stays in the cache is no longer offered to peers
        const std::lock_guard lock(packing_);
        memory->memory().withdraw();
    }
    if (memory->keys_of) std::exchange(memory->keys_of, nullptr)->drop_copy(*memory);
    memory->own.reset();
    if (memory->region) {
        Region* const region = memory->region;
        if (invalidate && !all_revoked) {
            // An ordinary key has been given away: it dies with the region, when the last user has let go.
            abi::cache_invalidate(
                cache_, region, [](void* arg) { complete(static_cast<uct_completion_t*>(arg), UCS_OK); }, completion);
            completion = nullptr;
        }
        region->memory().left = ++left_;
        --region->memory().users;
        abi::cache_put(cache_, region);
    }
    if (invalidate && completion) complete(completion, UCS_OK);
    return UCS_OK;
}

// Open MPI 4.1's osc/ucx hands over rubbish now and then. With any other status UCP gives up all keys
// that it has unpacked, this one, too, which it does not have then; some versions do not know that one
// is invalid. With this one it leaves the memory domain out: operations with that key go by messages.
ucs_status_t Md::unpack_key(const void* buffer, uct_rkey_t* rkey, void** handle) {
    *rkey = UCT_INVALID_RKEY;
    *handle = nullptr;
    return guard("unpacking a key", [&] {
        auto keys = std::make_unique<verbs::RemoteKeys>();
        if (!verbs::unpack_keys(buffer, *keys)) {
            ucs_diag("mp: a remote key of %u adapters (allowed: 1 to %u) is none of ours: what it is for goes without",
                     *static_cast<const std::uint8_t*>(buffer), verbs::kMaxDevices);
            return UCS_ERR_UNREACHABLE;
        }
        *handle = keys.get();
        *rkey = reinterpret_cast<uct_rkey_t>(keys.release());
        return UCS_OK;
    });
}

ucs_status_t Md::release_key(uct_rkey_t rkey) {
    if (rkey != UCT_INVALID_RKEY) delete reinterpret_cast<verbs::RemoteKeys*>(rkey);
    return UCS_OK;
}

int Md::compare_keys(uct_rkey_t first, uct_rkey_t second) {
    const std::uint64_t a = reinterpret_cast<const verbs::RemoteKeys*>(first)->id;
    const std::uint64_t b = reinterpret_cast<const verbs::RemoteKeys*>(second)->id;
    return a == b ? 0 : a < b ? -1 : 1;
}

} // namespace ucx_mp::face
