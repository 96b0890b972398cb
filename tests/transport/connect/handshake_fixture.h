// Nodes that connect through the control plane, in virtual time: an owner that makes real queue pairs and sends a
// message over every path.
#pragma once

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "softhca/fabric.h"
#include "softhca/world.h"
#include "uct_mp/connect/control_plane.h"
#include "uct_mp/verbs/queue_pair.h"

namespace ucx_mp::test {

using connect::Connection;
using connect::ControlConfig;
using connect::State;
using softhca::sim::World;

inline constexpr Nanos kMicro = 1'000, kMilli = 1'000'000, kSecond = 1'000'000'000;

// A fabric of crossbars (no wires, no subnet manager needed). rails[i] are the subnets of node i's adapters, e.g. "ab".
inline std::unique_ptr<World> make_world(const std::vector<std::string>& rails,
                                         const std::map<char, unsigned>& lmc = {}, std::uint64_t seed = 1,
                                         const std::string& adapter = "{}") {
    std::string text = "name: test\nadapters:\n  card: " + adapter + "\nnodes:\n";
    std::map<char, std::string> ports;
    for (std::size_t n = 0; n < rails.size(); ++n) {
        const std::string node = "n" + std::to_string(n);
        text += "  - {name: " + node + ", adapters: [";
        for (std::size_t i = 0; i < rails[n].size(); ++i) {
            text += i ? ", card" : "card";
            ports[rails[n][i]] += (ports[rails[n][i]].empty() ? "'" : ", '") + node + ":" + std::to_string(i) + "'";
        }
        text += "]}\n";
    }
    text += "subnets:\n";
    for (const auto& [name, members] : ports) {
        const auto l = lmc.find(name);
        text += std::string("  - {name: ") + name +
                ", crossbar: true, rate: SDR 4x, lmc: " + std::to_string(l == lmc.end() ? 0 : l->second) +
                ", ports: [" + members + "]}\n";
    }
    const softhca::FabricBlock fabric = softhca::parse_fabric(text, "test.yaml");
    auto world = std::make_unique<World>(fabric.image(),
                                         softhca::sim::Options{.seed = seed, .payload_limit = 0, .start = kSecond});
    world->fault("delay 2us all"); // a crossbar has no latency of its own
    return world;
}

class SimServices : public Services {
public:
    explicit SimServices(World& world) : world_(world) {}
    Nanos now() override { return world_.now(); }
    Timer at(Nanos t, std::function<void()> fn) override { return world_.at(t, std::move(fn)) + 1; }
    void cancel(Timer timer) override { world_.cancel(timer - 1); }
    [[nodiscard]] bool logs(LogLevel level) const override { return level <= shown; }
    void log(LogLevel level, const char* line) override {
        errors += level == LogLevel::error;
        std::fprintf(stderr, "%12.3f us  %s\n", double(world_.now() - kSecond) * 1e-3, line);
    }
    unsigned errors = 0;
    LogLevel shown = std::getenv("TESTS_LOG") ? LogLevel::trace : LogLevel::error;

private:
    World& world_;
};

// What travels over every path at the end.
struct Greeting {
    std::uint64_t uid = 0;
    std::uint32_t path = 0, incarnation = 0;
};

struct Peer {
    Connection connection;
    std::vector<verbs::QueuePair> queue_pairs;
    unsigned times_established = 0, times_failed = 0, times_abandoned = 0;
    Status status = Status::ok;
    std::string why;
    std::vector<unsigned> greetings; // received, per path
    std::vector<connect::Answer> answers, parted;
};

class Node : public connect::Ends, public connect::Peers, public connect::News {
public:
    Node(World& world, std::uint32_t index, ControlConfig config, SimServices& services)
        : world_(world), index(index), services_(services) {
        world.select(index);
        std::string error;
        verbs::DeviceConfig all; // by name: so that a port that is not active counts, too
        for (std::uint32_t i = 0; i < world.image().node(index).devices; ++i)
            all.rails.push_back("softhca_" + std::to_string(i) + ":1");
        if (ucx_mp::failed(verbs::DeviceSet::open(all, devices, error))) throw std::runtime_error(error);
        for (const verbs::Device& d : devices.devices()) {
            Queues& q = queues_.emplace_back();
            q.cq.reset(ibv_create_cq(d.context.get(), 1024, nullptr, nullptr, 0));
            ibv_srq_init_attr init{};
            init.attr = {kReceives, 1, 0};
            q.srq.reset(ibv_create_srq(d.pd.get(), &init));
            q.memory.resize(kReceives + 1);
            q.mr.reset(
                ibv_reg_mr(d.pd.get(), q.memory.data(), q.memory.size() * sizeof(Greeting), IBV_ACCESS_LOCAL_WRITE));
            if (!q.cq || !q.srq || !q.mr) throw std::runtime_error("verbs objects");
            for (unsigned i = 0; i < kReceives; ++i) post_receive(q, i);
        }
        config.seed = config.seed * 1000 + index + 1;
        if (ucx_mp::failed(connect::ControlPlane::open(devices, config, services, {*this, *this, *this}, plane, error)))
            throw std::runtime_error(error);
    }

