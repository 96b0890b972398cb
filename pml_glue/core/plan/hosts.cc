#include "pml_glue/core/plan/hosts.h"

#include <algorithm>
#include <cassert>
#include <unordered_map>

#include "pml_glue/core/plan/maker.h"

namespace ucx_mp::glue {

namespace {

constexpr unsigned kWithin = Rounds::kMostMessages; // the first edge of a host's tree, upwards
constexpr unsigned kDown = 2 * Rounds::kMostMessages;
static_assert(kDown < kEdges - 2);

// Hosts are used if they are expected to take so much of the time without them. The ranks of a host send at once, and
// their adapter has one message after the other: 5 ns each in one of today, 200 in one of 2005. So the time without
// hosts may be far longer than expected, the time with them is not (perf/findings/collectives.md).
constexpr double kAtMost = 1.1;

// `above`: the number that is so far above `from`, among n in a circle.
std::uint32_t above(std::uint32_t from, std::uint32_t distance, std::uint32_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{from} + distance) % n);
}

class HostMaker : Writer {
public:
    HostMaker(const Shape& shape, Plan& plan)
        : Writer(plan, false), shape_(shape), hosts_(*shape.hosts), n_(shape.ranks),
          root_host_(hosts_.host[shape.root]), mine_(hosts_.host[shape.rank]), q_(number_of(shape.rank)),
          tree_(hosts_.size(mine_), &hosts_.within), place_(tree_.place_of(q_)) {
        assert(hosts_.count() > 1 && uses_hosts(shape.collective));
    }
    void make() {
        switch (shape_.collective) {
        case Collective::bcast:
            return bcast();
        case Collective::scatter:
            return scatter();
        case Collective::gather:
        case Collective::reduce:
            return gather(shape_.collective == Collective::reduce);
        default:
            return all();
        }
    }

private:
    [[nodiscard]] bool leads() const { return q_ == 0; }
    // Among the ranks of its host: 0 is the leader.
    [[nodiscard]] std::uint32_t number_of(std::uint32_t rank) const {
        const std::uint32_t host = hosts_.host[rank], size = hosts_.size(host);
        return host == root_host_ ? above(hosts_.at[rank], size - hosts_.at[shape_.root], size) : hosts_.at[rank];
    }
    [[nodiscard]] std::uint32_t rank_of(std::uint32_t host, std::uint32_t number) const {
        const std::uint32_t size = hosts_.size(host);
        return hosts_
            .ranks[hosts_.first[host] + (host == root_host_ ? above(hosts_.at[shape_.root], number, size) : number)];
    }
    [[nodiscard]] std::uint32_t leader_of(std::uint32_t host) const { return rank_of(host, 0); }
    [[nodiscard]] std::uint32_t beyond(std::uint32_t host, std::uint32_t distance) const {
        return above(host, distance, hosts_.count());
    }
    // Ranks of `count` hosts, from `host` on in the circle.
    [[nodiscard]] std::uint32_t ranks_of(std::uint32_t host, std::uint32_t count) const {
        const std::uint32_t end = host + count, all = hosts_.count();
        if (end <= all) return hosts_.first[end] - hosts_.first[host];
        return n_ - hosts_.first[host] + hosts_.first[end - all];
    }

    // Each child within the host: has(edge, rank, its number, ranks of its subtree).
    template <class F> void each_within(F&& has) const {
        tree_.each_child(q_, [&](unsigned edge, std::uint32_t number, std::uint32_t count) {
            has(kWithin + edge, rank_of(mine_, number), number, count);
        });
    }
    // Blocks of our host's ranks are in memory from `first` on: those of our subtree come, and go up.
    void gather_within(std::uint32_t first, bool has_data) {
        each_within([&](unsigned edge, std::uint32_t rank, std::uint32_t number, std::uint32_t count) {
            take(edge, rank, has_data ? first + number : 0, has_data ? count : 0);
        });
        if (!leads())
            put(kWithin + place_.edge, rank_of(mine_, place_.parent), has_data ? first + q_ : 0,
                has_data ? place_.count : 0);
    }
    // `count` blocks: at the leader from `from` on, at all others to `to`, and from there to their children.
    void hand_down(std::uint32_t from, std::uint32_t to, std::uint32_t count) {
        if (!leads()) take(kDown, rank_of(mine_, place_.parent), to, count);
        each_within([&](unsigned, std::uint32_t rank, std::uint32_t, std::uint32_t) {
            put(kDown, rank, leads() ? from : to, count);
        });
    }

