#include "options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <numeric>
#include <stdexcept>

#include "uct_mp/schedule/policy_factory.h"

namespace ucx_mp::sim {

namespace {

constexpr const char* kBound = "bound";

void add_job(CLI::App& app, SimOptions& o) {
    app.add_option("--kernel,--pattern", o.kernel, kernel_names())->capture_default_str()->group("Job");
    app.add_option("--size", o.size, "bytes per message (K, M: powers of 1024)")
        ->capture_default_str()
        ->transform(CLI::AsSizeValue(false))
        ->group("Job");
    app.add_option("--messages", o.messages,
                   "messages, phases, or tasks of a kernel that has a number of them; 0: its own")
        ->capture_default_str()
        ->group("Job");
    app.add_option("--window", o.window, "messages that are started at once, in kernels of windows")
        ->capture_default_str()
        ->check(CLI::Range(1, 1024))
        ->group("Job");
    app.add_option("--compute", o.compute, "ns of computation in kernels that compute; 0: their own")
        ->capture_default_str()
        ->group("Job");
    app.add_option("--skew", o.skew, "Zipf's exponent, in kernels that draw")->capture_default_str()->group("Job");
    app.add_option("--class", o.problem, "size of applications, as NPB has them")
        ->capture_default_str()
        ->check(CLI::IsMember({"A", "B", "C"}))
        ->group("Job");
    app.add_option(
           "--mops", o.mops,
           "operations per process and us of applications; by itself as the dissertation's LU, class B: 256 s on "
           "eight processes (section 9.4)")
        ->capture_default_str()
        ->check(CLI::PositiveNumber)
        ->group("Job");
    app.add_option("--eager", o.eager, "messages up to this size are eager: no rendezvous, but copies")
        ->capture_default_str()
        ->transform(CLI::AsSizeValue(false))
        ->group("Job");
    app.add_option(
           "--rendezvous", o.rendezvous,
           "larger ones:\nput: a write, a fence, a message\nget: a request, the receiver reads, a finish message: "
           "UCP's by default")
        ->capture_default_str()
        ->check(CLI::IsMember({"put", "get"}))
        ->group("Job");
}

void add_where(CLI::App& app, SimOptions& o) {
    app.add_option("--fabric", o.fabric, "fabric file, or a name of config/fabrics")
        ->capture_default_str()
        ->group("Where");
    app.add_option("--nodes", o.nodes, "nodes that take part")
        ->capture_default_str()
        ->check(CLI::Range(1, 4096))
        ->group("Where");
    app.add_option("--of-nodes", o.of_nodes, "with --mapping random: drawn from the first so many; 0: --nodes")
        ->capture_default_str()
        ->group("Where");
    app.add_option("--ranks-per-node", o.per_node, "processes on a node, which talk to each other over the adapter")
        ->capture_default_str()
        ->check(CLI::Range(1, 64))
        ->group("Where");
    app.add_option("--ranks", o.ranks, "processes, if they don't fill the nodes; 0: nodes * ranks per node")
        ->capture_default_str()
        ->group("Where");
    app.add_option(
           "--mapping", o.mapping,
           "ranks to nodes: block (0 and 1 share a node), cyclic (they don't), or random (block, over nodes in an "
           "order that is drawn: the papers' default mapping)")
        ->capture_default_str()
        ->check(CLI::IsMember({"block", "cyclic", "random"}))
        ->group("Where");
    app.add_option("--fault", o.faults, "fault command before the run, e.g. 'rate 2Gb/s leaf1 spine1' (repeatable)")
        ->group("Where");
    app.add_option("--fault-at", o.later_faults,
                   "fault command in each measured run, behind the ns at which it comes, counted from the run's begin, "
                   "e.g. '2000000 port down 0:softhca_0:1' (repeatable); with --repeat it lasts into the next run")
        ->group("Where");
}

void add_transport(CLI::App& app, SimOptions& o) {
    app.add_option(
           "--transport", o.transports,
           "several are compared, separated by spaces or ';':\nmp_rc\nmp_dc\nadaptive: mp_dc that gives its heaviest "
           "sources RC (needs a build that can)\neager: likewise, and RC at once while there are few peers")
        ->delimiter(';')
        ->capture_default_str()
        ->check(CLI::IsMember({"mp_rc", "mp_dc", "adaptive", "eager"}))
        ->group("Transport");
    app.add_option("--module", o.module,
                   "what makes a program's messages of it:\ntransport: as --eager and --rendezvous say\npml: pml/mp's "
                   "core, with its own eager limit; writes and reads by a window")
        ->capture_default_str()
        ->check(CLI::IsMember({"transport", "pml"}))
        ->group("Transport");
    app.add_option("--adapt-interval", o.adapt_interval,
                   "adaptive, eager: ns between two looks; 0: the transport's default")
        ->capture_default_str()
        ->group("Transport");
    app.add_option("--max-rc", o.max_rc,
                   "adaptive, eager: peers that may have RC, each on all its paths; 0: the transport's default")
        ->capture_default_str()
        ->group("Transport");
    app.add_option("--rings", o.rings, "rings that a process may have for messages of its peers; 0: none")
        ->capture_default_str()
        ->group("Transport");
    app.add_option("--ring-slots", o.ring_slots,
                   "messages that a ring of 64 KiB holds, a power of two; 0: the transport's default")
        ->group("Transport");
    app.add_option("--ring-costs", o.ring_costs,
                   "adaptive, eager: ns that a ring saves a message, that a look in vain takes, that credits take, and "
                   "that making one takes, as D,P,C,DELTA. Otherwise each peer that has sent something gets a ring")
        ->group("Transport");
    app.add_option(
           "--rc-costs", o.rc_costs,
           "adaptive, eager: ns that RC saves a message, and that making it takes, as R,RHO. Otherwise measured")
        ->group("Transport");
    app.add_option("--policy", o.policies,
                   "policies to compare, separated by spaces or ';'\nbound: each process has one rail of its node only "
                   "(binding: each peer has one)\n" +
                       schedule::policy_names())
        ->delimiter(';')
        ->group("Transport");
    app.add_option("--paths", o.paths, "routes per pair of rails; 0: what the transport takes by itself")
        ->capture_default_str()
        ->group("Transport");
    app.add_option("--receives", o.receives,
                   "receive buffers per adapter and process; 0: 1024, or 256 if there are many ranks")
        ->capture_default_str()
        ->group("Transport");
    app.add_option("--dci", o.initiators, "mp_dc: initiators per rail; 0: the transport's default")
        ->capture_default_str()
        ->group("Transport");
    app.add_option("--dct", o.targets, "mp_dc: targets per rail; 0: the transport's default")
        ->capture_default_str()
        ->group("Transport");
    app.add_option("--dci-policy", o.dci_policy, "mp_dc: which of them, hash, least or quota")
        ->check(CLI::IsMember({"hash", "least", "quota"}))
        ->group("Transport");
    app.add_option("--max-conn", o.max_conn, "connections that a process may have; 0: any number")
        ->capture_default_str()
        ->group("Transport");
    app.add_option("--unlimited", o.unlimited,
                   "with --max-conn: every so manyth process, from the first, has no limit (data servers); 0: none")
        ->group("Transport");
    app.add_option("--victims", o.victims,
                   "with --max-conn, whose connection is given back: lru, lru_m, or the transport's own choice")
        ->check(CLI::IsMember({"lru", "lru_m", "own"}))
        ->capture_default_str()
        ->group("Transport");
    app.add_flag("--apm", o.apm, "mp_rc: queue pairs migrate to another route when theirs fails (UCX_MP_APM)")
        ->group("Transport");
    app.add_flag("--on-demand", o.on_demand,
                 "connections are made by the job's first messages, not before it is measured")
        ->group("Transport");
    app.add_flag("!--no-background", o.background, "who computes does not answer requests for connections meanwhile")
        ->group("Transport");
}

void add_host(CLI::App& app, SimOptions& o) {
    const char* group = "Processors (otherwise: as the fabric says)";
    app.add_option("--host-post", o.post, "ns for a request that is posted")->group(group);
    app.add_option("--host-completion", o.completion, "ns for a completion that is collected")->group(group);
    app.add_option("--host-receive", o.receive, "ns for a message taken from the completion queue")->group(group);
    app.add_option("--host-poll-miss", o.poll_miss, "ns for a ring slot looked at in vain")->group(group);
    app.add_option("--host-poll-hit", o.poll_hit, "ns for a message taken from a ring")->group(group);
    app.add_option("--host-copy", o.copy, "ns per byte that is copied")->group(group);
    app.add_option("--host-commands", o.commands, "true: verbs commands take the processor's time, by the fabric")
        ->group(group);
}

void add_runs(CLI::App& app, SimOptions& o) {
    app.add_option("--repeat", o.repeat, "times the job is run and measured: the mean counts")
        ->capture_default_str()
        ->group("Runs");
    app.add_option("--warm-up", o.warm_up, "runs before, not measured: learning policies")
        ->capture_default_str()
        ->group("Runs");
    app.add_option("--late", o.late, "ns that ranks begin late, each up to so many, drawn anew for every run")
        ->capture_default_str()
        ->group("Runs");
    app.add_option("--seed", o.seed, "of everything random")->capture_default_str()->group("Runs");
    app.add_option("--seeds", o.seeds, "so many of them, from --seed on: median, least and most are printed")
        ->capture_default_str()
        ->check(CLI::Range(1, 1000))
        ->group("Runs");
    app.add_option("--csv", o.csv, "also write the table to this file")->group("Runs");
    app.add_option("--trace", o.trace, "write whom each rank talks to, in order, one rank a line, and do no more")
        ->group("Runs");
    app.add_option("--transfers", o.transfers,
                   "write who has written or read how much when in the measured runs, a line each (CSV)")
        ->group("Runs");
    app.add_option("--links", o.links, "write how many bytes each link has carried in the measured runs (CSV)")
        ->group("Runs");
    app.add_option("--kinds", o.kinds,
                   "write how messages come, over DC or RC, into rings or not, while all runs go on, warm-up too (CSV)")
        ->group("Runs");
    app.add_option("--kinds-every", o.kinds_every, "ns between two lines of it")
        ->capture_default_str()
        ->check(CLI::PositiveNumber)
        ->group("Runs");
    app.add_flag(
           "--bound", o.bound,
           "also print what the links need for it over these routes: if all is sent at once, which is the least, and "
           "if all ranks do each step together; and what the busiest processor needs")
        ->group("Runs");
    app.add_flag("--quiet", o.quiet, "no progress on standard error")->group("Runs");
}

} // namespace

SimOptions parse(int argc, char** argv) {
    SimOptions o;
    CLI::App app{
        "Jobs of many processes over mp_rc / mp_dc in virtual time, one run per transport and policy.\n"
        "Example: mp_sim --fabric fattree-144 --nodes 64 --kernel alltoall --size 64K --policy binding,hsam,spray\n"
        "         mp_sim --fabric connect-ib-64 --kernel onetoall --size 1 --transport 'mp_rc;mp_dc' --policy binding"};
    add_job(app, o);
    add_where(app, o);
    add_transport(app, o);
    add_host(app, o);
    add_runs(app, o);
    try {
        app.parse(argc, argv);
        // The routes are those of connections, which must be there before the job.
        if (o.bound && o.on_demand) throw CLI::ExcludesError("--bound", "--on-demand");
        if (o.module == "pml" && !o.transfers.empty()) throw CLI::ExcludesError("--module pml", "--transfers");
    } catch (const CLI::ParseError& error) { std::exit(app.exit(error)); }
    return o;
}

std::vector<unsigned> hosts_of(const SimOptions& o, std::uint64_t seed) {
    const unsigned ranks = o.ranks ? o.ranks : o.nodes * o.per_node;
    if (ranks < 2) throw std::runtime_error("--ranks: at least two processes");
    if (ranks > o.nodes * o.per_node)
        throw std::runtime_error("--ranks " + std::to_string(ranks) +
                                 ": --nodes times --ranks-per-node have room for " +
                                 std::to_string(o.nodes * o.per_node));
    std::vector<unsigned> nodes(std::max(o.nodes, o.of_nodes));
    std::iota(nodes.begin(), nodes.end(), 0u);
    if (o.mapping == "random") {
        std::mt19937_64 random(seed);
        for (auto i = static_cast<unsigned>(nodes.size()); i > 1; --i) std::swap(nodes[i - 1], nodes[random() % i]);
    }
    std::vector<unsigned> hosts(ranks);
    for (unsigned i = 0; i < ranks; ++i) hosts[i] = nodes[o.mapping == "cyclic" ? i % o.nodes : i / o.per_node];
    return hosts;
}

std::vector<std::pair<softhca::Nanos, std::string>> later_faults(const SimOptions& o) {
    std::vector<std::pair<softhca::Nanos, std::string>> found;
    for (const std::string& text : o.later_faults) {
        softhca::Nanos at = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), at);
        if (error != std::errc() || *end != ' ')
            throw std::runtime_error("--fault-at '" + text +
                                     "': a number of ns, a space and a fault command are allowed");
        found.emplace_back(at, end + 1);
    }
    return found;
}

