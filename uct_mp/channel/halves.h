// Makes halves of paths of RC aside: another thread makes (INIT) and connects (RTS) the queue pairs, so that progress
// need not wait for commands. Some are made ahead. Handshakes, and paths that have failed, need theirs at once and make
// them themselves (ends.h).
//
// A request ends with a call of `then` from progress, or at once if no command is needed. The called function checks
// whether the half is still wanted. If not, it gives it back (take_back).
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

    // Makes a half in INIT on this rail.
    void make(const verbs::Rail& rail, Then then);
    // Brings a half to RTS; `psn` is the first packet number that it sends. `half`: from make(); null: one is made.
    void connect(verbs::QueuePair half, const verbs::Rail& rail, const verbs::RemoteEnd& remote, std::uint32_t psn,
                 Then then);
    // Brings a half to the error state. `expected`: number of the packet that it would have executed next, if `asks`;
    // connect::kUnknownPsn: not asked, or the adapter cannot tell.
    using Ended = std::function<void(verbs::QueuePair, std::uint32_t expected)>;
    void retire(verbs::QueuePair half, const verbs::Rail& rail, bool asks, Ended then);
    // Both take a half that is no longer wanted. take_back() keeps one for others, if there are not too many: it must
    // be as make() has made it. give_up() has progress reset or destroy it (Ends::entomb). Progress pays for that,
    // since both remove its entries from the completion queues, which only one thread may use.
    void take_back(verbs::QueuePair half, const verbs::Rail& rail);
    void give_up(verbs::QueuePair half, const verbs::Rail& rail);
    // Keeps `count` halves ready for each rail. They are made one after the other. 0: none is kept any more.
    void keep(unsigned count);
    // The partition key has moved to another index on this rail: halves that are ready have the old one.
    void key_has_moved(const verbs::Rail& rail);
    // Other work aside goes first: no command is begun before `until`.
    void give_way(Nanos until) { commands_.give_way(until); }
    // Ends all commands and all ready halves. Every `then` that is owed is called: make() and connect() have failed.
    void halt();
    void end(); // the same, but no `then` is called
    // ns that progress has spent on commands since the last call.
    [[nodiscard]] Nanos paid() { return std::exchange(commands_.spent, 0); }
    [[nodiscard]] unsigned ready() const { return static_cast<unsigned>(ready_.size()); }

private:
    struct Ready {
        verbs::QueuePair half;
        unsigned rail;
    };
    struct Order; // one half to be made or connected aside
    [[nodiscard]] verbs::QueuePair take(const verbs::Rail& rail);
    [[nodiscard]] std::shared_ptr<Order> order(const verbs::Rail& rail, verbs::QueuePair half);
    void place(const std::shared_ptr<Order>& order, Then then);
    void fill();

    Core& core_;
    link::Commands commands_;
    std::vector<Ready> ready_;
    unsigned kept_ = 0, coming_ = 0; // see keep(); halves that fill() is making
    bool halting_ = false;
};

} // namespace ucx_mp::channel
