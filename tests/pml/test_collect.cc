// Collective operations over a network of dice (collect_world.h): random programs against memory, members that come
// late or die, and what nobody who is right says.
#define BOOST_TEST_MODULE pml_collect
#include <boost/test/unit_test.hpp>

#include <map>
#include <numeric>

#include "tests/pml/collect_world.h"

using namespace ucx_mp::glue;
using namespace ucx_mp::glue::test;

namespace {

// A communicator, and what its members have called.
struct Job {
    std::vector<unsigned> who;
    std::uint32_t context;
    unsigned in_flight;
    std::vector<Called> calls;
    std::vector<Group*> groups;
    std::vector<std::list<Under>> under; // of each rank
    std::vector<unsigned> called;        // by each rank
};

std::map<std::string, std::uint64_t> ways; // that blocks of all-to-alls have gone

// Each member calls when it likes, and has several operations under way. Groups are made at the first call.
struct Seen {
    std::uint64_t inserted = 0, early = 0, queued = 0, by_hosts = 0;
};
void run(std::uint32_t seed, Seen& seen) {
    CollectWorld world(seed, 2 + seed % 12);
    const auto all = static_cast<unsigned>(world.members.size());
    world.threads = seed % 2;
    world.latency = seed % 4 < 2 ? 1000 : 0;
    world.network.hosts = world.dice(5);
    world.hosts_after = world.dice(10);
    std::vector<Job> jobs(1 + world.dice(3));
    unsigned number = 0;
    for (Job& job : jobs) {
        for (unsigned i = 0; i < all; ++i) job.who.push_back(i);
        std::shuffle(job.who.begin(), job.who.end(), world.network.random);
        job.who.resize(2 + world.dice(all - 1));
        job.context = 3 + static_cast<std::uint32_t>(&job - jobs.data());
        job.in_flight = 2 + world.dice(15);
        const bool loose = world.dice(3) == 0;
        for (unsigned i = 20 + world.dice(40); i > 0; --i) {
            Called call = world.draw(++number, static_cast<unsigned>(job.who.size()));
            if (loose && call.kind == MP_ALLTOALL) call.kind = MP_ALLTOALLV;
            if (loose && (call.kind == MP_BARRIER || call.kind == MP_ALLGATHER || call.kind == MP_ALLREDUCE))
                call.kind = MP_BCAST;
            job.calls.push_back(call);
        }
        job.groups.resize(job.who.size());
        job.under.resize(job.who.size());
        job.called.resize(job.who.size());
    }
    const unsigned late = world.dice(all), eager = 1 + world.dice(30);
    bool over = false;
    for (unsigned turn = 0; !over; ++turn) {
        BOOST_REQUIRE(turn < 200000);
        over = true;
        for (Job& job : jobs)
            for (unsigned rank = 0; rank < job.who.size(); ++rank) {
                auto& under = job.under[rank];
                const auto ranks = static_cast<unsigned>(job.who.size());
                if (job.who[rank] == late && turn < 300) {
                    over = false;
                    continue;
                }
                while (job.called[rank] < job.calls.size() && world.dice(2) && under.size() < eager) {
                    if (!job.groups[rank])
                        job.groups[rank] = world.group(job.who[rank], job.context, job.who, job.in_flight);
                    under.emplace_back();
                    world.start(*job.groups[rank], under.back(), job.calls[job.called[rank]++], ranks, rank,
                                world.dice(2) != 0);
                }
                while (!under.empty() && under.front().complete()) {
                    check(under.front(), ranks, rank);
                    BOOST_REQUIRE_EQUAL(under.front().told, under.front().storage.collective.done != nullptr);
                    under.pop_front();
                }
                over &= under.empty() && job.called[rank] == job.calls.size() && job.groups[rank] &&
                        job.groups[rank]->idle();
            }
        world.started.clear();
        for (Job& job : jobs)
            for (auto& under : job.under)
                for (Under& one : under) world.started.push_back(&one);
        world.progress();
    }
    BOOST_REQUIRE(world.turns > 0 || !world.threads);
    BOOST_REQUIRE_EQUAL(world.count("dropped"), 0u);
    BOOST_REQUIRE(world.reports.empty());
    for (const char* const way : {"pairs", "asked", "put bytes"}) ways[way] += world.count(way);
    BOOST_REQUIRE_EQUAL(world.network.registered, 0u);
    BOOST_REQUIRE_EQUAL(world.network.keys, 0u);
    seen.inserted += world.count("barriers put in");
    seen.early += world.count("early");
    seen.queued += world.count("queued");
    seen.by_hosts += world.count("communicators by hosts");
    for (Job& job : jobs)
        for (Group* group : job.groups) group->free();
}

BOOST_AUTO_TEST_CASE(random_programs) {
    Seen seen;
    for (std::uint32_t seed = 1; seed <= 150; ++seed) BOOST_TEST_CONTEXT("seed " << seed) run(seed, seen);
    for (const auto& [way, count] : ways) BOOST_REQUIRE_MESSAGE(count > 0, way);
    BOOST_REQUIRE(seen.inserted > 0);
    BOOST_REQUIRE(seen.early > 0);
    BOOST_REQUIRE(seen.queued > 0);
    BOOST_REQUIRE(seen.by_hosts > 0);
}

// Who leaves a synchronising operation knows that all have come.
BOOST_AUTO_TEST_CASE(barriers_hold) {
    for (std::uint32_t seed = 1; seed <= 60; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            CollectWorld world(seed, 2 + seed % 9);
            const auto ranks = static_cast<unsigned>(world.members.size());
            std::vector<unsigned> who;
            for (unsigned i = 0; i < ranks; ++i) who.push_back(i);
            std::vector<Under> under(ranks);
            std::vector<Group*> groups;
            for (unsigned i = 0; i < ranks; ++i) groups.push_back(world.group(i, 9, who, 16));
            unsigned begun = 0, over = 0;
            for (unsigned turn = 0; over < ranks; ++turn) {
                BOOST_REQUIRE(turn < 20000);
                over = 0;
                for (unsigned i = 0; i < ranks; ++i) {
                    if (!under[i].begun && world.dice(20) == 0) {
                        world.start(*groups[i], under[i], {MP_BARRIER, 0, 0, 1}, ranks, i, false);
                        ++begun;
                    }
                    if (!under[i].complete()) continue;
                    BOOST_REQUIRE_EQUAL(begun, ranks);
                    ++over;
                }
                world.progress();
            }
        }
    }
}

