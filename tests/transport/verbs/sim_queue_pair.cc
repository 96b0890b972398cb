// Queue pairs between nodes of a virtual-time fabric: RC over chosen routes, recycling, DC, UD; and the clock fit
// beside completion timestamps.
#define BOOST_TEST_MODULE sim_queue_pair
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>

#include <array>

#include "uct_mp/verbs/clock_fit.h"
#include "uct_mp/verbs/memory.h"
#include "uct_mp/verbs/queue_pair.h"
#include "verbs_world.h"

using namespace verbs_test;

// A domain in which something is left can't be freed; its owner ignores that, the tests don't.
extern "C" int ibv_dealloc_pd(ibv_pd* pd) {
    const int result = reinterpret_cast<decltype(&ibv_dealloc_pd)>(dlsym(RTLD_NEXT, "ibv_dealloc_pd"))(pd);
    BOOST_CHECK_EQUAL(result, 0);
    return result;
}

namespace {

constexpr std::size_t kBytes = 1 << 20;
constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr Reliability kQuick{.timeout = 8, .retry_count = 2}; // 1 ms

// A node with everything that queue pairs need, on all its devices.
struct Node {
    Node(World& world, uint32_t number) : world(world), devices(open_devices(world, number)), memory(kBytes) {
        BOOST_REQUIRE(register_memory(devices, memory.data(), memory.size(), kAccess, registration) == Status::ok);
        for (const Device& device : devices.devices()) {
            cq[device.index].reset(ibv_create_cq(device.context.get(), 256, nullptr, nullptr, 0));
            ibv_srq_init_attr init{};
            init.attr = {.max_wr = 64, .max_sge = 1, .srq_limit = 0};
            srq[device.index].reset(ibv_create_srq(device.pd.get(), &init));
            BOOST_REQUIRE(cq[device.index] && srq[device.index]);
        }
    }
    [[nodiscard]] const Rail& rail(unsigned i = 0) const { return devices.rails()[i]; }
    [[nodiscard]] const Device& device(unsigned i = 0) const { return devices.devices()[i]; }
    [[nodiscard]] uint64_t address(std::size_t offset = 0) const {
        return reinterpret_cast<uint64_t>(memory.data()) + offset;
    }
    [[nodiscard]] ibv_sge piece(std::size_t offset, uint32_t length, unsigned on = 0) const {
        return {address(offset), length, registration.lkey[on]};
    }
    // The next completion on a device.
    ibv_wc wait(unsigned on = 0) {
        ibv_wc wc{};
        BOOST_REQUIRE(world.run_until([&] { return ibv_poll_cq(cq[on].get(), 1, &wc) == 1; }));
        return wc;
    }
    void receive(std::size_t offset, uint32_t length, uint64_t id, unsigned on = 0) {
        ibv_sge sge = piece(offset, length, on);
        ibv_recv_wr wr{id, nullptr, &sge, 1}, *bad;
        BOOST_REQUIRE_EQUAL(ibv_post_srq_recv(srq[on].get(), &wr, &bad), 0);
    }

    World& world;
    DeviceSet devices;
    std::vector<char> memory;
    Registration registration;
    std::array<CompletionQueue, kMaxDevices> cq;
    std::array<SharedReceiveQueue, kMaxDevices> srq;
};

int post(ibv_qp* qp, ibv_wr_opcode opcode, ibv_sge sge, uint64_t remote = 0, uint32_t rkey = 0,
         unsigned flags = IBV_SEND_SIGNALED) {
    ibv_send_wr wr{}, *bad;
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = flags;
    wr.wr.rdma = {remote, rkey};
    return ibv_post_send(qp, &wr, &bad);
}

QueuePair make_rc(Node& node, std::uint32_t* granted = nullptr, const QueuePairLimits& limits = {}) {
    QueuePair qp =
        create_rc(node.device(), node.rail(), {node.cq[0].get(), node.cq[0].get(), node.srq[0].get()}, limits, granted);
    BOOST_REQUIRE_MESSAGE(qp, std::strerror(errno));
    return qp;
}

// From any state; 0 or an errno.
int reset_to_init(ibv_qp* qp, const Rail& rail) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RESET;
    if (const int error = ibv_modify_qp(qp, &a, IBV_QP_STATE)) return error;
    a.qp_state = IBV_QPS_INIT;
    a.port_num = rail.port;
    a.qp_access_flags = kAccess;
    return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

// Over the route of these path bits (of both ends), packet numbers from the given ones on.
void join(Node& a, ibv_qp* qa, Node& b, ibv_qp* qb, uint8_t bits, uint32_t psn_a, uint32_t psn_b,
          const Reliability& reliability = kQuick) {
    const auto end = [&](const Node& of, const ibv_qp* qp, uint32_t psn) {
        return RemoteEnd{.dlid = static_cast<uint16_t>(of.rail().lid + bits),
                         .source_path_bits = bits,
                         .mtu = IBV_MTU_2048,
                         .qp_number = qp->qp_num,
                         .rq_psn = psn};
    };
    BOOST_REQUIRE_EQUAL(connect_rc(qa, a.rail(), end(b, qb, psn_b), reliability, psn_a), 0);
    BOOST_REQUIRE_EQUAL(connect_rc(qb, b.rail(), end(a, qa, psn_a), reliability, psn_b), 0);
}

void fill(std::vector<char>& memory, unsigned seed) {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<char>(seed + i * 7 + (i >> 9));
}

} // namespace

