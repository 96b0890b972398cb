// Which processes live. A process is named by pid and start time, so that a reused pid is not taken for the old
// process. System calls: slow path.
#pragma once
#include <cstdint>

#include "core/segment.h"

namespace softhca {

// Field 22 of /proc/PID/stat, clock ticks since boot; 0 if there is no such process.
[[nodiscard]] uint64_t process_start_time(int32_t pid);
// True until all threads of the process have ended: a zombie is dead, a stopped process is alive.
[[nodiscard]] bool process_alive(int32_t pid, uint64_t start_time);
// A pidfd of exactly that process, -1 with errno ESRCH if it is gone. Close-on-exec.
[[nodiscard]] int open_process(int32_t pid, uint64_t start_time);
// Marks this process as the user of `slot`: locks, liveness checks. `seg` nullptr: none any more.
void set_self(Segment* seg, uint32_t slot);
// The main thread, if it is the one that joins, holds ProcSlot::life of its process's slot until it ends, or gives it
// up.
void take_life(ProcSlot& slot);
void give_life_up(ProcSlot& slot);
// The process in `slot` has died, or called exec, and its number may be another process's. Fast: one load, as long as
// its main thread lives. Where another thread has joined it is not known before the keeper has reaped.
[[nodiscard]] bool slot_deserted(Segment& seg, uint32_t slot);

// The process in `slot`: state starting or alive, and its process lives.
[[nodiscard]] bool slot_alive(Segment& seg, uint32_t slot);

} // namespace softhca
