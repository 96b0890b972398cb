#include "uct_mp/schedule/path_state.h"

#include "uct_mp/schedule/constants.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace ucx_mp::schedule {

namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();
constexpr double kRateGain = 0.25;
constexpr double kLatencyGain = 0.125;
constexpr double kBaseRise = 1.0 / 1024; // so that a longer route is believed some day
constexpr double kMaxOverNominal = 4;    // completions of other queue pairs can make a gap look too short
constexpr double kMaxWeight = 1e12;
constexpr double kLeastSpent = 1e-6; // ns per byte
constexpr double kLeastRelative = 1e-3;
// Lateness: between the two gains about one completion of sixteen is later than believed.
constexpr double kLateRises = 1.0 / 4, kLateFalls = 1.0 / 64;
constexpr Nanos kMostLate = 10'000'000; // ns: some turns of a processor. A stop of seconds shows nothing
constexpr std::uint64_t kBeside = 16;   // parts of a stripe: small messages before it may be as long together

double clean(double value) { return std::isfinite(value) && value > 0 ? std::min(value, kMaxWeight) : 0; }

double clean_rate(double value) { return clean(value) < 1e-6 ? 0 : clean(value); } // < 1 KB/s: a mistake

} // namespace

PathTable::PathTable(std::span<const PathSetup> setup, Commons* commons)
    : commons_(commons), paths_(std::make_unique<Path[]>(std::min<std::size_t>(setup.size(), kMaxPaths))),
      size_(static_cast<unsigned>(std::min<std::size_t>(setup.size(), kMaxPaths))) {
    for (unsigned i = 0; i < size_; ++i) {
        Path& path = paths_[i];
        path.weight = clean(setup[i].weight);
        path.nominal_rate = clean_rate(setup[i].nominal_rate);
        path.latency = path.base_latency = clean(setup[i].latency);
        path.state = setup[i].state;
        if (schedule::usable(path.state)) usable_ |= PathMask{1} << i;
        if (setup[i].writes) meant_[0] |= PathMask{1} << i;
        if (setup[i].reads) meant_[1] |= PathMask{1} << i;
        total_weight_ += path.weight;
    }
    for (PathMask& meant : meant_)
        if (meant == 0) meant = meant_[0] | meant_[1];
    unsigned paths_of[kMaxRails] = {};
    for (unsigned i = 0; i < size_; ++i) {
        const unsigned rail = setup[i].rail % kMaxRails;
        paths_[i].rail = static_cast<std::uint8_t>(rail);
        rail_rate_[rail] = std::max(rail_rate_[rail], clean_rate(setup[i].rail_rate));
        shared_rails_ |= ++paths_of[rail] > 1 && rail_rate_[rail] > 0;
    }
    sort_usable();
    default_rate_ = default_rate();
}

void PathTable::sort_usable() {
    for (unsigned d = 0; d < 2; ++d) {
        const PathMask meant = usable_ & meant_[d] ? usable_ & meant_[d] : usable_;
        usable_for_[d] = meant & ~spare_ ? meant & ~spare_ : meant;
    }
}

void PathTable::set_spare(PathMask paths) {
    spare_ = paths;
    sort_usable();
}

void PathTable::inherit(PathIndex i, PathIndex from) {
    if (i >= size_ || from >= size_) return;
    paths_[i].ramp = std::max(paths_[i].ramp, paths_[from].ramp);
    for (const Direction d : {Direction::write, Direction::read}) {
        Account& account = paths_[i].of(d);
        const Account& known = paths_[from].of(d);
        if (known.sampled_at <= account.sampled_at) continue;
        account.sampled_at = known.sampled_at;
        account.rate = account.rate_before = known.rate;
        account.spent = known.spent;
        account.standing = known.standing;
        account.relative = known.relative;
    }
}

PathIndex PathTable::home(unsigned seed, Direction d) const {
    const auto one_of = [](PathMask left, unsigned which) {
        for (unsigned skip = which % static_cast<unsigned>(std::popcount(left)); skip; --skip) left &= left - 1;
        return *each(left).begin();
    };
    const PathIndex path = one_of(meant(d), seed);
    if (is_usable(path, d)) return path;
    // The peers of path k are k, k + n, k + 2n, ...: one after the other.
    const auto n = static_cast<unsigned>(std::popcount(meant(d)));
    return one_of(usable(d), seed % n + seed / n);
}

