// The channel room's calls into recovery, by who calls and why. Each part of Core uses the contracts that it needs.
//
// Slow path: while every path is up, only the periodic functions are called.
//
// Callers: the parts of Core. Core owns the Observer, and makes it before anything is open.
// Threads: the interface's, except load_first_alternate(), which the handshake calls with the lock held.
#pragma once

#include <iterator>
#include <memory>
#include <span>

#include "uct_mp/channel/channel.h"
#include "uct_mp/channel/statistics.h"

namespace ucx_mp::channel {

struct Core;

// The reason for our present wish to get a peer's messages by RC or by a ring, or not to.
enum class Reason : std::uint8_t {
    none,        // nothing was wished yet
    call,        // Interface::serve_by
    first_peers, // UCX_MP_DC_ADAPT=eager; a ring: every peer that sends gets one
    counts,      // the counts of a time window say that it pays, or does not pay any more
    trial,       // RC or DC is tried for a while, to measure what RC saves
    reference,   // the peer sends by DC for a window, to measure the time without RC
    no_sender,   // this interface has no endpoints
    refusal,     // the peer has refused
    asleep,      // a ring only: the program sleeps instead of polling
};
[[nodiscard]] constexpr const char* name(Reason why) {
    constexpr const char* kNames[] = {"none",      "call",      "first_peers", "counts", "trial",
                                      "reference", "no_sender", "refusal",     "asleep"};
    static_assert(std::size(kNames) == static_cast<unsigned>(Reason::asleep) + 1);
    return kNames[static_cast<unsigned>(why)];
}

// How the messages of a channel go in both directions.
struct Served {
    adapt::Service ours = adapt::Service::shared;   // the peer's messages to us, as we wish
    adapt::Service theirs = adapt::Service::shared; // our messages to the peer, as we have agreed
    bool refused = false;                           // the peer has refused our wish
    std::uint32_t asks = 0;                         // number of the peer's newest wish if it was for RC and refused
    unsigned places = 0;                            // RC paths that the channel may have
    Reason why = Reason::none;                      // why `ours` is as it is
};

// A path or a queue is at fault. Callers: Completions, posts that are refused, Cancels. recover::Failure implements it.
class PathFaults {
public:
    virtual ~PathFaults() = default;

    // Gives a path up. `cause` is a literal. `stays`: mp_dc, what was posted is lost, but the path stays in use.
    virtual void path_failed(Channel& channel, PathIndex path, const char* cause, bool stays) = 0;
    // Closes the queue. All that is posted there will come back.
    virtual void drain(SendQueue& queue, Channel& channel, PathIndex path) = 0;
    // A request has completed without success. Its channel must be recoverable.
    virtual void lost(SendQueue& queue, const Posted& posted) = 0;
    // The provider has refused a request. Its channel must be recoverable.
    virtual void refused(SendQueue& queue, const Posted& posted) = 0;
    // mp_dc: an initiator has been drained, and nothing is posted on it any more.
    virtual void restart_later(SendQueue& queue) = 0;
    // The channel has failed, and its adapter brings nothing back.
    virtual void abandon(Channel& channel) = 0;
    // No adapter reads the channel's buffers any more: those held back return to their pools.
    virtual void free_detours(Channel& channel) = 0;
};

// Traffic that goes again. Callers: the parts that post, and Works. recover::Replay implements it.
class Repeats {
public:
    virtual ~Repeats() = default;

    // The newest message has a buffer and a number, but no path could take it. It goes with the lost ones.
    virtual void not_posted(Channel& channel) = 0;
    // Sends retained messages again whose path is kNoPath.
    virtual void send_again(Channel& channel) = 0;
    // `work`, which has gone again, is complete.
    virtual void finish_replayed(Channel& channel, Work& work) = 0;
    // Places a write that goes again: all of them take one path. False: that path has no room.
    virtual bool place_puts_again(Channel& channel, const Work& work, schedule::Stripe& chunk) = 0;
    // Ends those of `works` that were lost and are not settled yet.
    virtual void drop_lost(Channel& channel, std::span<Work* const> works) = 0;
};

// Paths of RC join, leave, or are spare. Callers: Adaptation, Interface, Peers. recover::Demand implements it.
class WiringControl {
public:
    virtual ~WiringControl() = default;

