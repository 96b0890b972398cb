// Policies against a model of paths. The default one keeps its promises (the transport's targets for unequal rails, hot
// routes, moving hot routes) of the free capacity, and reaches what the best of the others reaches.
#define BOOST_TEST_MODULE schedule_closed_loop
#include <boost/test/unit_test.hpp>

#include <cstdio>

#include "schedule/path_model.h"

using namespace ucx_mp::schedule;
using namespace ucx_mp::schedule::test;

namespace {

constexpr std::uint64_t kKiB = 1 << 10, kMiB = 1 << 20;

Network rails(std::initializer_list<double> gbps) {
    Network net;
    for (double r : gbps) {
        net.routes.push_back({.rate = r * kGb, .rail = unsigned(net.rails.size())});
        net.rails.push_back(r * kGb);
    }
    return net;
}
// `n` routes that share one rail.
Network routes(unsigned n, double gbps, unsigned rail_count = 1) {
    Network net;
    for (unsigned r = 0; r < rail_count; ++r) {
        net.rails.push_back(gbps * kGb);
        for (unsigned i = 0; i < n; ++i) net.routes.push_back({.rate = gbps * kGb, .rail = r});
    }
    return net;
}
void make_hot(Network& net, double share = 0.75) {
    net.taken = [share](unsigned r, double) { return r == 1 ? share : 0.0; };
}
void make_moving(Network& net, double share = 0.75) { // every 100 ms another route
    net.taken = [share, n = net.routes.size()](unsigned r, double t) {
        return r == std::size_t(t / (100 * kMs)) % n ? share : 0.0;
    };
}

struct Case {
    const char* name;
    Network net;
    double free_gbps;
    double end_ms;
    double of_free; // the default's promise, several messages of 1 MiB or 4 MiB outstanding
};

std::vector<Case> cases() {
    std::vector<Case> out;
    out.push_back({"2 rails", rails({8, 8}), 16, 100, 0.98});
    out.push_back({"8+2", rails({8, 2}), 10, 200, 0.95});
    out.push_back({"hot", rails({8, 8, 8, 8}), 26, 100, 0.93});
    make_hot(out.back().net);
    out.push_back({"moving", rails({8, 8, 8, 8}), 26, 450, 0.93});
    make_moving(out.back().net);
    out.push_back({"1x4 moving", routes(4, 8), 8, 450, 0.93}); // the rail is the bottleneck
    make_moving(out.back().net);
    out.push_back({"2x4 moving", routes(4, 8, 2), 16, 450, 0.93});
    make_moving(out.back().net);
    out.push_back({"late polls", rails({8, 8, 8, 8}), 26, 450, 0.93}); // completions found every 100 us
    make_moving(out.back().net);
    out.back().net.poll_interval = 100000;
    return out;
}

constexpr const char* kOthers[] = {"binding",       "window_rr",     "even", "weighted",      "adaptive",
                                   "bss:n_batch=2", "bss:n_batch=3", "epc",  "load_balanced", "spray"};

} // namespace

BOOST_AUTO_TEST_CASE(share_of_free_capacity) {
    for (const Load& load : {Load{64 * kKiB, 16}, Load{kMiB, 1}, Load{kMiB, 4}, Load{4 * kMiB, 4}}) {
        if (kQuick && load.size < kMiB) continue;
        std::printf("\n%4zu KiB, %2u outstanding; share of free capacity / stripes per message\n",
                    std::size_t(load.size / kKiB), load.outstanding);
        for (const Case& c : cases()) {
            const double end_ms = kQuick ? std::min(c.end_ms, 120.0) : c.end_ms;
            const Result r = simulate(c.net, "default", load, 20 * kMs, end_ms * kMs);
            const double share = r.gbps() / c.free_gbps;
            std::printf("%-14s  %6.3f /%5.1f\n", c.name, share, double(r.stripes) / double(r.messages));
            // One message at a time has its latency to pay, and found-late completions leave nothing to do.
            const bool alone = load.outstanding == 1;
            if (alone && c.net.poll_interval > 0) continue;
            BOOST_TEST(share >= c.of_free - (alone ? 0.01 : 0.0), c.name << ": " << share);
            BOOST_TEST(share < 1.01);
        }
    }
}

// In builds with assertions these are the only runs of the other policies over all networks.
BOOST_AUTO_TEST_CASE(every_policy_gets_along_everywhere) {
    for (const Case& c : cases()) {
        if (c.net.poll_interval == 0 && !kQuick) continue; // the next case has those
        for (const char* policy : kOthers)
            BOOST_TEST(simulate(c.net, policy, {kMiB, 4}, 20 * kMs, 120 * kMs).gbps() > 0.05 * c.free_gbps,
                       policy << ", " << c.name);
    }
}

