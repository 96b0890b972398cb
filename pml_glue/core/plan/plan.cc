#include "pml_glue/core/plan/plan.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace ucx_mp::glue {

namespace {

// Edges of halving that are no rounds of it.
constexpr unsigned kBefore = kEdges - 2, kBehind = kEdges - 1;

class Maker {
public:
    Maker(const Shape& shape, Plan& plan)
        : shape_(shape), plan_(plan), n_(shape.ranks), q_(above(shape.rank, n_ - shape.root)) {
        assert(n_ >= 2 && shape.rank < n_ && shape.root < n_);
        plan.actions.clear();
        plan.inputs.clear();
        plan.outputs.clear();
        plan.blocks = 0;
        std::fill(std::begin(plan.place_of), std::end(plan.place_of), Plan::kNoTake);
        if (shape.triggered) plan.actions.push_back({.what = Action::What::adapter});
    }
    void make() {
        switch (shape_.collective) {
        case Collective::barrier:
            return barrier();
        case Collective::bcast:
            return bcast();
        case Collective::allgather:
        case Collective::allreduce:
            return allgather(shape_.collective == Collective::allreduce);
        case Collective::halving:
            return halving();
        case Collective::gather:
        case Collective::reduce:
            return gather(shape_.collective == Collective::reduce);
        case Collective::scatter:
            return scatter();
        case Collective::alltoall:
            return alltoall();
        case Collective::exchange:
        case Collective::exchangev:
            return;
        }
    }

private:
    [[nodiscard]] std::uint32_t above(std::uint32_t rank, std::uint32_t distance) const {
        return static_cast<std::uint32_t>((std::uint64_t{rank} + distance) % n_);
    }
    [[nodiscard]] std::uint32_t ranked(std::uint32_t q) const { return above(q, shape_.root); }
    void put(unsigned edge, std::uint32_t partner, std::uint32_t from, std::uint32_t count) {
        plan_.actions.push_back({.what = Action::What::put,
                                 .edge = static_cast<std::uint8_t>(edge),
                                 .partner = partner,
                                 .from = from,
                                 .to = 0,
                                 .count = count});
    }
    void take(unsigned edge, std::uint32_t partner, std::uint32_t to, std::uint32_t count) {
        plan_.place_of[edge] = static_cast<std::uint16_t>(plan_.actions.size());
        plan_.actions.push_back({.what = Action::What::take,
                                 .edge = static_cast<std::uint8_t>(edge),
                                 .partner = partner,
                                 .from = 0,
                                 .to = to,
                                 .count = count});
    }
    void fold(std::uint32_t from, std::uint32_t to) {
        plan_.actions.push_back(
            {.what = Action::What::fold, .edge = 0, .partner = 0, .from = from, .to = to, .count = 1});
    }

    // round(has): has(edge, distance, blocks) for each of its messages, with the blocks that are new to who gets it.
    template <class F> void each_round(F&& round) const {
        std::uint64_t before = 1; // distance of a round's first message
        unsigned first = 0;       // edge
        for (unsigned j = 0; before < n_; ++j) {
            const unsigned radix = shape_.rounds ? shape_.rounds->radix[j] : 2;
            round([&](auto&& has) {
                for (unsigned i = 1; i < radix && i * before < n_; ++i) {
                    const auto distance = static_cast<std::uint32_t>(i * before);
                    has(first + i - 1, distance, std::min(static_cast<std::uint32_t>(before), n_ - distance));
                }
            });
            first += radix - 1;
            before *= radix;
        }
    }

    void barrier() {
        each_round([&](const auto& each) {
            each([&](unsigned edge, std::uint32_t distance, std::uint32_t) {
                put(edge, above(shape_.rank, distance), 0, 0);
            });
            each([&](unsigned edge, std::uint32_t distance, std::uint32_t) {
                take(edge, above(shape_.rank, n_ - distance), 0, 0);
            });
        });
    }

