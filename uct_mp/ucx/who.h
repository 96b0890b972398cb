// The names of this process for people: host, rank and job, as its launcher says, and its program.
//
// Threads: any.
#pragma once

#include <string>

namespace ucx_mp::face {

struct Who {
    std::string host;    // without its domain
    std::string job;     // as the batch system calls it, else the launcher; empty: not known
    std::string program; // its file's name
    int rank = -1;       // in the job; -1: not known
    int size = 0;        // of the job; 0: not known
};

// Read once.
[[nodiscard]] const Who& who();

} // namespace ucx_mp::face
