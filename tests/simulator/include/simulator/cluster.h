// The real transport on many nodes in one process, in virtual time: what tests, fault campaigns and experiments share.
//
//     Cluster cluster("two-rail", 2);
//     Channel& to = cluster.node(0).channel(1);
//     cluster.until([&] { return cluster.node(0).iface().am_short(to, ...) != Status::no_resource; });
//
// Single threaded, deterministic: the same calls with the same seed give the same bytes at the same times.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "simulator/process.h"
#include "uct_mp/channel/beside.h"
#include "uct_mp/channel/core.h"
#include "uct_mp/channel/statistics.h"
#include "uct_mp/interface/open.h"

namespace ucx_mp::sim {

using channel::Channel;
using channel::Completion;
using channel::Iov;

class SimServices final : public SimTimers {
public:
    SimServices(softhca::sim::World& world, unsigned node, unsigned host)
        : SimTimers(world), node_(node), host_(host) {}
    Nanos now() override { return aside_at_ ? aside_at_ : world_.now_at(node_) + spent; }
    bool logs(LogLevel level) const override { return level <= threshold; }
    void log(LogLevel level, const char* line) override {
        warnings += level == LogLevel::warn;
        if (level <= kept) said.emplace_back(line);
        if (level == LogLevel::error) {
            ++errors;
            last_error = line;
        }
        if (!quiet) std::printf("%12.3f us  node %u  %s\n", static_cast<double>(now()) / 1e3, node_, line);
    }

    // A processor of its own: its commands take time, but none of the node's. What it does is seen at once, so `work`
    // says by now() when it has been done. A list of devices is that of the node which asks.
    bool aside(std::function<void()> work) override {
        refused_aside += refuses_aside;
        if (refuses_aside || now() < aside_until_) return false;
        ++taken_aside;
        world_.select(host_, node_);
        aside_at_ = now();
        auto before = world_.on_command([this](Nanos cost) { aside_at_ += cost; });
        const bool taken = SimTimers::aside(std::move(work));
        world_.on_command(std::move(before));
        aside_until_ = std::exchange(aside_at_, 0);
        return taken;
    }

    bool wait(Nanos t) override { return on_wait && on_wait(t); }
    std::function<bool(Nanos)> on_wait; // lets time pass for who closes
    std::function<void()> on_due;       // a timer waits for the node's turn

    LogLevel threshold = std::getenv("TESTS_LOG") ? LogLevel::debug : LogLevel::warn;
    bool quiet = false;                          // counts, but does not print
    bool refuses_aside = false;                  // there is no such processor
    unsigned refused_aside = 0, taken_aside = 0; // so often
    unsigned errors = 0, warnings = 0;
    std::string last_error;
    LogLevel kept = LogLevel::warn; // lines up to this level, in
    std::vector<std::string> said;

private:
    void became_due() override {
        if (on_due) on_due();
    }
    const unsigned node_, host_;
    Nanos aside_at_ = 0, aside_until_ = 0; // 0: not at it
};

// What an interface has looked at in memory without a verbs call, ever: slots of its rings, in vain or not.
struct RingLooks {
    std::uint64_t misses = 0, hits = 0;
};

// One process with one interface. Its processor has its index; `host`: the fabric's node that it is on.
class Node final : public channel::Events {
public:
    Node(softhca::sim::World& world, unsigned index, unsigned host, const channel::Config& config,
         const verbs::DeviceConfig& rails = {})
        : world_(world), index_(index), host_(host), background_(config.background), recovers_(config.recovery.thread),
          services_(world, index, host) {
        world.select(host, index);
        std::string error;
        if (failed(verbs::DeviceSet::open(rails, devices_, error))) throw std::runtime_error(error);
        for (auto& handler : handlers_) handler = {ignore, nullptr, 0};
        if (failed(open_interface(devices_, config, services_, *this, heap_.keys, handlers_, iface_, error)))
            throw std::runtime_error(error);
    }
    Node(softhca::sim::World& world, unsigned index, const channel::Config& config,
         const verbs::DeviceConfig& rails = {})
        : Node(world, index, index, config, rails) {}
    ~Node() { close(); }
    [[nodiscard]] channel::Interface& iface() { return *iface_; }
    // Ends the interface, as a program does that has no more to say; memory stays. From outside of callbacks.
    void close() { iface_.reset(); }
    [[nodiscard]] bool closed() const { return !iface_; }
    [[nodiscard]] const verbs::DeviceSet& devices() const { return devices_; }
    [[nodiscard]] SimServices& services() { return services_; }
    [[nodiscard]] unsigned index() const { return index_; }
    [[nodiscard]] unsigned host() const { return host_; }

