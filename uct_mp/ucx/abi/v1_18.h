// Changes of UCX 1.18.
#pragma once

#include "uct_mp/ucx/abi/v1_17.h"

namespace ucx_mp::face::abi {

struct V1_18 : V1_17 {
    static constexpr unsigned kMinor = 18;

    struct MdCached : V1_17::MdCached {
        std::uint64_t gva_mem_types;
    };
    struct MdAttributes : MdLimits, MdCached, MdMemory {
        std::size_t reg_alignment;
    };
    using MdOperations = MdOperationsOf<MdAttributes>;

    struct CacheOperations { // ucs_rcache_ops
        ucs_status_t (*mem_reg)(void* context, void* cache, void* arg, void* region, std::uint16_t flags);
        void (*mem_dereg)(void* context, void* cache, void* region);
        void (*merge)(void* context, void* cache, void* arg, void* region); // never null
        void (*dump_region)(void* context, void* cache, void* region, char* text, std::size_t max);
    };
};

} // namespace ucx_mp::face::abi
