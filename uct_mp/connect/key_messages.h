// Keys of memory that is registered anew with an adapter that is there again: questions and answers.
#pragma once

#include "uct_mp/connect/datagrams.h"
#include "uct_mp/connect/message.h"

namespace ucx_mp::connect {

class KeyMessages {
public:
    explicit KeyMessages(Plane& plane) : plane_(plane) {}
    void ask(const Connection& c, std::uint64_t region, unsigned attempt);
    void on_keys(const Target& way_back, const Message& m);
    void on_keys_told(const Message& m);

private:
    Plane& plane_;
};

} // namespace ucx_mp::connect
