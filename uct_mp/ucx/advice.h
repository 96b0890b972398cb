// Common mistakes, each in one line that says what to do. Only where the environment shows that the transport is
// wanted: the library may be in every process of a user.
#pragma once

#include <string>

namespace ucx_mp::face::advice {

void no_port(const std::string& why); // UCX asks for adapters, and there is no port that works. Once per process
void peer_of_other_release(const std::string& misfit); // connect::version_misfit(). Once per process

// What a process has made of the library; when an MPI process ends without having used it, rank 0 says so.
void asked();  // UCX has asked for adapters
void opened(); // there is an interface

} // namespace ucx_mp::face::advice
