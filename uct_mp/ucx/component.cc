// The component "mp" with its transports, and how UCX gets to know it: by a constructor, since UCX before 1.22 loads
// only its own modules. The library is preloaded into UCX programs, or linked by something they load.
#include "uct_mp/ucx/compat.h"
#include "uct_mp/ucx/config.h"
#include "uct_mp/ucx/guard.h"
#include "uct_mp/ucx/iface.h"
#include "uct_mp/ucx/md.h"

namespace ucx_mp::face {

namespace {

ucs_status_t query_domains(uct_component_t* component, uct_md_resource_desc_t** out, unsigned* count) {
    return guard("looking for adapters", [&] {
        return verbs::DeviceSet::active_ports().empty() ? uct_md_query_empty_md_resource(out, count)
                                                        : uct_md_query_single_md_resource(component, out, count);
    });
}

ucs_status_t one_device(uct_md_h md, uct_tl_device_resource_t** out, unsigned* count) {
    return uct_single_device_resource(md, "mp0", UCT_DEVICE_TYPE_NET, UCS_SYS_DEVICE_ID_UNKNOWN, out, count);
}

ucs_status_t query_dc(uct_md_h md, uct_tl_device_resource_t** out, unsigned* count) {
    if (Md::of(md).devices().all_have_dc()) return one_device(md, out, count);
    *out = nullptr;
    *count = 0;
    return UCS_OK;
}

template <connect::Transport transport> ucs_status_t open_iface(uct_md_h md, uct_worker_h worker,
                                                                const uct_iface_params_t* params,
                                                                const uct_iface_config_t* options, uct_iface_h* out) {
    return Iface::open(transport, md, worker, params, options, out);
}

uct_component_t component = {
    .name = "mp",
    .query_md_resources = query_domains,
    .md_open = Md::open,
    .cm_open = [](auto...) { return UCS_ERR_UNSUPPORTED; },
    .rkey_unpack = Md::rkey_unpack,
    .rkey_ptr = [](auto...) { return UCS_ERR_UNSUPPORTED; },
    .rkey_release = Md::rkey_release,
    .md_config =
        {.name = "mp memory domain", .prefix = "MP_", .table = kMdTable, .size = sizeof(MdOptions), .list = {}},
    .cm_config = {.name = "", .prefix = "", .table = nullptr, .size = 0, .list = {}},
    .tl_list = UCS_LIST_INITIALIZER(&component.tl_list, &component.tl_list),
    .list = {},
    .flags = 0,
    .md_vfs_init = Md::vfs_init,
};

uct_tl_t rc = {
    .name = "mp_rc",
    .query_devices = one_device,
    .iface_open = open_iface<connect::Transport::rc>,
    .config =
        {.name = "mp_rc transport", .prefix = "MP_RC_", .table = kRcTable, .size = sizeof(IfaceOptions), .list = {}},
    .list = {},
};

uct_tl_t dc = {
    .name = "mp_dc",
    .query_devices = query_dc,
    .iface_open = open_iface<connect::Transport::dc>,
    .config =
        {.name = "mp_dc transport", .prefix = "MP_DC_", .table = kDcTable, .size = sizeof(IfaceOptions), .list = {}},
    .list = {},
};

// The library may be preloaded from one place and linked from another.
bool registered_already() {
    for (const ucs_list_link_t* link = uct_components_list.next; link != &uct_components_list; link = link->next)
        if (std::strcmp(reinterpret_cast<const uct_component_t*>(reinterpret_cast<const char*>(link) -
                                                                 offsetof(uct_component_t, list))
                            ->name,
                        component.name) == 0)
            return true;
    return false;
}

// Runs after libuct's own constructor: that one is a dependency.
__attribute__((constructor)) void register_component() {
    (void)guard("registering the component", [] {
        std::string error;
        if (!libraries_fit(error)) {
            ucs_error("%s", error.c_str());
            return UCS_ERR_UNSUPPORTED;
        }
        if (registered_already()) {
            ucs_debug("mp: registered already by another copy of the library");
            return UCS_ERR_ALREADY_EXISTS;
        }
        prepare_tables();
        uct_component_register(&component);
        uct_tl_register(&component, &rc);
        uct_tl_register(&component, &dc);
        return UCS_OK;
    });
}

} // namespace

} // namespace ucx_mp::face
