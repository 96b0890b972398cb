// Bandwidth of the real transport in virtual time: puts and gets between two nodes, one policy and load per run, with
// or without another flow that takes part of one route. Deterministic: processor time is not part of it unless
// --host-... says so.
//
//     bench_sim_transport --fabric two-rail --policy default --op put --size 1048576 --window 4
//
// Prints one line: MB/s (1e6 bytes per second) of the payload, and what was asked.
// --op put, get: nothing but these, `window` of them under way. --op both: `window` puts and as many gets per flush, in
// turns
// (--turns ppgg: two and two).
// --back: the same from the other node, too, at once.
// --op eager, rendezvous_get, rendezvous_put, rendezvous_fence: windows of messages as MPI programs send them
// (sim_window.h).
// --host-post NS, --host-completion NS: what a posted request and a collected completion cost the processor of their
// node.
// --away US [--every US]: the processor of either node does something else for so long, every so often (as often as it
// is away, if that is all that is said; half to one and a half times of it): a host with more to do than processors.
// --signal-interval N: every so many small messages ask for a completion.
// --split-reads: reads and writes on queue pairs of their own.
// --links: the share of each link that both nodes send on that was in use, first node first. --trace US: the same in
// every such period, with what each node has under way (KiB of writes and reads on each path) and its flushes so far.
// --hot SHARE: another pair of nodes takes that share of one route; --hot-move MS: it changes to the next route that
// often.
// --setup N: N nodes connect to all others at once; the virtual time until all have received a message from all, and
// the handshake's datagrams.
// --memory: prints queue pairs and buffers of one node with `--peers` peers instead. With --transport adaptive (--rings
// N,
// --slices N of time in which all of them send) also the table of who has sent how much, and the rings.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "link_use.h"
#include "sim_window.h"
#include "simulator/cluster.h"
#include "softhca/verbs.h"
#include "uct_mp/schedule/policy_factory.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

struct Options {
    std::string fabric = "two-rail", policy = "default", op = "put", transport = "mp_rc", hint = "none", turns = "pg";
    unsigned from = 0, to = 1, paths = 0, window = 4, peers = 1, signal_interval = 0;
    std::size_t size = 1 << 20;
    softhca::sim::HostCosts host;
    double warm_up_ms = 20, run_ms = 100, hot = 0, hot_move_ms = 0;
    unsigned hot_from = 1, hot_to = 6, routes = 4;
    unsigned setup = 0, rings = 0, slices = 64;
    bool back = false, memory = false, split_reads = false, links = false;
    double trace_us = 0;
    double away_us = 0, every_us = 0;
    std::vector<std::string> faults;
};

// Takes a node's processor away now and then. Its adapters work on.
class Away {
public:
    Away(Cluster& cluster, unsigned node, const Options& o)
        : cluster_(cluster), node_(node), time_(static_cast<Nanos>(o.away_us * 1e3)),
          every_(static_cast<Nanos>((o.every_us > 0 ? o.every_us : o.away_us) * 1e3)), random_(node + 1) {
        plan();
    }

private:
    void plan() {
        (void)cluster_.world.at(cluster_.world.now() + every_ / 2 + random_() % (every_ + 1),
                                [this] { cluster_.node(node_).compute(time_, [this] { plan(); }); });
    }
    Cluster& cluster_;
    unsigned node_;
    Nanos time_, every_;
    std::mt19937_64 random_;
};

