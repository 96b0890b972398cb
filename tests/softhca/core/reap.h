// Taking back what a process owned. Used by Process::detach and reap_process (core/process.h).
#pragma once
#include "core/segment.h"

namespace softhca {

// Clears every object of `slot` and returns its indices and memory. False: gave up waiting for a lock; what has been
// done stays done. The slot itself stays.
bool release_objects(Segment& seg, uint32_t slot);
// Ends the slot's generation and frees it. Under table_lock, after release_objects.
void free_slot(Segment& seg, uint32_t slot);
// Refreshes Segment::live_procs.
void count_live(Segment& seg);

// The receive that a broken-off message of a DC initiator holds goes back to the front of its SRQ, as it was. False: a
// live process has held the SRQ for longer than `patience` ms; nothing has happened. Nobody executes requests with
// `responder` any more.
[[nodiscard]] bool return_held_receive(Segment& seg, Responder& responder, uint32_t patience = kLongWait);

} // namespace softhca
