// Who is wanted in turn by one process: traces for policies that choose victims. Peers are numbered from 0.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <unordered_map>
#include <vector>

namespace ucx_mp::adapt::traces {

using Trace = std::vector<std::uint32_t>;

class Random {
public:
    explicit Random(std::uint64_t seed) : engine_(seed * 7919 + 17) {}
    unsigned below(unsigned n) { return static_cast<unsigned>(engine_() % n); }
    unsigned between(unsigned a, unsigned b) { return a + below(b - a + 1); }
    double part() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
    std::vector<std::uint32_t> shuffled(unsigned n) {
        std::vector<std::uint32_t> all(n);
        std::iota(all.begin(), all.end(), 0u);
        for (unsigned i = n; i > 1; --i) std::swap(all[i - 1], all[below(i)]);
        return all;
    }

private:
    std::mt19937_64 engine_;
};

// Some are wanted more often than others.
class Zipf {
public:
    Zipf(Random& random, unsigned n, double exponent) : random_(random), who_(random.shuffled(n)) {
        double sum = 0;
        for (unsigned i = 0; i < n; ++i) until_.push_back(sum += 1 / std::pow(i + 1, exponent));
    }
    std::uint32_t operator()() {
        const double x = random_.part() * until_.back();
        const auto found = std::ranges::lower_bound(until_, x) - until_.begin();
        return who_[std::min<std::size_t>(static_cast<std::size_t>(found), who_.size() - 1)];
    }

private:
    Random& random_;
    std::vector<std::uint32_t> who_;
    std::vector<double> until_;
};

// The paper's task pool: a counter, two blocks of which half come from a few owners, and one that is written.
inline Trace task_pool(Random& random, unsigned n, std::size_t length) {
    Zipf owner(random, n - 1, 0.6);
    std::uint32_t regular[8];
    for (auto& one : regular) one = 1 + owner();
    Trace trace;
    while (trace.size() < length) {
        trace.push_back(0);
        for (unsigned i = 0; i < 2; ++i) trace.push_back(random.below(2) ? regular[random.below(8)] : 1 + owner());
        trace.push_back(trace.back());
    }
    return trace;
}
inline Trace zipf(Random& random, unsigned n, std::size_t length) {
    Zipf owner(random, n, 0.9);
    Trace trace(length);
    std::ranges::generate(trace, owner);
    return trace;
}
// A few at a time, then others.
inline Trace phases(Random& random, unsigned n, std::size_t length) {
    Trace trace;
    while (trace.size() < length) {
        const auto set = random.shuffled(n);
        const unsigned size = random.between(3, 12);
        for (unsigned i = random.between(50, 400); i > 0; --i) trace.push_back(set[random.below(size)]);
    }
    return trace;
}
// A few all the time, and all others once in a while.
inline Trace scans(Random& random, unsigned n, std::size_t length) {
    const auto hot = random.shuffled(n);
    Trace trace;
    for (unsigned next = 0; trace.size() < length;) {
        for (unsigned i = random.between(5, 30); i > 0; --i) trace.push_back(hot[random.below(6)]);
        for (unsigned i = random.between(5, 40); i > 0; --i) trace.push_back(next++ % n);
    }
    return trace;
}
inline Trace ring(Random& random, unsigned n, std::size_t length) {
    const unsigned size = random.between(6, n / 2);
    Trace trace(length);
    for (std::size_t i = 0; i < length; ++i) trace[i] = static_cast<std::uint32_t>(i % size);
    return trace;
}
// Neighbours in each step, recursive doubling in each fifth.
inline Trace halo(Random& random, unsigned n, std::size_t length) {
    auto all = random.shuffled(n);
    Trace trace;
    for (unsigned step = 1; trace.size() < length; ++step) {
        for (unsigned i = 6; i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
        trace.insert(trace.end(), all.begin(), all.begin() + 6);
        for (unsigned i = 1; step % 5 == 0 && i < n; i *= 2) trace.push_back(i);
        if (random.below(5) == 0) trace.push_back(random.below(n));
    }
    return trace;
}
// Who was wanted a short while ago is wanted again: as recency likes it.
inline Trace drift(Random& random, unsigned n, std::size_t length) {
    auto stack = random.shuffled(n);
    Trace trace;
    while (trace.size() < length) {
        const auto depth = std::min<unsigned>(n - 1, static_cast<unsigned>(-5 * std::log(1 - random.part())));
        std::rotate(stack.begin(), stack.begin() + depth, stack.begin() + depth + 1);
        trace.push_back(stack[0]);
    }
    return trace;
}
// All in turn now and then, else a few.
inline Trace exchanges(Random& random, unsigned n, std::size_t length) {
    Trace trace;
    while (trace.size() < length) {
        if (random.below(10) < 3) {
            for (std::uint32_t i = 0; i < n; ++i) trace.push_back(i);
        } else {
            const auto set = random.shuffled(n);
            for (unsigned i = 0; i < 200; ++i) trace.push_back(set[random.below(5)]);
        }
    }
    return trace;
}

// The fewest connections that any policy could do with: it knows the future (Belady).
inline std::uint64_t fewest(const Trace& trace, unsigned places) {
    constexpr std::size_t kNever = ~std::size_t{0};
    std::vector<std::size_t> next(trace.size(), kNever);
    std::unordered_map<std::uint32_t, std::size_t> last, held;
    for (std::size_t i = trace.size(); i-- > 0; last[trace[i]] = i)
        if (const auto found = last.find(trace[i]); found != last.end()) next[i] = found->second;
    std::uint64_t connections = 0;
    for (std::size_t i = 0; i < trace.size(); held[trace[i]] = next[i], ++i) {
        if (held.contains(trace[i])) continue;
        ++connections;
        if (held.size() < places) continue;
        held.erase(std::ranges::max_element(held, {}, [](const auto& entry) { return entry.second; }));
    }
    return connections;
}

} // namespace ucx_mp::adapt::traces
