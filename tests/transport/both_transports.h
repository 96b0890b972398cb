// What test cases that run once over RC and once over DC share: on adapters that give a path up soon.
#pragma once
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <ostream>

#include "simulator/cluster.h"

namespace ucx_mp::connect {
inline std::ostream& operator<<(std::ostream& out, Transport transport) {
    return out << (transport == Transport::dc ? "dc" : "rc");
}
} // namespace ucx_mp::connect

namespace ucx_mp::sim {

inline const auto kBoth = boost::unit_test::data::make({connect::Transport::rc, connect::Transport::dc});

inline channel::Config config_of(connect::Transport transport) {
    channel::Config config;
    config.transport = transport;
    config.receive_depth = 256;
    config.reliability.timeout = 5;
    config.reliability.retry_count = 2;
    return config;
}

// Adapters that die are looked for at once, and deaths in a row are no flapping.
inline channel::Config quick_to_reopen(connect::Transport transport) {
    channel::Config config = config_of(transport);
    config.recovery.reopen_interval = 1'000'000;
    config.recovery.max_reopen_interval = 4'000'000;
    config.recovery.hold_down = 1'000'000;
    config.recovery.max_hold_down = 2'000'000;
    return config;
}

} // namespace ucx_mp::sim
