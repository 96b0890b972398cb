#include <dlfcn.h>

#include <cstring>

#include "uct_mp/ucx/abi/async.h"
#include "uct_mp/ucx/abi/face.h"
#include "uct_mp/ucx/advice.h"

namespace ucx_mp::face::abi {

// Designated: the compiler checks the order against UCX's header, which is the
// same in every version. A missing function must not be called (the flags say so).
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
    .iface_progress_disable = iface_progress_disable,
    .iface_progress = [](uct_iface_h iface) { return Iface::progress(iface); },
    .iface_event_fd_get = Iface::event_fd_get,
    .iface_event_arm = Iface::event_arm,
    .iface_close = Iface::close,
    .iface_query = Iface::query,
    .iface_get_device_address = Iface::get_device_address,
    .iface_get_address = Iface::get_address,
    .iface_is_reachable = Iface::is_reachable,
};

// ---- The component

ucs_status_t query_domains(void* component, uct_md_resource_desc_t** out, unsigned* count) {
    *out = nullptr;
    *count = 0;
    return guard("looking for adapters", [&] {
        advice::asked();
        if (verbs::DeviceSet::has_ports()) return single_md_resource(component, out, count);
        advice::no_port("this host has no InfiniBand or RoCE port");
        return empty_md_resource(out, count);
    });
}

ucs_status_t query_rc(uct_md_h md, DeviceResource** out, unsigned* count) {
    return single_device(md, Iface::kDevice, UCT_DEVICE_TYPE_NET, UCS_SYS_DEVICE_ID_UNKNOWN, out, count);
}

ucs_status_t query_dc(uct_md_h md, DeviceResource** out, unsigned* count) {
    if (Md::of(md).devices().all_have_dc()) return query_rc(md, out, count);
    *out = nullptr;
    *count = 0;
    return UCS_OK;
}

const MdOptions& options_of(const uct_md_config_t& config) { return reinterpret_cast<const MdConfig&>(config).ours; }
const IfaceOptions& options_of(const uct_iface_config_t& config) {
    return reinterpret_cast<const IfaceConfig&>(config).ours;
}

bool registered_already() {
    // A component begins with its name, in every layout; the place of the list is not the same.
    const std::size_t at = layout().list_in_component;
    for (const ucs_list_link_t* link = components.next; link != &components; link = link->next)
        if (std::strcmp(reinterpret_cast<const char*>(link) - at, kComponent) == 0) return true;
    return false;
}

// ---- Which layout

namespace {

const Layout* chosen = nullptr;

struct UcxVersion {
    unsigned major = 0, minor = 0, release = 0;
    [[nodiscard]] std::string text() const {
        return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
    }
};

// The folder of this process's libuct.
std::string folder_of_libuct() {
    Dl_info info{};
    if (!dladdr(symbol("uct_component_register"), &info) || !info.dli_fname) return {};
    const std::string path = info.dli_fname;
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
}

// libuct and libucs carry no version of their own; libucp comes with them and does. A
// program that uses UCT alone has not loaded it: then the one beside libuct counts.
bool find_version(UcxVersion& out, std::string& error) {
    using GetVersion = void (*)(unsigned*, unsigned*, unsigned*);
    auto get = reinterpret_cast<GetVersion>(symbol("ucp_get_version"));
    if (!get) {
        const std::string path = folder_of_libuct() + "libucp.so.0";
        if (void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL))
            get = reinterpret_cast<GetVersion>(dlsym(library, "ucp_get_version"));
        if (!get) {
            error = "libuct_mp.so cannot tell which version of UCX this process has: there is no " + path;
            return false;
        }
    }
    get(&out.major, &out.minor, &out.release);
    return true;
}

const char kKnown[] = " (known: UCX 1.13 to 1.22, built without --enable-stats)";

// Libraries of two versions, found by different search paths.
bool libraries_agree(const Layout& layout) {
    const struct {
        const char* symbol;
        unsigned since; // the minor version
    } marks[] = {{"ucs_config_rcache_table", 16}, {"ucs_config_doc_nop", 17}};
    for (const auto& mark : marks)
        if ((symbol(mark.symbol) != nullptr) != (layout.minor >= mark.since)) return false;
    return true;
}

bool classes_fit(std::string& error) {
    const struct {
        const char* name;
        std::size_t here, there;
    } sizes[] = {
        {"uct_base_iface_t", sizeof(IfaceBase), iface_class.size},
        {"uct_base_ep_t", sizeof(EpBase), ep_class.size},
    };
    for (const auto& size : sizes) {
        if (size.here == size.there) continue;
        error = std::string("has a ") + size.name + " of " + std::to_string(size.there) + " bytes instead of " +
                std::to_string(size.here);
        return false;
    }
    return true;
}

} // namespace

void* symbol(const char* name) { return dlsym(RTLD_DEFAULT, name); }

const Layout& layout() { return *chosen; }

const Layout* choose(std::string& error) {
    UcxVersion version;
    if (!find_version(version, error)) return nullptr;
    const std::string found = "libuct_mp.so does not fit: this process has UCX " + version.text();
    const Layout* const all[] = {&layout_of<V1_13>(), &layout_of<V1_14>(), &layout_of<V1_15>(), &layout_of<V1_16>(),
                                 &layout_of<V1_17>(), &layout_of<V1_18>(), &layout_of<V1_19>(), &layout_of<V1_20>(),
                                 &layout_of<V1_21>(), &layout_of<V1_22>()};
    for (const Layout* layout : all)
        if (version.major == 1 && version.minor == layout->minor) chosen = layout;
    if (!chosen) {
        error = found + kKnown;
        return nullptr;
    }
    std::string misfit;
    if (!libraries_agree(*chosen))
        misfit = "but libucs of another version";
    else if (!classes_fit(misfit)) // `misfit` says what does not fit
        ;
    else if (!find_async_mode())
        misfit = "with an unknown asynchronous context";
    if (misfit.empty()) return chosen;
    chosen = nullptr;
    error = found + ", " + (misfit.starts_with("has") ? "which " : "") + misfit + kKnown;
    return nullptr;
}

} // namespace ucx_mp::face::abi
