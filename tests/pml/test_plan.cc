// Plans of collective operations (pml_glue/core/plan/plan.h), executed in memory: all numbers of ranks up to 70, roots,
// and orders of what happens, against what MPI says. Operators are not commutative.
#define BOOST_TEST_MODULE pml_plan
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <bit>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "pml_glue/core/plan/hosts.h"

using namespace ucx_mp::glue;

namespace {

// x -> a x + b, modulo 2^32: one behind the other is associative, and its order shows.
struct Map {
    std::uint32_t a = 0xdead, b = 0xdead;
    bool operator==(const Map&) const = default;
};
Map behind(Map first, Map second) { return {first.a * second.a, first.b * second.a + second.b}; }
Map contribution(std::uint32_t rank) { return {2 * rank + 3, rank * rank + 7}; }
Map all_of(std::uint32_t ranks) {
    Map sum = contribution(0);
    for (std::uint32_t rank = 1; rank < ranks; ++rank) sum = behind(sum, contribution(rank));
    return sum;
}

struct Member {
    Plan plan;
    std::vector<Map> work;
    std::size_t at = 0;
    std::map<unsigned, std::pair<std::vector<Map>, unsigned>>
        parts;         // by edge: what has come, and behind how many others
    unsigned hops = 0; // parts on the longest way to here
    std::vector<Map> result;
};

struct World {
    std::vector<Member> members;
    const Shape shape; // rank: of nobody
    unsigned most_hops = 0;
    std::minstd_rand arrivals{1};

