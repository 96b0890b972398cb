#include "uct_mp/ucx/iface.h"

namespace ucx_mp::face {

void Iface::vfs_refresh(uct_iface_h iface) {
    for (const auto& [channel, peer] : of(iface).peers())
        for (Ep* ep : peer->eps) {
            ucs_vfs_obj_add_dir(iface, ep, "ep/%p", ep);
            ucs_vfs_obj_add_ro_file(ep, ucs_vfs_show_memory_address, nullptr, 0, "memory_address");
        }
}

} // namespace ucx_mp::face
