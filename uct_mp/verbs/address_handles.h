// Address handles, each made once. Making one is a command to the adapter. Over RoCE the kernel asks the network for
// the neighbour's address first (up to a second if it is not there). Slow path; one thread at a time.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "uct_mp/verbs/queue_pair.h"

namespace ucx_mp::verbs {

class AddressHandles {
public:
    // nullptr: errno; the next call tries again.
    [[nodiscard]] ibv_ah* get(const DeviceSet& devices, const Rail& rail, const Destination& to,
                              std::uint8_t service_level) {
        AddressHandle& handle = handles_[{rail.index, to}];
        if (!handle) handle = create_ah(devices.device_of(rail), rail, to, service_level);
        return handle.get();
    }
    // Takes a rail's handles out: its own address has another place in the adapter's table than when
    // they were made. They must be kept until the requests that were posted with them are back.
    [[nodiscard]] std::vector<AddressHandle> take(unsigned rail) {
        std::vector<AddressHandle> out;
        for (auto& [key, handle] : handles_)
            if (key.rail == rail && handle) out.push_back(std::move(handle));
        std::erase_if(handles_, [&](const auto& entry) { return entry.first.rail == rail; });
        return out;
    }

private:
    struct Key {
        unsigned rail;
        Destination to;
        auto operator<=>(const Key&) const = default;
    };
    std::map<Key, AddressHandle> handles_;
};

} // namespace ucx_mp::verbs
