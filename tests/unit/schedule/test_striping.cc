// Cutting, even and weighted striping.
#define BOOST_TEST_MODULE schedule_striping
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <numeric>

#include "schedule/schedule_fixture.h"

using namespace ucx_mp::schedule;
using namespace ucx_mp::schedule::test;

namespace {

std::vector<std::uint64_t> lengths(const Plan& plan) {
    std::vector<std::uint64_t> out;
    for (unsigned k = 0; k < plan.count; ++k) out.push_back(plan.stripes[k].length);
    return out;
}
using Lengths = std::vector<std::uint64_t>;

} // namespace

BOOST_AUTO_TEST_CASE(cut_is_proportional_and_aligned) {
    Shares shares;
    for (double s : {1.0, 2.0, 1.0}) shares.add(PathIndex(shares.count), s);
    Plan plan;
    cut(shares, 65536, 64, plan);
    BOOST_TEST(lengths(plan) == Lengths({16384, 32768, 16384}), boost::test_tools::per_element());
    cut(shares, 1000, 64, plan); // 250 -> 256, 750 -> 768
    BOOST_TEST(lengths(plan) == Lengths({256, 512, 232}), boost::test_tools::per_element());
    cut(shares, 1000, 4096, plan); // no room for a cut
    BOOST_TEST(lengths(plan) == Lengths({1000}), boost::test_tools::per_element());
    cut(shares, 0, 64, plan);
    BOOST_TEST(lengths(plan) == Lengths({0}), boost::test_tools::per_element());
    cut(shares, UINT64_MAX, 64, plan);
    BOOST_TEST(plan.count == 3u);
    BOOST_TEST(lengths(plan)[0] + lengths(plan)[1] + lengths(plan)[2] == UINT64_MAX);
}

// A cut that would be rounded up beyond the end is none.
BOOST_AUTO_TEST_CASE(no_cut_beyond_the_end) {
    Shares shares;
    for (double s : {999.0, 1.0}) shares.add(PathIndex(shares.count), s);
    Plan plan;
    cut(shares, 1000, 64, plan); // 999 -> 1024
    BOOST_TEST(lengths(plan) == Lengths({1000}), boost::test_tools::per_element());
    BOOST_TEST(plan.stripes[0].path == 0);
    cut(shares, 1024, 64, plan); // 1022.976 -> 1024
    BOOST_TEST(lengths(plan) == Lengths({1024}), boost::test_tools::per_element());
}

