// Where a request goes: path, queue, room. And who waits for room.
//
// Callers: Sender, Mover, Atomics and recovery before they post; Interface::want_room() and Renewal list, Progress
// wakes. The scheduler chooses the path and keeps the account; a path whose queue is full gives way to any other.
// Threads: the interface's. Events::room() is called inside wake_waiting().
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Placement {
public:
    explicit Placement(Core& core) : core_(core) {}

    // -- Placing
    // A path with room for a whole message of `size` bytes, which are in the account then. kNoPath: none has room.
    PathIndex place(Channel& channel, Direction direction, std::uint64_t size);
    // mp_dc: chooses an initiator, if nothing is under way on the present one. Null: there is none.
    SendQueue* queue_for(Channel& channel, PathIndex path, Direction direction);
    // For `n` requests.
    [[nodiscard]] bool path_has_room(Channel& channel, PathIndex path, Direction direction, unsigned n);
    [[nodiscard]] bool any_path_has_room(Channel& channel, Direction direction);

    // -- Waiting for room
    // Every kind of operation would go now.
    [[nodiscard]] bool surely_room(Channel& channel);
    void list_waiting(Channel& channel);
    // Tells the face of channels where some kind of operation would go now.
    void wake_waiting();

    // -- What others read
    std::vector<Channel*> waiting; // in the order in which they have asked

private:
    SendQueue* pick_initiator(Channel& channel, Path& sub);
    [[nodiscard]] bool lane_has_room(Channel& channel);
    [[nodiscard]] bool maybe_room(Channel& channel);

    Core& core_;
};

} // namespace ucx_mp::channel
