// The extended interfaces: ibv_wr_*, ibv_cq_ex with time stamps, address handles from completions; and what
// ibv_post_send refuses.
#define BOOST_TEST_DYN_LINK
#define BOOST_TEST_MODULE wr_api
#include <ctime>

#include "fixture.h"

using namespace verbs_test;

namespace {

constexpr uint64_t kAllOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
                             IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                             IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

ibv_qp* create_ex(Adapter& a, uint64_t ops, ibv_qp_type type = IBV_QPT_RC) {
    ibv_qp_init_attr_ex e{};
    e.send_cq = e.recv_cq = a.cq;
    e.qp_type = type;
    e.cap = {8, 8, 4, 4, 64};
    e.pd = a.pd;
    e.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    e.send_ops_flags = ops;
    return ibv_create_qp_ex(a.context, &e);
}

// A connected pair whose first end has the extended interface.
struct ExPair {
    Adapter left{0}, right{1};
    Queue a{left}, b{right};
    ibv_qp_ex* ex;
    explicit ExPair(uint64_t ops = kAllOps) {
        BOOST_REQUIRE_EQUAL(ibv_destroy_qp(a.qp), 0);
        a.qp = create_ex(left, ops);
        BOOST_REQUIRE(a.qp);
        ex = ibv_qp_to_qp_ex(a.qp);
        BOOST_REQUIRE(ex);
        connect(a, b);
        ex->wr_flags = IBV_SEND_SIGNALED;
    }
    uint64_t remote(size_t offset) { return reinterpret_cast<uint64_t>(right.memory.data()) + offset; }
    uint64_t local(size_t offset) { return reinterpret_cast<uint64_t>(left.memory.data()) + offset; }
};

} // namespace

BOOST_AUTO_TEST_CASE(creation) {
    Adapter a(0);
    errno = 0;
    BOOST_CHECK(!create_ex(a, IBV_QP_EX_WITH_BIND_MW) && errno == EOPNOTSUPP);
    BOOST_CHECK(!create_ex(a, IBV_QP_EX_WITH_RDMA_READ, IBV_QPT_UC) && errno == EOPNOTSUPP);
    BOOST_CHECK(!create_ex(a, IBV_QP_EX_WITH_RDMA_WRITE, IBV_QPT_UD) && errno == EOPNOTSUPP);
    Queue plain(a);
    BOOST_CHECK(!ibv_qp_to_qp_ex(plain.qp));
}

BOOST_AUTO_TEST_CASE(a_batch) {
    ExPair p;
    p.right.at<uint64_t>(8192) = 5;
    char text[8] = "inline!";
    ibv_wr_start(p.ex);
    p.ex->wr_id = 1;
    ibv_wr_rdma_write(p.ex, p.right.mr->rkey, p.remote(4096));
    ibv_wr_set_inline_data(p.ex, text, sizeof text);
    text[0] = 'X'; // copied already
    p.ex->wr_id = 2;
    ibv_wr_atomic_fetch_add(p.ex, p.right.mr->rkey, p.remote(8192), 3);
    ibv_wr_set_sge(p.ex, p.left.mr->lkey, p.local(512), 8);
    p.ex->wr_id = 3;
    ibv_wr_rdma_read(p.ex, p.right.mr->rkey, p.remote(4096));
    const ibv_sge pieces[] = {p.left.sge(600, 4), p.left.sge(700, 4)};
    ibv_wr_set_sge_list(p.ex, 2, pieces);
    p.ex->wr_id = 4;
    ibv_wr_atomic_cmp_swp(p.ex, p.right.mr->rkey, p.remote(8192), 8, 99);
    ibv_wr_set_sge(p.ex, p.left.mr->lkey, p.local(520), 8);
    BOOST_REQUIRE_EQUAL(ibv_wr_complete(p.ex), 0);
    for (uint64_t id = 1; id <= 4; ++id) BOOST_CHECK_EQUAL(p.left.wait().wr_id, id);
    BOOST_CHECK(std::strcmp(p.right.memory.data() + 4096, "inline!") == 0);
    BOOST_CHECK_EQUAL(p.left.at<uint64_t>(512), 5u);
    BOOST_CHECK_EQUAL(p.left.at<uint64_t>(520), 8u);
    BOOST_CHECK_EQUAL(p.right.at<uint64_t>(8192), 99u);
    BOOST_CHECK(!std::memcmp(p.left.memory.data() + 600, "inli", 4) &&
                !std::memcmp(p.left.memory.data() + 700, "ne!", 4));

    p.b.recv(0, 100, 7);
    const ibv_data_buf list[] = {{const_cast<char*>("ab"), 2}, {const_cast<char*>("cd"), 2}};
    ibv_wr_start(p.ex);
    ibv_wr_send_imm(p.ex, 0x1234);
    ibv_wr_set_inline_data_list(p.ex, 2, list);
    BOOST_REQUIRE_EQUAL(ibv_wr_complete(p.ex), 0);
    const ibv_wc r = p.right.wait();
    BOOST_CHECK(r.wr_id == 7 && r.byte_len == 4 && r.imm_data == 0x1234 && (r.wc_flags & IBV_WC_WITH_IMM));
    BOOST_CHECK(!std::memcmp(p.right.memory.data(), "abcd", 4));
    p.left.wait();
}