    explicit World(const Shape& of) : members(of.ranks), shape(of) {
        for (std::uint32_t rank = 0; rank < of.ranks; ++rank) {
            Member& member = members[rank];
            Shape its = of;
            its.rank = rank;
            make_plan(its, member.plan);
            member.work.resize(member.plan.blocks);
            for (const Run& run : member.plan.inputs)
                for (std::uint32_t i = 0; i < run.count; ++i) {
                    std::uint32_t which = rank;
                    if (of.collective == Collective::scatter) which = run.user + i;
                    if (of.collective == Collective::alltoall) which = rank * of.ranks + run.user + i;
                    member.work.at(run.work + i) = contribution(which);
                }
        }
    }
    // One action. False: waits for a part.
    bool step(std::uint32_t rank) {
        Member& member = members[rank];
        const Action& action = member.plan.actions[member.at];
        switch (action.what) {
        case Action::What::put: {
            const auto from = member.work.begin() + action.from;
            BOOST_REQUIRE(action.from + action.count <= member.plan.blocks);
            auto& parts = members[action.partner].parts;
            BOOST_REQUIRE(!parts.contains(action.edge));
            BOOST_REQUIRE(action.partner != rank);
            parts[action.edge] = {{from, from + action.count}, member.hops + 1};
            // It may come at once, wherever its receiver is.
            Member& to = members[action.partner];
            const Action& take = to.plan.actions.at(to.plan.place_of[action.edge]);
            BOOST_REQUIRE(take.to + action.count <= to.plan.blocks);
            if (arrivals() % 2) std::copy_n(from, action.count, to.work.begin() + take.to);
            break;
        }
        case Action::What::take: {
            const auto found = member.parts.find(action.edge);
            if (found == member.parts.end()) return false;
            const auto& [data, hops] = found->second;
            BOOST_REQUIRE_EQUAL(data.size(), action.count);
            BOOST_REQUIRE(action.to + action.count <= member.plan.blocks);
            std::copy(data.begin(), data.end(), member.work.begin() + action.to);
            member.hops = std::max(member.hops, hops);
            break;
        }
        case Action::What::fold:
            member.work.at(action.to) = behind(member.work.at(action.from), member.work.at(action.to));
            break;
        case Action::What::adapter: // a plan for hosts has none
            BOOST_REQUIRE(false);
            break;
        case Action::What::copy:
            BOOST_REQUIRE(std::max(action.from, action.to) + action.count <= member.plan.blocks);
            std::copy_n(member.work.begin() + action.from, action.count, member.work.begin() + action.to);
            break;
        }
        ++member.at;
        return true;
    }
    void run(std::mt19937& random) {
        std::vector<std::uint32_t> open(shape.ranks);
        for (std::uint32_t i = 0; i < shape.ranks; ++i) open[i] = i;
        std::size_t idle = 0;
        while (!open.empty()) {
            const std::size_t i = random() % open.size();
            Member& member = members[open[i]];
            const bool over = member.at == member.plan.actions.size();
            if (over) {
                open[i] = open.back();
                open.pop_back();
                continue;
            }
            idle = step(open[i]) ? 0 : idle + 1;
            BOOST_REQUIRE(idle < std::size_t{200} * shape.ranks);
        }
        for (Member& member : members) {
            most_hops = std::max(most_hops, member.hops);
            for (const Run& run : member.plan.outputs)
                for (std::uint32_t i = 0; i < run.count; ++i) {
                    if (member.result.size() <= run.user + i) member.result.resize(run.user + i + 1);
                    member.result[run.user + i] = member.work.at(run.work + i);
                }
        }
    }
};

std::vector<Map> expected(const Shape& shape, std::uint32_t rank) {
    std::vector<Map> blocks;
    switch (shape.collective) {
    case Collective::barrier:
        return {};
    case Collective::bcast:
        if (rank == shape.root) return {};
        return {contribution(shape.root)};
    case Collective::scatter:
        return {contribution(rank)};
    case Collective::gather:
        if (rank != shape.root) return {};
        [[fallthrough]];
    case Collective::allgather:
        for (std::uint32_t i = 0; i < shape.ranks; ++i) blocks.push_back(contribution(i));
        return blocks;
    case Collective::reduce:
        if (rank != shape.root) return {};
        [[fallthrough]];
    case Collective::allreduce:
    case Collective::halving:
        return {all_of(shape.ranks)};
    case Collective::alltoall:
        for (std::uint32_t i = 0; i < shape.ranks; ++i) blocks.push_back(contribution(i * shape.ranks + rank));
        return blocks;
    case Collective::exchange:
    case Collective::exchangev:
        break;
    }
    return {};
}

bool has_root(Collective collective) {
    return collective == Collective::bcast || collective == Collective::gather || collective == Collective::reduce ||
           collective == Collective::scatter;
}

constexpr Collective kAll[] = {Collective::barrier,   Collective::bcast,   Collective::allgather,
                               Collective::allreduce, Collective::halving, Collective::gather,
                               Collective::reduce,    Collective::scatter, Collective::alltoall};

bool has_rounds(Collective collective) {
    return collective == Collective::barrier || collective == Collective::allgather ||
           collective == Collective::allreduce;
}

template <class F> void each_shape(F&& function) {
    for (const Collective collective : kAll)
        for (std::uint32_t ranks = 2; ranks <= 70; ++ranks)
            for (std::uint32_t root = 0; root < (has_root(collective) ? ranks : 1); ++root) {
                BOOST_TEST_CONTEXT("collective " << static_cast<int>(collective) << ", ranks " << ranks << ", root "
                                                 << root)
                function(Shape{.collective = collective, .ranks = ranks, .rank = 0, .root = root});
                for (const std::uint32_t latency : {600u, 3000u}) {
                    if (!has_rounds(collective)) break;
                    const Rounds rounds = choose_rounds(ranks, latency, 200);
                    BOOST_TEST_CONTEXT("latency " << latency)
                    function(
                        Shape{.collective = collective, .ranks = ranks, .rank = 0, .root = root, .rounds = &rounds});
                }
            }
}

// Of each host, in an operation of all.
unsigned messages_among(const Hosts& hosts) {
    unsigned messages = 0;
    std::uint64_t before = 1;
    for (unsigned j = 0; before < hosts.count(); before *= hosts.across.radix[j++])
        for (unsigned i = 1; i < hosts.across.radix[j] && i * before < hosts.count(); ++i) ++messages;
    return messages;
}

// Hosts of different sizes, in a row or in turn; all roots of some.
template <class F> void each_shape_by_hosts(F&& function) {
    std::mt19937 random(3);
    constexpr MessageCosts kCosts{.latency = 1000, .overhead = 200, .within_latency = 250, .within_overhead = 100};
    for (const std::uint32_t ranks : {3u, 4u, 5u, 6u, 7u, 8u, 9u, 11u, 12u, 16u, 23u, 24u, 40u, 70u})
        for (const unsigned way : {0u, 1u, 2u, 3u}) {
            std::vector<std::uint64_t> keys(ranks);
            for (std::uint32_t i = 0; i < ranks; ++i)
                keys[i] = way == 0 ? i / 4 : way == 1 ? i % 3 : way == 2 ? random() % (1 + ranks / 4) : i != ranks / 2;
            const Hosts hosts(keys, kCosts);
            if (hosts.count() < 2 || hosts.count() == ranks) continue;
            for (const Collective collective : kAll) {
                if (!uses_hosts(collective)) continue;
                for (std::uint32_t root = 0; root < ranks; root += 1 + ranks / 16) // of no meaning for some
                    BOOST_TEST_CONTEXT("collective " << static_cast<int>(collective) << ", ranks " << ranks << ", way "
                                                     << way << ", root " << root)
                function(Shape{.collective = collective, .ranks = ranks, .rank = 0, .root = root, .hosts = &hosts});
            }
        }
}

// The distance of each message, in the order of edges.
std::vector<std::uint32_t> distances_of(const Shape& shape) {
    std::vector<std::uint32_t> out;
    std::uint32_t before = 1;
    for (unsigned j = 0; before < shape.ranks; ++j) {
        const std::uint32_t radix = shape.rounds ? shape.rounds->radix[j] : 2;
        for (std::uint32_t i = 1; i < radix; ++i) out.push_back(i * before);
        before *= radix;
    }
    return out;
}

BOOST_AUTO_TEST_CASE(against_memory) {
    std::mt19937 random(1);
    each_shape([&](const Shape& shape) {
        World world(shape);
        world.run(random);
        for (std::uint32_t rank = 0; rank < shape.ranks; ++rank)
            BOOST_REQUIRE(world.members[rank].result == expected(shape, rank));
        // As many parts behind each other as powers of two below the ranks; pairs before and behind halving.
        const auto rounds = shape.rounds ? shape.rounds->count : static_cast<unsigned>(std::bit_width(shape.ranks - 1));
        BOOST_REQUIRE_LE(world.most_hops, rounds + (shape.collective == Collective::halving ? 1 : 0));
        if (synchronises(shape.collective)) BOOST_REQUIRE_GE(world.most_hops, rounds);
    });
}

// Over the network the lowest ranks of hosts talk to each other, and nobody else.
BOOST_AUTO_TEST_CASE(by_hosts_against_memory) {
    std::mt19937 random(2);
    each_shape_by_hosts([&](const Shape& shape) {
        World world(shape);
        world.run(random);
        for (std::uint32_t rank = 0; rank < shape.ranks; ++rank)
            BOOST_REQUIRE(world.members[rank].result == expected(shape, rank));
        const Hosts& hosts = *shape.hosts;
        unsigned across = 0;
        for (std::uint32_t rank = 0; rank < shape.ranks; ++rank)
            for (const Action& action : world.members[rank].plan.actions) {
                if (action.what != Action::What::put || hosts.host[action.partner] == hosts.host[rank]) continue;
                ++across;
                for (const std::uint32_t end : {rank, action.partner}) BOOST_REQUIRE_EQUAL(hosts.at[end], 0u);
            }
        const bool all = synchronises(shape.collective);
        BOOST_REQUIRE_EQUAL(across, all ? hosts.count() * messages_among(hosts) : hosts.count() - 1);
        const auto rounds = all ? hosts.across.count : static_cast<unsigned>(std::bit_width(hosts.count() - 1));
        BOOST_REQUIRE_LE(world.most_hops, rounds + 2u * hosts.within.count);
        if (all) BOOST_REQUIRE_GE(world.most_hops, rounds + 1);
    });
}

// Each put has the one take that wants it, of as much. Without hosts only the circle's edges are used.
BOOST_AUTO_TEST_CASE(puts_and_takes) {
    const auto check = [&](const Shape& shape) {
        World world(shape);
        const std::vector<std::uint32_t> distances = distances_of(shape);
        std::set<std::tuple<std::uint32_t, std::uint32_t, unsigned, std::uint32_t>> puts, takes;
        for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
            const Plan& plan = world.members[rank].plan;
            BOOST_REQUIRE(plan.actions.size() < SIZE_MAX);
            for (std::size_t i = 0; i < plan.actions.size(); ++i) {
                const Action& action = plan.actions[i];
                if (action.what == Action::What::fold || action.what == Action::What::copy) continue;
                const bool puts_it = action.what == Action::What::put;
                const std::uint32_t from = puts_it ? rank : action.partner, to = puts_it ? action.partner : rank;
                BOOST_REQUIRE((puts_it ? puts : takes).insert({from, to, action.edge, action.count}).second);
                BOOST_REQUIRE(action.edge < kEdges);
                if (shape.collective != Collective::halving && !shape.hosts) {
                    const bool up = shape.collective == Collective::gather || shape.collective == Collective::reduce;
                    const std::uint32_t below = up ? to : from, above = up ? from : to;
                    BOOST_REQUIRE_EQUAL((below + distances.at(action.edge)) % shape.ranks, above);
                }
                if (!puts_it) BOOST_REQUIRE_EQUAL(plan.place_of[action.edge], i);
            }
        }
        BOOST_REQUIRE(puts == takes);
    };
    each_shape(check);
    each_shape_by_hosts(check);
}