// A member is killed while it is waited for: all survivors hear of it, also those that wait for a survivor, and those
// that come later. Other communicators go on.
BOOST_AUTO_TEST_CASE(dead_members) {
    std::uint64_t by_hosts = 0;
    for (std::uint32_t seed = 1; seed <= 160; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            const unsigned hosts = seed % 3 == 1 ? 2 + seed % 2 : 0;
            Simple simple(
                seed, 3 + seed % 10, 1000, seed % 3 ? nullptr : +[](unsigned) { return true; }, hosts);
            CollectWorld& world = simple.world;
            const auto ranks = static_cast<unsigned>(world.members.size());
            for (Member& member : world.members) member.port->tick = 1000;
            const unsigned dead = world.dice(ranks), late = (dead + 1 + world.dice(ranks - 1)) % ranks;
            const int before = hosts ? 20 : 3; // hosts count from the 17th on
            for (int i = 0; i < before; ++i) BOOST_REQUIRE(simple.complete(simple.call({MP_BARRIER, 0, 0, 1})));
            for (int i = 0; i < 100; ++i) world.progress(); // also the group's own barriers
            by_hosts += world.count("communicators by hosts");
            const Called calls[] = {
                {MP_BARRIER, 0, 0, 2}, {MP_ALLREDUCE, 0, 80, 2}, {MP_ALLTOALL, 0, 60000, 2}, {MP_ALLTOALL, 0, 8, 2}};
            const Called call = calls[seed % 4];
            auto& under = simple.rounds.emplace_back(ranks);
            for (unsigned i = 0; i < ranks; ++i)
                if (i != dead && i != late) world.start(*simple.groups[i], under[i], call, ranks, i, false);
            // What a third one writes is on its way for long: it must not come behind the end.
            FakePort& slow = *world.members[(late + 1) % ranks == dead ? (late + 2) % ranks : (late + 1) % ranks].port;
            for (unsigned i = world.dice(12); i > 0 && call.bytes > 100; --i) world.progress();
            slow.stalls = call.bytes > 100;
            world.members[dead].port->gone = true;
            for (FakeEndpoint* endpoint : world.members[dead].port->endpoints) endpoint->failed = true;
            for (unsigned i = world.dice(200); i > 0; --i) world.progress();
            world.start(*simple.groups[late], under[late], call, ranks, late, false);
            // Nobody writes there any more when it is complete.
            std::vector<std::vector<std::byte>> left(ranks);
            unsigned over = 0, since = 0;
            for (int turn = 0; turn < 50000 && over < ranks - 1; ++turn) {
                since += simple.groups[late]->broken();
                if (since == 300) slow.stalls = false;
                world.progress();
                over = 0;
                for (unsigned i = 0; i < ranks; ++i) {
                    if (i == dead || !under[i].complete()) continue;
                    ++over;
                    if (left[i].empty()) left[i] = under[i].result();
                }
            }
            BOOST_REQUIRE_EQUAL(over, ranks - 1);
            slow.stalls = false;
            for (int i = 0; i < 300; ++i) world.progress();
            for (unsigned i = 0; i < ranks; ++i) {
                if (i == dead) continue;
                BOOST_REQUIRE_EQUAL(under[i].storage.collective.error, MP_FAILED);
                BOOST_REQUIRE(under[i].open == 0 && under[i].result() == left[i]);
            }
            // Later ones fail at once.
            auto& later = simple.call({MP_BCAST, 0, 8, 3}, dead);
            BOOST_REQUIRE(simple.complete(later, dead));
            for (unsigned i = 0; i < ranks; ++i) {
                if (i == dead) continue;
                BOOST_REQUIRE_EQUAL(later[i].storage.collective.error, MP_FAILED);
                BOOST_REQUIRE(simple.groups[i]->broken() && simple.groups[i]->idle());
            }
            std::vector<unsigned> all(ranks);
            std::iota(all.begin(), all.end(), 0U);
            std::vector<unsigned> survivors = all;
            std::erase(survivors, dead);
            std::vector<Under> others(survivors.size());
            for (unsigned i = 0; i < survivors.size(); ++i)
                world.start(*world.group(survivors[i], 10, survivors, 16), others[i], {MP_BARRIER, 0, 0, 4},
                            static_cast<unsigned>(survivors.size()), i, false);
            BOOST_REQUIRE(simple.complete(others));
            for (Under& one : others) BOOST_REQUIRE_EQUAL(one.storage.collective.error, MP_OK);
            std::list<Under> lost; // of a group that is made with it
            for (const unsigned i : survivors)
                for (Group* const group = world.group(i, 12, all, 2 + seed % 3); const unsigned n : {1U, 2U, 3U, 4U})
                    world.start(*group, lost.emplace_back(), {MP_BCAST, dead, 8, n}, ranks, i, false);
            for (int turn = 0; turn < 50000 && !std::ranges::all_of(lost, &Under::complete); ++turn) world.progress();
            for (Under& one : lost) BOOST_REQUIRE(one.complete() && one.storage.collective.error == MP_FAILED);
        }
    }
    BOOST_REQUIRE(by_hosts > 0);
}

