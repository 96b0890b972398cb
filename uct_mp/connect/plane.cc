#include "uct_mp/connect/plane.h"

#include <algorithm>
#include <mutex>

namespace ucx_mp::connect {

Status Plane::open(std::string& error) {
    const std::span<const verbs::Rail> rails =
        config.rails.empty() ? devices.rails() : std::span<const verbs::Rail>(config.rails);
    error = path::check(config.paths, rails);
    if (!error.empty()) return Status::invalid_param;
    if (rails.empty() || rails.size() > verbs::kMaxRails) {
        error = "control plane: " + std::to_string(rails.size()) + " rails; allowed: 1 to " +
                std::to_string(verbs::kMaxRails);
        return Status::invalid_param;
    }
    const std::size_t request = identity.smallest_mtu();
    for (const verbs::Rail& rail : rails)
        if (rail.active && mtu_bytes(rail.mtu) < request) {
            error = "UCX_MP_RAILS: rail " + rail.name + " has an MTU of " + std::to_string(mtu_bytes(rail.mtu)) +
                    " bytes; " + std::to_string(rails.size()) + " rails need at least " + std::to_string(request);
            return Status::invalid_param;
        }
    identity.choose();
    const Datagrams::Config queues{.receive_depth = config.receive_depth,
                                   .send_depth = config.send_depth,
                                   .q_key = identity.address.q_key,
                                   .service_level = config.service_level};
    if (const Status s = datagrams.open(devices, rails, queues, error); failed(s)) return s;
    for (const verbs::Rail& rail : rails) {
        identity.rails.emplace_back();
        identity.set_rail(rail);
    }
    if (std::ranges::none_of(identity.rails, &path::RemoteRail::usable)) {
        error = "UCX_MP_RAILS: none of the " + std::to_string(identity.rails.size()) + " ports is active; one must be";
        return Status::unreachable;
    }
    identity.make_address();
    return Status::ok;
}

unsigned Plane::poll(bool occupied) {
    if (polling) return 0; // called by an owner's function
    outbox.mend();
    polling = true;
    unsigned n = datagrams.poll(
        [this](const Target& way_back, std::span<const std::uint8_t> datagram) { inbox.arrived(way_back, datagram); });
    n += turns.go_on(occupied);
    polling = false;
    return n;
}

Plane::~Plane() {
    const std::lock_guard lock(services);
    states.stop();
    questions.stop_all();
    rail_lists.stop_all();
    goodbyes.stop_all();
    turns.stop();
}

} // namespace ucx_mp::connect
