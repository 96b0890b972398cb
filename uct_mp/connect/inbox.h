// Messages that arrive: makes the checks that are the same for all kinds, and hands each to its part.
#pragma once

#include <span>

#include "uct_mp/connect/datagrams.h"
#include "uct_mp/connect/message.h"

namespace ucx_mp::connect {

class Inbox {
public:
    explicit Inbox(Plane& plane) : plane_(plane) {}
    void arrived(const Target& from, std::span<const std::uint8_t> datagram);

private:
    void dispatch(const Target& way_back, const Message& m);
    void on_refuse(const Message& m);

    Plane& plane_;
};

} // namespace ucx_mp::connect
