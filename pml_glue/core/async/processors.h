// Whether a progress thread has a processor that the program does not need. Slow path, once per process.
#pragma once

#include <string>

namespace ucx_mp::glue::async {

struct Processors {
    unsigned online = 1;  // of the host
    unsigned allowed = 1; // of this process: its affinity
    double quota = 0;     // processors' worth of time that its cgroup may use; 0: no limit
};
[[nodiscard]] Processors processors();

// `ranks`: of this job on this host. `threads`: of each rank that compute (OMP_NUM_THREADS;
// 1). A process that may use a part of the host's processors is taken to share that part
// with as many ranks as an even share leaves there. `why` has the numbers in words.
[[nodiscard]] bool is_spare(const Processors& processors, unsigned ranks, unsigned threads, std::string& why);

} // namespace ucx_mp::glue::async