    // The tree's edges from q down, the largest subtree first: has(k, child, its ranks).
    template <class F> void each_child(F&& has) const {
        for (unsigned k = q_ ? static_cast<unsigned>(std::countr_zero(q_)) : 32 - std::countl_zero(n_ - 1); k-- > 0;) {
            const std::uint32_t child = q_ + (1u << k);
            if (child < n_) has(k, child, std::min(1u << k, n_ - child));
        }
    }
    [[nodiscard]] unsigned edge_up() const { return static_cast<unsigned>(std::countr_zero(q_)); }
    [[nodiscard]] std::uint32_t parent() const { return ranked(q_ & (q_ - 1)); }
    [[nodiscard]] std::uint32_t subtree() const { return q_ ? std::min(q_ & (~q_ + 1), n_ - q_) : n_; }

    void bcast() {
        plan_.blocks = 1;
        if (q_) {
            take(edge_up(), parent(), 0, 1);
            plan_.outputs.push_back({.user = 0, .work = 0, .count = 1});
        } else {
            plan_.inputs.push_back({.user = 0, .work = 0, .count = 1});
        }
        each_child([&](unsigned k, std::uint32_t child, std::uint32_t) { put(k, ranked(child), 0, 1); });
    }

    // Blocks of all ranks, which are `first`, `first` + 1 and so on in memory, are the caller's.
    void all_blocks(std::vector<Run>& runs, std::uint32_t first) const {
        if (first) runs.push_back({.user = 0, .work = n_ - first, .count = first});
        runs.push_back({.user = first, .work = 0, .count = n_ - first});
    }
    // All ranks' blocks, of which `first`'s is the first in memory, combined in the order of ranks. Returns the place.
    std::uint32_t fold_all(std::uint32_t first) {
        const auto place = [&](std::uint32_t rank) { return above(rank, n_ - first); };
        for (std::uint32_t rank = 1; rank < n_; ++rank) fold(place(rank - 1), place(rank));
        return place(n_ - 1);
    }

    void scatter() {
        plan_.blocks = subtree();
        if (q_)
            take(edge_up(), parent(), 0, subtree());
        else
            all_blocks(plan_.inputs, shape_.root);
        each_child(
            [&](unsigned k, std::uint32_t child, std::uint32_t ranks) { put(k, ranked(child), child - q_, ranks); });
        plan_.outputs.push_back({.user = 0, .work = 0, .count = 1});
    }

    void gather(bool folds) {
        plan_.blocks = subtree();
        plan_.inputs.push_back({.user = 0, .work = 0, .count = 1});
        each_child(
            [&](unsigned k, std::uint32_t child, std::uint32_t ranks) { take(k, ranked(child), child - q_, ranks); });
        if (q_) return put(edge_up(), parent(), 0, subtree());
        if (folds)
            plan_.outputs.push_back({.user = 0, .work = fold_all(shape_.root), .count = 1});
        else
            all_blocks(plan_.outputs, shape_.root);
    }

    // Memory ends with our own block, and grows downwards: ranks are in their order in it, from rank + 1 on.
    void allgather(bool folds) {
        plan_.blocks = n_;
        plan_.inputs.push_back({.user = 0, .work = n_ - 1, .count = 1});
        each_round([&](const auto& each) {
            each([&](unsigned edge, std::uint32_t distance, std::uint32_t count) {
                put(edge, above(shape_.rank, distance), n_ - count, count);
            });
            each([&](unsigned edge, std::uint32_t distance, std::uint32_t count) {
                take(edge, above(shape_.rank, n_ - distance), n_ - distance - count, count);
            });
        });
        const std::uint32_t first = above(shape_.rank, 1);
        if (folds)
            plan_.outputs.push_back({.user = 0, .work = fold_all(first), .count = 1});
        else
            all_blocks(plan_.outputs, first);
    }

