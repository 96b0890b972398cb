// The fuzzers' functions, driven by plain mutations of good samples: the same ones in every run and with any compiler.
#define BOOST_TEST_MODULE mutations
#include <boost/test/unit_test.hpp>

#include "fuzz/mutate.h"

using namespace ucx_mp;
using namespace ucx_mp::fuzz;

BOOST_AUTO_TEST_CASE(good_messages_are_accepted_and_fit) {
    for (const connect::Message& m : sample_messages()) {
        const Bytes b = packed(m);
        BOOST_TEST(try_message(b));
        BOOST_TEST(b.size() <= connect::wire::kMaxMessage);
        // Neither shorter nor longer ones, whatever the length field says.
        for (std::size_t n = 0; n < b.size(); ++n) {
            Bytes cut(b.begin(), b.begin() + std::ptrdiff_t(n));
            BOOST_TEST(!try_message(cut));
            if (n >= 8 && (m.tail.empty() || n + m.tail.size() < b.size())) { // a tail may be shorter
                cut[6] = std::uint8_t(n);
                cut[7] = std::uint8_t(n >> 8);
                BOOST_TEST(!try_message(cut));
            }
        }
        Bytes longer = b;
        longer.push_back(0);
        BOOST_TEST(!try_message(longer));
        longer[6] = std::uint8_t(longer.size());
        longer[7] = std::uint8_t(longer.size() >> 8);
        BOOST_TEST(!try_message(longer));
    }
}

BOOST_AUTO_TEST_CASE(what_is_out_of_range_is_refused) {
    using namespace connect;
    const auto good = [&](wire::Kind kind, const auto& change) {
        for (Message m : sample_messages())
            if (m.kind == kind && m.rails.size() <= 1 && m.transport == Transport::rc) {
                change(m);
                return try_message(packed(m));
            }
        return true;
    };
    using K = wire::Kind;
    BOOST_TEST(good(K::reply, [](Message&) {}));
    BOOST_TEST(good(K::request, [](Message& m) { m.rails[0].lid = 0; }));       // a port that is not active
    BOOST_TEST(!good(K::reply, [](Message& m) { m.rails[0].lid = 0; }));        // but no path leads there
    BOOST_TEST(!good(K::request, [](Message& m) { m.rails[0].lid = 17; }));     // not aligned to its LMC
    BOOST_TEST(!good(K::request, [](Message& m) { m.rails[0].lid = 0xc000; })); // multicast
    BOOST_TEST(!good(K::request, [](Message& m) { m.rails[0].lmc = 8; }));
    BOOST_TEST(!good(K::request, [](Message& m) { m.rails[0].mtu = ibv_mtu(0); }));
    BOOST_TEST(!good(K::request, [](Message& m) { m.rails[0].mtu = ibv_mtu(6); }));
    BOOST_TEST(!good(K::request, [](Message& m) { m.rails[0].device = 8; }));
    BOOST_TEST(!good(K::request, [](Message& m) { m.rails[0].control_qpn = 1; }));
    BOOST_TEST(!good(K::request, [](Message& m) { m.rails[0].control_qpn = 1u << 24; }));
    BOOST_TEST(!good(K::request, [](Message& m) { m.rails[0].dct_number = 1u << 24; }));
    BOOST_TEST(!good(K::request, [](Message& m) { m.rails.clear(); }));
    BOOST_TEST(!good(K::request, [](Message& m) { m.rails = sample_rails(9); }));
    BOOST_TEST(!good(K::request, [](Message& m) { m.num_paths = 33; }));
    BOOST_TEST(!good(K::request, [](Message& m) { m.transaction = 0; }));
    BOOST_TEST(!good(K::request, [](Message& m) { m.sender_uid = 0; }));
    BOOST_TEST(!good(K::request, [](Message& m) { m.min_version = 2, m.max_version = 1; }));
    BOOST_TEST(good(K::reply, [](Message& m) { path::mark_split(m.paths); }));
    BOOST_TEST(!good(K::reply,
                     [](Message& m) { m.paths.pop_back(), m.ends.pop_back(), path::mark_split(m.paths); })); // halves
    BOOST_TEST(!good(K::reply, [](Message& m) { m.paths[0].client_rail = 2; })); // the receiver has two
    BOOST_TEST(!good(K::reply, [](Message& m) { m.paths[0].server_rail = 1; })); // the sender has one
    BOOST_TEST(!good(K::reply, [](Message& m) { m.paths[0].client_bits = 4; }));
    BOOST_TEST(!good(K::reply, [](Message& m) { m.paths[0].server_bits = 4; }));
    BOOST_TEST(!good(K::reply, [](Message& m) { m.rails[0].subnet_prefix = 1; })); // nobody gets there
    BOOST_TEST(!good(K::reply, [](Message& m) { m.ends[0].qp_number = 0; }));
    BOOST_TEST(!good(K::reply, [](Message& m) { m.ends[0].psn = 1u << 24; }));
    BOOST_TEST(!good(K::reply, [](Message& m) { m.ends.clear(), m.paths.clear(); }));
    BOOST_TEST(!good(K::confirm, [](Message& m) { m.ends.clear(); }));
    BOOST_TEST(!good(K::confirm, [](Message& m) { m.ends.resize(33, {100, 1}); }));
    for (const K kind : {K::request, K::reply, K::confirm, K::ping, K::rails, K::ended})
        BOOST_TEST(!good(kind, [](Message& m) { m.nonce = 0; }), connect::name(kind));
    for (const K kind : {K::request, K::reply}) { // parts end where the tail does
        BOOST_TEST(good(kind, [](Message& m) { m.tail = {9, 0, 9, 1, 77}; }));
        BOOST_TEST(!good(kind, [](Message& m) { m.tail = {9}; }));
        BOOST_TEST(!good(kind, [](Message& m) { m.tail = {9, 2, 77}; }));
        BOOST_TEST(!good(kind, [](Message& m) { m.tail.assign(wire::kMaxTail + 2, 0); }));
    }
    BOOST_TEST(!good(K::confirm, [](Message& m) { m.tail = {9, 0}; }));
    BOOST_TEST(!good(K::request, [](Message& m) { m.terms.window = 0; }));
    BOOST_TEST(!good(K::reply, [](Message& m) { m.terms.ring = 0; }));
    BOOST_TEST(!good(K::reply, [](Message& m) { m.terms.segment = 0; }));
    BOOST_TEST(
        good(K::keys_told, [](Message& m) { m.yes = true, m.keys.count = 1, m.keys.lives = 255, m.keys.rkey[0] = 1; }));
    BOOST_TEST(!good(K::keys_told, [](Message& m) { m.yes = true; })); // keys of no device
    BOOST_TEST(!good(K::keys_told, [](Message& m) { m.yes = true, m.keys.count = 1, m.keys.lives = 256; }));
    BOOST_TEST(!good(K::refuse, [](Message& m) { m.refused = K(0); }));
    BOOST_TEST(!good(K::refuse, [](Message& m) { m.kind = K(6); }));
    // A newer one's reason is a reason.
    BOOST_TEST(good(K::refuse, [](Message& m) { m.reason = wire::Reason(200); }));
}