// Each of the four path bits of four-path takes another spine: the counters of the leaf's cables tell.
BOOST_AUTO_TEST_CASE(path_bits_choose_the_route) {
    World world(fabric("four-path"));
    Node a(world, 0), b(world, 4);
    std::array<uint64_t, 4> used{};
    for (uint8_t bits = 0; bits < 4; ++bits) {
        std::array<uint64_t, 4> before{};
        const auto bytes = [&](unsigned spine) {
            return world.link(world.find_link("leaf1", "spine" + std::to_string(spine + 1))).bytes;
        };
        for (unsigned spine = 0; spine < 4; ++spine) before[spine] = bytes(spine);
        fill(a.memory, bits);
        std::fill(b.memory.begin(), b.memory.end(), 0);
        const QueuePair qa = make_rc(a), qb = make_rc(b);
        join(a, qa.get(), b, qb.get(), bits, 100, 200);
        BOOST_REQUIRE_EQUAL(post(qa.get(), IBV_WR_RDMA_WRITE, a.piece(0, kBytes), b.address(), b.registration.rkey[0]),
                            0);
        BOOST_CHECK_EQUAL(a.wait().status, IBV_WC_SUCCESS);
        BOOST_CHECK(a.memory == b.memory);
        unsigned carriers = 0;
        for (unsigned spine = 0; spine < 4; ++spine)
            if (bytes(spine) - before[spine] >= kBytes) ++carriers, ++used[spine];
        BOOST_TEST(carriers == 1u);
    }
    for (const uint64_t n : used) BOOST_TEST(n == 1u);
}

BOOST_AUTO_TEST_CASE(rc_reads_sends_and_atomics) {
    World world(fabric("two-rail"));
    Node a(world, 0), b(world, 1);
    const QueuePair qa = make_rc(a), qb = make_rc(b);
    join(a, qa.get(), b, qb.get(), 0, 1, 2, {});
    fill(b.memory, 5);
    BOOST_REQUIRE_EQUAL(post(qa.get(), IBV_WR_RDMA_READ, a.piece(0, 5000), b.address(64), b.registration.rkey[0]), 0);
    BOOST_CHECK_EQUAL(a.wait().status, IBV_WC_SUCCESS);
    BOOST_CHECK(std::memcmp(a.memory.data(), b.memory.data() + 64, 5000) == 0);

    b.receive(0, 4096, 77);
    BOOST_REQUIRE_EQUAL(post(qa.get(), IBV_WR_SEND, a.piece(0, 3000)), 0);
    BOOST_CHECK_EQUAL(a.wait().status, IBV_WC_SUCCESS);
    const ibv_wc received = b.wait(); // from the SRQ, on the one completion queue
    BOOST_TEST(received.wr_id == 77u);
    BOOST_TEST(received.byte_len == 3000u);
    BOOST_TEST(received.qp_num == qb->qp_num);

    *reinterpret_cast<uint64_t*>(b.memory.data()) = 40;
    ibv_sge sge = a.piece(8192, 8);
    ibv_send_wr wr{}, *bad;
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.atomic = {.remote_addr = b.address(), .compare_add = 2, .swap = 0, .rkey = b.registration.rkey[0]};
    BOOST_REQUIRE_EQUAL(ibv_post_send(qa.get(), &wr, &bad), 0);
    BOOST_CHECK_EQUAL(a.wait().status, IBV_WC_SUCCESS);
    BOOST_TEST(*reinterpret_cast<uint64_t*>(a.memory.data() + 8192) == 40u);
    BOOST_TEST(*reinterpret_cast<uint64_t*>(b.memory.data()) == 42u);
}

