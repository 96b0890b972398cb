#include "pml_run.h"

#include <set>
#include <stdexcept>

namespace ucx_mp::sim {

namespace {

constexpr std::uint32_t kContext = 1;

} // namespace

PmlRun::PmlRun(Cluster& cluster, const Job& job, bool rendezvous_by_put)
    : Run(cluster, job), core_(cluster, module_defaults(rendezvous_by_put)), incoming_(job.size()), moved_(job.size()) {
    core_.on_completed = [this](mp_request_t& shown) { completed(shown); };
    bool moves = false;
    for (unsigned i = 0; i < ranks_.size(); ++i) {
        memory_.push_back(cluster.node(i).memory(largest_)); // payload is not carried: one buffer for all
        core_[i].turn = [this, i] { return ranks_[i].running && turn(ranks_[i]); };
        for (const Step& s : job[i]) {
            if (s.kind == Step::Kind::add)
                throw std::runtime_error("--module pml: not for kernels with atomic operations");
            moves |= s.kind == Step::Kind::put || s.kind == Step::Kind::get;
            if (s.kind == Step::Kind::send) incoming_[s.peer].push_back({i, s.amount, Kind::data});
            if (s.kind == Step::Kind::sync) incoming_[s.peer].push_back({i, 0, Kind::sync});
        }
    }
    if (moves) open_windows();
}

void PmlRun::open_windows() {
    std::vector<std::uint64_t> names(ranks_.size());
    std::size_t stride = 0;
    for (unsigned i = 0; i < names.size(); ++i) names[i] = i;
    for (unsigned i = 0; i < names.size(); ++i) {
        windows_.push_back(core_[i].windows.create({.id = 1,
                                                    .rank = i,
                                                    .ranks = static_cast<unsigned>(names.size()),
                                                    .base = memory_[i].data,
                                                    .size = largest_,
                                                    .dynamic = false,
                                                    .processes = names.data(),
                                                    .in_flight = 262144}, // the default of osc/mp
                                                   {.apply = nullptr, .rma_done = nullptr}));
        const auto own = windows_.back()->keys();
        stride = own.size();
        keys_.insert(keys_.end(), own.begin(), own.end());
    }
    for (glue::Window* window : windows_) window->set_keys(keys_.data(), stride);
}

Nanos PmlRun::connect() {
    const Nanos begin = cluster_.world.now();
    std::set<std::pair<unsigned, unsigned>> pairs;
    for (unsigned i = 0; i < ranks_.size(); ++i)
        for (const Step& s : job_[i])
            if (s.peer != kAnyone && s.peer != i) pairs.insert({{i, s.peer}, {s.peer, i}});
    for (const auto& [from, to] : pairs) {
        receive(ranks_[to], {from, 0, Kind::hello});
        send(ranks_[from], to, 0, Kind::hello);
        ++greetings_;
    }
    if (!cluster_.until([&] { return greetings_ == 0; }, 60'000'000'000))
        throw std::runtime_error("not all connections could be opened");
    return cluster_.world.now() - begin;
}

PmlRun::Request& PmlRun::request(Rank& rank, Kind kind, unsigned from) {
    if (free_.empty()) {
        requests_.push_back(std::make_unique<Request>());
        free_.push_back(requests_.back().get());
    }
    Request& out = *free_.back();
    free_.pop_back();
    out.rank = &rank;
    out.from = from;
    out.kind = kind;
    return out;
}

void PmlRun::begin_run() {
    for (Rank& rank : ranks_)
        for (const Incoming& message : incoming_[rank.index]) receive(rank, message);
}

void PmlRun::receive(Rank& rank, const Incoming& message) {
    Request& r = request(rank, message.kind, message.from);
    core_[rank.index].engine.receive(
        glue::Request::of(r.storage),
        {kContext, static_cast<std::int32_t>(message.from), static_cast<std::int32_t>(message.kind)},
        data(rank, message.bytes), glue::Hint::non_blocking);
}

void PmlRun::send(Rank& rank, unsigned to, std::uint64_t bytes, Kind kind) {
    Request& r = request(rank, kind);
    ++rank.open;
    core_[rank.index].engine.send(glue::Request::of(r.storage), core_[rank.index].peer(to),
                                  {kContext, static_cast<std::int32_t>(rank.index), static_cast<std::int32_t>(kind)},
                                  data(rank, bytes), false, glue::Hint::non_blocking);
}

bool PmlRun::send(Rank& rank, const Step& s) {
    const bool sync = s.kind == Step::Kind::sync;
    send(rank, s.peer, sync ? 0 : s.amount, sync ? Kind::sync : Kind::data);
    return true;
}

bool PmlRun::move(Rank& rank, const Step& s) {
    const bool put = s.kind == Step::Kind::put;
    const mp_run_t run{reinterpret_cast<std::uint64_t>(memory_[s.peer].data), 0, s.amount, 1};
    const mp_data_t mine = data(rank, s.amount), none{nullptr, 0, nullptr};
    const mp_rma_t rma{.kind = put ? MP_PUT : MP_GET,
                       .target = s.peer,
                       .runs = &run,
                       .run_count = 1,
                       .origin = put ? mine : none,
                       .result = put ? none : mine,
                       .op = 0,
                       .type = 0,
                       .unit = 1,
                       .extent = 1,
                       .user = nullptr};
    if (windows_[rank.index]->start(rma) != MP_OK) throw std::runtime_error("a write or read cannot start");
    moved_[rank.index] = true;
    return true;
}

bool PmlRun::is_complete(Rank& rank) {
    if (rank.open != 0) return false;
    if (moved_[rank.index] && !windows_[rank.index]->flushed(MP_ALL_RANKS, false)) return false;
    moved_[rank.index] = false;
    return true;
}

void PmlRun::completed(mp_request_t& shown) {
    Request& r = reinterpret_cast<Request&>(shown);
    if (shown.status.error != MP_OK) throw std::runtime_error("an operation failed");
    if (r.from == kAnyone)
        --r.rank->open;
    else if (r.kind == Kind::hello)
        --greetings_;
    else
        arrived(*r.rank, r.from, r.kind == Kind::sync);
    free_.push_back(&r);
}

} // namespace ucx_mp::sim
