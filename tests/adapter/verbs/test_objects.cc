// Objects by themselves: what is refused and with which errno value, what must wait, queries, resizing, events.
#define BOOST_TEST_DYN_LINK
#define BOOST_TEST_MODULE objects
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "fixture.h"

using namespace verbs_test;

namespace {

// errno that a call returning a pointer failed with; 0 if it did not fail.
template <class T> int error_of(T* object) { return object ? 0 : errno; }

ibv_qp* create(Adapter& a, ibv_qp_type type, ibv_cq* cq, ibv_qp_cap cap) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = type;
    init.cap = cap;
    return ibv_create_qp(a.pd, &init);
}

// Whether `call` blocks until `release` has been called.
void check_waits(const std::function<void()>& call, const std::function<void()>& release) {
    std::atomic<bool> done{false};
    std::thread thread([&] {
        call();
        done = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    BOOST_CHECK(!done);
    release();
    thread.join();
}

} // namespace

BOOST_AUTO_TEST_CASE(device_file) {
    Adapter a(0);
    struct stat s;
    BOOST_CHECK(stat("/dev/infiniband/uverbs0", &s) == 0 && S_ISCHR(s.st_mode));
    BOOST_CHECK(access("/dev/infiniband/uverbs1", R_OK | W_OK) == 0);
    BOOST_CHECK(stat("/dev/infiniband/uverbs77", &s) != 0);
    BOOST_CHECK(stat("/etc/passwd", &s) == 0 && S_ISREG(s.st_mode)); // others are libc's
}

BOOST_AUTO_TEST_CASE(memory_regions) {
    Adapter a(0);
    void* m = a.memory.data();
    BOOST_CHECK_EQUAL(error_of(ibv_reg_mr(a.pd, m, 4096, IBV_ACCESS_REMOTE_WRITE)), EINVAL);
    BOOST_CHECK_EQUAL(error_of(ibv_reg_mr(a.pd, m, 4096, IBV_ACCESS_REMOTE_ATOMIC)), EINVAL);
    BOOST_CHECK_EQUAL(error_of(ibv_reg_mr(a.pd, m, 4096, IBV_ACCESS_LOCAL_WRITE | 1 << 15)), EINVAL);
    BOOST_CHECK_EQUAL(error_of(ibv_reg_mr(a.pd, m, 4096, IBV_ACCESS_ON_DEMAND)), EOPNOTSUPP);
    BOOST_CHECK_EQUAL(error_of(ibv_reg_mr(a.pd, m, 0, 0)), EINVAL);
    BOOST_CHECK_EQUAL(error_of(ibv_reg_mr(a.pd, reinterpret_cast<void*>(0x1000), 4096, 0)), EFAULT);
    BOOST_CHECK_EQUAL(error_of(ibv_reg_mr_iova(a.pd, m, 4096, reinterpret_cast<uint64_t>(m) + 1, 0)), EINVAL);
    char* two = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    BOOST_REQUIRE(two != MAP_FAILED && mprotect(two + 4096, 4096, PROT_READ) == 0);
    BOOST_CHECK_EQUAL(error_of(ibv_reg_mr(a.pd, two, 8192, IBV_ACCESS_LOCAL_WRITE)), EFAULT);
    for (int access : {0, int{IBV_ACCESS_REMOTE_READ}}) { // reading is fine
        ibv_mr* read_only = ibv_reg_mr(a.pd, two, 8192, access);
        BOOST_REQUIRE(read_only);
        BOOST_CHECK_EQUAL(ibv_dereg_mr(read_only), 0);
    }
    munmap(two, 8192);

    ibv_mr* first = ibv_reg_mr(a.pd, m, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
    BOOST_REQUIRE(first);
    const uint32_t key = first->lkey;
    BOOST_CHECK_EQUAL(ibv_dereg_mr(first), 0);
    ibv_mr* second = ibv_reg_mr(a.pd, m, 4096, 0);
    BOOST_REQUIRE(second);
    BOOST_CHECK_NE(second->lkey, key);
    BOOST_CHECK_EQUAL(ibv_dealloc_pd(a.pd), EBUSY);
    BOOST_CHECK_EQUAL(ibv_dereg_mr(second), 0);
}

BOOST_AUTO_TEST_CASE(iova_is_what_peers_address) {
    Pair p;
    const uint64_t base = 0x100000000 + (reinterpret_cast<uint64_t>(p.right.memory.data()) & 4095);
    ibv_mr* mr = ibv_reg_mr_iova(p.right.pd, p.right.memory.data(), 65536, base,
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    BOOST_REQUIRE(mr);
    fill(p.left.memory, 0, 100, 5);
    const auto write = [&](uint64_t at) {
        return p.a.post(IBV_WR_RDMA_WRITE, {p.left.sge(0, 100)}, [&](ibv_send_wr& w) {
            w.wr.rdma.remote_addr = at;
            w.wr.rdma.rkey = mr->rkey;
        });
    };
    BOOST_REQUIRE_EQUAL(write(base + 1000), 0);
    p.left.wait();
    BOOST_CHECK(std::memcmp(p.left.memory.data(), p.right.memory.data() + 1000, 100) == 0);
    BOOST_REQUIRE_EQUAL(write(base + 65536 - 99), 0);
    p.left.wait(IBV_WC_REM_ACCESS_ERR);
    BOOST_CHECK_EQUAL(ibv_dereg_mr(mr), 0);
}

BOOST_AUTO_TEST_CASE(what_creation_refuses) {
    Adapter a(0);
    Adapter other(1);
    BOOST_CHECK_EQUAL(error_of(ibv_create_cq(a.context, 0, nullptr, nullptr, 0)), EINVAL);
    BOOST_CHECK_EQUAL(error_of(ibv_create_cq(a.context, 1 << 23, nullptr, nullptr, 0)), EINVAL);
    BOOST_CHECK_EQUAL(error_of(ibv_create_cq(a.context, 8, nullptr, nullptr, 100)), EINVAL);
    BOOST_CHECK_EQUAL(error_of(create(a, IBV_QPT_RC, a.cq, {100000, 1, 1, 1, 0})), EINVAL);
    BOOST_CHECK_EQUAL(error_of(create(a, IBV_QPT_RC, a.cq, {1, 1, 100, 1, 0})), EINVAL);
    BOOST_CHECK_EQUAL(error_of(create(a, IBV_QPT_RC, a.cq, {1, 1, 1, 1, 100000})), EINVAL);
    BOOST_CHECK_EQUAL(error_of(create(a, IBV_QPT_RC, nullptr, {1, 1, 1, 1, 0})), EINVAL);
    BOOST_CHECK_EQUAL(error_of(create(a, IBV_QPT_RC, other.cq, {1, 1, 1, 1, 0})), EINVAL);
    BOOST_CHECK_EQUAL(error_of(create(a, IBV_QPT_RAW_PACKET, a.cq, {1, 1, 1, 1, 0})), EOPNOTSUPP);
    ibv_cq_init_attr_ex ex{};
    ex.cqe = 8;
    ex.wc_flags = IBV_WC_EX_WITH_FLOW_TAG;
    BOOST_CHECK_EQUAL(error_of(ibv_create_cq_ex(a.context, &ex)), EOPNOTSUPP);
    ibv_ah_attr ah{};
    ah.port_num = 1;
    BOOST_CHECK_EQUAL(error_of(ibv_create_ah(a.pd, &ah)), EINVAL); // LID 0
    ah.dlid = a.port.lid;
    ah.src_path_bits = static_cast<uint8_t>(1u << a.port.lmc);
    BOOST_CHECK_EQUAL(error_of(ibv_create_ah(a.pd, &ah)), EINVAL);
    ibv_port_attr port;
    BOOST_CHECK_EQUAL(ibv_query_port(a.context, 9, &port), EINVAL);
    ibv_gid gid;
    BOOST_CHECK_EQUAL(ibv_query_gid(a.context, 1, 1000, &gid), -1);
    BOOST_CHECK_EQUAL(error_of(ibv_alloc_mw(a.pd, IBV_MW_TYPE_1)), EOPNOTSUPP);
}

BOOST_AUTO_TEST_CASE(in_use_is_busy) {
    Adapter a(0);
    ibv_srq_init_attr init{};
    init.attr = {8, 1, 0};
    ibv_srq* srq = ibv_create_srq(a.pd, &init);
    BOOST_REQUIRE(srq);
    QpOptions o;
    o.srq = srq;
    {
        Queue q(a, o);
        BOOST_CHECK_EQUAL(ibv_destroy_srq(srq), EBUSY);
        BOOST_CHECK_EQUAL(ibv_destroy_cq(a.cq), EBUSY);
        BOOST_CHECK_EQUAL(ibv_dealloc_pd(a.pd), EBUSY);
        ibv_recv_wr wr{}, *bad = nullptr;
        BOOST_CHECK_EQUAL(ibv_post_recv(q.qp, &wr, &bad), EINVAL); // receives go to the SRQ
    }
    BOOST_CHECK_EQUAL(ibv_destroy_srq(srq), 0);
}

BOOST_AUTO_TEST_CASE(resize_cq_keeps_completions) {
    Pair p;
    ibv_cq* cq = p.right.cq;
    BOOST_REQUIRE_EQUAL(ibv_resize_cq(cq, 16), 0);
    for (unsigned i = 0; i < 10; ++i) {
        p.b.recv(1000 + 64 * i, 64, 100 + i);
        p.left.memory[0] = static_cast<char>('a' + i);
        BOOST_REQUIRE_EQUAL(p.a.post(IBV_WR_SEND, {p.left.sge(0, 1)}), 0);
        p.left.wait();
    }
    BOOST_CHECK_EQUAL(ibv_resize_cq(cq, 5), EINVAL);
    BOOST_CHECK_EQUAL(ibv_resize_cq(cq, 1000), 0);
    BOOST_CHECK_GE(cq->cqe, 1000);
    BOOST_CHECK_EQUAL(ibv_resize_cq(cq, 10), 0);
    for (unsigned i = 0; i < 10; ++i) {
        BOOST_CHECK_EQUAL(p.right.wait().wr_id, 100 + i);
        BOOST_CHECK_EQUAL(p.right.memory[1000 + 64 * i], static_cast<char>('a' + i));
    }
}

// Programs with one request outstanding ask for one entry, and may post the next before they have polled.
BOOST_AUTO_TEST_CASE(smallest_cq_holds_two) {
    Adapter left(0, 4096, 1), right(1);
    BOOST_CHECK_GE(left.cq->cqe, 2);
    {
        Queue a(left), b(right);
        connect(a, b);
        for (uint64_t i = 0; i < 2; ++i) BOOST_REQUIRE_EQUAL(a.rdma(IBV_WR_RDMA_WRITE, b, 0, 0, 8), 0);
        BOOST_CHECK_NE(left.event(0.1), IBV_EVENT_CQ_ERR);
        for (int i = 0; i < 2; ++i) left.wait();
    }
}

BOOST_AUTO_TEST_CASE(overrun_completion_queue) {
    Adapter left(0, 4096, 1), right(1);
    Queue a(left), b(right);
    connect(a, b);
    for (int i = 0; i <= left.cq->cqe; ++i) BOOST_REQUIRE_EQUAL(a.rdma(IBV_WR_RDMA_WRITE, b, 0, 0, 8), 0);
    BOOST_CHECK_EQUAL(left.event(), IBV_EVENT_CQ_ERR);
    for (int i = 0; i < left.cq->cqe; ++i) left.wait(); // what is there stays
}

// Completions of a destroyed queue pair leave room, also when nobody has polled anything behind them.
BOOST_AUTO_TEST_CASE(completions_of_a_destroyed_queue_pair_make_room) {
    Adapter left(0, 4096, 2), right(1);
    for (int round = 0; round < 3; ++round) {
        Queue a(left), b(right);
        connect(a, b);
        BOOST_CHECK(left.empty());
        for (int i = 0; i < left.cq->cqe; ++i) BOOST_REQUIRE_EQUAL(a.rdma(IBV_WR_RDMA_WRITE, b, 0, 0, 8), 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        if (round == 2)
            for (int i = 0; i < left.cq->cqe; ++i) left.wait();
    }
}

BOOST_AUTO_TEST_CASE(closing_a_device_ends_what_is_open) {
    Adapter left(0);
    QpOptions o;
    o.timeout = 8;
    Queue a(left, o);
    auto* right = new Adapter(1); // as a program that forgets: nothing is destroyed
    auto* b = new Queue(*right, o);
    connect(a, *b);
    BOOST_REQUIRE_EQUAL(a.rdma(IBV_WR_RDMA_WRITE, *b, 0, 0, 8), 0);
    left.wait();
    BOOST_CHECK_EQUAL(ibv_close_device(right->context), 0);
    BOOST_REQUIRE_EQUAL(a.rdma(IBV_WR_RDMA_WRITE, *b, 0, 0, 8), 0);
    left.wait(IBV_WC_RETRY_EXC_ERR);
}

BOOST_AUTO_TEST_CASE(completion_events) {
    Adapter left(0), right(1);
    ibv_comp_channel* channel = ibv_create_comp_channel(right.context);
    ibv_cq* cq = ibv_create_cq(right.context, 16, &left, channel, 0);
    BOOST_REQUIRE(channel && cq);
    BOOST_CHECK_EQUAL(ibv_destroy_comp_channel(channel), EBUSY);
    std::swap(right.cq, cq);
    fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
    ibv_cq* got = nullptr;
    void* context = nullptr;
    unsigned events = 0;
    const auto next = [&] { // 0, or errno
        const auto t = Clock::now();
        while (ibv_get_cq_event(channel, &got, &context))
            if (errno != EAGAIN || seconds_since(t) > 0.2) return errno;
        ++events;
        return 0;
    };
    {
        Queue a(left), b(right);
        connect(a, b);
        const auto send = [&](unsigned flags) {
            b.recv(0, 64);
            BOOST_REQUIRE_EQUAL(a.post(IBV_WR_SEND, {left.sge(0, 8)}, {}, flags | IBV_SEND_SIGNALED), 0);
            left.wait();
        };
        BOOST_CHECK_EQUAL(next(), EAGAIN);
        send(0);
        BOOST_CHECK_EQUAL(next(), EAGAIN); // not armed
        BOOST_CHECK_EQUAL(ibv_req_notify_cq(right.cq, 0), 0);
        BOOST_CHECK_EQUAL(next(), 0); // what is there already counts
        BOOST_CHECK(got == right.cq && context == &left);
        right.wait();
        BOOST_CHECK_EQUAL(ibv_req_notify_cq(right.cq, 1), 0);
        send(0);
        BOOST_CHECK_EQUAL(next(), EAGAIN);
        send(IBV_SEND_SOLICITED);
        BOOST_CHECK_EQUAL(next(), 0);
        send(IBV_SEND_SOLICITED); // one event per arming
        BOOST_CHECK_EQUAL(next(), EAGAIN);
        for (int i = 0; i < 3; ++i) right.wait();
        // Armed between event and poll: a completion has one event.
        BOOST_CHECK_EQUAL(ibv_req_notify_cq(right.cq, 0), 0);
        send(0);
        BOOST_CHECK_EQUAL(next(), 0);
        BOOST_CHECK_EQUAL(ibv_req_notify_cq(right.cq, 0), 0);
        BOOST_CHECK_EQUAL(next(), EAGAIN);
        right.wait();
        BOOST_CHECK_EQUAL(ibv_req_notify_cq(right.cq, 1), 0); // does not narrow what is armed
        send(0);
        BOOST_CHECK_EQUAL(next(), 0);
        right.wait();
        // Two have come with an event each, one is polled: who arms now and sleeps learns of the other one.
        for (int i = 0; i < 2; ++i) {
            BOOST_CHECK_EQUAL(ibv_req_notify_cq(right.cq, 0), 0);
            send(0);
            BOOST_CHECK_EQUAL(next(), 0);
        }
        right.wait();
        BOOST_CHECK_EQUAL(ibv_req_notify_cq(right.cq, 0), 0);
        BOOST_CHECK_EQUAL(next(), 0);
        right.wait();
        BOOST_CHECK_EQUAL(ibv_req_notify_cq(right.cq, 0), 0);
        send(0); // its event is never read
    }
    std::swap(right.cq, cq);
    check_waits([&] { BOOST_CHECK_EQUAL(ibv_destroy_cq(cq), 0); }, [&] { ibv_ack_cq_events(cq, events); });
    BOOST_CHECK_EQUAL(next(), EAGAIN); // went with its CQ
    BOOST_CHECK_EQUAL(ibv_destroy_comp_channel(channel), 0);
}

BOOST_AUTO_TEST_CASE(async_events_of_a_destroyed_queue_pair) {
    Adapter left(0), right(1);
    QpOptions o;
    o.access = 0;
    Queue a(left, o);
    for (bool read : {true, false}) {
        Queue b(right, o);
        ibv_qp_attr reset{};
        BOOST_REQUIRE_EQUAL(ibv_modify_qp(a.qp, &reset, IBV_QP_STATE), 0);
        connect(a, b);
        BOOST_REQUIRE_EQUAL(a.rdma(IBV_WR_RDMA_WRITE, b, 0, 0, 8), 0);
        left.wait(IBV_WC_REM_ACCESS_ERR);
        pollfd p{right.context->async_fd, POLLIN, 0};
        BOOST_REQUIRE_EQUAL(poll(&p, 1, 20000), 1);
        ibv_qp* qp = std::exchange(b.qp, nullptr);
        if (read) {
            ibv_async_event e;
            BOOST_REQUIRE_EQUAL(ibv_get_async_event(right.context, &e), 0);
            BOOST_CHECK_EQUAL(e.event_type, IBV_EVENT_QP_ACCESS_ERR);
            BOOST_CHECK(e.element.qp == qp);
            check_waits([&] { BOOST_CHECK_EQUAL(ibv_destroy_qp(qp), 0); }, [&] { ibv_ack_async_event(&e); });
        } else {
            BOOST_CHECK_EQUAL(ibv_destroy_qp(qp), 0);
            BOOST_CHECK_EQUAL(poll(&p, 1, 20), 0);
        }
    }
}

BOOST_AUTO_TEST_CASE(shared_receive_queue) {
    Adapter left(0), right(1);
    ibv_srq_init_attr init{};
    init.attr = {8, 2, 0};
    ibv_srq* srq = ibv_create_srq(right.pd, &init);
    BOOST_REQUIRE(srq);
    QpOptions with;
    with.srq = srq;
    with.recv_wr = 0;
    const auto post = [&](unsigned id) {
        ibv_sge s = right.sge(4096 + id * 64, 64);
        ibv_recv_wr wr{id, nullptr, &s, 1}, *bad = nullptr;
        return ibv_post_srq_recv(srq, &wr, &bad);
    };
    {
        Queue a(left), b(right, with);
        connect(a, b);
        for (unsigned i = 0; i < 8; ++i) BOOST_REQUIRE_EQUAL(post(i), 0);
        BOOST_CHECK_EQUAL(post(8), ENOMEM);
        ibv_srq_attr attr{0, 0, 6};
        BOOST_CHECK_EQUAL(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
        attr = {20, 0, 0};
        BOOST_CHECK_EQUAL(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), 0);
        for (unsigned i = 8; i < 20; ++i) BOOST_REQUIRE_EQUAL(post(i), 0);
        BOOST_CHECK_EQUAL(post(20), ENOMEM);
        BOOST_CHECK_EQUAL(ibv_query_srq(srq, &attr), 0);
        BOOST_CHECK(attr.max_wr == 20 && attr.max_sge == 2 && attr.srq_limit == 6);
        for (unsigned i = 0; i < 16; ++i) {
            if (i == 14) BOOST_CHECK_EQUAL(right.event(0.02), -1); // six are left: not below the limit
            left.memory[0] = static_cast<char>('A' + i);
            BOOST_REQUIRE_EQUAL(a.post(IBV_WR_SEND, {left.sge(0, 1)}), 0);
            left.wait();
        }
        BOOST_CHECK_EQUAL(right.event(), IBV_EVENT_SRQ_LIMIT_REACHED);
        BOOST_CHECK_EQUAL(ibv_query_srq(srq, &attr), 0);
        BOOST_CHECK_EQUAL(attr.srq_limit, 0u); // once per arming
        for (unsigned i = 0; i < 16; ++i) {
            BOOST_CHECK_EQUAL(right.wait().wr_id, i);
            BOOST_CHECK_EQUAL(right.memory[4096 + 64 * i], static_cast<char>('A' + i));
        }
        b.to_error();
        BOOST_CHECK_EQUAL(right.event(), IBV_EVENT_QP_LAST_WQE_REACHED);
    }
    BOOST_CHECK_EQUAL(ibv_destroy_srq(srq), 0);
}

BOOST_AUTO_TEST_CASE(thousands_of_short_lives) {
    Adapter a(0);
    for (int i = 0; i < 3000; ++i) {
        ibv_cq* cq = ibv_create_cq(a.context, 16, nullptr, nullptr, 0);
        ibv_qp* qp = create(a, IBV_QPT_RC, cq, {4, 4, 1, 1, 0});
        ibv_mr* mr = ibv_reg_mr(a.pd, a.memory.data(), 4096, 0);
        BOOST_REQUIRE(cq && qp && mr);
        BOOST_REQUIRE_EQUAL(ibv_destroy_qp(qp), 0);
        BOOST_REQUIRE_EQUAL(ibv_destroy_cq(cq), 0);
        BOOST_REQUIRE_EQUAL(ibv_dereg_mr(mr), 0);
    }
}

// The child of a fork() is a process of its own.
BOOST_AUTO_TEST_CASE(forked_child) {
    Pair p;
    const pid_t child = fork();
    if (child == 0) {
        int n = 0;
        ibv_device** list = ibv_get_device_list(&n);
        ibv_context* context = list && n ? ibv_open_device(list[0]) : nullptr;
        ibv_cq* cq = context ? ibv_create_cq(context, 8, nullptr, nullptr, 0) : nullptr;
        _exit(cq ? 0 : 1);
    }
    int status = -1;
    BOOST_REQUIRE_EQUAL(waitpid(child, &status, 0), child);
    BOOST_CHECK_EQUAL(status, 0);
    BOOST_REQUIRE_EQUAL(p.a.rdma(IBV_WR_RDMA_WRITE, p.b, 0, 0, 64), 0);
    p.left.wait();
}