// By hosts one member combines for others. If it has no memory for that, none of them takes what it has, and all who
// wait for it hear of it, though others have what they want, and are not in the operation any more.
BOOST_AUTO_TEST_CASE(no_memory_to_combine) {
    unsigned with_hosts = 0;
    for (std::uint32_t seed = 1; seed <= 190; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            const unsigned hosts = 2 + seed / 3 % 3, ranks = 6 + seed / 9 % 7;
            Simple simple(seed, ranks, MP_NEVER, nullptr, hosts);
            for (int i = 0; i < 20; ++i) BOOST_REQUIRE(simple.complete(simple.call({MP_BARRIER, 0, 0, 1})));
            const bool by_hosts = simple.world.count("communicators by hosts") != 0;
            folds_without_memory = 1;
            const Called calls[] = {
                {MP_ALLREDUCE, 0, 80, 2}, {MP_REDUCE, seed % ranks, 80, 2}, {MP_ALLREDUCE, 0, 4000, 2}};
            auto& under = simple.call(calls[seed % 3]);
            while (folds_without_memory != 0) simple.world.progress();
            // What it has sent before comes; the others are over before they hear more.
            for (unsigned turn = 0; turn < 300; ++turn)
                for (unsigned i = 0; i < ranks; ++i)
                    if (Member& member = simple.world.members[i]; simple.groups[i]->broken())
                        member.port->progress();
                    else
                        simple.world.progress(member);
            BOOST_REQUIRE(simple.complete(under));
            unsigned failed = 0;
            for (unsigned i = 0; i < ranks; ++i) {
                failed += under[i].storage.collective.error == MP_BROKEN;
                if (under[i].storage.collective.error == MP_OK) check(under[i], ranks, i);
            }
            with_hosts += by_hosts;
            BOOST_REQUIRE(failed > 0);
            auto& later = simple.call({MP_BARRIER, 0, 0, 3});
            BOOST_REQUIRE(simple.complete(later));
            for (Under& one : later) BOOST_REQUIRE_EQUAL(one.storage.collective.error, MP_BROKEN);
        }
    }
    BOOST_REQUIRE(with_hosts > 20);
}

