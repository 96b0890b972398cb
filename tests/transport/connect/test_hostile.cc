// What strangers, old messages and copies may do to a control plane: nothing.
#define BOOST_TEST_MODULE hostile
#include <boost/test/unit_test.hpp>

#include <random>

#include "connect/intruder.h"

using namespace ucx_mp;
using namespace ucx_mp::test;
using K = wire::Kind;

BOOST_AUTO_TEST_CASE(strangers_are_dropped) {
    Cluster c({"a", "a", "a"});
    Intruder intruder(c, 2);
    Peer stranger;
    stranger.connection.local_id = 1;
    stranger.connection.transaction = 1;
    stranger.connection.own_secret = 1;
    const Message good = forge(wire::Kind::request, c[0], c[1], stranger.connection);
    const connect::ControlCounters& n = c[1].plane->counters();
    std::uint64_t expected = 0;
    const auto drops = [&](const char* what) {
        BOOST_TEST_INFO(what);
        BOOST_TEST(n.dropped == ++expected);
        BOOST_TEST(n.received == expected);
        BOOST_TEST(n.sent == 0u);
        BOOST_TEST(c[1].peers.empty());
    };
    Message m = good;
    m.cookie ^= 1;
    intruder.send(c[1], m), drops("wrong cookie");
    m = good;
    m.sender_uid = c[1].plane->address().uid;
    intruder.send(c[1], m), drops("our own name");
    intruder.send(c[1], std::span<const std::uint8_t>{}), drops("nothing");
    intruder.send(c[1], std::vector<std::uint8_t>(100)), drops("zeros");
    intruder.send(c[1], std::vector<std::uint8_t>(4096, 0xff)), drops("as much as an MTU allows");
    std::vector<std::uint8_t> bytes = Intruder::pack(good);
    bytes.pop_back();
    intruder.send(c[1], bytes), drops("too short");
    bytes = Intruder::pack(good);
    bytes.push_back(0);
    intruder.send(c[1], bytes), drops("too long");
    // Without the right Q_Key the adapter drops it.
    intruder.send(c[1], Intruder::pack(good), c[1].plane->address().q_key ^ 1);
    BOOST_TEST(n.received == expected);
    // A flood of them: the queue pair survives, and real peers get through.
    for (int i = 0; i < 1000; ++i) intruder.send(c[1], std::vector<std::uint8_t>(std::size_t(i * 4), 0x5a));
    c[0].connect_to(c[1]);
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
    BOOST_TEST(c.greet());
}

BOOST_AUTO_TEST_CASE(a_known_peer_has_one_cookie) {
    Cluster c({"a", "a", "a"});
    Intruder intruder(c, 2);
    Peer& p = c[0].connect_to(c[1]);
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
    c[1].renews = true;
    Message m = forge(wire::Kind::request, c[0], c[1], p.connection);
    m.transaction += 5;
    m.sender_cookie ^= 1;
    const Facts before(*c[1].peer_of(c[0]));
    intruder.send(c[1], m);
    BOOST_TEST(c[1].plane->counters().dropped == 1u);
    BOOST_TEST((Facts(*c[1].peer_of(c[0])) == before));
}

// Every message of the handshake once more, in every state of its receiver.
BOOST_AUTO_TEST_CASE(copies_change_nothing) {
    for (const bool renews : {false, true}) {
        Cluster c({"aa", "aa", "a"});
        Intruder intruder(c, 2);
        c[0].renews = c[1].renews = renews;
        Peer& client = c[0].connect_to(c[1]);
        BOOST_TEST(c.run([&] { return c.is(1, 0, State::accepting); }));
        const Message request = forge(wire::Kind::request, c[0], c[1], client.connection);
        Peer& server = *c[1].peer_of(c[0]);
        Message reply = forge(wire::Kind::reply, c[1], c[0], server.connection);
        const Facts accepting(server);
        intruder.send(c[1], request);
        BOOST_TEST((server.connection.state == State::established || Facts(server) == accepting));
        BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
        const Message confirm = forge(wire::Kind::confirm, c[0], c[1], client.connection);
        const Message ready = forge(wire::Kind::ready, c[1], c[0], server.connection);
        const Facts here(client), there(server);
        for (int round = 0; round < 3; ++round) {
            intruder.send(c[1], request);
            intruder.send(c[0], reply);
            intruder.send(c[1], confirm);
            intruder.send(c[0], ready);
            c.settle(20 * kMilli);
        }
        BOOST_TEST((Facts(client) == here));
        BOOST_TEST((Facts(server) == there));
        BOOST_TEST(c[0].peers.size() == 1u);
        BOOST_TEST(c[1].peers.size() == 1u);
        BOOST_TEST(c.greet());
    }
}

