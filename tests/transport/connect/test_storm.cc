// 64 nodes connect all-to-all at the same moment, with losses: every pair ends with one connection.
#define BOOST_TEST_MODULE storm
#include <boost/test/unit_test.hpp>

#include <set>

#include "connect/handshake_fixture.h"

using namespace ucx_mp;
using namespace ucx_mp::test;

namespace {

constexpr std::size_t kNodes = 64;

struct Result {
    connect::ControlCounters messages;
    Nanos took = 0;
    std::uint64_t fingerprint = 0;
};

Result storm(const std::string& fault, std::uint64_t seed) {
    ControlConfig config;
    config.seed = seed;
    Cluster c(std::vector<std::string>(kNodes, "aa"), config, {}, seed);
    if (!fault.empty()) c.world().fault(fault);
    const Nanos start = c.world().now();
    for (std::size_t i = 0; i < kNodes; ++i)
        for (std::size_t j = 0; j < kNodes; ++j)
            if (i != j) c[i].connect_to(c[j]);
    const auto done = [&] {
        for (const auto& n : c.nodes)
            if (n->plane->busy()) return false;
        return true;
    };
    BOOST_TEST(c.run(done));
    Result r{c.total(), c.world().now() - start, 0};
    // Late copies change nothing.
    c.settle(kSecond);
    std::size_t good = 0, servers = 0, paths = 0;
    for (const auto& n : c.nodes) {
        BOOST_TEST(n->peers.size() == kNodes - 1);
        for (const auto& [id, p] : n->peers) {
            good += p->connection.state == State::established && p->times_established == 1 && p->times_failed == 0 &&
                    p->times_abandoned == 0 && p->queue_pairs.size() == p->connection.paths.size();
            servers += p->connection.server;
            paths += p->connection.paths.size();
        }
    }
    BOOST_TEST(good == kNodes * (kNodes - 1));
    BOOST_TEST(servers == kNodes * (kNodes - 1) / 2);
    BOOST_TEST(paths == 2 * kNodes * (kNodes - 1));
    r.fingerprint = c.world().fingerprint();
    c.world().fault("clear");
    BOOST_TEST(c.greet());
    const connect::ControlCounters& m = r.messages;
    std::printf(
        "%zu nodes, 2 rails, %-15s %4.1f messages per connection (%llu sent, %llu repeated, %llu late, %llu unsent), "
        "done in %.1f ms\n",
        kNodes, fault.empty() ? "no losses" : fault.c_str(), double(m.sent) / (kNodes * (kNodes - 1) / 2),
        static_cast<unsigned long long>(m.sent), static_cast<unsigned long long>(m.repeated),
        static_cast<unsigned long long>(m.late), static_cast<unsigned long long>(m.unsent), double(r.took) * 1e-6);
    BOOST_TEST(m.dropped == 0u);
    return r;
}

} // namespace

BOOST_AUTO_TEST_CASE(all_to_all_without_losses) {
    const Result r = storm("", 1);
    BOOST_TEST(r.messages.repeated == 0u); // what finds no room waits for it
}

BOOST_AUTO_TEST_CASE(all_to_all_with_losses) {
    const Result r = storm("drop 5% all", 2);
    BOOST_TEST(r.took < 5 * kSecond);
    BOOST_TEST(storm("drop 5% all", 2).fingerprint == r.fingerprint);
}

BOOST_AUTO_TEST_CASE(all_to_all_with_many_losses) { BOOST_TEST(storm("drop 20% all", 3).took < 20 * kSecond); }
