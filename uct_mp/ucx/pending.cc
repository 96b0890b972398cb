// Endpoints come and go, requests wait for room, peers fail. Slow path.
//
// While a peer has waiting requests its channel is held: other sends get UCS_ERR_NO_RESOURCE, so that nothing overtakes
// them. The hold is lifted while the queue is worked off.
#include <algorithm>
#include <utility>

#include "uct_mp/ucx/guard.h"
#include "uct_mp/ucx/iface.h"
#include "uct_mp/ucx/md.h"

namespace ucx_mp::face {

Peer& Iface::peer_of(channel::Channel& channel, std::uint64_t uid) {
    std::unique_ptr<Peer>& peer = peers_[&channel];
    if (!peer) {
        peer = std::make_unique<Peer>();
        peer->iface = this;
        peer->channel = &channel;
        peer->uid = uid;
    }
    return *peer;
}

void Iface::drop_if_unused(Peer& peer) {
    if (!peer.eps.empty() || peer.busy) return;
    if (peer.retry) std::erase(retry_, &peer);
    const std::lock_guard lock(peers_lock_);
    peers_.erase(peer.channel);
}

ucs_status_t Iface::ep_create(const uct_ep_params_t* params, uct_ep_h* out) {
    if (!(params->field_mask & UCT_EP_PARAM_FIELD_IFACE_ADDR) || !params->iface_addr) {
        ucs_error("mp: an endpoint needs the peer's interface address");
        return UCS_ERR_INVALID_PARAM;
    }
    Iface& self = of(params->iface);
    return guard("creating an endpoint", [&] {
        connect::InterfaceAddress address;
        if (!connect::unpack(params->iface_addr, address)) {
            ucs_error("mp: not an interface address of this transport");
            return UCS_ERR_INVALID_ADDR;
        }
        auto ep = std::make_unique<Ep>();
        std::string error;
        ep->core = self.core_.get();
        ep->channel = self.core_->attach(address, error);
        if (!ep->channel) {
            ucs_error("mp: %s", error.c_str());
            return UCS_ERR_UNREACHABLE;
        }
        const ucs_status_t status =
            UCS_CLASS_INIT(uct_base_ep_t, static_cast<uct_base_ep_t*>(ep.get()), static_cast<uct_base_iface_t*>(&self));
        if (status != UCS_OK) {
            self.core_->detach(*ep->channel);
            return status;
        }
        const std::lock_guard lock(self.peers_lock_);
        ep->peer = &self.peer_of(*ep->channel, address.uid);
        std::vector<Ep*>& eps = ep->peer->eps;
        if (!std::ranges::all_of(eps, &Ep::origin)) ep->origin = ++ep->peer->numbers; // someone is the first
        eps.push_back(ep.get());
        *out = &ep.release()->super;
        return UCS_OK;
    });
}

void Iface::ep_destroy(uct_ep_h handle) {
    const std::unique_ptr<Ep> ep(&Ep::of(handle));
    Iface& self = of(handle->iface);
    ep_pending_purge(
        handle, [](uct_pending_req_t* request, void*) { ucs_debug("mp: dropping waiting request %p", request); },
        nullptr);
    UCS_CLASS_CLEANUP(uct_base_ep_t, static_cast<uct_base_ep_t*>(ep.get()));
    Peer& peer = *ep->peer;
    channel::Channel& channel = *ep->channel;
    {
        const std::lock_guard lock(self.peers_lock_);
        std::erase(peer.eps, ep.get());
    }
    self.drop_if_unused(peer);
    if (!ep->cancelled) self.core_->detach(channel);
}

// What waits of it is to be purged, and goes nowhere: it must not stand in the others' way.
void Iface::leave(Ep& ep) {
    Iface& self = of(ep.super.iface);
    Peer& before = *ep.peer;
    channel::Channel& to = self.core_->canceled_channel();
    {
        const std::lock_guard lock(self.peers_lock_);
        Peer& after = self.peer_of(to, before.uid);
        after.failed = true;
        std::erase(before.eps, &ep);
        after.eps.push_back(&ep);
        ep.peer = &after;
    }
    ep.cancelled = std::exchange(ep.channel, &to);
    self.core_->detach(*ep.cancelled);
    uct_pending_req_t* request = before.first;
    before.first = before.last = nullptr;
    while (request) {
        uct_pending_req_t* const next = link(request).next;
        push_back(*link(request).ep->peer, request);
        request = next;
    }
    if (!before.first && !before.busy) self.core_->hold(*ep.cancelled, false);
}

void Iface::push_back(Peer& peer, uct_pending_req_t* request) {
    link(request).next = nullptr;
    if (peer.last)
        link(peer.last).next = request;
    else
        peer.first = request;
    peer.last = request;
}

ucs_status_t Iface::ep_pending_add(uct_ep_h handle, uct_pending_req_t* request, unsigned) {
    Ep& ep = Ep::of(handle);
    Peer& peer = *ep.peer;
    if (!peer.first) {
        if (ep.core->want_room(*ep.channel) == Status::busy) return UCS_ERR_BUSY;
        // While the queue is being worked off, dispatch() decides about the hold.
        if (!peer.busy) ep.core->hold(*ep.channel, true);
    }
    link(request).ep = &ep;
    push_back(peer, request);
    return UCS_OK;
}

void Iface::ep_pending_purge(uct_ep_h handle, uct_pending_purge_callback_t callback, void* arg) {
    Ep& ep = Ep::of(handle);
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
    if (!peer.first && !peer.busy) ep.core->hold(*ep.channel, false);
    while (purged) {
        uct_pending_req_t* const next = link(purged).next;
        if (callback) callback(purged, arg);
        purged = next;
    }
}

void Iface::room(channel::Channel& channel) {
    if (const auto found = peers_.find(&channel); found != peers_.end()) dispatch(*found->second);
}

void Iface::dispatch(Peer& peer) {
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
        // Room for something, but not for what the first one wants: ask again after some progress.
        if (core_->want_room(*peer.channel) == Status::busy && !peer.retry) {
            peer.retry = true;
            retry_.push_back(&peer);
            attention_.store(true, std::memory_order_relaxed);
        }
        core_->hold(*peer.channel, true);
    }
    drop_if_unused(peer);
}

