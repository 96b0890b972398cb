// Which devices tell packet numbers truthfully.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/recover/used.h"
#include "uct_mp/verbs/packet_numbers.h"

namespace ucx_mp::recover {

class Recoverer;

class PacketNumbers {
public:
    PacketNumbers(Core& core, Recoverer& all) : core_(core), all_(all) {}
    void test_numbers(unsigned device);
    Services::Timer numbers_timer = 0; // runs while there are any

private:
    void take_numbers();
    // Those that are being tested, or wait for it: verbs/packet_numbers.h
    std::unique_ptr<verbs::PacketNumberTest> number_tests[verbs::kMaxDevices];
    std::uint32_t numbers_wanted = 0;
    Core& core_;
    Recoverer& all_;
};

} // namespace ucx_mp::recover
