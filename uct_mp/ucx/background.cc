// The asynchronous side: UCX's async thread waits for control messages and timers, and calls the core with the worker's
// async context blocked.
#include <sys/epoll.h>
#include <unistd.h>

#include "uct_mp/ucx/iface.h"

namespace ucx_mp::face {

// False: it can't be, and a line says why.
bool Iface::open_background() {
    background_fd_ = epoll_create1(EPOLL_CLOEXEC);
    bool good = background_fd_ >= 0;
    std::vector<int> fds = core_->control_fds();
    fds.push_back(services_.background_fd());
    for (const int fd : fds) good = good && watch_in_background(fd);
    if (!good) {
        ucs_error("mp: cannot make a descriptor for answering peers: %m");
        return false;
    }
    (void)core_->serve(); // arms
    ucs_async_context_t* const async = services_.async();
    return ucs_async_set_event_handler(async->mode, background_fd_, UCS_EVENT_SET_EVREAD, serve, this, async) == UCS_OK;
}

bool Iface::watch_in_background(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    return epoll_ctl(background_fd_, EPOLL_CTL_ADD, fd, &event) == 0;
}

void Iface::close_background() {
    if (background_fd_ < 0) return;
    (void)ucs_async_remove_handler(background_fd_, 1); // waits for one that is running
    ::close(background_fd_);
    background_fd_ = -1;
}

void Iface::serve(int, ucs_event_set_types_t, void* arg) {
    Iface& self = *static_cast<Iface*>(arg);
    self.services_.run_background();
    (void)self.core_->serve();
}

} // namespace ucx_mp::face