BOOST_AUTO_TEST_CASE(limits_and_inline_space) {
    const softhca::FabricBlock block = crossbar("has_dc: false"); // RC needs nothing of the extended calls
    World world(block.image());
    Node node(world, 0);
    std::uint32_t granted = 0;
    QueuePair qp = make_rc(node, &granted);
    BOOST_TEST(granted >= 256u);
    BOOST_TEST(qp->state == IBV_QPS_INIT);
    // More than the adapter has: as much as it has.
    qp = make_rc(node, &granted, {.send_wr = 1 << 30, .send_sge = 1000, .inline_bytes = 100000});
    BOOST_TEST(granted > 0u);
    BOOST_TEST(granted < 100000u);
    qp = make_rc(node, &granted, {.inline_bytes = 0});
    BOOST_TEST(granted == 0u);
    // A port that isn't there: null and errno, nothing left behind (see ibv_dealloc_pd above).
    Rail wrong = node.rail();
    wrong.port = 9;
    errno = 0;
    BOOST_TEST(!create_rc(node.device(), wrong, {node.cq[0].get(), node.cq[0].get(), node.srq[0].get()}, {}, nullptr));
    BOOST_TEST(errno == EINVAL);
    errno = 0;
    BOOST_TEST(!create_dci(node.device(), node.rail(), node.cq[0].get(), {}, {}, nullptr)); // no DC here
    BOOST_TEST(errno == EOPNOTSUPP);
}

BOOST_AUTO_TEST_CASE(connecting_with_impossible_values) {
    World world(fabric("four-path"));
    Node a(world, 0);
    const QueuePair qp = make_rc(a);
    RemoteEnd end{.dlid = a.rail().lid, .mtu = IBV_MTU_2048, .qp_number = 5};
    Reliability bad;
    bad.max_rd_atomic = 200; // more than the adapter's 16
    BOOST_TEST(connect_rc(qp.get(), a.rail(), end, bad, 0) == EINVAL);
    BOOST_TEST(reset_to_init(qp.get(), a.rail()) == 0);
    end.source_path_bits = 4; // beyond LMC 2
    BOOST_TEST(connect_rc(qp.get(), a.rail(), end, {}, 0) == EINVAL);
    BOOST_TEST(reset_to_init(qp.get(), a.rail()) == 0);
    end.source_path_bits = 3;
    BOOST_TEST(connect_rc(qp.get(), a.rail(), end, {}, 0) == 0);
    BOOST_TEST(connect_rc(qp.get(), a.rail(), end, {}, 0) == EINVAL); // is connected
}

// The packet numbers that recovery relies on: what was sent, what was expected, modulo 2^24.
BOOST_AUTO_TEST_CASE(query_tells_the_packet_numbers) {
    World world(fabric("two-rail"));
    Node a(world, 0), b(world, 1);
    const QueuePair qa = make_rc(a), qb = make_rc(b);
    join(a, qa.get(), b, qb.get(), 0, 0xfffffe, 0x7f000005); // ours wraps; theirs is cut to 24 bits
    QueuePairTruth truth{};
    BOOST_REQUIRE_EQUAL(query(qa.get(), truth), 0);
    BOOST_TEST(truth.state == IBV_QPS_RTS);
    BOOST_TEST(truth.sq_psn == 0xfffffeu);
    BOOST_TEST(truth.rq_psn == 5u);
    // Five packets of 2048 bytes.
    BOOST_REQUIRE_EQUAL(post(qa.get(), IBV_WR_RDMA_WRITE, a.piece(0, 10000), b.address(), b.registration.rkey[0]), 0);
    BOOST_CHECK_EQUAL(a.wait().status, IBV_WC_SUCCESS);
    BOOST_REQUIRE_EQUAL(query(qa.get(), truth), 0);
    BOOST_TEST(truth.sq_psn == 3u);
    BOOST_REQUIRE_EQUAL(query(qb.get(), truth), 0);
    BOOST_TEST(truth.rq_psn == 3u);
    BOOST_TEST(truth.sq_psn == 5u);
    BOOST_REQUIRE_EQUAL(to_error(qb.get()), 0);
    BOOST_REQUIRE_EQUAL(query(qb.get(), truth), 0);
    BOOST_TEST(truth.state == IBV_QPS_ERR);
    BOOST_TEST(truth.rq_psn == 3u); // still known after it was taken out of service
    world.fault("query refused 1:softhca_0");
    BOOST_TEST(query(qb.get(), truth) == EIO);
    world.fault("query truthful 1:softhca_0");
}

