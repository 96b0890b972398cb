// Channels that wait for room, and when there is some.
//
// Callers: Interface::want_room() and Renewal list a channel, and Progress wakes it.
// Threads: the interface's. Events::room() is called inside wake_waiting().
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

// True: every kind of operation would be accepted now.
[[nodiscard]] bool surely_room(Core& core, Channel& channel);
// Calls Events::room() for each channel in Lists::waiting that would accept some kind of operation now.
void wake_waiting(Core& core);

} // namespace ucx_mp::channel
