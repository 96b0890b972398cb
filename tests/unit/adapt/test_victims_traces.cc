// Policies that choose whose connection ends, on traces: ours beside LRU, the paper's LRU-M, and Belady's optimum.
#define BOOST_TEST_MODULE unit_adapt_victims_traces
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <set>

#include "traces.h"
#include "uct_mp/adapt/victims.h"

using namespace ucx_mp::adapt;

namespace {

struct Family {
    const char* name;
    traces::Trace (*make)(traces::Random&, unsigned, std::size_t);
};
std::ostream& operator<<(std::ostream& out, const Family& family) { return out << family.name; }
const Family kFamilies[] = {{"task pool", traces::task_pool}, {"zipf", traces::zipf},
                            {"phases", traces::phases},       {"scans", traces::scans},
                            {"ring", traces::ring},           {"halo", traces::halo},
                            {"drift", traces::drift},         {"exchanges", traces::exchanges}};
constexpr VictimPolicy kPolicies[] = {VictimPolicy::lru, VictimPolicy::lru_m, VictimPolicy::leader};

// Connections that are made when this policy decides. It hears who was used once per search, in the order of their
// names.
std::uint64_t connections(const traces::Trace& trace, VictimPolicy policy, unsigned places) {
    Victims victims(policy, places);
    std::set<Victims::Key> held, used;
    std::uint64_t made = 0;
    for (const std::uint32_t peer : trace) {
        if (!held.contains(peer)) {
            ++made;
            if (held.size() == places) {
                for (const Victims::Key one : used) victims.used(one);
                used.clear();
                const std::vector<Victims::Key> idle(held.begin(), held.end());
                const Victims::Key victim = idle.at(victims.choose(idle));
                victims.torn_down(victim);
                held.erase(victim);
            }
            held.insert(peer);
        }
        used.insert(peer);
    }
    return made;
}

struct Sum {
    std::uint64_t made[3] = {}, fewest = 0;
    [[nodiscard]] double ratio() const {
        return static_cast<double>(made[2]) / static_cast<double>(std::min(made[0], made[1]));
    }
};

Sum sum_of(const Family& family, unsigned places, std::uint64_t first_seed, unsigned seeds) {
    Sum sum;
    for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
        traces::Random random(seed * 1000 + places);
        const traces::Trace trace = family.make(random, places < 32 ? 64 : 128, 6000);
        for (unsigned p = 0; p < 3; ++p) sum.made[p] += connections(trace, kPolicies[p], places);
        sum.fewest += traces::fewest(trace, places);
    }
    return sum;
}

} // namespace

BOOST_DATA_TEST_CASE(one_place, kFamilies, family) {
    const Sum sum = sum_of(family, 1, 1, 1);
    for (const std::uint64_t made : sum.made) BOOST_TEST(made == sum.fewest); // nothing to choose
}

// On each kind of trace ours is as good as the better one of the others, but for a little, and mostly better. Seeds up
// to 10 were looked at while it was made; these were not.
BOOST_AUTO_TEST_CASE(fewer_connections) {
    double all = 0;
    unsigned count = 0;
    for (const Family& family : kFamilies)
        for (const unsigned places : {4u, 8u, 16u, 32u}) {
            const Sum sum = sum_of(family, places, 5001, 6);
            BOOST_TEST_MESSAGE(family << ", " << places << " places: LRU " << sum.made[0] << ", LRU-M " << sum.made[1]
                                      << ", ours " << sum.made[2] << ", fewest possible " << sum.fewest << ": "
                                      << sum.ratio());
            BOOST_TEST(sum.ratio() < 1.04, family << ", " << places);
            BOOST_TEST(sum.made[2] >= sum.fewest);
            all += sum.ratio();
            ++count;
        }
    BOOST_TEST_MESSAGE("ours to the better one of both: " << all / count);
    BOOST_TEST(all / count < 0.9);
}
