// Common mistakes, each in one line that says what to do. Only where the environment shows that the transport is
// wanted: the library may be in every process of a user.
#pragma once

#include <string>

#include "uct_mp/ucx/config.h"

namespace ucx_mp::face::advice {

// Each line once per process, however many domains and interfaces it opens: errors, and settings without effect.
void say(const Said& said);

void no_port(const std::string& why); // UCX asks for adapters, and there is no port that works. Once per process
void peer_of_other_release(const std::string& misfit); // connect::version_misfit(). Once per process

// The process's use of the library; when an MPI process ends without having used it, rank 0 says so.
void asked();  // UCX has asked for adapters
void opened(); // there is an interface

} // namespace ucx_mp::face::advice
