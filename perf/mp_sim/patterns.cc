#include "patterns.h"

#include <bit>
#include <cstring>
#include <functional>

namespace ucx_mp::sim {

namespace {

struct Pattern {
    const char* name;
    const char* help;
    unsigned (*steps)(unsigned n);
    // Rank i's partners in a step; bytes as a multiple of the size.
    void (*send)(unsigned i, unsigned step, unsigned n, const std::function<void(unsigned, std::uint64_t)>& add);
};

const Pattern kPatterns[] = {
    {"alltoall", "pairwise exchange: to i+k, from i-k", [](unsigned n) { return n - 1; },
     [](unsigned i, unsigned k, unsigned n, const auto& add) { add((i + k + 1) % n, 1); }},
    {"ring", "ring all-gather: to i+1, n-1 times", [](unsigned n) { return n - 1; },
     [](unsigned i, unsigned, unsigned n, const auto& add) { add((i + 1) % n, 1); }},
    {"doubling", "recursive doubling all-gather: to i xor 2^k, 2^k pieces",
     [](unsigned n) { return static_cast<unsigned>(std::bit_width(n - 1)); },
     [](unsigned i, unsigned k, unsigned n, const auto& add) {
         if ((i ^ 1u << k) < n) add(i ^ 1u << k, std::uint64_t{1} << k);
     }},
    {"displaced", "displaced ring: the first half sends to the second, shifted by k", [](unsigned n) { return n / 2; },
     [](unsigned i, unsigned k, unsigned n, const auto& add) {
         const unsigned half = n / 2;
         if (i < half) add(half + (i + k) % half, 1);
     }},
    {"onetoall", "rank 0 sends to all", [](unsigned) { return 1u; },
     [](unsigned i, unsigned, unsigned n, const auto& add) {
         for (unsigned j = 1; i == 0 && j < n; ++j) add(j, 1);
     }},
    {"alltoone", "all send to rank 0", [](unsigned) { return 1u; },
     [](unsigned i, unsigned, unsigned, const auto& add) {
         if (i) add(0, 1);
     }},
};

} // namespace

std::string pattern_names() {
    std::string out = "one of";
    for (const Pattern& pattern : kPatterns) out += std::string("\n  ") + pattern.name + ": " + pattern.help;
    return out;
}

PatternRun::PatternRun(Cluster& cluster, const std::string& name, std::uint64_t size, std::vector<unsigned> ranks)
    : cluster_(cluster), nodes_(std::move(ranks)), ranks_(nodes_.size()), rank_of_node_(nodes_.size()) {
    const Pattern* pattern = nullptr;
    for (const Pattern& candidate : kPatterns)
        if (name == candidate.name) pattern = &candidate;
    if (!pattern) throw std::runtime_error("--pattern " + name + ": " + pattern_names());
    const auto n = static_cast<unsigned>(nodes_.size());
    const unsigned steps = pattern->steps(n);
    std::uint64_t largest = 1;
    for (unsigned i = 0; i < n; ++i) {
        ranks_[i].run = this;
        ranks_[i].index = i;
        ranks_[i].sends.resize(steps);
        ranks_[i].expects.resize(steps);
        ranks_[i].received.resize(steps);
        rank_of_node_[nodes_[i]] = i;
    }
    for (unsigned i = 0; i < n; ++i)
        for (unsigned k = 0; k < steps; ++k)
            pattern->send(i, k, n, [&](unsigned to, std::uint64_t pieces) {
                ranks_[i].sends[k].push_back({to, pieces * size});
                ++ranks_[to].expects[k];
                bytes_ += pieces * size;
                largest = std::max(largest, pieces * size);
            });
    for (unsigned i = 0; i < n; ++i) {
        memory_.push_back(cluster.node(i).memory(largest)); // payload is not carried: one buffer for all
        cluster.node(i).on_am(1, arrived, this);
        cluster.node(i).on_room = [this, i](Channel&) { pump(ranks_[rank_of_node_[i]]); };
    }
}

Channel& PatternRun::channel(unsigned from, unsigned to) {
    Channel*& known = channels_[{from, to}];
    if (!known) known = &cluster_.channel(nodes_[from], nodes_[to]);
    return *known;
}

Nanos PatternRun::connect() {
    const Nanos begin = cluster_.world.now();
    for (Rank& rank : ranks_)
        for (const auto& step : rank.sends)
            for (const Transfer& transfer : step) {
                Channel& to = channel(rank.index, transfer.to);
                auto& iface = cluster_.node(nodes_[rank.index]).iface();
                // Refused, but it starts the handshake.
                (void)iface.put_short(to, "", 0, 0, memory_[nodes_[transfer.to]].keys);
            }
    const bool done = cluster_.until([&] {
        for (const auto& [pair, channel] : channels_)
            if (cluster_.node(nodes_[pair.first]).iface().want_room(*channel) != Status::busy) return false;
        return true;
    });
    if (!done) throw std::runtime_error("not all connections could be opened");
    return cluster_.world.now() - begin;
}

Nanos PatternRun::once() {
    finished_ = 0;
    ++round_;
    for (Rank& rank : ranks_) {
        rank.step = rank.next = 0;
        rank.open = 0;
        rank.fenced = false;
        std::fill(rank.received.begin(), rank.received.end(), 0u);
    }
    const Nanos begin = cluster_.world.now();
    for (Rank& rank : ranks_) pump(rank);
    if (!cluster_.until([&] { return finished_ == ranks_.size(); }, 1'000'000'000'000))
        throw std::runtime_error("the pattern did not come to its end");
    return cluster_.world.now() - begin;
}

void PatternRun::pump(Rank& rank) {
    if (rank.busy) return;
    rank.busy = true;
    const unsigned node = nodes_[rank.index];
    auto& iface = cluster_.node(node).iface();
    while (rank.step < rank.sends.size()) {
        auto& sends = rank.sends[rank.step];
        if (rank.next < sends.size()) {
            const Transfer& transfer = sends[rank.next];
            Channel& to = channel(rank.index, transfer.to);
            const Node::Memory& target = memory_[nodes_[transfer.to]];
            if (!rank.fenced) {
                auto* done = new Done;
                done->callback = [](Completion* self) {
                    auto* finished = static_cast<Done*>(self);
                    Rank& owner = *finished->rank;
                    delete finished;
                    --owner.open;
                    owner.run->pump(owner);
                };
                done->count = 1;
                done->status = Status::ok;
                done->rank = &rank;
                const Iov iov = memory_[node].iov(0, transfer.bytes);
                const Status status = iface.put_zcopy(to, &iov, 1, target.address(), target.keys, done);
                if (status != Status::in_progress) {
                    delete done;
                    if (failed(status) && status != Status::no_resource) throw std::runtime_error("put failed");
                    if (iface.want_room(to) == Status::busy) continue;
                    break;
                }
                ++rank.open;
                (void)iface.fence(to);
                rank.fenced = true;
            }
            const std::uint64_t what = std::uint64_t{round_} << 32 | rank.step;
            if (iface.am_short(to, 1, what, nullptr, 0) != Status::ok) {
                (void)iface.want_room(to);
                break;
            }
            rank.fenced = false;
            ++rank.next;
            continue;
        }
        if (rank.open || rank.received[rank.step] < rank.expects[rank.step]) break;
        rank.next = 0;
        if (++rank.step == rank.sends.size()) ++finished_;
    }
    rank.busy = false;
}

Status PatternRun::arrived(void* self, void* data, std::size_t, unsigned) {
    auto& run = *static_cast<PatternRun*>(self);
    std::uint64_t what;
    std::memcpy(&what, data, sizeof what);
    if (what >> 32 != run.round_) return Status::ok;
    Rank& rank = run.ranks_[run.rank_of_node_[run.cluster_.progressing()]];
    ++rank.received[what & 0xffffffff];
    run.pump(rank);
    return Status::ok;
}

} // namespace ucx_mp::sim
