// Addresses of RoCE ports: which one is used, in which network it is, who has sent a datagram.
#define BOOST_TEST_MODULE gid
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <vector>

#include "uct_mp/verbs/gid.h"

using namespace ucx_mp::verbs;

namespace {

constexpr std::uint32_t address(unsigned a, unsigned b, unsigned c, unsigned d) {
    return a << 24 | b << 16 | c << 8 | d;
}
const Gid kIpv4 = gid_of_ipv4(address(10, 1, 2, 3));
const Gid kGlobal = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9};
const Gid kLocal = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, 1};

} // namespace

BOOST_AUTO_TEST_CASE(kinds) {
    BOOST_TEST(is_ipv4(kIpv4));
    BOOST_TEST(!is_ipv4(kGlobal));
    BOOST_TEST(!is_ipv4(Gid{}));
    BOOST_TEST(!is_set(Gid{}));
    BOOST_TEST(ipv4_of(kIpv4) == address(10, 1, 2, 3));
    BOOST_TEST(to_string(kIpv4) == "10.1.2.3");
    BOOST_TEST(to_string(kGlobal) == "2001:db8:0:7::9");
    for (const Gid& good : {kIpv4, kGlobal, kLocal}) BOOST_TEST(is_unicast(good));
    for (const Gid& bad :
         {Gid{}, gid_of_ipv4(0), gid_of_ipv4(address(127, 0, 0, 1)), gid_of_ipv4(address(224, 0, 0, 1)),
          gid_of_ipv4(0xffffffff), Gid{0xff, 0x02}, Gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}})
        BOOST_TEST(!is_unicast(bad));
}

BOOST_AUTO_TEST_CASE(networks) {
    const auto net = network_of(kIpv4, 24);
    BOOST_TEST(in_network(gid_of_ipv4(address(10, 1, 2, 250)), net));
    BOOST_TEST(!in_network(gid_of_ipv4(address(10, 1, 3, 3)), net));
    BOOST_TEST(in_network(gid_of_ipv4(address(10, 1, 3, 3)), network_of(kIpv4, 16)));
    BOOST_TEST(network_of(kIpv4, 24) != network_of(kIpv4, 16)); // another network, though one is in the other
    BOOST_TEST(in_network(kIpv4, network_of(kIpv4, 32)));
    BOOST_TEST(!in_network(gid_of_ipv4(address(10, 1, 2, 4)), network_of(kIpv4, 32)));
    BOOST_TEST(in_network(kIpv4, network_of(gid_of_ipv4(1), 0)));
    BOOST_TEST(!in_network(kGlobal, net));
    Gid neighbour = kGlobal;
    neighbour[15] = 1;
    BOOST_TEST(in_network(neighbour, network_of(kGlobal, 0)));
    neighbour[7] = 8;
    BOOST_TEST(!in_network(neighbour, network_of(kGlobal, 0)));
    BOOST_TEST(!in_network(kIpv4, ~std::uint64_t{0})); // no such prefix length
}

BOOST_AUTO_TEST_CASE(the_best_of_a_table) {
    std::vector<GidEntry> table = {{kLocal, 0, false, 0}, {kLocal, 1, true, 0},
                                   {kIpv4, 2, false, 24}, {kIpv4, 3, true, 24},
                                   {kGlobal, 4, true, 0}, {gid_of_ipv4(address(10, 9, 9, 9)), 5, true, 8}};
    std::vector<unsigned> order;
    while (const GidEntry* best = choose(table)) {
        order.push_back(best->index);
        table.erase(table.begin() + (best - table.data()));
    }
    BOOST_TEST(order == (std::vector<unsigned>{3, 5, 4, 1, 2, 0}), boost::test_tools::per_element());
    BOOST_TEST(choose({}) == nullptr);
    const std::vector<GidEntry> useless = {{Gid{}, 0, true, 0}, {gid_of_ipv4(address(127, 0, 0, 1)), 1, true, 8}};
    BOOST_TEST(choose(useless) == nullptr);
}

BOOST_AUTO_TEST_CASE(who_has_sent_it) {
    std::array<std::uint8_t, kGlobalHeader> header{};
    header[20] = 0x45;
    for (unsigned i = 0; i < 4; ++i) header[32 + i] = kIpv4[12 + i], header[36 + i] = 99;
    BOOST_TEST((sender_of(header, true) == kIpv4));
    BOOST_TEST(!sender_of(header, false)); // not an IPv6 header
    header[20] = 0x65;
    BOOST_TEST(!sender_of(header, true));
    header = {};
    header[0] = 0x60;
    std::copy(kGlobal.begin(), kGlobal.end(), &header[8]);
    BOOST_TEST((sender_of(header, false) == kGlobal));
    BOOST_TEST(!sender_of(header, true));
    std::copy(kIpv4.begin(), kIpv4.end(), &header[8]); // RoCE v1: an IPv4 address in an IPv6 header
    BOOST_TEST((sender_of(header, false) == kIpv4));
    header[8] = 0xff; // a multicast address sends nothing
    BOOST_TEST(!sender_of(header, false));
}
