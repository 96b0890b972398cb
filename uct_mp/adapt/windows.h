// When another map is worth its price: the extended and the shrunk time window (AQPS 3.4, T1 to T4).
//
// The current window is the one that the present map was found for. At each look it is extended to now, and a short one
// of half its length that ends now is tried as well. If the best map of either saves enough more than the present one,
// it is taken, and its window becomes the current one.
//
// Where AQPS is silent or can be bettered:
// - If neither wins, the current window is extended to now. Else the short one would keep its length for ever.
// - The short one has two slices or more.
// - A service that exists already is not charged again (find_map()).
// - While no peer has been given anything, the first map is taken, whatever it saves, also by a later look.
// - The interval is halved when the pattern changes, and doubled when nothing does. So phases of some 10 ms are seen.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <vector>

#include "uct_mp/adapt/counts.h"
#include "uct_mp/adapt/map.h"
#include "uct_mp/adapt/parameters.h"

namespace ucx_mp::adapt {

class Windows {
public:
    enum class Why : std::uint8_t { nothing, first, extended, shrunk };
    struct Verdict {
        Why why = Why::nothing; // nothing: the present map stays
        Mapping map;
        double extended_gain = 0, shrunk_gain = 0; // ns a message, against the present map
    };

    Windows(const Tuning& tuning, Nanos now);

    [[nodiscard]] Nanos slice_end() const { return counts_.end() + interval_ / Tuning::kSlices; }
    // Adds the messages of the slice that ends now, by id. True: look() now.
    [[nodiscard]] bool end_slice(Nanos now, std::vector<Counts::Entry> entries);
    // `present`: the sources' services now. `refusing`: those that will not take RC for now, by id.
    [[nodiscard]] Verdict look(const Mapping& present, const std::vector<std::uint32_t>& refusing);

    // The sources with their present numbers.
    void set(const Costs& costs, const Limits& limits) { tuning_.costs = costs, tuning_.limits = limits; }

    [[nodiscard]] Nanos interval() const { return interval_; }
    [[nodiscard]] Nanos begin() const { return begin_; } // of the current window
    [[nodiscard]] const Counts& counts() const { return counts_; }
    // The gain that another map must have now, ns a message.
    [[nodiscard]] double least_gain() const { return idle_ ? 0 : tuning_.least_gain; }

private:
    struct Candidate {
        Mapping map;
        double gain; // a message
    };
    [[nodiscard]] Candidate try_window(Nanos begin, const Mapping& present,
                                       const std::vector<std::uint32_t>& refusing) const;
    void set_interval(Nanos interval);

    Tuning tuning_;
    Counts counts_;
    Nanos interval_;
    Nanos begin_, end_;   // of the current window [beta, epsilon)
    unsigned slices_ = 0; // since the last look
    bool first_ = true;
    bool idle_ = true; // no peer has been given anything yet: the first map is taken whatever it saves
};

[[nodiscard]] constexpr const char* name(Windows::Why why) {
    constexpr const char* kNames[] = {"nothing", "first", "extended", "shrunk"};
    return kNames[static_cast<unsigned>(why)];
}

} // namespace ucx_mp::adapt
