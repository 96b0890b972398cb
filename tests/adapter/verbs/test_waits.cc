// Requests that wait for data, and other raw requests of the mlx5 interface, as a program has them.
#define BOOST_TEST_DYN_LINK
#define BOOST_TEST_MODULE waits
#include <boost/test/data/test_case.hpp>

#include "../raw_requests.h"
#include "children.h"
#include "fixture.h"

using namespace verbs_test;
namespace data = boost::unit_test::data;

namespace {

// A queue pair that takes raw requests, connected to one without.
struct RawPair {
    Adapter left{0}, right{1};
    Queue a{left}, b{right};
    explicit RawPair(bool sig_all = false) {
        BOOST_REQUIRE_EQUAL(ibv_destroy_qp(a.qp), 0);
        a.qp = raw_test::create(left.pd, left.cq, 16, sig_all);
        BOOST_REQUIRE(a.qp);
        connect(a, b);
    }
    int wait(size_t word, uint64_t value, uint64_t id, uint8_t flags = raw_test::kSignal | raw_test::kFence,
             uint32_t how = raw_test::equal) {
        return raw_test::post(
            a.qp, raw_test::wait(a.qp, &left.at<char>(word), left.mr->lkey, value, UINT64_MAX, flags, how), id);
    }
    raw_test::Entry write(size_t from, size_t to, uint32_t bytes, uint8_t flags) {
        return raw_test::write(a.qp, &left.at<char>(from), bytes, left.mr->lkey, &right.at<char>(to), right.mr->rkey,
                               flags);
    }
    void expect(uint64_t id, ibv_wc_status status = IBV_WC_SUCCESS) {
        const ibv_wc wc = left.wait(status);
        BOOST_CHECK_EQUAL(wc.wr_id, id);
        if (status == IBV_WC_SUCCESS) BOOST_CHECK_EQUAL(wc.opcode, IBV_WC_DRIVER2);
    }
};

// Without a call of verbs: what the adapter does by itself.
template <class Condition> bool comes(Condition condition, double limit = 10) {
    for (const auto t = Clock::now(); !condition(); std::this_thread::sleep_for(std::chrono::microseconds(200)))
        if (seconds_since(t) > limit) return false;
    return true;
}

uint64_t look(const uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
void store(uint64_t& word, uint64_t value) { __atomic_store_n(&word, value, __ATOMIC_RELEASE); }

} // namespace

// The sequence that UCC's own test of its mlx5 transport posts (test/gtest/tl/mlx5): to itself, a wait for a value as
// the processor stores it, a fenced write behind it by ibv_post_send, then the program stores data and word.
BOOST_DATA_TEST_CASE(write_behind_a_word,
                     data::make({1u, 1024u, 1025u, 0xF0F30F00u, 0xFFFFFFFFu}) * data::make({0u, 0xF0F30F01u}), value,
                     first) {
    Adapter adapter(0);
    Queue q(adapter);
    BOOST_REQUIRE_EQUAL(ibv_destroy_qp(q.qp), 0);
    q.qp = raw_test::create(adapter.pd, adapter.cq, 4);
    BOOST_REQUIRE(q.qp);
    q.init();
    q.rtr(adapter.port.lid, q.qp->qp_num, 5);
    q.rts(5);
    auto &word = adapter.at<uint64_t>(0), &from = adapter.at<uint64_t>(8), &to = adapter.at<uint64_t>(16);
    store(word, first);
    BOOST_REQUIRE_EQUAL(raw_test::post(q.qp, raw_test::wait(q.qp, &word, adapter.mr->lkey, value, 0xFFFFFFFF), 1), 0);
    BOOST_REQUIRE_EQUAL(q.rdma(IBV_WR_RDMA_WRITE, q, 8, 16, 8, IBV_SEND_SIGNALED | IBV_SEND_FENCE), 0);
    BOOST_CHECK(adapter.empty());
    from = 0xdeadbeef;
    store(word, value);
    ibv_wc wc = adapter.wait();
    BOOST_CHECK_EQUAL(wc.wr_id, 1u);
    BOOST_CHECK_EQUAL(wc.opcode, IBV_WC_DRIVER2);
    wc = adapter.wait();
    BOOST_CHECK_EQUAL(wc.wr_id, 0u);
    BOOST_CHECK_EQUAL(wc.opcode, IBV_WC_RDMA_WRITE);
    BOOST_CHECK_EQUAL(to, 0xdeadbeef);
}

// Only the queue pair that waits stands. What it has sent before the wait arrives.
BOOST_AUTO_TEST_CASE(others_go_on) {
    RawPair p;
    Queue c(p.left), d(p.right);
    connect(c, d);
    BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_WRITE, p.b, 100, 1000, 8), 0);
    BOOST_REQUIRE_EQUAL(p.wait(0, 7, 1), 0);
    BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_WRITE, p.b, 100, 2000, 8), 0);
    BOOST_REQUIRE_EQUAL(c.rdma(IBV_WR_RDMA_WRITE, d, 100, 3000, 8), 0);
    uint32_t seen = 0;
    for (int i = 0; i < 2; ++i) seen |= p.left.wait().qp_num == p.a.qp->qp_num ? 1 : 2;
    BOOST_CHECK_EQUAL(seen, 3u);
    BOOST_CHECK(p.left.empty());
    store(p.left.at<uint64_t>(0), 7);
    p.expect(1);
    p.left.wait();
    // It is as quick as before again, and takes another wait, for what holds already.
    BOOST_REQUIRE_EQUAL(p.wait(0, 7, 2), 0);
    p.expect(2);
    BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_WRITE, p.b, 100, 1000, 8), 0);
    p.left.wait();
}

