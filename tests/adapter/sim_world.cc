// Verbs programs on many nodes in virtual time.
#define BOOST_TEST_MODULE sim_world
#include <memory>

#include "sim_fixture.h"

using namespace softhca;
using namespace softhca::test;

namespace {

// A datagram queue pair, ready to send and to receive.
struct Ud {
    static constexpr uint32_t kKey = 0x1111;
    explicit Ud(Hca& hca) {
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = hca.cq;
        init.cap = {4, 4, 1, 1, 0};
        init.qp_type = IBV_QPT_UD;
        qp = ibv_create_qp(hca.pd, &init);
        must(qp, "ibv_create_qp");
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_INIT;
        a.port_num = 1;
        a.qkey = kKey;
        must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT");
        a.qp_state = IBV_QPS_RTR;
        must(!ibv_modify_qp(qp, &a, IBV_QP_STATE), "RTR");
        a.qp_state = IBV_QPS_RTS;
        must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
    }
    ~Ud() { ibv_destroy_qp(qp); }
    Ud(const Ud&) = delete;
    void recv(const ibv_mr* into, uint64_t offset, uint32_t bytes) {
        ibv_sge sge{reinterpret_cast<uint64_t>(into->addr) + offset, bytes, into->lkey};
        ibv_recv_wr wr{0, nullptr, &sge, 1}, *bad;
        must(!ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
    }
    ibv_qp* qp;
};

} // namespace

BOOST_AUTO_TEST_CASE(a_write_takes_the_time_of_its_links) {
    World world(image(star(2)));
    Pair p(world);
    ibv_wc wc{};
    const Nanos start = world.now();
    p.qa.post(IBV_WR_RDMA_WRITE, p.ma, 0, kMiB, p.mb, 0, 42);
    BOOST_TEST(ibv_poll_cq(p.a.cq, 1, &wc) == 0); // no time has passed
    BOOST_TEST(world.run_until([&] { return ibv_poll_cq(p.a.cq, 1, &wc) == 1; }));
    BOOST_TEST(wc.status == IBV_WC_SUCCESS);
    BOOST_TEST(wc.wr_id == 42u);
    BOOST_TEST(p.from == p.to, boost::test_tools::per_element());
    const Nanos took = world.now() - start;
    BOOST_TEST(took >= kMiB + 4 * 100u); // there and the acknowledgment back
    BOOST_TEST(took < kMiB + 4 * 100u + 1000);
    // Bytes are not there before they arrive.
    std::fill(p.to.begin(), p.to.end(), 0);
    p.qa.post(IBV_WR_RDMA_WRITE, p.ma, 0, kMiB, p.mb);
    world.run_until(world.now() + kMiB / 2);
    BOOST_TEST(p.to[0] == p.from[0]);
    BOOST_TEST(p.to[kMiB / 4] == p.from[kMiB / 4]);
    BOOST_TEST(std::all_of(p.to.begin() + kMiB * 5 / 8, p.to.end(), [](char c) { return c == 0; }));
    world.run();
    BOOST_TEST((p.from == p.to));
}

BOOST_AUTO_TEST_CASE(send_read_and_timers) {
    World world(image(star(2)));
    Pair p(world);
    std::vector<Nanos> ticks;
    const Nanos start = world.now();
    world.at(start + 5000, [&] { ticks.push_back(world.now()); });
    const World::Timer never = world.at(start + 6000, [&] { ticks.push_back(0); });
    world.at(start + 7000, [&] {
        ticks.push_back(world.now());
        world.at(start + 7001, [&] { ticks.push_back(world.now()); });
    });
    world.cancel(never);
    p.qb.recv(p.mb, 0, kMiB, 7);
    p.qa.post(IBV_WR_SEND, p.ma, 0, 100'000);
    ibv_wc wc{};
    BOOST_TEST(world.run_until([&] { return ibv_poll_cq(p.b.cq, 1, &wc) == 1; }));
    BOOST_TEST(wc.byte_len == 100'000u);
    BOOST_TEST(std::equal(p.to.begin(), p.to.begin() + 100'000, p.from.begin()));
    BOOST_TEST(world.run_until([&] { return ibv_poll_cq(p.a.cq, 1, &wc) == 1; }));
    p.qb.post(IBV_WR_RDMA_READ, p.mb, 500'000, 100'000, p.ma, 0);
    BOOST_TEST(world.run_until([&] { return ibv_poll_cq(p.b.cq, 1, &wc) == 1; }));
    BOOST_TEST(wc.status == IBV_WC_SUCCESS);
    BOOST_TEST(std::equal(p.to.begin() + 500'000, p.to.begin() + 600'000, p.from.begin()));
    world.run();
    const std::vector<Nanos> expected{start + 5000, start + 7000, start + 7001};
    BOOST_TEST(ticks == expected, boost::test_tools::per_element());
    BOOST_TEST(!world.run_until([] { return false; }, world.now() + 50));
}

BOOST_AUTO_TEST_CASE(faults_are_seen_as_hardware_shows_them) {
    World world(image(star(2)));
    Pair p(world, kMiB, 10, 3);
    const uint32_t link = world.find_link("node0", "switch0");
    BOOST_REQUIRE(link != kNone);
    ibv_wc wc{};
    // Retransmission hides a lossy link.
    world.fault("drop 1% node0 switch0");
    p.qa.post(IBV_WR_RDMA_WRITE, p.ma, 0, kMiB, p.mb);
    BOOST_TEST(world.run_until([&] { return ibv_poll_cq(p.a.cq, 1, &wc) == 1; }));
    BOOST_TEST(wc.status == IBV_WC_SUCCESS);
    BOOST_TEST((p.from == p.to));
    BOOST_TEST(world.link(link).drops > 0u);
    world.fault("clear");
    // A port that goes down in the middle of a message: event at its own side, retries exceeded.
    const Nanos down = world.now() + kMiB / 2;
    world.fault_at(down, "port down 1:softhca_0:1");
    p.qa.post(IBV_WR_RDMA_WRITE, p.ma, 0, kMiB, p.mb);
    BOOST_TEST(world.run_until([&] { return ibv_poll_cq(p.a.cq, 1, &wc) == 1; }));
    BOOST_TEST(wc.status == IBV_WC_RETRY_EXC_ERR);
    const double timeouts = 4.096e3 * 1024 * 4; // 4.096 us * 2^10, first and 3 retries
    BOOST_TEST(static_cast<double>(world.now() - down) > 0.7 * timeouts);
    BOOST_TEST(static_cast<double>(world.now() - down) < 4 * timeouts); // IB 9.7.6.1.3: one to four times
    ibv_async_event event;
    BOOST_TEST(ibv_get_async_event(p.b.context, &event) == 0);
    BOOST_TEST(event.event_type == IBV_EVENT_PORT_ERR);
    ibv_ack_async_event(&event);
    BOOST_CHECK_THROW(world.fault("port sideways 0:softhca_0:1"), std::runtime_error);
}

BOOST_AUTO_TEST_CASE(payload_free) {
    World world(image(star(2)), {.payload_limit = 4096});
    Pair p(world);
    p.qa.post(IBV_WR_RDMA_WRITE, p.ma, 0, kMiB, p.mb);
    p.qa.post(IBV_WR_RDMA_WRITE, p.ma, 0, 4096, p.mb, 8192);
    world.run();
    ibv_wc wc[2];
    BOOST_TEST(ibv_poll_cq(p.a.cq, 2, wc) == 2);
    BOOST_TEST(std::equal(p.to.begin() + 8192, p.to.begin() + 8192 + 4096, p.from.begin()));
    BOOST_TEST(std::count(p.to.begin(), p.to.end(), 0) >= kMiB - 4096);
}

BOOST_AUTO_TEST_CASE(the_same_seed_gives_the_same_run) {
    const auto run = [](uint64_t seed) {
        constexpr uint32_t kNodes = 64;
        World world(image(star(kNodes)), {.seed = seed});
        std::vector<std::unique_ptr<Hca>> hcas;
        std::vector<char> memory(1 << 16);
        for (uint32_t i = 0; i < kNodes; ++i) {
            hcas.push_back(std::make_unique<Hca>(world, i, 256));
            hcas.back()->reg(memory.data(), memory.size());
        }
        world.fault("drop 0.1% *:*:*");
        std::vector<std::unique_ptr<Rc>> qps;
        for (uint32_t i = 0; i < kNodes; ++i)
            for (const uint32_t d : {1u, 5u, 13u}) {
                const uint32_t j = (i + d) % kNodes;
                Rc& a = *qps.emplace_back(std::make_unique<Rc>(*hcas[i]));
                Rc& b = *qps.emplace_back(std::make_unique<Rc>(*hcas[j]));
                a.connect(b);
                b.connect(a);
                a.post(IBV_WR_RDMA_WRITE, hcas[i]->mrs[0], 0, 50'000, hcas[j]->mrs[0]);
                b.post(IBV_WR_RDMA_READ, hcas[j]->mrs[0], 0, 10'000, hcas[i]->mrs[0]);
            }
        world.run();
        int done = 0;
        for (auto& h : hcas) {
            ibv_wc wc[64];
            for (int n; (n = ibv_poll_cq(h->cq, 64, wc)) > 0;)
                for (int k = 0; k < n; ++k) done += wc[k].status == IBV_WC_SUCCESS;
        }
        BOOST_TEST(done == static_cast<int>(qps.size()));
        const uint64_t fingerprint = world.fingerprint() ^ world.now();
        qps.clear();
        hcas.clear();
        return fingerprint;
    };
    const uint64_t first = run(1);
    BOOST_TEST(first == run(1));
    BOOST_TEST(first != run(2));
}

BOOST_AUTO_TEST_CASE(a_datagram_names_the_lids_of_its_path) {
    World world(image(star(2, 2)));
    Hca a(world, 0, 16), b(world, 1, 16);
    std::vector<char> memory(4096);
    ibv_mr* const from = a.reg(memory.data(), memory.size());
    ibv_mr* const to = b.reg(memory.data(), memory.size());
    Ud sender(a), receiver(b);
    ibv_ah_attr path{};
    path.dlid = static_cast<uint16_t>(b.port.lid + 1);
    path.src_path_bits = 3;
    path.port_num = 1;
    ibv_ah* ah = ibv_create_ah(a.pd, &path);
    BOOST_REQUIRE(ah);
    receiver.recv(to, 1024, 1064);
    ibv_sge sge{reinterpret_cast<uint64_t>(from->addr), 1000, from->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud = {ah, receiver.qp->qp_num, Ud::kKey};
    BOOST_REQUIRE(ibv_post_send(sender.qp, &wr, &bad) == 0);
    world.run();
    ibv_wc wc{};
    BOOST_REQUIRE(ibv_poll_cq(b.cq, 1, &wc) == 1);
    BOOST_TEST(wc.status == IBV_WC_SUCCESS);
    BOOST_TEST(wc.slid == a.port.lid + 3);
    BOOST_TEST(wc.dlid_path_bits == 1);
    BOOST_TEST(ibv_destroy_ah(ah) == 0);
}

BOOST_AUTO_TEST_CASE(ports_exchange_their_lids) {
    World world(image(star(3, 1)));
    Pair p(world, kMiB, 10, 3);
    Hca c(world, 2, 16);
    const uint16_t lid_b = p.b.port.lid, lid_c = c.port.lid;
    BOOST_CHECK_THROW(world.fault("lid-swap 1:0:1 1:0:1"), std::runtime_error);
    world.fault("lid-swap 1:0:1 2:0:1");
    for (Hca* h : {&p.b, &c}) {
        BOOST_TEST(ibv_query_port(h->context, 1, &h->port) == 0);
        ibv_async_event event;
        BOOST_REQUIRE(ibv_get_async_event(h->context, &event) == 0);
        BOOST_TEST(event.event_type == IBV_EVENT_LID_CHANGE);
        BOOST_TEST(event.element.port_num == 1);
        ibv_ack_async_event(&event);
    }
    BOOST_TEST(p.b.port.lid == lid_c);
    BOOST_TEST(c.port.lid == lid_b);
    // What is connected leads to the wrong port ...
    p.qa.post(IBV_WR_RDMA_WRITE, p.ma, 0, 5000, p.mb);
    ibv_wc wc{};
    BOOST_TEST(world.run_until([&] { return ibv_poll_cq(p.a.cq, 1, &wc) == 1; }));
    BOOST_TEST(wc.status == IBV_WC_RETRY_EXC_ERR);
    // ... and what connects now does not.
    std::vector<char> memory(5000, 'x');
    ibv_mr* const mc = c.reg(memory.data(), memory.size());
    Rc from(p.a), to_b(p.b), to_c(c), back(p.a);
    from.connect(to_b, 1);
    to_b.connect(from, 1);
    back.connect(to_c);
    to_c.connect(back);
    from.post(IBV_WR_RDMA_WRITE, p.ma, 0, 5000, p.mb);
    to_c.post(IBV_WR_RDMA_WRITE, mc, 0, 5000, p.ma);
    world.run();
    BOOST_TEST(ibv_poll_cq(p.a.cq, 1, &wc) == 1);
    BOOST_TEST(wc.status == IBV_WC_SUCCESS);
    BOOST_TEST(ibv_poll_cq(c.cq, 1, &wc) == 1);
    BOOST_TEST(wc.status == IBV_WC_SUCCESS);
    BOOST_TEST(p.from[4999] == 'x');
}

BOOST_AUTO_TEST_CASE(nodes_that_do_not_run_are_not_reported) {
    World world(image(star(2)));
    Pair p(world, kMiB, 10, 3);
    const auto reported = [&](uint32_t node) {
        const auto nodes = world.touched();
        return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
    };
    (void)world.touched();
    world.fault("stop 1");
    BOOST_TEST(!world.runs(1));
    p.qb.recv(p.mb, 0, 100);
    p.qa.post(IBV_WR_SEND, p.ma, 0, 100);
    world.run(); // its adapter works on
    ibv_wc wc{};
    BOOST_REQUIRE(ibv_poll_cq(p.a.cq, 1, &wc) == 1);
    BOOST_TEST(wc.status == IBV_WC_SUCCESS);
    BOOST_TEST(!reported(1));
    world.fault("cont 1");
    BOOST_TEST(world.runs(1));
    BOOST_TEST(reported(1));
    BOOST_TEST(!reported(1)); // once
    world.fault("node-death 1");
    p.qa.post(IBV_WR_SEND, p.ma, 0, 100);
    world.run();
    BOOST_REQUIRE(ibv_poll_cq(p.a.cq, 1, &wc) == 1);
    BOOST_TEST(wc.status == IBV_WC_RETRY_EXC_ERR);
    world.fault("cont 1"); // dead is dead
    BOOST_TEST(!world.runs(1));
    BOOST_TEST(!reported(1));
}

// What is under way when a world ends goes with it (leak check of the sanitizers).
BOOST_AUTO_TEST_CASE(a_world_ends_in_the_middle) {
    std::vector<char> memory(kMiB);
    for (const char* fault : {"clear", "place-delay 1ms *:*"}) {
        World world(image(star(2)));
        world.fault(fault);
        {
            Hca a(world, 0, 16), b(world, 1, 16);
            ibv_mr* const ma = a.reg(memory.data(), memory.size());
            ibv_mr* const mb = b.reg(memory.data(), memory.size());
            Rc qa(a), qb(b);
            qa.connect(qb);
            qb.connect(qa);
            qa.post(IBV_WR_RDMA_WRITE, ma, 0, 20'000, mb);
            qa.post(IBV_WR_RDMA_READ, ma, 0, kMiB / 2, mb, kMiB / 2);
            world.run_until(world.now() + kMiB / 4);
        }
        BOOST_TEST(world.events() > 0u);
    }
}

// A peer that is killed between failing a queue pair and flushing it: the owner does the rest.
BOOST_AUTO_TEST_CASE(a_queue_pair_failed_by_half_is_flushed) {
    World world(image(star(2)));
    Pair p(world);
    for (uint64_t id : {1, 2, 3}) p.qb.recv(p.mb, 0, 100, id);
    world.segment().qp(p.qb.qp->qp_num & (kMaxQps - 1)).state = IBV_QPS_ERR;
    world.segment().fabric.generation.fetch_add(1);
    world.run();
    ibv_wc wc[4];
    BOOST_REQUIRE(ibv_poll_cq(p.b.cq, 4, wc) == 3);
    for (int i = 0; i < 3; ++i) {
        BOOST_TEST(wc[i].status == IBV_WC_WR_FLUSH_ERR);
        BOOST_TEST(wc[i].wr_id == static_cast<uint64_t>(i + 1));
    }
}

// What there is on an adapter, what state it is in, and what has passed its port.
BOOST_AUTO_TEST_CASE(a_world_tells_what_is_there) {
    World world(image(star(2)));
    {
        const Pair p(world);
        BOOST_TEST(world.objects(0).queue_pairs == 1u);
        BOOST_TEST(world.objects(0).completion_queues == 1u);
        BOOST_TEST(world.objects(0).shared_receive_queues == 0u);
        BOOST_TEST(world.queue_pair_state(p.qa.qp->qp_num) == uint32_t{IBV_QPS_RTS});
        const World::QueueBytes bytes = world.queue_bytes(p.qa.qp->qp_num);
        BOOST_TEST(bytes.receives >= 16 * (sizeof(ibv_recv_wr*) + sizeof(ibv_sge))); // it was made for 16 receives
    }
    BOOST_TEST(world.objects(0).queue_pairs == 0u);
    BOOST_TEST(world.objects(0).completion_queues == 0u);
}

BOOST_AUTO_TEST_CASE(ports_count_packets) {
    World world(image(star(2)));
    Pair p(world);
    p.qa.post(IBV_WR_RDMA_WRITE, p.ma, 0, 3 * 2048, p.mb);
    world.run();
    BOOST_TEST(world.port(0).tx_packets == 3u);
    BOOST_TEST(world.port(1).rx_packets == 3u);
    BOOST_TEST(world.port(1).tx_packets == 1u); // the acknowledgment
}

// Commands take no time by themselves; who wants them to hears of each what it costs, before it has any effect.
BOOST_AUTO_TEST_CASE(commands_tell_what_they_cost) {
    World world(image(star(2)));
    Hca a(world, 0, 16), b(world, 1, 16);
    Nanos spent = 0;
    world.on_command([&](Nanos cost) { spent += cost; });
    Rc qa(a), qb(b);
    BOOST_TEST(spent == 0u); // this fabric's cost nothing
    world.fault("command-cost modify 100us 0:0");
    qa.connect(qb);
    qb.connect(qa);
    BOOST_TEST(spent == 300'000u); // INIT, RTR, RTS, of one of the two
    ibv_qp_state before = IBV_QPS_RESET;
    world.on_command([&](Nanos) { before = static_cast<ibv_qp_state>(world.queue_pair_state(qa.qp->qp_num)); });
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    BOOST_TEST(ibv_modify_qp(qa.qp, &error, IBV_QP_STATE) == 0);
    BOOST_TEST(before == IBV_QPS_RTS);
    world.on_command(nullptr);
    error.qp_state = IBV_QPS_RESET;
    BOOST_TEST(ibv_modify_qp(qa.qp, &error, IBV_QP_STATE) == 0);
    BOOST_TEST(before == IBV_QPS_RTS); // free again
}

// Late placement: with place-delay a read over any queue pair pushes what the adapter has acknowledged; with
// place-delay-qp it pushes only what came the same way. Nothing is lost with a queue pair.
BOOST_AUTO_TEST_CASE(late_placement) {
    for (const bool each : {false, true}) {
        World world(image(star(2)));
        Pair p(world);
        std::vector<std::unique_ptr<Rc>> there, back;
        for (unsigned i = 0; i < 6; ++i) {
            there.push_back(std::make_unique<Rc>(p.a));
            back.push_back(std::make_unique<Rc>(p.b));
            there[i]->connect(*back[i]);
            back[i]->connect(*there[i]);
        }
        world.fault(std::string(each ? "place-delay-qp" : "place-delay") + " 1ms 1:softhca_0");
        const auto go = [&](unsigned i, ibv_wr_opcode op, uint64_t offset) {
            there[i]->post(op, p.ma, offset, 8, p.mb, 0);
            ibv_wc wc{};
            BOOST_REQUIRE(world.run_until([&] { return ibv_poll_cq(p.a.cq, 1, &wc) == 1; }));
            BOOST_TEST(wc.status == IBV_WC_SUCCESS);
        };
        const auto same = [&](uint64_t offset) {
            return std::equal(p.from.begin(), p.from.begin() + 8, p.from.begin() + int64_t(offset));
        };
        unsigned late = 0, stale = 0;
        for (unsigned i = 0; i < 6; ++i) {
            std::fill(p.to.begin(), p.to.end(), 0);
            go(i, IBV_WR_RDMA_WRITE, 0);
            late += p.to[1] == 0;
            go((i + 1) % 6, IBV_WR_RDMA_READ, 64);
            stale += !same(64);
            go(i, IBV_WR_RDMA_READ, 64);
            BOOST_TEST(same(64));
        }
        BOOST_TEST(late >= 2u);
        BOOST_TEST((stale >= 2u) == each);
        world.fault("clear");
        world.fault("place-delay 10ms 1:softhca_0");
        std::fill(p.to.begin(), p.to.end(), 0);
        go(0, IBV_WR_RDMA_WRITE, 0);
        BOOST_TEST(p.to[1] == 0);
        back[0].reset();
        BOOST_TEST(p.to[1] == p.from[1]);
    }
}
