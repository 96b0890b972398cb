// P3DFFT's transforms of several variables, there and back, as the co-design text restructures them (co-design, figure
// 2): ROW within a node by copies, COL between nodes by MPI_Ialltoall, whose transfer goes on during the next variable.
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "job.h"

namespace ucx_mp::collect_sim {

namespace {

enum class Way : std::uint8_t { blocking, host, thread, adapter };

Way way_of(const std::string& name) {
    for (const auto& [known, way] : {std::pair{"blocking", Way::blocking}, std::pair{"host", Way::host},
                                     std::pair{"thread", Way::thread}, std::pair{"adapter", Way::adapter}})
        if (name == known) return way;
    throw std::runtime_error("--progress " + name + ": blocking, host, thread or adapter");
}

struct Fft {
    Way way;
    unsigned variables, tests;
    Nanos one, row; // a transform in one dimension; a transpose among ROW

    Program run(Process& p, unsigned rank, Group& col) const {
        const unsigned parts = way == Way::host ? tests + 1 : 1;
        for (unsigned back = 0; back < 2; ++back) {
            // There: x, ROW, y, COL, z. Back: z, COL, y, ROW, x. So one dimension and two change places.
            const unsigned before = back ? 1 : 2, after = 3 - before;
            for (unsigned v = 0; v <= variables; ++v) {
                if (v < variables) {
                    for (unsigned d = 0; d < before; ++d) {
                        for (unsigned i = 0; i < parts; ++i) {
                            co_await p.compute(one / parts);
                            if (i + 1 < parts) co_await p.test();
                        }
                        if (!back && d == 0) co_await p.compute(row);
                    }
                    col.start(rank);
                }
                if (way != Way::blocking && v == 0) continue; // its transpose goes on during the next one
                if (way == Way::blocking && v == variables) break;
                const std::uint64_t number = back * variables + (way == Way::blocking ? v : v - 1);
                co_await p.until([&col, rank, number] { return col.done(rank, number); });
                for (unsigned d = 0; d < after; ++d) {
                    for (unsigned i = 0; i < parts; ++i) {
                        co_await p.compute(one / parts);
                        if (i + 1 < parts) co_await p.test();
                    }
                    if (back && d == 0) co_await p.compute(row);
                }
            }
        }
    }
};

} // namespace

void p3dfft(const Options& o) {
    const unsigned cols = o.ranks / o.rows; // members of a COL, one on each node
    if (cols < 2 || cols * o.rows != o.ranks) throw std::runtime_error("--rows: a part of --ranks");
    const double n = o.size, points = n * n * n / o.ranks, bytes = points * 8;
    const auto nanos = [](double us) { return static_cast<Nanos>(us * 1e3); };
    const Way way = way_of(o.progress);
    const Fft fft{.way = way,
                  .variables = o.variables,
                  .tests = o.tests,
                  .one = nanos(2.5 * points * std::log2(n) / o.mops),
                  .row = nanos(bytes * (o.rows - 1) / o.rows / (o.copy * 1e3))};
    Options placed = o;
    placed.per_node = o.rows;
    Processes all(placed, o.ranks);
    std::vector<std::unique_ptr<Group>> groups;
    const auto block = static_cast<std::uint64_t>(bytes / cols);
    for (unsigned r = 0; r < o.rows; ++r)
        groups.push_back(std::make_unique<Group>(*all.cluster, all.some(r, o.rows, cols),
                                                 exchange(cols, block, o.peers),
                                                 way == Way::adapter ? Engine::adapter : Engine::host, o.costs, 2));
    for (unsigned i = 0; i < o.ranks; ++i) {
        Group& group = *groups[i % o.rows];
        all[i].progress = [&group, i, rows = o.rows](bool look_only) { return group.progress(i / rows, look_only); };
        all[i].thread = way == Way::thread;
        all[i].wake = o.wake;
    }
    const Nanos took = all.run([&](Process& p, unsigned i) { return fft.run(p, i / o.rows, *groups[i % o.rows]); });
    const Nanos computed = 2 * o.variables * (3 * fft.one + fft.row);
    std::uint64_t wakes = 0;
    Nanos stolen = 0;
    for (unsigned i = 0; i < o.ranks; ++i) {
        wakes += all[i].wakes;
        stolen = std::max(stolen, all[i].stolen);
    }
    std::printf("us %.3f\ncomputed_us %.3f\nwakes %.2f\nstolen %.5f\n", double(took) / 1e3, double(computed) / 1e3,
                double(wakes) / o.ranks, double(stolen) / double(took));
}

} // namespace ucx_mp::collect_sim
