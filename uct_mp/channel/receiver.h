// Receives messages: finds the sender, checks number and markers, calls the handler.
//
// Each number is delivered once and in order, even if several paths bring it or if it comes twice. An early message
// waits for its turn, in its receive buffer or as a copy.
//
// Callers: Completions for every receive; Interface::release() for buffers that a handler has kept.
// Ownership: a receive buffer returns to its adapter, unless the handler keeps it.
// Errors: forged messages are dropped and counted. A peer that breaks the protocol loses its channel.
// Threads: the interface's. Handlers of the user run inside receive().
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Receiver {
public:
    explicit Receiver(Core& core) : core_(core) {}

    // -- Operations
    static void receive(Core& core, Adapter& adapter, ReceiveBuffer* buffer, std::uint32_t length,
                        std::uint32_t qp_number);
    // The peer has delivered all messages before number `ack`: gives their buffers back, and ends their works.
    void take_ack(Channel& channel, std::uint32_t ack);
    void release(ReceiveBuffer* buffer); // a handler has kept it until now
    // Gives a copy of an early message back to their store.
    void keep_stored(ReceiveBuffer* buffer) {
        buffer->wr.next = stored_free;
        stored_free = &buffer->wr;
    }

    // Gives back an early message that will not be delivered.
    void drop_early(ReceiveBuffer* buffer);

    // Delivers the messages that have come into the ring, as far as they are next in order. Returns how many.
    [[nodiscard]] unsigned take_from_ring(RingIn& ring);

    // -- What others read
    std::uint64_t dropped = 0; // messages that were not believed
    std::uint64_t forged = 0;  // those of them that came by a way that is not the channel's

private:
    // `from`: the queue pair that the message came by, or its tag; see Adapter::heard. Here it is the same as for the
    // message before.
    static void receive_heard(Core& core, Adapter& adapter, ReceiveBuffer* buffer, std::uint32_t length,
                              std::uint64_t from);
    [[gnu::noinline]] void receive_other(Adapter& adapter, ReceiveBuffer* buffer, std::uint32_t length,
                                         std::uint64_t from);
    void receive_unusual(Adapter& adapter, ReceiveBuffer* buffer, std::uint32_t length, std::uint64_t from);
    // True: messages that came by `from` were sent by this channel's peer. `path`: what the message says, only a hint.
    [[nodiscard]] bool is_from(const Adapter& adapter, Channel& channel, PathIndex path, std::uint64_t from);
    [[nodiscard]] bool has_queue_pair(const Path* subs, unsigned count, const Adapter& adapter, PathIndex path,
                                      std::uint64_t number) const;
    // True: the message came by a half that has been given up, after the peer was told what had arrived by it.
    [[nodiscard]] bool is_late(const Adapter& adapter, const Channel& channel, std::uint64_t from) const;
    [[nodiscard]] static bool may_be_late(const Adapter& adapter, const Channel& channel);
    [[gnu::cold]] void drop_forged(const Channel& channel);
    template <class Hand>
    static bool deliver_next(Core& core, Channel& channel, const MessageHeader& header, const Hand& hand);
    static void answer_soon(Core& core, Channel& channel, const MessageHeader& header);
    // Delivers in place. True: the buffer may be given back.
    bool deliver(Channel& channel, ReceiveBuffer* buffer, std::uint32_t length);
    // Takes the buffer over. Without memory for a copy the channel fails.
    void store_early(Channel& channel, Adapter& adapter, ReceiveBuffer* buffer, std::uint32_t length,
                     std::uint32_t sequence);
    void drain_early(Channel& channel);
    bool markers_in(Channel& channel, const MessageHeader& header, const std::byte* message, std::uint32_t length);
    void take_marker(Channel& channel, std::uint32_t number, PathIndex path);
    ReceiveBuffer* get_stored();

    std::vector<std::unique_ptr<std::byte, void (*)(void*)>> stored_chunks;
    ibv_recv_wr* stored_free = nullptr;
    Nanos next_forged_line = 0;
    static constexpr std::uint32_t kStaysFrom = 512; // bytes; a shorter message is copied when it comes early
    Core& core_;
};

} // namespace ucx_mp::channel
