#include "uct_mp/ucx/compat.h"

namespace ucx_mp::face {

namespace {

std::string compiled_version() { return std::to_string(UCT_VERNO_MAJOR) + "." + std::to_string(UCT_VERNO_MINOR); }

} // namespace

bool libraries_fit(std::string& error) {
    // libuct and libucs carry no version of their own; libucp comes from the same package and does. A program that uses
    // UCT alone has no libucp: then the sizes decide.
    using GetVersion = void (*)(unsigned*, unsigned*, unsigned*);
    if (const auto get = reinterpret_cast<GetVersion>(dlsym(RTLD_DEFAULT, "ucp_get_version"))) {
        unsigned major = 0, minor = 0, release = 0;
        get(&major, &minor, &release);
        if (major != UCT_VERNO_MAJOR || minor != UCT_VERNO_MINOR) {
            error = "libuct_mp.so is compiled for UCX " + compiled_version() + ", this process has UCX " +
                    std::to_string(major) + "." + std::to_string(minor) + ": compile it for that version";
            return false;
        }
    }
    const struct {
        const char* name;
        std::size_t here, there;
    } sizes[] = {
        {"uct_base_iface_t", sizeof(uct_base_iface_t), UCS_CLASS_NAME(uct_base_iface_t).size},
        {"uct_base_ep_t", sizeof(uct_base_ep_t), UCS_CLASS_NAME(uct_base_ep_t).size},
    };
    for (const auto& size : sizes) {
        if (size.here == size.there) continue;
        error = "libuct_mp.so is compiled for UCX " + compiled_version() + " with " + size.name + " of " +
                std::to_string(size.here) + " bytes, libuct.so of this process has " + std::to_string(size.there) +
                ": another version or other build options of UCX";
        return false;
    }
    return true;
}

} // namespace ucx_mp::face
