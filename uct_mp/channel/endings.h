// Ends channels, parks them, and removes those that are unused.
//
// Threads: the interface's. Takes the lock where it needs it.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Endings {
public:
    explicit Endings(Core& core) : core_(core) {}
    void end_quietly(Channel& channel, bool renew);
    void detach(Channel& channel); // see Interface::detach()
    void end_channels();
    void take_leave(Channel& channel, const connect::Goodbye& goodbye); // the peer says goodbye, or asks to part
    void judge_leavers();
    void watch_unused(Channel& channel, Nanos now);
    void trim_unused();
    void parted(Channel& channel, connect::Answer answer); // the answer to say_idle()
    void disowned(Channel& channel);                       // the peer lives, but does not know the connection
    // The peer owes us an acknowledgment or an answer. While it is missing, the peer is asked whether it lives.
    [[nodiscard]] static bool is_owed(const Channel& channel);
    // Interface::park().
    [[nodiscard]] Status park(Channel& channel);
    [[nodiscard]] static bool
    may_park(const Channel& channel); // the program needs nothing of it now: park() succeeds soon, if not at once
    std::vector<Channel*> leavers;    // channels whose peers have said goodbye

private:
    [[nodiscard]] static bool has_outstanding(const Channel& channel);
    [[nodiscard]] static bool may_be_lost(const Channel& channel);
    [[nodiscard]] static bool has_settled_paths(const Channel& channel);
    [[nodiscard]] bool is_idle(const Channel& channel) const;
    void ask_to_end(Channel& channel);
    [[nodiscard]] bool is_forgotten(Channel& channel);
    [[nodiscard]] bool is_named(const Channel& channel) const; // for assertions; compiled without them, too
    void clear(Channel& channel);                              // takes it out of all other parts; with the lock held
    void end_channel(Channel& channel);
    void begin_anew(Channel& channel);
    bool judge_leaver(Channel& channel);
    Core& core_;
};

} // namespace ucx_mp::channel
