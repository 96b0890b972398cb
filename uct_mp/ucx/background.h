// The asynchronous side: UCX's async thread waits for control messages and timers, and calls the core with the worker's
// async context blocked.
//
// It recovers as well while the program makes no call. Whoever tells of a fault wakes it: a failed send, a port, an
// adapter, the peer, or progress that has begun to recover. Then it asks for a turn (host/turn.h), again and again
// while the program is inside, and takes turns until there is nothing more to be done. A program that sleeps is woken
// by its own events, also by those of failed sends. It has some milliseconds to look.
#pragma once

#include <string>

#include "uct_mp/channel/interface.h"
#include "uct_mp/ucx/services.h"

namespace ucx_mp::face {

class Background {
public:
    Background() = default;
    Background(const Background&) = delete;
    ~Background() { close(); }
    // `recovers`: the program's calls mark Beside::turn; else only peers are answered.
    // `services` has an asynchronous side; both outlive this, or close()
    // is called before. False: it is impossible, `error` says why, and close() is due.
    [[nodiscard]] bool open(channel::Interface& core, UcxServices& services, bool recovers, std::string& error);
    bool watch(int fd);  // watches this one, too
    bool watch_faults(); // ... and what tells that something is to be recovered; those that it watches already stay
    void close();        // waits for a call that is under way

private:
    static void serve(int id, ucs_event_set_types_t events, void* self);
    [[nodiscard]] bool fault_was_told();
    [[nodiscard]] bool sleeper_stays_away(Nanos now);
    void recover(bool told);
    void ask_for_turn(Nanos now);

    channel::Interface* core_ = nullptr;
    UcxServices* services_ = nullptr;
    int fd_ = -1;          // the async thread waits for it
    bool watched_ = false; // ... really
    bool recovers_ = false;
    bool refused_ = false; // by the kernel, which took membarrier(2) before
    Nanos due_ = 0;        // when it asks for a turn; 0: it need not
    // An event came that the program may have asked for when it slept: it looks. If it has not until then, the thread
    // does.
    Nanos sleeper_until_ = 0; // 0: none came
    std::uint32_t sleep_ = 0; // Beside::sleep() at the last such event
    Nanos pause_ = 0;
    std::uint64_t seen_ = 0;    // mp_turn_t::calls at the last look: a program that has made none since is outside
    Services::Timer timer_ = 0; // for both times
    Nanos timer_at_ = 0;
};

} // namespace ucx_mp::face
