// Ends the operations of one endpoint where several endpoints share a channel. The others notice nothing.
//
// Operations that name the caller's memory end: reads, zcopy writes and messages, results of atomics; so do its
// flushes. Copied messages and writes go on. An `origin` is one of the channel's endpoints, as a number: 0 is the
// first.
//
// Callers: Interface, for the face. Work goes on by a timer until everything of the endpoint is back.
// Ownership: a Cancel keeps a reference to its channel. Tags belong to Cancels, and are used again.
// Threads: the interface's. Slow path.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Cancels;

// One endpoint's operations are being cancelled. It holds the endpoint's reference to the channel.
struct Cancel {
    Channel* channel;
    std::uint32_t number;   // whose it is from now on
    unsigned left = 0;      // works
    bool over = false;      // none is left
    bool announced = false; // `completions` have been called
    Nanos since = 0;
    Nanos pause = 0; // until the next look
    Services::Timer timer = 0;
    std::vector<Completion*> completions; // of the flushes that have asked for it
};

// It stands in place of the caller's completion, and says whose the operation is. Cancels owns it.
struct Tag : Completion {
    static void fired(Completion* self);
    Cancels* owner;
    Completion* user; // may be null
    std::uint32_t origin;
    Cancel* cancel; // null: nobody cancels it
    Tag* next;      // unused ones
};

class Cancels {
public:
    explicit Cancels(Core& core) : core_(core) {}

    // -- Operations: see Interface, which has them by the same names
    Completion* tag(Completion* user, std::uint32_t origin);
    void untag(Completion* completion);
    Status cancel(Channel& channel, std::uint32_t& origin, Completion* completion);
    void end_flushes(const Channel& channel, std::uint32_t origin);
    Channel& canceled_channel();
    // For Tag::fired(): the last work of a Cancel has ended. Calls the caller's completions.
    void announce(Cancel& cancel);

    // -- What others read
    std::vector<std::unique_ptr<Cancel>> list; // under way

private:
    static constexpr std::uint32_t kGone = 1u << 31; // of numbers that cancel() gives
    Status join(std::uint32_t number, Completion* completion);
    void go_on(Cancel& cancel);
    void cancel_waiting(Cancel& cancel);
    void cancel_retained(Cancel& cancel);
    void take_back_posted(Cancel& cancel);

    std::vector<std::unique_ptr<Tag>> tags; // all of them
    Tag* free_tags = nullptr;
    std::unique_ptr<Channel> canceled;
    std::uint32_t gone = 0; // numbers given
    Core& core_;
};

} // namespace ucx_mp::channel