// An adapter writes the word, nobody looks: word and data go on by themselves, around through both adapters.
BOOST_AUTO_TEST_CASE(written_from_outside_while_nobody_looks) {
    RawPair p;
    fill(p.left.memory, 4096, 9000, 3);
    BOOST_REQUIRE_EQUAL(p.wait(64, 5, 1, 0), 0);
    BOOST_REQUIRE_EQUAL(raw_test::post(p.a.qp, p.write(4096, 4096, 9000, raw_test::kSmallFence), 2), 0);
    store(p.left.at<uint64_t>(128), 1);
    BOOST_REQUIRE_EQUAL(raw_test::post(p.a.qp, p.write(128, 64, 8, raw_test::kSignal | raw_test::kSmallFence), 3), 0);
    BOOST_CHECK(!comes([&] { return look(p.right.at<uint64_t>(64)) != 0; }, 0.02));
    store(p.right.at<uint64_t>(0), 5);
    BOOST_REQUIRE_EQUAL(p.b.rdma(IBV_WR_RDMA_WRITE, p.a, 0, 64, 8, 0), 0);
    BOOST_CHECK(comes([&] { return look(p.right.at<uint64_t>(64)) == 1; }));
    BOOST_CHECK(std::memcmp(p.left.memory.data() + 4096, p.right.memory.data() + 4096, 9000) == 0);
    p.expect(3); // neither the wait nor the first write asked for a completion
    BOOST_CHECK(p.left.empty());
}

BOOST_AUTO_TEST_CASE(an_atomic_is_seen_and_so_is_a_store_of_the_program) {
    RawPair p;
    for (uint64_t round = 1; round <= 2; ++round) {
        BOOST_REQUIRE_EQUAL(p.wait(64, round, round, 0), 0);
        store(p.left.at<uint64_t>(128), round);
        BOOST_REQUIRE_EQUAL(raw_test::post(p.a.qp, p.write(128, 64, 8, 0), 0), 0);
        if (round == 1)
            BOOST_REQUIRE_EQUAL(p.b.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, p.a, 0, 64, 1), 0);
        else
            store(p.left.at<uint64_t>(64), round);
        BOOST_CHECK(comes([&] { return look(p.right.at<uint64_t>(64)) == round; }));
    }
    p.right.wait();
}

