// The constants of the default policy and of its estimate, all of them, each with its unit and its meaning.
// Those with a remark were varied in one experiment, 92 jobs drawn at random (seeds 1 to 50). They ran in virtual time,
// clean and with slow links. The mean is the geometric mean of best policy / default. The other constants are counted
// or estimated, and have not been varied.
#pragma once

namespace ucx_mp::schedule::constants {

// -- What a stripe costs, beside the descriptor that it is (default_policy.cc)
// Descriptors. A write over another adapter is followed by a marker there, which is a message at the peer. Counted.
inline constexpr double kMarker = 2;
// Descriptors. Whoever reads goes on only when all stripes have been collected.
inline constexpr double kCollect = 0.5;
// Descriptors. A further route of an adapter: posting; it is collected while the message is under way.
inline constexpr double kOverRoutes = 0.5;
// Share of the scatter by which a message over one route is late. With 0.5, 1 and 2 the mean is 0.004 to 0.007 less
// (clean).
inline constexpr double kRisk = 0.25;
// Completions that a message has: write, marker, and what tells of it. Counted; with 2 and 8 the mean is the same.
inline constexpr double kPerMessage = 4;

// -- The lane of small messages (default_policy.cc)
// ns until a measured latency is forgotten.
inline constexpr double kLatencyFades = 20e6;

// -- What a path gives (standing.cc, path_table.cc)
// Samples of a path that count. With 8 the mean is the same (clean), and 0.003 more with slow links.
inline constexpr double kMemory = 16;
// Standard errors that a difference must exceed to be believed. With 1 and 3 the mean differs by 0.002 at most.
inline constexpr double kSure = 2;
// ns without a sample in which half of it is forgotten.
inline constexpr double kHalfLife = 20e6;
// Part of a new sample in the variance of all paths of a peer.
inline constexpr double kScatterGain = 1.0 / 32;
// Service times of a sample: others that are not older are compared with it.
inline constexpr double kCompared = 8;
// One part in so many of a delivery's time is service, at least: within a node there is no latency to take off.
inline constexpr double kLeastService = 4;

} // namespace ucx_mp::schedule::constants
