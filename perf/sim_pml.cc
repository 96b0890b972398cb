// EPC through the MPI modules' core, in virtual time: the setting of the dissertation's 6.3 (perf/findings/engines.md:
// four queue pairs on a port with four send engines; 750 ns of the processor per request and per completion). One
// process sends windows of 64 messages of MPI_Isend to another one; each is a request, the receiver's read, a finish
// message. `even` cuts each read in four; `epc` is told by the core that nobody waits for them one by one.
//
//     bench_sim_pml [--size BYTES] [--least RATIO] [--fabric FILE] [--silent]
//
// Prints MB/s of both and their ratio; exit code 1 if it is below RATIO. --silent: the core does not tell.
//
//     bench_sim_pml --fence RANKS [--most RATIO] [--fabric FILE]
//
// Prints the time of a fence behind a put of 8 bytes to each of four neighbours, and of a flush and a barrier, which is
// what a library has without a fence of its own; exit code 1 if the ratio is above RATIO.
//
//     bench_sim_pml --epoch BYTES [--in-flight BYTES] [--least RATIO] [--fabric FILE]
//
// Prints MB/s of epochs of 16 puts and 16 gets over one rail and over all of them: one process that flushes, both, and
// both with a fence. One rail by itself does not always fill both ways. So the second ratio is to the fastest of the
// three on one rail. Exit code 1 if that one is below RATIO in any of the three. --in-flight: osc_mp_in_flight.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

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
    std::size_t size = 16384, epoch = 0, in_flight = 262144; // the last: the default of osc/mp
    double least = 0, most = 1e9;
    unsigned fence = 0; // ranks
    bool silent = false;
};

