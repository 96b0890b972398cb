// Who knows addresses, and every number that is no secret, speaks in the name of others. Nothing that is connected is
// lost, and what is being connected is slow at worst.
#define BOOST_TEST_MODULE identity
#include <boost/test/unit_test.hpp>

#include "connect/intruder.h"

using namespace ucx_mp;
using namespace ucx_mp::test;
using K = wire::Kind;

namespace {

constexpr connect::wire::Kind kOfConnections[] = {
    K::ping,        K::pong,    K::path_down,     K::path_open, K::path_opened, K::path_probe,
    K::path_probed, K::rails,   K::rails_known,   K::keys,      K::keys_told,   K::ended,
    K::ended_known, K::service, K::service_known, K::ring,      K::ring_known};

// Fields that its parser wants.
void complete(Message& m, const Node& from) {
    if (m.kind == K::rails) m.rails = rails_of(from), m.rails_number = 1;
    if (m.kind == K::rails_known) m.rails_number = 0;
    if (m.kind == K::service || m.kind == K::service_known) m.wish.number = 1;
    if (m.kind == K::ring || m.kind == K::ring_known) m.ring.number = 1;
    if (m.kind == K::path_open || m.kind == K::path_opened) m.news.end = {77, 5}, m.news.life = 1;
    if (m.kind == K::ended) m.goodbye.number = 1;
    if (m.kind == K::ended_known) m.yes = true;
}

struct Fixture {
    Cluster c{{"aa", "aa", "a"}};
    Intruder intruder{c, 2};
    Peer* a = nullptr; // node 0's, of node 1
    Peer* b = nullptr;
    void connect() {
        a = &c[0].connect_to(c[1]);
        BOOST_REQUIRE(c.run([&] { return c.connected(0, 1); }));
        b = c[1].peer_of(c[0]);
    }
    // It claims to be node 0.
    Message as_a(K kind) {
        Message m = pretend(kind, c[0], c[1], a->connection);
        complete(m, c[0]);
        return m;
    }
};

// To node 1, and it has time to ask.
void intruder_says(Fixture& f, const Message& m) {
    f.intruder.send(f.c[1], m);
    f.c.settle(kMilli);
}

} // namespace

// A request in the peer's name, whatever numbers it has, neither ends nor changes what there is.
BOOST_FIXTURE_TEST_CASE(a_request_for_another_connection, Fixture) {
    connect();
    c[0].renews = c[1].renews = true;
    const Facts here(*a), there(*b);
    for (const std::uint32_t transaction : {a->connection.transaction, a->connection.transaction + 1, 0x7fffffffu})
        for (const std::uint64_t secret : {std::uint64_t{0}, ~std::uint64_t{0}, a->connection.peer_secret ^ 1})
            for (const std::uint32_t incarnation : {0u, a->connection.incarnation, 0x7fffffffu}) {
                Message m = as_a(K::request);
                m.transaction = transaction;
                m.shown = secret;
                m.incarnation = incarnation;
                m.rails = rails_of(c[2]);
                intruder.send(c[1], m);
                c.settle(20 * kMilli);
                intruder.send(c[1], m);
            }
    c.settle(kSecond);
    BOOST_TEST((Facts(*a) == here));
    BOOST_TEST((Facts(*b) == there));
    BOOST_TEST(c[1].renewed == 0u);
    BOOST_TEST(b->answers.empty()); // the owner has not been bothered
    BOOST_TEST(c.greet());
}

// Who has no secret to show, because it has forgotten everything, is asked and let in.
BOOST_FIXTURE_TEST_CASE(a_peer_that_has_forgotten, Fixture) {
    for (const bool asks_node_0 : {false, true}) {
        connect();
        c[0].renews = c[1].renews = true;
        const std::size_t forgets = asks_node_0;
        c[forgets].erase(*c[forgets].peer_of(c[!forgets]));
        const Nanos begin = c.world().now();
        c[forgets].connect_to(c[!forgets]);
        BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
        BOOST_TEST(c.world().now() - begin < 50 * kMilli);
        BOOST_TEST(c[!forgets].renewed == 1u);
        BOOST_TEST(c.greet());
        c[0].renewed = c[1].renewed = 0;
        for (const std::size_t i : {0, 1}) c[i].erase(*c[i].peer_of(c[!i]));
    }
}

