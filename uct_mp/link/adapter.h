// The interface's queues on one device: completion queues for receives and for sends, one shared receive queue.
//
// The two are apart. Every poll looks for receives, and they need no timestamps, for which an entry
// has to be fetched. The queue of sends is empty while no request has asked for a completion.
//
// Threads: the interface's. The completion queues can't overrun: one has room for every posted receive, and sends are
// limited by `send_credits`.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "uct_mp/link/buffer.h"
#include "uct_mp/link/send_queue.h"
#include "uct_mp/verbs/clock_fit.h"
#include "uct_mp/verbs/queue_pair.h"

namespace ucx_mp::link {

// One send, copied out before anything is done about it: users' callbacks must not run inside ibv_start_poll.
struct Completed {
    std::uint64_t id;
    std::uint64_t ticks;
    std::uint32_t vendor_error;
    ibv_wc_status status;
};
// Found before going to sleep: a send, or a receive.
struct Peeked {
    Completed sent; // for a receive: id and status
    std::uint32_t length;
    std::uint32_t qp_number;
};

// A number or tag that messages come with, and their channel.
struct Sender {
    std::uint64_t from = 0;
    channel::Channel* channel = nullptr;
};

inline constexpr unsigned kSenders = 64; // that an adapter knows; a power of two

struct alignas(64) Adapter {
    static constexpr std::uint32_t kBatch = 32;
    static constexpr unsigned kFetch = 16;   // completions that are taken from a queue at a time
    static constexpr unsigned kControl = 16; // messages of a peer beyond its window for which receives are posted

    // Every poll and every send needs these: one cache line.
    verbs::CompletionQueue cq; // for receives
    verbs::CompletionQueue send_cq;
    unsigned pause = 0, pausing = 0; // after refusals of memory: so many calls of refill() do not ask
    std::int32_t to_post = 0;        // receives that the queue lacks; below 0: it has too many
    std::uint32_t quiet = 0;         // polls in a row that found nothing, up to kSilent
    std::int32_t owed = 0;           // records of its queue pairs that have asked for a completion
    std::uint8_t peeked_count = 0;
    bool extended = false;           // send_cq is an extended queue: its completions bring timestamps
    bool timestamps = false;         // and they can be told in host time
    std::uint8_t index = 0;          // in DeviceSet
    std::int32_t send_credits = 0;   // below 0: queue pairs that drain post one more
    std::int32_t scarce_credits = 0; // from here down every request asks for a completion, see SendQueue::signal_due()
    std::uint32_t free_count = 0;
    std::int32_t batch = kBatch; // to_post from which receives are posted: kBatch, less if there are few of them
    ibv_recv_wr* free = nullptr; // of ReceiveBuffers, ready to be posted

    std::uint32_t level = 0; // receives that are to be posted
    bool tagged = false;     // messages begin with a tag: the interface has DC targets
    // The number or tag that the latest message came with, and its channel: many come by the same. The table has those
    // of messages before it: a program has some neighbours that it hears from in turn. They are never another
    // channel's: whoever ends a queue pair or a channel calls forget().
    std::uint64_t heard = 0;
    channel::Channel* heard_channel = nullptr;
    std::uint32_t came_by = 0; // tagged: the queue pair of the message that is being received
    std::uint64_t nobody = 0;  // a value that no message brings; tagged: a secret
    Sender senders[kSenders];
    [[nodiscard]] Sender& sender_at(std::uint64_t from) { return senders[from % kSenders]; }
    [[nodiscard]] bool knows(const channel::Channel& one) const {
        return std::ranges::find(senders, &one, &Sender::channel) != std::end(senders);
    }
    // The next message is looked at, whoever sent it.
    void forget_latest() {
        heard = nobody;
        heard_channel = nullptr;
    }
    void forget() {
        forget_latest();
        std::ranges::fill(senders, Sender{.from = nobody, .channel = nullptr});
    }
    std::shared_ptr<ibv_pd> domain; // outlives the queues and all members below
    verbs::SharedReceiveQueue srq;
    const verbs::Device* device = nullptr;
    // Wake-up; made before the queues since it can't be added later. Where another thread is to be told of failed
    // sends, these have a channel of their own.
    verbs::CompletionChannel channel, send_channel;
    bool tells_failures = false; // it has one; set before open()
    verbs::ClockFit clock;
    RegisteredChunks chunks;
    struct { // the last chunk: memory that no buffer has been made in
        std::byte* begin = nullptr;
        unsigned left = 0; // buffers
        std::uint32_t lkey = 0;
    } rest;
    std::uint32_t kept = 0;                  // receive buffers that handlers keep, or that wait
    std::uint32_t spare = 0, spare_used = 0; // buffers made for may_wait(); those in use
    // From lives of the device that are over: their memory stays until the last buffer that is kept comes back.
    std::vector<RegisteredChunks> old_chunks;
    std::uint32_t old_kept = 0;
    static constexpr unsigned kDrains = 192; // entries of the completion queue beyond the credits: recover/
    // Completions that a peek has found: the next poll handles them.
    static constexpr unsigned kPeek = 2 * kFetch;
    Peeked peeked[kPeek];