class Windows {
public:
    Windows(MpiJob& job, std::size_t size)
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
    MpiJob& job_;
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
    mp_config_t core = module_defaults();
    core.eager_limit = 8192;
    core.zero_copy = SIZE_MAX;
    if (o.silent) core.hint_limit = SIZE_MAX;
    MpiJob job(cluster, core);
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

// Processes with a window each that put, end the epoch, and begin anew.
class Fences {
public:
    Fences(MpiJob& job, bool own) : job_(job), own_(own), sides_(job.cluster.size()) {
        job.on_completed = [](mp_request_t&) {};
        const unsigned ranks = job.cluster.size();
        std::vector<std::uint64_t> names(ranks);
        for (unsigned rank = 0; rank < ranks; ++rank) names[rank] = rank;
        for (unsigned rank = 0; rank < ranks; ++rank) {
            Side& side = sides_[rank];
            side.window = job[rank].windows.create({.id = 1,
                                                    .rank = rank,
                                                    .ranks = ranks,
                                                    .base = side.memory,
                                                    .size = sizeof side.memory,
                                                    .dynamic = false,
                                                    .processes = names.data(),
                                                    .in_flight = 65536},
                                                   {.apply = nullptr, .rma_done = nullptr});
            const auto keys = side.window->keys();
            stride_ = keys.size();
            keys_.insert(keys_.end(), keys.begin(), keys.end());
        }
        for (unsigned rank = 0; rank < ranks; ++rank) {
            sides_[rank].window->set_keys(keys_.data(), stride_);
            sides_[rank].window->set_direct_fences(own);
            job[rank].turn = [this, rank] { return turn(rank); };
            (void)job[rank].node.services().at(job.cluster.world.now() + 1, [] {});
        }
    }
    [[nodiscard]] std::uint64_t ended() const { return sides_[0].ended; }

private:
    struct Side {
        std::uint64_t memory[8] = {}, word = 7;
        glue::Window* window = nullptr;
        std::uint64_t ended = 0;
        bool put = false, flushed = false;
    };
    bool turn(unsigned rank) {
        Side& side = sides_[rank];
        bool any = false;
        for (;;) {
            if (!std::exchange(side.put, true)) put(side, rank), any = true;
            if (!own_ && !side.flushed && !(side.flushed = side.window->flushed(MP_ALL_RANKS, false))) return any;
            if (own_ ? !side.window->fence() : !side.window->barrier()) return any;
            side.put = side.flushed = false;
            ++side.ended;
        }
    }
    void put(Side& side, unsigned rank) {
        const auto ranks = static_cast<unsigned>(sides_.size());
        for (unsigned k = 0; k < 4; ++k) {
            const unsigned target = (rank + (k < 2 ? k + 1 : ranks - (k - 1))) % ranks;
            if (side.window->put_now(target, &side.word, 8, reinterpret_cast<std::uint64_t>(&sides_[target].memory[k]),
                                     own_ ? MP_ACTIVE : MP_PASSIVE))
                continue;
            const mp_run_t run{reinterpret_cast<std::uint64_t>(&sides_[target].memory[k]), 0, 8, 1};
            const mp_rma_t rma{.kind = MP_PUT,
                               .target = target,
                               .runs = &run,
                               .run_count = 1,
                               .origin = {&side.word, 8, nullptr},
                               .result = {nullptr, 0, nullptr},
                               .op = 0,
                               .type = 0,
                               .unit = 1,
                               .extent = 1,
                               .user = nullptr};
            if (side.window->start(rma) != MP_OK) throw std::runtime_error("a put cannot start");
        }
    }
    MpiJob& job_;
    const bool own_;
    std::vector<Side> sides_;
    std::vector<std::byte> keys_;
    std::size_t stride_ = 0;
};

// Epochs of 16 puts and 16 gets between two processes, which end by a flush or by a fence.
class Epochs {
public:
    static constexpr unsigned kMoves = 16;
    Epochs(MpiJob& job, std::size_t size, std::size_t in_flight, unsigned origins, bool fenced)
        : size_(size), origins_(origins), fenced_(fenced) {
        job.on_completed = [](mp_request_t&) {};
        const std::uint64_t names[2] = {0, 1};
        std::size_t stride = 0;
        for (unsigned rank = 0; rank < 2; ++rank) {
            Side& side = sides_[rank];
            side.exposed.resize(2 * kMoves * size);
            side.out.resize(kMoves * size);
            side.in.resize(kMoves * size);
            for (std::size_t i = 0; i < side.out.size(); ++i) {
                side.out[i] = static_cast<std::uint8_t>(i * 7 + i / size + rank);
                side.exposed[kMoves * size + i] = static_cast<std::uint8_t>(i * 11 + i / size + rank);
            }
            side.window = job[rank].windows.create({.id = 1,
                                                    .rank = rank,
                                                    .ranks = 2,
                                                    .base = side.exposed.data(),
                                                    .size = side.exposed.size(),
                                                    .dynamic = false,
                                                    .processes = names,
                                                    .in_flight = in_flight},
                                                   {.apply = nullptr, .rma_done = nullptr});
            const auto keys = side.window->keys();
            stride = keys.size();
            keys_.insert(keys_.end(), keys.begin(), keys.end());
        }
        for (unsigned rank = 0; rank < 2; ++rank) {
            sides_[rank].window->set_keys(keys_.data(), stride);
            sides_[rank].window->set_direct_fences(true);
            job[rank].turn = [this, rank] { return turn(rank); };
            (void)job[rank].node.services().at(job.cluster.world.now() + 1, [] {});
        }
    }
    [[nodiscard]] std::uint64_t ended() const { return sides_[0].ended + sides_[1].ended; }
    // What was moved: every origin has the other's bytes, and the other has its.
    void verify() const {
        for (unsigned rank = 0; rank < origins_; ++rank) {
            const Side &mine = sides_[rank], &other = sides_[1 - rank];
            if (!std::equal(mine.out.begin(), mine.out.end(), other.exposed.begin()) ||
                !std::equal(mine.in.begin(), mine.in.end(), other.exposed.begin() + std::ptrdiff_t(kMoves * size_)))
                throw std::runtime_error("an epoch has moved wrong bytes");
        }
    }

private:
    struct Side {
        std::vector<std::uint8_t> exposed, out, in; // exposed: what the other puts, then what it gets
        glue::Window* window = nullptr;
        std::uint64_t ended = 0;
        bool started = false;
    };
    bool turn(unsigned rank) {
        Side& side = sides_[rank];
        bool any = false;
        while (rank < origins_ || fenced_) {
            if (!std::exchange(side.started, true)) {
                if (rank < origins_) start(side, 1 - rank);
                any = true;
            }
            if (fenced_ ? !side.window->fence() : !side.window->flushed(1 - rank, false)) break;
            side.started = false;
            ++side.ended;
        }
        return any;
    }
    // As programs write it: all puts, then all gets. The core takes turns.
    void start(Side& side, unsigned target) {
        for (const mp_rma_kind_t kind : {MP_PUT, MP_GET})
            for (unsigned i = 0; i < kMoves; ++i) {
                const std::size_t there = (kind == MP_PUT ? i : kMoves + i) * size_;
                const mp_run_t run{reinterpret_cast<std::uint64_t>(sides_[target].exposed.data()) + there, 0, size_, 1};
                const mp_data_t mine{(kind == MP_PUT ? side.out : side.in).data() + i * size_, size_, nullptr};
                const mp_data_t none{nullptr, 0, nullptr};
                const mp_rma_t rma{.kind = kind,
                                   .target = target,
                                   .runs = &run,
                                   .run_count = 1,
                                   .origin = kind == MP_PUT ? mine : none,
                                   .result = kind == MP_GET ? mine : none,
                                   .op = 0,
                                   .type = 0,
                                   .unit = 1,
                                   .extent = 1,
                                   .user = nullptr};
                if (side.window->start(rma) != MP_OK) throw std::runtime_error("a put or get cannot start");
            }
    }
    const std::size_t size_;
    const unsigned origins_;
    const bool fenced_;
    Side sides_[2];
    std::vector<std::byte> keys_;
};

// MB/s of all that is moved, both ways together. No rails: all.
double epoch(const Options& o, unsigned origins, bool fenced, const std::vector<std::string>& rails) {
    softhca::sim::HostCosts host;
    host.post = host.completion = 150;
    Cluster cluster(o.fabric, 2, {}, {.seed = 1, .host = host}, {.rails = rails});
    MpiJob job(cluster, module_defaults());
    Epochs epochs(job, o.epoch, o.in_flight, origins, fenced);
    const unsigned counted = fenced ? 2 : origins; // whose epochs end
    const auto run = [&](std::uint64_t count) {
        const std::uint64_t end = epochs.ended() + count * counted;
        if (!cluster.until([&] { return epochs.ended() >= end; })) throw std::runtime_error("an epoch does not end");
    };
    run(5); // connects
    const Nanos begin = cluster.world.now();
    const std::uint64_t count = 20;
    run(count);
    epochs.verify();
    return 1e3 * static_cast<double>(count * origins * 2 * Epochs::kMoves * o.epoch) /
           static_cast<double>(cluster.world.now() - begin);
}

// us of one.
double fence(const Options& o, bool own) {
    softhca::sim::HostCosts host;
    host.post = host.completion = 150;
    Cluster cluster(o.fabric, o.fence, {}, {.seed = 1, .host = host});
    MpiJob job(cluster, module_defaults());
    Fences fences(job, own);
    const auto run = [&](std::uint64_t count) {
        const std::uint64_t end = fences.ended() + count;
        if (!cluster.until([&] { return fences.ended() >= end; })) throw std::runtime_error("a fence does not end");
    };
    run(50); // connects
    const Nanos begin = cluster.world.now();
    run(200);
    return static_cast<double>(cluster.world.now() - begin) / 200e3;
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
        } else if (is("--fence") && more) {
            o.fence = static_cast<unsigned>(std::atoi(argv[++i]));
        } else if (is("--epoch") && more && (o.epoch = std::strtoull(argv[i + 1], nullptr, 10)) > 0) {
            ++i;
        } else if (is("--in-flight") && more && (o.in_flight = std::strtoull(argv[i + 1], nullptr, 10)) > 0) {
            ++i;
        } else if (is("--most") && more) {
            o.most = std::atof(argv[++i]);
        } else if (is("--fabric") && more) {
            o.fabric = argv[++i];
        } else {
            std::fprintf(stderr, "bench_sim_pml [--size BYTES] [--least RATIO] [--fabric FILE] [--silent], or\n"
                                 "bench_sim_pml --fence RANKS [--most RATIO] [--fabric FILE], or\n"
                                 "bench_sim_pml --epoch BYTES [--in-flight BYTES] [--least RATIO] [--fabric FILE]\n");
            return 2;
        }
    }
    try {
        if (o.fence) {
            const double own = fence(o, true), other = fence(o, false);
            std::printf("%u ranks: fence %.3f us, flush and barrier %.3f us, ratio %.3f\n", o.fence, own, other,
                        own / other);
            return own / other > o.most;
        }
        if (o.epoch) {
            static constexpr struct {
                unsigned origins;
                bool fenced;
                const char* name;
            } kEnds[] = {{1, false, "one process, a flush"}, {2, false, "both, a flush"}, {2, true, "both, a fence"}};
            double one[std::size(kEnds)];
            for (std::size_t i = 0; i < std::size(kEnds); ++i)
                one[i] = epoch(o, kEnds[i].origins, kEnds[i].fenced, {"softhca_0:1"});
            const double fastest = *std::max_element(std::begin(one), std::end(one));
            bool met = true;
            for (std::size_t i = 0; i < std::size(kEnds); ++i) {
                const double all = epoch(o, kEnds[i].origins, kEnds[i].fenced, {});
                std::printf("%zu B, %s: one rail %.1f MB/s, all rails %.1f MB/s, ratio %.3f, to the fastest %.3f\n",
                            o.epoch, kEnds[i].name, one[i], all, all / one[i], all / fastest);
                met &= all / fastest >= o.least;
            }
            return !met;
        }
        const double even = rate(o, "even"), epc = rate(o, "epc");
        std::printf("%zu B: even %.1f MB/s, epc %.1f MB/s, epc / even %.3f\n", o.size, even, epc, epc / even);
        return epc / even < o.least;
    } catch (const std::exception& exception) {
        std::fprintf(stderr, "bench_sim_pml: %s\n", exception.what());
        return 2;
    }
}
