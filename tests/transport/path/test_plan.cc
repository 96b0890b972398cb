// Planning paths: examples, and what must hold for any two sides.
#define BOOST_TEST_MODULE plan
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "uct_mp/path/path.h"

using namespace ucx_mp;
using namespace ucx_mp::path;

namespace {

// Rails by their subnets' letters; LMC for all.
std::vector<RemoteRail> rails(const std::string& subnets, unsigned lmc = 0) {
    std::vector<RemoteRail> out;
    for (const char c : subnets) {
        RemoteRail r;
        r.lid = std::uint16_t((out.size() + 1) << lmc);
        r.lmc = std::uint8_t(lmc);
        r.subnet_prefix = std::uint64_t(c);
        out.push_back(r);
    }
    return out;
}

// "0-1" = client rail 0 to server rail 1, ":2/3" path bits if there are any.
std::string text(const std::vector<PathSpec>& paths) {
    std::string out;
    for (const PathSpec& p : paths) {
        out += (out.empty() ? "" : " ") + std::to_string(p.client_rail) + "-" + std::to_string(p.server_rail);
        if (p.client_bits || p.server_bits)
            out += ":" + std::to_string(p.client_bits) + "/" + std::to_string(p.server_bits);
    }
    return out;
}

std::string plan(const std::vector<RemoteRail>& client, const std::vector<RemoteRail>& server,
                 const PathConfig& config = {}, unsigned client_wants = 0) {
    return text(plan_paths(client, server, config, client_wants));
}

PathConfig with(unsigned num_paths, std::vector<std::uint8_t> bits = {}, bool cross = false) {
    return {num_paths, std::move(bits), cross};
}

} // namespace

BOOST_AUTO_TEST_CASE(reads_get_the_same_routes_again) {
    PathConfig split;
    split.split_reads = true;
    for (const bool client : {false, true}) { // either side's wish is enough
        const std::vector<PathSpec> paths =
            plan_paths(rails("aa", 1), rails("aa", 1), client ? PathConfig{} : split, 0, 32, client);
        BOOST_TEST(text(paths) == "0-0 1-1 0-0:1/1 1-1:1/1 0-0 1-1 0-0:1/1 1-1:1/1");
        BOOST_TEST(is_split(paths));
        for (std::size_t i = 0; i < paths.size(); ++i)
            BOOST_TEST((paths[i].writes == (i < 4) && paths[i].reads == (i >= 4)));
    }
    BOOST_TEST(!is_split(plan_paths(rails("aa"), rails("aa"), {}, 0)));
    // What fits is for both halves.
    BOOST_TEST(plan_paths(rails("aa", 5), rails("aa", 5), with(32), 0, 32, true).size() == 32u);
    BOOST_TEST(plan_paths(rails("aaa"), rails("aaa"), {}, 0, 5, true).size() == 4u);
    // Room for a single path: it is for both.
    const std::vector<PathSpec> one = plan_paths(rails("aa"), rails("aa"), split, 0, 1);
    BOOST_TEST(one.size() == 1u);
    BOOST_TEST((one[0].writes && one[0].reads));
}

BOOST_AUTO_TEST_CASE(rails_find_partners) {
    BOOST_TEST(plan(rails("a"), rails("a")) == "0-0");
    BOOST_TEST(plan(rails("aa"), rails("aa")) == "0-0 1-1");
    BOOST_TEST(plan(rails("a"), rails("aa")) == "0-0 0-1");
    BOOST_TEST(plan(rails("aa"), rails("a")) == "0-0 1-0");
    BOOST_TEST(plan(rails("aaa"), rails("aa")) == "0-0 1-1 2-0");
    BOOST_TEST(plan(rails("aa"), rails("aaa")) == "0-0 1-1 0-2");
}