    // Memory: our blocks, the one for rank + i at i; the blocks that a round sends, together;
    // then those that each round brings. The block at i has come from rank - i in the end.
    void alltoall() {
        assert(n_ <= kMostAlltoall);
        std::vector<std::uint32_t> at(n_); // place of the block for i
        for (std::uint32_t i = 0; i < n_; ++i) at[i] = i;
        for (std::uint32_t target = 0; target < n_; ++target)
            append(plan_.inputs, target, above(target, n_ - shape_.rank));
        const std::uint32_t together = n_;
        plan_.blocks = n_ + (n_ + 1) / 2;
        for (unsigned k = 0; (1u << k) < n_; ++k) {
            const std::uint32_t distance = 1u << k;
            std::uint32_t count = 0;
            for (std::uint32_t i = distance; i < n_; ++i)
                if (i & distance) {
                    copy(at[i], together + count);
                    at[i] = plan_.blocks + count++;
                }
            put(k, above(shape_.rank, distance), together, count);
            take(k, above(shape_.rank, n_ - distance), plan_.blocks, count);
            plan_.blocks += count;
        }
        for (std::uint32_t source = 0; source < n_; ++source)
            append(plan_.outputs, source, at[above(shape_.rank, n_ - source)]);
    }
    // One more block behind the others, in the order of the caller's.
    static void append(std::vector<Run>& runs, std::uint32_t user, std::uint32_t work) {
        if (!runs.empty() && runs.back().work + runs.back().count == work)
            ++runs.back().count;
        else
            runs.push_back({.user = user, .work = work, .count = 1});
    }
    void copy(std::uint32_t from, std::uint32_t to) {
        if (!plan_.actions.empty()) {
            Action& last = plan_.actions.back();
            if (last.what == Action::What::copy && last.from + last.count == from && last.to + last.count == to) {
                ++last.count;
                return;
            }
        }
        plan_.actions.push_back(
            {.what = Action::What::copy, .edge = 0, .partner = 0, .from = from, .to = to, .count = 1});
    }

    // Among the first ranks, as many pairs as there are ranks above a power of two are one each: the odd one works.
    void halving() {
        const std::uint32_t rank = shape_.rank, power = std::bit_floor(n_), pairs = n_ - power;
        const auto real = [&](std::uint32_t virtually) {
            return virtually < pairs ? 2 * virtually + 1 : virtually + pairs;
        };
        plan_.inputs.push_back({.user = 0, .work = 0, .count = 1});
        plan_.blocks = 1;
        if (rank < 2 * pairs && rank % 2 == 0) {
            put(kBefore, rank + 1, 0, 1);
            take(kBehind, rank + 1, plan_.blocks++, 1);
            plan_.outputs.push_back({.user = 0, .work = 1, .count = 1});
            return;
        }
        std::uint32_t mine = 0;
        if (rank < 2 * pairs) {
            take(kBefore, rank - 1, plan_.blocks, 1);
            fold(plan_.blocks++, mine);
        }
        const std::uint32_t virtually = rank < 2 * pairs ? rank / 2 : rank - pairs;
        for (unsigned k = 0; (1u << k) < power; ++k) {
            const std::uint32_t other = virtually ^ (1u << k), theirs = plan_.blocks++;
            put(k, real(other), mine, 1);
            take(k, real(other), theirs, 1);
            if (other < virtually) {
                fold(theirs, mine);
            } else {
                fold(mine, theirs);
                mine = theirs;
            }
        }
        if (rank < 2 * pairs) put(kBehind, rank - 1, mine, 1);
        plan_.outputs.push_back({.user = 0, .work = mine, .count = 1});
    }

    const Shape& shape_;
    Plan& plan_;
    const std::uint32_t n_, q_;
};

} // namespace

void make_plan(const Shape& shape, Plan& out) {
    Maker(shape, out).make();
    const Action* behind = nullptr;
    for (auto at = out.actions.rbegin(); at != out.actions.rend(); behind = &*at++) {
        if (at->what != Action::What::take) continue;
        const bool more = behind && behind->what == Action::What::take;
        at->takes = static_cast<std::uint8_t>(1 + (more ? behind->takes : 0));
        at->edges = std::uint64_t{1} << at->edge | (more ? behind->edges : 0);
    }
}

} // namespace ucx_mp::glue