BOOST_AUTO_TEST_CASE(default_reaches_the_best_of_all_policies) {
    for (const Case& c : cases()) {
        if (c.net.poll_interval > 0 || kQuick) continue;
        for (const Load& load : {Load{64 * kKiB, 1}, Load{64 * kKiB, 16}, Load{kMiB, 1}, Load{kMiB, 4}}) {
            double best = 0;
            std::string who;
            for (const char* policy : kOthers) {
                const double rate = simulate(c.net, policy, load, 20 * kMs, 220 * kMs).gbps();
                if (rate > best) best = rate, who = policy;
            }
            const double ours = simulate(c.net, "default", load, 20 * kMs, 220 * kMs).gbps();
            // One small message at a time, whose rail is the bottleneck: the paths' pieces are in each other's way, and
            // being behind the others says little. What is gained by believing it less, fat trees show (perf:
            // fat_tree).
            const bool shared = load.size < kMiB && load.outstanding == 1 && c.net.routes.size() > c.net.rails.size();
            BOOST_TEST(ours >= (shared ? 0.90 : 0.97) * best, c.name << ", " << load.size << " x " << load.outstanding
                                                                     << ": " << ours << " Gb/s, " << who << " "
                                                                     << best);
        }
    }
}

BOOST_AUTO_TEST_CASE(two_equal_rails_double_one) {
    for (const Load& load : {Load{kMiB, 1}, Load{kMiB, 4}, Load{4 * kMiB, 1}, Load{4 * kMiB, 4}}) {
        const Network one = rails({8}), two = rails({8, 8});
        const double single = simulate(one, "default", load, 20 * kMs, 200 * kMs).rate;
        const double both = simulate(two, "default", load, 20 * kMs, 200 * kMs).rate;
        BOOST_TEST(both >= 1.95 * single, load.size << " x " << load.outstanding << ": " << both / single);
    }
}

BOOST_AUTO_TEST_CASE(small_messages_keep_their_latency_while_a_hot_route_moves) {
    Network net = rails({8, 8, 8, 8});
    make_moving(net, 0.9999); // a message of 8 bytes takes 80 us there instead of 2
    const Load load{.size = 8, .outstanding = 1, .kind = MessageKind::am, .gap = 5000};
    std::printf("\n8 bytes, one at a time, a very hot route moves every 100 ms: latency in us\n");
    for (const char* policy : {"binding", "round_robin", "window_rr", "default"}) {
        const Result r = simulate(net, policy, load, 10 * kMs, 810 * kMs);
        std::printf("%-14s median %5.1f  p99 %5.1f  p99.9 %5.1f  max %5.1f\n", policy, r.quantile(0.5) / 1e3,
                    r.quantile(0.99) / 1e3, r.quantile(0.999) / 1e3, r.quantile(1) / 1e3);
        if (std::string(policy) == "default") BOOST_TEST(r.quantile(0.999) < 2500);
    }
}

BOOST_AUTO_TEST_CASE(eager_streams_use_the_rails_in_proportion) {
    const Load load{.size = 8 * kKiB, .outstanding = 64, .kind = MessageKind::am};
    BOOST_TEST(simulate(rails({8, 8}), "default", load, 10 * kMs, 60 * kMs).gbps() > 0.95 * 16);
    BOOST_TEST(simulate(rails({8, 2}), "default", load, 10 * kMs, 60 * kMs).gbps() > 0.95 * 10);
}

