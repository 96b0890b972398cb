// The public extensions (uct_mp/api/uct_mp.h).
#include <algorithm>
#include <cstring>
#include <utility>

#include "uct_mp/channel/statistics.h"
#include "uct_mp/host/turn.h"
#include "uct_mp/ucx/guard.h"
#include "uct_mp/ucx/iface.h"

extern "C" {
#include "uct_mp/api/uct_mp.h"
}

using namespace ucx_mp;
using namespace ucx_mp::face;

namespace {

bool ours(uct_iface_h iface) { return iface && iface->ops.iface_close == Iface::close; }
bool ours(uct_ep_h ep) { return ep && ours(ep->iface); }

} // namespace

extern "C" __attribute__((visibility("default"))) const char* uct_mp_version() { return UCX_MP_VERSION; }

extern "C" __attribute__((visibility("default"))) ucs_status_t uct_mp_ep_set_hint(uct_ep_h ep, uct_mp_hint_t hint) {
    static_assert(UCT_MP_HINT_ONE_SIDED_EPOCH == static_cast<int>(schedule::TrafficHint::one_sided_epoch));
    if (!ours(ep)) return UCS_ERR_UNSUPPORTED;
    if (static_cast<unsigned>(hint) > UCT_MP_HINT_ONE_SIDED_EPOCH) return UCS_ERR_INVALID_PARAM;
    const turn::Inside inside(Iface::of(ep->iface).turn());
    Ep& e = Ep::of(ep);
    e.core->set_hint(*e.channel, static_cast<schedule::TrafficHint>(hint));
    return UCS_OK;
}

extern "C" __attribute__((visibility("default"))) ucs_status_t uct_mp_iface_query_adapters(uct_iface_h iface,
                                                                                           unsigned* count) {
    if (!ours(iface)) return UCS_ERR_UNSUPPORTED;
    if (!count) return UCS_ERR_INVALID_PARAM;
    *count = Iface::of(iface).adapters();
    return UCS_OK;
}

extern "C" __attribute__((visibility("default"))) ucs_status_t
uct_mp_ep_query_paths(uct_ep_h ep, uct_mp_path_t* paths, size_t path_size, unsigned* count) {
    if (!ours(ep)) return UCS_ERR_UNSUPPORTED;
    if (!count || (*count && !paths)) return UCS_ERR_INVALID_PARAM;
    return guard("querying paths", [&] {
        const turn::Inside inside(Iface::of(ep->iface).turn());
        const Ep& e = Ep::of(ep);
        channel::Interface::Statistics statistics;
        e.core->statistics(statistics);
        const unsigned room = std::exchange(*count, 0);
        for (const auto& peer : statistics.channels) {
            if (peer.peer_uid != e.peer->uid) continue;
            *count = static_cast<unsigned>(peer.paths.size());
            for (unsigned i = 0; i < std::min(room, *count); ++i) {
                const channel::PathStatistics& from = peer.paths[i];
                uct_mp_path_t to{};
                std::strncpy(to.local_rail, from.local_rail.c_str(), sizeof to.local_rail - 1);
                to.local_lid = from.local_lid;
                to.remote_lid = from.remote_lid;
                to.state = static_cast<std::uint32_t>(from.state);
                to.weight = from.weight;
                to.write_rate = from.write_rate;
                to.read_rate = from.read_rate;
                to.latency = from.latency;
                to.written = from.written;
                to.read = from.read;
                to.in_flight = from.in_flight;
                std::memcpy(reinterpret_cast<char*>(paths) + i * path_size, &to, std::min(path_size, sizeof to));
            }
        }
        return UCS_OK;
    });
}