BOOST_AUTO_TEST_CASE(subnets_bound_them) {
    BOOST_TEST(plan(rails("a"), rails("b")).empty());
    BOOST_TEST(plan({}, rails("a")).empty());
    BOOST_TEST(plan(rails("ab"), rails("ba")) == "0-1 1-0");
    BOOST_TEST(plan(rails("ab"), rails("bc")) == "1-0");
    BOOST_TEST(plan(rails("aab"), rails("abb")) == "0-0 1-0 2-1 2-2");
    // A port that is not active has no LID.
    std::vector<RemoteRail> half = rails("aa");
    half[0].lid = 0;
    BOOST_TEST(plan(half, rails("aa")) == "1-0 1-1");
    BOOST_TEST(plan(rails("aa"), half) == "0-1 1-1");
    half[1].lid = 0;
    BOOST_TEST(plan(half, rails("aa")).empty());
}

BOOST_AUTO_TEST_CASE(routes) {
    BOOST_TEST(plan(rails("a", 1), rails("a", 1)) == "0-0 0-0:1/1");
    // Rails alternate: the first two paths are two rails.
    BOOST_TEST(plan(rails("aa", 1), rails("aa", 1)) == "0-0 1-1 0-0:1/1 1-1:1/1");
    // Automatic: four at most, and no more than both have.
    BOOST_TEST(plan_paths(rails("a", 4), rails("a", 4), {}, 0).size() == 4u);
    BOOST_TEST(plan(rails("a", 3), rails("a", 1)) == "0-0 0-0:1/1");
    BOOST_TEST(plan(rails("a", 0), rails("a", 2)) == "0-0");
    // Asked for more: the side with the smaller LMC uses its LIDs again.
    BOOST_TEST(plan(rails("a", 1), rails("a", 2), with(4)) == "0-0 0-0:1/1 0-0:0/2 0-0:1/3");
    BOOST_TEST(plan(rails("a"), rails("a"), with(3)) == "0-0 0-0 0-0"); // several queue pairs on one route
}

BOOST_AUTO_TEST_CASE(named_path_bits) {
    BOOST_TEST(plan(rails("a", 2), rails("a", 2), with(0, {3, 1})) == "0-0:3/3 0-0:1/1");
    BOOST_TEST(plan(rails("a", 2), rails("a", 2), with(3, {3, 1})) == "0-0:3/3 0-0:1/1 0-0:3/3");
    BOOST_TEST(plan(rails("a", 2), rails("a", 2), with(1, {2})) == "0-0:2/2");
    BOOST_TEST(plan(rails("a", 1), rails("a", 2), with(0, {3, 2})) == "0-0:1/3 0-0:0/2"); // cut to the client's
}

BOOST_AUTO_TEST_CASE(the_smaller_wish_wins) {
    BOOST_TEST(plan_paths(rails("a", 3), rails("a", 3), with(6), 2).size() == 2u);
    BOOST_TEST(plan_paths(rails("a", 3), rails("a", 3), with(2), 6).size() == 2u);
    BOOST_TEST(plan_paths(rails("a", 3), rails("a", 3), with(0), 6).size() == 6u);
    BOOST_TEST(plan_paths(rails("a", 3), rails("a", 3), with(6), 0).size() == 6u);
}

BOOST_AUTO_TEST_CASE(cross_rails) {
    BOOST_TEST(plan(rails("aa"), rails("aa"), with(0, {}, true)) == "0-0 1-1 0-1 1-0");
    BOOST_TEST(plan(rails("a"), rails("aa"), with(0, {}, true)) == "0-0 0-1");
    BOOST_TEST(plan(rails("aaa"), rails("aa"), with(0, {}, true)) == "0-0 1-1 2-0 0-1 1-0 2-1");
    BOOST_TEST(plan(rails("ab"), rails("ab"), with(0, {}, true)) == "0-0 1-1");
}

BOOST_AUTO_TEST_CASE(the_limit_keeps_rails_balanced) {
    BOOST_TEST(plan_paths(rails("aa", 5), rails("aa", 5), with(32), 0).size() == 32u); // 16 each
    BOOST_TEST(plan_paths(rails("aaa", 5), rails("aaa", 5), with(32), 0).size() == 30u);
    BOOST_TEST(plan_paths(rails("aaaaaaaa", 3), rails("aaaaaaaa", 3), with(8), 0).size() == 32u);
    BOOST_TEST(plan_paths(rails("aaaaaaaa"), rails("aaaaaaaa"), with(0, {}, true), 0).size() == 32u); // four rounds
    BOOST_TEST(plan_paths(rails("aaaaaaa"), rails("aaaaaaa"), with(0, {}, true), 0).size() == 28u);
    BOOST_TEST(plan_paths(rails("aa", 3), rails("aa", 3), with(8), 0, 5).size() == 4u);
    BOOST_TEST(plan_paths(rails("aaa"), rails("aaa"), {}, 0, 2).size() == 2u);
}

