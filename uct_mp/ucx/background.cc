#include "uct_mp/ucx/background.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "uct_mp/channel/beside.h"
#include "uct_mp/host/turn.h"
#include "uct_mp/ucx/abi/async.h"

namespace ucx_mp::face {

namespace {
constexpr std::uint64_t kFault = std::uint64_t{1} << 32; // of epoll_event.data; the descriptor is below
// Between two looks at a program that makes calls: doubled. It recovers by itself then, and is not held up.
constexpr Nanos kFirstPause = 1'000'000, kLongestPause = 16'000'000;
constexpr Nanos kGap = 50'000; // at least, between two turns

// Some are watched already.
bool add(int to, int fd, std::uint32_t events, std::uint64_t data) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = data;
    return epoll_ctl(to, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST;
}
} // namespace

bool Background::open(channel::Interface& core, UcxServices& services, bool recovers) {
    recovers_ = recovers;
    core_ = &core;
    services_ = &services;
    fd_ = epoll_create1(EPOLL_CLOEXEC);
    bool good = fd_ >= 0;
    std::vector<int> fds = core.control_fds();
    fds.push_back(services.background_fd());
    for (const int fd : fds) good = good && watch(fd);
    if (recovers) {
        (void)turn::forks_wait_for(); // before the first turn: a fork() may be on its way then
        good = good && watch_faults();
    }
    if (!good) {
        ucs_error("mp: cannot make a descriptor for answering peers: %m");
        return false;
    }
    (void)core.serve(); // arms
    ucs_async_context_t* const async = services.async();
    return abi::async_watch(abi::mode_of(async), fd_, UCS_EVENT_SET_EVREAD, serve, this, async) == UCS_OK;
}

bool Background::watch(int fd) { return add(fd_, fd, EPOLLIN, static_cast<std::uint64_t>(fd)); }

// By edges: they are read in a turn, or by the program, or never.
bool Background::watch_faults() {
    const channel::Beside& beside = channel::beside(*core_);
    std::vector<int> fds = beside.fault_fds();
    fds.push_back(services_->recover_fd());
    for (const auto& more : {beside.failure_fds(), beside.hearsay_fds()})
        fds.insert(fds.end(), more.begin(), more.end());
    return std::ranges::all_of(
        fds, [this](int fd) { return add(fd_, fd, EPOLLIN | EPOLLET, static_cast<std::uint64_t>(fd) | kFault); });
}

void Background::close() {
    if (fd_ < 0) return;
    (void)abi::async_forget(fd_, 1);
    ::close(fd_);
    fd_ = -1;
}

void Background::serve(int, ucs_event_set_types_t, void* arg) {
    Background& self = *static_cast<Background*>(arg);
    bool told = self.recovers_ && self.fault_was_told();
    self.services_->run_background();
    const bool heard = self.core_->serve() != 0;
    if (!self.recovers_) return;
    if (heard || !self.due_) told |= channel::beside(*self.core_).fault_is_told();
    self.recover(told);
}

bool Background::fault_was_told() {
    epoll_event ready[16];
    bool told = false;
    for (int n = epoll_wait(fd_, ready, std::size(ready), 0); n > 0;) told |= (ready[--n].data.u64 & kFault) != 0;
    return told;
}

// A program that has made no call since the last look is outside, most likely: only then the turn is asked for.
void Background::recover(bool told) {
    const Nanos now = services_->now();
    if (told) {
        due_ = now;
        pause_ = kFirstPause;
    }
    if (!due_ || now < due_) return;
    channel::Beside& beside = channel::beside(*core_);
    turn::Words words(beside.turn);
    const std::uint64_t calls = words.calls(), before = std::exchange(seen_, calls);
    std::optional<turn::Taken> taken;
    if (calls == before) taken.emplace(words);
    if (taken && *taken) {
        due_ = beside.recover([this] { return services_->run_timers(); }).next;
        // Its timers are the interface's; one that has nothing to recover waits for the program.
        if (const Nanos timer = services_->next_timer(); due_ && timer)
            due_ = std::min(due_, std::max(timer, services_->now() + kGap));
        pause_ = kFirstPause;
        if (!due_) services_->recovered(); // in the turn: whoever sees something afterwards says so
        taken.reset();
    } else {
        due_ = now + pause_;
        pause_ = std::min(2 * pause_, kLongestPause);
    }
    services_->cancel_in_background(std::exchange(timer_, 0));
    if (due_) timer_ = services_->at_in_background(due_, [this] { timer_ = 0; });
}

} // namespace ucx_mp::face