    // ---- Owner
    Connection* accept(std::uint64_t uid) override {
        return peers.size() < most_peers ? &make(uid).connection : nullptr;
    }
    Connection* find(std::uint64_t uid) override {
        const auto found = by_uid_.find(uid);
        return found == by_uid_.end() ? nullptr : &found->second->connection;
    }
    Connection* find_local(std::uint32_t id) override {
        const auto found = peers.find(id);
        return found == peers.end() ? nullptr : &found->second->connection;
    }
    Status make_end(Connection& c, std::size_t i) override {
        if (failing_makes) {
            --failing_makes;
            return make_failure;
        }
        if (!c.has_end(i)) return Status::ok;
        Peer& p = peer(c);
        const verbs::Rail& rail = devices.rails()[c.server ? c.paths[i].server_rail : c.paths[i].client_rail];
        Queues& q = queues_[rail.device];
        verbs::QueuePair qp = verbs::create_rc(devices.device_of(rail), rail, {q.cq.get(), q.cq.get(), q.srq.get()},
                                               {.send_wr = 4, .send_sge = 1, .inline_bytes = 32}, nullptr);
        if (!qp) return Status::no_memory;
        by_qpn_[{rail.device, qp->qp_num}] = {&p, unsigned(i)};
        c.ends[i].qp_number = qp->qp_num;
        p.queue_pairs.push_back(std::move(qp));
        return Status::ok;
    }
    Status connect_end(Connection& c, std::size_t i) override {
        if (!c.has_end(i)) return Status::ok;
        Peer& p = peer(c);
        const path::PathSpec& s = c.paths[i];
        const verbs::Rail& rail = devices.rails()[c.server ? s.server_rail : s.client_rail];
        const path::RemoteRail& remote = c.remote_rails.at(c.server ? s.client_rail : s.server_rail);
        const verbs::RemoteEnd end{.dlid = std::uint16_t(remote.lid + (c.server ? s.client_bits : s.server_bits)),
                                   .source_path_bits = c.server ? s.server_bits : s.client_bits,
                                   .mtu = std::min(rail.mtu, remote.mtu),
                                   .qp_number = c.remote_ends.at(i).qp_number,
                                   .rq_psn = c.remote_ends[i].psn};
        if (verbs::connect_rc(p.queue_pairs[i].get(), rail, end, {}, c.ends[i].psn) != 0) return Status::io_error;
        p.greetings.assign(c.paths.size() - c.absent, 0);
        return Status::ok;
    }
    void drop_ends(Connection& c) override { drop(peer(c)); }
    void established(Connection& c) override { ++peer(c).times_established; }
    void failed(Connection& c, Status status, const char* why) override {
        Peer& p = peer(c);
        ++p.times_failed;
        p.status = status;
        p.why = why;
    }
    void answered(Connection& c, connect::Answer answer) override { peer(c).answers.push_back(answer); }
    void abandoned(Connection& c) override { ++peer(c).times_abandoned; }
    void ended(Connection& c, const connect::Goodbye& goodbye) override {
        if (on_ended) on_ended(c, goodbye);
    }
    void parted(Connection& c, connect::Answer answer) override { peer(c).parted.push_back(answer); }
    std::function<void(Connection&, const connect::Goodbye&)> on_ended;
    // What the peer has told of paths and the like, so often.
    void path_news(Connection&, connect::NewsKind, const connect::PathNews&) override { ++told; }
    void rails_told(Connection&, std::uint32_t, const std::vector<path::RemoteRail>&) override { ++told; }
    bool find_keys(std::uint64_t, verbs::RemoteKeys&) override { return ++told, false; }
    void keys_told(Connection&, bool, const verbs::RemoteKeys&) override { ++told; }
    void wished(Connection&, const connect::ServiceWish&) override { ++told; }
    void wish_answered(Connection&, std::uint32_t, bool) override { ++told; }
    void ring_offered(Connection&, const connect::RingOffer&) override { ++told; }
    void ring_answered(Connection&, std::uint32_t, bool, std::uint32_t) override { ++told; }
    unsigned told = 0;
    Connection* renew(Connection& c) override { return ++renewed, renews ? &c : nullptr; }
    bool carries_data(Connection&) override { return carries; }
    bool admits(Connection&) override { return !full; }
    std::string misfit(const connect::Terms&) override { return unfit; }
    std::string unfit; // why no peer's terms will do

