// Where a responder puts data and receive completions: at once, or some time after the acknowledgment has gone, as
// adapters with posted writes do. Two nasty knobs: DeviceState::place_delay_ns delays all that a device is sent, in one
// order; place_delay_qp_ns each queue pair by a time of its own and in order by itself only (over DC: each initiator),
// so that what comes over one overtakes what has come, and was acknowledged, over another. All: target.lock held,
// `source` is the number of the queue pair that sends.
//
// Lack::write_order: the last word of a write is placed before the rest. Lack::read_push: reads and atomics do not wait
// for what is late.
#pragma once
#include "engine/engine.h"
#include "engine/responder.h"

namespace softhca {

inline constexpr uint8_t kCqeDatagram = 0x80; // internal bit of Cqe::wc_flags: payload goes behind the 40 GRH bytes

// `to`: an address of the region's owner. What is delayed is dropped if the region is gone by then.
CopyResult place_write(Engine&, QpRec& target, uint32_t source, const MrRec& region, uint64_t to, const LocalData&,
                       uint64_t from, uint64_t length, Nanos when);
CopyResult place_receive(Engine&, QpRec& target, uint32_t source, RecvQueue&, uint64_t entry, uint64_t at,
                         const LocalData&, uint64_t from, uint64_t length, Nanos when);
// A receive whose payload waits in the staging ring. no_room also if it would be late, if the receive's memory is not
// registered any more, or if the receiver is in this process, where a copy needs no call.
[[nodiscard]] Staging place_staged(Engine&, QpRec& target, uint32_t source, RecvQueue&, Cqe& cqe, const LocalData&,
                                   uint32_t length, uint8_t& held, Nanos when);
// `held`: as in push_cqe; a delayed completion counts as made.
void place_completion(Engine&, QpRec& target, uint32_t source, const Cqe&, uint8_t& held, Nanos when);
// Performs what is still delayed on `device` (by this process), for reads and atomics that must see it: they push what
// was written before them. With place_delay_qp_ns only what has come the way that they come.
void drain_placements(Engine&, uint32_t device, uint32_t target_qpn, uint32_t source_qpn);
// A queue pair is taken out of service (ERR, RESET, destroyed): what was written through it (by this process) is in
// memory when the command is over, as that comes behind it. Engine::mutex held.
void settle_writes(Engine&, uint32_t target_qpn);
void drop_placements(Engine&); // the engine ends

} // namespace softhca
