// Names of the channel and link rooms that recovery uses. Only this room includes it.
#pragma once

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

} // namespace ucx_mp::recover
