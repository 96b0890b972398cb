// What both sides tell each other of a path: what has come, and how it is made anew.
//
// Threads: the interface's.
#pragma once

#include <functional>
#include <vector>

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

class Recoverer;

class Exchange {
public:
    Exchange(Core& core, Recoverer& all) : core_(core), all_(all) {}
    void take_news(Channel& channel, connect::PathKind kind, const connect::PathNews& news); // progress
    void tell_peer(Channel& channel, connect::PathKind kind, const connect::PathNews& news, unsigned attempt);
    bool tell_over_path(Channel& channel, connect::PathKind kind, const connect::PathNews& news); // false: no room
    using PathCall = std::function<void(Channel&, PathIndex)>;
    void set_path_timer(Channel& channel, PathIndex path, Nanos at, PathCall then); // one per path
    void ask(Channel& channel, PathIndex path);
    void tell_gone(Channel& channel, PathIndex path);
    void answer_questions();
    [[nodiscard]] bool may_open(const Channel& channel) const;
    void schedule_open(Channel& channel, PathIndex path);
    void time_to_open(Channel& channel, PathIndex path);
    void try_open(Channel& channel, PathIndex path);
    void on_path_open(Channel& channel, const connect::PathNews& news);
    void on_path_opened(Channel& channel, const connect::PathNews& news);
    void take_path_up(Channel& channel, PathIndex path, std::uint32_t life);
    void greet(Channel& channel, PathIndex path);
    void resume(Channel& channel);
    struct Question { // mp_dc: a peer wants to know what has come
        Channel* channel;
        std::uint32_t id;
        PathIndex path;
        std::uint32_t life;
        std::uint32_t round; // `looks` when it came
    };
    std::vector<Question> questions;
    unsigned question_attempts = 0;

private:
    [[nodiscard]] std::uint32_t random_psn();
    void on_path_down(Channel& channel, const connect::PathNews& news);
    [[nodiscard]] Nanos pause_between_tries(const Channel& channel, const PathRecovery& r) const;
    bool connect_half(Channel& channel, PathIndex path, verbs::QueuePair& qp, const connect::LocalEnd& ours,
                      const connect::LocalEnd& theirs);
    void path_is_up(Channel& channel, PathIndex path);
    Core& core_;
    Recoverer& all_;
};

} // namespace ucx_mp::recover
