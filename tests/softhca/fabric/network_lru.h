// The QP contexts that an adapter holds on chip: exact least-recently-used replacement, O(1), allocates only at set-up.
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

namespace softhca {

class QpCache {
public:
    // 0 entries: unlimited, touch() always hits.
    explicit QpCache(uint32_t entries = 0)
        : nodes_(entries), buckets_(entries == 0 ? 0 : std::bit_ceil(entries * 2), kNil) {}

    // The adapter needs the context of `qpn`: true if it is there. It is the most recent afterwards.
    bool touch(uint32_t qpn) {
        if (nodes_.empty()) return true;
        for (uint32_t i = buckets_[bucket(qpn)]; i != kNil; i = nodes_[i].chain)
            if (nodes_[i].qpn == qpn) {
                if (i != newest_) {
                    unlink(i);
                    push(i);
                }
                return true;
            }
        uint32_t i = used_;
        if (used_ < nodes_.size())
            ++used_;
        else {
            i = oldest_;
            unlink(i);
            uint32_t* link = &buckets_[bucket(nodes_[i].qpn)];
            while (*link != i) link = &nodes_[*link].chain;
            *link = nodes_[i].chain;
        }
        nodes_[i].qpn = qpn;
        nodes_[i].chain = buckets_[bucket(qpn)];
        buckets_[bucket(qpn)] = i;
        push(i);
        return false;
    }

private:
    static constexpr uint32_t kNil = UINT32_MAX;
    struct Node {
        uint32_t qpn, chain, newer, older;
    };
    [[nodiscard]] size_t bucket(uint32_t qpn) const { return (qpn * 0x9e3779b1u >> 7) & (buckets_.size() - 1); }
    void unlink(uint32_t i) {
        const Node& n = nodes_[i];
        (n.newer == kNil ? newest_ : nodes_[n.newer].older) = n.older;
        (n.older == kNil ? oldest_ : nodes_[n.older].newer) = n.newer;
    }
    void push(uint32_t i) {
        nodes_[i].newer = kNil;
        nodes_[i].older = newest_;
        (newest_ == kNil ? oldest_ : nodes_[newest_].newer) = i;
        newest_ = i;
    }
    std::vector<Node> nodes_;
    std::vector<uint32_t> buckets_;
    uint32_t used_ = 0, newest_ = kNil, oldest_ = kNil;
};

} // namespace softhca
