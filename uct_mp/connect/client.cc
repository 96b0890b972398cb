#include "uct_mp/connect/client.h"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <utility>

#include "uct_mp/connect/bytes.h"
#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

namespace {

constexpr Nanos kLong = 10'000'000'000; // without an answer: then the user hears of it
constexpr unsigned kTwoWays = 2;        // from this repetition on: pauses are long by then

bool transient(Status s) { return s == Status::no_resource || s == Status::busy; }

std::string range(unsigned min, unsigned max) {
    return min == max ? "version " + std::to_string(min)
                      : "versions " + std::to_string(min) + " to " + std::to_string(max);
}

std::string seconds(Nanos t) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f s", double(t) * 1e-9);
    return text;
}

Status status_of(wire::Reason reason) {
    switch (reason) {
    case wire::Reason::version:
    case wire::Reason::transport:
    case wire::Reason::terms:
        return Status::unsupported;
    case wire::Reason::unreachable:
        return Status::unreachable;
    case wire::Reason::limits:
    case wire::Reason::resources:
        return Status::no_memory;
    case wire::Reason::settled:
    case wire::Reason::unknown:
    case wire::Reason::closing:
        return Status::connection_reset;
    }
    return Status::io_error;
}

} // namespace

void Client::start(Connection& c) {
    assert(c.state == State::closed && c.peer.uid != 0 && c.peer.uid != plane_.identity.address.uid);
    // Else the place is that of a request of the peer's that found none here.
    if (!c.server || !(c.features & feature::park)) c.remote_id = 0;
    c.server = false;
    c.ends.clear();
    c.transaction = plane_.identity.next_transaction();
    c.own_dc_tag = plane_.identity.random_tag();
    c.own_secret = plane_.identity.random_tag();
    c.started = plane_.services.now();
    c.attempts = c.copies = c.sent = 0;
    c.telling.offered = plane_.identity.rails_number; // of several repetitions the first that arrives counts
    plane_.states.set(c, State::requesting, "wanted");
    if (hopeless(c, nullptr) == Status::ok) {
        if (!plane_.outbox.route(c, 0)) say_waiting(c);
        plane_.turns.send(c);
    } else // the owner does not expect the answer inside of start()
        plane_.states.set_timer(c, c.started, [this, &c] { give_up(c); });
}

Status Client::hopeless(const Connection& c, std::string* why) const {
    const auto because = [&](Status status, const std::string& text) {
        if (why) *why = text;
        return status;
    };
    const InterfaceAddress &p = c.peer, &a = plane_.identity.address;
    if (const std::string misfit = version_misfit(p, a.min_version, a.max_version); !misfit.empty())
        return because(Status::unsupported, misfit);
    if (!a.meets(p.transport)) return because(Status::unsupported, connect::name(wire::Reason::transport));
    // Ports come back: until then requests are repeated in vain, as in a partition.
    if (!c.parked && !plane_.outbox.route(c, 0) && !plane_.outbox.may_come(c))
        return because(Status::unreachable, "no working rail of ours is in the subnet of one of its rails");
    return Status::ok;
}

void Client::say_waiting(const Connection& c) {
    if (said_ || c.parked) return;
    said_ = true;
    plane_.services.say(LogLevel::warn, "mp: %s %s: waiting, %s at most (%sCONNECT_TIMEOUT)",
                        plane_.outbox.route(c, 0) ? "no answer from" : "no active port leads to", describe(c).c_str(),
                        seconds(plane_.config.timeout).c_str(), variable_prefix(plane_.identity.address.transport));
}

void Client::give_up(Connection& c) {
    std::string why;
    if (const Status status = hopeless(c, &why); status != Status::ok)
        plane_.states.fail(c, status, why);
    else
        plane_.turns.send(c); // a rail has come back
}

// Doubles up to the ceiling, plus or minus a quarter: peers that have started together do not repeat together.
Nanos Client::back_off(const Connection& c) const {
    const Nanos doubled = plane_.config.retry << std::min(c.attempts, 20u);
    const Nanos base = std::max<Nanos>(4, std::min(doubled, plane_.config.max_retry));
    return base - base / 4 + mix(plane_.identity.address.uid ^ mix(c.peer.uid + c.sent)) % (base / 2);
}

