// How soon what a path has lost goes again: when the peer has answered, behind what the other path carries already.
// So it is all there nearly as soon as if there had been no other path from the beginning.
#define BOOST_TEST_MODULE transport_again
#include <cstring>
#include <memory>
#include <vector>

#include "both_transports.h"
#include "uct_mp/channel/core.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

enum class Op { message, put, get };
std::ostream& operator<<(std::ostream& out, Op op) {
    return out << (op == Op::message ? "message" : op == Op::put ? "put" : "get");
}
const auto kOps = boost::unit_test::data::make({Op::message, Op::put, Op::get});

struct Counted : Completion {
    explicit Counted(unsigned& counter) : Completion{fired, 1, Status::ok}, count_of(counter) {}
    unsigned& count_of;
    static void fired(Completion* self) { ++static_cast<Counted*>(self)->count_of; }
};

// The time until 32 messages of 8000 bytes have come, or 8 transfers of 64 KiB are complete. All are posted at once.
Nanos burst(connect::Transport transport, Op op, const char* before, const char* meanwhile) {
    const unsigned count = op == Op::message ? 32 : 8;
    const std::size_t size = op == Op::message ? 8000 : 1 << 16;
    Cluster cluster("two-rail", 2, config_of(transport));
    Channel& channel = cluster.channel(0, 1);
    auto& iface = cluster.node(0).iface();
    auto mine = cluster.node(0).memory(size), theirs = cluster.node(1).memory(size);
    unsigned done = 0, come = 0;
    cluster.node(1).on_am(
        1, [](void* n, void*, std::size_t, unsigned) { return ++*static_cast<unsigned*>(n), Status::ok; }, &come);
    std::vector<std::unique_ptr<Counted>> completions;
    const channel::Iov iov = mine.iov(0, size);
    const auto start = [&] {
        cluster.world.select(0);
        Counted* const completion = completions.emplace_back(std::make_unique<Counted>(done)).get();
        const std::uint64_t header = 0;
        return op == Op::message ? iface.am_zcopy(channel, 1, &header, sizeof header, &iov, 1, completion)
               : op == Op::put   ? iface.put_zcopy(channel, &iov, 1, theirs.address(), theirs.keys, completion)
                                 : iface.get_zcopy(channel, &iov, 1, theirs.address(), theirs.keys, completion);
    };
    unsigned wanted = 0;
    const auto all_is_done = [&] { return done == wanted && (op != Op::message || come == wanted); };
    BOOST_REQUIRE(cluster.until([&] { return start() == Status::in_progress; }));
    wanted = 1;
    BOOST_REQUIRE(cluster.until(all_is_done));
    if (before) cluster.world.fault(before);
    cluster.run_for(5'000'000);
    const Nanos begin = cluster.world.now();
    for (unsigned i = 0; i < count; ++i) BOOST_REQUIRE((start() == Status::in_progress));
    wanted += count;
    cluster.run_for(20'000);
    if (meanwhile) cluster.world.fault(meanwhile);
    BOOST_REQUIRE(cluster.until(all_is_done));
    return cluster.world.now() - begin;
}

} // namespace

BOOST_DATA_TEST_CASE(behind_what_is_under_way, kBoth* kOps, transport, op) {
    const char* const fault = "port down 0:softhca_0:1";
    const Nanos both = burst(transport, op, nullptr, nullptr), one = burst(transport, op, fault, nullptr),
                lost = burst(transport, op, nullptr, fault);
    BOOST_TEST(2 * both < one + one / 4); // it is the links that the time goes by
    BOOST_TEST(lost > both);
    // The peer's word waits behind two turns of the other rail's adapter, of 16 KiB each. A DC initiator's packets may
    // be on their way for a while.
    const Nanos answer = transport == connect::Transport::dc ? channel::RecoveryConfig{}.packet_lifetime : 0;
    BOOST_TEST(lost < one + answer + one / 4);
}
