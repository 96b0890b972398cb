// A member that has no memory for a communicator's collective operations: the others hear of it, and nobody waits.
#define BOOST_TEST_MODULE pml_declined
#include <boost/test/unit_test.hpp>

#include <new>

#include "tests/pml/collect_world.h"

using namespace ucx_mp::glue;
using namespace ucx_mp::glue::test;

namespace {
unsigned fails_at = 0; // the n-th allocation from now on finds no memory; 0: none does
}

[[gnu::noinline]] void* operator new(std::size_t bytes) {
    if (fails_at && --fails_at == 0) throw std::bad_alloc();
    if (void* const memory = std::malloc(bytes ? bytes : 1)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

constexpr std::uint32_t kContext = 9;

bool all_complete(CollectWorld& world, std::vector<Under>& under, unsigned without) {
    for (int turn = 0; turn < 20000; ++turn) {
        bool all = true;
        for (unsigned i = 0; i < under.size(); ++i) all &= i == without || under[i].complete();
        if (all) return true;
        world.progress();
    }
    return false;
}

constexpr Called kCalls[] = {
    {MP_BARRIER, 0, 0, 1}, {MP_ALLREDUCE, 0, 80, 1}, {MP_ALLTOALL, 0, 60000, 1}, {MP_ALLTOALL, 0, 8, 1}};

std::vector<unsigned> all_of(unsigned ranks) {
    std::vector<unsigned> who(ranks);
    for (unsigned i = 0; i < ranks; ++i) who[i] = i;
    return who;
}

unsigned declined = 0;

// False: it has had memory for all of it.
bool run(unsigned allocation) {
    CollectWorld world(allocation, 3 + allocation % 6);
    const auto ranks = static_cast<unsigned>(world.members.size());
    const std::vector<unsigned> who = all_of(ranks);
    const unsigned declines = world.dice(ranks), late = (declines + 1 + world.dice(ranks - 1)) % ranks;
    const Called call = kCalls[allocation % 4];
    std::vector<Group*> groups(ranks);
    std::vector<Under> under(ranks), later(ranks);
    const auto start = [&](unsigned i, std::vector<Under>& of) {
        if (!groups[i]) groups[i] = world.group(i, kContext, who, 16);
        BOOST_REQUIRE(groups[i]);
        world.start(*groups[i], of[i], call, ranks, i, false);
    };
    for (unsigned i = 0; i < ranks; ++i)
        if (i != declines && i != late) start(i, under);
    for (unsigned i = world.dice(60); i > 0; --i) world.progress();
    fails_at = allocation;
    try {
        if (world.group(declines, kContext, who, 16)) {
            const bool more = fails_at == 0;
            fails_at = 0;
            BOOST_REQUIRE(!more);
            return false;
        }
    } catch (const std::bad_alloc&) { return true; } // for what has come: the process ends (no_memory.h)
    BOOST_REQUIRE_EQUAL(fails_at, 0u);
    ++declined;
    for (unsigned i = world.dice(60); i > 0; --i) world.progress();
    start(late, under);
    BOOST_REQUIRE(all_complete(world, under, declines));
    for (unsigned i = 0; i < ranks; ++i)
        if (i != declines) start(i, later); // fails at once
    BOOST_REQUIRE(all_complete(world, later, declines));
    for (unsigned i = 0; i < ranks; ++i) {
        if (i == declines) continue;
        BOOST_REQUIRE_EQUAL(under[i].storage.collective.error, MP_BROKEN);
        BOOST_REQUIRE_EQUAL(later[i].storage.collective.error, MP_BROKEN);
        BOOST_REQUIRE_EQUAL(under[i].open, 0);
        BOOST_REQUIRE(groups[i]->idle());
    }
    BOOST_REQUIRE(!world.group(declines, kContext, who, 16));
    const auto says_why = [](const std::string& line) { return line.find("has no memory") != std::string::npos; };
    BOOST_REQUIRE(std::ranges::any_of(world.reports, says_why));
    // Another communicator with its number is as good as any.
    for (int i = 0; i < 300; ++i) world.progress();
    for (unsigned i = 0; i < ranks; ++i) {
        if (groups[i]) groups[i]->free();
        world.members[i].groups->drop(kContext);
        groups[i] = nullptr;
    }
    std::vector<Under> next(ranks);
    for (unsigned i = 0; i < ranks; ++i) start(i, next);
    BOOST_REQUIRE(all_complete(world, next, UINT32_MAX));
    for (Under& one : next) BOOST_REQUIRE_EQUAL(one.storage.collective.error, MP_OK);
    return true;
}

} // namespace

// Each allocation fails once.
BOOST_AUTO_TEST_CASE(no_memory) {
    unsigned allocation = 1;
    for (bool more = true; more; ++allocation) BOOST_TEST_CONTEXT("allocation " << allocation) more = run(allocation);
    BOOST_TEST(declined > 3u);
}

// Requests that were made before the others hear of it: they go with their communicator, started before or after.
BOOST_AUTO_TEST_CASE(no_memory_beside_requests) {
    for (std::uint32_t seed = 1; seed <= 60; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            CollectWorld world(seed, 2 + seed % 7);
            const auto ranks = static_cast<unsigned>(world.members.size());
            const unsigned declines = world.dice(ranks);
            const std::vector<unsigned> who = all_of(ranks);
            const Called call = kCalls[seed % 4];
            std::vector<Group*> groups(ranks), requests(ranks);
            std::vector<Under> under(ranks);
            std::vector<bool> started(ranks);
            const auto start = [&](unsigned i) {
                started[i] = true;
                world.start(*requests[i], under[i], call, ranks, i, false);
            };
            for (unsigned i = 0; i < ranks; ++i) {
                if (i == declines) continue;
                groups[i] = world.group(i, kContext, who, 16);
                requests[i] = groups[i]->create_request();
                if (seed % 3 == 0 && world.dice(3) == 0) groups[i]->give_up(); // first, for a reason of its own
                if (seed % 2 && world.dice(3) == 0) start(i);
            }
            for (unsigned i = world.dice(60); i > 0; --i) world.progress();
            fails_at = 1;
            BOOST_REQUIRE(!world.group(declines, kContext, who, 16));
            for (unsigned i = 0; i < 300; ++i) world.progress();
            for (unsigned i = 0; i < ranks; ++i)
                if (i != declines && !started[i]) start(i);
            BOOST_REQUIRE(all_complete(world, under, declines));
            for (unsigned i = 0; i < ranks; ++i)
                if (i != declines) BOOST_REQUIRE_EQUAL(under[i].storage.collective.error, MP_BROKEN);
        }
    }
}

// A member that has called nothing forgets what was told of a communicator that it drops.
BOOST_AUTO_TEST_CASE(strangers_go_with_their_communicator) {
    CollectWorld world(1, 3);
    const std::vector<unsigned> who = all_of(3);
    Group* const first = world.group(0, kContext, who, 16);
    first->give_up();
    BOOST_TEST(world.reports.size() == 1u); // of the one that has the problem, though it has nothing under way
    for (int i = 0; i < 300; ++i) world.progress();
    first->free();
    // A number that is too large for a group is nobody's name: member 2 still hears of it.
    world.members[2].groups->drop(kContext | (wire::kContextMask + 1));
    for (unsigned i : {0u, 1u}) world.members[i].groups->drop(kContext);
    BOOST_TEST(!world.group(1, kContext, who, 16)->broken());
    BOOST_TEST(world.group(2, kContext, who, 16)->broken()); // it still has the first communicator
}
