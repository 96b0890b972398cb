#include "schedule.h"

#include <bit>

namespace ucx_mp::collect_sim {

namespace {

// A put of `from`; the number of its word at `to`.
unsigned put(Schedule& all, unsigned from, unsigned to, std::vector<unsigned> after, std::uint64_t bytes) {
    const auto word = static_cast<unsigned>(all[to].from.size());
    all[to].from.push_back(from);
    all[from].puts.push_back({.to = to, .word = word, .after = std::move(after), .bytes = bytes});
    return word;
}

unsigned parent(unsigned q) { return (q - 1) / 2; }

} // namespace

Schedule binary_barrier(unsigned ranks, std::uint64_t bytes) {
    Schedule all(ranks);
    std::vector<std::vector<unsigned>> children(ranks); // their words
    for (unsigned q = ranks; --q > 0;)                  // children have higher ranks
        children[parent(q)].push_back(put(all, q, parent(q), children[q], bytes));
    for (unsigned q = 1; q < ranks; ++q) {
        const unsigned from = parent(q);
        all[q].awaited = {put(all, from, q, from == 0 ? children[0] : all[from].awaited, bytes)};
    }
    all[0].awaited = children[0];
    return all;
}

Schedule binary_bcast(unsigned ranks, std::uint64_t bytes, bool acknowledged) {
    Schedule all(ranks);
    all[0].sent = true;
    for (unsigned q = 1; q < ranks; ++q) all[q].awaited = {put(all, parent(q), q, all[parent(q)].awaited, bytes)};
    for (unsigned q = 1; acknowledged && q < ranks; ++q)
        all[parent(q)].freeing.push_back(put(all, q, parent(q), all[q].awaited, 0));
    return all;
}

Schedule dissemination(unsigned ranks) {
    Schedule all(ranks);
    for (unsigned distance = 1; distance < ranks; distance *= 2) {
        std::vector<unsigned> words(ranks);
        for (unsigned q = 0; q < ranks; ++q)
            words[(q + distance) % ranks] = put(all, q, (q + distance) % ranks, all[q].awaited, 0);
        for (unsigned q = 0; q < ranks; ++q) all[q].awaited.push_back(words[q]);
    }
    return all;
}

Schedule exchange(unsigned ranks, std::uint64_t bytes, unsigned peers) {
    Schedule all(ranks);
    std::vector<std::vector<unsigned>> ready(ranks, std::vector<unsigned>(ranks)); // [rank][step]: of rank + step
    for (unsigned step = 1; step < ranks; ++step)
        for (unsigned q = 0; q < ranks; ++q) {
            const unsigned from = (q + ranks - step) % ranks;
            ready[from][step] = put(all, q, from, {}, 0);
        }
    for (unsigned step = 1; step < ranks; ++step) {
        std::vector<unsigned> words(ranks);
        for (unsigned q = 0; q < ranks; ++q) {
            std::vector<unsigned> after{ready[q][step]};
            if (step > peers) after.push_back(all[q].awaited[step - peers - 1]);
            words[(q + step) % ranks] = put(all, q, (q + step) % ranks, std::move(after), bytes);
        }
        for (unsigned q = 0; q < ranks; ++q) all[q].awaited.push_back(words[q]);
    }
    for (Part& part : all) {
        part.in_order = false;
        part.sent = true;
    }
    return all;
}

} // namespace ucx_mp::collect_sim
