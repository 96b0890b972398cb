// Names of the channel and link rooms that recovery uses. Only this room includes it.
#pragma once

#include <algorithm>
#include <utility>

#include "uct_mp/channel/core.h"
#include "uct_mp/recover/history.h"
#include "uct_mp/recover/recovery.h"

namespace ucx_mp::recover {

using channel::Channel;
using channel::Core;
using channel::Direction;
using channel::FenceTrailer;
using channel::Kind;
using channel::kMaxIov;
using channel::kNoPath;
using channel::MarkerBody;
using channel::MessageHeader;
using channel::Path;
using channel::PathIndex;
using channel::PathMask;
using channel::PathUpBody;
using channel::Work;
using channel::WorkKind;
using link::Adapter;
using link::Buffer;
using link::BufferPool;
using link::DcRail;
using link::key_of_life;
using link::kNoEpoch;
using link::Posted;
using link::SendQueue;
namespace gate = channel::gate;
namespace flag = channel::flag;

[[nodiscard]] inline bool is_absent(const Channel& channel, PathIndex path) {
    return channel.wiring.paths[path].phase == path::Phase::absent;
}
[[nodiscard]] inline bool is_there(Phase phase) { return phase != Phase::absent && phase != Phase::ended; }
[[nodiscard]] inline bool is_on_demand(const Channel& channel, PathIndex path) {
    return channel.connection.paths[path].on_demand;
}
// This side may try to open the path. RC: only the client may.
[[nodiscard]] inline bool may_open(const Channel& channel, PathIndex path) {
    return channel.wiring.paths[path].kind == path::Kind::dc || channel.self || !channel.connection.server;
}
[[nodiscard]] constexpr Nanos doubled(Nanos first, unsigned attempts, Nanos most) {
    return std::min(most, first << std::min(attempts, 16u));
}

// Each path has one timer. Setting it cancels the one before.
template <class Call> void set_path_timer(Core& core, Channel& channel, PathIndex path, Nanos at, Call then) {
    PathRecovery& r = channel.wiring.recovery->paths[path];
    if (r.timer) core.services.cancel(r.timer);
    r.timer = core.services.at(at, [&channel, path, then = std::move(then)] {
        channel.wiring.recovery->paths[path].timer = 0;
        then(channel, path);
    });
}

} // namespace ucx_mp::recover
