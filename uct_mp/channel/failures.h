// Channels that fail, as a whole.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Failures {
public:
    explicit Failures(Core& core) : core_(core) {}
    void send_failed(SendQueue& queue, std::uint16_t position, ibv_wc_status status, std::uint32_t vendor_error);
    void fail_channel(Channel& channel, Status status);
    [[nodiscard]] static bool all_back(const Channel& channel); // what has been posted
    void tell_failures();
    [[nodiscard]] bool recoverable(const Channel& channel) const;
    std::vector<Channel*> list;

private:
    void free_retained(Channel& channel);
    Core& core_;
};

} // namespace ucx_mp::channel
