// Which devices tell packet numbers truthfully (verbs/packet_numbers.h). Until it is known, a device counts as one that
// does not.
//
// Callers: RailEvents, when a port of a device has come up that could not be tested before. A timer goes on.
// Threads: the interface's; the tests run aside (Services::aside). Slow path.
#pragma once

#include "uct_mp/recover/used.h"
#include "uct_mp/verbs/packet_numbers.h"

namespace ucx_mp::recover {

class PacketNumbers {
public:
    explicit PacketNumbers(Core& core) : core_(core) {}

    // Does nothing if the device has shown it. The verdict stands in Core::untested.
    void test_numbers(unsigned device);

    // -- What others read
    Services::Timer numbers_timer = 0; // runs while there are any

private:
    void take_numbers();

    // Those that are being tested, or wait for it.
    std::unique_ptr<verbs::PacketNumberTest> number_tests[verbs::kMaxDevices];
    std::uint32_t numbers_wanted = 0; // a bit for each device
    Core& core_;
};

} // namespace ucx_mp::recover
