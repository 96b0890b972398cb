#include "uct_mp/schedule/scheduler.h"

#include <algorithm>

namespace ucx_mp::schedule {

namespace {

constexpr bool multiplexes(PolicyKind kind) {
    return kind == PolicyKind::binding || kind == PolicyKind::round_robin || kind == PolicyKind::weighted_rr ||
           kind == PolicyKind::window_rr;
}
// The default keeps a lane for `window` messages, and for as many bytes as the slowest path sends within lane_slack:
// more would wait there while another path is idle. So a unit of the window is that many bytes / window.
unsigned unit_shift(const PolicyConfig& config, std::span<const PathSetup> setup) {
    if (config.kind != PolicyKind::default_policy) return 63;
    double rate = 0;
    for (const PathSetup& path : setup)
        if (path.nominal_rate > 0 && (rate == 0 || path.nominal_rate < rate)) rate = path.nominal_rate;
    if (rate == 0) rate = 1;
    return static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(config.lane_slack * rate) / config.window));
}

} // namespace

static_assert(Policy<DefaultPolicy> && Policy<Binding> && Policy<RoundRobin> && Policy<WeightedRoundRobin> &&
              Policy<Even> && Policy<Weighted> && Policy<Adaptive> && Policy<Bss> && Policy<Epc> &&
              Policy<LoadBalanced> && Policy<Spray>);

Scheduler::AnyPolicy Scheduler::make(const PolicyConfig& config, unsigned seed, Commons* commons) {
    switch (config.kind) {
    case PolicyKind::default_policy:
        return DefaultPolicy(config, seed, commons);
    case PolicyKind::binding:
        return Binding(config, seed);
    case PolicyKind::round_robin:
    case PolicyKind::window_rr:
        return RoundRobin(config, seed);
    case PolicyKind::weighted_rr:
        return WeightedRoundRobin(config, seed);
    case PolicyKind::even:
        return Even(config, seed);
    case PolicyKind::weighted:
        return Weighted(config, seed);
    case PolicyKind::adaptive:
        return Adaptive(config, seed);
    case PolicyKind::bss:
        return Bss(config, seed);
    case PolicyKind::epc:
        return Epc(config, seed);
    case PolicyKind::load_balanced:
        return LoadBalanced(config, seed);
    case PolicyKind::spray:
        return Spray(config, seed);
    }
    __builtin_unreachable();
}

// A switch, where std::visit would call through a table.
template <class F> decltype(auto) Scheduler::with_policy(F&& f) {
    switch (policy_.index()) {
    case 0:
        return f(*std::get_if<0>(&policy_));
    case 1:
        return f(*std::get_if<1>(&policy_));
    case 2:
        return f(*std::get_if<2>(&policy_));
    case 3:
        return f(*std::get_if<3>(&policy_));
    case 4:
        return f(*std::get_if<4>(&policy_));
    case 5:
        return f(*std::get_if<5>(&policy_));
    case 6:
        return f(*std::get_if<6>(&policy_));
    case 7:
        return f(*std::get_if<7>(&policy_));
    case 8:
        return f(*std::get_if<8>(&policy_));
    case 9:
        return f(*std::get_if<9>(&policy_));
    case 10:
        return f(*std::get_if<10>(&policy_));
    }
    __builtin_unreachable();
}

Scheduler::Scheduler(const PolicyConfig& config, std::span<const PathSetup> setup, unsigned seed, Commons* commons)
    : paths_(setup, commons), single_(paths_.size() == 1), unit_shift_(unit_shift(config, setup)),
      threshold_(multiplexes(config.kind)                    ? UINT64_MAX
                 : config.kind == PolicyKind::default_policy ? config.stripe_threshold / 2
                                                             : config.stripe_threshold),
      one_sided_threshold_(multiplexes(config.kind) ? UINT64_MAX : config.one_sided_threshold), config_(&config),
      windows_(config), policy_(make(config, seed, commons)) {
    static_assert(std::variant_size_v<AnyPolicy> == 11);
}

bool Scheduler::refill(Current& current, Direction d) {
    current.lane = {};
    if (paths_.usable(d) == 0) return false;
    // No choice, no policy: until a path comes or goes, which ends all lanes.
    if (paths_.usable_count(d) == 1)
        current.lane = {*each(paths_.usable(d)).begin(), kForever};
    else
        current.lane = with_policy([&](auto& policy) { return policy.next_lane(paths_, d); });
    Path& path = paths_[current.lane.path];
    current.account = &path.of(d);
    current.latency = static_cast<Nanos>(path.base_latency);
    return true;
}

Outcome Scheduler::split(const Message& message, Plan& plan) {
    paths_.advance(message.now);
    const Outcome outcome = with_policy([&](auto& policy) { return policy.split(paths_, message, plan); });
    const Direction d = direction(message.kind);
    if (outcome == Outcome::pull) paths_.forget_settled(d); // this message asks for chunks, no completion
    if (outcome != Outcome::stripes) return plan.count = 0, outcome;
    for (unsigned k = 0; k < plan.count; ++k) paths_.place(plan.stripes[k].path, d, plan.stripes[k].length);
    return outcome;
}

void Scheduler::learn(const Delivery& delivery) {
    if (delivery.path >= paths_.size()) return;
    const Sample sample = paths_.settle(delivery);
    Lane& lane = current_[static_cast<unsigned>(delivery.direction)].lane;
    with_policy([&](auto& policy) { policy.observe(paths_, delivery, sample, lane); });
}

void Scheduler::set_spare(PathMask paths) {
    paths_.set_spare(paths);
    current_[0].lane = current_[1].lane = {}; // they look for another
}

bool Scheduler::set_state(PathIndex path, PathState state) {
    const PathMask before = paths_.usable();
    if (!paths_.set_state(path, state)) return false;
    if (before != paths_.usable()) {
        current_[0].lane = current_[1].lane = {}; // the lane's path may be gone, or the preferred one be back
        with_policy([&](auto& policy) { policy.path_changed(paths_, path); });
    }
    return true;
}

} // namespace ucx_mp::schedule