// Keeps `window` operations of one kind under way; or, with an epoch, `window` puts and gets, then a flush.
class Load {
public:
    Load(Cluster& cluster, const Options& options, unsigned from, unsigned to)
        : cluster_(cluster), options_(options), iface_(cluster.node(from).iface()), channel_(cluster.channel(from, to)),
          mine_(cluster.node(from).memory(options.size)), theirs_(cluster.node(to).memory(options.size)) {}
    void pump() {
        if (options_.op == "both") return epoch();
        while (open_ < options_.window && post(options_.op == "get")) {}
    }
    std::uint64_t bytes = 0, flushes = 0;
    [[nodiscard]] Channel& channel() { return channel_; }
    void look_at(std::vector<channel::PathLook>& paths) const { iface_.look_at_paths(channel_, paths); }

private:
    struct Op : Completion {
        Load* load;
    };
    bool post(bool get) {
        Op* op = new Op{{finished, 1, Status::ok}, this};
        const Iov iov = mine_.iov(0, options_.size);
        const Status status = get ? iface_.get_zcopy(channel_, &iov, 1, theirs_.address(), theirs_.keys, op)
                                  : iface_.put_zcopy(channel_, &iov, 1, theirs_.address(), theirs_.keys, op);
        if (status == Status::in_progress) return ++open_, true;
        delete op;
        if (status != Status::no_resource) throw std::runtime_error("post");
        return false;
    }
    void epoch() {
        while (posted_ < 2 * options_.window) {
            if (!post(options_.turns[posted_ % options_.turns.size()] == 'g')) return;
            ++posted_;
        }
        if (flushing_) return;
        Op* op = new Op{{flushed, 1, Status::ok}, this};
        const Status status = iface_.flush(channel_, op);
        if (status == Status::in_progress)
            flushing_ = true;
        else
            delete op;
        if (status == Status::ok) posted_ = 0;
    }
    static void finished(Completion* self) {
        Load& load = *static_cast<Op*>(self)->load;
        delete static_cast<Op*>(self);
        --load.open_;
        load.bytes += load.options_.size;
    }
    static void flushed(Completion* self) {
        Load& load = *static_cast<Op*>(self)->load;
        delete static_cast<Op*>(self);
        load.flushing_ = false;
        load.posted_ = 0;
        ++load.flushes;
    }

    Cluster& cluster_;
    const Options& options_;
    channel::Interface& iface_;
    Channel& channel_;
    Node::Memory mine_, theirs_;
    unsigned open_ = 0, posted_ = 0;
    bool flushing_ = false;
};

// A stream of writes of a given rate over one route at a time: somebody else's traffic.
class HotSpot {
public:
    HotSpot(softhca::sim::World& world, const Options& o)
        : world_(world), options_(o), from_(world, o.hot_from, 4096), to_(world, o.hot_to, 4096), memory_(kMessage) {
        from_.reg(memory_.data(), memory_.size());
        to_.reg(memory_.data(), memory_.size());
        for (unsigned i = 0; i < o.routes; ++i) {
            ends_.push_back(std::make_unique<softhca::sim::Rc>(from_, 512));
            ends_.push_back(std::make_unique<softhca::sim::Rc>(to_, 16));
            ends_[2 * i]->connect(*ends_[2 * i + 1], static_cast<std::uint8_t>(i));
            ends_[2 * i + 1]->connect(*ends_[2 * i], static_cast<std::uint8_t>(i));
        }
        // Payload of the route per second: 8 Gb/s less the headers on the wire.
        period_ = static_cast<Nanos>(kMessage / (o.hot * 1.0 * kMtu / (kMtu + 26)));
        start_ = world.now();
        next();
    }

private:
    static constexpr std::size_t kMessage = 16384;
    static constexpr double kMtu = 4096;
    void next() {
        const double ms = static_cast<double>(world_.now() - start_) / 1e6;
        const unsigned route =
            options_.hot_move_ms > 0 ? static_cast<unsigned>(ms / options_.hot_move_ms) % options_.routes : 0;
        ibv_wc wc[64];
        int n;
        while ((n = ibv_poll_cq(from_.cq, 64, wc)) > 0) under_way_ -= static_cast<unsigned>(n);
        // A route that is full holds it back, as it would hold back anybody; it does not pile up for ever.
        if (under_way_ < 64) {
            ends_[2 * route]->post(IBV_WR_RDMA_WRITE, from_.mrs[0], 0, kMessage, to_.mrs[0]);
            ++under_way_;
            sent += kMessage;
        }
        world_.at(world_.now() + period_, [this] { next(); });
    }
    softhca::sim::World& world_;
    const Options& options_;
    softhca::sim::Hca from_, to_;
    std::vector<std::unique_ptr<softhca::sim::Rc>> ends_;
    std::vector<char> memory_;
    Nanos period_ = 0, start_ = 0;
    unsigned under_way_ = 0;

public:
    std::uint64_t sent = 0;
};

