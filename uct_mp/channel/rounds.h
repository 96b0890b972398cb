// The rounds of progress, as others see them: when all queues have been looked at, what a sleeper waits on, and what
// the next rounds are asked for. Progress counts them; anybody may read and ask.
//
// Threads: the interface's.
#pragma once

#include <sys/epoll.h>

#include <cstdint>

#include "uct_mp/host/services.h"

namespace ucx_mp::channel {

struct Rounds {
    unsigned polled_count = 0; // the other adapters, the last ones, have had no active port yet: nothing can have come
    std::uint32_t quiet_mask = 0; // rounds in which an adapter is asked that has been quiet
    std::uint32_t looks = 0;      // rounds that saw all queues empty, or took as much as they hold; wraps
    bool provide_due = false;     // Directory::connected has changed since receives were provided
    Nanos next_watch = 0;         // the next Observer::watch_peers()
    int event_fd = -1;            // for a sleeper; -1: nobody has asked
    // Soon after the first, so that a nominal rate that is off (adapters', or the host clock's own) does little harm.
    Nanos next_calibration = 0, calibration_interval = 1'000'000;

    // All that had come by then (`since`: `looks` at that moment) has been handled.
    [[nodiscard]] bool looked_since(std::uint32_t since) const { return looks - since >= 2; }
    // Adds a descriptor to event_fd.
    void watch_descriptor(int fd) const {
        epoll_event event{EPOLLIN, {}};
        (void)epoll_ctl(event_fd, EPOLL_CTL_ADD, fd, &event);
    }
};

} // namespace ucx_mp::channel
