#include "uct_mp/connect/turns.h"

#include <algorithm>
#include <utility>

#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

namespace {

constexpr Nanos kTurn = 200'000;       // in a row; the last step may end later
constexpr Nanos kPatience = 1'000'000; // for room to send; then another rail is tried, later
constexpr Nanos kLook = 10'000;        // the others' turn is at least so long: new messages can arrive in it
// Handshakes that go first have smaller places: a peer has made its ends and waits for ours.
constexpr std::uint64_t kBehind = std::uint64_t{1} << 63;

} // namespace

Due* Turns::due_of(const Connection& c) {
    const auto found = waiting_.find(c.place);
    return found == waiting_.end() ? nullptr : &found->second;
}

void Turns::drop(Connection& c) {
    if (c.place) waiting_.erase(std::exchange(c.place, 0));
}

void Turns::add(Connection& c, Due due, bool first) {
    drop(c);
    c.place = ++newest_place_ | (first ? 0 : kBehind);
    due.connection = &c;
    due.since = plane_.services.now();
    waiting_.emplace(c.place, due);
}

void Turns::send(Connection& c) {
    if (rest_ || !waiting_.empty()) return add(c, {}, false);
    const Nanos begin = plane_.services.now();
    if (!send_due(c, 0)) send_soon(c);
    worked_ += plane_.services.now() - begin;
    rest_if_due();
}

void Turns::make(Connection& c, Due due) {
    c.ends.assign(c.paths.size(), {});
    for (std::size_t i = 0; i < c.ends.size(); ++i)
        if (c.has_end(i)) c.ends[i].psn = plane_.identity.random_psn(); // 24 bits
    add(c, due, !c.server);
}

void Turns::connect(Connection& c, const Target& way_back) {
    add(c, {.what = Due::What::connect, .way_back = way_back}, true);
}

// All buffers are on their way: no message can go over that rail now.
void Turns::send_soon(Connection& c, Nanos tried) {
    add(c, {.tried = tried ? tried : plane_.services.now()}, true);
    if (!rest_) begin_rest();
}

bool Turns::send_due(Connection& c, Nanos tried) {
    const bool patient = !tried || plane_.services.now() - tried < kPatience;
    if (c.state == State::requesting) {
        if (c.sent == 0) c.started = plane_.services.now(); // the peer is not to blame for the time before
        return plane_.client.send_request(c, patient);
    }
    if (c.state == State::established || c.state == State::closed) // closed: parked
        return plane_.rail_lists.send(c, patient);
    if (const auto to = plane_.outbox.route(c, c.attempts)) return plane_.client.send_confirm(c, *to, patient);
    ++plane_.counters.unsent;
    plane_.client.wait_for_answer(c);
    return true;
}

unsigned Turns::go_on(bool occupied) {
    others_busy_ |= occupied;
    end_rest_if_over();
    return waiting_.empty() ? 0 : work();
}

void Turns::stop() {
    if (rest_) plane_.services.cancel_in_background(rest_);
}

unsigned Turns::work() {
    unsigned steps = 0;
    for (const Nanos begin = plane_.services.now(), before = worked_; !waiting_.empty() && !rest_; ++steps) {
        step();
        worked_ = before + plane_.services.now() - begin;
        rest_if_due();
    }
    return steps;
}

void Turns::step() {
    Due& due = waiting_.begin()->second;
    Connection& c = *due.connection;
    if (due.what == Due::What::send) {
        const Nanos tried = due.tried;
        drop(c);
        if (!send_due(c, tried)) send_soon(c, tried);
        return;
    }
    const bool make = due.what == Due::What::make;
    const Status status = make ? plane_.owner.ends.make_end(c, due.path) : plane_.owner.ends.connect_end(c, due.path);
    if (!failed(status) && ++due.path < c.paths.size()) return;
    if (!failed(status) && make && !c.server) {
        due.what = Due::What::connect;
        due.path = 0;
        return;
    }
    const Due done = due;
    drop(c);
    if (!c.server)
        plane_.client.reply_done(c, done, status);
    else if (make)
        plane_.server.request_done(c, done, status);
    else
        plane_.server.confirm_done(c, done, status);
}

void Turns::rest_if_due() {
    if (!rest_ && worked_ >= kTurn) begin_rest();
}

void Turns::begin_rest() {
    rested_ = 0;
    set_rest(kLook);
}

// Looks at growing intervals whether the others are still busy.
void Turns::set_rest(Nanos time) {
    others_busy_ = false;
    rested_ += time;
    rest_until_ = plane_.services.now() + time;
    rest_ = plane_.services.at_in_background(rest_until_, [this] {
        rest_ = 0;
        if (!has_rested()) return;
        plane_.polling = true;
        (void)work();
        plane_.polling = false;
    });
}

bool Turns::has_rested() {
    if (others_busy_ && rested_ < worked_) return set_rest(std::min(rested_, worked_ - rested_)), false;
    worked_ = 0;
    return true;
}

// The other side's thread, which runs the timer, may be late where there are few processors.
void Turns::end_rest_if_over() {
    if (!rest_ || plane_.services.now() < rest_until_) return;
    plane_.services.cancel_in_background(std::exchange(rest_, 0));
    (void)has_rested();
}

} // namespace ucx_mp::connect
