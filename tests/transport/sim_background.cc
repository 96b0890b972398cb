// Who may do what: the handshake's thread (Interface::serve) makes queue pairs while another one polls their completion
// queues, which are for a single thread. What takes a queue pair out of them, destroying it, is progress's.
#define BOOST_TEST_MODULE transport_background
#include "both_transports.h"
#include "uct_mp/channel/core.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

channel::Config config_of_thread(std::uint64_t seed) {
    channel::Config config = config_of(connect::Transport::rc);
    config.control_interval = config.event_interval = config.quiet_interval = config.silent_interval = 1;
    config.background = true;
    config.connect_timeout = 20'000'000;
    config.queue_pair_pool = 0; // what is dropped is destroyed
    config.seed = seed;
    return config;
}

struct Pair {
    softhca::sim::World world{"two-rail", {.seed = 5}};
    Node a{world, 0, config_of_thread(1)}, b{world, 1, config_of_thread(2)};
    unsigned failures = 0;
    Pair() {
        a.on_failure = b.on_failure = [this](Channel&, Status) { ++failures; };
    }
    [[nodiscard]] Node& node(unsigned i) { return i ? b : a; }

    // Queue pairs of a node that exist.
    [[nodiscard]] unsigned queue_pairs(unsigned node) {
        unsigned n = 0;
        for (std::uint32_t d = 0; d < world.image().devices; ++d)
            if (world.image().device(d).node == node) n += world.objects(d).queue_pairs;
        return n;
    }
    // For a while `computing` makes no progress, so that its other thread does what its peer wants. The most queue
    // pairs that it has had; how often it has destroyed some.
    unsigned most = 0, destroyed = 0;
    void compute(unsigned computing, Nanos time) {
        const Nanos end = world.now() + time;
        do {
            const unsigned before = queue_pairs(computing);
            (void)(node(computing).services().run_background() | (node(computing).iface().serve() != 0));
            const unsigned now = queue_pairs(computing);
            destroyed += now < before;
            most = std::max(most, now);
            while (node(!computing).progress()) {}
        } while (world.now() < end && world.step());
    }
    bool until(const std::function<bool()>& condition, Nanos limit = 100'000'000) {
        for (const Nanos end = world.now() + limit; !condition();) {
            while (a.progress() | b.progress()) {}
            if (condition()) break;
            if (world.now() > end || !world.step()) return false;
        }
        return true;
    }
};

} // namespace

// The adapter makes a queue pair and refuses what comes next; of another adapter there is one already.
BOOST_DATA_TEST_CASE(a_queue_pair_that_cannot_be_made_to_the_end, boost::unit_test::data::make({0u, 1u}), computing) {
    Pair pair;
    const unsigned before = pair.queue_pairs(computing);
    const std::string port = std::to_string(computing) + ":softhca_1:1";
    std::string error;
    for (unsigned round = 1; round <= 3; ++round) {
        pair.world.fault("queue-pairs refused " + port);
        Channel* const to = pair.a.iface().attach(pair.b.iface().address(), error);
        BOOST_REQUIRE(to);
        pair.world.select(0);
        BOOST_TEST((channel::Interface::am_short(*to, 1, 0, nullptr, 0) == Status::no_resource));
        pair.most = 0;
        pair.compute(computing, 30'000'000);
        BOOST_TEST(pair.most == before + 2);
        BOOST_TEST(pair.destroyed == 0u);
        // Progress clears up.
        BOOST_TEST(pair.until([&] { return pair.queue_pairs(computing) == before && pair.failures == round; }));
    }
    pair.world.fault("queue-pairs granted " + port);
    Channel* const to = pair.a.iface().attach(pair.b.iface().address(), error);
    BOOST_REQUIRE(to);
    BOOST_TEST(pair.until([&] { return channel::Interface::am_short(*to, 1, 0, nullptr, 0) == Status::ok; }));
    BOOST_TEST(pair.queue_pairs(computing) == before + 2);
}

// The client falls silent when the server has made its ends: they are given up by the timer of the server's thread.
BOOST_AUTO_TEST_CASE(a_handshake_that_is_given_up) {
    Pair pair;
    const unsigned before = pair.queue_pairs(1);
    std::string error;
    Channel* const to = pair.a.iface().attach(pair.b.iface().address(), error);
    BOOST_REQUIRE(to);
    pair.world.select(0);
    BOOST_TEST((channel::Interface::am_short(*to, 1, 0, nullptr, 0) == Status::no_resource));
    for (const Nanos end = pair.world.now() + 40'000'000; pair.world.now() < end && pair.world.step();) {
        const unsigned there = pair.queue_pairs(1);
        if (there == before)
            while (pair.a.progress()) {} // until it has asked
        (void)(pair.b.services().run_background() | (pair.b.iface().serve() != 0));
        pair.destroyed += pair.queue_pairs(1) < there;
    }
    BOOST_TEST(pair.queue_pairs(1) == before + 2);
    BOOST_TEST(pair.destroyed == 0u);
    while (pair.b.progress()) {}
    BOOST_TEST(pair.queue_pairs(1) == before);
}

// It has asked whether a connection may end, and computes when the peer agrees. Who comes again is heard all the same:
// no endpoint there has to wait for the old one.
BOOST_AUTO_TEST_CASE(a_peer_that_has_asked_computes) {
    Pair pair;
    std::string error;
    Channel* const to = pair.a.iface().attach(pair.b.iface().address(), error);
    BOOST_REQUIRE(to);
    const auto say = [&] {
        pair.world.select(0);
        return channel::Interface::am_short(*to, 1, 0, nullptr, 0);
    };
    BOOST_REQUIRE(pair.until([&] { return say() == Status::ok; }));
    pair.until([] { return false; }, 1'000'000); // it has arrived
    Channel* const back = pair.b.iface().attach(pair.a.iface().address(), error);
    BOOST_REQUIRE(back);
    pair.b.iface().detach(*back);
    BOOST_REQUIRE(pair.until([&] { return pair.b.iface().park(*back) == Status::in_progress; }));
    for (unsigned i = 0; i < 100 && !to->parked; ++i) pair.compute(1, 10'000);
    BOOST_REQUIRE(to->parked);
    BOOST_TEST((say() == Status::no_resource));
    pair.compute(1, 15'000'000);
    BOOST_TEST((say() == Status::ok));
    pair.until([] { return false; }, 1'000'000);
    BOOST_TEST(pair.failures == 0u);
}
