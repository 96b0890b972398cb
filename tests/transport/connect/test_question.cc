// Questions whether a peer lives: over whatever route works, answered for the connection that is meant, and bounded.
#define BOOST_TEST_MODULE transport_question
#include <boost/test/unit_test.hpp>

#include <mutex>

#include "connect/handshake_fixture.h"

using namespace ucx_mp;
using namespace ucx_mp::test;
using connect::Answer;

namespace {

struct Fixture {
    Cluster c{{"ab", "ab"}};
    Peer& p;
    Fixture() : p(c[0].connect_to(c[1])) {
        BOOST_REQUIRE(c.run([&] { return c.connected(0, 1); }));
    }
    Answer ask(Nanos limit = kSecond) {
        p.answers.clear();
        const Nanos start = c.world().now();
        c[0].plane->ask(p.connection, limit);
        BOOST_REQUIRE(c.run([&] { return !p.answers.empty(); }, 10 * kSecond));
        took = c.world().now() - start;
        c.settle(2 * kSecond); // nothing more comes
        BOOST_REQUIRE(p.answers.size() == 1u);
        return p.answers[0];
    }
    Nanos took = 0;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(alive_from_both_sides, Fixture) {
    BOOST_TEST((ask() == Answer::alive));
    Peer& q = *c[1].peer_of(c[0]);
    c[1].plane->ask(q.connection, kSecond);
    c[1].plane->ask(q.connection, kSecond); // one question
    c.settle(2 * kSecond);
    BOOST_TEST((q.answers == std::vector{Answer::alive}));
    BOOST_TEST(c.connected(0, 1));
    BOOST_TEST(c.greet());
}

BOOST_FIXTURE_TEST_CASE(over_the_rail_that_is_left, Fixture) {
    for (const char* port : {"port down 1:softhca_0:1", "port down 1:softhca_1:1"}) {
        c.world().fault(port);
        BOOST_TEST((ask() == Answer::alive));
        c.world().fault(std::string(port).replace(5, 4, "up"));
        c.settle(100 * kMilli);
    }
}

BOOST_FIXTURE_TEST_CASE(the_peer_has_ended_its_side, Fixture) {
    c[1].forget(*c[1].peer_of(c[0]));
    BOOST_TEST((ask() == Answer::lost));
    c[1].erase(*c[1].peer_of(c[0]));
    BOOST_TEST((ask() == Answer::lost));
}

// It wants another connection, and knows no way to us.
BOOST_FIXTURE_TEST_CASE(the_peer_has_ended_its_side_and_waits_for_a_way, Fixture) {
    c[1].erase(*c[1].peer_of(c[0]));
    connect::InterfaceAddress address = c[0].plane->address();
    for (unsigned i = 0; i < address.count; ++i) address.control[i].lid = 0;
    const Peer& waits = c[1].connect_to(address);
    BOOST_TEST((waits.connection.state == State::requesting));
    BOOST_TEST((ask() == Answer::lost));
}

BOOST_FIXTURE_TEST_CASE(silence_is_bounded, Fixture) {
    c.world().fault("port down 1:softhca_0:1");
    c.world().fault("port down 1:softhca_1:1");
    BOOST_TEST((ask(300 * kMilli) == Answer::silent));
    BOOST_TEST(took >= 300 * kMilli);
    BOOST_TEST(took < 301 * kMilli);
    BOOST_TEST(c.is(0, 1, State::established)); // what to make of it is the owner's business
    c.world().fault("port up 1:softhca_0:1");
    c.settle(100 * kMilli);
    BOOST_TEST((ask() == Answer::alive));
}

BOOST_FIXTURE_TEST_CASE(forgotten_while_asking, Fixture) {
    c[0].plane->ask(p.connection, kSecond);
    c[0].forget(p);
    c.settle(3 * kSecond);
    BOOST_TEST(p.answers.empty());
}

// Who asks whether the connection may end repeats the question, and takes the first answer. A copy that arrives later
// must not get another one: the peer would end what the other side goes on with.
BOOST_AUTO_TEST_CASE(a_goodbye_has_one_answer) {
    Cluster c({"aa", "aa"});
    Peer& asks = c[0].connect_to(c[1]);
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
    Peer& answers = *c[1].peer_of(c[0]);
    std::vector<connect::Goodbye> heard;
    c[1].on_ended = [&](Connection&, const connect::Goodbye& goodbye) { heard.push_back(goodbye); };
    const auto ask = [&] {
        const std::lock_guard lock(c.services);
        c[0].plane->say_idle(asks.connection, 7);
    };
    const auto say = [&](std::uint16_t number, bool agreed) {
        const std::lock_guard lock(c.services);
        c[1].plane->say_known(answers.connection, number, agreed);
    };
    for (unsigned round = 1; round <= 3; ++round) {
        heard.clear();
        ask();
        BOOST_TEST(c.run([&] { return heard.size() == 1; }));
        BOOST_TEST(heard[0].idle);
        BOOST_TEST(heard[0].delivered == 7u);
        BOOST_TEST(heard[0].number == round);
        const auto sent = c[0].plane->counters().sent;
        BOOST_TEST(c.run([&] { return c[0].plane->counters().sent > sent; })); // a copy is on its way
        heard.clear();
        say(std::uint16_t(round), round == 3);
        c.settle(kSecond);
        BOOST_TEST(heard.empty()); // it has got the answer without being told to anybody
        BOOST_TEST(asks.parted.size() == round);
        BOOST_TEST((asks.parted.back() == (round == 3 ? connect::Answer::lost : connect::Answer::alive)));
    }
    // The answer is lost again and again: the copies get it.
    ask();
    BOOST_TEST(c.run([&] { return heard.size() == 1; }));
    c.world().fault("drop 100% all");
    say(4, false);
    c.settle(kSecond);
    BOOST_TEST(asks.parted.size() == 3u);
    c.world().fault("clear");
    c.settle(kSecond);
    BOOST_TEST(heard.size() == 1u);
    BOOST_TEST(asks.parted.size() == 4u);
    BOOST_TEST((asks.parted.back() == connect::Answer::alive));
}

// Who has not told that it numbers its questions might take two answers to one of them: it gets no agreement.
BOOST_AUTO_TEST_CASE(without_the_feature_a_connection_stays) {
    connect::ControlConfig old;
    old.terms.features = connect::feature::parts;
    Cluster c({"aa", "aa"}, std::vector<connect::ControlConfig>{old, {}});
    Peer& asks = c[0].connect_to(c[1]);
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
    unsigned heard = 0;
    c[1].on_ended = [&](Connection&, const connect::Goodbye&) { ++heard; };
    for (unsigned round = 1; round <= 3; ++round) {
        {
            const std::lock_guard lock(c.services);
            c[0].plane->say_idle(asks.connection, 7);
        }
        c.settle(kSecond);
        BOOST_REQUIRE(asks.parted.size() == round);
        BOOST_TEST((asks.parted.back() == connect::Answer::alive));
    }
    BOOST_TEST(heard == 0u);
}
