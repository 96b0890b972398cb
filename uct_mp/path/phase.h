// The life of a path: one phase at a time. Phases::set_phase (recover/phases.h) alone changes it, by may_follow().
//
//   up -> draining -> asking -> reopening -> half -> up      mp_rc, server
//                                         -> up              mp_rc, client; mp_dc
//                     asking -> up                           mp_dc: only the initiator had failed
//                     asking, draining -> draining           mp_dc: another initiator has failed meanwhile
//   half -> draining                                         failed before anything came over it
//   absent -> reopening                                      its ports have come up, or it is wanted
//   asking, reopening -> absent                              of RC on demand: nobody wants it any more
//   any -> ended                                             its channel has failed
//
// A path begins as up, or as absent. Channels that recovery has never seen keep the first phases of their paths, also
// when they fail. PROTOCOL.md has a table of the events.
#pragma once

#include <cstdint>

namespace ucx_mp::path {

enum class Phase : std::uint8_t {
    up,
    draining,  // nothing is posted any more, completions are still to come
    asking,    // what had arrived at the other side?
    reopening, // all settled; the client (mp_dc: this side) tries the route again and again
    half,      // mp_rc, server: made anew, but nothing has come over it yet
    absent,    // a port at an end has not been up yet, or the path is useless or unwanted; then reopening
    ended,     // its channel has failed
};

[[nodiscard]] constexpr const char* name(Phase phase) {
    constexpr const char* kNames[] = {"up", "draining", "asking", "reopening", "half", "absent", "ended"};
    return kNames[static_cast<unsigned>(phase)];
}

// mp_rc: our half's last request has completed, so nothing that comes by its queue pair counts any more.
[[nodiscard]] constexpr bool has_told(Phase phase) {
    return phase == Phase::asking || phase == Phase::reopening || phase == Phase::absent;
}

// The rule: only these steps happen.
[[nodiscard]] constexpr bool may_follow(Phase from, Phase to) {
    switch (to) {
    case Phase::up:
        return from == Phase::asking || from == Phase::reopening || from == Phase::half;
    case Phase::draining:
        return from == Phase::up || from == Phase::half || from == Phase::asking || from == Phase::draining;
    case Phase::asking:
        return from == Phase::draining;
    case Phase::reopening:
        return from == Phase::asking || from == Phase::absent;
    case Phase::half:
        return from == Phase::reopening;
    case Phase::absent:
        return from == Phase::asking || from == Phase::reopening; // a path may also begin so
    case Phase::ended:
        return true;
    }
    return false;
}

} // namespace ucx_mp::path
