// The handshake between few nodes, in virtual time, and what they agree on, on any fabric and through losses.
#define BOOST_TEST_MODULE handshake
#include <boost/test/unit_test.hpp>

#include <poll.h>

#include "connect/handshake_fixture.h"

using namespace ucx_mp;
using namespace ucx_mp::test;

namespace {

unsigned sum_of(const connect::ControlCounters& t) {
    return unsigned(t.repeated + t.unsent + t.dropped + t.late + t.refused);
}

} // namespace

BOOST_AUTO_TEST_CASE(one_connects_to_another) {
    Cluster c({"aa", "aa"});
    Peer& p = c[0].connect_to(c[1]);
    BOOST_TEST(c[0].plane->busy());
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
    BOOST_TEST(p.connection.paths.size() == 2u);
    BOOST_TEST(!p.connection.server);
    BOOST_TEST(c[1].peer_of(c[0])->connection.server);
    BOOST_TEST(p.connection.incarnation == 1u);
    BOOST_TEST(c[1].peer_of(c[0])->connection.incarnation == 1u);
    BOOST_TEST(!c[0].plane->busy());
    BOOST_TEST(!c[1].plane->busy());
    BOOST_TEST(c.greet());
    BOOST_TEST(c.total().sent == 4u);
    BOOST_TEST(c.total().received == 4u);
    BOOST_TEST(sum_of(c.total()) == 0u);
}

BOOST_AUTO_TEST_CASE(both_at_once) {
    Cluster c({"aa", "aa"});
    c[0].connect_to(c[1]);
    c[1].connect_to(c[0]);
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
    BOOST_TEST(c.once(0, 1));
    const bool first_is_client = c[0].plane->address().uid < c[1].plane->address().uid;
    BOOST_TEST(c[0].peer_of(c[1])->connection.server == !first_is_client);
    BOOST_TEST(c.greet());
    BOOST_TEST(c.total().sent == 5u); // the other's request was in vain
    BOOST_TEST(c.total().late == 1u);
}

BOOST_AUTO_TEST_CASE(both_at_once_in_any_order_of_arrival_and_loss) {
    for (unsigned shift = 0; shift < 12; ++shift)
        for (const bool swapped : {false, true}) {
            Cluster c({"aa", "aa"}, {}, {}, 100 + shift);
            if (shift % 3 == 2) c.world().fault("drop 30% all");
            Node &early = c[swapped], &late = c[!swapped];
            early.connect_to(late);
            c.settle(shift * kMicro);
            if (!late.peer_of(early)) late.connect_to(early);
            BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
            c.world().fault("clear");
            c.settle(kSecond);
            BOOST_TEST(c.once(0, 1));
            BOOST_TEST(c.greet());
        }
}

BOOST_AUTO_TEST_CASE(different_numbers_of_rails) {
    for (const auto& [a, b, paths] : {std::tuple{"aa", "a", 2u}, {"a", "aa", 2u}, {"aaa", "aa", 3u}, {"a", "a", 1u}}) {
        Cluster c({a, b});
        c[0].connect_to(c[1]);
        BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
        BOOST_TEST(c[0].peer_of(c[1])->connection.paths.size() == paths);
        BOOST_TEST(c.greet());
    }
}

BOOST_AUTO_TEST_CASE(different_subnets) {
    // Only b is common: rail 1 here, rail 0 there.
    Cluster c({"ab", "bc", "dd"}, {}, {{'b', 2}});
    c[0].connect_to(c[1]);
    Peer& nowhere = c[0].connect_to(c[2]);
    BOOST_TEST(nowhere.times_failed == 0u); // never from within start()
    BOOST_TEST(c.run([&] { return c.connected(0, 1) && nowhere.times_failed == 1; }));
    BOOST_TEST((nowhere.status == Status::unreachable));
    BOOST_TEST_MESSAGE(nowhere.why);
    const Peer& p = *c[0].peer_of(c[1]);
    BOOST_TEST(p.connection.paths.size() == 4u); // the routes of LMC 2
    for (const path::PathSpec& s : p.connection.paths) {
        BOOST_TEST(s.client_rail == 1);
        BOOST_TEST(s.server_rail == 0);
    }
    BOOST_TEST(c.greet());
}

