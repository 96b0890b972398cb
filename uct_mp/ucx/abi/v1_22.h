// Changes of UCX 1.22.
#pragma once

#include "uct_mp/ucx/abi/v1_21.h"

namespace ucx_mp::face::abi {

struct V1_22 : V1_21 {
    static constexpr unsigned kMinor = 22;

    struct MdAttributes : V1_21::MdAttributes {
        std::uint8_t required_mem_flags;
    };
    struct RegParameters : V1_21::RegParameters {
        ucs_memory_type_t mem_type;
    };
    using MdOperations = MdOperationsOf<MdAttributes, RegParameters>;

    struct InternalOperations : Query, V1_21::InternalOperations {
        ucs_status_t (*ep_put_sgl_zcopy)(uct_ep_h ep, void* const* buffers, const std::size_t* lengths,
                                         const uct_mem_h* memhs, const std::uint64_t* remotes, const uct_rkey_t* keys,
                                         const std::size_t* counts, const std::size_t* strides, std::size_t count,
                                         uct_completion_t* completion);
    };
};

} // namespace ucx_mp::face::abi