channel::Config config_of(const Options& o) {
    channel::Config config;
    const auto choice = schedule::make_policy(o.policy, "--policy");
    if (!choice.config) throw std::runtime_error(choice.error);
    config.policy = *choice.config;
    config.paths.num_paths = o.paths;
    config.paths.split_reads = o.split_reads;
    if (o.signal_interval) config.signal_interval = o.signal_interval;
    config.transport = o.transport == "mp_rc" ? connect::Transport::rc : connect::Transport::dc;
    return config;
}

schedule::TrafficHint hint_of(const std::string& name) {
    using H = schedule::TrafficHint;
    if (name == "blocking") return H::blocking;
    if (name == "non_blocking") return H::non_blocking;
    if (name == "epoch") return H::one_sided_epoch;
    return H::none;
}

// One line per period: us since the beginning, links, then for each load its flushes and what is under way.
void trace(Cluster& cluster, const Options& o, const std::vector<std::unique_ptr<Load>>& loads) {
    perf::LinkUse use(cluster.world, o.from, o.to);
    const Nanos begin = cluster.world.now();
    std::vector<channel::PathLook> paths;
    while (static_cast<double>(cluster.world.now() - begin) < o.run_ms * 1e6) {
        use.begin();
        cluster.run_for(static_cast<Nanos>(o.trace_us * 1e3));
        std::printf("%9.1f |", static_cast<double>(cluster.world.now() - begin) / 1e3);
        for (const double share : use.shares()) std::printf(" %4.2f", share);
        for (const auto& load : loads) {
            std::printf(" | %4llu", static_cast<unsigned long long>(load->flushes));
            load->look_at(paths);
            for (const channel::PathLook& path : paths)
                std::printf("  w %5llu r %5llu", static_cast<unsigned long long>(path.writing / 1024),
                            static_cast<unsigned long long>(path.reading / 1024));
        }
        std::printf("\n");
    }
}

void bandwidth(const Options& o) {
    const unsigned nodes = std::max(o.from, o.to) + 1;
    const auto protocol = WindowTest::protocol(o.op);
    if (!protocol && o.op != "put" && o.op != "get" && o.op != "both")
        throw std::runtime_error("--op " + o.op + ": unknown");
    // Active messages carry what they are told from.
    const bool eager = protocol == WindowTest::Protocol::eager;
    Cluster cluster(o.fabric, nodes, config_of(o), {.seed = 1, .payload_limit = eager ? 0u : 1024u, .host = o.host});
    for (const std::string& fault : o.faults) cluster.world.fault(fault);
    std::vector<std::unique_ptr<Load>> loads;
    std::unique_ptr<WindowTest> test;
    if (protocol)
        test = std::make_unique<WindowTest>(cluster, o.from, o.to, *protocol, o.size, o.window);
    else
        loads.push_back(std::make_unique<Load>(cluster, o, o.from, o.to));
    if (o.back && !test) loads.push_back(std::make_unique<Load>(cluster, o, o.to, o.from));
    for (auto& load : loads) cluster.node(o.from).iface().set_hint(load->channel(), hint_of(o.hint));
    if (test) {
        test->set_hint(hint_of(o.hint));
        test->start();
    }
    std::vector<std::unique_ptr<Away>> away;
    if (o.away_us > 0)
        for (const unsigned node : {o.from, o.to}) away.push_back(std::make_unique<Away>(cluster, node, o));
    std::unique_ptr<HotSpot> hot;
    if (o.hot > 0) hot = std::make_unique<HotSpot>(cluster.world, o);
    const auto pump = [&] {
        for (auto& load : loads) load->pump();
    };
    cluster.after_progress = pump;
    pump();
    const auto run = [&](double ms) {
        const Nanos end = cluster.world.now() + static_cast<Nanos>(ms * 1e6);
        if (!cluster.until([&] { return cluster.world.now() >= end; }, static_cast<Nanos>(ms * 2e6)))
            throw std::runtime_error("nothing happens any more");
    };
    run(o.warm_up_ms);
    const auto bytes = [&] {
        std::uint64_t all = test ? test->bytes : 0;
        for (auto& load : loads) all += load->bytes;
        return all;
    };
    const auto now = [&] { return test ? test->ended : cluster.world.now(); };
    const std::uint64_t before = bytes();
    const std::uint64_t hot_before = hot ? hot->sent : 0;
    const Nanos begin = now();
    perf::LinkUse use(cluster.world, o.from, o.to);
    if (o.trace_us > 0)
        trace(cluster, o, loads);
    else
        run(o.run_ms);
    const std::uint64_t after = bytes();
    const auto time = static_cast<double>(now() - begin);
    if (time <= 0) throw std::runtime_error("--run is too short for a window");
    channel::Interface::Statistics statistics;
    cluster.node(o.from).iface().statistics(statistics);
    std::printf("MB/s %.1f other %.1f policy %s op %s size %zu window %u paths",
                1e3 * static_cast<double>(after - before) / time,
                hot ? 1e3 * static_cast<double>(hot->sent - hot_before) / time : 0.0, o.policy.c_str(), o.op.c_str(),
                o.size, o.window);
    for (const auto& channel : statistics.channels)
        for (const auto& path : channel.paths)
            std::printf(" %.1f", static_cast<double>(path.written + path.read) / 1e6);
    if (o.links) {
        std::printf(" links");
        for (const double share : use.shares()) std::printf(" %.4f", share);
    }
    std::printf("\n");
    cluster.after_progress = nullptr;
    // Operations under way are dropped with their interfaces; their completions are not called, their memory is ours.
    std::fflush(stdout);
    std::_Exit(0);
}

