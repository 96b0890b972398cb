// What the programs' processors spend in virtual time (softhca/host_costs.h): by default nothing. Processors are
// numbered; that of a node's programs has the node's number unless they are told apart (World::select()). What one does
// is done one thing after the other, the others are not concerned.
//
// A program's calls don't return later: instead its own time runs ahead of the world's while its processor has to do. A
// request that is posted then reaches the adapter when the processor has come to it, and the program has no turn before
// (World::touched()). So no call has to stop in its middle, and causes come before effects: what a program finds at the
// world's time it may find at its own, later one.
#pragma once
#include <algorithm>
#include <vector>

#include "core/notify.h"
#include "engine/scheduler.h"
#include "softhca/host_costs.h"

namespace softhca {

class HostTime {
public:
    explicit HostTime(Scheduler& scheduler) : scheduler_(scheduler) {}

    sim::HostCosts costs;

    // The processor's own time.
    [[nodiscard]] Nanos now(uint32_t processor, Nanos world) const {
        return processor < free_at_.size() ? std::max(world, free_at_[processor]) : world;
    }
    // The processor does something of `cost`; its time thereafter. Who has been busy has a turn, with the node of
    // `device`, when it is through.
    Nanos spend(uint32_t processor, uint32_t device, Nanos cost, Nanos world) {
        if (cost == 0) return now(processor, world);
        if (processor >= free_at_.size()) {
            free_at_.resize(processor + 1);
            waiting_.resize(processor + 1);
        }
        free_at_[processor] = now(processor, world) + cost;
        if (!waiting_[processor]) wait(processor, device);
        return free_at_[processor];
    }
    [[nodiscard]] Nanos copy(uint64_t bytes) const {
        return static_cast<Nanos>(costs.copy * static_cast<double>(bytes));
    }

private:
    void wait(uint32_t processor, uint32_t device) {
        waiting_[processor] = true;
        scheduler_.at(free_at_[processor], through, this, uint64_t{device} << 32 | processor);
    }
    static void through(void* self, uint64_t who, Nanos when) {
        auto& host = *static_cast<HostTime*>(self);
        const auto processor = static_cast<uint32_t>(who), device = static_cast<uint32_t>(who >> 32);
        if (host.free_at_[processor] > when) return host.wait(processor, device);
        host.waiting_[processor] = false;
        if (g_touched) g_touched(device);
    }
    Scheduler& scheduler_;
    std::vector<Nanos> free_at_;
    std::vector<char> waiting_; // an event at free_at_ or before is due
};

} // namespace softhca