// It has forgotten everything, and says so to whoever asks in whosever name. That lets nobody in but itself.
BOOST_AUTO_TEST_CASE(another_in_the_place_of_a_peer_that_has_forgotten) {
    for (const bool parked : {false, true})
        for (const bool asks_itself : {false, true}) {
            Fixture f;
            Cluster& c = f.c;
            f.connect();
            c[1].renews = true;
            if (parked) c[1].forget(*f.b); // closed; what it held is remembered
            const unsigned established = f.b->times_established;
            Message m = f.as_a(K::request);
            m.rails = rails_of(c[2]);
            c[0].erase(*f.a);
            if (asks_itself) {
                c.world().fault("drop 100% 1:softhca_0:1"); // it hears nothing, and goes on asking
                c.world().fault("drop 100% 1:softhca_1:1");
                c[0].connect_to(c[1]);
                c.settle(50 * kMilli);
                c.world().fault("clear");
            }
            for (unsigned i = 0; i < 20; ++i) {
                ++m.transaction;
                m.nonce += 2;
                for (unsigned copy = 0; copy < 2; ++copy) intruder_says(f, m);
                BOOST_TEST(f.b->connection.remote_rails.front().control_qpn != m.rails.front().control_qpn);
                BOOST_TEST(f.b->connection.peer_secret != m.nonce);
            }
            if (!asks_itself) {
                BOOST_TEST(f.b->times_established == established);
                c[0].connect_to(c[1]);
            }
            BOOST_TEST(c.run([&] { return c.connected(0, 1); }, kSecond));
            BOOST_TEST(c[1].peer_of(c[0])->times_established == established + 1);
            BOOST_TEST(c.greet());
        }
}

// While nothing leads to the peer nobody is let in.
BOOST_FIXTURE_TEST_CASE(a_peer_that_cannot_be_asked, Fixture) {
    connect();
    c[1].renews = true;
    for (const char* port : {"drop 100% 0:softhca_0:1", "drop 100% 0:softhca_1:1"}) c.world().fault(port);
    const Facts there(*b);
    for (unsigned i = 0; i < 40; ++i) {
        Message m = as_a(K::request);
        m.transaction += 1 + i;
        intruder.send(c[1], m);
        c.settle(100 * kMilli);
    }
    BOOST_TEST((Facts(*b) == there));
    c.world().fault("clear");
    c.settle(kSecond);
    BOOST_TEST(c.connected(0, 1));
    BOOST_TEST(c.greet());
}

// All messages of a connection, in every way but with its secret.
BOOST_FIXTURE_TEST_CASE(messages_of_a_connection, Fixture) {
    connect();
    unsigned goodbyes = 0;
    c[1].on_ended = [&](Connection&, const connect::Goodbye&) { ++goodbyes; };
    c[1].plane->ask(b->connection, kSecond); // something to be answered
    const Facts here(*a), there(*b);
    for (const K kind : kOfConnections)
        for (const std::uint64_t secret :
             {std::uint64_t{0}, ~std::uint64_t{0}, a->connection.peer_secret ^ 1,
              a->connection.peer_secret ^ std::uint64_t{1} << 63, a->connection.own_secret}) {
            Message m = as_a(kind);
            m.shown = secret;
            for (const bool idle : {false, true}) {
                m.goodbye.idle = idle;
                intruder.send(c[1], m);
            }
        }
    BOOST_TEST(c[1].told == 0u);
    BOOST_TEST(goodbyes == 0u);
    c.settle(2 * kSecond);
    BOOST_TEST((Facts(*a) == here));
    BOOST_TEST((Facts(*b) == there));
    BOOST_TEST((b->answers == std::vector{connect::Answer::alive})); // the real one
    BOOST_TEST(c.greet());
    // With it they are taken: nothing else was wrong with them.
    for (const K kind : kOfConnections) {
        if (kind == K::ping || kind == K::pong || kind == K::rails_known || kind == K::ended_known)
            continue; // not told
        if (kind == K::path_open || kind == K::path_opened || kind == K::path_probe || kind == K::path_probed)
            continue; // over their paths only
        const unsigned before = c[1].told + goodbyes;
        Message m = as_a(kind);
        m.shown = a->connection.peer_secret;
        m.goodbye.idle = false;
        intruder.send(c[1], m);
        BOOST_TEST(c[1].told + goodbyes == before + 1, connect::name(kind));
    }
}

