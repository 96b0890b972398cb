// What the programs' processors spend on the data path, in virtual time: by default nothing. A node's processor is one
// for all of its programs; what it does is done one thing after the other, other nodes' processors are not concerned.
//
// A program's calls don't return later: instead a node's own time runs ahead of the world's while its processor has to
// do. A request that is posted then reaches the adapter when the processor has come to it, and the node has no turn
// before (World::touched()). So no call has to stop in its middle, and causes come before effects: what a program finds
// at the world's time it may find at its own, later one.
#pragma once
#include <algorithm>
#include <vector>

#include "core/notify.h"
#include "engine/scheduler.h"

namespace softhca {

class HostTime {
public:
    HostTime(Scheduler& scheduler, size_t nodes) : scheduler_(scheduler), free_at_(nodes), waiting_(nodes) {}

    Nanos post = 0;       // of a send request
    Nanos completion = 0; // of one that is collected, whatever has completed; receives are posted again within it

    // The node's own time.
    [[nodiscard]] Nanos now(uint32_t node, Nanos world) const { return std::max(world, free_at_[node]); }
    // The processor does something of `cost`; its time thereafter. A node that has been busy has a turn when it is
    // through.
    Nanos spend(uint32_t node, uint32_t device, Nanos cost, Nanos world) {
        if (cost == 0) return now(node, world);
        free_at_[node] = now(node, world) + cost;
        if (!waiting_[node]) wait(node, device);
        return free_at_[node];
    }

private:
    void wait(uint32_t node, uint32_t device) {
        waiting_[node] = true;
        scheduler_.at(free_at_[node], through, this, uint64_t{device} << 32 | node);
    }
    static void through(void* self, uint64_t who, Nanos when) {
        auto& host = *static_cast<HostTime*>(self);
        const auto node = static_cast<uint32_t>(who), device = static_cast<uint32_t>(who >> 32);
        if (host.free_at_[node] > when) return host.wait(node, device);
        host.waiting_[node] = false;
        if (g_touched) g_touched(device);
    }
    Scheduler& scheduler_;
    std::vector<Nanos> free_at_;
    std::vector<char> waiting_; // an event at free_at_ or before is due
};

} // namespace softhca
