// What dynamic connections cost, in virtual time: contexts of a target, connecting, leaving.
#define BOOST_TEST_MODULE sim_dc
#include <memory>

#include "sim_fixture.h"
#include "verbs/dc_queue_pairs.h"

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr uint64_t kKey = 77;
constexpr uint32_t kBytes = 1000;

struct Target {
    explicit Target(Hca& hca) : hca(hca) {
        ibv_srq_init_attr s{};
        s.attr = {4, 1, 0};
        srq = ibv_create_srq(hca.pd, &s);
        qp = dc_test::create_target(hca.pd, hca.cq, srq, kKey);
        dc_test::open_target(qp);
    }
    ~Target() {
        ibv_destroy_qp(qp);
        ibv_destroy_srq(srq);
    }
    Target(const Target&) = delete;
    Hca& hca;
    ibv_srq* srq;
    ibv_qp* qp;
};

struct Initiator {
    explicit Initiator(Hca& hca) : hca(hca), qp(dc_test::create_initiator(hca.pd, hca.cq, 4)) {
        dc_test::open_initiator(qp, 14, 7);
    }
    ~Initiator() {
        ibv_destroy_qp(qp);
        for (ibv_ah* ah : addresses) ibv_destroy_ah(ah);
    }
    Initiator(const Initiator&) = delete;
    void write(const Target& target, const ibv_mr* from, const ibv_mr* to, uint64_t id) {
        addresses.push_back(dc_test::address_of(hca.pd, target.hca.port.lid));
        const dc_test::Where where{addresses.back(), target.qp->qp_num, kKey, to->rkey,
                                   reinterpret_cast<uint64_t>(to->addr)};
        const ibv_sge sge{reinterpret_cast<uint64_t>(from->addr), kBytes, from->lkey};
        must(!dc_test::post(qp, dc_test::Op::write, where, sge, id), "ibv_wr_complete");
    }
    Hca& hca;
    ibv_qp* qp;
    std::vector<ibv_ah*> addresses;
};

} // namespace

// One context, three initiators: the others are refused and come back, and nobody is left out, although nobody takes
// another target or goes away.
BOOST_AUTO_TEST_CASE(initiators_take_turns_at_a_busy_dc_target) {
    constexpr Nanos kConnect = 10'000, kBackOff = 50'000;
    SmallFabric f(0);
    const uint32_t s = f.sw();
    for (uint32_t i = 0; i < 2; ++i)
        f.port_to_switch(f.node({.dct_contexts = 1, .dc_connect_ns = kConnect, .dc_busy_backoff_ns = kBackOff}), s);
    World world(image(f.build()));
    Hca a(world, 0, 64), b(world, 1, 64);
    std::vector<char> from(1000, 'a'), to(1000);
    const ibv_mr *ma = a.reg(from.data(), 1000), *mb = b.reg(to.data(), 1000);
    Target target(b);
    Initiator one(a), two(a), three(a);
    uint64_t id = 0;
    for (Initiator* i : {&one, &two, &three}) i->write(target, ma, mb, ++id);
    const Nanos start = world.now();
    std::vector<Nanos> done;
    ibv_wc wc;
    BOOST_TEST(world.run_until(
        [&] {
            while (ibv_poll_cq(a.cq, 1, &wc) == 1) {
                BOOST_TEST(wc.status == IBV_WC_SUCCESS);
                done.push_back(world.now() - start);
            }
            return done.size() == 3;
        },
        start + 100 * kBackOff));
    BOOST_REQUIRE(done.size() == 3u);
    BOOST_TEST(done[0] >= kConnect); // connecting costs what the fabric says
    BOOST_TEST(done[0] < kConnect + kBackOff);
    BOOST_TEST(done[1] >= kConnect + kBackOff); // refused at least once
    BOOST_TEST(done[2] >= done[1] + kBackOff / 2);
}

// Who is refused asks again when it has been refused, not before: many that want a target don't bury it in requests.
BOOST_AUTO_TEST_CASE(many_initiators_at_a_busy_dc_target_leave_room_for_data) {
    constexpr unsigned kMany = 24;
    constexpr Nanos kRequest = 300, kBackOff = 1000; // together they would ask for seven times what a unit can do
    SmallFabric f(0);
    const uint32_t s = f.sw();
    for (uint32_t i = 0; i < 2; ++i)
        f.port_to_switch(f.node({.dct_contexts = 1, .dc_busy_backoff_ns = kBackOff, .dc_request_ns = kRequest}), s);
    World world(image(f.build()));
    Hca a(world, 0, 64), b(world, 1, 64);
    std::vector<char> from(kBytes, 'a'), to(kBytes);
    const ibv_mr *ma = a.reg(from.data(), kBytes), *mb = b.reg(to.data(), kBytes);
    Target target(b);
    std::vector<std::unique_ptr<Initiator>> initiators;
    for (unsigned i = 0; i < kMany; ++i) initiators.push_back(std::make_unique<Initiator>(a));
    for (auto& one : initiators) one->write(target, ma, mb, 1);
    unsigned done = 0;
    ibv_wc wc;
    // Each has its turn, in which all others ask a few times.
    constexpr Nanos kEnough = 10 * kMany * kMany * kRequest;
    BOOST_TEST(world.run_until(
        [&] {
            while (ibv_poll_cq(a.cq, 1, &wc) == 1) {
                BOOST_TEST(wc.status == IBV_WC_SUCCESS);
                ++done;
            }
            return done == kMany;
        },
        world.now() + kEnough));
    BOOST_TEST(done == kMany);
}

