// What follows a put in the stress traffic, and then looks at what it has written: every order that UCT promises.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "simulator/cluster.h"

namespace ucx_mp::sim {

enum class Sequence : std::uint8_t {
    fence_am,       // fence, message
    complete_am,    // completion of the put, message
    complete_fence, // completion of the put, fence, message
    flush_am,       // flush, message
    fence_flag,     // fence, put of a flag that the target polls for
    fence_get,      // fence, get
    flush_get,      // flush, get
    flush_add,      // flush, fetch-add
};
inline constexpr unsigned kSequences = 8, kAllSequences = (1u << kSequences) - 1;

inline const char* name_of(Sequence sequence) {
    static constexpr const char* names[] = {"fence-am",   "complete-am", "complete-fence-am", "flush-am",
                                            "fence-flag", "fence-get",   "flush-get",         "flush-add"};
    return names[static_cast<unsigned>(sequence)];
}

// Nothing follows before the put has completed.
inline bool waits_for_put(Sequence sequence) {
    return sequence == Sequence::complete_am || sequence == Sequence::complete_fence;
}

struct Step {
    enum What : std::uint8_t { flush, flag, get, add, tell } what;
    bool fence; // before it
};
// The last one is `tell`. Behind a flag there is another fence; what has been read by a get or an atomic has been seen.
inline Step step_of(Sequence sequence, unsigned step) {
    switch (sequence) {
    case Sequence::fence_am:
    case Sequence::complete_fence:
        return {Step::tell, true};
    case Sequence::complete_am:
        return {Step::tell, false};
    case Sequence::flush_am:
        return {step == 0 ? Step::flush : Step::tell, false};
    case Sequence::fence_flag:
        return {step == 0 ? Step::flag : Step::tell, true};
    case Sequence::fence_get:
        return {step == 0 ? Step::get : Step::tell, step == 0};
    case Sequence::flush_get:
        return {step == 0 ? Step::flush : step == 1 ? Step::get : Step::tell, false};
    case Sequence::flush_add:
        return {step == 0 ? Step::flush : step == 1 ? Step::add : Step::tell, false};
    }
    return {Step::tell, true};
}

// A put that is under way, and how far what follows it has come.
struct Following {
    unsigned slot = 0;
    std::uint64_t length = 0, seed = 0;
    std::uint64_t added = 0; // to its first eight bytes since
    Sequence kind = Sequence::fence_am;
    unsigned step = 0;
    bool fenced = false; // for this step
    bool waits = false;  // for a completion
};

inline std::byte pattern(std::size_t i, std::uint64_t seed) {
    return static_cast<std::byte>(i * 167 + seed * 59 + (i >> 8) + (i >> 16));
}
// Where `data` is not what a put of `seed` leaves, its first eight bytes as a number with `added`; -1: it is.
inline std::int64_t first_wrong(const std::byte* data, std::uint64_t length, std::uint64_t seed, std::uint64_t added) {
    std::byte first[8];
    for (std::size_t i = 0; i < 8; ++i) first[i] = pattern(i, seed);
    std::uint64_t value;
    std::memcpy(&value, first, 8);
    value += added;
    std::memcpy(first, &value, 8);
    for (std::size_t i = 0; i < length; ++i)
        if (data[i] != (i < 8 ? first[i] : pattern(i, seed))) return static_cast<std::int64_t>(i);
    return -1;
}

// Of each node one adapter, another one at each, appears to be `late`; all of them by up to `queue_pairs`, each queue
// pair by itself. 0: not so.
inline void place_late(Cluster& cluster, std::uint64_t seed, Nanos late, Nanos queue_pairs) {
    for (unsigned i = 0; i < cluster.size(); ++i) {
        const auto devices = cluster.node(i).devices().devices();
        const std::string node = std::to_string(i) + ":";
        if (late)
            cluster.world.fault("place-delay " + std::to_string(late) + "ns " + node +
                                devices[(i + seed) % devices.size()].name);
        if (queue_pairs) cluster.world.fault("place-delay-qp " + std::to_string(queue_pairs) + "ns " + node + "*");
    }
}

// One of `allowed` (bit: Sequence) for a put of `length` bytes.
inline Sequence draw_sequence(std::mt19937_64& random, unsigned allowed, std::uint64_t length) {
    if (length < 8) allowed &= ~(1u << static_cast<unsigned>(Sequence::flush_add)); // nothing to add to
    std::vector<Sequence> all;
    for (unsigned i = 0; i < kSequences; ++i)
        if (allowed >> i & 1) all.push_back(static_cast<Sequence>(i));
    return all.empty() ? Sequence::fence_am : all[random() % all.size()];
}

} // namespace ucx_mp::sim
