// Policies that choose whose connection ends: what each of them remembers, and whom it takes.
#define BOOST_TEST_MODULE unit_adapt_victims
#include <boost/test/unit_test.hpp>

#include <set>

#include "traces.h"
#include "uct_mp/adapt/victims.h"

using namespace ucx_mp::adapt;

namespace {

constexpr VictimPolicy kPolicies[] = {VictimPolicy::lru, VictimPolicy::lru_m, VictimPolicy::leader};

} // namespace

BOOST_AUTO_TEST_CASE(lru_takes_the_one_unused_for_longest) {
    Victims victims(VictimPolicy::lru, 3);
    for (const Victims::Key peer : {1, 2, 3, 1}) victims.used(peer);
    const Victims::Key all[] = {1, 2, 3};
    BOOST_TEST(victims.choose(all) == 1u);
    const Victims::Key busy[] = {1, 3}; // 2 has something under way
    BOOST_TEST(victims.choose(busy) == 1u);
    const Victims::Key two[] = {2, 3};
    BOOST_TEST(victims.choose(two) == 0u);
    const Victims::Key unknown[] = {1, 9, 3};
    BOOST_TEST(victims.choose(unknown) == 1u); // never used
}

BOOST_AUTO_TEST_CASE(lru_m_takes_the_fewest_tear_downs_first) {
    Victims victims(VictimPolicy::lru_m, 3);
    for (const Victims::Key peer : {1, 2, 3}) victims.used(peer);
    victims.torn_down(1);
    victims.torn_down(1);
    victims.torn_down(2);
    const Victims::Key all[] = {1, 2, 3};
    BOOST_TEST(victims.choose(all) == 2u);
    const Victims::Key two[] = {1, 2};
    BOOST_TEST(victims.choose(two) == 1u);
    BOOST_TEST(victims.tear_downs(1) == 2u);
    BOOST_TEST(victims.tear_downs(9) == 0u); // not known
    // Seven are as many as it counts: of two such the older one goes.
    for (unsigned i = 0; i < 7; ++i) victims.torn_down(3);
    for (unsigned i = 0; i < 8; ++i) victims.torn_down(2);
    BOOST_TEST(victims.tear_downs(2) == 7u);
    const Victims::Key often[] = {3, 2};
    BOOST_TEST(victims.choose(often) == 1u);
}

// Memory has a bound, whoever comes: the older half is forgotten then, but for those that an expert holds.
BOOST_AUTO_TEST_CASE(strangers_are_forgotten) {
    constexpr std::size_t kMost = 8 * 16 + 4096;
    for (const VictimPolicy policy : kPolicies) {
        Victims victims(policy, 16);
        std::size_t before = 0;
        for (Victims::Key peer = 0; peer < 20'000; ++peer) {
            victims.used(peer);
            victims.torn_down(peer);
            const Victims::Key all[] = {peer, peer / 2};
            (void)victims.choose(all);
            const std::size_t now = victims.remembered();
            BOOST_REQUIRE(now <= kMost);
            if (now < before) {
                BOOST_TEST(before == kMost);
                BOOST_TEST(victims.tear_downs(peer) == 1u);
                if (policy == VictimPolicy::leader) {
                    BOOST_TEST((now >= kMost / 2 && now < kMost / 2 + 16 * 6)); // six experts
                } else {
                    BOOST_TEST(now == kMost / 2);
                    BOOST_TEST(victims.tear_downs(peer + 1 - now) == 1u);
                }
            }
            before = now;
        }
    }
}

// A counter that all ask for their next task is the dearest connection of all, and used less often than others: it
// stays. What counts is the time for connections, not their number.
BOOST_AUTO_TEST_CASE(a_dear_connection_stays) {
    constexpr unsigned kPlaces = 4, kPeers = 8, kDear = 40;
    constexpr Victims::Key kCounter = 99;
    const auto paid = [](VictimPolicy policy, bool unknown = false) {
        Victims victims(policy, kPlaces);
        traces::Random random(7);
        std::set<Victims::Key> held, used;
        double sum = 0;
        for (unsigned i = 0; i < 4000; ++i) {
            const Victims::Key peer = i % 20 == 0 ? kCounter : random.below(kPeers);
            if (!held.contains(peer)) {
                if (held.size() == kPlaces) {
                    for (const Victims::Key one : used) victims.used(one);
                    used.clear();
                    const std::vector<Victims::Key> idle(held.begin(), held.end());
                    held.erase(idle.at(victims.choose(idle)));
                }
                held.insert(peer);
                const double price = peer == kCounter ? kDear : 1;
                victims.connected(peer, 1000 * price);
                if (unknown) victims.connected(peer, 0); // nobody knows how long it took: that teaches nothing
                if (i > 400) sum += price;
            }
            used.insert(peer);
        }
        return sum;
    };
    const double ours = paid(VictimPolicy::leader), lru = paid(VictimPolicy::lru);
    BOOST_TEST_MESSAGE("LRU " << lru << ", ours " << ours);
    BOOST_TEST(ours < 0.7 * lru);
    BOOST_TEST(paid(VictimPolicy::leader, true) == ours);
}

