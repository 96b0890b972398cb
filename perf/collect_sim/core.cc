// Small operations by the core of coll/mp (pml_glue/core/collect), and by the algorithms of coll/tuned and libnbc over
// messages of pml/mp's core: the same transport, the same costs of processors. Matching is not charged.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "job.h"
#include "pml/group_config.h"
#include "pml/sim_job.h"
#include "pml_glue/core/collect/group.h"
#include "rounds.h"

namespace ucx_mp::collect_sim {

namespace {

using glue::GroupOperation;
using glue::Request;

channel::Config queues() {
    channel::Config config;
    config.receive_depth = 64;
    config.send_depth = 64;
    config.background = false;
    return config;
}

std::vector<unsigned> hosts_of(const Options& o) {
    std::vector<unsigned> out(o.ranks);
    for (unsigned i = 0; i < o.ranks; ++i) out[i] = i / o.per_node;
    return out;
}

class World {
public:
    explicit World(const Options& o)
        : cluster_(o.fabric, hosts_of(o), std::vector<channel::Config>(o.ranks, queues()), {.seed = 1},
                   std::vector<verbs::DeviceConfig>(o.ranks, {.rails = {"softhca_0:1"}})),
          job_(cluster_, sim::module_defaults(),
               {.latency = o.per_node > 1 ? o.local_latency : 0, .processor = o.local_overhead / 2}) {
        job_.on_completed = [](mp_request_t& request) {
            if (request.status.error != MP_OK) throw std::runtime_error("a message has failed");
        };
        for (unsigned i = 0; i < o.ranks; ++i) {
            mp_hooks_t hooks{};
            groups_.push_back(std::make_unique<glue::Groups>(job_[i].engine, job_[i].port, hooks));
            mp_group_config_t config = glue::test::group_config(i, o.ranks);
            config.latency = o.latency;
            config.overhead = o.overhead;
            config.within_latency = o.by_hosts && o.per_node > 1 ? o.local_latency : 0;
            config.within_overhead = o.local_overhead;
            group_.push_back(groups_[i]->create(config));
            const auto own = cluster_.node(i).on_turn;
            processes_.push_back(std::make_unique<Process>(cluster_, i));
            processes_[i]->progress = [this, i, own](bool) { return own() | (groups_[i]->progress() != 0); };
        }
        calls_.resize(o.ranks);
    }
    ~World() {
        for (auto& one : processes_) one->progress = {};
        for (glue::Group* one : group_) one->free();
        groups_.clear();
    }
    // us of a call, which is `parts` operations of `bytes`; the mean of `times` in a row. `rounds`: of messages, by
    // rank; else by the core's own plans.
    double measure(unsigned times, unsigned parts, std::size_t bytes, const std::vector<Rounds>* rounds) {
        (void)run(30, parts, bytes, rounds); // connects, and what is learned
        return double(run(times, parts, bytes, rounds)) / 1e3 / times;
    }

private:
    struct Call {
        mp_collective_storage_t storage{};
        std::vector<mp_request_storage_t> requests;
        std::vector<std::byte> in, out;
    };
    Nanos run(unsigned times, unsigned parts, std::size_t bytes, const std::vector<Rounds>* rounds) {
        const Nanos begin = cluster_.world.now();
        for (unsigned i = 0; i < processes_.size(); ++i)
            processes_[i]->run([&](Process& p) {
                return rounds ? by_messages(p, i, times * parts, bytes, (*rounds)[i])
                              : by_core(p, i, times * parts, bytes);
            });
        const auto ended = [this] {
            for (const auto& one : processes_)
                if (!one->ended()) return false;
            return true;
        };
        if (!cluster_.until(ended, 60'000'000'000)) throw std::runtime_error("an operation does not end");
        return cluster_.world.now() - begin;
    }
    Program by_core(Process& p, unsigned rank, unsigned times, std::size_t bytes) {
        Call& call = calls_[rank];
        call.in.resize(8);
        call.out.resize(8);
        for (unsigned i = 0; i < times; ++i) {
            mp_collective_t& its = call.storage.collective;
            its = {};
            its.kind = bytes ? MP_ALLREDUCE : MP_BARRIER;
            its.bytes = bytes;
            its.in = {.buffer = call.in.data(), .bytes = bytes, .convertor = nullptr};
            its.out = {.buffer = call.out.data(), .bytes = bytes, .convertor = nullptr};
            its.fold = [](mp_collective_t* one, const void* in, void* inout) {
                std::memcpy(inout, in, one->bytes);
                return true;
            };
            group_[rank]->start(GroupOperation::of(call.storage));
            co_await p.until([&its] { return its.complete; });
            if (its.error != MP_OK) throw std::runtime_error("an operation has failed");
        }
    }
    Program by_messages(Process& p, unsigned rank, unsigned times, std::size_t bytes, const Rounds& rounds) {
        Call& call = calls_[rank];
        call.in.resize(8);
        const mp_data_t data{call.in.data(), bytes, nullptr};
        for (unsigned i = 0; i < times; ++i)
            for (const Round& round : rounds) {
                call.requests.assign(round.to.size() + round.from.size(), {});
                std::size_t next = 0;
                for (const unsigned from : round.from)
                    job_[rank].engine.receive(Request::of(call.requests[next++]),
                                              {kContext, static_cast<std::int32_t>(from), 1}, data,
                                              glue::Hint::blocking);
                for (const unsigned to : round.to)
                    job_[rank].engine.send(Request::of(call.requests[next++]), job_[rank].peer(to),
                                           {kContext, static_cast<std::int32_t>(rank), 1}, data, false,
                                           glue::Hint::blocking);
                const auto complete = [](const mp_request_storage_t& one) { return one.request.complete; };
                co_await p.until([&call, complete] { return std::ranges::all_of(call.requests, complete); });
            }
    }

    static constexpr std::uint32_t kContext = 1;
    Cluster cluster_;
    sim::MpiJob job_;
    std::vector<std::unique_ptr<glue::Groups>> groups_;
    std::vector<glue::Group*> group_;
    std::vector<std::unique_ptr<Process>> processes_;
    std::vector<Call> calls_;
};

} // namespace

void core(const Options& o) {
    World world(o);
    const auto theirs = [&](const std::string& algorithm, unsigned parts, std::size_t bytes) {
        std::vector<Rounds> rounds;
        for (unsigned rank = 0; rank < o.ranks; ++rank) rounds.push_back(rounds_of(algorithm, o.ranks, rank));
        return world.measure(o.times, parts, bytes, &rounds);
    };
    const auto row = [&](const char* what, const std::string& algorithm, unsigned parts, std::size_t bytes) {
        const double ours = world.measure(o.times, parts, bytes, nullptr), other = theirs(algorithm, parts, bytes);
        std::printf("%s_us %.3f\n%s_%s_us %.3f\n", what, ours, what, algorithm.c_str(), other);
    };
    row("barrier", tuned_barrier(o.ranks), 1, 0);
    row("allreduce", tuned_allreduce(o.ranks), 1, 8);
    // Three iallreduces of an int, on the parent; libnbc's are binomial trees.
    row("dup", "reduce-bcast", 3, 4);
}

} // namespace ucx_mp::collect_sim
