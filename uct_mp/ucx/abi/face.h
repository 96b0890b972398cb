// The face of one layout (V: V1_13, ...), compiled for each. A member that only some versions have is
// filled where it exists. A function that is missing in a table must not be called: the flags say so.
#pragma once

#include <unistd.h>

#include <deque>
#include <memory>
#include <vector>

#include "uct_mp/host/turn.h"
#include "uct_mp/ucx/abi/layout.h"
#include "uct_mp/ucx/abi/parsers.h"
#include "uct_mp/ucx/abi/v1_22.h"
#include "uct_mp/ucx/config.h"
#include "uct_mp/ucx/ep.h"
#include "uct_mp/ucx/guard.h"
#include "uct_mp/ucx/iface.h"
#include "uct_mp/ucx/md.h"
#include "uct_mp/ucx/variables.h"

namespace ucx_mp::face::abi {

extern uct_iface_ops_t iface_operations; // layouts.cc

struct CacheOptionsStorage { // CacheOptions of any layout
    alignas(8) std::byte bytes[sizeof(V1_13::CacheOptions)];
};

// There is a variable for the alignment of cached regions. From 1.17 on it is given when
// a region is looked for; the variable's place stays for two more versions, unused.
template <class V> inline constexpr bool kAligns = requires(typename V::CacheParameters parameters) {
    parameters.alignment;
};

struct MdConfig {
    MdOptionsBase base;
    MdOptions ours;
    CacheOptionsStorage cache;
};

struct IfaceConfig {
    IfaceOptionsBase base;
    IfaceOptions ours;
};

// Functions that are not offered.
inline constexpr auto unsupported = [](auto...) { return UCS_ERR_UNSUPPORTED; };

// ---- Variables

template <class V> struct ConfigField { // ucs_config_field
    const char* name;
    const char* initial;
    const char* doc;
    std::size_t offset;
    typename V::Parser parser;
};

template <class V> typename V::Parser assemble(const ParserFunctions& from) {
    typename V::Parser to{};
    to.read = from.read;
    to.write = from.write;
    to.clone = from.clone;
    to.release = from.release;
    to.help = from.help;
    if constexpr (requires { to.doc; }) to.doc = reinterpret_cast<decltype(to.doc)>(symbol("ucs_config_doc_nop"));
    to.arg = from.arg;
    return to;
}

// A configuration table of UCX, which keeps pointers into it for the life of the process.
template <class V> class Table {
public:
    using Row = ConfigField<V>;

    [[nodiscard]] static Table& make() {
        static auto* const all = new std::deque<Table>;
        return all->emplace_back();
    }
    // `offset`: of our options in those of UCX.
    void add(const std::vector<Variable>& variables, std::size_t offset) {
        for (const Variable& from : variables) {
            rows_.push_back({.name = from.name,
                             .initial = from.initial.c_str(),
                             .doc = from.help.c_str(),
                             .offset = offset + from.offset,
                             .parser = assemble<V>(parser_of(from))});
        }
    }
    // UCX's own variables, which every transport has, under our users' names
    // for them. `defaults`: "NAME=VALUE", for those that need another default.
    void add_base(const char* table, std::size_t offset, const char* defaults) {
        Table& copy = make();
        for (const Row* row = static_cast<const Row*>(symbol(table)); row && row->name; ++row) {
            copy.rows_.push_back(*row);
            if (row->doc) copy.rows_.back().doc = copy.keep(heading(Group::tuning) + std::string(row->doc));
        }
        rows_.push_back({.name = "",
                         .initial = defaults,
                         .doc = nullptr,
                         .offset = offset,
                         .parser = assemble<V>(parser_of_table(copy.rows()))});
    }
    [[nodiscard]] Row* rows() {
        rows_.emplace_back(); // the end
        return rows_.data();
    }

private:
    const char* keep(std::string text) { return texts_.emplace_back(std::move(text)).c_str(); }

    std::vector<Row> rows_;
    std::deque<std::string> texts_;
};

// ---- The memory domain

template <class V> struct DomainFace {
    static void close(uct_md_h md) { delete &Md::of(md); }

    static ucs_status_t query(uct_md_h md, typename V::MdAttributes* attr) {
        const Md& self = Md::of(md);
        typename V::MdAttributes all{};
        constexpr std::uint64_t kHost = UCS_BIT(UCS_MEMORY_TYPE_HOST);
        constexpr std::uint64_t kFlags = UCT_MD_FLAG_REG | UCT_MD_FLAG_NEED_MEMH | UCT_MD_FLAG_NEED_RKEY;
        if constexpr (requires { all.cap; }) {
            all.cap.max_reg = ULONG_MAX;
            all.cap.flags = kFlags | V::kMdInvalidates;
            all.cap.reg_mem_types = all.cap.access_mem_types = kHost;
        } else {
            all.field_mask = attr->field_mask;
            all.max_reg = ULONG_MAX;
            all.flags = kFlags | V::kMdInvalidates;
            all.reg_mem_types = all.access_mem_types = all.cache_mem_types = kHost;
        }
        if constexpr (requires { all.reg_alignment; }) all.reg_alignment = 1;
        all.rkey_packed_size = self.packed_key_size();
        all.reg_cost = self.registration_cost();
        // Rails of one composite device lie near different processors: all of them are as near as any.
        std::memset(&all.local_cpus, 0xff, sizeof all.local_cpus);
        std::strncpy(all.component_name, "mp", sizeof all.component_name - 1);
        *attr = all;
        return UCS_OK;
    }

    static ucs_status_t reg(uct_md_h md, void* address, std::size_t length, unsigned flags, uct_mem_h* out) {
        return Md::of(md).register_memory(address, length, flags, out);
    }
    template <class Parameters> static ucs_status_t reg_v2(uct_md_h md, void* address, std::size_t length,
                                                           const Parameters* parameters, uct_mem_h* out) {
        const bool given = parameters->field_mask & V::kRegFlags;
        return reg(md, address, length, given ? static_cast<unsigned>(parameters->flags) : 0, out);
    }

    static ucs_status_t dereg(uct_md_h md, const DeregParameters* parameters) {
        if (!(parameters->field_mask & kDeregMemh) || !parameters->memh) return UCS_ERR_INVALID_PARAM;
        const unsigned flags = parameters->field_mask & kDeregFlags ? parameters->flags : 0;
        return Md::of(md).deregister_memory(parameters->memh, flags & kDeregInvalidate,
                                            parameters->field_mask & kDeregCompletion ? parameters->comp : nullptr);
    }

    static ucs_status_t pack(uct_md_h md, uct_mem_h memh, const PackParameters* parameters, void* out) {
        const unsigned flags = parameters && (parameters->field_mask & kPackFlags) ? parameters->flags : 0;
        return Md::of(md).pack_key(memh, flags & V::kPackRevocable, out);
    }
    // A part of the memory has the key of all.
    static ucs_status_t pack_part(uct_md_h md, uct_mem_h memh, void*, std::size_t, const PackParameters* parameters,
                                  void* out) {
        return pack(md, memh, parameters, out);
    }

    static typename V::MdOperations table() {
        typename V::MdOperations to{};
        to.close = close;
        to.query = query;
        to.mem_advise = unsupported;
        if constexpr (requires { to.mem_reg = reg; })
            to.mem_reg = reg;
        else
            to.mem_reg = reg_v2;
        to.mem_dereg = dereg;
        to.mem_query = unsupported;
        if constexpr (requires { to.mkey_pack = pack; })
            to.mkey_pack = pack;
        else
            to.mkey_pack = pack_part;
        if constexpr (requires { to.mem_attach; }) to.mem_attach = unsupported;
        if constexpr (requires { to.is_sockaddr_accessible; })
            to.is_sockaddr_accessible = [](uct_md_h, const ucs_sock_addr_t*, uct_sockaddr_accessibility_t) {
                return 0;
            };
        to.detect_memory_type = unsupported;
        if constexpr (requires { to.mem_elem_pack; }) to.mem_elem_pack = unsupported;
        return to;
    }

    static ucs_status_t open(void* component, const char*, const uct_md_config_t* config, uct_md_h* out) {
        static typename V::MdOperations operations = table();
        *out = nullptr;
        return guard("opening the memory domain", [&] {
            std::unique_ptr<Md> md(new Md);
            md->operations = &operations;
            md->component = component;
            const ucs_status_t status = md->open(options_of(*config), reinterpret_cast<const MdConfig*>(config)->cache);
            if (status == UCS_OK) *out = Md::handle(*md.release());
            return status;
        });
    }
};

// ---- The registration cache. Regions are zeroed memory.

template <class V> struct CacheFace {
    static_assert(sizeof(typename V::Region) <= Region::kHeader &&
                  sizeof(V1_13::CacheOptions) >= sizeof(typename V::CacheOptions));
    static_assert(offsetof(typename V::Region, start) == 0 &&
                  offsetof(typename V::Region, end) == sizeof(std::uintptr_t));

    static const typename V::CacheOptions& options_of(const CacheOptionsStorage& storage) {
        return reinterpret_cast<const typename V::CacheOptions&>(storage);
    }

    static ucs_status_t reg(void* md, void*, void* arg, void* region, std::uint16_t flags) {
        const unsigned user_flags = *static_cast<const unsigned*>(arg);
        const bool quiet = (flags & kCacheHideErrors) || (user_flags & UCT_MD_MEM_FLAG_HIDE_ERRORS);
        return static_cast<Md*>(md)->make_region(Region::of(region), quiet);
    }
    static void dereg(void* md, void*, void* region) { static_cast<Md*>(md)->end_region(Region::of(region)); }
    static void dump(void*, void*, void* region, char* text, std::size_t max) {
        const verbs::Registration& keys = Region::of(region).memory().registration();
        std::snprintf(text, max, "lkey 0x%x rkey 0x%x on %u adapters", keys.lkey[0], keys.rkey[0], keys.count);
    }

    static ucs_status_t make(Md& md, const CacheOptionsStorage& storage, void** out) {
        const typename V::CacheOptions& options = options_of(storage);
        static const typename V::CacheOperations operations = [] {
            typename V::CacheOperations to{};
            to.mem_reg = reg;
            to.mem_dereg = dereg;
            to.dump_region = dump;
            // All regions are registered alike: a larger region takes over nothing of the smaller ones.
            if constexpr (requires { to.merge; }) to.merge = [](void*, void*, void*, void*) {};
            return to;
        }();
        typename V::CacheParameters parameters{};
        parameters.region_struct_size = sizeof(Region);
        if constexpr (kAligns<V>) {
            parameters.alignment = options.alignment;
            parameters.max_alignment = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        }
        parameters.ucm_events = UCM_EVENT_VM_UNMAPPED;
        parameters.ucm_event_priority = static_cast<int>(options.event_prio);
        parameters.ops = &operations;
        parameters.context = &md;
        parameters.flags = (options.purge_on_fork ? kCachePurgeOnFork : 0) | (V::kMinor >= 20 ? kCacheNeedsLock : 0);
        parameters.max_regions = options.max_regions;
        parameters.max_size = options.max_size;
        parameters.max_unreleased = options.max_unreleased;
        return cache_create(&parameters, "mp", nullptr, out);
    }

    // "auto" as UCX itself takes it.
    static double overhead(const CacheOptionsStorage& storage) {
        constexpr std::uint64_t kAuto = ULONG_MAX - 1; // UCS_TIME_AUTO
        constexpr double kUsual = 180e-9;
        const std::uint64_t ticks = options_of(storage).overhead;
        return ticks == kAuto ? kUsual : static_cast<double>(ticks) / clocks_per_second();
    }

    static std::size_t alignment(const CacheOptionsStorage& storage) {
        constexpr std::size_t kLeast = 16; // for UCX's table of pages
        if constexpr (kAligns<V>)
            return options_of(storage).alignment;
        else
            return kLeast;
    }

    static ucs_status_t find(void* cache, void* address, std::size_t length, [[maybe_unused]] std::size_t alignment,
                             unsigned flags, void** out) {
        static const auto get = reinterpret_cast<typename V::FindFunction>(symbol("ucs_rcache_get"));
        constexpr int kAccess = PROT_READ | PROT_WRITE;
        if constexpr (requires { get(cache, address, length, alignment, kAccess, &flags, out); })
            return get(cache, address, length, alignment, kAccess, &flags, out);
        else
            return get(cache, address, length, kAccess, &flags, out);
    }
};

// ---- The interface

// UCT_EP_OP_AM_SHORT, _BCOPY, _ZCOPY
inline bool is_message(int operation) { return operation >= 0 && operation <= 2; }

template <class V> struct InterfaceFace {
    // UCX chooses rendezvous by this. With its old protocols it knows one bandwidth per interface.
    // That of messages would be that of reads, and copies would be taken up to hundreds of KiB.
    // There it asks for the overhead of a message alone (ucp_ep_config_calc_params): the
    // receiver's work is told with it. The new protocols ask for all, by operation.
    static ucs_status_t estimate(uct_iface_h iface, typename V::PerfAttributes* attr) {
        const ucs_status_t status = iface_estimate(iface, attr);
        if (status != UCS_OK) return status;
        const Iface& self = Iface::of(iface);
        if (attr->field_mask & V::kPerfInFlight)
            if (const std::size_t limit = self.concurrent_endpoints()) attr->max_inflight_eps = limit;
        if (!(attr->field_mask & V::kPerfOperation) || !is_message(attr->operation)) return UCS_OK;
        const uct_ppn_bandwidth_t copied{.dedicated = self.message_bandwidth(), .shared = 0};
        if constexpr (requires { attr->path_bandwidth; })
            if (attr->field_mask & V::kPerfPathBandwidth) attr->path_bandwidth = copied;
        if (attr->field_mask & V::kPerfBandwidth)
            attr->bandwidth = copied;
        else if (attr->field_mask & V::kPerfPostOverhead)
            attr->send_post_overhead += self.message_copy_time();
        return UCS_OK;
    }

    template <class Parameters> static int is_reachable(uct_iface_h iface, const Parameters* parameters) {
        const std::uint64_t given = parameters->field_mask;
        const uct_device_addr_t* const device = given & V::kReachableDevice ? parameters->device_addr : nullptr;
        if ((given & V::kReachableScope) && parameters->scope == V::kScopeDevice && device &&
            !Iface::same_host(device)) {
            return explain(parameters, "another host");
        }
        const uct_iface_addr_t* const address = given & V::kReachableIface ? parameters->iface_addr : nullptr;
        return Iface::is_reachable(iface, device, address) ? 1 : explain(parameters, "no path between the rails");
    }
    template <class Parameters> static int explain(const Parameters* parameters, const char* why) {
        constexpr std::uint64_t kBoth = V::kReachableInfo | V::kReachableInfoLength;
        if ((parameters->field_mask & kBoth) == kBoth && parameters->info_string)
            std::snprintf(parameters->info_string, parameters->info_string_length, "mp: %s", why);
        return 0;
    }

    template <class Parameters> static int is_connected(uct_ep_h ep, const Parameters* parameters) {
        const std::uint64_t given = parameters->field_mask;
        if ((given & V::kConnectedDevice) && parameters->device_addr && !ep::reaches_host(ep, parameters->device_addr))
            return 0;
        return !(given & V::kConnectedIface) || !parameters->iface_addr || ep::connected_to(ep, parameters->iface_addr);
    }

    static typename V::InternalOperations table() {
        typename V::InternalOperations to{};
        to.iface_estimate_perf = estimate;
        to.iface_vfs_refresh = Iface::vfs_refresh;
        to.ep_query = unsupported; // socket addresses: there are none
        to.ep_invalidate = [](uct_ep_h ep, auto) { return ep::invalidate(ep, 0); };
        if constexpr (requires { to.ep_connect_to_ep_v2; }) to.ep_connect_to_ep_v2 = unsupported;
        if constexpr (requires { to.iface_is_reachable_v2; }) to.iface_is_reachable_v2 = is_reachable;
        if constexpr (requires { to.ep_is_connected; }) to.ep_is_connected = is_connected;
        if constexpr (requires { to.iface_query_v2; }) // nothing that it asks for is here
            to.iface_query_v2 = reinterpret_cast<decltype(to.iface_query_v2)>(symbol("uct_iface_base_query_v2"));
        if constexpr (requires { to.iface_mem_element_pack; }) to.iface_mem_element_pack = unsupported;
        if constexpr (requires { to.ep_get_device_ep; }) to.ep_get_device_ep = unsupported;
        if constexpr (requires { to.ep_put_sgl_zcopy; }) to.ep_put_sgl_zcopy = unsupported;
        return to;
    }

    static ucs_async_context_t* async_of(const IfaceBase& iface) {
        return static_cast<const typename V::Worker*>(iface.worker)->async;
    }
};

// ---- The component

template <connect::Transport transport> ucs_status_t iface_open(uct_md_h md, uct_worker_h worker,
                                                                const uct_iface_params_t* params,
                                                                const uct_iface_config_t* config, uct_iface_h* out) {
    return Iface::open(transport, md, worker, params, reinterpret_cast<const IfaceConfig*>(config)->base,
                       options_of(*config), out);
}

ucs_status_t query_domains(void* component, uct_md_resource_desc_t** out, unsigned* count);
ucs_status_t query_rc(uct_md_h md, DeviceResource** out, unsigned* count);
ucs_status_t query_dc(uct_md_h md, DeviceResource** out, unsigned* count);

template <class V> class ComponentFace {
public:
    static void register_all() {
        static typename V::Component component = make();
        static Tl<typename V::ConfigEntry> rc = transport("mp_rc", "MP_RC_", "mp_rc transport", query_rc,
                                                          iface_open<connect::Transport::rc>, connect::Transport::rc);
        static Tl<typename V::ConfigEntry> dc = transport("mp_dc", "MP_DC_", "mp_dc transport", query_dc,
                                                          iface_open<connect::Transport::dc>, connect::Transport::dc);
        component.tl_list.next = component.tl_list.prev = &component.tl_list;
        component_register(&component);
        tl_register(&component, &rc);
        tl_register(&component, &dc);
    }

private:
    static ConfigField<V>* domain_table() {
        Table<V>& table = Table<V>::make();
        table.add(domain_variables(), offsetof(MdConfig, ours));
        table.add_base("uct_md_config_table", offsetof(MdConfig, base), "");
        table.add_base(V::kCacheTable, offsetof(MdConfig, cache), kAligns<V> ? "RCACHE_ADDR_ALIGN=16" : "");
        return table.rows();
    }

    static ConfigField<V>* transport_table(connect::Transport transport) {
        Table<V>& table = Table<V>::make();
        table.add(transport_variables(transport), offsetof(IfaceConfig, ours));
        table.add_base("uct_iface_config_table", offsetof(IfaceConfig, base), "");
        return table.rows();
    }

    static typename V::Component make() {
        typename V::Component to{};
        std::strncpy(to.name, kComponent, sizeof to.name - 1);
        to.query_md_resources = query_domains;
        to.md_open = DomainFace<V>::open;
        to.cm_open = unsupported;
        const auto unpack = [](void*, const void* buffer, uct_rkey_t* key, void** handle) {
            return Md::unpack_key(buffer, key, handle);
        };
        const auto unpack_for = [](void*, const void* buffer, const void*, uct_rkey_t* key, void** handle) {
            return Md::unpack_key(buffer, key, handle);
        };
        if constexpr (requires { to.rkey_unpack = unpack; })
            to.rkey_unpack = unpack;
        else
            to.rkey_unpack = unpack_for;
        to.rkey_ptr = unsupported;
        to.rkey_release = [](void*, uct_rkey_t key, void*) { return Md::release_key(key); };
        if constexpr (requires { to.rkey_compare; })
            to.rkey_compare = [](void*, uct_rkey_t first, uct_rkey_t second, const void*, int* result) {
                *result = Md::compare_keys(first, second);
                return UCS_OK;
            };
        to.md_config.name = "mp memory domain";
        to.md_config.prefix = "MP_";
        to.md_config.table = domain_table();
        to.md_config.size = sizeof(MdConfig);
        to.cm_config.name = to.cm_config.prefix = "";
        to.md_vfs_init = [](uct_md_h md) { Md::of(md).show_in_vfs(); };
        return to;
    }

    template <class Query, class Open>
    static Tl<typename V::ConfigEntry> transport(const char* name, const char* prefix, const char* title, Query query,
                                                 Open open, connect::Transport which) {
        Tl<typename V::ConfigEntry> to{};
        std::strncpy(to.name, name, sizeof to.name - 1);
        to.query_devices = query;
        to.iface_open = open;
        to.config.name = title;
        to.config.prefix = prefix;
        to.config.table = transport_table(which);
        to.config.size = sizeof(IfaceConfig);
        return to;
    }
};

template <class V> const Layout& layout_of() {
    static typename V::InternalOperations internal = InterfaceFace<V>::table();
    static const Layout layout{.minor = V::kMinor,
                               .list_in_component = offsetof(typename V::Component, list),
                               .register_component = ComponentFace<V>::register_all,
                               .interface_operations = &iface_operations,
                               .internal_operations = &internal,
                               .async_of = InterfaceFace<V>::async_of,
                               .make_cache = CacheFace<V>::make,
                               .cache_overhead = CacheFace<V>::overhead,
                               .cache_alignment = CacheFace<V>::alignment,
                               .find_in_cache = CacheFace<V>::find};
    return layout;
}

} // namespace ucx_mp::face::abi
