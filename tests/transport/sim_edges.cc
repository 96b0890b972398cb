// Numbers that count, near their edges: where they wrap, and where half of their round has passed. PROTOCOL.md lists
// them ("Numbers that wrap").
#define BOOST_TEST_MODULE transport_edges
#include <array>

#include "both_transports.h"
#include "edges.h"
#include "simulator/traffic.h"
#include "uct_mp/schedule/policy_factory.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
using channel::Interface;
using connect::Transport;

namespace {

constexpr Nanos kMs = 1'000'000;

struct Done : Completion {
    Done() : Completion{fired, 1, Status::ok} {}
    bool done = false;
    static void fired(Completion* self) { static_cast<Done*>(self)->done = true; }
};

// What decides whether a lost write was executed.
enum class Decides : std::uint8_t { markers_rc, markers_dc, packet_numbers };
std::ostream& operator<<(std::ostream& out, Decides d) {
    return out << std::array{"rc, markers", "dc, markers", "rc, packet numbers"}[static_cast<unsigned>(d)];
}
const auto kDecides = boost::unit_test::data::make({Decides::markers_rc, Decides::markers_dc, Decides::packet_numbers});

channel::Config config_of(Decides decides) {
    channel::Config config = sim::config_of(decides == Decides::markers_dc ? Transport::dc : Transport::rc);
    config.policy = *schedule::make_policy("even").config;
    config.recovery.packet_numbers = decides == Decides::packet_numbers;
    return config;
}

// What the second rail has carried before fences went on without it.
enum class Before : std::uint8_t { nothing, marker, down };
std::ostream& operator<<(std::ostream& out, Before before) {
    return out << std::array{"nothing", "a marker", "a marker, then it was down"}[static_cast<unsigned>(before)];
}

} // namespace

// Fewer buffers than a peer may leave unacknowledged: it owes nothing yet when they are used up, and is asked. Several
// peers have them then, or some that are idle since.
BOOST_DATA_TEST_CASE(few_buffers, sim::kBoth* boost::unit_test::data::make({1u, 3u}), transport, peers) {
    channel::Config config = sim::config_of(transport);
    config.max_send_buffers = 32;
    Cluster cluster("two-rail", 1 + peers, config);
    unsigned got = 0;
    for (unsigned i = 1; i <= peers; ++i)
        cluster.node(i).on_am(
            3, [](void* n, void*, std::size_t, unsigned) { return ++*static_cast<unsigned*>(n), Status::ok; }, &got);
    const auto pack = [](void*, void*) { return std::size_t{600}; };
    constexpr unsigned kEach = 100;
    for (unsigned k = 0; k < kEach; ++k)
        for (unsigned i = 1; i <= peers; ++i) {
            Channel& to = cluster.channel(0, i);
            BOOST_REQUIRE(cluster.until([&] { return Interface::am_bcopy(to, 3, pack, nullptr) >= 0; }));
            BOOST_REQUIRE(cluster.until([&] { return Interface::am_short(to, 3, 0, nullptr, 0) == Status::ok; }));
        }
    BOOST_TEST(cluster.until([&] { return got == 2 * kEach * peers; }));
}

