// An adapter that dies, in virtual time: from when its program can know that, it reads nothing of the program's memory.
#define BOOST_TEST_MODULE sim_death
#include <fcntl.h>

#include <algorithm>
#include <functional>

#include "sim_fixture.h"

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr uint32_t kBytes = 64'000;

// The adapter of node 0 dies when something of its write has come, and more is under way. Its program hears of that,
// and uses the memory for something else. What had left the adapter comes all the same, as it was.
void check(const std::function<void(ibv_context*)>& hear) {
    World world(image(star(2)));
    Pair p(world, kBytes);
    std::ranges::fill(p.from, 'a');
    p.qa.post(IBV_WR_RDMA_WRITE, p.ma, 0, kBytes, p.mb, 0);
    BOOST_REQUIRE(world.run_until([&] { return p.to.front() == 'a'; }));
    const auto come = [&](char what) { return std::ranges::count(p.to, what); };
    const auto before = come('a');
    world.fault("adapter-death 0:softhca_0");
    hear(p.a.context);
    std::ranges::fill(p.from, 'z');
    while (world.step()) {}
    BOOST_TEST(come('a') > before);
    BOOST_TEST(come('a') < kBytes);
    BOOST_TEST(come('z') == 0);
}

} // namespace

BOOST_AUTO_TEST_CASE(heard_of_by_an_event) {
    check([](ibv_context* context) {
        BOOST_REQUIRE(fcntl(context->async_fd, F_SETFL, O_NONBLOCK) == 0);
        ibv_async_event event{};
        BOOST_REQUIRE(ibv_get_async_event(context, &event) == 0); // the first that there is
        ibv_ack_async_event(&event);
    });
}

BOOST_AUTO_TEST_CASE(heard_of_by_a_command_that_fails) {
    check([](ibv_context* context) {
        ibv_port_attr port{};
        BOOST_TEST(ibv_query_port(context, 1, &port) != 0);
    });
}
