// Persistent collective requests over a network of dice (collect_world.h): started in any order, again and again.
#define BOOST_TEST_MODULE pml_persistent
#include <boost/test/unit_test.hpp>

#include "tests/pml/collect_world.h"

using namespace ucx_mp::glue;
using namespace ucx_mp::glue::test;

namespace {

// One member's request.
struct Request {
    Group* group = nullptr;
    Under under;
    unsigned starts = 0;
    bool active = false;
};

struct Requests {
    CollectWorld world;
    const unsigned ranks;
    std::vector<Group*> groups;
    std::vector<Called> calls;
    std::vector<std::deque<Request>> its; // by rank

    Requests(std::uint32_t seed, unsigned ranks, bool (*waits)(unsigned) = nullptr,
             std::uint64_t watch_interval = MP_NEVER)
        : world(seed, ranks, watch_interval, waits), ranks(ranks), its(ranks) {}
    void make_groups() {
        std::vector<unsigned> who;
        for (unsigned i = 0; i < ranks; ++i) who.push_back(i);
        const unsigned in_flight = 2 + world.dice(15);
        for (unsigned i = 0; i < ranks; ++i) groups.push_back(world.group(i, 9, who, in_flight));
    }
    void start(unsigned rank, unsigned which) {
        Request& request = its[rank][which];
        if (request.starts++ == 0)
            world.start(*request.group, request.under, calls[which], ranks, rank, world.dice(2) != 0);
        else
            world.again(*request.group, request.under, request.starts - 1);
        request.active = true;
    }
    // False: it is not over.
    bool look(unsigned rank, unsigned which) {
        Request& request = its[rank][which];
        if (!request.under.complete()) return false;
        request.active = false;
        const Called& call = calls[which];
        BOOST_REQUIRE_EQUAL(request.under.storage.collective.error, MP_OK);
        BOOST_REQUIRE(std::ranges::all_of(request.under.guard, [](std::uint8_t byte) { return byte == 0; }));
        BOOST_REQUIRE_EQUAL(request.under.open, 0);
        BOOST_REQUIRE_MESSAGE(call.turned(call.gets(ranks, rank), request.starts - 1) == request.under.result() ||
                                  (call.kind == MP_BCAST && rank == call.root),
                              "request " << which << " of kind " << call.kind << ", " << call.bytes << " bytes, start "
                                         << request.starts << ", rank " << rank);
        return true;
    }
    // Each member creates them in their order, when it likes, starts them in any, and frees them.
    void run(unsigned starts) {
        const unsigned late = world.dice(ranks);
        std::vector<unsigned> freed(ranks);
        bool over = false;
        for (unsigned turn = 0; !over; ++turn) {
            BOOST_REQUIRE(turn < 200000);
            over = true;
            world.started.clear();
            for (unsigned rank = 0; rank < ranks; ++rank) {
                auto& own = its[rank];
                over &= freed[rank] == calls.size() && groups[rank]->idle();
                if (rank == late && world.dice(30)) continue;
                if (own.size() < calls.size() && world.dice(3) == 0) {
                    own.emplace_back().group = groups[rank]->create_request();
                    BOOST_REQUIRE(own.back().group);
                }
                if (own.empty()) continue;
                const unsigned which = world.dice(static_cast<unsigned>(own.size()));
                Request& request = own[which];
                if (request.active) {
                    (void)look(rank, which);
                } else if (request.starts < starts) {
                    start(rank, which);
                } else if (request.group) {
                    request.group->free();
                    request.group = nullptr;
                    ++freed[rank];
                }
            }
            for (auto& own : its)
                for (Request& request : own) world.started.push_back(&request.under);
            world.progress();
        }
    }
};

} // namespace

BOOST_AUTO_TEST_CASE(started_in_any_order) {
    std::uint64_t known = 0, asked = 0, put = 0, inserted = 0;
    for (std::uint32_t seed = 1; seed <= 60; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            Requests job(seed, 2 + seed % 9);
            job.world.threads = seed % 2;
            job.make_groups();
            for (unsigned i = 0; i < 1 + seed % 7; ++i) job.calls.push_back(job.world.draw(i + 1, job.ranks));
            job.run(8);
            BOOST_REQUIRE_EQUAL(job.world.count("dropped"), 0u);
            BOOST_REQUIRE(job.world.reports.empty());
            known += job.world.count("known");
            asked += job.world.count("asked");
            put += job.world.count("put bytes");
            inserted += job.world.count("barriers put in");
            for (int i = 0; i < 100; ++i) job.world.progress(); // groups are given back
            for (Group* group : job.groups) BOOST_REQUIRE(group->idle());
            for (Group* group : job.groups) group->free();
            BOOST_REQUIRE_EQUAL(job.world.network.registered, 0u);
            BOOST_REQUIRE_EQUAL(job.world.network.keys, 0u);
        }
    }
    BOOST_TEST(known > asked / 3);
    BOOST_TEST(put > 0u);
    BOOST_TEST(inserted > 0u);
}

