// What a flush promises of the messages before it, and what it costs that completion is not visibility.
#define BOOST_TEST_MODULE transport_flush
#include "both_transports.h"
#include "uct_mp/schedule/policy_factory.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

struct Done : Completion {
    Done() : Completion{[](Completion* self) { static_cast<Done*>(self)->over = true; }, 1, Status::ok} {}
    bool over = false;
};

// Two nodes on two rails, node 0 connected to node 1 and nothing under way. Messages 3 are counted.
struct Pair {
    Cluster cluster;
    Node::Memory source, target;
    Channel& to;
    int delivered = 0;

    explicit Pair(const channel::Config& config, const char* fabric = "two-rail", const verbs::DeviceConfig& rails = {})
        : cluster(fabric, 2, config, {.seed = 1}, rails), source(cluster.node(0).memory(1 << 20)),
          target(cluster.node(1).memory(1 << 20)), to(cluster.channel(0, 1)) {
        cluster.node(1).on_am(
            3,
            [](void* self, void*, std::size_t, unsigned) {
                ++static_cast<Pair*>(self)->delivered;
                return Status::ok;
            },
            this);
        message(5);
        flush();
    }
    channel::Interface& iface() { return cluster.node(0).iface(); }
    void message(std::uint8_t id = 3) {
        BOOST_TEST_REQUIRE(cluster.until([&] { return iface().am_short(to, id, 0, nullptr, 0) == Status::ok; }));
    }
    void put(std::size_t size) {
        Done done;
        const Iov iov = source.iov(0, size);
        BOOST_TEST_REQUIRE(cluster.until([&] {
            return iface().put_zcopy(to, &iov, 1, target.address(), target.keys, &done) == Status::in_progress;
        }));
        BOOST_TEST_REQUIRE(cluster.until([&] { return done.over; }));
    }
    void flush() {
        Done done;
        if (iface().flush(to, &done) == Status::ok) return;
        BOOST_TEST_REQUIRE(cluster.until([&] { return done.over; }));
        BOOST_TEST(int(done.status) == int(Status::ok));
    }
    template <class F> Nanos time(F&& what) {
        const Nanos begin = cluster.world.now();
        what();
        return cluster.world.now() - begin;
    }
    Nanos time_of_message() {
        return time([&] {
            const int before = delivered;
            message();
            BOOST_TEST_REQUIRE(cluster.until([&] { return delivered > before; }));
        });
    }
};

const char* const kFaults[] = {"drop 100% 0:softhca_1:1", "drop 100% 0:softhca_0:1", "port down 1:softhca_1:1",
                               "port down 0:softhca_0:1"};

} // namespace

// A flush is over, so what was sent before it needs nothing from us any more: neither the message itself nor the
// markers that it waits for may have been lost with a path.
BOOST_DATA_TEST_CASE(who_closes_after_a_flush_has_been_heard, kBoth* boost::unit_test::data::make(kFaults), transport,
                     fault) {
    for (const char* policy : {"even", "default", "round_robin"}) {
        channel::Config config = config_of(transport);
        config.policy = *schedule::make_policy(policy).config;
        Pair pair(config);
        pair.put(65536);
        pair.flush();
        pair.put(65536);
        pair.cluster.world.fault(fault);
        (void)pair.iface().fence(pair.to);
        pair.message();
        pair.flush();
        pair.cluster.node(0).close();
        pair.cluster.node(1).on_failure = [](Channel&, Status) {};
        pair.cluster.run_for(100'000'000);
        BOOST_TEST(pair.delivered == 1, policy << " " << fault);
    }
}

// Adapters that place at once: nobody has to wait for them longer than a message's, or a read's, own time.
BOOST_DATA_TEST_CASE(visibility_costs_no_round_trip_for_messages_and_one_for_flushes, kBoth, transport) {
    // Two adapters, or two ports of one.
    for (const bool several : {true, false}) {
        const char* const fabric = several ? "two-rail" : "dual-port";
        verbs::DeviceConfig rails;
        if (!several) rails.rails = {"softhca_0"};
        Pair pair(config_of(transport), fabric, rails);
        for (int i = 0; i < 8; ++i) (void)pair.time_of_message();
        const Nanos message = pair.time_of_message();
        pair.put(65536);
        const Nanos behind_put = pair.time_of_message();
        BOOST_TEST(behind_put < message * 3 / 2,
                   fabric << ": a message behind a completed write takes " << behind_put << " ns, alone " << message);
        pair.flush();
        BOOST_TEST(pair.time([&] { pair.flush(); }) == 0u, "a flush without writes before it");
        Done got;
        const Iov iov = pair.source.iov(0, 8);
        const Nanos read = pair.time([&] {
            BOOST_TEST_REQUIRE(int(pair.iface().get_zcopy(pair.to, &iov, 1, pair.target.address(), pair.target.keys,
                                                          &got)) == int(Status::in_progress));
            BOOST_TEST_REQUIRE(pair.cluster.until([&] { return got.over; }));
        });
        pair.put(65536);
        const Nanos flush = pair.time([&] { pair.flush(); });
        BOOST_TEST(flush <= (several ? read * 3 / 2 : 0),
                   fabric << ": a flush behind a completed write takes " << flush << " ns, a read " << read);
    }
}
