#include "transport_run.h"

#include <algorithm>
#include <cstring>

namespace ucx_mp::sim {

namespace {

constexpr std::uint8_t kData = 1, kSync = 2, kRequest = 3, kFinish = 4;

} // namespace

TransportRun::TransportRun(Cluster& cluster, const Job& job, std::uint64_t eager, Rendezvous rendezvous)
    : Run(cluster, job), rendezvous_(rendezvous), sides_(job.size()), channels_(job.size()) {
    for (unsigned i = 0; i < ranks_.size(); ++i) {
        Side& side = sides_[i];
        side.run = this;
        side.rank = &ranks_[i];
        side.held.resize(ranks_.size());
        channels_[i].resize(ranks_.size());
        Node& node = cluster.node(i);
        memory_.push_back(node.memory(largest_)); // payload is not carried: one buffer for all
        node.on_am(
            kData, [](void* self, void* data, std::size_t n, unsigned) { return came(self, data, n, false); }, &side);
        node.on_am(
            kSync, [](void* self, void* data, std::size_t n, unsigned) { return came(self, data, n, true); }, &side);
        node.on_am(kRequest, requested, &side);
        node.on_am(kFinish, finished, &side);
        node.on_turn = [this, i] {
            const bool answered = answer(sides_[i]), wrote = write(sides_[i]);
            return (ranks_[i].running && turn(ranks_[i])) || answered || wrote;
        };
    }
    // Header and rank go with each message.
    eager_ = std::min<std::uint64_t>(eager, cluster.node(0).iface().limits().max_bcopy - sizeof(std::uint64_t));
}

Channel& TransportRun::channel(unsigned from, unsigned to) {
    Channel*& known = channels_[from][to];
    if (!known) known = &cluster_.channel(from, to);
    return *known;
}

Nanos TransportRun::connect() {
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

bool TransportRun::send(Rank& rank, const Step& s) {
    if (s.kind == Step::Kind::sync) return message(rank, s.peer, kSync, 0);
    if (s.amount <= eager_) return message(rank, s.peer, kData, s.amount);
    if (rendezvous_ == Rendezvous::get) return request(rank, s);
    sides_[rank.index].writes.push_back({s.peer, s.amount});
    ++rank.open;
    (void)write(sides_[rank.index]);
    return true;
}

bool TransportRun::accepted(Rank& rank, unsigned to, Status status) {
    if (!failed(status)) return true;
    if (status != Status::no_resource) throw std::runtime_error("an operation failed");
    rank.again = iface(rank.index).want_room(channel(rank.index, to)) == Status::busy; // there is room by now
    return false;
}

void TransportRun::charge_copy(unsigned rank, std::uint64_t bytes) {
    const double cost = cluster_.world.host_costs().copy * static_cast<double>(bytes);
    if (cost >= 1) cluster_.node(rank).spend(static_cast<Nanos>(cost));
}

bool TransportRun::message(Rank& rank, unsigned to, std::uint8_t id, std::uint64_t bytes) {
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

TransportRun::Done* TransportRun::begin(Side& side, const Step& s, unsigned sender) {
    auto* done = new Done;
    done->callback = [](Completion* self) {
        auto* finished = static_cast<Done*>(self);
        if (failed(finished->status)) throw std::runtime_error("an operation failed");
        finished->side->run->completed(*finished);
        delete finished;
    };
    done->count = 1;
    done->status = Status::ok;
    done->side = &side;
    done->sender = sender;
    if (sender == kAnyone) ++side.rank->open;
    if (transfers_) {
        done->noted = transfers_->size();
        const Nanos now = cluster_.world.now_at(side.rank->index);
        transfers_->push_back({.rank = side.rank->index, .peer = s.peer, .bytes = s.amount, .begin = now, .end = now});
    }
    return done;
}

void TransportRun::completed(const Done& done) {
    Rank& rank = *done.side->rank;
    if (transfers_ && done.noted < transfers_->size())
        (*transfers_)[done.noted].end = cluster_.world.now_at(rank.index);
    if (done.sender == kAnyone) {
        --rank.open;
        return;
    }
    arrived(rank, done.sender, false);
    done.side->answers.push_back({done.sender, 0});
}

// The message is complete when the receiver tells that it has read it.
bool TransportRun::request(Rank& rank, const Step& s) {
    Channel& way = channel(rank.index, s.peer);
    if (!accepted(rank, s.peer, iface(rank.index).am_short(way, kRequest, rank.index, &s.amount, sizeof s.amount)))
        return false;
    ++rank.open;
    return true;
}

// Whoever has room goes first: a peer without it is in nobody's way. False: nothing could be done.
bool TransportRun::answer(Side& side) {
    Rank& rank = *side.rank;
    bool any = false;
    for (std::size_t i = 0; i < side.answers.size() && !cluster_.node(rank.index).busy();) {
        const auto [peer, bytes] = side.answers[i];
        const bool done =
            bytes ? operation(side, {Step::Kind::get, peer, bytes}, peer) : message(rank, peer, kFinish, 0);
        if (done) {
            side.answers.erase(side.answers.begin() + static_cast<std::ptrdiff_t>(i));
            any = true;
        } else if (!std::exchange(rank.again, false)) {
            ++i;
        }
    }
    return any;
}

// As answer(). Writes to one peer keep their order; eager messages may pass them.
bool TransportRun::write(Side& side) {
    Rank& rank = *side.rank;
    bool any = false;
    ++side.pass;
    for (std::size_t i = 0; i < side.writes.size() && !cluster_.node(rank.index).busy();) {
        std::uint64_t& held = side.held[side.writes[i].peer];
        if (held == side.pass) {
            ++i;
        } else if (write(side, side.writes[i])) {
            side.writes.erase(side.writes.begin() + static_cast<std::ptrdiff_t>(i));
            --rank.open;
            any = true;
        } else if (!std::exchange(rank.again, false)) {
            held = side.pass;
            ++i;
        }
    }
    return any;
}

// A write of the data, a fence, and a message that tells. True: all has been accepted.
bool TransportRun::write(Side& side, Written& m) {
    Rank& rank = *side.rank;
    if (!m.put) m.put = operation(side, {Step::Kind::put, m.peer, m.bytes});
    if (!m.put) return false;
    if (!m.fenced) m.fenced = accepted(rank, m.peer, iface(rank.index).fence(channel(rank.index, m.peer)));
    return m.fenced && message(rank, m.peer, kData, 0);
}

bool TransportRun::operation(Side& side, const Step& s, unsigned sender) {
    Rank& rank = *side.rank;
    channel::Interface& by = iface(rank.index);
    Channel& way = channel(rank.index, s.peer);
    Node::Memory& mine = memory_[rank.index];
    const Node::Memory& theirs = memory_[s.peer];
    const Iov iov = mine.iov(0, s.amount);
    Done* const done = begin(side, s, sender);
    Status status = Status::ok;
    if (s.kind == Step::Kind::put)
        status = by.put_zcopy(way, &iov, 1, theirs.address(), theirs.keys, done);
    else if (s.kind == Step::Kind::get)
        status = by.get_zcopy(way, &iov, 1, theirs.address(), theirs.keys, done);
    else
        status =
            by.atomic_fetch(way, channel::AtomicOp::add, 8, 1, 0, &side.fetched, theirs.address(), theirs.keys, done);
    if (status == Status::in_progress) return true;
    delete done;
    if (sender == kAnyone) --rank.open;
    if (transfers_) transfers_->pop_back();
    return accepted(rank, s.peer, status);
}

Status TransportRun::came(void* self, void* data, std::size_t length, bool sync) {
    const Side& side = *static_cast<Side*>(self);
    std::uint64_t header;
    std::memcpy(&header, data, sizeof header);
    side.run->arrived(*side.rank, static_cast<unsigned>(header), sync);
    if (!sync) side.run->charge_copy(side.rank->index, length - sizeof header);
    return Status::ok;
}

Status TransportRun::requested(void* self, void* data, std::size_t, unsigned) {
    std::uint64_t words[2]; // who, how much
    std::memcpy(words, data, sizeof words);
    static_cast<Side*>(self)->answers.push_back({static_cast<unsigned>(words[0]), words[1]});
    return Status::ok;
}

Status TransportRun::finished(void* self, void*, std::size_t, unsigned) {
    --static_cast<Side*>(self)->rank->open;
    return Status::ok;
}

} // namespace ucx_mp::sim