    // Barrier, allgather, allreduce. Memory has all ranks' blocks, of our own host the last ones: hosts in the order of
    // the circle, ranks as they are numbered. Behind them is the result of a reduction, where we have not made it.
    void all() {
        const bool has_data = shape_.collective != Collective::barrier;
        const bool folds = shape_.collective == Collective::allreduce;
        const std::uint32_t own = n_ - hosts_.size(mine_);
        if (has_data) {
            plan_.blocks = n_ + folds;
            plan_.inputs.push_back({.user = 0, .work = own + q_, .count = 1});
        }
        gather_within(own, has_data);
        if (leads()) across(has_data);
        const auto place = [&](std::uint32_t rank) {
            const std::uint32_t host = hosts_.host[rank], next = beyond(mine_, 1);
            const std::uint32_t between = above(host, hosts_.count() - next, hosts_.count());
            return ranks_of(next, between) + number_of(rank);
        };
        if (folds) {
            const std::uint32_t result = leads() ? fold_all(n_, place) : n_;
            plan_.outputs.push_back({.user = 0, .work = result, .count = 1});
            return hand_down(result, n_, 1);
        }
        hand_down(0, 0, has_data ? n_ : 0);
        for (std::uint32_t rank = 0; rank < n_ && has_data; ++rank) append(plan_.outputs, rank, place(rank));
    }
    void across(bool has_data) {
        const std::uint32_t all = hosts_.count();
        each_round(all, &hosts_.across, [&](const auto& each) {
            each([&](unsigned edge, std::uint32_t distance, std::uint32_t count) {
                const std::uint32_t ranks = has_data ? ranks_of(beyond(mine_, all - count + 1), count) : 0;
                put(edge, leader_of(beyond(mine_, distance)), has_data ? n_ - ranks : 0, ranks);
            });
            each([&](unsigned edge, std::uint32_t distance, std::uint32_t count) {
                const std::uint32_t last = beyond(mine_, all - distance), first = beyond(last, all - count + 1);
                const std::uint32_t ranks = has_data ? ranks_of(first, count) : 0;
                const std::uint32_t to = has_data ? n_ - ranks_of(first, count + distance) : 0;
                take(edge, leader_of(last), to, ranks);
            });
        });
    }

    // Hosts of an operation with a root are numbered from the root's on.
    [[nodiscard]] std::uint32_t host_at(std::uint32_t number) const { return beyond(root_host_, number); }
    [[nodiscard]] std::uint32_t own_number() const { return beyond(mine_, hosts_.count() - root_host_); }
    // Each host that is a child of ours: has(edge, leader, blocks before its own from ours on, ranks of its subtree).
    template <class F> void each_across(F&& has) const {
        const std::uint32_t h = own_number();
        leaders().each_child(h, [&](unsigned edge, std::uint32_t number, std::uint32_t count) {
            has(edge, leader_of(host_at(number)), ranks_of(mine_, number - h), ranks_of(host_at(number), count));
        });
    }
    [[nodiscard]] Tree leaders() const { return {hosts_.count(), nullptr}; }
    [[nodiscard]] Tree::Place host_place() const { return leaders().place_of(own_number()); }
    [[nodiscard]] std::uint32_t parent_leader() const { return leader_of(host_at(host_place().parent)); }
    // Blocks of our subtree: of a leader, of all hosts' below.
    [[nodiscard]] std::uint32_t subtree() const { return leads() ? ranks_of(mine_, host_place().count) : place_.count; }
    // Where the root has the block of a rank.
    [[nodiscard]] std::uint32_t place_at_root(std::uint32_t rank) const {
        const std::uint32_t host = hosts_.host[rank];
        return ranks_of(root_host_, beyond(host, hosts_.count() - root_host_)) + number_of(rank);
    }

