// Pairwise all-to-all over plain verbs in virtual time: how fast the emulated adapter and the exact fabric model run,
// and what a reliable connection costs in memory.
//   bench_sim_alltoall [--fabric fattree-144] [--nodes 64] [--paths 1] [--bytes 1048576] [--copy] [--per-qp BYTES]
// In step k every node writes (RDMA with immediate) to the node k further on and waits for what comes from k before.
// Every pair has a connection of its own over each of the first `paths` LIDs of its ports, which share the bytes.
// Payload is not copied unless asked for. The peak is shown against 16 GiB, what 144 nodes with 12 paths between every
// pair may take.
// --per-qp: fails if a queue pair has taken more than that, with everything that there is for it.
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

#include "softhca/verbs.h"

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
    std::vector<std::unique_ptr<Rc>> to; // by distance and path; distance 0 unused
    uint32_t step = 0, sent = 0, received = 0;
};

struct Run {
    World& world;
    std::vector<Node> nodes;
    uint32_t bytes, paths;
    uint32_t finished = 0;

    Rc& rc(uint32_t i, uint32_t distance, uint32_t path) { return *nodes[i].to[distance * paths + path]; }

    void send(uint32_t i) {
        Node& n = nodes[i];
        if (++n.step == nodes.size()) {
            ++finished;
            return;
        }
        Node& peer = nodes[(i + n.step) % nodes.size()];
        for (uint32_t p = 0; p < paths; ++p)
            rc(i, n.step, p).post(IBV_WR_RDMA_WRITE_WITH_IMM, n.hca->mrs[0], 0, bytes / paths, peer.hca->mrs[0]);
    }
    void progress(uint32_t i) {
        Node& n = nodes[i];
        ibv_wc wc[16];
        for (int got; (got = ibv_poll_cq(n.hca->cq, 16, wc)) > 0;)
            for (int k = 0; k < got; ++k) {
                must(wc[k].status == IBV_WC_SUCCESS, ibv_wc_status_str(wc[k].status));
                ++(wc[k].opcode == IBV_WC_RECV_RDMA_WITH_IMM ? n.received : n.sent);
            }
        while (n.step < nodes.size() && n.sent >= n.step * paths && n.received >= n.step * paths) send(i);
    }
};

} // namespace

int main(int argc, char** argv) {
    std::string fabric = "fattree-144";
    uint32_t count = 64, bytes = 1 << 20, paths = 1, limit = 0;
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
        else if (i + 1 < argc && a == "--paths")
            paths = static_cast<uint32_t>(std::atoi(argv[++i]));
        else if (i + 1 < argc && a == "--per-qp")
            limit = static_cast<uint32_t>(std::atoi(argv[++i]));
        else {
            std::fprintf(stderr,
                         "usage: %s [--fabric NAME] [--nodes N] [--paths N] [--bytes N] [--copy] [--per-qp BYTES]\n",
                         argv[0]);
            return 2;
        }
    }
    World world(fabric, {.seed = 1, .payload_limit = copy ? 0u : 1u});
    if (count < 2 || count > world.nodes()) {
        std::fprintf(stderr, "--nodes: %u is not within 2..%u (nodes of %s)\n", count, world.nodes(), fabric.c_str());
        return 2;
    }
    if (const uint32_t lids = 1u << world.image().port(0).lmc; paths < 1 || paths > lids || bytes < paths) {
        std::fprintf(stderr, "--paths: %u is not within 1..%u (LIDs of a port), or more than --bytes\n", paths, lids);
        return 2;
    }
    std::vector<char> memory(bytes);
    Run run{world, std::vector<Node>(count), bytes, paths};
    for (uint32_t i = 0; i < count; ++i) {
        run.nodes[i].hca = std::make_unique<Hca>(world, i, static_cast<int>(2 * count * paths));
        run.nodes[i].hca->reg(memory.data(), memory.size());
    }
    const uint64_t before = resident();
    const double t0 = seconds();
    for (Node& n : run.nodes)
        for (uint32_t d = 0; d < count * paths; ++d)
            n.to.push_back(d >= paths ? std::make_unique<Rc>(*n.hca, 2, 2) : nullptr);
    for (uint32_t i = 0; i < count; ++i)
        for (uint32_t d = 1; d < count; ++d)
            for (uint32_t p = 0; p < paths; ++p) {
                Rc& rc = run.rc(i, d, p);
                rc.connect(run.rc((i + d) % count, count - d, p), static_cast<uint8_t>(p));
                rc.recv(run.nodes[i].hca->mrs[0], 0, 0);
            }
    const double t1 = seconds();
    const uint64_t connected = resident();
    const uint64_t qps = uint64_t{count} * (count - 1) * paths;
    // What the program asked for by the depth of its queues. All connections of a node share a completion queue.
    const World::QueueBytes queues = world.queue_bytes(run.rc(0, 1, 0).qp->qp_num);
    const uint64_t completions = std::bit_ceil(static_cast<uint32_t>(run.nodes[0].hca->cq->cqe)) * queues.completion;

    const Nanos start = world.now();
    const uint64_t events = world.events();
    for (uint32_t i = 0; i < count; ++i) run.send(i);
    while (run.finished < count) {
        must(world.step(), "nothing happens any more");
        for (const uint32_t node : world.touched()) run.progress(node);
    }
    const double wall = seconds() - t1;
    const double virtual_ms = static_cast<double>(world.now() - start) * 1e-6;
    const double total = static_cast<double>(qps) * (bytes / paths);
    uint64_t chunk_hops = 0, wait = 0;
    for (uint32_t i = 0; i < world.image().links; ++i) {
        chunk_hops += world.link(i).chunks;
        wait += world.link(i).wait_ns;
    }
    const uint64_t used = resident();
    const auto fired = static_cast<double>(world.events() - events);
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    std::printf("fabric            %s, %u nodes, %u paths, %u bytes per pair%s\n", world.image().name, count, paths,
                bytes, copy ? ", copied" : "");
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
                per_qp(connected, queues.receives),
                per_qp(used, queues.receives + queues.least_send + completions / ((count - 1) * paths)),
                static_cast<unsigned long long>(qps));
    std::printf("resident at end   %.0f MiB, peak %ld MiB\n", static_cast<double>(resident()) / 1048576,
                usage.ru_maxrss / 1024);
    std::printf("fingerprint       %016llx\n", static_cast<unsigned long long>(world.fingerprint()));
    const double all = static_cast<double>(used - before) / static_cast<double>(qps), gib = 1 << 30;
    std::printf("with everything   %.0f B per QP: 144 nodes x 12 paths take %.2f GiB; peak here %.2f of 16 GiB\n", all,
                all * 144 * 143 * 12 / gib, static_cast<double>(usage.ru_maxrss) * 1024 / gib);
    for (Node& n : run.nodes) n.to.clear();
    if (limit && all > limit) {
        std::fprintf(stderr, "%.0f B per QP are more than %u\n", all, limit);
        return 1;
    }
    return 0;
}