// Whoever has all parts, and still has to combine them, asks nobody.
BOOST_AUTO_TEST_CASE(only_partners_are_asked) {
    Simple simple(1, 4, 1000);
    CollectWorld& world = simple.world;
    Member& root = world.members[1];
    root.port->tick = 1000;
    auto& under = simple.call({MP_REDUCE, 1, 8, 1});
    for (unsigned turn = 0; turn < 3000; ++turn) {
        for (Member& member : world.members)
            if (&member != &root) world.progress(member);
        root.engine->progress(); // asks, but does nothing for the operation
    }
    BOOST_TEST(!under[1].complete());
    BOOST_TEST(root.port->endpoints.empty());
    BOOST_REQUIRE(simple.complete(under));
}

// What one rank has another number of bytes for is cut there, and the others go on.
BOOST_AUTO_TEST_CASE(other_sizes) {
    for (std::uint32_t seed = 1; seed <= 20; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            Simple simple(seed, 5);
            auto& under = simple.rounds.emplace_back(5);
            const std::size_t other = seed % 3 ? seed : 1500; // of a leaf
            for (unsigned i = 0; i < 5; ++i)
                simple.world.start(*simple.groups[i], under[i], {MP_BCAST, 0, i == 4 ? other : 1000u, 1}, 5, i, false);
            BOOST_REQUIRE(simple.complete(under));
            for (unsigned i = 0; i < 5; ++i) {
                BOOST_REQUIRE_EQUAL(under[i].storage.collective.error, i == 4 ? MP_TRUNCATED : MP_OK);
                BOOST_REQUIRE(std::ranges::all_of(under[i].guard, [](std::uint8_t byte) { return byte == 0; }));
            }
            BOOST_REQUIRE(simple.complete(simple.call({MP_BARRIER, 0, 0, 2})));
        }
    }
}

// Members that call different operations all hear of it.
BOOST_AUTO_TEST_CASE(other_operations) {
    Simple simple(3, 6);
    auto& under = simple.rounds.emplace_back(6);
    for (unsigned i = 0; i < 6; ++i)
        simple.world.start(*simple.groups[i], under[i],
                           i == 2 ? Called{MP_ALLGATHER, 0, 8, 1} : Called{MP_BARRIER, 0, 0, 1}, 6, i, false);
    BOOST_REQUIRE(simple.complete(under));
    unsigned failed = 0;
    for (Under& one : under) failed += one.storage.collective.error == MP_BROKEN;
    BOOST_REQUIRE(failed > 0);
    auto& later = simple.call({MP_ALLREDUCE, 0, 8, 2});
    BOOST_REQUIRE(simple.complete(later));
    for (Under& one : later) BOOST_REQUIRE_EQUAL(one.storage.collective.error, MP_BROKEN);
    BOOST_REQUIRE(!simple.world.reports.empty());
}

// Who is set in another way is named, in one line.
BOOST_AUTO_TEST_CASE(other_parameters) {
    CollectWorld world(3, 2);
    std::vector<Under> under(2);
    for (unsigned i = 0; i < 2; ++i)
        world.start(*world.group(i, 5, {0, 1}, 16, i), under[i], {MP_BARRIER, 0, 0, 1}, 2, i, false);
    for (int i = 0; i < 100; ++i) world.progress();
    BOOST_REQUIRE(!under[0].complete() && !under[1].complete());
    BOOST_REQUIRE_EQUAL(world.reports.size(), 2u);
    BOOST_REQUIRE(world.reports[0].find("other parameters") != std::string::npos);
}