// Whoever has been told a key is not told again.
BOOST_AUTO_TEST_CASE(keys_are_told_once) {
    std::uint64_t told = 0;
    Requests job(4, 5);
    job.make_groups();
    job.calls.push_back({MP_ALLTOALL, 0, 9000, 1});
    for (auto& own : job.its) own.emplace_back();
    for (unsigned rank = 0; rank < 5; ++rank) job.its[rank][0].group = job.groups[rank]->create_request();
    for (unsigned start = 0; start < 4; ++start) {
        const std::uint64_t asked = job.world.count("asked"), known = job.world.count("known");
        const auto registered = job.world.network.registered, keys = job.world.network.keys;
        for (unsigned rank = 0; rank < 5; ++rank) job.start(rank, 0);
        for (unsigned turn = 0; turn < 2000; ++turn) job.world.progress();
        for (unsigned rank = 0; rank < 5; ++rank) BOOST_REQUIRE(job.look(rank, 0));
        BOOST_TEST(job.world.count("asked") - asked == 20u);
        // Now and then memory cannot be registered: such a block comes in pieces, and is told by a later start.
        BOOST_TEST(job.world.count("known") - known == keys);
        BOOST_TEST(job.world.network.registered >= registered);
        told = job.world.network.keys;
    }
    BOOST_TEST(told > 8u);
}

// A program unmaps its buffers between two starts, and maps others at the same addresses: nobody writes to the old
// pages, or reads them. Keys are told anew, once.
BOOST_AUTO_TEST_CASE(memory_is_mapped_anew) {
    for (const bool by_adapters : {false, true}) {
        Requests job(4, 5, by_adapters ? +[](unsigned) { return true; } : nullptr);
        if (by_adapters) job.world.engine = MP_ENGINE_AUTO;
        job.make_groups();
        job.calls.push_back({MP_ALLTOALL, 0, 9000, 1});
        for (auto& own : job.its) own.emplace_back();
        for (unsigned rank = 0; rank < 5; ++rank) job.its[rank][0].group = job.groups[rank]->create_request();
        std::uint64_t known = 0, striped = 0, ended = 0;
        for (unsigned start = 0; start < 50; ++start) {
            if (start % 20 == 19) {
                job.world.unmap();
                striped = job.world.count("striped");
                ended = job.world.count("pairs ended");
            }
            for (unsigned rank = 0; rank < 5; ++rank) job.start(rank, 0);
            for (unsigned turn = 0; turn < 2000; ++turn) job.world.progress();
            for (unsigned rank = 0; rank < 5; ++rank) BOOST_REQUIRE(job.look(rank, 0));
            if (start % 20 == 19 && by_adapters) {
                BOOST_TEST(job.world.count("striped") == striped);
                BOOST_TEST(job.world.count("pairs ended") > ended);
            }
            if (start % 20 == 19) known = job.world.count("known");
        }
        if (by_adapters) BOOST_TEST(striped > 0u);
        if (!by_adapters) BOOST_TEST(known > 0u);
        for (int i = 0; i < 300; ++i) job.world.progress();
        BOOST_REQUIRE_EQUAL(job.world.count("dropped"), 0u);
        BOOST_REQUIRE_EQUAL(job.world.adapters.stray, 0u);
        for (unsigned rank = 0; rank < 5; ++rank) job.its[rank][0].group->free();
        for (int i = 0; i < 300; ++i) job.world.progress();
        for (Group* group : job.groups) group->free();
        BOOST_REQUIRE_EQUAL(job.world.network.registered, 0u);
        BOOST_REQUIRE_EQUAL(job.world.network.keys, 0u);
    }
}

// All members see alike that there are too many.
BOOST_AUTO_TEST_CASE(too_many) {
    Requests job(4, 2);
    job.make_groups();
    for (Group* group : job.groups) {
        for (unsigned i = 0; i < wire::kRequestMask; ++i) {
            Group* const request = group->create_request();
            BOOST_REQUIRE(request);
            request->free();
        }
        BOOST_TEST(!group->create_request());
    }
}

namespace {
bool all_wait(unsigned) { return true; }
bool most_wait(unsigned member) { return member % 5 != 3; }

void is_clean(const CollectWorld& world) {
    BOOST_REQUIRE_EQUAL(world.adapters.stray, 0u);
    BOOST_REQUIRE_EQUAL(world.adapters.missed, 0u);
    BOOST_REQUIRE_EQUAL(world.adapters.changed, 0u);
    BOOST_REQUIRE_EQUAL(world.count("dropped"), 0u);
    BOOST_REQUIRE(world.reports.empty());
}
} // namespace