BOOST_AUTO_TEST_CASE(all_or_nothing) {
    ExPair p(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND);
    p.right.memory[0] = 'o';
    char data[100] = {};
    const auto write = [&](uint32_t bytes) {
        ibv_wr_rdma_write(p.ex, p.right.mr->rkey, p.remote(0));
        ibv_wr_set_inline_data(p.ex, data, bytes);
    };
    ibv_wr_start(p.ex);
    write(4);
    write(100); // more than max_inline_data
    write(4);
    BOOST_CHECK_EQUAL(ibv_wr_complete(p.ex), EINVAL);
    ibv_wr_start(p.ex);
    for (int i = 0; i < 9; ++i) write(4); // the send queue holds 8
    BOOST_CHECK_EQUAL(ibv_wr_complete(p.ex), ENOMEM);
    ibv_wr_start(p.ex);
    write(4);
    ibv_wr_abort(p.ex);
    BOOST_CHECK(p.left.empty());
    BOOST_CHECK_EQUAL(p.right.memory[0], 'o');
    ibv_wr_start(p.ex);
    write(4);
    BOOST_CHECK_EQUAL(ibv_wr_complete(p.ex), 0);
    p.left.wait();
    BOOST_CHECK_EQUAL(p.right.memory[0], 0);
}

BOOST_AUTO_TEST_CASE(what_post_send_refuses) {
    Pair p;
    const auto refused = [&](ibv_wr_opcode op, std::vector<ibv_sge> sges, unsigned flags = 0) {
        return p.a.post(op, std::move(sges), {}, flags) == EINVAL;
    };
    const std::vector<ibv_sge> one = {p.left.sge(0, 8)};
    BOOST_CHECK(refused(IBV_WR_SEND, std::vector<ibv_sge>(5, p.left.sge(0, 8))));
    BOOST_CHECK(refused(IBV_WR_LOCAL_INV, one));
    BOOST_CHECK(refused(IBV_WR_SEND_WITH_INV, one));
    BOOST_CHECK(refused(static_cast<ibv_wr_opcode>(77), one));
    BOOST_CHECK(refused(IBV_WR_SEND, {p.left.sge(0, 4096)}, IBV_SEND_INLINE));
    BOOST_CHECK(refused(IBV_WR_RDMA_READ, one, IBV_SEND_INLINE));
    // The first of a list that is refused is reported; those before it are posted.
    ibv_sge s = p.left.sge(0, 8);
    ibv_send_wr second{}, first{}, *bad = nullptr;
    for (ibv_send_wr* w : {&first, &second}) {
        w->sg_list = &s;
        w->num_sge = 1;
        w->send_flags = IBV_SEND_SIGNALED;
        w->opcode = IBV_WR_RDMA_WRITE;
        w->wr.rdma = {reinterpret_cast<uint64_t>(p.right.memory.data()), p.right.mr->rkey};
    }
    first.next = &second;
    second.num_sge = 9;
    BOOST_CHECK_EQUAL(ibv_post_send(p.a.qp, &first, &bad), EINVAL);
    BOOST_CHECK(bad == &second);
    p.left.wait();
    BOOST_CHECK(p.left.empty());
}

