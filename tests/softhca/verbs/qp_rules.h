// Which transitions a queue pair may make, and which attributes each needs or takes: IB specification 10.3.1 and
// table 91 (Modify QP), for DC the rules of the mlx5 interface. Pure.
#pragma once
#include <infiniband/verbs.h>

#include "core/segment.h"

namespace softhca::face {

// Whether `mask` (IBV_QP_*) is complete and permitted for from -> to. IBV_QP_STATE itself may be absent (from == to).
[[nodiscard]] bool transition_allowed(QpKind kind, ibv_qp_state from, ibv_qp_state to, int mask);

} // namespace softhca::face
