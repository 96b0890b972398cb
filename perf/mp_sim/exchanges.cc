// Exchanges among all ranks: what collectives are made of.
#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "kernel.h"

namespace ucx_mp::sim {

namespace {

Job alltoall(const KernelOptions& o) {
    Job job(o.ranks);
    for (unsigned k = 1; k < o.ranks; ++k)
        for (unsigned i = 0; i < o.ranks; ++i) {
            send(job, i, (i + k) % o.ranks, o.size);
            complete(job, i);
            wait(job, i, (i + o.ranks - k) % o.ranks);
        }
    return job;
}

Job alltoall_xor(const KernelOptions& o) {
    Job job(o.ranks);
    for (unsigned k = 1; k < std::bit_ceil(o.ranks); ++k)
        for (unsigned i = 0; i < o.ranks; ++i)
            if ((i ^ k) < o.ranks && i < (i ^ k)) exchange(job, i, i ^ k, o.size);
    return job;
}

// Sizes as mixture-of-experts layers make them: a few ranks get much, and who they are changes from run to run.
Job alltoallv(const KernelOptions& o) {
    Job job(o.ranks);
    std::mt19937_64 random(o.seed);
    std::vector<unsigned> place(o.ranks);
    for (unsigned i = 0; i < o.ranks; ++i) place[i] = i;
    for (unsigned i = o.ranks; i > 1; --i) std::swap(place[i - 1], place[below(random, i)]);
    double sum = 0;
    for (unsigned i = 0; i < o.ranks; ++i) sum += std::pow(i + 1.0, -o.skew);
    for (unsigned k = 1; k < o.ranks; ++k)
        for (unsigned i = 0; i < o.ranks; ++i) {
            const unsigned to = (i + k) % o.ranks;
            const double share = std::pow(place[to] + 1.0, -o.skew) / sum * o.ranks;
            send(job, i, to,
                 std::max<std::uint64_t>(1, static_cast<std::uint64_t>(share * static_cast<double>(o.size))));
            complete(job, i);
            wait(job, i, (i + o.ranks - k) % o.ranks);
        }
    return job;
}

Job ring(const KernelOptions& o) {
    Job job(o.ranks);
    for (unsigned k = 1; k < o.ranks; ++k)
        for (unsigned i = 0; i < o.ranks; ++i) {
            send(job, i, (i + 1) % o.ranks, o.size);
            complete(job, i);
            wait(job, i, (i + o.ranks - 1) % o.ranks);
        }
    return job;
}

Job doubling(const KernelOptions& o) {
    Job job(o.ranks);
    for (unsigned bit = 1; bit < o.ranks; bit *= 2)
        for (unsigned i = 0; i < o.ranks; ++i)
            if ((i ^ bit) < o.ranks && i < (i ^ bit)) exchange(job, i, i ^ bit, bit * o.size);
    return job;
}

// Reduce-scatter by halving, then all-gather by doubling (Rabenseifner), among the largest power of two; the others
// hand their vector in before and get the result behind. `size` bytes is the vector.
Job allreduce(const KernelOptions& o) {
    Job job(o.ranks);
    const unsigned core = std::bit_floor(o.ranks);
    const auto fold = [&](bool in) {
        for (unsigned i = core; i < o.ranks; ++i) {
            const unsigned from = in ? i : i - core, to = in ? i - core : i;
            send(job, from, to, o.size);
            complete(job, from);
            wait(job, to, from);
        }
    };
    fold(true);
    const auto halves = [&](unsigned bit) {
        const std::uint64_t bytes = std::max<std::uint64_t>(1, o.size * bit / core);
        for (unsigned i = 0; i < core; ++i)
            if (i < (i ^ bit)) exchange(job, i, i ^ bit, bytes);
    };
    for (unsigned bit = core / 2; bit > 0; bit /= 2) halves(bit);
    for (unsigned bit = 1; bit < core; bit *= 2) halves(bit);
    fold(false);
    return job;
}

// Figure 3.4 of the dissertation: in step k every rank sends to rank + k, all steps without a barrier between them.
Job displaced_ring(const KernelOptions& o) {
    Job job(o.ranks);
    for (unsigned k = 1; k < o.ranks; ++k)
        for (unsigned i = 0; i < o.ranks; ++i) {
            send(job, i, (i + k) % o.ranks, o.size);
            complete(job, i);
        }
    for (unsigned i = 0; i < o.ranks; ++i) wait(job, i, kAnyone, o.ranks - 1);
    return job;
}

// Bandwidth tests of pairs of nodes (dissertation, 4.3.2): the first half of the ranks with the second, 64 messages
// (`window`), then a short answer, `messages` times. One way, every other pair the other way round, or both ways.
Job windows(const KernelOptions& o, bool both) {
    Job job(o.ranks);
    const unsigned half = o.ranks / 2;
    const unsigned window = o.window;
    constexpr unsigned answer = 8;
    for (std::uint64_t round = 0; round < (o.messages ? o.messages : 4); ++round)
        for (unsigned i = 0; i < half; ++i) {
            const unsigned from = i % 2 ? half + i : i, to = i % 2 ? i : half + i;
            for (unsigned k = 0; k < window; ++k) {
                send(job, from, to, o.size);
                if (both) send(job, to, from, o.size);
            }
            complete(job, from);
            if (both) {
                complete(job, to);
                wait(job, from, to, window);
                send(job, from, to, answer);
            }
            wait(job, to, from, window);
            send(job, to, from, answer);
            wait(job, from, to);
            if (both) wait(job, to, from);
        }
    return job;
}

Job windows_one_way(const KernelOptions& o) { return windows(o, false); }

Job windows_both_ways(const KernelOptions& o) { return windows(o, true); }

Job half_to_half(const KernelOptions& o) {
    Job job(o.ranks);
    const unsigned half = o.ranks / 2;
    for (unsigned k = 0; k < half; ++k)
        for (unsigned i = 0; i < half; ++i) {
            const unsigned to = half + (i + k) % half;
            send(job, i, to, o.size);
            complete(job, i);
            wait(job, to, i);
        }
    return job;
}

// Six neighbours of a periodic box that is as cubic as the ranks allow; `messages` times, computing between.
Job halo(const KernelOptions& o) {
    unsigned x = 1, y = 1;
    for (unsigned i = 1; i * i * i <= o.ranks; ++i)
        if (o.ranks % i == 0) x = i;
    for (unsigned i = 1; i * i <= o.ranks / x; ++i)
        if (o.ranks / x % i == 0) y = i;
    const unsigned z = o.ranks / x / y;
    Job job(o.ranks);
    for (std::uint64_t round = 0; round < (o.messages ? o.messages : 10); ++round)
        for (unsigned i = 0; i < o.ranks; ++i) {
            const unsigned a = i % x, b = i / x % y, c = i / x / y;
            const auto at = [&](unsigned p, unsigned q, unsigned r) { return p % x + q % y * x + r % z * x * y; };
            const unsigned around[] = {at(a + 1, b, c),     at(a + x - 1, b, c), at(a, b + 1, c),
                                       at(a, b + y - 1, c), at(a, b, c + 1),     at(a, b, c + z - 1)};
            for (const unsigned to : around)
                if (to != i) send(job, i, to, o.size);
            complete(job, i);
            for (const unsigned from : around)
                if (from != i) wait(job, i, from);
            compute(job, i, o.compute);
        }
    return job;
}

// A vector of `size` bytes, of which each gets its part: by halving among powers of two, else pairwise.
Job reduce_scatter(const KernelOptions& o) {
    Job job(o.ranks);
    if (std::has_single_bit(o.ranks)) {
        for (unsigned bit = o.ranks / 2; bit > 0; bit /= 2)
            for (unsigned i = 0; i < o.ranks; ++i)
                if (i < (i ^ bit)) exchange(job, i, i ^ bit, std::max<std::uint64_t>(1, o.size * bit / o.ranks));
        return job;
    }
    KernelOptions part = o;
    part.size = std::max<std::uint64_t>(1, o.size / o.ranks);
    return alltoall(part);
}

// Binomial tree from rank 0.
Job bcast(const KernelOptions& o) {
    Job job(o.ranks);
    for (unsigned have = 1; have < o.ranks; have *= 2)
        for (unsigned i = 0; i < have && i + have < o.ranks; ++i) {
            send(job, i, i + have, o.size);
            complete(job, i);
            wait(job, i + have, i);
        }
    return job;
}

Job incast(const KernelOptions& o) {
    Job job(o.ranks);
    for (unsigned i = 1; i < o.ranks; ++i) send(job, i, 0, o.size);
    wait(job, 0, kAnyone, o.ranks - 1);
    return job;
}

// Dissertation, chapter 5: 16 writes and 16 reads of a neighbour's memory, started at once, then they complete.
Job epoch(const KernelOptions& o) {
    Job job(o.ranks);
    for (unsigned i = 0; i < o.ranks; ++i) {
        for (const Step::Kind kind : {Step::Kind::put, Step::Kind::get})
            for (unsigned k = 0; k < 16; ++k) job[i].push_back({kind, (i + 1) % o.ranks, o.size});
        complete(job, i);
    }
    return job;
}

Job barriers(const KernelOptions& o) {
    Job job(o.ranks);
    for (std::uint64_t i = 0; i < (o.messages ? o.messages : 10); ++i) barrier(job);
    return job;
}

} // namespace

std::vector<Kernel> exchanges() {
    return {{"alltoall", "pairwise exchange: to i+k, from i-k", alltoall},
            {"alltoall-xor", "pairwise exchange with i xor k, as MVAPICH does among powers of two", alltoall_xor},
            {"alltoallv", "to i+k, sizes by Zipf (--skew), on average --size", alltoallv},
            {"ring", "ring all-gather: to i+1, n-1 times", ring},
            {"doubling", "recursive doubling all-gather: to i xor 2^k, 2^k pieces", doubling},
            {"allreduce", "halving and doubling of a vector of --size bytes", allreduce},
            {"reduce-scatter", "halving of a vector of --size bytes; pairwise if ranks are no power of two",
             reduce_scatter},
            {"bcast", "binomial tree from rank 0", bcast},
            {"incast", "all send to rank 0 at once", incast},
            {"epoch", "16 writes, then 16 reads of a neighbour's memory, one flush (dissertation, chapter 5)", epoch},
            {"displaced-ring", "in step k every rank sends to rank + k (dissertation, figure 3.4)", displaced_ring},
            {"windows",
             "--window messages to the rank of the other half, an answer, --messages times; odd pairs the other way",
             windows_one_way},
            {"windows-both", "likewise, in both directions at once", windows_both_ways},
            {"displaced", "the first half sends to the second, shifted by k", half_to_half},
            {"halo", "six neighbours of a periodic box, --messages times, --compute between", halo},
            {"barrier", "dissemination, --messages times", barriers}};
}

} // namespace ucx_mp::sim
