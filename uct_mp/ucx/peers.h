// The peers of an interface with their endpoints, and the requests that wait for room (UCX's "pending"). Slow path.
//
// All endpoints to one peer share a channel, so they share its queue of waiting requests: first come, first served.
// While a peer has waiting requests its channel is held: other sends get UCS_ERR_NO_RESOURCE, so that nothing overtakes
// them. The hold is lifted while the queue is worked off.
//
// Threads: the worker's. each_endpoint() may be called from another one.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "uct_mp/channel/interface.h"
#include "uct_mp/ucx/ep.h"

namespace ucx_mp::face {

// A request that waits for room; lives in uct_pending_req_t::priv.
struct PendingLink {
    uct_pending_req_t* next;
    Ep* ep;
};
static_assert(sizeof(PendingLink) <= UCT_PENDING_REQ_PRIV_LEN);
[[nodiscard]] inline PendingLink& link(uct_pending_req_t* request) {
    return *reinterpret_cast<PendingLink*>(request->priv);
}

// Exists while it has endpoints, or is being worked on (busy).
struct Peer {
    channel::Channel* channel = nullptr;
    std::uint64_t uid = 0;  // of the peer's interface
    std::vector<Ep*> eps;   // any order; null: destroyed while the others are being told of a failure
    std::size_t live = 0;   // entries of eps that exist
    bool has_first = false; // one of them has origin 0
    uct_pending_req_t* first = nullptr;
    uct_pending_req_t* last = nullptr;
    std::uint32_t numbers = 0; // origins that have been given to endpoints
    unsigned busy = 0;         // callbacks of the user under way: don't delete
    bool retry = false;        // in Peers::retry_
    bool failed = false;       // Peers::failed() was called
};

class Peers {
public:
    // `attention` is set when progress() has to call retry().
    Peers(abi::IfaceBase& base, std::atomic<bool>& attention) : base_(base), attention_(attention) {}
    void use(channel::Interface& core) { core_ = &core; } // before anything else

    // An endpoint comes, with its channel, and goes.
    void add(Ep& ep, std::uint64_t uid);
    void remove(Ep& ep);
    // The endpoint leaves its channel: all its later operations fail with UCS_ERR_CANCELED.
    void leave(Ep& ep);

    ucs_status_t wait(Ep& ep, uct_pending_req_t* request);
    void purge(Ep& ep, uct_pending_purge_callback_t callback, void* arg);
    // A request waits for a peer that has not failed.
    [[nodiscard]] bool waiting() const;
    // Tries requests again that found too little room.
    [[nodiscard]] bool retries() const { return !retry_.empty(); }
    unsigned retry();

    // channel::Events
    void room(channel::Channel& channel);
    void failed(channel::Channel& channel, Status status);

    void each_endpoint(const std::function<void(Ep&, const Peer&)>& visit);

private:
    void dispatch(Peer& peer);
    void take_in(Peer& peer, Ep& ep); // with the lock held
    void take_out(Ep& ep);            // takes it out of its peer; with the lock held
    void drop_if_unused(Peer& peer);
    Peer& of(channel::Channel& channel, std::uint64_t uid);
    [[nodiscard]] Peer* find(channel::Channel& channel) const;
    [[nodiscard]] bool lives(const Peer& peer) const;

    abi::IfaceBase& base_;
    std::atomic<bool>& attention_;
    channel::Interface* core_ = nullptr;
    mutable std::mutex lock_; // guards the map and Peer::eps: UCX's own threads list endpoints, and add some
    std::unordered_map<channel::Channel*, std::unique_ptr<Peer>> peers_;
    std::vector<Peer*> retry_; // dispatch again at the next progress
};

} // namespace ucx_mp::face
