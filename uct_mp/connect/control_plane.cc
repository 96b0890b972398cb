#include "uct_mp/connect/control_plane.h"

#include <sys/random.h>

#include <algorithm>
#include <cassert>
#include <cinttypes>
#include <cstdio>
#include <mutex>

#include "uct_mp/connect/bytes.h"
#include "uct_mp/connect/control_plane_impl.h"

namespace ucx_mp::connect {

namespace {

bool under_way(State s) { return s == State::requesting || s == State::confirming || s == State::accepting; }

[[maybe_unused]] bool legal(State from, State to) {
    switch (from) {
    case State::closed:
        return to == State::requesting || to == State::accepting;
    case State::requesting: // -> accepting: both had started, we are the server
        return to == State::confirming || to == State::accepting || to == State::failed || to == State::closed;
    case State::confirming: // -> requesting, accepting: the server has given up this handshake
        return to == State::established || to == State::requesting || to == State::accepting || to == State::failed ||
               to == State::closed;
    case State::accepting: // -> accepting: the client has started anew
        return to == State::established || to == State::accepting || to == State::failed || to == State::closed;
    case State::established:
    case State::failed: // -> accepting: Owner::renew
        return to == State::accepting || to == State::closed;
    }
    return false;
}

} // namespace

const char* name(State state) {
    switch (state) {
    case State::closed:
        return "closed";
    case State::requesting:
        return "requesting";
    case State::confirming:
        return "confirming";
    case State::accepting:
        return "accepting";
    case State::established:
        return "established";
    case State::failed:
        return "failed";
    }
    return "?";
}

std::size_t gids(std::span<const path::RemoteRail> rails) {
    return std::size_t(std::ranges::count_if(rails, [](const auto& r) { return verbs::is_set(r.gid); }));
}

// ---- Opening

Status ControlPlane::Impl::open(std::string& error) {
    const std::span<const verbs::Rail> rails =
        config.rails.empty() ? devices.rails() : std::span<const verbs::Rail>(config.rails);
    error = path::check(config.paths, rails);
    if (!error.empty()) return Status::invalid_param;
    if (rails.empty() || rails.size() > verbs::kMaxRails) {
        error = "control plane: " + std::to_string(rails.size()) + " rails; allowed: 1 to " +
                std::to_string(verbs::kMaxRails);
        return Status::invalid_param;
    }
    const std::size_t request = smallest_mtu();
    for (const verbs::Rail& rail : rails)
        if (rail.active && mtu_bytes(rail.mtu) < request) {
            error = "UCX_MP_RAILS: rail " + rail.name + " has an MTU of " + std::to_string(mtu_bytes(rail.mtu)) +
                    " bytes; " + std::to_string(rails.size()) + " rails need at least " + std::to_string(request);
            return Status::invalid_param;
        }
    make_identity();
    const Datagrams::Config queues{.receive_depth = config.receive_depth,
                                   .send_depth = config.send_depth,
                                   .q_key = address.q_key,
                                   .service_level = config.service_level};
    if (const Status s = datagrams.open(devices, queues, error); failed(s)) return s;
    for (const verbs::Rail& rail : rails) {
        own_rails.emplace_back();
        set_own(rail);
    }
    if (std::ranges::none_of(own_rails, &path::RemoteRail::usable)) {
        error = "UCX_MP_RAILS: none of the " + std::to_string(own_rails.size()) + " ports is active; one must be";
        return Status::unreachable;
    }
    make_address();
    return Status::ok;
}

void ControlPlane::Impl::make_identity() {
    std::uint64_t secrets[3]; // uid, cookie and Q_Key, where packet numbers begin: none tells anything about another
    if (config.seed) {
        for (std::uint64_t i = 0; i < 3; ++i) secrets[i] = mix(mix(config.seed) + i);
    } else {
        // Never fails for so few bytes, but may be interrupted early after boot.
        while (getrandom(secrets, sizeof secrets, 0) != sizeof secrets) {}
    }
    address.uid = secrets[0] ? secrets[0] : 1;
    address.cookie = secrets[1];
    // With the top bit set a sender would use its own queue pair's key (IB 10.2.5).
    address.q_key = std::uint32_t(mix(secrets[1] ^ secrets[0])) & 0x7fffffff;
    random_state = secrets[2];
    address.min_version = config.min_version;
    address.max_version = config.max_version;
    address.transport = config.transport;
}

// Few addresses for many rails: every subnet gets its turn. Ports that are down take what is left, for its length does
// not grow when they come up.
void ControlPlane::Impl::make_address() {
    address.count = 0;
    std::vector<bool> used(own_rails.size());
    const auto entry_of = [&](std::size_t i) -> ControlAddress {
        const path::RemoteRail& r = own_rails[i];
        const bool roce = verbs::is_set(r.gid);
        return {r.lid, r.control_qpn, r.lmc, std::uint8_t(i), roce ? std::uint16_t{0} : subnet_tag(r.subnet_prefix),
                r.gid};
    };
    const auto chosen_of = [&](std::uint64_t prefix) {
        unsigned n = 0;
        for (std::size_t i = 0; i < used.size(); ++i) n += used[i] && own_rails[i].subnet_prefix == prefix;
        return n;
    };
    while (address.count < kMaxControlAddresses) {
        const std::size_t room = address_room - packed_size(address);
        std::size_t best = own_rails.size();
        for (std::size_t i = 0; i < own_rails.size(); ++i)
            if (!used[i] && packed_size(entry_of(i)) <= room &&
                (best == own_rails.size() || (own_rails[i].usable() && !own_rails[best].usable()) ||
                 (own_rails[i].usable() == own_rails[best].usable() &&
                  chosen_of(own_rails[i].subnet_prefix) < chosen_of(own_rails[best].subnet_prefix))))
                best = i;
        if (best == own_rails.size()) break;
        used[best] = true;
        address.control[address.count++] = entry_of(best);
    }
    address_room = packed_size(address);
}

std::size_t ControlPlane::Impl::smallest_mtu() const {
    const auto roce = std::size_t(std::ranges::count(devices.rails(), true, &verbs::Rail::ethernet));
    return wire::request_size(devices.rails().size(), roce);
}

ControlPlane::Impl::~Impl() {
    const std::lock_guard lock(services);
    for (Connection* c : under_way) cancel_timer(*c);
    while (!asking.empty()) stop_asking(**asking.begin());
    while (!telling.empty()) stop_telling(**telling.begin());
    while (!parting.empty()) stop_parting(**parting.begin());
    if (rest) services.cancel_in_background(rest);
}

std::uint64_t ControlPlane::Impl::random() {
    random_state += 0x9e3779b97f4a7c15u;
    return mix(random_state);
}

// Not from random(), which peers are shown: who knows one of its numbers can compute the others.
std::uint64_t ControlPlane::Impl::random_tag() {
    std::uint64_t tag = 0;
    if (config.seed) return mix(mix(config.seed) ^ ++tags_made);
    while (getrandom(&tag, sizeof tag, 0) != sizeof tag) {}
    return tag;
}

Terms ControlPlane::Impl::terms_of(const Connection& c) const {
    Terms terms = config.terms;
    terms.dc_tag = c.own_dc_tag;
    return terms;
}

void ControlPlane::Impl::take_terms(Connection& c, const Message& m) {
    c.dc_key = m.dc_key;
    c.dc_tag = m.terms.dc_tag;
    c.features = m.terms.features & config.terms.features;
    c.probe_address = m.terms.probe_address;
    c.peer_window = m.terms.window;
    c.peer_ring = m.terms.ring;
    c.peer_segment = m.terms.segment;
}

std::uint32_t ControlPlane::Impl::next_transaction() {
    if (++newest_transaction == 0) ++newest_transaction;
    return newest_transaction;
}

// ---- Sending

Message ControlPlane::Impl::message(wire::Kind kind, std::uint64_t cookie, std::uint32_t transaction) const {
    Message m;
    m.kind = kind;
    m.version = address.max_version;
    m.cookie = cookie;
    m.sender_uid = address.uid;
    m.sender_cookie = address.cookie;
    m.sender_q_key = address.q_key;
    m.transaction = transaction;
    m.min_version = address.min_version;
    m.max_version = address.max_version;
    m.transport = config.transport;
    m.reserved = config.reserved;
    return m;
}

Message ControlPlane::Impl::message_to(wire::Kind kind, const Connection& c) const {
    Message m = message(kind, c.peer.cookie, c.transaction);
    m.version = std::min(address.max_version, c.peer.max_version);
    m.destination = kind == wire::Kind::request ? 0 : c.remote_id;
    m.source = c.local_id;
    m.incarnation = c.incarnation;
    return m;
}

bool ControlPlane::Impl::send(const Target& to, const Message& m) {
    std::uint8_t datagram[wire::kMaxMessage];
    const std::size_t bytes = pack(m, datagram);
    const Status status = datagrams.send(to, {datagram, bytes});
    ++(failed(status) ? counters.unsent : counters.sent); // the client will repeat its message
    return status != Status::no_resource;
}

void ControlPlane::Impl::refuse(const Target& way_back, const Message& m, wire::Reason reason) {
    services.say(LogLevel::debug, "mp: %s of peer %016" PRIx64 " refused: reason %u", connect::name(m.kind),
                 m.sender_uid, unsigned(reason));
    Message answer = message(wire::Kind::refuse, m.sender_cookie, m.transaction);
    answer.destination = m.source;
    answer.source = m.destination;
    answer.reason = reason;
    answer.refused = m.kind;
    ++counters.refused;
    Target to = way_back;
    to.q_key = m.sender_q_key;
    send(to, answer);
}

void ControlPlane::Impl::refuse(const Target& way_back, const Connection& c, wire::Kind kind, wire::Reason reason) {
    Message m;
    m.kind = kind;
    m.sender_uid = c.peer.uid;
    m.sender_cookie = c.peer.cookie;
    m.sender_q_key = way_back.q_key;
    m.transaction = c.transaction;
    m.source = c.remote_id;
    refuse(way_back, m, reason);
}

// ---- Arrival

// An Ethernet port that is down breaks its queue pair with the first datagram that it should send, and it has to work
// again when the port does (which may be up without that anybody has been told).
void ControlPlane::Impl::mend() {
    constexpr Nanos kPause = 50'000'000;
    bool broken = false;
    for (unsigned rail = 0; rail < own_rails.size(); ++rail) broken |= !datagrams.works(rail);
    if (!broken || polling) return;
    const Nanos now = services.now();
    if (now < next_mend) return;
    next_mend = now + kPause;
    for (unsigned rail = 0; rail < own_rails.size(); ++rail)
        if (!datagrams.works(rail)) datagrams.restart(rail);
}

unsigned ControlPlane::Impl::poll(bool occupied) {
    if (polling) return 0; // an owner's function has called it
    mend();
    polling = true;
    unsigned n = datagrams.poll(
        [this](const Target& way_back, std::span<const std::uint8_t> datagram) { arrived(way_back, datagram); });
    others_busy |= occupied;
    end_rest_if_over();
    if (!waiting.empty()) n += work();
    polling = false;
    return n;
}

void ControlPlane::Impl::arrived(const Target& from, std::span<const std::uint8_t> datagram) {
    ++counters.received;
    Message m;
    const Parse parsed = parse(datagram, own_rails, m, address.min_version, address.max_version);
    if (parsed == Parse::malformed || m.cookie != address.cookie || m.sender_uid == address.uid) {
        ++counters.dropped;
        return;
    }
    Target way_back = from;
    way_back.q_key = m.sender_q_key;
    if (parsed == Parse::version || (m.transport != config.transport && m.kind != wire::Kind::refuse)) {
        ++counters.dropped;
        // Only a request is worth an answer: the other kinds follow one that has been understood.
        if (m.kind == wire::Kind::request)
            refuse(way_back, m, parsed == Parse::version ? wire::Reason::version : wire::Reason::transport);
        return;
    }
    switch (m.kind) {
    case wire::Kind::request:
        on_request(way_back, m);
        break;
    case wire::Kind::reply:
        on_reply(way_back, m);
        break;
    case wire::Kind::confirm:
        on_confirm(way_back, m);
        break;
    case wire::Kind::ready:
        on_ready(m);
        break;
    case wire::Kind::refuse:
        on_refuse(m);
        break;
    case wire::Kind::ping:
        on_ping(way_back, m);
        break;
    case wire::Kind::pong:
        on_pong(m);
        break;
    case wire::Kind::path_down:
    case wire::Kind::path_open:
    case wire::Kind::path_opened:
    case wire::Kind::path_probe:
    case wire::Kind::path_probed:
        on_path_news(way_back, m);
        break;
    case wire::Kind::rails:
        on_rails(m);
        break;
    case wire::Kind::rails_known:
        on_rails_known(m);
        break;
    case wire::Kind::keys:
        on_keys(way_back, m);
        break;
    case wire::Kind::keys_told:
        on_keys_told(m);
        break;
    case wire::Kind::ended:
        on_ended(way_back, m);
        break;
    case wire::Kind::ended_known:
        on_ended_known(m);
        break;
    }
}

bool ControlPlane::Impl::known_as(const Connection& c, const Message& m) const {
    return c.peer.uid == m.sender_uid && c.peer.cookie == m.sender_cookie;
}

Connection* ControlPlane::Impl::connection_of(const Message& m) {
    Connection* c = owner.peers.find_local(m.destination);
    return c && known_as(*c, m) ? c : nullptr;
}

void ControlPlane::Impl::on_refuse(const Message& m) {
    Connection* c = connection_of(m);
    if (!c || !connect::under_way(c->state) || c->transaction != m.transaction) {
        ++counters.late;
    } else if (c->state != State::accepting) {
        refused(*c, m);
    } else {
        abandon(*c, "the client gave up");
    }
}

// ---- States

void ControlPlane::Impl::cancel_timer(Connection& c) {
    if (c.timer) services.cancel_in_background(c.timer);
    c.timer = 0;
}

void ControlPlane::Impl::set_timer(Connection& c, Nanos at, void (Impl::*fn)(Connection&)) {
    cancel_timer(c);
    c.timer = services.at_in_background(at, [this, &c, fn] {
        c.timer = 0;
        (this->*fn)(c);
    });
}

void ControlPlane::Impl::set_state(Connection& c, State to, const char* why) {
    assert(legal(c.state, to));
    if (services.logs(LogLevel::debug))
        services.say(LogLevel::debug, "mp: connection %u to %s: %s -> %s: %s", c.local_id, describe(c).c_str(),
                     connect::name(c.state), connect::name(to), why);
    cancel_timer(c);
    drop_due(c);
    if (c.question.number) stop_asking(c);
    stop_telling(c);
    stop_parting(c);
    if (to != State::established) c.parting = {}; // numbers and all: another connection
    c.state = to;
    if (connect::under_way(to))
        under_way.insert(&c);
    else
        under_way.erase(&c);
}

void ControlPlane::Impl::fail(Connection& c, Status status, const std::string& why) {
    set_state(c, State::failed, why.c_str());
    drop_ends(c);
    owner.peers.failed(c, status, why.c_str());
}

void ControlPlane::Impl::drop_ends(Connection& c) {
    owner.ends.drop_ends(c);
    c.ends.clear();
}

std::string ControlPlane::Impl::describe(const Connection& c) const {
    char text[96];
    std::snprintf(text, sizeof text, "peer %016" PRIx64, c.peer.uid);
    std::string line = text;
    std::uint16_t lid = 0;
    verbs::Gid gid{};
    const auto look = [&](const auto& rail) {
        if (lid || verbs::is_set(gid)) return;
        lid = rail.lid;
        gid = rail.gid;
    };
    std::ranges::for_each(std::span(c.peer.control, c.peer.count), look);
    std::ranges::for_each(c.remote_rails, look);
    if (lid) line += " (LID " + std::to_string(lid) + ")";
    if (verbs::is_set(gid)) line += " (" + verbs::to_string(gid) + ")";
    return line;
}

// ---- The face

ControlPlane::ControlPlane(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlPlane::~ControlPlane() = default;

Status ControlPlane::open(const verbs::DeviceSet& devices, const ControlConfig& config, Services& services,
                          const Owner& owner, std::unique_ptr<ControlPlane>& out, std::string& error) {
    auto impl = std::make_unique<Impl>(devices, config, services, owner);
    if (const Status s = impl->open(error); ucx_mp::failed(s)) return s;
    out.reset(new ControlPlane(std::move(impl)));
    return Status::ok;
}

const InterfaceAddress& ControlPlane::address() const { return impl_->address; }
void ControlPlane::start(Connection& connection) {
    const std::lock_guard lock(impl_->services);
    impl_->start(connection);
}
void ControlPlane::forget(Connection& connection) {
    const std::lock_guard lock(impl_->services);
    if (connection.state != State::closed) impl_->set_state(connection, State::closed, "forgotten");
}
void ControlPlane::ask(Connection& connection, Nanos limit) {
    const std::lock_guard lock(impl_->services);
    impl_->ask(connection, limit);
}
unsigned ControlPlane::poll(bool occupied) {
    const std::lock_guard lock(impl_->services);
    return impl_->poll(occupied);
}
bool ControlPlane::busy() const { return !impl_->under_way.empty(); }
std::vector<int> ControlPlane::event_fds() const { return impl_->datagrams.event_fds(); }
Status ControlPlane::arm() {
    const std::lock_guard lock(impl_->services);
    return impl_->datagrams.arm();
}
void ControlPlane::port_active(unsigned rail) {
    const std::lock_guard lock(impl_->services);
    if (!impl_->devices.rails()[rail].ethernet) return;
    impl_->datagrams.drop_handles(rail);
    impl_->next_mend = 0;
}
std::uint64_t ControlPlane::random_tag() { return impl_->random_tag(); }
const ControlCounters& ControlPlane::counters() const { return impl_->counters; }

} // namespace ucx_mp::connect