std::vector<verbs::DeviceConfig> rails_of(const SimOptions& o, const std::string& policy,
                                          const std::vector<unsigned>& hosts) {
    std::vector<verbs::DeviceConfig> rails;
    if (policy != kBound) return rails;
    softhca::sim::World world(o.fabric, {});
    std::map<unsigned, unsigned> before; // ranks of each node
    for (const unsigned host : hosts) {
        world.select(host, 0);
        verbs::DeviceSet devices;
        std::string error;
        if (failed(verbs::DeviceSet::open({}, devices, error))) throw std::runtime_error(error);
        const auto& of_node = devices.rails();
        rails.push_back({{of_node[before[host]++ % of_node.size()].name}});
    }
    return rails;
}

KernelOptions kernel_options(const SimOptions& o, std::uint64_t seed) {
    return {.ranks = o.ranks ? o.ranks : o.nodes * o.per_node,
            .size = o.size,
            .messages = o.messages,
            .window = o.window,
            .compute = o.compute,
            .skew = o.skew,
            .problem = o.problem[0],
            .mops = o.mops,
            .per_node = o.per_node,
            .seed = seed};
}

namespace {

// The limit of connections is named by the interface's configuration, if it has one.
template <class Config>
void limit_connections(Config& config, std::uint64_t n, [[maybe_unused]] const std::string& victims) {
    if (n == 0) return;
    if constexpr (requires { config.max_connections; }) {
        using Policy = decltype(config.victims);
        config.max_connections = static_cast<decltype(config.max_connections)>(n);
        if (victims == "lru") config.victims = Policy::lru;
        if (victims == "lru_m") config.victims = Policy::lru_m;
    } else
        throw std::runtime_error("--max-conn: this build has no limit of connections");
}

template <class Config> void adapt(Config& config, const SimOptions& o, const std::string& transport) {
    if constexpr (requires { config.adapt.mode; }) {
        using Mode = decltype(config.adapt.mode);
        config.adapt.mode = transport == "eager" ? Mode::eager : Mode::on;
        if (o.adapt_interval) {
            config.adapt.tuning.interval = o.adapt_interval;
            config.adapt.tuning.min_interval = std::min(config.adapt.tuning.min_interval, o.adapt_interval);
        }
        if (o.max_rc) config.adapt.max_rc = o.max_rc;
        if (o.rc_costs.empty()) return;
        config.adapt.measured = false;
        auto& costs = config.adapt.tuning.costs;
        if (std::sscanf(o.rc_costs.c_str(), "%lf,%lf", &costs.rc, &costs.make_rc) != 2)
            throw std::runtime_error("--rc-costs \"" + o.rc_costs + "\": give two numbers, as 50,10000");
    } else
        throw std::runtime_error("--transport " + transport + ": this build has no adaptive selection");
}

template <class Config> void add_rings(Config& config, const SimOptions& o, bool adaptive) {
    if (o.rings == 0) return;
    if constexpr (requires { config.adapt.max_rings; }) {
        config.adapt.max_rings = o.rings;
        config.adapt.rings_at_once = !adaptive;
        if (o.ring_slots) config.adapt.ring = {o.ring_slots, 65536 / o.ring_slots};
        if (!config.adapt.ring.valid()) throw std::runtime_error("--ring-slots: a power of two, 2 to 1024");
        if (!adaptive) {
            if (o.adapt_interval) config.adapt.tuning.interval = o.adapt_interval;
            return;
        }
        auto& costs = config.adapt.tuning.costs;
        if (std::sscanf(o.ring_costs.c_str(), "%lf,%lf,%lf,%lf", &costs.ring, &costs.miss, &costs.credit,
                        &costs.make_ring) != 4)
            throw std::runtime_error("--ring-costs \"" + o.ring_costs + "\": give four numbers, as 100,10,300,100000");
    } else
        throw std::runtime_error("--rings: this build has no rings");
}

} // namespace

