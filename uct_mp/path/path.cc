#include "uct_mp/path/path.h"

#include <algorithm>
#include <cassert>

namespace ucx_mp::path {

namespace {

// The rails of both sides in one subnet: each of them reaches all of the other side.
struct Group {
    const RemoteRail* any;
    std::vector<std::uint8_t> client, server; // rail indices
};

struct RailPair {
    std::uint8_t client, server;
    unsigned routes; // paths of this pair
};

std::vector<Group> group_by_subnet(std::span<const RemoteRail> client, std::span<const RemoteRail> server) {
    const bool routed = must_route(client, server);
    std::vector<Group> groups;
    const auto of = [&](const RemoteRail& rail) -> Group& {
        const auto found = std::ranges::find_if(groups, [&](const Group& g) { return reach(*g.any, rail, routed); });
        return found != groups.end() ? *found : groups.emplace_back(Group{&rail, {}, {}});
    };
    for (std::size_t i = 0; i < client.size(); ++i)
        if (client[i].usable()) of(client[i]).client.push_back(std::uint8_t(i));
    for (std::size_t i = 0; i < server.size(); ++i)
        if (server[i].usable()) of(server[i]).server.push_back(std::uint8_t(i));
    std::erase_if(groups, [](const Group& g) { return g.client.empty() || g.server.empty(); });
    return groups;
}

unsigned lids(const RemoteRail& rail) { return 1u << rail.lmc; }

unsigned routes_of(const RemoteRail& client, const RemoteRail& server, const PathConfig& config, unsigned wish) {
    if (wish) return wish;
    if (!config.path_bits.empty()) return unsigned(config.path_bits.size());
    return std::min({lids(client), lids(server), 4u});
}

unsigned wish_of(const PathConfig& server, unsigned client_wants) {
    const unsigned ours = server.num_paths;
    return ours && client_wants ? std::min(ours, client_wants) : std::max(ours, client_wants);
}

std::uint8_t bits_of(const RemoteRail& rail, const PathConfig& config, unsigned route) {
    const std::vector<std::uint8_t>& named = config.path_bits;
    const unsigned value = named.empty() ? route : named[route % named.size()];
    return std::uint8_t(value & (lids(rail) - 1)); // the client's LMC may be smaller than ours
}

// Each round of pairs uses every rail of the longer side of each subnet once, and those of the shorter side as evenly
// as the counts allow. The first round is all there is without cross_rails.
std::vector<RailPair> round_of_pairs(const std::vector<Group>& groups, std::size_t round) {
    std::vector<RailPair> pairs;
    for (const Group& g : groups) {
        const std::size_t c = g.client.size(), s = g.server.size();
        if (round >= std::min(c, s)) continue;
        for (std::size_t i = 0; i < std::max(c, s); ++i)
            pairs.push_back(c >= s ? RailPair{g.client[i], g.server[(i + round) % s], 0}
                                   : RailPair{g.client[(i + round) % c], g.server[i], 0});
    }
    return pairs;
}

// The rails of the other side that a rail which is down may belong to: a rail
// of each subnet and one of those that are down. `place`: in its own list.
std::vector<std::uint8_t> partners(std::size_t place, std::span<const RemoteRail> others, bool cross_rails) {
    std::vector<std::vector<std::uint8_t>> kinds; // indices by subnet, or of those that are down
    for (std::size_t i = 0; i < others.size(); ++i) {
        const auto alike = [&](const std::vector<std::uint8_t>& kind) {
            const RemoteRail& first = others[kind[0]];
            return others[i].usable() ? reach(first, others[i], false) : !first.usable();
        };
        const auto kind = std::ranges::find_if(kinds, alike);
        (kind != kinds.end() ? *kind : kinds.emplace_back()).push_back(std::uint8_t(i));
    }
    std::vector<std::uint8_t> chosen;
    for (const auto& kind : kinds) {
        if (cross_rails)
            chosen.insert(chosen.end(), kind.begin(), kind.end());
        else if (std::ranges::find(kind, place) != kind.end())
            chosen.push_back(std::uint8_t(place));
        else
            chosen.push_back(kind[place % kind.size()]);
    }
    return chosen;
}

// Every route once for each kind, if both are wanted and there is no fixed number of RC paths.
bool doubles_for_kinds(Kinds kinds, const PathConfig& config, unsigned max_paths) {
    return kinds == Kinds::both && config.rc_paths == 0 && max_paths >= 2;
}

// Adds kinds to routes that have none yet; `before`: so many paths are in front of them.
void give_kinds(std::vector<PathSpec>& routes, Kinds kinds, const PathConfig& config, unsigned max_paths,
                std::size_t before) {
    const std::size_t n = routes.size();
    if (doubles_for_kinds(kinds, config, max_paths)) {
        routes.reserve(2 * n);
        for (std::size_t i = 0; i < n; ++i) {
            routes[i].kind = Kind::rc;
            routes.push_back(routes[i]);
            routes.back().kind = Kind::dc;
        }
        return;
    }
    const bool mixed = kinds == Kinds::both;
    for (std::size_t i = 0; i < n; ++i) {
        const bool rc = mixed ? config.rc_paths == 0 || before + i < config.rc_paths : kinds == Kinds::rc;
        routes[i].kind = rc ? Kind::rc : Kind::dc;
    }
}

// Every route once more, for reads.
void double_for_reads(std::vector<PathSpec>& paths) {
    paths.reserve(2 * paths.size());
    for (std::size_t i = 0, n = paths.size(); i < n; ++i) paths.push_back(paths[i]);
    mark_split(paths);
}

// Behind what plan_paths has returned, without regard to split_reads.
void add_places(std::vector<PathSpec>& paths, std::span<const RemoteRail> client, std::span<const RemoteRail> server,
                const PathConfig& config, unsigned client_wants, unsigned max_paths) {
    std::vector<std::pair<std::uint8_t, std::uint8_t>> pairs;
    const auto add = [&](std::size_t c, std::size_t s) {
        const std::pair<std::uint8_t, std::uint8_t> pair(c, s);
        if (std::ranges::find(pairs, pair) == pairs.end()) pairs.push_back(pair);
    };
    for (std::size_t c = 0; c < client.size(); ++c)
        if (!client[c].usable())
            for (const std::uint8_t s : partners(c, server, config.cross_rails)) add(c, s);
    for (std::size_t s = 0; s < server.size(); ++s)
        if (!server[s].usable())
            for (const std::uint8_t c : partners(s, client, config.cross_rails)) add(c, s);
    if (pairs.empty() || paths.size() >= max_paths) return;
    // Partners of the same place first: they are taken first when several could be.
    std::stable_partition(pairs.begin(), pairs.end(), [](const auto& pair) { return pair.first == pair.second; });

    // As far as is known, their LMC will be that of the others.
    const auto guessed = [](std::span<const RemoteRail> rails) {
        RemoteRail guess;
        for (const RemoteRail& rail : rails)
            if (rail.usable()) guess.lmc = std::max(guess.lmc, rail.lmc);
        return guess;
    };
    const RemoteRail from = guessed(client), to = guessed(server);
    const unsigned room = max_paths - unsigned(paths.size());
    if (pairs.size() > room) pairs.resize(room);
    const unsigned routes =
        std::min(routes_of(from, to, config, wish_of(config, client_wants)), room / unsigned(pairs.size()));
    for (unsigned route = 0; route < routes; ++route)
        for (const auto& [c, s] : pairs)
            paths.push_back({c, s, bits_of(client[c].usable() ? client[c] : from, config, route),
                             bits_of(server[s].usable() ? server[s] : to, config, route)});
}

} // namespace

bool reach(const RemoteRail& a, const RemoteRail& b, bool routed) {
    if (!a.usable() || !b.usable()) return false;
    const bool ethernet = verbs::is_set(a.gid);
    if (ethernet != verbs::is_set(b.gid) || verbs::is_ipv4(a.gid) != verbs::is_ipv4(b.gid)) return false;
    return a.subnet_prefix == b.subnet_prefix || (ethernet && routed);
}

bool must_route(std::span<const RemoteRail> client, std::span<const RemoteRail> server) {
    for (const RemoteRail& c : client)
        if (std::ranges::any_of(server, [&](const RemoteRail& s) { return reach(c, s, false); })) return false;
    return true;
}

std::string check(const PathConfig& config, std::span<const verbs::Rail> rails) {
    if (config.num_paths > kMaxPathsPerPeer)
        return "UCX_MP_NUM_PATHS: " + std::to_string(config.num_paths) + " is too many; allowed: 0 (automatic) to " +
               std::to_string(kMaxPathsPerPeer);
    if (config.path_bits.size() > kMaxPathsPerPeer)
        return "UCX_MP_PATH_BITS: " + std::to_string(config.path_bits.size()) + " values; allowed: at most " +
               std::to_string(kMaxPathsPerPeer);
    for (const std::uint8_t bits : config.path_bits)
        for (const verbs::Rail& rail : rails)
            if (rail.active && bits >= 1u << rail.lmc)
                return "UCX_MP_PATH_BITS: " + std::to_string(bits) + " is beyond the LMC " + std::to_string(rail.lmc) +
                       " of rail " + rail.name + "; allowed: 0 to " + std::to_string((1u << rail.lmc) - 1);
    return {};
}

std::vector<PathSpec> plan_paths(std::span<const RemoteRail> client, std::span<const RemoteRail> server,
                                 const PathConfig& server_config, unsigned client_wants, unsigned max_paths,
                                 bool client_splits, Kinds kinds) {
    if (kinds == Kinds::none) return {};
    max_paths = std::min(max_paths, kMaxPathsPerPeer);
    const bool split = (server_config.split_reads || client_splits) && max_paths >= 2;
    if (split) max_paths /= 2;
    const unsigned most_paths = max_paths;
    if (doubles_for_kinds(kinds, server_config, most_paths)) max_paths /= 2;
    const unsigned wish = wish_of(server_config, client_wants);

    // Whole rounds only, so that the limit leaves rails balanced; but one pair at least.
    const std::vector<Group> groups = group_by_subnet(client, server);
    std::vector<RailPair> pairs;
    for (std::size_t round = 0; round == 0 || server_config.cross_rails; ++round) {
        std::vector<RailPair> more = round_of_pairs(groups, round);
        if (more.empty()) break;
        if (pairs.size() + more.size() > max_paths) {
            if (pairs.empty()) pairs.assign(more.begin(), more.begin() + max_paths);
            break;
        }
        pairs.insert(pairs.end(), more.begin(), more.end());
    }
    unsigned most = 0;
    for (RailPair& p : pairs) {
        p.routes = routes_of(client[p.client], server[p.server], server_config, wish);
        most = std::max(most, p.routes);
    }
    const auto total = [&] {
        std::size_t n = 0;
        for (const RailPair& p : pairs) n += std::min(p.routes, most);
        return n;
    };
    while (total() > max_paths) --most; // the same cut for all pairs

    std::vector<PathSpec> paths;
    for (unsigned route = 0; route < most; ++route)
        for (const RailPair& p : pairs)
            if (route < p.routes)
                paths.push_back({p.client, p.server, bits_of(client[p.client], server_config, route),
                                 bits_of(server[p.server], server_config, route)});
    assert(paths.size() <= max_paths);
    give_kinds(paths, kinds, server_config, most_paths, 0);
    if (split) double_for_reads(paths);
    return paths;
}

bool is_split(std::span<const PathSpec> paths) { return !paths.empty() && !paths[0].reads; }

void mark_split(std::span<PathSpec> paths) {
    for (std::size_t i = 0; i < paths.size(); ++i) {
        paths[i].reads = i >= paths.size() / 2;
        paths[i].writes = !paths[i].reads;
    }
}

std::uint8_t add_absent_paths(std::vector<PathSpec>& paths, std::span<const RemoteRail> client,
                              std::span<const RemoteRail> server, const PathConfig& config, unsigned client_wants,
                              unsigned max_paths, Kinds kinds) {
    max_paths = std::min(max_paths, kMaxPathsPerPeer);
    const bool split = is_split(paths);
    if (split) {
        max_paths /= 2;
        paths.resize(paths.size() / 2);
    }
    // The places are planned as routes, and get their kinds then.
    const std::size_t present = paths.size();
    const bool doubles = doubles_for_kinds(kinds, config, max_paths);
    std::vector<PathSpec> routes(paths.begin(), paths.begin() + std::ptrdiff_t(doubles ? present / 2 : present));
    const auto before = std::ptrdiff_t(routes.size());
    add_places(routes, client, server, config, client_wants, doubles ? max_paths / 2 : max_paths);
    routes.erase(routes.begin(), routes.begin() + before);
    give_kinds(routes, kinds, config, max_paths, present);
    paths.insert(paths.end(), routes.begin(), routes.end());
    const std::size_t absent = routes.size();
    if (split) double_for_reads(paths);
    return std::uint8_t(absent);
}

unsigned room_beside_on_demand(const PathConfig& config, unsigned max_paths) {
    max_paths = std::min(max_paths, kMaxPathsPerPeer);
    const unsigned places = config.rc_paths * (config.split_reads ? 2 : 1);
    return config.rc_paths && places < max_paths / 2 ? max_paths - places : (max_paths + 1) / 2;
}

std::uint8_t add_on_demand(std::vector<PathSpec>& paths, const PathConfig& config, unsigned max_paths) {
    const bool split = is_split(paths);
    const std::size_t halves = split ? 2 : 1, most = std::min(max_paths, kMaxPathsPerPeer) / halves;
    paths.resize(paths.size() / halves);
    const std::size_t routes = paths.size();
    std::size_t places = routes >= most ? 0 : std::min(routes, most - routes);
    if (config.rc_paths) places = std::min<std::size_t>(places, config.rc_paths);
    for (std::size_t i = 0; i < places; ++i) {
        PathSpec rc = paths[i];
        rc.kind = Kind::rc;
        rc.on_demand = true;
        paths.push_back(rc);
    }
    if (split) double_for_reads(paths);
    return std::uint8_t(places);
}

std::uint64_t spare_paths(std::span<const PathSpec> paths, std::uint64_t up) {
    std::uint64_t spare = 0;
    const auto left = [&](std::size_t i) { return (up & ~spare) >> i & 1; };
    const auto has_others = [&](const PathSpec& path) { // both of its ports
        bool client = false, server = false;
        for (std::size_t i = 0; i < paths.size(); ++i) {
            const PathSpec& p = paths[i];
            if (!left(i) || p.reads != path.reads || p.writes != path.writes) continue;
            client |= p.client_rail == path.client_rail && p.server_rail != path.server_rail;
            server |= p.client_rail != path.client_rail && p.server_rail == path.server_rail;
        }
        return client && server;
    };
    for (const bool same_place : {false, true}) // ports of the same place stay together if there is a choice
        for (std::size_t i = 0; i < paths.size(); ++i) {
            const PathSpec& path = paths[i];
            if (!left(i) || (path.client_rail == path.server_rail) != same_place || !has_others(path)) continue;
            for (std::size_t k = i; k < paths.size(); ++k) // all its routes
                if (paths[k].client_rail == path.client_rail && paths[k].server_rail == path.server_rail &&
                    paths[k].reads == path.reads)
                    spare |= std::uint64_t{1} << k;
        }
    return spare & up;
}

std::optional<PathSpec> alternate_of(const PathSpec& path, std::span<const RemoteRail> client,
                                     std::span<const RemoteRail> server) {
    const RemoteRail &from = client[path.client_rail], &to = server[path.server_rail];
    const ibv_mtu mtu = std::min(from.mtu, to.mtu);
    std::optional<PathSpec> best;
    unsigned best_score = 0;
    // From this path's own ports and bits on, so that neighbouring paths get different alternates.
    for (std::size_t ci = 0; ci < client.size(); ++ci)
        for (std::size_t si = 0; si < server.size(); ++si) {
            const auto c = (path.client_rail + ci) % client.size(), s = (path.server_rail + si) % server.size();
            const RemoteRail &left = client[c], &right = server[s];
            if (left.device != from.device || right.device != to.device || !left.lid || !right.lid ||
                left.subnet_prefix != right.subnet_prefix || left.mtu < mtu || right.mtu < mtu)
                continue;
            const unsigned routes = std::max(lids(left), lids(right));
            for (unsigned bi = 1; bi <= routes; ++bi) {
                const unsigned b = path.client_bits + bi;
                const PathSpec other{std::uint8_t(c),
                                     std::uint8_t(s),
                                     std::uint8_t(b & (lids(left) - 1)),
                                     std::uint8_t(b & (lids(right) - 1)),
                                     path.writes,
                                     path.reads,
                                     path.kind,
                                     path.on_demand};
                const unsigned score =
                    (other.client_rail != path.client_rail) * 4u + (other.server_rail != path.server_rail) * 4u +
                    (other.client_bits != path.client_bits) + (other.server_bits != path.server_bits);
                if (score <= best_score) continue;
                best_score = score;
                best = other;
            }
        }
    return best;
}

unsigned paths_between_alike(PathConfig config, std::span<const verbs::Rail> rails) {
    config.split_reads = false; // it doubles queue pairs, not what a message can choose from
    std::vector<RemoteRail> side;
    for (const verbs::Rail& rail : rails) side.push_back(describe(rail));
    std::vector<PathSpec> paths = plan_paths(side, side, config, config.num_paths);
    add_absent_paths(paths, side, side, config, config.num_paths);
    return unsigned(paths.size());
}

RemoteRail describe(const verbs::Rail& rail) {
    return {.lid = rail.active ? rail.lid : std::uint16_t{0},
            .lmc = rail.lmc,
            .device = std::uint8_t(rail.device),
            .mtu = rail.mtu,
            .subnet_prefix = rail.subnet_prefix,
            .rate = rail.rate,
            .dct_number = 0,
            .control_qpn = 0,
            .gid = rail.active ? rail.gid : verbs::Gid{}};
}

} // namespace ucx_mp::path
