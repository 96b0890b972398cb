#include "uct_mp/link/dc_pool.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ucx_mp::link {

std::vector<std::uint32_t> DcRail::target_numbers() const {
    std::vector<std::uint32_t> out;
    for (const verbs::QueuePair& target : targets) out.push_back(target->qp_num);
    return out;
}

Status DcPool::make_rail(const Wishes& wishes, const verbs::Rail& rail, const verbs::Device& device, Adapter& adapter,
                         DcRail& out, std::uint32_t& granted, std::string& error) const {
    for (unsigned i = 0; i < wishes.targets; ++i) {
        out.targets.push_back(verbs::create_dct(device, rail, adapter.cq.get(), adapter.srq.get(),
                                                key_of_life(key, device.life), wishes.reliability));
        if (!out.targets.back()) {
            const Status status = errno == ENOMEM ? Status::no_memory : Status::io_error;
            error = "cannot create DC target " + std::to_string(i) + " of " + std::to_string(wishes.targets) + " on " +
                    rail.name + ": " + std::strerror(errno) + " (UCX_MP_DC_NUM_DCT)";
            return status;
        }
    }
    for (unsigned i = 0; i < wishes.initiators; ++i) {
        std::uint32_t inline_bytes = 0;
        verbs::QueuePair qp =
            verbs::create_dci(device, rail, adapter.send_cq.get(),
                              {wishes.sizes.send_depth + 1, wishes.max_sge, wishes.inline_bytes + kTagBytes},
                              wishes.reliability, &inline_bytes);
        if (!qp) {
            const Status status = errno == ENOMEM ? Status::no_memory : Status::io_error;
            error = "cannot create DC initiator " + std::to_string(i) + " of " + std::to_string(wishes.initiators) +
                    " on " + rail.name + ": " + std::strerror(errno) + " (UCX_MP_DC_NUM_DCI)";
            return status;
        }
        granted = std::min(granted, inline_bytes - std::min(inline_bytes, kTagBytes));
        out.initiators.push_back(
            std::make_unique<SendQueue>(std::move(qp), adapter, wishes.sizes, granted, Needs::address));
    }
    return Status::ok;
}

} // namespace ucx_mp::link
