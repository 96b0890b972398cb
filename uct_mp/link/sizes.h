// Sizes of an interface's queues; and the types of the poster, as far as the queues know.
#pragma once

#include <cstdint>

namespace ucx_mp::channel {
class Channel; // the poster: the queues never look into either
struct Work;
} // namespace ucx_mp::channel

namespace ucx_mp::link {

struct QueueSizes {
    unsigned send_depth = 128;        // requests per queue pair
    unsigned completion_depth = 1024; // outstanding sends per device
    unsigned receive_depth = 1024;    // buffers posted per device
    unsigned window = 192;            // sequenced messages per channel not yet acknowledged. With Adapter::kControl and
                           // those that wait to be posted again these are 256 receives: queues have powers of two
    unsigned signal_interval = 32; // every so many small messages of a queue pair ask for a completion
};

inline constexpr unsigned kTagBytes = 8; // before the header of a message to an interface with DC targets

} // namespace ucx_mp::link
