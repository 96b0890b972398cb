// Changes of UCX 1.14.
#pragma once

#include "uct_mp/ucx/abi/v1_13.h"

namespace ucx_mp::face::abi {

template <class Parameters> using Register = ucs_status_t (*)(uct_md_h md, void* address, std::size_t length,
                                                              const Parameters* parameters, uct_mem_h* memh);
using Attach = ucs_status_t (*)(uct_md_h md, const void* key, void* parameters, uct_mem_h* memh);
// uct_md_ops, up to 1.15
template <class MdAttributes, class Parameters> struct MdOperationsOf
    : MdFunctions<MdAttributes, Alloc, Register<Parameters>, Pack> {
    Attach mem_attach;
    IsAccessible is_sockaddr_accessible;
    DetectType detect_memory_type;
};

struct MdLimits { // uct_md_attr_v2_t, its first members
    std::uint64_t field_mask;
    std::uint64_t max_alloc;
    std::size_t max_reg;
    std::uint64_t flags;
    std::uint64_t reg_mem_types;
};
struct MdMemory { // and the last ones
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
};

struct V1_14 : V1_13 {
    static constexpr unsigned kMinor = 14;

    struct MdCached {
        std::uint64_t cache_mem_types;
    };
    struct MdAttributes : MdLimits, MdCached, MdMemory {};
    struct RegParameters { // uct_md_mem_reg_params
        std::uint64_t field_mask;
        std::uint64_t flags;
        int dmabuf_fd;
        std::size_t dmabuf_offset;
    };
    static constexpr std::uint64_t kRegFlags = 1; // UCT_MD_MEM_REG_FIELD_FLAGS

    using MdOperations = MdOperationsOf<MdAttributes, RegParameters>;

    struct InternalOperations : V1_13::InternalOperations {
        ConnectToEp ep_connect_to_ep_v2;
    };
};

} // namespace ucx_mp::face::abi
