#include "rounds.h"

#include <bit>
#include <stdexcept>

namespace ucx_mp::collect_sim {

namespace {

Rounds linear(unsigned ranks, unsigned rank) {
    if (rank != 0) return {{{0}, {}}, {{}, {0}}};
    Rounds out(2);
    for (unsigned i = 1; i < ranks; ++i) {
        out[0].from.push_back(i);
        out[1].to.push_back(i);
    }
    return out;
}

// Ranks beyond the power of two tell a partner, and are told by it.
Rounds doubling(unsigned ranks, unsigned rank) {
    const unsigned whole = std::bit_floor(ranks);
    if (rank >= whole) return {{{rank - whole}, {}}, {{}, {rank - whole}}};
    Rounds out;
    const bool has_partner = rank + whole < ranks;
    if (has_partner) out.push_back({{}, {rank + whole}});
    for (unsigned mask = 1; mask < whole; mask *= 2) out.push_back({{rank ^ mask}, {rank ^ mask}});
    if (has_partner) out.push_back({{rank + whole}, {}});
    return out;
}

Rounds bruck(unsigned ranks, unsigned rank) {
    Rounds out;
    for (unsigned distance = 1; distance < ranks; distance *= 2)
        out.push_back({{(rank + distance) % ranks}, {(rank + ranks - distance) % ranks}});
    return out;
}

// The parent of q is q without its lowest bit. Up: the nearest child first; down: the farthest. `at_once`: what goes
// down leaves in one round, as libnbc has it; else one after the other.
Rounds binomial(unsigned ranks, unsigned rank, bool at_once) {
    Rounds out;
    std::vector<unsigned> children;
    for (unsigned bit = 1; bit < ranks && !(rank & bit); bit *= 2)
        if (rank + bit < ranks) children.push_back(rank + bit);
    for (const unsigned child : children) out.push_back({{}, {child}});
    if (rank != 0) {
        out.push_back({{rank & (rank - 1)}, {}});
        out.push_back({{}, {rank & (rank - 1)}});
    }
    if (at_once) {
        if (!children.empty()) out.push_back({{children.rbegin(), children.rend()}, {}});
    } else {
        for (auto child = children.rbegin(); child != children.rend(); ++child) out.push_back({{*child}, {}});
    }
    return out;
}

} // namespace

Rounds rounds_of(const std::string& algorithm, unsigned ranks, unsigned rank) {
    if (algorithm == "linear") return linear(ranks, rank);
    if (algorithm == "doubling") return doubling(ranks, rank);
    if (algorithm == "bruck") return bruck(ranks, rank);
    if (algorithm == "tree") return binomial(ranks, rank, false);
    if (algorithm == "reduce-bcast") return binomial(ranks, rank, true);
    throw std::runtime_error("no algorithm " + algorithm + ": linear, doubling, bruck, tree or reduce-bcast");
}

std::string tuned_barrier(unsigned ranks) {
    if (ranks < 4) return "doubling";
    if (ranks < 8) return "linear";
    if (ranks < 64) return "doubling";
    if (ranks < 256) return "bruck";
    if (ranks < 512) return "tree";
    return ranks < 1024 ? "bruck" : "tree";
}

std::string tuned_allreduce(unsigned ranks) { return ranks < 128 ? "doubling" : "reduce-bcast"; }

} // namespace ucx_mp::collect_sim