    // ---- The test's side
    Peer& make(std::uint64_t uid) {
        auto owned = std::make_unique<Peer>();
        Peer& p = *owned;
        p.connection.local_id = next_id_++;
        peers[p.connection.local_id] = std::move(owned);
        by_uid_[uid] = &p;
        return p;
    }
    Peer& connect_to(const Node& other) { return connect_to(other.plane->address()); }
    Peer& connect_to(const connect::InterfaceAddress& address) {
        Connection* known = find(address.uid);
        Peer& p = known ? peer(*known) : make(address.uid);
        p.connection.take_address(address);
        if (p.connection.state == State::closed) plane->start(p.connection);
        return p;
    }
    // As if the owner had no more use for it.
    void forget(Peer& p) {
        plane->forget(p.connection);
        drop(p);
    }
    void erase(Peer& p) { // memory included
        forget(p);
        by_uid_.erase(p.connection.peer.uid);
        peers.erase(p.connection.local_id);
    }
    Peer* peer_of(const Node& other) {
        const auto found = by_uid_.find(other.plane->address().uid);
        return found == by_uid_.end() ? nullptr : found->second;
    }
    Peer& peer(Connection& c) { return *peers.at(c.local_id); }

    void greet_everybody() {
        for (auto& [id, p] : peers) {
            if (p->connection.state != State::established) continue;
            for (std::size_t i = 0; i < p->queue_pairs.size(); ++i) {
                const Greeting g{plane->address().uid, std::uint32_t(i), p->connection.incarnation};
                ibv_sge sge{reinterpret_cast<std::uintptr_t>(&g), sizeof g, 0};
                ibv_send_wr wr{}, *bad;
                wr.sg_list = &sge;
                wr.num_sge = 1;
                wr.opcode = IBV_WR_SEND;
                wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
                if (ibv_post_send(p->queue_pairs[i].get(), &wr, &bad) != 0) throw std::runtime_error("ibv_post_send");
                ++sends_open;
            }
        }
    }

    void progress() {
        plane->poll();
        for (Queues& q : queues_) {
            ibv_wc wc;
            while (ibv_poll_cq(q.cq.get(), 1, &wc) > 0) {
                if (wc.status != IBV_WC_SUCCESS) {
                    ++errors;
                    continue;
                }
                if (!(wc.opcode & IBV_WC_RECV)) {
                    --sends_open;
                    continue;
                }
                const auto [p, path] = by_qpn_.at({unsigned(&q - queues_.data()), wc.qp_num});
                const Greeting& g = q.memory[wc.wr_id];
                if (g.uid != p->connection.peer.uid || g.path != path || g.incarnation != p->connection.incarnation)
                    ++wrong_greetings;
                ++p->greetings[path];
                post_receive(q, unsigned(wc.wr_id));
            }
        }
    }

    World& world_;
    const std::uint32_t index;
    verbs::DeviceSet devices;
    std::size_t most_peers = 1000;
    unsigned failing_makes = 0;
    Status make_failure = Status::no_memory;
    bool renews = false, carries = false, full = false;
    unsigned renewed = 0;
    unsigned sends_open = 0, errors = 0, wrong_greetings = 0;

private:
    static constexpr unsigned kReceives = 64;
    struct Queues {
        verbs::CompletionQueue cq;
        verbs::SharedReceiveQueue srq;
        std::vector<Greeting> memory;
        verbs::MemoryRegion mr;
    };
    static void post_receive(Queues& q, unsigned i) {
        ibv_sge sge{reinterpret_cast<std::uintptr_t>(&q.memory[i]), sizeof(Greeting), q.mr->lkey};
        ibv_recv_wr wr{}, *bad;
        wr.wr_id = i;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        if (ibv_post_srq_recv(q.srq.get(), &wr, &bad) != 0) throw std::runtime_error("ibv_post_srq_recv");
    }
    void drop(Peer& p) {
        std::erase_if(by_qpn_, [&](const auto& e) { return e.second.first == &p; });
        p.queue_pairs.clear();
    }

