// Endpoints come and go, and queue up requests that wait for room.
#include <memory>
#include <mutex>
#include <string>

#include "uct_mp/ucx/guard.h"
#include "uct_mp/ucx/iface.h"

namespace ucx_mp::face::ep {

ucs_status_t create(const uct_ep_params_t* params, uct_ep_h* out) {
    *out = nullptr;
    if (!(params->field_mask & UCT_EP_PARAM_FIELD_IFACE_ADDR) || !params->iface_addr) {
        ucs_error("mp: an endpoint needs the peer's interface address");
        return UCS_ERR_INVALID_PARAM;
    }
    Iface& iface = Iface::of(params->iface);
    return guard("creating an endpoint", [&] {
        const std::lock_guard lock(iface.services()); // not marked as a call: abi/layouts.cc
        connect::InterfaceAddress address;
        if (!connect::unpack(params->iface_addr, address)) {
            ucs_error("mp: not an interface address of this transport");
            return UCS_ERR_INVALID_ADDR;
        }
        auto ep = std::make_unique<Ep>();
        std::string error;
        ep->core = &iface.core();
        ep->channel = iface.core().attach(address, error);
        if (!ep->channel) {
            ucs_error("mp: %s", error.c_str());
            return UCS_ERR_UNREACHABLE;
        }
        int classes = 1; // as UCS_CLASS_INIT
        const ucs_status_t status = abi::ep_init(ep.get(), &abi::ep_class, &classes, &iface);
        if (status != UCS_OK) {
            ucs_class_call_cleanup_chain(&abi::ep_class, static_cast<abi::EpBase*>(ep.get()), classes);
            iface.core().detach(*ep->channel);
            return status;
        }
        iface.peers().add(*ep, address.uid);
        *out = &ep.release()->super;
        return UCS_OK;
    });
}

void destroy(uct_ep_h handle) {
    const std::unique_ptr<Ep> ep(&Ep::of(handle));
    Iface& iface = Iface::of(handle->iface);
    pending_purge(
        handle, [](uct_pending_req_t* request, void*) { ucs_debug("mp: dropping waiting request %p", request); },
        nullptr);
    ucs_class_call_cleanup_chain(&abi::ep_class, static_cast<abi::EpBase*>(ep.get()), -1);
    iface.peers().remove(*ep);
    // As with rc_verbs. UCP counts on it: with its worker it destroys endpoints that it is still flushing.
    iface.core().end_flushes(*ep->channel, ep->origin);
    if (!ep->cancelled) iface.core().detach(*ep->channel);
}

bool connected_to(uct_ep_h handle, const uct_iface_addr_t* address) {
    connect::InterfaceAddress peer;
    return connect::unpack(address, peer) && peer.uid == Ep::of(handle).peer->uid;
}

// A process that has the interface address knows the host by it.
bool reaches_host(uct_ep_h, const uct_device_addr_t*) { return true; }

ucs_status_t pending_add(uct_ep_h handle, uct_pending_req_t* request, unsigned) {
    return Iface::of(handle->iface).peers().wait(Ep::of(handle), request);
}

void pending_purge(uct_ep_h handle, uct_pending_purge_callback_t callback, void* arg) {
    Iface::of(handle->iface).peers().purge(Ep::of(handle), callback, arg);
}

} // namespace ucx_mp::face::ep
