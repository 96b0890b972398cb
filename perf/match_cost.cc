// What one match costs with N receives posted, or N messages stored: bench_match_cost [N ...]
//
// Four loads, each with a receive of every kind. "posted": N receives that do not match, then a message that matches
// the youngest. "stored": N messages that do not match, then a receive takes the youngest. The others have keys of
// their own ("apart"), or the same key but for the tag ("one source"), as in the loads that make list walkers linear.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "pml_glue/core/match/matcher.h"

using namespace ucx_mp::glue;

namespace {

constexpr int kRounds = 20000;

Envelope pattern_of(Envelope message, int kind) {
    if (kind & 1) message.source = kAnySource;
    if (kind & 2) message.tag = kAnyTag;
    return message;
}

Envelope other(int i, bool apart) { return apart ? Envelope{1, i % 1000, 1000 + i / 1000} : Envelope{1, 0, 1000 + i}; }

template <class F> double nanoseconds(F&& once) {
    double best = 1e30;
    for (int repeat = 0; repeat < 5; ++repeat) {
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < kRounds; ++i) once();
        const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
        best = std::min(best, took.count() / kRounds);
    }
    return best;
}

void must(bool condition) {
    if (!condition) std::fprintf(stderr, "match_cost: a wrong match\n"), std::exit(1);
}

// In a communicator of its own for receives of any tag: in that of the others they would take what is there.
double posted(int n, int kind, bool apart) {
    Matcher matcher;
    std::vector<PostedReceive> receives(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) matcher.post(receives[static_cast<std::size_t>(i)], other(i, apart));
    const Envelope message{kind & 2 ? 2u : 1u, 0, 7};
    PostedReceive last;
    return nanoseconds([&] {
        matcher.post(last, pattern_of(message, kind));
        must(matcher.arrive(message) == &last);
    });
}

double stored(int n, int kind, bool apart) {
    Matcher matcher;
    std::vector<StoredMessage> messages(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) {
        messages[static_cast<std::size_t>(i)].envelope = other(i, apart);
        matcher.store(messages[static_cast<std::size_t>(i)]);
    }
    StoredMessage last;
    last.envelope = {kind & 2 ? 2u : 1u, 0, 7};
    return nanoseconds([&] {
        matcher.store(last);
        StoredMessage* const found = matcher.find(pattern_of(last.envelope, kind));
        must(found == &last);
        matcher.take(*found);
    });
}

} // namespace

int main(int argc, char** argv) {
    std::vector<int> counts{10, 100, 1000, 10000, 100000};
    if (argc > 1) counts.clear();
    for (int i = 1; i < argc; ++i) counts.push_back(std::max(0, std::atoi(argv[i])));
    std::printf("%-10s %-11s %9s  %s\n", "queue", "others", "entries",
                "ns per post and match: exact, any source, any tag, both");
    for (const bool store : {false, true})
        for (const bool apart : {true, false})
            for (const int n : counts) {
                std::printf("%-10s %-11s %9d ", store ? "stored" : "posted", apart ? "apart" : "one source", n);
                for (int kind = 0; kind < 4; ++kind)
                    std::printf(" %7.1f", store ? stored(n, kind, apart) : posted(n, kind, apart));
                std::printf("\n");
            }
    return 0;
}
