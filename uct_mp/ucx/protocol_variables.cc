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
             .offset = offsetof(MdOptions, features)},
            {.group = Group::tuning,
             .name = "PACKET_NUMBERS",
             .initial = wish(channel::RecoveryConfig{}.packet_numbers),
             .help = "Ask the adapter which packets of a failed mp_rc path were executed. That is exact also for "
                     "programs that poll memory for writes without fence or flush. \"try\": if a test shows that the "
                     "adapter tells the truth, when it is opened or when its first port comes up. \"no\": markers "
                     "decide, which is exact for everything that a program can be told of.",
             .syntax = Syntax::ternary,
             .offset = offsetof(MdOptions, packet_numbers)}};
}

} // namespace ucx_mp::face
