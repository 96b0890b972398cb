// News between both sides about a path: how much has come over it, and how it is made anew.
//
// It sends and takes the control messages path_down, path_open, path_opened and path_probe (PROTOCOL.md, steps 7 to 9
// and 13 to 16). Nothing is believed that is not of the present life of the path. Copies change nothing.
//
// Callers: Failure and Replay when a path has drained or is settled; Jobs; the other parts when news come. Times are
// ns.
// Threads: the interface's. It takes the lock for the control plane.
#pragma once

#include <functional>
#include <vector>

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Exchange {
public:
    Exchange(Core& core, Members& all) : core_(core), all_(all) {}

    // -- News: what Observer hears, and what we tell
    void take_news(Channel& channel, connect::NewsKind kind, const connect::PathNews& news);
    void take_path_up(Channel& channel, PathIndex path, std::uint32_t life);
    // Over a path that works, in turn by `attempt`; each fourth one over any route.
    void tell_peer(Channel& channel, connect::NewsKind kind, const connect::PathNews& news, unsigned attempt);
    bool tell_over_path(Channel& channel, connect::NewsKind kind, const connect::PathNews& news); // false: no room

    // -- What has come (asking)
    // Tells our truth and asks for theirs; repeated by a timer until they answer.
    void ask(Channel& channel, PathIndex path);
    // mp_dc: our own port or adapter is gone, so the other side gives the path up, too.
    void tell_gone(Channel& channel, PathIndex path);
    // mp_dc: answers the peer's questions for which the completion queues have been seen empty.
    void answer_questions();

    // -- Ending a life (draining)
    // False: it is to be ended at once. Else nobody waits for it, so that progress pays nothing for it.
    [[nodiscard]] bool end_aside(Channel& channel, PathIndex path);

    // -- Making a path anew (reopening)
    // Are we the side that tries? RC: the client.
    [[nodiscard]] bool may_open(const Channel& channel, PathIndex path) const;
    // Tries after a pause that grows. A path that keeps failing is held down for longer, unless no other is left.
    void schedule_open(Channel& channel, PathIndex path);
    void time_to_open(Channel& channel, PathIndex path);
    void try_open(Channel& channel, PathIndex path);
    void on_path_open(Channel& channel, const connect::PathNews& news);
    void on_path_opened(Channel& channel, const connect::PathNews& news);
    // mp_rc, client: the first message on the new queue pair. Again by Replay::recover() if there is no room.
    void greet(Channel& channel, PathIndex path);
    // Sends what may have been lost or stuck: acknowledgments, requests for them, waiting works.
    void resume(Channel& channel);

    // -- A path's timer: each has one, and a new one takes its place
    using PathCall = std::function<void(Channel&, PathIndex)>;
    void set_path_timer(Channel& channel, PathIndex path, Nanos at, PathCall then);

    // -- What others read
    struct Question { // mp_dc: a peer wants to know what has come
        Channel* channel;
        std::uint32_t id;
        PathIndex path;
        std::uint32_t life;
        std::uint32_t round; // Rounds::looks when it came
    };
    std::vector<Question> questions;
    unsigned question_attempts = 0; // answers told: each takes another way

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
    // On demand: nobody waits for it, so its commands are paid aside (channel/halves.h). One at a time for each path.
    [[nodiscard]] bool is_aside(const Channel& channel, PathIndex path) const;
    void make_aside(Channel& channel, PathIndex path);
    void connect_aside(Channel& channel, PathIndex path, verbs::QueuePair half, connect::LocalEnd ours,
                       const connect::PathNews& news);
    struct Ordered { // for whom
        std::uint64_t order;
        Channel* channel;
        std::uint32_t id;
        PathIndex path;
    };
    [[nodiscard]] Ordered new_order(Channel& channel, PathIndex path);
    // Null: it is not the path's any more, which is not in this phase.
    [[nodiscard]] PathRecovery* finish(const Ordered& order, Phase phase = Phase::reopening);
    void try_again(Channel& channel, PathIndex path);
    void path_is_up(Channel& channel, PathIndex path);

    Core& core_;
    Members& all_;
    std::uint64_t orders_ = 0;
};

} // namespace ucx_mp::recover
