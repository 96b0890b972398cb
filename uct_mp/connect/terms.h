// The contents of messages between the sides of a connection: each about itself in
// the handshake, and its later wishes, offers and questions. Part of control_plane.h.
#pragma once

#include <cstdint>

#include "uct_mp/adapt/map.h"
#include "uct_mp/connect/address.h"
#include "uct_mp/link/ring.h"
#include "uct_mp/path/path.h"
#include "uct_mp/verbs/memory.h"

namespace ucx_mp::connect {

// Told by one side of itself in the handshake; wire.h, Terms.
struct Terms {
    std::uint64_t features = 0;
    std::uint64_t probe_address = 0;
    std::uint64_t dc_tag = 0;
    std::uint32_t window = 1, ring = 1, segment = 1;
    path::Kinds kinds = path::Kinds::none; // the side's; none: that of its transport. Perhaps with bits of later ones
};
// Bits of Terms::features: abilities of this library. No bit
// may be taken for granted, and unknown ones are ignored.
namespace feature {
inline constexpr std::uint64_t parts = 1;     // joins messages in parts, larger than its segment (channel/wire.h)
inline constexpr std::uint64_t kinds = 2;     // each path has a kind of its own: Terms::kinds, wire::kOtherKind
inline constexpr std::uint64_t park = 4;      // idle connections end by agreement: questions are numbered, and parked
                                              // peers hear of rails
inline constexpr std::uint64_t on_demand = 8; // paths of RC come and go: wire::kOnDemand, `service`, path_down's `home`
inline constexpr std::uint64_t rings = 16;    // messages may be written into rings: `ring`
inline constexpr std::uint64_t packet_numbers =
    32; // all adapters tell them: it is known what a queue pair has executed
inline constexpr std::uint64_t known = parts | kinds | park | on_demand | rings | packet_numbers;
} // namespace feature
inline constexpr unsigned kProbeBytes = 64; // bytes that may be read at Terms::probe_address

// How messages of the other side shall come to the side that wishes (recover/demand.h).
struct ServiceWish {
    std::uint32_t number = 0; // counted by the side that wishes; 0: none
    adapt::Service service = adapt::Service::shared;
};

// A ring in memory of the side that offers it, for messages of the other side (channel/rings.h, link/ring.h).
struct RingOffer {
    std::uint32_t number = 0; // counted by the side that offers; 0: none
    link::RingShape shape;    // no slots: the ring before is taken back
    std::uint64_t address = 0, key = 0;
    verbs::RemoteKeys keys; // without an id
};

// One side of a connection ends it.
struct Goodbye {
    bool idle = false;           // it only asks: nothing is under way there. Else its interface closes
    std::uint32_t delivered = 0; // number of the next message that it would have delivered
    std::uint16_t number = 0;    // of the question
};

// The kind of path that a transport is named after.
[[nodiscard]] constexpr path::Kind path_kind_of(Transport transport) {
    return transport == Transport::dc ? path::Kind::dc : path::Kind::rc;
}
// The kinds of paths of a sender whose messages say that it is of `transport`.
[[nodiscard]] constexpr path::Kinds kinds_of(const Terms& terms, Transport transport) {
    const path::Kinds told = terms.features & feature::kinds ? terms.kinds & path::Kinds::both : path::Kinds::none;
    if (told != path::Kinds::none) return told;
    return path::only(path_kind_of(transport));
}

} // namespace ucx_mp::connect
