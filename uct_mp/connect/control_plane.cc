// The face: takes the lock where control_plane.h says so, and calls the part that does it.
#include "uct_mp/connect/control_plane.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

namespace {

Status begin(Plane& plane, std::string& error) {
    const std::span<const verbs::Rail> rails =
        plane.config.rails.empty() ? plane.devices.rails() : std::span<const verbs::Rail>(plane.config.rails);
    error = path::check(plane.config.paths, rails);
    if (!error.empty()) return Status::invalid_param;
    if (rails.empty() || rails.size() > verbs::kMaxRails) {
        error = "control plane: " + std::to_string(rails.size()) + " rails; allowed: 1 to " +
                std::to_string(verbs::kMaxRails);
        return Status::invalid_param;
    }
    const std::size_t request = plane.identity.smallest_mtu();
    for (const verbs::Rail& rail : rails)
        if (rail.active && mtu_bytes(rail.mtu) < request) {
            error = "UCX_MP_RAILS: rail " + rail.name + " has an MTU of " + std::to_string(mtu_bytes(rail.mtu)) +
                    " bytes; " + std::to_string(rails.size()) + " rails need at least " + std::to_string(request);
            return Status::invalid_param;
        }
    plane.identity.choose();
    const Datagrams::Config queues{.receive_depth = plane.config.receive_depth,
                                   .send_depth = plane.config.send_depth,
                                   .q_key = plane.identity.address.q_key,
                                   .service_level = plane.config.service_level};
    if (const Status s = plane.datagrams.open(plane.devices, rails, queues, error); failed(s)) return s;
    for (const verbs::Rail& rail : rails) {
        plane.identity.rails.emplace_back();
        plane.identity.set_rail(rail);
    }
    if (std::ranges::none_of(plane.identity.rails, &path::RemoteRail::usable)) {
        error = "UCX_MP_RAILS: none of the " + std::to_string(plane.identity.rails.size()) +
                " ports is active; one must be";
        return Status::unreachable;
    }
    plane.identity.make_address();
    return Status::ok;
}

} // namespace

ControlPlane::ControlPlane(std::unique_ptr<Plane> plane) : plane_(std::move(plane)) {}
ControlPlane::~ControlPlane() {
    const std::lock_guard lock(plane_->services);
    plane_->states.stop();
    plane_->questions.stop_all();
    plane_->rail_lists.stop_all();
    plane_->goodbyes.stop_all();
    plane_->turns.stop();
}

Status ControlPlane::open(const verbs::DeviceSet& devices, const ControlConfig& config, Services& services,
                          const Owner& owner, std::unique_ptr<ControlPlane>& out, std::string& error) {
    auto plane = std::make_unique<Plane>(devices, config, services, owner);
    if (const Status s = begin(*plane, error); failed(s)) return s; // no timer runs yet
    out.reset(new ControlPlane(std::move(plane)));
    return Status::ok;
}

const InterfaceAddress& ControlPlane::address() const { return plane_->identity.address; }
const ControlCounters& ControlPlane::counters() const { return plane_->counters; }
std::uint32_t ControlPlane::random_psn() { return plane_->identity.random_psn(); }
std::uint64_t ControlPlane::random_tag() { return plane_->identity.random_tag(); }

// ---- Connections

void ControlPlane::start(Connection& connection) {
    const std::lock_guard lock(plane_->services);
    plane_->client.start(connection);
}
void ControlPlane::forget(Connection& connection) {
    const std::lock_guard lock(plane_->services);
    if (connection.state != State::closed) plane_->states.set(connection, State::closed, "forgotten");
    plane_->rail_lists.stop(connection); // both are for a parked one
    plane_->questions.stop(connection);
}
void ControlPlane::close() { plane_->closing = true; }
void ControlPlane::give_up(Connection& connection) {
    const State state = connection.state;
    if (const auto way = plane_->outbox.route(connection, 0); way && state == State::accepting)
        plane_->outbox.refuse(*way, connection, wire::Kind::request, wire::Reason::closing);
    else if (way && (state == State::confirming || (state == State::requesting && connection.remote_id)))
        plane_->outbox.refuse(*way, connection, wire::Kind::reply, wire::Reason::unknown);
    if (state != State::closed) plane_->states.set(connection, State::closed, "given up");
}
void ControlPlane::ask(Connection& connection, Nanos limit) {
    const std::lock_guard lock(plane_->services);
    plane_->questions.ask(connection, limit);
}
void ControlPlane::say_idle(Connection& connection, std::uint32_t delivered) {
    plane_->goodbyes.say_idle(connection, delivered);
}
bool ControlPlane::say_closing(Connection& connection, std::uint32_t delivered, unsigned attempt) {
    return plane_->goodbyes.say_closing(connection, delivered, attempt);
}
void ControlPlane::say_known(Connection& connection, std::uint16_t number, bool agreed) {
    plane_->goodbyes.say_known(connection, number, agreed);
}

