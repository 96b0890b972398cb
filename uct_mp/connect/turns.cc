// Commands to the adapter (queue pairs, address handles) take the process about 100 us each, and a handshake needs
// several for every path. So that thousand peers who connect at once don't stop everything else, handshakes wait in
// order and work for a while; then as much time belongs to the others, or less if they have nothing to do. A step is
// half a path or a message.
#include <algorithm>
#include <utility>

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

namespace {
constexpr Nanos kTurn = 200'000;       // in a row; the last step may end later
constexpr Nanos kPatience = 1'000'000; // that there is room to send; then another rail is tried, later
constexpr Nanos kLook = 10'000;        // what has come during a turn is found by then, and mostly what answers it
// Places of those who go first are smaller: a peer has made its ends and waits for ours.
constexpr std::uint64_t kBehind = std::uint64_t{1} << 63;
} // namespace

Due* ControlPlane::Impl::due_of(const Connection& c) {
    const auto found = waiting.find(c.place);
    return found == waiting.end() ? nullptr : &found->second;
}

void ControlPlane::Impl::drop_due(Connection& c) {
    if (c.place) waiting.erase(std::exchange(c.place, 0));
}

void ControlPlane::Impl::add_due(Connection& c, Due due, bool first) {
    drop_due(c);
    c.place = ++newest_place | (first ? 0 : kBehind);
    due.connection = &c;
    due.since = services.now();
    waiting.emplace(c.place, due);
}

void ControlPlane::Impl::send_in_turn(Connection& c) {
    if (rest || !waiting.empty()) return add_due(c, {}, false);
    const Nanos begin = services.now();
    if (!send_due(c, 0)) send_soon(c);
    worked += services.now() - begin;
    rest_if_due();
}

void ControlPlane::Impl::make_in_turn(Connection& c, Due due) {
    c.ends.assign(c.paths.size(), {});
    if (config.transport == Transport::rc)
        for (std::size_t i = 0; i < c.ends.size() && !c.is_absent(i); ++i)
            c.ends[i].psn = std::uint32_t(random() >> 40); // 24 bits
    add_due(c, due, !c.server);
}

void ControlPlane::Impl::connect_in_turn(Connection& c, const Target& way_back) {
    add_due(c, {.what = Due::What::connect, .way_back = way_back}, true);
}

// All buffers are on their way: nobody can send over that rail now.
void ControlPlane::Impl::send_soon(Connection& c, Nanos tried) {
    add_due(c, {.tried = tried ? tried : services.now()}, true);
    if (!rest) begin_rest();
}

bool ControlPlane::Impl::send_due(Connection& c, Nanos tried) {
    const bool patient = !tried || services.now() - tried < kPatience;
    if (c.state == State::requesting) {
        if (c.sent == 0) c.started = services.now(); // the peer is not to blame for what was before
        return send_request(c, patient);
    }
    if (c.state == State::established) return send_rails(c, patient);
    if (const auto to = route(c, c.attempts)) return send_confirm(c, *to, patient);
    ++counters.unsent;
    wait_for_answer(c);
    return true;
}

unsigned ControlPlane::Impl::work() {
    unsigned steps = 0;
    for (const Nanos begin = services.now(), before = worked; !waiting.empty() && !rest; ++steps) {
        step();
        worked = before + services.now() - begin;
        rest_if_due();
    }
    return steps;
}

void ControlPlane::Impl::step() {
    Due& due = waiting.begin()->second;
    Connection& c = *due.connection;
    if (due.what == Due::What::send) {
        const Nanos tried = due.tried;
        drop_due(c);
        if (!send_due(c, tried)) send_soon(c, tried);
        return;
    }
    const bool make = due.what == Due::What::make;
    const Status status = make ? owner.ends.make_end(c, due.path) : owner.ends.connect_end(c, due.path);
    if (!failed(status) && ++due.path < c.paths.size()) return;
    if (!failed(status) && make && !c.server) {
        due.what = Due::What::connect;
        due.path = 0;
        return;
    }
    const Due done = due;
    drop_due(c);
    if (!c.server)
        reply_done(c, done, status);
    else if (make)
        request_done(c, done, status);
    else
        confirm_done(c, done, status);
}

void ControlPlane::Impl::rest_if_due() {
    if (!rest && worked >= kTurn) begin_rest();
}

void ControlPlane::Impl::begin_rest() {
    rested = 0;
    set_rest(kLook);
}

// Looks at growing intervals whether the others are still busy.
void ControlPlane::Impl::set_rest(Nanos time) {
    others_busy = false;
    rested += time;
    rest_until = services.now() + time;
    rest = services.at_in_background(rest_until, [this] {
        rest = 0;
        if (!has_rested()) return;
        polling = true;
        (void)work();
        polling = false;
    });
}

bool ControlPlane::Impl::has_rested() {
    if (others_busy && rested < worked) return set_rest(std::min(rested, worked - rested)), false;
    worked = 0;
    return true;
}

// The other side's thread, on which the timer runs, may be late where there are few processors.
void ControlPlane::Impl::end_rest_if_over() {
    if (!rest || services.now() < rest_until) return;
    services.cancel_in_background(std::exchange(rest, 0));
    (void)has_rested();
}

} // namespace ucx_mp::connect
