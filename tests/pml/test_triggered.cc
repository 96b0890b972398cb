// Collective operations whose parts adapters of dice put (fake_tasks.h): random programs against memory while queues
// fail, members that cannot wait, and who looks at what.
#define BOOST_TEST_MODULE pml_triggered
#include <boost/test/unit_test.hpp>

#include "pml_glue/core/plan/triggered.h"
#include "tests/pml/collect_world.h"

using namespace ucx_mp::glue;
using namespace ucx_mp::glue::test;

namespace {

constexpr Collective kKinds[] = {Collective::barrier, Collective::bcast, Collective::allgather, Collective::allreduce,
                                 Collective::scatter};

bool all_wait(unsigned) { return true; }
bool most_wait(unsigned member) { return member % 5 != 3; }
bool none_waits(unsigned) { return false; }

struct Job {
    CollectWorld world;
    std::vector<unsigned> who;
    std::vector<Group*> groups;
    std::vector<std::list<Under>> under;

    Job(std::uint32_t seed, unsigned ranks, bool (*waits)(unsigned), mp_engine_t engine, unsigned in_flight = 16)
        : world(seed, ranks, MP_NEVER, waits), under(ranks) {
        world.engine = engine;
        world.after = 1 + seed % 5;
        for (unsigned i = 0; i < ranks; ++i) who.push_back(i);
        for (unsigned i = 0; i < ranks; ++i) groups.push_back(world.group(i, 9, who, in_flight));
    }
    [[nodiscard]] unsigned ranks() const { return static_cast<unsigned>(who.size()); }
    [[nodiscard]] Called draw(unsigned number) {
        static constexpr mp_collective_kind_t kDrawn[] = {MP_BARRIER,   MP_BARRIER,   MP_BCAST,     MP_BCAST,
                                                          MP_ALLGATHER, MP_ALLREDUCE, MP_ALLGATHER, MP_SCATTER,
                                                          MP_GATHER,    MP_ALLTOALL};
        Called call = world.draw(number, ranks());
        call.kind = kDrawn[world.dice(10)];
        if (call.kind == MP_BARRIER) call.bytes = 0;
        if (call.kind != MP_BARRIER) call.bytes = 8 * (1 + world.dice(CollectWorld::kSmall / ranks() / 8));
        return call;
    }
    // All call all of it, when they like; `later`: as operations that do not block.
    void run(unsigned count, bool later) {
        std::vector<Called> calls;
        std::vector<unsigned> called(ranks());
        for (unsigned i = 0; i < count; ++i) calls.push_back(draw(i + 1));
        const unsigned ahead = 1 + world.dice(30), late = world.dice(ranks());
        bool over = false;
        for (unsigned turn = 0; !over; ++turn) {
            BOOST_REQUIRE(turn < 100000);
            over = true;
            for (unsigned rank = 0; rank < ranks(); ++rank) {
                auto& its = under[rank];
                while (called[rank] < count && its.size() < ahead && (rank != late || world.dice(40) == 0) &&
                       world.dice(2)) {
                    its.emplace_back();
                    world.start(*groups[rank], its.back(), calls[called[rank]++], ranks(), rank,
                                later || world.dice(2));
                }
                while (!its.empty() && its.front().complete()) {
                    check(its.front(), rank);
                    its.pop_front();
                }
                over &= its.empty() && called[rank] == count && groups[rank]->idle();
            }
            world.progress();
        }
    }
    void check(Under& one, unsigned rank) const {
        BOOST_REQUIRE_EQUAL(one.storage.collective.error, MP_OK);
        BOOST_REQUIRE(std::ranges::all_of(one.guard, [](std::uint8_t byte) { return byte == 0; }));
        BOOST_REQUIRE_MESSAGE(one.call.gets(ranks(), rank) == one.result() ||
                                  (one.call.kind == MP_BCAST && rank == one.call.root),
                              "operation " << one.call.number << " of kind " << one.call.kind << ", " << one.call.bytes
                                           << " bytes, root " << one.call.root << ", rank " << rank);
    }
    void is_clean() const {
        BOOST_REQUIRE_EQUAL(world.adapters.stray, 0u);
        BOOST_REQUIRE_EQUAL(world.adapters.missed, 0u);
        BOOST_REQUIRE_EQUAL(world.adapters.changed, 0u);
        BOOST_REQUIRE_EQUAL(world.count("dropped"), 0u);
        BOOST_REQUIRE(world.reports.empty());
    }
    // Until all queues are there.
    void warm_up() {
        const unsigned all = ranks() * static_cast<unsigned>(std::bit_width(ranks() - 1));
        for (int i = 0; i < 200; ++i) {
            run(1, true);
            if (world.count("queues") == all) break;
        }
        BOOST_REQUIRE_EQUAL(world.count("queues"), all);
        for (int i = 0; i < 300; ++i) world.progress();
    }
};

} // namespace