// By a process that writes into another one's memory, which does nothing.
BOOST_AUTO_TEST_CASE(written_by_another_process) {
    int there[2], back[2];
    BOOST_REQUIRE(!pipe(there) && !pipe(back));
    struct Address {
        uint32_t qpn, rkey;
        uint64_t memory;
        uint16_t lid;
    };
    const auto address = [](const Adapter& a, const Queue& q) {
        return Address{q.qp->qp_num, a.mr->rkey, reinterpret_cast<uint64_t>(a.memory.data()), a.port.lid};
    };
    const pid_t child = start(1, [&] {
        Adapter mine(0);
        Queue q(mine);
        Address a = address(mine, q);
        if (write(back[1], &a, sizeof a) != sizeof a || read(there[0], &a, sizeof a) != sizeof a) return 1;
        q.init();
        q.rtr(a.lid, a.qpn, 5);
        q.rts(5);
        char go = 0;
        if (write(back[1], &go, 1) != 1 || read(there[0], &go, 1) != 1) return 2;
        mine.at<uint64_t>(0) = 9;
        ibv_sge s = mine.sge(0, 8);
        ibv_send_wr wr{}, *bad;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.sg_list = &s;
        wr.num_sge = 1;
        wr.wr.rdma = {a.memory + 64, a.rkey};
        if (ibv_post_send(q.qp, &wr, &bad)) return 3;
        return comes([&] { return look(mine.at<uint64_t>(64)) == 10; }) ? 0 : 4;
    });
    Adapter mine(0);
    Queue q(mine);
    BOOST_REQUIRE_EQUAL(ibv_destroy_qp(q.qp), 0);
    q.qp = raw_test::create(mine.pd, mine.cq, 4);
    BOOST_REQUIRE(q.qp);
    Address a{};
    BOOST_REQUIRE_EQUAL(read(back[0], &a, sizeof a), ssize_t{sizeof a});
    q.init();
    q.rtr(a.lid, a.qpn, 5);
    q.rts(5);
    const Address own = address(mine, q);
    BOOST_REQUIRE_EQUAL(write(there[1], &own, sizeof own), ssize_t{sizeof own});
    char go = 0;
    BOOST_REQUIRE_EQUAL(read(back[0], &go, 1), 1);
    mine.at<uint64_t>(128) = 10;
    BOOST_REQUIRE_EQUAL(raw_test::post(q.qp, raw_test::wait(q.qp, &mine.at<char>(64), mine.mr->lkey, 9), 1), 0);
    const void* to = reinterpret_cast<const void*>(a.memory + 64);
    BOOST_REQUIRE_EQUAL(
        raw_test::post(q.qp, raw_test::write(q.qp, &mine.at<char>(128), 8, mine.mr->lkey, to, a.rkey), 2), 0);
    BOOST_REQUIRE_EQUAL(write(there[1], &go, 1), 1);
    BOOST_CHECK(ended_well(status_of(child, 20000)));
    for (const int fd : {there[0], there[1], back[0], back[1]}) close(fd);
}

BOOST_AUTO_TEST_CASE(raw_sends_and_writes) {
    RawPair p(true); // all requests are signalled, but for raw ones: they say so themselves
    fill(p.left.memory, 0, 6000, 1);
    p.b.recv(0, 8000, 7);
    raw_test::Entry send = raw_test::begin(p.a.qp, MLX5_OPCODE_SEND, 0, raw_test::kSignal);
    raw_test::data(send, &p.left.at<char>(0), 1000, p.left.mr->lkey);
    raw_test::data(send, &p.left.at<char>(1000), 5000, p.left.mr->lkey);
    BOOST_REQUIRE_EQUAL(raw_test::post(p.a.qp, send, 1), 0);
    p.expect(1);
    ibv_wc wc = p.right.wait();
    BOOST_CHECK_EQUAL(wc.byte_len, 6000u);
    BOOST_CHECK(std::memcmp(p.left.memory.data(), p.right.memory.data(), 6000) == 0);

    p.b.recv(0, 100, 8);
    raw_test::Entry with_imm = raw_test::begin(p.a.qp, MLX5_OPCODE_SEND_IMM, 0, raw_test::kSignal);
    with_imm.control().imm = htobe32(0x1234);
    struct {
        uint32_t bytes;
        char text[20];
    } inlined{htobe32(18u | MLX5_INLINE_SEG), "no segment needed"};
    with_imm.add(inlined);
    BOOST_REQUIRE_EQUAL(raw_test::post(p.a.qp, with_imm, 2), 0);
    p.expect(2);
    wc = p.right.wait();
    BOOST_CHECK_EQUAL(wc.byte_len, 18u);
    BOOST_CHECK_EQUAL(be32toh(wc.imm_data), 0x1234u);
    BOOST_CHECK_EQUAL(std::string(p.right.memory.data()), "no segment needed");

    BOOST_REQUIRE_EQUAL(raw_test::post(p.a.qp, p.write(0, 20000, 6000, 0), 3), 0); // no completion
    BOOST_REQUIRE_EQUAL(raw_test::post(p.a.qp, p.write(0, 30000, 100, raw_test::kSignal), 4), 0);
    p.expect(4);
    BOOST_CHECK(std::memcmp(p.left.memory.data(), p.right.memory.data() + 20000, 6000) == 0);
    BOOST_CHECK(p.left.empty());
}

