// Adapters that die and are there again: whoever has used them goes on with them, with the keys that he has.
#define BOOST_TEST_MODULE transport_reopen
#include <malloc.h>

#include <algorithm>
#include <filesystem>

#include "both_transports.h"
#include "simulator/traffic.h"
#include "uct_mp/channel/data_path.h"
#include "uct_mp/verbs/registry.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

struct Done : Completion {
    Done() : Completion{[](Completion* self) { static_cast<Done*>(self)->done = true; }, 1, Status::ok} {}
    bool done = false;
};

// Memory of node 1 that node 0 has had the keys of from the beginning.
struct Window {
    Window(Cluster& of, std::size_t size = 1 << 20)
        : cluster(of), theirs(of.node(1).memory(size)), ours(of.node(0).memory(size)) {}
    // Written and read back; empty: right.
    std::string exchange(unsigned char value) {
        std::memset(ours.data, value, ours.size);
        if (const std::string trouble = access(true); !trouble.empty()) return "put: " + trouble;
        for (std::size_t i = 0; i < theirs.size; ++i)
            if (theirs.data[i] != std::byte{value}) return "byte " + std::to_string(i) + " has not been written";
        std::memset(theirs.data, value + 1, theirs.size);
        if (const std::string trouble = access(false); !trouble.empty()) return "get: " + trouble;
        for (std::size_t i = 0; i < ours.size; ++i)
            if (ours.data[i] != std::byte(value + 1)) return "byte " + std::to_string(i) + " has not been read";
        return "";
    }
    std::string access(bool put) {
        auto& iface = cluster.node(0).iface();
        Channel& to = cluster.channel(0, 1);
        const Iov iov = ours.iov(0, ours.size);
        Done done;
        Status status = Status::no_resource;
        const auto try_it = [&] {
            status = put ? iface.put_zcopy(to, &iov, 1, theirs.address(), theirs.keys, &done)
                         : iface.get_zcopy(to, &iov, 1, theirs.address(), theirs.keys, &done);
            return status != Status::no_resource;
        };
        if (!cluster.until(try_it)) return "no room";
        if (status != Status::in_progress) return "refused";
        if (!cluster.until([&] { return done.done; })) return "no completion";
        if (done.status != Status::ok) return "failed";
        Done flushed;
        if (!cluster.until([&] { return (status = iface.flush(to, &flushed)) != Status::no_resource; }))
            return "no flush";
        if (status != Status::ok && !cluster.until([&] { return flushed.done; })) return "no end of the flush";
        return "";
    }
    Cluster& cluster;
    Node::Memory theirs, ours;
};

// What node `from` has been told for probing node `to` can be read with, over whatever path; empty: right.
std::string probe(Cluster& cluster, unsigned from, unsigned to) {
    const connect::Connection& connection = cluster.channel(from, to).connection;
    verbs::RemoteKeys keys;
    keys.count = verbs::kMaxDevices;
    for (const path::RemoteRail& rail : connection.remote_rails) {
        if (rail.probe_key == 0) return "a rail has no key";
        keys.rkey[rail.device] = rail.probe_key;
        keys.lives |= std::uint64_t{rail.life} << (8 * rail.device);
    }
    Node::Memory ours = cluster.node(from).memory(connect::kProbeBytes);
    const Iov iov = ours.iov(0, ours.size);
    for (unsigned i = 0; i < 16; ++i) {
        Done done;
        Status status = Status::no_resource;
        if (!cluster.until([&] {
                status = cluster.node(from).iface().get_zcopy(cluster.channel(from, to), &iov, 1,
                                                              connection.probe_address, keys, &done);
                return status != Status::no_resource;
            }) ||
            status != Status::in_progress || !cluster.until([&] { return done.done; }) || done.status != Status::ok)
            return "not read";
    }
    return "";
}

std::size_t open_files() {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

unsigned queue_pairs(Node& node) {
    channel::Interface::Statistics statistics;
    node.iface().statistics(statistics);
    return statistics.queue_pairs;
}

} // namespace