    void bcast() {
        plan_.blocks = 1;
        if (shape_.rank == shape_.root)
            plan_.inputs.push_back({.user = 0, .work = 0, .count = 1});
        else
            plan_.outputs.push_back({.user = 0, .work = 0, .count = 1});
        if (leads()) {
            if (mine_ != root_host_) take(host_place().edge, parent_leader(), 0, 1);
            each_across(
                [&](unsigned edge, std::uint32_t leader, std::uint32_t, std::uint32_t) { put(edge, leader, 0, 1); });
        }
        hand_down(0, 0, 1);
    }

    // Memory begins with our own block, and has those of our subtree.
    void scatter() {
        plan_.blocks = subtree();
        if (shape_.rank == shape_.root)
            for (std::uint32_t rank = 0; rank < n_; ++rank) append(plan_.inputs, rank, place_at_root(rank));
        if (!leads()) {
            take(kDown, rank_of(mine_, place_.parent), 0, place_.count);
        } else {
            if (mine_ != root_host_) take(host_place().edge, parent_leader(), 0, subtree());
            each_across([&](unsigned edge, std::uint32_t leader, std::uint32_t before, std::uint32_t count) {
                put(edge, leader, before, count);
            });
        }
        each_within([&](unsigned, std::uint32_t rank, std::uint32_t number, std::uint32_t count) {
            put(kDown, rank, number - q_, count);
        });
        plan_.outputs.push_back({.user = 0, .work = 0, .count = 1});
    }

    void gather(bool folds) {
        plan_.blocks = subtree();
        plan_.inputs.push_back({.user = 0, .work = 0, .count = 1});
        each_within([&](unsigned edge, std::uint32_t rank, std::uint32_t number, std::uint32_t count) {
            take(edge, rank, number - q_, count);
        });
        if (!leads()) return put(kWithin + place_.edge, rank_of(mine_, place_.parent), 0, place_.count);
        each_across([&](unsigned edge, std::uint32_t leader, std::uint32_t before, std::uint32_t count) {
            take(edge, leader, before, count);
        });
        if (mine_ != root_host_) return put(host_place().edge, parent_leader(), 0, subtree());
        const auto place = [&](std::uint32_t rank) { return place_at_root(rank); };
        if (folds)
            plan_.outputs.push_back({.user = 0, .work = fold_all(n_, place), .count = 1});
        else
            for (std::uint32_t rank = 0; rank < n_; ++rank) append(plan_.outputs, rank, place(rank));
    }

    const Shape& shape_;
    const Hosts& hosts_;
    const std::uint32_t n_, root_host_, mine_, q_;
    const Tree tree_;
    const Tree::Place place_;
};

} // namespace

Hosts::Hosts(std::span<const std::uint64_t> keys, const MessageCosts& costs) : host(keys.size()), at(keys.size()) {
    const auto n = static_cast<std::uint32_t>(keys.size());
    std::unordered_map<std::uint64_t, std::uint32_t> numbers;
    std::vector<std::uint32_t> sizes;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        host[rank] = numbers.try_emplace(keys[rank], static_cast<std::uint32_t>(numbers.size())).first->second;
        if (host[rank] == sizes.size()) sizes.push_back(0);
        at[rank] = sizes[host[rank]]++;
    }
    first.push_back(0);
    for (const std::uint32_t its : sizes) first.push_back(first.back() + its);
    ranks.resize(n);
    for (std::uint32_t rank = 0; rank < n; ++rank) ranks[first[host[rank]] + at[rank]] = rank;

    const bool one = count() == 1;
    const std::uint32_t largest = *std::ranges::max_element(sizes);
    flat = choose_rounds(n, one ? costs.within_latency : costs.latency, one ? costs.within_overhead : costs.overhead);
    if (one || largest == 1) return;
    across = choose_rounds(count(), costs.latency, costs.overhead);
    within = choose_rounds(largest, costs.within_latency, costs.within_overhead);
    const std::uint64_t by_hosts = cost_of(across, costs.latency, costs.overhead) +
                                   2 * cost_of(within, costs.within_latency, costs.within_overhead);
    worth = static_cast<double>(by_hosts) < kAtMost * static_cast<double>(cost_of(flat, costs.latency, costs.overhead));
}

void make_plan_by_hosts(const Shape& shape, Plan& out) { HostMaker(shape, out).make(); }

} // namespace ucx_mp::glue
