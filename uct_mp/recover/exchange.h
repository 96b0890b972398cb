// News between both sides about a path: what has arrived over it, and how it is made anew.
//
// It sends and takes the control messages path_down, path_open, path_opened and path_probe (PROTOCOL.md, steps 7 to 9
// and 13 to 16). News of another life of the path are not believed. Copies of news change nothing.
//
// Callers: Failure when a path has drained, Replay when it is settled; JobRunner; Observer when news come.
// Times are ns. Threads: the interface's. Calls into the control plane take the lock.
#pragma once

#include <functional>
#include <vector>

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Exchange {
public:
    Exchange(Core& core, Members& all) : core_(core), all_(all) {}

    // -- News
    void take_news(Channel& channel, connect::NewsKind kind, const connect::PathNews& news);
    void take_path_up(Channel& channel, PathIndex path, std::uint32_t life);
    // Sends over a usable path other than news.path if there is one; `attempt` selects which. Every fourth attempt goes
    // over any route.
    void tell_peer(Channel& channel, connect::NewsKind kind, const connect::PathNews& news, unsigned attempt);
    bool tell_over_path(Channel& channel, connect::NewsKind kind, const connect::PathNews& news); // false: no room

    // -- What has arrived (asking)
    // Tells the peer our truth and asks for its truth. A timer repeats this until the peer answers.
    void ask(Channel& channel, PathIndex path);
    // mp_dc: tells the peer that our port or adapter is gone, so that it gives the path up, too.
    void tell_gone(Channel& channel, PathIndex path);
    // mp_dc, and the channel to ourselves: answers a question once all that had come before it has been handled.
    void answer_questions();

    // -- Ending a life (draining)
    // True: the queue pair is ended on another thread, so that progress does not pay for the command. False: the caller
    // ends it.
    [[nodiscard]] bool end_aside(Channel& channel, PathIndex path);

    // -- Making a path anew (reopening)
    // True: this side may try. RC: only the client may.
    [[nodiscard]] bool may_open(const Channel& channel, PathIndex path) const;
    // Tries after a pause that grows. A path that keeps failing is held down for longer, unless no path is usable.
    void schedule_open(Channel& channel, PathIndex path);
    void time_to_open(Channel& channel, PathIndex path);
    void try_open(Channel& channel, PathIndex path);
    void on_path_open(Channel& channel, const connect::PathNews& news);
    void on_path_opened(Channel& channel, const connect::PathNews& news);
    // mp_rc, client: sends the first message on the new queue pair. If there is no room, Replay::recover() calls again.
    void greet(Channel& channel, PathIndex path);
    // Sends again what may have been lost, and goes on with what waits: acknowledgments, requests for them, works.
    void resume(Channel& channel);

    // -- A path's timer. Each path has one; setting it cancels the one before
    using PathCall = std::function<void(Channel&, PathIndex)>;
    void set_path_timer(Channel& channel, PathIndex path, Nanos at, PathCall then);

    // -- What others read
    struct Question { // asks what has arrived over a path; see answer_questions()
        Channel* channel;
        std::uint32_t id;
        PathIndex path;
        std::uint32_t life;
        std::uint32_t round; // Rounds::looks when it came
    };
    std::vector<Question> questions;
    unsigned question_attempts = 0; // answers sent; each takes the next usable path

private:
    [[nodiscard]] std::uint32_t random_psn();
    void on_path_down(Channel& channel, const connect::PathNews& news);
    [[nodiscard]] Nanos pause_between_tries(const Channel& channel, const PathRecovery& r) const;
    bool connect_half(Channel& channel, PathIndex path, verbs::QueuePair& qp, const connect::LocalEnd& ours,
                      const connect::LocalEnd& theirs);
    void use_half(Channel& channel, PathIndex path, verbs::QueuePair qp, const connect::LocalEnd& ours,
                  const connect::LocalEnd& theirs);
    void half_is_there(Channel& channel, const connect::PathNews& open);
    void both_are_there(Channel& channel, const connect::PathNews& opened);
    // Paths on demand: nobody waits for them, so their commands run on another thread (channel/halves.h), one at a time
    // for each path.
    [[nodiscard]] bool is_aside(const Channel& channel, PathIndex path) const;
    void make_aside(Channel& channel, PathIndex path);
    void connect_aside(Channel& channel, PathIndex path, verbs::QueuePair half, connect::LocalEnd ours,
                       const connect::PathNews& news);
    struct Ordered { // identifies the path that a command was started for
        std::uint64_t order;
        Channel* channel;
        std::uint32_t id;
        PathIndex path;
    };
    [[nodiscard]] Ordered new_order(Channel& channel, PathIndex path);
    // Null: the result is not wanted any more. The path has a newer order, or has left `phase`.
    [[nodiscard]] PathRecovery* finish(const Ordered& order, Phase phase = Phase::reopening);
    void try_again(Channel& channel, PathIndex path);
    void path_is_up(Channel& channel, PathIndex path);

    Core& core_;
    Members& all_;
    std::uint64_t orders_ = 0;
};

} // namespace ucx_mp::recover