// On either side, or on both; then nothing is left but what has come back.
BOOST_DATA_TEST_CASE(carries_traffic_again, kBoth* boost::unit_test::data::make({1u, 2u, 3u}), transport, who) {
    Cluster cluster("two-rail", 2, quick_to_reopen(transport));
    Window window(cluster);
    BOOST_TEST(window.exchange(1) == "");
    BOOST_TEST(traffic(cluster, 1) == "");
    const unsigned all = paths_up(cluster.node(0)), pairs = queue_pairs(cluster.node(0));
    const double bandwidth = cluster.node(0).iface().bandwidth(), rate = put_rate(cluster, 0, 1 << 20);
    const auto fault = [&](const char* what) {
        for (unsigned node = 0; node < 2; ++node)
            if (who >> node & 1) cluster.world.fault(what + std::to_string(node) + ":softhca_0");
    };
    fault("adapter-death ");
    BOOST_TEST(window.exchange(3) == "");
    BOOST_TEST(traffic(cluster, 2) == "");
    BOOST_TEST(paths_up(cluster.node(0)) < all);
    if (who & 1) BOOST_TEST(cluster.node(0).iface().bandwidth() < bandwidth);
    cluster.run_for(20'000'000); // nobody has it back yet
    fault("adapter-revive ");
    BOOST_TEST(all_up(cluster, all));
    BOOST_TEST(window.exchange(5) == "");
    BOOST_TEST(probe(cluster, 0, 1) == "");
    BOOST_TEST(probe(cluster, 1, 0) == "");
    BOOST_TEST(traffic(cluster, 3) == "");
    BOOST_TEST(cluster.node(0).iface().bandwidth() == bandwidth);
    const double again = put_rate(cluster, 0, 1 << 20);
    BOOST_TEST(again > 0.98 * rate);
    BOOST_TEST(queue_pairs(cluster.node(0)) == pairs);
    cluster.world.fault("port down 0:softhca_1:1");
    cluster.world.fault("port down 1:softhca_1:1");
    BOOST_TEST(window.exchange(7) == "");
    BOOST_TEST(traffic(cluster, 4) == "");
    BOOST_TEST(cluster.node(0).services().errors + cluster.node(1).services().errors == 0u);
}

// The only adapter: everything waits, and goes on. At any moment of the traffic.
BOOST_DATA_TEST_CASE(the_only_one, kBoth* boost::unit_test::data::make({0u, 1u}), transport, who) {
    for (unsigned moment = 0; moment < 8; ++moment) {
        channel::Config config = quick_to_reopen(transport);
        config.paths.num_paths = moment % 2 ? 1 : 0;
        Cluster cluster("two-rail", 2, config, {}, {{"softhca_0:1"}});
        const std::string adapter = std::to_string(who) + ":softhca_0";
        cluster.world.at(cluster.world.now() + 40'000 + moment * 13'000,
                         [&] { cluster.world.fault("adapter-death " + adapter); });
        cluster.world.at(cluster.world.now() + 3'000'000, [&] { cluster.world.fault("adapter-revive " + adapter); });
        BOOST_TEST_CONTEXT("moment " << moment) {
            BOOST_TEST(traffic(cluster, 1 + moment, 300) == "");
            BOOST_TEST(cluster.world.now() > 3'000'000u);
        }
    }
}

// Loop-back, and messages that a handler keeps while its adapter dies.
BOOST_DATA_TEST_CASE(oneself, kBoth, transport) {
    Cluster cluster("two-rail", 2, quick_to_reopen(transport));
    BOOST_TEST(traffic(cluster, 1, 60, true) == "");
    const unsigned all = paths_up(cluster.node(0));
    for (unsigned round = 0; round < 3; ++round) {
        const std::string adapter = round % 2 ? "0:softhca_1" : "0:softhca_0";
        cluster.world.fault("adapter-death " + adapter);
        BOOST_TEST(traffic(cluster, 2 + round, 60, true) == "");
        cluster.world.fault("adapter-revive " + adapter);
        BOOST_TEST(cluster.until([&] { return paths_up(cluster.node(0)) == all; }, 100'000'000));
        BOOST_TEST(traffic(cluster, 12 + round, 60, true) == "");
    }
}

