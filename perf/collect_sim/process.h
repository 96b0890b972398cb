// Processes in virtual time whose programs are written one call after the other: coroutines that go on at their node's
// turn when what they wait for is there.
#pragma once

#include <coroutine>
#include <exception>
#include <functional>

#include "pml/sim_tasks.h"
#include "simulator/cluster.h"

namespace ucx_mp::collect_sim {

using sim::Cluster;
using ucx_mp::Nanos;

// What a process runs. Begins at once, and has to end before its process does.
struct Program {
    struct promise_type {
        std::exception_ptr thrown;
        Program get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
        static std::suspend_never initial_suspend() { return {}; }
        static std::suspend_always final_suspend() noexcept { return {}; }
        static void return_void() {}
        void unhandled_exception() { thrown = std::current_exception(); }
    };
    std::coroutine_handle<promise_type> handle;
};

// One process. What its library has to do is `progress`, at each turn that the program lets it have.
class Process {
public:
    Process(Cluster& cluster, unsigned index) : cluster(cluster), node(cluster.node(index)), tasks(node) {
        node.services().quiet = true;
        node.on_turn = [this] { return turn(); };
    }
    ~Process() {
        node.on_turn = {};
        if (program_.handle) program_.handle.destroy();
    }
    Process(const Process&) = delete;

    // `program` makes a coroutine that uses this process. The one before has ended.
    void run(const std::function<Program(Process&)>& program) {
        if (program_.handle) program_.handle.destroy();
        resumed_ = {};
        program_ = program(*this);
        touch();
    }
    [[nodiscard]] bool ended() const {
        if (!program_.handle.done()) return false;
        if (program_.handle.promise().thrown) std::rethrow_exception(program_.handle.promise().thrown);
        return true;
    }

    struct Until {
        Process& process;
        std::function<bool()> holds;
        [[nodiscard]] bool await_ready() const { return !process.busy() && holds(); }
        void await_suspend(std::coroutine_handle<> handle) {
            process.resumed_ = handle;
            process.holds_ = std::move(holds);
        }
        void await_resume() const {}
    };
    // In a call that makes progress until it holds.
    [[nodiscard]] Until until(std::function<bool()> holds) { return {*this, std::move(holds)}; }
    // A call that makes progress once.
    [[nodiscard]] Until test() {
        return {*this, [this] {
                    look();
                    return true;
                }};
    }
    // Without a thread nobody makes progress meanwhile. A thread wakes up when there is something to do, which takes
    // the program's processor `wake` and as long as it has to do.
    [[nodiscard]] Until compute(Nanos time) {
        if (!thread) {
            computed_ = false;
            node.compute(time, [this] { computed_ = true; });
            return {*this, [this] { return computed_; }};
        }
        until_ = cluster.world.now_at(node.index()) + time;
        alarm();
        return {*this, [this] {
                    if (cluster.world.now_at(node.index()) < until_) return false;
                    until_ = 0;
                    return true;
                }};
    }
    void spend(Nanos time) {
        if (time) node.spend(time);
    }
    [[nodiscard]] Nanos now() const { return cluster.world.now_at(node.index()); }
    [[nodiscard]] bool busy() const { return node.busy(); }

    Cluster& cluster;
    sim::Node& node;
    sim::SimTasks tasks;
    std::function<bool(bool look_only)> progress; // does what can be done, or says whether there is something
    bool thread = false;
    Nanos wake = 0, stolen = 0; // stolen: by the thread, ever
    std::uint64_t wakes = 0;

private:
    void touch() {
        (void)node.services().at(cluster.world.now() + 1, [] {});
    }
    void alarm() {
        (void)node.services().at(until_, [] {});
    }
    bool look() {
        tasks.progress();
        return progress && progress(false);
    }
    bool turn() {
        bool any = false;
        if (until_ != 0) { // the thread's turn
            if (progress && now() < until_ && progress(true)) {
                const Nanos before = now();
                ++wakes;
                spend(wake);
                any = look();
                stolen += now() - before;
                until_ += now() - before;
                alarm();
            }
        } else {
            any = look();
        }
        if (!resumed_ || busy() || !holds_()) return any;
        std::exchange(resumed_, {}).resume();
        return true;
    }
    Program program_{};
    std::coroutine_handle<> resumed_;
    std::function<bool()> holds_;
    bool computed_ = false;
    Nanos until_ = 0; // of a computation beside a thread; 0: none
};

} // namespace ucx_mp::collect_sim
