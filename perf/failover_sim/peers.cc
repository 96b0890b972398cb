// A port fails over which one process is connected to many, and every command to an adapter costs time. The peers are
// processes on the other hosts of the fabric; some of them get traffic all the time.
#include <algorithm>

#include "failover_sim/cases.h"
#include "failover_sim/traffic.h"

namespace ucx_mp::failover {

namespace {

constexpr double kMs = 1e6, kUs = 1e3;
constexpr unsigned kActive = 16, kActiveHosts = 4;
constexpr Nanos kPace = 50'000; // between two operations

using Looks = std::vector<channel::PathLook>;

// A path over a rail is down, and nothing is left to be settled.
bool settled(const Looks& paths) {
    bool down = false;
    for (const channel::PathLook& path : paths) {
        if (path.phase == path::Phase::draining || path.phase == path::Phase::asking) return false;
        down |= path.phase != path::Phase::up;
    }
    return down;
}

bool all_up(const Looks& paths) {
    return std::all_of(paths.begin(), paths.end(), [](const auto& path) { return path.phase == path::Phase::up; });
}

} // namespace

void peers(const CaseOptions& options) {
    Job job(options.fabric, options.rails, {.seed = 1, .payload_limit = 1024});
    Process& a = job.add(0, config_of(options));
    const channel::Config small = small_config_of(options);
    std::vector<std::pair<unsigned, unsigned>> pairs;
    for (unsigned i = 0; i < options.peers; ++i) {
        // Those with traffic on hosts of their own: every event there is a turn for all processes of the host.
        const unsigned hosts = job.world.nodes() - 1 - kActiveHosts;
        job.add(i < kActive ? 1 + i % kActiveHosts : 1 + kActiveHosts + i % hosts, small);
        pairs.emplace_back(0, i + 1);
    }
    for (unsigned i = 0; options.loud && i < job.size(); ++i) job.process(i).threshold = LogLevel::debug;
    job.connect(pairs);
    std::vector<Channel*> ours, theirs;
    for (unsigned i = 1; i < job.size(); ++i) {
        ours.push_back(&a.channel_to(job.process(i)));
        theirs.push_back(&job.process(i).channel_to(a));
    }
    Curve curve;
    std::vector<std::unique_ptr<Flow>> flows;
    const std::size_t size = options.size ? options.size : 16384;
    const unsigned active = std::min(options.peers, kActive);
    for (unsigned i = 0; i < active; ++i) {
        flows.push_back(std::make_unique<Flow>(a, job.process(i + 1), kind_of(options.op), size, 2, curve));
        flows.back()->pace = active * kPace; // light: waiting in queues is not the matter here
    }
    a.on_turn = [&] {
        for (auto& flow : flows) flow->pump();
    };
    job.poll_every(static_cast<Nanos>(kMs));
    job.poll_every(static_cast<Nanos>(options.poll_us * kUs), a);
    for (auto& flow : flows) flow->pump();
    job.run_for(static_cast<Nanos>(10 * kMs));
    job.charge_commands(static_cast<Nanos>(options.command_us * kUs));
    const Nanos t0 = job.world.now();

    Looks paths;
    const auto passes = [&](Process& process, const Channel& channel, bool (*test)(const Looks&)) {
        process.iface().look_at_paths(channel, paths);
        return test(paths);
    };
    const auto all = [&](bool (*test)(const Looks&), bool both) {
        for (unsigned i = 1; i < job.size(); ++i)
            if (!passes(a, *ours[i - 1], test) || (both && !passes(job.process(i), *theirs[i - 1], test))) return false;
        return true;
    };
    // Runs until all channels pass the test; the time it took in us, -1: more than 60 s.
    const auto wait_for = [&](bool (*test)(const Looks&), bool both) {
        const Nanos begin = job.world.now();
        while (job.world.now() - begin < static_cast<Nanos>(60'000 * kMs)) {
            if (all(test, both)) return static_cast<double>(job.world.now() - begin) / kUs;
            job.run_for(static_cast<Nanos>(50 * kUs));
        }
        return -1.0;
    };
    const auto reset = [&] {
        for (unsigned i = 0; i < job.size(); ++i) job.process(i).longest_stall = 0;
        for (auto& flow : flows) {
            flow->mark = job.world.now();
            flow->first_after_mark = 0;
        }
    };
    const auto first_done = [&](Nanos since) {
        Nanos first = 0;
        for (auto& flow : flows)
            if (flow->first_after_mark && (!first || flow->first_after_mark < first)) first = flow->first_after_mark;
        return first ? static_cast<double>(first - since) / kUs : -1.0;
    };
    const auto last_of_firsts = [&](Nanos since) {
        Nanos last = 0;
        for (auto& flow : flows) {
            if (!flow->first_after_mark) return -1.0;
            last = std::max(last, flow->first_after_mark);
        }
        return static_cast<double>(last - since) / kUs;
    };
    const auto stall_of_peers = [&] {
        Nanos longest = 0;
        for (unsigned i = 1; i < job.size(); ++i) longest = std::max(longest, job.process(i).longest_stall);
        return static_cast<double>(longest) / kUs;
    };

    reset();
    job.world.fault(options.fault);
    const double settled_us = wait_for(settled, false);
    const Nanos rest = job.world.now();
    const Nanos stall = a.longest_stall;
    const double peer_stall_us = stall_of_peers();
    job.run_for(static_cast<Nanos>(5 * kMs));
    Json out;
    out.text("case", "peers").text("transport", options.transport).number("peers", options.peers);
    out.number("active", static_cast<double>(flows.size()))
        .number("command_us", options.command_us)
        .text("op", options.op);
    out.number("first_traffic_us", first_done(t0)).number("all_active_us", last_of_firsts(t0));
    out.number("stall_us", static_cast<double>(stall) / kUs).number("peer_stall_us", peer_stall_us);
    out.number("gap_us", static_cast<double>(curve.longest_gap(t0, rest)) / kUs).number("settled_us", settled_us);

    reset();
    const Nanos t1 = job.world.now();
    job.world.fault(options.repair);
    const double repaired_us = wait_for(all_up, true);
    out.number("repaired_us", repaired_us).number("repair_stall_us", static_cast<double>(a.longest_stall) / kUs);
    out.number("repair_peer_stall_us", stall_of_peers());
    out.number("repair_gap_us", static_cast<double>(curve.longest_gap(t1, job.world.now())) / kUs);
    const Counters counters = count(job);
    counters.print(out);
    out.number("datagrams", static_cast<double>(counters.datagrams))
        .number("datagrams_unsent", static_cast<double>(counters.unsent));
    std::uint64_t mistakes = a.errors + a.peers_failed;
    for (auto& flow : flows) {
        flow->paused = true;
        mistakes += flow->mistakes();
    }
    const bool drained =
        job.until([&] { return std::all_of(flows.begin(), flows.end(), [](auto& f) { return f->idle(); }); },
                  static_cast<Nanos>(5000 * kMs));
    out.number("mistakes", static_cast<double>(mistakes + !drained));
    out.print();
}

} // namespace ucx_mp::failover