// Again and again: nothing piles up, and keys of any age are renewed.
BOOST_DATA_TEST_CASE(many_lives, kBoth, transport) {
    Cluster cluster("two-rail", 2, quick_to_reopen(transport));
    Window oldest(cluster, 1 << 16);
    BOOST_TEST(oldest.exchange(1) == "");
    BOOST_TEST(traffic(cluster, 1) == "");
    const unsigned all = paths_up(cluster.node(0)), pairs = queue_pairs(cluster.node(1));
    std::size_t bytes = 0, files = 0;
    for (unsigned life = 1; life <= 20; ++life) {
        const std::string adapter = life % 3 ? "1:softhca_0" : "1:softhca_1";
        cluster.world.fault("adapter-death " + adapter);
        cluster.run_for(2'000'000);
        cluster.world.fault("adapter-revive " + adapter);
        BOOST_REQUIRE(all_up(cluster, all));
        Window newer(cluster, 1 << 16);
        BOOST_TEST(newer.exchange(static_cast<unsigned char>(life)) == "");
        if (life % 4 == 0) BOOST_TEST(oldest.exchange(static_cast<unsigned char>(life)) == "");
        channel::Interface::Statistics statistics;
        cluster.node(1).iface().statistics(statistics);
        if (life == 3) files = open_files(); // the devices as they were at first stay with the node's DeviceSet
        if (life > 3) BOOST_TEST(open_files() == files);
        if (life == 1) bytes = statistics.receive_buffer_bytes;
        BOOST_TEST(statistics.receive_buffer_bytes == bytes);
    }
    BOOST_TEST(queue_pairs(cluster.node(1)) == pairs);
    BOOST_TEST(oldest.exchange(99) == "");
    BOOST_TEST(traffic(cluster, 2) == "");
}

// Nor does memory, at either side. What is made once may be made late; what stays of each life is more each time.
BOOST_DATA_TEST_CASE(many_lives_take_no_memory, kBoth, transport) {
    constexpr unsigned kLives = 8;
    Cluster cluster("two-rail", 2, quick_to_reopen(transport));
    Window window(cluster, 1 << 16);
    BOOST_TEST(window.exchange(1) == "");
    const unsigned all = paths_up(cluster.node(0));
    std::size_t most = 0, more = 0; // more: lives of the last third that have more than all before
    for (unsigned life = 0; life < 3 * kLives; ++life) {
        cluster.world.fault("adapter-death 1:softhca_0");
        BOOST_TEST(window.exchange(3) == "");
        cluster.run_for(2'000'000);
        cluster.world.fault("adapter-revive 1:softhca_0");
        BOOST_REQUIRE(all_up(cluster, all));
        BOOST_TEST(window.exchange(5) == "");
        const std::size_t bytes = mallinfo2().uordblks + mallinfo2().hblkhd;
        more += bytes > std::exchange(most, std::max(most, bytes)) + 4096 && life >= 2 * kLives;
    }
    BOOST_TEST(more < kLives / 2);
}

// At any moment of the handshake.
BOOST_DATA_TEST_CASE(while_connecting, kBoth* boost::unit_test::data::make({0u, 1u}), transport, who) {
    for (unsigned moment = 0; moment < 24; ++moment) {
        Cluster cluster("two-rail", 2, quick_to_reopen(transport));
        const std::string adapter = std::to_string(who) + (moment % 2 ? ":softhca_1" : ":softhca_0");
        cluster.world.at(cluster.world.now() + 60 + moment * 60,
                         [&] { cluster.world.fault("adapter-death " + adapter); });
        BOOST_TEST_CONTEXT("moment " << moment) {
            BOOST_TEST(traffic(cluster, 1 + moment, 100) == "");
            cluster.world.fault("adapter-revive " + adapter);
            BOOST_TEST(all_up(cluster, 2));
            BOOST_TEST(traffic(cluster, 101 + moment, 100) == "");
        }
    }
}

// Who had nothing to do with each other then connects over it; so does an interface that is opened afterwards.
BOOST_DATA_TEST_CASE(connections_are_made_over_it, kBoth, transport) {
    Cluster cluster("two-rail", 3, quick_to_reopen(transport));
    cluster.world.fault("adapter-death 1:softhca_0");
    cluster.run_for(1'000'000);
    Window window(cluster, 1 << 16);
    BOOST_TEST(window.exchange(1) == ""); // a connection while it is dead
    cluster.world.fault("adapter-revive 1:softhca_0");
    BOOST_TEST(cluster.until([&] { return cluster.node(1).devices().registry()->life(0) == 1; }, 100'000'000));
    cluster.run_for(1'000'000);
    for (unsigned node = 0; node < 3; ++node) cluster.world.fault("port down " + std::to_string(node) + ":softhca_1:1");
    BOOST_TEST(window.exchange(3) == "");
    BOOST_TEST(traffic(cluster, 1) == ""); // among all three
}

