// The layout of UCX 1.13.
#include <deque>
#include <memory>
#include <vector>

#include "uct_mp/ucx/abi/layout.h"
#include "uct_mp/ucx/config.h"
#include "uct_mp/ucx/ep.h"
#include "uct_mp/ucx/guard.h"
#include "uct_mp/ucx/iface.h"
#include "uct_mp/ucx/md.h"
#include "uct_mp/ucx/variables.h"

namespace ucx_mp::face::abi {

namespace {

// ---- Variables

struct MdConfig {
    uct_md_config_t base;
    uct_md_rcache_config_t rcache;
    MdOptions ours;
};

struct IfaceConfig {
    uct_iface_config_t base;
    IfaceOptions ours;
};

ucs_config_array_t ucs_config_array_counts = {sizeof(unsigned), UCS_CONFIG_TYPE_UINT}; // the macro's name for it

ucs_config_parser_t parser_of(const Variable& variable) {
    switch (variable.syntax) {
    case Syntax::boolean:
        return UCS_CONFIG_TYPE_BOOL;
    case Syntax::ternary:
        return UCS_CONFIG_TYPE_TERNARY;
    case Syntax::count:
        return UCS_CONFIG_TYPE_UINT;
    case Syntax::bytes:
        return UCS_CONFIG_TYPE_MEMUNITS;
    case Syntax::amount:
        return UCS_CONFIG_TYPE_ULUNITS;
    case Syntax::time:
        return UCS_CONFIG_TYPE_TIME;
    case Syntax::text:
        return UCS_CONFIG_TYPE_STRING;
    case Syntax::texts:
        return UCS_CONFIG_TYPE_STRING_ARRAY;
    case Syntax::counts:
        return UCS_CONFIG_TYPE_ARRAY(counts);
    case Syntax::choice:
        return UCS_CONFIG_TYPE_ENUM(variable.choices);
    }
    __builtin_unreachable();
}

// A configuration table of UCX, which keeps pointers into it for the life of the process.
class Table {
public:
    [[nodiscard]] static Table& make() {
        static auto* const all = new std::deque<Table>;
        return all->emplace_back();
    }
    // `offset`: of our options in those of UCX.
    void add(const std::vector<Variable>& variables, std::size_t offset) {
        for (const Variable& from : variables)
            rows_.push_back({.name = from.name,
                             .dfl_value = from.initial.c_str(),
                             .doc = from.help.c_str(),
                             .offset = offset + from.offset,
                             .parser = parser_of(from)});
    }
    // UCX's own, which every transport has. They are listed as what they are to our users. `defaults`: "NAME=VALUE", of
    // those that we want to be others.
    void add_base(const ucs_config_field_t* rows, std::size_t offset, const char* defaults) {
        Table& copy = make();
        for (; rows->name; ++rows) {
            copy.rows_.push_back(*rows);
            if (rows->doc) copy.rows_.back().doc = copy.keep(heading(Group::tuning) + std::string(rows->doc));
        }
        rows_.push_back({.name = "",
                         .dfl_value = defaults,
                         .doc = nullptr,
                         .offset = offset,
                         .parser = UCS_CONFIG_TYPE_TABLE(copy.rows())});
    }
    [[nodiscard]] ucs_config_field_t* rows() {
        rows_.emplace_back(); // the end
        return rows_.data();
    }

private:
    const char* keep(std::string text) { return texts_.emplace_back(std::move(text)).c_str(); }