    void on_am(unsigned id, Status (*fn)(void*, void*, std::size_t, unsigned), void* arg) {
        handlers_[id] = {fn, arg, 0};
    }
    bool asleep = false; // Cluster::sleep
    std::function<void(Channel&)> on_room;
    std::function<void(Channel&, Status)> on_failure;

    using Memory = SimMemory; // lives as long as the node
    [[nodiscard]] Memory memory(std::size_t size) { return heap_.allocate(devices_, size); }

    // The program computes, after what its processor has to do; then it calls `then`. Its adapters work on meanwhile,
    // and with Config::background its control plane. Not while it computes.
    void compute(Nanos time, std::function<void()> then) {
        if (computing_) throw std::logic_error("a node that computes cannot compute");
        computing_ = true;
        (void)world_.at(world_.now_at(index_) + time, [this, then = std::move(then)] {
            computing_ = false;
            resume_ = then;
            if (services_.on_due) services_.on_due();
        });
    }
    [[nodiscard]] bool computing() const { return computing_; }
    [[nodiscard]] bool busy() const { return computing_ || world_.now_at(index_) > world_.now(); } // its processor
    [[nodiscard]] bool waiting() const { return resume_ || services_.has_due(); }                  // for its turn
    // The program does something that takes its processor `cost`: copies, packs.
    void spend(Nanos cost) { world_.spend(host_, index_, cost); }
    // Each call of progress() costs what it has looked at: the interface's rings, or what is said here.
    std::function<RingLooks()> ring_looks;
    // The program's own turn, behind each call of progress(), while its processor is free. False: it had nothing to do.
    std::function<bool()> on_turn;

    // Everything that can be done now. False: nothing was. Not while its processor is busy: it is touched when it is
    // through.
    bool progress() {
        if (closed() || asleep) return false;
        if (computing_) return background_ && beside();
        bool any = false;
        for (bool some = true; some && !busy(); any = any || some) {
            some = resume();
            some |= hand_out() != 0; // before timers
            some |= services_.run_due() != 0;
            some |= advance() != 0;
            some |= own_turn();
        }
        return any;
    }

private:
    bool resume() {
        if (!resume_) return false;
        std::exchange(resume_, {})();
        return true;
    }
    // What UCX's async thread does (uct_mp/ucx/background.cc); with RecoveryConfig::thread it recovers as well.
    bool beside() {
        bool any = services_.run_background() | (iface_->serve() != 0);
        if (!recovers_) return any;
        bool told = channel::beside(*iface_).fault_is_told();
        for (const auto& fds : {channel::beside(*iface_).fault_fds(), channel::beside(*iface_).failure_fds()})
            for (const int fd : fds) {
                pollfd polled{fd, POLLIN, 0};
                told |= poll(&polled, 1, 0) > 0;
            }
        if (!told && !recovering_) return any;
        const auto [found, next] = channel::beside(*iface_).recover([this] { return unsigned{services_.run_due()}; });
        recovering_ = next != 0;
        if (!next || recovery_timer_) return any | (found != 0);
        recovery_timer_ = services_.at_in_background(next, [this] { recovery_timer_ = 0; });
        return any | (found != 0);
    }
    bool hand_out() { return channel::beside(*iface_).hand_out() != 0; } // as UCX's face does, before timers
    bool own_turn() { return on_turn && !busy() && on_turn(); }
    bool advance() {
        const bool any = iface_->progress() != 0;
        const auto [hits, misses] = iface_->ring_looks();
        const RingLooks now = ring_looks ? ring_looks() : RingLooks{.misses = misses, .hits = hits};
        const RingLooks before = std::exchange(looks_, now);
        // Who finds nothing would have waited meanwhile: that costs nobody anything (and would come again for ever).
        if (now.misses + now.hits != before.misses + before.hits && (any || ring_looks)) {
            const softhca::sim::HostCosts& costs = world_.host_costs();
            spend((now.misses - before.misses) * costs.poll_miss + (now.hits - before.hits) * costs.poll_hit);
        }
        return any;
    }
    void recover_soon() override { recovering_ = recovers_; }
    static Status ignore(void*, void*, std::size_t, unsigned) { return Status::ok; }
    void room(Channel& channel) override {
        if (on_room) on_room(channel);
    }
    void peer_failed(Channel& channel, Status status) override {
        if (on_failure)
            on_failure(channel, status);
        else
            throw std::runtime_error("node " + std::to_string(index_) +
                                     ": peer failed: " + std::to_string(int(status)));
    }