    // The peer's wish about our messages; the peer's answer to our wish.
    virtual void take_wish(Channel& channel, const connect::ServiceWish& wish) = 0;
    virtual void take_verdict(Channel& channel, std::uint32_t number, bool taken) = 0;
    virtual Status serve_by(Channel& channel, adapt::Service service, Reason why) = 0; // Interface::serve_by
    [[nodiscard]] virtual Served served(const Channel& channel) const = 0;
    // Takes back the RC that the peer was granted. The peer may ask again.
    virtual void revoke(Channel& channel) = 0;
    // Gives up the paths that have been unwanted for longest, if too many are kept.
    virtual void trim() = 0;
};

// The peer tells of its side. Callers: Peers, Receiver, Mover.
class PeerNews {
public:
    virtual ~PeerNews() = default;

    // News about a path, and the first message on a queue pair that the client has made anew.
    virtual void take_news(Channel& channel, connect::NewsKind kind, const connect::PathNews& news) = 0;
    virtual void take_path_up(Channel& channel, PathIndex path, std::uint32_t life) = 0;
    virtual void rails_changed(Channel& channel) = 0; // the peer has told another list of rails
    // Sets `keys` to present keys, if the peer's adapter has been opened again. False: the peer has been asked, and the
    // channel waits.
    virtual bool present_keys(Channel& channel, const verbs::RemoteKeys*& keys) = 0;
    virtual void take_keys(Channel& channel, bool found, const verbs::RemoteKeys& told) = 0;
    // The control plane has found out whether the peer lives.
    virtual void hear_answer(Channel& channel, connect::Answer answer) = 0;
};

// How a channel begins and ends. Callers: Takeover, Peers, Failures, Endings, Ends.
class ChannelLife {
public:
    virtual ~ChannelLife() = default;

    // APM, in a handshake: loads the first alternate route of a queue pair.
    virtual void load_first_alternate(connect::Connection& connection, PathIndex path, Path& sub) = 0;
    // The channel may carry traffic from now on.
    virtual void established(Channel& channel) = 0;
    // Called from progress after established(): gives up paths that could not be connected, and joins paths over ports
    // that came up meanwhile.
    virtual void connected(Channel& channel) = 0;
    // Asks the peer's adapter over every path on which nothing under way would tell.
    virtual void check(Channel& channel) = 0;
    // The channel's connection is about to be taken away. Another one may follow.
    virtual void parting(Channel& channel) = 0;
    // The channel has failed: ends recovery's timers and works.
    virtual void ended(Channel& channel, Status status) = 0;
    // True: recovery still refers to the channel. False: it may be destroyed. Drops the peer's questions about it.
    [[nodiscard]] virtual bool names(Channel& channel) = 0;
};

// Recovery of an interface, as progress sees it. It offers the other contracts.
class Observer {
public:
    Observer(PathFaults& to_faults, Repeats& to_repeats, WiringControl& to_wiring, PeerNews& to_news,
             ChannelLife& to_life)
        : faults(to_faults), repeats(to_repeats), wiring(to_wiring), news(to_news), life(to_life) {}
    virtual ~Observer() = default;

    virtual void step() = 0;                     // in each round while Core::alert is set
    virtual void read_rails() = 0;               // the interface opens: reads the state of all ports and adapters
    virtual void read_events() = 0;              // handles device events since then
    virtual void watch_peers(Nanos now) = 0;     // looks for peers that acknowledge nothing, about every check_interval
    virtual void watch_paths(Nanos now) = 0;     // looks for paths on which nothing completes
    [[nodiscard]] virtual bool busy() const = 0; // true: progress() shall be called again
    // True: something that a fault has broken is not whole again. The ordinary end of a channel is no fault.
    [[nodiscard]] virtual bool recovers() const = 0;
    virtual void describe(InterfaceStatistics& out) const = 0; // fills in history and RC counts
    virtual void describe(const Channel& channel, ChannelStatistics& out) const = 0;
    virtual void describe(const Channel& channel, std::vector<PathLook>& out) const = 0; // fills in failures

    PathFaults& faults;
    Repeats& repeats;
    WiringControl& wiring;
    PeerNews& news;
    ChannelLife& life;
};

} // namespace ucx_mp::channel