void PathTable::rates(PathMask mask, Direction d, double* out) const {
    unsigned k = 0;
    if (!shared_rails_) {
        for (PathIndex i : each(mask)) out[k++] = rate(i, d);
        return;
    }
    double sum[kMaxRails] = {};
    for (PathIndex i : each(mask)) sum[paths_[i].rail] += out[k++] = rate(i, d);
    k = 0;
    for (PathIndex i : each(mask)) {
        const unsigned rail = paths_[i].rail;
        if (rail_rate_[rail] > 0 && sum[rail] > rail_rate_[rail]) out[k] *= rail_rate_[rail] / sum[rail];
        ++k;
    }
}

double PathTable::default_rate() const {
    double sum = 0;
    unsigned known = 0;
    for (unsigned i = 0; i < size_; ++i) {
        if (paths_[i].nominal_rate > 0) sum += paths_[i].nominal_rate, ++known;
    }
    return known ? sum / known : 1;
}

Sample PathTable::settle(const Delivery& delivery) {
    if (delivery.path >= size_) return {};
    Path& path = paths_[delivery.path];
    Account& account = path.of(delivery.direction);
    account.in_flight -= std::min(account.in_flight, std::max(delivery.bytes, delivery.settled));
    if (path.ramp < 1) path.ramp = std::min(1.0, path.ramp * kRampGrowth);

    // Time stamps that run backwards, or a post after its completion: nothing to learn.
    if (delivery.t_done < delivery.t_post || delivery.t_done < account.last_done) return {};
    advance(delivery.t_done);
    settled_[static_cast<unsigned>(delivery.direction)] = delivery.path;
    const std::uint64_t quiet = std::exchange(account.quiet_bytes, 0);

    if (!delivery.teaches_rate()) {
        const auto done = static_cast<double>(delivery.t_done - delivery.t_post);
        if (done > 0) {
            path.latency += kLatencyGain * (done - path.latency);
            path.base_latency =
                done < path.base_latency ? done : path.base_latency + kBaseRise * (done - path.base_latency);
            path.latency_at = delivery.t_done;
            path.recent[path.latencies++ % Path::kRecent] = static_cast<float>(done);
        }
        account.sample_ns = 0; // ends a sample that might have been extended
        account.last_done = account.busy_from = delivery.t_done;
        return {};
    }

    // The time contains the latency and the backlog before, so it shows a lower bound. Within a node that exceeds
    // the link's rate. Times are averaged, not rates: two clocks that differ a little make a single time 0.
    if (path.nominal_rate > 0) {
        const double spent =
            static_cast<double>(delivery.t_done - delivery.t_post) / static_cast<double>(delivery.bytes);
        if (account.spent == 0) account.spent = 1 / path.nominal_rate;
        account.spent = std::max(kLeastSpent, account.spent + kRateGain * (spent - account.spent));
    }

    const bool found_together = delivery.t_done == account.last_done && account.sample_ns > 0;
    if (found_together) {
        account.sample_bytes += static_cast<double>(delivery.bytes);
    } else {
        const Nanos begin = std::max(delivery.t_post, account.last_done);
        if (delivery.t_done == begin && delivery.t_post < begin) return {};
        // A pipe of rate r and latency l: service ends l before the completion, and begins when the one before ended.
        // No completion comes sooner than the latency. A part of the whole time is service, however short it was.
        path.base_latency = std::min(path.base_latency, static_cast<double>(delivery.t_done - delivery.t_post));
        const auto whole = static_cast<double>(delivery.t_done - begin);
        const double since =
            std::min(whole, static_cast<double>(delivery.t_done - delivery.t_post) - path.base_latency);
        account.sample_bytes = static_cast<double>(delivery.bytes);
        account.sample_ns = std::max(1.0, whole); // 0: within the node
        account.sample_service_ns = std::max({1.0, since, whole / constants::kLeastService});
        account.rate_before = account.rate;
        account.last_done = delivery.t_done;
        account.busy_from = delivery.t_done;
    }
    // A completion that covers unsignaled messages, or follows quiet ones, says nothing about the rate:
    // we do not know when they were posted. Short ones do not matter. The message that tells of a write
    // is one, and always takes the same path: without its samples that path would never be compared.
    const std::uint64_t beside = quiet + delivery.settled - std::min(delivery.settled, delivery.bytes);
    const bool alone = beside <= delivery.bytes / kBeside;
    if (alone)
        account.sample_bytes += static_cast<double>(beside);
    else
        account.sample_service_ns = 0; // nothing for others to be compared with
    if (alone && account.sample_service_ns > 0) {
        double rate = account.sample_bytes / account.sample_service_ns;
        if (path.nominal_rate > 0) rate = std::min(rate, kMaxOverNominal * path.nominal_rate);
        account.rate = account.rate_before > 0 ? account.rate_before + kRateGain * (rate - account.rate_before) : rate;
        account.sampled_at = delivery.t_done;
        if (size_ > 1) compare(delivery.path, delivery.direction);
    }
    return {account.sample_bytes, account.sample_ns};
}