    softhca::sim::World& world_;
    const unsigned index_, host_;
    const bool background_, recovers_;
    bool computing_ = false;
    bool recovering_ = false; // more turns are wanted
    Services::Timer recovery_timer_ = 0;
    std::function<void()> resume_; // what it does when it has computed
    RingLooks looks_;
    SimServices services_;
    verbs::DeviceSet devices_;
    SimHeap heap_;
    channel::AmHandler handlers_[channel::kAmIds];
    std::unique_ptr<channel::Interface> iface_;
};

class Cluster {
public:
    // `fabric`: a file or a name of config/fabrics; the first `nodes` nodes of it.
    Cluster(const std::string& fabric, unsigned nodes, channel::Config config = {}, softhca::sim::Options options = {},
            const verbs::DeviceConfig& rails = {}, const std::vector<std::string>& faults = {})
        : world(fabric, options) {
        for (const std::string& fault : faults) world.fault(fault); // before anybody looks
        open(nodes, config, options, rails);
    }
    // The same for who makes many of them: the fabric is read once.
    Cluster(const softhca::FabricImage& image, unsigned nodes, channel::Config config = {},
            softhca::sim::Options options = {}, const verbs::DeviceConfig& rails = {},
            const std::vector<std::string>& faults = {})
        : world(image, options) {
        for (const std::string& fault : faults) world.fault(fault);
        open(nodes, config, options, rails);
    }
    // Nodes whose settings differ: one for each.
    Cluster(const std::string& fabric, const std::vector<channel::Config>& configs,
            const softhca::sim::Options& options = {})
        : world(fabric, options) {
        for (const channel::Config& config : configs) open_one(config, options, {}, size());
    }
    // Several nodes (processes) on one of the fabric's nodes: where each of them is.
    Cluster(const std::string& fabric, const std::vector<unsigned>& hosts, const channel::Config& config,
            const softhca::sim::Options& options)
        : world(fabric, options) {
        for (const unsigned host : hosts) open_one(config, options, {}, host);
    }
    // Likewise, with settings of their own. `rails`: which each of them uses; empty: all use every rail.
    Cluster(const std::string& fabric, const std::vector<unsigned>& hosts, const std::vector<channel::Config>& configs,
            const softhca::sim::Options& options, const std::vector<verbs::DeviceConfig>& rails = {})
        : world(fabric, options) {
        for (std::size_t i = 0; i < hosts.size(); ++i)
            open_one(configs[i], options, rails.empty() ? verbs::DeviceConfig{} : rails[i], hosts[i]);
    }
    // One more.
    Node& add(const channel::Config& config, unsigned host) {
        open_one(config, {}, {}, host);
        return *nodes_.back();
    }
    // The node whose callbacks are running.
    [[nodiscard]] unsigned progressing() const { return progressing_; }
    std::function<void()> after_progress; // outside of callbacks, after something has happened
    ~Cluster() {                          // all at once: no time passes any more
        for (auto& node : nodes_) node->services().on_wait = {};
        nodes_.clear();
    }

