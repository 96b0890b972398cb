// What must hold whatever happens: random paths, weights, messages, completions, faults. TESTS_SEED repeats a
// run.
#define BOOST_TEST_MODULE schedule_properties
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include "schedule/schedule_fixture.h"

using namespace ucx_mp::schedule;
using namespace ucx_mp::schedule::test;

namespace {

const char* const kPolicies[] = {"default",
                                 "binding",
                                 "round_robin",
                                 "weighted_rr",
                                 "window_rr",
                                 "even",
                                 "weighted",
                                 "adaptive",
                                 "bss",
                                 "bss:n_batch=5,n_paths=7",
                                 "epc",
                                 "load_balanced",
                                 "spray",
                                 "even:alignment=4096,min_stripe=16K",
                                 "default:min_stripe=64K,min_chunk=64,alignment=1"};

#ifdef NDEBUG
constexpr unsigned kRuns = 30, kMessages = 2000;
#else
constexpr unsigned kRuns = 6, kMessages = 500; // unoptimised, sanitized
#endif

unsigned seed() {
    if (const char* s = std::getenv("TESTS_SEED")) return unsigned(std::atoi(s));
    return unsigned(std::chrono::system_clock::now().time_since_epoch().count() % 1000000);
}

struct Random : std::mt19937_64 {
    using std::mt19937_64::mt19937_64;
    std::uint64_t below(std::uint64_t n) { return (*this)() % n; }
    bool one_in(unsigned n) { return below(n) == 0; }
    std::uint64_t size() {
        switch (below(8)) {
        case 0:
            return below(3);
        case 1:
            return (std::uint64_t{1} << below(50)) - below(2);
        case 2:
            return below(std::uint64_t{1} << 40);
        default:
            return below(std::uint64_t{1} << (10 + below(14)));
        }
    }
    double weight() {
        constexpr double kOdd[] = {
            0, -1, 1e300, 1e-300, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()};
        return one_in(10) ? kOdd[below(6)] : double(1 + below(100));
    }
};

struct Flying {
    PathIndex path;
    Direction direction;
    std::uint64_t bytes;
    Nanos posted;
};

// Drives one scheduler at random and keeps books of its own.
class Run {
public:
    Run(const std::string& name, unsigned seed) : rnd_(seed), config_(policy(name)) {
        setup_.resize(1 + (rnd_.one_in(4) ? rnd_.below(kMaxPaths) : rnd_.below(8)));
        for (PathSetup& s : setup_) {
            s = {rnd_.weight(), rnd_.one_in(3) ? rnd_.weight() : 1.0, double(rnd_.below(10000)), PathState::up};
        }
        if (rnd_.one_in(3))
            for (PathSetup& s : setup_) s.writes = rnd_.one_in(2), s.reads = !s.writes || rnd_.one_in(4);
        scheduler_ = std::make_unique<Scheduler>(config_, setup_, unsigned(rnd_()));
        learns_ = config_.kind == PolicyKind::adaptive || config_.kind == PolicyKind::bss;
    }

    std::string go(unsigned steps) {
        for (unsigned i = 0; i < steps && wrong_.empty(); ++i) {
            now_ += rnd_.below(100000);
            switch (rnd_.below(12)) {
            case 0:
                change_state();
                break;
            case 1:
            case 2:
            case 3:
            case 4:
            case 5:
                complete();
                break;
            case 6:
                pull_some();
                break;
            default:
                send();
                break;
            }
            check();
        }
        return wrong_;
    }

private:
    const PathTable& paths() const { return scheduler_->paths(); }
    void fail(const std::string& what) {
        if (wrong_.empty()) wrong_ = what;
    }
    void fly(PathIndex path, Direction d, std::uint64_t bytes) {
        flying_.push_back({path, d, bytes, now_});
        booked_[path][unsigned(d)] += bytes;
    }

