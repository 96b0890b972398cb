// What a connection may be made of, for cases that hold for all of it.
#pragma once

#include <boost/test/data/test_case.hpp>

#include <ostream>

#include "uct_mp/channel/types.h"

namespace ucx_mp::sim {

// RC, DC, or paths of both in one channel.
struct Flavour {
    const char* name;
    connect::Transport transport;
    path::Kinds kinds;
};
inline std::ostream& operator<<(std::ostream& out, const Flavour& flavour) { return out << flavour.name; }
inline const auto kFlavours = boost::unit_test::data::make(
    {Flavour{"rc", connect::Transport::rc, path::Kinds::none}, Flavour{"dc", connect::Transport::dc, path::Kinds::none},
     Flavour{"both kinds", connect::Transport::rc, path::Kinds::both}});

} // namespace ucx_mp::sim