double Path::typical_latency() const {
    const auto count = static_cast<std::ptrdiff_t>(std::min(latencies, kRecent));
    if (count == 0) return latency;
    float sorted[kRecent];
    std::copy_n(recent, count, sorted);
    std::nth_element(sorted, sorted + count / 2, sorted + count);
    return sorted[count / 2];
}

void PathTable::forget_latencies() {
    for (unsigned i = 0; i < size_; ++i) paths_[i].latencies = 0;
}

PathIndex PathTable::take_settled(Direction d) {
    const PathIndex path = std::exchange(settled_[static_cast<unsigned>(d)], kNoPath);
    if (path == kNoPath) return path;
    const Nanos done = paths_[path].of(d).last_done;
    const double late = now_ > done ? static_cast<double>(std::min(now_ - done, kMostLate)) : 0;
    late_ += (late > late_ ? kLateRises : kLateFalls) * (late - late_);
    return path;
}

// Rates of paths can be compared only where they have shared rail and fabric: within some times the sample's own.
void PathTable::compare(PathIndex at, Direction d) {
    Account& account = paths_[at].of(d);
    if (paths_[at].nominal_rate <= 0) return;
    // Routes of our port that were in use meanwhile had a part of its rate, whatever they can.
    const auto began = static_cast<Nanos>(static_cast<double>(account.sampled_at) - account.sample_service_ns);
    unsigned sharing = 0;
    for (PathIndex i : each(usable(d) | PathMask{1} << at)) // it may be suspect, or spare, by now
        sharing += paths_[i].rail == paths_[at].rail &&
                   (i == at || paths_[i].of(d).in_flight > 0 || paths_[i].of(d).last_done > began);
    const double part = account.sample_bytes / account.sample_service_ns / paths_[at].nominal_rate;
    account.pace = std::log(std::min(part * (shared_rails_ ? sharing : 1), kMaxOverNominal));
    double fastest = account.pace, best[2] = {kNone, kNone};  // best: beside others, alone
    double among = account.relative;                          // the most that one of them is believed to give
    double level = account.pace - std::log(account.relative); // sum of the paces less what is believed
    unsigned count = 1;
    for (PathIndex i : each(usable(d))) {
        const Account& other = paths_[i].of(d);
        if (i == at || paths_[i].nominal_rate <= 0) continue;
        if (other.standing.alone() && other.standing.counts(account.sampled_at))
            best[1] = std::max(best[1], other.standing.mean());
        if (other.sample_service_ns <= 0) continue;
        best[0] = std::max(best[0], other.standing.alone() ? 0 : other.standing.mean());
        const Nanos age = account.sampled_at - std::min(other.sampled_at, account.sampled_at);
        if (static_cast<double>(age) > constants::kCompared * account.sample_service_ns) continue;
        fastest = std::max(fastest, other.pace);
        among = std::max(among, other.relative);
        if (other.relative < 1) level += other.pace - std::log(other.relative);
        ++count;
    }
    const auto k = static_cast<unsigned>(d);
    const double within = constants::kCompared * account.sample_service_ns;
    double beside = 0;
    const bool recent = commons_ && commons_->pace[k].learn(account.pace, account.sampled_at, within, beside);
    const bool alone = count == 1;
    if (alone && (!recent || (!account.standing.alone() && account.standing.counts(account.sampled_at)))) return;
    // If only slow paths are compared, as in the end of a burst, they stay as slow as they are on average. The fastest
    // of them would be so by chance. But none that gives its link's rate is slow.
    if (!alone && among == 1) beside = account.pace - fastest;
    if (!alone && among < 1) beside = std::max(account.pace - level / count, std::min(0.0, std::log(part)));
    Scatter& scatter = alone ? commons_->alone[k] : scatter_[k];
    const bool was_tried = account.relative < 1 && account.standing.rested(account.sampled_at);
    if (commons_ && was_tried && best[alone] > kNone && Standing::level(beside, best[alone], scatter))
        commons_->tried_at = 0;
    account.standing.learn(beside, account.sampled_at, scatter, alone ? std::max(1U, commons_->turns) : 0);
    if (commons_ && !alone) commons_->port[paths_[at].rail][k].learn(beside, account.sampled_at, commons_->scatter[k]);
    account.relative = std::max(kLeastRelative, std::exp(account.standing.behind(best[alone], scatter)));
}

