// Does ibv_query_qp tell which packets a queue pair has executed? Nothing in the verbs promises it (rq_psn may be the
// value of the last modify). Recovery of writes that programs poll for needs it: uct_mp/PROTOCOL.md.
//
// Threads: any. Waits for its own completions, at most a second all in all; then the answer is no.
#pragma once

#include <atomic>
#include <memory>

#include "uct_mp/host/services.h"
#include "uct_mp/verbs/device.h"

namespace ucx_mp::verbs {

// Tries with a pair of queue pairs that are connected with each other over the rail's port. It
// posts some empty writes, then asks for the numbers, with the queue pair alive and in the error
// state. False also if the port is not active, and soon after `stop` (may be null) has become true.
[[nodiscard]] bool tells_packet_numbers(const Device& device, const Rail& rail,
                                        const std::atomic<bool>* stop = nullptr);

// The same beside everything else (Services::aside), for a caller that
// must not wait: a dozen commands to the adapter, and that second.
class PacketNumberTest {
public:
    enum class State : std::uint8_t { running, no, yes };

    // null: another test or command is under way there; to be tried again later
    [[nodiscard]] static std::unique_ptr<PacketNumberTest> begin(Services& services, const Device& device,
                                                                 const Rail& rail);
    ~PacketNumberTest() { shared_->stop.store(true, std::memory_order_relaxed); } // it ends soon, by itself
    PacketNumberTest(const PacketNumberTest&) = delete;

    [[nodiscard]] State state() const { return shared_->state.load(std::memory_order_acquire); }
    [[nodiscard]] std::uint8_t life() const { return life_; } // of the device

private:
    struct Shared {
        std::atomic<bool> stop{false};
        std::atomic<State> state{State::running};
    };
    PacketNumberTest(std::shared_ptr<Shared> shared, std::uint8_t life) : shared_(std::move(shared)), life_(life) {}
    std::shared_ptr<Shared> shared_;
    std::uint8_t life_;
};

} // namespace ucx_mp::verbs
