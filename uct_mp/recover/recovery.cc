#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

Recovery& recovery_of(Channel& channel) {
    if (!channel.wiring.recovery) {
        channel.wiring.recovery = {new Recovery, [](Recovery* recovery) { delete recovery; }};
        channel.wiring.recovery->paths.resize(channel.wiring.places);
    }
    return *channel.wiring.recovery;
}

void stop_asking(Core& core, Channel& channel) {
    for (Recovery::AskedKeys& question : channel.wiring.recovery->asked)
        if (question.timer) core.services.cancel(question.timer);
    channel.wiring.recovery->asked.clear();
    channel.gates &= ~gate::keys;
}

} // namespace ucx_mp::recover
