// Spray: a large message is pulled in chunks; the path with room takes the next one, so a slow path takes fewer. No
// estimate decides who gets traffic, only how much may be under way.
//
// Window of a path = window_chunks x chunk + 2 x rate x latency, x window_scale, + 2 x rate x late.
// - Two chunks keep a path busy while one completion is on its way.
// - Twice rate x latency lets an underestimated rate show: as soon as the window is full, the gaps between completions
//   measure the true one, as in BBR.
// - window_scale grows when a path was found dry in the middle of a transfer, because the caller polls too seldom.
//   Nothing was under way, or the completion just found came so long ago that the rest must be done, too.
// - late: how long completions lie before they are found, by their time stamps
//   (PathTable::late()). A processor that computes, or is shared, comes at no fixed time. Twice
//   that time, 20 ms at most, keeps a path busy until then, whatever its window has been.
// Chunk of a path = rate x chunk_time, so that all paths work equally long at one. It grows with the window: a
// processor that comes seldom has no time for many small ones. Tail: no path takes more than its fair part of what
// remains, other transfers that wait included (all done at the same time, by present estimates). So the last pieces of
// a burst shrink and end together, and those of each transfer in it do not. A path takes nothing if its least piece
// would be done later than the others with all that remains: a slow path never holds the last chunk. Paths whose rate
// was not measured for probe_interval are tried at a message's start, where a wrong guess costs nothing. Factoring
// (half of the fair part at a time, Hummel/Schonberg/Flynn 1992) was measured, too. It took twice the chunks for the
// same result, as the windows bound what a wrong estimate can cost.
#pragma once

#include "uct_mp/schedule/load_balanced.h"

namespace ucx_mp::schedule {

class SprayWindows {
public:
    explicit SprayWindows(const PolicyConfig& config) : config_(&config) {}

    // Takes the next chunk off the transfer and puts it on the path that will be done with it first; the
    // chunk is in the path's account then. False: nothing left, no path has room, or the rest is better
    // left to a busy path; ask again after the next completion or path change. While something is left
    // and a path is usable, false means that the window of a usable path is full. Small messages may fill
    // it, which ask for a completion only now and then. So the caller must see to it that one comes.
    bool next(PathTable& paths, Transfer& transfer, Stripe& chunk) const;
    // Bytes that may be in flight on a path, and the size of its chunks in the middle of a transfer.
    // (rate: PathTable::rate).
    [[nodiscard]] double window(const PathTable& paths, const Path& path, Direction d, double rate) const;
    [[nodiscard]] double chunk(const PathTable& paths, const Path& path, Direction d, double rate) const;
    [[nodiscard]] double chunk(double rate) const; // where the window has not grown

private:
    const PolicyConfig* config_;
};

// The plain policy: large messages are sprayed, small ones go in windows over all paths.
class Spray : public Unlearning {
public:
    Spray(const PolicyConfig& config, unsigned seed) : config_(&config), turns_(seed) {}
    Lane next_lane(PathTable& paths, Direction d) { return turns_.next(paths, config_->window, d); }
    Outcome split(PathTable&, const Message&, Plan&) { return Outcome::pull; }

private:
    const PolicyConfig* config_;
    Turns turns_;
};

} // namespace ucx_mp::schedule
