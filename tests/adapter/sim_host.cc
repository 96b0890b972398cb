// What programs' processors spend in virtual time (Options::host).
#define BOOST_TEST_MODULE sim_host
#include "sim_fixture.h"

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr Nanos kPost = 10'000, kCompletion = 3'000;

// Two nodes, two connections between them.
struct Busy {
    explicit Busy(HostCosts host) : world(image(words), {.seed = 1, .host = host}), p(world), other(p.a), back(p.b) {
        other.connect(back);
        back.connect(other);
    }
    // Posts a write of 8 bytes.
    void write(Rc& by, uint64_t offset) {
        const bool from_a = &by.hca == &p.a;
        by.post(IBV_WR_RDMA_WRITE, from_a ? p.ma : p.mb, offset, 8, from_a ? p.mb : p.ma, offset);
    }
    // Virtual time until there is something to collect; does so.
    Nanos collect(Hca& of) {
        ibv_wc wc{};
        BOOST_REQUIRE(world.run_until([&] { return ibv_poll_cq(of.cq, 1, &wc) == 1; }));
        BOOST_REQUIRE(wc.status == IBV_WC_SUCCESS);
        return world.now();
    }
    static std::vector<uint64_t> fabric() {
        SmallFabric f;
        const uint32_t s = f.sw();
        for (unsigned i = 0; i < 2; ++i) f.port_to_switch(f.node(Costs{.timestamps = true}), s);
        return f.build();
    }
    std::vector<uint64_t> words = fabric();
    World world;
    Pair p;
    Rc other, back;
};

Nanos one_write() {
    Busy free({});
    const Nanos start = free.world.now();
    free.write(free.p.qa, 0);
    const Nanos took = free.collect(free.p.a) - start;
    BOOST_TEST(free.world.now_at(0) == free.world.now());
    return took;
}

} // namespace

BOOST_AUTO_TEST_CASE(requests_leave_when_the_processor_has_come_to_them) {
    const Nanos alone = one_write();
    BOOST_TEST(alone < kPost); // else nothing can be seen here
    Busy b({.post = kPost});
    const Nanos start = b.world.now();
    b.write(b.p.qa, 0); // two queue pairs: nothing else holds the second back
    b.write(b.other, 64);
    b.write(b.p.qb, 128); // another node's processor
    BOOST_TEST(b.world.now() == start);
    BOOST_TEST(b.world.now_at(0) == start + 2 * kPost);
    BOOST_TEST(b.world.now_at(1) == start + kPost);
    BOOST_TEST(b.collect(b.p.b) - start == kPost + alone);
    BOOST_TEST(b.collect(b.p.a) - start == kPost + alone);
    BOOST_TEST(b.collect(b.p.a) - start == 2 * kPost + alone);
    // Within one queue pair likewise, and behind a pause nothing is owed.
    b.world.run_until(b.world.now() + 10 * kPost);
    const Nanos again = b.world.now();
    for (unsigned i = 0; i < 3; ++i) b.write(b.p.qa, 8 * i);
    for (unsigned i = 1; i <= 3; ++i) BOOST_TEST(b.collect(b.p.a) - again == i * kPost + alone);
}

BOOST_AUTO_TEST_CASE(who_collects_has_no_time_for_posting) {
    const Nanos alone = one_write();
    Busy b({.completion = kCompletion});
    for (unsigned i = 0; i < 4; ++i) b.write(b.p.qa, 8 * i);
    b.world.run();
    const Nanos start = b.world.now();
    ibv_wc wc[8];
    BOOST_TEST(ibv_poll_cq(b.p.a.cq, 8, wc) == 4);
    BOOST_TEST(ibv_poll_cq(b.p.a.cq, 8, wc) == 0); // costs nothing
    BOOST_TEST(b.world.now_at(0) == start + 4 * kCompletion);
    b.write(b.p.qa, 0);
    BOOST_TEST(b.collect(b.p.a) - start == 4 * kCompletion + alone);
}

BOOST_AUTO_TEST_CASE(extended_queues_cost_the_same_and_clocks_agree) {
    Busy b({.completion = kCompletion});
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 16;
    attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    ibv_cq_ex* ex = ibv_create_cq_ex(b.p.a.context, &attr);
    BOOST_REQUIRE(ex);
    ibv_cq* const plain = std::exchange(b.p.a.cq, ibv_cq_ex_to_cq(ex));
    {
        Rc a(b.p.a), c(b.p.b);
        a.connect(c);
        c.connect(a);
        b.write(a, 0);
        b.write(a, 8);
        b.world.run();
        const Nanos start = b.world.now();
        ibv_poll_cq_attr how{};
        BOOST_TEST(ibv_start_poll(ex, &how) == 0);
        BOOST_TEST(ibv_next_poll(ex) == 0);
        ibv_end_poll(ex);
        BOOST_TEST(b.world.now_at(0) == start + 2 * kCompletion);
        // A program that reads the adapter's clock does so at its own time.
        ibv_values_ex values{};
        values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        BOOST_REQUIRE(ibv_query_rt_values_ex(b.p.a.context, &values) == 0);
        const auto ticks = static_cast<uint64_t>(values.raw_clock.tv_nsec);
        b.world.run_until(b.world.now_at(0));
        BOOST_REQUIRE(ibv_query_rt_values_ex(b.p.a.context, &values) == 0);
        BOOST_TEST(static_cast<uint64_t>(values.raw_clock.tv_nsec) == ticks);
    }
    b.p.a.cq = plain;
    ibv_destroy_cq(ibv_cq_ex_to_cq(ex));
}

BOOST_AUTO_TEST_CASE(a_busy_node_has_no_turn) {
    Busy b({.post = kPost});
    (void)b.world.touched();
    const Nanos start = b.world.now();
    b.write(b.p.qa, 0);
    b.write(b.other, 64); // the first one completes while this is posted
    Nanos turn = 0;
    while (turn == 0 && b.world.step())
        for (const uint32_t node : b.world.touched())
            if (node == 0) turn = b.world.now();
    BOOST_TEST(turn == start + 2 * kPost);
    BOOST_TEST(b.collect(b.p.a) == turn); // it was there
}

BOOST_AUTO_TEST_CASE(what_is_destroyed_before_the_processor_comes_to_it_is_never_sent) {
    Busy b({.post = kPost});
    {
        Rc a(b.p.a), c(b.p.b);
        a.connect(c);
        c.connect(a);
        b.p.to[5] = 0;
        b.write(a, 0);
    }
    b.world.run();
    BOOST_TEST(int{b.p.to[5]} == 0);
}
