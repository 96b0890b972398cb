// Puts and gets: whole, in stripes, or pulled by paths that have room.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Mover {
public:
    explicit Mover(Core& core) : core_(core) {}
    Status pass_gate_rdma(Channel& channel, const verbs::RemoteKeys*& keys);
    Status rdma(Channel& channel, Work& work);
    template <bool read> Status rdma_sole(Channel& channel, SendQueue& queue, const Iov* iov, std::size_t count,
                                          std::uint64_t remote, const verbs::RemoteKeys& rkeys, Completion* completion);
    PathIndex lane_of_puts(Channel& channel); // kNoPath: no room
    void put_copied(Channel& channel, Buffer& bounce, std::uint32_t length, std::uint64_t remote,
                    const verbs::RemoteKeys& rkeys, PathIndex path);
    Status nothing_to_do(Work& work);
    void pull(Channel& channel);
    void pull(Channel& channel, bool read);
    void unlink(Channel& channel, bool read, Work& work);
    void pull_due();
    void pull_sole(Channel& channel);
    std::vector<Channel*> pulls_due;

private:
    Status rdma_by_plan(Channel& channel, Work& work);
    void post_piece(Channel& channel, Work& work, std::uint64_t offset, std::uint64_t length, PathIndex path,
                    SendQueue& queue);
    bool post_stripe(Channel& channel, Work& work, std::uint64_t offset, std::uint64_t length, PathIndex path);
    [[nodiscard]] schedule::Message message(const Channel& channel, std::uint64_t size, bool read, Nanos now) const;
    void append(Channel& channel, Work& work);
    std::uint64_t ahead_of_reads(Channel& channel, std::uint64_t size, Nanos now);
    void release_writes(Channel& channel, Nanos now);
    bool post_until(Channel& channel, Work& work, std::uint64_t end, Nanos now);
    schedule::Plan plan; // scratch
    Core& core_;
};

} // namespace ucx_mp::channel