    ~Adapter() {
        srq.reset();
        cq.reset(); // before their channel
        send_cq.reset();
    }
    [[nodiscard]] verbs::Queues queues() const { return {send_cq.get(), cq.get(), srq.get()}; }
    Status open(const verbs::Device& from, const verbs::DeviceSet& devices, const QueueSizes& sizes,
                const ReceiveLayout& layout, unsigned peers, bool timed, bool tags, std::string& error);
    // So many peers are connected now. Each may have a window of messages under way; more receives need not be posted.
    // With fewer buffers in turn more of them are in a cache when a message comes. Posted receives cannot be taken
    // back: with fewer peers than before they are used up, and not posted again. A command, perhaps. errno or 0.
    int provide(unsigned peers, const verbs::DeviceSet& devices, const QueueSizes& sizes, const ReceiveLayout& layout);
    // Posts the receives that are missing; to be called from `batch` on. Slow only when buffers must be made.
    void refill(const verbs::DeviceSet& devices, const ReceiveLayout& layout);
    void give_back(ReceiveBuffer* buffer) {
        buffer->wr.next = free;
        free = &buffer->wr;
        ++free_count;
    }
    // Takes back a buffer that a handler had kept.
    void take_back(ReceiveBuffer* buffer) {
        if (buffer->life == device->life) [[likely]] {
            --kept;
            give_back(buffer);
        } else if (--old_kept == 0) {
            old_chunks.clear();
        }
    }
    // A message that has come too early may stay in its buffer until has_waited(). Another buffer takes its place,
    // and it counts as kept, so that take_back() gets it afterwards. False: too many wait, or no registered memory
    // is left. It registers none itself: that takes long, and would fail for each message where it fails.
    [[nodiscard]] bool may_wait(const ReceiveLayout& layout);
    void has_waited(const ReceiveBuffer& buffer) { spare_used -= buffer.life == device->life; }
    // The next request that ends with an error raises an event of send_channel; good ones do not (none is solicited).
    // errno or 0.
    int tell_failures() { return ibv_req_notify_cq(send_cq.get(), 1); }
    unsigned take_failure_events(); // number of those that had been raised; of any kind
    // The device has been opened again: goes on with the queues of `fresh`. Nothing refers to the old ones any more.
    void take_over(Adapter& fresh);

private:
    void set_level(std::uint32_t to) {
        to_post += static_cast<std::int32_t>(to) - static_cast<std::int32_t>(level);
        level = to;
        batch = static_cast<std::int32_t>(to < 2 * kBatch ? (to + 1) / 2 : kBatch);
    }
    [[nodiscard]] unsigned level_for(unsigned peers, const QueueSizes& sizes) const;
    void fill(const verbs::DeviceSet& devices, const ReceiveLayout& layout);
    void reserve_spare(const verbs::DeviceSet& devices, const ReceiveLayout& layout); // for may_wait()
    bool reserve(const verbs::DeviceSet& devices, const ReceiveLayout& layout, unsigned count);
    void make(const ReceiveLayout& layout, unsigned count);
    void make_missing(const verbs::DeviceSet& devices, const ReceiveLayout& layout, unsigned missing);
};

// Requests without a completion keep their credits until a later one of their queue pair has one.
// Many queue pairs that fall silent could keep all credits that way, so they may take half of them.
inline bool SendQueue::signal_due() const {
    return quiet_left_ <= 1 || adapter->send_credits <= adapter->scarce_credits;
}

// Credits that are not scarce are more than kReserve.
inline Posted* SendQueue::ready() const {
    return slots_ > static_cast<std::int32_t>(kReserve) && !signal_due() ? open_ : nullptr;
}

inline bool SendQueue::room(unsigned n) const {
    return slots_ >= static_cast<std::int32_t>(n) && adapter->send_credits >= static_cast<std::int32_t>(n);
}

} // namespace ucx_mp::link
