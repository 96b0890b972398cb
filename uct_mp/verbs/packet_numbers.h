// Does ibv_query_qp tell which packets a queue pair has executed? Nothing in the verbs promises it (rq_psn may be the value
// of the last modify). Recovery of writes that programs poll for needs it: uct_mp/recover/PROTOCOL.md.
//
// Threads: any. Waits for its own completions, at most a second; then the answer is no.
#pragma once

#include "uct_mp/verbs/device.h"

namespace ucx_mp::verbs {

// Tried with a pair of queue pairs that are connected with each other over the rail's port: some writes of nothing, then
// the numbers are asked for, with the queue pair alive and in the error state. False also if the port is not active.
[[nodiscard]] bool tells_packet_numbers(const Device& device, const Rail& rail);

} // namespace ucx_mp::verbs