    void send() {
        const Message message{rnd_.size(), static_cast<MessageKind>(rnd_.below(4)),
                              static_cast<TrafficHint>(rnd_.below(5)), rnd_.one_in(3) ? 0 : now_};
        const Direction d = direction(message.kind);
        const Outcome outcome = scheduler_->plan(message, plan_);
        if ((outcome == Outcome::no_path) != (paths().usable() == 0)) return fail("no_path is not what it says");
        if (outcome == Outcome::pull) transfers_.push_back({message.size, d});
        if (outcome != Outcome::stripes) return;
        fail_if(wrong_with(plan_, message.size, paths(), d));
        if (!divisible(message.kind) && plan_.count != 1) return fail("cut what must not be cut");
        for (unsigned k = 0; k < plan_.count; ++k) {
            const Stripe& s = plan_.stripes[k];
            const bool is_short = config_.kind == PolicyKind::default_policy && message.size < config_.stripe_threshold;
            const std::uint64_t least = is_short ? config_.min_stripe / 2 : config_.min_stripe;
            if (plan_.count > 1 && s.length + config_.alignment < std::min(least, message.size)) {
                fail("stripe of " + std::to_string(s.length));
            }
            if (s.offset % config_.alignment != 0) fail("cut at " + std::to_string(s.offset));
            fly(s.path, d, s.length);
        }
    }
    void fail_if(const std::string& what) {
        if (!what.empty()) fail(what);
    }

    void pull_some() {
        for (Transfer& t : transfers_) {
            Stripe chunk;
            for (int i = 0; i < 10 && t.remaining() > 0; ++i) {
                const std::uint64_t at = t.offset;
                bool full = false; // a window is two chunks at least
                for (PathIndex p : each(paths().usable(t.direction))) {
                    full |= paths()[p].of(t.direction).in_flight >= 2 * config_.min_chunk;
                }
                if (!scheduler_->next(t, now_, chunk)) {
                    if (!full && paths().usable() != 0) fail("refused though no window was full");
                    break;
                }
                if (chunk.offset != at || chunk.length == 0 || t.offset != at + chunk.length || t.offset > t.size ||
                    !paths().is_usable(chunk.path, t.direction)) {
                    fail("bad chunk");
                }
                fly(chunk.path, t.direction, chunk.length);
            }
        }
        std::erase_if(transfers_, [](const Transfer& t) { return t.remaining() == 0; });
        if (transfers_.size() > 10) transfers_.clear();
    }

    void complete() {
        for (unsigned n = 1 + unsigned(rnd_.below(8)); n > 0 && !flying_.empty(); --n) {
            const std::size_t k = rnd_.below(std::min<std::uint64_t>(flying_.size(), 8));
            const Flying f = flying_[k];
            flying_.erase(flying_.begin() + long(k));
            booked_[f.path][unsigned(f.direction)] -= f.bytes;
            if (rnd_.one_in(20)) {
                scheduler_->cancel(f.path, f.direction, f.bytes);
                continue;
            }
            Nanos done = now_; // mostly in order, sometimes not, sometimes at once, sometimes nonsense
            if (rnd_.one_in(10)) done = f.posted - std::min(f.posted, rnd_.below(1000));
            if (rnd_.one_in(10)) done = f.posted;
            if (rnd_.one_in(10)) done = now_ - std::min(now_, rnd_.below(200000));
            scheduler_->observe({f.path, f.direction, f.bytes, f.bytes, f.posted, done});
        }
    }

    void change_state() {
        const auto path = static_cast<PathIndex>(rnd_.below(setup_.size()));
        const PathState state = rnd_.one_in(2) ? PathState::up : static_cast<PathState>(rnd_.below(5));
        const bool back = usable(state) && !paths().is_usable(path) && paths()[path].state != PathState::suspect;
        const bool changed = paths()[path].state != state;
        scheduler_->set_state(path, state);
        if (!changed || !(back || state == PathState::down)) return;
        std::erase_if(flying_, [&](const Flying& f) { return f.path == path; }); // recovery's business now
        booked_[path][0] = booked_[path][1] = 0;
    }

    void check() {
        double sum = 0;
        for (PathIndex i = 0; i < paths().size(); ++i) {
            for (Direction d : {Direction::write, Direction::read}) {
                const Account& account = paths()[i].of(d);
                if (account.in_flight != booked_[i][unsigned(d)]) return fail("account of path " + std::to_string(i));
                if (!std::isfinite(account.rate) || account.rate < 0) return fail("rate");
            }
            const Path& p = paths()[i];
            for (double v : {p.weight, p.latency, p.base_latency, p.ramp, p.carry, p.turn}) {
                if (!std::isfinite(v)) return fail("a number of path " + std::to_string(i) + " is not finite");
            }
            if (paths().is_usable(i)) sum += p.weight;
        }
        if (learns_ && paths().usable() != 0 && paths().total_weight() > 0 &&
            std::abs(sum - paths().total_weight()) > 1e-6 * paths().total_weight()) {
            fail("weights sum up to " + std::to_string(sum) + ", not " + std::to_string(paths().total_weight()));
        }
    }