// Who asks a member with other parameters is answered: no block of it stays open.
BOOST_AUTO_TEST_CASE(asks_others) {
    CollectWorld world(3, 2);
    std::vector<Under> under(2);
    for (unsigned i = 0; i < 2; ++i)
        world.start(*world.group(i, 5, {0, 1}, 16, i), under[i], {MP_ALLTOALL, 0, 9000, 1}, 2, i, false);
    for (int i = 0; i < 300; ++i) world.progress();
    for (Under& one : under) BOOST_REQUIRE(!one.complete() && one.open == 0);
}

// What may be sent unasked to somebody who calls nothing yet has room, however large `eager` is.
BOOST_AUTO_TEST_CASE(unasked_fits) {
    CollectWorld world(5, 4);
    world.eager = std::size_t{1} << 20;
    world.memory = std::size_t{4} << 20;
    std::vector<Group*> groups;
    for (unsigned i = 0; i < 4; ++i) groups.push_back(world.group(i, 9, {0, 1, 2, 3}, 16));
    std::list<std::vector<Under>> rounds;
    const auto call = [](unsigned number) { return Called{MP_ALLTOALL, 0, 100000, number}; };
    for (unsigned number = 1; number <= 16; ++number) {
        auto& under = rounds.emplace_back(4);
        for (unsigned i = 0; i < 3; ++i) world.start(*groups[i], under[i], call(number), 4, i, false);
    }
    for (int i = 0; i < 2000; ++i) world.progress();
    unsigned number = 0;
    for (auto& under : rounds) world.start(*groups[3], under[3], call(++number), 4, 3, false);
    const auto over = [&] {
        return std::ranges::all_of(rounds, [](auto& under) { return std::ranges::all_of(under, &Under::complete); });
    };
    for (int i = 0; i < 100000 && !over(); ++i) world.progress();
    BOOST_REQUIRE(over());
    for (auto& under : rounds)
        for (unsigned i = 0; i < 4; ++i) {
            BOOST_REQUIRE_EQUAL(under[i].storage.collective.error, MP_OK);
            check(under[i], 4, i);
        }
}

// A put that the network refuses goes in pieces, or, if it has begun, fails alone: both sides hear of it, and go on.
BOOST_AUTO_TEST_CASE(refused) {
    unsigned failed = 0, fine = 0;
    for (std::uint32_t seed = 1; seed <= 30; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            Simple simple(seed, 3);
            simple.world.network.refuses = 6;
            for (unsigned number = 1; number <= 6; ++number) {
                const Called call{MP_ALLTOALL, 0, number % 2 ? 9000u : 1500u, number};
                auto& under = simple.call(call);
                BOOST_REQUIRE(simple.complete(under));
                for (unsigned i = 0; i < 3; ++i) {
                    const bool ok = under[i].storage.collective.error == MP_OK;
                    ++(ok ? fine : failed);
                    if (ok) check(under[i], 3, i);
                }
                BOOST_REQUIRE(!simple.groups[0]->broken());
            }
            BOOST_REQUIRE_EQUAL(simple.world.network.registered, 0u);
            BOOST_REQUIRE_EQUAL(simple.world.network.keys, 0u);
        }
    }
    BOOST_REQUIRE(fine > 0);
    BOOST_REQUIRE(failed > 0);
}

