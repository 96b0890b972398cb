#include "uct_mp/verbs/device_events.h"

#include <fcntl.h>

#include <algorithm>

namespace ucx_mp::verbs {

bool DeviceEvents::start(ibv_context* context) {
    context_ = context;
    const int flags = fcntl(context->async_fd, F_GETFL);
    return flags >= 0 && fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

void DeviceEvents::read() {
    if (!context_) return;
    const std::unique_lock lock(reading_, std::try_to_lock);
    if (!lock.owns_lock()) return; // another thread reads them
    ibv_async_event event;
    while (ibv_get_async_event(context_, &event) == 0) {
        const ibv_event_type type = event.event_type;
        const auto port = static_cast<unsigned>(event.element.port_num); // of port events only
        const std::uint32_t qp_number = type == IBV_EVENT_PATH_MIG ? event.element.qp->qp_num : 0;
        ibv_ack_async_event(&event);
        if (type == IBV_EVENT_DEVICE_FATAL)
            fatal_.fetch_add(1, std::memory_order_release);
        else if (type == IBV_EVENT_PORT_ERR && port < kMaxPorts)
            downs_[port].fetch_add(1, std::memory_order_release);
        else if (type == IBV_EVENT_PORT_ACTIVE && port < kMaxPorts)
            ups_[port].fetch_add(1, std::memory_order_release);
        else if ((type == IBV_EVENT_LID_CHANGE || type == IBV_EVENT_GID_CHANGE || type == IBV_EVENT_PKEY_CHANGE) &&
                 port < kMaxPorts)
            renewals_[port].fetch_add(1, std::memory_order_release);
        else if (type == IBV_EVENT_PATH_MIG) {
            const std::lock_guard keep(keeping_);
            migrated_.push_back(qp_number);
            if (migrated_.size() > kKept) migrated_.pop_front();
            migrations_.fetch_add(1, std::memory_order_release);
        }
    }
}

std::vector<std::uint32_t> DeviceEvents::migrated_since(std::uint32_t& count) const {
    const std::lock_guard keep(keeping_);
    const std::uint32_t now = migrations(),
                        n = std::min<std::uint32_t>(now - count, static_cast<std::uint32_t>(migrated_.size()));
    count = now;
    return {migrated_.end() - n, migrated_.end()};
}

} // namespace ucx_mp::verbs