// News of a path that have come over another one.
BOOST_FIXTURE_TEST_CASE(over_their_paths, Fixture) {
    using connect::NewsKind;
    connect();
    const Connection& mine = a->connection;
    for (const std::size_t route : {0, 1})
        for (const NewsKind kind : {NewsKind::open, NewsKind::opened, NewsKind::probe, NewsKind::probed}) {
            const bool probe = kind == NewsKind::probe || kind == NewsKind::probed;
            const unsigned before = c[1].told;
            {
                const std::lock_guard lock(c.services);
                const connect::LocalEnd end = probe ? connect::LocalEnd{} : connect::LocalEnd{77, 5};
                BOOST_TEST(
                    c[0].plane->tell_over_route(mine, mine.paths[route], kind, {.path = 0, .life = 1, .end = end}));
            }
            c.settle(kMilli);
            // Of probes the routes may differ while one side has migrated.
            BOOST_TEST(c[1].told - before == (route == 0 || probe ? 1u : 0u));
        }
}

// Only a queue pair of RC has packet numbers: of a path of DC nobody compares them with any.
BOOST_AUTO_TEST_CASE(packet_numbers_of_dc) {
    ControlConfig config;
    config.transport = connect::Transport::dc;
    config.dct_numbers = {{100}, {101}};
    Cluster c({"aa", "aa"}, config);
    const Connection& mine = c[0].connect_to(c[1]).connection;
    BOOST_REQUIRE(c.run([&] { return c.connected(0, 1); }));
    for (const std::uint32_t psn : {5u, connect::kUnknownPsn}) {
        const unsigned before = c[1].told;
        connect::PathNews news;
        news.answer = true;
        news.psn = psn;
        {
            const std::lock_guard lock(c.services);
            c[0].plane->tell(mine, connect::NewsKind::down, news, 0);
        }
        c.settle(kMilli);
        BOOST_TEST(c[1].told - before == (psn == connect::kUnknownPsn ? 1u : 0u));
    }
}

// The peer has agreed to our goodbye, and has forgotten us. That is no loss, whoever tells us of it.
BOOST_FIXTURE_TEST_CASE(a_goodbye_that_was_agreed_to, Fixture) {
    connect();
    c.world().fault("drop 100% all");
    {
        const std::lock_guard lock(c.services);
        c[0].plane->say_idle(a->connection, 0);
    }
    c.settle(kSecond); // by now its copies are rare
    c[1].erase(*b);
    c.world().fault("clear");
    c[1].connect_to(c[0]); // shows no secret, so it is asked
    BOOST_REQUIRE(c.run([&] { return !a->parted.empty() || !a->answers.empty(); }));
    BOOST_TEST(a->answers.empty());
    BOOST_TEST((a->parted == std::vector{connect::Answer::lost}));
}

// What answers a question shows its random number: nobody else can say that the peer has gone.
BOOST_FIXTURE_TEST_CASE(answers_to_questions, Fixture) {
    connect();
    for (const char* port : {"drop 100% 0:softhca_0:1", "drop 100% 0:softhca_1:1"}) c.world().fault(port);
    c[1].plane->ask(b->connection, kSecond);
    {
        const std::lock_guard lock(c.services);
        c[1].plane->say_idle(b->connection, 0);
    }
    for (std::uint32_t number = 1; number < 10; ++number)
        for (const K kind : {K::pong, K::ended_known}) {
            Message m = as_a(kind);
            m.transaction = m.goodbye.number = std::uint16_t(number);
            intruder.send(c[1], m);
        }
    c.settle(2 * kSecond);
    BOOST_TEST((b->answers == std::vector{connect::Answer::silent}));
    BOOST_TEST(b->parted.empty());
}