// What each put needs, and where it goes at the partner. Nothing else is left of the operation for a processor but
// folds and copies.
BOOST_AUTO_TEST_CASE(plans_for_adapters) {
    for (std::uint32_t ranks = 2; ranks <= 40; ++ranks)
        for (const Collective kind : kKinds)
            for (std::uint32_t root = 0; root < (kind == Collective::bcast || kind == Collective::scatter ? ranks : 1);
                 root += 1 + ranks / 7)
                for (std::uint32_t rank = 0; rank < ranks; ++rank) {
                    const Shape shape{.collective = kind, .ranks = ranks, .rank = rank, .root = root};
                    Plan plan, theirs, led;
                    make_plan(shape, plan);
                    Shape triggered = shape;
                    triggered.triggered = true;
                    make_plan(triggered, led);
                    BOOST_REQUIRE(led.actions.size() == plan.actions.size() + 1);
                    BOOST_REQUIRE(led.actions[0].what == Action::What::adapter);
                    std::vector<TriggeredPut> puts;
                    find_triggered(triggered, led, puts);
                    std::size_t at = 0;
                    std::uint64_t taken = 0;
                    for (const Action& action : plan.actions) {
                        if (action.what == Action::What::take) taken |= std::uint64_t{1} << action.edge;
                        if (action.what != Action::What::put) {
                            using What = Action::What;
                            BOOST_REQUIRE(action.what == What::take || action.what == What::fold ||
                                          action.what == What::copy);
                            // No put waits for a processor.
                            BOOST_REQUIRE((action.what == What::take || at == puts.size()));
                            continue;
                        }
                        BOOST_REQUIRE(at < puts.size());
                        const TriggeredPut& put = puts[at++];
                        BOOST_REQUIRE_EQUAL(put.edge, action.edge);
                        BOOST_REQUIRE_EQUAL(action.partner, (rank + (1u << put.edge)) % ranks);
                        BOOST_REQUIRE_EQUAL(put.after, taken);
                        BOOST_REQUIRE_EQUAL(put.from, action.from);
                        BOOST_REQUIRE_EQUAL(put.count, action.count);
                        make_plan({.collective = kind, .ranks = ranks, .rank = action.partner, .root = root}, theirs);
                        BOOST_REQUIRE_EQUAL(put.to, theirs.actions[theirs.place_of[put.edge]].to);
                    }
                    BOOST_REQUIRE_EQUAL(at, puts.size());
                }
    std::vector<TriggeredPut> none(1);
    Plan plan;
    for (const Collective kind : {Collective::gather, Collective::halving, Collective::alltoall}) {
        const Shape shape{.collective = kind, .ranks = 6, .rank = 2};
        make_plan(shape, plan);
        find_triggered(shape, plan, none);
        BOOST_TEST(none.empty());
    }
}

BOOST_AUTO_TEST_CASE(random_programs) {
    std::uint64_t by_adapters = 0, resent = 0, ended = 0, waits = 0, queues = 0;
    for (std::uint32_t seed = 1; seed <= 120; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            const mp_engine_t engine = seed % 4 ? MP_ENGINE_ADAPTER : MP_ENGINE_AUTO;
            Job job(seed, 2 + seed % 11, seed % 3 ? all_wait : most_wait, engine, 2 + seed % 16);
            job.world.adapters.fails = seed % 2 ? 0 : 20 + seed;
            job.world.adapters.refuses = seed % 5 ? 0 : 3;
            job.world.threads = seed % 7 == 0;
            job.run(150, false);
            job.is_clean();
            by_adapters += job.world.count("triggered");
            waits += job.world.count("waits");
            queues += job.world.count("queues");
            if (job.world.adapters.fails) {
                resent += job.world.count("resent");
                ended += job.world.count("queues ended");
            } else {
                BOOST_REQUIRE_EQUAL(job.world.count("queues ended"), 0u);
            }
            for (Group* group : job.groups) group->free();
            BOOST_REQUIRE(job.world.adapters.exposed.empty());
        }
    }
    BOOST_TEST(by_adapters > 1000u);
    BOOST_TEST(waits > 1000u);
    BOOST_TEST(queues > 100u);
    BOOST_TEST(ended > 50u);
    BOOST_TEST(resent > 10u);
}

