#include "uct_mp/ucx/background.h"

#include <sys/epoll.h>
#include <unistd.h>

#include "uct_mp/ucx/abi/async.h"

namespace ucx_mp::face {

bool Background::open(channel::Interface& core, UcxServices& services) {
    core_ = &core;
    services_ = &services;
    fd_ = epoll_create1(EPOLL_CLOEXEC);
    bool good = fd_ >= 0;
    std::vector<int> fds = core.control_fds();
    fds.push_back(services.background_fd());
    for (const int fd : fds) good = good && watch(fd);
    if (!good) {
        ucs_error("mp: cannot make a descriptor for answering peers: %m");
        return false;
    }
    (void)core.serve(); // arms
    ucs_async_context_t* const async = services.async();
    return abi::async_watch(abi::mode_of(async), fd_, UCS_EVENT_SET_EVREAD, serve, this, async) == UCS_OK;
}

bool Background::watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    return epoll_ctl(fd_, EPOLL_CTL_ADD, fd, &event) == 0;
}

void Background::close() {
    if (fd_ < 0) return;
    (void)abi::async_forget(fd_, 1);
    ::close(fd_);
    fd_ = -1;
}

void Background::serve(int, ucs_event_set_types_t, void* arg) {
    Background& self = *static_cast<Background*>(arg);
    self.services_->run_background();
    (void)self.core_->serve();
}

} // namespace ucx_mp::face
