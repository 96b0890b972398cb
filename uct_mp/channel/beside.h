// Recovery beside a program that makes no call: somebody else does what progress() would, and what is the user's waits
// for the user.
//
// A turn is all of progress: events, timers, completions, mail, recovery. Meanwhile nothing of the user's is called. A
// message stays in its buffer. Completions and what is to be unpacked are noted. The next progress() hands all that out
// in the order in which it came, before it polls. Errors of peers, room for those who wait, and the end of channels are
// left to progress() as well. The data path pays nothing for this: for the time of a turn the table of handlers is
// another one, and stand-ins take the place of the users' completions. They stay there, and call the user at once when
// the program itself completes the operation. A turn puts in so many of them that it stays short. The first turn that
// finds none missing polls.
//
// Callers: recover() is for the caller of Interface::serve(), with Config::background and RecoveryConfig::thread, while
// the program is outside of every call and stays there (host/turn.h). These callers are UCX's async thread
// (ucx/background.h), and the simulator for nodes that compute. That thread calls the functions about descriptors and
// sleep() as well. The other functions are the program's. Slow path.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "uct_mp/channel/types.h"
#include "uct_mp/channel/work.h"
#include "uct_mp/host/services.h"
#include "uct_mp/host/turn.h"

namespace ucx_mp::channel {

struct Core;
class Interface;

// Bits of Core::aside: what the program's next progress has to do before anything else.
namespace aside {
inline constexpr std::uint8_t kept = 1;  // messages or completions wait for the program
inline constexpr std::uint8_t slept = 2; // the program has armed the events of its sleep
} // namespace aside

class Beside {
public:
    explicit Beside(Core& core);

    struct Recovered {
        unsigned found = 0;
        Nanos next = 0; // when another turn is wanted, though no descriptor says so; 0: not at all
    };
    // One turn, of 200 us at most, but for the last command to an adapter. `run_timers` calls what is due of
    // Services::at.
    Recovered recover(const std::function<unsigned()>& run_timers);
    // Readable when adapters tell of a fault: recover() then. It reads them, or the program does.
    [[nodiscard]] std::vector<int> fault_fds() const;
    // The same for a request that has failed. While the program sleeps, good ones make them readable as well, and wake
    // the program: see sleep().
    [[nodiscard]] std::vector<int> failure_fds() const;
    // Readable anew when another interface has read of such a fault (EPOLLET: they are never drained).
    [[nodiscard]] std::vector<int> hearsay_fds() const;
    // The peer has told of one. With the lock held, but outside of a turn.
    [[nodiscard]] bool fault_is_told() const;
    // Odd: the program sleeps, or has not looked at its queues since it slept. Each change adds one. Any thread.
    [[nodiscard]] std::uint32_t sleep() const { return sleep_.load(std::memory_order_acquire); }

    // A program that makes calls recovers by itself. The thread counts each fault that it hears of. The program looks
    // at all queues then, and is done when there is nothing to be recovered any more: the thread need not ask for a
    // turn.
    void hear() { heard_.fetch_add(1); }
    [[nodiscard]] std::uint32_t heard() const { return heard_.load(); }
    [[nodiscard]] bool program_is_done() const { return done_.load() == heard_.load(); }
    void look_for_faults(); // the program: now and then

    [[nodiscard]] bool active() const { return active_; }
    // Hands out what turns have kept; number of things. The program has woken, if it slept. The first step of
    // progress(); also for callers that do something of their own before it.
    unsigned hand_out();
    // The program is about to sleep: its next progress calls hand_out(). True: it can't, since an event of its sends
    // is there. That progress takes it.
    [[nodiscard]] bool falls_asleep();
    // The program has begun to recover: if it makes no more calls, the thread goes on.
    void hand_over();
    // The program, or a turn, has looked at the adapters. `more`: it has not seen all queues empty.
    void has_looked(bool more);
    // The answer of a flush: it is not over before everything kept has been handed out.
    [[nodiscard]] Status behind_kept(Status status, Completion* completion, const Channel& channel);
    // The completions of flushes that are kept. The caller may put another one there, or null: nobody is called then.
    struct KeptFlush {
        const Channel* channel; // to compare with: it may be gone
        Completion*& completion;
    };
    [[nodiscard]] std::vector<KeptFlush> kept_flushes(); // until the next call of anything here
    // The user's, if this is a stand-in.
    [[nodiscard]] static Completion* original(Completion* completion) { return users(completion); }
    // Where a work has the user's completion: in its stand-in, if it has one.
    [[nodiscard]] static Completion*& users(Completion*& completion);

    // Whose turn it is, for recover() and the program: whoever calls recover() takes it.
    mp_turn_t turn{};

    // -- What others read
    std::uint64_t turns = 0, kept = 0; // ever

private:
    struct StandIn : Completion {
        Beside* owner;
        Completion* user; // may be null
        UnpackFn unpack;  // get_bcopy: the user's
        void* arg;
        const Channel* flushed; // flush: its channel
        StandIn* next;          // the next unused one
    };
    struct Kept {
        std::byte* data = nullptr; // a message, or what is to be unpacked
        std::size_t length = 0;
        std::unique_ptr<std::byte[]> copy{}; // owns it; else a receive buffer does
        Completion* completion = nullptr;
        Status status = Status::ok;
        const Channel* flushed = nullptr; // a flush: its channel
        UnpackFn unpack = nullptr;
        void* arg = nullptr;
        std::uint8_t am_id = 0;
    };
    struct Handler {
        Beside* self;
        std::uint8_t am_id;
    };
    static Status keep(void* handler, void* data, std::size_t length, unsigned flags); // an AmHandler's
    static void completed(Completion* stand_in);
    static void unpacked(void* stand_in, const void* data, std::size_t length);
    void stand_in_for(Work& work);
    void deal_with(std::uint32_t heard);
    [[nodiscard]] bool begin(); // false: stand-ins are missing, and the turn may not poll
    void end(unsigned found);
    void wakes_up();
    [[nodiscard]] bool is_full() const;

    Core& core_;
    bool active_ = false;
    const AmHandler* handlers_ = nullptr; // the user's, while active
    Nanos away_for_;                      // until the next turn, if nothing but a path that is away calls for it
    std::atomic<std::uint32_t> sleep_{0};
    // Counts of what was heard of: by anybody, what the program has dealt with, and what it is about.
    std::atomic<std::uint32_t> heard_{0}, done_{0};
    std::uint32_t dealing_ = 0;
    std::uint32_t dealing_since_ = 0; // Rounds::looks
    bool woken_ = false;              // the program has not looked at its queues since it woke
    std::size_t kept_messages_ = 0;
    unsigned found_ = 0; // in turns, since the program was here
    std::deque<Kept> kept_;
    Handler by_id_[kAmIds];
    AmHandler keepers_[kAmIds];
    std::deque<StandIn> stand_ins_; // all, ever
    StandIn* unused_ = nullptr;
    WorkPool::Walk walk_;
    bool all_have_ = false; // no work of the program misses its stand-in, unless the program has begun more
    std::uint32_t taken_ = 0, in_use_ = 0; // WorkPool's, when the program was outside last
};

[[nodiscard]] Beside& beside(Interface& of);

} // namespace ucx_mp::channel
