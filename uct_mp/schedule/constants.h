// The constants of the default policy and of its estimate, all of them, each with its unit and its meaning.
// Those with a remark were varied in one experiment, 92 jobs drawn at random (seeds 1 to 50). They ran in virtual time,
// clean and with slow links. The mean is the geometric mean of best policy / default. The other constants are counted
// or estimated, and have not been varied.
#pragma once

namespace ucx_mp::schedule::constants {

// -- The cost of a stripe, beside its descriptor (default_policy.cc)
// Descriptors. A write over another adapter is followed by a marker there, which is a message at the peer. Counted.
inline constexpr double kMarker = 2;
// Descriptors. A reader goes on only when all stripes have been collected.
inline constexpr double kCollect = 0.5;
// Descriptors. A further route of an adapter: posting; it is collected while the message is under way.
inline constexpr double kOverRoutes = 0.5;
// Standard deviations by which a message over one route is late on average. Let other flows choose routes at random,
// one per route on average (Poisson). A flow then has 1.0 others on its route, and the logarithm of its rate scatters
// by 0.5: that is 2 of them. With 0.25 five exchanges of the papers on a fat tree take 1.0, 1.1, 1.2,
// 1.8 and 1.9 times as long. With 4 and 8 one of them takes 1.1 times as long. On the 92 jobs the mean is 0.006
// more with 0.25 than with 2.
inline constexpr double kRisk = 1.5;

// -- The rate of a path (standing.cc, path_table.cc)
// Samples of a path that count. With 8 the mean is the same (clean), and 0.003 more with slow links.
inline constexpr double kMemory = 16;
// Standard errors that a difference must exceed to be believed. With 3 the mean is 0.009 less on other jobs (seeds 101
// to 160), and 0.001 to 0.003 more on the first.
inline constexpr double kSure = 2;
// ns without a sample in which half of it is forgotten. A measured latency is forgotten after as long.
inline constexpr double kHalfLife = 20e6;
// Part of a new sample in the variance of all paths of a peer.
inline constexpr double kScatterGain = 1.0 / 32;
// Service times of a sample: others that are not older are compared with it.
inline constexpr double kCompared = 8;
// One part in so many of a delivery's time is service, at least: within a node there is no latency to take off.
inline constexpr double kLeastService = 4;

} // namespace ucx_mp::schedule::constants
