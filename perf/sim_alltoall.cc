// Pairwise all-to-all over plain verbs in virtual time: how fast the emulated adapter and the exact fabric model run,
// and what a reliable connection costs in memory.
//   bench_sim_alltoall [--fabric fattree-144] [--nodes 64] [--bytes 1048576] [--copy]
// In step k every node writes (RDMA with immediate) to the node k further on and waits for what comes from k before.
// Every pair has a connection of its own. Payload is not copied unless asked for.
#include <sys/resource.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/objects.h"
#include "sim/sim_verbs.h"

using namespace softhca;
using namespace softhca::sim;

namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

uint64_t resident() {
    long pages = 0, total = 0;
    if (FILE* f = std::fopen("/proc/self/statm", "r")) {
        if (std::fscanf(f, "%ld %ld", &total, &pages) != 2) pages = 0;
        std::fclose(f);
    }
    return static_cast<uint64_t>(pages) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

struct Node {
    std::unique_ptr<Hca> hca;
    std::vector<std::unique_ptr<Rc>> to; // by distance, [0] unused
    uint32_t step = 0, sent = 0, received = 0;
};

struct Run {
    World& world;
    std::vector<Node> nodes;
    uint32_t bytes;
    uint32_t finished = 0;

    void send(uint32_t i) {
        Node& n = nodes[i];
        if (++n.step == nodes.size()) {
            ++finished;
            return;
        }
        Node& peer = nodes[(i + n.step) % nodes.size()];
        n.to[n.step]->post(IBV_WR_RDMA_WRITE_WITH_IMM, n.hca->mrs[0], 0, bytes, peer.hca->mrs[0]);
    }
    void progress(uint32_t i) {
        Node& n = nodes[i];
        ibv_wc wc[16];
        for (int got; (got = ibv_poll_cq(n.hca->cq, 16, wc)) > 0;)
            for (int k = 0; k < got; ++k) {
                must(wc[k].status == IBV_WC_SUCCESS, ibv_wc_status_str(wc[k].status));
                ++(wc[k].opcode == IBV_WC_RECV_RDMA_WITH_IMM ? n.received : n.sent);
            }
        while (n.step < nodes.size() && n.sent >= n.step && n.received >= n.step) send(i);
    }
};

// Memory that the program asked for by the depth of its queues, per connection end. The send ring is made when used.
uint64_t receive_ring_bytes(const Rc& rc, World& world) {
    const RecvQueue& q = world.segment().rq(rc.qp->qp_num & (kMaxQps - 1));
    return (q.mask + 1) * sizeof(uint32_t) + uint64_t{q.entries} * q.stride;
}
// Of the node's completion queue, which all its connections share.
uint64_t completion_ring_bytes(const Node& n, uint32_t connections) {
    return (std::bit_ceil(static_cast<uint32_t>(n.hca->cq->cqe)) * sizeof(Cqe)) / connections;
}
constexpr uint64_t kSendRingBytes = 4 * (sizeof(SendWqe) + sizeof(ibv_sge)); // the least that a QP allocates

} // namespace

int main(int argc, char** argv) {
    std::string fabric = "fattree-144";
    uint32_t count = 64, bytes = 1 << 20;
    bool copy = false;
    for (int i = 1; i < argc; ++i) {
        const std::string a = argv[i];
        if (a == "--copy")
            copy = true;
        else if (i + 1 < argc && a == "--fabric")
            fabric = argv[++i];
        else if (i + 1 < argc && a == "--nodes")
            count = static_cast<uint32_t>(std::atoi(argv[++i]));
        else if (i + 1 < argc && a == "--bytes")
            bytes = static_cast<uint32_t>(std::atoi(argv[++i]));
        else {
            std::fprintf(stderr, "usage: %s [--fabric NAME] [--nodes N] [--bytes N] [--copy]\n", argv[0]);
            return 2;
        }
    }
    World world(fabric, {.seed = 1, .payload_limit = copy ? 0u : 1u});
    if (count < 2 || count > world.nodes()) {
        std::fprintf(stderr, "--nodes: %u is not within 2..%u (nodes of %s)\n", count, world.nodes(), fabric.c_str());
        return 2;
    }
    std::vector<char> memory(bytes);
    Run run{world, std::vector<Node>(count), bytes};
    for (uint32_t i = 0; i < count; ++i) {
        run.nodes[i].hca = std::make_unique<Hca>(world, i, static_cast<int>(2 * count));
        run.nodes[i].hca->reg(memory.data(), memory.size());
    }
    const uint64_t before = resident();
    const double t0 = seconds();
    for (Node& n : run.nodes)
        for (uint32_t d = 0; d < count; ++d) n.to.push_back(d ? std::make_unique<Rc>(*n.hca, 2, 2) : nullptr);
    for (uint32_t i = 0; i < count; ++i)
        for (uint32_t d = 1; d < count; ++d) {
            Rc& rc = *run.nodes[i].to[d];
            rc.connect(*run.nodes[(i + d) % count].to[count - d]);
            rc.recv(run.nodes[i].hca->mrs[0], 0, 0);
        }
    const double t1 = seconds();
    const uint64_t connected = resident();
    const uint64_t qps = uint64_t{count} * (count - 1);
    const uint64_t rings = receive_ring_bytes(*run.nodes[0].to[1], world);

    const Nanos start = world.now();
    const uint64_t events = world.events();
    for (uint32_t i = 0; i < count; ++i) run.send(i);
    while (run.finished < count) {
        must(world.step(), "nothing happens any more");
        for (const uint32_t node : world.touched()) run.progress(node);
    }
    const double wall = seconds() - t1;
    const double virtual_ms = static_cast<double>(world.now() - start) * 1e-6;
    const double total = static_cast<double>(qps) * bytes;
    uint64_t chunk_hops = 0, wait = 0;
    for (uint32_t i = 0; i < world.image().links; ++i) {
        chunk_hops += world.link(i).chunks;
        wait += world.link(i).wait_ns;
    }
    const uint64_t used = resident();
    const auto fired = static_cast<double>(world.events() - events);
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    std::printf("fabric            %s, %u nodes, %u bytes per pair%s\n", world.image().name, count, bytes,
                copy ? ", copied" : "");
    std::printf("virtual time      %.3f ms, %.0f MB/s per node\n", virtual_ms, total / count / virtual_ms * 1e-3);
    std::printf("wall time         %.2f s (set-up %.2f s)\n", wall, t1 - t0);
    std::printf("events            %.0f, %.2f us each\n", fired, wall / fired * 1e6);
    std::printf("chunks x links    %llu, %.2f us each\n", static_cast<unsigned long long>(chunk_hops),
                wall / static_cast<double>(chunk_hops) * 1e6);
    std::printf("mean wait         %.2f us per chunk and link\n",
                static_cast<double>(wait) * 1e-3 / static_cast<double>(chunk_hops));
    const auto per_qp = [&](uint64_t now, uint64_t without) {
        return static_cast<double>(now - before) / static_cast<double>(qps) - static_cast<double>(without);
    };
    std::printf("memory per QP     %.0f B connected, %.0f B used, on top of its rings (%llu QPs)\n",
                per_qp(connected, rings), per_qp(used, rings + kSendRingBytes + completion_ring_bytes(run.nodes[0], count - 1)), static_cast<unsigned long long>(qps));
    std::printf("resident at end   %.0f MiB, peak %ld MiB\n", static_cast<double>(resident()) / 1048576,
                usage.ru_maxrss / 1024);
    std::printf("fingerprint       %016llx\n", static_cast<unsigned long long>(world.fingerprint()));
    for (Node& n : run.nodes) n.to.clear();
    return 0;
}
