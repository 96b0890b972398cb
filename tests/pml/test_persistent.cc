// Persistent collective requests over a network of dice (collect_world.h): started in any order, again and again.
#define BOOST_TEST_MODULE pml_persistent
#include <boost/test/unit_test.hpp>

#include "tests/pml/collect_world.h"

using namespace ucx_mp::glue;
using namespace ucx_mp::glue::test;

namespace {

std::uint64_t count_of(const CollectWorld& world, const std::string& name) {
    std::uint64_t sum = 0;
    for (const Member& member : world.members) {
        const std::string text = member.groups->statistics();
        const std::size_t found = text.find(' ' + name + ' ');
        if (found != std::string::npos) sum += std::strtoull(text.c_str() + found + name.size() + 2, nullptr, 10);
    }
    return sum;
}

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

    Requests(std::uint32_t seed, unsigned ranks, bool (*waits)(unsigned) = nullptr)
        : world(seed, ranks, MP_NEVER, waits), ranks(ranks), its(ranks) {}
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
            BOOST_REQUIRE_EQUAL(count_of(job.world, "dropped"), 0u);
            BOOST_REQUIRE(job.world.reports.empty());
            known += count_of(job.world, "known");
            asked += count_of(job.world, "asked");
            put += count_of(job.world, "put bytes");
            inserted += count_of(job.world, "barriers put in");
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
        const std::uint64_t asked = count_of(job.world, "asked"), known = count_of(job.world, "known");
        const auto registered = job.world.network.registered, keys = job.world.network.keys;
        for (unsigned rank = 0; rank < 5; ++rank) job.start(rank, 0);
        for (unsigned turn = 0; turn < 2000; ++turn) job.world.progress();
        for (unsigned rank = 0; rank < 5; ++rank) BOOST_REQUIRE(job.look(rank, 0));
        BOOST_TEST(count_of(job.world, "asked") - asked == 20u);
        // Now and then memory cannot be registered: such a block comes in pieces, and is told by a later start.
        BOOST_TEST(count_of(job.world, "known") - known == keys);
        BOOST_TEST(job.world.network.registered >= registered);
        told = job.world.network.keys;
    }
    BOOST_TEST(told > 8u);
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
