// Changes of UCX 1.15.
#pragma once

#include "uct_mp/ucx/abi/v1_14.h"

namespace ucx_mp::face::abi {

struct V1_15 : V1_14 {
    static constexpr unsigned kMinor = 15;

    struct ConfigEntry { // ucs_config_global_list_entry
        const char* name;
        const char* prefix;
        void* table;
        std::size_t size;
        ucs_list_link_t list;
        std::uint8_t flags; // UCX's own
    };

    struct MdCached {
        std::uint64_t reg_nonblock_mem_types;
        std::uint64_t cache_mem_types;
    };
    struct MdAttributes : MdLimits, MdCached, MdMemory {};
    // UCT_MD_FLAG_INVALIDATE, and for remote access and atomics apart
    static constexpr std::uint64_t kMdInvalidates = 1 << 8 | 1 << 11 | 1 << 12;
    static constexpr unsigned kPackRevocable = 1 | 2; // UCT_MD_MKEY_PACK_FLAG_INVALIDATE_RMA, _AMO

    using MdOperations = MdOperationsOf<MdAttributes, RegParameters>;

    struct ReachableParameters { // uct_iface_is_reachable_params; later versions have more behind it
        std::uint64_t field_mask;
        const uct_device_addr_t* device_addr;
        const uct_iface_addr_t* iface_addr;
        char* info_string;
        std::size_t info_string_length;
        int scope;
    };
    // UCT_IFACE_IS_REACHABLE_FIELD_..., UCT_IFACE_REACHABILITY_SCOPE_DEVICE
    static constexpr std::uint64_t kReachableDevice = 1, kReachableIface = 2, kReachableInfo = 4,
                                   kReachableInfoLength = 8, kReachableScope = 16;
    static constexpr int kScopeDevice = 0;

    using IsReachable = int (*)(uct_iface_h iface, const ReachableParameters* parameters);
    struct InternalOperations : V1_14::InternalOperations {
        IsReachable iface_is_reachable_v2;
    };

    using Component = ComponentOf<ConfigEntry>;
};

} // namespace ucx_mp::face::abi
