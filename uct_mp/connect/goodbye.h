// Goodbye: an interface that closes tells its peers. One that has an unused connection asks whether it may end. A peer
// that is told need not wait for adapters to give up.
#pragma once

#include <unordered_set>

#include "uct_mp/connect/datagrams.h"
#include "uct_mp/connect/message.h"

namespace ucx_mp::connect {

class Goodbyes {
public:
    explicit Goodbyes(Plane& plane) : plane_(plane) {}
    void say_idle(Connection& connection, std::uint32_t delivered);
    bool say_closing(Connection& connection, std::uint32_t delivered, unsigned attempt); // false: there is no room now
    void say_known(Connection& connection, std::uint16_t number, bool agreed);
    void stop(Connection& c); // stops saying it
    void stop_all();
    void on_ended(const Target& way_back, const Message& m);
    void on_ended_known(const Message& m);

private:
    void answer(Connection& c);
    void repeat(Connection& c); // timer, and the idle goodbye
    [[nodiscard]] Message goodbye_to(const Connection& c, const Goodbye& goodbye) const;

    Plane& plane_;
    std::unordered_set<Connection*> parting_; // those with a timer for our goodbye
};

} // namespace ucx_mp::connect
