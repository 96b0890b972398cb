// One process begins to talk to many, or many to one, while it has traffic with others, and every command to an adapter
// costs time. The peers are processes on the other hosts of the fabric.
#include <algorithm>

#include "failover_sim/cases.h"
#include "failover_sim/traffic.h"

namespace ucx_mp::failover {

namespace {

constexpr double kMs = 1e6, kUs = 1e3;
constexpr unsigned kActive = 4; // processes with traffic, on hosts of their own
constexpr Nanos kPace = 50'000; // between two operations
constexpr std::uint8_t kHello = 31;

// Says one word to each of `to`, as soon as that is possible.
struct Greeter {
    Process* from;
    std::vector<Channel*> to;
    Nanos longest_call = 0;
    void go() {
        std::erase_if(to, [&](Channel* channel) {
            const Nanos begin = from->now();
            const Status status = channel::Interface::am_short(*channel, kHello, 0, nullptr, 0);
            longest_call = std::max(longest_call, from->now() - begin);
            return status != Status::no_resource;
        });
    }
};

} // namespace

void connect(const CaseOptions& options) {
    Job job(options.fabric, options.rails, {.seed = 1, .payload_limit = 1024});
    Process& a = job.add(0, config_of(options));
    const channel::Config small = small_config_of(options);
    std::vector<std::pair<unsigned, unsigned>> pairs;
    for (unsigned i = 0; i < kActive; ++i) {
        job.add(1 + i, small);
        pairs.emplace_back(0, i + 1);
    }
    const unsigned hosts = job.world.nodes() - 1 - kActive;
    for (unsigned i = 0; i < options.peers; ++i) job.add(1 + kActive + i % hosts, small);
    for (unsigned i = 0; options.loud && i < job.size(); ++i) job.process(i).threshold = LogLevel::debug;
    job.connect(pairs);

    Curve curve;
    std::vector<std::unique_ptr<Flow>> flows;
    for (unsigned i = 0; i < kActive; ++i) {
        flows.push_back(std::make_unique<Flow>(a, job.process(i + 1), kind_of(options.op),
                                               options.size ? options.size : 16384, 2, curve));
        flows.back()->pace = kActive * kPace;
    }
    std::uint64_t arrived = 0;
    const auto count_words = [](void* n, void*, std::size_t, unsigned) {
        return ++*static_cast<std::uint64_t*>(n), Status::ok;
    };
    std::vector<Greeter> greeters(options.inward ? options.peers : 1);
    greeters[0].from = &a;
    for (unsigned i = 0; i < options.peers; ++i) {
        Process& peer = job.process(1 + kActive + i);
        if (options.inward) {
            a.on_am(kHello, count_words, &arrived);
            greeters[i] = {.from = &peer, .to = {&peer.channel_to(a)}};
        } else {
            peer.on_am(kHello, count_words, &arrived);
            greeters[0].to.push_back(&a.channel_to(peer));
        }
    }
    bool begun = false, alone = options.idle;
    a.on_turn = [&] {
        for (auto& flow : flows)
            if (!alone) flow->pump();
        if (begun && !options.inward) greeters[0].go();
    };
    for (unsigned i = 0; options.inward && i < options.peers; ++i)
        job.process(1 + kActive + i).on_turn = [&, i] {
            if (begun) greeters[i].go();
        };
    job.poll_every(static_cast<Nanos>(kMs));
    job.poll_every(static_cast<Nanos>(options.poll_us * kUs), a);
    job.run_for(static_cast<Nanos>(10 * kMs));
    job.charge_commands(static_cast<Nanos>(options.command_us * kUs));
    for (unsigned i = 0; i < job.size(); ++i) job.process(i).longest_stall = 0;
    const Nanos begin = job.world.now();
    begun = true;
    const bool all = job.until([&] { return arrived == options.peers; }, static_cast<Nanos>(60'000 * kMs));
    const Nanos end = job.world.now();

    Nanos stall = 0, call = 0;
    for (unsigned i = 1; i < job.size(); ++i) stall = std::max(stall, job.process(i).longest_stall);
    for (const Greeter& greeter : greeters) call = std::max(call, greeter.longest_call);
    const Counters counters = count(job);
    Json out;
    out.text("case", "connect")
        .text("transport", options.transport)
        .text("direction", options.inward ? "inward" : "outward");
    out.number("peers", options.peers).number("command_us", options.command_us);
    out.number("connected_us", all ? static_cast<double>(end - begin) / kUs : -1);
    out.number("stall_us", static_cast<double>(a.longest_stall) / kUs)
        .number("peer_stall_us", static_cast<double>(stall) / kUs);
    out.number("call_us", static_cast<double>(call) / kUs)
        .number("gap_us", static_cast<double>(curve.longest_gap(begin, end)) / kUs);
    out.number("queue_pairs", static_cast<double>(counters.queue_pairs));
    out.number("datagrams", static_cast<double>(counters.datagrams))
        .number("datagrams_unsent", static_cast<double>(counters.unsent));
    std::uint64_t mistakes = !all + arrived - options.peers + a.errors + a.peers_failed;
    for (auto& flow : flows) {
        flow->paused = true;
        mistakes += flow->mistakes();
    }
    const bool drained =
        job.until([&] { return std::all_of(flows.begin(), flows.end(), [](auto& f) { return f->idle(); }); },
                  static_cast<Nanos>(5000 * kMs));
    job.run_for(static_cast<Nanos>(10 * kMs));
    out.number("mistakes", static_cast<double>(mistakes + !drained + (arrived != options.peers)));
    out.print();
}

} // namespace ucx_mp::failover