// Both had started; the loser's request comes once more, late. It must not look like a new one.
BOOST_AUTO_TEST_CASE(a_void_request_stays_void) {
    Cluster c({"aa", "aa", "a"});
    Intruder intruder(c, 2);
    c[0].renews = c[1].renews = true;
    c[0].connect_to(c[1]);
    c[1].connect_to(c[0]);
    std::vector<Message> requests;
    for (const std::size_t i : {0, 1})
        requests.push_back(forge(wire::Kind::request, c[i], c[!i], c[i].peer_of(c[!i])->connection));
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
    const Facts a(*c[0].peer_of(c[1])), b(*c[1].peer_of(c[0]));
    for (const std::size_t i : {0, 1}) intruder.send(c[!i], requests[i]);
    c.settle(kSecond);
    BOOST_TEST((Facts(*c[0].peer_of(c[1])) == a));
    BOOST_TEST((Facts(*c[1].peer_of(c[0])) == b));
    BOOST_TEST(c.greet());
}

// After a connection has been given up and made again, everything of the first one arrives again.
BOOST_AUTO_TEST_CASE(messages_of_an_older_handshake) {
    Cluster c({"aa", "aa", "a"});
    Intruder intruder(c, 2);
    c[0].renews = c[1].renews = true;
    std::vector<std::pair<std::size_t, Message>> old; // receiver
    for (unsigned round = 0; round < 4; ++round) {
        const std::size_t client = round % 2, server = !client;
        Peer& p = c[client].connect_to(c[server]);
        old.emplace_back(server, forge(wire::Kind::request, c[client], c[server], p.connection));
        BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
        Peer& q = *c[server].peer_of(c[client]);
        const Facts here(p), there(q);
        for (const auto& [to, m] : old) intruder.send(c[to], m);
        c.settle(20 * kMilli);
        BOOST_TEST((Facts(p) == here));
        BOOST_TEST((Facts(q) == there));
        BOOST_TEST(c.greet());
        old.emplace_back(client, forge(wire::Kind::reply, c[server], c[client], q.connection));
        old.emplace_back(server, forge(wire::Kind::confirm, c[client], c[server], p.connection));
        old.emplace_back(client, forge(wire::Kind::ready, c[server], c[client], q.connection));
        Message refusal = forge(wire::Kind::refuse, c[server], c[client], q.connection);
        refusal.reason = wire::Reason::limits;
        old.emplace_back(client, refusal);
        for (const std::size_t i : {0, 1}) c[i].forget(*c[i].peer_of(c[!i]));
        for (const auto& [to, m] : old) intruder.send(c[to], m);
        c.settle(20 * kMilli);
        for (const std::size_t i : {0, 1}) BOOST_TEST(c.is(i, !i, State::closed));
    }
}

// A request of a connection that both have forgotten altogether.
BOOST_AUTO_TEST_CASE(a_request_from_the_past) {
    Cluster c({"a", "a", "a"});
    Intruder intruder(c, 2);
    Peer& p = c[0].connect_to(c[1]);
    const Message request = forge(wire::Kind::request, c[0], c[1], p.connection);
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
    c[0].erase(p);
    c[1].erase(*c[1].peer_of(c[0]));
    intruder.send(c[1], request);
    // The intruder does not answer the reply. Until the time limit a real connection replaces the half-open one.
    BOOST_TEST(c.is(1, 0, State::accepting));
    c[0].connect_to(c[1]);
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
    BOOST_TEST(c[1].peer_of(c[0])->queue_pairs.size() == 1u);
    BOOST_TEST(c.greet());
}

