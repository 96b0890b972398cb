// Handshakes that end otherwise, in virtual time: silence, refusal, want of resources, a side that forgets the other.
#define BOOST_TEST_MODULE handshake_ends
#include <boost/test/unit_test.hpp>

#include "connect/handshake_fixture.h"

using namespace ucx_mp;
using namespace ucx_mp::test;

BOOST_AUTO_TEST_CASE(silence_ends_with_one_line) {
    ControlConfig config;
    config.timeout = 2 * kSecond;
    Cluster c({"aa", "aa"}, config);
    c.world().fault("drop 100% all");
    Peer& p = c[0].connect_to(c[1]);
    const Nanos start = c.world().now();
    BOOST_TEST(c.run([&] { return p.times_failed == 1; }));
    BOOST_TEST(c.world().now() - start == 2 * kSecond);
    BOOST_TEST((p.status == Status::timed_out));
    BOOST_TEST((p.connection.state == State::failed));
    BOOST_TEST(p.why.find("2.0 s") != std::string::npos);
    BOOST_TEST_MESSAGE(p.why);
    BOOST_TEST(!c[0].plane->busy());
    // Back-off: 5, 10, ... 160, 200, 200 ms
    BOOST_TEST(c.total().sent >= 10u);
    BOOST_TEST(c.total().sent <= 2 * 20u); // two at a time
    // It stays failed until it is forgotten.
    c.world().fault("clear");
    c.settle(kSecond);
    BOOST_TEST(p.times_failed == 1u);
    c[0].forget(p);
    c[0].connect_to(c[1]);
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
    BOOST_TEST(c.greet());
}

// Only the way back is dead: the server has answered a client that never hears it.
BOOST_AUTO_TEST_CASE(a_server_does_not_wait_for_ever) {
    ControlConfig config;
    config.timeout = kSecond;
    Cluster c({"a", "a"}, config);
    Peer& p = c[0].connect_to(c[1]);
    BOOST_TEST(c.run([&] { return c.is(1, 0, State::accepting); }));
    c.world().fault("drop 100% all");
    BOOST_TEST(c[1].plane->busy());
    BOOST_TEST(c.run([&] { return p.times_failed == 1 && c.is(1, 0, State::closed); }));
    Peer& server = *c[1].peer_of(c[0]);
    BOOST_TEST(server.times_abandoned == 1u);
    BOOST_TEST(server.times_failed == 0u);
    BOOST_TEST(server.queue_pairs.empty());
    BOOST_TEST(!c[1].plane->busy());
    // The other way round now, by the rails that the request had told (the address is unknown at the server).
    c.world().fault("clear");
    c[0].forget(p);
    c[1].plane->start(server.connection);
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
    BOOST_TEST(p.connection.server);
    BOOST_TEST(p.connection.incarnation == 1u);
    BOOST_TEST(c.greet());
}

BOOST_AUTO_TEST_CASE(limits_and_resources) {
    Cluster c({"aa", "aa", "aa"});
    c[2].most_peers = 1;
    c[0].connect_to(c[2]);
    BOOST_TEST(c.run([&] { return c.connected(0, 2); }));
    Peer& p = c[1].connect_to(c[2]);
    BOOST_TEST(c.run([&] { return p.times_failed == 1; }));
    BOOST_TEST(p.why.find("no more connections") != std::string::npos);
    BOOST_TEST_MESSAGE(p.why);

    // The server can't make its queue pairs.
    c[1].failing_makes = 1;
    Peer& q = c[0].connect_to(c[1]);
    BOOST_TEST(c.run([&] { return q.times_failed == 1; }));
    BOOST_TEST((q.status == Status::no_memory));
    BOOST_TEST((c[1].peer_of(c[0])->connection.state == State::closed));
    BOOST_TEST(!c[1].plane->busy());
}

