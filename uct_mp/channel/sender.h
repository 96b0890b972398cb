// Sends messages. The steps: check gate and window, choose a path, take a buffer; fill in the header; retain the
// buffer until it is acknowledged; post.
//
// They have a number and are retained, so that they can go again. Acks sends what has no number.
//
// Callers: Interface, Parts and Atomics.
// Errors: no_resource: nothing has happened. If a post is refused the path is given up, and the message counts as sent.
// Sizes are bytes. The code that every message executes is in data_path.h.
// Threads: the interface's.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

[[nodiscard]] FenceTrailer trailer_of(Buffer& buffer); // all 0: not a fenced message

class Sender {
public:
    explicit Sender(Core& core) : core_(core) {}

    // -- Gates (slow path)
    // Gates are set. ok: a message may go all the same. Else no_resource, or the error of a failed channel.
    Status pass_gate_message(Channel& channel);
    // The same for gates that stop every operation (not ready, held, failed and so on). Starts a connection if needed.
    Status blocked(Channel& channel);

    // -- One sequenced message: started, filled by the caller, finished
    struct Start {
        Buffer* buffer;
        SendQueue* queue;
        PathIndex path;
        enum class Way : std::uint8_t { plain, fenced, ring } way; // ring: it takes the ring if it is short enough
        std::uint32_t placed;                                      // bytes added to the path's account
    };
    // `size`: header included, a fence's trailer not; 0: not known yet. ok: `start` holds a path and a buffer.
    Status start_message(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start);
    Status start_gated(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start); // gates are set
    Status start_plain(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start); // ignores gates
    // Fills the header, retains the buffer and posts it (inline if it fits).
    void finish_message(Channel& channel, const Start& start, Kind kind, std::uint8_t am_id, std::uint32_t length,
                        std::uint8_t flags);
    // The same for zcopy: the user's pieces of memory follow the buffer.
    void finish_pieces(Channel& channel, const Start& start, std::uint8_t am_id, std::uint32_t length);
    // Gives the message its number and header, and retains it. Does not post it.
    void compose(Channel& channel, Buffer& buffer, PathIndex path, Kind kind, std::uint8_t am_id, std::uint32_t length,
                 std::uint8_t flags);

    // -- Active messages in one call
    [[gnu::noinline]] static Status am_short_any(Channel&, std::uint8_t id, std::uint64_t header, const void* payload,
                                                 unsigned length);
    [[gnu::noinline]] static Status am_short_sole(Channel&, std::uint8_t id, std::uint64_t header, const void* payload,
                                                  unsigned length);
    [[gnu::noinline]] static Status am_short_unusual(Channel&, std::uint8_t id, std::uint64_t header,
                                                     const void* payload, unsigned length);
    // `marked`: leaves at the end of the call, so that this one may be its tail.
    template <bool tagged, bool marked> [[gnu::noinline]] static Status
    am_short_lane(Channel&, std::uint8_t id, std::uint64_t header, const void* payload, unsigned length);
    [[gnu::noinline]] static Status am_short_ring(Channel&, std::uint8_t id, std::uint64_t header, const void* payload,
                                                  unsigned length);
    // `fill` writes the payload and returns its length. Returns that length, or a Status.
    template <Fits, class Fill>
    ssize_t send_message(Channel& channel, BufferPool& pool, std::uint8_t id, std::uint32_t size, const Fill& fill);

    // -- Posting
    // `placed`: bytes that the path's account has already.
    void post_message(Channel& channel, Buffer& buffer, SendQueue& queue, PathIndex path, std::uint32_t placed);
    static int gather(Buffer& buffer, const Work* pieces, unsigned device, ibv_sge* sge); // returns how many entries

    // A buffer pool is exhausted: asks all peers to acknowledge what they have got.
    void ask_for_buffers();

private:
    template <bool> friend struct Calls; // am_short()
    Status start_ring(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start);
    [[gnu::noinline]] void finish_other(Channel& channel, const Start& start, Kind kind, std::uint8_t am_id,
                                        std::uint32_t length, std::uint8_t flags);
    void finish_ring(Channel& channel, const Start& start, std::uint8_t am_id, std::uint32_t length);
    // The buffer is sealed, and its bytes are in the path's account. `signaled`: asks for a completion.
    [[gnu::noinline]] void post_ring(Channel& channel, Buffer& buffer, SendQueue& queue, PathIndex path,
                                     const link::RemotePiece& to, bool signaled);
    [[gnu::noinline, gnu::cold]] void post_ring_refused(Channel& channel, SendQueue& queue); // the newest message
    Status start_fenced(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start);
    template <Fits>
    void post_own(Channel& channel, Buffer& buffer, SendQueue& queue, PathIndex path, const std::uint64_t* tag);
    void post_whole(Channel& channel, Buffer& buffer, SendQueue& queue, PathIndex path, bool signaled);
    [[gnu::noinline, gnu::cold]] void post_joined_refused(Channel& channel, SendQueue& queue); // the newest message
    [[gnu::noinline, gnu::cold]] void post_whole_refused(Channel& channel, Buffer& buffer, SendQueue& queue,
                                                         PathIndex path);
    template <Fits, class Fill> [[nodiscard]] bool
    active_message_sole(Channel& channel, BufferPool& pool, std::uint8_t id, const Fill& fill, std::uint32_t& length);
    template <class Fill>
    ssize_t active_message_sole_unusual(Channel& channel, BufferPool& pool, std::uint8_t id, Fill fill);
    template <Fits, class Fill, class Otherwise>
    ssize_t active_message_dc(Channel& channel, BufferPool& pool, std::uint8_t id,
                              schedule::Scheduler::Current& current, const Fill& fill, const Otherwise& otherwise);
    template <Fits, bool tagged, class Fill, class Otherwise>
    ssize_t active_message_lane(Channel& channel, BufferPool& pool, std::uint8_t id, const Fill& fill,
                                const Otherwise& otherwise);
    template <Fits, class Fill, class Otherwise> ssize_t active_message_ring(Channel& channel, BufferPool& pool,
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
