#include "pml_glue/core/plan/plan.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "pml_glue/core/plan/hosts.h"
#include "pml_glue/core/plan/maker.h"

namespace ucx_mp::glue {

namespace {

// Edges of halving that are no rounds of it.
constexpr unsigned kBefore = kEdges - 2, kBehind = kEdges - 1;

class Maker : Writer {
public:
    Maker(const Shape& shape, Plan& plan)
        : Writer(plan, shape.triggered), shape_(shape), n_(shape.ranks), q_(above(shape.rank, n_ - shape.root)),
          tree_(n_, nullptr), place_(tree_.place_of(q_)) {
        assert(n_ >= 2 && shape.rank < n_ && shape.root < n_);
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
    void barrier() {
        each_round(n_, shape_.rounds, [&](const auto& each) {
            each([&](unsigned edge, std::uint32_t distance, std::uint32_t) {
                put(edge, above(shape_.rank, distance), 0, 0);
            });
            each([&](unsigned edge, std::uint32_t distance, std::uint32_t) {
                take(edge, above(shape_.rank, n_ - distance), 0, 0);
            });
        });
    }

    void bcast() {
        plan_.blocks = 1;
        if (q_) {
            take(place_.edge, ranked(place_.parent), 0, 1);
            plan_.outputs.push_back({.user = 0, .work = 0, .count = 1});
        } else {
            plan_.inputs.push_back({.user = 0, .work = 0, .count = 1});
        }
        tree_.each_child(q_, [&](unsigned k, std::uint32_t child, std::uint32_t) { put(k, ranked(child), 0, 1); });
    }

    // Blocks of all ranks, which are `first`, `first` + 1 and so on in memory, are the caller's.
    void all_blocks(std::vector<Run>& runs, std::uint32_t first) const {
        if (first) runs.push_back({.user = 0, .work = n_ - first, .count = first});
        runs.push_back({.user = first, .work = 0, .count = n_ - first});
    }
    // All ranks' blocks, of which `first`'s is the first in memory, combined. Returns the place.
    std::uint32_t fold_from(std::uint32_t first) {
        return fold_all(n_, [&](std::uint32_t rank) { return above(rank, n_ - first); });
    }

    void scatter() {
        plan_.blocks = place_.count;
        if (q_)
            take(place_.edge, ranked(place_.parent), 0, place_.count);
        else
            all_blocks(plan_.inputs, shape_.root);
        tree_.each_child(q_, [&](unsigned k, std::uint32_t child, std::uint32_t ranks) {
            put(k, ranked(child), child - q_, ranks);
        });
        plan_.outputs.push_back({.user = 0, .work = 0, .count = 1});
    }

    void gather(bool folds) {
        plan_.blocks = place_.count;
        plan_.inputs.push_back({.user = 0, .work = 0, .count = 1});
        tree_.each_child(q_, [&](unsigned k, std::uint32_t child, std::uint32_t ranks) {
            take(k, ranked(child), child - q_, ranks);
        });
        if (q_) return put(place_.edge, ranked(place_.parent), 0, place_.count);
        if (folds)
            plan_.outputs.push_back({.user = 0, .work = fold_from(shape_.root), .count = 1});
        else
            all_blocks(plan_.outputs, shape_.root);
    }

    // Memory ends with our own block, and grows downwards: ranks are in their order in it, from rank + 1 on.
    void allgather(bool folds) {
        plan_.blocks = n_;
        plan_.inputs.push_back({.user = 0, .work = n_ - 1, .count = 1});
        each_round(n_, shape_.rounds, [&](const auto& each) {
            each([&](unsigned edge, std::uint32_t distance, std::uint32_t count) {
                put(edge, above(shape_.rank, distance), n_ - count, count);
            });
            each([&](unsigned edge, std::uint32_t distance, std::uint32_t count) {
                take(edge, above(shape_.rank, n_ - distance), n_ - distance - count, count);
            });
        });
        const std::uint32_t first = above(shape_.rank, 1);
        if (folds)
            plan_.outputs.push_back({.user = 0, .work = fold_from(first), .count = 1});
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
    const std::uint32_t n_, q_;
    const Tree tree_;
    const Tree::Place place_;
};

} // namespace

void make_plan(const Shape& shape, Plan& out) {
    if (shape.hosts)
        make_plan_by_hosts(shape, out);
    else
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
