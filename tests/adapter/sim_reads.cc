// Reads and atomics that a queue pair may have outstanding (max_rd_atomic), counted where nothing can hide one: every
// request is one packet on the initiator's cable, and every completion ends one.
#define BOOST_TEST_MODULE sim_reads
#include <algorithm>

#include "sim_fixture.h"

using namespace softhca;
using namespace softhca::test;

namespace {

enum class Mix { reads, atomics, both };

// The most that were outstanding at any time, of 48 requests posted at once; and how long they took.
struct Seen {
    uint64_t most;
    Nanos took;
};
Seen run(uint8_t allowed, Mix mix) {
    constexpr uint32_t kRequests = 48, kBytes = 20'000;
    World world(image(star(2)));
    Hca a(world, 0, 64), b(world, 1, 64);
    std::vector<char> here(kMiB), there(kMiB, 'x');
    const ibv_mr *ma = a.reg(here.data(), kMiB), *mb = b.reg(there.data(), kMiB);
    Rc qa(a, kRequests), qb(b);
    qa.connect(qb, 0, 14, 7, allowed);
    qb.connect(qa);
    const uint32_t cable = world.find_link("node0", "switch0");
    BOOST_REQUIRE(cable != kNone);
    const uint64_t before = world.link(cable).packets;
    const Nanos start = world.now();
    for (uint32_t i = 0; i < kRequests; ++i) {
        if (mix == Mix::reads || (mix == Mix::both && i % 3))
            qa.post(IBV_WR_RDMA_READ, ma, i * kBytes, kBytes, mb, i * kBytes, i);
        else
            qa.post(IBV_WR_ATOMIC_FETCH_AND_ADD, ma, 0, 8, mb, 0, i);
    }
    uint64_t done = 0, most = 0;
    Nanos end = start;
    while (world.step()) {
        ibv_wc wc{};
        while (ibv_poll_cq(a.cq, 1, &wc) == 1) {
            BOOST_TEST(wc.status == IBV_WC_SUCCESS);
            BOOST_TEST(wc.wr_id == done++);
            end = world.now();
        }
        most = std::max(most, world.link(cable).packets - before - done);
    }
    BOOST_TEST(done == kRequests);
    BOOST_TEST(world.link(cable).packets - before == kRequests); // none was asked for twice
    return {most, end - start};
}

} // namespace

BOOST_AUTO_TEST_CASE(never_more_than_allowed_are_outstanding) {
    for (const Mix mix : {Mix::reads, Mix::atomics, Mix::both})
        for (const uint8_t allowed : {1, 2, 3, 8, 16}) BOOST_TEST(run(allowed, mix).most == allowed);
}

// The limit is felt: with one at a time every atomic waits for the round trip of the one before it.
BOOST_AUTO_TEST_CASE(what_is_allowed_is_used) {
    const Nanos one = run(1, Mix::atomics).took, eight = run(8, Mix::atomics).took;
    BOOST_TEST(one > 5 * eight);
}
