// The client's part of the handshake: request until reply, confirm until ready.
#include <algorithm>
#include <cassert>
#include <cstdio>

#include "uct_mp/connect/bytes.h"
#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

namespace {

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
        return Status::connection_reset;
    }
    return Status::io_error;
}

} // namespace

void ControlPlane::Impl::start(Connection& c) {
    assert(c.state == State::closed && c.peer.uid != 0 && c.peer.uid != address.uid);
    c.server = false;
    c.ends.clear();
    c.transaction = next_transaction();
    c.own_dc_tag = random_tag();
    c.started = services.now();
    c.attempts = c.sent = 0;
    c.telling.known = own_number; // of repetitions the first that arrives counts
    set_state(c, State::requesting, "wanted");
    if (hopeless(c, nullptr) == Status::ok)
        send_in_turn(c);
    else
        set_timer(c, c.started, &Impl::give_up); // the owner does not expect the answer inside of start()
}

Status ControlPlane::Impl::hopeless(const Connection& c, std::string* why) const {
    const auto because = [&](Status status, const std::string& text) {
        if (why) *why = text;
        return status;
    };
    const InterfaceAddress &p = c.peer, &a = address;
    if (p.min_version > a.max_version || a.min_version > p.max_version)
        return because(Status::unsupported, "it speaks " + range(p.min_version, p.max_version) +
                                                " of the handshake, we " + range(a.min_version, a.max_version));
    if (p.transport != config.transport) return because(Status::unsupported, connect::name(wire::Reason::transport));
    if (!route(c, 0))
        return because(Status::unreachable, "no working rail of ours is in the subnet of one of its rails");
    return Status::ok;
}

void ControlPlane::Impl::give_up(Connection& c) {
    std::string why;
    if (const Status status = hopeless(c, &why); status != Status::ok)
        fail(c, status, why);
    else
        send_in_turn(c); // a rail has come back
}

// Pairs of rails that reach each other, ordered so that consecutive ones differ on both sides where they can; when all
// have been tried, the same over the next route (path bits). Where it begins depends on the pair of peers, so that a
// storm of connections doesn't all begin on rail 0.
std::optional<Target> ControlPlane::Impl::route(const Connection& c, unsigned attempt) const {
    struct Pair {
        unsigned rail;
        std::uint16_t lid;
        std::uint8_t lmc;
        std::uint32_t qp_number;
        verbs::Gid gid;
    };
    std::vector<Pair> pairs;
    const bool know_rails = !c.remote_rails.empty();
    const std::size_t remotes = know_rails ? c.remote_rails.size() : c.peer.count;
    const auto look = [&](bool routed) {
        for (std::size_t shift = 0; shift < remotes; ++shift)
            for (unsigned i = 0; i < own_rails.size(); ++i) {
                const path::RemoteRail& own = own_rails[i];
                if (!datagrams.works(i) || !own.usable()) continue;
                const std::size_t j = (i + shift) % remotes;
                if (know_rails) {
                    const path::RemoteRail& r = c.remote_rails[j];
                    if (path::reach(own, r, routed)) pairs.push_back({i, r.lid, r.lmc, r.control_qpn, r.gid});
                } else {
                    const ControlAddress& r = c.peer.control[j];
                    if (reach(own.subnet_prefix, own.gid, r, routed))
                        pairs.push_back({i, r.lid, r.lmc, r.qp_number, r.gid});
                }
            }
    };
    look(false);
    if (pairs.empty()) look(true);
    if (pairs.empty()) return std::nullopt;
    const std::uint64_t first = mix(address.uid ^ c.peer.uid) % pairs.size();
    const Pair& p = pairs[(first + attempt) % pairs.size()];
    const auto bits = unsigned(attempt / pairs.size());
    return Target{.rail = p.rail,
                  .to = {.dlid = std::uint16_t(p.lid + (bits & ((1u << p.lmc) - 1))),
                         .source_path_bits = std::uint8_t(bits & ((1u << own_rails[p.rail].lmc) - 1)),
                         .gid = p.gid},
                  .qp_number = p.qp_number,
                  .q_key = c.peer.q_key};
}

// Doubles up to the ceiling, plus or minus a quarter: peers that have started together don't repeat together.
Nanos ControlPlane::Impl::back_off(const Connection& c) const {
    const Nanos doubled = config.retry << std::min(c.attempts, 20u);
    const Nanos base = std::max<Nanos>(4, std::min(doubled, config.max_retry));
    return base - base / 4 + mix(address.uid ^ mix(c.peer.uid + c.sent)) % (base / 2);
}

void ControlPlane::Impl::wait_for_answer(Connection& c) {
    ++c.sent;
    set_timer(c, std::min(services.now() + back_off(c), c.started + config.timeout), &Impl::repeat);
}

