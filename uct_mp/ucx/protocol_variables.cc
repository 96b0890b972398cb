#include "uct_mp/ucx/config.h"
#include "uct_mp/ucx/variable_texts.h"

namespace ucx_mp::face {

std::vector<Variable> protocol_variables() {
    return {{Group::tuning, "PROTOCOL", std::to_string(connect::kMaxVersion),
             "Newest version of the handshake that is spoken, " + range(kEarlierProtocol, kLaterProtocol) + "; " +
                 std::to_string(kEarlierProtocol) + " and " + std::to_string(kLaterProtocol) +
                 " stand for releases that speak none of ours. For tests of nodes with different releases.",
             Syntax::count, offsetof(MdOptions, protocol)},
            {Group::tuning, "FEATURES", "inf",
             "Bits of the features that peers are told of, \"inf\" for all: what a release before did not "
             "have. For tests, as PROTOCOL.",
             Syntax::amount, offsetof(MdOptions, features)},
            {Group::tuning, "PACKET_NUMBERS", wish(channel::RecoveryConfig{}.packet_numbers),
             "Ask the adapter which packets of a failed mp_rc path were executed. That is exact also for "
             "programs that poll memory for writes without fence or flush. \"try\": if a test shows that the "
             "adapter tells the truth, when it is opened or when its first port comes up. \"no\": markers "
             "decide, which is exact for everything that a program can be told of.",
             Syntax::ternary, offsetof(MdOptions, packet_numbers)}};
}

} // namespace ucx_mp::face
