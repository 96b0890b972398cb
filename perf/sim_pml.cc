// EPC through the MPI modules' core, in virtual time: the setting of the dissertation's 6.3 (perf/README.md, `engines`:
// four queue pairs on a port with four send engines; 750 ns of the processor per request and per completion). One
// process sends windows of 64 messages of MPI_Isend to another one; each is a request, the receiver's read, a finish
// message. `even` cuts each read in four; `epc` is told by the core that nobody waits for them one by one.
//
//     bench_sim_pml [--size BYTES] [--least RATIO] [--fabric FILE] [--silent]
//
// Prints MB/s of both and their ratio; exit code 1 if it is below RATIO. --silent: the core does not tell.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "pml/sim_job.h"
#include "uct_mp/schedule/policy_factory.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
using glue::Hint;
using glue::Request;

namespace {

constexpr unsigned kWindow = 64;

struct Options {
    std::string fabric = "twelve-x.yaml";
    std::size_t size = 16384;
    double least = 0;
    bool silent = false;
};

class Windows {
public:
    Windows(Job& job, std::size_t size)
        : job_(job), size_(size), sent_(job.cluster.node(0).memory(size)), received_(job.cluster.node(1).memory(size)) {
        job.on_completed = [this](mp_request_t& request) { completed(request); };
        next();
    }
    std::uint64_t bytes = 0;
    Nanos ended = 0;

private:
    static constexpr std::uint32_t kContext = 1;
    void next() {
        left_ = kWindow + 1;
        for (mp_request_storage_t& each : receives_)
            job_[1].engine.receive(Request::of(each), {kContext, 0, 1}, data(received_), Hint::non_blocking);
        job_[0].engine.receive(Request::of(answered_), {kContext, 1, 2}, {}, Hint::blocking);
        for (mp_request_storage_t& each : sends_)
            job_[0].engine.send(Request::of(each), job_[0].peer(1), {kContext, 0, 1}, data(sent_), false,
                                Hint::non_blocking);
    }
    [[nodiscard]] mp_data_t data(const Node::Memory& memory) const { return {memory.data, size_, nullptr}; }
    void completed(mp_request_t& request) {
        if (request.status.error != MP_OK) throw std::runtime_error("a request has failed");
        const auto* const storage = reinterpret_cast<mp_request_storage_t*>(&request);
        if (storage >= receives_ && storage < receives_ + kWindow && ++got_ == kWindow) {
            got_ = 0;
            job_[1].engine.send(Request::of(answer_), job_[1].peer(0), {kContext, 1, 2}, {}, false, Hint::blocking);
        }
        if ((storage >= sends_ && storage < sends_ + kWindow) || storage == &answered_)
            if (--left_ == 0) over_ = true;
        if (!std::exchange(over_, false)) return;
        bytes += kWindow * size_;
        ended = job_.cluster.world.now();
        job_[0].node.services().at(ended, [this] { next(); });
    }
    Job& job_;
    const std::size_t size_;
    Node::Memory sent_, received_;
    mp_request_storage_t sends_[kWindow] = {}, receives_[kWindow] = {}, answer_{}, answered_{};
    unsigned left_ = 0, got_ = 0;
    bool over_ = false;
};

double rate(const Options& o, const char* policy) {
    channel::Config config;
    const auto choice = schedule::make_policy(policy, "--policy");
    if (!choice.config) throw std::runtime_error(choice.error);
    config.policy = *choice.config;
    config.paths.num_paths = 4;
    softhca::sim::HostCosts host;
    host.post = host.completion = 750;
    Cluster cluster(o.fabric, 2, config, {.seed = 1, .payload_limit = 1024, .host = host});
    Job job(cluster, {.process = 0,
                      .transports = nullptr,
                      .local = nullptr,
                      .eager_limit = 8192,
                      .zero_copy = SIZE_MAX,
                      .hint_limit = o.silent ? SIZE_MAX : 16384,
                      .rendezvous_by_put = false,
                      .watch_interval = MP_NEVER});
    Windows windows(job, o.size);
    const Nanos run = std::max<Nanos>(20, o.size / 2500) * 1'000'000;
    cluster.run_for(5'000'000);
    const std::uint64_t before = windows.bytes;
    const Nanos begin = windows.ended;
    cluster.run_for(run);
    job.on_completed = [](mp_request_t&) {};
    if (windows.bytes == before) throw std::runtime_error("no window has ended");
    return 1e3 * static_cast<double>(windows.bytes - before) / static_cast<double>(windows.ended - begin);
}

} // namespace

int main(int argc, char** argv) {
    Options o;
    for (int i = 1; i < argc; ++i) {
        const auto is = [&](const char* name) { return std::strcmp(argv[i], name) == 0; };
        const bool more = i + 1 < argc;
        if (is("--silent")) {
            o.silent = true;
        } else if (is("--size") && more) {
            o.size = std::strtoull(argv[++i], nullptr, 10);
        } else if (is("--least") && more) {
            o.least = std::atof(argv[++i]);
        } else if (is("--fabric") && more) {
            o.fabric = argv[++i];
        } else {
            std::fprintf(stderr, "bench_sim_pml [--size BYTES] [--least RATIO] [--fabric FILE] [--silent]\n");
            return 2;
        }
    }
    try {
        const double even = rate(o, "even"), epc = rate(o, "epc");
        std::printf("%zu B: even %.1f MB/s, epc %.1f MB/s, epc / even %.3f\n", o.size, even, epc, epc / even);
        return epc / even < o.least;
    } catch (const std::exception& exception) {
        std::fprintf(stderr, "bench_sim_pml: %s\n", exception.what());
        return 2;
    }
}