// Dissertation 6: four queue pairs on a port, each with a send engine of 1661 MB/s that needs some time per descriptor;
// the port has 2745 MB/s. Non-blocking windows want whole messages; blocking ones want stripes. The paper doesn't give
// the time per descriptor, so it is varied: the default must be as good as the better of even and EPC, without EPC's
// hint.
BOOST_AUTO_TEST_CASE(send_engines) {
    std::printf("\n4 queue pairs per port: even / EPC / default, MB/s of 16 outstanding; us of 1 outstanding\n%-10s",
                "descriptor");
    for (unsigned kib : {16, 32, 64, 256}) std::printf("%9u KiB                    ", kib);
    std::printf("\n");
    for (double descriptor : {0.0, 1000.0, 2000.0, 4000.0, 8000.0}) {
        if (kQuick && descriptor != 4000) continue;
        Network net;
        net.rails = {2.745};
        for (int i = 0; i < 4; ++i) net.routes.push_back({.rate = 1.661, .descriptor = descriptor});
        std::printf("%5.0f us  ", descriptor / 1000);
        for (std::uint64_t kib : {16, 32, 64, 256}) {
            double rate[3], latency[3];
            const char* const policies[] = {"even", "epc", "default"};
            for (int k = 0; k < 3; ++k) {
                Load load{.size = kib * kKiB, .outstanding = 16};
                if (k == 1) load.hint = TrafficHint::non_blocking;
                rate[k] = 1000 * simulate(net, policies[k], load, 10 * kMs, 60 * kMs).rate;
                load.outstanding = 1;
                if (k == 1) load.hint = TrafficHint::blocking;
                latency[k] = simulate(net, policies[k], load, 10 * kMs, 40 * kMs).quantile(0.5) / 1000;
            }
            std::printf("%5.0f/%4.0f/%4.0f %5.1f/%5.1f/%5.1f ", rate[0], rate[1], rate[2], latency[0], latency[1],
                        latency[2]);
            BOOST_TEST_CONTEXT(kib << " KiB, " << descriptor << " ns") {
                // The policy knows the processor's time for a descriptor, not the adapter's.
                BOOST_TEST(rate[2] >= (descriptor < 4000 ? 0.95 : 0.87) * std::max(rate[0], rate[1]));
                BOOST_TEST(latency[2] <= 1.02 * std::min(latency[0], latency[1]));
                if (kib <= 32 && descriptor >= 4000) BOOST_TEST(rate[2] >= 1.12 * rate[0]);
            }
        }
        std::printf("\n");
    }
}

// Two of four routes fail one after the other and come back; what was on them is sent again.
BOOST_AUTO_TEST_CASE(paths_fail_and_return) {
    const Network net = rails({8, 8, 8, 8});
    const char* const policies[] = {"even",          "weighted", "adaptive", "bss:n_batch=4",
                                    "load_balanced", "spray",    "default"};
    std::printf("\n4 routes, share of the free capacity: before, one down, two down, 5 ms after their return\n");
    for (const char* policy : policies) {
        const PolicyConfig config = *make_policy(policy).config;
        Simulation sim(net, config, setup_of(net));
        std::vector<double> marks;
        const auto mark = [&] { marks.push_back(sim.bytes()); };
        for (double t : {20, 70, 75, 125, 130, 180, 185, 235}) sim.at(t * kMs, mark);
        sim.at(70 * kMs, [&] { sim.fail(1); });
        sim.at(125 * kMs, [&] { sim.fail(3); });
        sim.at(180 * kMs, [&] { sim.restore(1), sim.restore(3); });
        (void)sim.run({kMiB, 4}, 0, 240 * kMs);
        BOOST_TEST_REQUIRE(marks.size() == 8u);
        std::printf("%-14s", policy);
        const double free_paths[] = {4, 3, 2, 4};
        for (int k = 0; k < 4; ++k) {
            const double share = (marks[2 * k + 1] - marks[2 * k]) / (50 * kMs * free_paths[k] * 8 * kGb);
            std::printf(" %6.3f", share);
            if (std::string(policy) == "default") BOOST_TEST(share > 0.97, "phase " << k << ": " << share);
            BOOST_TEST(share > 0.7, policy << ", phase " << k << ": " << share);
        }
        std::printf("\n");
    }
}

BOOST_AUTO_TEST_CASE(most_routes_hot) { // 8.1.2: where BSS is meant to beat HSAM
    Network net = routes(12, 8);
    net.rails[0] = 24 * kGb;
    net.taken = [](unsigned r, double) { return r < 8 ? 0.9 : 0.0; };
    for (auto& r : net.routes) r.descriptor = 5000;
    const Load load{256 * kKiB, 1};
    const double hsam = simulate(net, "adaptive", load, 100 * kMs, 300 * kMs).rate;
    const double bss = simulate(net, "bss:n_paths=12,n_batch=3", load, 100 * kMs, 300 * kMs).rate;
    // What a descriptor takes of the adapter the policy does not measure: it has to be told.
    const double ours = simulate(net, "default:descriptor_cost=5us", load, 100 * kMs, 300 * kMs).rate;
    std::printf("\n12 routes, 8 of them hot: HSAM %.2f, BSS(12,3) %.2f, default %.2f Gb/s\n", hsam / kGb, bss / kGb,
                ours / kGb);
    BOOST_TEST(ours >= 0.95 * std::max(hsam, bss));
}
