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

BOOST_AUTO_TEST_CASE(a_received_message_has_its_own_price) {
    constexpr Nanos kReceive = 700;
    Busy b({.completion = kCompletion, .receive = kReceive});
    for (unsigned i = 0; i < 2; ++i) {
        b.p.qb.recv(b.p.mb, 64 * i, 64);
        b.p.qa.post(IBV_WR_SEND, b.p.ma, 0, 8);
    }
    b.world.run();
    const Nanos start = b.world.now();
    ibv_wc wc[4];
    BOOST_TEST(ibv_poll_cq(b.p.b.cq, 4, wc) == 2);
    BOOST_TEST(b.world.now_at(1) == start + 2 * kReceive);
    BOOST_TEST(ibv_poll_cq(b.p.a.cq, 4, wc) == 2);
    BOOST_TEST(b.world.now_at(0) == start + 2 * kCompletion);
}

BOOST_AUTO_TEST_CASE(inline_data_are_copied_by_the_processor) {
    Busy b({.post = kPost, .copy = 0.5});
    Rc out(b.p.a, 16, 16, 128), in(b.p.b);
    out.connect(in);
    in.connect(out);
    const Nanos start = b.world.now();
    ibv_sge sge{reinterpret_cast<uint64_t>(b.p.from.data()), 100, 0};
    ibv_send_wr wr{}, *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_INLINE;
    wr.wr.rdma = {reinterpret_cast<uint64_t>(b.p.mb->addr), b.p.mb->rkey};
    BOOST_REQUIRE(ibv_post_send(out.qp, &wr, &bad) == 0);
    BOOST_TEST(b.world.now_at(0) == start + kPost + 50);
    b.write(b.p.qa, 0); // the adapter fetches these
    BOOST_TEST(b.world.now_at(0) == start + 2 * kPost + 50);
}

BOOST_AUTO_TEST_CASE(commands_take_the_callers_time_by_kind) {
    Busy b({});
    const Nanos start = b.world.now();
    for (const char* cost : {"create 5us", "modify 7us", "destroy 11us", "reg 13us"})
        b.world.fault("command-cost " + std::string(cost) + " all");
    (void)b.p.a.reg(b.p.from.data(), 64); // before it is asked for
    BOOST_TEST(b.world.now_at(0) == start);
    b.world.host_costs({.commands = true});
    Nanos then = start;
    const auto took = [&] { return b.world.now_at(0) - std::exchange(then, b.world.now_at(0)); };
    (void)b.p.a.reg(b.p.from.data(), 64);
    BOOST_TEST(took() == 13'000u);
    {
        Rc a(b.p.a);
        BOOST_TEST(took() == 5'000u);
        a.connect(b.back); // three steps
        BOOST_TEST(took() == 3 * 7'000u);
    }
    BOOST_TEST(took() == 11'000u);
    BOOST_TEST(b.world.now_at(1) == start);
    BOOST_TEST(b.world.now() == start);
}

BOOST_AUTO_TEST_CASE(programs_of_one_node_may_have_a_processor_each) {
    std::vector<uint64_t> words = Busy::fabric();
    World world(image(words), {.seed = 1, .host = {.post = kPost}});
    char memory[64] = {};
    Hca peer(world, 1, 64);
    Hca first(world, 0, 64, 0, 10), second(world, 0, 64, 0, 11);
    const ibv_mr *mp = peer.reg(memory, 64), *m1 = first.reg(memory, 64), *m2 = second.reg(memory, 64);
    Rc a(first), b(second), ca(peer), cb(peer);
    for (auto [out, in] : {std::pair{&a, &ca}, std::pair{&b, &cb}}) {
        out->connect(*in);
        in->connect(*out);
    }
    const Nanos start = world.now();
    a.post(IBV_WR_RDMA_WRITE, m1, 0, 8, mp, 0);
    a.post(IBV_WR_RDMA_WRITE, m1, 0, 8, mp, 0);
    b.post(IBV_WR_RDMA_WRITE, m2, 0, 8, mp, 0);
    BOOST_TEST(world.now_at(10) == start + 2 * kPost);
    BOOST_TEST(world.now_at(11) == start + kPost);
    BOOST_TEST(world.now_at(0) == start);
    // The node has a turn when the second is through, although the first still works.
    (void)world.touched();
    Nanos turn = 0;
    while (turn == 0 && world.step())
        for (const uint32_t node : world.touched())
            if (node == 0) turn = world.now();
    BOOST_TEST(turn == start + kPost);
    world.spend(0, 11, 123);
    BOOST_TEST(world.now_at(11) == start + kPost + 123);
}
