// One rank's actions in a collective operation: parts that it sends and takes, and operators
// that it applies. Pure: a plan depends only on its shape, so all ranks know each other's.
//
// A plan works on memory of its own, counted in blocks of equal size. Its actions are
// done in their order: a put sends the results of earlier takes and folds. A part may
// come at any time before its take. So every take of a plan has a place of its own, or
// its part is made of what the rank has put from that place before.
//
// The circle of edges: out-edge k leads to rank + 2^k, in-edge k comes from rank - 2^k (modulo the ranks), for
// 2^k < ranks. The trees of all roots use only these; by hosts there are others (hosts.h). In a tree of relative ranks
// q = rank - root the parent of q is q without its lowest bit, so a subtree is a run of relative ranks. Barriers
// (dissemination) and all-gathers (Bruck, mirrored) use the same ones, or those of rounds of several messages
// (rounds.h), one after the other. Halving (recursive doubling) pairs ranks otherwise.
//
// An all-to-all of small blocks (Bruck) uses the out-edges, too: the block for rank
// + i goes along edge k for each bit k of i, together with all others of that round.
//
// Small reductions gather all contributions in the order of the ranks and apply the operator at the end: it need not be
// commutative, and all ranks get the same bits. With halving the same holds: neighbours are combined, lower ranks
// first.
#pragma once

#include <cstdint>
#include <vector>

#include "pml_glue/core/plan/rounds.h"

namespace ucx_mp::glue {

struct Hosts; // hosts.h

enum class Collective : std::uint8_t {
    barrier = 1,
    bcast,
    allgather,
    allreduce, // all-gather, then fold
    halving,   // an allreduce of more: folds on the way
    gather,
    reduce, // gather, then fold
    scatter,
    alltoall,
    exchange,  // an alltoall of larger blocks: each pair for itself, no plan (core/collect/exchange.h)
    exchangev, // an alltoallv, in the same way
};
inline constexpr unsigned kCollectives = 12; // the last one's number + 1

// Whether a rank that has finished it knows that all have started it.
[[nodiscard]] constexpr bool synchronises(Collective collective) {
    return collective == Collective::barrier || collective == Collective::allgather ||
           collective == Collective::allreduce || collective == Collective::halving ||
           collective == Collective::alltoall || collective == Collective::exchange;
}
[[nodiscard]] constexpr bool is_exchange(Collective collective) {
    return collective == Collective::exchange || collective == Collective::exchangev;
}

struct Shape {
    Collective collective{};
    std::uint32_t ranks = 0, rank = 0, root = 0; // root: 0 where there is none
    bool triggered = false;                      // begins with Action::What::adapter
    const Rounds* rounds = nullptr;              // of barriers and all-gathers; null: of one message each
    const Hosts* hosts = nullptr;                // null: the ranks talk to each other wherever they are
    [[nodiscard]] bool operator==(const Shape&) const = default;
};

// `from`, `to`, `count`: blocks.
struct Action {
    enum class What : std::uint8_t {
        put,     // `count` blocks at `from`, to `partner`
        take,    // to `to`: the blocks of the partner's put with this edge
        fold,    // the block at `to` becomes: block at `from`, operator, block at `to`
        copy,    // `count` blocks at `from`, to `to`
        adapter, // the first of all: core/collect/triggered.h does the steps behind it
    };
    What what{};
    std::uint8_t edge = 0;  // names the take, below kEdges; the same at both sides, once per rank that takes and plan
    std::uint8_t takes = 0; // of a take: how many there are from here on, with nothing between
    std::uint32_t partner = 0;
    std::uint32_t from = 0, to = 0, count = 0;
    std::uint64_t edges = 0; // of those takes: bits
};
inline constexpr unsigned kEdges = 64;
inline constexpr std::uint32_t kMostAlltoall = 4096;

// `count` blocks of the caller's, from `user` on, are those of the plan from `work` on.
struct Run {
    std::uint32_t user = 0, work = 0, count = 0;
};

struct Plan {
    std::vector<Action> actions;
    std::uint32_t blocks = 0;            // of memory
    std::vector<Run> inputs, outputs;    // in the order of the caller's blocks
    std::uint16_t place_of[kEdges] = {}; // of a take in `actions`; kNoTake
    static constexpr std::uint16_t kNoTake = 0xffff;
};

// Makes the plan of a shape in `out`, whose memory it uses again; for an exchange:
// without actions. At least two ranks, and for an alltoall not more than kMostAlltoall.
void make_plan(const Shape& shape, Plan& out);

} // namespace ucx_mp::glue
