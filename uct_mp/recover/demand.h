// Paths of RC that come and go (PROTOCOL.md, "RC that comes and goes").
//
// A channel between two interfaces with DC targets has places for RC over the routes of its DC paths. They are absent
// until one side wishes that the peer's messages come over RC, and the peer agrees. While either direction has RC both
// use it, and the DC paths over the same routes are spare. When neither wants it any more the path is spare itself, and
// connected: to want it again costs no command. Beyond AdaptConfig::pool those that have not been wanted for longest
// end as a path ends that has failed, but with nothing under way; then they are absent again.
//
// Callers: Observer (wishes), Exchange, Failure, Joining and Replay where the phase of a path is concerned.
// Threads: the interface's. It takes the lock for the control plane.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Demand {
public:
    Demand(Core& core, Members& all) : core_(core), all_(all) {}

    // -- Wishes
    Status serve_by(Channel& channel, adapt::Service service, channel::Reason why); // Interface::serve_by
    void take_wish(Channel& channel, const connect::ServiceWish& wish);
    void take_verdict(Channel& channel, std::uint32_t number, bool taken);
    // The peer loses what it was granted, and may ask again.
    void revoke(Channel& channel);
    [[nodiscard]] channel::Served served(const Channel& channel) const;
    // Either direction has RC, or will have.
    [[nodiscard]] bool is_wanted(const Channel& channel) const;
    // ... and both sides know: before that nothing is made, since the peer may refuse.
    [[nodiscard]] bool is_agreed(const Channel& channel) const;

    // -- Paths
    [[nodiscard]] bool is_on_demand(const Channel& channel, PathIndex path) const {
        return channel.connection.paths[path].on_demand;
    }
    // Absent now, and there has been a life of it: what had arrived may still be asked for.
    [[nodiscard]] bool was_there(const Channel& channel, PathIndex path) const;
    // Its route carries traffic over DC: the path of DC has joined, and is not spare beside those of other rails.
    [[nodiscard]] bool is_of_use(const Channel& channel, PathIndex path) const;
    // Settled, and nobody wants it: give_back() instead of opening it again.
    [[nodiscard]] bool lets_go(const Channel& channel, PathIndex path) const;
    void give_back(Channel& channel, PathIndex path); // its queue pair; it is absent then
    // Server: the client offers a life that we do not want, or that is over here. It hears that it is over.
    [[nodiscard]] bool is_void(const Channel& channel, const connect::PathNews& open) const;
    void void_life(Channel& channel, const connect::PathNews& news);
    // After is_wanted() or the phase of a path has changed: paths join, or are left.
    void refresh(Channel& channel);
    // The path of the other kind, over the same route.
    [[nodiscard]] PathMask twins(const Channel& channel, PathIndex path) const;
    // Those that carry nothing while there are others.
    [[nodiscard]] PathMask spares(const Channel& channel) const;
    // Called by set_phase().
    void count(const Channel& channel, PathIndex path, Phase from, Phase to);
    // Its wishes end with it.
    void forget(Channel& channel);
    // Too many are kept: those that have not been wanted for longest go.
    void trim();

    // -- What others read
    unsigned in_use = 0; // peers that RC is wanted for
    unsigned kept = 0;   // paths of RC on demand that are not absent
    bool trim_due = false;
    Services::Timer trim_timer = 0;
    unsigned delays = 0; // looks in a row in which something could not be given back yet

private:
    [[nodiscard]] unsigned places(const Channel& channel) const;
    [[nodiscard]] bool has_room(const Channel& channel) const;
    void set_wish(Channel& channel, adapt::Service service);
    void tell_wish(Channel& channel);
    void tell_revoked(Channel& channel);
    void stop_revoking(Channel& channel);
    [[nodiscard]] bool is_quiet(Channel& channel, PathIndex path);
    void ask_for_acknowledgment(Channel& channel);
    [[nodiscard]] bool retire(Channel& channel, unsigned& many); // false: later again

    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
