// Where a responder puts data and receive completions: at once, or - the nasty knob DeviceState::place_delay_ns - some time
// after the acknowledgment has gone, in order per device, as adapters with posted writes do. All: target.lock held.
#pragma once
#include "engine/responder.h"

namespace softhca {

inline constexpr uint8_t kCqeDatagram = 0x80; // internal bit of Cqe::wc_flags: payload goes behind the 40 GRH bytes

// `to`: an address of the region's owner. What is delayed is dropped if the region is gone by then.
CopyResult place_write(Engine&, QpRec& target, const MrRec& region, uint64_t to, const LocalData&, uint64_t from,
                       uint64_t length, Nanos when);
CopyResult place_receive(Engine&, QpRec& target, RecvQueue&, uint64_t entry, uint64_t at, const LocalData&,
                         uint64_t from, uint64_t length, Nanos when);
// `held`: as in push_cqe; a delayed completion counts as made.
void place_completion(Engine&, QpRec& target, const Cqe&, uint8_t& held, Nanos when);
// Performs what is still delayed on `device` (by this process), for reads and atomics that must see it.
void drain_placements(Engine&, uint32_t device);
void drop_placements(Engine&); // the engine ends

} // namespace softhca
