// Changes of UCX 1.17.
#pragma once

#include "uct_mp/ucx/abi/v1_16.h"

namespace ucx_mp::face::abi {

struct V1_17 : V1_16 {
    static constexpr unsigned kMinor = 17;

    struct Parser { // ucs_config_parser
        int (*read)(const char* text, void* to, const void* arg);
        int (*write)(char* text, std::size_t max, const void* from, const void* arg);
        ucs_status_t (*clone)(const void* from, void* to, const void* arg);
        void (*release)(void* value, const void* arg);
        void (*help)(char* text, std::size_t max, const void* arg);
        void (*doc)(void* text, const void* arg);
        const void* arg;
    };

    struct PerfAttributes : V1_16::PerfAttributes {
        std::uint64_t flags;
    };
    using InternalOperations = InternalOperationsOf<PerfAttributes>;

    struct Region { // ucs_rcache_region
        std::uintptr_t start, end;
        ucs_list_link_t lru_list, tmp_list, comp_list;
        std::size_t alignment;
        volatile std::uint32_t refcount;
        ucs_status_t status;
        std::uint8_t prot, flags, lru_flags;
        union {
            std::uint64_t priv;
            unsigned long* pfn;
        };
    };
    struct CacheParameters { // ucs_rcache_params
        std::size_t region_struct_size;
        int ucm_events;
        int ucm_event_priority;
        const void* ops;
        void* context;
        int flags;
        unsigned long max_regions;
        std::size_t max_size;
        std::size_t max_unreleased;
    };
    using FindFunction = ucs_status_t (*)(void* cache, void* address, std::size_t length, std::size_t alignment,
                                          int prot, void* arg, void** region); // ucs_rcache_get
};

} // namespace ucx_mp::face::abi
