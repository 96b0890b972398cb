// Making, moving and recycling queue pairs: the only room that knows ibv_qp_attr. Slow path.
//
// Threads: any; one queue pair from one thread at a time.
#pragma once

#include <cstdint>

#include "uct_mp/verbs/device.h"

namespace ucx_mp::verbs {

struct QueuePairLimits {
    std::uint32_t send_wr = 128;
    std::uint32_t send_sge = 4;
    std::uint32_t inline_bytes = 256; // the device may grant less or more: see the granted value
};

// Timers of reliable connections, in the encoding of the IB specification (9.7.5, 9.9.2.1, 9.7.5.2.8).
struct Reliability {
    std::uint8_t timeout = 14; // 4.096 us * 2^timeout
    std::uint8_t retry_count = 7;
    std::uint8_t rnr_retry = 7; // 7: for ever
    std::uint8_t min_rnr_timer = 12;
    std::uint8_t max_rd_atomic = 16; // connect_rc: at most what both ends' devices can (Device::max_rd_atomic)
    std::uint8_t service_level = 0;
};

// A port of the other side: by its LID with path bits, over RoCE by its GID.
struct Destination {
    std::uint16_t dlid = 0;
    std::uint8_t source_path_bits = 0; // ours
    Gid gid{};
    auto operator<=>(const Destination&) const = default;
};

struct RemoteEnd {
    std::uint16_t dlid = 0; // with path bits
    std::uint8_t source_path_bits = 0;
    ibv_mtu mtu = IBV_MTU_1024; // the smaller of both ends
    std::uint32_t qp_number = 0;
    std::uint32_t rq_psn = 0; // first packet number that it will send
    Gid gid{};                // over RoCE
    [[nodiscard]] Destination destination() const { return {dlid, source_path_bits, gid}; }
};

// The queues for completions and for receives. The two may be the same.
struct Queues {
    ibv_cq* sends;
    ibv_cq* receives;
    ibv_srq* srq;
};
// RC, in INIT on the rail's port, remote read, write and atomics allowed. nullptr: errno.
// `granted_inline` may be null. `broken`, if not null, takes a queue pair that was made and could not be
// moved to INIT. Destroying it is a use of its completion queues, and the thread that makes a queue pair
// need not be the one that polls them. Such queues allow one user at a time (rdma-core ends the process).
[[nodiscard]] QueuePair create_rc(const Device& device, const Rail& rail, const Queues& queues,
                                  const QueuePairLimits& limits, std::uint32_t* granted_inline,
                                  QueuePair* broken = nullptr);
// The same, but it also takes raw requests of the mlx5 interface, beside RDMA
// writes by ibv_wr_*, and receives nothing. EOPNOTSUPP: no such adapter.
[[nodiscard]] QueuePair create_waiting_rc(const Device& device, const Rail& rail, ibv_cq* cq,
                                          const QueuePairLimits& limits);
// RESET -> INIT, as create_rc() does it: for a queue pair that has been in use before. 0 or errno.
[[nodiscard]] int init_rc(ibv_qp* qp, const Rail& rail);
// Any state -> RESET: nothing comes in or goes out. It forgets everything but its number and its attributes. 0 or
// errno. A use of its completion queues, as destroying it: its entries there are taken out, so poll them before.
[[nodiscard]] int to_reset(ibv_qp* qp);
// INIT -> RTR -> RTS. `sq_psn`: first packet number of ours. Packet numbers are taken modulo 2^24. 0 or errno.
[[nodiscard]] int connect_rc(ibv_qp* qp, const Rail& rail, const RemoteEnd& remote, const Reliability& reliability,
                             std::uint32_t sq_psn);

// DC initiator in RTS, through the ibv_wr_* API (ibv_qp_to_qp_ex works on it). nullptr: errno.
[[nodiscard]] QueuePair create_dci(const Device& device, const Rail& rail, ibv_cq* cq, const QueuePairLimits& limits,
                                   const Reliability& reliability, std::uint32_t* granted_inline);
// DC target in RTR.
[[nodiscard]] QueuePair create_dct(const Device& device, const Rail& rail, ibv_cq* cq, ibv_srq* srq,
                                   std::uint64_t access_key, const Reliability& reliability);

// UD in RTS, for the control plane. restart_ud: from any state, after an error; its receives are gone.
[[nodiscard]] QueuePair create_ud(const Device& device, const Rail& rail, ibv_cq* send_cq, ibv_cq* recv_cq,
                                  std::uint32_t send_wr, std::uint32_t recv_wr, std::uint32_t q_key);
[[nodiscard]] int restart_ud(ibv_qp* qp, const Rail& rail, std::uint32_t q_key);

// InfiniBand: within the subnet. nullptr: errno. Many: address_handles.h.
[[nodiscard]] AddressHandle create_ah(const Device& device, const Rail& rail, const Destination& to,
                                      std::uint8_t service_level);

// Automatic path migration (17.2.8), RTS: the other route (`remote`: LIDs only), armed as soon as both sides have
// loaded one and have exchanged packets. 0 or errno.
[[nodiscard]] int load_alternate(ibv_qp* qp, const Rail& rail, const RemoteEnd& remote, const Reliability& reliability);
// To the other route now; the other side follows with our next packet. 0 or errno: not armed.
[[nodiscard]] int migrate(ibv_qp* qp);

// Any state -> ERR: everything outstanding is flushed. 0 or errno.
[[nodiscard]] int to_error(ibv_qp* qp);
// DC initiator: any state -> RESET -> RTS, after an error. 0 or errno. Poll the completion
// queue empty before: some adapters (mlx5) drop this queue pair's entries there.
[[nodiscard]] int restart_dci(ibv_qp* qp, const Device& device, const Rail& rail, const Reliability& reliability);
// State and packet numbers as the device has them now (the device may refuse or be late: see recover/). 0 or errno.
struct QueuePairTruth {
    ibv_qp_state state;
    std::uint32_t sq_psn, rq_psn;
};
[[nodiscard]] int query(ibv_qp* qp, QueuePairTruth& out);

} // namespace ucx_mp::verbs