unsigned Iface::attend() {
    attention_.store(false, std::memory_order_relaxed);
    {
        const std::lock_guard lock(statistics_lock_);
        if (std::exchange(statistics_wanted_, false)) {
            core_->statistics(statistics_);
            statistics_made_.notify_all();
        }
    }
    return retry_.empty() ? 0 : dispatch_retries();
}

unsigned Iface::dispatch_retries() {
    std::vector<Peer*> peers;
    peers.swap(retry_);
    for (Peer* peer : peers) peer->retry = false;
    for (Peer* peer : peers) {
        // An earlier one's callbacks may have destroyed endpoints, and with them peers.
        const auto alive = [&](const auto& entry) { return entry.second.get() == peer; };
        if (std::any_of(peers_.begin(), peers_.end(), alive)) dispatch(*peer);
    }
    return static_cast<unsigned>(peers.size());
}

void Iface::peer_failed(channel::Channel& channel, Status status) {
    const auto found = peers_.find(&channel);
    if (found == peers_.end()) return; // no endpoint left: nobody to tell
    Peer& peer = *found->second;
    peer.failed = true;
    ++peer.busy;
    // Waiting requests stay until the user purges them; held back any longer they would wait for ever.
    core_->hold(channel, false);
    const std::vector<Ep*> eps = peer.eps;
    for (Ep* ep : eps) {
        if (std::find(peer.eps.begin(), peer.eps.end(), ep) == peer.eps.end()) continue; // destroyed by a handler
        const ucs_status_t handled = uct_iface_handle_ep_err(&super, &ep->super, to_ucs(status));
        ucs_log(uct_base_iface_failure_log_level(this, handled, to_ucs(status)), "mp: endpoint %p failed: %s", ep,
                ucs_status_string(to_ucs(status)));
    }
    --peer.busy;
    drop_if_unused(peer);
}

} // namespace ucx_mp::face
