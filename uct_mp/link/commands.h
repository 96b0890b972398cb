// Commands to adapters that nobody waits for, done aside (Services::aside), one after the other. Making and connecting
// a queue pair takes milliseconds on some adapters. Whoever makes progress must not pay that.
//
// What is done aside may use what `work` has been given, and the adapters' queues: whoever ends those halts or drops
// this before. It runs beside progress and beside the handshakes' thread, without the lock.
//
// What is short and wanted by many goes first (give_way). Nothing of this is done for long in one go, so that others
// get their turn at all.
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
    using Then = std::function<void()>; // progress, afterwards. What it holds is destroyed there, too

    explicit Commands(Services& services);
    ~Commands() { drop(); }
    Commands(const Commands&) = delete;

    void add(Work work, Then then);
    // Others want to do something aside: nothing else is begun before `until`.
    void give_way(Nanos until);
    // Nothing is under way when it returns: it waits for the one command that has begun, as long as the driver takes.
    // What has not been begun is not done; all `then` are called.
    void halt();
    // Likewise, but nothing is called.
    void drop();
    [[nodiscard]] unsigned count() const; // not over yet

    Nanos spent = 0; // by progress: threads that were made, and what nobody took

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
