// Sleeping: one descriptor that becomes readable when the core has something to do or a timer is due.
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "uct_mp/ucx/iface.h"

namespace ucx_mp::face {

ucs_status_t Iface::open_event_fd() {
    event_fd_ = epoll_create1(EPOLL_CLOEXEC);
    timer_fd_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (event_fd_ >= 0 && timer_fd_ >= 0) {
        bool good = true;
        std::vector<int> fds{core_->event_fd(), timer_fd_};
        // The asynchronous side answers peers; what progress must know of that wakes us, too.
        if (services_.async()) fds.push_back(services_.wake_fd());
        for (const int fd : fds) {
            epoll_event event{};
            event.events = EPOLLIN;
            event.data.fd = fd;
            good = good && epoll_ctl(event_fd_, EPOLL_CTL_ADD, fd, &event) == 0;
        }
        if (good) return UCS_OK;
    }
    ucs_error("mp: cannot make a descriptor for wake-up: %m");
    for (int* fd : {&event_fd_, &timer_fd_}) {
        if (*fd >= 0) ::close(*fd);
        *fd = -1;
    }
    return UCS_ERR_IO_ERROR;
}

ucs_status_t Iface::event_fd_get(uct_iface_h iface, int* fd) {
    Iface& self = of(iface);
    if (self.event_fd_ < 0)
        if (const ucs_status_t status = self.open_event_fd(); status != UCS_OK) return status;
    *fd = self.event_fd_;
    return UCS_OK;
}

// Sends and receives wake up alike: acknowledgments that a send waits for arrive as messages.
ucs_status_t Iface::event_arm(uct_iface_h iface, unsigned) {
    Iface& self = of(iface);
    if (!self.retry_.empty()) return UCS_ERR_BUSY;
    self.services_.drain_wake(); // before the core looks for what it announced
    // First the core: it may ask a peer (see Interface::next_watch), which the timer then waits for anew.
    const Status status = self.core_->arm();
    if (status != Status::ok) return to_ucs(status);
    if (self.timer_fd_ >= 0) {
        itimerspec spec{}; // zero: disarmed; setting it also takes back an expiration nobody has read
        Nanos next = self.services_.next_timer();
        if (const Nanos watch = self.core_->next_watch(); watch && (!next || watch < next)) next = watch;
        if (next) {
            const Nanos now = self.services_.now();
            if (self.services_.next_timer() && self.services_.next_timer() <= now) return UCS_ERR_BUSY;
            const Nanos left = next > now ? next - now : 1;
            spec.it_value.tv_sec = static_cast<time_t>(left / 1'000'000'000);
            spec.it_value.tv_nsec = static_cast<long>(left % 1'000'000'000);
        }
        if (timerfd_settime(self.timer_fd_, 0, &spec, nullptr) != 0) {
            ucs_error("mp: timerfd_settime failed: %m");
            return UCS_ERR_IO_ERROR;
        }
    }
    return UCS_OK;
}

} // namespace ucx_mp::face
