// The one raw request that queues of tasks post: WAIT on data, a work queue entry of the public mlx5 interface. The
// header mlx5dv.h has no structure for it. Layout as UCC posts it.
#pragma once

#include <infiniband/mlx5dv.h>

#include <bit>
#include <cstdint>

namespace ucx_mp::tasks {

static_assert(std::endian::native == std::endian::little);

// 48 bytes. Numbers are big endian, but for value and mask, which lie there as the word lies in memory.
struct WaitEntry {
    mlx5_wqe_ctrl_seg control;
    std::uint32_t operation; // how to compare
    std::uint32_t lkey;
    std::uint64_t address; // a multiple of 8; the low bits: what to do while the word differs. 0: look again
    std::uint64_t value, mask;
};
static_assert(sizeof(WaitEntry) == 48);

// Waits until the whole word at `address` is `value`. `signal`: with a completion.
[[nodiscard]] inline WaitEntry wait_until_equal(std::uint32_t qp_number, std::uint64_t address, std::uint32_t lkey,
                                                std::uint64_t value, bool signal) {
    constexpr std::uint32_t kOpcode = 0x0f, kOnData = 1, kSegments = sizeof(WaitEntry) / 16, kEqual = 1;
    WaitEntry e{};
    e.control.opmod_idx_opcode = __builtin_bswap32(kOnData << 24 | kOpcode);
    e.control.qpn_ds = __builtin_bswap32(qp_number << 8 | kSegments);
    e.control.fm_ce_se = static_cast<std::uint8_t>(MLX5_WQE_CTRL_FENCE | (signal ? MLX5_WQE_CTRL_CQ_UPDATE : 0));
    e.operation = __builtin_bswap32(kEqual);
    e.lkey = __builtin_bswap32(lkey);
    e.address = __builtin_bswap64(address);
    e.value = value;
    e.mask = ~std::uint64_t{0};
    return e;
}

} // namespace ucx_mp::tasks
