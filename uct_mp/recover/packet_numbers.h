// Finds out which devices tell packet numbers truthfully (verbs/packet_numbers.h). Until a device has passed the test,
// its numbers are not used.
//
// Callers: RailEvents, when a port is up. A timer takes the results.
// Threads: the interface's; the tests run on another thread (Services::aside). Slow path.
#pragma once

#include "uct_mp/recover/used.h"
#include "uct_mp/verbs/packet_numbers.h"

namespace ucx_mp::recover {

class PacketNumbers {
public:
    explicit PacketNumbers(Core& core) : core_(core) {}

    // Tests the device, unless it has passed already. A device that passes loses its bit in Core::untested.
    void test_numbers(unsigned device);

    // -- What others read
    Services::Timer numbers_timer = 0; // runs while devices are to be tested

private:
    void take_numbers();

    std::unique_ptr<verbs::PacketNumberTest> number_tests[verbs::kMaxDevices]; // under way
    std::uint32_t numbers_wanted = 0; // bit i: device i is being tested, or waits for it
    Core& core_;
};

} // namespace ucx_mp::recover
