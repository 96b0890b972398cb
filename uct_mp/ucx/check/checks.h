// The single checks of `mp_info --check`. Each prints a line of the report.
#pragma once

#include "uct_mp/ucx/check/initiator.h"
#include "uct_mp/ucx/check/report.h"

namespace ucx_mp::check {

inline constexpr unsigned kRounds = 24;
// The place at the other end: each check has its own, so that a late write disturbs no other.
inline constexpr std::size_t kLarge = 1 << 20, kReadAt = kLarge, kStampAt = kLarge + 64, kDcAt = kLarge + 128,
                             kApmAt = kLarge + 192, kPsnAt = kLarge + 256, kToldAt = kLarge + 320;

class Checks {
public:
    Checks(Initiator& initiator, Report& report) : it_(initiator), report_(report) {}

    void adapter(Lane& lane);               // one of ours
    void lane(Lane& lane);                  // an adapter there, by writing to it
    void across(Lane& written, Lane& told); // two adapters there
    [[nodiscard]] std::string name(const Lane& lane) const;

private:
    // adapter_checks.cc
    void resize(const verbs::Device& device);
    void clocks(Lane& lane);
    void waits(const Lane& lane);
    void dynamic_target(Lane& lane);
    [[nodiscard]] bool write_and_send(ibv_qp* dci, ibv_ah* to, const Message& target, Lane& lane);
    void packet_numbers(Lane& lane);
    // order_checks.cc
    void own_read(Lane& lane);
    void last_word(Lane& lane);
    void within(Lane& lane);
    [[nodiscard]] bool told_over(Lane& written, unsigned a, Lane& told, unsigned b, bool& seen);
    // migration_check.cc
    struct Route; // a second one of a lane
    void migration(Lane& lane);
    [[nodiscard]] const char* find_route(const Lane& lane, Route& route) const; // nullptr, or why there is none
    [[nodiscard]] bool settle(Lane& lane, Message& state); // writes, and then asks for the state of migration
    void migrate(Lane& lane);

    Initiator& it_;
    Report& report_;
    std::uint64_t value_ = 0x100; // written last
};

} // namespace ucx_mp::check