BOOST_AUTO_TEST_CASE(smaller_packets) {
    // 256 bytes: a request with two rails fits, a reply with 32 paths does not.
    ControlConfig many;
    many.paths.num_paths = 32;
    Cluster c({"aa", "aa"}, many, {{'a', 5}}, 1, "{mtu: 256}");
    c[0].connect_to(c[1]);
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
    const std::size_t paths = c[0].peer_of(c[1])->connection.paths.size();
    BOOST_TEST(paths == 4u); // (256 - 52 - 16 - 60 - 2 * 32) / 12, whole rounds
    BOOST_TEST(c.greet());
    BOOST_CHECK_THROW(Cluster({"aaaaaaaa"}, {}, {}, 1, "{mtu: 256}"), std::runtime_error);
}

BOOST_AUTO_TEST_CASE(many_paths_with_losses) {
    ControlConfig many;
    many.paths.num_paths = 16;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        Cluster c({"aa", "aa"}, many, {{'a', 4}}, seed);
        c.world().fault("drop 20% all");
        c[0].connect_to(c[1]);
        if (seed % 2) c[1].connect_to(c[0]);
        BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
        c.world().fault("clear");
        c.settle(kSecond);
        BOOST_TEST(c.once(0, 1));
        BOOST_TEST(c[0].peer_of(c[1])->connection.paths.size() == 32u);
        BOOST_TEST(c.greet());
    }
}

BOOST_AUTO_TEST_CASE(one_rail_is_dead_the_whole_time) {
    for (const char* port : {"0:softhca_0:1", "0:softhca_1:1", "1:softhca_0:1", "1:softhca_1:1"}) {
        Cluster c({"aa", "aa"});
        c.world().fault(std::string("drop 100% ") + port);
        c[0].connect_to(c[1]);
        const Nanos start = c.world().now();
        BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
        BOOST_TEST(c.world().now() - start < 100 * kMilli);
        BOOST_TEST(c.once(0, 1));
    }
    // Its state says so, too.
    Cluster c({"aa", "aa"});
    c.world().fault("port down 1:softhca_0:1");
    c[0].connect_to(c[1]);
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
    c.world().fault("port up 1:softhca_0:1");
    c.settle(kMilli);
    BOOST_TEST(c.greet());
}

BOOST_AUTO_TEST_CASE(a_port_that_is_not_active) {
    const std::vector<ControlConfig> both(2);
    for (const std::size_t client : {0, 1}) {
        Cluster c({"aa", "aa"}, both, "port down 0:softhca_0:1");
        BOOST_TEST(c[0].devices.rails().size() == 2u);
        BOOST_TEST(c[0].plane->address().count == 2); // it keeps its place
        BOOST_TEST(c[0].plane->address().control[0].rail == 1);
        BOOST_TEST(c[0].plane->address().control[1].lid == 0u);
        c[client].connect_to(c[!client]);
        BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
        const Connection& connection = c[0].peer_of(c[1])->connection;
        BOOST_TEST(connection.paths.size() - connection.absent == 2u); // both of node 1's rails to the one that is left
        BOOST_TEST(connection.absent == 1);
        BOOST_TEST(c.greet());
    }
    BOOST_CHECK_THROW(Cluster({"a", "a"}, both, "port down 0:softhca_0:1"), std::runtime_error);
}

// A port that is down may be the one that leads there: who has started or been told before waits for it, and not for
// ever. Which side it is on does not matter.
BOOST_AUTO_TEST_CASE(no_active_port_leads_there) {
    ControlConfig config;
    config.timeout = 2 * kSecond;
    for (const std::size_t client : {0, 1})
        for (const bool comes_up : {true, false}) {
            Cluster c({"ab", "a"}, {config, config}, "port down 0:softhca_0:1");
            Peer& p = c[client].connect_to(c[!client]);
            c.settle(kSecond);
            BOOST_TEST(p.times_failed == 0u);
            if (!comes_up) {
                BOOST_TEST(c.run([&] { return p.times_failed == 1; }, 3 * kSecond));
                BOOST_TEST((p.status == Status::timed_out));
                continue;
            }
            c.world().fault("port up 0:softhca_0:1");
            verbs::Rail rail = c[0].devices.rails()[0];
            c.world().select(0);
            BOOST_TEST(verbs::refresh(c[0].devices.device_of(rail), rail));
            {
                const std::lock_guard lock(c.services);
                c[0].plane->renew(rail);
            }
            if (client == 0) {
                BOOST_TEST(c.run([&] { return c.connected(0, 1); }, kSecond));
                BOOST_TEST(c.greet());
            } else {
                // It has been told an address without that port. The other side knows the way.
                BOOST_TEST(p.times_failed == 0u);
                c[0].connect_to(c[1]);
                BOOST_TEST(c.run([&] { return c.connected(0, 1); }, kSecond));
            }
        }
}