// An initiator pays for connecting when it comes to a target, for leaving as well when it had another one, and for
// neither while it stays.
BOOST_AUTO_TEST_CASE(leaving_a_target_costs_what_the_fabric_says) {
    constexpr Nanos kConnect = 10'000, kLeave = 70'000;
    SmallFabric f(0);
    const uint32_t s = f.sw();
    for (uint32_t i = 0; i < 3; ++i)
        f.port_to_switch(f.node({.dc_connect_ns = kConnect, .dc_disconnect_ns = kLeave}), s);
    World world(image(f.build()));
    Hca a(world, 0, 64), b(world, 1, 64), c(world, 2, 64);
    std::vector<char> from(kBytes, 'a'), to(kBytes);
    const ibv_mr *ma = a.reg(from.data(), kBytes), *mb = b.reg(to.data(), kBytes), *mc = c.reg(to.data(), kBytes);
    Target first(b), second(c);
    Initiator i(a);
    const auto takes = [&](const Target& target, const ibv_mr* memory) {
        const Nanos start = world.now();
        i.write(target, ma, memory, 1);
        ibv_wc wc{};
        BOOST_REQUIRE(
            world.run_until([&] { return ibv_poll_cq(a.cq, 1, &wc) == 1; }, start + 10 * (kConnect + kLeave)));
        BOOST_TEST(wc.status == IBV_WC_SUCCESS);
        return world.now() - start;
    };
    const Nanos came = takes(first, mb), stayed = takes(first, mb), left = takes(second, mc), again = takes(second, mc);
    BOOST_TEST(again == stayed);
    BOOST_TEST(came >= stayed + kConnect);
    BOOST_TEST(came < stayed + kConnect + 2000); // the packet that asks for it and its answer
    BOOST_TEST(left == came + kLeave);
}

// Requests to connect and to disconnect keep the message units busy at both ends: what comes by the target's port
// meanwhile waits, also what is not DC's.
BOOST_AUTO_TEST_CASE(requests_occupy_the_message_unit_of_the_target) {
    constexpr Nanos kRequest = 30'000;
    const auto takes = [](bool charged, bool away_and_back) {
        SmallFabric f(0);
        const uint32_t s = f.sw();
        for (uint32_t i = 0; i < 3; ++i)
            f.port_to_switch(f.node({.dc_request_ns = static_cast<uint32_t>(charged ? kRequest : 0)}), s);
        World world(image(f.build()));
        Hca a(world, 0, 64), b(world, 1, 64), c(world, 2, 64);
        std::vector<char> from(kBytes, 'a'), to(kBytes), other(kBytes);
        const ibv_mr *ma = a.reg(from.data(), kBytes), *mb = b.reg(to.data(), kBytes),
                     *mc = c.reg(other.data(), kBytes);
        Target first(b), second(c);
        Initiator i(a);
        Rc out(c), in(b);
        out.connect(in);
        in.connect(out);
        const auto collect = [&](ibv_cq* cq) {
            ibv_wc wc{};
            BOOST_REQUIRE(world.run_until([&] { return ibv_poll_cq(cq, 1, &wc) == 1; }, world.now() + 20 * kRequest));
            BOOST_TEST(wc.status == IBV_WC_SUCCESS);
        };
        if (away_and_back) { // the last target gets the request to leave
            i.write(first, ma, mb, 1);
            collect(a.cq);
            world.run_until(world.now() + 10 * kRequest);
            i.write(second, ma, mc, 1);
        } else {
            i.write(first, ma, mb, 1);
        }
        // The request is there: at both ends it takes the unit's time.
        world.run_until(world.now() + (charged ? kRequest : 0) + 2'000);
        const Nanos start = world.now() - 2'000;
        out.post(IBV_WR_RDMA_WRITE, mc, 0, 8, mb, 0);
        collect(c.cq);
        return world.now() - start;
    };
    for (const bool away : {false, true}) {
        const Nanos free = takes(false, away), charged = takes(true, away);
        BOOST_TEST(free < 10'000);
        BOOST_TEST(charged >= kRequest);
        BOOST_TEST(charged < 3 * kRequest + free);
    }
}
