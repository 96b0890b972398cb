#include "uct_mp/ucx/wakeup.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace ucx_mp::face {

Wakeup::~Wakeup() {
    if (event_fd_ >= 0) ::close(event_fd_);
    if (timer_fd_ >= 0) ::close(timer_fd_);
}

ucs_status_t Wakeup::open(channel::Interface& core, UcxServices& services) {
    event_fd_ = epoll_create1(EPOLL_CLOEXEC);
    timer_fd_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (event_fd_ >= 0 && timer_fd_ >= 0) {
        bool good = true;
        std::vector<int> fds{core.event_fd(), timer_fd_};
        // The asynchronous side answers peers; news for progress wake us, too.
        if (services.async()) fds.push_back(services.wake_fd());
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

ucs_status_t Wakeup::fd(channel::Interface& core, UcxServices& services, int* out) {
    if (event_fd_ < 0)
        if (const ucs_status_t status = open(core, services); status != UCS_OK) return status;
    *out = event_fd_;
    return UCS_OK;
}

ucs_status_t Wakeup::arm(channel::Interface& core, UcxServices& services) {
    services.drain_wake(); // before the core looks for the news
    // First the core: it may ask a peer (see Interface::next_watch), which the timer then waits for anew.
    const Status status = core.arm();
    if (status != Status::ok) return to_ucs(status);
    if (timer_fd_ >= 0) {
        itimerspec spec{}; // zero: disarmed; setting it also takes back an expiration nobody has read
        Nanos next = services.next_timer();
        if (const Nanos watch = core.next_watch(); watch && (!next || watch < next)) next = watch;
        if (next) {
            const Nanos now = services.now();
            if (services.next_timer() && services.next_timer() <= now) return UCS_ERR_BUSY;
            const Nanos left = next > now ? next - now : 1;
            spec.it_value.tv_sec = static_cast<time_t>(left / 1'000'000'000);
            spec.it_value.tv_nsec = static_cast<long>(left % 1'000'000'000);
        }
        if (timerfd_settime(timer_fd_, 0, &spec, nullptr) != 0) {
            ucs_error("mp: timerfd_settime failed: %m");
            return UCS_ERR_IO_ERROR;
        }
    }
    return UCS_OK;
}

} // namespace ucx_mp::face
