#include "uct_mp/channel/stand_ins.h"

#include <algorithm>
#include <mutex>

#include "uct_mp/channel/core.h"
#include "uct_mp/verbs/registry.h"

namespace ucx_mp::channel {

Status StandIns::begin(std::string& error) {
    for (const verbs::Device& device : core_.devices.devices())
        if (verbs::is_dead(device))
            dead_.push_back(device);
        else if (!living_.context)
            living_ = device;
    if (dead_.empty()) return Status::ok;
    const auto port = std::ranges::find(core_.rails, living_.index, &verbs::Rail::device);
    if (!living_.context || port == core_.rails.end()) {
        error = "all adapters are dead";
        return Status::io_error;
    }
    const verbs::Rail known = *port;
    for (const verbs::Device& device : dead_) {
        verbs::Device stand_in = living_;
        stand_in.index = device.index;
        stand_in.life = device.life;
        core_.devices.renew(stand_in);
        for (verbs::Rail& rail : core_.rails) {
            if (rail.device != device.index) continue;
            rail.active = false;
            rails_.push_back(rail);
            verbs::Rail here = known; // the living device may have no port of the dead rail's number
            here.index = rail.index;
            here.device = rail.device;
            here.name = rail.name;
            here.active = false;
            rail = here;
        }
    }
    return Status::ok;
}

void StandIns::end() {
    const std::lock_guard lock(core_.services);
    const std::size_t all = core_.devices.devices().size();
    for (const verbs::Device& device : dead_) {
        core_.devices.renew(device);
        if (core_.devices.registry()->is_first_to_miss(device))
            core_.services.say(LogLevel::warn,
                               "%s is dead: this process runs on %zu of %zu adapters until it is there again",
                               device.name.c_str(), all - dead_.size(), all);
    }
    for (const verbs::Rail& rail : rails_) {
        core_.rails[rail.index] = rail;
        core_.control->renew(rail);
    }
}

bool StandIns::another_has_died() const { return std::ranges::any_of(core_.devices.devices(), verbs::is_dead); }

} // namespace ucx_mp::channel
