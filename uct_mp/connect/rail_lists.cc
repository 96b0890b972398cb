// Ports that were down come up, and subnet managers give others LIDs: peers are told our list of rails again.
#include <algorithm>

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

// A port that is not active keeps its place in the list: LID 0, no GID.
void ControlPlane::Impl::set_own(const verbs::Rail& rail) {
    path::RemoteRail& own = own_rails[rail.index];
    own = path::describe(rail);
    own.life = devices.device_of(rail).life;
    own.probe_key = owner.ends.probe_key(rail);
    own.control_qpn = datagrams.qp_number(rail.index);
    if (rail.index < dct_numbers.size()) own.dct_number = dct_numbers[rail.index];
    if (!valid_port(own.lid, own.lmc)) own.lid = own.lmc = 0;
    own.mtu = std::clamp(own.mtu, IBV_MTU_256, IBV_MTU_4096);
}

void ControlPlane::Impl::renew(const verbs::Rail& rail) {
    set_own(rail);
    if (path::RemoteRail& own = own_rails[rail.index]; own.usable() && mtu_bytes(own.mtu) < smallest_mtu()) {
        services.say(LogLevel::warn, "rail %s has come up with an MTU of %zu bytes, which is too small for %zu rails",
                     rail.name.c_str(), mtu_bytes(own.mtu), own_rails.size());
        own.lid = own.lmc = 0;
        own.gid = {};
    }
    datagrams.renew(rail);
    make_address();
    if (++own_number == 0) ++own_number;
}

void ControlPlane::Impl::tell_rails(Connection& c) {
    if (c.state != State::established || c.telling.known == own_number) return;
    stop_telling(c);
    telling.insert(&c);
    send_in_turn(c);
}

bool ControlPlane::Impl::send_rails(Connection& c, bool patient) {
    Message m = message_to(wire::Kind::rails, c);
    m.rails = own_rails;
    m.rails_number = own_number;
    if (const auto to = route(c, c.telling.sent)) {
        if (!send(*to, m) && patient) return false;
    } else {
        ++counters.unsent;
    }
    const Nanos pause = std::min(config.retry << std::min(c.telling.sent, 20u), config.max_retry);
    ++c.telling.sent;
    c.telling.timer = services.at_in_background(services.now() + pause, [this, &c] {
        c.telling.timer = 0;
        send_in_turn(c);
    });
    return true;
}

void ControlPlane::Impl::stop_telling(Connection& c) {
    if (c.telling.timer) services.cancel_in_background(c.telling.timer);
    c.telling.timer = 0;
    c.telling.sent = 0;
    telling.erase(&c);
    drop_due(c);
}

void ControlPlane::Impl::on_rails(const Message& m) {
    Connection* const c = connection_of(m);
    const auto same_port = [](const path::RemoteRail& a, const path::RemoteRail& b) {
        return a.device == b.device &&
               (a.life != b.life || (a.control_qpn == b.control_qpn && a.dct_number == b.dct_number));
    };
    if (!c || c->state != State::established || c->incarnation != m.incarnation ||
        !std::ranges::equal(c->remote_rails, m.rails, same_port)) {
        ++counters.late; // or not the list of this peer
        return;
    }
    if (newer(m.rails_number, c->rails_number))
        owner.news.rails_told(*c, m.rails_number, m.rails);
    else
        answer_rails(*c); // our answer was lost
}

void ControlPlane::Impl::take_rails(Connection& c, std::uint32_t number, const std::vector<path::RemoteRail>& rails) {
    if (c.state != State::established || newer(c.rails_number, number)) return;
    c.remote_rails = rails;
    c.rails_number = number;
    answer_rails(c);
}

void ControlPlane::Impl::answer_rails(Connection& c) {
    Message answer = message_to(wire::Kind::rails_known, c);
    answer.rails_number = c.rails_number;
    if (const auto to = route(c, c.telling.answers++)) send(*to, answer); // repetitions take other ways
}

void ControlPlane::Impl::on_rails_known(const Message& m) {
    Connection* const c = connection_of(m);
    if (!c || c->state != State::established || c->incarnation != m.incarnation || newer(m.rails_number, own_number)) {
        ++counters.late;
        return;
    }
    if (!newer(m.rails_number, c->telling.known)) return; // overtaken by a later one
    c->telling.known = m.rails_number;
    if (m.rails_number == own_number) stop_telling(*c);
}

// -- Adapters that are there again, and the keys of memory that is registered with them anew

Status ControlPlane::Impl::reopen(const verbs::Device& device, const std::vector<std::uint32_t>& new_dct_numbers,
                                  std::string& error) {
    const Status status = datagrams.reopen(device, error);
    if (failed(status)) return status;
    dct_numbers = new_dct_numbers;
    return Status::ok;
}

void ControlPlane::Impl::ask_keys(const Connection& c, std::uint64_t region, unsigned attempt) {
    Message m = message_to(wire::Kind::keys, c);
    m.keys.id = region;
    if (const auto to = route(c, attempt))
        send(*to, m);
    else
        ++counters.unsent;
}

void ControlPlane::Impl::on_keys(const Target& way_back, const Message& m) {
    const Connection* const c = connection_of(m);
    if (!c || c->state != State::established || c->incarnation != m.incarnation) {
        ++counters.late;
        return;
    }
    Message answer = message_to(wire::Kind::keys_told, *c);
    answer.holds = owner.news.find_keys(m.keys.id, answer.keys);
    answer.keys.id = m.keys.id;
    send(way_back, answer);
}

void ControlPlane::Impl::on_keys_told(const Message& m) {
    Connection* const c = connection_of(m);
    if (!c || c->state != State::established || c->incarnation != m.incarnation)
        ++counters.late;
    else
        owner.news.keys_told(*c, m.holds, m.keys);
}

Status ControlPlane::reopen(const verbs::Device& device, const std::vector<std::uint32_t>& dct_numbers,
                            std::string& error) {
    return impl_->reopen(device, dct_numbers, error);
}
bool ControlPlane::knows_rails(const Connection& connection) const {
    return connection.telling.known == impl_->own_number;
}
void ControlPlane::ask_keys(const Connection& connection, std::uint64_t region, unsigned attempt) {
    impl_->mend();
    impl_->ask_keys(connection, region, attempt);
}

void ControlPlane::renew(const verbs::Rail& rail) { impl_->renew(rail); }
void ControlPlane::tell_rails(Connection& connection) { impl_->tell_rails(connection); }
void ControlPlane::take_rails(Connection& connection, std::uint32_t number,
                              const std::vector<path::RemoteRail>& rails) {
    impl_->take_rails(connection, number, rails);
}

} // namespace ucx_mp::connect