// Three paths of which two have room for the minimum: who sat out is owed its third.
BOOST_AUTO_TEST_CASE(who_sits_out_is_owed_its_share) {
    Peer peer("even:min_stripe=8K", equal_paths(3));
    (void)peer.put(20480);
    BOOST_TEST(lengths(peer.plan) == Lengths({10240, 10240}), boost::test_tools::per_element());
    BOOST_TEST(peer.plan.stripes[0].path == 1);
    BOOST_TEST(peer.plan.stripes[1].path == 2);
    BOOST_TEST(peer.path(0).carry == 20480.0 / 3, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(peer.path(1).carry == 20480.0 / 3 - 10240, boost::test_tools::tolerance(1e-9));
    (void)peer.put(20480); // two thirds, a sixth and a sixth: the others would have 3.4 KB each
    BOOST_TEST(lengths(peer.plan) == Lengths({20480}), boost::test_tools::per_element());
    BOOST_TEST(peer.plan.stripes[0].path == 0);
}

BOOST_AUTO_TEST_CASE(even_on_two_rails_halves) {
    Peer peer("even", equal_paths(2));
    BOOST_TEST(int(peer.put(1 << 20)) == int(Outcome::stripes));
    BOOST_TEST(lengths(peer.plan) == Lengths({1 << 19, 1 << 19}), boost::test_tools::per_element());
    BOOST_TEST(peer.path(1).of(Direction::write).in_flight == 1u << 19);
}

BOOST_AUTO_TEST_CASE(threshold_separates_whole_from_striped) {
    Peer peer("even", equal_paths(4));
    (void)peer.put(16383);
    BOOST_TEST(peer.plan.count == 1u);
    (void)peer.put(16384); // dissertation 6.2.3: rendezvous threshold = striping threshold
    BOOST_TEST(lengths(peer.plan) == Lengths({4096, 4096, 4096, 4096}), boost::test_tools::per_element());
    (void)peer.put(8192, TrafficHint::one_sided_epoch); // 5.2.4: medium ones profit, too
    BOOST_TEST(peer.plan.count == 2u);
    (void)peer.scheduler.plan({1 << 20, MessageKind::am}, peer.plan);
    BOOST_TEST(peer.plan.count == 1u);
    (void)peer.scheduler.plan({1 << 20, MessageKind::control}, peer.plan);
    BOOST_TEST(peer.plan.count == 1u);
}

BOOST_AUTO_TEST_CASE(weighted_follows_the_rails) {
    Peer peer("weighted", weighted_paths({8, 2}));
    (void)peer.put(655360);
    BOOST_TEST(lengths(peer.plan) == Lengths({524288, 131072}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(weight_zero_is_not_used_unless_all_are) {
    Peer peer("weighted", weighted_paths({1, 0, 1}));
    for (int i = 0; i < 100; ++i) {
        (void)peer.put(65536);
        for (unsigned k = 0; k < peer.plan.count; ++k) BOOST_TEST(peer.plan.stripes[k].path != 1);
    }
    Peer zero("weighted", weighted_paths({0, std::nan(""), -1}));
    (void)zero.put(3 * 65536);
    BOOST_TEST(lengths(zero.plan) == Lengths({65536, 65536, 65536}), boost::test_tools::per_element());
    // Only an unweighted path is left: better that than nothing.
    peer.scheduler.set_state(0, PathState::down);
    peer.scheduler.set_state(2, PathState::down);
    BOOST_TEST(int(peer.put(65536)) == int(Outcome::stripes));
    BOOST_TEST(peer.plan.stripes[0].path == 1);
}

BOOST_AUTO_TEST_CASE(no_stripe_below_the_minimum_but_shares_come_true) {
    Peer peer("weighted:min_stripe=8K", weighted_paths({100, 100, 1}));
    std::vector<double> bytes(3);
    constexpr int kMessages = 2000;
    for (int i = 0; i < kMessages; ++i) {
        (void)peer.put(65536);
        for (unsigned k = 0; k < peer.plan.count; ++k) {
            bytes[peer.plan.stripes[k].path] += double(peer.plan.stripes[k].length);
            BOOST_TEST(peer.plan.stripes[k].length > 8192u - 64);
        }
    }
    const double total = 65536.0 * kMessages;
    BOOST_TEST(bytes[0] / total == 100.0 / 201, boost::test_tools::tolerance(0.01));
    BOOST_TEST(bytes[2] / total == 1.0 / 201, boost::test_tools::tolerance(0.02));
}

BOOST_AUTO_TEST_CASE(message_too_small_for_all_paths_takes_turns) {
    Peer peer("even:min_stripe=8K", equal_paths(8));
    std::vector<int> used(8);
    for (int i = 0; i < 80; ++i) {
        (void)peer.put(16384);
        BOOST_TEST(peer.plan.count <= 2u);
        for (unsigned k = 0; k < peer.plan.count; ++k) ++used[peer.plan.stripes[k].path];
    }
    for (int n : used) BOOST_TEST(n >= 10);
}

BOOST_AUTO_TEST_CASE(one_path_and_no_path) {
    Peer peer("even", equal_paths(2));
    peer.scheduler.set_state(1, PathState::suspect);
    (void)peer.put(1 << 20);
    BOOST_TEST(peer.plan.count == 1u);
    BOOST_TEST(peer.plan.stripes[0].path == 0);
    peer.scheduler.set_state(0, PathState::down);
    BOOST_TEST(int(peer.put(1 << 20)) == int(Outcome::no_path));
    BOOST_TEST(int(peer.put(8)) == int(Outcome::no_path));
    BOOST_TEST(peer.scheduler.place(Direction::write, 8) == kNoPath);
    peer.scheduler.set_state(1, PathState::up);
    BOOST_TEST(peer.scheduler.place(Direction::write, 8) == 1);
}

BOOST_AUTO_TEST_CASE(returned_path_starts_with_a_sixteenth) {
    Peer peer("even", equal_paths(2));
    peer.scheduler.set_state(1, PathState::down);
    peer.scheduler.set_state(1, PathState::up);
    (void)peer.put(17 * 65536);
    BOOST_TEST(lengths(peer.plan) == Lengths({16 * 65536, 65536}), boost::test_tools::per_element());
    for (int i = 0; i < 20; ++i) peer.small_done(1, 1000, 3000);
    peer.scheduler.set_state(0, PathState::suspect); // forget what is owed
    peer.scheduler.set_state(0, PathState::up);
    (void)peer.put(1 << 20);
    BOOST_TEST(double(peer.plan.stripes[0].length) == double(1 << 19), boost::test_tools::tolerance(0.001));
}
