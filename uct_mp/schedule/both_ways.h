// Reads and writes on the same queue pairs: reads first.
//
// A queue pair sends in order. A read's request is tiny, and its answer fills the other direction of the
// link. But the request waits until the writes posted before it have been sent. So a program that writes
// and reads in turn has only one read outstanding at a time. When its data are here before our present
// write is out, the peer's link idles: it has nothing to carry for us. (16 + 16 per flush, both ways: 5 %
// of all links.) The other way round nothing is lost: a write behind a read's request waits for nothing.
//
// So while a peer is read from, writes wait for the next read. They do not wait if reads of as many bytes
// are under way already, or if the paths would run dry within chunk_time. The wait ends when progress finds
// the channel's next completion, or when a flush or fence comes. Only a few writes wait, and no very large
// ones: about until the program has issued its present operations. More writes wait once reads have come
// behind such writes, until none comes (Moving::patience). A first read that finds much before it teaches
// as much: an epoch of short writes would not fill the paths so far that one waits. (Dissertation ch. 5:
// reordering, so that both directions are filled.) Reads with queue pairs of their own need none of this.
#pragma once

#include "uct_mp/schedule/spray.h"

namespace ucx_mp::schedule {

// In this direction's view: the paths carry much in the other direction, too, or have done so just before.
[[nodiscard]] bool both_ways(const PathTable& paths, Direction d);

// How much of a write of `size` bytes is to be posted without waiting: all, nothing, or a multiple of two alignments
// that is worth its stripes.
[[nodiscard]] std::uint64_t write_ahead(const PathTable& paths, const SprayWindows& windows, const PolicyConfig& config,
                                        std::uint64_t size);

} // namespace ucx_mp::schedule