BOOST_AUTO_TEST_CASE(what_always_holds) {
    std::mt19937 random(1);
    const auto pick = [&](unsigned n) { return unsigned(random() % n); };
    const auto side = [&] {
        std::vector<RemoteRail> out(1 + pick(verbs::kMaxRails));
        for (RemoteRail& r : out) {
            r.lid = 128;
            r.subnet_prefix = pick(3);
            r.lmc = std::uint8_t(pick(5));
        }
        return out;
    };
    for (unsigned round = 0; round < 20'000; ++round) {
        const std::vector<RemoteRail> client = side(), server = side();
        PathConfig config{pick(2) ? pick(33) : 0, {}, pick(2) == 0};
        const unsigned lowest = std::ranges::min_element(server, {}, &RemoteRail::lmc)->lmc;
        if (pick(3) == 0)
            for (unsigned i = 0, n = 1 + pick(5); i < n; ++i)
                config.path_bits.push_back(std::uint8_t(pick(1u << lowest)));
        const unsigned wants = pick(2) ? pick(33) : 0;
        const std::vector<PathSpec> paths = plan_paths(client, server, config, wants);
        BOOST_REQUIRE(text(paths) == text(plan_paths(client, server, config, wants)));
        BOOST_REQUIRE(paths.size() <= kMaxPathsPerPeer);

        std::map<std::pair<unsigned, unsigned>, unsigned> pairs;
        std::map<unsigned, unsigned> of_client, of_server;
        for (const PathSpec& p : paths) {
            BOOST_REQUIRE(p.client_rail < client.size());
            BOOST_REQUIRE(p.server_rail < server.size());
            BOOST_REQUIRE(client[p.client_rail].subnet_prefix == server[p.server_rail].subnet_prefix);
            BOOST_REQUIRE(p.client_bits < 1u << client[p.client_rail].lmc);
            BOOST_REQUIRE(p.server_bits < 1u << server[p.server_rail].lmc);
            ++pairs[{p.client_rail, p.server_rail}];
            ++of_client[p.client_rail];
            ++of_server[p.server_rail];
        }
        // No reachable rail of the longer side of a subnet is left out; of the shorter side neither.
        for (std::uint64_t subnet = 0; subnet < 3; ++subnet) {
            const auto here = [&](const RemoteRail& r) { return r.subnet_prefix == subnet; };
            const bool both = std::ranges::any_of(client, here) && std::ranges::any_of(server, here);
            for (unsigned i = 0; i < client.size(); ++i)
                if (here(client[i])) BOOST_REQUIRE(of_client.contains(i) == both);
            for (unsigned i = 0; i < server.size(); ++i)
                if (here(server[i])) BOOST_REQUIRE(of_server.contains(i) == both);
        }
        // Pairs of rails differ only by what their LMCs give; with a wish not at all.
        if (!paths.empty() && (wants || config.num_paths || !config.path_bits.empty())) {
            const auto [least, most] = std::ranges::minmax_element(pairs, {}, [](const auto& p) { return p.second; });
            BOOST_REQUIRE(least->second == most->second);
        }
        // The first two paths are two rails.
        if (of_client.size() > 1 || of_server.size() > 1) {
            BOOST_REQUIRE(paths.size() >= 2u);
            BOOST_REQUIRE(
                (paths[0].client_rail != paths[1].client_rail || paths[0].server_rail != paths[1].server_rail));
        }
        // Routes are distinct as long as there are any.
        if (!wants && !config.num_paths && config.path_bits.empty()) {
            std::set<std::string> distinct;
            for (const PathSpec& p : paths) distinct.insert(text({p}));
            BOOST_REQUIRE(distinct.size() == paths.size());
        }
    }
}

