// Nodes that choose by themselves who gets RC: a small set-up with costs that are given, and messages that are checked.
#pragma once

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "both_transports.h"
#include "uct_mp/channel/core.h"

namespace ucx_mp::sim {

using channel::Interface;
using Mode = channel::AdaptConfig::Mode;

inline constexpr Nanos kMs = 1'000'000;

inline channel::Config config(unsigned max_rc, Mode mode = Mode::on) {
    channel::Config config = config_of(connect::Transport::dc);
    config.adapt.mode = mode;
    config.adapt.max_rc = max_rc;
    config.adapt.tuning.interval = 8 * kMs;
    config.adapt.tuning.min_interval = kMs / 2;
    config.adapt.tuning.costs = {.rc = 150, .make_rc = 10'000};
    config.adapt.measured = false;
    config.paths.num_paths = 1;
    config.reliability = {};
    return config;
}

// By trials alone: each peer has an initiator to itself, so none of them turns.
inline channel::Config measuring(Mode mode = Mode::on) {
    channel::Config c = config(4, mode);
    c.adapt.measured = true;
    c.adapt.tuning.costs = {};
    c.dci_count = 32;
    return c;
}

inline Interface::Statistics statistics(Node& node) {
    Interface::Statistics out;
    node.iface().statistics(out);
    return out;
}

inline void pass(Cluster& cluster, Nanos time) { // though nothing happens
    (void)cluster.world.at(cluster.world.now() + time, [] {});
    cluster.run_for(time);
}

// Messages with numbers, from whomever to whomever; each arrives once and in order.
class Messages {
public:
    explicit Messages(Cluster& cluster)
        : cluster_(cluster), n_(cluster.size()), to_(n_ * n_), sent_(n_ * n_), got_(n_ * n_) {
        for (unsigned i = 0; i < n_; ++i) {
            takers_.push_back(std::make_unique<Taker>(Taker{this, i}));
            cluster.node(i).on_am(3, take, takers_.back().get());
            for (unsigned k = 0; k < n_; ++k)
                if (k != i) to_[i * n_ + k] = &cluster.channel(i, k);
        }
    }
    bool send(unsigned from, unsigned to) {
        std::uint64_t& number = sent_[from * n_ + to];
        cluster_.world.select(from);
        const std::uint64_t header = from | number << 8;
        if (Interface::am_short(*to_[from * n_ + to], 3, header, nullptr, 0) != Status::ok) return false;
        ++number;
        return true;
    }
    // Each of these pairs so many, in turns.
    bool all(const std::vector<std::pair<unsigned, unsigned>>& pairs, unsigned count, Nanos limit = 3'000 * kMs) {
        std::vector<unsigned> left(pairs.size(), count);
        return cluster_.until(
            [&] {
                bool done = true;
                for (std::size_t i = 0; i < pairs.size(); ++i) {
                    for (unsigned burst = 0; burst < 8 && left[i] && send(pairs[i].first, pairs[i].second); ++burst)
                        --left[i];
                    done &= left[i] == 0;
                }
                return done && arrived();
            },
            limit);
    }
    [[nodiscard]] bool arrived() const { return sent_ == got_; }
    [[nodiscard]] Channel* to(unsigned from, unsigned peer) const { return to_[from * n_ + peer]; }
    unsigned mistakes = 0;

private:
    struct Taker {
        Messages* all;
        unsigned at;
    };
    static Status take(void* arg, void* data, std::size_t, unsigned) {
        const auto& [all, at] = *static_cast<Taker*>(arg);
        std::uint64_t header = 0;
        std::memcpy(&header, data, sizeof header);
        all->mistakes += header >> 8 != all->got_[(header & 0xff) * all->n_ + at]++;
        return Status::ok;
    }
    Cluster& cluster_;
    const unsigned n_;
    std::vector<std::unique_ptr<Taker>> takers_;
    std::vector<Channel*> to_;
    std::vector<std::uint64_t> sent_, got_; // by sender, receiver
};

// Of a node: peers that RC leads to.
inline std::vector<unsigned> with_rc(Cluster& cluster, unsigned at) {
    std::vector<unsigned> peers;
    const Interface::Statistics now = statistics(cluster.node(at));
    for (unsigned i = 0; i < cluster.size(); ++i)
        for (const auto& channel : now.channels)
            if (i != at && channel.peer_uid == cluster.node(i).iface().address().uid &&
                (channel.service.ours == std::string("rc") || channel.service.theirs == std::string("rc")))
                peers.push_back(i);
    return peers;
}
inline std::uint64_t changes(Cluster& cluster) {
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < cluster.size(); ++i) sum += statistics(cluster.node(i)).adaptation.changes;
    return sum;
}

inline std::vector<std::pair<unsigned, unsigned>> from_one(std::initializer_list<unsigned> to) {
    std::vector<std::pair<unsigned, unsigned>> pairs;
    for (const unsigned peer : to) pairs.emplace_back(0, peer);
    return pairs;
}
inline std::vector<std::pair<unsigned, unsigned>> to_one(std::initializer_list<unsigned> from) {
    std::vector<std::pair<unsigned, unsigned>> pairs;
    for (const unsigned peer : from) pairs.emplace_back(peer, 0);
    return pairs;
}

} // namespace ucx_mp::sim
