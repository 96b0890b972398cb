#include "uct_mp/recover/packet_numbers.h"

#include <algorithm>

#include "uct_mp/recover/members.h"

namespace ucx_mp::recover {

void PacketNumbers::test_numbers(unsigned device) {
    if (!(core_.untested >> device & 1)) return;
    numbers_wanted |= 1u << device;
    if (!numbers_timer) take_numbers();
}

void PacketNumbers::take_numbers() {
    constexpr Nanos kLook = 10'000'000;
    numbers_timer = 0;
    for (const verbs::Device& device : core_.devices.devices()) {
        const std::uint32_t bit = 1u << device.index;
        if (!(numbers_wanted & bit)) continue;
        std::unique_ptr<verbs::PacketNumberTest>& test = number_tests[device.index];
        if (!test) {
            const auto rail = std::ranges::find_if(
                core_.rails, [&](const verbs::Rail& r) { return r.device == device.index && r.active; });
            if (rail != core_.rails.end())
                test = verbs::PacketNumberTest::begin(core_.services, device, *rail);
            else
                numbers_wanted &= ~bit; // a port that comes up asks again
        }
        if (!test || test->state() == verbs::PacketNumberTest::State::running) continue;
        const bool tells = test->state() == verbs::PacketNumberTest::State::yes && test->life() == device.life;
        test.reset();
        numbers_wanted &= ~bit;
        if (tells) core_.untested &= ~bit;
        core_.services.say(LogLevel::info, "%s %s packet numbers", device.name.c_str(),
                           tells ? "tells" : "has not been found to tell");
    }
    if (numbers_wanted) numbers_timer = core_.services.at(core_.services.now() + kLook, [this] { take_numbers(); });
}

} // namespace ucx_mp::recover
