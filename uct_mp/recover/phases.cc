#include "uct_mp/recover/phases.h"

#include <cassert>
#include <cinttypes>
#include <optional>
#include <utility>

#include "uct_mp/recover/reports.h"

namespace ucx_mp::recover {

namespace {
// The scheduler's state of a path in this phase. None: the state stays as it is.
std::optional<schedule::PathState> state_in(Phase phase) {
    switch (phase) {
    case Phase::up:
        return schedule::PathState::up;
    case Phase::draining:
    case Phase::absent:
        return schedule::PathState::down;
    case Phase::reopening:
        return schedule::PathState::probing;
    case Phase::half:
        return schedule::PathState::recovering;
    case Phase::asking:
    case Phase::ended:
        return {};
    }
    return {};
}

// While a path is away, Core::alert stays set, so that each round of progress looks everywhere. A path on demand
// that is being opened does not need that: timers and mail move it on, while traffic goes over DC.
bool is_away(Phase phase, bool on_demand) {
    if (on_demand && (phase == Phase::reopening || phase == Phase::half)) return false;
    return phase != Phase::up && phase != Phase::absent && phase != Phase::ended;
}
} // namespace

void Phases::set_phase(Channel& channel, PathIndex path, Phase to) {
    Phase& phase = channel.wiring.paths[path].phase;
    assert(path::may_follow(phase, to));
    core_.services.say(LogLevel::debug, "path %u to %016" PRIx64 ": %s, was %s", path, channel.uid, path::name(to),
                       path::name(phase));
    const bool on_demand = is_on_demand(channel, path);
    paths_away += is_away(to, on_demand) - is_away(phase, on_demand);
    if (on_demand) kept += is_there(to) - is_there(phase);
    phase = to;
    core_.alert = true;
    ++core_.recovery_steps;
    if (channel.wiring.recovery->paths[path].stays) return; // the path stays in use, so the scheduler's state stays
    if (const auto state = state_in(to)) channel.wiring.scheduler->set_state(path, *state);
}

void Phases::path_answers(Channel& channel, PathIndex path) {
    Path& sub = channel.wiring.paths[path];
    sub.stale = 0;
    if (!channel.wiring.recovery) return;
    PathRecovery& r = channel.wiring.recovery->paths[path];
    r.probed_since = 0;
    if (channel.wiring.paths[path].phase != Phase::up ||
        channel.wiring.scheduler->paths()[path].state != schedule::PathState::suspect)
        return;
    channel.wiring.scheduler->set_state(path, schedule::PathState::up);
    ++core_.recovery_steps; // a fence may have waited for it
    reports_.note(channel, Transition::What::cleared, path);
}

void Phases::list_recovering(Channel& channel) {
    if (std::exchange(channel.wiring.recovery->listed, true)) return;
    core_.alert = true;
    recovering.push_back(&channel);
}

} // namespace ucx_mp::recover
