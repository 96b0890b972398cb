#include "pml_glue/core/plan/hosts.h"

#include <algorithm>
#include <cassert>
#include <unordered_map>

#include "pml_glue/core/plan/maker.h"

namespace ucx_mp::glue {

namespace {

constexpr unsigned kWithin = Rounds::kMostMessages; // the first edge of a host's tree, upwards
constexpr unsigned kDown = 2 * Rounds::kMostMessages, kDetour = kDown + 1;
static_assert(kDetour + 1 == kHostEdges);

// Hosts are used if they are expected to take a tenth more of time than without, at most. The ranks of a host send at
// once, and their adapter has one message after the other: 5 ns each in one of today, 200 in one of 2005. So the time
// without hosts may be far longer than expected, the time with them is not (perf/findings/collectives.md).
bool is_worth(std::uint64_t by_hosts, std::uint64_t flat) { return 10 * by_hosts <= 11 * flat; }

// `above`: the number that is so far above `from`, among n in a circle.
std::uint32_t above(std::uint32_t from, std::uint32_t distance, std::uint32_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{from} + distance) % n);
}

bool has_root(Collective collective) {
    return collective == Collective::bcast || collective == Collective::gather || collective == Collective::reduce ||
           collective == Collective::scatter;
}

class HostMaker : Writer {
public:
    HostMaker(const Shape& shape, Plan& plan)
        : Writer(plan, false), shape_(shape), hosts_(*shape.hosts), n_(shape.ranks),
          root_(has_root(shape.collective) ? shape.root : 0), root_host_(hosts_.host[root_]),
          mine_(hosts_.host[shape.rank]), q_(number_of(shape.rank)), tree_(hosts_.size(mine_), &hosts_.within),
          place_(tree_.place_of(q_)) {
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
    // For its host with all others: the lowest rank, whoever the root is. So a root that changes connects nobody anew.
    [[nodiscard]] bool speaks() const { return hosts_.at[shape_.rank] == 0; }
    [[nodiscard]] std::uint32_t speaker_of(std::uint32_t host) const { return hosts_.ranks[hosts_.first[host]]; }
    [[nodiscard]] bool is_root() const { return shape_.rank == root_; }
    // The root does not speak for its host.
    [[nodiscard]] bool detour() const { return hosts_.at[root_] != 0; }
    // In the tree of its host: 0 is the root, elsewhere the lowest rank.
    [[nodiscard]] std::uint32_t number_of(std::uint32_t rank) const {
        const std::uint32_t host = hosts_.host[rank], size = hosts_.size(host);
        return host == root_host_ ? above(hosts_.at[rank], size - hosts_.at[root_], size) : hosts_.at[rank];
    }
    [[nodiscard]] std::uint32_t rank_of(std::uint32_t number) const { // of our host
        const std::uint32_t size = hosts_.size(mine_);
        return hosts_
            .ranks[hosts_.first[mine_] + (mine_ == root_host_ ? above(hosts_.at[root_], number, size) : number)];
    }
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
            has(kWithin + edge, rank_of(number), number, count);
        });
    }
    // Blocks of our host's ranks are in memory from `first` on: those of our subtree come, and go up.
    void gather_within(std::uint32_t first, bool has_data) {
        each_within([&](unsigned edge, std::uint32_t rank, std::uint32_t number, std::uint32_t count) {
            take(edge, rank, has_data ? first + number : 0, has_data ? count : 0);
        });
        if (q_)
            put(kWithin + place_.edge, rank_of(place_.parent), has_data ? first + q_ : 0, has_data ? place_.count : 0);
    }
    void take_down(std::uint32_t to, std::uint32_t count) { take(kDown, rank_of(place_.parent), to, count); }
    void put_down(std::uint32_t from, std::uint32_t count) {
        each_within([&](unsigned, std::uint32_t rank, std::uint32_t, std::uint32_t) { put(kDown, rank, from, count); });
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
        if (speaks()) across(has_data);
        const auto place = [&](std::uint32_t rank) {
            const std::uint32_t host = hosts_.host[rank], next = beyond(mine_, 1);
            const std::uint32_t between = above(host, hosts_.count() - next, hosts_.count());
            return ranks_of(next, between) + number_of(rank);
        };
        // The result overwrites what has gone up, and is made of it. So it does not come too early.
        const std::uint32_t count = folds ? 1 : has_data ? n_ : 0;
        std::uint32_t result = folds ? n_ : 0;
        if (q_) take_down(result, count);
        if (folds && !q_) result = fold_all(n_, place);
        put_down(result, count);
        if (folds) plan_.outputs.push_back({.user = 0, .work = result, .count = 1});
        if (folds) return;
        for (std::uint32_t rank = 0; rank < n_ && has_data; ++rank) append(plan_.outputs, rank, place(rank));
    }
    void across(bool has_data) {
        const std::uint32_t all = hosts_.count();
        each_round(all, &hosts_.across, [&](const auto& each) {
            each([&](unsigned edge, std::uint32_t distance, std::uint32_t count) {
                const std::uint32_t ranks = has_data ? ranks_of(beyond(mine_, all - count + 1), count) : 0;
                put(edge, speaker_of(beyond(mine_, distance)), has_data ? n_ - ranks : 0, ranks);
            });
            each([&](unsigned edge, std::uint32_t distance, std::uint32_t count) {
                const std::uint32_t last = beyond(mine_, all - distance), first = beyond(last, all - count + 1);
                const std::uint32_t ranks = has_data ? ranks_of(first, count) : 0;
                const std::uint32_t to = has_data ? n_ - ranks_of(first, count + distance) : 0;
                take(edge, speaker_of(last), to, ranks);
            });
        });
    }

    // Hosts of an operation with a root are numbered from the root's on. Their speakers are a binomial tree.
    [[nodiscard]] std::uint32_t host_at(std::uint32_t number) const { return beyond(root_host_, number); }
    [[nodiscard]] std::uint32_t own_number() const { return beyond(mine_, hosts_.count() - root_host_); }
    [[nodiscard]] Tree speakers() const { return {hosts_.count(), nullptr}; }
    [[nodiscard]] Tree::Place host_place() const { return speakers().place_of(own_number()); }
    [[nodiscard]] std::uint32_t parent_speaker() const { return speaker_of(host_at(host_place().parent)); }
    // Blocks in memory: those of our subtree within the host, the first of which is ours; then, of who speaks, those of
    // the hosts that are below. So the root has its own host's first.
    [[nodiscard]] std::uint32_t others() const { // of hosts below
        return ranks_of(mine_, host_place().count) - hosts_.size(mine_);
    }
    [[nodiscard]] std::uint32_t blocks() const { return is_root() ? n_ : place_.count + (speaks() ? others() : 0); }
    // Each host that is a child of ours: has(edge, who speaks, where its subtree's blocks begin, how many they are).
    template <class F> void each_across(F&& has) const {
        const std::uint32_t h = own_number();
        speakers().each_child(h, [&](unsigned edge, std::uint32_t number, std::uint32_t count) {
            has(edge, speaker_of(host_at(number)), place_.count + ranks_of(beyond(mine_, 1), number - h - 1),
                ranks_of(host_at(number), count));
        });
    }
    // Where the root has the block of a rank.
    [[nodiscard]] std::uint32_t place_at_root(std::uint32_t rank) const {
        const std::uint32_t host = hosts_.host[rank];
        return ranks_of(root_host_, beyond(host, hosts_.count() - root_host_)) + number_of(rank);
    }

    void bcast() {
        plan_.blocks = 1;
        (is_root() ? plan_.inputs : plan_.outputs).push_back({.user = 0, .work = 0, .count = 1});
        if (speaks() && mine_ != root_host_)
            take(host_place().edge, parent_speaker(), 0, 1);
        else if (!is_root())
            take_down(0, 1);
        if (speaks())
            each_across(
                [&](unsigned edge, std::uint32_t speaker, std::uint32_t, std::uint32_t) { put(edge, speaker, 0, 1); });
        put_down(0, 1);
    }

    void scatter() {
        plan_.blocks = blocks();
        const std::uint32_t size = hosts_.size(mine_);
        if (is_root()) {
            for (std::uint32_t rank = 0; rank < n_; ++rank) append(plan_.inputs, rank, place_at_root(rank));
            if (detour()) put(kDetour, speaker_of(mine_), size, n_ - size);
        } else if (speaks()) {
            if (mine_ == root_host_)
                take(kDetour, root_, place_.count, others());
            else
                take(host_place().edge, parent_speaker(), 0, blocks());
        }
        if (speaks())
            each_across([&](unsigned edge, std::uint32_t speaker, std::uint32_t from, std::uint32_t count) {
                put(edge, speaker, from, count);
            });
        if (q_) take_down(0, place_.count);
        each_within([&](unsigned, std::uint32_t rank, std::uint32_t number, std::uint32_t count) {
            put(kDown, rank, number - q_, count);
        });
        plan_.outputs.push_back({.user = 0, .work = 0, .count = 1});
    }

    void gather(bool folds) {
        plan_.blocks = blocks();
        const std::uint32_t size = hosts_.size(mine_);
        plan_.inputs.push_back({.user = 0, .work = 0, .count = 1});
        each_within([&](unsigned edge, std::uint32_t rank, std::uint32_t number, std::uint32_t count) {
            take(edge, rank, number - q_, count);
        });
        if (q_) put(kWithin + place_.edge, rank_of(place_.parent), 0, place_.count);
        if (speaks()) {
            each_across([&](unsigned edge, std::uint32_t speaker, std::uint32_t to, std::uint32_t count) {
                take(edge, speaker, to, count);
            });
            if (mine_ != root_host_)
                put(host_place().edge, parent_speaker(), 0, blocks());
            else if (!is_root())
                put(kDetour, root_, place_.count, others());
        }
        if (!is_root()) return;
        if (detour()) take(kDetour, speaker_of(mine_), size, n_ - size);
        const auto place = [&](std::uint32_t rank) { return place_at_root(rank); };
        if (folds)
            plan_.outputs.push_back({.user = 0, .work = fold_all(n_, place), .count = 1});
        else
            for (std::uint32_t rank = 0; rank < n_; ++rank) append(plan_.outputs, rank, place(rank));
    }

    const Shape& shape_;
    const Hosts& hosts_;
    const std::uint32_t n_, root_, root_host_, mine_, q_;
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
    worth = is_worth(by_hosts, cost_of(flat, costs.latency, costs.overhead));
}

std::vector<std::uint32_t> Hosts::takers_of(std::uint32_t rank) const {
    std::vector<std::uint32_t> out;
    const std::uint32_t own = host[rank], all = count();
    for (std::uint32_t i = first[own]; i < first[own + 1]; ++i)
        if (ranks[i] != rank) out.push_back(ranks[i]);
    if (at[rank] != 0) return out; // it does not speak for its host
    const auto speaker = [&](std::uint32_t distance) { out.push_back(ranks[first[above(own, distance, all)]]); };
    each_round(all, &across, [&](const auto& each) {
        each([&](unsigned, std::uint32_t distance, std::uint32_t) { speaker(distance); });
    });
    for (std::uint32_t distance = 1; distance < all; distance *= 2) speaker(distance), speaker(all - distance);
    return out;
}

void make_plan_by_hosts(const Shape& shape, Plan& out) { HostMaker(shape, out).make(); }

} // namespace ucx_mp::glue
