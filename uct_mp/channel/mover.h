// Writes and reads (RDMA): whole on one path, in stripes at once, or pulled in pieces by paths that have room.
//
// A Work describes an operation until all of it is placed and complete. Replays are Works in the same lists, so that
// the scheduler cuts them anew.
//
// Callers: Interface for new operations; Completions, Progress and recovery pull. Sizes and offsets are bytes.
// Errors: no_resource means that nothing has happened, and that the work has been given back.
// Threads: the interface's. Completions of the user may run inside pull() and rdma().
#pragma once

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Mover {
public:
    explicit Mover(Core& core) : core_(core) {}

    // -- New operations
    // ok: RDMA may go. `keys` then points to the keys to be used.
    Status pass_gate_rdma(Channel& channel, const verbs::RemoteKeys*& keys);
    // Starts an operation, for which `work` has pieces, remote address and keys. in_progress: its completion follows.
    Status rdma(Channel& channel, Work& work);
    // A put or get, from the gate on.
    template <bool read> static Status zcopy(Core& m, Channel& channel, const Iov* iov, std::size_t count,
                                             std::uint64_t remote, const verbs::RemoteKeys& rkeys,
                                             Completion* completion);
    // Over an only path, in one piece; the queue has room.
    template <bool read, Fits> Status post_sole(Channel& channel, SendQueue& queue, Work& work, ibv_sge* sge,
                                                int pieces, std::uint32_t bytes, std::uint64_t remote,
                                                const verbs::RemoteKeys& rkeys);
    // zcopy over an only path.
    template <bool read> Status rdma_sole(Channel& channel, SendQueue& queue, const Iov* iov, std::size_t count,
                                          std::uint64_t remote, const verbs::RemoteKeys& rkeys, Completion* completion);
    // The path that copied writes take, one behind the other. kNoPath: it has no room.
    PathIndex lane_of_puts(Channel& channel);
    // The part of put_short() behind the gates, where paths have accounts (no Wiring::only).
    Status put_short_chosen(Channel& channel, const void* buffer, unsigned length, std::uint64_t remote,
                            const verbs::RemoteKeys& keys);
    // Writes from the bounce buffer, and takes it over.
    void put_copied(Channel& channel, Buffer& bounce, std::uint32_t length, std::uint64_t remote,
                    const verbs::RemoteKeys& rkeys, PathIndex path);
    // The same over an only path, which has room.
    template <Fits> void put_copied_sole(Channel& channel, SendQueue& queue, Buffer& bounce, std::uint32_t length,
                                         std::uint64_t remote, const verbs::RemoteKeys& rkeys);
    // Ends an operation of no bytes.
    Status nothing_to_do(Work& work);

    // -- Works that wait for room
    // Posts the next pieces of the channel's works, as far as there is room.
    void pull(Channel& channel);
    void pull(Channel& channel, bool read);               // of one direction
    void pull_sole(Channel& channel);                     // over an only path
    void pull_due();                                      // for Progress: Lists::pulls
    void unlink(Channel& channel, bool read, Work& work); // takes it out of Moving::pulled

private:
    using Lane = schedule::Scheduler::Current;
    static SendQueue* queue_of_lane(Channel& channel, const Lane& current);
    void put_inline(Channel& channel, Lane& current, SendQueue& queue, Buffer& bounce, std::uint32_t length,
                    std::uint64_t remote, const verbs::RemoteKeys& rkeys);
    Work& copied_work(Channel& channel, Buffer& bounce, std::uint32_t length);
    Status rdma_by_plan(Channel& channel, Work& work);
    void post_piece(Channel& channel, Work& work, std::uint64_t offset, std::uint64_t length, PathIndex path,
                    SendQueue& queue, bool timed = true);
    bool post_stripe(Channel& channel, Work& work, std::uint64_t offset, std::uint64_t length, PathIndex path);
    [[nodiscard]] schedule::Message message(const Channel& channel, std::uint64_t size, bool read, Nanos now);
    void append(Channel& channel, Work& work);
    std::uint64_t ahead_of_reads(Channel& channel, std::uint64_t size, Nanos now);
    void release_writes(Channel& channel, Nanos now);
    static void learn_patience(Moving& moving);
    static void learn_order(Channel& channel);
    bool post_until(Channel& channel, Work& work, std::uint64_t end, Nanos now);

    void learn_descriptor_time(Nanos begun, unsigned count);

    schedule::Plan plan;                                // scratch
    static constexpr double kLongestDescriptor = 20000; // ns; if it took longer, something else had the processor
    double usual_open_ = 0;                             // mean of the operations under way
    double quickest_ = kLongestDescriptor;              // descriptor time of the quickest of the first plans
    unsigned plans_ = 0;                                // until now
    Core& core_;
};

} // namespace ucx_mp::channel