// Blocks of all-to-alls that adapters put, whose queues fail at any moment; and pairs that have none.
BOOST_AUTO_TEST_CASE(by_adapters) {
    std::uint64_t striped = 0, ended = 0, resent = 0, pairs = 0, puts = 0;
    for (std::uint32_t seed = 1; seed <= 60; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            Requests job(seed, 2 + seed % 7, seed % 3 ? all_wait : most_wait);
            job.world.engine = seed % 4 ? MP_ENGINE_AUTO : MP_ENGINE_ADAPTER;
            job.world.threads = seed % 5 == 0;
            job.world.adapters.fails = seed % 2 ? 0 : 40 + 3 * seed;
            job.world.adapters.refuses = seed % 5 ? 0 : 6;
            job.world.adapters.full = seed % 3 ? 0 : 60;
            job.make_groups();
            for (unsigned i = 0; i < 1 + seed % 3; ++i)
                job.calls.push_back({i == 1 ? MP_ALLTOALLV : MP_ALLTOALL, 0, 101 + job.world.dice(9000), i + 1});
            job.run(30);
            is_clean(job.world);
            striped += job.world.count("striped");
            pairs += job.world.count("pairs with queues");
            resent += job.world.count("stripes resent");
            puts += job.world.count("put bytes");
            if (job.world.adapters.fails)
                ended += job.world.count("pairs ended");
            else if (!job.world.adapters.refuses && !job.world.adapters.full)
                BOOST_REQUIRE_EQUAL(job.world.count("stripes resent"), 0u);
            for (int i = 0; i < 300; ++i) job.world.progress();
            for (Group* group : job.groups) group->free();
            BOOST_REQUIRE(job.world.adapters.exposed.empty());
            BOOST_REQUIRE_EQUAL(job.world.network.registered, 0u);
        }
    }
    BOOST_TEST(striped > 2000u);
    BOOST_TEST(pairs > 200u);
    BOOST_TEST(ended > 50u);
    BOOST_TEST(resent > 50u);
    BOOST_TEST(puts > 0u);
}

// Between a start and its end no processor does anything: only adapters go on. Then one look each is enough.
BOOST_AUTO_TEST_CASE(nobody_looks) {
    for (unsigned ranks : {2u, 5u, 8u}) {
        Requests job(5 + ranks, ranks, all_wait);
        job.world.engine = MP_ENGINE_AUTO;
        job.make_groups();
        job.calls.push_back({MP_ALLTOALL, 0, 6400, 1});
        for (auto& own : job.its) own.emplace_back();
        for (unsigned rank = 0; rank < ranks; ++rank) job.its[rank][0].group = job.groups[rank]->create_request();
        const std::uint64_t all = ranks * (ranks - 1);
        std::uint64_t before = 0;
        bool contiguous = true;
        for (unsigned start = 0; start < 20; ++start) {
            before = job.world.count("striped");
            for (unsigned rank = 0; rank < ranks; ++rank) job.start(rank, 0);
            for (const auto& own : job.its)
                contiguous = contiguous && !own[0].under.spread_in && !own[0].under.spread_out;
            if (start < 19) {
                for (unsigned turn = 0; turn < 3000; ++turn) job.world.progress();
            } else {
                for (int i = 0; i < 20000; ++i) job.world.adapters.step();
                for (Member& member : job.world.members) {
                    member.groups->progress();
                    member.groups->progress(); // tells
                }
            }
            if (start < 19 || contiguous)
                for (unsigned rank = 0; rank < ranks; ++rank) BOOST_REQUIRE(job.look(rank, 0));
        }
        if (contiguous) BOOST_TEST(job.world.count("striped") - before == all);
        is_clean(job.world);
    }
}

