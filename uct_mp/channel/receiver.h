// Receives messages: who has sent one, its number, its markers, its handler.
//
// Each number is delivered once and in order, whatever path brings it and however often. An early message waits for its
// turn: in its receive buffer, or as a copy.
//
// Callers: Completions for every receive; Interface::release() for buffers that a handler has kept. Ownership: a
// receive buffer goes back to its adapter, unless the handler keeps it. Errors: forged messages are dropped and
// counted. A peer that breaks the agreement loses its channel. Threads: the interface's. Handlers of the user run
// inside receive().
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Receiver {
public:
    explicit Receiver(Core& core) : core_(core) {}

    // -- Operations
    static void receive(Core& core, Adapter& adapter, ReceiveBuffer* buffer, std::uint32_t length,
                        std::uint32_t qp_number);
    // All messages below this number have been delivered: their buffers are free, their works end.
    void take_ack(Channel& channel, std::uint32_t ack);
    // Calls the handler. True: the buffer may be given back.
    static bool hand_over(Core& core, const MessageHeader& header, std::byte* payload, std::uint32_t bytes);
    void release(ReceiveBuffer* buffer); // kept by a handler until now
    // The peer has sent what nobody sends who keeps to the agreement. Its channel ends.
    [[gnu::cold]] void broken(Channel& channel, const char* what, std::uint64_t detail);
    // Gives back a buffer of the store of early messages.
    void keep_stored(ReceiveBuffer* buffer) {
        buffer->wr.next = stored_free;
        stored_free = &buffer->wr;
    }

    // Gives back a message that came early and that nobody will get.
    void drop_early(ReceiveBuffer* buffer);

    // The messages that have come into a ring, in order, as far as they may be delivered. How many.
    [[nodiscard]] unsigned take_from_ring(RingIn& ring);

    // -- What others read
    std::uint64_t dropped = 0; // messages that were not believed
    std::uint64_t forged = 0;  // of them: by other than the channel's peer

private:
    // By what the adapter has heard last; `from`: that, see Adapter::heard.
    static void receive_heard(Core& core, Adapter& adapter, ReceiveBuffer* buffer, std::uint32_t length,
                              std::uint64_t from);
    [[gnu::noinline]] void receive_other(Adapter& adapter, ReceiveBuffer* buffer, std::uint32_t length,
                                         std::uint64_t from);
    void receive_unusual(Adapter& adapter, ReceiveBuffer* buffer, std::uint32_t length, std::uint64_t from);
    // Messages that came there by `from` were sent by this channel's peer. `path`: the message's own word, a hint.
    [[nodiscard]] bool is_from(const Adapter& adapter, Channel& channel, PathIndex path, std::uint64_t from);
    [[nodiscard]] bool has_queue_pair(const Path* subs, unsigned count, const Adapter& adapter, PathIndex path,
                                      std::uint64_t number) const;
    // It is a half's that has been given up, and comes when the peer has been told what had come there.
    [[nodiscard]] bool is_late(const Adapter& adapter, const Channel& channel, std::uint64_t from) const;
    [[nodiscard]] static bool may_be_late(const Adapter& adapter, const Channel& channel);
    [[gnu::cold]] void drop_forged(const Channel& channel);
    template <class Hand>
    static bool deliver_next(Core& core, Channel& channel, const MessageHeader& header, const Hand& hand);
    static void answer_soon(Core& core, Channel& channel, const MessageHeader& header);
    // Delivers in place; true: the buffer may be given back.
    bool deliver(Channel& channel, ReceiveBuffer* buffer, std::uint32_t length);
    // Takes the buffer over. Without memory for it the channel is ended.
    void store_early(Channel& channel, Adapter& adapter, ReceiveBuffer* buffer, std::uint32_t length,
                     std::uint32_t sequence);
    void drain_early(Channel& channel);
    bool markers_in(Channel& channel, const MessageHeader& header, const std::byte* message, std::uint32_t length);
    void take_marker(Channel& channel, std::uint32_t number, PathIndex path);
    ReceiveBuffer* get_stored();

    std::vector<std::unique_ptr<std::byte, void (*)(void*)>> stored_chunks;
    ibv_recv_wr* stored_free = nullptr;
    Nanos next_forged_line = 0;
    static constexpr std::uint32_t kStaysFrom = 512; // bytes; what is shorter is copied when it comes early
    Core& core_;
};

} // namespace ucx_mp::channel
