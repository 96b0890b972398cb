#include "uct_mp/verbs/packet_numbers.h"

#include <chrono>

#include "uct_mp/verbs/queue_pair.h"

namespace ucx_mp::verbs {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kPsnMask = 0xffffff, kWrites = 3, kPsn[2] = {0x123456, 0xfffffe}; // one of them wraps

bool connect_pair(QueuePair (&qp)[2], const Rail& rail) {
    for (unsigned i = 0; i < 2; ++i) {
        const RemoteEnd other{rail.lid, 0, rail.mtu, qp[1 - i]->qp_num, kPsn[1 - i], rail.gid};
        if (connect_rc(qp[i].get(), rail, other, {}, kPsn[i]) != 0) return false;
    }
    return true;
}

bool write_nothing(ibv_qp* qp, ibv_cq* cq, Clock::time_point end, const std::atomic<bool>* stop) {
    for (std::uint32_t i = 0; i < kWrites; ++i) {
        ibv_send_wr wr{}, *bad;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        if (ibv_post_send(qp, &wr, &bad) != 0) return false;
    }
    for (std::uint32_t done = 0; done < kWrites;) {
        ibv_wc wc;
        const int n = ibv_poll_cq(cq, 1, &wc);
        if (n < 0 || (n > 0 && wc.status != IBV_WC_SUCCESS) || Clock::now() > end) return false;
        if (stop && stop->load(std::memory_order_relaxed)) return false;
        done += static_cast<std::uint32_t>(n);
    }
    return true;
}

bool expects(ibv_qp* qp, std::uint32_t psn) {
    QueuePairTruth truth;
    return query(qp, truth) == 0 && (truth.rq_psn & kPsnMask) == (psn & kPsnMask);
}

} // namespace

bool tells_packet_numbers(const Device& device, const Rail& rail, const std::atomic<bool>* stop) {
    if (!rail.active) return false;
    const auto end = Clock::now() + std::chrono::seconds(1);
    CompletionQueue cq(ibv_create_cq(device.context.get(), 64, nullptr, nullptr, 0));
    ibv_srq_init_attr attr{};
    attr.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
    SharedReceiveQueue srq(ibv_create_srq(device.pd.get(), &attr));
    if (!cq || !srq) return false;
    QueuePair qp[2];
    for (QueuePair& one : qp) {
        one = create_rc(device, rail, {cq.get(), cq.get(), srq.get()}, {16, 1, 0}, nullptr);
        if (!one) return false;
    }
    if (!connect_pair(qp, rail)) return false;
    for (unsigned i = 0; i < 2; ++i) {
        if (!write_nothing(qp[i].get(), cq.get(), end, stop)) return false;
        if (!expects(qp[1 - i].get(), kPsn[i] + kWrites)) return false;
    }
    return to_error(qp[0].get()) == 0 && expects(qp[0].get(), kPsn[1] + kWrites);
}

std::unique_ptr<PacketNumberTest> PacketNumberTest::begin(Services& services, const Device& device, const Rail& rail) {
    auto shared = std::make_shared<Shared>();
    // The device stays open as long as the test uses it.
    const bool taken = services.aside([shared, device, rail] {
        const bool tells = tells_packet_numbers(device, rail, &shared->stop);
        shared->state.store(tells ? State::yes : State::no, std::memory_order_release);
    });
    if (!taken) return nullptr;
    return std::unique_ptr<PacketNumberTest>(new PacketNumberTest(std::move(shared), device.life));
}

} // namespace ucx_mp::verbs