// A member is killed while adapters put: all others hear of it, and nothing is written any more when they do.
BOOST_AUTO_TEST_CASE(dead_members) {
    std::uint64_t striped = 0;
    for (std::uint32_t seed = 1; seed <= 40; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            Requests job(seed, 3 + seed % 6, all_wait, 1000);
            CollectWorld& world = job.world;
            world.engine = MP_ENGINE_AUTO;
            job.make_groups();
            for (Member& member : world.members) member.port->tick = 1000;
            job.calls.push_back({MP_ALLTOALL, 0, 101 + world.dice(9000), 1});
            for (unsigned rank = 0; rank < job.ranks; ++rank)
                job.its[rank].emplace_back().group = job.groups[rank]->create_request();
            const auto is_over = [&](unsigned without) {
                for (unsigned rank = 0; rank < job.ranks; ++rank)
                    if (rank != without && !job.its[rank][0].under.complete()) return false;
                return true;
            };
            for (unsigned start = 0; start < 10; ++start) {
                for (unsigned rank = 0; rank < job.ranks; ++rank) job.start(rank, 0);
                for (int turn = 0; turn < 20000 && !is_over(UINT32_MAX); ++turn) world.progress();
                for (unsigned rank = 0; rank < job.ranks; ++rank) BOOST_REQUIRE(job.look(rank, 0));
            }
            striped += world.count("striped");
            const unsigned dead = world.dice(job.ranks), late = (dead + 1 + world.dice(job.ranks - 1)) % job.ranks;
            for (unsigned rank = 0; rank < job.ranks; ++rank)
                if (rank != late && rank != dead) job.start(rank, 0);
            for (unsigned i = world.dice(60); i > 0; --i) world.progress();
            world.members[dead].port->gone = true;
            for (FakeEndpoint* endpoint : world.members[dead].port->endpoints) endpoint->failed = true;
            for (FakeTaskQueue* queue : world.adapters.queues)
                if (queue && world.dice(2)) queue->step();
            for (unsigned i = world.dice(100); i > 0; --i) world.progress();
            job.start(late, 0);
            std::vector<std::vector<std::byte>> left(job.ranks);
            for (int turn = 0; turn < 50000 && !is_over(dead); ++turn) {
                world.progress();
                for (unsigned rank = 0; rank < job.ranks; ++rank)
                    if (Under& under = job.its[rank][0].under; rank != dead && under.complete() && left[rank].empty())
                        left[rank] = under.result();
            }
            BOOST_REQUIRE(is_over(dead));
            for (int i = 0; i < 300; ++i) world.progress();
            for (unsigned rank = 0; rank < job.ranks; ++rank) {
                Under& under = job.its[rank][0].under;
                if (rank == dead) continue;
                BOOST_REQUIRE_EQUAL(under.storage.collective.error, MP_FAILED);
                BOOST_REQUIRE(left[rank].empty() || under.result() == left[rank]);
            }
            BOOST_REQUIRE_EQUAL(world.adapters.stray, 0u);
        }
    }
    BOOST_TEST(striped > 500u);
}

// The root of a broadcast died before the request was made, or before the communicator was: nobody puts anything to it,
// so nobody would notice.
BOOST_AUTO_TEST_CASE(made_after_a_death) {
    for (std::uint32_t seed = 1; seed <= 20; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            Requests job(seed, 3 + seed % 5, nullptr, 1000);
            CollectWorld& world = job.world;
            job.make_groups();
            for (Member& member : world.members) member.port->tick = 1000;
            for (unsigned i = 0; i < 3; ++i) job.calls.push_back({MP_BCAST, 0, 64, i + 1});
            const auto ends = [&](unsigned which) {
                for (unsigned rank = 1; rank < job.ranks; ++rank) job.start(rank, which);
                for (int turn = 0; turn < 50000; ++turn) {
                    world.progress();
                    bool over = true;
                    for (unsigned rank = 1; rank < job.ranks; ++rank) over &= job.its[rank][which].under.complete();
                    if (over) break;
                }
                for (unsigned rank = 1; rank < job.ranks; ++rank) {
                    const Under& under = job.its[rank][which].under;
                    BOOST_REQUIRE_MESSAGE(under.complete(), "request " << which << " of rank " << rank);
                    BOOST_REQUIRE_EQUAL(under.storage.collective.error, MP_FAILED);
                }
            };
            for (unsigned rank = 0; rank < job.ranks; ++rank)
                job.its[rank].emplace_back().group = job.groups[rank]->create_request();
            for (unsigned rank = 0; rank < job.ranks; ++rank) job.start(rank, 0);
            for (int turn = 0; turn < 20000; ++turn) world.progress();
            for (unsigned rank = 0; rank < job.ranks; ++rank) BOOST_REQUIRE(job.look(rank, 0));
            world.members[0].port->gone = true;
            for (FakeEndpoint* endpoint : world.members[0].port->endpoints) endpoint->failed = true;
            ends(0);
            for (unsigned rank = 1; rank < job.ranks; ++rank)
                job.its[rank].emplace_back().group = job.groups[rank]->create_request();
            ends(1);
            std::vector<unsigned> who;
            for (unsigned i = 0; i < job.ranks; ++i) who.push_back(i);
            for (unsigned rank = 1; rank < job.ranks; ++rank)
                job.its[rank].emplace_back().group = world.group(rank, 11, who, 8);
            ends(2);
        }
    }
}
