// Adapters that are dead when an interface opens.
//
// An interface has queues, DC targets and so on of each adapter. For a dead adapter they are made on a living one, its
// stand-in. So the dead adapter is in every list under its own index. Nothing uses these queues, since the ports of a
// dead adapter are down. When the adapter is back recovery replaces them, as for one that dies later
// (recover/reopening.h).
//
// Threads: the interface's, while it opens.
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
    // Puts stand-ins into Core::devices and Core::rails. io_error: no adapter lives.
    [[nodiscard]] Status begin(std::string& error);
    void end(); // takes them out again, and warns of the missing adapters
    // True: another adapter has died since begin(), which explains a failure meanwhile.
    [[nodiscard]] bool another_has_died() const;

private:
    Core& core_;
    verbs::Device living_;
    std::vector<verbs::Device> dead_;
    std::vector<verbs::Rail> rails_; // the rails of dead_
};

} // namespace ucx_mp::channel
