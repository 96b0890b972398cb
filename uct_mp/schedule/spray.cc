#include "uct_mp/schedule/spray.h"

#include <algorithm>
#include <limits>

namespace ucx_mp::schedule {

namespace {

constexpr double kMaxScale = 16;
constexpr double kScaleUp = 1.5;
constexpr double kScaleDecay = 0.998; // per chunk
// Windows last for so many times as long as completions lie, so that a path
// is not dry when the next one is found late, and hold so many chunks for it.
constexpr double kLateTimes = 2, kLateChunks = 8;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

struct View {
    View() {}
    unsigned count = 0;
    PathIndex path[kMaxPaths];
    double rate[kMaxPaths];
    double ready[kMaxPaths];
};

// When all of the view's paths but `without` would be done with `bytes` more: the common level of those that share.
double level(const View& view, double bytes, unsigned without) {
    double time = kInfinite;
    for (;;) { // each turn leaves out the paths that are busy beyond the level of the turn before; few turns
        double work = bytes, rates = 0;
        for (unsigned k = 0; k < view.count; ++k) {
            if (k == without || view.ready[k] >= time) continue;
            work += view.rate[k] * view.ready[k];
            rates += view.rate[k];
        }
        if (rates == 0) return time;
        const double next = work / rates;
        if (!(next < time)) return time;
        time = next;
    }
}

// Whether nothing is left under way, as far as can be known. Several completions may wait to be found; the first
// one asks while the others still count. If it came so long ago they are done as well. Only the completion that has
// just been found says so; later the time since the last one grows because the path is slow. Bytes that are posted
// at this same moment count. So one time away grows a window, completion by completion, until it covers that time.
bool is_dry(const PathTable& paths, const Account& account, double rate, bool found) {
    if (account.in_flight == 0) return true;
    return found && paths.now() > account.last_done &&
           static_cast<double>(paths.now() - account.last_done) * rate >= static_cast<double>(account.in_flight);
}

} // namespace

double SprayWindows::chunk(double rate) const {
    return std::clamp(rate * config_->chunk_time, static_cast<double>(config_->min_chunk),
                      static_cast<double>(config_->max_chunk));
}

// A window that has grown holds window_chunks^2 chunks (4 by default): each costs the processor that comes too seldom.
double SprayWindows::chunk(const PathTable& paths, const Path& path, Direction d, double rate) const {
    const double grown = chunk(rate) * std::max(1.0, path.of(d).window_scale / config_->window_chunks);
    return std::min(static_cast<double>(config_->max_chunk),
                    std::max(grown, kLateTimes * rate * paths.late() / kLateChunks));
}

double SprayWindows::window(const PathTable& paths, const Path& path, Direction d, double rate) const {
    return (config_->window_chunks * chunk(rate) + 2 * rate * path.base_latency) * path.of(d).window_scale +
           kLateTimes * rate * paths.late();
}

bool SprayWindows::next(PathTable& paths, Transfer& transfer, Stripe& out) const {
    const std::uint64_t remaining = transfer.remaining();
    if (remaining == 0) return false;
    const Direction d = transfer.direction;
    const auto bytes = static_cast<double>(remaining);
    const auto least = static_cast<double>(config_->min_chunk);
    const PathIndex settled = paths.take_settled(d);

    View view;
    bool any_full = false;
    PathMask room = 0; // by position in the view
    paths.rates(paths.usable(d), d, view.rate);
    for (PathIndex i : each(paths.usable(d))) {
        const double rate = view.rate[view.count];
        const bool full = static_cast<double>(paths[i].of(d).in_flight) >= window(paths, paths[i], d, rate);
        any_full |= full;
        if (!full) room |= PathMask{1} << view.count;
        view.path[view.count++] = i;
    }
    if (room == 0) return false; // the usual answer while the windows are full: no division up to here
    for (unsigned k = 0; k < view.count; ++k) view.ready[k] = paths.ready(view.path[k], d, view.rate[k]);
    // Transfers that wait behind it keep the paths busy, too: its end is not the end of all.
    const double load = bytes + static_cast<double>(transfer.behind);
    const double all = level(view, load, kMaxPaths);

    unsigned best = *each(room).begin();
    double best_done = kInfinite, best_piece = 0;
    for (unsigned k : each(room)) {
        const double part = view.rate[k] * (all - view.ready[k]);
        const double piece =
            std::min({bytes, chunk(paths, paths[view.path[k]], d, view.rate[k]), std::max(part, least / 2)});
        const double done = view.ready[k] + piece / view.rate[k];
        if (k == best || done < best_done) best = k, best_done = done, best_piece = piece;
    }
    const PathIndex path = view.path[best];
    Account& account = paths[path].of(d);

    if (transfer.offset == 0 && remaining >= 4 * config_->min_chunk) {
        const PathIndex stale = stale_path(paths, PathMask{1} << path, d, config_->probe_interval);
        if (stale != kNoPath) {
            out = {.offset = 0, .length = config_->min_chunk, .path = stale};
            transfer.offset = config_->min_chunk;
            paths.place(stale, d, out.length);
            return true;
        }
    }
    // The others will be done sooner. This holds only if one of them has
    // a full window: then a completion is sure to come and to ask again.
    if (any_full && best_done > level(view, load, best)) {
        transfer.fed &= ~(PathMask{1} << path);
        return false;
    }

    // Whole alignments, and no crumbs.
    auto length = static_cast<std::uint64_t>(std::min(best_piece, 0x1p62));
    length = (length + config_->alignment / 2) / config_->alignment * config_->alignment;
    if (length == 0 || length >= remaining || remaining - length < config_->min_chunk / 2) length = remaining;

    // Dry in mid-transfer: its last completion was found too late. Give it more to do next time. (Idle before its first
    // piece, or because the others were sooner: that is no reason. Windows without reason jam switches.)
    const PathMask bit = PathMask{1} << path;
    const bool fed = transfer.fed & bit;
    transfer.fed |= bit;
    if (fed && account.last_done != 0 && is_dry(paths, account, view.rate[best], path == settled)) {
        account.window_scale = std::min(kMaxScale, account.window_scale * kScaleUp);
    } else {
        account.window_scale = std::max(1.0, account.window_scale * kScaleDecay);
    }
    out = {.offset = transfer.offset, .length = length, .path = path};
    transfer.offset += length;
    paths.place(path, d, length);
    return true;
}

} // namespace ucx_mp::schedule
