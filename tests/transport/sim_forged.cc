// Nobody speaks for others, and nothing that is sent is believed before its length is: a peer that is connected, and
// knows everything but what the others' handshakes have told, tries.
#define BOOST_TEST_MODULE transport_forged
#include <cstring>

#include "both_transports.h"
#include "simulator/traffic.h"
#include "uct_mp/channel/data_path.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
using channel::Kind;
using channel::MessageHeader;
using channel::PathIndex;

namespace {

struct Sink {
    unsigned calls = 0;
    std::size_t longest = 0;
    static Status take(void* self, void*, std::size_t length, unsigned) {
        auto& sink = *static_cast<Sink*>(self);
        ++sink.calls;
        sink.longest = std::max(sink.longest, length);
        return Status::ok;
    }
};

bool say(Cluster& cluster, unsigned from, unsigned to) {
    return cluster.until(
        [&] { return cluster.node(from).iface().am_short(cluster.channel(from, to), 5, 0, nullptr, 0) == Status::ok; },
        200'000'000);
}

std::uint64_t forged(Node& node) {
    channel::Interface::Statistics statistics;
    node.iface().statistics(statistics);
    return statistics.forged;
}

// A message as `speaker` would write it, with `body` bytes behind the header.
struct Message {
    Message(const Channel& speaker, Kind kind, std::uint8_t flags = 0) {
        header.kind = static_cast<std::uint8_t>(kind) & 0xf;
        header.version = channel::kWireVersion & 0xf;
        header.flags = flags;
        header.am_id = kind == Kind::am ? 3 : 0;
        header.channel = speaker.remote_id;
        header.sequence = speaker.next_sequence;
        header.ack = speaker.expected;
    }
    std::uint64_t room = 0; // mp_dc: for the tag
    MessageHeader header{};
    std::byte body[128] = {};
};

// Over a path of the channel of node `from` to node `to`, whoever it claims to be from.
void post(Cluster& cluster, unsigned from, unsigned to, Message& message, unsigned bytes, PathIndex path = 0) {
    Channel& channel = cluster.channel(from, to);
    channel::SendQueue& queue =
        *cluster.node(from).iface().core().placement.queue_for(channel, path, schedule::Direction::write);
    const channel::Posted posted{.channel = &channel, .path = path};
    BOOST_REQUIRE(cluster.until([&] { return queue.room(1); }));
    channel.wiring.paths[path].open += queue.dc;
    BOOST_REQUIRE(queue.send_inline(channel.wiring.paths[path].dc, &message.header, sizeof message.header + bytes,
                                    posted, IBV_SEND_SIGNALED));
}

} // namespace

// What is too short, of an unknown kind or makes no sense ends the channel, with one line; handlers see nothing of it.
BOOST_DATA_TEST_CASE(nonsense, kBoth, transport) {
    struct Case {
        Kind kind;
        std::uint8_t flags;
        unsigned bytes;
        const char* line;
    };
    const Case cases[] = {
        {Kind::am, channel::flag::fenced, 8, "too short"},
        {Kind::am, channel::flag::fenced, 0, "too short"},
        {Kind::am, channel::flag::fenced, 15, "too short"},
        {Kind::atomic, 0, sizeof(channel::AtomicRequest) - 1, "too short"},
        {Kind::atomic, channel::flag::fenced, sizeof(channel::AtomicRequest) + 15, "too short"},
        {Kind::atomic_reply, 0, sizeof(channel::AtomicReply) - 1, "too short"},
        {Kind::marker, 0, 7, "too short"},
        {Kind::path_up, 0, 3, "too short"},
        {Kind(0), 0, 16, "unknown kind"},
        {Kind(15), 0, 16, "unknown kind"},
        {Kind::am, channel::flag::more, 8, "a part"},
        {Kind::atomic, channel::flag::part, 40, "a part"},
    };
    for (const Case& c : cases)
        BOOST_TEST_CONTEXT("kind " << int(c.kind) << " flags " << int(c.flags) << " bytes " << c.bytes) {
            Cluster cluster("two-rail", 2, config_of(transport));
            Sink sink;
            cluster.node(1).on_am(3, Sink::take, &sink);
            BOOST_REQUIRE(say(cluster, 0, 1));
            cluster.run_for(1'000'000);
            bool failed = false;
            for (unsigned i = 0; i < 2; ++i) cluster.node(i).on_failure = [&](Channel&, Status) { failed = true; };
            const std::uint32_t expected = cluster.channel(1, 0).expected;
            Channel& channel = cluster.channel(1, 0);
            Message message(cluster.channel(0, 1), c.kind, c.flags);
            post(cluster, 0, 1, message, c.bytes);
            BOOST_TEST(cluster.until([&] { return failed; }, 100'000'000));
            BOOST_TEST(sink.calls == 0u);
            BOOST_TEST(channel.expected == expected);
            BOOST_TEST(cluster.node(1).services().errors == 1u);
            BOOST_TEST(cluster.node(1).services().last_error.find(c.line) != std::string::npos,
                       cluster.node(1).services().last_error);
        }
    // Impossible paths of a fence, and an impossible id.
    for (const bool fence : {true, false}) {
        Cluster cluster("two-rail", 2, config_of(transport));
        BOOST_REQUIRE(say(cluster, 0, 1));
        cluster.run_for(1'000'000);
        bool failed = false;
        for (unsigned i = 0; i < 2; ++i) cluster.node(i).on_failure = [&](Channel&, Status) { failed = true; };
        (void)cluster.channel(1, 0); // or nobody is told there
        Message message(cluster.channel(0, 1), Kind::am, fence ? channel::flag::fenced : 0);
        if (fence) {
            const channel::FenceTrailer trailer{std::uint64_t{1} << 40, 1, 0};
            std::memcpy(message.body, &trailer, sizeof trailer);
        } else {
            message.header.am_id = 32;
            message.header.sequence += 1; // not the usual way
        }
        post(cluster, 0, 1, message, 16);
        BOOST_TEST(cluster.until([&] { return failed; }, 100'000'000));
        BOOST_TEST(cluster.node(1).services().errors == 1u);
    }
}

