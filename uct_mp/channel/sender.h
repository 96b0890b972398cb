// Sends messages: gate, window, path, buffer; header; retained until acknowledged; posted.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Sender {
public:
    explicit Sender(Core& core) : core_(core) {}
    // gates != 0: may a message go in spite of it? no_resource, or the error of a failed channel. May start a
    // connection.
    Status pass_gate_message(Channel& channel);
    Status blocked(Channel& channel); // not ready, held, failed
    // What begins a sequenced message of `total` bytes (header included, trailer not): a path and a buffer. ok, or not.
    struct Start {
        Buffer* buffer;
        SendQueue* queue;
        PathIndex path;
        bool fenced;
        std::uint32_t placed; // bytes in the account
    };
    Status start_message(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start);
    Status start_gated(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start);
    Status start_plain(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start); // whatever fences want
    // Fills the header, retains, posts the buffer (inline if it fits).
    void finish_message(Channel& channel, const Start& start, Kind kind, std::uint8_t am_id, std::uint32_t length,
                        std::uint8_t flags);
    // The same for zcopy: the pieces of the buffer's work go behind it.
    void finish_pieces(Channel& channel, const Start& start, std::uint8_t am_id, std::uint32_t length);
    void compose(Channel& channel, Buffer& buffer, PathIndex path, Kind kind, std::uint8_t am_id, std::uint32_t length,
                 std::uint8_t flags);
    [[gnu::noinline]] static Status am_short_any(Channel&, std::uint8_t id, std::uint64_t header, const void* payload,
                                                 unsigned length);
    [[gnu::noinline]] static Status am_short_sole(Channel&, std::uint8_t id, std::uint64_t header, const void* payload,
                                                  unsigned length);
    [[gnu::noinline]] static Status am_short_lane(Channel&, std::uint8_t id, std::uint64_t header, const void* payload,
                                                  unsigned length);
    template <Fits, class Fill>
    ssize_t send_message(Channel& channel, BufferPool& pool, std::uint8_t id, std::uint32_t size, const Fill& fill);
    void post_message(Channel& channel, Buffer& buffer, SendQueue& queue, PathIndex path, std::uint32_t placed);
    void post_refused(Channel& channel, SendQueue& queue, const Posted& posted);
    // `marked`: the path that a marker is about, if not the one that carries it.
    bool send_control(Channel& channel, Kind kind, const void* body, unsigned length, PathIndex path, SendQueue& queue,
                      PathIndex marked = kNoPath);
    static int gather(Buffer& buffer, const Work* pieces, unsigned device, ibv_sge* sge); // entries
    static std::uint32_t fence_of(Buffer& buffer); // its number, 0: not a fenced message
    bool send_ack(Channel& channel, Kind kind);
    void send_due_acks();
    void owe_ack(Channel& channel, bool now);
    std::vector<Channel*> acks_due;

private:
    Status start_fenced(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start);
    template <Fits> void post_own(Channel& channel, Buffer& buffer, SendQueue& queue, PathIndex path);
    void post_whole(Channel& channel, Buffer& buffer, SendQueue& queue, PathIndex path, bool signaled);
    [[gnu::noinline, gnu::cold]] void post_joined_refused(Channel& channel, SendQueue& queue); // the last message
    [[gnu::noinline, gnu::cold]] void post_whole_refused(Channel& channel, Buffer& buffer, SendQueue& queue,
                                                         PathIndex path);
    template <Fits, class Fill>
    ssize_t active_message_sole(Channel& channel, BufferPool& pool, std::uint8_t id, const Fill& fill);
    template <Fits, class Fill, class Otherwise> ssize_t active_message_lane(Channel& channel, BufferPool& pool,
                                                                             std::uint8_t id, const Fill& fill,
                                                                             const Otherwise& otherwise);
    template <Fits, class Fill>
    ssize_t active_message(Channel& channel, BufferPool& pool, std::uint8_t id, std::uint32_t size, Fill fill);
    void finish_fenced(Channel& channel, const Start& start, Kind kind, std::uint8_t am_id, std::uint32_t length,
                       std::uint8_t flags);
    void append_trailer(Channel& channel, Buffer& buffer, std::uint32_t sequence);
    Core& core_;
};

} // namespace ucx_mp::channel
