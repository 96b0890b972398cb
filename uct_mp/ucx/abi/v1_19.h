// Changes of UCX 1.19.
#pragma once

#include "uct_mp/ucx/abi/v1_18.h"

namespace ucx_mp::face::abi {

struct V1_19 : V1_18 {
    static constexpr unsigned kMinor = 19;

    using AllocNear = ucs_status_t (*)(uct_md_h md, std::size_t* length, void** address, ucs_memory_type_t type,
                                       ucs_sys_device_t device, unsigned flags, const char* name, uct_mem_h* memh);
    using MdOperations = MdOperationsOf<MdAttributes, RegParameters, AllocNear>;

    struct PerfPath {
        uct_ppn_bandwidth_t path_bandwidth;
    };
    struct PerfAttributes : PerfCosts, PerfPath, PerfLatency {
        std::uint64_t flags;
    };
    static constexpr std::uint64_t kPerfPathBandwidth = 1 << 9, kPerfInFlight = 1 << 11;
    using InternalOperations = InternalOperationsOf<PerfAttributes>;

    using Unpack = ucs_status_t (*)(void* component, const void* buffer, const void* parameters, uct_rkey_t* key,
                                    void** handle);
    using Component = ComponentOf<Unpack>;

    struct CacheOptions { // ucs_rcache_config
        unsigned event_prio;
        std::uint64_t overhead;
        unsigned long max_regions;
        std::size_t max_size;
        std::size_t max_unreleased;
        int purge_on_fork;
    };
};

} // namespace ucx_mp::face::abi