// More comes before a member calls anything than it has room for: all hear of it, whether it has the group or not.
BOOST_AUTO_TEST_CASE(too_early) {
    for (std::uint32_t seed = 1; seed <= 30; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            CollectWorld world(seed, 4);
            world.memory = seed % 3 ? 5000 : 700;
            const std::vector<unsigned> who{0, 1, 2, 3};
            (void)world.group(3, 8, who, 16); // so it has heard of the bound
            const bool has_group = seed % 2;
            std::vector<Group*> groups;
            for (unsigned i = 0; i < 4; ++i)
                groups.push_back(i < 3 || has_group ? world.group(i, 9, who, 16) : nullptr);
            std::list<std::vector<Under>> rounds;
            for (unsigned number = 1; number <= 12; ++number) {
                const Called call = seed % 3 ? Called{MP_BCAST, 0, 1500, number} : Called{MP_ALLTOALLV, 0, 0, number};
                auto& under = rounds.emplace_back(4);
                for (unsigned i = 0; i < 3; ++i) world.start(*groups[i], under[i], call, 4, i, false);
            }
            for (int i = 0; i < 400; ++i) world.progress();
            if (!groups[3]) groups[3] = world.group(3, 9, who, 16);
            for (auto& under : rounds) {
                const Called call = under[0].call;
                world.start(*groups[3], under[3], call, 4, 3, false);
            }
            bool over = false;
            for (int i = 0; i < 20000 && !over; ++i) {
                world.progress();
                over = true;
                for (auto& under : rounds)
                    for (Under& one : under) over &= one.complete();
            }
            BOOST_REQUIRE(over);
            for (int i = 0; i < 300; ++i) world.progress();
            unsigned failed = 0;
            for (auto& under : rounds) failed += under[3].storage.collective.error == MP_BROKEN;
            BOOST_REQUIRE(failed > 0);
            BOOST_REQUIRE(groups[0]->broken() && groups[1]->broken() && groups[2]->broken() && groups[3]->broken());
            const auto names_it = [](const std::string& line) {
                return line.find("coll_mp_memory") != std::string::npos;
            };
            BOOST_REQUIRE(std::ranges::any_of(world.reports, names_it));
        }
    }
}

// A configuration that makes no sense is refused.
BOOST_AUTO_TEST_CASE(no_group) {
    CollectWorld world(1, 2);
    BOOST_REQUIRE(!world.group(0, 5, {0}, 16));
    BOOST_REQUIRE(!world.group(0, 1 << 20, {0, 1}, 16));
    BOOST_REQUIRE(!world.group(0, 5, {0, 1}, 1));
    BOOST_REQUIRE(!world.group(0, 5, {0, 1}, 33));
    BOOST_REQUIRE(!world.group(1, 5, {0, 0}, 16));
}

// Whatever comes: nothing is written but where an operation of ours wants something, and nothing crashes.
BOOST_AUTO_TEST_CASE(forged) {
    for (std::uint32_t seed = 1; seed <= 300; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            Simple simple(seed, 2 + seed % 4, MP_NEVER, seed % 2 ? +[](unsigned) { return true; } : nullptr);
            CollectWorld& world = simple.world;
            const auto ranks = static_cast<unsigned>(world.members.size());
            // A question may name any memory: the network's keys are of memory that was told.
            world.network.reachable = [&](std::uint64_t address, std::size_t length) {
                const auto within = [&](const std::vector<std::byte>& out) {
                    const auto begin = reinterpret_cast<std::uint64_t>(out.data());
                    return address >= begin && address - begin <= out.size() &&
                           length <= out.size() - (address - begin);
                };
                for (auto& round : simple.rounds)
                    for (Under& one : round)
                        if (within(one.out)) return true;
                return false;
            };
            std::vector<std::pair<MessageKind, std::vector<std::byte>>> heard;
            world.network.tap = [&](FakePort&, MessageKind kind, const std::vector<std::byte>& data) {
                if (heard.size() < 100) heard.emplace_back(kind, data);
            };
            for (unsigned round = 0; round < 12; ++round) {
                simple.call(world.draw(round, ranks));
                for (int i = 0; i < 5; ++i) world.progress();
                for (unsigned lies = world.dice(6); lies > 0 && !heard.empty(); --lies) {
                    auto [kind, data] = heard[world.dice(static_cast<unsigned>(heard.size()))];
                    if (world.dice(2))
                        kind = static_cast<MessageKind>(wire::kPart + world.dice(wire::kQueue - wire::kPart + 1));
                    if (kind == wire::kBroken && world.dice(10)) continue;
                    for (unsigned bits = world.dice(4); bits > 0 && !data.empty(); --bits)
                        data[world.dice(static_cast<unsigned>(data.size()))] ^= std::byte{1} << world.dice(8);
                    if (world.dice(4) == 0) data.resize(world.dice(static_cast<unsigned>(data.size() + 20)));
                    world.members[world.dice(ranks)].port->arrive(kind, std::vector(data.begin(), data.end()));
                }
            }
            for (int i = 0; i < 200; ++i) world.progress();
            world.network.tap = nullptr;
            for (Group* group : simple.groups) group->free();
        }
    }
}

} // namespace