// Between the call and the end no processor does anything: only adapters go on.
BOOST_AUTO_TEST_CASE(nobody_looks) {
    for (std::uint32_t seed = 1; seed <= 30; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            Job job(3 * seed, 2 + seed % 12, all_wait, MP_ENGINE_AUTO);
            job.warm_up();
            for (const mp_collective_kind_t kind : {MP_BARRIER, MP_ALLGATHER, MP_ALLREDUCE, MP_BCAST}) {
                const std::uint64_t before = job.world.count("parts");
                std::vector<Under> under(job.ranks());
                for (unsigned i = 0; i < job.ranks(); ++i)
                    job.world.start(*job.groups[i], under[i], {kind, 0, kind == MP_BARRIER ? 0u : 16u, 7}, job.ranks(),
                                    i, true);
                for (int i = 0; i < 2000; ++i) job.world.adapters.step();
                for (unsigned i = 0; i < job.ranks(); ++i) { // once each
                    BOOST_REQUIRE(!under[i].complete());
                    job.world.members[i].groups->progress();
                    job.world.members[i].groups->progress(); // tells
                    BOOST_REQUIRE(under[i].complete());
                    job.check(under[i], i);
                }
                BOOST_REQUIRE_EQUAL(job.world.count("parts"), before);
            }
            job.is_clean();
        }
    }
}

// A member that is late: nobody is through a barrier before.
BOOST_AUTO_TEST_CASE(a_late_member) {
    for (unsigned ranks : {2u, 5u, 8u}) {
        Job job(ranks, ranks, all_wait, MP_ENGINE_AUTO);
        job.warm_up();
        std::vector<Under> under(ranks);
        for (unsigned i = 1; i < ranks; ++i)
            job.world.start(*job.groups[i], under[i], {MP_BARRIER, 0, 0, 7}, ranks, i, true);
        for (int i = 0; i < 2000; ++i) job.world.progress();
        for (unsigned i = 1; i < ranks; ++i) BOOST_REQUIRE(!under[i].complete());
        job.world.start(*job.groups[0], under[0], {MP_BARRIER, 0, 0, 7}, ranks, 0, true);
        for (int i = 0; i < 2000; ++i) job.world.progress();
        for (unsigned i = 0; i < ranks; ++i) BOOST_REQUIRE(under[i].complete());
        job.is_clean();
    }
}

// Operations that block are the host's. Adapters that do not wait do nothing, nor do any if the host is wanted.
BOOST_AUTO_TEST_CASE(who_does_it) {
    Job blocking(3, 4, all_wait, MP_ENGINE_AUTO), none(3, 4, none_waits, MP_ENGINE_ADAPTER),
        host(3, 4, all_wait, MP_ENGINE_HOST);
    for (Job* job : {&blocking, &none, &host})
        for (int i = 0; i < 40; ++i) {
            std::vector<Under> under(4);
            for (unsigned rank = 0; rank < 4; ++rank)
                job->world.start(*job->groups[rank], under[rank], {MP_BARRIER, 0, 0, 7}, 4, rank, false);
            for (int turn = 0; turn < 5000 && !std::ranges::all_of(under, &Under::complete); ++turn)
                job->world.progress();
            for (Under& one : under) BOOST_REQUIRE(one.complete());
        }
    BOOST_TEST(blocking.world.count("queues") > 0u);
    BOOST_TEST(blocking.world.count("tasks") == 0u);
    BOOST_TEST(none.world.count("queues") == 0u);
    BOOST_TEST(host.world.count("queues") == 0u);
}

// Sizes that differ, and other operations, are seen where a word comes.
BOOST_AUTO_TEST_CASE(who_is_wrong) {
    Job job(5, 2, all_wait, MP_ENGINE_ADAPTER);
    job.warm_up();
    std::vector<Under> under(2);
    job.world.start(*job.groups[0], under[0], {MP_BCAST, 0, 80, 7}, 2, 0, true);
    job.world.start(*job.groups[1], under[1], {MP_BCAST, 0, 64, 7}, 2, 1, true);
    for (int turn = 0; turn < 3000; ++turn) job.world.progress();
    BOOST_REQUIRE(under[0].complete() && under[1].complete());
    BOOST_TEST(under[0].storage.collective.error == MP_OK);
    BOOST_TEST(under[1].storage.collective.error == MP_TRUNCATED);
    std::vector<Under> other(2);
    job.world.start(*job.groups[0], other[0], {MP_BCAST, 0, 8, 8}, 2, 0, true);
    job.world.start(*job.groups[1], other[1], {MP_ALLGATHER, 0, 8, 8}, 2, 1, true);
    for (int turn = 0; turn < 3000; ++turn) job.world.progress();
    BOOST_REQUIRE(other[1].complete());
    BOOST_TEST(other[1].storage.collective.error == MP_BROKEN);
    BOOST_TEST(job.groups[0]->broken());
    BOOST_TEST(job.world.adapters.stray == 0u);
}
