// The progress thread: makes progress while the program computes. One per process, for mp_core_start_thread().
//
// It sleeps while the program makes calls, and waits on the port's event descriptors while the program stays outside.
// It is inside the core for a slice at a time, and leaves as soon as the program wants in. A program with several
// threads waits for its lock until the slice is over.
//
// Threads: start() and stop() by the program's thread, outside of any turn. The thread blocks all signals but those of
// its own faults. A fork() waits until the thread is outside, so that the child has no locks of a thread that it lacks.
#pragma once

#include <poll.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "pml_glue/core/async/pace.h"
#include "uct_mp/host/turn.h"

namespace ucx_mp::glue::async {

// The work of the thread. All functions but the last two are called in a turn.
struct Work {
    std::function<unsigned()> progress; // returns how much it has found
    std::function<bool()> arm;          // false: an event is there already
    std::function<bool()> stops;        // no more can be done before the program's next call
    std::function<bool()> all_wake;     // every transport in use has one of `fds`
    std::vector<int> fds;               // readable after arm(): an event is there
    Times times = kSpare;
    bool (*try_lock)() = nullptr; // for a program with several threads; null: turns by mp_turn.h
    void (*unlock)() = nullptr;
};

struct Counts {
    std::atomic<std::uint64_t> looks{0}, turns{0}, refused{0}, found{0}; // found: sum of progress()
};

class Thread {
public:
    Thread(mp_turn_t& turn, Work work) : words_(turn), work_(std::move(work)) {}
    Thread(const Thread&) = delete;
    ~Thread() { stop(); }
    // False: no thread, and `error` has one line.
    [[nodiscard]] bool start(std::string& error);
    void stop();
    [[nodiscard]] const Counts& counts() const { return counts_; }
    [[nodiscard]] bool spare() const { return work_.times.gap == kSpare.gap; }
    [[nodiscard]] std::uint64_t processor_time() const { return used_.load(std::memory_order_relaxed); } // ns

private:
    enum class Served { refused, more, idle, armed };
    void run();
    [[nodiscard]] bool enter();
    void leave();
    [[nodiscard]] Served serve();
    [[nodiscard]] Served serve_inside();
    void sleep(std::uint64_t ns, bool events);

    turn::Words words_;
    const Work work_;
    Counts counts_;
    std::thread thread_;
    std::atomic<bool> stop_{false};
    std::atomic<std::uint64_t> used_{0};
    bool all_wake_ = false;      // at the last turn
    std::vector<pollfd> polled_; // first an eventfd, by which stop() wakes it; then the port's
};

} // namespace ucx_mp::glue::async