void Client::wait_for_answer(Connection& c) {
    ++c.sent;
    plane_.states.set_timer(c, std::min(plane_.services.now() + back_off(c), c.started + plane_.config.timeout),
                            [this, &c] { repeat(c); });
}

bool Client::send_copies(Connection& c, bool patient) {
    Message m = plane_.outbox.message_to(wire::Kind::request, c);
    m.num_paths = std::uint8_t(plane_.config.paths.num_paths);
    m.split_reads = plane_.config.paths.split_reads;
    m.dc_key = plane_.config.dc_key;
    m.terms = plane_.identity.terms_for(c);
    m.rails = plane_.identity.rails_to(c.peer.uid);
    plane_.outbox.add_tail(c, m);
    const unsigned tried = c.attempts + c.copies;
    const bool two = tried >= kTwoWays;
    const unsigned way = two ? 2 * tried - kTwoWays : tried;
    if (!plane_.outbox.send_to(c, way, m) && patient) return false;
    if (two) {
        const std::optional<Target> first = plane_.outbox.route(c, way), second = plane_.outbox.route(c, way + 1);
        if (first && second && (first->rail != second->rail || first->to != second->to))
            c.sent += plane_.outbox.send(*second, m);
    }
    return true;
}

bool Client::send_request(Connection& c, bool patient) {
    if (!send_copies(c, patient)) return false;
    wait_for_answer(c);
    return true;
}

bool Client::send_confirm(Connection& c, const Target& to, bool patient) {
    Message m = plane_.outbox.message_to(wire::Kind::confirm, c);
    m.ends = c.ends;
    if (!plane_.outbox.send(to, m) && patient) return false;
    wait_for_answer(c);
    return true;
}

void Client::repeat(Connection& c) {
    const Nanos waited = plane_.services.now() - c.started;
    if (waited >= plane_.config.timeout) {
        const char* what = c.state == State::requesting ? "request" : "confirmation";
        plane_.states.fail(c, Status::timed_out,
                           std::string("no answer to our ") + what + " in " + seconds(waited) + " (" +
                               std::to_string(c.sent) + " messages sent); is its process alive, are the links up?");
        return;
    }
    if (waited >= kLong) say_waiting(c);
    ++c.attempts;
    ++plane_.counters.repeated;
    plane_.outbox.mend();
    plane_.turns.send(c);
}

// Whoever asks for it may not be the peer. So it is only a copy now and then, and the repetitions go on unchanged.
void Client::ask_again(Connection& c) {
    const Nanos now = plane_.services.now();
    if (!c.timer) return; // it is our turn already, or its reply is here
    if (c.asked_again && now - c.asked_again < plane_.config.retry / 2) return;
    c.asked_again = now;
    ++c.copies;
    ++plane_.counters.repeated;
    (void)send_copies(c, false);
}

void Client::on_reply(const Target& way_back, const Message& m) {
    Connection* c = plane_.connections.addressed(m);
    if (c && is_under_way(c->state) && !same_secret(m.shown, c->own_secret)) {
        ++plane_.counters.late; // it answers an earlier request, or none
        return;
    }
    if (!c || c->state == State::closed || c->state == State::failed) {
        // The server would keep its half until its time is over.
        plane_.outbox.refuse(way_back, m, wire::Reason::unknown);
        return;
    }
    if (c->state != State::requesting || c->transaction != m.transaction) {
        ++plane_.counters.late;
        return;
    }
    if (Due* const due = plane_.turns.due_of(*c); due && due->what != Due::What::send) { // it is under way
        due->way_back = way_back;
        ++plane_.counters.late;
        return;
    }
    if (!is_news(m.incarnation, c->incarnation)) {
        ++plane_.counters.dropped;
        return;
    }
    if (const std::string why = plane_.owner.peers.misfit(m.terms); !why.empty()) {
        plane_.outbox.refuse(way_back, m, wire::Reason::terms);
        plane_.states.fail(*c, Status::unsupported, why);
        return;
    }
    const path::Kinds kinds = plane_.identity.common_kinds(m);
    if (!std::ranges::all_of(m.paths, [&](const path::PathSpec& p) { return path::has(kinds, p.kind); })) {
        ++plane_.counters.dropped;
        return;
    }
    const bool knows = (plane_.config.terms.features & feature::on_demand) && kinds == path::Kinds::both;
    if (!knows && std::ranges::any_of(m.paths, &path::PathSpec::on_demand)) {
        ++plane_.counters.dropped;
        return;
    }
    const std::uint32_t before = c->incarnation;
    c->remote_id = m.source;
    c->peer_secret = m.nonce;
    c->incarnation = m.incarnation;
    c->remote_rails = m.rails;
    c->paths = m.paths;
    c->absent = m.absent;
    c->rails_number = 0;
    c->remote_ends = m.ends;
    plane_.identity.take_terms(*c, m);
    if (is_news(m.void_through, c->seen)) {
        c->seen = m.void_through;
        c->seen_at = plane_.services.now();
    }
    plane_.states.cancel_timer(*c);
    plane_.turns.make(*c, {.what = Due::What::make, .way_back = way_back, .incarnation = before});
}

