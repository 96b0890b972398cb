// Ends the operations of one endpoint of several that share a channel.
//
// Threads: the interface's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Cancels;

// One endpoint's operations are being cancelled. Keeps the endpoint's reference to the channel.
struct Cancel {
    Channel* channel;
    std::uint32_t origin;
    unsigned left = 0; // works
    bool over = false;
    bool announced = false; // on `completions`
    Nanos since = 0;
    Nanos pause = 0; // until the next look
    Services::Timer timer = 0;
    std::vector<Completion*> completions; // of the flushes that have asked for it
};

// In place of the caller's completion. Core::tags owns it.
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
    Completion* tag(Completion* user, std::uint32_t origin);
    void untag(Completion* completion);
    Status cancel(Channel& channel, std::uint32_t origin, Completion* completion);
    Status join_cancel(Channel& channel, std::uint32_t origin, Completion* completion);
    void announce(Cancel& cancel);
    Channel& canceled_channel();
    std::vector<std::unique_ptr<Cancel>> list;

private:
    void go_on(Cancel& cancel);
    void cancel_waiting(Cancel& cancel);
    void cancel_retained(Cancel& cancel);
    void take_back_posted(Cancel& cancel);
    std::vector<std::unique_ptr<Tag>> tags; // all of them
    Tag* free_tags = nullptr;
    std::unique_ptr<Channel> canceled;
    Core& core_;
};

} // namespace ucx_mp::channel
