// One end of `mp_info --check`: devices, memory that the other end may access, and lanes. A lane is a handful
// of reliable connections from one port here to one port there, with queues of their own.
//
// Threads: one per Side; both ends may be in one process.
#pragma once

#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "uct_mp/ucx/check/wire.h"
#include "uct_mp/verbs/memory.h"

namespace ucx_mp::check {

inline constexpr std::size_t kMemory = 4 << 20, kInbox = 2 << 20; // receives are behind kInbox

using CompletionQueueEx = std::unique_ptr<ibv_cq_ex, void (*)(ibv_cq_ex*)>;

struct Lane {
    const verbs::Rail* rail = nullptr;
    const verbs::Device* device = nullptr;
    unsigned local_rail = 0, remote_rail = 0, remote_device = 0;
    CompletionQueueEx sends{nullptr, [](ibv_cq_ex* cq) { (void)ibv_destroy_cq(ibv_cq_ex_to_cq(cq)); }};
    bool stamped = false; // completions of sends tell the adapter's time
    verbs::CompletionQueue receives;
    verbs::SharedReceiveQueue srq;
    verbs::QueuePair qp[kQueuePairs], target;
    std::uint32_t granted_inline = 0;
    std::uint32_t psn = 0; // our first one
    End remote[kQueuePairs] = {};
};

class Side {
public:
    // False: `error` is one line.
    [[nodiscard]] bool open(const std::vector<std::string>& rails, std::string& error);
    [[nodiscard]] std::span<const verbs::Rail> rails() const { return devices_.rails(); }
    [[nodiscard]] const verbs::DeviceSet& devices() const { return devices_; }
    [[nodiscard]] std::byte* memory() const { return memory_.get(); }
    [[nodiscard]] const verbs::Registration& keys() const { return keys_; }
    void describe(Message& answer) const;

    // Makes a lane at a rail; its queue pairs are connected by join(). nullptr: `error` names the call that failed.
    [[nodiscard]] Lane* add_lane(unsigned rail, std::string& error);
    void ends(const Lane& lane, End* out) const;
    [[nodiscard]] int join(Lane& lane, const End* remote); // 0 or errno
    [[nodiscard]] std::vector<std::unique_ptr<Lane>>& lanes() { return lanes_; }
    [[nodiscard]] bool post_receive(Lane& lane);

    // Answers the other end's questions until it has none left. False: it went away.
    [[nodiscard]] bool serve(const Stream& stream);

private:
    void answer(const Message& question, const Stream& stream, Message& answer);
    void await_message(const Message& question, Message& answer);
    void await_last_word(const Message& question, Message& answer);

    verbs::DeviceSet devices_;
    std::unique_ptr<std::byte, void (*)(void*)> memory_{nullptr, [](void* p) { std::free(p); }};
    verbs::Registration keys_; // before its users
    std::vector<std::unique_ptr<Lane>> lanes_;
};

[[nodiscard]] verbs::RemoteEnd remote_of(const End& end);

} // namespace ucx_mp::check
