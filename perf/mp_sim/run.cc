#include "run.h"

#include <algorithm>
#include <cstring>

namespace ucx_mp::sim {

namespace {

constexpr std::uint8_t kData = 1, kSync = 2, kRequest = 3, kFinish = 4;

} // namespace

Run::Run(Cluster& cluster, const Job& job, std::uint64_t eager, Rendezvous rendezvous)
    : cluster_(cluster), job_(job), rendezvous_(rendezvous), ranks_(job.size()), channels_(job.size()) {
    std::uint64_t largest = sizeof(std::uint64_t);
    for (const Steps& steps : job)
        for (const Step& s : steps)
            if (s.kind == Step::Kind::send || s.kind == Step::Kind::get || s.kind == Step::Kind::put)
                largest = std::max(largest, s.amount);
    for (unsigned i = 0; i < ranks_.size(); ++i) {
        Rank& rank = ranks_[i];
        rank.run = this;
        rank.index = i;
        rank.from.resize(ranks_.size());
        channels_[i].resize(ranks_.size());
        total_steps_ += job[i].size();
        Node& node = cluster.node(i);
        memory_.push_back(node.memory(largest)); // payload is not carried: one buffer for all
        node.on_am(
            kData, [](void* self, void* data, std::size_t n, unsigned) { return arrived(self, data, n, false); },
            &rank);
        node.on_am(
            kSync, [](void* self, void* data, std::size_t n, unsigned) { return arrived(self, data, n, true); }, &rank);
        node.on_am(kRequest, requested, &rank);
        node.on_am(kFinish, finished, &rank);
        node.on_turn = [this, i] {
            const bool answered = answer(ranks_[i]), wrote = write(ranks_[i]);
            return (ranks_[i].running && turn(ranks_[i])) || answered || wrote;
        };
    }
    // Header and rank go with each message.
    eager_ = std::min<std::uint64_t>(eager, cluster.node(0).iface().limits().max_bcopy - sizeof(std::uint64_t));
}

Channel& Run::channel(unsigned from, unsigned to) {
    Channel*& known = channels_[from][to];
    if (!known) known = &cluster_.channel(from, to);
    return *known;
}

Nanos Run::connect() {
    const Nanos begin = cluster_.world.now();
    std::vector<std::pair<unsigned, Channel*>> wanted;
    const auto want = [&](unsigned from, unsigned to) {
        if (channels_[from][to]) return;
        wanted.emplace_back(from, &channel(from, to));
        // Refused, but it starts the handshake.
        (void)iface(from).put_short(*wanted.back().second, "", 0, 0, memory_[to].keys);
    };
    for (unsigned i = 0; i < ranks_.size(); ++i)
        for (const Step& s : job_[i]) {
            if (s.peer == kAnyone || s.kind == Step::Kind::wait || s.kind == Step::Kind::meet) continue;
            want(i, s.peer);
            // Who receives reads.
            if (rendezvous_ == Rendezvous::get && s.kind == Step::Kind::send && s.amount > eager_) want(s.peer, i);
        }
    const bool done = cluster_.until(
        [&] {
            while (!wanted.empty() && iface(wanted.back().first).want_room(*wanted.back().second) == Status::busy)
                wanted.pop_back();
            return wanted.empty();
        },
        60'000'000'000);
    if (!done) throw std::runtime_error("not all connections could be opened");
    return cluster_.world.now() - begin;
}

Nanos Run::once(const std::function<void(double)>& progress) {
    finished_ = 0;
    std::uint64_t before = 0;
    for (Rank& rank : ranks_) {
        rank.step = 0;
        rank.running = true;
        rank.stepped_at = cluster_.world.now();
        if (late_) cluster_.node(rank.index).compute(random_() % (late_ + 1), [] {});
        before += rank.done_steps;
    }
    const Nanos begin = cluster_.world.now();
    std::uint64_t asked = 0;
    const bool over = cluster_.until(
        [&] {
            if (progress && ++asked % 1'000'000 == 0) {
                std::uint64_t done = 0;
                for (const Rank& rank : ranks_) done += rank.done_steps;
                progress(static_cast<double>(done - before) / static_cast<double>(total_steps_));
            }
            return finished_ == ranks_.size();
        },
        10'000'000'000'000);
    if (!over) throw std::runtime_error("the job did not come to its end: " + where_it_stands());
    // A rank that is through may be busy for longer than the world is old.
    Nanos end = cluster_.world.now();
    for (unsigned i = 0; i < ranks_.size(); ++i) end = std::max(end, cluster_.world.now_at(i));
    return end - begin;
}

std::string Run::where_it_stands() const {
    for (const Rank& rank : ranks_) {
        if (!rank.running) continue;
        static constexpr const char* kinds[] = {"send", "wait", "complete", "compute", "get",
                                                "put",  "add",  "sync",     "meet"};
        if (rank.step == job_[rank.index].size())
            return "rank " + std::to_string(rank.index) + " is through, but for " + std::to_string(rank.writes.size()) +
                   " messages that have found no room";
        const Step& s = job_[rank.index][rank.step];
        return "rank " + std::to_string(rank.index) + " (of " + std::to_string(ranks_.size() - finished_) +
               " that are not through) is at step " + std::to_string(rank.step) + ", " +
               kinds[static_cast<int>(s.kind)] + (s.peer == kAnyone ? "" : " " + std::to_string(s.peer)) + " " +
               std::to_string(s.amount) + ", " + std::to_string(rank.open) + " operations open";
    }
    return "nobody waits";
}

// What the rank can do now, one step after the other, for as long as its processor is free. False: nothing.
bool Run::turn(Rank& rank) {
    const Steps& steps = job_[rank.index];
    bool any = false;
    while (rank.step < steps.size() && !cluster_.node(rank.index).busy()) {
        if (!take(rank, steps[rank.step])) {
            if (std::exchange(rank.again, false)) continue;
            return any;
        }
        ++rank.step;
        ++rank.done_steps;
        any = true;
    }
    if (any) {
        const Nanos now = cluster_.world.now_at(rank.index);
        pause_ = std::max(pause_, now - std::exchange(rank.stepped_at, now));
    }
    if (rank.step == steps.size() && rank.running && rank.writes.empty()) {
        rank.running = false;
        ++finished_;
        any = true;
    }
    return any;
}

// False: it cannot be done yet.
bool Run::take(Rank& rank, const Step& s) {
    switch (s.kind) {
    case Step::Kind::send:
        return send(rank, s);
    case Step::Kind::sync:
        return message(rank, s.peer, kSync, 0);
    case Step::Kind::wait:
    case Step::Kind::meet:
        return await(rank, s);
    case Step::Kind::complete:
        return rank.open == 0;
    case Step::Kind::compute:
        if (std::exchange(rank.started, !rank.started)) return true; // over
        cluster_.node(rank.index).compute(s.amount, [] {});
        return false;
    case Step::Kind::get:
    case Step::Kind::put:
    case Step::Kind::add:
        return operation(rank, s);
    }
    return true;
}

bool Run::await(Rank& rank, const Step& s) {
    const auto n = static_cast<std::uint32_t>(s.amount);
    if (s.kind == Step::Kind::meet) {
        Received& from = rank.from[s.peer];
        if (from.sync - from.sync_taken < n) return false;
        from.sync_taken += n;
        return true;
    }
    if (s.peer != kAnyone) {
        Received& from = rank.from[s.peer];
        if (from.data - from.taken < n) return false;
        from.taken += n;
    } else if (rank.received - rank.taken < n)
        return false;
    rank.taken += n;
    return true;
}

bool Run::send(Rank& rank, const Step& s) {
    if (s.amount <= eager_) return message(rank, s.peer, kData, s.amount);
    if (rendezvous_ == Rendezvous::get) return request(rank, s);
    rank.writes.push_back({s.peer, s.amount});
    ++rank.open;
    (void)write(rank);
    return true;
}

bool Run::accepted(Rank& rank, unsigned to, Status status) {
    if (!failed(status)) return true;
    if (status != Status::no_resource) throw std::runtime_error("an operation failed");
    rank.again = iface(rank.index).want_room(channel(rank.index, to)) == Status::busy; // there is room by now
    return false;
}

void Run::charge_copy(unsigned rank, std::uint64_t bytes) {
    const double cost = cluster_.world.host_costs().copy * static_cast<double>(bytes);
    if (cost >= 1) cluster_.node(rank).spend(static_cast<Nanos>(cost));
}

bool Run::message(Rank& rank, unsigned to, std::uint8_t id, std::uint64_t bytes) {
    channel::Interface& from = iface(rank.index);
    Channel& way = channel(rank.index, to);
    const channel::Limits& limits = from.limits();
    if (sizeof(std::uint64_t) + bytes <= limits.max_am_short) {
        static const char payload[4096] = {};
        return accepted(rank, to, from.am_short(way, id, rank.index, payload, static_cast<unsigned>(bytes)));
    }
    Packing packing{&cluster_.node(rank.index), bytes, rank.index};
    const ssize_t sent = from.am_bcopy(
        way, id,
        [](void* dest, void* arg) {
            const Packing& p = *static_cast<Packing*>(arg);
            std::memcpy(dest, &p.header, sizeof p.header);
            return static_cast<std::size_t>(sizeof p.header + p.bytes);
        },
        &packing);
    if (sent < 0) return accepted(rank, to, static_cast<Status>(sent));
    charge_copy(rank.index, bytes);
    return true;
}

Run::Done* Run::begin(Rank& rank, const Step& s, unsigned sender) {
    auto* done = new Done;
    done->callback = [](Completion* self) {
        auto* finished = static_cast<Done*>(self);
        if (failed(finished->status)) throw std::runtime_error("an operation failed");
        finished->rank->run->completed(*finished);
        delete finished;
    };
    done->count = 1;
    done->status = Status::ok;
    done->rank = &rank;
    done->sender = sender;
    if (sender == kAnyone) ++rank.open;
    if (transfers_) {
        done->noted = transfers_->size();
        const Nanos now = cluster_.world.now_at(rank.index);
        transfers_->push_back({.rank = rank.index, .peer = s.peer, .bytes = s.amount, .begin = now, .end = now});
    }
    return done;
}

void Run::completed(const Done& done) {
    Rank& rank = *done.rank;
    if (transfers_ && done.noted < transfers_->size())
        (*transfers_)[done.noted].end = cluster_.world.now_at(rank.index);
    if (done.sender == kAnyone) {
        --rank.open;
        return;
    }
    ++rank.from[done.sender].data;
    ++rank.received;
    rank.answers.push_back({done.sender, 0});
}

// The message is complete when the receiver tells that it has read it.
bool Run::request(Rank& rank, const Step& s) {
    Channel& way = channel(rank.index, s.peer);
    if (!accepted(rank, s.peer, iface(rank.index).am_short(way, kRequest, rank.index, &s.amount, sizeof s.amount)))
        return false;
    ++rank.open;
    return true;
}

// Whoever has room goes first: a peer without it is in nobody's way. False: nothing could be done.
bool Run::answer(Rank& rank) {
    bool any = false;
    for (std::size_t i = 0; i < rank.answers.size() && !cluster_.node(rank.index).busy();) {
        const auto [peer, bytes] = rank.answers[i];
        const bool done =
            bytes ? operation(rank, {Step::Kind::get, peer, bytes}, peer) : message(rank, peer, kFinish, 0);
        if (done) {
            rank.answers.erase(rank.answers.begin() + static_cast<std::ptrdiff_t>(i));
            any = true;
        } else if (!std::exchange(rank.again, false)) {
            ++i;
        }
    }
    return any;
}

// As answer(). Writes to one peer keep their order; eager messages may pass them.
bool Run::write(Rank& rank) {
    bool any = false;
    ++rank.pass;
    for (std::size_t i = 0; i < rank.writes.size() && !cluster_.node(rank.index).busy();) {
        std::uint64_t& held = rank.from[rank.writes[i].peer].held;
        if (held == rank.pass) {
            ++i;
        } else if (write(rank, rank.writes[i])) {
            rank.writes.erase(rank.writes.begin() + static_cast<std::ptrdiff_t>(i));
            --rank.open;
            any = true;
        } else if (!std::exchange(rank.again, false)) {
            held = rank.pass;
            ++i;
        }
    }
    return any;
}

// A write of the data, a fence, and a message that tells. True: all has been accepted.
bool Run::write(Rank& rank, Written& m) {
    if (!m.put) m.put = operation(rank, {Step::Kind::put, m.peer, m.bytes});
    if (!m.put) return false;
    if (!m.fenced) m.fenced = accepted(rank, m.peer, iface(rank.index).fence(channel(rank.index, m.peer)));
    return m.fenced && message(rank, m.peer, kData, 0);
}

bool Run::operation(Rank& rank, const Step& s, unsigned sender) {
    channel::Interface& by = iface(rank.index);
    Channel& way = channel(rank.index, s.peer);
    Node::Memory& mine = memory_[rank.index];
    const Node::Memory& theirs = memory_[s.peer];
    const Iov iov = mine.iov(0, s.amount);
    Done* const done = begin(rank, s, sender);
    Status status = Status::ok;
    if (s.kind == Step::Kind::put)
        status = by.put_zcopy(way, &iov, 1, theirs.address(), theirs.keys, done);
    else if (s.kind == Step::Kind::get)
        status = by.get_zcopy(way, &iov, 1, theirs.address(), theirs.keys, done);
    else
        status =
            by.atomic_fetch(way, channel::AtomicOp::add, 8, 1, 0, &rank.fetched, theirs.address(), theirs.keys, done);
    if (status == Status::in_progress) return true;
    delete done;
    if (sender == kAnyone) --rank.open;
    if (transfers_) transfers_->pop_back();
    return accepted(rank, s.peer, status);
}

Status Run::arrived(void* self, void* data, std::size_t length, bool sync) {
    Rank& rank = *static_cast<Rank*>(self);
    std::uint64_t header;
    std::memcpy(&header, data, sizeof header);
    Received& from = rank.from[header];
    if (sync) {
        ++from.sync;
    } else {
        ++from.data;
        ++rank.received;
        rank.run->charge_copy(rank.index, length - sizeof header);
    }
    return Status::ok;
}

Status Run::requested(void* self, void* data, std::size_t, unsigned) {
    Rank& rank = *static_cast<Rank*>(self);
    std::uint64_t words[2]; // who, how much
    std::memcpy(words, data, sizeof words);
    rank.answers.push_back({static_cast<unsigned>(words[0]), words[1]});
    return Status::ok;
}

Status Run::finished(void* self, void*, std::size_t, unsigned) {
    --static_cast<Rank*>(self)->open;
    return Status::ok;
}

} // namespace ucx_mp::sim
