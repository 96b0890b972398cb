// Collective operations whose parts adapters put, over the real transport in virtual time: links are pulled in the
// middle, and what goes on while programs compute.
#define BOOST_TEST_MODULE pml_sim_triggered
#include <boost/test/unit_test.hpp>

#include <deque>
#include <random>

#include "pml/group_config.h"
#include "pml/sim_job.h"
#include "pml_glue/core/collect/group.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
using glue::Group;
using glue::GroupOperation;
using glue::Groups;

namespace {

channel::Config small_queues() {
    channel::Config config;
    config.receive_depth = 256;
    config.send_depth = 64;
    config.background = false;
    return config;
}

struct Call {
    mp_collective_storage_t storage{};
    std::vector<std::byte> in, out;
    unsigned number = 0;
};

std::byte content(unsigned rank, unsigned number, std::size_t at) {
    return static_cast<std::byte>(rank * 67 + number * 131 + at * 7);
}

// A group of all nodes' processes. Their programs call what `calls` says, in order.
struct World {
    static constexpr std::size_t kBytes = 48;
    Cluster cluster;
    MpiJob job;
    std::vector<std::unique_ptr<Groups>> groups;
    std::vector<Group*> group;
    unsigned wrong = 0;
    std::uint64_t looks = 0; // of progress threads