channel::Config config_of(const SimOptions& o, const std::string& transport, const std::string& policy) {
    const auto choice = schedule::make_policy(policy == kBound ? "binding" : policy, "--policy");
    if (!choice.config) throw std::runtime_error(choice.error);
    channel::Config config;
    config.transport = transport == "mp_rc" ? connect::Transport::rc : connect::Transport::dc;
    if (transport == "adaptive" || transport == "eager") adapt(config, o, transport);
    add_rings(config, o, transport == "adaptive" || transport == "eager");
    config.policy = *choice.config;
    config.paths.num_paths = o.paths;
    // Small: what a simulation needs, not what a node has. Payload is not carried.
    if (o.module == "transport")
        config.segment = static_cast<unsigned>(std::clamp<std::uint64_t>(o.eager + 64, 1024, 65536));
    config.send_depth = 32;
    config.receive_depth = o.receives                                               ? o.receives
                           : o.module == "transport" && o.nodes * o.per_node <= 256 ? 1024
                                                                                    : 256;
    config.window = 64;
    config.completion_depth = 1024;
    config.background = o.background;
    config.apm = o.apm;
    // Who is asked only has no endpoint of its own; that is no reason here to give a connection back.
    config.max_unused = std::max(config.max_unused, 4 * o.nodes * o.per_node);
    if (o.initiators) config.dci_count = o.initiators;
    if (o.targets) config.dct_count = o.targets;
    if (o.dci_policy == "least") config.dci_policy = channel::DciPolicy::least;
    if (o.dci_policy == "quota") config.dci_policy = channel::DciPolicy::quota;
    limit_connections(config, o.max_conn, o.victims);
    return config;
}

softhca::sim::HostCosts host_costs(const SimOptions& o, const softhca::sim::HostCosts& fabric) {
    softhca::sim::HostCosts costs = fabric;
    costs.post = o.post.value_or(costs.post);
    costs.completion = o.completion.value_or(costs.completion);
    costs.receive = o.receive.value_or(costs.receive);
    costs.poll_miss = o.poll_miss.value_or(costs.poll_miss);
    costs.poll_hit = o.poll_hit.value_or(costs.poll_hit);
    costs.copy = o.copy.value_or(costs.copy);
    costs.commands = o.commands.value_or(costs.commands);
    return costs;
}

} // namespace ucx_mp::sim