// Memory that has been released in between is not taken for other memory that has its key now.
BOOST_DATA_TEST_CASE(released_memory_is_refused, kBoth, transport) {
    Cluster cluster("two-rail", 2, quick_to_reopen(transport));
    Window window(cluster, 1 << 16);
    BOOST_TEST(window.exchange(1) == "");
    const unsigned all = paths_up(cluster.node(0));
    cluster.world.fault("adapter-death 1:softhca_0");
    window.theirs.registration->reset();
    cluster.run_for(2'000'000);
    cluster.world.fault("adapter-revive 1:softhca_0");
    BOOST_TEST(all_up(cluster, all));
    std::vector<Node::Memory> others;
    for (unsigned i = 0; i < 64; ++i) others.push_back(cluster.node(1).memory(1 << 16));
    for (Node::Memory& other : others) std::memset(other.data, 0x55, other.size);
    unsigned failures = 0;
    for (unsigned i = 0; i < 2; ++i) cluster.node(i).on_failure = [&](Channel&, Status) { ++failures; };
    BOOST_TEST(window.access(true) != "");
    BOOST_TEST(failures != 0u);
    for (Node::Memory& other : others)
        for (std::size_t i = 0; i < other.size; i += 512) BOOST_REQUIRE((other.data[i] == std::byte{0x55}));
}