// Adaptive: every peer sends in every slice of time, so that the table of who has sent is as large as it gets, and
// who may have a ring or RC gets it.
void memory(const Options& o) {
    const bool adaptive = o.transport == "adaptive";
    channel::Config config = config_of(o);
    if (adaptive) {
        config.adapt.mode = channel::AdaptConfig::Mode::on;
        config.adapt.max_rings = o.rings;
        config.adapt.tuning.interval = config.adapt.tuning.min_interval = 800'000;
        config.adapt.tuning.costs = {.ring = 100, .miss = 10, .credit = 240, .make_ring = 480};
    }
    Cluster cluster(o.fabric, o.peers + 1, config, {.seed = 1});
    auto& iface = cluster.node(0).iface();
    for (unsigned peer = 1; peer <= o.peers; ++peer) {
        Channel& channel = cluster.channel(0, peer);
        if (!cluster.until([&] { return iface.am_short(channel, 1, 0, nullptr, 0) != Status::no_resource; }))
            throw std::runtime_error("no connection");
    }
    cluster.run_for(1'000'000);
    for (unsigned slice = 0; adaptive && slice < o.slices; ++slice) {
        for (unsigned peer = 1; peer <= o.peers; ++peer) // some are heavier than others
            for (unsigned i = 0; i < (peer % 16 ? 1 : 4); ++i)
                (void)cluster.node(peer).iface().am_short(cluster.channel(peer, 0), 1, 0, nullptr, 0);
        cluster.run_for(config.adapt.tuning.interval / adapt::Tuning::kSlices);
    }
    channel::Interface::Statistics s;
    iface.statistics(s);
    std::printf("peers %u paths %zu queue_pairs %u send_buffers %llu receive_buffers %llu table %llu rings %u "
                "ring_bytes %llu looks %llu\n",
                o.peers, s.channels.empty() ? 0 : s.channels[0].paths.size(), s.queue_pairs,
                static_cast<unsigned long long>(s.send_buffer_bytes),
                static_cast<unsigned long long>(s.receive_buffer_bytes),
                static_cast<unsigned long long>(s.adaptation.count_bytes), s.rings.rings,
                static_cast<unsigned long long>(s.rings.bytes), static_cast<unsigned long long>(s.adaptation.looks));
    std::fflush(stdout);
    std::_Exit(0);
}

