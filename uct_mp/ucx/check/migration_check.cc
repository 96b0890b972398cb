// Automatic path migration: a second route is loaded into a queue pair at both ends, which then goes over to it.
#include <cstring>

#include "uct_mp/ucx/check/checks.h"

namespace ucx_mp::check {

namespace {

constexpr unsigned kOne = 2; // queue pair

// Another active InfiniBand port of the same adapter.
const verbs::Rail* other_port(std::span<const verbs::Rail> rails, const verbs::Rail& than) {
    const verbs::Rail* found = nullptr;
    for (const verbs::Rail& rail : rails)
        if (rail.device == than.device && rail.index != than.index && rail.active && !rail.ethernet) found = &rail;
    return found;
}

} // namespace

struct Checks::Route {
    const verbs::Rail* rail = nullptr; // ours
    unsigned remote_rail = 0;
    End ours{}, theirs{};
};

// By other path bits where both ends have them, else by another port of both adapters.
const char* Checks::find_route(const Lane& lane, Route& route) const {
    End ours[kQueuePairs];
    it_.side().ends(lane, ours);
    route.rail = lane.rail;
    route.remote_rail = lane.remote_rail;
    route.ours = ours[kOne];
    route.theirs = lane.remote[kOne];
    if (lane.rail->lmc != 0 && it_.far(lane).lmc != 0) {
        route.ours.lid = static_cast<std::uint16_t>(lane.rail->lid + 1);
        route.theirs.lid = static_cast<std::uint16_t>(it_.far(lane).lid + 1);
        route.ours.path_bits = route.theirs.path_bits = 1;
        return nullptr;
    }
    route.rail = other_port(it_.side().rails(), *lane.rail);
    if (!route.rail) return "no second route (another port, or an LMC)";
    for (unsigned r = 0; r < it_.facts().count; ++r)
        if (r != lane.remote_rail && it_.facts().rails[r].device == lane.remote_device &&
            it_.facts().rails[r].subnet == route.rail->subnet_prefix)
            route.remote_rail = r;
    if (route.remote_rail == lane.remote_rail) return "no second route there";
    route.ours.lid = route.rail->lid;
    route.theirs.lid = it_.facts().rails[route.remote_rail].lid;
    route.ours.path_bits = route.theirs.path_bits = 0;
    return nullptr;
}

bool Checks::settle(Lane& lane, Message& state) {
    return it_.write(lane, kOne, ++value_, kApmAt, 8) && it_.ask(Ask::migration, it_.index(lane), kOne, state);
}

void Checks::migration(Lane& lane) {
    const char* what = "automatic path migration (APM)";
    if (!lane.device->has_apm) return report_.line(what, Verdict::no, "not offered; UCX_MP_APM=try does nothing here");
    Route route;
    if (const char* why = find_route(lane, route)) return report_.line(what, Verdict::no, "not tried: %s", why);
    Message question, answer;
    question.rail = static_cast<std::uint16_t>(route.remote_rail);
    question.ends[0] = route.ours;
    if (!it_.ask(Ask::alternate, it_.index(lane), kOne, answer, question)) return report_.failed(what, it_.trouble());
    const int error = answer.error
                          ? answer.error
                          : verbs::load_alternate(lane.qp[kOne].get(), *route.rail, remote_of(route.theirs), {});
    if (error)
        return report_.line(what, Verdict::no, "claimed, but a route cannot be loaded (%s): leave UCX_MP_APM at n",
                            std::strerror(error));
    migrate(lane);
}

// The route is loaded.
void Checks::migrate(Lane& lane) {
    const char* what = "automatic path migration (APM)";
    Message before, after;
    if (!settle(lane, before)) return report_.failed(what, it_.trouble());
    for (unsigned i = 0; i < 100 && before.value != IBV_MIG_ARMED; ++i)
        if (!settle(lane, before)) return report_.failed(what, it_.trouble());
    if (before.value != IBV_MIG_ARMED)
        return report_.line(what, Verdict::no, "a loaded route is never armed: leave UCX_MP_APM at n");
    if (const int refused = verbs::migrate(lane.qp[kOne].get()))
        return report_.line(what, Verdict::no, "refuses to migrate (%s): leave UCX_MP_APM at n",
                            std::strerror(refused));
    if (!settle(lane, after)) return report_.failed(what, it_.trouble());
    const bool useful = after.value == IBV_MIG_MIGRATED && after.length > before.length;
    report_.feature("migration by the adapter (UCX_MP_APM=try)", useful);
    if (useful)
        report_.line(what, Verdict::yes, "armed, migrated, told by an event: UCX_MP_APM=try is of use");
    else
        report_.line(what, Verdict::no, "the other side does not follow, or tells no event: leave UCX_MP_APM at n");
}

} // namespace ucx_mp::check
