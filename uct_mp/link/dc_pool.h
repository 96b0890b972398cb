// DC: what all channels of an interface share on each rail. Targets, which peers send to, and a few initiators.
//
// Threads: the interface's; the address handles also by whoever holds the lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "uct_mp/link/adapter.h"
#include "uct_mp/link/send_queue.h"
#include "uct_mp/verbs/address_handles.h"

namespace ucx_mp::link {

// Requests for targets of the life before may still be repeated, and their numbers
// may be in use again. So a target of this life of its device asks for another key.
[[nodiscard]] constexpr std::uint64_t key_of_life(std::uint64_t dc_key, std::uint8_t life) {
    return dc_key ^ life * 0x9e3779b97f4a7c15ull;
}

struct DcRail {
    [[nodiscard]] std::vector<std::uint32_t> target_numbers() const;

    std::vector<verbs::QueuePair> targets; // a peer is told one of them
    std::vector<std::unique_ptr<SendQueue>> initiators;
};

class DcPool {
public:
    struct Wishes {
        unsigned initiators = 8, targets = 1; // per rail
        unsigned max_sge = 1;
        unsigned inline_bytes = 0;
        QueueSizes sizes;
        verbs::Reliability reliability;
    };
    // On a life of the rail's device, with the queues of `adapter`. Lowers `granted` to the
    // bytes that every initiator copies into its request. On failure `error` is one line.
    [[nodiscard]] Status make_rail(const Wishes& wishes, const verbs::Rail& rail, const verbs::Device& device,
                                   Adapter& adapter, DcRail& out, std::uint32_t& granted, std::string& error) const;

    std::vector<DcRail> rails; // empty: the interface has no paths of DC
    std::uint64_t key = 0;     // of all our targets, in their device's first life
    verbs::AddressHandles handles;
};

} // namespace ucx_mp::link
