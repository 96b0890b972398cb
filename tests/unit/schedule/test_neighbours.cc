// What a process sends to several peers at once: whole, each peer's on its own rail.
#define BOOST_TEST_MODULE schedule_neighbours
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <memory>

#include "schedule/schedule_fixture.h"

using namespace ucx_mp::schedule;
using namespace ucx_mp::schedule::test;

namespace {

std::vector<PathSetup> two_rails(double rate_of_second = 1) {
    auto setup = equal_paths(2);
    setup[1].rail = 1;
    setup[1].nominal_rate = rate_of_second;
    return setup;
}

// A process and its peers, over two rails.
struct Process {
    explicit Process(unsigned peers, double rate_of_second = 1) {
        for (unsigned i = 0; i < peers; ++i) add(rate_of_second);
    }
    void add(double rate_of_second = 1) {
        // The same seed for all: they come to have different homes by their turns only.
        peers.push_back(std::make_unique<Peer>("default", two_rails(rate_of_second), 0, &neighbours));
    }
    // Posts a write to this peer.
    void put(unsigned peer, std::uint64_t size, double descriptor = 0) {
        Message message{.size = size, .kind = MessageKind::put, .now = now};
        message.descriptor_time = descriptor;
        BOOST_REQUIRE(peers[peer]->scheduler.plan(message, peers[peer]->plan) == Outcome::stripes);
    }
    void complete(unsigned peer, std::uint64_t size) {
        Peer& p = *peers[peer];
        for (unsigned k = 0; k < p.plan.count; ++k)
            p.done(k, now, now + size * (peer == 0 && p.plan.stripes[k].path == 0 ? slow : 1));
    }
    // `peers` writes at once, the same to all; what they were cut into and where whole ones went, as digits: 2 in two,
    // or the path.
    std::string burst(std::uint64_t size, double descriptor = 0) {
        std::string out;
        for (unsigned i = 0; i < peers.size(); ++i) {
            put(i, size, descriptor);
            const Plan& plan = peers[i]->plan;
            out += plan.count == 1 ? std::to_string(plan.stripes[0].path) : "2";
        }
        for (unsigned i = 0; i < peers.size(); ++i) complete(i, size);
        now += 100 * size;
        return out;
    }
    // One after the other.
    std::string in_turn(std::uint64_t size, double descriptor = 0) {
        std::string out;
        for (unsigned i = 0; i < peers.size(); ++i) {
            put(i, size, descriptor);
            out += std::to_string(peers[i]->plan.count);
            complete(i, size);
            now += 100 * size;
        }
        return out;
    }

    Neighbours neighbours;
    std::vector<std::unique_ptr<Peer>> peers;
    Nanos now = 1000;
    unsigned slow = 1; // times: the first path of the first peer
};

} // namespace

BOOST_AUTO_TEST_CASE(of_several_peers_each_has_its_rail) {
    Process process(4);
    BOOST_TEST(process.burst(65536) == "2222"); // nobody knows yet
    for (int i = 0; i < 20; ++i) process.burst(65536);
    BOOST_TEST(process.burst(65536) == "0101");
    // One at a time they are cut again, though not at once.
    BOOST_TEST(process.in_turn(65536) == "1111");
    for (int i = 0; i < 40; ++i) process.in_turn(65536);
    BOOST_TEST(process.in_turn(65536) == "2222");
}

// 2:1 would take a third longer than even stripes.
BOOST_AUTO_TEST_CASE(where_peers_share_the_rails_unevenly_all_is_cut) {
    Process three(3);
    for (int i = 0; i < 50; ++i) BOOST_TEST(three.burst(65536) == "222");
    Process unequal(4, 0.5);
    for (int i = 0; i < 50; ++i) BOOST_TEST(unequal.burst(65536) == "2222");
}

// What costs the processor more than it brings is not cut, whoever has which rail.
BOOST_AUTO_TEST_CASE(short_messages_among_peers_go_whole_sooner) {
    for (const std::uint64_t size : {12288u, 16384u, 24576u}) {
        Process process(3);
        const double descriptor = static_cast<double>(size) / 7; // between 5 and 8.5 of them
        BOOST_TEST(process.in_turn(size, descriptor) == "222");
        for (int i = 0; i < 20; ++i) process.burst(size, descriptor);
        BOOST_TEST(process.burst(size, descriptor) == "010");
    }
}

BOOST_AUTO_TEST_CASE(what_only_tells_of_a_message_is_not_under_way) {
    Process process(4);
    std::vector<PathIndex> unseen[4]; // short messages whose ends are only seen with the peer's next write
    unsigned whole = 0;
    for (int i = 0; i < 1000; ++i)
        for (unsigned peer = 0; peer < 4; ++peer) {
            Scheduler& scheduler = process.peers[peer]->scheduler;
            for (const PathIndex path : unseen[peer]) scheduler.cancel(path, Direction::write, 1024);
            unseen[peer].clear();
            process.put(peer, 65536);
            whole += process.peers[peer]->plan.count == 1;
            for (int k = 0; k < 8; ++k) unseen[peer].push_back(scheduler.place(Direction::write, 1024));
            process.complete(peer, 65536);
            process.now += Nanos{65536} * 100;
        }
    BOOST_TEST(whole == 0u);
}

// Behind a hot link a peer's own path is no longer its best.
BOOST_AUTO_TEST_CASE(a_home_that_is_slow_is_left) {
    Process process(4);
    for (int i = 0; i < 20; ++i) process.burst(65536);
    BOOST_TEST(process.burst(65536) == "0101");
    process.slow = 8;
    for (int i = 0; i < 60; ++i) process.burst(65536);
    BOOST_TEST(process.burst(65536).substr(1) == "101"); // the others stay
    BOOST_TEST(process.burst(65536)[0] != '0');
}

BOOST_AUTO_TEST_CASE(a_rail_that_is_gone_counts_no_more) {
    Process process(4);
    for (auto& peer : process.peers) peer.reset();
    process.peers.clear();
    auto three = two_rails();
    three.push_back(three[1]);
    three[2].rail = 2;
    for (int i = 0; i < 6; ++i)
        process.peers.push_back(std::make_unique<Peer>("default", three, 0, &process.neighbours));
    for (int i = 0; i < 40; ++i) process.burst(65536);
    const std::string all = process.burst(65536);
    BOOST_TEST(std::ranges::count(all, '0') + std::ranges::count(all, '1') + std::ranges::count(all, '2') == 6);
    for (auto& peer : process.peers) peer->scheduler.set_state(2, PathState::down);
    for (int i = 0; i < 40; ++i) process.burst(65536);
    const std::string two = process.burst(65536);
    BOOST_TEST(std::ranges::count(two, '0') == 3);
    BOOST_TEST(std::ranges::count(two, '1') == 3);
}

BOOST_AUTO_TEST_CASE(a_peer_that_ends_is_forgotten) {
    Process process(4);
    for (int i = 0; i < 20; ++i) process.burst(65536);
    process.put(3, 65536);
    process.peers.pop_back();
    process.put(0, 65536); // the latest one is gone
    process.complete(0, 65536);
    process.add();
    BOOST_TEST(process.burst(65536) == "0100"); // it begins where the fifth does
}
