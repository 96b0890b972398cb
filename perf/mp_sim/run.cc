#include "run.h"

#include <algorithm>
#include <stdexcept>

namespace ucx_mp::sim {

Run::Run(Cluster& cluster, const Job& job) : cluster_(cluster), job_(job), ranks_(job.size()) {
    for (unsigned i = 0; i < ranks_.size(); ++i) {
        ranks_[i].index = i;
        ranks_[i].from.resize(ranks_.size());
        total_steps_ += job[i].size();
        for (const Step& s : job[i])
            if (s.kind == Step::Kind::send || s.kind == Step::Kind::get || s.kind == Step::Kind::put)
                largest_ = std::max(largest_, s.amount);
    }
}

Nanos Run::once(const std::function<void(double)>& progress) {
    finished_ = 0;
    begin_run();
    std::uint64_t before = 0;
    for (Rank& rank : ranks_) {
        rank.step = 0;
        rank.running = true;
        rank.stepped_at = cluster_.world.now();
        if (late_) cluster_.node(rank.index).compute(random_() % (late_ + 1), [] {});
        before += rank.done_steps;
    }
    const Nanos begin = cluster_.world.now();
    std::uint64_t asked = 0;
    const bool over = cluster_.until(
        [&] {
            if (progress && ++asked % 1'000'000 == 0) {
                std::uint64_t done = 0;
                for (const Rank& rank : ranks_) done += rank.done_steps;
                progress(static_cast<double>(done - before) / static_cast<double>(total_steps_));
            }
            return finished_ == ranks_.size();
        },
        10'000'000'000'000);
    if (!over) throw std::runtime_error("the job did not come to its end: " + where_it_stands());
    // A rank that is through may be busy for longer than the world is old.
    Nanos end = cluster_.world.now();
    for (unsigned i = 0; i < ranks_.size(); ++i) end = std::max(end, cluster_.world.now_at(i));
    return end - begin;
}

std::string Run::where_it_stands() const {
    for (const Rank& rank : ranks_) {
        if (!rank.running) continue;
        static constexpr const char* kinds[] = {"send", "wait", "complete", "compute", "get",
                                                "put",  "add",  "sync",     "meet"};
        if (rank.step == job_[rank.index].size())
            return "rank " + std::to_string(rank.index) + " is through, but for messages that have found no room";
        const Step& s = job_[rank.index][rank.step];
        return "rank " + std::to_string(rank.index) + " (of " + std::to_string(ranks_.size() - finished_) +
               " that are not through) is at step " + std::to_string(rank.step) + ", " +
               kinds[static_cast<int>(s.kind)] + (s.peer == kAnyone ? "" : " " + std::to_string(s.peer)) + " " +
               std::to_string(s.amount) + ", " + std::to_string(rank.open) + " operations open";
    }
    return "nobody waits";
}

bool Run::turn(Rank& rank) {
    const Steps& steps = job_[rank.index];
    bool any = false;
    while (rank.step < steps.size() && !cluster_.node(rank.index).busy()) {
        if (!take(rank, steps[rank.step])) {
            if (std::exchange(rank.again, false)) continue;
            return any;
        }
        ++rank.step;
        ++rank.done_steps;
        any = true;
    }
    if (any) {
        const Nanos now = cluster_.world.now_at(rank.index);
        pause_ = std::max(pause_, now - std::exchange(rank.stepped_at, now));
    }
    if (rank.step == steps.size() && rank.running && is_through(rank)) {
        rank.running = false;
        ++finished_;
        any = true;
    }
    return any;
}

// False: it cannot be done yet.
bool Run::take(Rank& rank, const Step& s) {
    switch (s.kind) {
    case Step::Kind::send:
    case Step::Kind::sync:
        return send(rank, s);
    case Step::Kind::wait:
    case Step::Kind::meet:
        return await(rank, s);
    case Step::Kind::complete:
        return is_complete(rank);
    case Step::Kind::compute:
        if (std::exchange(rank.started, !rank.started)) return true; // over
        cluster_.node(rank.index).compute(s.amount, [] {});
        return false;
    case Step::Kind::get:
    case Step::Kind::put:
    case Step::Kind::add:
        return move(rank, s);
    }
    return true;
}

bool Run::await(Rank& rank, const Step& s) {
    const auto n = static_cast<std::uint32_t>(s.amount);
    if (s.kind == Step::Kind::meet) {
        Received& from = rank.from[s.peer];
        if (from.sync - from.sync_taken < n) return false;
        from.sync_taken += n;
        return true;
    }
    if (s.peer != kAnyone) {
        Received& from = rank.from[s.peer];
        if (from.data - from.taken < n) return false;
        from.taken += n;
    } else if (rank.received - rank.taken < n)
        return false;
    rank.taken += n;
    return true;
}

void Run::arrived(Rank& rank, unsigned from, bool sync) {
    Received& of = rank.from[from];
    if (sync) {
        ++of.sync;
        return;
    }
    ++of.data;
    ++rank.received;
}

} // namespace ucx_mp::sim