BOOST_AUTO_TEST_CASE(datagram_with_time_stamps) {
    Adapter a(0);
    ibv_cq_init_attr_ex init{};
    init.cqe = 16;
    init.wc_flags = IBV_WC_STANDARD_FLAGS;
    init.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    ibv_cq_ex* ex = ibv_create_cq_ex(a.context, &init);
    BOOST_REQUIRE(ex);
    ibv_cq* plain = std::exchange(a.cq, ibv_cq_ex_to_cq(ex));
    {
        QpOptions o;
        o.type = IBV_QPT_UD;
        Queue q(a, o);
        q.init();
        q.rtr(0, 0, 0);
        q.rts(0);
        ibv_ah_attr to{};
        to.port_num = 1;
        to.dlid = a.port.lid;
        to.is_global = 1;
        BOOST_REQUIRE_EQUAL(ibv_query_gid(a.context, 1, 0, &to.grh.dgid), 0);
        ibv_ah* ah = ibv_create_ah(a.pd, &to);
        BOOST_REQUIRE(ah);
        const auto ticks = [&] {
            ibv_values_ex v{};
            v.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
            BOOST_REQUIRE_EQUAL(ibv_query_rt_values_ex(a.context, &v), 0);
            return static_cast<uint64_t>(v.raw_clock.tv_nsec);
        };
        const uint64_t before = ticks();
        q.recv(4096, 200, 8);
        fill(a.memory, 0, 10, 1);
        const auto address = [&](ibv_send_wr& w) {
            w.imm_data = 0x1234;
            w.wr.ud = {ah, q.qp->qp_num, 0x1111};
        };
        BOOST_REQUIRE_EQUAL(q.post(IBV_WR_SEND_WITH_IMM, {a.sge(0, 10)}, address), 0);
        BOOST_CHECK_EQUAL(q.post(IBV_WR_RDMA_WRITE, {a.sge(0, 10)}, address), EINVAL);
        BOOST_CHECK_EQUAL(q.post(IBV_WR_SEND, {a.sge(0, 10)}), EINVAL); // no address handle

        ibv_wc received{};
        ibv_poll_cq_attr none{};
        const auto t = Clock::now();
        for (int got = 0; got < 2;) {
            if (ibv_start_poll(ex, &none) == ENOENT) {
                BOOST_REQUIRE_LT(seconds_since(t), 20.0);
                continue;
            }
            do {
                ++got;
                BOOST_CHECK_EQUAL(ex->status, IBV_WC_SUCCESS);
                const uint64_t stamp = ibv_wc_read_completion_ts(ex);
                BOOST_CHECK(before <= stamp && stamp <= ticks());
                timespec now;
                clock_gettime(CLOCK_REALTIME, &now);
                const double wall = static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
                BOOST_CHECK_SMALL(wall - static_cast<double>(ibv_wc_read_completion_wallclock_ns(ex)), 20e9);
                if (ibv_wc_read_opcode(ex) != IBV_WC_RECV) continue;
                received.wc_flags = ibv_wc_read_wc_flags(ex);
                received.slid = static_cast<uint16_t>(ibv_wc_read_slid(ex));
                BOOST_CHECK_EQUAL(ex->wr_id, 8u);
                BOOST_CHECK_EQUAL(ibv_wc_read_byte_len(ex), 50u);
                BOOST_CHECK_EQUAL(ibv_wc_read_imm_data(ex), 0x1234u);
                BOOST_CHECK_EQUAL(ibv_wc_read_src_qp(ex), q.qp->qp_num);
            } while (ibv_next_poll(ex) == 0);
            ibv_end_poll(ex);
        }
        BOOST_CHECK_EQUAL(received.wc_flags, unsigned{IBV_WC_GRH | IBV_WC_WITH_IMM});
        BOOST_CHECK_EQUAL(received.slid, a.port.lid);
        BOOST_CHECK(!std::memcmp(a.memory.data() + 4096 + 40, a.memory.data(), 10));
        ibv_ah* back = ibv_create_ah_from_wc(a.pd, &received, &a.at<ibv_grh>(4096), 1);
        BOOST_CHECK(back);
        if (back) BOOST_CHECK_EQUAL(ibv_destroy_ah(back), 0);
        BOOST_CHECK_EQUAL(ibv_destroy_ah(ah), 0);
    }
    std::swap(a.cq, plain);
    BOOST_CHECK_EQUAL(ibv_destroy_cq(plain), 0);
}
