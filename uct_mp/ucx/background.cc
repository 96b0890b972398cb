#include "uct_mp/ucx/background.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "uct_mp/channel/beside.h"
#include "uct_mp/host/turn.h"
#include "uct_mp/ucx/abi/async.h"

namespace ucx_mp::face {

namespace {
// Bits of epoll_event.data; the descriptor is below.
constexpr std::uint64_t kFault = std::uint64_t{1} << 32, kFailedSend = std::uint64_t{1} << 33;
// Between two looks at a program that makes calls: doubled. It recovers by itself then, and is not held up.
constexpr Nanos kFirstPause = 1'000'000, kLongestPause = 16'000'000;
constexpr Nanos kGap = 50'000;        // at least, between two turns
constexpr Nanos kToWake = 10'000'000; // that a sleeper has for its first progress

// Some are watched already.
bool add(int to, int fd, std::uint32_t events, std::uint64_t data) {
    if (fd < 0) return false; // errno says why
    epoll_event event{};
    event.events = events;
    event.data.u64 = data;
    return epoll_ctl(to, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST;
}
} // namespace

bool Background::open(channel::Interface& core, UcxServices& services, bool recovers, std::string& error) {
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
        error = std::string("cannot make a descriptor for answering peers: ") + std::strerror(errno);
        return false;
    }
    (void)core.serve(); // arms
    ucs_async_context_t* const async = services.async();
    watched_ = abi::async_watch(abi::mode_of(async), fd_, UCS_EVENT_SET_EVREAD, serve, this, async) == UCS_OK;
    if (!watched_) error = "UCX's asynchronous thread cannot watch a descriptor";
    return watched_;
}

bool Background::watch(int fd) { return add(fd_, fd, EPOLLIN, static_cast<std::uint64_t>(fd)); }

// By edges: they are read in a turn, or by the program, or never.
bool Background::watch_faults() {
    const channel::Beside& beside = channel::beside(*core_);
    std::vector<int> fds = beside.fault_fds();
    fds.push_back(services_->recover_fd());
    for (const int fd : beside.hearsay_fds()) fds.push_back(fd);
    const auto watch_all = [this](const std::vector<int>& of, std::uint64_t kind) {
        return std::ranges::all_of(
            of, [=, this](int fd) { return add(fd_, fd, EPOLLIN | EPOLLET, static_cast<std::uint64_t>(fd) | kind); });
    };
    return watch_all(fds, kFault) && watch_all(beside.failure_fds(), kFailedSend);
}

void Background::close() {
    if (fd_ < 0) return;
    if (std::exchange(watched_, false)) (void)abi::async_forget(fd_, 1);
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
    std::uint64_t told = 0;
    const channel::Beside& beside = channel::beside(*core_);
    const std::uint32_t before = beside.sleep();
    for (int n = epoll_wait(fd_, ready, std::size(ready), 0); n > 0;) told |= ready[--n].data.u64;
    const std::uint32_t sleep = beside.sleep();
    if (!(told & kFailedSend) || (told & kFault)) return (told & kFault) != 0;
    // The first event of a sleep may be of a good request. So may the first one behind it, since nothing takes back
    // what the sleeper has asked its adapters for.
    const bool first = std::exchange(sleep_, sleep) != sleep;
    if (before == sleep && !(sleep & 1) && !first) return true;
    if (first || !sleeper_until_) sleeper_until_ = services_->now() + kToWake;
    return false;
}

bool Background::sleeper_stays_away(Nanos now) {
    if (!sleeper_until_ || now < sleeper_until_) return false;
    sleeper_until_ = 0;
    return channel::beside(*core_).sleep() == sleep_;
}

// A program that has made no call since the last look is outside, most likely: only then the turn is asked for.
void Background::recover(bool told) {
    if (refused_) return;
    const Nanos now = services_->now();
    if (told || sleeper_stays_away(now)) {
        channel::beside(*core_).hear();
        due_ = now;
        pause_ = kFirstPause;
    }
    if (due_ && now >= due_) ask_for_turn(now);
    const Nanos next = due_ && sleeper_until_ ? std::min(due_, sleeper_until_) : due_ + sleeper_until_;
    if (std::exchange(timer_at_, next) == next) return;
    services_->cancel_in_background(std::exchange(timer_, 0));
    if (next) timer_ = services_->at_in_background(next, [this] { timer_ = timer_at_ = 0; });
}

void Background::ask_for_turn(Nanos now) {
    channel::Beside& beside = channel::beside(*core_);
    turn::Words words(beside.turn);
    const std::uint64_t calls = words.calls(), before = std::exchange(seen_, calls);
    const bool outside = calls == before;
    // Tried, since UCX's lock is held here, and another thread's turn may wait for that.
    std::unique_lock forks_wait(turn::forks_wait_for(), std::defer_lock);
    if (outside && forks_wait.try_lock() && turn::take(words)) {
        sleeper_until_ = 0;
        due_ = beside.recover([this] { return services_->run_timers(); }).next;
        // Its timers are the interface's; one that has nothing to recover waits for the program.
        if (const Nanos timer = services_->next_timer(); due_ && timer)
            due_ = std::min(due_, std::max(timer, services_->now() + kGap));
        pause_ = kFirstPause;
        if (!due_) services_->recovered(); // in the turn: whoever sees something afterwards says so
        turn::give(words);
    } else if (forks_wait && !turn::can_take_turns()) {
        ucs_debug("mp: the kernel refuses membarrier(2) now: no thread recovers from here on");
        refused_ = true;
        due_ = 0;
    } else {
        due_ = now + pause_;
        pause_ = std::min(2 * pause_, kLongestPause);
        if (!beside.program_is_done() || beside.fault_is_told()) return;
        services_->recovered(); // a program that begins to recover again is not done, or says so behind this
        if (beside.program_is_done()) due_ = 0;
    }
}

} // namespace ucx_mp::face
