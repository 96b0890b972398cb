// The common part of those who make plans: how actions are written, and who talks to whom. Pure.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "pml_glue/core/plan/plan.h"

namespace ucx_mp::glue {

// Writes one rank's actions. Numbers of ranks, blocks and edges as in plan.h.
class Writer {
public:
    Writer(Plan& plan, bool triggered) : plan_(plan) {
        plan.actions.clear();
        plan.inputs.clear();
        plan.outputs.clear();
        plan.blocks = 0;
        std::fill(std::begin(plan.place_of), std::end(plan.place_of), Plan::kNoTake);
        if (triggered) plan.actions.push_back({.what = Action::What::adapter});
    }

protected:
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
    // Combines the blocks of all ranks in their order. place(rank): where the block of a rank is. Returns the result's.
    template <class Place> std::uint32_t fold_all(std::uint32_t ranks, const Place& place) {
        for (std::uint32_t rank = 1; rank < ranks; ++rank) fold(place(rank - 1), place(rank));
        return place(ranks - 1);
    }
    // One more block behind the others, in the order of the caller's.
    static void append(std::vector<Run>& runs, std::uint32_t user, std::uint32_t work) {
        if (!runs.empty() && runs.back().work + runs.back().count == work)
            ++runs.back().count;
        else
            runs.push_back({.user = user, .work = work, .count = 1});
    }

    Plan& plan_;
};

// A dissemination among n. round(each): each(f) calls f(edge, distance, count) for every message of the round, with the
// number of those that its receiver has not heard of. Null: rounds of one message each.
template <class F> void each_round(std::uint32_t n, const Rounds* rounds, F&& round) {
    std::uint64_t before = 1; // distance of a round's first message
    unsigned first = 0;       // edge
    for (unsigned j = 0; before < n; ++j) {
        const unsigned radix = rounds ? rounds->radix[j] : 2;
        round([&](auto&& message) {
            for (unsigned i = 1; i < radix && i * before < n; ++i) {
                const auto distance = static_cast<std::uint32_t>(i * before);
                message(first + i - 1, distance, std::min(static_cast<std::uint32_t>(before), n - distance));
            }
        });
        first += radix - 1;
        before *= radix;
    }
}

// A tree among n, whose root is 0. The number of a member has a digit for each round, the first round's is the lowest.
// The parent of q is q with its lowest digit that is not 0 made 0. So a subtree is a run from its own root on. With
// rounds of one message each (null) the tree is binomial.
class Tree {
public:
    Tree(std::uint32_t n, const Rounds* rounds) : n_(n), rounds_(rounds) {}
    struct Place {
        std::uint32_t parent = 0, count; // members of its subtree
        unsigned edge = 0;               // up; as in each_round()
    };
    [[nodiscard]] Place place_of(std::uint32_t q) const {
        Place out{.count = n_};
        each_level([&](std::uint32_t before, unsigned radix, unsigned first) {
            const std::uint32_t digit = q / before % radix;
            if (digit == 0) return true;
            out = {.parent = q - digit * before, .count = std::min(before, n_ - q), .edge = first + digit - 1};
            return false;
        });
        return out;
    }
    // child(edge, its number, members of its subtree), the largest subtrees first.
    template <class F> void each_child(std::uint32_t q, F&& child) const {
        struct Level {
            std::uint32_t before;
            unsigned radix, first;
        } levels[Rounds::kMost];
        unsigned count = 0;
        each_level([&](std::uint32_t before, unsigned radix, unsigned first) {
            if (q / before % radix) return false;
            levels[count++] = {before, radix, first};
            return true;
        });
        while (count-- > 0) {
            const Level& its = levels[count];
            for (unsigned i = 1; i < its.radix; ++i) {
                const std::uint64_t one = q + std::uint64_t{i} * its.before;
                if (one >= n_) break;
                const auto number = static_cast<std::uint32_t>(one);
                child(its.first + i - 1, number, std::min(its.before, n_ - number));
            }
        }
    }

private:
    // level(weight of the digit, radix, edge of digit 1): false ends.
    template <class F> void each_level(F&& level) const {
        unsigned first = 0, j = 0;
        for (std::uint64_t before = 1; before < n_; ++j) {
            const unsigned radix = rounds_ ? rounds_->radix[j] : 2;
            if (!level(static_cast<std::uint32_t>(before), radix, first)) return;
            first += radix - 1;
            before *= radix;
        }
    }
    const std::uint32_t n_;
    const Rounds* const rounds_;
};

} // namespace ucx_mp::glue