// The handshake's answers, to a client whose server is silent for a while.
BOOST_FIXTURE_TEST_CASE(answers_of_a_handshake, Fixture) {
    for (const char* port : {"drop 100% 1:softhca_0:1", "drop 100% 1:softhca_1:1"}) c.world().fault(port);
    a = &c[0].connect_to(c[1]);
    Peer other;
    other.connection.transaction = a->connection.transaction;
    other.connection.remote_id = a->connection.local_id;
    other.connection.incarnation = 1;
    other.connection.local_id = 9;
    other.connection.paths = {{.client_rail = 0, .server_rail = 0}};
    other.connection.ends = {{70, 5}};
    const Facts before(*a);
    for (const std::uint64_t secret : {std::uint64_t{0}, ~std::uint64_t{0}, a->connection.own_secret ^ 1})
        for (const K kind : {K::reply, K::ready, K::refuse}) {
            Message m = pretend(kind, c[1], c[0], other.connection);
            m.shown = secret;
            m.reason = wire::Reason::limits;
            intruder.send(c[0], m);
            m.kind = K::refuse; // as one would be written that knows no secrets
            m.rails.clear(), m.paths.clear(), m.ends.clear();
            m.bare = true;
            m.reason = wire::Reason::version;
            intruder.send(c[0], m);
        }
    c.settle(kSecond);
    BOOST_TEST((Facts(*a) == before));
    c.world().fault("clear");
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }, kSecond));
    BOOST_TEST(c.once(0, 1));
    BOOST_TEST(c.greet());
}

// A copy of the client's request by another's hand is not answered: the reply has the server's secret in it.
BOOST_FIXTURE_TEST_CASE(copies_by_a_stranger, Fixture) {
    a = &c[0].connect_to(c[1]);
    BOOST_REQUIRE(c.run([&] { return c.is(1, 0, State::accepting); }));
    c.world().fault("drop 100% 0:softhca_0:1");
    c.world().fault("drop 100% 0:softhca_1:1");
    c.settle(20 * kMilli);
    const Nanos answered = c[1].peer_of(c[0])->connection.answered;
    for (unsigned i = 0; i < 5; ++i) {
        intruder.send(c[1], as_a(K::request));
        Message m = as_a(K::confirm);
        m.destination = c[1].peer_of(c[0])->connection.local_id;
        m.incarnation = 1;
        m.ends = {{70, 5}, {71, 5}};
        intruder.send(c[1], m);
        c.settle(5 * kMilli);
    }
    BOOST_TEST(c[1].peer_of(c[0])->connection.answered == answered);
    BOOST_TEST(c[1].plane->counters().refused == 5u); // confirmations of nothing
    BOOST_TEST(c.is(1, 0, State::accepting));
    c.world().fault("clear");
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }, 2 * kSecond));
    BOOST_TEST(c.greet());
}

// Whoever comes first in a peer's name is believed (U1). It does not stand in the peer's way for long, and leaves
// nothing behind: neither its numbers nor where it is.
BOOST_AUTO_TEST_CASE(a_first_contact_of_somebody_else) {
    for (const std::size_t client : {0, 1})
        for (const bool waits : {false, true}) {
            ControlConfig config;
            config.timeout = 5 * kSecond;
            Cluster c({"aa", "aa", "a"}, config);
            Intruder intruder(c, 2);
            Peer nobody;
            nobody.connection.local_id = 1;
            nobody.connection.transaction = 0x7fffffff;
            Message m = pretend(K::request, c[0], c[1], nobody.connection);
            m.incarnation = 0x7fffffff;
            m.rails = rails_of(c[2]);
            m.sender_q_key ^= 0x55;
            m.sender_cookie ^= 0x55;
            intruder.send(c[1], m);
            BOOST_TEST(c.is(1, 0, State::accepting));
            if (waits) {
                BOOST_REQUIRE(c.run([&] { return c.is(1, 0, State::closed); }, 6 * kSecond));
            } else if (client == 1) {
                continue; // it is busy
            }
            c[client].connect_to(c[!client]);
            BOOST_TEST(c.run([&] { return c.connected(0, 1); }, 2 * kSecond));
            BOOST_TEST(c.greet());
        }
}

