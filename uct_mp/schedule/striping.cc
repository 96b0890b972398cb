#include "uct_mp/schedule/striping.h"

#include <algorithm>

namespace ucx_mp::schedule {

void cut(const Shares& shares, std::uint64_t size, std::uint64_t alignment, Plan& plan) {
    double total = 0;
    for (unsigned k = 0; k < shares.count; ++k) total += shares.share[k];
    plan.count = 0;
    std::uint64_t begin = 0;
    double sum = 0;
    for (unsigned k = 0; k < shares.count; ++k) {
        sum += shares.share[k];
        std::uint64_t end = size;
        if (sum < total) { // else this one and the rest (only rounding) take all
            // Nearest multiple; in units of alignment, so that a double is exact enough for any size.
            const double units = static_cast<double>(size) / static_cast<double>(alignment) * (sum / total) + 0.5;
            end = units < 0x1p63 ? static_cast<std::uint64_t>(units) : UINT64_MAX / alignment;
            end = end > size / alignment ? size : std::max(end * alignment, begin);
        }
        if (end > begin) plan.stripes[plan.count++] = {.offset = begin, .length = end - begin, .path = shares.path[k]};
        begin = end;
    }
    if (plan.count == 0) plan.stripes[plan.count++] = {.offset = 0, .length = size, .path = shares.path[0]}; // 0 bytes
}

void cut_with_carry(PathTable& paths, const Shares& shares, std::uint64_t size, const PolicyConfig& config,
                    Plan& plan) {
    double total = 0;
    for (unsigned k = 0; k < shares.count; ++k) total += shares.share[k];
    const auto bytes = static_cast<double>(size);
    const auto floor = static_cast<double>(config.min_stripe);

    Shares wanted; // each path's fair share after this message
    double sum = 0, most = 0;
    PathIndex richest = shares.path[0];
    for (unsigned k = 0; k < shares.count; ++k) {
        Path& path = paths[shares.path[k]];
        path.carry += total > 0 ? bytes * (shares.share[k] / total) : bytes / shares.count;
        wanted.add(shares.path[k], path.carry);
        if (k == 0 || path.carry > most) most = path.carry, richest = shares.path[k];
    }
    // The smallest sit out until the rest, scaled to the size of the message, has the minimum each.
    unsigned kept = 0;
    for (unsigned k = 0; k < wanted.count; ++k) {
        if (wanted.share[k] <= 0) continue; // it had more than its share before
        wanted.path[kept] = wanted.path[k];
        wanted.share[kept++] = wanted.share[k];
        sum += wanted.share[kept - 1];
    }
    while (kept > 1) {
        const unsigned k = static_cast<unsigned>(std::min_element(wanted.share, wanted.share + kept) - wanted.share);
        if (wanted.share[k] * bytes >= floor * sum * (1 - 1e-9)) break;
        sum -= wanted.share[k];
        std::copy(wanted.path + k + 1, wanted.path + kept, wanted.path + k);
        std::copy(wanted.share + k + 1, wanted.share + kept, wanted.share + k);
        --kept;
    }
    wanted.count = kept;
    if (kept == 0) {
        wanted.count = 0;
        wanted.add(richest, 1);
    }
    cut(wanted, size, config.alignment, plan);
    // One message of terabytes must not decide about the next thousand.
    const double limit = 4 * std::max(bytes, floor);
    for (unsigned k = 0; k < plan.count; ++k) {
        paths[plan.stripes[k].path].carry -= static_cast<double>(plan.stripes[k].length);
    }
    for (unsigned k = 0; k < shares.count; ++k) {
        double& carry = paths[shares.path[k]].carry;
        carry = std::clamp(carry, -limit, limit);
    }
}

Outcome Even::split(PathTable& paths, const Message& message, Plan& plan) {
    Shares shares;
    for (PathIndex i : each(paths.usable(direction(message.kind)))) shares.add(i, paths[i].ramp);
    cut_with_carry(paths, shares, message.size, *config_, plan);
    return Outcome::stripes;
}

Outcome Weighted::split(PathTable& paths, const Message& message, Plan& plan) {
    Shares shares;
    bool any = false;
    const PathMask usable = paths.usable(direction(message.kind));
    for (PathIndex i : each(usable)) any |= paths[i].weight > 0;
    for (PathIndex i : each(usable)) {
        if (!any || paths[i].weight > 0) shares.add(i, paths[i].weight * paths[i].ramp);
    }
    cut_with_carry(paths, shares, message.size, *config_, plan);
    return Outcome::stripes;
}

} // namespace ucx_mp::schedule
