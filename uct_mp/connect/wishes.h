// Wishes for the way of the peer's messages, and its answers: carried here.
// uct_mp/recover knows their meaning for kinds of paths, uct_mp/channel for rings.
#pragma once

#include "uct_mp/connect/message.h"

namespace ucx_mp::connect {

struct Plane;

class Wishes {
public:
    explicit Wishes(Plane& plane) : plane_(plane) {}
    void tell(const Connection& c, const ServiceWish& wish, unsigned attempt);
    void answer(const Connection& c, std::uint32_t number, bool taken, unsigned attempt);
    void on_wish(const Message& m); // or the answer to one
    void offer_ring(const Connection& c, const RingOffer& ring, unsigned attempt);
    void answer_ring(const Connection& c, std::uint32_t number, bool taken, std::uint32_t until, unsigned attempt);
    void on_ring(const Message& m); // or the answer to one

private:
    Plane& plane_;
};

} // namespace ucx_mp::connect