    softhca::sim::World world;
    [[nodiscard]] Node& node(unsigned i) { return *nodes_[i]; }
    [[nodiscard]] unsigned size() const { return static_cast<unsigned>(nodes_.size()); }
    // From node `a` to node `b` (may be the same).
    [[nodiscard]] Channel& channel(unsigned a, unsigned b) {
        std::string error;
        Channel* channel = node(a).iface().attach(node(b).iface().address(), error);
        if (!channel) throw std::runtime_error(error);
        return *channel;
    }

    // A node that sleeps makes no progress, as a program that computes; its adapters work on.
    void sleep(unsigned i, bool asleep) { nodes_[i]->asleep = asleep; }

    // Steps the clock, progressing whoever has something to do, until the condition holds; false: not by `limit` ns
    // from now, or nothing happens any more.
    bool until(const std::function<bool()>& condition, Nanos limit = 10'000'000'000) {
        const Nanos end = world.now() + limit;
        (void)settle_all();
        while (!condition()) {
            if (world.now() > end || !world.step()) return false;
            settle();
        }
        return true;
    }
    void run_for(Nanos time) {
        const Nanos end = world.now() + time;
        (void)until([&] { return world.now() >= end; }, time);
    }
    bool settle_all() {
        bool any = false;
        for (auto& node : nodes_) any |= progress(*node);
        if (any && after_progress) after_progress();
        return settle() | any;
    }
    // Everything that can be done at this moment. False: there was nothing.
    bool settle() {
        for (bool before = false;;) {
            bool any = false;
            const auto touched = world.touched();
            scratch_.assign(touched.begin(), touched.end());
            for (const std::uint32_t host : scratch_)
                if (host < by_host_.size())
                    for (Node* node : by_host_[host]) any |= progress(*node);
            any |= run_due();
            if (any && after_progress) after_progress();
            if (!any) return before;
            before = true;
        }
    }

private:
    void open(unsigned nodes, const channel::Config& config, const softhca::sim::Options& options,
              const verbs::DeviceConfig& rails) {
        for (unsigned i = 0; i < nodes; ++i) open_one(config, options, rails, i);
    }
    // Whose timers are due, in order.
    bool run_due() {
        if (due_.empty()) return false;
        bool any = false;
        std::vector<unsigned> due = std::exchange(due_, {});
        std::sort(due.begin(), due.end());
        due.erase(std::unique(due.begin(), due.end()), due.end());
        for (const unsigned i : due) {
            any |= progress(node(i));
            if (node(i).waiting()) due_.push_back(i); // it has had no turn
        }
        return any;
    }
    void open_one(channel::Config config, const softhca::sim::Options& options, const verbs::DeviceConfig& rails,
                  unsigned host) {
        if (host >= world.nodes()) throw std::runtime_error("the fabric has no node " + std::to_string(host));
        const unsigned i = size();
        config.control_interval = config.event_interval = 1;
        // Progress is called only when there is something to be found. Who sets other intervals knows what he does.
        const channel::Config defaults;
        if (config.quiet_interval == defaults.quiet_interval) config.quiet_interval = 1;
        if (config.silent_interval == defaults.silent_interval) config.silent_interval = 1;
        if (config.completion_depth > 1024) config.completion_depth = 1024;
        config.seed = options.seed * 1'000'003 + i + 1;
        nodes_.push_back(std::make_unique<Node>(world, i, host, config, rails));
        nodes_.back()->services().on_wait = [this](Nanos t) { return pass(t); };
        nodes_.back()->services().on_due = [this, i] { due_.push_back(i); };
        if (by_host_.size() <= host) by_host_.resize(host + 1);
        by_host_[host].push_back(nodes_.back().get());
    }
    // While one closes, the others go on.
    bool pass(Nanos time) {
        bool over = false;
        (void)world.at(world.now() + time, [&over] { over = true; });
        while (!over && world.step())
            for (auto& node : nodes_) (void)progress(*node);
        return over;
    }
    bool progress(Node& node) {
        progressing_ = node.index();
        return node.progress();
    }
    std::vector<std::unique_ptr<Node>> nodes_;
    std::vector<std::vector<Node*>> by_host_;
    std::vector<unsigned> due_; // nodes that wait for their turn
    std::vector<std::uint32_t> scratch_;
    unsigned progressing_ = 0;
};

} // namespace ucx_mp::sim
