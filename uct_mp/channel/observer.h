// Faults that the channel room tells of, and its questions to recovery. recover::Recoverer implements it.
//
// Slow path: nothing here is called while every path is up, but for a look now and then.
//
// Callers: the parts of Core. Core owns it, and makes it before anything is open.
// Threads: the interface's, but for load_first_alternate(): the handshake calls it, with the lock held.
#pragma once

#include <iterator>
#include <memory>
#include <span>

#include "uct_mp/channel/channel.h"
#include "uct_mp/channel/statistics.h"

namespace ucx_mp::channel {

struct Core;

// Why a peer has RC, or has it no more, by our wish.
enum class Reason : std::uint8_t {
    none,        // nothing was wished yet
    call,        // Interface::serve_by
    first_peers, // UCX_MP_DC_ADAPT=eager; a ring: whoever sends gets one
    counts,      // of the time windows: it pays, or does not pay any more
    trial,       // nobody knows yet what RC saves
    reference,   // it goes by DC for a window, to know what that takes
    no_sender,   // nobody here sends
    refusal,     // by the peer
    asleep,      // nobody here polls: a ring only
};
[[nodiscard]] constexpr const char* name(Reason why) {
    constexpr const char* kNames[] = {"none",      "call",      "first_peers", "counts", "trial",
                                      "reference", "no_sender", "refusal",     "asleep"};
    static_assert(std::size(kNames) == static_cast<unsigned>(Reason::asleep) + 1);
    return kNames[static_cast<unsigned>(why)];
}

// How messages of a channel come, and shall come.
struct Served {
    adapt::Service ours = adapt::Service::shared;   // to us, as we wish
    adapt::Service theirs = adapt::Service::shared; // to the peer, as we have agreed
    bool refused = false;                           // our wish
    std::uint32_t asks = 0;                         // the peer's newest wish was for RC, and refused: its number, or 0
    unsigned places = 0;                            // queue pairs of RC that it may have; 0: none
    Reason why = Reason::none;                      // of `ours`
};

class Observer {
public:
    virtual ~Observer() = default;

    // -- A path or a queue
    // Gives a path up. `stays`: mp_dc, the path may go on being used, only what was posted is lost.
    virtual void path_failed(Channel& channel, PathIndex path, const char* cause, bool stays) = 0;
    // Nothing goes through this queue any more; what is posted comes back.
    virtual void drain(SendQueue& queue, Channel& channel, PathIndex path) = 0;
    // A record has come back without success, or was never posted, and its channel is recoverable.
    virtual void lost(SendQueue& queue, const Posted& posted) = 0;
    // mp_dc: an initiator has failed and nothing is on it any more.
    virtual void restart_later(SendQueue& queue) = 0;
    // The adapter does not answer: what was posted does not come back.
    virtual void abandon(Channel& channel) = 0;

    // -- A channel
    // It may carry traffic from now on. connected(): progress has taken that up; paths that could not be connected are
    // given up, and ports that came up meanwhile join.
    virtual void established(Channel& channel) = 0;
    virtual void connected(Channel& channel) = 0;
    // Its connection is about to be taken away, and another one follows.
    virtual void parting(Channel& channel) = 0;
    // It has failed: timers and works of recovery end.
    virtual void ended(Channel& channel, Status status) = 0;
    // Its buffers are not read any more.
    virtual void free_detours(Channel& channel) = 0;
    // Something here names it still (questions about it are dropped). Else it may be destroyed.
    [[nodiscard]] virtual bool names(Channel& channel) = 0;
    // Those of the works whose loss is not settled yet end.
    virtual void drop_lost(Channel& channel, std::span<Work* const> works) = 0;
    // Asks the peer's adapter over every path that has nothing under way.
    virtual void check(Channel& channel) = 0;
    // The control plane has found out whether the peer lives.
    virtual void hear_answer(Channel& channel, connect::Answer answer) = 0;
    // An empty write, that asks for a completion. False: no room.
    virtual bool write_nothing(Channel& channel, PathIndex path, SendQueue& queue) = 0;
    // The last message has a buffer and a number, and no path could take it: it goes again with the others that were
    // lost.
    virtual void not_posted(Channel& channel) = 0;
    // So do retained messages whose path is kNoPath by now.
    virtual void send_again(Channel& channel) = 0;

    // -- Traffic that goes again
    // These bytes of a write or read, which was refused or lost.
    virtual void redo(Channel& channel, Work& of, std::uint64_t offset, std::uint64_t bytes) = 0;
    // A part that has gone again is complete.
    virtual void finish_replayed(Channel& channel, Work& work) = 0;
    // Where writes go again: all over one path. False: it has no room.
    virtual bool place_puts_again(Channel& channel, const Work& work, schedule::Stripe& chunk) = 0;

    // -- What the peer tells
    // News of a path, and the first message over one that the client has made anew.
    virtual void take_news(Channel& channel, connect::NewsKind kind, const connect::PathNews& news) = 0;
    virtual void take_path_up(Channel& channel, PathIndex path, std::uint32_t life) = 0;
    virtual void rails_changed(Channel& channel) = 0; // the peer's, as its list tells
    // Keys of memory at an adapter that is there again. present_keys() false: the peer has been asked, the channel
    // waits.
    virtual bool present_keys(Channel& channel, const verbs::RemoteKeys*& keys) = 0;
    virtual void take_keys(Channel& channel, bool found, const verbs::RemoteKeys& told) = 0;
    // APM, in a handshake: the first alternate route of a queue pair.
    virtual void load_first_alternate(connect::Connection& connection, PathIndex path, Path& sub) = 0;

    // How messages of ours shall come to the peer, and its answer to a wish of ours (Interface::serve_by).
    virtual void take_wish(Channel& channel, const connect::ServiceWish& wish) = 0;
    virtual void take_verdict(Channel& channel, std::uint32_t number, bool taken) = 0;
    virtual Status serve_by(Channel& channel, adapt::Service service, Reason why) = 0;
    [[nodiscard]] virtual Served served(const Channel& channel) const = 0;
    virtual void revoke(Channel& channel) = 0; // what the peer was granted
    virtual void trim_services() = 0;          // gives back what nobody wants, if it is too much

    // -- In progress
    virtual void step() = 0;                 // while Core::alert
    virtual void read_rails() = 0;           // ports and adapters as they are now, when the interface opens
    virtual void read_events() = 0;          // ... and what has happened to them since
    virtual void watch_peers(Nanos now) = 0; // those that owe an answer for long; about every Config::check_interval
    virtual void watch_paths(Nanos now) = 0; // those on which nothing completes
    [[nodiscard]] virtual bool busy() const = 0;                 // it wants progress
    virtual void describe(Interface::Statistics& out) const = 0; // the latest transitions
    virtual void describe(const Channel& channel, ChannelStatistics& out) const = 0;
    virtual void describe(const Channel& channel, std::vector<PathLook>& out) const = 0; // what it knows of failures
};

} // namespace ucx_mp::channel