    std::vector<ucs_config_field_t> rows_;
    std::deque<std::string> texts_;
};

ucs_config_field_t* domain_table() {
    Table& table = Table::make();
    table.add(domain_variables(), offsetof(MdConfig, ours));
    table.add_base(uct_md_config_table, offsetof(MdConfig, base), "");
    table.add_base(uct_md_config_rcache_table, offsetof(MdConfig, rcache), "RCACHE_ADDR_ALIGN=16");
    return table.rows();
}

ucs_config_field_t* transport_table(connect::Transport transport) {
    Table& table = Table::make();
    table.add(transport_variables(transport), offsetof(IfaceConfig, ours));
    table.add_base(uct_iface_config_table, offsetof(IfaceConfig, base), "");
    return table.rows();
}

// ---- The memory domain

void md_close(uct_md_h md) { delete &Md::of(md); }

ucs_status_t md_query(uct_md_h md, uct_md_attr_t* attr) {
    const Md& self = Md::of(md);
    *attr = {};
    attr->cap.max_reg = ULONG_MAX;
    attr->cap.flags = Md::kFlags;
    attr->cap.reg_mem_types = attr->cap.access_mem_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    attr->rkey_packed_size = self.packed_key_size();
    attr->reg_cost = self.registration_cost();
    // Rails of one composite device lie near different processors: all of them are as near as any.
    std::memset(&attr->local_cpus, 0xff, sizeof attr->local_cpus);
    return UCS_OK;
}

ucs_status_t mem_reg(uct_md_h md, void* address, std::size_t length, unsigned flags, uct_mem_h* out) {
    return Md::of(md).register_memory(address, length, flags, out);
}

ucs_status_t mem_dereg(uct_md_h md, const uct_md_mem_dereg_params_t* params) {
    if (!(params->field_mask & UCT_MD_MEM_DEREG_FIELD_MEMH) || !params->memh) return UCS_ERR_INVALID_PARAM;
    const unsigned flags = params->field_mask & UCT_MD_MEM_DEREG_FIELD_FLAGS ? params->flags : 0;
    return Md::of(md).deregister_memory(params->memh, flags & UCT_MD_MEM_DEREG_FLAG_INVALIDATE,
                                        params->field_mask & UCT_MD_MEM_DEREG_FIELD_COMPLETION ? params->comp
                                                                                               : nullptr);
}

ucs_status_t mkey_pack(uct_md_h md, uct_mem_h memh, const uct_md_mkey_pack_params_t* params, void* out) {
    const unsigned flags = params && (params->field_mask & UCT_MD_MKEY_PACK_FIELD_FLAGS) ? params->flags : 0;
    return Md::of(md).pack_key(memh, flags & UCT_MD_MKEY_PACK_FLAG_INVALIDATE, out);
}

uct_md_ops_t md_operations = {
    .close = md_close,
    .query = md_query,
    .mem_alloc = nullptr, // flags say no
    .mem_free = nullptr,
    .mem_advise = [](auto...) { return UCS_ERR_UNSUPPORTED; },
    .mem_reg = mem_reg,
    .mem_dereg = mem_dereg,
    .mem_query = [](auto...) { return UCS_ERR_UNSUPPORTED; },
    .mkey_pack = mkey_pack,
    .is_sockaddr_accessible = [](auto...) { return 0; },
    .detect_memory_type = [](auto...) { return UCS_ERR_UNSUPPORTED; },
};

ucs_status_t md_open(uct_component_t* component, const char*, const uct_md_config_t* config, uct_md_h* out) {
    const auto& rcache = reinterpret_cast<const MdConfig*>(config)->rcache;
    return guard("opening the memory domain", [&] {
        std::unique_ptr<Md> md(new Md);
        md->ops = &md_operations;
        md->component = component;
        const ucs_status_t status = md->open(options_of(*config), rcache);
        if (status == UCS_OK) *out = md.release();
        return status;
    });
}

// ---- The registration cache. Regions are zeroed memory.

ucs_status_t cache_reg(void* md, ucs_rcache_t*, void* arg, ucs_rcache_region_t* region, std::uint16_t flags) {
    const unsigned user_flags = *static_cast<const unsigned*>(arg);
    const bool quiet = (flags & UCS_RCACHE_MEM_REG_HIDE_ERRORS) || (user_flags & UCT_MD_MEM_FLAG_HIDE_ERRORS);
    return static_cast<Md*>(md)->make_region(Region::of(region), quiet);
}

void cache_dereg(void*, ucs_rcache_t*, ucs_rcache_region_t* region) { Md::end_region(Region::of(region)); }

void cache_dump(void*, ucs_rcache_t*, ucs_rcache_region_t* region, char* buffer, std::size_t max) {
    const verbs::Registration& keys = Region::of(region).memory().registration();
    std::snprintf(buffer, max, "lkey 0x%x rkey 0x%x on %u adapters", keys.lkey[0], keys.rkey[0], keys.count);
}

// ---- The interface

bool is_message(uct_ep_operation_t operation) {
    return operation == UCT_EP_OP_AM_SHORT || operation == UCT_EP_OP_AM_BCOPY || operation == UCT_EP_OP_AM_ZCOPY;
}

// What UCX takes rendezvous by. It knows one bandwidth per interface where it uses the old protocols, so that of
// messages would be that of reads, and copies would be taken up to hundreds of KiB. There it asks for the overhead of a
// message alone (ucp_ep_config_calc_params): what the receiver does is told with it. The new protocols ask for all, by
// operation.
ucs_status_t estimate_perf(uct_iface_h iface, uct_perf_attr_t* attr) {
    const ucs_status_t status = uct_base_iface_estimate_perf(iface, attr);
    if (status != UCS_OK) return status;
    const Iface& self = Iface::of(iface);
    if (attr->field_mask & UCT_PERF_ATTR_FIELD_MAX_INFLIGHT_EPS)
        if (const std::size_t limit = self.concurrent_endpoints()) attr->max_inflight_eps = limit;
    if (!(attr->field_mask & UCT_PERF_ATTR_FIELD_OPERATION) || !is_message(attr->operation)) return UCS_OK;
    if (attr->field_mask & UCT_PERF_ATTR_FIELD_BANDWIDTH)
        attr->bandwidth = {.dedicated = self.message_bandwidth(), .shared = 0};
    else if (attr->field_mask & UCT_PERF_ATTR_FIELD_SEND_POST_OVERHEAD)
        attr->send_post_overhead += self.message_copy_time();
    return UCS_OK;
}

// Designated: the compiler checks the order against UCX's header. What is left out must not be called (the flags say
// so).
uct_iface_ops_t iface_operations = {
    .ep_put_short = ep::put_short,
    .ep_put_bcopy = ep::put_bcopy,
    .ep_put_zcopy = ep::put_zcopy,
    .ep_get_short = [](auto...) { return UCS_ERR_UNSUPPORTED; },
    .ep_get_bcopy = ep::get_bcopy,
    .ep_get_zcopy = ep::get_zcopy,
    .ep_am_short = ep::am_short,
    .ep_am_short_iov = ep::am_short_iov,
    .ep_am_bcopy = ep::am_bcopy,
    .ep_am_zcopy = ep::am_zcopy,
    .ep_atomic_cswap64 = ep::atomic_cswap64,
    .ep_atomic_cswap32 = ep::atomic_cswap32,
    .ep_atomic32_post = ep::atomic32_post,
    .ep_atomic64_post = ep::atomic64_post,
    .ep_atomic32_fetch = ep::atomic32_fetch,
    .ep_atomic64_fetch = ep::atomic64_fetch,
    .ep_tag_eager_short = nullptr,
    .ep_tag_eager_bcopy = nullptr,
    .ep_tag_eager_zcopy = nullptr,
    .ep_tag_rndv_zcopy = nullptr,
    .ep_tag_rndv_cancel = nullptr,
    .ep_tag_rndv_request = nullptr,
    .iface_tag_recv_zcopy = nullptr,
    .iface_tag_recv_cancel = nullptr,
    .ep_pending_add = ep::pending_add,
    .ep_pending_purge = ep::pending_purge,
    .ep_flush = ep::flush,
    .ep_fence = ep::fence,
    .ep_check = ep::check,
    .ep_create = ep::create,
    .ep_connect = nullptr,
    .ep_disconnect = nullptr,
    .cm_ep_conn_notify = nullptr,
    .ep_destroy = ep::destroy,
    .ep_get_address = nullptr,
    .ep_connect_to_ep = nullptr,
    .iface_accept = nullptr,
    .iface_reject = nullptr,
    .iface_flush = Iface::flush,
    .iface_fence = Iface::fence,
    .iface_progress_enable = Iface::progress_enable,
    .iface_progress_disable = uct_base_iface_progress_disable,
    .iface_progress = [](uct_iface_h iface) { return Iface::progress(iface); },
    .iface_event_fd_get = Iface::event_fd_get,
    .iface_event_arm = Iface::event_arm,
    .iface_close = Iface::close,
    .iface_query = Iface::query,
    .iface_get_device_address = Iface::get_device_address,
    .iface_get_address = Iface::get_address,
    .iface_is_reachable = Iface::is_reachable,
};

uct_iface_internal_ops_t iface_internal_operations = {
    .iface_estimate_perf = estimate_perf,
    .iface_vfs_refresh = Iface::vfs_refresh,
    .ep_query = [](auto...) { return UCS_ERR_UNSUPPORTED; }, // socket addresses: there are none
    .ep_invalidate = ep::invalidate,
};

template <connect::Transport transport> ucs_status_t iface_open(uct_md_h md, uct_worker_h worker,
                                                                const uct_iface_params_t* params,
                                                                const uct_iface_config_t* config, uct_iface_h* out) {
    return Iface::open(transport, md, worker, params, *config, options_of(*config), out);
}

// ---- The component

ucs_status_t query_domains(uct_component_t* component, uct_md_resource_desc_t** out, unsigned* count) {
    return guard("looking for adapters", [&] {
        return verbs::DeviceSet::has_ports() ? uct_md_query_single_md_resource(component, out, count)
                                             : uct_md_query_empty_md_resource(out, count);
    });
}

ucs_status_t one_device(uct_md_h md, uct_tl_device_resource_t** out, unsigned* count) {
    return uct_single_device_resource(md, Iface::kDevice, UCT_DEVICE_TYPE_NET, UCS_SYS_DEVICE_ID_UNKNOWN, out, count);
}

ucs_status_t query_dc(uct_md_h md, uct_tl_device_resource_t** out, unsigned* count) {
    if (Md::of(md).devices().all_have_dc()) return one_device(md, out, count);
    *out = nullptr;
    *count = 0;
    return UCS_OK;
}

uct_component_t component = {
    .name = "mp",
    .query_md_resources = query_domains,
    .md_open = md_open,
    .cm_open = [](auto...) { return UCS_ERR_UNSUPPORTED; },
    .rkey_unpack = [](uct_component_t*, const void* buffer, uct_rkey_t* rkey,
                      void** handle) { return Md::unpack_key(buffer, rkey, handle); },
    .rkey_ptr = [](auto...) { return UCS_ERR_UNSUPPORTED; },
    .rkey_release = [](uct_component_t*, uct_rkey_t rkey, void*) { return Md::release_key(rkey); },
    .md_config = {.name = "mp memory domain", .prefix = "MP_", .table = nullptr, .size = sizeof(MdConfig), .list = {}},
    .cm_config = {.name = "", .prefix = "", .table = nullptr, .size = 0, .list = {}},
    .tl_list = UCS_LIST_INITIALIZER(&component.tl_list, &component.tl_list),
    .list = {},
    .flags = 0,
    .md_vfs_init = [](uct_md_h md) { Md::of(md).show_in_vfs(); },
};

uct_tl_t rc = {
    .name = "mp_rc",
    .query_devices = one_device,
    .iface_open = iface_open<connect::Transport::rc>,
    .config =
        {.name = "mp_rc transport", .prefix = "MP_RC_", .table = nullptr, .size = sizeof(IfaceConfig), .list = {}},
    .list = {},
};

uct_tl_t dc = {
    .name = "mp_dc",
    .query_devices = query_dc,
    .iface_open = iface_open<connect::Transport::dc>,
    .config =
        {.name = "mp_dc transport", .prefix = "MP_DC_", .table = nullptr, .size = sizeof(IfaceConfig), .list = {}},
    .list = {},
};

} // namespace

const MdOptions& options_of(const uct_md_config_t& config) { return reinterpret_cast<const MdConfig&>(config).ours; }
const IfaceOptions& options_of(const uct_iface_config_t& config) {
    return reinterpret_cast<const IfaceConfig&>(config).ours;
}

uct_iface_ops_t& interface_operations() { return iface_operations; }
uct_iface_internal_ops_t& internal_operations() { return iface_internal_operations; }

ucs_status_t make_cache(Md& md, const uct_md_rcache_config_t& options, ucs_rcache_t** out) {
    static const ucs_rcache_ops_t operations = {
        .mem_reg = cache_reg, .mem_dereg = cache_dereg, .dump_region = cache_dump};
    ucs_rcache_params_t params{};
    uct_md_set_rcache_params(&params, &options);
    params.region_struct_size = sizeof(Region);
    params.max_alignment = ucs_get_page_size();
    params.ucm_events = UCM_EVENT_VM_UNMAPPED;
    params.ops = &operations;
    params.context = &md;
    return ucs_rcache_create(&params, "mp", nullptr, out);
}

double cache_overhead(const uct_md_rcache_config_t& options) { return uct_md_rcache_overhead(&options); }

ucs_status_t find_in_cache(ucs_rcache_t* cache, void* address, std::size_t length, unsigned flags,
                           ucs_rcache_region_t** out) {
    return ucs_rcache_get(cache, address, length, PROT_READ | PROT_WRITE, &flags, out);
}

bool registered_already() {
    for (const ucs_list_link_t* link = uct_components_list.next; link != &uct_components_list; link = link->next) {
        const char* const start = reinterpret_cast<const char*>(link) - offsetof(uct_component_t, list);
        if (std::strcmp(reinterpret_cast<const uct_component_t*>(start)->name, component.name) == 0) return true;
    }
    return false;
}

void register_component() {
    component.md_config.table = domain_table();
    rc.config.table = transport_table(connect::Transport::rc);
    dc.config.table = transport_table(connect::Transport::dc);
    uct_component_register(&component);
    uct_tl_register(&component, &rc);
    uct_tl_register(&component, &dc);
}

} // namespace ucx_mp::face::abi