BOOST_AUTO_TEST_CASE(where_a_path_may_migrate_to) {
    const auto other = [](const PathSpec& path, const std::vector<RemoteRail>& client,
                          const std::vector<RemoteRail>& server) {
        const auto found = alternate_of(path, client, server);
        return found ? text({*found}) : "none";
    };
    const auto on = [](std::vector<RemoteRail> rails, std::vector<std::uint8_t> devices) {
        for (std::size_t i = 0; i < rails.size(); ++i) rails[i].device = devices[i];
        return rails;
    };
    // Other ports of the same adapters, on both sides, then on one; never another adapter or subnet.
    BOOST_TEST(other({0, 0, 0, 0}, on(rails("aa"), {0, 0}), on(rails("aa"), {0, 0})) == "1-1");
    BOOST_TEST(other({1, 0, 0, 0}, on(rails("aa"), {0, 0}), on(rails("aa"), {0, 0})) == "0-1");
    BOOST_TEST(other({0, 0, 0, 0}, on(rails("aa"), {0, 0}), on(rails("aa"), {0, 1})) == "1-0");
    BOOST_TEST(other({0, 0, 0, 0}, on(rails("aa"), {0, 1}), on(rails("aa"), {0, 1})) == "none");
    BOOST_TEST(other({0, 0, 0, 0}, on(rails("ab"), {0, 0}), on(rails("ab"), {0, 0})) == "1-1");
    BOOST_TEST(other({0, 0, 0, 0}, on(rails("ab"), {0, 0}), on(rails("ac"), {0, 0})) == "none");
    // Other path bits, the next ones first; with other ports, too.
    BOOST_TEST(other({0, 0, 0, 0}, rails("a", 2), rails("a", 2)) == "0-0:1/1");
    BOOST_TEST(other({0, 0, 3, 3}, rails("a", 2), rails("a", 2)) == "0-0");
    BOOST_TEST(other({0, 0, 1, 1}, on(rails("aa", 1), {0, 0}), on(rails("aa", 1), {0, 0})) == "1-1");
    // What it carries stays.
    const auto reads = alternate_of({0, 0, 0, 0, false, true}, rails("a", 2), rails("a", 2));
    BOOST_TEST((reads && !reads->writes && reads->reads));
    // A smaller MTU would cut its packets off; a port that is down has no LID.
    auto small = on(rails("aa"), {0, 0}), down = small;
    small[1].mtu = IBV_MTU_256;
    down[1].lid = 0;
    BOOST_TEST(other({0, 0, 0, 0}, small, on(rails("a"), {0})) == "none");
    BOOST_TEST(other({0, 0, 0, 0}, down, on(rails("a"), {0})) == "none");
}

// '-': a rail that is down; of what subnet and LMC is not known.
BOOST_AUTO_TEST_CASE(rails_that_may_come_up_have_places) {
    const auto some = [](const std::string& subnets, unsigned lmc = 0) {
        std::vector<RemoteRail> out = rails(subnets, lmc);
        for (RemoteRail& r : out)
            if (r.subnet_prefix == std::uint64_t('-')) r.lid = r.lmc = 0;
        return out;
    };
    const auto places = [](const std::vector<RemoteRail>& client, const std::vector<RemoteRail>& server,
                           const PathConfig& config = {}, unsigned max_paths = kMaxPathsPerPeer) {
        std::vector<PathSpec> paths = plan_paths(client, server, config, 0, max_paths);
        const auto present = std::ptrdiff_t(paths.size());
        add_absent_paths(paths, client, server, config, 0, max_paths);
        return text({paths.begin(), paths.begin() + present}) + " | " + text({paths.begin() + present, paths.end()});
    };
    BOOST_TEST(places(some("aa"), some("aa")) == "0-0 1-1 | ");
    BOOST_TEST(places(some("a-"), some("aa")) == "0-0 0-1 | 1-1");
    BOOST_TEST(places(some("aa"), some("a-")) == "0-0 1-0 | 1-1");
    BOOST_TEST(places(some("a-"), some("a-")) == "0-0 | 1-1 1-0 0-1");
    BOOST_TEST(places(some("a-"), some("a")) == "0-0 | 1-0");
    BOOST_TEST(places(some("-a"), some("a-")) == "1-0 | 0-0 1-1 0-1");
    // It may belong to any subnet, whether we are in that or not.
    BOOST_TEST(places(some("a-"), some("ab")) == "0-0 | 1-1 1-0");
    BOOST_TEST(places(some("a-"), some("abcd")) == "0-0 | 1-1 1-0 1-2 1-3");
    // Routes: as many as the others of its side have.
    BOOST_TEST(places(some("a-", 1), some("a", 1)) == "0-0 0-0:1/1 | 1-0 1-0:1/1");
    BOOST_TEST(places(some("a-"), some("a", 1)) == "0-0 | 1-0");
    BOOST_TEST(places(some("a-", 2), some("a", 2), with(0, {3, 1})) == "0-0:3/3 0-0:1/1 | 1-0:3/3 1-0:1/1");
    BOOST_TEST(places(some("a--"), some("aa"), with(0, {}, true)) == "0-0 0-1 | 1-1 1-0 2-0 2-1");
    // What is there comes first.
    BOOST_TEST(places(some("a-", 1), some("a", 1), {}, 3) == "0-0 0-0:1/1 | 1-0");
    BOOST_TEST(places(some("a-", 1), some("a", 1), {}, 2) == "0-0 0-0:1/1 | ");
}

