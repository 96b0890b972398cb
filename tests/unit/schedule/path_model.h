// A small discrete-event model of paths, to close the loop around a Scheduler: enough of a network to compare policies,
// little enough to know the optimum by hand.
//
//   stripe --> path's queue pair --> rail (round robin among its paths) --> route (buffer, rate, other traffic) --> ack
//
// A path sends its stripes in order, in packets; a rail serves paths that have room in their route's buffer (credits).
// Times in ns, rates in bytes/ns. Deterministic.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <queue>
#include <stdexcept>
#include <string>
#include <vector>

#include "uct_mp/schedule/policy_factory.h"
#include "uct_mp/schedule/scheduler.h"

namespace ucx_mp::schedule::test {

inline constexpr double kGb = 1.0 / 8; // 1 Gb/s in bytes/ns
inline constexpr double kMs = 1e6;

// Unoptimised and sanitized builds look for mistakes in the code, not in the policies: fewer runs, shorter.
#ifdef NDEBUG
inline constexpr bool kQuick = false;
#else
inline constexpr bool kQuick = true;
#endif

struct Network {
    struct Route {
        double rate = 8 * kGb;
        unsigned rail = 0;
        double latency = 2000; // last byte served -> completion
        double descriptor = 0; // ns the queue pair's engine needs to start a stripe
        double buffer = 32768; // bytes between rail and route
    };
    std::vector<Route> routes;
    std::vector<double> rails;                     // rate of each
    std::function<double(unsigned, double)> taken; // share of a route taken by others, by (route, time)
    double poll_interval = 0;                      // completions are found at multiples of this; 0: at once
    bool stamped = true;                           // completions carry the adapter's time, else when found
    [[nodiscard]] double free_of(unsigned r, double t) const {
        return routes[r].rate * (1 - (taken ? taken(r, t) : 0.0));
    }
};

struct Load {
    std::uint64_t size = 1 << 20;
    unsigned outstanding = 4; // messages kept under way
    MessageKind kind = MessageKind::put;
    TrafficHint hint = TrafficHint::none;
    double gap = 0; // pause before a completed message is replaced
};

struct Result {
    double rate = 0;               // bytes/ns of completed messages, warm-up not counted
    std::vector<double> latencies; // per message, ns, sorted
    std::vector<std::uint64_t> path_bytes;
    std::uint64_t stripes = 0, messages = 0;
    [[nodiscard]] double gbps() const { return rate / kGb; }
    [[nodiscard]] double quantile(double q) const {
        return latencies.empty() ? 0 : latencies[static_cast<std::size_t>(q * double(latencies.size() - 1))];
    }
};

class Simulation {
public:
    Simulation(const Network& network, const PolicyConfig& config, std::vector<PathSetup> setup)
        : net_(network), scheduler_(config, setup), paths_(network.routes.size()), rails_(network.rails.size()) {
        result_.path_bytes.resize(paths_.size());
    }

    Result run(const Load& load, double warm_up, double end) {
        load_ = load;
        warm_up_ = warm_up;
        for (unsigned i = 0; i < load.outstanding; ++i) start_message();
        while (!events_.empty() && events_.top().time <= end) {
            const Event event = events_.top();
            events_.pop();
            now_ = event.time;
            event.action();
        }
        // From completion to completion, so that it doesn't matter where in a message the run begins and ends.
        if (result_.messages > 1) result_.rate = double(load.size) * double(result_.messages - 1) / (last_ - first_);
        std::sort(result_.latencies.begin(), result_.latencies.end());
        return result_;
    }