BOOST_AUTO_TEST_CASE(a_failed_pair_is_used_again) {
    World world(fabric("two-rail"));
    Node a(world, 0), b(world, 1);
    const QueuePair qa = make_rc(a), qb = make_rc(b);
    join(a, qa.get(), b, qb.get(), 0, 1000, 2000);
    world.fault("link down node1:0 switch");
    for (int i = 0; i < 3; ++i)
        BOOST_REQUIRE_EQUAL(post(qa.get(), IBV_WR_RDMA_WRITE, a.piece(0, 64), b.address(), b.registration.rkey[0]), 0);
    BOOST_CHECK_EQUAL(a.wait().status, IBV_WC_RETRY_EXC_ERR);
    BOOST_CHECK_EQUAL(a.wait().status, IBV_WC_WR_FLUSH_ERR);
    BOOST_CHECK_EQUAL(a.wait().status, IBV_WC_WR_FLUSH_ERR);
    BOOST_REQUIRE_EQUAL(to_error(qb.get()), 0);
    world.fault("link up node1:0 switch");
    const uint32_t number = qa->qp_num;
    for (uint32_t round = 0; round < 3; ++round) {
        BOOST_REQUIRE_EQUAL(reset_to_init(qa.get(), a.rail()), 0);
        BOOST_REQUIRE_EQUAL(reset_to_init(qb.get(), b.rail()), 0);
        BOOST_TEST(qa->qp_num == number);
        join(a, qa.get(), b, qb.get(), 0, 0x900000 + round, 0x123456 - round);
        fill(a.memory, round + 1);
        BOOST_REQUIRE_EQUAL(post(qa.get(), IBV_WR_RDMA_WRITE, a.piece(0, 20000), b.address(), b.registration.rkey[0]),
                            0);
        BOOST_CHECK_EQUAL(a.wait().status, IBV_WC_SUCCESS);
        BOOST_CHECK(std::memcmp(a.memory.data(), b.memory.data(), 20000) == 0);
        QueuePairTruth truth{};
        BOOST_REQUIRE_EQUAL(query(qb.get(), truth), 0);
        BOOST_TEST(truth.rq_psn == 0x900000 + round + 10); // packets of 2048 bytes
    }
    // Both ends must have been recycled: a partner with other packet numbers in mind is not served.
    BOOST_REQUIRE_EQUAL(reset_to_init(qa.get(), a.rail()), 0);
    const RemoteEnd end{.dlid = b.rail().lid, .mtu = IBV_MTU_2048, .qp_number = qb->qp_num, .rq_psn = 0x123454};
    BOOST_REQUIRE_EQUAL(connect_rc(qa.get(), a.rail(), end, kQuick, 0x100), 0);
    BOOST_REQUIRE_EQUAL(post(qa.get(), IBV_WR_RDMA_WRITE, a.piece(0, 64), b.address(), b.registration.rkey[0]), 0);
    BOOST_CHECK_NE(a.wait().status, IBV_WC_SUCCESS);
}

namespace {

constexpr uint64_t kKey = 0xfeedface12345678;

void post_dc(ibv_qp* dci, bool write, const Node& from, const Node& to, ibv_ah* ah, uint32_t dct, uint64_t key,
             uint32_t length, unsigned rail = 0) {
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(dci);
    BOOST_REQUIRE(ex);
    ibv_wr_start(ex);
    ex->wr_id = length;
    ex->wr_flags = IBV_SEND_SIGNALED;
    if (write)
        ibv_wr_rdma_write(ex, to.registration.rkey[rail], to.address());
    else
        ibv_wr_send(ex);
    mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(ex), ah, dct, key);
    ibv_wr_set_sge(ex, from.registration.lkey[rail], from.address(), length);
    BOOST_REQUIRE_EQUAL(ibv_wr_complete(ex), 0);
}

} // namespace