// With reads on paths of their own each half of the list has its places.
BOOST_AUTO_TEST_CASE(places_of_reads) {
    std::vector<RemoteRail> client = rails("aa"), server = rails("aa");
    client[1].lid = 0;
    PathConfig config;
    config.split_reads = true;
    std::vector<PathSpec> paths = plan_paths(client, server, config, 0);
    BOOST_TEST(unsigned{add_absent_paths(paths, client, server, config, 0)} == 1u);
    BOOST_TEST(text(paths) == "0-0 0-1 1-1 0-0 0-1 1-1");
    for (std::size_t i = 0; i < paths.size(); ++i)
        BOOST_TEST((paths[i].reads == (i >= 3) && paths[i].writes == (i < 3)));
    // Cut so that the halves are equal.
    paths = plan_paths(client, server, config, 0, 5);
    BOOST_TEST(unsigned{add_absent_paths(paths, client, server, config, 0, 5)} == 0u);
    BOOST_TEST(text(paths) == "0-0 0-1 0-0 0-1");
}

// "r" or "d" for each path.
static std::string kinds_of(const std::vector<PathSpec>& paths) {
    std::string out;
    for (const PathSpec& p : paths) out += p.kind == Kind::dc ? 'd' : 'r';
    return out;
}

BOOST_AUTO_TEST_CASE(routes_of_both_kinds) {
    const auto planned = [](Kinds kinds, unsigned rc_paths = 0, unsigned most = 32, bool split = false) {
        PathConfig config;
        config.rc_paths = rc_paths;
        return plan_paths(rails("aa", 1), rails("aa", 1), config, 0, most, split, kinds);
    };
    const std::string once = "0-0 1-1 0-0:1/1 1-1:1/1";
    BOOST_TEST(planned(Kinds::none).empty());
    for (const Kinds kinds : {Kinds::rc, Kinds::dc}) {
        BOOST_TEST(text(planned(kinds)) == once);
        BOOST_TEST(text(planned(kinds, 3)) == once);
        BOOST_TEST(kinds_of(planned(kinds, 3)) == (kinds == Kinds::rc ? "rrrr" : "dddd"));
    }
    BOOST_TEST(text(planned(Kinds::both)) == once + " " + once);
    BOOST_TEST(kinds_of(planned(Kinds::both)) == "rrrrdddd");
    BOOST_TEST(text(planned(Kinds::both, 1)) == once);
    BOOST_TEST(kinds_of(planned(Kinds::both, 1)) == "rddd");
    BOOST_TEST(kinds_of(planned(Kinds::both, 9)) == "rrrr");
    // What fits is for both; a single path is of RC.
    BOOST_TEST(text(planned(Kinds::both, 0, 5)) == "0-0 1-1 0-0 1-1");
    BOOST_TEST(kinds_of(planned(Kinds::both, 0, 1)) == "r");
    // Each half, if reads have their own.
    BOOST_TEST(kinds_of(planned(Kinds::both, 0, 32, true)) == "rrrrddddrrrrdddd");
    BOOST_TEST(kinds_of(planned(Kinds::both, 1, 32, true)) == "rdddrddd");
    BOOST_TEST(is_split(planned(Kinds::both, 0, 32, true)));
}

