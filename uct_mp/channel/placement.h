// Chooses path and queue of a request.
//
// The scheduler chooses the path and keeps its account. If the queue of that path is full, any other path will do.
//
// Callers: any part before it posts; Waiting. Threads: the interface's.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Placement {
public:
    explicit Placement(Core& core) : core_(core) {}

    // A path with room for a whole message of `size` bytes. Adds them to its account. kNoPath: none has room.
    PathIndex place(Channel& channel, Direction direction, std::uint64_t size);
    // The path's queue. mp_dc: chooses an initiator, unless requests are under way on the present one. Null: none.
    SendQueue* queue_for(Channel& channel, PathIndex path, Direction direction);
    // `n`: requests.
    [[nodiscard]] bool path_has_room(Channel& channel, PathIndex path, Direction direction, unsigned n);
    [[nodiscard]] bool any_path_has_room(Channel& channel, Direction direction);

private:
    SendQueue* pick_initiator(Channel& channel, Path& sub);

    Core& core_;
};

} // namespace ucx_mp::channel