// Ends that request, and with it the queue pair; the adapter goes on.
BOOST_AUTO_TEST_CASE(malformed_entries) {
    using Entry = raw_test::Entry;
    const std::vector<std::function<uint32_t(RawPair&, Entry&)>> ways = {
        [](RawPair&, Entry& e) { return e.control().opmod_idx_opcode = htobe32(0x25), 0; },         // UMR
        [](RawPair&, Entry& e) { return e.control().opmod_idx_opcode |= htobe32(1u << 24), 0; },    // a modifier
        [](RawPair&, Entry& e) { return e.control().qpn_ds ^= htobe32(1u << 8), 0; },               // another's
        [](RawPair&, Entry&) { return 1u; },                                                        // no address
        [](RawPair& p, Entry& e) { return e = raw_test::wait(p.a.qp, nullptr, 0, 1), 2; },          // half a wait
        [](RawPair& p, Entry& e) { return e = raw_test::wait(p.a.qp, nullptr, 0, 1), 4; },          // too long
        [](RawPair& p, Entry& e) { return e = raw_test::begin(p.a.qp, raw_test::kWait, 0, 0), 0; }, // on a queue
        [](RawPair& p, Entry& e) {
            return e = raw_test::wait(p.a.qp, &p.left.at<char>(0), p.left.mr->lkey, 0, 0, 0, 6), 0; // an operator
        },
        [](RawPair& p, Entry& e) {
            return e = raw_test::wait(p.a.qp, &p.left.at<char>(1), p.left.mr->lkey, 0), 0; // what to do if not
        },
        [](RawPair& p, Entry& e) { // more segments than the queue pair has been made for
            for (int i = 0; i < 2; ++i) raw_test::data(e, &p.left.at<char>(0), 8, p.left.mr->lkey);
            return 0;
        },
        [](RawPair& p, Entry& e) { // more inline data than the entry has
            e = raw_test::begin(p.a.qp, MLX5_OPCODE_SEND, 0, 0);
            e.add(mlx5_wqe_data_seg{htobe32(MLX5_INLINE_SEG | 13u), 0, 0});
            return 0;
        },
    };
    for (size_t i = 0; i < ways.size(); ++i) {
        BOOST_TEST_CONTEXT("way " << i) {
            RawPair p;
            Entry e = p.write(0, 0, 8, 0);
            const uint32_t segments = ways[i](p, e);
            BOOST_REQUIRE_EQUAL(raw_test::post(p.a.qp, e, 1, segments), 0);
            BOOST_REQUIRE_EQUAL(raw_test::post(p.a.qp, p.write(0, 0, 8, 0), 2), 0);
            p.expect(1, IBV_WC_LOC_QP_OP_ERR);
            p.expect(2, IBV_WC_WR_FLUSH_ERR);
            BOOST_CHECK_EQUAL(p.a.query().qp_state, IBV_QPS_ERR);
        }
    }
}