BOOST_AUTO_TEST_CASE(the_client_can_not_make_its_queue_pairs) {
    Cluster c({"aa", "aa"});
    c[0].failing_makes = 1;
    Peer& p = c[0].connect_to(c[1]);
    BOOST_TEST(c.run([&] { return p.times_failed == 1 && !c[1].plane->busy(); }, kSecond));
    BOOST_TEST((p.status == Status::no_memory));
    const Peer& server = *c[1].peer_of(c[0]);
    BOOST_TEST(server.times_abandoned == 1u); // told, not timed out
    BOOST_TEST(server.queue_pairs.empty());
}

BOOST_AUTO_TEST_CASE(not_now_is_not_never) {
    for (const std::size_t poor : {0, 1}) {
        Cluster c({"aa", "aa"});
        c[poor].failing_makes = 3;
        c[poor].make_failure = Status::no_resource;
        c[0].connect_to(c[1]);
        BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
        BOOST_TEST(c.once(0, 1));
        BOOST_TEST(c.greet());
    }
}

// A request names a channel of the peer's only in answer to its own (R215), not the half that a reply has named before.
BOOST_AUTO_TEST_CASE(a_repeated_request_names_no_channel) {
    for (const bool poor : {true, false}) {
        Cluster c({"aa", "aa"});
        if (poor) c[0].failing_makes = 1;
        c[0].make_failure = Status::no_resource;
        const Peer& p = c[0].connect_to(c[1]);
        if (poor) {
            BOOST_REQUIRE(c.run([&] { return c[0].failing_makes == 0; }));
        } else {
            BOOST_REQUIRE(c.run([&] { return c.is(0, 1, State::confirming); }));
            c[1].forget(*c[1].peer_of(c[0]));
            BOOST_REQUIRE(c.run([&] { return c.is(0, 1, State::requesting); }));
        }
        BOOST_TEST(c.is(0, 1, State::requesting));
        BOOST_TEST(p.connection.remote_id == 0u);
        BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
        BOOST_TEST(c.greet());
    }
}

BOOST_AUTO_TEST_CASE(forgotten_in_every_state) {
    for (const State at : {State::requesting, State::confirming, State::established})
        for (const bool erase : {false, true}) {
            Cluster c({"aa", "aa"});
            c[1].renews = true;
            Peer& p = c[0].connect_to(c[1]);
            BOOST_TEST(c.run([&] { return c.is(0, 1, at); }));
            if (erase)
                c[0].erase(p);
            else
                c[0].forget(p);
            BOOST_TEST(!c[0].plane->busy());
            c.settle(kSecond);
            // What the server has is settled one way or the other, and a new connection can be made.
            Peer& again = c[0].connect_to(c[1]);
            BOOST_TEST(c.run([&] { return c.connected(0, 1); }, 30 * kSecond));
            c.settle(kSecond);
            BOOST_TEST(c.connected(0, 1));
            BOOST_TEST(again.connection.incarnation == c[1].peer_of(c[0])->connection.incarnation);
            BOOST_TEST(c.greet());
        }
}

BOOST_AUTO_TEST_CASE(forgotten_by_the_server) {
    for (const State at : {State::accepting, State::established})
        for (const bool erase : {false, true}) {
            Cluster c({"aa", "aa"});
            Peer& p = c[0].connect_to(c[1]);
            BOOST_TEST(c.run([&] { return c.is(1, 0, at); }));
            Peer& server = *c[1].peer_of(c[0]);
            if (erase)
                c[1].erase(server);
            else
                c[1].forget(server);
            c.settle(kSecond);
            if (at == State::accepting) { // the client tried anew
                BOOST_TEST(c.connected(0, 1));
                BOOST_TEST(p.times_failed == 0u);
                BOOST_TEST(c.greet());
            } // established: the peer's loss is recovery's business
        }
}

