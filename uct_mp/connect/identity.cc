#include "uct_mp/connect/identity.h"

#include <sys/random.h>

#include <algorithm>

#include "uct_mp/connect/bytes.h"
#include "uct_mp/connect/plane.h"

namespace ucx_mp::connect {

std::size_t gids(std::span<const path::RemoteRail> rails) {
    return std::size_t(std::ranges::count_if(rails, [](const auto& r) { return verbs::is_set(r.gid); }));
}

Identity::Identity(Plane& plane) : names(plane.config.names), dct_numbers(plane.config.dct_numbers), plane_(plane) {
    // An empty tail tells nothing.
    if (!names.host.empty() || names.rank >= 0) names.ports = port_names(plane.devices.rails());
}

void Identity::choose() {
    std::uint64_t secrets[3]; // uid, cookie and Q_Key, the first packet numbers: none tells anything about another
    if (plane_.config.seed) {
        for (std::uint64_t i = 0; i < 3; ++i) secrets[i] = mix(mix(plane_.config.seed) + i);
    } else {
        // It never fails for so few bytes, but may be interrupted early after boot.
        while (getrandom(secrets, sizeof secrets, 0) != sizeof secrets) {}
    }
    address.uid = secrets[0] ? secrets[0] : 1;
    address.cookie = secrets[1];
    // With the top bit set a sender would use its own queue pair's key (IB 10.2.5).
    address.q_key = std::uint32_t(mix(secrets[1] ^ secrets[0])) & 0x7fffffff;
    random_state_ = secrets[2];
    address.min_version = plane_.config.min_version;
    address.max_version = plane_.config.max_version;
    address.transport = plane_.config.transport;
}

// Few addresses for many rails: every subnet gets its turn. Ports that are down
// take the remaining places, since the length does not grow when they come up.
void Identity::make_address() {
    address.count = 0;
    std::vector<bool> used(rails.size());
    const auto entry_of = [&](std::size_t i) -> ControlAddress {
        const path::RemoteRail& r = rails[i];
        const bool roce = verbs::is_set(r.gid);
        return {r.lid, r.control_qpn, r.lmc, std::uint8_t(i), roce ? std::uint16_t{0} : subnet_tag(r.subnet_prefix),
                r.gid};
    };
    const auto chosen_of = [&](std::uint64_t prefix) {
        unsigned n = 0;
        for (std::size_t i = 0; i < used.size(); ++i) n += used[i] && rails[i].subnet_prefix == prefix;
        return n;
    };
    while (address.count < kMaxControlAddresses) {
        const std::size_t room = address_room_ - packed_size(address);
        std::size_t best = rails.size();
        for (std::size_t i = 0; i < rails.size(); ++i)
            if (!used[i] && packed_size(entry_of(i)) <= room &&
                (best == rails.size() || (rails[i].usable() && !rails[best].usable()) ||
                 (rails[i].usable() == rails[best].usable() &&
                  chosen_of(rails[i].subnet_prefix) < chosen_of(rails[best].subnet_prefix))))
                best = i;
        if (best == rails.size()) break;
        used[best] = true;
        address.control[address.count++] = entry_of(best);
    }
    address_room_ = packed_size(address);
}

std::size_t Identity::smallest_mtu() const {
    const auto roce = std::size_t(std::ranges::count(plane_.devices.rails(), true, &verbs::Rail::ethernet));
    return wire::request_size(plane_.devices.rails().size(), roce);
}

// A port that is not active keeps its place in the list: LID 0, no GID.
void Identity::set_rail(const verbs::Rail& rail) {
    path::RemoteRail& own = rails[rail.index];
    own = path::describe(rail);
    own.life = plane_.devices.device_of(rail).life;
    own.probe_key = plane_.owner.ends.probe_key(rail);
    own.control_qpn = plane_.datagrams.qp_number(rail.index);
    if (rail.index < dct_numbers.size()) own.dct_number = dct_numbers[rail.index].front();
    if (!valid_port(own.lid, own.lmc)) own.lid = own.lmc = 0;
    own.mtu = std::clamp(own.mtu, IBV_MTU_256, IBV_MTU_4096);
}

std::uint8_t Identity::version_to(std::uint8_t newest) const { return std::min(address.max_version, newest); }

std::vector<path::RemoteRail> Identity::rails_to(std::uint64_t uid) const {
    std::vector<path::RemoteRail> told = rails;
    for (std::size_t i = 0; i < dct_numbers.size(); ++i) {
        const std::vector<std::uint32_t>& targets = dct_numbers[i];
        if (targets.size() > 1) told[i].dct_number = targets[(uid * 0x9e3779b97f4a7c15ull >> 32) % targets.size()];
    }
    return told;
}

Terms Identity::terms_for(const Connection& c) const {
    Terms terms = plane_.config.terms;
    terms.dc_tag = c.own_dc_tag;
    return terms;
}

void Identity::take_terms(Connection& c, const Message& m) const {
    c.dc_key = m.dc_key;
    c.dc_tag = m.terms.dc_tag;
    c.features = m.terms.features & plane_.config.terms.features;
    c.peer_kinds = kinds_of(m.terms, m.transport);
    c.probe_address = m.terms.probe_address;
    c.peer_window = m.terms.window;
    c.peer_ring = m.terms.ring;
    c.peer_segment = m.terms.segment;
    c.names = read_names(m.tail);
}

path::Kinds Identity::common_kinds(const Message& m) const {
    return kinds_of(plane_.config.terms, address.transport) & kinds_of(m.terms, m.transport);
}

std::uint32_t Identity::next_transaction() { return newest_transaction = next_number(newest_transaction); }

std::uint64_t Identity::random() {
    random_state_ += 0x9e3779b97f4a7c15u;
    return mix(random_state_);
}

std::uint32_t Identity::random_psn() { return std::uint32_t(random() >> 40); }

// Not from random(), whose numbers peers are shown: one of them is enough to compute the others.
std::uint64_t Identity::random_tag() {
    std::uint64_t tag = 0;
    if (plane_.config.seed) return mix(mix(plane_.config.seed) ^ ++tags_made_) | 1;
    while (getrandom(&tag, sizeof tag, 0) != sizeof tag || tag == 0) {}
    return tag;
}

} // namespace ucx_mp::connect