    Scheduler& scheduler() { return scheduler_; }
    // The cable is pulled: what was on the path is lost, and sent again over the others as recovery would do.
    void fail(unsigned p) {
        PathModel& path = paths_[p];
        std::vector<Posted> lost(path.in_route.begin(), path.in_route.end());
        for (const Posted& q : path.queue) {
            if (q.to_send == q.length) lost.push_back(q);
        }
        lost.insert(lost.end(), path.acking.begin(), path.acking.end());
        const unsigned epoch = path.epoch;
        path = {};
        path.epoch = epoch + 1;
        scheduler_.set_state(PathIndex(p), PathState::down);
        for (const Posted& q : lost) transfers_.push_back({q.message, {q.length, direction(load_.kind)}});
        pump();
    }
    void restore(unsigned p) {
        scheduler_.set_state(PathIndex(p), PathState::up);
        pump();
    }
    // Bytes completed so far, to measure phases.
    [[nodiscard]] double bytes() const { return bytes_; }
    void at(double time, std::function<void()> action) { events_.push({time, sequence_++, std::move(action)}); }
    void pump() {
        Stripe chunk;
        for (std::size_t k = 0; k < transfers_.size();) {
            Pull& pull = transfers_[k];
            while (scheduler_.next(pull.transfer, stamp(now_), chunk)) post(pull.message, chunk);
            if (pull.transfer.remaining() == 0)
                transfers_.erase(transfers_.begin() + long(k));
            else
                ++k;
        }
    }

private:
    struct Event {
        double time;
        std::uint64_t sequence;
        std::function<void()> action;
        bool operator<(const Event& o) const { return time != o.time ? time > o.time : sequence > o.sequence; }
    };
    struct Posted {
        std::size_t message;
        std::uint64_t length, to_send, to_serve;
        double posted;
        bool started = false;
    };
    struct PathModel {
        std::deque<Posted> queue;         // not yet completely on the rail
        std::deque<Posted> in_route;      // serving; to_serve of the front shrinks
        std::deque<std::uint64_t> buffer; // packets
        std::deque<Posted> acking;        // served, completion on its way
        double buffered = 0;
        bool serving = false, starting = false;
        unsigned epoch = 0; // events of an earlier one are void: the path has failed since
    };
    struct Rail {
        bool busy = false;
        unsigned last = 0;
    };
    struct Pull {
        std::size_t message;
        Transfer transfer;
    };
    struct Open {
        std::uint64_t missing;
        double begun;
    };
    static constexpr double kPacket = 4096;

    static Nanos stamp(double t) { return static_cast<Nanos>(t) + 1; } // 0 means unknown

    void start_message() {
        const std::size_t id = open_.size();
        open_.push_back({load_.size, now_});
        Plan plan;
        const Outcome outcome = scheduler_.plan({load_.size, load_.kind, load_.hint, stamp(now_)}, plan);
        if (outcome == Outcome::pull) {
            transfers_.push_back({id, {load_.size, direction(load_.kind)}});
            pump();
        } else if (outcome == Outcome::stripes) {
            for (unsigned k = 0; k < plan.count; ++k) post(id, plan.stripes[k]);
        }
    }

    void post(std::size_t message, const Stripe& stripe) {
        paths_[stripe.path].queue.push_back({message, stripe.length, stripe.length, stripe.length, now_});
        result_.path_bytes[stripe.path] += stripe.length;
        result_.stripes += now_ >= warm_up_;
        feed(net_.routes[stripe.path].rail);
    }

    // The rail takes the next packet of the next path that can send.
    void feed(unsigned rail) {
        if (rails_[rail].busy) return;
        for (std::size_t n = 1; n <= paths_.size(); ++n) {
            const unsigned p = unsigned((rails_[rail].last + n) % paths_.size());
            PathModel& path = paths_[p];
            if (net_.routes[p].rail != rail || path.queue.empty() || path.starting) continue;
            Posted& head = path.queue.front();
            if (!head.started && net_.routes[p].descriptor > 0) {
                path.starting = head.started = true;
                at(now_ + net_.routes[p].descriptor, [this, p, rail, epoch = path.epoch] {
                    if (paths_[p].epoch == epoch) paths_[p].starting = false, feed(rail);
                });
                continue;
            }
            const double packet = std::min(kPacket, double(head.to_send));
            if (path.buffered + packet > net_.routes[p].buffer) continue;
            rails_[rail] = {true, p};
            path.buffered += packet;
            at(now_ + packet / net_.rails[rail], [this, p, rail, packet, epoch = path.epoch] {
                rails_[rail].busy = false;
                PathModel& path = paths_[p];
                if (path.epoch != epoch) return feed(rail);
                Posted& head = path.queue.front();
                if (head.to_send == head.length) path.in_route.push_back(head);
                head.to_send -= std::uint64_t(packet);
                path.buffer.push_back(std::uint64_t(packet));
                if (head.to_send == 0) path.queue.pop_front();
                serve(p);
                feed(rail);
            });
            return;
        }
    }