// The cheaper one goes. Who is not known is as dear as the mean of all. Only ratios count.
BOOST_AUTO_TEST_CASE(a_cheap_connection_goes_first) {
    for (const double unit : {1.0, 1e-6}) {
        const auto goes = [unit](std::initializer_list<std::pair<Victims::Key, double>> took, Victims::Key older,
                                 Victims::Key newer, unsigned usual = 0) {
            Victims victims(VictimPolicy::leader, 8);
            for (const auto& [peer, time] : took) victims.connected(peer, time * unit);
            for (unsigned i = 0; i < usual; ++i) victims.connected(99, unit); // the mean of all becomes 1
            victims.used(older);
            victims.used(newer);
            const Victims::Key both[] = {older, newer};
            return both[victims.choose(both)];
        };
        BOOST_TEST(goes({}, 1, 2) == 1u);
        BOOST_TEST(goes({{1, 1000}, {2, 1000}}, 1, 2) == 1u);
        BOOST_TEST(goes({{1, 3000}, {2, 1000}}, 1, 2) == 2u);
        BOOST_TEST(goes({{1, 1000}, {2, 3000}}, 2, 3) == 3u);
        BOOST_TEST(goes({{1, 1000}, {2, 3000}}, 3, 1) == 1u);
        // Of its own connections the last one counts half: 1000 and 3000 are 2000, whatever their order.
        for (const auto& [first, second] : {std::pair(1000.0, 3000.0), std::pair(3000.0, 1000.0)}) {
            BOOST_TEST(goes({{1, first}, {1, second}, {2, 1990}}, 1, 2) == 2u);
            BOOST_TEST(goes({{1, first}, {1, second}, {2, 2010}}, 1, 2) == 1u);
        }
        // Of all it counts a sixteenth: 1600 and 3200 are 1700.
        BOOST_TEST(goes({{9, 1600}, {9, 3200}, {1, 1698}}, 3, 1) == 1u);
        BOOST_TEST(goes({{9, 1600}, {9, 3200}, {1, 1702}}, 1, 3) == 3u);
        // Nobody is more than 16 times as dear as the mean, or as cheap: these two are alike.
        BOOST_TEST(goes({{1, 18}, {2, 16.5}}, 1, 2, 300) == 1u);
        BOOST_TEST(goes({{1, 1 / 16.5}, {2, 1 / 18.0}}, 1, 2, 300) == 1u);
        BOOST_TEST(goes({{1, 15.9}, {2, 15}}, 1, 2, 300) == 2u);
        BOOST_TEST(goes({{1, 1 / 15.0}, {2, 1 / 15.9}}, 1, 2, 300) == 2u);
    }
}

// GreedyDual, which leads at first: who is 2.5 times as dear as the others stays beside three of them, whose credits
// are 1, 1, 2, 2, 3.
BOOST_AUTO_TEST_CASE(a_dear_one_outlives_some_cheap_ones) {
    Victims victims(VictimPolicy::leader, 2);
    victims.connected(1, 2.5);
    for (unsigned i = 0; i < 300; ++i) victims.connected(99, 1);
    for (const Victims::Key peer : {1, 11, 12, 13, 14, 15}) victims.used(peer);
    const Victims::Key all[] = {1, 11, 12, 13, 14, 15};
    const Victims::Key held[] = {15, 1}, before[] = {1, 14};
    BOOST_TEST(victims.choose(held) == 1u);   // 2.5 of 3
    BOOST_TEST(victims.choose(before) == 1u); // which gave way to 15
    BOOST_TEST(victims.choose(all) == 1u);
    victims.used(16); // another 3: the dear one gives way
    const Victims::Key both[] = {16, 1, 15};
    BOOST_TEST(victims.choose(both) == 1u);
}

