// A shared receive queue that grows while other processes send into it: every message comes once, in order, whole, and
// into the receive that its completion names. The parent never touches verbs itself.
#define BOOST_TEST_DYN_LINK
#define BOOST_TEST_MODULE srq
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "children.h"
#include "fixture.h"

using namespace verbs_test;

namespace {

constexpr uint32_t kSenders = 3, kQueues = 2; // queue pairs of each
constexpr uint32_t kPieces = 4, kPiece = 5000,
                   kMessage = kPieces * kPiece; // longest; scattered over its receive's memory
constexpr uint32_t kWindow = 8;                 // messages of a queue pair that are under way
constexpr uint32_t kFirst = 8, kStep = 12, kLast = 2000;

struct End {
    std::atomic<int> ready;
    uint32_t qpn;
    uint16_t lid;
};
struct Board {
    End sender[kSenders][kQueues], receiver[kSenders][kQueues];
    std::atomic<int> grown; // the receiver is through
};

Board* board() {
    static Board* b =
        static_cast<Board*>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    return b;
}

bool wait_ready(const End& e) {
    for (int i = 0; i < 200'000 && !e.ready.load(); ++i) usleep(100);
    return e.ready.load() != 0;
}

void publish(End& e, const Adapter& a, const Queue& q) {
    e.qpn = q.qp->qp_num;
    e.lid = a.port.lid;
    e.ready.store(1);
}

void join(Queue& q, const End& other) {
    q.init();
    q.rtr(other.lid, other.qpn, 0);
    q.rts(0);
}

// Message `n` of a queue pair: 1 to kMessage bytes that are found again from n and the queue pair alone.
uint32_t length_of(uint32_t n) { return n % 2 ? 16 + n % 100 : 16 + n * 37 % (kMessage - 16); }
char byte_of(uint32_t queue, uint32_t n, uint32_t i) { return static_cast<char>(queue * 11 + n * 7 + i); }

// Sends until the receiver says that it has seen enough; then says how many there were, by a message of its own.
int sender(uint32_t me) {
    Adapter a(0, size_t{kWindow} * kQueues * kMessage);
    QpOptions o;
    o.timeout = 16;
    std::unique_ptr<Queue> q[kQueues];
    for (uint32_t i = 0; i < kQueues; ++i) {
        q[i] = std::make_unique<Queue>(a, o);
        publish(board()->sender[me][i], a, *q[i]);
    }
    for (uint32_t i = 0; i < kQueues; ++i) {
        if (!wait_ready(board()->receiver[me][i])) return 2;
        join(*q[i], board()->receiver[me][i]);
    }
    uint32_t done[kQueues] = {};
    for (uint32_t n = 0;; ++n) {
        const bool last = board()->grown.load() != 0;
        for (uint32_t i = 0; i < kQueues; ++i) {
            const size_t at = size_t{n % kWindow * kQueues + i} * kMessage;
            const uint32_t length = last ? 4 : length_of(n);
            for (uint32_t k = 0; k < length; ++k) a.memory[at + k] = byte_of(me * kQueues + i, n, k);
            if (last) a.at<uint32_t>(at) = n;
            if (q[i]->post(IBV_WR_SEND, {a.sge(at, length)}, [&](ibv_send_wr& w) { w.wr_id = i; })) return 3;
        }
        // Of no queue pair are so many under way that a buffer would be written again.
        while (n + 1 - *std::min_element(done, done + kQueues) > (last ? 0 : kWindow - 1)) {
            ibv_wc wc{};
            const int got = ibv_poll_cq(a.cq, 1, &wc);
            if (got < 0 || (got && wc.status != IBV_WC_SUCCESS)) return 4;
            if (got)
                ++done[wc.wr_id];
            else
                sched_yield();
        }
        if (last) return 0;
    }
}

int receiver() {
    Adapter a(0, size_t{kLast + 2 * kStep} * kMessage);
    ibv_srq_init_attr init{};
    init.attr = {kFirst, kPieces, 0};
    ibv_srq* srq = ibv_create_srq(a.pd, &init);
    if (!srq) return 2;
    QpOptions o;
    o.srq = srq;
    uint32_t size = kFirst, posted = 0; // receives that are out
    std::vector<uint32_t> free;
    for (uint32_t i = 0; i < size; ++i) free.push_back(i);
    const auto post = [&] {
        const uint32_t slot = free.back();
        ibv_sge s[kPieces];
        for (uint32_t i = 0; i < kPieces; ++i) s[i] = a.sge(size_t{slot} * kMessage + i * kPiece, kPiece);
        ibv_recv_wr wr{slot, nullptr, s, kPieces}, *bad;
        if (ibv_post_srq_recv(srq, &wr, &bad)) return false;
        free.pop_back();
        ++posted;
        return true;
    };
    int result = 0;
    {
        std::vector<std::unique_ptr<Queue>> q;
        for (uint32_t s = 0; s < kSenders; ++s)
            for (uint32_t i = 0; i < kQueues; ++i) q.push_back(std::make_unique<Queue>(a, o));
        for (uint32_t s = 0; s < kSenders; ++s)
            for (uint32_t i = 0; i < kQueues; ++i) publish(board()->receiver[s][i], a, *q[s * kQueues + i]);
        for (uint32_t s = 0; s < kSenders; ++s)
            for (uint32_t i = 0; i < kQueues; ++i) {
                if (!wait_ready(board()->sender[s][i])) return 3;
                join(*q[s * kQueues + i], board()->sender[s][i]);
            }
        std::vector<uint32_t> next(q.size(), 0);
        uint32_t ended = 0, since = 0;
        const auto start = Clock::now();
        while (ended < q.size() && result == 0) {
            if (seconds_since(start) > 60) return 4;
            // Grows at any moment of the others: no more than a few messages after the last time, mostly with receives
            // out.
            if (size < kLast && since >= 7) {
                since = 0;
                for (int twice = 0; twice < 2; ++twice) { // the second time takes what the first has given back
                    ibv_srq_attr more{};
                    more.max_wr = size + kStep;
                    if (ibv_modify_srq(srq, &more, IBV_SRQ_MAX_WR)) return 5;
                    for (uint32_t i = 0; i < kStep; ++i) free.push_back(size + i);
                    size += kStep;
                }
                if (size >= kLast) board()->grown.store(1);
            }
            while (!free.empty() && posted < 64)
                if (!post()) return 6;
            ibv_wc wc[4];
            const int got = ibv_poll_cq(a.cq, 4, wc);
            if (got < 0) return 7;
            if (!got) sched_yield();
            for (int k = 0; k < got && result == 0; ++k) {
                if (wc[k].status != IBV_WC_SUCCESS) return 8;
                uint32_t queue = 0;
                while (queue < q.size() && q[queue]->qp->qp_num != wc[k].qp_num) ++queue;
                if (queue == q.size() || wc[k].wr_id >= size) return 9;
                const char* data = a.memory.data() + wc[k].wr_id * kMessage;
                const uint32_t n = next[queue]++;
                if (wc[k].byte_len == 4) {
                    uint32_t sent;
                    std::memcpy(&sent, data, 4);
                    if (sent != n) result = 10;
                    ++ended;
                } else {
                    if (wc[k].byte_len != length_of(n)) result = 11;
                    for (uint32_t i = 0; i < wc[k].byte_len && result == 0; ++i)
                        if (data[i] != byte_of(queue, n, i)) result = 12;
                }
                free.push_back(static_cast<uint32_t>(wc[k].wr_id));
                --posted;
                ++since;
            }
        }
        // All entries are there: as many as the queue has can be posted, and not one more.
        while (result == 0 && !free.empty())
            if (!post()) result = 13;
        if (result == 0 && posted != size) result = 14;
        free.push_back(0);
        if (result == 0 && post()) result = 15;
    }
    if (ibv_destroy_srq(srq)) return 16;
    return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(grows_while_others_send_into_it) {
    for (int round = 0; round < 5; ++round) {
        std::memset(static_cast<void*>(board()), 0, sizeof(Board));
        std::vector<pid_t> all{start(0, receiver)};
        for (uint32_t s = 0; s < kSenders; ++s) all.push_back(start(1, [s] { return sender(s); }));
        for (const pid_t pid : all) {
            const int status = status_of(pid, 90'000);
            BOOST_CHECK_MESSAGE(ended_well(status), (pid == all[0] ? "receiver" : "sender")
                                                        << " ended with " << status);
        }
    }
}