// Another one opens it again, and it dies once more before this interface has gone on with it.
BOOST_DATA_TEST_CASE(dies_again_before_it_is_used, kBoth, transport) {
    Cluster cluster("two-rail", 2, quick_to_reopen(transport));
    Window window(cluster, 1 << 16);
    BOOST_TEST(window.exchange(1) == "");
    const unsigned all = paths_up(cluster.node(0));
    cluster.world.fault("adapter-death 1:softhca_0");
    cluster.run_for(500'000);
    cluster.world.fault("adapter-revive 1:softhca_0");
    std::string trouble;
    cluster.world.select(1);
    BOOST_TEST(cluster.node(1).devices().registry()->reopen(0, trouble));
    cluster.world.fault("adapter-death 1:softhca_0");
    cluster.run_for(20'000'000);
    cluster.world.fault("adapter-revive 1:softhca_0");
    BOOST_TEST(all_up(cluster, all));
    BOOST_TEST(window.exchange(3) == "");
}

// The client's side of the handshake has made queue pairs on it, and is over when it has died; nothing is ever sent
// over them.
BOOST_DATA_TEST_CASE(dies_during_the_handshake, kBoth, transport) {
    for (unsigned moment = 0; moment < 6; ++moment) {
        Cluster cluster("two-rail", 2, quick_to_reopen(transport));
        const double bandwidth = cluster.node(0).iface().bandwidth();
        Channel& to = cluster.channel(0, 1);
        cluster.world.at(cluster.world.now() + 700 + moment * 100,
                         [&] { cluster.world.fault("adapter-death 0:softhca_1"); });
        BOOST_TEST_CONTEXT("moment " << moment) {
            BOOST_TEST(
                cluster.until([&] { return cluster.node(0).iface().am_short(to, 1, 0, nullptr, 0) == Status::ok; }));
            cluster.run_for(20'000'000);
            BOOST_TEST(cluster.node(0).iface().bandwidth() < bandwidth);
            cluster.world.fault("adapter-revive 0:softhca_1");
            cluster.run_for(50'000'000);
            BOOST_TEST(cluster.node(0).iface().bandwidth() == bandwidth);
        }
    }
}

// Its port comes up later than the adapter.
BOOST_DATA_TEST_CASE(its_port_comes_up_later, kBoth* boost::unit_test::data::make({0u, 1u}), transport, target) {
    Cluster cluster("two-rail", 2, quick_to_reopen(transport));
    Node::Memory theirs = cluster.node(target).memory(1 << 16), ours = cluster.node(0).memory(1 << 16);
    const auto put = [&](int value) {
        std::memset(ours.data, value, ours.size);
        Channel& to = cluster.channel(0, target);
        const Iov iov = ours.iov(0, ours.size);
        Done done;
        if (!cluster.until([&] {
                return cluster.node(0).iface().put_zcopy(to, &iov, 1, theirs.address(), theirs.keys, &done) !=
                       Status::no_resource;
            }))
            return false;
        return cluster.until([&] { return done.done; }) && done.status == Status::ok &&
               std::memcmp(ours.data, theirs.data, ours.size) == 0;
    };
    BOOST_TEST(put(1));
    const std::string port = std::to_string(target) + ":softhca_0";
    cluster.world.fault("adapter-death " + port);
    BOOST_TEST(put(2));
    cluster.world.fault("port down " + port + ":1");
    cluster.world.fault("adapter-revive " + port);
    BOOST_TEST(cluster.until([&] { return cluster.node(target).devices().registry()->life(0) == 1; }, 100'000'000));
    cluster.run_for(5'000'000);
    for (int i = 3; i < 10; ++i) BOOST_TEST(put(i));
    cluster.world.fault("port up " + port + ":1");
    cluster.run_for(50'000'000);
    cluster.world.fault("port down " + std::to_string(target) + ":softhca_1:1");
    for (int i = 13; i < 20; ++i) BOOST_TEST(put(i));
}

namespace {
// Messages from node 0 to node 1 that wait there, on adapter 0 and in place, for one before them.
class Waiting {
public:
    explicit Waiting(connect::Transport transport) : cluster("two-rail", 2, keeping(transport)) {
        BOOST_TEST(traffic(cluster, 1) == "");
        cluster.run_for(5'000'000);
        paths_ = paths_up(cluster.node(0));
        next_ = cluster.channel(0, 1).next_sequence;
        cluster.node(1).on_am(kId, take, this);
        for (unsigned i = 0; i < kCount; ++i) {
            memory_.push_back(cluster.node(0).memory(kBefore + sizeof(channel::MessageHeader) + kBytes));
            for (unsigned b = 0; b < kBytes; ++b) payload(i)[b] = at(i, b);
        }
    }
    static channel::Config keeping(connect::Transport transport) {
        channel::Config config = quick_to_reopen(transport);
        config.headroom = 32;
        return config;
    }
    // Copies of what will be sent: all but the first, in [from, to).
    void come_early(unsigned from, unsigned to) {
        Channel& channel = cluster.channel(0, 1);
        const std::uint32_t before = cluster.channel(1, 0).counts.early;
        channel::Path& sub = channel.wiring.paths[0];
        BOOST_REQUIRE(sub.remote_device == 0u);
        for (unsigned i = from; i < to; ++i) {
            channel::MessageHeader header{};
            header.kind = static_cast<std::uint8_t>(channel::Kind::am) & 0xf;
            header.version = channel::kWireVersion & 0xf;
            header.am_id = kId;
            header.channel = channel.remote_id;
            header.sequence = next_ + i;
            header.ack = channel.expected;
            std::memcpy(memory_[i].data + kBefore, &header, sizeof header);
            channel::SendQueue* const queue =
                cluster.node(0).iface().core().placement.queue_for(channel, 0, schedule::Direction::write);
            BOOST_REQUIRE(queue);
            sub.open += queue->dc;
            ibv_sge sge{memory_[i].address() + kBefore, static_cast<std::uint32_t>(sizeof header + kBytes),
                        memory_[i].registration->lkey[sub.device]};
            BOOST_REQUIRE(queue->send(sub.dc, &sge, 1, {.channel = &channel}, IBV_SEND_SIGNALED));
        }
        cluster.run_for(200'000);
        BOOST_TEST(cluster.channel(1, 0).counts.early == before + to - from);
        BOOST_TEST(adapter().spare_used == to - from);
    }
    void reopen() {
        cluster.world.fault("adapter-death 1:softhca_0");
        cluster.run_for(2'000'000);
        cluster.world.fault("adapter-revive 1:softhca_0");
        BOOST_REQUIRE(all_up(cluster, paths_));
        BOOST_TEST(adapter().spare_used == 0u);
        BOOST_TEST(adapter().kept == 0u);
    }
    void send_all() {
        for (unsigned i = 0; i < kCount; ++i) {
            const auto pack = [](void* to, void* from) -> std::size_t {
                std::memcpy(to, from, kBytes);
                return kBytes;
            };
            BOOST_REQUIRE(cluster.until(
                [&] { return cluster.node(0).iface().am_bcopy(cluster.channel(0, 1), kId, pack, payload(i)) > 0; }));
        }
        BOOST_TEST(cluster.until([&] { return received_ == kCount; }, 1'000'000'000));
        cluster.run_for(5'000'000);
        BOOST_TEST(received_ == kCount);
        BOOST_TEST(mistakes_ == 0u);
    }
    // What handlers have kept is still right, and then nothing is left of the lives before.
    void give_back() {
        BOOST_TEST(kept_.empty() == (adapter().kept + adapter().old_kept + cluster_adapter(1).kept == 0));
        for (const auto& [number, data] : kept_) {
            BOOST_TEST(right(number, data));
            cluster.node(1).iface().release(data);
        }
        nothing_left();
    }
    void nothing_left() {
        for (unsigned i = 0; i < 2; ++i) {
            const channel::Adapter& adapter = cluster_adapter(i);
            BOOST_TEST(adapter.kept == 0u);
            BOOST_TEST(adapter.spare_used == 0u);
            BOOST_TEST(adapter.old_kept == 0u);
            BOOST_TEST(adapter.old_chunks.empty());
        }
    }
    channel::Adapter& cluster_adapter(unsigned i) { return cluster.node(1).iface().core().adapters[i]; }
    channel::Adapter& adapter() { return cluster_adapter(0); }

    static constexpr unsigned kCount = 40;
    Cluster cluster;

private:
    static constexpr std::uint8_t kId = 6;
    static constexpr unsigned kBytes = 4000, kBefore = 64; // room for a tag
    static std::byte at(unsigned number, unsigned i) { return std::byte(number * 31 + i * 7 + (i >> 8)); }
    std::byte* payload(unsigned i) { return memory_[i].data + kBefore + sizeof(channel::MessageHeader); }
    static bool right(unsigned number, const void* data) {
        for (unsigned i = 0; i < kBytes; ++i)
            if (static_cast<const std::byte*>(data)[i] != at(number, i)) return false;
        return true;
    }
    static Status take(void* self, void* data, std::size_t length, unsigned flags) {
        auto& n = *static_cast<Waiting*>(self);
        const unsigned number = n.received_++;
        n.mistakes_ += length != kBytes || !right(number, data);
        if (number % 3 || !(flags & channel::kCallbackMayKeep)) return Status::ok;
        n.kept_.emplace_back(number, data);
        return Status::in_progress;
    }
    unsigned paths_ = 0, received_ = 0, mistakes_ = 0;
    std::uint32_t next_ = 0;
    std::vector<Node::Memory> memory_;
    std::vector<std::pair<unsigned, void*>> kept_;
};
} // namespace

// Messages wait in buffers of one life, or two, of an adapter. They are delivered from there in a later one.
BOOST_DATA_TEST_CASE(messages_wait_for_others, kBoth* boost::unit_test::data::make({1u, 2u}), transport, lives) {
    Waiting waiting(transport);
    waiting.come_early(1, 15);
    waiting.reopen();
    BOOST_TEST(waiting.adapter().old_kept == 14u);
    waiting.come_early(15, 30);
    if (lives == 2) {
        waiting.reopen();
        BOOST_TEST(waiting.adapter().old_kept == 29u);
        BOOST_TEST(waiting.adapter().old_chunks.size() == 2u);
    }
    waiting.send_all();
    BOOST_TEST(waiting.adapter().old_kept > 0u); // handlers keep some
    BOOST_TEST(!waiting.adapter().old_chunks.empty());
    waiting.give_back();
    BOOST_TEST(waiting.cluster.node(0).services().errors + waiting.cluster.node(1).services().errors == 0u);
}

// The channel ends while they wait: nobody will get them.
BOOST_DATA_TEST_CASE(the_channel_ends_while_messages_wait, kBoth* boost::unit_test::data::make({0u, 1u, 2u}), transport,
                     lives) {
    Waiting waiting(transport);
    waiting.come_early(1, 15);
    if (lives >= 1) {
        waiting.reopen();
        waiting.come_early(15, 30);
    }
    if (lives >= 2) waiting.reopen();
    unsigned told = 0;
    for (unsigned i = 0; i < 2; ++i) waiting.cluster.node(i).on_failure = [&](Channel&, Status) { ++told; };
    Channel& channel = waiting.cluster.channel(1, 0);
    channel::mark_failed(*channel.core, channel, Status::io_error);
    channel.core->failures.end(channel);
    waiting.nothing_left();
    waiting.cluster.run_for(20'000'000);
    BOOST_TEST(told != 0u);
    waiting.nothing_left();
}