BOOST_AUTO_TEST_CASE(asked_anew_while_established) {
    for (const bool renews : {false, true}) {
        Cluster c({"aa", "aa"});
        c[1].renews = renews;
        Peer& p = c[0].connect_to(c[1]);
        BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
        c[0].forget(p);
        c[0].connect_to(c[1]);
        BOOST_TEST(c.run([&] { return p.times_failed == 1 || c.connected(0, 1); }));
        if (renews) {
            BOOST_TEST(c.connected(0, 1));
            BOOST_TEST(p.connection.incarnation == 2u);
            BOOST_TEST(c.greet());
        } else {
            BOOST_TEST((p.status == Status::connection_reset));
            BOOST_TEST(c.is(1, 0, State::established));
            BOOST_TEST_MESSAGE(p.why);
        }
    }
}

// The last answer is lost, and data have proved that the server is ready. What the owner uses is not taken from it.
BOOST_AUTO_TEST_CASE(asked_anew_while_confirming) {
    for (const bool carries : {false, true}) {
        Cluster c({"aa", "aa"});
        c[0].renews = true;
        c[0].connect_to(c[1]);
        BOOST_REQUIRE(c.run([&] { return c.is(0, 1, State::confirming); }));
        c[0].carries = carries;
        c[1].forget(*c[1].peer_of(c[0]));
        c[1].connect_to(c[0]);
        BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
        BOOST_TEST((c[0].renewed != 0) == carries);
        BOOST_TEST(c.greet());
    }
}

BOOST_AUTO_TEST_CASE(closing_while_handshakes_are_under_way) {
    for (const State at : {State::requesting, State::confirming, State::accepting}) {
        Cluster c({"aa", "aa"});
        Node &client = c[0], &server = c[1];
        client.connect_to(server);
        const bool closes_server = at == State::accepting;
        BOOST_TEST(c.run([&] { return closes_server ? c.is(1, 0, at) : c.is(0, 1, at); }));
        c.nodes.erase(c.nodes.begin() + closes_server);
        c.settle(100 * kMilli); // its timers must be gone
        BOOST_TEST(c[0].errors == 0u);
    }
}

// Numbers of connections and of handshakes wrap; and who has forgotten a peer begins with 0, however far that one is.
BOOST_AUTO_TEST_CASE(numbers_near_their_edges) {
    for (const std::uint32_t before : {1u, 0x7fffffffu, 0x80000005u, 0xfffffffeu, 0xffffffffu})
        for (const unsigned remembers : {1u, 2u, 3u}) { // bit 0: client
            Cluster c({"a", "a"});
            Peer& client = c[0].connect_to(c[1]);
            BOOST_REQUIRE(c.run([&] { return c.connected(0, 1); }));
            Peer& server = *c[1].peer_of(c[0]);
            c[0].forget(client);
            c[1].forget(server);
            client.connection.incarnation = remembers & 1 ? before : 0;
            server.connection.incarnation = remembers & 2 ? before : 0;
            c[0].connect_to(c[1]);
            BOOST_TEST(c.run([&] { return c.connected(0, 1); }, kSecond));
            const std::uint32_t now = before + 1 ? before + 1 : 1;
            BOOST_TEST(client.connection.incarnation == now);
            BOOST_TEST(server.connection.incarnation == now);
            BOOST_TEST(c.greet());
        }
}

// A client counts its handshakes with everybody. A server that has not heard of it for long knows a number that seems
// to be one to come; but what it heard just now rules out what is older.
BOOST_AUTO_TEST_CASE(a_client_that_has_had_many_handshakes) {
    for (const std::uint32_t ahead : {1u, 0x7fffffffu, 0x80000001u, 0xf0000000u})
        for (const bool long_ago : {false, true}) {
            Cluster c({"a", "a"});
            Peer& client = c[0].connect_to(c[1]);
            BOOST_REQUIRE(c.run([&] { return c.connected(0, 1); }));
            Peer& server = *c[1].peer_of(c[0]);
            c[0].forget(client);
            c[1].forget(server);
            server.connection.seen = client.connection.transaction + 1 - ahead;
            server.connection.seen_at = c.world().now() - (long_ago ? Nanos{24} * 3600 * kSecond : 0);
            c[0].connect_to(c[1]);
            BOOST_TEST(c.run([&] { return c.connected(0, 1); }, kSecond) == (long_ago || ahead < 0x80000000u));
        }
}