void setup(const Options& o) {
    channel::Config config = config_of(o);
    config.receive_depth = 128; // many nodes in one process
    config.send_depth = 32;
    Cluster cluster(o.fabric, o.setup, config, {.seed = 1, .payload_limit = 512});
    std::uint64_t received = 0;
    const auto count = [](void* n, void*, std::size_t, unsigned) {
        return ++*static_cast<std::uint64_t*>(n), Status::ok;
    };
    for (unsigned i = 0; i < o.setup; ++i) cluster.node(i).on_am(1, count, &received);
    const std::uint64_t pairs = std::uint64_t{o.setup} * (o.setup - 1);
    std::vector<std::pair<unsigned, unsigned>> left;
    for (unsigned i = 0; i < o.setup; ++i)
        for (unsigned k = 1; k < o.setup; ++k) left.emplace_back(i, (i + k) % o.setup);
    const Nanos begin = cluster.world.now();
    const auto send = [&] {
        std::erase_if(left, [&](const auto& pair) {
            Channel& to = cluster.channel(pair.first, pair.second);
            return cluster.node(pair.first).iface().am_short(to, 1, 0, nullptr, 0) != Status::no_resource;
        });
    };
    // Who waits for its connection is tried again every 10 us.
    send();
    while (received < pairs && cluster.world.now() - begin < 60'000'000'000) {
        cluster.run_for(10'000);
        send();
    }
    if (received < pairs) throw std::runtime_error("not all connected after 60 s");
    std::uint64_t datagrams = 0;
    for (unsigned i = 0; i < o.setup; ++i) {
        channel::Interface::Statistics s;
        cluster.node(i).iface().statistics(s);
        datagrams += s.control.sent;
    }
    const double us = static_cast<double>(cluster.world.now() - begin) / 1e3;
    std::printf("nodes %u connections %llu us %.1f datagrams %llu\n", o.setup,
                static_cast<unsigned long long>(pairs / 2), us, static_cast<unsigned long long>(datagrams));
    std::fflush(stdout);
    std::_Exit(0);
}

} // namespace

int main(int argc, char** argv) {
    Options o;
    for (int i = 1; i < argc; ++i) {
        const std::string a = argv[i];
        const auto value = [&]() -> const char* {
            if (i + 1 == argc) {
                std::fprintf(stderr, "%s: a value is missing after %s\n", argv[0], a.c_str());
                std::exit(2);
            }
            return argv[++i];
        };
        const auto number = [&] { return static_cast<unsigned>(std::atol(value())); };
        if (a == "--fabric")
            o.fabric = value();
        else if (a == "--policy")
            o.policy = value();
        else if (a == "--op")
            o.op = value();
        else if (a == "--hint")
            o.hint = value();
        else if (a == "--transport")
            o.transport = value();
        else if (a == "--turns")
            o.turns = value();
        else if (a == "--size")
            o.size = number();
        else if (a == "--window")
            o.window = number();
        else if (a == "--paths")
            o.paths = number();
        else if (a == "--from")
            o.from = number();
        else if (a == "--to")
            o.to = number();
        else if (a == "--peers")
            o.peers = number();
        else if (a == "--rings")
            o.rings = number();
        else if (a == "--slices")
            o.slices = number();
        else if (a == "--setup")
            o.setup = number();
        else if (a == "--signal-interval")
            o.signal_interval = number();
        else if (a == "--host-post")
            o.host.post = number();
        else if (a == "--host-completion")
            o.host.completion = number();
        else if (a == "--away")
            o.away_us = std::atof(value());
        else if (a == "--every")
            o.every_us = std::atof(value());
        else if (a == "--warm-up")
            o.warm_up_ms = std::atof(value());
        else if (a == "--run")
            o.run_ms = std::atof(value());
        else if (a == "--hot")
            o.hot = std::atof(value());
        else if (a == "--hot-move")
            o.hot_move_ms = std::atof(value());
        else if (a == "--hot-from")
            o.hot_from = number();
        else if (a == "--hot-to")
            o.hot_to = number();
        else if (a == "--fault")
            o.faults.push_back(value());
        else if (a == "--trace")
            o.trace_us = std::atof(value());
        else if (a == "--links")
            o.links = true;
        else if (a == "--back")
            o.back = true;
        else if (a == "--split-reads")
            o.split_reads = true;
        else if (a == "--memory")
            o.memory = true;
        else {
            std::fprintf(stderr, "%s: unknown option %s (see the head of perf/sim_transport.cc)\n", argv[0], a.c_str());
            return 2;
        }
    }
    try {
        o.setup ? setup(o) : o.memory ? memory(o) : bandwidth(o);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "bench_sim_transport: %s\n", e.what());
        return 1;
    }
}