BOOST_AUTO_TEST_CASE(who_takes_no_raw_requests) {
    Adapter a(0);
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_UD;
    init.send_cq = init.recv_cq = a.cq;
    init.pd = a.pd;
    init.cap = {1, 1, 1, 1, 0};
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    mlx5dv_qp_init_attr dv{};
    dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    dv.send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE;
    errno = 0;
    BOOST_CHECK(!mlx5dv_create_qp(a.context, &init, &dv) && errno == EOPNOTSUPP);
    init.qp_type = IBV_QPT_RC;
    dv.send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST;
    errno = 0;
    BOOST_CHECK(!mlx5dv_create_qp(a.context, &init, &dv) && errno == EOPNOTSUPP);
}

BOOST_AUTO_TEST_CASE(a_queue_pair_that_waits_ends) {
    {
        RawPair p; // to ERR
        BOOST_REQUIRE_EQUAL(p.wait(0, 7, 1), 0);
        BOOST_REQUIRE_EQUAL(raw_test::post(p.a.qp, p.write(0, 0, 8, 0), 2), 0);
        p.a.to_error();
        p.expect(1, IBV_WC_WR_FLUSH_ERR);
        p.expect(2, IBV_WC_WR_FLUSH_ERR);
        BOOST_REQUIRE_EQUAL(p.wait(0, 7, 3), 0); // posted behind it
        p.expect(3, IBV_WC_WR_FLUSH_ERR);
        store(p.left.at<uint64_t>(0), 7);
        BOOST_CHECK(p.left.empty());
        BOOST_CHECK_EQUAL(look(p.right.at<uint64_t>(0)), 0u);
    }
    {
        RawPair p; // destroyed
        BOOST_REQUIRE_EQUAL(p.wait(0, 7, 1), 0);
        BOOST_REQUIRE_EQUAL(raw_test::post(p.a.qp, p.write(0, 0, 8, 0), 2), 0);
        BOOST_REQUIRE_EQUAL(ibv_destroy_qp(std::exchange(p.a.qp, nullptr)), 0);
        store(p.left.at<uint64_t>(0), 7);
        BOOST_CHECK(p.left.empty());
        BOOST_CHECK_EQUAL(look(p.right.at<uint64_t>(0)), 0u);
    }
    RawPair p; // reset, and used again
    BOOST_REQUIRE_EQUAL(p.wait(0, 7, 1), 0);
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RESET;
    BOOST_REQUIRE_EQUAL(ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE), 0);
    BOOST_REQUIRE_EQUAL(ibv_modify_qp(p.b.qp, &a, IBV_QP_STATE), 0);
    store(p.left.at<uint64_t>(0), 7);
    BOOST_CHECK(p.left.empty());
    connect(p.a, p.b);
    BOOST_REQUIRE_EQUAL(p.wait(0, 7, 2), 0);
    p.expect(2);
}

// A peer that fails the connection ends the wait, too.
BOOST_AUTO_TEST_CASE(a_request_before_it_fails) {
    RawPair p;
    BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_RDMA_WRITE, {p.left.sge(0, 8)},
                                 [&](ibv_send_wr& w) {
                                     w.wr.rdma = {p.left.port.lid, 12345};
                                 }),
                        0);
    BOOST_REQUIRE_EQUAL(p.wait(64, 7, 1), 0);
    p.left.wait(IBV_WC_REM_ACCESS_ERR);
    p.expect(1, IBV_WC_WR_FLUSH_ERR);
}

BOOST_AUTO_TEST_CASE(words_outside_of_registered_memory) {
    const auto fails = [](const std::function<void(RawPair&, char*, uint32_t)>& run) {
        RawPair p;
        run(p, p.left.memory.data(), p.left.mr->lkey);
        p.expect(1, IBV_WC_LOC_PROT_ERR);
        BOOST_CHECK_EQUAL(p.a.query().qp_state, IBV_QPS_ERR);
    };
    const auto wait = [](RawPair& p, const void* word, uint32_t lkey) {
        BOOST_REQUIRE_EQUAL(raw_test::post(p.a.qp, raw_test::wait(p.a.qp, word, lkey, 7), 1), 0);
    };
    fails([&](RawPair& p, char* memory, uint32_t lkey) { wait(p, memory + p.left.memory.size(), lkey); });
    fails([&](RawPair& p, char* memory, uint32_t lkey) { wait(p, memory - 8, lkey); });
    fails([&](RawPair& p, char* memory, uint32_t lkey) { wait(p, memory, lkey ^ 1); });
    fails([&](RawPair& p, char*, uint32_t) { wait(p, p.right.memory.data(), p.right.mr->lkey); });
    fails([&](RawPair& p, char* memory, uint32_t lkey) { // while it waits
        wait(p, memory, lkey);
        BOOST_CHECK(p.left.empty());
        BOOST_REQUIRE_EQUAL(ibv_dereg_mr(std::exchange(p.left.mr, nullptr)), 0);
    });
}

