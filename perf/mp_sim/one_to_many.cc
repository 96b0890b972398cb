// The micro-benchmarks of AQPS 4.3: small messages from one to all, from all
// to one, and both in turn. After a series, a message for every peer, there is a barrier if some process has had more
// than 128 messages since the last.
#include <algorithm>

#include "kernel.h"

namespace ucx_mp::sim {

namespace {

constexpr std::uint64_t kMostBetweenBarriers = 128;

// At least `messages` of them, in whole series. `gets` per series: who gets most.
void series(Job& job, std::uint64_t messages, std::uint64_t gets, void (*one)(Job&, std::uint64_t),
            std::uint64_t size) {
    std::uint64_t since = 0;
    for (std::uint64_t sent = 0; sent < messages; sent += job.size() - 1) {
        one(job, size);
        if ((since += gets) <= kMostBetweenBarriers) continue;
        since = 0;
        barrier(job);
    }
    barrier(job);
}

void send_to_all(Job& job, std::uint64_t size) {
    for (unsigned i = 1; i < job.size(); ++i) {
        send(job, 0, i, size);
        wait(job, i, 0);
    }
}

void send_to_one(Job& job, std::uint64_t size) {
    for (unsigned i = 1; i < job.size(); ++i) send(job, i, 0, size);
    wait(job, 0, kAnyone, job.size() - 1);
}

std::uint64_t wanted(const KernelOptions& o, std::uint64_t otherwise) { return o.messages ? o.messages : otherwise; }

Job one_to_all(const KernelOptions& o) {
    Job job(o.ranks);
    series(job, wanted(o, 32'000), 1, send_to_all, o.size);
    return job;
}

Job all_to_one(const KernelOptions& o) {
    Job job(o.ranks);
    series(job, wanted(o, 48'000), o.ranks - 1, send_to_one, o.size);
    return job;
}

Job repeat(const KernelOptions& o) {
    Job job(o.ranks);
    for (unsigned i = 0; i < 5; ++i) {
        series(job, wanted(o, 32'000) / 5, 1, send_to_all, o.size);
        series(job, wanted(o, 48'000) / 5, o.ranks - 1, send_to_one, o.size);
    }
    return job;
}

} // namespace

std::vector<Kernel> one_sided_many() {
    return {{"onetoall", "rank 0 sends to all in turns, --messages in all, with barriers (AQPS 4.3)", one_to_all},
            {"alltoone", "all send to rank 0, --messages in all, with barriers (AQPS 4.3)", all_to_one},
            {"repeat", "onetoall and alltoone in turn, five times (AQPS 4.3)", repeat}};
}

} // namespace ucx_mp::sim
