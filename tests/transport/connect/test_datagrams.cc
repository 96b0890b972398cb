// Datagrams of the control plane: a queue pair that has failed works again, under its number and with all its buffers.
#define BOOST_TEST_MODULE datagrams
#include <boost/test/unit_test.hpp>

#include <array>

#include "connect/handshake_fixture.h"
#include "uct_mp/connect/datagrams.h"

using namespace ucx_mp;
using namespace ucx_mp::test;
using connect::Datagrams;

namespace {

constexpr std::uint32_t kKey = 77, kDepth = 8;

struct Side {
    verbs::DeviceSet devices;
    Datagrams datagrams;
    unsigned got = 0;

    void open(World& world, std::uint32_t node) {
        world.select(node);
        std::string error;
        BOOST_REQUIRE(!failed(verbs::DeviceSet::open({}, devices, error)));
        BOOST_REQUIRE(!failed(datagrams.open(devices, devices.rails(),
                                             {.receive_depth = kDepth, .send_depth = kDepth, .q_key = kKey}, error)));
    }
    void poll() {
        while (const auto arrived = datagrams.next()) got += arrived->payload.size() == 100;
    }
};

struct Two {
    std::unique_ptr<World> world = make_world({"ab", "ab"});
    Side sides[2];

    Two() {
        for (std::uint32_t i = 0; i < 2; ++i) sides[i].open(*world, i);
    }
    void settle(bool polling = true) {
        world->run_until(world->now() + 100 * kMicro);
        for (std::uint32_t i = 0; i < 2 && polling; ++i) {
            world->select(i);
            sides[i].poll();
        }
    }
    // How many of `count` arrive, one after the other.
    unsigned send(unsigned from, unsigned rail, unsigned count) {
        Side &s = sides[from], &other = sides[1 - from];
        const unsigned before = other.got;
        const std::array<std::uint8_t, 100> payload{};
        for (unsigned i = 0; i < count; ++i) {
            world->select(from);
            if (failed(s.datagrams.send({.rail = rail,
                                         .to = {.dlid = other.devices.rails()[rail].lid},
                                         .qp_number = other.datagrams.qp_number(rail),
                                         .q_key = kKey},
                                        payload)))
                break;
            settle();
        }
        return other.got - before;
    }
    void restart(unsigned side, unsigned rail) {
        world->select(side);
        sides[side].datagrams.restart(rail);
        BOOST_TEST(sides[side].datagrams.works(rail));
    }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_restarted_queue_pair_has_all_its_buffers, Two) {
    BOOST_TEST(send(0, 0, 3) == 3u);
    for (unsigned round = 0; round < 3; ++round) {
        restart(0, 0);
        restart(1, 0);
        // More than there are buffers: none has been lost, none is posted twice.
        BOOST_TEST(send(0, 0, 3 * kDepth) == 3 * kDepth);
        BOOST_TEST(send(1, 0, 3 * kDepth) == 3 * kDepth);
    }
}

BOOST_FIXTURE_TEST_CASE(what_had_arrived_is_lost_and_its_buffer_is_not, Two) {
    const std::array<std::uint8_t, 100> payload{};
    world->select(0);
    for (unsigned i = 0; i < kDepth / 2; ++i)
        for (unsigned rail = 0; rail < 2; ++rail)
            BOOST_REQUIRE(!failed(sides[0].datagrams.send({.rail = rail,
                                                           .to = {.dlid = sides[1].devices.rails()[rail].lid},
                                                           .qp_number = sides[1].datagrams.qp_number(rail),
                                                           .q_key = kKey},
                                                          payload)));
    settle(false);
    restart(1, 0);
    settle();
    BOOST_TEST(sides[1].got == kDepth / 2); // of the other rail
    BOOST_TEST(send(0, 0, 2 * kDepth) == 2 * kDepth);
    BOOST_TEST(send(0, 1, 2 * kDepth) == 2 * kDepth);
}
