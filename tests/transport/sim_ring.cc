// Small messages by rings: over DC and over RC, while rings come and go and everything fails. Nothing is lost, nothing
// comes twice, nothing stops; what is forged is not taken for a message.
#define BOOST_TEST_MODULE transport_ring
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cstring>

#include "numbered.h"
#include "ring_nodes.h"
#include "simulator/random_faults.h"
#include "switches.h"
#include "uct_mp/schedule/policy_factory.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

// Whoever wishes, over DC and over RC: messages that fit go by the ring, and it goes away again.
BOOST_DATA_TEST_CASE(comes_and_goes, boost::unit_test::data::make({false, true}), by_rc) {
    const Service service = by_rc ? Service::rc : Service::dc_ring;
    Cluster cluster("two-rail", 2, config());
    BOOST_TEST((serve(cluster, 0, 1, service) == Status::busy)); // not connected
    BOOST_TEST(traffic(cluster, 1) == "");
    for (unsigned round = 0; round < 3; ++round) {
        const OfRings before = of_rings(cluster);
        BOOST_TEST((serve(cluster, 0, 1, service) == Status::ok));
        BOOST_REQUIRE(settles(cluster, 1));
        BOOST_TEST(of_rings(cluster.node(1)).out == 1u);
        cluster.run_for(50 * kMs);
        Notes notes(cluster);
        const std::uint64_t rc = written(cluster.node(1), Kind::rc);
        for (const std::size_t length : {0u, 1u, 7u, 8u, 100u, 240u, 1000u, 4072u})
            BOOST_TEST(notes.send(1, 0, 40, length));
        BOOST_TEST(!notes.wrong);
        BOOST_TEST((written(cluster.node(1), Kind::rc) > rc) == (service == Service::rc));
        BOOST_TEST(of_rings(cluster.node(1)).messages > before.messages + 200);
        BOOST_TEST(statistics(cluster.node(0)).rings.hits > 200u);
        // Too long, and the other direction.
        const std::uint64_t messages = of_rings(cluster).messages;
        BOOST_TEST(notes.send(1, 0, 40, 4073));
        BOOST_TEST(notes.send(0, 1, 40, 8));
        BOOST_TEST(of_rings(cluster).messages == messages);
        BOOST_TEST(!notes.wrong);
        BOOST_TEST(traffic(cluster, 2 + round) == "");
        BOOST_TEST((serve(cluster, 0, 1, Service::shared) == Status::ok));
        BOOST_REQUIRE(settles(cluster, 0));
        BOOST_TEST(traffic(cluster, 20 + round) == "");
    }
    const OfRings after = of_rings(cluster);
    BOOST_TEST(after.again == 0u); // nothing was in the way of a switch
    BOOST_TEST(after.duplicates == 0u);
    cluster.world.at(cluster.world.now() + 3'000 * kMs, [] {});
    cluster.run_for(3'000 * kMs);
    BOOST_TEST(traffic(cluster, 40) == "");
    BOOST_TEST(statistics(cluster.node(0)).rings.bytes == 0u); // no late write can come any more
    BOOST_TEST(statistics(cluster.node(0)).rings.rings == 0u);
}

// One message less than there are slots, then the queue: a handler reads its message in place, and may acknowledge it
// by what it sends. Slots come back with acknowledgments.
BOOST_DATA_TEST_CASE(credits, boost::unit_test::data::make({2u, 4u, 16u}), slots) {
    channel::Config c = config({slots, 256});
    Cluster cluster("two-rail", 2, c);
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST((serve(cluster, 0, 1, Service::dc_ring) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 1));
    cluster.run_for(10 * kMs);
    Notes notes(cluster);
    notes.burst = std::max(1u, slots / 4);
    BOOST_TEST(notes.send(1, 0, 3));
    cluster.run_for(10 * kMs);
    cluster.sleep(0, true);
    channel::Channel& channel = cluster.channel(1, 0);
    const std::uint64_t messages = of_rings(cluster).messages;
    const std::uint32_t in_flight = channel.in_flight();
    unsigned sent = 0;
    for (unsigned i = 0; i < 3 * slots; ++i) sent += Interface::am_short(channel, 9, 0, nullptr, 0) == Status::ok;
    BOOST_TEST(sent > slots);
    BOOST_TEST(of_rings(cluster).messages == messages + std::max(slots - 1, in_flight) - in_flight);
    cluster.sleep(0, false);
    BOOST_TEST(
        cluster.until([&] { return statistics(cluster.node(0)).channels[0].delivered == channel.next_sequence; }));
    const std::uint64_t early = of_rings(cluster).early;
    BOOST_TEST(notes.send(1, 0, 1000));
    BOOST_TEST(!notes.wrong);
    BOOST_TEST(of_rings(cluster).messages > messages + (slots > 2 ? 800 : 0)); // of two, one is never free
    BOOST_TEST(of_rings(cluster).early == early); // what lies in the ring is looked for before what came behind it
}

// Whoever makes progress pays no command for a ring. The ring is there when its memory is, and no message waits for it.
BOOST_AUTO_TEST_CASE(memory_is_registered_aside) {
    Cluster cluster("two-rail", 3, config());
    Notes notes(cluster);
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST(notes.send(1, 0, 100)); // has its buffers
    constexpr Nanos kCommand = 5 * kMs;
    cluster.world.fault("command-cost reg " + std::to_string(kCommand) + "ns all");
    Nanos charged = 0;
    (void)cluster.world.on_command([&](Nanos cost) { charged += cost; });
    const Nanos began = cluster.world.now();
    BOOST_TEST((serve(cluster, 0, 1, Service::dc_ring) == Status::ok));
    BOOST_TEST(notes.send(1, 0, 100));
    BOOST_TEST(cluster.world.now() - began < kCommand); // they have not waited
    BOOST_TEST(of_rings(cluster).offered == 0u);
    BOOST_TEST(settles(cluster, 1));
    BOOST_TEST(cluster.world.now() - began >= kCommand);
    BOOST_TEST(notes.send(1, 0, 100));
    // Slots are free as far as messages before are acknowledged: the first ones may find none.
    BOOST_TEST(of_rings(cluster).messages >= 100 - 2 * notes.burst);
    BOOST_TEST(charged == 0u);
    // Others have been made as well.
    cluster.run_for(2 * link::RingStore::kBatch * kCommand);
    const unsigned prepared = statistics(cluster.node(0)).rings.prepared;
    BOOST_TEST(prepared > 0u);
    BOOST_TEST((serve(cluster, 0, 2, Service::dc_ring) == Status::ok));
    BOOST_TEST(statistics(cluster.node(0)).rings.prepared == prepared - 1);
    BOOST_TEST(settles(cluster, 2));
    BOOST_TEST(!notes.wrong);
    (void)cluster.world.on_command(nullptr);
}

// Queue pairs are made aside as well. However many there are, they do not keep a ring from its memory.
BOOST_AUTO_TEST_CASE(memory_before_queue_pairs) {
    Cluster cluster("two-rail", 2, config());
    BOOST_TEST(traffic(cluster, 1) == "");
    constexpr unsigned kMany = 40;
    cluster.world.fault("command-cost create " + std::to_string(kMs) + "ns all");
    cluster.world.select(0);
    channel::Core& core = cluster.node(0).iface().core();
    unsigned made = 0;
    for (unsigned i = 0; i < kMany; ++i)
        core.halves.make(core.rails[0], [&](verbs::QueuePair half) {
            ++made;
            core.halves.give_up(std::move(half), core.rails[0]);
        });
    const Nanos began = cluster.world.now();
    BOOST_TEST((serve(cluster, 0, 1, Service::dc_ring) == Status::ok));
    BOOST_TEST(settles(cluster, 1));
    BOOST_TEST(made < kMany / 2);
    BOOST_TEST(cluster.world.now() - began < kMany / 2 * kMs);
    BOOST_TEST(cluster.until([&] { return made == kMany; }, 2 * kMany * kMs)); // in their turn
}

BOOST_AUTO_TEST_CASE(limits) {
    std::vector<channel::Config> configs(4, config());
    configs[0].adapt.max_rings = 2;
    configs[3].adapt.max_rings = 0; // knows no rings
    Cluster cluster("two-rail", configs);
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST((serve(cluster, 0, 3, Service::dc_ring) == Status::unsupported));
    BOOST_TEST((serve(cluster, 3, 0, Service::dc_ring) == Status::unsupported));
    BOOST_TEST((serve(cluster, 0, 1, Service::dc_ring) == Status::ok));
    BOOST_TEST((serve(cluster, 0, 2, Service::dc_ring) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 2));
    BOOST_TEST((serve(cluster, 1, 0, Service::dc_ring) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 3));
    BOOST_TEST(statistics(cluster.node(0)).rings.rings == 2u);
    BOOST_TEST(traffic(cluster, 2) == "");
}

// Who sleeps is not woken by a ring: it has none then.
BOOST_AUTO_TEST_CASE(sleepers) {
    Cluster cluster("two-rail", 2, config());
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST((serve(cluster, 0, 1, Service::dc_ring) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 1));
    BOOST_TEST((cluster.node(0).iface().arm() == Status::busy));
    BOOST_TEST(settles(cluster, 0));
    cluster.run_for(10 * kMs);
    BOOST_TEST(cluster.until([&] { return cluster.node(0).iface().arm() == Status::ok; }, 100 * kMs));
    BOOST_TEST((serve(cluster, 0, 1, Service::dc_ring) == Status::unsupported));
    BOOST_TEST(traffic(cluster, 2) == "");
}

// Somebody else writes into the ring, or its source writes what means nothing.
BOOST_DATA_TEST_CASE(forged, boost::unit_test::data::make({0u, 1u, 2u, 3u, 4u, 5u}), what) {
    Cluster cluster("two-rail", 2, config({16, 256}));
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST((serve(cluster, 0, 1, Service::dc_ring) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 1));
    cluster.run_for(10 * kMs);
    Notes notes(cluster);
    BOOST_TEST(notes.send(1, 0, 20));
    unsigned failures = 0;
    for (unsigned i = 0; i < 2; ++i) {
        cluster.node(i).services().threshold = LogLevel::error;
        cluster.node(i).services().quiet = true;
        cluster.node(i).on_failure = [&](channel::Channel&, Status) { ++failures; };
    }
    channel::Channel& receiver = cluster.channel(0, 1);
    channel::RingIn& ring = *receiver.rings->in;
    const std::uint32_t next = receiver.expected;
    std::vector<std::byte> message(256);
    channel::MessageHeader header{.kind = 1,
                                  .version = 1,
                                  .flags = 0,
                                  .am_id = 9,
                                  .path = 0,
                                  .channel = receiver.local_id,
                                  .sequence = next,
                                  .ack = receiver.next_sequence};
    std::uint32_t length = 16;
    std::uint64_t key = ring.key;
    switch (what) {
    case 0:
        key ^= 1ull << 40 | 3; // a stranger
        break;
    case 1:
        key = 0;
        break;
    case 2:
        length = 15; // a source that has lost its mind
        break;
    case 3:
        header.channel ^= 1;
        break;
    case 4:
        header.sequence += 16;
        break;
    default:
        header.am_id = 32;
    }
    std::memcpy(message.data(), &header, sizeof header);
    const std::uint32_t all = link::seal_ring_message(message.data(), length, next, key);
    std::memcpy(ring.memory + ring.shape.end_of(next) - all, message.data(), all);
    cluster.settle_all();
    cluster.run_for(300 * kMs);
    const auto now = statistics(cluster.node(0)).rings;
    if (what < 2) { // nothing of it is believed, and it is told
        BOOST_TEST(failures == 0u);
        BOOST_TEST(notes.send(1, 0, 50));
        BOOST_TEST(!notes.wrong);
        cluster.run_for(300 * kMs);
        BOOST_TEST(traffic(cluster, 2) == "");
        BOOST_TEST(statistics(cluster.node(0)).rings.foreign + (now.foreign == 0) > 0u);
        BOOST_TEST(now.garbled == 0u);
    } else { // only the peer knows the key: as with any other message of it
        BOOST_TEST(now.garbled == 1u);
        BOOST_TEST(failures > 0u);
    }
}

namespace {
const std::vector<Service> kServices{Service::shared, Service::dc_ring, Service::rc, Service::dc_ring};

// Rings are open at both sides or at none.
bool at_rest(Cluster& cluster) {
    const OfRings now = of_rings(cluster);
    return now.in == now.out && now.offered == now.in;
}
} // namespace

// Traffic of all kinds while rings, and RC, come and go; also where adapters place late, each in order.
BOOST_DATA_TEST_CASE(switches_under_traffic,
                     boost::unit_test::data::make({1u, 2u, 3u, 4u, 5u, 6u}) *
                         boost::unit_test::data::make({false, true}),
                     seed, late) {
    channel::Config c = config({seed % 2 ? 16u : 4u, seed % 3 ? 4096u : 256u});
    c.policy = *schedule::make_policy(seed % 2 ? "default" : "round_robin").config;
    c.recovery.watch_interval = 10'000'000; // nothing is to fail
    c.reliability = {};
    Cluster cluster(seed == 3 ? "four-path" : "two-rail", 3, c, {.seed = seed});
    Stress stress(cluster, {.seed = seed, .late = late ? Nanos{20'000} : 0});
    Switches switches(cluster, seed, 100'000, kServices);
    BOOST_TEST(stress.run());
    BOOST_TEST(stress.verdict() == "");
    BOOST_TEST(switches.made > 20u);
    switches.over = true;
    BOOST_TEST(of_rings(cluster).messages > 0u);
    BOOST_TEST(of_rings(cluster).again == 0u);
    cluster.after_progress = {};
    BOOST_TEST(cluster.until([&] { return at_rest(cluster); }, 500 * kMs));
}

// Nobody waits for a switch: every message goes at once and comes as soon as without one. The paper suspends a channel
// meanwhile (AQPS 3.4, J1, J4 and J5).
BOOST_DATA_TEST_CASE(no_message_waits_for_a_switch, boost::unit_test::data::make({"two-rail", "four-path"}), fabric) {
    constexpr Nanos kEvery = 2'000;
    Cluster cluster(fabric, 2, config({16, 256}));
    BOOST_TEST(traffic(cluster, 1) == "");
    Numbered numbered(cluster);
    unsigned refused = 0;
    // The most that are under way at a time.
    const auto send = [&](unsigned count) {
        std::uint64_t most = 0;
        for (unsigned i = 0; i < count; ++i) {
            refused += !numbered.post(1, 0, 8 + i % 100, Numbered::Call::am_short);
            cluster.world.at(cluster.world.now() + kEvery, [] {});
            cluster.run_for(kEvery);
            most = std::max<std::uint64_t>(most, numbered.sent - numbered.got_by(1, 0));
        }
        return most;
    };
    const std::uint64_t usual = send(1000);
    constexpr Service kServed[] = {Service::rc, Service::shared,  Service::dc_ring,
                                   Service::rc, Service::dc_ring, Service::shared};
    for (unsigned i = 0; i < 60; ++i) {
        BOOST_TEST((serve(cluster, 0, 1, kServed[i % 6]) == Status::ok));
        const std::uint64_t most = send(i % 2 ? 2000 : 20); // done, or still at it when the next one comes
        BOOST_TEST(most <= usual);
    }
    BOOST_TEST(refused == 0u);
    BOOST_TEST(cluster.until([&] { return numbered.all_there(); }));
    BOOST_TEST(!numbered.wrong);
    BOOST_TEST(of_rings(cluster).messages > 1000u);
    BOOST_TEST(written(cluster.node(1), Kind::rc) > 0u);
}

// Likewise while everything fails and comes back.
BOOST_DATA_TEST_CASE(switches_and_faults,
                     boost::unit_test::data::make({1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 10u, 11u, 12u}), seed) {
    channel::Config c = config({seed % 2 ? 16u : 4u, seed % 3 ? 4096u : 256u});
    c.recovery.packet_numbers = seed % 3 != 0; // else markers decide
    c.policy = *schedule::make_policy(seed % 2 ? "default" : "round_robin").config;
    Cluster cluster("two-rail", 2, c, {.seed = seed});
    Stress stress(cluster, {.seed = seed, .operations = 1500, .slot = 1 << 18, .constant = 1 << 18});
    Faults faults(cluster, seed);
    Switches switches(cluster, seed, 300'000, kServices);
    BOOST_TEST(stress.run(4'000'000'000));
    faults.over = true;
    BOOST_TEST(stress.verdict() == "");
    BOOST_TEST(faults.begun > 3u);
    BOOST_TEST(switches.made > 3u);
    switches.over = true;
    cluster.after_progress = {};
    BOOST_TEST(cluster.until([&] { return at_rest(cluster); }, 2'000 * kMs));
    BOOST_TEST(of_rings(cluster).messages > 0u);
    for (unsigned i = 0; i < 2; ++i) BOOST_TEST(cluster.node(i).services().errors == 0u);
    BOOST_TEST(traffic(cluster, seed + 100) == "");
}

// A message in a ring that was not acknowledged goes again by other ways, and the ring comes back, elsewhere.
BOOST_DATA_TEST_CASE(failover, boost::unit_test::data::make({false, true}), by_rc) {
    const Service service = by_rc ? Service::rc : Service::dc_ring;
    Cluster cluster("two-rail", 2, config());
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST((serve(cluster, 0, 1, service) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 1));
    cluster.run_for(50 * kMs);
    Notes notes(cluster);
    BOOST_TEST(notes.send(1, 0, 20));
    const std::byte* const before = cluster.channel(0, 1).rings->in->memory;
    cluster.world.fault("drop 100% 1:softhca_0:1"); // silent
    cluster.world.fault("drop 100% 1:softhca_1:1");
    channel::Channel& channel = cluster.channel(1, 0);
    for (unsigned i = 0; i < 10; ++i) BOOST_TEST((Interface::am_short(channel, 9, 0, nullptr, 0) == Status::ok));
    cluster.run_for(200'000);
    cluster.world.fault("drop 0% 1:softhca_1:1");
    BOOST_TEST(notes.send(1, 0, 20));
    BOOST_TEST(of_rings(cluster).again > 0u);
    cluster.world.fault("drop 0% 1:softhca_0:1");
    BOOST_REQUIRE(settles(cluster, 1));
    BOOST_TEST(cluster.channel(0, 1).rings->in->memory != before);
    const std::uint64_t messages = of_rings(cluster).messages;
    BOOST_TEST(notes.send(1, 0, 40));
    BOOST_TEST(of_rings(cluster).messages > messages);
    BOOST_TEST(!notes.wrong);
    BOOST_TEST(traffic(cluster, 3) == "");
}

// Parked with a ring, and closed with one.
BOOST_AUTO_TEST_CASE(endings) {
    Cluster cluster("two-rail", 2, config());
    for (unsigned round = 0; round < 3; ++round) {
        BOOST_TEST(traffic(cluster, 1 + round) == "");
        BOOST_TEST((serve(cluster, 0, 1, Service::dc_ring) == Status::ok));
        BOOST_TEST((serve(cluster, 1, 0, Service::dc_ring) == Status::ok));
        BOOST_REQUIRE(settles(cluster, 2));
        BOOST_TEST(traffic(cluster, 10 + round) == "");
        BOOST_TEST(cluster.until(
            [&] {
                cluster.world.select(0);
                return cluster.node(0).iface().park(cluster.channel(0, 1)) == Status::ok ||
                       statistics(cluster.node(0)).parked;
            },
            100 * kMs));
        BOOST_TEST(of_rings(cluster).offered == 0u);
    }
    BOOST_TEST(traffic(cluster, 5) == "");
    BOOST_TEST((serve(cluster, 0, 1, Service::dc_ring) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 1));
}