// Who has finished a synchronising operation has heard, through others, of every start; of the others that is not said.
BOOST_AUTO_TEST_CASE(who_synchronises) {
    const auto check = [&](const Shape& shape) {
        if (shape.ranks > 40) return;
        for (const std::uint32_t late : {0u, shape.ranks / 2, shape.ranks - 1}) {
            World world(shape);
            bool moved = true;
            std::uint32_t over = 0;
            while (moved) {
                moved = false;
                over = 0;
                for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
                    if (rank == late) continue;
                    Member& member = world.members[rank];
                    while (member.at < member.plan.actions.size() && world.step(rank)) moved = true;
                    over += member.at == member.plan.actions.size();
                }
            }
            if (synchronises(shape.collective)) BOOST_REQUIRE_EQUAL(over, 0u);
        }
    };
    each_shape(check);
    each_shape_by_hosts(check);
}

// Hosts are used unless that should take more than a tenth longer, and one host alone has rounds for messages within
// it.
BOOST_AUTO_TEST_CASE(hosts_where_they_pay) {
    constexpr MessageCosts kCosts{.latency = 1000, .overhead = 200, .within_latency = 250, .within_overhead = 100};
    const auto of = [&](std::uint32_t ranks, std::uint32_t on_each) {
        std::vector<std::uint64_t> keys(ranks);
        for (std::uint32_t i = 0; i < ranks; ++i) keys[i] = i / on_each;
        return Hosts(keys, kCosts);
    };
    BOOST_TEST(!of(64, 1).worth);
    BOOST_TEST(!of(4, 2).worth); // one round of three messages takes less
    BOOST_TEST(of(6, 3).worth);
    BOOST_TEST(!of(16, 16).worth);
    for (const std::uint32_t ranks : {16u, 64u, 256u, 1024u}) BOOST_TEST(of(ranks, ranks / 4).worth);
    const Hosts one = of(16, 16), each = of(16, 1);
    BOOST_TEST(cost_of(one.flat, 250, 100) == cost_of(choose_rounds(16, 250, 100), 250, 100));
    BOOST_TEST(cost_of(each.flat, 1000, 200) == cost_of(choose_rounds(16, 1000, 200), 1000, 200));
}

