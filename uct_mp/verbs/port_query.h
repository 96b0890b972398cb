// Abilities of an adapter and its ports, asked of the adapter. Slow path; used when a domain is opened.
#pragma once

#include <cstdint>

#include "uct_mp/verbs/device.h"

namespace ucx_mp::verbs {

enum class PortUse : std::uint8_t {
    active,   // InfiniBand or RoCE, traffic can flow
    inactive, // the same, but no link or no LID yet
    foreign,  // neither: iWARP, Ethernet without RoCE
    unknown,  // the adapter did not answer: errno
};

// Bytes per nanosecond of payload after encoding, from ibv_port_attr.active_speed
// and active_width (IB specification 14.2.5.6). 0: an unknown code.
[[nodiscard]] double link_rate(unsigned active_speed, unsigned active_width);

// The port's present properties (LID, LMC, prefix, GUID, partition key, GID, MTU,
// rate, active), not indices and name. Rail::partition says which key is wanted.
[[nodiscard]] PortUse query_port(ibv_context* context, std::uint8_t port, Rail& out);

// Limits, GUID, timestamps; needs `context` and `name`. 0 or errno.
[[nodiscard]] int query_limits(Device& device);

// Makes (and drops) a DC initiator and a target on the rail: no capability bit in the API promises that this works.
[[nodiscard]] bool try_dc(const Device& device, const Rail& rail);

} // namespace ucx_mp::verbs
