// The faults that act on processes: stop, continue, kill. Only the keeper calls these.
#pragma once
#include <string>

#include "core/segment.h"

namespace softhca {

// Stops the process in `slot` at a moment when it holds no shared lock and no memory region, as a descheduled process
// on a real machine holds nothing of the adapter either. Stop, look, let it go on if it holds something, again: takes a
// few milliseconds, at most a second. False (and `error`): it runs on.
bool stop_process(Segment& seg, uint32_t slot, std::string& error);
bool continue_process(Segment& seg, uint32_t slot);
void kill_process(Segment& seg, uint32_t slot);

} // namespace softhca
