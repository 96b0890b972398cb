// Limits how many peers are connected at once (Config::max_connections; ACTS): which channel waits for a place, and
// which connection gives way.
//
// A channel that needs a connection takes a free place, or waits in order of arrival. Meanwhile idle connections,
// chosen by adapt::Victims, are asked to end (Endings::park); endpoints do not notice. A peer's request that finds no
// place is not answered. As soon as there is a place, this side asks, and both requests cross (PROTOCOL.md R214).
//
// No channel waits for ever:
// - kBeyond more places serve a channel that has waited for kPatience. They also serve two sides that are full of
//   handshakes with each other, and so have nothing to park.
// - A channel that has waited for kDespair is connected whatever the limit: connections that are never idle cannot be
//   parked. Afterwards a side with too many connections parks some.
// - A peer that computes does not answer. Others are asked after kAnswer. A channel that has waited for kPatience may
//   have the place of the silent one.
// - Nothing is parked here while our own program computes. Requests of peers that have waited for kAway may then use
//   up to twice the limit.
//
// If a channel has had to wait lately, a victim is sought as soon as the last place is taken, so that the next one
// need not wait. Against thrashing, a connection is kept until its first use, for kFresh at most. A peer that refuses
// is left alone for a while, which doubles. So does the pause before a busy connection is nudged again.
//
// The data path pays nothing. The use of a connection shows in sequence numbers and byte counts, which are read when a
// victim is sought. Keepalive changes none of them.
//
// Threads: the interface's, where not said otherwise. Slow path: a search looks at the holders of places only.
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
    ~Admission();
    Admission(const Admission&) = delete;

    // May this channel connect now? If not, it is put on the waiting list, and step() connects it later. With the lock
    // held, by either side's thread.
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
    // Connects waiting channels, and makes room for the others. Progress, without the lock.
    void step();

    // -- What others read
    bool due = false; // step() has work. Under the lock
    AdmissionStatistics spent;

private:
    struct Waiting {
        Channel* channel;
        Nanos since;
    };
    struct Held { // places
        unsigned all = 0, ending = 0, parkable = 0;
        unsigned silent = 0; // asked to end; the peer has not answered for kAnswer
    };
    [[nodiscard]] bool limited() const;
    // With the lock held.
    [[nodiscard]] Held held();
    void hold(Channel& channel);
    void grant(Channel& channel, unsigned all, Nanos since); // since 0: it has not waited
    [[nodiscard]] unsigned start_waiting(Nanos now);         // returns the places held afterwards
    // Without the lock.
    [[nodiscard]] static std::uint32_t moved(const Channel& channel);
    void look();
    void look_in(Nanos pause);
    void note_used(const std::vector<Channel*>& holders);
    void nudged(Channel& channel, Nanos now);
    [[nodiscard]] static bool may_ask(const Channel& channel, Nanos now);
    void seek(unsigned count, Nanos now);

    Core& core_;
    adapt::Victims victims_;
    std::vector<Waiting> waiting_;  // under the lock
    std::vector<Channel*> holders_; // under the lock; all that hold a place, and perhaps some that no longer do
    Services::Timer timer_ = 0;     // runs while a channel waits, or too many are connected
    Nanos pause_ = 0;               // until it fires
    Nanos took_ = 0, looked_ = 0;   // how long the last look took, and when it was over
    bool ahead_ = false;            // a place is to be made free though no channel waits. Under the lock
    unsigned ahead_left_ = 0;       // how often that may happen until a channel has to wait again. Under the lock
};

} // namespace ucx_mp::channel