// ---- Rails and keys

void ControlPlane::renew(const verbs::Rail& rail) { plane_->rail_lists.renew(rail); }
void ControlPlane::tell_rails(Connection& connection) { plane_->rail_lists.tell(connection); }
void ControlPlane::take_rails(Connection& connection, std::uint32_t number,
                              const std::vector<path::RemoteRail>& rails) {
    plane_->rail_lists.take(connection, number, rails);
}
bool ControlPlane::knows_rails(const Connection& connection) const { return plane_->rail_lists.knows(connection); }
Status ControlPlane::reopen(const verbs::Device& device, const path::TargetNumbers& dct_numbers, std::string& error) {
    return plane_->rail_lists.reopen(device, dct_numbers, error);
}
void ControlPlane::port_active(unsigned rail) {
    const std::lock_guard lock(plane_->services);
    if (!plane_->devices.rails()[rail].ethernet) return;
    plane_->datagrams.drop_handles(rail);
    plane_->outbox.mend_soon();
}
void ControlPlane::ask_keys(const Connection& connection, std::uint64_t region, unsigned attempt) {
    plane_->key_messages.ask(connection, region, attempt);
}

// ---- Paths

void ControlPlane::tell(const Connection& connection, NewsKind kind, const PathNews& news, unsigned attempt) {
    plane_->path_messages.tell(connection, kind, news, attempt);
}
bool ControlPlane::tell_over_path(const Connection& connection, unsigned path, NewsKind kind, const PathNews& news) {
    return plane_->path_messages.tell_over_route(connection, connection.paths[path], kind, news);
}
bool ControlPlane::tell_over_route(const Connection& connection, const path::PathSpec& route, NewsKind kind,
                                   const PathNews& news) {
    return plane_->path_messages.tell_over_route(connection, route, kind, news);
}

void ControlPlane::wish(const Connection& connection, const ServiceWish& wish, unsigned attempt) {
    plane_->wishes.tell(connection, wish, attempt);
}
void ControlPlane::answer(const Connection& connection, std::uint32_t number, bool taken, unsigned attempt) {
    plane_->wishes.answer(connection, number, taken, attempt);
}

void ControlPlane::offer_ring(const Connection& connection, const RingOffer& ring, unsigned attempt) {
    plane_->wishes.offer_ring(connection, ring, attempt);
}
void ControlPlane::answer_ring(const Connection& connection, std::uint32_t number, bool taken, std::uint32_t until,
                               unsigned attempt) {
    plane_->wishes.answer_ring(connection, number, taken, until, attempt);
}

// ---- Progress

unsigned ControlPlane::poll(bool occupied) {
    const std::lock_guard lock(plane_->services);
    if (plane_->polling) return 0; // called by an owner's function
    plane_->outbox.mend();
    plane_->polling = true;
    unsigned n = 0;
    while (const auto arrived = plane_->datagrams.next()) {
        plane_->inbox.arrived(arrived->way_back, arrived->payload);
        ++n;
    }
    n += plane_->turns.go_on(occupied);
    plane_->polling = false;
    return n;
}
bool ControlPlane::busy() const { return plane_->states.any_under_way(); }
std::vector<int> ControlPlane::event_fds() const { return plane_->datagrams.event_fds(); }
Status ControlPlane::arm() {
    const std::lock_guard lock(plane_->services);
    return plane_->datagrams.arm();
}

} // namespace ucx_mp::connect
