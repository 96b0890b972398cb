#include "uct_mp/ucx/services.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <system_error>
#include <utility>

#include "uct_mp/ucx/abi/async.h"
#include "uct_mp/ucx/who.h"

namespace ucx_mp::face {

namespace {

ucs_log_level_t to_ucs(LogLevel level) {
    switch (level) {
    case LogLevel::error:
        return UCS_LOG_LEVEL_ERROR;
    case LogLevel::warn:
        return UCS_LOG_LEVEL_WARN;
    case LogLevel::info:
        return UCS_LOG_LEVEL_INFO;
    case LogLevel::debug:
        return UCS_LOG_LEVEL_DEBUG;
    case LogLevel::trace:
        return UCS_LOG_LEVEL_TRACE;
    }
    return UCS_LOG_LEVEL_DEBUG;
}

} // namespace

namespace {

// Without a counter that all processors agree on UCX counts microseconds of the system's clock.
bool has_counter() {
#if defined(__x86_64__) || defined(__aarch64__)
    constexpr double kMicroseconds = 1e6;
    return abi::clocks_per_second() != kMicroseconds;
#else
    return false;
#endif
}

} // namespace

UcxServices::UcxServices()
    : by_counter_(has_counter()),
      ns_per_tick_(static_cast<std::uint64_t>(
          std::llround((by_counter_ ? 1e9 / abi::clocks_per_second() : 1.0) * double(1ull << kFraction)))) {}

std::uint64_t UcxServices::system_clock() {
    timespec now{};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

UcxServices::~UcxServices() {
    forget_aside();
    if (aside_.joinable()) aside_.join();
    if (background_fd_ >= 0) ::close(background_fd_);
    if (recover_fd_ >= 0) ::close(recover_fd_);
    if (const int fd = wake_fd_.load(); fd >= 0) ::close(fd);
}

// ---- The asynchronous side

bool UcxServices::use(ucs_async_context_t* async) {
    if (!async) return false;
    const ucs_async_mode_t mode = abi::mode_of(async);
    if (mode != UCS_ASYNC_MODE_THREAD_SPINLOCK && mode != UCS_ASYNC_MODE_THREAD_MUTEX) return false;
    background_fd_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (background_fd_ < 0) {
        ucs_diag("mp: no timer descriptor (%m): peers are answered by progress only");
        return false;
    }
    async_ = async;
    return true;
}

void UcxServices::lock() {
    if (async_) abi::block(async_);
}

bool UcxServices::try_lock() { return !async_ || abi::try_block(async_); }

void UcxServices::unlock() {
    if (async_) abi::unblock(async_);
}

Services::Timer UcxServices::at_in_background(Nanos t, std::function<void()> fn) {
    if (!async_) return at(t, std::move(fn));
    const Timer timer = background_.add(t, std::move(fn));
    set_background_fd();
    return timer;
}

void UcxServices::cancel_in_background(Timer timer) {
    if (!async_) return cancel(timer);
    background_.cancel(timer);
    set_background_fd();
}

void UcxServices::set_background_fd() {
    const Nanos next = background_.next();
    if (next == background_set_) return;
    background_set_ = next;
    itimerspec spec{}; // zero: off
    if (next) {
        const Nanos current = now(), left = next > current ? next - current : 1;
        spec.it_value.tv_sec = static_cast<time_t>(left / 1'000'000'000);
        spec.it_value.tv_nsec = static_cast<long>(left % 1'000'000'000);
    }
    if (timerfd_settime(background_fd_, 0, &spec, nullptr) != 0) ucs_error("mp: timerfd_settime failed: %m");
}

void UcxServices::run_background() {
    std::uint64_t expirations = 0;
    if (::read(background_fd_, &expirations, sizeof expirations) < 0 && errno != EAGAIN)
        ucs_error("mp: reading a timer failed: %m");
    (void)background_.run(now());
    background_set_ = 0; // it has fired, perhaps a little early by our clock
    set_background_fd();
}

int UcxServices::wake_fd() {
    if (wake_fd_.load() < 0) wake_fd_.store(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    return wake_fd_.load();
}

void UcxServices::wake() {
    const std::uint64_t one = 1;
    const int fd = wake_fd_.load();
    if (fd >= 0 && ::write(fd, &one, sizeof one) < 0 && errno != EAGAIN) ucs_error("mp: waking up failed: %m");
}

int UcxServices::recover_fd() {
    if (recover_fd_ < 0) recover_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return recover_fd_;
}

void UcxServices::recover_soon() {
    if (recover_fd_ < 0 || recovering_.load() || recovering_.exchange(true)) return;
    const std::uint64_t one = 1;
    if (::write(recover_fd_, &one, sizeof one) < 0) ucs_error("mp: telling the async thread failed: %m");
}

void UcxServices::forget_aside() {
    if (!aside_.joinable() || aside_of_ == getpid()) return;
    aside_.detach();
    aside_busy_.store(false);
}

bool UcxServices::aside(std::function<void()> work) {
    forget_aside();
    if (aside_busy_.load()) return false;
    if (aside_.joinable()) aside_.join();
    aside_busy_.store(true);
    // Signals are the application's: none of its handlers runs on this thread.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool made = true;
    try {
        aside_of_ = getpid();
        aside_ = std::thread([this, work = std::move(work)] {
            work();
            aside_busy_.store(false);
            wake();
        });
    } catch (const std::system_error& error) {
        made = false;
        aside_busy_.store(false);
        if (!std::exchange(aside_said_, true)) ucs_warn("mp: cannot make a thread: %s", error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return made;
}

bool UcxServices::wait(Nanos t) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(t));
    return true;
}

void UcxServices::drain_wake() {
    std::uint64_t count = 0;
    const int fd = wake_fd_.load();
    if (fd >= 0 && ::read(fd, &count, sizeof count) < 0 && errno != EAGAIN) ucs_error("mp: waking up failed: %m");
}

// ---- Log

bool UcxServices::logs(LogLevel level) const { return ucs_log_is_enabled(to_ucs(level)); }

void UcxServices::log(LogLevel level, const char* line) {
    if (std::strncmp(line, "mp: ", 4) == 0) line += 4;
    if (std::strncmp(line, "mp_", 3) == 0 || who().rank < 0)
        ucs_log(to_ucs(level), "%s%s", std::strncmp(line, "mp_", 3) == 0 ? "" : "mp: ", line);
    else
        ucs_log(to_ucs(level), "mp: %s rank %d: %s", who().host.c_str(), who().rank, line);
}

} // namespace ucx_mp::face
