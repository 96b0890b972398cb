#include "uct_mp/verbs/device_events.h"

#include <fcntl.h>

namespace ucx_mp::verbs {

bool DeviceEvents::start(ibv_context* context) {
    context_ = context;
    const int flags = fcntl(context->async_fd, F_GETFL);
    return flags >= 0 && fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

void DeviceEvents::read() {
    const std::unique_lock lock(reading_, std::try_to_lock);
    if (!lock.owns_lock()) return; // somebody is at it
    ibv_async_event event;
    while (ibv_get_async_event(context_, &event) == 0) {
        const ibv_event_type type = event.event_type;
        const auto port = static_cast<unsigned>(event.element.port_num); // of port events only
        ibv_ack_async_event(&event);
        if (type == IBV_EVENT_DEVICE_FATAL) fatal_.fetch_add(1, std::memory_order_release);
        else if (type == IBV_EVENT_PORT_ERR && port < kMaxPorts) downs_[port].fetch_add(1, std::memory_order_release);
        else if (type == IBV_EVENT_PORT_ACTIVE && port < kMaxPorts) ups_[port].fetch_add(1, std::memory_order_release);
    }
}

} // namespace ucx_mp::verbs
