// Reads and writes on the same queue pairs: reads first.
//
// A queue pair sends in order. A read's request is tiny, and what it asks for fills the other direction of the link;
// but it waits until the writes posted before it have been sent. Who writes and reads in turn has thus only one read
// outstanding at a time. If its data are all here before our present write is out, the peer's link has nothing of ours
// to carry; it idles if the peer is at the end of what it had to send itself. (16 + 16 per flush, both ways: 5 % of all
// links.) The other way round nothing is lost: a write behind a read's request waits for nothing.
//
// So while a peer is read from, writes wait for the next read, unless reads of as many bytes are under way already, or
// the paths would run dry within chunk_time. They wait no longer than until progress finds the channel's next
// completion, or a flush or fence comes; and only a few of them, none of the very large: more or less until the program
// has issued what it has at hand. (Dissertation ch. 5: reordering, so that both directions are filled.) Reads with
// queue pairs of their own need none of this.
#pragma once

#include "uct_mp/schedule/spray.h"

namespace ucx_mp::schedule {

// Of a direction's view: the paths carry much in the other direction, too, or have done so just before.
[[nodiscard]] bool both_ways(const PathTable& paths, Direction d);

// How much of a write of `size` bytes is to be posted without waiting: all, nothing, or a multiple of two alignments
// that is worth its stripes.
[[nodiscard]] std::uint64_t write_ahead(const PathTable& paths, const SprayWindows& windows, const PolicyConfig& config,
                                        std::uint64_t size);

} // namespace ucx_mp::schedule
