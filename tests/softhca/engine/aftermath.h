// What a killed process owed to others, done by whoever has reaped it: its peers may be asleep.
#pragma once
#include "core/segment.h"

namespace softhca {

// Receives of queue pairs that it had failed and not flushed, completion events that it had not sent for entries it had
// made. Idempotent. Skips what a live process holds for too long. Needs an attached Process for the events.
void finish_work_of_the_dead(Segment& seg);

} // namespace softhca