BOOST_AUTO_TEST_CASE(dc_send_write_and_restart) {
    World world(fabric("four-path"));
    Node a(world, 0), b(world, 4), c(world, 5);
    const Device& device = a.device();
    std::uint32_t granted = 0;
    const QueuePair dci = create_dci(device, a.rail(), a.cq[0].get(), {}, kQuick, &granted);
    BOOST_REQUIRE_MESSAGE(dci, std::strerror(errno));
    BOOST_TEST(granted > 0u);
    BOOST_TEST(dci->state == IBV_QPS_RTS);
    std::vector<QueuePair> targets;
    for (Node* node : {&b, &c}) {
        targets.push_back(create_dct(node->device(), node->rail(), node->cq[0].get(), node->srq[0].get(), kKey, {}));
        BOOST_REQUIRE_MESSAGE(targets.back(), std::strerror(errno));
        BOOST_TEST(targets.back()->state == IBV_QPS_RTR);
        node->receive(100000, 50000, 9);
    }
    fill(a.memory, 1);
    for (unsigned i = 0; i < 2; ++i) {
        Node& node = i ? c : b;
        const AddressHandle ah = create_ah(device, a.rail(), {static_cast<uint16_t>(node.rail().lid + 2), 2}, 0);
        BOOST_REQUIRE(ah);
        post_dc(dci.get(), true, a, node, ah.get(), targets[i]->qp_num, kKey, 40000);
        BOOST_CHECK_EQUAL(a.wait().status, IBV_WC_SUCCESS);
        BOOST_CHECK(std::memcmp(a.memory.data(), node.memory.data(), 40000) == 0);
        post_dc(dci.get(), false, a, node, ah.get(), targets[i]->qp_num, kKey, 30000);
        BOOST_CHECK_EQUAL(a.wait().status, IBV_WC_SUCCESS);
        const ibv_wc wc = node.wait();
        BOOST_TEST(wc.wr_id == 9u);
        BOOST_TEST(wc.byte_len == 30000u);
        BOOST_CHECK(std::memcmp(a.memory.data(), node.memory.data() + 100000, 30000) == 0);
    }
    // A wrong key breaks the initiator; it can be had again.
    const AddressHandle ah = create_ah(device, a.rail(), {b.rail().lid, 0}, 0);
    post_dc(dci.get(), true, a, b, ah.get(), targets[0]->qp_num, kKey + 1, 64);
    BOOST_CHECK_EQUAL(a.wait().status, IBV_WC_REM_ACCESS_ERR);
    QueuePairTruth truth{};
    BOOST_REQUIRE_EQUAL(query(dci.get(), truth), 0);
    BOOST_TEST(truth.state == IBV_QPS_ERR);
    BOOST_REQUIRE_EQUAL(restart_dci(dci.get(), device, a.rail(), kQuick), 0);
    fill(a.memory, 2);
    post_dc(dci.get(), true, a, b, ah.get(), targets[0]->qp_num, kKey, 5000);
    BOOST_CHECK_EQUAL(a.wait().status, IBV_WC_SUCCESS);
    BOOST_CHECK(std::memcmp(a.memory.data(), b.memory.data(), 5000) == 0);
}

BOOST_AUTO_TEST_CASE(ud_on_the_second_rail) {
    World world(fabric("four-path"));
    Node a(world, 0), b(world, 4);
    constexpr uint32_t kQKey = 0x1badcafe;
    const auto ud = [](Node& node, uint32_t q_key) {
        QueuePair qp = create_ud(node.device(1), node.rail(1), node.cq[1].get(), node.cq[1].get(), 32, 32, q_key);
        BOOST_REQUIRE_MESSAGE(qp, std::strerror(errno));
        return qp;
    };
    const QueuePair qa = ud(a, kQKey), qb = ud(b, kQKey);
    const auto receive = [&](uint64_t id) {
        ibv_sge sge = b.piece(0, 1024, 1);
        ibv_recv_wr wr{id, nullptr, &sge, 1}, *bad;
        BOOST_REQUIRE_EQUAL(ibv_post_recv(qb.get(), &wr, &bad), 0);
    };
    const auto send = [&](uint32_t q_key, uint8_t bits) {
        const AddressHandle ah =
            create_ah(a.device(1), a.rail(1), {static_cast<uint16_t>(b.rail(1).lid + bits), bits}, 0);
        BOOST_REQUIRE(ah);
        ibv_sge sge = a.piece(0, 500, 1);
        ibv_send_wr wr{}, *bad;
        wr.opcode = IBV_WR_SEND;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.ud = {ah.get(), qb->qp_num, q_key};
        BOOST_REQUIRE_EQUAL(ibv_post_send(qa.get(), &wr, &bad), 0);
        BOOST_CHECK_EQUAL(a.wait(1).status, IBV_WC_SUCCESS);
        world.run();
    };
    fill(a.memory, 3);
    for (uint8_t bits = 0; bits < 4; ++bits) {
        receive(bits);
        send(kQKey, bits);
        const ibv_wc wc = b.wait(1);
        BOOST_TEST(wc.wr_id == bits);
        BOOST_TEST(wc.byte_len == 540u); // with the room for a global header
        BOOST_TEST(wc.src_qp == qa->qp_num);
        BOOST_TEST((wc.slid & ~3) == a.rail(1).lid); // the emulated adapter leaves the sender's path bits out of it
        BOOST_TEST(wc.dlid_path_bits == bits);
        BOOST_CHECK(std::memcmp(a.memory.data(), b.memory.data() + 40, 500) == 0);
    }
    // Another Q_Key is dropped without a trace.
    receive(99);
    send(kQKey + 1, 0);
    ibv_wc wc{};
    BOOST_TEST(ibv_poll_cq(b.cq[1].get(), 1, &wc) == 0);
}