unsigned messages_of(const Rounds& rounds) { return static_cast<unsigned>(cost_of(rounds, 0, 1)); }

// The best there are, tried one by one.
std::uint64_t least_cost(std::uint32_t ranks, unsigned messages, std::uint32_t latency, std::uint32_t overhead) {
    if (ranks == 1) return 0;
    std::uint64_t best = UINT64_MAX / 2;
    for (std::uint32_t radix = 2; radix <= messages + 1; ++radix)
        best = std::min(best, latency + std::uint64_t{radix - 1} * overhead +
                                  least_cost((ranks + radix - 1) / radix, messages - (radix - 1), latency, overhead));
    return best;
}

BOOST_AUTO_TEST_CASE(rounds_are_the_cheapest) {
    for (std::uint32_t ranks = 2; ranks <= 200; ranks += 1 + ranks / 8)
        for (const std::uint32_t latency : {0u, 100u, 500u, 1000u, 3000u}) {
            const Rounds its = choose_rounds(ranks, latency, 200);
            std::uint64_t reached = 1;
            for (unsigned i = 0; i < its.count; ++i) reached *= its.radix[i];
            BOOST_REQUIRE_GE(reached, ranks);
            BOOST_REQUIRE_EQUAL(cost_of(its, latency, 200), least_cost(ranks, Rounds::kMostMessages, latency, 200));
        }
    for (std::uint32_t ranks = 2; ranks < 1u << 20; ranks = ranks * 3 / 2 + 1) {
        const Rounds one_each = choose_rounds(ranks, 0, 200);
        BOOST_REQUIRE_EQUAL(one_each.count, static_cast<unsigned>(std::bit_width(ranks - 1)));
        BOOST_REQUIRE_EQUAL(messages_of(one_each), one_each.count);
        const Rounds few = choose_rounds(ranks, 1'000'000, 1);
        BOOST_REQUIRE_LE(messages_of(few), Rounds::kMostMessages);
        BOOST_REQUIRE_LE(few.count, one_each.count);
    }
}

// A plan that is made again in the same memory is the same.
BOOST_AUTO_TEST_CASE(made_again) {
    Plan again;
    each_shape([&](const Shape& shape) {
        Plan fresh;
        make_plan(shape, fresh);
        make_plan(shape, again);
        BOOST_REQUIRE_EQUAL(fresh.actions.size(), again.actions.size());
        BOOST_REQUIRE_EQUAL(fresh.blocks, again.blocks);
        for (std::size_t i = 0; i < fresh.actions.size(); ++i) {
            BOOST_REQUIRE_EQUAL(fresh.actions[i].partner, again.actions[i].partner);
            BOOST_REQUIRE_EQUAL(fresh.actions[i].to, again.actions[i].to);
        }
        BOOST_REQUIRE(std::equal(std::begin(fresh.place_of), std::end(fresh.place_of), std::begin(again.place_of)));
    });
}

} // namespace
