// Synthetic traces with the shapes of AQPS figures 3 to 5 (who sends to rank 0 over the time of a run).
// Every rank does what rank 0 does there, shifted by its number. The figures give shapes and no numbers; what is made
// up is said at each. `messages`: phases, of which the figures show a hundred.
#include <algorithm>

#include "kernel.h"

namespace ucx_mp::sim {

namespace {

std::uint64_t phases(const KernelOptions& o) { return o.messages ? o.messages : 20; }

void to_offset(Job& job, unsigned offset, std::uint64_t count, std::uint64_t size) {
    const auto n = static_cast<unsigned>(job.size());
    if (offset % n == 0) return;
    for (unsigned i = 0; i < n; ++i) {
        for (std::uint64_t k = 0; k < count; ++k) send(job, i, (i + offset) % n, size);
        wait(job, i, (i + n - offset % n) % n, count);
    }
}

void compute_all(Job& job, std::uint64_t ns) {
    for (unsigned i = 0; i < job.size(); ++i) compute(job, i, ns);
}

std::uint64_t pause(const KernelOptions& o) { return o.compute ? o.compute : 20'000; }

// The 2^i-th ranks, as a collective makes them.
void powers(Job& job, std::uint64_t count, std::uint64_t size) {
    for (unsigned offset = 1; offset < job.size(); offset *= 2) to_offset(job, offset, count, size);
}

// Figure 3: narrow horizontal lines (a few sources that send always), vertical lines (bursts of nearly everybody).
// Made up: six sources, 16 messages each per phase, a burst in each fifth phase.
Job smg2000(const KernelOptions& o) {
    Job job(o.ranks);
    for (std::uint64_t phase = 0; phase < phases(o); ++phase) {
        for (const unsigned offset : {1u, o.ranks - 1, 8u, o.ranks - 8, 16u, o.ranks - 16})
            if (offset < o.ranks) to_offset(job, offset, 16, o.size);
        if (phase % 5 == 4)
            for (unsigned offset = 1; offset < o.ranks; ++offset) to_offset(job, offset, 1, o.size);
        compute_all(job, pause(o));
    }
    return job;
}

// Figure 4: short series of the 2^i-th ranks, and diagonals: the source moves on from phase to phase. Made up: a series
// in each fourth phase, 8 messages each; three diagonals with 24 messages per phase.
Job dl_poly(const KernelOptions& o) {
    Job job(o.ranks);
    for (std::uint64_t phase = 0; phase < phases(o); ++phase) {
        if (phase % 4 == 0) powers(job, 8, o.size);
        for (unsigned diagonal = 0; diagonal < 3; ++diagonal)
            to_offset(job, static_cast<unsigned>((phase * 2 + diagonal * o.ranks / 3) % o.ranks), 24, o.size);
        compute_all(job, pause(o));
    }
    return job;
}

// Figure 5: the 2^i-th ranks always, and many light dotted lines. Made up: 12 messages of each of the former per phase;
// half of the others, drawn once, send one in every third phase.
Job namd(const KernelOptions& o) {
    Job job(o.ranks);
    std::mt19937_64 random(o.seed);
    std::vector<unsigned> light;
    for (unsigned offset = 1; offset < o.ranks; ++offset)
        if (below(random, 2) == 0) light.push_back(offset);
    for (std::uint64_t phase = 0; phase < phases(o); ++phase) {
        powers(job, 12, o.size);
        for (std::size_t i = phase % 3; i < light.size(); i += 3) to_offset(job, light[i], 1, o.size);
        compute_all(job, pause(o));
    }
    return job;
}

} // namespace

std::vector<Kernel> traces() {
    return {{"smg2000", "few heavy sources, bursts of all (AQPS figure 3); --messages phases", smg2000},
            {"dl-poly", "2^i bursts and diagonals (AQPS figure 4); --messages phases", dl_poly},
            {"namd", "2^i always and many light sources (AQPS figure 5); --messages phases", namd}};
}

} // namespace ucx_mp::sim
