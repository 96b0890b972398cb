#include "uct_mp/adapt/map.h"

#include <algorithm>
#include <utility>

namespace ucx_mp::adapt {

namespace {

auto find(auto& choices, std::uint32_t id) { return std::ranges::lower_bound(choices, id, {}, &Choice::id); }

// The heaviest first; equal counts have a fixed order.
std::vector<Source> by_weight(std::span<const Source> sources) {
    std::vector<Source> sorted(sources.begin(), sources.end());
    std::ranges::sort(sorted, {}, [](const Source& source) { return std::pair(-source.count, source.id); });
    return sorted;
}

// How often this source's ring is looked at each time that all are polled.
double looks(const Source& source, double busiest, const Limits& limits) {
    return source.count * limits.cold_every >= busiest ? 1 : 1.0 / limits.cold_every;
}

// A message finds half of the rings polled in vain. The busiest source keeps the receiver polling.
double polling(double busiest, double looked, const Costs& costs) { return busiest * looked / 2 * costs.miss; }

double credits(double count, const Costs& costs, const Limits& limits) { return count * costs.credit / limits.slots; }

Mapping rc_for(const std::vector<Source>& sources, const Costs& costs, const Limits& limits) {
    Mapping best;
    std::size_t most = 0; // of the choices
    double gain = 0;
    for (const Source& source : sources) {
        if (best.choices.size() == limits.rc) break;
        if (source.refuses_rc) continue;
        gain += costs.rc * source.count - (source.now == Service::rc ? 0 : costs.make_rc);
        best.choices.push_back({source.id, Service::rc});
        if (gain > best.gain) best.gain = gain, most = best.choices.size();
    }
    best.choices.resize(most);
    return best;
}

Mapping rings_for(const std::vector<Source>& sources, const Costs& costs, const Limits& limits) {
    Mapping best;
    std::size_t most = 0; // of the choices
    double gain = 0, looked = 0;
    for (const Source& source : sources) {
        if (best.choices.size() == limits.rings) break;
        gain += costs.ring * source.count - credits(source.count, costs, limits) -
                (source.now == Service::dc_ring ? 0 : costs.make_ring);
        looked += looks(source, sources[0].count, limits);
        best.choices.push_back({source.id, Service::dc_ring});
        if (const double all = gain - polling(sources[0].count, looked, costs); all > best.gain)
            best.gain = all, most = best.choices.size();
    }
    best.choices.resize(most);
    return best;
}

} // namespace

Service Mapping::of(std::uint32_t id) const {
    const auto at = find(choices, id);
    return at != choices.end() && at->id == id ? at->service : Service::shared;
}

unsigned Mapping::count(Service service) const {
    return static_cast<unsigned>(std::ranges::count(choices, service, &Choice::service));
}

void Mapping::set(std::uint32_t id, Service service) {
    const auto at = find(choices, id);
    const bool there = at != choices.end() && at->id == id;
    if (service == Service::shared) {
        if (there) choices.erase(at);
    } else if (there) {
        at->service = service;
    } else {
        choices.insert(at, {id, service});
    }
}

Mapping find_map(std::span<const Source> given, const Costs& costs, const Limits& limits) {
    const std::vector<Source> sources = by_weight(given);
    Mapping best = limits.rings ? rings_for(sources, costs, limits) : rc_for(sources, costs, limits);
    std::ranges::sort(best.choices, {}, &Choice::id);
    return best;
}

double value(const Mapping& of, std::span<const Source> sources, const Costs& costs, const Limits& limits) {
    double busiest = 0, gain = 0, looked = 0;
    for (const Source& source : sources) busiest = std::max(busiest, source.count);
    std::size_t seen = 0;
    for (const Source& source : sources) {
        const Service service = of.of(source.id);
        if (service == Service::shared) continue;
        ++seen;
        gain += source.count * (service == Service::rc ? costs.rc : costs.ring);
        if (service == Service::rc) continue;
        gain -= credits(source.count, costs, limits);
        looked += looks(source, busiest, limits);
    }
    if (limits.rings == 0) return gain;
    // Rings of those that are silent in this window are looked at, too.
    looked += static_cast<double>(of.choices.size() - seen) / limits.cold_every;
    return gain - polling(busiest, looked, costs);
}

} // namespace ucx_mp::adapt
