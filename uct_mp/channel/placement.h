// Chooses path and queue of a request, and keeps the list of channels that wait for room.
//
// The scheduler chooses the path and keeps its account. If the queue of that path is full, any other path will do.
//
// Callers: Sender, Mover, Atomics and recovery before they post; Interface::want_room() and Renewal list a channel, and
// Progress wakes it. Threads: the interface's. Events::room() is called inside wake_waiting().
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Placement {
public:
    explicit Placement(Core& core) : core_(core) {}

    // -- Placing
    // A path with room for a whole message of `size` bytes. Adds them to its account. kNoPath: none has room.
    PathIndex place(Channel& channel, Direction direction, std::uint64_t size);
    // The path's queue. mp_dc: chooses an initiator, unless requests are under way on the present one. Null: none.
    SendQueue* queue_for(Channel& channel, PathIndex path, Direction direction);
    // `n`: requests.
    [[nodiscard]] bool path_has_room(Channel& channel, PathIndex path, Direction direction, unsigned n);
    [[nodiscard]] bool any_path_has_room(Channel& channel, Direction direction);

    // -- Waiting for room
    // True: every kind of operation would be accepted now.
    [[nodiscard]] bool surely_room(Channel& channel);
    void list_waiting(Channel& channel);
    // Calls Events::room() for each listed channel that would accept some kind of operation now.
    void wake_waiting();

    // -- What others read
    std::vector<Channel*> waiting; // the longest waiting first

private:
    SendQueue* pick_initiator(Channel& channel, Path& sub);
    [[nodiscard]] bool lane_has_room(Channel& channel);
    [[nodiscard]] bool maybe_room(Channel& channel);

    Core& core_;
};

} // namespace ucx_mp::channel
