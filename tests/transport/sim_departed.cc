// Peers come and go, and what they have had is given back: channels, slots, queue pairs, receives, memory.
#define BOOST_TEST_MODULE transport_departed
#include <malloc.h>

#include "both_transports.h"
#include "simulator/client_server.h"
#include "uct_mp/channel/core.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

constexpr Nanos kMs = 1'000'000;

channel::Interface::Statistics statistics(Node& node) {
    channel::Interface::Statistics out;
    node.iface().statistics(out);
    return out;
}

struct Scene : ClientServer {
    explicit Scene(connect::Transport transport, unsigned max_unused = 1024)
        : ClientServer("two-rail", make(transport, max_unused)) {}
    static channel::Config make(connect::Transport transport, unsigned max_unused) {
        channel::Config config = config_of(transport);
        config.completion_depth = 1024;
        config.window = 16;
        config.max_unused = max_unused;
        config.recovery.partition_timeout = 3'000 * kMs;
        return config;
    }
};

} // namespace

// They say goodbye; the server has an endpoint to every second one, destroyed before or after.
BOOST_DATA_TEST_CASE(one_after_the_other, kBoth, transport) {
    Scene scene(transport);
    std::size_t first_heap = 0, first_receives = 0;
    for (unsigned round = 1; round <= 300; ++round) {
        Node& client = scene.add();
        Channel& to = scene.attach(client, scene.server);
        BOOST_REQUIRE(scene.send(to));
        Channel* back = nullptr;
        if (round % 2) {
            back = &scene.attach(scene.server, client);
            BOOST_REQUIRE(
                scene.until([&] { return channel::Interface::am_short(*back, 5, 0, nullptr, 0) == Status::ok; }));
            scene.run(kMs);
            if (round % 4 == 1) scene.server.iface().detach(*std::exchange(back, nullptr));
        }
        client.iface().detach(to);
        scene.leave();
        scene.run(kMs);
        if (back) scene.server.iface().detach(*back);
        scene.run(5 * kMs);
        const auto now = statistics(scene.server);
        BOOST_REQUIRE(now.channels.size() == 0u);
        if (transport == connect::Transport::rc) BOOST_REQUIRE(now.queue_pairs == 0u);
        if (round % 100) continue;
        scene.run(70'000 * kMs); // timers of the simulation are over, too
        const std::size_t heap = mallinfo2().uordblks;
        if (round == 100) first_heap = heap, first_receives = now.receive_buffer_bytes;
        BOOST_TEST(heap < first_heap + 16'384);
        BOOST_TEST(now.receive_buffer_bytes == first_receives);
    }
    BOOST_TEST(scene.failures == 0u);
}

// They die without a word: found, and given back.
BOOST_DATA_TEST_CASE(without_goodbye, kBoth, transport) {
    Scene scene(transport);
    for (unsigned i = 0; i < 5; ++i) BOOST_REQUIRE(scene.send(scene.attach(scene.add(1 + i), scene.server)));
    BOOST_TEST(statistics(scene.server).channels.size() == 5u);
    scene.leave_silently();
    for (unsigned i = 0; i < 300 && !statistics(scene.server).channels.empty(); ++i) scene.run(100 * kMs);
    BOOST_TEST(statistics(scene.server).channels.size() == 0u);
    BOOST_TEST(scene.failures == 0u);
}

// More than may be: the idle ones go, without their peers noticing, and these come back when they have something to
// say.
BOOST_DATA_TEST_CASE(bounded, kBoth, transport) {
    constexpr unsigned kMost = 16, kClients = 60;
    Scene scene(transport, kMost);
    std::vector<Channel*> to;
    for (unsigned i = 0; i < kClients; ++i) {
        to.push_back(&scene.attach(scene.add(1 + i % 15), scene.server));
        BOOST_REQUIRE(scene.send(*to.back()));
        BOOST_REQUIRE(statistics(scene.server).channels.size() <= kMost);
    }
    BOOST_TEST(scene.failures == 0u);
    for (unsigned round = 0; round < 2; ++round)
        for (Channel* channel : to) {
            BOOST_REQUIRE(scene.send(*channel));
            BOOST_REQUIRE(statistics(scene.server).channels.size() <= kMost);
        }
    scene.run(100 * kMs);
    BOOST_TEST(scene.failures == 0u);
    BOOST_TEST(scene.heard == 3 * kClients);
}

// All at once, each with something under way all the time: nothing is lost, and nobody is told of anything.
BOOST_DATA_TEST_CASE(bounded_in_a_crowd, kBoth, transport) {
    constexpr unsigned kMost = 8, kClients = 40, kWords = 20;
    Scene scene(transport, kMost);
    std::vector<Channel*> to;
    std::vector<unsigned> left(kClients, kWords);
    for (unsigned i = 0; i < kClients; ++i) to.push_back(&scene.attach(scene.add(1 + i % 15), scene.server));
    BOOST_TEST(scene.until(
        [&] {
            for (unsigned i = 0; i < kClients; ++i)
                if (left[i] && channel::Interface::am_short(*to[i], 3, 0, nullptr, 0) == Status::ok) --left[i];
            return scene.heard == kClients * kWords;
        },
        30'000 * kMs));
    BOOST_TEST(scene.heard == kClients * kWords);
    BOOST_TEST(statistics(scene.server).channels.size() <= kMost);
    BOOST_TEST(scene.failures == 0u);
}

// Receives are for the peers that are there.
BOOST_DATA_TEST_CASE(receive_levels_sink, kBoth, transport) {
    Scene scene(transport);
    const auto level = [&] { return scene.server.iface().core().adapters[0].level; };
    const auto at_first = level();
    for (unsigned i = 0; i < 6; ++i) BOOST_REQUIRE(scene.send(scene.attach(scene.add(1 + i), scene.server)));
    BOOST_TEST(level() > at_first);
    scene.leave();
    scene.run(100 * kMs);
    BOOST_TEST(statistics(scene.server).channels.size() == 0u);
    BOOST_TEST(level() == at_first);
    BOOST_TEST(scene.server.iface().core().adapters[0].to_post < 0); // what is posted cannot be taken back
    // Still enough for who comes.
    for (unsigned i = 0; i < 6; ++i) BOOST_REQUIRE(scene.send(scene.attach(scene.add(1 + i), scene.server)));
    for (unsigned n = 0; n < 2000; ++n) BOOST_REQUIRE(scene.send(scene.attach(*scene.clients[n % 6], scene.server)));
    BOOST_TEST(scene.server.iface().core().adapters[0].to_post >= 0);
}

// A channel that has failed goes with its last endpoint, and another one takes its place.
BOOST_DATA_TEST_CASE(failed, kBoth, transport) {
    Scene scene(transport);
    Node& client = scene.add();
    for (unsigned round = 0; round < 20; ++round) {
        Channel& to = scene.attach(client, scene.server);
        BOOST_REQUIRE(scene.send(to));
        client.iface().invalidate(to, Status::canceled, true);
        scene.run(kMs);
        BOOST_TEST(statistics(client).channels.size() == 1u); // its endpoint is still there
        client.iface().detach(to);
        BOOST_TEST(scene.until([&] { return statistics(client).channels.empty(); }, 100 * kMs));
    }
    BOOST_TEST(statistics(scene.server).channels.size() <= 1u);
}
