// Terms that both sides agree on in the handshake (connect/wire.h): each tells its limits, and both use the smaller
// window.
//
// Callers: Peers and Takeover. Threads: the interface's and the handshake's, with the lock held. Sizes are bytes. Slow
// path.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

[[nodiscard]] connect::Terms own_terms(const Core& core);
// One line that says why we cannot connect to such a peer; empty: we can.
[[nodiscard]] std::string misfit(const Core& core, const connect::Terms& theirs);
// The connection is made: sets the window, and gate::parts if the peer's segment is smaller than ours.
void agree(Core& core, Channel& channel);
// A part of a message between sides with these segments, and how many parts the largest message has.
[[nodiscard]] std::uint32_t part_between(std::uint32_t from, std::uint32_t to);
[[nodiscard]] std::uint64_t parts_between(std::uint32_t from, std::uint32_t to);

} // namespace ucx_mp::channel