// A message alone does not tell whether a path that it names is one of RC; what it lists itself it does.
BOOST_AUTO_TEST_CASE(kinds_of_paths) {
    using namespace connect;
    const std::vector<path::RemoteRail> own = sample_rails(2);
    unsigned seen = 0;
    for (Message m : sample_messages()) {
        if (m.kind != wire::Kind::reply || m.terms.kinds != path::Kinds::both) continue;
        ++seen;
        Message out;
        BOOST_REQUIRE((parse(packed(m), own, out) == Parse::ok));
        BOOST_TEST((out.terms.kinds == path::Kinds::both));
        for (std::size_t i = 0; i < m.paths.size(); ++i) BOOST_TEST((out.paths.at(i).kind == m.paths[i].kind));
        std::swap(m.ends[0], m.ends[1]); // numbers for the one of DC, none for the one of RC
        BOOST_TEST((parse(packed(m), own, out) == Parse::malformed));
    }
    BOOST_TEST(seen == 3u);
    const Terms none{.features = feature::known}, both{.features = feature::known, .kinds = path::Kinds::both},
        old{.features = feature::parts, .kinds = path::Kinds::both},
        later{.features = feature::known, .kinds = path::Kinds(0xf1)};
    BOOST_TEST((kinds_of(none, Transport::dc) == path::Kinds::dc));
    BOOST_TEST((kinds_of(both, Transport::dc) == path::Kinds::both));
    BOOST_TEST((kinds_of(old, Transport::rc) == path::Kinds::rc)); // bytes that it does not know
    BOOST_TEST((kinds_of(later, Transport::dc) == path::Kinds::rc));
}

