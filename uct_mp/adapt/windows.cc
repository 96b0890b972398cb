#include "uct_mp/adapt/windows.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ucx_mp::adapt {

Windows::Windows(const Tuning& tuning, Nanos now)
    : tuning_(tuning), interval_(std::min(tuning.min_interval, tuning.interval)), begin_(now), end_(now) {
    counts_.restart(now);
}

bool Windows::end_slice(Nanos now, std::vector<Counts::Entry> entries) {
    counts_.add(now, std::move(entries));
    return ++slices_ % Tuning::kSlices == 0; // also if nobody looks yet
}

void Windows::set_interval(Nanos interval) {
    interval_ = std::clamp(interval, std::min(tuning_.min_interval, tuning_.interval), tuning_.interval);
}

Windows::Candidate Windows::try_window(Nanos begin, const Mapping& present,
                                       const std::vector<std::uint32_t>& refusing) const {
    std::vector<Source> sources = counts_.since(begin);
    double messages = 0;
    for (Source& source : sources) {
        messages += source.count;
        source.now = present.of(source.id);
        source.refuses_rc = std::ranges::binary_search(refusing, source.id);
    }
    Candidate found{.map = find_map(sources, tuning_.costs, tuning_.limits), .gain = 0};
    // Sums in another order differ by rounding: that is no gain.
    constexpr double kRounding = 1e-9;
    const double kept = value(present, sources, tuning_.costs, tuning_.limits), more = found.map.gain - kept;
    if (more > kRounding * std::abs(kept)) found.gain = more / messages; // more than nothing: there are messages
    return found;
}

Windows::Verdict Windows::look(const Mapping& present, const std::vector<std::uint32_t>& refusing) {
    const Nanos now = counts_.end();
    slices_ = 0;
    idle_ = idle_ && present.choices.empty();
    Candidate extended = try_window(begin_, present, refusing);
    Verdict verdict{.map = {}, .extended_gain = extended.gain};
    if (first_ && counts_.since(begin_).empty()) { // nobody has sent yet
        begin_ = end_ = now;
        counts_.restart(now);
        return verdict;
    }
    if (std::exchange(first_, false) && present.choices.empty()) { // the first map is taken whatever it saves
        end_ = now;
        verdict.why = Why::first;
        idle_ = extended.map.choices.empty();
        verdict.map = std::move(extended.map);
        return verdict;
    }
    const Nanos least = 2 * (interval_ / Tuning::kSlices);
    const Nanos half = std::max((end_ - begin_) / 2, least);
    const Nanos short_begin = now - std::min(half, now - begin_);
    Candidate shrunk = try_window(short_begin, present, refusing);
    verdict.shrunk_gain = shrunk.gain;
    end_ = now;
    if (std::max(extended.gain, shrunk.gain) <= least_gain()) {
        set_interval(2 * interval_);
        return verdict;
    }
    idle_ = false;
    if (shrunk.gain > extended.gain) {
        verdict.why = Why::shrunk;
        verdict.map = std::move(shrunk.map);
        begin_ = short_begin;
        counts_.forget(begin_);
        set_interval(interval_ / 2);
    } else {
        verdict.why = Why::extended;
        verdict.map = std::move(extended.map);
    }
    return verdict;
}

} // namespace ucx_mp::adapt
