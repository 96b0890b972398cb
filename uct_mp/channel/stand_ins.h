// Adapters that are dead when an interface opens.
//
// Queues, DC targets and the rest of what an interface has of each adapter are made on one that lives instead. Nobody
// uses them: the ports of a dead one are down. So it is in every list, under its own index. Recovery takes everything
// over when it is there again, as with an adapter that dies later (recover/reopening.h).
//
// Threads: the interface's; while it opens.
#pragma once

#include <string>
#include <vector>

#include "uct_mp/host/status.h"
#include "uct_mp/verbs/device.h"

namespace ucx_mp::channel {

struct Core;

class StandIns {
public:
    explicit StandIns(Core& core) : core_(core) {}
    // Core::devices and Core::rails have stand-ins from here on. Not ok: no adapter lives.
    [[nodiscard]] Status begin(std::string& error);
    void end(); // ... until here; says which adapters are missing
    // One has died since begin(): what failed meanwhile did so for that reason.
    [[nodiscard]] bool another_has_died() const;

private:
    Core& core_;
    verbs::Device living_;
    std::vector<verbs::Device> dead_;
    std::vector<verbs::Rail> rails_; // of the dead ones
};

} // namespace ucx_mp::channel