// Bits and bytes that a later version may use.
BOOST_AUTO_TEST_CASE(what_is_reserved_is_ignored) {
    for (const connect::Message& m : sample_messages()) {
        Bytes b = packed(m);
        const std::vector<std::size_t> places = reserved_bytes(b);
        BOOST_TEST(!places.empty());
        for (const std::size_t place : places) b[place] = 0xff;
        BOOST_TEST(try_message(b), connect::name(m.kind));
    }
}

BOOST_AUTO_TEST_CASE(versions_are_told_apart) {
    using namespace connect;
    const std::vector<path::RemoteRail> own = sample_rails(2);
    Message m = sample_messages()[0], out;
    m.version = m.min_version = m.max_version = kMaxVersion + 1;
    BOOST_TEST((parse(packed(m), own, out) == Parse::version));
    BOOST_TEST(out.sender_uid == m.sender_uid);
    BOOST_TEST(out.rails.empty()); // nothing behind the header has been looked at
    BOOST_TEST((parse(packed(m), own, out, kMinVersion, kMaxVersion + 1) == Parse::ok));
    // A refusal is understood in any version.
    Message refusal = sample_messages()[4];
    refusal.version = refusal.min_version = refusal.max_version = 9;
    BOOST_TEST((parse(packed(refusal), own, out) == Parse::ok));
}

BOOST_AUTO_TEST_CASE(roce_rails) {
    using namespace connect;
    const std::vector<path::RemoteRail> own = mixed_rails(2);
    Message m = sample_messages()[0], out;
    m.rails = mixed_rails(4);
    const Bytes whole = packed(m);
    BOOST_TEST(whole.size() == wire::request_size(4, 2));
    BOOST_TEST((parse(whole, own, out) == Parse::ok));
    BOOST_TEST((out.rails[1].gid == m.rails[1].gid));
    BOOST_TEST(out.rails[1].usable());
    const auto good = [&](const verbs::Gid& gid) {
        m.rails[1].gid = gid;
        return parse(packed(m), own, out) == Parse::ok;
    };
    BOOST_TEST(good(verbs::gid_of_ipv4(0xc0a80001)));
    BOOST_TEST(!good(verbs::gid_of_ipv4(0xe0000001))); // multicast
    m.rails[1].lid = 16;
    BOOST_TEST(!good(verbs::gid_of_ipv4(0xc0a80001))); // both at once
}

BOOST_AUTO_TEST_CASE(who_reaches_whom) {
    using namespace connect;
    std::vector<verbs::Rail> rails(2);
    rails[0].subnet_prefix = 1, rails[1].subnet_prefix = 2;
    InterfaceAddress a = sample_address(1);
    a.control[0].subnet_tag = subnet_tag(2);
    InterfaceAddress own, of_dc;
    of_dc.transport = Transport::dc;
    BOOST_TEST(reachable(a, rails, own));
    BOOST_TEST(!reachable(a, rails, of_dc));
    BOOST_TEST(!reachable(a, std::span(rails).first(1), own));
    a.min_version = a.max_version = kMaxVersion + 1;
    BOOST_TEST(!reachable(a, rails, own));
    a.min_version = kMinVersion;
    BOOST_TEST(reachable(a, rails, own));
    BOOST_TEST(subnet_tag(0xfe80000000000000) != subnet_tag(0xfe80000000000001));
    // RoCE: the network of our rail, or any if it has to be routed; never from one kind to another.
    verbs::Rail roce;
    roce.ethernet = true;
    roce.gid = verbs::gid_of_ipv4(0x0a000101);
    roce.subnet_prefix = verbs::network_of(roce.gid, 24);
    const ControlAddress near{0, 71, 0, 0, 0, verbs::gid_of_ipv4(0x0a000105)},
        far{0, 71, 0, 0, 0, verbs::gid_of_ipv4(0x0a000205)};
    BOOST_TEST(reach(roce.subnet_prefix, roce.gid, near, false));
    BOOST_TEST(!reach(roce.subnet_prefix, roce.gid, far, false));
    BOOST_TEST(reach(roce.subnet_prefix, roce.gid, far, true));
    BOOST_TEST(!reach(roce.subnet_prefix, roce.gid, mixed_address(true).control[1], true)); // IPv6
    BOOST_TEST(!reach(roce.subnet_prefix, roce.gid, a.control[0], true));                   // InfiniBand
    BOOST_TEST(!reach(2, {}, near, true));
    a.control[0] = far;
    BOOST_TEST(reachable(a, std::span(&roce, 1), own));
    BOOST_TEST(!reachable(a, rails, own));
}
