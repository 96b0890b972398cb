// Completion is not visibility (PROTOCOL.md): which writes must be read back or marked before somebody is told of them.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Visibility {
public:
    explicit Visibility(Core& core) : core_(core) {}
    [[nodiscard]] std::uint32_t probe_key_of(const verbs::Rail& rail) const;
    void note_devices(Channel& channel); // after a change of the peer's rails, or of our paths
    void mark_unseen(Channel& channel);
    [[nodiscard]] PathIndex beside(const Channel& channel,
                                   PathIndex path) const; // it or another to the same adapter; kNoPath: none
    void read_back(Channel& channel);                     // part of the present epoch
    void read_back_all(Channel& channel);                 // over all paths: recovery
    void read_back_lost(Channel& channel, Work& work);
    [[nodiscard]] bool finish_read_back(Channel& channel, Work& work); // as finish_unusual()
    void end_read_backs(Channel& channel, Status status);
    void read_backs_due_again();
    std::vector<Channel*> read_backs_due;
    // What peers read that want to know whether what they have written here is seen
    alignas(connect::kProbeBytes) std::byte probe_bytes[connect::kProbeBytes] = {};
    verbs::Registration probe_region;

private:
    [[nodiscard]] PathMask one_per_device(const Channel& channel, PathMask paths) const;
    void add_read_back(Channel& channel, PathMask paths, Completion* completion);
    void post_read_backs(Channel& channel);
    [[nodiscard]] bool post_read_back(Channel& channel, Work& work); // false: not now
    void read_back_again(Channel& channel, Work& work);
    Core& core_;
};

} // namespace ucx_mp::channel
