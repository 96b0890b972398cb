// Peers come and go: channels that end, begin anew, or are unused.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Endings {
public:
    explicit Endings(Core& core) : core_(core) {}
    void end_quietly(Channel& channel, bool renew);
    void detach(Channel& channel); // see Interface::detach()
    void end_channels();
    void take_leave(Channel& channel, const connect::Goodbye& goodbye); // of the peer
    void judge_leavers();
    void watch_unused(Channel& channel, Nanos now);
    void trim_unused();
    void parted(Channel& channel, connect::Answer answer); // of say_idle()
    void disowned(Channel& channel);                       // the peer lives and holds no such connection
    // The peer owes us an answer. While none comes it is asked now and then whether it lives.
    [[nodiscard]] static bool is_owed(const Channel& channel);
    // Interface::park().
    [[nodiscard]] Status park(Channel& channel);
    [[nodiscard]] static bool
    may_park(const Channel& channel); // now, or after a round trip: the program wants nothing of it
    std::vector<Channel*> leavers;    // their peers have said goodbye

private:
    [[nodiscard]] static bool has_outstanding(const Channel& channel);
    [[nodiscard]] static bool may_be_lost(const Channel& channel);
    [[nodiscard]] static bool has_settled_paths(const Channel& channel);
    [[nodiscard]] bool is_idle(const Channel& channel) const;
    void ask_to_end(Channel& channel);
    [[nodiscard]] bool is_forgotten(Channel& channel);
    void clear(Channel& channel); // of what others have a part in; with the lock held
    void end_channel(Channel& channel);
    void begin_anew(Channel& channel);
    bool judge_leaver(Channel& channel);
    Core& core_;
};

} // namespace ucx_mp::channel