// A write is lost on a path that has carried no marker for long. A message behind the fence behind it sees it all the
// same, however many fences have passed meanwhile.
BOOST_DATA_TEST_CASE(lost_behind_many_fences,
                     kDecides* boost::unit_test::data::make({Before::nothing, Before::marker, Before::down}) *
                         boost::unit_test::data::make({0x100u, 0x7ffffff0u, 0x80000010u, 0xc0000000u, 0xfffffff0u}),
                     decides, before, fences) {
    Cluster cluster("two-rail", 2, config_of(decides), {.seed = 1});
    constexpr std::size_t kBytes = 65536;
    Node::Memory source = cluster.node(0).memory(kBytes), target = cluster.node(1).memory(kBytes),
                 small = cluster.node(1).memory(64);
    for (unsigned i = 0; i < 2; ++i) cluster.node(i).services().quiet = true;
    struct Check {
        const std::byte* at;
        unsigned got = 0;
        long wrong = 0;
    } check{target.data};
    cluster.node(1).on_am(
        3,
        [](void* arg, void*, std::size_t, unsigned) {
            Check& c = *static_cast<Check*>(arg);
            ++c.got;
            for (std::size_t i = 0; i < kBytes; ++i) c.wrong += c.at[i] != std::byte{0x5a};
            return Status::ok;
        },
        &check);
    Channel& to = cluster.channel(0, 1);
    BOOST_REQUIRE(fenced_message(cluster, 0, 1, small));
    const auto put_all = [&] {
        const Iov iov = source.iov(0, kBytes);
        Status status = Status::no_resource;
        Done done;
        cluster.world.select(0);
        (void)cluster.until([&] {
            return (status = Interface::put_zcopy(to, &iov, 1, target.address(), target.keys, nullptr)) !=
                   Status::no_resource;
        });
        (void)Interface::fence(to);
        return !failed(status) &&
               cluster.until([&] { return Interface::am_short(to, 3, 0, nullptr, 0) == Status::ok; });
    };
    std::memset(source.data, 0x5a, kBytes);
    if (before != Before::nothing) BOOST_REQUIRE((put_all() && quiet(cluster, 0, 1)));
    if (before == Before::down) {
        cluster.world.fault("port down 1:softhca_1:1");
        cluster.run_for(10 * kMs);
    } else {
        to.wiring.scheduler->set_spare(2);
    }
    const std::uint32_t puts = to.wiring.paths[1].puts;
    BOOST_REQUIRE(pass_fences(cluster, 0, 1, fences, small));
    BOOST_REQUIRE(to.wiring.paths[1].puts == puts);
    if (before == Before::down) {
        cluster.world.fault("port up 1:softhca_1:1");
        BOOST_REQUIRE(all_up(cluster, 2, 2'000 * kMs));
    }
    to.wiring.scheduler->set_spare(before == Before::down ? 1 : 0); // one that has come back would begin with little
    std::memset(target.data, 0, kBytes);
    check.got = 0;
    check.wrong = 0;
    cluster.world.fault("drop 100% 1:softhca_1:1");
    BOOST_REQUIRE(put_all());
    BOOST_TEST(to.wiring.paths[1].puts != puts);
    BOOST_TEST(cluster.until([&] { return check.got == 1; }));
    BOOST_TEST(check.wrong == 0);
    BOOST_TEST(quiet(cluster, 0, 1));
}

// All traffic, and failures of paths, while numbers of messages and of fences pass their edges; then a round later.
BOOST_DATA_TEST_CASE(traffic_over_the_edges, kDecides* boost::unit_test::data::make({0x80000000u, 0u}), decides, edge) {
    channel::Config config = config_of(decides);
    config.policy = *schedule::make_policy("default").config;
    Cluster cluster("two-rail", 2, config, {.seed = 7});
    for (unsigned i = 0; i < 2; ++i) cluster.node(i).services().quiet = true;
    BOOST_TEST(traffic(cluster, 1) == "");
    const Node::Memory small[] = {cluster.node(0).memory(64), cluster.node(1).memory(64)};
    for (unsigned round = 0; round < 2; ++round) {
        for (unsigned i = 0; i < 2; ++i) {
            BOOST_REQUIRE(quiet(cluster, i, 1 - i));
            BOOST_REQUIRE(pass_fences(cluster, i, 1 - i, edge - 4, small[1 - i]));
        }
        for (unsigned i = 0; i < 2; ++i) {
            BOOST_REQUIRE(quiet(cluster, i, 1 - i));
            set_sequence(cluster, i, 1 - i, edge - 20);
            BOOST_REQUIRE(send_until(cluster, i, 1 - i, edge - 20));
            BOOST_REQUIRE(quiet(cluster, i, 1 - i));
            set_own_numbers(cluster, i, 1 - i);
        }
        const Nanos now = cluster.world.now();
        for (unsigned i = 0; i < 3; ++i) {
            cluster.world.at(now + (2 * i + 1) * kMs, [&] { cluster.world.fault("port down 1:softhca_1:1"); });
            cluster.world.at(now + (2 * i + 2) * kMs, [&] { cluster.world.fault("port up 1:softhca_1:1"); });
        }
        const std::string verdict = traffic(cluster, 2 + round, 300);
        BOOST_TEST(verdict == "");
        BOOST_TEST(cluster.channel(0, 1).next_sequence - edge < 1u << 20); // it has passed
        BOOST_TEST(cluster.channel(0, 1).fences.fence_number - edge < 1u << 20);
        BOOST_REQUIRE(all_up(cluster, 2, 5'000 * kMs));
    }
}
