// Changes of UCX 1.18.
#pragma once

#include "uct_mp/ucx/abi/v1_17.h"

namespace ucx_mp::face::abi {

struct V1_18 : V1_17 {
    static constexpr unsigned kMinor = 18;

    struct MdAttributes { // uct_md_attr_v2_t
        std::uint64_t field_mask;
        std::uint64_t max_alloc;
        std::size_t max_reg;
        std::uint64_t flags;
        std::uint64_t reg_mem_types;
        std::uint64_t reg_nonblock_mem_types;
        std::uint64_t cache_mem_types;
        std::uint64_t gva_mem_types;
        std::uint64_t detect_mem_types;
        std::uint64_t alloc_mem_types;
        std::uint64_t access_mem_types;
        std::uint64_t dmabuf_mem_types;
        ucs_linear_func_t reg_cost;
        char component_name[UCT_COMPONENT_NAME_MAX];
        std::size_t rkey_packed_size;
        ucs_cpu_set_t local_cpus;
        std::size_t exported_mkey_packed_size;
        char global_id[256];
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
