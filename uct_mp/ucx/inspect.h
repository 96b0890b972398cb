// Lets mp_info look into a running process. An abstract unix socket, "ucx-mp.<pid>", answers every
// connection with one text as a file in memory, and closes. inspect.cc has its contents. UCX's async thread
// serves it, so it answers while the program computes. The numbers are then those of its last progress.
//
// Threads: any. Only the same user and root get an answer. No file is left behind, even if the process is killed.
#pragma once

#include "uct_mp/ucx/iface.h"

namespace ucx_mp::face::inspect {

// Shows an interface from now on / no longer (waits for an answer that is being given, tens of milliseconds).
// Failures are logged at debug level and otherwise without effect: looking in is a convenience.
void add(Iface& iface);
void remove(Iface& iface);

} // namespace ucx_mp::face::inspect
