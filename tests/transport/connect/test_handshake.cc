// The handshake between few nodes, in virtual time, with everything that can go wrong on the way.
#define BOOST_TEST_MODULE handshake
#include <boost/test/unit_test.hpp>

#include "connect/handshake_fixture.h"

using namespace ucx_mp;
using namespace ucx_mp::test;

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
    BOOST_TEST(c.total().repeated + c.total().dropped + c.total().late + c.total().refused == 0u);
}
