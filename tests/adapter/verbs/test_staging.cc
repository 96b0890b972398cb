// Messages between two processes that are longer than a completion entry holds: they wait in the receiver's staging
// ring until they are polled, or go straight into its memory if there is no room. Who polls can't tell which.
#define BOOST_TEST_DYN_LINK
#define BOOST_TEST_MODULE staging
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include <boost/test/results_collector.hpp>

#include "children.h"
#include "fixture.h"

using namespace verbs_test;

namespace {

constexpr int kPatience = 30'000; // ms
constexpr uint32_t kSizes[] = {193, 8448, 1000, 8, 9000, 64, 4096, 200, 8447, 0, 300, 8449};
constexpr uint32_t kRoom = 16384; // of a receive

uint32_t size_of(uint32_t message) { return kSizes[message % std::size(kSizes)]; }

struct Board {
    std::atomic<int> there[2], step[2]; // [side]
    uint32_t qpn[2][2];
    uint16_t lid[2];
};
Board& board() {
    static Board* b =
        static_cast<Board*>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    return *b;
}

struct Side {
    Side(int which, ibv_qp_type type)
        : me(which), adapter(which, 5 << 20), queue(adapter, of(type)), other(adapter, of(type)) {
        board().qpn[me][0] = queue.qp->qp_num;
        board().qpn[me][1] = other.qp->qp_num;
        board().lid[me] = adapter.port.lid;
        board().there[me].store(1);
        wait_until(board().there[1 - me], 1);
        for (Queue* q : {&queue, &other}) {
            q->init();
            q->rtr(board().lid[1 - me], board().qpn[1 - me][q == &other], 100);
            q->rts(100);
        }
        meet();
    }
    static QpOptions of(ibv_qp_type type) {
        QpOptions o;
        o.type = type;
        o.mtu = IBV_MTU_4096;
        o.send_wr = o.recv_wr = 256;
        return o;
    }
    static void wait_until(const std::atomic<int>& value, int least) {
        for (int i = 0; i < 200'000 && value.load() < least; ++i) usleep(100);
        BOOST_REQUIRE_GE(value.load(), least);
    }
    // Both sides are here.
    void meet() {
        const int now = board().step[me].fetch_add(1) + 1;
        wait_until(board().step[1 - me], now);
    }
    // Sends messages [from, to), not more than 16 that have not completed.
    void send(Queue& q, uint32_t from, uint32_t to, const std::function<void(ibv_send_wr&)>& address = {}) {
        for (uint32_t m = from; m < to; ++m) {
            fill(adapter.memory, m % 16 * kRoom, size_of(m), m);
            BOOST_REQUIRE_EQUAL(q.post(IBV_WR_SEND, {adapter.sge(m % 16 * kRoom, size_of(m))}, address), 0);
            adapter.wait(); // so its memory is free again; the receiver need not have polled
        }
    }
    void expect(uint32_t m, uint32_t head = 0) {
        const ibv_wc wc = adapter.wait();
        BOOST_REQUIRE_EQUAL(wc.wr_id, m);
        BOOST_REQUIRE_EQUAL(wc.byte_len, size_of(m) + head);
        std::vector<char> wanted(size_of(m));
        fill(wanted, 0, wanted.size(), m);
        const char* got = adapter.memory.data() + m % 256 * kRoom + head;
        BOOST_REQUIRE_MESSAGE(std::equal(wanted.begin(), wanted.end(), got), "message " << m);
        BOOST_REQUIRE_EQUAL(got[wanted.size()], '\x55');
    }
    void receive(Queue& q, uint32_t m) {
        std::memset(adapter.memory.data() + m % 256 * kRoom, 0x55, kRoom);
        q.recv(m % 256 * kRoom, kRoom, m);
    }
    int me;
    Adapter adapter;
    Queue queue, other;
};

void both(const std::function<void(Side&)>& sender, const std::function<void(Side&)>& receiver,
          ibv_qp_type type = IBV_QPT_RC) {
    std::memset(static_cast<void*>(&board()), 0, sizeof(Board));
    pid_t pids[2];
    for (int side : {0, 1})
        pids[side] = start(side, [&] {
            try {
                Side s(side, type);
                (side ? receiver : sender)(s);
                s.meet();
            } catch (...) { return 2; }
            const auto& id = boost::unit_test::framework::current_test_case().p_id;
            return boost::unit_test::results_collector.results(id).p_assertions_failed > 0 ? 1 : 0;
        });
    for (const pid_t pid : pids) BOOST_CHECK(ended_well(status_of(pid, kPatience)));
}

} // namespace

// 200 messages are four times what the ring holds.
BOOST_AUTO_TEST_CASE(more_than_the_ring_holds_before_anybody_polls) {
    both(
        [](Side& s) {
            for (int round = 0; round < 5; ++round) {
                s.meet();
                s.send(s.queue, 0, 200);
                s.meet();
            }
        },
        [](Side& s) {
            for (int round = 0; round < 5; ++round) {
                for (uint32_t m = 0; m < 200; ++m) s.receive(s.queue, m);
                s.meet();
                s.meet();
                for (uint32_t m = 0; m < 200; ++m) s.expect(m);
            }
        });
}

BOOST_AUTO_TEST_CASE(polled_while_they_come) {
    constexpr uint32_t kMessages = 20'000;
    both([](Side& s) { s.send(s.queue, 0, kMessages); },
         [](Side& s) {
             for (uint32_t m = 0; m < 100; ++m) s.receive(s.queue, m);
             for (uint32_t m = 0; m < kMessages; ++m) {
                 s.expect(m);
                 if (m + 100 < kMessages) s.receive(s.queue, m + 100);
             }
         });
}

// What nobody polls any more gives its room back; a queue that is resized keeps what waits.
BOOST_AUTO_TEST_CASE(destroyed_queue_pairs_and_resized_queues) {
    both(
        [](Side& s) {
            s.meet();
            s.send(s.other, 0, 60); // more than the ring holds
            s.meet();
            s.meet();
            s.send(s.queue, 0, 100);
            s.meet();
        },
        [](Side& s) {
            for (uint32_t m = 0; m < 60; ++m) s.receive(s.other, m);
            s.meet();
            s.meet();
            BOOST_REQUIRE_EQUAL(ibv_destroy_qp(s.other.qp), 0);
            s.other.qp = nullptr;
            for (uint32_t m = 0; m < 100; ++m) s.receive(s.queue, m);
            s.meet();
            s.meet();
            for (uint32_t m = 0; m < 10; ++m) s.expect(m);
            BOOST_REQUIRE_EQUAL(ibv_resize_cq(s.adapter.cq, 300), 0);
            for (uint32_t m = 10; m < 100; ++m) s.expect(m);
        });
}

BOOST_AUTO_TEST_CASE(datagrams) {
    constexpr uint32_t kHead = 40; // the global route header's room
    both(
        [](Side& s) {
            ibv_ah_attr av{};
            av.dlid = board().lid[1];
            av.port_num = 1;
            ibv_ah* ah = ibv_create_ah(s.adapter.pd, &av);
            BOOST_REQUIRE(ah);
            s.meet();
            for (uint32_t m = 0; m < 120; ++m)
                if (size_of(m) <= 4096)
                    s.send(s.queue, m, m + 1, [&](ibv_send_wr& w) { w.wr.ud = {ah, board().qpn[1][0], 0x1111}; });
            s.meet();
            ibv_destroy_ah(ah);
        },
        [](Side& s) {
            for (uint32_t m = 0; m < 120; ++m)
                if (size_of(m) <= 4096) s.receive(s.queue, m);
            s.meet();
            s.meet();
            for (uint32_t m = 0; m < 120; ++m)
                if (size_of(m) <= 4096) s.expect(m, kHead);
        },
        IBV_QPT_UD);
}

// The region goes before the message comes: nothing is written, and the sender hears of it.
BOOST_AUTO_TEST_CASE(a_receive_whose_region_is_gone) {
    both(
        [](Side& s) {
            s.meet();
            BOOST_REQUIRE_EQUAL(s.queue.post(IBV_WR_SEND, {s.adapter.sge(0, 1000)}), 0);
            s.adapter.wait(IBV_WC_REM_OP_ERR);
            s.meet();
        },
        [](Side& s) {
            std::vector<char> gone(4096, 'x');
            ibv_mr* mr = ibv_reg_mr(s.adapter.pd, gone.data(), gone.size(), IBV_ACCESS_LOCAL_WRITE);
            BOOST_REQUIRE(mr);
            ibv_sge sge{reinterpret_cast<uint64_t>(gone.data()), 4096, mr->lkey};
            ibv_recv_wr wr{6, nullptr, &sge, 1}, *bad;
            BOOST_REQUIRE_EQUAL(ibv_post_recv(s.queue.qp, &wr, &bad), 0);
            BOOST_REQUIRE_EQUAL(ibv_dereg_mr(mr), 0);
            s.meet();
            s.meet();
            BOOST_CHECK_EQUAL(s.adapter.wait(IBV_WC_LOC_PROT_ERR).wr_id, 6u);
            BOOST_CHECK(std::all_of(gone.begin(), gone.end(), [](char c) { return c == 'x'; }));
        });
}

// It goes while the message waits to be polled: the sender has been told that all is well, and an adapter would have
// written. Whoever has the memory now keeps what is his; what another region has to take is there.
BOOST_AUTO_TEST_CASE(a_region_that_goes_while_its_message_waits) {
    for (const uint32_t length : {100u, 1000u})
        both(
            [&](Side& s) {
                s.meet();
                fill(s.adapter.memory, 0, length, 3);
                BOOST_REQUIRE_EQUAL(s.queue.post(IBV_WR_SEND, {s.adapter.sge(0, length)}), 0);
                s.adapter.wait();
                s.meet();
            },
            [&](Side& s) {
                std::vector<char> gone(40, 'x'), wanted(length);
                std::fill_n(s.adapter.memory.begin(), 4096, 'y');
                ibv_mr* mr = ibv_reg_mr(s.adapter.pd, gone.data(), gone.size(), IBV_ACCESS_LOCAL_WRITE);
                BOOST_REQUIRE(mr);
                ibv_sge sge[]{{reinterpret_cast<uint64_t>(gone.data()), 40, mr->lkey}, s.adapter.sge(0, 4096)};
                ibv_recv_wr wr{6, nullptr, sge, 2}, *bad;
                BOOST_REQUIRE_EQUAL(ibv_post_recv(s.queue.qp, &wr, &bad), 0);
                s.meet();
                s.meet();
                BOOST_REQUIRE_EQUAL(ibv_dereg_mr(mr), 0);
                BOOST_CHECK_EQUAL(s.adapter.wait().byte_len, length);
                BOOST_CHECK(std::all_of(gone.begin(), gone.end(), [](char c) { return c == 'x'; }));
                fill(wanted, 0, length, 3);
                BOOST_CHECK(std::memcmp(s.adapter.memory.data(), wanted.data() + 40, length - 40) == 0);
                BOOST_CHECK_EQUAL(s.adapter.memory[length - 40], 'y');
            });
}

// The pieces of a receive that are written at the poll.
BOOST_AUTO_TEST_CASE(receives_of_several_pieces) {
    both(
        [](Side& s) {
            s.meet();
            fill(s.adapter.memory, 0, 8000, 4);
            BOOST_REQUIRE_EQUAL(s.queue.post(IBV_WR_SEND, {s.adapter.sge(0, 3000), s.adapter.sge(3000, 5000)}), 0);
            s.adapter.wait();
            s.meet();
        },
        [](Side& s) {
            std::fill_n(s.adapter.memory.begin(), 40'000, 'y');
            ibv_sge sge[]{s.adapter.sge(0, 100), s.adapter.sge(1000, 7000), s.adapter.sge(20'000, 2000)};
            ibv_recv_wr wr{7, nullptr, sge, 3}, *bad;
            BOOST_REQUIRE_EQUAL(ibv_post_recv(s.queue.qp, &wr, &bad), 0);
            s.meet();
            s.meet();
            BOOST_CHECK_EQUAL(s.adapter.wait().byte_len, 8000u);
            std::vector<char> wanted(8000);
            fill(wanted, 0, 8000, 4);
            const char* got = s.adapter.memory.data();
            BOOST_CHECK(std::memcmp(got, wanted.data(), 100) == 0);
            BOOST_CHECK(std::memcmp(got + 1000, wanted.data() + 100, 7000) == 0);
            BOOST_CHECK(std::memcmp(got + 20'000, wanted.data() + 7100, 900) == 0);
            for (const int at : {100, 999, 8000, 19'999, 20'900}) BOOST_CHECK_EQUAL(got[at], 'y');
        });
}