    World(unsigned ranks, mp_engine_t engine)
        : cluster("two-rail", ranks, small_queues()), job(cluster, module_defaults()) {
        for (unsigned rank = 0; rank < ranks; ++rank) {
            mp_hooks_t hooks{};
            hooks.argument = this;
            groups.push_back(std::make_unique<Groups>(job[rank].engine, job[rank].port, hooks));
            mp_group_config_t config = glue::test::group_config(rank, ranks);
            config.in_flight = 8;
            config.small = config.halving = 4096;
            config.engine = engine;
            config.after = 1;
            group.push_back(groups[rank]->create(config));
            job[rank].turn = [this, rank] { return progress(rank); };
            cluster.node(rank).on_turn = [this, rank, own = cluster.node(rank).on_turn]() -> bool {
                const bool any = own();
                if (!job[rank].engine.kept().in_thread) return any;
                ++looks;
                return progress(rank) || any;
            };
        }
    }
    ~World() {
        for (Group* one : group) one->free();
        for (unsigned rank = 0; rank < ranks(); ++rank) job[rank].turn = {};
        groups.clear();
    }
    [[nodiscard]] unsigned ranks() const { return static_cast<unsigned>(group.size()); }
    // In virtual time an adapter sees what a processor has stored when it is polled.
    bool progress(unsigned rank) {
        const bool any = groups[rank]->progress() != 0;
        job[rank].port.tasks()->progress();
        return any;
    }
    // Barriers, bcasts and all-gathers in turn.
    void start(unsigned rank, Call& call, unsigned number) {
        mp_collective_t& its = call.storage.collective;
        its = {};
        call.number = number;
        its.kind = number % 3 == 0 ? MP_BARRIER : number % 3 == 1 ? MP_BCAST : MP_ALLGATHER;
        its.root = its.kind == MP_BCAST ? number % ranks() : 0;
        its.bytes = its.kind == MP_BARRIER ? 0 : kBytes;
        call.in.resize(kBytes);
        call.out.resize(its.kind == MP_ALLGATHER ? kBytes * ranks() : kBytes);
        for (std::size_t i = 0; i < kBytes; ++i) call.in[i] = content(rank, number, i);
        if (its.kind == MP_BCAST && rank == its.root) call.out = call.in;
        its.in = {.buffer = call.in.data(), .bytes = kBytes, .convertor = nullptr};
        its.out = {.buffer = call.out.data(), .bytes = call.out.size(), .convertor = nullptr};
        its.done = [](mp_collective_t*) {}; // it does not block
        group[rank]->start(GroupOperation::of(call.storage));
    }
    void check(const Call& call) {
        const mp_collective_t& its = call.storage.collective;
        wrong += its.error != MP_OK;
        if (its.kind == MP_BARRIER) return;
        for (std::size_t i = 0; i < call.out.size(); ++i) {
            const auto from = its.kind == MP_BCAST ? its.root : static_cast<unsigned>(i / kBytes);
            wrong += call.out[i] != content(from, call.number, i % kBytes);
        }
    }
    [[nodiscard]] std::uint64_t count(const std::string& name) const {
        std::uint64_t sum = 0;
        for (const auto& one : groups) {
            const std::string text = one->statistics();
            const std::size_t found = text.find(' ' + name + ' ');
            if (found != std::string::npos) sum += std::strtoull(text.c_str() + found + name.size() + 2, nullptr, 10);
        }
        return sum;
    }
    // One operation, by all; then their programs compute, and ask for it. With `thread` a progress thread has the turn
    // meanwhile. How long until all have it.
    Nanos one(unsigned number, Nanos compute, bool thread = false) {
        const Nanos begin = cluster.world.now();
        std::vector<Call> calls(ranks());
        for (unsigned rank = 0; rank < ranks(); ++rank)
            cluster.node(rank).compute(0, [this, rank, &calls, number, compute, thread] {
                start(rank, calls[rank], number);
                if (compute == 0) return;
                if (!thread) return cluster.node(rank).compute(compute, [] {});
                job[rank].compute(true);
                (void)cluster.world.at(cluster.world.now() + compute, [this, rank] { job[rank].compute(false); });
            });
        BOOST_REQUIRE(cluster.until([&] {
            return std::ranges::all_of(calls, [](const Call& call) { return call.storage.collective.complete; });
        }));
        const Nanos took = cluster.world.now() - begin;
        for (const Call& call : calls) check(call);
        return took;
    }
    void warm_up() {
        for (unsigned number = 0; number < 200; ++number) {
            (void)one(number, 0);
            (void)cluster.world.at(cluster.world.now() + 100'000, [] {}); // the self-test takes its time
            cluster.run_for(100'000);
        }
    }
};

} // namespace

BOOST_AUTO_TEST_CASE(links_are_pulled) {
    World world(4, MP_ENGINE_AUTO);
    world.warm_up();
    BOOST_TEST(world.count("queues") == 8u);
    const std::uint64_t before = world.count("triggered");
    BOOST_TEST(before > 0u);
    constexpr unsigned kCalls = 600, kAhead = 6;
    std::vector<std::deque<Call>> open(world.ranks());
    std::vector<unsigned> called(world.ranks(), 0), over(world.ranks(), 0);
    for (unsigned rank = 0; rank < world.ranks(); ++rank)
        world.job[rank].turn = [&, rank] {
            bool any = world.progress(rank);
            auto& its = open[rank];
            for (; !its.empty() && its.front().storage.collective.complete; ++over[rank], any = true) {
                world.check(its.front());
                its.pop_front();
            }
            while (called[rank] < kCalls && its.size() < kAhead) {
                its.emplace_back();
                world.start(rank, its.back(), 200 + called[rank]++);
                any = true;
            }
            return any;
        };
    const auto until = [&](unsigned calls) {
        return world.cluster.until([&] { return std::ranges::all_of(over, [&](unsigned n) { return n >= calls; }); },
                                   60'000'000'000);
    };
    BOOST_REQUIRE(until(60));
    world.cluster.world.fault("port down 1:softhca_0:1");
    BOOST_REQUIRE(until(200));
    world.cluster.world.fault("port up 1:softhca_0:1");
    BOOST_REQUIRE(until(300));
    world.cluster.world.fault("port down 2:softhca_1:1");
    BOOST_REQUIRE(until(kCalls));
    BOOST_TEST(world.wrong == 0u);
    BOOST_TEST(world.count("queues ended") > 0u);
    BOOST_TEST(world.count("resent") > 0u);
    BOOST_TEST(world.count("triggered") > before);
    BOOST_TEST(world.count("dropped") == 0u);
}

// An operation of each kind, while the programs compute: how much of it is not seen, and how often a thread looks
// meanwhile. Without one no processor does anything until the computation is over. A thread that wakes up costs
// nothing.
BOOST_AUTO_TEST_CASE(while_programs_compute) {
    struct Way {
        const char* name;
        mp_engine_t engine;
        bool thread;
    };
    static constexpr const char* kNames[] = {"barrier", "bcast", "allgather"};
    for (const Way& way : {Way{"host", MP_ENGINE_HOST, false}, Way{"thread", MP_ENGINE_HOST, true},
                           Way{"adapter", MP_ENGINE_AUTO, false}}) {
        World world(8, way.engine);
        world.warm_up();
        BOOST_TEST((world.count("triggered") > 0) == (way.engine != MP_ENGINE_HOST));
        for (unsigned kind = 0; kind < 3; ++kind) {
            const unsigned number = 300 + kind;
            const Nanos alone = world.one(number, 0), compute = 4 * alone;
            world.looks = 0;
            const Nanos both = world.one(number, compute, way.thread);
            const double hidden = 1 - static_cast<double>(both - compute) / static_cast<double>(alone);
            BOOST_TEST_MESSAGE("8 ranks, " << way.name << ", i" << kNames[kind] << ": alone " << alone << " ns, hidden "
                                           << hidden << ", looks meanwhile " << world.looks);
            if (way.engine == MP_ENGINE_HOST && !way.thread)
                BOOST_TEST(hidden < 0.6);
            else
                BOOST_TEST(hidden > 0.9);
            if (way.thread) BOOST_TEST(world.looks > 0u); // else a node that computes has no turn
        }
        BOOST_TEST(world.wrong == 0u);
    }
}
