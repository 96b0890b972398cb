// The segment cannot be lowered for one peer: UCT has one limit for all peers. So a message that is too large for the
// peer's receive buffers goes in parts (parts.h).
#include "uct_mp/channel/terms.h"

#include <algorithm>

#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

connect::Terms own_terms(const Core& core) {
    const std::uint64_t without =
        (core.config.recovery.enabled && path::has(core.config.named_kinds(), path::Kind::dc)
             ? 0
             : connect::feature::on_demand) |
        (has_rings(core) ? 0 : connect::feature::rings) |
        (core.config.recovery.packet_numbers && !core.config.recovery.untested ? 0 : connect::feature::packet_numbers);
    return {.features = connect::feature::known & core.config.features & ~without,
            .probe_address = reinterpret_cast<std::uint64_t>(core.ends.probe_bytes),
            .window = core.config.window,
            .ring = core.ring,
            .segment = core.config.segment + kMaxUserHeader,
            .kinds = core.kinds};
}

namespace {
[[nodiscard]] std::uint32_t common_window(const connect::Terms& a, const connect::Terms& b) {
    return std::min(std::min(a.window, b.window), std::min(a.ring, b.ring));
}
} // namespace

// A part is sent without a user's header of its own.
std::uint32_t part_between(std::uint32_t from, std::uint32_t to) {
    return std::max(1u, std::min(to, from - std::min(from, kMaxUserHeader)));
}
std::uint64_t parts_between(std::uint32_t from, std::uint32_t to) {
    const std::uint32_t part = part_between(from, to);
    return (std::uint64_t{from} + part - 1) / part;
}

void agree(Core& core, Channel& channel) {
    const connect::Connection& connection = channel.connection;
    const connect::Terms ours = own_terms(core), theirs{.window = connection.peer_window,
                                                        .ring = connection.peer_ring,
                                                        .segment = connection.peer_segment};
    channel.window = common_window(ours, theirs);
    channel.set_ack_threshold();
    if (theirs.segment >= ours.segment) return;
    channel.gates |= gate::parts;
    core.services.say(LogLevel::info, "SEG_SIZE is %u here and %u at %s: large messages go in up to %llu parts",
                      core.config.segment, theirs.segment - std::min(theirs.segment, kMaxUserHeader),
                      connect::describe(channel.connection).c_str(),
                      static_cast<unsigned long long>(parts_between(ours.segment, theirs.segment)));
}

std::string misfit(const Core& core, const connect::Terms& theirs) {
    const connect::Terms ours = own_terms(core);
    // Without feature::kinds the peer sends as if we had only the transport's own kind of paths: with tags for mp_dc,
    // without for mp_rc.
    const path::Kinds named = core.config.named_kinds();
    if (!(theirs.features & connect::feature::kinds) &&
        ((core.kinds & named) == path::Kinds::none || core.has_targets() != path::has(named, path::Kind::dc)))
        return "it does not know paths of several kinds";
    if (theirs.segment == ours.segment) return {};
    const auto size = [](std::uint32_t segment) { return std::to_string(segment - std::min(segment, kMaxUserHeader)); };
    const std::string sizes = "SEG_SIZE is " + size(ours.segment) + " here and " + size(theirs.segment) + " there: ";
    if (!(theirs.features & ours.features & connect::feature::parts))
        return sizes + "with such a peer they must be the same";
    const std::uint64_t parts = theirs.segment < ours.segment ? parts_between(ours.segment, theirs.segment)
                                                              : parts_between(theirs.segment, ours.segment);
    const std::uint32_t window = common_window(ours, theirs);
    if (parts > window)
        return sizes + "a message would have " + std::to_string(parts) + " parts, and TX_WINDOW allows " +
               std::to_string(window);
    const std::uint64_t requests = parts + SendQueue::kReserve + (core.has_targets() ? path::kMaxPathsPerPeer : 0);
    if (theirs.segment < ours.segment && requests > core.config.send_depth)
        return sizes + "a message would take " + std::to_string(requests) + " requests, and TX_QUEUE_LEN allows " +
               std::to_string(core.config.send_depth);
    if (theirs.segment < ours.segment && parts > core.config.max_send_buffers)
        return sizes + "a message would have " + std::to_string(parts) + " parts, and TX_MAX_BUFS allows " +
               std::to_string(core.config.max_send_buffers);
    if (theirs.segment < core.limits.max_am_short)
        return sizes + "short messages have up to " + std::to_string(core.limits.max_am_short) + " bytes (MAX_INLINE)";
    return {};
}

} // namespace ucx_mp::channel
