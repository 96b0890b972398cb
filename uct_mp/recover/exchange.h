// News between both sides about a path: what has arrived over it, and how it is made anew.
//
// It takes the control messages path_down, path_open, path_opened and path_probe, and answers them (PROTOCOL.md, steps
// 7 to 9 and 13 to 16). News of another life of the path are not believed. Copies of news change nothing.
//
// Callers: Replay when a path is settled; JobRunner; Observer when news come.
// Times are ns. Threads: the interface's. Calls into the control plane take the lock.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Exchange {
public:
    Exchange(Core& core, Members& all) : core_(core), all_(all) {}

    // -- News
    void take_news(Channel& channel, connect::NewsKind kind, const connect::PathNews& news);
    void take_path_up(Channel& channel, PathIndex path, std::uint32_t life);
    // mp_dc, and the channel to ourselves: answers a question once all that had come before it has been handled.
    void answer_questions();

    // -- Making a path anew (reopening)
    void try_open(Channel& channel, PathIndex path);
    void on_path_open(Channel& channel, const connect::PathNews& news);
    void on_path_opened(Channel& channel, const connect::PathNews& news);
    // mp_rc, client: sends the first message on the new queue pair. If there is no room, Replay::recover() calls again.
    void greet(Channel& channel, PathIndex path);
    // Sends again what may have been lost, and goes on with what waits: acknowledgments, requests for them, works.
    void resume(Channel& channel);

private:
    [[nodiscard]] std::uint32_t random_psn();
    void on_path_down(Channel& channel, const connect::PathNews& news);
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
    void path_is_up(Channel& channel, PathIndex path);

    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