BOOST_AUTO_TEST_CASE(a_lost_ready_is_repeated) {
    Cluster c({"a", "a"});
    Peer& p = c[0].connect_to(c[1]);
    BOOST_TEST(c.run([&] { return c.is(1, 0, State::established); }));
    BOOST_TEST((p.connection.state == State::confirming));
    c.world().fault("drop 100% all");
    c.settle(kMilli);
    c.world().fault("clear");
    // The server is established and may send; the client's queue pairs take it.
    c[1].greet_everybody();
    c.settle(kMilli);
    BOOST_TEST((p.connection.state == State::confirming));
    BOOST_TEST(p.greetings.at(0) == 1u);
    p.greetings[0] = 0;
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
    BOOST_TEST(c.once(0, 1));
    BOOST_TEST(c.greet());
}

BOOST_AUTO_TEST_CASE(roles_may_change) {
    Cluster c({"aa", "aa"});
    for (std::uint32_t round = 1; round <= 6; ++round) {
        c[round % 2].connect_to(c[!(round % 2)]);
        BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
        BOOST_TEST(c[0].peer_of(c[1])->connection.incarnation == round);
        BOOST_TEST(c[1].peer_of(c[0])->connection.incarnation == round);
        BOOST_TEST(c.greet());
        for (const std::size_t i : {0, 1}) c[i].forget(*c[i].peer_of(c[!i]));
        c.settle(kMilli);
    }
    BOOST_TEST(sum_of(c.total()) == 0u);
}

BOOST_AUTO_TEST_CASE(versions) {
    ControlConfig old, both, fresh, oldest;
    oldest.min_version = oldest.max_version = connect::kMinVersion - 1;
    both.max_version = connect::kMaxVersion + 1;
    fresh.min_version = fresh.max_version = connect::kMaxVersion + 1;
    Cluster c({"a", "a", "a", "a"}, {old, both, fresh, oldest});
    // The address says it already.
    Peer& known = c[2].connect_to(c[0]);
    BOOST_TEST(c.run([&] { return known.times_failed == 1; }));
    BOOST_TEST((known.status == Status::unsupported));
    BOOST_TEST(known.why == "it speaks version 6 of the handshake, we version 7: libuct_mp.so is too old there");
    c[2].erase(known);
    for (const std::size_t here : {0, 3}) {
        Peer& other = c[here].connect_to(c[3 - here]);
        BOOST_TEST(c.run([&] { return other.times_failed == 1; }));
        const std::string side = here == 3 ? "here" : "there";
        BOOST_TEST(other.why.ends_with("libuct_mp.so is too old " + side), other.why);
        c[here].erase(other);
    }
    // The address is wrong (the library was exchanged meanwhile): the server says it.
    connect::InterfaceAddress forged = c[0].plane->address();
    forged.max_version = connect::kMaxVersion + 1;
    Peer& refused = c[2].connect_to(forged);
    BOOST_TEST(c.run([&] { return refused.times_failed == 1; }, kSecond));
    BOOST_TEST((refused.status == Status::unsupported));
    BOOST_TEST(refused.why == "refused: it speaks other versions of the handshake (version 6; we: version 7)");
    BOOST_TEST(c[0].peers.empty());
    // Common versions are found.
    c[1].connect_to(c[0]);
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
    c[1].connect_to(c[2]);
    BOOST_TEST(c.run([&] { return c.connected(1, 2); }));
    BOOST_TEST(c.greet());
}

