// AWP-ODC's time steps as the co-design text restructures them (co-design III.B.1): three components of the velocity,
// then six of the stress. The faces of each go to six neighbours by puts into their ghost cells, while the next
// component is computed; what a step needs is waited for where it is used.
#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>

#include "job.h"

namespace ucx_mp::collect_sim {

namespace {

constexpr double kReach = 2; // planes of ghost cells at each face: how far a point's stencil reaches

// Processes in a grid whose ends meet, as nearly a cube as can be; the last dimension changes fastest.
struct Grid {
    std::array<unsigned, 3> sides{1, 1, 1};
    explicit Grid(unsigned ranks) {
        for (unsigned left = ranks, factor = 2; left > 1;)
            if (left % factor == 0) {
                *std::ranges::min_element(sides) *= factor;
                left /= factor;
            } else {
                ++factor;
            }
    }
    [[nodiscard]] unsigned neighbour(unsigned rank, unsigned dimension, bool up) const {
        std::array<unsigned, 3> at{rank / (sides[1] * sides[2]), rank / sides[2] % sides[1], rank % sides[2]};
        const unsigned side = sides[dimension];
        at[dimension] = (at[dimension] + (up ? 1 : side - 1)) % side;
        return (at[0] * sides[1] + at[1]) * sides[2] + at[2];
    }
};

// Faces of one component by the adapter: a put to each neighbour that is not on the same node, or to all.
Schedule halo(const Grid& grid, unsigned ranks, std::uint64_t bytes, unsigned per_node, bool loop_back,
              std::vector<unsigned>& copied) {
    Schedule all(ranks);
    copied.assign(ranks, 0);
    for (unsigned rank = 0; rank < ranks; ++rank) {
        all[rank].in_order = false;
        all[rank].sent = true;
        for (unsigned d = 0; d < 3; ++d)
            for (const bool up : {false, true}) {
                const unsigned to = grid.neighbour(rank, d, up);
                if (to == rank) continue;
                if (!loop_back && to / per_node == rank / per_node) {
                    ++copied[rank];
                    continue;
                }
                all[to].awaited.push_back(static_cast<unsigned>(all[to].from.size()));
                all[rank].puts.push_back(
                    {.to = to, .word = static_cast<unsigned>(all[to].from.size()), .after = {}, .bytes = bytes});
                all[to].from.push_back(rank);
            }
    }
    return all;
}

struct Steps {
    Group& faces;
    // Of one component: to compute it, those points of it that need no ghost cell, to copy its faces to neighbours of
    // the node.
    Nanos component, inner, copies;
    unsigned steps;
    bool overlaps;
    bool interior; // points that need no ghost cell come first: the next component begins before the faces are here

    Program run(Process& p, unsigned rank) const {
        for (unsigned s = 0; s < steps; ++s)
            for (const unsigned components : {3u, 6u}) {
                const std::uint64_t before = faces.started(rank);
                for (unsigned c = 0; c < components; ++c) {
                    const bool waits = interior && c == 0;
                    co_await p.compute(waits ? inner : component);
                    if (waits) {
                        co_await p.until([this, rank, before] { return all_done(rank, before); });
                        co_await p.compute(component - inner);
                    }
                    if (overlaps) {
                        faces.start(rank);
                        if (copies) co_await p.compute(copies);
                    }
                }
                for (unsigned c = 0; !overlaps && c < components; ++c) {
                    faces.start(rank);
                    if (copies) co_await p.compute(copies);
                    co_await p.until([this, rank, number = before + c] { return faces.done(rank, number); });
                }
                if (!interior) co_await p.until([this, rank] { return all_done(rank, faces.started(rank)); });
            }
        co_await p.until([this, rank] { return all_done(rank, faces.started(rank)); });
    }
    // Those of a step's components before this number; earlier ones have been waited for.
    [[nodiscard]] bool all_done(unsigned rank, std::uint64_t before) const {
        for (std::uint64_t n = before > 9 ? before - 9 : 0; n < before; ++n)
            if (!faces.done(rank, n)) return false;
        return true;
    }
};

} // namespace

// No window is exposed: a neighbour that has sent the faces of the step before has read its own ghost cells.
void awp(const Options& o) {
    const Grid grid(o.ranks);
    const double side = o.size;
    const auto nanos = [](double us) { return static_cast<Nanos>(us * 1e3); };
    const auto bytes = static_cast<std::uint64_t>(side * side * kReach * 4);
    Processes all(o, o.ranks);
    std::vector<unsigned> copied;
    const bool loop_back = o.local == "adapter";
    Group faces(*all.cluster, all.some(0, 1, o.ranks), halo(grid, o.ranks, bytes, o.per_node, loop_back, copied),
                Engine::host, o.costs, 32);
    for (unsigned i = 0; i < o.ranks; ++i)
        all[i].progress = [&faces, i](bool look_only) { return faces.progress(i, look_only); };
    const auto points = [&](double length) { return nanos(length * length * length * o.flops / o.mops); };
    const Nanos component = points(side);
    std::vector<Steps> steps;
    for (unsigned i = 0; i < o.ranks; ++i)
        steps.push_back({.faces = faces,
                         .component = component,
                         .inner = points(std::max(0., side - 2 * kReach)),
                         .copies = nanos(copied[i] * static_cast<double>(bytes) / (o.copy * 1e3)),
                         .steps = o.times,
                         .overlaps = o.progress != "blocking",
                         .interior = o.interior});
    const Nanos took = all.run([&](Process& p, unsigned i) { return steps[i].run(p, i); });
    const Nanos computed = component * 9 * o.times;
    std::printf("us %.3f\ncomputed_us %.3f\n", double(took) / 1e3, double(computed) / 1e3);
}

} // namespace ucx_mp::collect_sim
