#include "uct_mp/ucx/config.h"
#include "uct_mp/ucx/variable_texts.h"

namespace ucx_mp::face {

std::vector<Variable> protocol_variables() {
    return {{.group = Group::tuning,
             .name = "PROTOCOL",
             .initial = std::to_string(connect::kMaxVersion),
             .help = "Newest version of the handshake that is spoken, " + range(kEarlierProtocol, kLaterProtocol) +
                     "; " + std::to_string(kEarlierProtocol) + " and " + std::to_string(kLaterProtocol) +
                     " stand for releases that speak none of ours. For tests of nodes with different releases.",
             .syntax = Syntax::count,
             .offset = offsetof(MdOptions, protocol)},
            {.group = Group::tuning,
             .name = "FEATURES",
             .initial = "inf",
             .help = "Bits of the features that peers are told of, \"inf\" for all: what a release before did not "
                     "have. For tests, as PROTOCOL.",
             .syntax = Syntax::amount,
             .offset = offsetof(MdOptions, features)}};
}

} // namespace ucx_mp::face