    SimServices& services_;
    std::vector<Queues> queues_;
    std::map<std::pair<unsigned, std::uint32_t>, std::pair<Peer*, unsigned>> by_qpn_;
    std::map<std::uint64_t, Peer*> by_uid_;
    std::uint32_t next_id_ = 1;

public:
    std::map<std::uint32_t, std::unique_ptr<Peer>> peers; // by local_id
    std::unique_ptr<connect::ControlPlane> plane;
};

// A world with its nodes.
class Cluster {
public:
    explicit Cluster(const std::vector<std::string>& rails, const ControlConfig& config = {},
                     const std::map<char, unsigned>& lmc = {}, std::uint64_t seed = 1,
                     const std::string& adapter = "{}")
        : world_(make_world(rails, lmc, seed, adapter)), services(*world_) {
        for (std::uint32_t i = 0; i < rails.size(); ++i) add(i, config);
    }
    // Every node with its own configuration.
    Cluster(const std::vector<std::string>& rails, const std::vector<ControlConfig>& configs,
            const char* first_fault = nullptr)
        : world_(make_world(rails)), services(*world_) {
        if (first_fault) world_->fault(first_fault);
        for (std::uint32_t i = 0; i < rails.size(); ++i) add(i, configs.at(i));
    }
    // The adapters' timers run out, so that nothing of theirs is left behind.
    ~Cluster() {
        nodes.clear();
        world_->run();
    }
    Cluster(const Cluster&) = delete;
    World& world() { return *world_; }
    Node& operator[](std::size_t i) { return *nodes[i]; }

    bool run(const std::function<bool()>& condition, Nanos for_at_most = 120 * kSecond) {
        const Nanos limit = world_->now() + for_at_most;
        while (!condition()) {
            if (world_->now() > limit || !world_->step()) return condition();
            for (const std::uint32_t touched : world_->touched())
                for (const auto& n : nodes)
                    if (n->index == touched) n->progress();
        }
        return true;
    }
    void settle(Nanos t) { // lets late messages arrive
        const Nanos until = world_->now() + t;
        world_->at(until, [] {});
        run([&] { return world_->now() >= until; });
    }
    bool is(std::size_t a, std::size_t b, State state) {
        const Peer* p = nodes[a]->peer_of(*nodes[b]);
        return p && p->connection.state == state;
    }
    bool connected(std::size_t a, std::size_t b) {
        return is(a, b, State::established) && is(b, a, State::established);
    }
    // Each side has counted one connection and no failure.
    bool once(std::size_t a, std::size_t b) {
        Node &one = *nodes[a], &other = *nodes[b];
        for (const Peer* p : {one.peer_of(other), other.peer_of(one)})
            if (!p || p->times_established != 1 || p->times_failed != 0) return false;
        return one.peer_of(other)->connection.server != other.peer_of(one)->connection.server;
    }
    // Every path carries a message in both directions; true if all have arrived where they belong, once.
    bool greet() {
        for (const auto& n : nodes) n->greet_everybody();
        settle(10 * kMilli);
        if (!run([&] {
                for (const auto& n : nodes)
                    if (n->sends_open) return false;
                return true;
            }))
            return false;
        settle(10 * kMilli);
        for (const auto& n : nodes) {
            if (n->errors || n->wrong_greetings) return false;
            for (const auto& [id, p] : n->peers)
                if (p->connection.state == State::established)
                    for (unsigned& count : p->greetings)
                        if (std::exchange(count, 0) != 1) return false;
        }
        return true;
    }
    connect::ControlCounters total() const {
        connect::ControlCounters sum;
        for (const auto& n : nodes) {
            const connect::ControlCounters& c = n->plane->counters();
            sum.sent += c.sent;
            sum.received += c.received;
            sum.repeated += c.repeated;
            sum.unsent += c.unsent;
            sum.dropped += c.dropped;
            sum.late += c.late;
            sum.refused += c.refused;
        }
        return sum;
    }

private:
    void add(std::uint32_t index, ControlConfig config) {
        if (config.seed == 0) config.seed = 7;
        nodes.push_back(std::make_unique<Node>(*world_, index, config, services));
    }
    std::unique_ptr<World> world_;

public:
    SimServices services;
    std::vector<std::unique_ptr<Node>> nodes; // before the world goes
};

} // namespace ucx_mp::test