// Completion timestamps of an adapter whose clock is off and drifts, mapped to the host's.
BOOST_AUTO_TEST_CASE(timestamps_in_host_time) {
    const softhca::FabricBlock block = fabric_of("adapters:\n  a: {clock_offset: -700 ms, clock_drift: 80 ppm}\n"
                                                 "nodes:\n  - {name: 'n[0-1]', adapters: [a]}\n"
                                                 "links:\n  - {from: n0, to: n1, rate: 8 Gb/s, latency: 1 us}\n");
    World world(block.image());
    WorldServices services(world);
    Node a(world, 0), b(world, 1);
    ibv_cq_init_attr_ex init{};
    init.cqe = 64;
    init.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    ibv_cq_ex* stamped = ibv_create_cq_ex(a.device().context.get(), &init);
    BOOST_REQUIRE(stamped);
    const CompletionQueue owner(ibv_cq_ex_to_cq(stamped));
    const QueuePair qa = create_rc(a.device(), a.rail(), {owner.get(), owner.get(), a.srq[0].get()}, {}, nullptr),
                    qb = make_rc(b);
    BOOST_REQUIRE(qa);
    join(a, qa.get(), b, qb.get(), 0, 7, 8);

    ClockFit fit;
    double worst = 0;
    for (int second = 0; second < 10; ++second) {
        BOOST_REQUIRE(fit.calibrate(a.device(), services));
        BOOST_REQUIRE_EQUAL(post(qa.get(), IBV_WR_RDMA_WRITE, a.piece(0, 4096), b.address(), b.registration.rkey[0]),
                            0);
        ibv_poll_cq_attr none{};
        BOOST_REQUIRE(world.run_until([&] { return ibv_start_poll(stamped, &none) == 0; }));
        BOOST_CHECK_EQUAL(stamped->status, IBV_WC_SUCCESS);
        const Nanos done = fit.to_host(ibv_wc_read_completion_ts(stamped)), seen = world.now();
        ibv_end_poll(stamped);
        const double off = static_cast<double>(static_cast<int64_t>(done - seen));
        BOOST_TEST(std::abs(off) < 100); // polled after every event, so seen when it happened
        // Half a second later the drift alone would be 40 us.
        world.run_until(world.now() + 500'000'000);
        BOOST_REQUIRE_EQUAL(post(qa.get(), IBV_WR_RDMA_WRITE, a.piece(0, 4096), b.address(), b.registration.rkey[0]),
                            0);
        BOOST_REQUIRE(world.run_until([&] { return ibv_start_poll(stamped, &none) == 0; }));
        const Nanos later = fit.to_host(ibv_wc_read_completion_ts(stamped));
        ibv_end_poll(stamped);
        const double drifted = std::abs(static_cast<double>(static_cast<int64_t>(later - world.now())));
        if (second > 0)
            worst = std::max(worst, drifted);
        else
            BOOST_TEST(drifted > 10'000); // the nominal rate doesn't know it yet
        world.run_until(world.now() + 500'000'000);
    }
    BOOST_TEST(worst < 200);
}

BOOST_AUTO_TEST_CASE(no_clock_no_fit) {
    const softhca::FabricBlock block = crossbar("has_timestamps: false");
    World world(block.image());
    WorldServices services(world);
    const DeviceSet set = open_devices(world, 0);
    ClockFit fit;
    BOOST_TEST(!fit.calibrate(set.devices()[0], services));
}
