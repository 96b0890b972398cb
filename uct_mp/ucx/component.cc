// UCX before 1.22 loads only its own modules. So the library is preloaded into UCX programs,
// or linked by a library that they load, and registers its component when it is loaded.
#include "uct_mp/ucx/abi/layout.h"
#include "uct_mp/ucx/guard.h"

namespace ucx_mp::face {

namespace {

// Runs after libuct's own constructor: that one is a dependency.
__attribute__((constructor)) void register_at_load() {
    (void)guard("registering the component", [] {
        std::string error;
        const abi::Layout* const layout = abi::choose(error);
        if (!layout) {
            ucs_error("%s", error.c_str());
            return UCS_ERR_UNSUPPORTED;
        }
        if (abi::registered_already()) {
            ucs_debug("mp: registered already by another copy of the library");
            return UCS_ERR_ALREADY_EXISTS;
        }
        layout->register_component();
        return UCS_OK;
    });
}

} // namespace

} // namespace ucx_mp::face