// One more in a ring than there are places: who keeps the old ones has 2 + (n - 2) / 2 losses after n uses, the others
// n. He leads if he has 4 fewer, after one search that counts 39 of 40, and those of 0.97 of them: from the 12th use
// on.
BOOST_AUTO_TEST_CASE(another_expert_leads_when_clearly_better) {
    const auto after = [](unsigned uses, std::initializer_list<Victims::Key> idle) {
        Victims victims(VictimPolicy::leader, 2);
        for (unsigned i = 0; i < uses; ++i) victims.used(1 + i % 3);
        return idle.begin()[victims.choose(idle)];
    };
    // 1 and 2 are the last ones, which recency holds; 2 is the last one of those that the expert for loops holds.
    BOOST_TEST(after(11, {2, 3}) == 3u);
    BOOST_TEST(after(11, {1, 2}) == 1u);
    // Now 2 and 3 are. The latest goes, but before it 1, which he does not hold.
    BOOST_TEST(after(12, {2, 3}) == 3u);
    BOOST_TEST(after(12, {1, 2, 3}) == 1u);
}

// After twenty searches per place a loss counts 1/e. In a ring of 11 recency has lost 2000 times, who keeps the old
// ones about 209 times: after 200 searches 735 and 77. Then two new peers take turns, so that he alone loses: recency
// leads again when it has 4 losses less than 0.97 of his, after about 690 uses.
BOOST_AUTO_TEST_CASE(losses_are_forgotten) {
    const auto last_goes = [](unsigned uses) { // beside how many others
        Victims victims(VictimPolicy::leader, 10);
        for (unsigned i = 0; i < 2000; ++i) victims.used(1 + i % 11);
        const Victims::Key two[] = {1, 2};
        for (unsigned i = 0; i < 200; ++i) (void)victims.choose(two);
        for (unsigned i = 0; i < uses; ++i) victims.used(100 + i % 2);
        unsigned goes = 0;
        for (Victims::Key other = 1; other <= 11; ++other) {
            const Victims::Key both[] = {100 + (uses - 1) % 2, other};
            goes += victims.choose(both) == 0;
        }
        return goes;
    };
    BOOST_TEST(last_goes(672) == 9u); // beside all that are held with it
    BOOST_TEST(last_goes(706) == 0u);
}

// Experts for uses have half-lives of 1, 4, 16 and 64 uses per place. One of them leads if there is a peer that only he
// and those with longer memories keep. All forget one that was used often, long ago, and the longer they remember, the
// more it costs them.
BOOST_AUTO_TEST_CASE(uses_count_by_half_lives) {
    constexpr unsigned kPlaces = 2;
    struct Case {
        unsigned row, half_life; // uses of each stranger; uses
    };
    for (const auto& [row, half_life] : {Case{1, 2}, Case{2, 8}, Case{3, 32}, Case{6, 128}}) {
        const auto goes = [&](unsigned uses, double price, unsigned later) {
            Victims victims(VictimPolicy::leader, kPlaces);
            victims.connected(1, price);
            victims.connected(2, 1);
            for (unsigned i = 0; i < 300; ++i) victims.used(3);
            Victims::Key stranger = 1000;
            for (unsigned round = 0; round < 200; ++round) {
                victims.used(4);
                for (unsigned i = 0; i < 2 * row; ++i) victims.used(stranger + i / row);
                stranger += 2;
            }
            const Victims::Key any[] = {3, 4};
            (void)victims.choose(any); // he leads
            for (unsigned i = 0; i < uses; ++i) victims.used(1);
            for (unsigned i = 1; i < later; ++i) victims.used(5);
            victims.used(2);
            for (const Victims::Key held : {6, 7})
                for (unsigned i = 0; i < 3 * half_life; ++i) victims.used(held);
            const Victims::Key both[] = {1, 2};
            return both[victims.choose(both)];
        };
        // Who is twice as dear is worth as much as one that was used a half-life later.
        BOOST_TEST(goes(1, 2, half_life - 1) == 2u, half_life);
        BOOST_TEST(goes(1, 2, half_life + 1) == 1u, half_life);
        // So is who was used twice, but for the time between.
        BOOST_TEST(goes(2, 1, half_life - 1) == 2u, half_life);
        BOOST_TEST(goes(2, 1, half_life) == 1u, half_life);
    }
}
