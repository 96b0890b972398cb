// Chooses the connection that gives way when another one is wanted and
// there is no room for both (ACTS: its LRU and LRU-M, and one of ours).
//
// A peer is used, or not, between two searches for a victim: uses are not counted. So
// nothing is paid on the data path. All policies are told the same: which connections
// there are, and which of them have been used since the search before (the bit of CLOCK).
//
// lru     the one that has not been used for longest.
// lru_m   ACTS: of those with the fewest tear-downs so far, the one that has not been used for longest.
// leader  follows the expert that would have done best lately. Each of a few experts keeps a set of as many peers as
//         there are places, as if it alone had decided from the beginning. Experts go by recency, by how often a peer
//         was used (with several half-lives), or keep the old ones, which is right for loops. The connections that each
//         of them would have had to make again are counted, and forgotten by and by. The victim is one that the leader
//         would not hold. Another expert takes the lead only when it is clearly better.
//         Connections are not equally dear: a peer with which all connect has others to serve first. All experts but
//         those for loops weigh by how long the last connections took: uses as they are, recency as GreedyDual does
//         (Young 1994).
//
// Pure: no clock, no I/O. Threads: one at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace ucx_mp::adapt {

enum class VictimPolicy : std::uint8_t { lru, lru_m, leader };

class Victims {
public:
    using Key = std::uint64_t; // a peer

    // `places`: connections that there may be, at least 1.
    Victims(VictimPolicy policy, unsigned places);

    // Before each search: this peer's connection has been used since the search before. New ones count as well.
    void used(Key peer);
    // A connection with it has been made, and took so long, ns.
    void connected(Key peer, double took);
    // Index of the one that is to go. `idle` is not empty: connections that could end now.
    [[nodiscard]] std::size_t choose(std::span<const Key> idle);
    // The connection of that one has been given back. It is remembered for a while.
    void torn_down(Key peer);

    [[nodiscard]] unsigned tear_downs(Key peer) const; // as far as remembered
    [[nodiscard]] std::size_t remembered() const { return peers_.size(); }

private:
    enum Expert : unsigned { recent, often, oftener = often + 3, old, kExperts };
    static constexpr unsigned kCounts = oftener - often + 1; // experts that count
    struct Peer {
        std::uint64_t at = 0;      // time of its last use, counted in uses
        double credit = 0;         // GreedyDual: its price, plus the credit of the last victim at that time
        float took = 0;            // ns for a connection; 0: not known
        float count[kCounts] = {}; // uses at that time, halved every so often
        std::uint8_t held = 0;     // bit e: expert e holds it
        std::uint16_t torn = 0;
    };
    using Entry = std::pair<const Key, Peer>;
    using Rank = std::array<double, 3>; // compared one number after the other; the least goes

    [[nodiscard]] Rank rank(const Peer& peer) const;
    [[nodiscard]] double worth(Expert expert, const Peer& peer) const; // the peer of the least worth goes
    [[nodiscard]] double price(const Peer& peer) const;                // of a connection; 1: as others
    [[nodiscard]] double halved(unsigned count, const Peer& peer) const;
    void hold(Expert expert, Entry& entry);
    void forget_some();

    const VictimPolicy policy_;
    const std::size_t places_;
    std::uint64_t now_ = 0; // uses
    std::unordered_map<Key, Peer> peers_;
    std::vector<Entry*> held_[kExperts];
    double losses_[kExperts] = {};
    double credit_ = 0; // of the last victim
    double took_ = 0;   // ns for a connection, of late
    Expert leader_ = recent;
};

} // namespace ucx_mp::adapt
