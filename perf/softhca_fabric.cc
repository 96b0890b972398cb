// Measures the emulated fabric from the outside, through plain verbs: run under `softhca run`, one process a node
// (forked here). Every figure is a ratio to a limit or to a second measurement taken in the same run;
// perf/softhca-speed runs all.
//   writev    1 MiB RDMA writes against one process_vm_writev of that size between the same two processes (ideal
//   fabric) rate      share of the link's rate that 1 MiB writes get                          needs --gbps (data rate
//   of the link) fair      two senders, one receiver link: each one's share                        nodes 0 and 1 -> 2
//   behind    64 B message while another QP keeps 4 MiB writes queued: worst and median latency in chunk times
//   latency   64 B one-way latency (half a ping-pong), of the rounds in which neither end waited for a core
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

[[noreturn]] void die(const char* what) {
    std::fprintf(stderr, "softhca_fabric: %s: %s\n", what, std::strerror(errno));
    std::_Exit(1);
}

struct Address { // what a peer needs to know of a queue pair
    std::atomic<int> ready;
    uint32_t qpn, rkey;
    uint16_t lid;
    uint64_t buffer;
    pid_t pid;
};

constexpr uint32_t kRounds = 20000; // of the ping-pong, at most

struct Shared {        // between the forked nodes
    Address end[4][4]; // [node][connection]
    std::atomic<int> arrived[8];
    std::atomic<int> stop;
    double result[4];
    uint64_t waited[2][kRounds + 1]; // [node][round]: run_delay() at its end
};
Shared* shared;

// All `n` processes meet; bounded by a minute.
void barrier(int which, int n) {
    shared->arrived[which].fetch_add(1);
    const uint64_t give_up = now_ns() + 60000000000u;
    while (shared->arrived[which].load() < n) {
        usleep(200);
        if (now_ns() > give_up) die("a peer did not arrive");
    }
}

// How long (ns) this thread has been able to run and had no core, since it began.
uint64_t run_delay() {
    static const int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    char text[96] = {};
    unsigned long long ran = 0, waited = 0;
    if (fd < 0 || pread(fd, text, sizeof text - 1, 0) <= 0 || std::sscanf(text, "%llu %llu", &ran, &waited) != 2)
        die("/proc/thread-self/schedstat");
    return waited;
}

