// Where a request goes: path, queue, room; and who waits for room.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Placement {
public:
    explicit Placement(Core& core) : core_(core) {}
    // A path with room for a whole message of `size`, in the account; kNoPath: none has room.
    PathIndex place(Channel& channel, Direction direction, std::uint64_t size);
    [[nodiscard]] bool path_has_room(Channel& channel, PathIndex path, Direction direction, unsigned n);
    SendQueue* queue_for(Channel& channel, PathIndex path, Direction direction);
    [[nodiscard]] bool any_path_has_room(Channel& channel, Direction direction);
    // Strict: every kind of operation would go now. Loose: some kind would.
    [[nodiscard]] bool surely_room(Channel& channel);
    void list_waiting(Channel& channel);
    void wake_waiting();
    std::vector<Channel*> waiting;

private:
    SendQueue* pick_initiator(Channel& channel, Path& sub);
    [[nodiscard]] bool lane_has_room(Channel& channel);
    [[nodiscard]] bool maybe_room(Channel& channel);
    Core& core_;
};

} // namespace ucx_mp::channel