// Places of both kinds are behind all that is there.
BOOST_AUTO_TEST_CASE(places_of_both_kinds) {
    std::vector<RemoteRail> client = rails("aa"), server = rails("aa");
    client[1].lid = 0;
    for (const bool split : {false, true}) {
        PathConfig config;
        config.split_reads = split;
        std::vector<PathSpec> paths = plan_paths(client, server, config, 0, 32, false, Kinds::both);
        BOOST_TEST(unsigned{add_absent_paths(paths, client, server, config, 0, 32, Kinds::both)} == 2u);
        const std::string half = "0-0 0-1 0-0 0-1 1-1 1-1";
        BOOST_TEST(text(paths) == (split ? half + " " + half : half));
        BOOST_TEST(kinds_of(paths) == (split ? "rrddrdrrddrd" : "rrddrd"));
        config.rc_paths = 1;
        paths = plan_paths(client, server, config, 0, 32, false, Kinds::both);
        BOOST_TEST(unsigned{add_absent_paths(paths, client, server, config, 0, 32, Kinds::both)} == 1u);
        BOOST_TEST(kinds_of(paths) == (split ? "rddrdd" : "rdd"));
    }
}

BOOST_AUTO_TEST_CASE(mistakes_are_named) {
    std::vector<verbs::Rail> mine(2);
    mine[0].name = "hca_0:1", mine[0].lmc = 2;
    mine[1].name = "hca_1:1", mine[1].lmc = 1;
    BOOST_TEST(check({}, mine).empty());
    BOOST_TEST(check(with(32, {0, 1}), mine).empty());
    BOOST_TEST(check(with(33), mine) == "UCX_MP_NUM_PATHS: 33 is too many; allowed: 0 (automatic) to 32");
    BOOST_TEST(check(with(0, {0, 2}), mine) ==
               "UCX_MP_PATH_BITS: 2 is beyond the LMC 1 of rail hca_1:1; allowed: 0 to 1");
    BOOST_TEST(check(with(0, std::vector<std::uint8_t>(33)), mine) ==
               "UCX_MP_PATH_BITS: 33 values; allowed: at most 32");
}

// What a policy is checked against before any peer is known.
BOOST_AUTO_TEST_CASE(paths_to_a_peer_with_the_same_ports) {
    std::vector<verbs::Rail> ports(2);
    for (verbs::Rail& port : ports) port.lid = 8, port.subnet_prefix = 'a';
    BOOST_TEST(paths_between_alike({}, ports) == 2u);
    BOOST_TEST(paths_between_alike(with(3), ports) == 6u);
    BOOST_TEST(paths_between_alike(with(0, {}, true), ports) == 4u);
    PathConfig split;
    split.split_reads = true;
    BOOST_TEST(paths_between_alike(split, ports) == 2u);
    ports[1].active = false;
    BOOST_TEST(paths_between_alike({}, ports) >= 2u); // it may come up
    ports[0].active = false;
    BOOST_TEST(paths_between_alike({}, ports) >= 2u);
    BOOST_TEST(paths_between_alike({}, {}) == 0u);
}

BOOST_AUTO_TEST_CASE(a_rail_as_the_others_see_it) {
    verbs::Rail r;
    r.device = 3, r.lid = 8, r.lmc = 2, r.subnet_prefix = 77, r.mtu = IBV_MTU_2048, r.rate = 2.5;
    const RemoteRail d = describe(r);
    BOOST_TEST(d.device == 3);
    BOOST_TEST(d.lid == 8u);
    BOOST_TEST(d.lmc == 2);
    BOOST_TEST(d.subnet_prefix == 77u);
    BOOST_TEST(d.mtu == IBV_MTU_2048);
    BOOST_TEST(d.rate == 2.5);
    r.active = false;
    BOOST_TEST(describe(r).lid == 0u);
}

