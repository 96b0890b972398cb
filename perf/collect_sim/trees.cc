// Barriers and bcasts by one schedule: what the thesis measures (Myrinet 4.3, 4.4), and what a late member costs.
#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "job.h"

namespace ucx_mp::collect_sim {

namespace {

Schedule barrier_of(const Options& o) {
    if (o.algorithm == "binary") return binary_barrier(o.ranks, o.bytes);
    if (o.algorithm == "dissemination") return dissemination(o.ranks);
    throw std::runtime_error("--algorithm " + o.algorithm + ": binary or dissemination");
}

void make_progress(Processes& all, std::vector<Group*> groups) {
    for (unsigned i = 0; i < all.size(); ++i)
        all[i].progress = [groups, i](bool look_only) {
            bool any = false;
            for (Group* group : groups) any |= group->progress(i, look_only);
            return any;
        };
}

double us(Nanos time) { return static_cast<double>(time) / 1e3; }

} // namespace

namespace {

struct Barriers {
    Group& group;
    unsigned times;
    Nanos before;
    std::vector<Nanos> last_start, first_end; // of each call
    Program calls(Process& p, unsigned rank) {
        for (unsigned i = 0; i < times; ++i) {
            p.spend(before);
            const std::uint64_t number = group.started(rank);
            last_start[i] = std::max(last_start[i], p.now());
            group.start(rank);
            co_await p.until([this, rank, number] { return group.done(rank, number); });
            first_end[i] = std::min(first_end[i], p.now());
        }
    }
    // us of a call. Nobody may leave before all have come.
    double run(Processes& all) {
        last_start.assign(times, 0);
        first_end.assign(times, UINT64_MAX);
        const double took = us(all.run([this](Process& p, unsigned rank) { return calls(p, rank); }));
        for (unsigned i = 0; i < times; ++i)
            if (first_end[i] < last_start[i]) throw std::runtime_error("a barrier was left before all had come");
        return took / times;
    }
};

} // namespace

// The mean of calls in a row. `before`: the host has to do something else in each, as for a new communicator.
void barrier(const Options& o) {
    Processes all(o, o.ranks);
    Group group(*all.cluster, all.some(0, 1, o.ranks), barrier_of(o), o.engine_used(), o.costs);
    make_progress(all, {&group});
    Barriers warm{.group = group, .times = 8, .before = o.before, .last_start = {}, .first_end = {}}, measured = warm;
    measured.times = o.times;
    (void)warm.run(all);
    std::printf("us %.4f\n", measured.run(all));
}

namespace {

struct Bcasts {
    Group& group;
    Group* barriers; // put in as plan/slot_rules.h says; null: acknowledgments
    unsigned times;
    Nanos pause;
    double sum = 0; // us at the root
    // Sixteen under way at most, and a barrier behind every seven.
    Program calls(Process& p, unsigned rank) {
        for (unsigned i = 0; i < times; ++i) {
            const std::uint64_t number = group.started(rank);
            const Nanos begin = p.now();
            if (number != 0) co_await p.until([this, rank, number] { return group.over(rank, number - 1); });
            if (barriers && number % 7 == 6) barriers->start(rank);
            if (barriers && barriers->started(rank) > 1)
                co_await p.until([this, rank] { return barriers->done(rank, barriers->started(rank) - 2); });
            group.start(rank);
            co_await p.until([this, rank, number] { return group.done(rank, number); });
            if (rank == 0) sum += us(p.now() - begin);
            if (pause) co_await p.compute(pause);
        }
    }
};

} // namespace

// latency: from the root's call until the last rank's returns; row, alone: of the root's call.
void bcast(const Options& o) {
    Processes all(o, o.ranks);
    Group group(*all.cluster, all.some(0, 1, o.ranks), binary_bcast(o.ranks, o.bytes, o.acknowledged), o.engine_used(),
                o.costs, 32);
    std::unique_ptr<Group> barriers;
    if (!o.acknowledged)
        barriers = std::make_unique<Group>(*all.cluster, all.some(0, 1, o.ranks), dissemination(o.ranks),
                                           o.engine_used(), o.costs);
    if (barriers)
        make_progress(all, {&group, barriers.get()});
    else
        make_progress(all, {&group});
    if (o.measure != "latency") {
        Bcasts warm{group, barriers.get(), 20, 0}, measured{group, barriers.get(), o.times, 0};
        if (o.measure == "alone") warm.pause = measured.pause = 20'000'000;
        (void)all.run([&](Process& p, unsigned rank) { return warm.calls(p, rank); });
        (void)all.run([&](Process& p, unsigned rank) { return measured.calls(p, rank); });
        std::printf("us %.4f\n", measured.sum / o.times);
        return;
    }
    Nanos begin = 0, end = 0;
    (void)all.run([&](Process& process, unsigned rank) {
        return [](Process& p, unsigned r, Group& g, unsigned last, Nanos& from, Nanos& to) -> Program {
            if (r == 0) {
                co_await p.compute(1'000'000); // the others have called it
                from = p.now();
            }
            g.start(r);
            co_await p.until([&g, r] { return g.done(r, 0); });
            if (r == last) to = p.now();
            co_await p.until([&g, r] { return g.over(r, 0); });
        }(process, rank, group, o.ranks - 1, begin, end);
    });
    std::printf("us %.4f\n", us(end - begin));
}

// All start an operation that does not block, and compute; `late_rank` computes longer. What the operation costs the
// others beyond their computation, with and without.
void late(const Options& o) {
    double found[2];
    std::uint64_t wakes = 0;
    for (const bool is_late : {false, true}) {
        Processes all(o, o.ranks);
        const bool down = o.measure == "bcast";
        Group group(*all.cluster, all.some(0, 1, o.ranks), down ? binary_bcast(o.ranks, o.bytes, false) : barrier_of(o),
                    o.engine_used(), o.costs);
        make_progress(all, {&group});
        for (unsigned i = 0; i < o.ranks; ++i) {
            all[i].thread = o.thread;
            all[i].wake = o.wake;
        }
        double sum = 0, worst = 0;
        (void)all.run([&](Process& process, unsigned rank) {
            // A barrier begins late, a bcast's member only looks late.
            const Nanos before = is_late && !down && rank == o.late_rank ? o.late : 0;
            const Nanos compute = o.compute + (is_late && down && rank == o.late_rank ? o.late : 0);
            return [](Process& p, unsigned r, Group& g, Nanos first, Nanos time, bool counts, double& all_of,
                      double& most) -> Program {
                if (first) co_await p.compute(first);
                const Nanos begin = p.now();
                g.start(r);
                if (time) co_await p.compute(time);
                co_await p.until([&g, r] { return g.done(r, 0); });
                if (!counts) co_return;
                const double more = us(p.now() - begin - time);
                all_of += more;
                most = std::max(most, more);
            }(process, rank, group, before, compute, rank != o.late_rank, sum, worst);
        });
        found[is_late] = sum / (o.ranks - 1);
        for (unsigned i = 0; i < o.ranks; ++i) wakes += all[i].wakes;
        std::printf("%s_mean_us %.3f\n%s_worst_us %.3f\n", is_late ? "late" : "in_time", found[is_late],
                    is_late ? "late" : "in_time", worst);
    }
    std::printf("wakes %llu\n", static_cast<unsigned long long>(wakes));
}

} // namespace ucx_mp::collect_sim