    Random rnd_;
    PolicyConfig config_;
    std::vector<PathSetup> setup_;
    std::unique_ptr<Scheduler> scheduler_;
    bool learns_ = false;
    Plan plan_;
    Nanos now_ = 1000;
    std::vector<Flying> flying_;
    std::uint64_t booked_[kMaxPaths][2] = {};
    std::vector<Transfer> transfers_;
    std::string wrong_;
};

} // namespace

BOOST_AUTO_TEST_CASE(books_balance_and_stripes_cover) {
    const unsigned first = seed();
    BOOST_TEST_MESSAGE("seed " << first);
    for (const char* name : kPolicies) {
        for (unsigned s = first; s < first + kRuns; ++s) {
            const std::string wrong = Run(name, s).go(1500);
            BOOST_TEST_REQUIRE(wrong == "", name << ", TESTS_SEED=" << s << ": " << wrong);
        }
    }
}

BOOST_AUTO_TEST_CASE(no_usable_path_is_skipped_for_ever) {
    const unsigned first = seed();
    BOOST_TEST_MESSAGE("seed " << first);
    for (const char* name : kPolicies) {
        const PolicyConfig config = policy(name);
        if (config.kind == PolicyKind::binding || config.n_paths != 0) continue; // that's what they are for
        for (unsigned s = first; s < first + std::max(2U, kRuns / 6); ++s) {
            Random rnd(s);
            const unsigned n = 2 + unsigned(rnd.below(11));
            std::vector<PathSetup> setup(n, {1, 1, 2000, PathState::up});
            for (PathSetup& p : setup) p.weight = double(1 + rnd.below(20));
            Scheduler scheduler(config, setup, s);
            std::vector<double> speed(n);
            Plan plan;
            Nanos now = 1000;
            for (int phase = 0; phase < 6; ++phase) {
                for (double& v : speed) v = 1.0 / double(1 + rnd.below(50)); // whoever was slow may be fast now
                PathMask used = 0;
                for (unsigned i = 0; i < kMessages; ++i) {
                    const std::uint64_t size = 32768 + rnd.below(1 << 20);
                    std::vector<Stripe> stripes;
                    std::vector<Nanos> free(n, now);
                    if (scheduler.plan({size, MessageKind::put, TrafficHint::none, now}, plan) == Outcome::stripes) {
                        stripes.assign(plan.stripes, plan.stripes + plan.count);
                    } else {
                        // One chunk after the other completes, at its path's speed.
                        Transfer t{size};
                        std::vector<std::pair<Nanos, Stripe>> busy;
                        Nanos at = now;
                        for (;;) {
                            Stripe c;
                            while (scheduler.next(t, at, c)) {
                                used |= PathMask{1} << c.path;
                                free[c.path] = std::max(free[c.path], at) + Nanos(double(c.length) / speed[c.path]);
                                busy.push_back({free[c.path] + 2000, c});
                            }
                            if (busy.empty()) break;
                            const auto next = std::min_element(busy.begin(), busy.end(),
                                                               [](auto& a, auto& b) { return a.first < b.first; });
                            at = next->first;
                            const Stripe d = next->second;
                            busy.erase(next);
                            scheduler.observe({d.path, Direction::write, d.length, d.length, now, at});
                        }
                        BOOST_TEST_REQUIRE(t.remaining() == 0u);
                        now = at + 1000;
                        continue;
                    }
                    Nanos end = now;
                    for (const Stripe& c : stripes) {
                        used |= PathMask{1} << c.path;
                        const Nanos done = now + 2000 + Nanos(double(c.length) / speed[c.path]);
                        scheduler.observe({c.path, Direction::write, c.length, c.length, now, done});
                        end = std::max(end, done);
                    }
                    now = end + 1000;
                }
                BOOST_TEST_REQUIRE(used == scheduler.paths().usable(),
                                   name << ", TESTS_SEED=" << s << ", phase " << phase << ": used " << used);
            }
        }
    }
}