    void serve(unsigned p) {
        PathModel& path = paths_[p];
        if (path.serving || path.buffer.empty()) return;
        path.serving = true;
        const std::uint64_t packet = path.buffer.front();
        path.buffer.pop_front();
        at(now_ + double(packet) / net_.free_of(p, now_), [this, p, packet, epoch = path.epoch] {
            PathModel& path = paths_[p];
            if (path.epoch != epoch) return;
            path.serving = false;
            path.buffered -= double(packet);
            Posted& head = path.in_route.front();
            head.to_serve -= packet;
            if (head.to_serve == 0) {
                const Posted done = head;
                path.in_route.pop_front();
                path.acking.push_back(done);
                at(now_ + net_.routes[p].latency, [this, p, done, epoch] {
                    if (paths_[p].epoch != epoch) return;
                    paths_[p].acking.pop_front();
                    completed(p, done);
                });
            }
            serve(p);
            feed(net_.routes[p].rail);
        });
    }

    void completed(unsigned p, const Posted& done) {
        if (net_.poll_interval == 0) return found(p, done, now_);
        const double next = (std::floor(now_ / net_.poll_interval) + 1) * net_.poll_interval;
        const double adapter = now_;
        at(next, [this, p, done, adapter] { found(p, done, net_.stamped ? adapter : now_); });
    }

    void found(unsigned p, const Posted& done, double t_done) {
        scheduler_.observe(
            {PathIndex(p), direction(load_.kind), done.length, done.length, stamp(done.posted), stamp(t_done)});
        bytes_ += double(done.length);
        Open& message = open_[done.message];
        message.missing -= done.length;
        if (message.missing == 0) {
            if (now_ >= warm_up_) {
                if (result_.messages++ == 0) first_ = now_;
                last_ = now_;
                result_.latencies.push_back(now_ - message.begun);
            }
            if (load_.gap > 0)
                at(now_ + load_.gap, [this] { start_message(); });
            else
                start_message();
        }
        pump();
    }

    const Network& net_;
    Scheduler scheduler_;
    std::vector<PathModel> paths_;
    std::vector<Rail> rails_;
    std::priority_queue<Event> events_;
    std::uint64_t sequence_ = 0;
    std::vector<Open> open_;
    std::vector<Pull> transfers_;
    Load load_;
    Result result_;
    double now_ = 0, warm_up_ = 0;
    double first_ = 0, last_ = 0, bytes_ = 0;
};

// Paths as the transport would set them up: nominal rate and weight are those of the rail.
inline std::vector<PathSetup> setup_of(const Network& net) {
    std::vector<PathSetup> setup;
    for (const Network::Route& r : net.routes) {
        const double rate = std::min(r.rate, net.rails[r.rail]);
        setup.push_back({.weight = rate,
                         .nominal_rate = rate,
                         .latency = r.latency,
                         .rail = std::uint8_t(r.rail),
                         .rail_rate = net.rails[r.rail]});
    }
    return setup;
}

inline Result simulate(const Network& net, const std::string& policy, const Load& load, double warm_up, double end) {
    const PolicyChoice choice = make_policy(policy);
    if (!choice.config) throw std::runtime_error(choice.error);
    std::vector<PathSetup> setup = setup_of(net);
    if (policy.rfind("bss", 0) == 0 || policy.rfind("adaptive", 0) == 0) {
        for (PathSetup& s : setup) s.weight = 1; // 8.1: all equal to begin with
    }
    return Simulation(net, *choice.config, setup).run(load, warm_up, end);
}

} // namespace ucx_mp::schedule::test
