#include "uct_mp/verbs/device_events.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

namespace ucx_mp::verbs {

bool DeviceEvents::start(ibv_context* context) {
    context_ = context;
    const int flags = fcntl(context->async_fd, F_GETFL);
    return flags >= 0 && fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

DeviceEvents::~DeviceEvents() {
    if (told_fd_ >= 0) ::close(told_fd_);
}

int DeviceEvents::told_fd() {
    const std::lock_guard lock(keeping_);
    if (told_fd_ < 0) told_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return told_fd_;
}

void DeviceEvents::read() {
    if (!context_) return;
    const std::unique_lock lock(reading_, std::try_to_lock);
    if (!lock.owns_lock()) return; // another thread reads them
    ibv_async_event event;
    bool any = false;
    for (; ibv_get_async_event(context_, &event) == 0; any = true) {
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
    const std::uint64_t one = 1;
    if (any && told_fd_ >= 0) (void)!::write(told_fd_, &one, sizeof one); // full: it is readable
}

std::vector<std::uint32_t> DeviceEvents::migrated_since(std::uint32_t& count) const {
    const std::lock_guard keep(keeping_);
    const std::uint32_t now = migrations(),
                        n = std::min<std::uint32_t>(now - count, static_cast<std::uint32_t>(migrated_.size()));
    count = now;
    return {migrated_.end() - n, migrated_.end()};
}

} // namespace ucx_mp::verbs
