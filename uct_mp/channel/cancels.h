// Ends the operations of one endpoint where several endpoints share a channel. The others notice nothing.
//
// Operations that name the caller's memory end: reads, zcopy writes and messages, results of atomics. So do the
// endpoint's flushes. Copied messages and writes go on. An `origin` is the number of one of the channel's endpoints: 0
// is the first.
//
// Callers: Interface. A timer goes on until every such operation of the endpoint has ended.
// Ownership: a Cancel counts as an endpoint of its channel. Tags belong to Cancels, and are reused.
// Threads: the interface's. Slow path.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Cancels;

// One endpoint's operations are being cancelled. It counts as an endpoint of the channel until it is over.
struct Cancel {
    Channel* channel;
    std::uint32_t number;   // the endpoint's new origin
    unsigned left = 0;      // works that have not ended
    bool over = false;      // `left` has come to 0
    bool announced = false; // `completions` have been called
    Nanos since = 0;
    Nanos pause = 0; // until the next look
    Services::Timer timer = 0;
    std::vector<Completion*> completions; // called when it is over: those of the callers of cancel()
};

// Stands in place of the caller's completion, and names the endpoint that the operation belongs to. Cancels owns it.
struct Tag : Completion {
    static void fired(Completion* self);
    Cancels* owner;
    Completion* user; // may be null
    std::uint32_t origin;
    Cancel* cancel; // null: the operation is not being cancelled
    Tag* next;      // in the list of unused tags
};

class Cancels {
public:
    explicit Cancels(Core& core) : core_(core) {}

    // -- Operations: see the functions of Interface by the same names
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
    static constexpr std::uint32_t kGone = 1u << 31; // set in every number that cancel() gives
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