// Node 2 knows all of node 0's names and numbers, and its own connection is as good.
BOOST_DATA_TEST_CASE(in_the_name_of_another, kBoth, transport) {
    Cluster cluster("two-rail", 3, config_of(transport));
    Sink sink;
    cluster.node(1).on_am(3, Sink::take, &sink);
    BOOST_REQUIRE(say(cluster, 0, 1));
    BOOST_REQUIRE(say(cluster, 2, 1));
    cluster.run_for(1'000'000);
    std::uint64_t attempts = 0;
    for (const Kind kind :
         {Kind::am, Kind::atomic, Kind::atomic_reply, Kind::ack, Kind::ack_request, Kind::marker, Kind::path_up})
        for (const std::uint32_t ahead : {0u, 1u, 1000u, 0u - 1})
            for (PathIndex path = 0; path < 2; ++path)
                for (const bool after_its_own : {false, true}) {
                    if (after_its_own) {
                        BOOST_REQUIRE(say(cluster, 2, 1));
                    } else {
                        BOOST_REQUIRE(say(cluster, 0, 1));
                    }
                    cluster.run_for(100'000);
                    const std::uint32_t acked = cluster.channel(1, 0).acked, expected = cluster.channel(1, 0).expected;
                    Message message(cluster.channel(0, 1), kind);
                    message.header.sequence += ahead;
                    message.header.path = path;
                    message.header.ack += 1;
                    post(cluster, 2, 1, message, 64, path);
                    ++attempts;
                    cluster.run_for(100'000);
                    BOOST_TEST(cluster.channel(1, 0).expected == expected);
                    BOOST_TEST(cluster.channel(1, 0).acked == acked);
                }
    BOOST_TEST(forged(cluster.node(1)) == attempts);
    BOOST_TEST(sink.calls == 0u);
    // Both go on; nothing of this was an error of theirs. The log has heard of it, and not of each.
    BOOST_TEST(cluster.node(1).services().errors == 0u);
    BOOST_TEST(cluster.node(1).services().warnings < 10u);
    BOOST_TEST(cluster.node(1).services().warnings > 0u);
    for (const unsigned from : {0u, 2u})
        for (unsigned i = 0; i < 100; ++i) {
            BOOST_REQUIRE(cluster.until([&] {
                return cluster.node(from).iface().am_short(cluster.channel(from, 1), 3, i, nullptr, 0) == Status::ok;
            }));
        }
    BOOST_TEST(cluster.until([&] { return sink.calls == 200; }, 100'000'000));
}

// Before anybody of that name is ready, and when he is gone.
BOOST_DATA_TEST_CASE(in_the_name_of_who_is_not_there, kBoth, transport) {
    Cluster cluster("two-rail", 3, config_of(transport));
    Sink sink;
    cluster.node(1).on_am(3, Sink::take, &sink);
    BOOST_REQUIRE(say(cluster, 2, 1));
    cluster.run_for(1'000'000);
    Message message(cluster.channel(2, 1), Kind::am);
    message.header.channel = cluster.channel(1, 0).local_id; // attached, not connected
    message.header.sequence = 0;
    post(cluster, 2, 1, message, 8);
    cluster.run_for(100'000);
    BOOST_TEST(forged(cluster.node(1)) == 1u);
    BOOST_REQUIRE(say(cluster, 0, 1));
    cluster.run_for(1'000'000);
    BOOST_TEST(cluster.channel(1, 0).expected == 1u);
    cluster.node(1).on_failure = [](Channel&, Status) {};
    message.header.channel = cluster.channel(1, 0).local_id;
    message.header.sequence = 1;
    cluster.node(1).iface().invalidate(cluster.channel(1, 0), Status::canceled, true);
    post(cluster, 2, 1, message, 8);
    cluster.run_for(100'000);
    BOOST_TEST(sink.calls == 0u);
}

// An adapter knows those by their queue pairs that it has heard from, in turn, and forgets who has ended.
BOOST_DATA_TEST_CASE(who_was_heard_from, kBoth, transport) {
    Cluster cluster("two-rail", 3, config_of(transport));
    const auto known = [&](const Channel& channel) {
        unsigned adapters = 0;
        channel::Core& core = cluster.node(1).iface().core();
        for (unsigned i = 0; i < core.adapter_count; ++i) adapters += core.adapters[i].knows(channel);
        return adapters;
    };
    for (unsigned i = 0; i < 3; ++i) {
        BOOST_REQUIRE(say(cluster, 0, 1));
        BOOST_REQUIRE(say(cluster, 2, 1));
        cluster.run_for(1'000'000);
    }
    Channel &stays = cluster.channel(1, 2), &ends = cluster.channel(1, 0);
    BOOST_TEST(known(stays) > 0u);
    BOOST_TEST(known(ends) > 0u);
    cluster.node(1).on_failure = [](Channel&, Status) {};
    cluster.node(1).iface().invalidate(ends, Status::canceled, true);
    cluster.node(1).iface().detach(ends);
    BOOST_REQUIRE(cluster.until([&] { return known(ends) == 0; }, 100'000'000));
    BOOST_REQUIRE(say(cluster, 2, 1));
    cluster.run_for(1'000'000);
    BOOST_TEST(known(stays) > 0u);
    BOOST_TEST(forged(cluster.node(1)) == 0u);
}

// Once the peer has been told what had come by a queue pair, whatever still comes by it is late: it has to be looked
// at.
BOOST_AUTO_TEST_CASE(a_path_that_was_given_up) {
    Cluster cluster("two-rail", 2, config_of(connect::Transport::rc));
    for (unsigned i = 0; i < 8; ++i) {
        BOOST_REQUIRE(say(cluster, 0, 1));
        cluster.run_for(1'000'000);
    }
    channel::Core& core = cluster.node(1).iface().core();
    const Channel& channel = cluster.channel(1, 0);
    PathIndex path = 0;
    const auto number_of = [&] { return std::uint64_t{channel.wiring.paths[path].own[0]->number}; };
    const auto known = [&](std::uint64_t number) {
        return core.adapters[channel.wiring.paths[path].device].sender_at(number).from == number;
    };
    while (path < 2 && !known(number_of())) ++path;
    BOOST_REQUIRE(path < 2);
    const std::uint64_t number = number_of();
    cluster.world.fault("port down 1:softhca_" + std::to_string(path) + ":1");
    BOOST_REQUIRE(say(cluster, 0, 1));
    BOOST_REQUIRE(cluster.until([&] { return path::has_told(channel.wiring.paths[path].phase); }, 10'000'000'000));
    BOOST_TEST(number_of() == number); // nor has it been replaced
    BOOST_TEST(!known(number));
}

// Over DC the 64 bits decide: none of the wrong ones is taken, nor a message that has no room for them.
BOOST_AUTO_TEST_CASE(tags) {
    Cluster cluster("two-rail", 2, config_of(connect::Transport::dc));
    Sink sink;
    cluster.node(1).on_am(3, Sink::take, &sink);
    BOOST_REQUIRE(say(cluster, 0, 1));
    cluster.run_for(1'000'000);
    Channel& channel = cluster.channel(0, 1);
    const std::uint64_t tag = channel.connection.dc_tag;
    BOOST_TEST(tag == cluster.channel(1, 0).connection.own_dc_tag);
    BOOST_TEST(tag != channel.connection.own_dc_tag);
    unsigned wrong = 0;
    for (unsigned bit = 0; bit < 65; ++bit) {
        Message message(channel, Kind::am);
        channel.wiring.paths[0].dc.tag = bit < 64 ? tag ^ std::uint64_t{1} << bit : 0;
        post(cluster, 0, 1, message, 8);
        ++wrong;
    }
    channel.wiring.paths[0].dc.tag = tag;
    cluster.run_for(1'000'000);
    BOOST_TEST(forged(cluster.node(1)) == wrong);
    BOOST_TEST(sink.calls == 0u);
    BOOST_REQUIRE(
        cluster.until([&] { return cluster.node(0).iface().am_short(channel, 3, 1, nullptr, 0) == Status::ok; }));
    BOOST_TEST(cluster.until([&] { return sink.calls == 1; }, 100'000'000));
}

// Queue pairs that are made anew are the channel's, too.
BOOST_DATA_TEST_CASE(after_faults, kBoth, transport) {
    Cluster cluster("two-rail", 3, config_of(transport));
    BOOST_TEST(traffic(cluster, 1) == "");
    for (unsigned round = 0; round < 3; ++round) {
        cluster.world.fault("port down 1:softhca_" + std::to_string(round % 2) + ":1");
        BOOST_TEST(traffic(cluster, 2 + 2 * round) == "");
        cluster.world.fault("port up 1:softhca_" + std::to_string(round % 2) + ":1");
        cluster.run_for(50'000'000);
        BOOST_TEST(traffic(cluster, 3 + 2 * round) == "");
    }
    for (unsigned i = 0; i < 3; ++i) BOOST_TEST(forged(cluster.node(i)) == 0u);
}