void PathTable::begin() {
    if (!commons_) return;
    for (unsigned d = 0; d < 2; ++d) {
        double best = -std::numeric_limits<double>::infinity();
        for (unsigned i = 0; i < size_; ++i)
            if (const Standing& port = commons_->port[paths_[i].rail][d]; port.known())
                best = std::max(best, port.mean());
        for (unsigned i = 0; i < size_; ++i) {
            const Standing& port = commons_->port[paths_[i].rail][d];
            Account& account = paths_[i].account[d];
            if (port.known() && !account.standing.known())
                account.relative = std::max(kLeastRelative, std::exp(port.behind(best, commons_->scatter[d])));
        }
    }
}

void PathTable::set_rail(PathIndex path, std::uint8_t rail) {
    paths_[path].rail = rail % kMaxRails;
    find_shared_rails();
}

void PathTable::set_rail_rate(std::uint8_t rail, double rate) {
    double& known = rail_rate_[rail % kMaxRails];
    known = std::max(known, clean_rate(rate));
    find_shared_rails();
}

void PathTable::find_shared_rails() {
    unsigned paths_of[kMaxRails] = {};
    shared_rails_ = false;
    for (unsigned i = 0; i < size_; ++i)
        shared_rails_ |= ++paths_of[paths_[i].rail] > 1 && rail_rate_[paths_[i].rail] > 0;
}

bool PathTable::set_state(PathIndex i, PathState state) {
    if (i >= size_) return false;
    Path& path = paths_[i];
    if (path.state == state) return true;
    const PathState before = path.state;
    path.state = state;
    const PathMask bit = PathMask{1} << i;
    usable_ = schedule::usable(state) ? usable_ | bit : usable_ & ~bit;
    sort_usable();
    path.carry = 0;
    if (state == PathState::down || (schedule::usable(state) && before != PathState::suspect)) {
        path.account[0] = path.account[1] = {};
        path.latency = path.base_latency;
    }
    if (schedule::usable(state)) path.ramp = before == PathState::suspect ? path.ramp : kReentryRamp;
    return true;
}

bool PathTable::set_weight(PathIndex i, double weight) {
    if (i >= size_) return false;
    total_weight_ += clean(weight) - paths_[i].weight;
    paths_[i].weight = clean(weight);
    return true;
}

bool PathTable::set_nominal_rate(PathIndex i, double rate) {
    if (i >= size_) return false;
    paths_[i].nominal_rate = clean_rate(rate);
    default_rate_ = default_rate();
    return true;
}

} // namespace ucx_mp::schedule
