#include "pml_glue/core/async/thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace ucx_mp::glue::async {

namespace {
std::atomic<Thread*> g_running{nullptr};

std::uint64_t now(clockid_t clock = CLOCK_MONOTONIC) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

// Once per process. A child has no progress thread: it must not wait for its end, nor write to its eventfd,
// which is also the parent's. A process that exits without MPI_Finalize unloads libraries that the thread is in.
void watch_process() {
    static const bool once = [] {
        (void)turn::forks_wait_for();
        pthread_atfork(nullptr, nullptr, [] { g_running = nullptr; });
        return std::atexit([] {
                   if (Thread* const running = g_running.exchange(nullptr)) running->stop();
               }) == 0;
    }();
    (void)once;
}
} // namespace

bool Thread::start(std::string& error) {
    if (!work_.try_lock && !turn::can_take_turns()) {
        error = std::string("this kernel has no membarrier(2): ") + std::strerror(errno);
        return false;
    }
    polled_.assign(1, {eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), POLLIN, 0});
    if (polled_[0].fd < 0) {
        error = std::string("no descriptor for it: ") + std::strerror(errno);
        return false;
    }
    for (const int fd : work_.fds) polled_.push_back({fd, POLLIN, 0});
    watch_process();
    stop_ = false;
    sigset_t all, before;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        thread_ = std::thread([this] { run(); });
        pthread_setname_np(thread_.native_handle(), "mp-progress");
        g_running = this;
    } catch (const std::system_error& none) {
        error = none.what();
        close(polled_[0].fd);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread_.joinable();
}

void Thread::stop() {
    Thread* running = this;
    g_running.compare_exchange_strong(running, nullptr);
    if (!thread_.joinable()) return;
    stop_ = true;
    const std::uint64_t one = 1;
    if (write(polled_[0].fd, &one, sizeof one) < 0) {} // full: it is readable
    thread_.join();
    close(polled_[0].fd);
}

void Thread::run() {
    Pace pace(work_.times);
    while (!stop_) {
        ++counts_.looks;
        if (!pace.outside(words_.calls())) {
            sleep(pace.wait(), false);
            continue;
        }
        const Served served = serve();
        used_ = now(CLOCK_THREAD_CPUTIME_ID);
        if (served == Served::refused) sleep(pace.wait(), false);
        if (served == Served::idle) sleep(pace.idle(true), false);
        if (served == Served::armed || served == Served::more) sleep(pace.gap(), false);
        if (served == Served::armed) sleep(pace.idle(all_wake_), true);
    }
}

bool Thread::enter() {
    if (work_.try_lock) return work_.try_lock();
    return turn::take(words_);
}

void Thread::leave() {
    if (!work_.try_lock) return turn::give(words_);
    words_.set(MP_TURN_NEWS);
    work_.unlock();
}

Thread::Served Thread::serve() {
    const std::lock_guard lock(turn::forks_wait_for());
    if (!enter()) {
        ++counts_.refused;
        return Served::refused;
    }
    ++counts_.turns;
    const Served served = serve_inside();
    leave();
    return served;
}

Thread::Served Thread::serve_inside() {
    const std::uint64_t calls = words_.calls(), end = now() + MP_TURN_SLICE;
    do {
        if (work_.stops()) return Served::idle;
        const unsigned found = work_.progress();
        counts_.found += found;
        if (!found && work_.arm()) {
            all_wake_ = work_.all_wake();
            return Served::armed;
        }
        if (!work_.try_lock && words_.calls() != calls) return Served::refused; // the program wants in
    } while (now() < end);
    return Served::more;
}

// Until `ns` are over, or stop(); with `events` also until one comes.
void Thread::sleep(std::uint64_t ns, bool events) {
    const timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    (void)ppoll(polled_.data(), events ? polled_.size() : 1, &time, nullptr);
}

} // namespace ucx_mp::glue::async
