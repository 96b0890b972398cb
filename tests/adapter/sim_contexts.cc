// Contexts of queue pairs at the adapter that a message comes to, in virtual time.
#define BOOST_TEST_MODULE sim_contexts
#include "sim_fixture.h"

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr uint32_t kMiss = 2'000, kHeld = 4;

// Writes of 8 bytes over `pairs` connections in turns; the times that each took, in ns.
struct Turns {
    explicit Turns(unsigned pairs) : world(image(words)), a(world, 0, 64), b(world, 1, 64) {
        ma = a.reg(from, sizeof from);
        mb = b.reg(to, sizeof to);
        for (unsigned i = 0; i < pairs; ++i) {
            senders.push_back(std::make_unique<Rc>(a));
            receivers.push_back(std::make_unique<Rc>(b));
            senders[i]->connect(*receivers[i]);
            receivers[i]->connect(*senders[i]);
        }
    }
    static std::vector<uint64_t> fabric() {
        SmallFabric f;
        const uint32_t s = f.sw();
        f.port_to_switch(f.node(), s);
        f.port_to_switch(f.node({.qp_cache_entries = kHeld, .qp_cache_miss_ns = kMiss}), s);
        return f.build();
    }
    Nanos write(unsigned i, bool back = false) {
        const Nanos start = world.now();
        Rc& by = back ? *receivers[i] : *senders[i];
        by.post(IBV_WR_RDMA_WRITE, back ? mb : ma, 0, 8, back ? ma : mb, 0);
        ibv_wc wc{};
        BOOST_REQUIRE(world.run_until([&] { return ibv_poll_cq(back ? b.cq : a.cq, 1, &wc) == 1; }));
        BOOST_REQUIRE(wc.status == IBV_WC_SUCCESS);
        return world.now() - start;
    }
    [[nodiscard]] uint64_t misses() { return world.segment().device(1).cache_misses.load(); }

    std::vector<uint64_t> words = fabric();
    World world;
    Hca a, b;
    char from[64] = {}, to[64] = {};
    ibv_mr *ma, *mb;
    std::vector<std::unique_ptr<Rc>> senders, receivers;
};

} // namespace

BOOST_AUTO_TEST_CASE(as_many_as_the_adapter_holds_cost_once) {
    Turns t(kHeld);
    const Nanos first = t.write(0), second = t.write(0);
    BOOST_TEST(first == second + kMiss);
    for (unsigned i = 1; i < kHeld; ++i) BOOST_TEST(t.write(i) == first);
    for (unsigned i = 0; i < 5 * kHeld; ++i) BOOST_TEST(t.write(i % kHeld) == second);
    BOOST_TEST(t.misses() == kHeld);
}

BOOST_AUTO_TEST_CASE(one_more_and_every_message_waits) {
    Turns t(kHeld + 1);
    for (unsigned i = 0; i < 3 * (kHeld + 1); ++i) (void)t.write(i % (kHeld + 1));
    BOOST_TEST(t.misses() == 3 * (kHeld + 1));
}

// A queue pair has one context for both directions.
BOOST_AUTO_TEST_CASE(who_answers_over_the_same_queue_pair_has_it_there) {
    Turns t(1);
    const Nanos first = t.write(0), second = t.write(0);
    BOOST_TEST(first > second);
    BOOST_TEST(t.write(0, true) == second);
    BOOST_TEST(t.misses() == 1u);
}

// What comes behind by the same port waits, too, whoever it is for: packets arrive in order.
BOOST_AUTO_TEST_CASE(what_comes_behind_a_miss_waits) {
    Turns t(2);
    const Nanos missing = t.write(0), held = t.write(0);
    const Nanos start = t.world.now();
    for (const unsigned i : {1u, 0u}) t.senders[i]->post(IBV_WR_RDMA_WRITE, t.ma, 0, 8, t.mb, 0);
    unsigned done = 0;
    ibv_wc wc{};
    BOOST_REQUIRE(t.world.run_until([&] { return (done += ibv_poll_cq(t.a.cq, 1, &wc)) == 2; }));
    BOOST_TEST(t.world.now() - start >= missing);
    BOOST_TEST(t.world.now() - start < missing + held);
}
