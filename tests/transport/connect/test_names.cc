// Names in the tail of the handshake: what is told, what is believed, and what is said without.
#define BOOST_TEST_MODULE connect_names
#include <boost/test/unit_test.hpp>
#include <random>

#include "handshake_fixture.h"
#include "uct_mp/connect/names.h"
#include "uct_mp/connect/wire.h"

using namespace ucx_mp;
using namespace ucx_mp::test;
using connect::Names;

namespace {

Names sample(unsigned ports) {
    Names names{.host = "node7", .rank = 12, .ports = {}};
    for (unsigned i = 0; i < ports; ++i) names.ports += (i ? ",mlx5_" : "mlx5_") + std::to_string(i) + ":1";
    return names;
}

ControlConfig named(const std::string& host, std::int32_t rank) {
    ControlConfig config;
    config.names = {.host = host, .rank = rank, .ports = {}};
    return config;
}

} // namespace

BOOST_AUTO_TEST_CASE(there_and_back) {
    for (const unsigned ports : {0u, 1u, 2u, 8u, 16u}) {
        const auto tail = connect::pack_names(sample(ports), connect::wire::kMaxTail);
        BOOST_TEST(tail.size() <= connect::wire::kMaxTail);
        const Names read = connect::read_names(tail);
        BOOST_TEST(read.host == "node7");
        BOOST_TEST(read.rank == 12);
        BOOST_TEST(sample(ports).ports.starts_with(read.ports)); // as many as fit
        if (ports <= 8) BOOST_TEST(read.ports == sample(ports).ports);
    }
    BOOST_TEST(connect::port_name(sample(3), 2) == "mlx5_2:1");
    BOOST_TEST(connect::port_name(sample(3), 3) == "");
    BOOST_TEST((connect::read_names(connect::pack_names(Names{}, 96)) == Names{}));
    BOOST_TEST(connect::pack_names(Names{}, 96).empty());
}

// The most important first; a long name is cut.
BOOST_AUTO_TEST_CASE(little_room) {
    for (std::size_t room = 0; room <= connect::wire::kMaxTail; ++room) {
        const auto tail = connect::pack_names(sample(16), room);
        BOOST_TEST(tail.size() <= room);
        const Names read = connect::read_names(tail);
        BOOST_TEST(read.rank == (room >= 6 ? 12 : -1));
        BOOST_TEST(read.host == (room >= 13 ? "node7" : ""));
    }
    const Names longer{.host = std::string(200, 'h'), .rank = 0, .ports = {}};
    BOOST_TEST(connect::read_names(connect::pack_names(longer, 96)).host == std::string(connect::kMaxHostName, 'h'));
}

// Whatever bytes: names of bounded length, without characters that do harm.
BOOST_AUTO_TEST_CASE(nothing_is_believed) {
    std::mt19937 random(1);
    const auto check = [](std::span<const std::uint8_t> tail) {
        const Names names = connect::read_names(tail);
        BOOST_REQUIRE(names.host.size() <= connect::kMaxHostName);
        BOOST_REQUIRE(names.rank >= -1);
        for (const std::string& text : {names.host, names.ports})
            for (const char c : text) BOOST_REQUIRE((c > ' ' && c < 0x7f && c != '"' && c != '\\' && c != '%'));
    };
    for (unsigned round = 0; round < 20'000; ++round) {
        std::vector<std::uint8_t> tail = connect::pack_names(sample(round % 9), 96);
        for (unsigned i = 0; i < 1 + round % 4; ++i) tail[random() % tail.size()] = std::uint8_t(random());
        if (round % 3 == 0) tail.resize(random() % (tail.size() + 1));
        check(tail);
    }
    const std::vector<std::uint8_t> escape{1, 4, 0x1b, '[', '\n', 'a'};
    BOOST_TEST(connect::read_names(escape).host == "???a");
    const std::vector<std::uint8_t> shares_nothing{3, 4, 5, 2, 'a', 'b'}; // the first name has none before it
    BOOST_TEST(connect::read_names(shares_nothing).ports == "");
}

// Both sides know each other by name, and one that tells none goes by its number.
BOOST_AUTO_TEST_CASE(handshake) {
    for (const std::size_t client : {0, 1}) {
        Cluster c({"ab", "ab"}, {named("node7", 12), ControlConfig{}});
        c[client].connect_to(c[!client]);
        BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
        BOOST_TEST(c.greet());
        const Connection &of_silent = c[0].peer_of(c[1])->connection, &of_named = c[1].peer_of(c[0])->connection;
        BOOST_TEST((of_silent.names == Names{}));
        BOOST_TEST(connect::describe(of_named) == "node7 rank 12");
        BOOST_TEST(connect::describe_port(of_named, 1) == "softhca_1:1");
        BOOST_TEST(connect::describe(of_silent).starts_with("peer "));
        BOOST_TEST(connect::describe_port(of_silent, 1).starts_with("LID "));
    }
}

// Parts that nobody knows stand before them.
BOOST_AUTO_TEST_CASE(beside_unknown_parts) {
    ControlConfig later = named("node7", 12);
    later.tail = {200, 5, 1, 2, 3, 4, 5, 201, 0, 202, 1, 9};
    Cluster c({"ab", "ab"}, {named("node3", 4), later});
    c[0].connect_to(c[1]);
    BOOST_TEST(c.run([&] { return c.connected(0, 1); }));
    BOOST_TEST(connect::describe(c[0].peer_of(c[1])->connection) == "node7 rank 12");
    BOOST_TEST(connect::describe(c[1].peer_of(c[0])->connection) == "node3 rank 4");
}
