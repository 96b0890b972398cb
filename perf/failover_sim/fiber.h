// A function on a stack of its own, which can stop in the middle and be resumed: how a simulated process spends time
// inside of a call while the others run. Single threaded.
#pragma once

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <new>
#include <utility>

namespace ucx_mp::failover {

class Fiber {
public:
    // `body` never returns; it calls leave() when it has nothing to do.
    explicit Fiber(std::function<void()> body) : body_(std::move(body)) {
        stack_ = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack_ == MAP_FAILED) throw std::bad_alloc();
        getcontext(&own_);
        own_.uc_stack.ss_sp = stack_;
        own_.uc_stack.ss_size = kStack;
        own_.uc_link = nullptr;
        const auto self = reinterpret_cast<std::uintptr_t>(this);
        makecontext(&own_, reinterpret_cast<void (*)()>(start), 2, static_cast<unsigned>(self),
                    static_cast<unsigned>(self >> 32));
    }
    ~Fiber() { munmap(stack_, kStack); }
    Fiber(const Fiber&) = delete;

    // From outside: goes on with it until it leaves. Throws what it has thrown; it must not be entered again then.
    void enter() {
        // swapcontext() would make a system call each time, for the signal mask.
        if (_setjmp(caller_) == 0) {
            if (std::exchange(started_, true)) _longjmp(left_, 1);
            setcontext(&own_);
        }
        if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
    }
    void leave() {
        if (_setjmp(left_) == 0) _longjmp(caller_, 1);
    }

private:
    static constexpr std::size_t kStack = 256 << 10; // of which only what is used is there
    static void start(unsigned low, unsigned high) {
        auto* self = reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low);
        try {
            self->body_();
        } catch (...) { // exceptions don't cross stacks
            self->thrown_ = std::current_exception();
        }
        for (;;) self->leave();
    }
    std::function<void()> body_;
    void* stack_;
    ucontext_t own_{}; // its beginning
    jmp_buf caller_, left_;
    bool started_ = false;
    std::exception_ptr thrown_;
};

} // namespace ucx_mp::failover
