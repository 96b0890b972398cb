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

} // namespace ucx_mp::sim
