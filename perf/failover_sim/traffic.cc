#include "failover_sim/traffic.h"

#include <algorithm>
#include <cstring>

namespace ucx_mp::failover {

Kind kind_of(const std::string& name) {
    if (name == "am") return Kind::message;
    if (name == "put") return Kind::put;
    if (name == "get") return Kind::get;
    throw std::runtime_error("--op: " + name + " is not am, put or get");
}

// -- Curve

std::uint64_t Curve::until(Nanos t) const {
    const auto after =
        std::upper_bound(points_.begin(), points_.end(), t, [](Nanos v, const Point& p) { return v < p.when; });
    return after == points_.begin() ? 0 : std::prev(after)->sum;
}

Nanos Curve::full_from(Nanos from, Nanos to, double rate, std::uint64_t grain) const {
    const auto full = [&](Nanos begin) {
        for (const Nanos length : {1'000'000u, 5'000'000u, 20'000'000u, 60'000'000u}) {
            const Nanos end = std::min(begin + length, to);
            const auto enough = static_cast<std::uint64_t>(rate * static_cast<double>(end - begin));
            if (until(end) - until(begin) + grain < enough) return false;
        }
        return true;
    };
    if (full(from)) return from;
    auto next =
        std::upper_bound(points_.begin(), points_.end(), from, [](Nanos v, const Point& p) { return v < p.when; });
    for (; next != points_.end() && next->when + 1'000'000 < to; ++next)
        if (full(next->when)) return next->when;
    return to;
}

Nanos Curve::next_after(Nanos t) const {
    const auto after =
        std::upper_bound(points_.begin(), points_.end(), t, [](Nanos v, const Point& p) { return v < p.when; });
    return after == points_.end() ? 0 : after->when;
}

Nanos Curve::longest_gap(Nanos from, Nanos to) const {
    Nanos gap = 0, last = from;
    for (const Point& p : points_) {
        if (p.when <= from) continue;
        if (p.when > to) break;
        gap = std::max(gap, p.when - last);
        last = p.when;
    }
    return std::max(gap, to - last);
}

// -- Flow

Flow::Flow(Process& from, Process& to, Kind kind, std::size_t size, unsigned window, Curve& curve)
    : from_(from), to_(to), channel_(from.channel_to(to)), kind_(kind), size_(size), window_(window), curve_(curve),
      mine_(from.memory(size)), theirs_(to.memory(size)) {
    for (std::size_t i = 0; i < size; ++i) mine_.data[i] = static_cast<std::byte>(i * 7 + (i >> 8));
    to.on_am(kId, received, nullptr);
}

void Flow::pump() {
    while (!paused && open_ < window_) {
        if (pace && from_.now() < latest_start_ + pace) return;
        if (spare_.empty()) spare_.push_back(all_.emplace_back(std::make_unique<Op>()).get());
        Op* op = spare_.back();
        static_cast<Completion&>(*op) = {finished, 1, Status::ok};
        op->flow = this;
        op->started = from_.now();
        const Iov iov = mine_.iov(0, size_);
        Status status;
        if (kind_ == Kind::message) {
            const Header header{started_, this, op->started};
            status = from_.iface().am_zcopy(channel_, kId, &header, sizeof header, &iov, 1, op);
        } else if (kind_ == Kind::put) {
            status = from_.iface().put_zcopy(channel_, &iov, 1, theirs_.address(), theirs_.keys, op);
        } else {
            status = from_.iface().get_zcopy(channel_, &iov, 1, theirs_.address(), theirs_.keys, op);
        }
        if (status == Status::no_resource) return;
        ++started_;
        latest_start_ = op->started;
        if (status == Status::in_progress) {
            ++open_;
            spare_.pop_back();
        } else if (status != Status::ok) {
            ++mistakes_;
            paused = true;
        }
    }
}

void Flow::note(Nanos started) {
    curve_.add(from_.now(), size_);
    if (mark && !first_after_mark && started > mark) first_after_mark = from_.now();
}

void Flow::finished(Completion* self) {
    Op* op = static_cast<Op*>(self);
    Flow& flow = *op->flow;
    --flow.open_;
    if (op->status != Status::ok) ++flow.mistakes_;
    if (flow.kind_ != Kind::message) flow.note(op->started);
    flow.spare_.push_back(op);
}

Status Flow::received(void*, void* data, std::size_t length, unsigned) {
    Header header;
    std::memcpy(&header, data, sizeof header);
    Flow& flow = *header.flow;
    if (length != sizeof header + flow.size_ || header.number != flow.received_++)
        ++flow.mistakes_;
    else if (std::memcmp(static_cast<std::byte*>(data) + sizeof header, flow.mine_.data, flow.size_) != 0)
        ++flow.mistakes_;
    flow.note(header.started);
    return Status::ok;
}

} // namespace ucx_mp::failover
