#include "uct_mp/ucx/peers.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "uct_mp/channel/statistics.h"

namespace ucx_mp::face {

namespace {

void push_back(Peer& peer, uct_pending_req_t* request) {
    link(request).next = nullptr;
    if (peer.last)
        link(peer.last).next = request;
    else
        peer.first = request;
    peer.last = request;
}

bool is_gone(ucs_status_t status) { return status == UCS_ERR_ENDPOINT_TIMEOUT || status == UCS_ERR_CONNECTION_RESET; }

// As uct_base_iface_failure_log_level(). `handled`: the answer of the user's error handler.
ucs_log_level_t level_of(const abi::IfaceBase& base, ucs_status_t handled, ucs_status_t status) {
    if (handled != UCS_OK) return UCS_LOG_LEVEL_FATAL;
    return is_gone(status) ? base.config.failure_level : UCS_LOG_LEVEL_ERROR;
}

// If nobody handles that a peer is gone, UCX ends the process as for a bug: with a backtrace, and Open MPI adds
// its own. A network or a peer that has failed is no bug, and the program's stack says nothing of it. The
// process ends by SIGABRT all the same, without the program's handler for it, since that is usually Open MPI's.
// With UCX_HANDLE_ERRORS in the environment that variable decides; UCX's files of settings do not count for it.
void end_without_backtrace(const channel::Channel& channel, ucs_status_t status) {
    if (std::getenv("UCX_HANDLE_ERRORS")) return;
    ucs_log(UCS_LOG_LEVEL_ERROR,
            "mp: %s is gone (%s), and the program handles no errors: this process ends "
            "(UCX_HANDLE_ERRORS=bt: with a backtrace)",
            channel::describe(channel).c_str(), ucs_status_string(status));
    std::signal(SIGABRT, SIG_DFL);
    std::abort();
}

} // namespace

Peer& Peers::of(channel::Channel& channel, std::uint64_t uid) {
    std::unique_ptr<Peer>& peer = peers_[&channel];
    if (!peer) {
        peer = std::make_unique<Peer>();
        peer->channel = &channel;
        peer->uid = uid;
    }
    return *peer;
}

void Peers::drop_if_unused(Peer& peer) {
    if (peer.live || peer.busy) return;
    if (peer.retry) std::erase(retry_, &peer);
    const std::lock_guard lock(lock_);
    peers_.erase(peer.channel);
}

void Peers::take_in(Peer& peer, Ep& ep) {
    ep.peer = &peer;
    ep.place = peer.eps.size();
    peer.eps.push_back(&ep);
    ++peer.live;
    peer.has_first |= ep.origin == 0;
}

// One peer may have very many: none is searched for.
void Peers::take_out(Ep& ep) {
    Peer& peer = *ep.peer;
    --peer.live;
    peer.has_first &= ep.origin != 0;
    if (peer.failed && peer.busy) { // failed() goes through them
        peer.eps[ep.place] = nullptr;
        return;
    }
    Ep* const last = peer.eps.back();
    peer.eps.pop_back();
    if (last == &ep) return;
    peer.eps[ep.place] = last;
    if (last) last->place = ep.place;
}

void Peers::add(Ep& ep, std::uint64_t uid) {
    const std::lock_guard lock(lock_);
    Peer& peer = of(*ep.channel, uid);
    if (peer.has_first) ep.origin = ++peer.numbers;
    take_in(peer, ep);
}

void Peers::remove(Ep& ep) {
    Peer& peer = *ep.peer;
    {
        const std::lock_guard lock(lock_);
        take_out(ep);
    }
    drop_if_unused(peer);
}

// Its waiting requests are to be purged, and go nowhere: they must not stand in the others' way.
void Peers::leave(Ep& ep) {
    Peer& before = *ep.peer;
    channel::Channel& to = core_->canceled_channel();
    {
        const std::lock_guard lock(lock_);
        Peer& after = of(to, before.uid);
        after.failed = true;
        take_out(ep);
        take_in(after, ep);
    }
    ep.cancelled = std::exchange(ep.channel, &to);
    core_->detach(*ep.cancelled);
    uct_pending_req_t* request = before.first;
    before.first = before.last = nullptr;
    while (request) {
        uct_pending_req_t* const next = link(request).next;
        push_back(*link(request).ep->peer, request);
        request = next;
    }
    if (!before.first && !before.busy) core_->hold(*ep.cancelled, false);
}

ucs_status_t Peers::wait(Ep& ep, uct_pending_req_t* request) {
    Peer& peer = *ep.peer;
    if (!peer.first) {
        if (core_->want_room(*ep.channel) == Status::busy) return UCS_ERR_BUSY;
        // While the queue is being worked off, dispatch() decides about the hold.
        if (!peer.busy) core_->hold(*ep.channel, true);
    }
    link(request).ep = &ep;
    push_back(peer, request);
    return UCS_OK;
}

void Peers::purge(Ep& ep, uct_pending_purge_callback_t callback, void* arg) {
    Peer& peer = *ep.peer;
    if (!peer.first) return;
    // All are taken out before the first callback: it may add requests again.
    uct_pending_req_t *purged = nullptr, **end = &purged, *request = peer.first;
    peer.first = peer.last = nullptr;
    while (request) {
        uct_pending_req_t* const next = link(request).next;
        if (link(request).ep == &ep) {
            link(request).next = nullptr;
            *end = request;
            end = &link(request).next;
        } else {
            push_back(peer, request);
        }
        request = next;
    }
    if (!peer.first && !peer.busy) core_->hold(*ep.channel, false);
    while (purged) {
        uct_pending_req_t* const next = link(purged).next;
        if (callback) callback(purged, arg);
        purged = next;
    }
}

Peer* Peers::find(channel::Channel& channel) const {
    const std::lock_guard lock(lock_);
    const auto found = peers_.find(&channel);
    return found == peers_.end() ? nullptr : found->second.get();
}

void Peers::room(channel::Channel& channel) {
    if (Peer* const peer = find(channel)) dispatch(*peer);
}

void Peers::dispatch(Peer& peer) {
    if (!peer.first || peer.busy) return; // busy: called from a callback; the loop below is still at it
    ++peer.busy;
    core_->hold(*peer.channel, false);
    bool stuck = false;
    while (peer.first && !stuck) {
        uct_pending_req_t* const request = peer.first;
        peer.first = link(request).next;
        if (!peer.first) peer.last = nullptr;
        const ucs_status_t status = request->func(request);
        if (status == UCS_OK) continue;                           // gone: its memory may be, too
        if (Peer& now = *link(request).ep->peer; &now != &peer) { // it has been cancelled meanwhile
            push_back(now, request);
            continue;
        }
        // Unfinished (UCS_INPROGRESS: it has sent something and wants more), or no room: back to the front.
        link(request).next = peer.first;
        peer.first = request;
        if (!peer.last) peer.last = request;
        stuck = status != UCS_INPROGRESS;
    }
    --peer.busy;
    if (peer.first) {
        // There is room, but not for the first request: ask again after some progress.
        if (core_->want_room(*peer.channel) == Status::busy && !peer.retry) {
            peer.retry = true;
            retry_.push_back(&peer);
            attention_.store(true, std::memory_order_relaxed);
        }
        core_->hold(*peer.channel, true);
    }
    drop_if_unused(peer);
}

bool Peers::waiting() const {
    const std::lock_guard lock(lock_);
    return std::ranges::any_of(peers_, [](const auto& entry) { return entry.second->first && !entry.second->failed; });
}

void Peers::each_endpoint(const std::function<void(Ep&, const Peer&)>& visit) {
    const std::lock_guard lock(lock_);
    for (const auto& [channel, peer] : peers_)
        for (Ep* ep : peer->eps)
            if (ep) visit(*ep, *peer);
}

bool Peers::lives(const Peer& peer) const {
    const std::lock_guard lock(lock_);
    return std::ranges::any_of(peers_, [&](const auto& entry) { return entry.second.get() == &peer; });
}

unsigned Peers::retry() {
    std::vector<Peer*> peers;
    peers.swap(retry_);
    for (Peer* peer : peers) peer->retry = false;
    for (Peer* peer : peers)
        if (lives(*peer))
            dispatch(*peer); // an earlier one's callbacks may have destroyed endpoints, and with them peers
    return static_cast<unsigned>(peers.size());
}

void Peers::failed(channel::Channel& channel, Status status) {
    Peer* const found = find(channel);
    if (!found) return; // no endpoint left: nobody to tell
    Peer& peer = *found;
    peer.failed = true;
    ++peer.busy;
    // Waiting requests stay until the user purges them; held back any longer they would wait for ever.
    core_->hold(channel, false);
    std::vector<Ep*>& eps = peer.eps; // others may be added meanwhile
    const auto at = [&](std::size_t i) {
        const std::lock_guard lock(lock_);
        return i < eps.size() ? eps[i] : nullptr;
    };
    std::size_t count = 0;
    {
        const std::lock_guard lock(lock_);
        count = eps.size();
    }
    for (std::size_t i = 0; i < count; ++i) {
        Ep* const ep = at(i);
        if (!ep) continue; // destroyed by a handler
        const ucs_status_t handled = abi::ep_failed(&base_.super, &ep->super, to_ucs(status));
        if (handled != UCS_OK && is_gone(to_ucs(status))) end_without_backtrace(channel, to_ucs(status));
        ucs_log(level_of(base_, handled, to_ucs(status)), "mp: endpoint %p failed: %s", ep,
                ucs_status_string(to_ucs(status)));
    }
    --peer.busy;
    {
        const std::lock_guard lock(lock_);
        std::erase(peer.eps, nullptr);
        for (std::size_t i = 0; i < peer.eps.size(); ++i) peer.eps[i]->place = i;
    }
    drop_if_unused(peer);
}

} // namespace ucx_mp::face