class Connection {
public:
    Connection(int node, int index, int peer, int peer_index, size_t bytes, int depth) : depth_(depth), bytes_(bytes) {
        int n = 0;
        ibv_device** list = ibv_get_device_list(&n);
        if (!list || n == 0) die("no device (run me under `softhca run`)");
        context_ = ibv_open_device(list[0]);
        if (!context_) die("open device");
        pd_ = ibv_alloc_pd(context_);
        buffer_ = static_cast<char*>(
            mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
        mr_ =
            ibv_reg_mr(pd_, buffer_, bytes_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
        cq_ = ibv_create_cq(context_, 4096, nullptr, nullptr, 0);
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq_;
        init.qp_type = IBV_QPT_RC;
        init.cap = {static_cast<uint32_t>(depth * 2), 64, 1, 1, 0};
        qp_ = ibv_create_qp(pd_, &init);
        if (!mr_ || !cq_ || !qp_) die("create objects");
        ibv_port_attr port{};
        if (ibv_query_port(context_, 1, &port)) die("query port");
        Address& mine = shared->end[node][index];
        mine.qpn = qp_->qp_num;
        mine.rkey = mr_->rkey;
        mine.lid = port.lid;
        mine.buffer = reinterpret_cast<uint64_t>(buffer_);
        mine.pid = getpid();
        mine.ready.store(1);
        Address& other = shared->end[peer][peer_index];
        const uint64_t give_up = now_ns() + 60000000000u;
        while (!other.ready.load()) {
            usleep(200);
            if (now_ns() > give_up) die("peer's address");
        }
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_INIT;
        a.port_num = 1;
        a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        if (ibv_modify_qp(qp_, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) die("INIT");
        a = {};
        a.qp_state = IBV_QPS_RTR;
        a.path_mtu = port.active_mtu;
        a.dest_qp_num = other.qpn;
        a.max_dest_rd_atomic = 4;
        a.min_rnr_timer = 12;
        a.ah_attr.dlid = other.lid;
        a.ah_attr.port_num = 1;
        if (ibv_modify_qp(qp_, &a,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
            die("RTR");
        a = {};
        a.qp_state = IBV_QPS_RTS;
        a.timeout = 18;
        a.retry_cnt = 7;
        a.rnr_retry = 7;
        a.max_rd_atomic = 4;
        if (ibv_modify_qp(qp_, &a,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                              IBV_QP_MAX_QP_RD_ATOMIC))
            die("RTS");
        peer_ = &other;
    }
    void write(size_t length, uint64_t offset = 0) {
        ibv_sge sge{reinterpret_cast<uint64_t>(buffer_) + offset, static_cast<uint32_t>(length), mr_->lkey};
        ibv_send_wr wr{}, *bad;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.rdma.remote_addr = peer_->buffer + offset;
        wr.wr.rdma.rkey = peer_->rkey;
        if (ibv_post_send(qp_, &wr, &bad)) die("post");
    }
    int poll() {
        ibv_wc wc[16];
        const int n = ibv_poll_cq(cq_, 16, wc);
        for (int i = 0; i < n; ++i)
            if (wc[i].status != IBV_WC_SUCCESS) {
                std::fprintf(stderr, "softhca_fabric: completion: %s\n", ibv_wc_status_str(wc[i].status));
                std::_Exit(1);
            }
        return n;
    }
    void wait_one() {
        const uint64_t give_up = now_ns() + 60000000000u;
        while (poll() == 0)
            if (now_ns() > give_up) die("completion");
    }
    // Keeps `depth` writes of `length` bytes going for `ns`; returns bytes per second.
    double stream(size_t length, uint64_t ns) {
        int out = 0;
        uint64_t done = 0;
        const uint64_t start = now_ns();
        uint64_t end = start;
        while (end - start < ns || out) {
            while (out < depth_ && end - start < ns) {
                write(length);
                ++out;
            }
            const int n = poll();
            out -= n;
            done += static_cast<uint64_t>(n);
            end = now_ns();
        }
        return static_cast<double>(done * length) / (static_cast<double>(end - start) * 1e-9);
    }
    char* buffer() { return buffer_; }
    const Address& peer() const { return *peer_; }

private:
    ibv_context* context_;
    ibv_pd* pd_;
    ibv_mr* mr_;
    ibv_cq* cq_;
    ibv_qp* qp_;
    char* buffer_;
    int depth_;
    size_t bytes_;
    const Address* peer_;
};

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v.empty() ? 0 : v[v.size() / 2];
}

template <class F> void as_nodes(int n, F run) {
    for (int node = 0; node < n; ++node) {
        if (fork() != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setenv("SOFTHCA_NODE", std::to_string(node).c_str(), 1);
        run(node);
        std::fflush(stdout);
        std::_Exit(0);
    }
    int failed = 0;
    for (int i = 0; i < n; ++i) {
        int status = 0;
        wait(&status);
        failed |= status;
    }
    if (failed) std::exit(1);
}

void writev() {
    as_nodes(2, [](int node) {
        constexpr size_t kSize = 1 << 20;
        Connection c(node, 0, 1 - node, 0, kSize, 4);
        barrier(0, 2);
        if (node == 0) {
            std::vector<double> ratio, rate;
            for (int round = 0; round < 31; ++round) {
                constexpr int kEach = 40;
                uint64_t t0 = now_ns();
                for (int i = 0; i < kEach; ++i) {
                    iovec local{c.buffer(), kSize}, remote{reinterpret_cast<void*>(c.peer().buffer), kSize};
                    if (process_vm_writev(c.peer().pid, &local, 1, &remote, 1, 0) != static_cast<ssize_t>(kSize))
                        die("process_vm_writev");
                }
                uint64_t t1 = now_ns();
                for (int i = 0; i < kEach; ++i) {
                    c.write(kSize);
                    c.wait_one();
                }
                uint64_t t2 = now_ns();
                ratio.push_back(static_cast<double>(t1 - t0) / static_cast<double>(t2 - t1));
                rate.push_back(static_cast<double>(kSize) * kEach / static_cast<double>(t2 - t1));
            }
            std::printf("write 1 MiB, rate over process_vm_writev: %.3f (median of 31 pairs; %.1f GB/s)\n",
                        median(ratio), median(rate));
        }
        barrier(1, 2);
    });
}

void rate(double gbps) {
    as_nodes(2, [gbps](int node) {
        Connection c(node, 0, 1 - node, 0, 1 << 20, 8);
        barrier(0, 2);
        if (node == 0) {
            c.stream(1 << 20, 200000000);
            std::vector<double> share;
            for (int i = 0; i < 5; ++i) share.push_back(c.stream(1 << 20, 600000000) / (gbps * 1e9 / 8));
            std::printf("link share of 1 MiB writes at %.1f Gb/s: %.4f (median of 5)\n", gbps, median(share));
        }
        barrier(1, 2);
    });
}

void fair() {
    as_nodes(3, [](int node) {
        if (node == 2) {
            Connection a(2, 0, 0, 0, 1 << 20, 8), b(2, 1, 1, 0, 1 << 20, 8);
            barrier(0, 3);
            barrier(1, 3);
            const double sum = shared->result[0] + shared->result[1];
            std::printf("two flows over one link: %.3f / %.3f of their sum (%.1f MB/s)\n", shared->result[0] / sum,
                        shared->result[1] / sum, sum / 1e6);
            return;
        }
        Connection c(node, 0, 2, node, 1 << 20, 8);
        barrier(0, 3);
        shared->result[node] = c.stream(1 << 20, 2000000000);
        barrier(1, 3);
    });
}

void behind(double chunk_us) {
    as_nodes(2, [chunk_us](int node) {
        Connection big(node, 0, 1 - node, 0, 4 << 20, 4), small(node, 1, 1 - node, 1, 4096, 4);
        barrier(0, 2);
        if (node == 0) {
            std::vector<double> alone, loaded;
            auto probe = [&](std::vector<double>& into) {
                const uint64_t t = now_ns();
                small.write(64);
                while (small.poll() == 0) {}
                into.push_back(static_cast<double>(now_ns() - t) * 1e-3);
            };
            for (int i = 0; i < 200; ++i) probe(alone);
            int out = 0;
            const uint64_t end = now_ns() + 1500000000;
            while (now_ns() < end) {
                for (; out < 4; ++out) big.write(4 << 20);
                probe(loaded);
                out -= big.poll();
            }
            while (out) out -= big.poll();
            const double extra = median(loaded) - median(alone);
            std::printf("64 B behind 4 MiB: %.1f us alone, %.1f us loaded (median), extra %.2f chunk times\n",
                        median(alone), median(loaded), extra / chunk_us);
        }
        barrier(1, 2);
    });
}

void latency() {
    as_nodes(2, [](int node) {
        Connection c(node, 0, 1 - node, 0, 4096, 4);
        // Node 0 writes its counter to the peer's first slot, node 1 answers in the second.
        const uint64_t out_slot = node ? 1024 : 0, in_slot = node ? 0 : 1024;
        auto* out = reinterpret_cast<uint64_t*>(c.buffer() + out_slot + 56);
        auto* in = reinterpret_cast<volatile uint64_t*>(c.buffer() + in_slot + 56);
        barrier(0, 2);
        // Only rounds in which neither end had to wait for a core say something about the adapter.
        std::vector<double> us(1);
        shared->waited[node][0] = run_delay();
        const uint64_t begin = now_ns();
        for (uint64_t i = 1; i <= kRounds; ++i) {
            const uint64_t t = now_ns();
            auto send = [&] {
                *out = i;
                c.write(64, out_slot);
            };
            if (node == 0 && t - begin > 6000000000u) shared->stop.store(1);
            if (shared->stop.load()) break;
            if (node == 0) send();
            while (*in != i && !shared->stop.load()) {
                c.poll();
                if (now_ns() > t + 5000000000u) die("ping-pong");
            }
            if (node == 1) send();
            us.push_back(static_cast<double>(now_ns() - t) * 1e-3 / 2);
            shared->waited[node][i] = run_delay();
        }
        barrier(1, 2);
        if (node == 1) return;
        std::vector<double> good;
        for (size_t i = 1; i + 1 < us.size(); ++i)
            if (shared->waited[0][i] - shared->waited[0][i - 1] < 1000 &&
                shared->waited[1][i] - shared->waited[1][i - 1] < 1000)
                good.push_back(us[i]);
        if (good.size() < 100)
            std::printf("64 B one-way latency: unknown (%zu undisturbed rounds of %zu)\n", good.size(), us.size() - 1);
        else
            std::printf("64 B one-way latency: %.2f us (median of %zu undisturbed rounds of %zu)\n", median(good),
                        good.size(), us.size() - 1);
    });
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{"Measures the emulated fabric through plain verbs; run it under `softhca run --fabric F -- ...`."};
    std::string what;
    double gbps = 8, chunk_us = 16;
    app.add_option("test", what, "writev, rate, fair, behind or latency")
        ->required()
        ->check(CLI::IsMember({"writev", "rate", "fair", "behind", "latency"}));
    app.add_option("--gbps", gbps, "data rate of the link, Gb/s (test: rate)")->capture_default_str();
    app.add_option("--chunk-us", chunk_us, "serialisation time of one chunk, us (test: behind)")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    shared =
        static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (shared == MAP_FAILED) die("mmap");
    if (what == "writev")
        writev();
    else if (what == "rate")
        rate(gbps);
    else if (what == "fair")
        fair();
    else if (what == "behind")
        behind(chunk_us);
    else
        latency();
    return 0;
}