// Whose address is known is asked there, whatever others say in its name meanwhile.
BOOST_AUTO_TEST_CASE(a_way_that_is_known) {
    const auto forged = [](Cluster& c, std::size_t from, std::size_t to) {
        Peer nobody;
        nobody.connection.local_id = 1;
        nobody.connection.transaction = 0x7fffffff;
        Message m = pretend(K::request, c[from], c[to], nobody.connection);
        m.rails = rails_of(c[2]);
        m.rails.push_back(m.rails.front()); // as many as it has
        return m;
    };
    for (const std::size_t client : {0, 1}) { // while our own request is under way
        Cluster c({"aa", "aa", "a"});
        Intruder intruder(c, 2);
        if (c[client].plane->address().uid > c[!client].plane->address().uid) continue;
        for (const char* port : {"softhca_0:1", "softhca_1:1"})
            c.world().fault("drop 100% " + std::to_string(!client) + ":" + port);
        c[client].connect_to(c[!client]);
        for (unsigned i = 0; i < 3; ++i) intruder.send(c[client], forged(c, !client, client));
        BOOST_TEST(c[client].peer_of(c[!client])->connection.remote_rails.empty());
        c.world().fault("clear");
        BOOST_TEST(c.run([&] { return c.connected(0, 1); }, 2 * kSecond));
        BOOST_TEST(c.greet());
    }
    Cluster c({"aa", "aa", "a"}); // while there is no place
    Intruder intruder(c, 2);
    Peer& b = c[1].make(c[0].plane->address().uid);
    b.connection.take_address(c[0].plane->address());
    c[1].full = true;
    intruder.send(c[1], forged(c, 0, 1));
    BOOST_TEST(b.connection.remote_rails.empty());
    c[1].full = false;
    c[1].plane->start(b.connection);
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }, 2 * kSecond));
    BOOST_TEST(c.greet());
}

// A copy that is late, of a request that the peer has given up for a newer one.
BOOST_FIXTURE_TEST_CASE(an_older_request_of_the_peer, Fixture) {
    connect();
    c[1].renews = true;
    Message m = forge(K::request, c[0], c[1], a->connection);
    m.transaction += 2;
    for (unsigned copy = 0; copy < 2; ++copy) {
        m.nonce += 2; // handshakes of their own
        intruder.send(c[1], m);
        BOOST_TEST(c.is(1, 0, State::accepting));
        BOOST_TEST(b->connection.transaction == a->connection.transaction + 2);
        --m.transaction;
    }
}

// A handshake that comes to nothing leaves behind where the peer itself is, and nothing of anybody else's.
BOOST_AUTO_TEST_CASE(what_a_handshake_leaves_behind) {
    for (const bool itself : {false, true})
        for (const bool forgotten : {false, true}) {
            ControlConfig config;
            config.timeout = kSecond;
            Cluster c({"aa", "aa", "a"}, config);
            Intruder intruder(c, 2);
            Peer& p = c[0].connect_to(c[1]);
            BOOST_REQUIRE(c.run([&] { return c.connected(0, 1); }));
            Peer& there = *c[1].peer_of(c[0]);
            Connection& b = there.connection;
            Message m = forge(K::request, c[0], c[1], p.connection);
            ++m.transaction;
            if (itself) {
                c[1].renews = true;
            } else {
                m.shown = 0;
                c[1].erase(there);
                Peer& known = c[1].make(c[0].plane->address().uid);
                known.connection.take_address(c[0].plane->address());
            }
            Connection& now = itself ? b : c[1].peer_of(c[0])->connection;
            const std::uint32_t incarnation = now.incarnation;
            for (path::RemoteRail& rail : m.rails) rail.control_qpn += 100; // its adapters have been opened anew
            intruder.send(c[1], m);
            BOOST_REQUIRE(now.state == State::accepting);
            BOOST_TEST(now.incarnation != incarnation);
            if (forgotten)
                c[1].forget(*c[1].peer_of(c[0]));
            else
                BOOST_REQUIRE(c.run([&] { return c.is(1, 0, State::closed); }, 2 * kSecond));
            BOOST_TEST(now.incarnation == incarnation);
            if (itself)
                BOOST_TEST(now.remote_rails.front().control_qpn == m.rails.front().control_qpn);
            else
                BOOST_TEST(now.remote_rails.empty());
        }
}

// Peers of releases without secrets get a refusal that they can read.
BOOST_FIXTURE_TEST_CASE(a_release_before, Fixture) {
    connect();
    Message m = as_a(K::request);
    m.version = m.min_version = m.max_version = 5;
    m.bare = true; // it has no proof
    const auto before = c[1].plane->counters();
    const Facts there(*b);
    intruder.send(c[1], m);
    BOOST_TEST(c[1].plane->counters().refused == before.refused + 1);
    for (const K kind : {K::confirm, K::ended, K::path_down}) {
        Message other = as_a(kind);
        other.version = other.min_version = other.max_version = 5;
        if (kind == K::confirm) other.ends = a->connection.ends;
        for (const bool bare : {false, true}) {
            other.bare = bare;
            intruder.send(c[1], other);
        }
    }
    BOOST_TEST(c[1].plane->counters().refused == before.refused + 1);
    BOOST_TEST((Facts(*b) == there));
}
