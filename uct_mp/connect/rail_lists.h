// Lists of rails after the handshake. Ports come up, subnet managers change LIDs, adapters are opened again: then a
// peer is told our list until it knows it, and we hear of its list.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "uct_mp/connect/datagrams.h"
#include "uct_mp/connect/message.h"

namespace ucx_mp::connect {

class RailLists {
public:
    explicit RailLists(Plane& plane) : plane_(plane) {}
    void renew(const verbs::Rail& rail); // ours: makes a new list
    [[nodiscard]] Status reopen(const verbs::Device& device, const path::TargetNumbers& dct_numbers,
                                std::string& error);

    // Whether the peer has the present list, or will have it with the handshake under way.
    [[nodiscard]] bool knows(const Connection& c) const;
    // Tells the list to peers that are connected or parked. Also to a client that has not got our reply: it would look
    // for us at the old place.
    void tell(Connection& c);
    bool send(Connection& c, bool patient); // and timer. False: no room now; if not patient the message counts as lost
    void stop(Connection& c);
    void stop_all();
    void take(Connection& c, std::uint32_t number, const std::vector<path::RemoteRail>& rails);

    void on_rails(const Target& way_back, const Message& m);
    void on_rails_known(const Message& m);

private:
    void on_rails_elsewhere(const Target& way_back, const Message& m);
    void answer(Connection& c);
    void set_timer(Connection& c, Nanos pause);
    void repeat(Connection& c); // timer

    Plane& plane_;
    std::unordered_set<Connection*> telling_; // those that are being told our rails
};

} // namespace ucx_mp::connect