// A later version that speaks this one, too: it offers more, and uses bytes that are reserved here.
BOOST_AUTO_TEST_CASE(a_later_version) {
    ControlConfig present, later;
    present.terms = {.features = 0x11, .probe_address = 0, .window = 100, .ring = 128, .segment = 4096};
    later.max_version = connect::kMaxVersion + 1;
    later.terms = {
        .features = ~std::uint64_t{2}, .probe_address = 0x1234, .window = 200, .ring = 0xffffffff, .segment = 1u << 30};
    later.reserved = 0xa5;
    later.tail = {200, 5, 1, 2, 3, 4, 5, 201, 0, 202, 1, 9};
    for (const std::size_t client : {0, 1}) {
        Cluster c({"ab", "ab"}, {present, later});
        c[client].connect_to(c[!client]);
        BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
        BOOST_TEST(c.greet());
        const Connection &ours = c[0].peer_of(c[1])->connection, &theirs = c[1].peer_of(c[0])->connection;
        BOOST_TEST(ours.features == 0x11u);
        BOOST_TEST(theirs.features == 0x11u);
        BOOST_TEST(ours.probe_address == 0x1234u);
        BOOST_TEST(ours.peer_window == 200u);
        BOOST_TEST(ours.peer_ring == 0xffffffffu);
        BOOST_TEST(ours.peer_segment == 1u << 30);
        BOOST_TEST(theirs.peer_segment == 4096u);
        BOOST_TEST(ours.dc_tag == theirs.own_dc_tag);
        BOOST_TEST(theirs.dc_tag == ours.own_dc_tag);
        BOOST_TEST(ours.dc_tag != theirs.dc_tag);
        // Its questions and news are understood, and ours answered.
        c[1].plane->ask(c[1].peer_of(c[0])->connection, kSecond);
        BOOST_TEST(c.run([&] { return !c[1].peer_of(c[0])->answers.empty(); }));
        BOOST_TEST((c[1].peer_of(c[0])->answers[0] == connect::Answer::alive));
        for (const std::size_t i : {0, 1}) BOOST_TEST(c[i].plane->counters().dropped == 0u);
    }
}

// Either side's wish is enough.
BOOST_AUTO_TEST_CASE(paths_for_reads) {
    ControlConfig split;
    split.paths.split_reads = true;
    Cluster c({"a", "a", "a"}, {split, {}, {}});
    const auto halves = [&](std::size_t i, std::size_t j) {
        c[i].connect_to(c[j]);
        BOOST_TEST(c.run([&] { return c.connected(i, j); }));
        return path::is_split(c[i].peer_of(c[j])->connection.paths);
    };
    BOOST_TEST(halves(0, 1));
    BOOST_TEST(halves(2, 0));
    BOOST_TEST(!halves(1, 2));
    BOOST_TEST(c.greet());
}

BOOST_AUTO_TEST_CASE(transports) {
    ControlConfig rc, dc;
    dc.transport = connect::Transport::dc;
    Cluster c({"a", "a"}, {rc, dc});
    connect::InterfaceAddress forged = c[1].plane->address();
    forged.transport = connect::Transport::rc;
    Peer& p = c[0].connect_to(forged);
    BOOST_TEST(c.run([&] { return p.times_failed == 1; }, kSecond));
    BOOST_TEST((p.status == Status::unsupported));
    BOOST_TEST_MESSAGE(p.why);
}

// Both sides hold the same list; the server has planned of which kinds its paths are, and no side has others than it
// wants.
BOOST_AUTO_TEST_CASE(paths_of_both_kinds) {
    ControlConfig rc, both, dc, old;
    both.terms.kinds = path::Kinds::both;
    dc.terms.kinds = path::Kinds::dc;
    old.terms.features = connect::feature::parts;
    Cluster c({"aa", "aa", "aa", "aa", "aa"}, {both, both, rc, dc, old});
    const auto kinds = [&](std::size_t i, std::size_t j) {
        c[i].connect_to(c[j]);
        BOOST_TEST(c.run([&] { return c.connected(i, j); }));
        const Connection &ours = c[i].peer_of(c[j])->connection, &theirs = c[j].peer_of(c[i])->connection;
        std::string text;
        BOOST_TEST(ours.paths.size() == theirs.paths.size());
        for (std::size_t p = 0; p < ours.paths.size(); ++p) {
            BOOST_TEST((ours.paths[p].kind == theirs.paths[p].kind));
            const bool has_end = ours.paths[p].kind == path::Kind::rc;
            text += has_end ? 'r' : 'd';
            BOOST_TEST((ours.ends[p].qp_number != 0) == has_end);
            BOOST_TEST((ours.remote_ends[p].qp_number != 0) == has_end);
            BOOST_TEST(theirs.remote_ends[p].psn == ours.ends[p].psn);
        }
        return text;
    };
    BOOST_TEST(kinds(0, 1) == "rrdd");
    BOOST_TEST(kinds(2, 0) == "rr");
    BOOST_TEST(kinds(1, 2) == "rr");
    BOOST_TEST(kinds(0, 3) == "dd");
    BOOST_TEST(kinds(4, 1) == "rr"); // what wants tags must see for itself that it gets none: Peers::misfit()
    BOOST_TEST(!c[0].peer_of(c[2])->connection.wants_tag());
    BOOST_TEST(c[2].peer_of(c[0])->connection.wants_tag());
    BOOST_TEST(!c[0].peer_of(c[1])->connection.ends.empty());
    // Nothing in common.
    Peer& p = c[2].connect_to(c[3]);
    BOOST_TEST(c.run([&] { return p.times_failed == 1; }, kSecond));
    BOOST_TEST((p.status == Status::unreachable));
}

