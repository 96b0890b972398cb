// Applications of the dissertation as lists of steps: kernels of the NAS parallel benchmarks (sizes of their classes A
// to C, decompositions of NPB 3) and PSTSWM's transposes. What is computed counts as time only: operations, as NPB's
// own formulas give them, by --mops. `messages`: iterations, of which the benchmarks make 6 to 250; 0: two.
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "kernel.h"

namespace ucx_mp::sim {

namespace {

constexpr std::uint64_t kDouble = 8, kComplex = 16, kInteger = 4;

using Ranks = std::vector<unsigned>;

std::uint64_t iterations(const KernelOptions& o) { return o.messages ? o.messages : 2; }

unsigned by_class(const KernelOptions& o, const std::array<unsigned, 3>& of) {
    return of[static_cast<unsigned>(o.problem - 'A')];
}

std::uint64_t at_least_one(double bytes) { return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(bytes)); }

// `operations` in all, shared by all ranks.
void work(Job& job, const KernelOptions& o, double operations) {
    const double ns = operations / o.ranks / o.mops * 1e3;
    for (unsigned i = 0; i < o.ranks; ++i) compute(job, i, o.compute ? o.compute : static_cast<std::uint64_t>(ns));
}

// Pairwise exchange: MVAPICH's partners, i xor k among powers of two, else to i + k from i - k.
void transpose(Job& job, const Ranks& all, std::uint64_t bytes) {
    const auto n = static_cast<unsigned>(all.size());
    for (unsigned k = 1; k < n; ++k)
        for (unsigned i = 0; i < n; ++i) {
            if (std::has_single_bit(n)) {
                if (i < (i ^ k)) exchange(job, all[i], all[i ^ k], bytes);
                continue;
            }
            send(job, all[i], all[(i + k) % n], bytes);
            complete(job, all[i]);
            wait(job, all[i], all[(i + n - k) % n]);
        }
}

// Recursive doubling of a short vector; who is beyond the largest power of two hands it in and gets it back.
void reduce_all(Job& job, const Ranks& all, std::uint64_t bytes) {
    const auto n = static_cast<unsigned>(all.size()), core = std::bit_floor(n);
    const auto hand = [&](unsigned from, unsigned to) {
        send(job, all[from], all[to], bytes);
        complete(job, all[from]);
        wait(job, all[to], all[from]);
    };
    for (unsigned i = core; i < n; ++i) hand(i, i - core);
    for (unsigned bit = 1; bit < core; bit *= 2)
        for (unsigned i = 0; i < core; ++i)
            if (i < (i ^ bit)) exchange(job, all[i], all[i ^ bit], bytes);
    for (unsigned i = core; i < n; ++i) hand(i - core, i);
}

Ranks everybody(const KernelOptions& o) {
    Ranks all(o.ranks);
    std::iota(all.begin(), all.end(), 0u);
    return all;
}

unsigned power_of_two(const KernelOptions& o, const char* name) {
    if (!std::has_single_bit(o.ranks)) throw std::runtime_error(std::string(name) + ": ranks must be a power of two");
    return o.ranks;
}

// As square as the ranks allow; columns >= rows.
unsigned rows_of(unsigned ranks) {
    auto rows = static_cast<unsigned>(std::sqrt(ranks));
    while (ranks % rows) --rows;
    return rows;
}

// Three-dimensional transform with planes at each process: one transpose of the whole grid and one check sum.
Job ft(const KernelOptions& o) {
    Job job(o.ranks);
    const double points = by_class(o, {1u << 23, 1u << 25, 1u << 27});
    for (std::uint64_t i = 0; i < iterations(o); ++i) {
        work(job, o, points * (5.23518 + 7.21113 * std::log(points)));
        transpose(job, everybody(o), at_least_one(points * static_cast<double>(kComplex) / o.ranks / o.ranks));
        reduce_all(job, everybody(o), kComplex);
    }
    return job;
}

// Bucket sort: sizes of the buckets are added up, then all keys go to where they belong. A key takes as long as 23
// operations of LU: so four processes need the 2.09 s of the dissertation's section 10.4.2 for class A.
Job is(const KernelOptions& o) {
    Job job(o.ranks);
    const double keys = by_class(o, {1u << 23, 1u << 25, 1u << 27});
    constexpr std::uint64_t kBuckets = 1024;
    constexpr double kPerKey = 23;
    for (std::uint64_t i = 0; i < iterations(o); ++i) {
        work(job, o, kPerKey * keys);
        reduce_all(job, everybody(o), kBuckets * kInteger);
        transpose(job, everybody(o), kInteger);
        transpose(job, everybody(o), at_least_one(keys * static_cast<double>(kInteger) / o.ranks / o.ranks));
    }
    return job;
}

// Symmetric over-relaxation: two wave fronts run through the planes, from one corner of the grid of processes to the
// other and back, with short messages; then neighbours exchange their borders.
Job lu(const KernelOptions& o) {
    Job job(o.ranks);
    const unsigned edge = by_class(o, {64, 102, 162}), rows = rows_of(o.ranks), columns = o.ranks / rows;
    constexpr unsigned kVariables = 5;
    const std::uint64_t across = kVariables * kDouble * ((edge + columns - 1) / columns),
                        down = kVariables * kDouble * ((edge + rows - 1) / rows);
    const double n = edge;
    const double per_plane = (1984.77 * n * n * n - 10923.3 * n * n + 27770.9 * n) / (2 * n);
    // To (row + by, column) and (row, column + by).
    const auto plane = [&](bool forth) {
        for (unsigned i = 0; i < o.ranks; ++i) {
            const unsigned row = i / columns, column = i % columns;
            const bool first_row = row == (forth ? 0 : rows - 1), last_row = row == (forth ? rows - 1 : 0);
            const bool first_column = column == (forth ? 0 : columns - 1),
                       last_column = column == (forth ? columns - 1 : 0);
            if (!first_row) wait(job, i, forth ? i - columns : i + columns);
            if (!first_column) wait(job, i, forth ? i - 1 : i + 1);
            compute(job, i, o.compute ? o.compute : static_cast<std::uint64_t>(per_plane / o.ranks / o.mops * 1e3));
            if (!last_row) send(job, i, forth ? i + columns : i - columns, across);
            if (!last_column) send(job, i, forth ? i + 1 : i - 1, down);
            complete(job, i);
        }
    };
    for (std::uint64_t i = 0; i < iterations(o); ++i) {
        for (const bool forth : {true, false})
            for (unsigned k = 2; k < edge; ++k) plane(forth);
        // Two layers of each border.
        for (unsigned r = 0; r < o.ranks; ++r) {
            if (r / columns + 1 < rows) exchange(job, r, r + columns, 2 * across * edge);
            if (r % columns + 1 < columns) exchange(job, r, r + 1, 2 * down * edge);
        }
        reduce_all(job, everybody(o), kVariables * kDouble);
    }
    return job;
}

// Conjugate gradient: partial sums are added up along the rows of the grid of processes, then exchanged with the
// transposed process; 25 times per iteration, with two scalar products.
Job cg(const KernelOptions& o) {
    Job job(o.ranks);
    const unsigned bits = static_cast<unsigned>(std::countr_zero(power_of_two(o, "cg"))), rows = 1u << bits / 2,
                   columns = o.ranks / rows;
    const double order = by_class(o, {14000, 75000, 150000}), nonzero = by_class(o, {11, 13, 15});
    constexpr unsigned kInner = 25;
    const double per_step = 2 * order * (5 + nonzero * (nonzero + 1));
    const std::uint64_t part = at_least_one(order * kDouble / columns);
    const auto along_rows = [&](std::uint64_t bytes) {
        for (unsigned bit = 1; bit < columns; bit *= 2)
            for (unsigned i = 0; i < o.ranks; ++i)
                if (i < (i ^ bit)) exchange(job, i, i ^ bit, bytes); // columns is a power of two
    };
    const auto transposed = [&](unsigned i) {
        if (rows == columns) return i % rows * rows + i / rows;
        return 2 * (i / 2 % rows * rows + i / 2 / rows) + i % 2;
    };
    for (std::uint64_t k = 0; k < iterations(o) * kInner; ++k) {
        work(job, o, per_step);
        along_rows(part);
        for (unsigned i = 0; i < o.ranks; ++i)
            if (i < transposed(i)) exchange(job, i, transposed(i), part);
        along_rows(kDouble);
        along_rows(kDouble);
    }
    return job;
}

// Spectral transform: transposes along rows of the grid of processes (Fourier) and along columns (Legendre), there and
// back. ParkBench's sizes (small, medium, large: --class A, B, C): 42, 85, 170 waves, 16 layers. Made up: eight fields
// there and five back, 1000 operations per point and step.
Job pstswm(const KernelOptions& o) {
    Job job(o.ranks);
    const unsigned rows = rows_of(o.ranks), columns = o.ranks / rows;
    const double points = 16.0 * by_class(o, {128 * 64, 256 * 128, 512 * 256});
    const auto among = [&](bool row, double fields) {
        for (unsigned g = 0; g < (row ? rows : columns); ++g) {
            Ranks group;
            for (unsigned i = 0; i < (row ? columns : rows); ++i)
                group.push_back(row ? g * columns + i : i * columns + g);
            transpose(job, group,
                      at_least_one(fields * points * kDouble / o.ranks / static_cast<double>(group.size())));
        }
    };
    for (std::uint64_t i = 0; i < iterations(o); ++i) {
        for (const double fields : {8.0, 5.0}) {
            work(job, o, 500 * points);
            among(true, fields);
            among(false, fields);
        }
    }
    return job;
}

} // namespace

std::vector<Kernel> applications() {
    return {{"ft", "NPB FT: one transpose of the grid per iteration; --class, --mops, --messages iterations", ft},
            {"is", "NPB IS: all keys to their buckets", is},
            {"lu", "NPB LU: wave fronts of short messages", lu},
            {"cg", "NPB CG: sums along rows, exchange with the transposed process", cg},
            {"pstswm", "spectral transforms of shallow water: transposes among rows and columns", pstswm}};
}

} // namespace ucx_mp::sim
