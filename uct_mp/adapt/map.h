// Chooses the sources that get RC, or those that get a ring, and says what that saves (AQPS figure 6: FIND_MAP).
//
// In AQPS the receiver decides both in one map, since RC always comes with a ring. Here RC is the sender's choice, for
// peers, and rings are the receiver's, with RC or without. Neither changes what the other saves, and each has
// its own limit, so the best pair of maps is the best map of each [unit.adapt_map: apart_is_as_good_as_together].
//
// Pure: a function of counts and costs. Threads: any.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "uct_mp/adapt/parameters.h"

namespace ucx_mp::adapt {

// How messages of one source come.
enum class Service : std::uint8_t {
    shared,  // over DC, into the receive queue that all share
    dc_ring, // over DC, into a ring of its own
    rc,      // over RC; into a ring of its own, if there are rings
};

[[nodiscard]] constexpr const char* name(Service service) {
    constexpr const char* kNames[] = {"shared", "dc_ring", "rc"};
    return kNames[static_cast<unsigned>(service)];
}

// A source, and its numbers in some time window.
struct Source {
    std::uint32_t id = 0;
    double count = 0;              // messages
    Service now = Service::shared; // its present service, which costs nothing to keep
    bool refuses_rc = false;       // its own limit is reached
};

struct Choice {
    std::uint32_t id;
    Service service;
    friend bool operator==(const Choice&, const Choice&) = default;
};

class Mapping {
public:
    double gain = 0; // ns, over the window that it was found for
    // Every source that is not shared, by id.
    std::vector<Choice> choices;

    [[nodiscard]] Service of(std::uint32_t id) const;
    [[nodiscard]] unsigned count(Service service) const;
    void set(std::uint32_t id, Service service);
};

// The best map: of rings if limits.rings is not 0, else of RC. The heaviest sources that do not refuse get it. A source
// is charged with make_rc or make_ring only for a service that it does not have yet. AQPS charges all, which favours
// the present map in the windows to come. O(k log k) for k sources, by sums over the heaviest i. `sources` in any
// order.
[[nodiscard]] Mapping find_map(std::span<const Source> sources, const Costs& costs, const Limits& limits);

// ns that this map would have saved with those counts, if it had existed before (AQPS, T2 and T3).
[[nodiscard]] double value(const Mapping& of, std::span<const Source> sources, const Costs& costs,
                           const Limits& limits);

} // namespace ucx_mp::adapt
