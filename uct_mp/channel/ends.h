// Makes, connects and drops our ends of paths for the handshake. Disposes of queue pairs that are no longer wanted:
// some are kept for the next connections (link/queue_pair_pool.h).
//
// Callers: the control plane, by connect::Ends; recovery makes and addresses halves of paths that come back.
// Ownership: ends stand in Wiring::prepared until Takeover::establish() takes them over.
// Errors: a Status, or null with errno. An end may be missing if recovery can make it later.
// Threads: either side of Services::lock(), with the lock held, where not said otherwise.
#pragma once

#include <memory>
#include <vector>

#include "uct_mp/channel/channel.h"
#include "uct_mp/link/queue_pair_pool.h"

namespace ucx_mp::channel {

class Ends final : public connect::Ends {
public:
    explicit Ends(Core& core) : core_(core) {}

    // -- connect::Ends
    Status make_end(connect::Connection& connection, std::size_t path) override;
    Status connect_end(connect::Connection& connection, std::size_t path) override;
    void drop_ends(connect::Connection& connection) override;
    // Key of probe_bytes through the rail's device; 0: there is none for this life of the device.
    std::uint32_t probe_key(const verbs::Rail& rail) override;

    // -- Halves of paths
    // Our half of a path of RC: a queue pair in INIT, perhaps from the pool. Recovery calls it without the lock. Null:
    // errno says why, and it is logged.
    verbs::QueuePair make_half(const verbs::Rail& rail, LogLevel level, verbs::QueuePair* broken = nullptr);
    void make_queue(const connect::Connection& connection, Path& sub, verbs::QueuePair qp);
    [[nodiscard]] verbs::RemoteEnd remote_end(const connect::Connection& connection, const path::PathSpec& route,
                                              const connect::LocalEnd& end) const;
    // Moves queue pairs that a handshake has made, and that no channel has taken over, to the graves.
    void drop_prepared(Channel& channel);
    // Progress only, without the lock. Returns how many were destroyed, or given to the pool.
    unsigned clear_graves(bool occupied);
    // Takes a queue pair in any state. Progress destroys it, or gives it to the pool. With the lock held.
    void entomb(verbs::QueuePair qp, const verbs::Rail& rail);
    // A queue pair from the pool, in RESET, or null. With the lock held.
    [[nodiscard]] verbs::QueuePair take_rested(const Adapter& adapter);
    [[nodiscard]] bool has_graves() const {
        return !graves.empty() || (pool.count() && (short_of_ || pool_places() == 0));
    }

    // -- What others read
    // Queue pairs to be destroyed. Progress does it, a few at a time, since each takes a command. No other thread may:
    // destroying one removes its entries from a completion queue, which only one thread may use. Under the lock.
    std::vector<std::unique_ptr<SendQueue>> graves;
    link::QueuePairPool pool; // queue pairs for the next connections. Under the lock
    // Bytes that peers read to push their writes into our memory (Visibility).
    alignas(connect::kProbeBytes) std::byte probe_bytes[connect::kProbeBytes] = {};
    verbs::Registration probe_region;

private:
    [[nodiscard]] bool may_do_without(const Channel& channel, const verbs::Rail& rail) const;
    [[nodiscard]] bool is_news(const connect::Connection& connection, const verbs::Rail& rail) const;
    [[nodiscard]] unsigned pool_places() const; // of each adapter
    [[nodiscard]] link::QueuePairPool::Kind kind_at(const Adapter& adapter) const;
    bool makes_room(const Adapter& adapter);
    verbs::QueuePair one_in_the_way();
    bool keep(SendQueue& dead);

    Core& core_;
    Nanos next_clearing_ = 0;
    std::uint32_t short_of_ = 0; // adapters that make no more queue pairs, by bit. Under the lock
};

} // namespace ucx_mp::channel
