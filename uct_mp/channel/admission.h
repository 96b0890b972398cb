// Limits how many peers are connected at once (Config::max_connections; ACTS): which channel has a place, and which
// waits for one.
//
// A channel that needs a connection takes a free place, or waits in order of arrival. Meanwhile idle connections are
// asked to end (parking.h). A peer's request that finds no place is not answered. As soon as there is a place, this
// side asks, and both requests cross (PROTOCOL.md R214).
//
// No channel waits for ever:
// - kBeyond more places serve a channel that has waited for kPatience. They also serve two sides that are full of
//   handshakes with each other, and so have nothing to park.
// - A channel that has waited for kDespair is connected whatever the limit: connections that are never idle cannot be
//   parked. Afterwards a side with too many connections parks some.
// - A peer that computes does not answer. Others are asked after kAnswer. A channel that has waited for kPatience may
//   have the place of the silent one.
// - While our own program computes, only a turn beside it (beside.h) parks. Requests of peers that have waited for
// kAway may then use
//   up to twice the limit.
//
// Threads: the interface's, where not said otherwise. Slow path.
#pragma once

#include <vector>

#include "uct_mp/adapt/victims.h"
#include "uct_mp/channel/channel.h"
#include "uct_mp/channel/statistics.h"

namespace ucx_mp::channel {

class Admission {
public:
    enum class Side : std::uint8_t { client, server };

    explicit Admission(Core& core);
    Admission(const Admission&) = delete;

    static constexpr Nanos kFresh = 1'000'000; // so long an unused connection is kept for its first operation
    static constexpr Nanos kSpared = 100'000;  // so long a peer that has refused is left alone, at first

    [[nodiscard]] bool limited() const;
    // May this channel connect now? If not, it is put on the waiting list, and connect_waiting() connects it later.
    // With the lock held, by either side's thread.
    [[nodiscard]] bool may_connect(Channel& channel, Side side);
    // Takes the channel off the waiting list and from its place. With the lock held.
    void forget(const Channel& channel);
    // Progress tells what has become of a connection.
    void connected(Channel& channel);
    void refused(Channel& channel);                // the peer did not agree to part
    void parked(Channel& channel, Nanos asked_at); // asked_at 0: the peer asked, not we
    // The channel waits for a place. With the lock held.
    [[nodiscard]] bool waits(const Channel& channel) const;
    // The connection is younger than kFresh, and nothing has used it yet.
    [[nodiscard]] bool is_unused(const Channel& channel) const;
    // Changes whenever a message of either direction, a write or a read has used the connection. 0: nothing has.
    [[nodiscard]] static std::uint32_t moved(const Channel& channel);

    // -- For Parking, without the lock
    struct Wanted {
        unsigned places, ending; // places that are held or wanted; those of them that will be free soon
        bool waits;              // a channel waits
    };
    // Connects waiting channels, as far as there are places. `tireless`: a place may still be made free ahead.
    Wanted connect_waiting(Nanos now, bool tireless);
    [[nodiscard]] std::vector<Channel*> holders(); // all that hold a place, and perhaps some that no longer do

    // -- What others read
    bool due = false; // Parking has work. Under the lock
    AdmissionStatistics spent;
    adapt::Victims victims; // chooses whose connection ends

private:
    struct Waiting {
        Channel* channel;
        Nanos since;
    };
    struct Held { // places
        unsigned all = 0, ending = 0, parkable = 0;
        unsigned silent = 0; // asked to end; the peer has not answered for kAnswer
    };
    // With the lock held.
    [[nodiscard]] Held held();
    void hold(Channel& channel);
    void grant(Channel& channel, unsigned all, Nanos since); // since 0: it has not waited
    [[nodiscard]] unsigned start_waiting(Nanos now);         // returns the places held afterwards

    Core& core_;
    std::vector<Waiting> waiting_;  // under the lock
    std::vector<Channel*> holders_; // under the lock; see holders()
    bool ahead_ = false;            // a place is to be made free though no channel waits. Under the lock
    unsigned ahead_left_ = 0;       // how often that may happen until a channel has to wait again. Under the lock
};

} // namespace ucx_mp::channel
