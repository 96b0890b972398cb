// Memory that its owner has registered and then unmapped. Hardware keeps the pages; here they are gone, so that who
// touches them gets an error (remote operation at the initiator, local protection at the owner), and no process
// crashes: neither the one that unmapped nor the one that executes the request. Both ends in one process, and in two.
#define BOOST_TEST_DYN_LINK
#define BOOST_TEST_MODULE unmapped
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <memory>
#include <span>

#include <boost/test/results_collector.hpp>

#include "children.h"
#include "fixture.h"

using namespace verbs_test;

namespace {

constexpr size_t kRegion = 1 << 18;

// A registered region; unmap() takes [from, to) of it away. It lies between pages that stay: the stack of a thread that
// is started later would else be mapped into the gap where no other one happens to be above it, and the gap be none.
struct Region {
    explicit Region(Adapter& a) {
        around = static_cast<char*>(mmap(nullptr, 3 * kRegion, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        BOOST_REQUIRE(around != MAP_FAILED);
        memory = around + kRegion;
        BOOST_REQUIRE_EQUAL(mprotect(memory, kRegion, PROT_READ | PROT_WRITE), 0);
        std::memset(memory, 'r', kRegion);
        mr = ibv_reg_mr(a.pd, memory, kRegion,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                            IBV_ACCESS_REMOTE_ATOMIC);
        BOOST_REQUIRE(mr);
    }
    ~Region() {
        BOOST_CHECK_EQUAL(ibv_dereg_mr(mr), 0);
        munmap(around, 3 * kRegion);
    }
    Region(const Region&) = delete;
    void unmap(size_t from = 0, size_t to = kRegion) { BOOST_REQUIRE_EQUAL(munmap(memory + from, to - from), 0); }
    ibv_sge sge(size_t offset, uint32_t length) const {
        return {reinterpret_cast<uint64_t>(memory) + offset, length, mr->lkey};
    }
    char *around, *memory;
    ibv_mr* mr;
};

// What an initiator needs to know of its target, and signals between the two.
struct Board {
    std::atomic<int> ready[2], done;
    uint32_t qpn[2][2], rkey;
    uint16_t lid[2];
    uint64_t address;
};
Board* board() {
    static Board* b =
        static_cast<Board*>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    return b;
}

bool wait_for(const std::atomic<int>& flag) {
    for (int i = 0; i < 200'000 && !flag.load(); ++i) usleep(100);
    return flag.load() != 0;
}

// One side: an adapter, a queue pair for the accident and another one that must not notice.
struct Side {
    explicit Side(int which, const QpOptions& o = {})
        : me(which), adapter(which), queue(adapter, o), other(adapter, o) {
        board()->qpn[me][0] = queue.qp->qp_num;
        board()->qpn[me][1] = other.qp->qp_num;
        board()->lid[me] = adapter.port.lid;
    }
    void join() {
        const uint32_t psn[2] = {100, 200};
        for (int i = 0; i < 2; ++i) {
            Queue& q = i ? other : queue;
            q.init();
            q.rtr(board()->lid[1 - me], board()->qpn[1 - me][i], psn[1 - me]);
            q.rts(psn[me]);
        }
    }
    int me;
    Adapter adapter;
    Queue queue, other;
};

// Runs `body` in a child of its own: that it crashes is what is looked for.
pid_t start(const std::function<void()>& body) {
    return verbs_test::start(0, [&] {
        for (const int s : {SIGSEGV, SIGBUS, SIGABRT})
            signal(s, SIG_DFL); // the test framework's would go on with the next case
        int status = 0;
        try {
            body();
            auto& results =
                boost::unit_test::results_collector.results(boost::unit_test::framework::current_test_case().p_id);
            status = results.p_assertions_failed > 0;
        } catch (...) { status = 2; }
        std::fflush(nullptr);
        return status;
    });
}

constexpr int kPatience = 15'000; // ms

void ends_well(pid_t pid, const std::string& what) {
    const int status = status_of(pid, kPatience);
    BOOST_CHECK_MESSAGE(ended_well(status), what << " ended with " << status);
}

// Two processes. The target: offers memory and connects, gets ready, and serves until the initiator is through.
void offer(Side& target, const void* memory, const ibv_mr* mr) {
    board()->address = reinterpret_cast<uint64_t>(memory);
    board()->rkey = mr->rkey;
    board()->ready[1].store(1);
    BOOST_REQUIRE(wait_for(board()->ready[0]));
    target.join();
}
void serve() {
    board()->ready[1].store(2);
    BOOST_REQUIRE(wait_for(board()->done));
}
pid_t start_initiator(const std::function<void(Side&)>& act) {
    return start([&] {
        Side left(0);
        board()->ready[0].store(1);
        BOOST_REQUIRE(wait_for(board()->ready[1]));
        left.join();
        for (int i = 0; i < 200'000 && board()->ready[1].load() != 2; ++i) usleep(100);
        act(left);
        board()->done.store(1);
    });
}

void clear_board() { std::memset(static_cast<void*>(board()), 0, sizeof(Board)); }

struct Access {
    const char* name;
    ibv_wr_opcode opcode;
    uint32_t length;
    size_t offset;   // in the region
    size_t from, to; // what of the region is gone
};
// Short ones are executed by single instructions, long ones by system calls; some begin in what is there.
constexpr Access kAccesses[] = {
    {"short send", IBV_WR_SEND, 8, 4096, 0, kRegion},
    {"send", IBV_WR_SEND, 1000, 4096, 0, kRegion},
    {"long send", IBV_WR_SEND, 200'000, 0, 0, kRegion},
    {"send with a hole", IBV_WR_SEND, 200'000, 0, 65536, 131072},
    {"short write", IBV_WR_RDMA_WRITE, 8, 4096, 0, kRegion},
    {"write", IBV_WR_RDMA_WRITE, 1000, 4096, 0, kRegion},
    {"long write", IBV_WR_RDMA_WRITE, 200'000, 0, 0, kRegion},
    {"write with a hole", IBV_WR_RDMA_WRITE, 200'000, 0, 65536, 131072},
    {"short read", IBV_WR_RDMA_READ, 8, 4096, 0, kRegion},
    {"read", IBV_WR_RDMA_READ, 1000, 4096, 0, kRegion},
    {"long read", IBV_WR_RDMA_READ, 200'000, 0, 0, kRegion},
    {"read with a hole", IBV_WR_RDMA_READ, 200'000, 0, 65536, 131072},
    {"fetch and add", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 4096, 0, kRegion},
    {"compare and swap", IBV_WR_ATOMIC_CMP_AND_SWP, 8, 4096, 0, kRegion},
};
constexpr auto kRemote = std::span(kAccesses).subspan(4); // what names the peer's memory

bool is_atomic(ibv_wr_opcode op) { return op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP; }

int post(Queue& q, const Access& what, const ibv_sge& local, uint64_t address, uint32_t rkey, uint64_t id) {
    return q.post(what.opcode, {local}, [&](ibv_send_wr& w) {
        w.wr_id = id;
        if (is_atomic(what.opcode)) {
            w.wr.atomic.remote_addr = address;
            w.wr.atomic.rkey = rkey;
            w.wr.atomic.compare_add = 1;
        } else {
            w.wr.rdma.remote_addr = address;
            w.wr.rdma.rkey = rkey;
        }
    });
}

void target_is_gone(Side& s, const Access& what) {
    Board& b = *board();
    BOOST_REQUIRE_EQUAL(post(s.queue, what, s.adapter.sge(0, what.length), b.address + what.offset, b.rkey, 7), 0);
    BOOST_CHECK_EQUAL(s.adapter.wait(IBV_WC_REM_OP_ERR).wr_id, 7u);
    BOOST_CHECK_EQUAL(s.queue.query().qp_state, IBV_QPS_ERR);
    // The neighbour works on, both ways.
    BOOST_REQUIRE_EQUAL(s.other.post(IBV_WR_SEND, {s.adapter.sge(0, 64)}), 0);
    s.adapter.wait();
}

// The target's side of it, once the initiator has been told.
void target_has_noticed(Side& s, const Access& what) {
    BOOST_CHECK_MESSAGE(s.adapter.saw(IBV_EVENT_QP_FATAL, 10), what.name);
    BOOST_CHECK_EQUAL(s.queue.query().qp_state, IBV_QPS_ERR);
    BOOST_CHECK_EQUAL(s.adapter.wait().byte_len, 64u); // the neighbour's
}

} // namespace

BOOST_AUTO_TEST_CASE(of_a_peer_in_the_same_process) {
    for (const Access& what : kRemote) {
        clear_board();
        ends_well(start([&] {
                      Side left(0), right(1);
                      Region region(right.adapter);
                      board()->address = reinterpret_cast<uint64_t>(region.memory);
                      board()->rkey = region.mr->rkey;
                      left.join();
                      right.join();
                      right.other.recv(0, 64);
                      region.unmap(what.from, what.to);
                      target_is_gone(left, what);
                      target_has_noticed(right, what);
                  }),
                  what.name);
    }
}

BOOST_AUTO_TEST_CASE(of_a_peer_in_another_process) {
    for (const Access& what : kRemote) {
        clear_board();
        const pid_t target = start([&] {
            Side right(1);
            Region region(right.adapter);
            offer(right, region.memory, region.mr);
            right.other.recv(0, 64);
            region.unmap(what.from, what.to);
            serve();
            target_has_noticed(right, what);
        });
        const pid_t initiator = start_initiator([&](Side& left) { target_is_gone(left, what); });
        ends_well(initiator, std::string("initiator of ") + what.name);
        ends_well(target, std::string("target of ") + what.name);
    }
}

namespace {

// What is before it is complete, it fails, what is behind it is flushed; the peer is not concerned.
void local_is_gone(Side& s, const Access& what, uint64_t address, uint32_t rkey) {
    Region region(s.adapter);
    region.unmap(what.from, what.to);
    constexpr Access kGood{"", IBV_WR_RDMA_WRITE, 64, 0, 0, 0};
    BOOST_REQUIRE_EQUAL(post(s.queue, kGood, s.adapter.sge(0, 64), address, rkey, 1), 0);
    BOOST_REQUIRE_EQUAL(post(s.queue, what, region.sge(what.offset, what.length), address, rkey, 2), 0);
    BOOST_REQUIRE_EQUAL(post(s.queue, kGood, s.adapter.sge(0, 64), address, rkey, 3), 0);
    BOOST_CHECK_EQUAL(s.adapter.wait().wr_id, 1u);
    BOOST_CHECK_EQUAL(s.adapter.wait(IBV_WC_LOC_PROT_ERR).wr_id, 2u);
    BOOST_CHECK_EQUAL(s.adapter.wait(IBV_WC_WR_FLUSH_ERR).wr_id, 3u);
    BOOST_CHECK_EQUAL(s.queue.query().qp_state, IBV_QPS_ERR);
}

} // namespace

BOOST_AUTO_TEST_CASE(of_the_initiator_itself) {
    for (const bool two : {false, true})
        for (const Access& what : kAccesses) {
            clear_board();
            const auto peer = [&](Side& right) { // it has room, and nothing of the accident comes to it
                BOOST_CHECK_EQUAL(right.queue.query().qp_state, IBV_QPS_RTS);
                BOOST_CHECK(right.adapter.empty());
                BOOST_CHECK_EQUAL(right.adapter.event(0.01), -1);
            };
            if (!two) {
                ends_well(start([&] {
                              Side left(0), right(1);
                              left.join();
                              right.join();
                              right.queue.recv(0, 1 << 20);
                              local_is_gone(left, what, reinterpret_cast<uint64_t>(right.adapter.memory.data()),
                                            right.adapter.mr->rkey);
                              peer(right);
                          }),
                          what.name);
                continue;
            }
            const pid_t target = start([&] {
                Side right(1);
                offer(right, right.adapter.memory.data(), right.adapter.mr);
                right.queue.recv(0, 1 << 20);
                serve();
                peer(right);
            });
            const pid_t initiator =
                start_initiator([&](Side& left) { local_is_gone(left, what, board()->address, board()->rkey); });
            ends_well(initiator, std::string("initiator of ") + what.name);
            ends_well(target, std::string("target of ") + what.name);
        }
}

// Unreliable services: the message is lost and the send queue stops; it can be started again.
BOOST_AUTO_TEST_CASE(of_an_unreliable_sender) {
    for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD})
        for (const uint32_t length : {8u, 1000u})
            ends_well(start([&] {
                          QpOptions o;
                          o.type = type;
                          Pair p(o);
                          Region region(p.left);
                          region.unmap();
                          ibv_ah_attr av{};
                          av.dlid = p.right.port.lid;
                          av.port_num = 1;
                          ibv_ah* ah = ibv_create_ah(p.left.pd, &av);
                          const auto send = [&](const ibv_sge& sge) {
                              return p.a.post(IBV_WR_SEND, {sge}, [&](ibv_send_wr& w) {
                                  if (type == IBV_QPT_UD) w.wr.ud = {ah, p.b.qp->qp_num, 0x1111};
                              });
                          };
                          p.b.recv(0, 4096, 9);
                          BOOST_REQUIRE_EQUAL(send(region.sge(0, length)), 0);
                          p.left.wait(IBV_WC_LOC_PROT_ERR);
                          BOOST_CHECK_EQUAL(p.a.query().qp_state, IBV_QPS_SQE);
                          ibv_qp_attr again{};
                          again.qp_state = IBV_QPS_RTS;
                          BOOST_REQUIRE_EQUAL(ibv_modify_qp(p.a.qp, &again, IBV_QP_STATE), 0);
                          BOOST_REQUIRE_EQUAL(send(p.left.sge(0, length)), 0);
                          p.left.wait();
                          BOOST_CHECK_EQUAL(p.right.wait().wr_id, 9u); // the first has taken no receive
                          ibv_destroy_ah(ah);
                      }),
                      "sender");
}

// A receive whose memory is gone. A short message has been accepted before that is found: its sender sees success.
BOOST_AUTO_TEST_CASE(of_a_receiver) {
    for (const uint32_t length : {8u, 150u, 1000u, 100'000u})
        ends_well(start([&] {
                      Pair p;
                      Region region(p.right);
                      ibv_sge sge = region.sge(0, kRegion);
                      ibv_recv_wr wr{6, nullptr, &sge, 1}, *bad;
                      BOOST_REQUIRE_EQUAL(ibv_post_recv(p.b.qp, &wr, &bad), 0);
                      p.b.recv(0, 100, 8);
                      region.unmap();
                      BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_SEND, {p.left.sge(0, length)}), 0);
                      p.left.wait(length > 192 ? IBV_WC_REM_OP_ERR : IBV_WC_SUCCESS);
                      BOOST_CHECK_EQUAL(p.right.wait(IBV_WC_LOC_PROT_ERR).wr_id, 6u);
                      BOOST_CHECK_EQUAL(p.right.wait(IBV_WC_WR_FLUSH_ERR).wr_id, 8u);
                      BOOST_CHECK_EQUAL(p.b.query().qp_state, IBV_QPS_ERR);
                      BOOST_CHECK(p.right.saw(IBV_EVENT_QP_FATAL));
                  }),
                  "receiver of " + std::to_string(length));
}

// A program that handles such signals itself goes on to get those that are its own.
namespace {
std::atomic<int> g_caught;
sigjmp_buf g_back;
char* g_hole;
void mend(int, siginfo_t* info, void*) {
    g_caught += info->si_addr == g_hole;
    mmap(g_hole, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
void dies_of_segv(pid_t pid) {
    const int status = status_of(pid, kPatience);
    BOOST_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}
} // namespace
BOOST_AUTO_TEST_CASE(faults_of_the_program_stay_its_own) {
    for (const bool handler_first : {true, false}) {
        ends_well(start([&] {
                      g_hole = static_cast<char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
                      struct sigaction mine {};
                      mine.sa_sigaction = mend;
                      mine.sa_flags = SA_SIGINFO;
                      if (handler_first) sigaction(SIGSEGV, &mine, nullptr);
                      Pair p;
                      if (!handler_first) sigaction(SIGSEGV, &mine, nullptr);
                      Region region(p.right);
                      region.unmap();
                      *static_cast<volatile char*>(g_hole) = 1;
                      BOOST_CHECK_EQUAL(g_caught.load(), 1);
                      BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_RDMA_WRITE, {p.left.sge(0, 8)},
                                                   [&](ibv_send_wr& w) {
                                                       w.wr.rdma.remote_addr =
                                                           reinterpret_cast<uint64_t>(region.memory);
                                                       w.wr.rdma.rkey = region.mr->rkey;
                                                   }),
                                          0);
                      p.left.wait(IBV_WC_REM_OP_ERR);
                      BOOST_CHECK_EQUAL(g_caught.load(), 1);
                  }),
                  "handler");
        // One that leaves its handler by a jump does so any number of times.
        ends_well(start([&] {
                      g_hole = static_cast<char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
                      struct sigaction mine {};
                      mine.sa_handler = [](int) { siglongjmp(g_back, 1); };
                      if (handler_first) sigaction(SIGSEGV, &mine, nullptr);
                      Pair p;
                      if (!handler_first) sigaction(SIGSEGV, &mine, nullptr);
                      Region region(p.right); // registered last
                      static int i;           // the jump leaves it alone
                      for (i = 0; i < 3; ++i)
                          if (sigsetjmp(g_back, 1) == 0) {
                              *static_cast<volatile char*>(g_hole) = 1;
                              BOOST_CHECK(false);
                          }
                  }),
                  "a jump");
        // And one whose handler is there for a single time dies of the second one.
        const pid_t once = start([&] {
            g_hole = static_cast<char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            struct sigaction mine {};
            mine.sa_handler = [](int) {};
            mine.sa_flags = static_cast<int>(SA_RESETHAND);
            if (handler_first) sigaction(SIGSEGV, &mine, nullptr);
            Pair p;
            if (!handler_first) sigaction(SIGSEGV, &mine, nullptr);
            Region region(p.right);
            *static_cast<volatile char*>(g_hole) = 1;
        });
        dies_of_segv(once);
        // And one that has no handler dies of it, as ever.
        const pid_t pid = start([&] {
            signal(SIGSEGV, SIG_DFL);
            Pair p;
            g_hole = static_cast<char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            *static_cast<volatile char*>(g_hole) = 1;
        });
        dies_of_segv(pid);
    }
}
