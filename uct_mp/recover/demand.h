// Paths of RC that come and go (PROTOCOL.md, "RC that comes and goes").
//
// A channel between two interfaces with DC targets has places for RC paths over the routes of its DC paths. They are
// absent until one side wishes to get the peer's messages over RC, and the peer agrees. While one side wishes so, both
// directions use RC, and the DC paths over the same routes are spare. When neither side wishes it any more, the RC
// paths are spare. They stay connected, so that RC costs no command when it is wanted again. If more than
// AdaptConfig::pool RC paths are kept, those that have been unwanted for longest are given up. Such a path ends like a
// failed one, but with nothing under way, and is absent again.
//
// Callers: Observer (wishes); Exchange, Failure, Joining and Replay about the phase of a path.
// Threads: the interface's. Calls into the control plane take the lock.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Demand final : public channel::WiringControl {
public:
    Demand(Core& core, Members& all) : core_(core), all_(all) {}

    // -- channel::WiringControl
    Status serve_by(Channel& channel, adapt::Service service, channel::Reason why) override;
    void take_wish(Channel& channel, const connect::ServiceWish& wish) override;
    void take_verdict(Channel& channel, std::uint32_t number, bool taken) override;
    void revoke(Channel& channel) override;
    [[nodiscard]] channel::Served served(const Channel& channel) const override;
    void trim() override;

    // -- Wishes
    // At least one side wants RC.
    [[nodiscard]] bool is_wanted(const Channel& channel) const;
    // ... and the other side agrees. No path is made before that, since the peer may refuse.
    [[nodiscard]] bool is_agreed(const Channel& channel) const;

    // -- Paths
    // The path has lived before, so the peer may still ask what arrived in its last life.
    [[nodiscard]] bool was_there(const Channel& channel, PathIndex path) const;
    // The DC path over the same route has joined, and is not spare beside paths over other rails.
    [[nodiscard]] bool is_of_use(const Channel& channel, PathIndex path) const;
    // True: nobody wants the path. Once it is settled, it is given back instead of opened again.
    [[nodiscard]] bool lets_go(const Channel& channel, PathIndex path) const;
    // Gives the path's queue pair back. The path is absent then.
    void give_back(Channel& channel, PathIndex path);
    // Server: the client offers a life that nobody wants, or that is over here. void_life() tells the client so.
    [[nodiscard]] bool is_void(const Channel& channel, const connect::PathNews& open) const;
    void void_life(Channel& channel, const connect::PathNews& news);
    // Call it when is_wanted() or the phase of a path has changed. Paths join, or are given back.
    void refresh(Channel& channel);
    // Call it when a path has come up or was lost: tells the scheduler which paths are spare now.
    void find_spares(Channel& channel);
    // The channel has failed: drops its wishes and their timers.
    void forget(Channel& channel);

    // -- What others read
    unsigned in_use = 0; // peers for which RC is wanted
    bool trim_due = false;
    Services::Timer trim_timer = 0;
    unsigned delays = 0; // calls of trim() in a row that had to leave a path for later

    // -- Commands that another thread runs (channel/halves.h), one at a time for each path
    struct Ordered { // identifies the path that a command was started for
        std::uint64_t order;
        Channel* channel;
        std::uint32_t id;
        PathIndex path;
    };
    [[nodiscard]] Ordered new_order(Channel& channel, PathIndex path);
    // Null: the result is not wanted any more. The path has a newer order, or has left `phase`.
    [[nodiscard]] PathRecovery* finish(const Ordered& order, Phase phase = Phase::reopening);
    // True: the queue pair is ended on another thread, so that progress does not pay for the command. False: the caller
    // ends it.
    [[nodiscard]] bool end_aside(Channel& channel, PathIndex path);

private:
    // The paths of the other kind (RC or DC) over the same route.
    [[nodiscard]] PathMask twins(const Channel& channel, PathIndex path) const;
    // The paths that are spare now: the RC paths, or the DC paths beside them.
    [[nodiscard]] PathMask spares(const Channel& channel) const;
    [[nodiscard]] unsigned places(const Channel& channel) const;
    [[nodiscard]] bool has_room(const Channel& channel) const;
    void set_wish(Channel& channel, adapt::Service service);
    void tell_wish(Channel& channel);
    void tell_revoked(Channel& channel);
    void stop_revoking(Channel& channel);
    [[nodiscard]] bool is_quiet(Channel& channel, PathIndex path);
    void ask_for_acknowledgment(Channel& channel);
    [[nodiscard]] bool retire(Channel& channel, unsigned& many); // false: some path is still busy, try later

    std::uint64_t orders_ = 0;
    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