void Client::reply_done(Connection& c, const Due& due, Status status) {
    if (due.what == Due::What::make && transient(status)) { // we repeat the request, the server its reply
        plane_.states.drop_ends(c);
        c.incarnation = due.incarnation;
        c.peer_secret = c.held.peer_secret;
        c.remote_id = 0; // as the request has it (R215)
        wait_for_answer(c);
        return;
    }
    if (ucx_mp::failed(status)) {
        plane_.outbox.refuse(due.way_back, c, wire::Kind::reply, wire::Reason::unknown);
        plane_.states.fail(c, status, "could not make or connect our queue pairs");
        return;
    }
    plane_.states.set(c, State::confirming, "reply");
    c.attempts = 0;
    c.started += plane_.services.now() - due.since; // the peer is not to blame for it
    if (!send_confirm(c, due.way_back, true)) plane_.turns.send_soon(c);
}

void Client::on_ready(const Message& m) {
    Connection* c = plane_.connections.connection_of(m);
    if (!c || c->state != State::confirming || c->transaction != m.transaction || c->incarnation != m.incarnation) {
        ++plane_.counters.late;
        return;
    }
    plane_.states.set(*c, State::established, "ready");
    said_ = said_version_ = false;
    c->telling.known = c->telling.offered;
    plane_.owner.peers.established(*c);
    plane_.rail_lists.tell(*c); // changes since the request
}

void Client::refused(Connection& c, const Message& m) {
    if (m.reason == wire::Reason::unknown) {
        if (c.state != State::confirming) {
            ++plane_.counters.late; // a request can't be unknown
            return;
        }
        if (plane_.owner.peers.carries_data(c)) { // it is in use: the owner ends it
            plane_.owner.peers.answered(c, Answer::lost);
            return;
        }
        // Between reply and confirm the server forgot us. Tries anew, within the same time limit, but not at once.
        plane_.states.drop_ends(c);
        plane_.states.set(c, State::requesting, "the server has given up");
        c.transaction = plane_.identity.next_transaction();
        c.remote_id = 0; // the peer's half is gone
        plane_.states.set_timer(c, plane_.services.now() + back_off(c), [this, &c] { repeat(c); });
        return;
    }
    std::string why = std::string("refused: ") + connect::name(m.reason);
    if (m.reason == wire::Reason::version)
        why += " (" + range(m.min_version, m.max_version) +
               "; we: " + range(plane_.identity.address.min_version, plane_.identity.address.max_version) + ")";
    plane_.states.fail(c, status_of(m.reason), why);
}

// Its address says that it speaks one of our versions. The library was exchanged there meanwhile,
// or somebody lies. So the user is only told, once: the request is repeated until its time is over.
void Client::refused_without_proof(const Connection& c, const Message& m) {
    ++plane_.counters.late;
    if (m.reason != wire::Reason::version || c.state != State::requesting || std::exchange(said_version_, true)) return;
    plane_.services.say(LogLevel::warn, "mp: %s says that it speaks %s of the handshake, we %s: waiting, %s at most",
                        describe(c).c_str(), range(m.min_version, m.max_version).c_str(),
                        range(plane_.identity.address.min_version, plane_.identity.address.max_version).c_str(),
                        seconds(plane_.config.timeout).c_str());
}

} // namespace ucx_mp::connect