bool ControlPlane::Impl::send_request(Connection& c, bool patient) {
    Message m = message_to(wire::Kind::request, c);
    m.num_paths = std::uint8_t(config.paths.num_paths);
    m.split_reads = config.paths.split_reads;
    m.dc_key = config.dc_key;
    m.terms = terms_of(c);
    m.rails = own_rails;
    if (const auto to = route(c, c.attempts)) {
        if (!send(*to, m) && patient) return false;
    } else {
        ++counters.unsent;
    }
    wait_for_answer(c);
    return true;
}

bool ControlPlane::Impl::send_confirm(Connection& c, const Target& to, bool patient) {
    Message m = message_to(wire::Kind::confirm, c);
    m.ends = c.ends;
    if (!send(to, m) && patient) return false;
    wait_for_answer(c);
    return true;
}

void ControlPlane::Impl::repeat(Connection& c) {
    const Nanos waited = services.now() - c.started;
    if (waited >= config.timeout) {
        const char* what = c.state == State::requesting ? "request" : "confirmation";
        fail(c, Status::timed_out,
             std::string("no answer to our ") + what + " in " + seconds(waited) + " (" + std::to_string(c.sent) +
                 " messages sent); is its process alive, are the links up?");
        return;
    }
    ++c.attempts;
    ++counters.repeated;
    mend();
    send_in_turn(c);
}

void ControlPlane::Impl::on_reply(const Target& way_back, const Message& m) {
    Connection* c = connection_of(m);
    if (!c || c->state == State::closed || c->state == State::failed) {
        // The server would keep its half until its time is over.
        refuse(way_back, m, wire::Reason::unknown);
        return;
    }
    if (c->state != State::requesting || c->transaction != m.transaction) {
        ++counters.late;
        return;
    }
    if (Due* const due = due_of(*c); due && due->what != Due::What::send) { // we are at it
        due->way_back = way_back;
        ++counters.late;
        return;
    }
    if (!newer(m.incarnation, c->incarnation)) {
        ++counters.dropped;
        return;
    }
    if (const std::string why = owner.peers.misfit(m.terms); !why.empty()) {
        refuse(way_back, m, wire::Reason::terms);
        fail(*c, Status::unsupported, why);
        return;
    }
    const std::uint32_t before = c->incarnation;
    c->remote_id = m.source;
    c->incarnation = m.incarnation;
    c->remote_rails = m.rails;
    c->paths = m.paths;
    c->absent = m.absent;
    c->rails_number = 0;
    c->remote_ends = m.ends;
    take_terms(*c, m);
    if (m.void_through && (c->seen == 0 || newer(m.void_through, c->seen))) c->seen = m.void_through;
    cancel_timer(*c);
    make_in_turn(*c, {.what = Due::What::make, .way_back = way_back, .incarnation = before});
}

void ControlPlane::Impl::reply_done(Connection& c, const Due& due, Status status) {
    if (due.what == Due::What::make && transient(status)) { // we repeat the request, the server its reply
        drop_ends(c);
        c.incarnation = due.incarnation;
        wait_for_answer(c);
        return;
    }
    if (ucx_mp::failed(status)) {
        refuse(due.way_back, c, wire::Kind::reply, wire::Reason::unknown);
        fail(c, status, "could not make or connect our queue pairs");
        return;
    }
    set_state(c, State::confirming, "reply");
    c.attempts = 0;
    c.started += services.now() - due.since; // the peer is not to blame for it
    if (!send_confirm(c, due.way_back, true)) send_soon(c);
}

void ControlPlane::Impl::on_ready(const Message& m) {
    Connection* c = connection_of(m);
    if (!c || c->state != State::confirming || c->transaction != m.transaction || c->incarnation != m.incarnation) {
        ++counters.late;
        return;
    }
    set_state(*c, State::established, "ready");
    owner.peers.established(*c);
    tell_rails(*c); // what has changed since the request
}

void ControlPlane::Impl::refused(Connection& c, const Message& m) {
    if (m.reason == wire::Reason::unknown) {
        if (c.state != State::confirming) {
            ++counters.late; // a request can't be unknown
            return;
        }
        // Between reply and confirm the server has forgotten us. Try anew, within the same time limit, but not at once.
        drop_ends(c);
        set_state(c, State::requesting, "the server has given up");
        c.transaction = next_transaction();
        set_timer(c, services.now() + back_off(c), &Impl::repeat);
        return;
    }
    std::string why = std::string("refused: ") + connect::name(m.reason);
    if (m.reason == wire::Reason::version)
        why += " (" + range(m.min_version, m.max_version) + "; we: " + range(address.min_version, address.max_version) +
               ")";
    fail(c, status_of(m.reason), why);
}

} // namespace ucx_mp::connect
