// Persistent all-to-alls over the real transport in virtual time: what is hidden behind computation by the host, by a
// progress thread and by adapters; over one rail and two; and links that are pulled meanwhile.
#define BOOST_TEST_MODULE pml_sim_persistent
#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <random>

#include "pml/sim_persistent.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

// How much of an exchange is not seen by programs that compute for as long as it takes, and whether a processor looks.
BOOST_AUTO_TEST_CASE(while_programs_compute) {
    const PersistentRow host = persistent_row(16, 65536, PersistentWay::host, 2),
                        thread = persistent_row(16, 65536, PersistentWay::thread, 2),
                        adapter = persistent_row(16, 65536, PersistentWay::adapter, 2),
                        one_rail = persistent_row(16, 65536, PersistentWay::adapter, 1);
    for (const PersistentRow* row : {&host, &thread, &adapter, &one_rail})
        BOOST_TEST_MESSAGE(row->name << ", " << row->rails << " rails: alone " << row->alone << " ns, hidden "
                                     << row->hidden << ", looks " << row->looks);
    BOOST_TEST(host.hidden < thread.hidden);
    BOOST_TEST(adapter.hidden >= 0.95);
    BOOST_TEST(adapter.looks == 0u);
    BOOST_TEST(thread.looks > 0u);
    BOOST_TEST(static_cast<double>(one_rail.alone) >= 1.9 * static_cast<double>(adapter.alone));
}

// Queues fail with their link; what they have not brought goes on by messages, once, and later starts by the host.
BOOST_AUTO_TEST_CASE(links_are_pulled) {
    PersistentWorld world(4, 40000, MP_ENGINE_AUTO, 2);
    world.warm_up();
    const std::uint64_t before = world.count("striped");
    world.cluster.world.fault("port down 1:softhca_0:1");
    // An adapter tries again for so long; the port's own side sees it at once, and tells the other one.
    constexpr Nanos kRetries = (verbs::Reliability{}.retry_count + 1) * (Nanos{4096} << verbs::Reliability{}.timeout);
    BOOST_TEST(world.one(0) < kRetries / 10);
    for (int i = 0; i < 5; ++i) (void)world.one(0);
    BOOST_TEST(world.count("pairs ended") > 0u);
    BOOST_TEST(world.count("stripes resent") > 0u);
    world.cluster.world.fault("port up 1:softhca_0:1");
    for (int i = 0; i < 40; ++i) {
        (void)world.one(0);
        world.cluster.run_for(1'000'000);
    }
    const std::uint64_t later = world.count("striped");
    BOOST_TEST(later > before);
    (void)world.one(0);
    BOOST_TEST(world.count("striped") - later == 12u); // all of them are back
    BOOST_TEST(world.count("dropped") == 0u);
    BOOST_TEST(world.wrong == 0u);
}

// Ports go down at any moment, for a while that queues outlive or not, also both of a node; programs start meanwhile,
// and compute. TESTS_EVENTS: how many; a seed of its own for each hundred.
BOOST_AUTO_TEST_CASE(campaign) {
    const char* const wanted = std::getenv("TESTS_EVENTS");
    const int events = wanted ? std::atoi(wanted) : 600;
    std::uint64_t ended = 0, resent = 0, striped = 0;
    for (int done = 0; done < events;) {
        const auto seed = static_cast<std::uint32_t>(1 + done / 100);
        BOOST_TEST_CONTEXT("seed " << seed) {
            std::mt19937 random(seed);
            PersistentWorld world(2 + seed % 4, 5000 + random() % 30000, MP_ENGINE_AUTO, 2);
            world.warm_up();
            for (int event = 0; event < 100 && done < events; ++event, ++done) {
                const std::string port =
                    std::to_string(random() % world.ranks()) + ":softhca_" + std::to_string(random() % 2) + ":1";
                const Nanos now = world.cluster.world.now(), after = random() % 60'000,
                            length =
                                random() % 3 ? 10'000 + random() % 1'000'000 : 800'000'000 + random() % 500'000'000;
                (void)world.cluster.world.at(now + after,
                                             [&world, port] { world.cluster.world.fault("port down " + port); });
                (void)world.cluster.world.at(now + after + length,
                                             [&world, port] { world.cluster.world.fault("port up " + port); });
                for (unsigned i = 1 + random() % 3; i > 0; --i) (void)world.one(random() % 2 ? 0 : random() % 100'000);
                if (random() % 2) world.cluster.run_for(1'000'000'000); // all are up again
            }
            world.cluster.run_for(3'000'000'000);
            BOOST_REQUIRE_EQUAL(world.wrong, 0u);
            BOOST_REQUIRE_EQUAL(world.count("dropped"), 0u);
            ended += world.count("pairs ended");
            resent += world.count("stripes resent");
            striped += world.count("striped");
        }
    }
    BOOST_TEST(ended > 0u);
    BOOST_TEST(resent > 0u);
    BOOST_TEST(striped > 0u);
}