BOOST_AUTO_TEST_CASE(a_path_between_ports_that_have_others_is_spare) {
    const auto spare = [](std::vector<PathSpec> paths, std::uint64_t up = ~0ull) { return spare_paths(paths, up); };
    BOOST_TEST(spare({}) == 0u);
    BOOST_TEST(spare({{0, 0}, {1, 1}}) == 0u);
    BOOST_TEST(spare({{0, 0}, {0, 1}}) == 0u);         // one port has two partners
    BOOST_TEST(spare({{0, 0}, {0, 1}, {1, 1}}) == 2u); // and then its second has another one
    BOOST_TEST(spare({{0, 0}, {1, 0}, {1, 1}}) == 2u);
    BOOST_TEST(spare({{0, 0}, {0, 1}, {1, 1}}, 3) == 0u); // not yet
    BOOST_TEST(spare({{0, 1}, {1, 1}, {1, 0}}) == 2u);    // both began with the other's second
    BOOST_TEST(spare({{0, 0}, {0, 1}, {0, 2}, {1, 1}, {2, 2}}) == 6u);
    BOOST_TEST(spare({{0, 0}, {0, 1}, {1, 0}, {1, 1}}) == 6u); // all have others: not all are spare
    // All routes, and reads by themselves.
    BOOST_TEST(spare({{0, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 1}, {0, 1, 1, 1}, {1, 1, 0, 0}}) == 10u);
    const auto reads = [](std::uint8_t c, std::uint8_t s) { return PathSpec{c, s, 0, 0, false, true}; };
    const auto writes = [](std::uint8_t c, std::uint8_t s) { return PathSpec{c, s, 0, 0, true, false}; };
    BOOST_TEST(spare({writes(0, 0), writes(0, 1), reads(1, 1), reads(0, 0), reads(0, 1)}) == 16u);
}

// RoCE rails by the third byte of their address: networks are /24.
std::vector<RemoteRail> roce_rails(const std::vector<unsigned>& networks, unsigned host) {
    std::vector<RemoteRail> out;
    for (const unsigned n : networks) {
        RemoteRail r;
        r.gid = ucx_mp::verbs::gid_of_ipv4(0x0a000000 | n << 8 | host);
        r.subnet_prefix = ucx_mp::verbs::network_of(r.gid, 24);
        out.push_back(r);
    }
    return out;
}

BOOST_AUTO_TEST_CASE(roce_goes_by_networks) {
    const auto plan = [](const std::vector<RemoteRail>& client, const std::vector<RemoteRail>& server) {
        return text(plan_paths(client, server, {}, 0));
    };
    BOOST_TEST(plan(roce_rails({0, 1}, 1), roce_rails({0, 1}, 2)) == "0-0 1-1");
    BOOST_TEST(plan(roce_rails({0, 1}, 1), roce_rails({1, 0}, 2)) == "0-1 1-0");
    BOOST_TEST(plan(roce_rails({0, 1}, 1), roce_rails({1, 2}, 2)) == "1-0");     // one in common: nothing is routed
    BOOST_TEST(plan(roce_rails({0, 1}, 1), roce_rails({2, 3}, 2)) == "0-0 1-1"); // none: all are
    auto down = roce_rails({0, 1}, 1);
    down[0].gid = {};
    BOOST_TEST(plan(down, roce_rails({0, 1}, 2)) == "1-1");
    // Not from one kind of port to another.
    auto mixed = rails("a");
    const auto more = roce_rails({0}, 1);
    mixed.insert(mixed.end(), more.begin(), more.end());
    BOOST_TEST(plan(mixed, roce_rails({5}, 2)) == "1-0");
    BOOST_TEST(plan(rails("a"), roce_rails({0}, 2)).empty());
    // No path bits, no automatic path migration.
    BOOST_TEST((!alternate_of({0, 0, 0, 0}, roce_rails({0, 0}, 1), roce_rails({0, 0}, 2))));
    verbs::Rail rail;
    rail.ethernet = true, rail.gid = roce_rails({0}, 1)[0].gid;
    BOOST_TEST(describe(rail).usable());
    rail.active = false;
    BOOST_TEST(!describe(rail).usable());
}