BOOST_AUTO_TEST_CASE(an_adapter_that_cannot_wait) {
    Restore restore{{"fault lacks wait off " + device_name(0)}};
    softhca("fault lacks wait on " + device_name(0));
    RawPair p;
    p.b.recv(0, 100);
    raw_test::Entry send = raw_test::begin(p.a.qp, MLX5_OPCODE_SEND, 0, raw_test::kSignal);
    BOOST_REQUIRE_EQUAL(raw_test::post(p.a.qp, raw_test::data(send, &p.left.at<char>(0), 8, p.left.mr->lkey), 1), 0);
    p.expect(1); // other raw requests are no trouble
    BOOST_REQUIRE_EQUAL(p.wait(0, 0, 2), 0);
    p.expect(2, IBV_WC_LOC_QP_OP_ERR);
}

// Data of what is behind a wait are read when it is posted, unless a fence forbids it.
BOOST_AUTO_TEST_CASE(data_that_are_read_early) {
    Restore restore{{"fault wait-prefetch off " + device_name(0)}};
    for (const bool nasty : {false, true}) {
        if (nasty) softhca("fault wait-prefetch on " + device_name(0));
        for (const uint8_t fence : {uint8_t{0}, raw_test::kFence, raw_test::kSmallFence}) {
            RawPair p;
            p.left.at<uint64_t>(64) = 1;
            BOOST_REQUIRE_EQUAL(p.wait(0, 7, 1), 0);
            BOOST_REQUIRE_EQUAL(raw_test::post(p.a.qp, p.write(64, 64, 8, fence), 2), 0);
            BOOST_REQUIRE_EQUAL(raw_test::post(p.a.qp, p.write(64, 128, 8, raw_test::kSignal), 3), 0);
            BOOST_CHECK(p.left.empty());
            p.left.at<uint64_t>(64) = 2;
            store(p.left.at<uint64_t>(0), 7);
            p.expect(1);
            p.expect(3);
            const uint64_t expected = nasty && !fence ? 1 : 2;
            BOOST_CHECK_EQUAL(p.right.at<uint64_t>(64), expected);
            BOOST_CHECK_EQUAL(p.right.at<uint64_t>(128), expected);
        }
    }
}

// "The value is smaller than the word": 0x0102 and 0x0201 are so in one byte order only.
BOOST_AUTO_TEST_CASE(order_of_numbers) {
    Restore restore{{"fault wait-endian off " + device_name(0)}};
    for (const bool nasty : {false, true}) {
        softhca(std::string("fault wait-endian ") + (nasty ? "on " : "off ") + device_name(0));
        for (const bool cyclic : {false, true}) {
            RawPair p;
            store(p.left.at<uint64_t>(0), 0x0201);
            const uint32_t how = cyclic ? raw_test::cyclic_smaller : raw_test::smaller;
            BOOST_REQUIRE_EQUAL(p.wait(0, 0x0102, 1, raw_test::kSignal, how), 0);
            BOOST_CHECK_EQUAL(p.left.empty(), nasty);
            if (nasty) p.a.to_error();
        }
        RawPair p;
        store(p.left.at<uint64_t>(0), 5);
        BOOST_REQUIRE_EQUAL(p.wait(0, 5, 1, raw_test::kSignal, raw_test::equal | raw_test::inverted), 0);
        BOOST_CHECK(p.left.empty());
        store(p.left.at<uint64_t>(0), 6);
        p.expect(1);
        BOOST_REQUIRE_EQUAL(p.wait(0, 77, 2, raw_test::kSignal, raw_test::always), 0);
        p.expect(2);
    }
}
