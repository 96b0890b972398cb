// Halves of paths of RC that nobody waits for: queue pairs that are made (INIT) and connected (RTS) aside, so that
// progress pays no command for them. Some are made ahead. Those of handshakes and of paths that have failed are made by
// whoever needs them at once (ends.h).
//
// A request ends with a call from progress, at once if no command is needed. Whoever is called looks whether it is
// still wanted: a half that is not goes back (give_back).
//
// Callers: recovery, for paths on demand. Threads: the interface's. Slow path.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "uct_mp/channel/types.h"
#include "uct_mp/link/commands.h"
#include "uct_mp/verbs/queue_pair.h"

namespace ucx_mp::channel {

struct Core;

class Halves {
public:
    explicit Halves(Core& core);
    using Then = std::function<void(verbs::QueuePair)>; // null: it could not be done

    // In INIT on this rail.
    void make(const verbs::Rail& rail, Then then);
    // In RTS, with packet numbers of ours from `psn` on. `half`: what make() has made; null: one is made.
    void connect(verbs::QueuePair half, const verbs::Rail& rail, const verbs::RemoteEnd& remote, std::uint32_t psn,
                 Then then);
    // To the error state. `expected`: the packet that it would have executed next, if `asks`; connect::kUnknownPsn: it
    // cannot tell.
    using Ended = std::function<void(verbs::QueuePair, std::uint32_t expected)>;
    void retire(verbs::QueuePair half, const verbs::Rail& rail, bool asks, Ended then);
    // Not wanted any more. As make() has made it: it is kept for others, if there are not too many. Else progress
    // resets or destroys it, and pays that: both take what is left of it out of the completion queues, which have one
    // user.
    void take_back(verbs::QueuePair half, const verbs::Rail& rail);
    void give_up(verbs::QueuePair half, const verbs::Rail& rail);
    // So many are there ahead for each rail, soon. 0: none is kept any more.
    void keep(unsigned count);
    // Halves that are there ahead have their old place.
    void key_has_moved(const verbs::Rail& rail);
    // Others want to do something aside: no command is begun before `until`.
    void give_way(Nanos until) { commands_.give_way(until); }
    // No command is under way, and nothing is there ahead. Whoever has asked for something is told that it could not be
    // done.
    void halt();
    void end(); // likewise, and nobody is told
    // The time that progress has paid since the last question, ns.
    [[nodiscard]] Nanos paid() { return std::exchange(commands_.spent, 0); }
    [[nodiscard]] unsigned ready() const { return static_cast<unsigned>(ready_.size()); }

private:
    struct Ready {
        verbs::QueuePair half;
        unsigned rail;
    };
    struct Order; // what is done aside
    [[nodiscard]] verbs::QueuePair take(const verbs::Rail& rail);
    [[nodiscard]] std::shared_ptr<Order> order(const verbs::Rail& rail, verbs::QueuePair half);
    void place(const std::shared_ptr<Order>& order, Then then);
    void fill();

    Core& core_;
    link::Commands commands_;
    std::vector<Ready> ready_;
    unsigned kept_ = 0, coming_ = 0;
    bool halting_ = false;
};

} // namespace ucx_mp::channel
