// How many peers may be connected at once (Config::max_connections; ACTS): who waits for a connection, and whose
// gives way.
//
// A channel that wants a peer takes a free place, or waits in order of arrival. Meanwhile idle connections are asked to
// end (Endings::park), which adapt::Victims chooses; endpoints do not notice. A peer's request that finds no place is
// not answered: as soon as there is one it is this side that asks, and both requests cross (PROTOCOL.md R214).
//
// Nobody waits for ever. Two that are full of handshakes with each other have nothing to park: then, and for whoever
// has waited for kPatience, there are kBeyond places more. Peers that are never idle cannot be parked: whoever has
// waited for kDespair is connected all the same. A side with more connections than places parks some. A peer that
// computes does not answer for as long: others are asked after kAnswer, and who has waited for kPatience may have its
// place. While our program computes requests of peers get places beyond the limit after kAway: up to twice as many,
// after kDespair any number. Answers that are missing before a connection is idle are asked for ever less often. When
// the last place is taken, a victim is sought at once, if a channel has had to wait lately. So there is a place when
// the next peer is wanted. No thrash: a connection that we have asked for is kept until something went over it, for
// kFresh at most. A peer that refuses is left alone for a while, which doubles.
//
// Nothing is paid on the data path: whether a connection has been used is seen from numbers that move anyway, when a
// victim is sought. Keepalive moves none of them.
//
// Threads: the interface's, where not said otherwise. Slow path: each search looks at those that hold places, which are
// about as many as may, and not at all peers.
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

    // May this channel connect now? Else it waits, and is connected when it is its turn. With the lock held, by either
    // side's thread.
    [[nodiscard]] bool may_connect(Channel& channel, Side side);
    // It waits no more, and holds no place. With the lock held.
    void forget(const Channel& channel);
    // Its connection is there; the peer would not give it back; it has been given back. Progress.
    void connected(Channel& channel);
    void refused(Channel& channel);
    void parked(Channel& channel, Nanos asked_at); // 0: we have not asked
    // It wants a place. With the lock held.
    [[nodiscard]] bool waits(const Channel& channel) const;
    // Nothing has gone over this connection yet, and it is young.
    [[nodiscard]] bool is_unused(const Channel& channel) const;
    // Progress, without the lock: goes on with those who wait.
    void step();

    // -- What others read
    bool due = false; // step() is. Under the lock
    AdmissionStatistics spent;

private:
    struct Waiting {
        Channel* channel;
        Nanos since;
    };
    struct Held { // places
        unsigned all = 0, ending = 0, parkable = 0;
        unsigned silent = 0; // their peers have been asked, and have not answered for a while
    };
    [[nodiscard]] bool limited() const;
    [[nodiscard]] Held held();                               // with the lock held
    void hold(Channel& channel);                             // likewise
    void grant(Channel& channel, unsigned all, Nanos since); // likewise; 0: it has not waited
    [[nodiscard]] unsigned start_waiting(Nanos now);         // places held then; the same
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
    std::vector<Channel*> holders_; // likewise: those with a place are among them
    Services::Timer timer_ = 0;     // runs while somebody waits, or there are too many
    Nanos pause_ = 0;               // until it fires
    Nanos took_ = 0, looked_ = 0;   // the last look, and when it was over
    bool ahead_ = false;            // a place is to be made free though nobody waits. Under the lock
    unsigned ahead_left_ = 0;       // times that this may be, until somebody has to wait again; the same
};

} // namespace ucx_mp::channel
