#include "uct_mp/connect/rail_lists.h"

#include <algorithm>

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

namespace {

constexpr Nanos kPatient = 1'000'000'000; // between attempts, to a parked peer: nobody waits for it

// Lists are as long as the one before, and name the same devices. Only a new life has new queue pairs.
bool fits(const std::vector<path::RemoteRail>& before, const std::vector<path::RemoteRail>& now) {
    return std::ranges::equal(before, now, [](const path::RemoteRail& a, const path::RemoteRail& b) {
        return a.device == b.device &&
               (a.life != b.life || (a.control_qpn == b.control_qpn && a.dct_number == b.dct_number));
    });
}

} // namespace

void RailLists::renew(const verbs::Rail& rail) {
    plane_.identity.set_rail(rail);
    if (path::RemoteRail& own = plane_.identity.rails[rail.index];
        own.usable() && mtu_bytes(own.mtu) < plane_.identity.smallest_mtu()) {
        plane_.services.say(LogLevel::warn,
                            "rail %s has come up with an MTU of %zu bytes, which is too small for %zu rails",
                            rail.name.c_str(), mtu_bytes(own.mtu), plane_.identity.rails.size());
        own.lid = own.lmc = 0;
        own.gid = {};
    }
    plane_.datagrams.renew(rail);
    plane_.identity.make_address();
    if (++plane_.identity.rails_number == 0) ++plane_.identity.rails_number;
}

Status RailLists::reopen(const verbs::Device& device, const path::TargetNumbers& dct_numbers, std::string& error) {
    const Status status = plane_.datagrams.reopen(device, error);
    if (failed(status)) return status;
    plane_.identity.dct_numbers = dct_numbers;
    return Status::ok;
}

bool RailLists::knows(const Connection& c) const {
    return (is_under_way(c.state) ? c.telling.offered : c.telling.known) == plane_.identity.rails_number;
}

void RailLists::tell(Connection& c) {
    const bool may =
        c.state == State::established || c.state == State::accepting || (c.state == State::closed && c.parked);
    if (!may || c.telling.known == plane_.identity.rails_number) return;
    stop(c);
    telling_.insert(&c);
    c.telling.nonce = plane_.identity.random_tag();
    if (c.state == State::accepting)
        set_timer(c, plane_.config.retry); // the reply says it as well
    else
        plane_.turns.send(c);
}

bool RailLists::send(Connection& c, bool patient) {
    Message m = plane_.outbox.message_to(wire::Kind::rails, c);
    m.rails = plane_.identity.rails_to(c.peer.uid);
    m.nonce = c.telling.nonce;
    m.rails_number = plane_.identity.rails_number;
    if (!plane_.outbox.send_to(c, c.telling.sent, m) && patient) return false;
    const Nanos ceiling = c.parked ? kPatient : plane_.config.max_retry;
    set_timer(c, std::min(plane_.config.retry << std::min(c.telling.sent, 20u), ceiling));
    ++c.telling.sent;
    return true;
}

void RailLists::set_timer(Connection& c, Nanos pause) {
    c.telling.timer = plane_.services.at_in_background(plane_.services.now() + pause, [this, &c] {
        c.telling.timer = 0;
        repeat(c);
    });
}

void RailLists::repeat(Connection& c) {
    if (c.state == State::accepting) // its place among the turns belongs to its ends
        (void)send(c, false);
    else
        plane_.turns.send(c);
}

void RailLists::stop(Connection& c) {
    if (c.telling.timer) plane_.services.cancel_in_background(c.telling.timer);
    c.telling.timer = 0;
    c.telling.sent = 0;
    telling_.erase(&c);
    if (c.state != State::accepting) plane_.turns.drop(c);
}

void RailLists::stop_all() {
    while (!telling_.empty()) stop(**telling_.begin());
}

void RailLists::on_rails(const Target& way_back, const Message& m) {
    Connection* const c = plane_.connections.connection_of(m);
    if (!c || c->incarnation != m.incarnation || c->state == State::closed || c->state == State::requesting)
        return on_rails_elsewhere(way_back, m);
    if (c->state != State::established || !fits(c->remote_rails, m.rails)) {
        ++plane_.counters.late; // or not this peer's list
        return;
    }
    if (is_news(m.rails_number, c->rails_number))
        plane_.owner.news.rails_told(*c, m.rails_number, m.rails);
    else
        answer(*c); // our answer was lost
}

// For a peer that is parked, or whose reply to our request has not come. Only our
// next request uses the list, so it is taken at once. A side that has forgotten the
// peer needs none, and says that it knows the list: else it would be told for ever.
void RailLists::on_rails_elsewhere(const Target& way_back, const Message& m) {
    Connection* c = plane_.connections.parked_of(m);
    if (Connection* const asks = plane_.connections.connection_of(m);
        !c && asks && asks->state == State::requesting && is_news(m.incarnation, asks->incarnation))
        c = asks;
    if (c && !c->remote_rails.empty() && !fits(c->remote_rails, m.rails)) {
        ++plane_.counters.late;
        return;
    }
    if (c && (is_news(m.rails_number, c->rails_number) || c->remote_rails.empty())) {
        c->remote_rails = m.rails;
        c->rails_number = m.rails_number;
    }
    Message answer = plane_.outbox.answer_to(m, wire::Kind::rails_known);
    answer.rails_number = m.rails_number;
    plane_.outbox.send(way_back, answer);
}

void RailLists::take(Connection& c, std::uint32_t number, const std::vector<path::RemoteRail>& rails) {
    if (c.state != State::established || is_news(c.rails_number, number)) return;
    c.remote_rails = rails;
    c.rails_number = number;
    answer(c);
}

void RailLists::answer(Connection& c) {
    Message answer = plane_.outbox.message_to(wire::Kind::rails_known, c);
    answer.rails_number = c.rails_number;
    // Repetitions take other ways.
    if (const auto to = plane_.outbox.route(c, c.telling.answers++)) plane_.outbox.send(*to, answer);
}

void RailLists::on_rails_known(const Message& m) {
    Connection* const c = plane_.connections.addressed(m);
    if (c && !shows_secret(*c, m) && !same_secret(m.shown, c->telling.nonce)) {
        ++plane_.counters.dropped;
        return;
    }
    const bool holds = c && (c->state == State::established || c->state == State::accepting ||
                             (c->state == State::closed && c->parked));
    if (!holds || c->incarnation != m.incarnation || is_news(m.rails_number, plane_.identity.rails_number)) {
        ++plane_.counters.late;
        return;
    }
    if (!is_news(m.rails_number, c->telling.known)) return; // overtaken by a later one
    c->telling.known = m.rails_number;
    if (m.rails_number == plane_.identity.rails_number) stop(*c);
}

} // namespace ucx_mp::connect
