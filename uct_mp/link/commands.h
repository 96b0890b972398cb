// Commands to adapters that nobody waits for, done aside (Services::aside), one after the other. Making and connecting
// a queue pair takes milliseconds on some adapters. Whoever makes progress must not pay that.
//
// Work that runs aside may use what it has been given, and the adapters' queues. So whoever ends those
// halts or drops this before. It runs beside progress and beside the handshakes' thread, without the lock.
//
// Short work that many want goes first (give_way). No work runs
// for long in one go, so that others get their turn at all.
//
// If nobody takes the work for long (a device is being opened again, say), progress does it after all.
//
// Threads: the interface's, but for `work`. Slow path.
#pragma once

#include <functional>
#include <memory>

#include "uct_mp/host/services.h"

namespace ucx_mp::link {

class Commands {
public:
    using Work = std::function<void()>; // aside; must not throw
    using Then = std::function<void()>; // progress, afterwards; it also destroys what `then` holds

    explicit Commands(Services& services);
    ~Commands() { drop(); }
    Commands(const Commands&) = delete;

    void add(Work work, Then then);
    // Others want to do something aside: no work begins before `until`.
    void give_way(Nanos until);
    // When it returns nothing is under way: it waits for the one command that has begun, as
    // long as the driver takes. Work that has not begun is not done; all `then` are called.
    void halt();
    // The same, but no `then` is called.
    void drop();
    [[nodiscard]] unsigned count() const; // commands that are not over yet

    Nanos spent = 0; // time of progress: threads that were made, and work that nobody took

private:
    struct Item {
        Work work;
        Then then;
        Nanos over = 0; // since when
    };
    struct Shared; // with the other thread
    void start();
    void look();
    void look_in(Nanos pause);
    [[nodiscard]] bool call_next(Nanos now);
    void do_next();
    void stop();

    Services& services_;
    std::shared_ptr<Shared> shared_;
    Services::Timer timer_ = 0; // runs while something is under way
    Nanos refused_since_ = 0;   // nobody takes the work; 0: somebody does
};

} // namespace ucx_mp::link