// An insider who knows every cookie, sends well-formed and mutated messages in the name of others, in every phase.
BOOST_AUTO_TEST_CASE(mutations_of_real_messages) {
    std::mt19937_64 random(1);
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        Cluster c({"aa", "aa", "a", "a"}, {}, {}, seed);
        Intruder intruder(c, 2);
        Peer& p = c[0].connect_to(c[1]);
        const bool early = seed % 2;
        if (!early) BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
        unsigned sent = 0;
        for (int i = 0; i < 400; ++i) {
            const bool to_server = random() % 2;
            Node &to = c[to_server], &from = c[!to_server];
            Peer* view = from.peer_of(to);
            if (!view) view = &p;
            const auto kind = wire::Kind(1 + random() % 5);
            Message m = forge(kind, from, to, view->connection);
            if (m.transaction == 0) m.transaction = 1;
            if (m.paths.empty() && kind == wire::Kind::reply) continue;
            std::vector<std::uint8_t> bytes = Intruder::pack(m);
            if (early || random() % 2) // a mutation behind the cookie
                for (unsigned k = 0, flips = 1 + unsigned(random() % 3); k < flips; ++k)
                    bytes[16 + random() % (bytes.size() - 16)] ^= std::uint8_t(1u << random() % 8);
            intruder.send(to, bytes);
            ++sent;
        }
        BOOST_TEST(sent > 200u);
        if (!early) {
            BOOST_TEST(c.connected(0, 1));
            BOOST_TEST(p.times_established == 1u);
        }
        // Whatever has become of these two: others connect.
        c[2].connect_to(c[1]);
        c[3].connect_to(c[0]);
        BOOST_TEST(c.run([&] { return c.connected(2, 1) && c.connected(3, 0); }));
        if (!early) BOOST_TEST(c.greet());
    }
}

// Whoever says that a peer is ready for our request may lie. It gets a copy now and then, and ours is repeated as ever.
BOOST_AUTO_TEST_CASE(questions_of_somebody_else) {
    for (const std::string adapter : {"softhca_0:1", "softhca_1:1"}) {
        ControlConfig config;
        Cluster c({"aa", "aa", "a"}, config);
        Intruder intruder(c, 2);
        c.world().fault("drop 100% 1:" + adapter); // the other ways have to be tried
        Peer& a = c[0].connect_to(c[1]);
        Peer nobody;
        nobody.connection.transaction = nobody.connection.incarnation = 1;
        const Message m = pretend(K::ping, c[1], c[0], nobody.connection);
        const Nanos begin = c.world().now();
        for (unsigned i = 0; i < 40; ++i) intruder.send(c[0], m);
        const Nanos took = c.world().now() - begin;
        BOOST_TEST(took < config.retry / 2);
        BOOST_TEST(c[0].plane->counters().repeated <= 1u);
        while (!c.connected(0, 1) && c.world().now() < begin + kSecond) {
            intruder.send(c[0], m);
            c.settle(kMilli);
        }
        BOOST_TEST(c.connected(0, 1));
        BOOST_TEST(a.times_failed == 0u);
        BOOST_TEST(c[0].plane->counters().repeated <= 2 + 2 * (c.world().now() - begin) / (config.retry / 2));
        c.world().fault("clear");
        BOOST_TEST(c.greet());
    }
}

// One line for each cause, however many copies come, in whosever name. Not more than a log can bear.
BOOST_AUTO_TEST_CASE(terms_that_do_not_fit) {
    Cluster c({"aa", "aa", "a"});
    Intruder intruder(c, 2);
    Peer nobody;
    nobody.connection.local_id = nobody.connection.transaction = 1;
    Message m = pretend(K::request, c[0], c[1], nobody.connection);
    c[1].unfit = "for a test";
    for (unsigned i = 0; i < 5; ++i, ++m.sender_uid) intruder.send(c[1], m);
    BOOST_TEST(c.services.errors == 1u);
    BOOST_TEST(c[1].plane->counters().refused == 5u);
    c[1].unfit = "for another";
    for (unsigned i = 0; i < 5; ++i) intruder.send(c[1], m);
    BOOST_TEST(c.services.errors == 2u);
    for (unsigned i = 0; i < 100; ++i) {
        c[1].unfit = std::to_string(i);
        intruder.send(c[1], m);
    }
    BOOST_TEST(c.services.errors == 16u);
}
