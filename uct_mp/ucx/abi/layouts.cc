#include <dlfcn.h>

#include <cstring>

#include "uct_mp/host/turn.h"
#include "uct_mp/ucx/abi/async.h"
#include "uct_mp/ucx/abi/face.h"
#include "uct_mp/ucx/advice.h"

namespace ucx_mp::face::abi {

namespace {
// The program is inside meanwhile: the thread that recovers beside it stays out (host/turn.h). A mark is no atomic
// addition, so it is for calls of the program's thread alone. UCX's own threads make others as well: that of its file
// system asks for attributes, and the asynchronous one, which answers UCP's wire-up over UD, asks for addresses and
// makes endpoints. Those calls take the lock of the services, which every turn is taken under.
template <bool marked, auto call> struct Marked { static constexpr auto run = call; };
template <class Result, class... Rest, Result (*call)(uct_ep_h, Rest...)> struct Marked<true, call> {
    static Result run(uct_ep_h ep, Rest... rest) {
        const turn::Inside inside(Iface::of(ep->iface).turn());
        return call(ep, rest...);
    }
};
template <class Result, class... Rest, Result (*call)(uct_iface_h, Rest...)> struct Marked<true, call> {
    static Result run(uct_iface_h iface, Rest... rest) {
        const turn::Inside inside(Iface::of(iface).turn());
        return call(iface, rest...);
    }
};

// Designated: the compiler checks the order against UCX's header, which is the
// same in every version. A missing function must not be called (the flags say so).
template <bool marked> constexpr uct_iface_ops_t kOperations = {
    .ep_put_short = ep::Calls<marked>::put_short,
    .ep_put_bcopy = ep::Calls<marked>::put_bcopy,
    .ep_put_zcopy = ep::Calls<marked>::put_zcopy,
    .ep_get_short = [](auto...) { return UCS_ERR_UNSUPPORTED; },
    .ep_get_bcopy = ep::Calls<marked>::get_bcopy,
    .ep_get_zcopy = ep::Calls<marked>::get_zcopy,
    .ep_am_short = ep::Calls<marked>::am_short,
    .ep_am_short_iov = ep::Calls<marked>::am_short_iov,
    .ep_am_bcopy = ep::Calls<marked>::am_bcopy,
    .ep_am_zcopy = ep::Calls<marked>::am_zcopy,
    .ep_atomic_cswap64 = ep::Calls<marked>::atomic_cswap64,
    .ep_atomic_cswap32 = ep::Calls<marked>::atomic_cswap32,
    .ep_atomic32_post = ep::Calls<marked>::atomic32_post,
    .ep_atomic64_post = ep::Calls<marked>::atomic64_post,
    .ep_atomic32_fetch = ep::Calls<marked>::atomic32_fetch,
    .ep_atomic64_fetch = ep::Calls<marked>::atomic64_fetch,
    .ep_tag_eager_short = nullptr,
    .ep_tag_eager_bcopy = nullptr,
    .ep_tag_eager_zcopy = nullptr,
    .ep_tag_rndv_zcopy = nullptr,
    .ep_tag_rndv_cancel = nullptr,
    .ep_tag_rndv_request = nullptr,
    .iface_tag_recv_zcopy = nullptr,
    .iface_tag_recv_cancel = nullptr,
    .ep_pending_add = Marked<marked, ep::pending_add>::run,
    .ep_pending_purge = Marked<marked, ep::pending_purge>::run,
    .ep_flush = ep::Calls<marked>::flush,
    .ep_fence = Marked<marked, ep::fence>::run,
    .ep_check = Marked<marked, ep::check>::run,
    .ep_create = ep::create,
    .ep_connect = nullptr,
    .ep_disconnect = nullptr,
    .cm_ep_conn_notify = nullptr,
    .ep_destroy = Marked<marked, ep::destroy>::run,
    .ep_get_address = nullptr,
    .ep_connect_to_ep = nullptr,
    .iface_accept = nullptr,
    .iface_reject = nullptr,
    .iface_flush = Marked<marked, Iface::flush>::run,
    .iface_fence = Marked<marked, Iface::fence>::run,
    .iface_progress_enable = Iface::progress_enable,
    .iface_progress_disable = iface_progress_disable,
    .iface_progress = [](uct_iface_h iface) { return Iface::progress<marked>(iface); },
    .iface_event_fd_get = Marked<marked, Iface::event_fd_get>::run,
    .iface_event_arm = Marked<marked, Iface::event_arm>::run,
    .iface_close = Iface::close,
    .iface_query = Iface::query,
    .iface_get_device_address = Iface::get_device_address,
    .iface_get_address = Iface::get_address,
    .iface_is_reachable = Iface::is_reachable,
};
} // namespace
uct_iface_ops_t iface_operations = kOperations<false>;
uct_iface_ops_t marked_operations = kOperations<true>;

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