// Queue pairs are the owner's business there; keys and targets must come along.
BOOST_AUTO_TEST_CASE(dynamically_connected) {
    ControlConfig a, b;
    a.transport = b.transport = connect::Transport::dc;
    a.dc_key = 0x1111222233334444, b.dc_key = 0x5555666677778888;
    a.dct_numbers = {{100}, {101}}, b.dct_numbers = {{200, 210, 220}, {201, 211, 221}}; // of three it gets one
    Cluster c({"aa", "aa"}, {a, b});
    c[0].connect_to(c[1]);
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
    const Connection &client = c[0].peer_of(c[1])->connection, &server = c[1].peer_of(c[0])->connection;
    BOOST_TEST(client.dc_key == b.dc_key);
    BOOST_TEST(server.dc_key == a.dc_key);
    for (unsigned i = 0; i < 2; ++i) {
        const std::uint32_t told = client.remote_rails.at(i).dct_number, first = client.remote_rails[0].dct_number;
        BOOST_TEST((first == 200 || first == 210 || first == 220));
        BOOST_TEST(told == first + i);
        BOOST_TEST(server.remote_rails.at(i).dct_number == 100u + i);
        BOOST_TEST(client.remote_rails[i].rate == 1.0);
    }
    BOOST_TEST(client.ends.size() == 2u);
    BOOST_TEST(server.remote_ends.at(1).qp_number == 0u);
}

BOOST_AUTO_TEST_CASE(sleeping) {
    Cluster c({"aa", "aa"});
    const std::vector<int> fds = c[1].plane->event_fds();
    BOOST_TEST(fds.size() == 2u);
    BOOST_TEST((c[1].plane->arm() == Status::ok));
    const auto readable = [&] {
        for (const int fd : fds)
            if (pollfd p{fd, POLLIN, 0}; poll(&p, 1, 0) == 1) return true;
        return false;
    };
    BOOST_TEST(!readable());
    c[0].connect_to(c[1]);
    BOOST_TEST(c.world().run_until(readable, c.world().now() + kSecond));
    BOOST_TEST((c[1].plane->arm() == Status::busy)); // it is there, and is not lost
    BOOST_TEST(c[1].plane->poll() > 0u);
    BOOST_TEST((c[1].plane->arm() == Status::ok));
    BOOST_TEST(!readable());
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
}

BOOST_AUTO_TEST_CASE(the_same_seed_gives_the_same_run) {
    const auto run = [](std::uint64_t seed) {
        Cluster c({"aa", "aa", "a"}, {}, {}, seed);
        c.world().fault("drop 20% all");
        for (const std::size_t i : {0, 1, 2})
            for (const std::size_t j : {0, 1, 2})
                if (i != j) c[i].connect_to(c[j]);
        BOOST_TEST(c.run([&] { return c.connected(0, 1) && c.connected(0, 2) && c.connected(1, 2); }));
        std::uint64_t psns = 0;
        for (const auto& end : c[0].peer_of(c[1])->connection.ends) psns = psns * 31 + end.psn;
        return c.world().fingerprint() ^ c.world().now() ^ psns;
    };
    BOOST_TEST(run(1) == run(1));
    BOOST_TEST(run(1) != run(2));
}

BOOST_AUTO_TEST_CASE(without_a_seed_secrets_differ) {
    std::unique_ptr<World> world = make_world({"a", "a"});
    SimServices services(*world);
    std::string error;
    verbs::DeviceSet devices;
    world->select(0);
    BOOST_TEST((verbs::DeviceSet::open({}, devices, error) == Status::ok));
    ControlConfig seeded;
    seeded.seed = 1;
    Node owner(*world, 1, seeded, services);
    std::unique_ptr<connect::ControlPlane> a, b;
    BOOST_TEST((connect::ControlPlane::open(devices, {}, services, {owner, owner, owner}, a, error) == Status::ok));
    BOOST_TEST((connect::ControlPlane::open(devices, {}, services, {owner, owner, owner}, b, error) == Status::ok));
    BOOST_TEST(a->address().uid != b->address().uid);
    BOOST_TEST(a->address().cookie != b->address().cookie);
    BOOST_TEST(a->address().q_key != b->address().q_key);
}
