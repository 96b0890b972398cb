// The rounds of progress, as other parts see them: when all queues were looked at, and what the next rounds shall do.
// Progress counts; any part may read, and may set what it wants done.
//
// Threads: the interface's.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <vector>

#include "uct_mp/host/services.h"

namespace ucx_mp::channel {

class Channel;

// Channels that the next round of progress has something to do for. Any part may list one (enlist_once), and need not
// know which part does it.
struct Lists {
    std::vector<Channel*> failed;     // mark_failed(): everything outstanding ends
    std::vector<Channel*> told_later; // failed and ended, with something still posted or to be told
    std::vector<Channel*> pushes;     // Epochs::push() has found no room, or is to be called
    std::vector<Channel*> read_backs; // some have found no room, or were lost
    std::vector<Channel*> acks;       // acknowledgments are owed
    std::vector<Channel*> pulls;      // works have found queues full
    std::vector<Channel*> waiting;    // the user waits for room, the longest waiting first
    [[nodiscard]] bool empty() const {
        return failed.empty() && told_later.empty() && pushes.empty() && read_backs.empty() && acks.empty() &&
               pulls.empty() && waiting.empty();
    }
};

struct Rounds {
    unsigned polled_count = 0;    // adapters that are polled. The ones behind have had no active port yet
    std::uint32_t quiet_mask = 0; // `round & mask` is 0 in rounds that poll quiet adapters and rings
    std::uint32_t looks = 0;      // times that all queues were seen empty, or gave as much as they hold; wraps
    bool provide_due = false;     // Directory::connected has changed since receives were provided
    double descriptor_time = 0;   // what one request costs, as Mover has learned; see schedule::Message
    Nanos next_watch = 0;         // when Observer::watch_peers() is called next
    int event_fd = -1;            // an epoll set, for Interface::event_fd(); -1: nobody has asked
    // The first calibrations follow each other soon: a clock's real rate may differ from its nominal rate.
    Nanos next_calibration = 0, calibration_interval = 1'000'000;

    // True: all that had come when `looks` was `since` has been handled. A look that had begun before does not count.
    [[nodiscard]] bool looked_since(std::uint32_t since) const { return looks - since >= 2; }
    void watch_descriptor(int fd) const {
        epoll_event event{EPOLLIN, {}};
        (void)epoll_ctl(event_fd, EPOLL_CTL_ADD, fd, &event);
    }
};

} // namespace ucx_mp::channel
