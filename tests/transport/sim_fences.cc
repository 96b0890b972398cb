// Fences between writes where a channel has a path of DC and one of RC, and one of them is in use: the order is that of
// its queue pair, and nothing waits. What takes over when the other kind comes, goes or fails keeps it as well.
#define BOOST_TEST_MODULE transport_fences
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cstring>

#include "simulator/random_faults.h"
#include "simulator/stress.h"
#include "simulator/traffic.h"
#include "switches.h"
#include "two_kinds.h"
#include "uct_mp/schedule/policy_factory.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
using adapt::Service;
using channel::Interface;
using path::Kind;

namespace {

constexpr Nanos kMs = 1'000'000;
constexpr const char* kOneRail = "link-20us";

channel::Config config() {
    channel::Config config = quick_config(connect::Transport::dc);
    config.adapt.mode = channel::AdaptConfig::Mode::manual;
    config.adapt.pool = 0;
    config.recovery.partition_timeout = 0;
    return config;
}

bool serve(Cluster& cluster, Service service) {
    return cluster.node(0).iface().serve_by(cluster.channel(0, 1), service) == Status::ok;
}

bool has_rc(Cluster& cluster, bool wanted) {
    return cluster.until([&] { return (of_kind(cluster.node(0), Kind::rc).up == 1) == wanted; }, 1'000 * kMs);
}

// Writes of rising numbers to one place, a fence behind each, and perhaps a message. Whoever looks there never sees a
// number fall.
class Rising {
public:
    explicit Rising(Cluster& cluster, bool told = false)
        : cluster_(cluster), to_(cluster.channel(0, 1)), told_(told), theirs_(cluster.node(1).memory(8)),
          mine_(cluster.node(0).memory(8)) {
        done_.count = 0;
        std::memset(theirs_.data, 0, 8);
        look();
    }
    // True: the transport has taken one more.
    bool put() {
        cluster_.world.select(0);
        if (tell_ && Interface::am_short(to_, 6, value_, nullptr, 0) != Status::ok) return false;
        tell_ = false;
        if (reading && value_ % 4 == 3 && read_ != value_ && done_.count == 0 && !get()) return false;
        const std::uint64_t next = value_ + 1;
        if (Interface::put_short(to_, &next, sizeof next, theirs_.address(), theirs_.keys) != Status::ok) return false;
        value_ = next;
        (void)Interface::fence(to_);
        tell_ = told_;
        return true;
    }
    // Reads what is there, behind the fence of the last write. True: it is under way.
    bool get() {
        const Iov iov = mine_.iov(0, 8);
        done_ = Read(this, value_);
        if (Interface::get_zcopy(to_, &iov, 1, theirs_.address(), theirs_.keys, &done_) != Status::in_progress) {
            done_.count = 0;
            return false;
        }
        read_ = value_;
        return true;
    }
    unsigned puts_without_waiting() {
        unsigned n = 0;
        while (n < 8 && put()) ++n;
        return n;
    }
    [[nodiscard]] bool all_there() const { return there() == value_; }
    unsigned fallen = 0;
    unsigned old = 0; // reads that have found what was before the write in front of their fence
    unsigned reads = 0;
    bool over = false, reading = false;

private:
    struct Read : Completion {
        Read(Rising* of, std::uint64_t behind)
            : Completion([](Completion* c) { static_cast<Read*>(c)->check(); }, 1, Status::ok), rising(of),
              least(behind) {}
        void check() const {
            std::uint64_t found;
            std::memcpy(&found, rising->mine_.data, sizeof found);
            rising->old += found < least;
            ++rising->reads;
        }
        Rising* rising;
        std::uint64_t least;
    };
    [[nodiscard]] std::uint64_t there() const {
        std::uint64_t value;
        std::memcpy(&value, theirs_.data, sizeof value);
        return value;
    }
    void look() {
        const std::uint64_t now = there();
        fallen += now < seen_;
        seen_ = now;
        if (!over) cluster_.world.at(cluster_.world.now() + 500, [this] { look(); });
    }
    Cluster& cluster_;
    channel::Channel& to_;
    const bool told_;
    bool tell_ = false;
    const Node::Memory theirs_;
    Node::Memory mine_;
    Read done_{this, 0};
    std::uint64_t value_ = 0, seen_ = 0, read_ = 0;
};

} // namespace

// By RC, where packet numbers tell what was executed; by DC, if messages do.
BOOST_DATA_TEST_CASE(nothing_waits,
                     boost::unit_test::data::make({false, true}) * boost::unit_test::data::make({false, true}), by_rc,
                     told) {
    Cluster cluster(kOneRail, 2, config());
    BOOST_TEST(traffic(cluster, 1) == "");
    if (by_rc) {
        BOOST_REQUIRE(serve(cluster, Service::rc));
        BOOST_REQUIRE(has_rc(cluster, true));
    }
    Rising rising(cluster, told);
    BOOST_TEST(cluster.until([&] { return rising.put(); }, 10 * kMs)); // behind what was before
    BOOST_TEST(cluster.until([&] { return rising.all_there(); }, 10 * kMs));
    cluster.run_for(kMs);
    BOOST_TEST(rising.puts_without_waiting() == (by_rc || told ? 8u : 1u));
    BOOST_TEST(cluster.until([&] { return rising.all_there(); }, 10 * kMs));
    BOOST_TEST(rising.fallen == 0u);
    rising.over = true;
}

// The one in use is another one now: what comes waits for what is under way.
BOOST_DATA_TEST_CASE(another_takes_over, boost::unit_test::data::make({false, true}), to_rc) {
    Cluster cluster(kOneRail, 2, config());
    BOOST_TEST(traffic(cluster, 1) == "");
    if (!to_rc) {
        BOOST_REQUIRE(serve(cluster, Service::rc));
        BOOST_REQUIRE(has_rc(cluster, true));
    }
    Rising rising(cluster);
    BOOST_REQUIRE(serve(cluster, to_rc ? Service::rc : Service::shared));
    const Nanos end = cluster.world.now() + 1'000 * kMs;
    const auto changed = [&] { return (of_kind(cluster.node(0), Kind::rc).up == 1) == to_rc; };
    BOOST_TEST(cluster.until(
        [&] {
            (void)rising.put();
            return changed() || cluster.world.now() > end;
        },
        2'000 * kMs));
    BOOST_TEST(changed());
    for (unsigned i = 0; i < 100; ++i) BOOST_REQUIRE(cluster.until([&] { return rising.put(); }, 10 * kMs));
    BOOST_TEST(cluster.until([&] { return rising.all_there(); }, 10 * kMs));
    BOOST_TEST(rising.fallen == 0u);
    rising.over = true;
}

// Both kinds come, go and fail all the time.
BOOST_DATA_TEST_CASE(switches_and_faults,
                     boost::unit_test::data::xrange(1, 5) * boost::unit_test::data::make({false, true}), seed, told) {
    channel::Config c = config();
    c.recovery.packet_numbers = seed % 3 != 0; // else markers decide
    Cluster cluster(kOneRail, 2, c, {.seed = static_cast<std::uint64_t>(seed)});
    if (seed % 4 == 0) cluster.world.fault("place-delay 30us *:softhca_0");
    BOOST_TEST(traffic(cluster, seed) == "");
    Rising rising(cluster, told);
    rising.reading = true;
    Faults faults(cluster, seed, 1);
    Switches switches(cluster, seed, 300'000, {Service::rc, Service::shared});
    for (unsigned i = 0; i < 1500; ++i) BOOST_REQUIRE(cluster.until([&] { return rising.put(); }, 4'000 * kMs));
    faults.over = switches.over = true;
    BOOST_TEST(cluster.until([&] { return rising.all_there(); }, 4'000 * kMs));
    BOOST_TEST(rising.fallen == 0u);
    BOOST_TEST(rising.old == 0u);
    BOOST_TEST(rising.reads > 100u);
    BOOST_TEST(faults.begun > 3u);
    BOOST_TEST(switches.made > 3u);
    rising.over = true;
    for (unsigned i = 0; i < 2; ++i) BOOST_TEST(cluster.node(i).services().errors == 0u);
    BOOST_TEST(traffic(cluster, seed + 100) == "");
}

// Traffic of all kinds on one rail.
BOOST_DATA_TEST_CASE(all_kinds_of_traffic, boost::unit_test::data::xrange(1, 4), seed) {
    channel::Config c = config();
    c.policy = *schedule::make_policy(seed % 2 ? "default" : "round_robin").config;
    Cluster cluster(kOneRail, 2, c, {.seed = static_cast<std::uint64_t>(seed)});
    Stress stress(cluster,
                  {.seed = static_cast<std::uint64_t>(seed), .operations = 500, .slot = 1 << 16, .constant = 1 << 16});
    Faults faults(cluster, seed, 1);
    Switches switches(cluster, seed, 300'000, {Service::rc, Service::shared});
    BOOST_TEST(stress.run(4'000'000'000));
    faults.over = switches.over = true;
    BOOST_TEST(stress.verdict() == "");
    BOOST_TEST(switches.made > 3u);
    cluster.after_progress = {};
    BOOST_TEST(traffic(cluster, seed + 100) == "");
}

// A single path: of DC, or of RC whose adapters tell no packet numbers, nobody knows what was executed of what a failed
// queue pair leaves. So nothing passes there, unless messages tell.
BOOST_DATA_TEST_CASE(a_single_path_fails,
                     boost::unit_test::data::make({connect::Transport::rc, connect::Transport::dc}) *
                         boost::unit_test::data::xrange(1, 4) * boost::unit_test::data::make({false, true}),
                     transport, seed, told) {
    channel::Config c = quick_config(transport);
    c.recovery.partition_timeout = 0;
    std::vector<channel::Config> configs(2, c);
    configs[0].recovery.packet_numbers = seed % 3 != 0;
    configs[1].recovery.packet_numbers = seed % 3 == 2; // perhaps only the peer does not tell them
    Cluster cluster(kOneRail, configs, {.seed = static_cast<std::uint64_t>(seed)});
    BOOST_TEST(traffic(cluster, seed) == "");
    Rising rising(cluster, told);
    rising.reading = true;
    Faults faults(cluster, seed, 1);
    for (unsigned i = 0; i < 1500; ++i) BOOST_REQUIRE(cluster.until([&] { return rising.put(); }, 4'000 * kMs));
    faults.over = true;
    BOOST_TEST(cluster.until([&] { return rising.all_there(); }, 4'000 * kMs));
    BOOST_TEST(rising.fallen == 0u);
    BOOST_TEST(rising.old == 0u);
    BOOST_TEST(rising.reads > 100u);
    BOOST_TEST(faults.begun > 3u);
    rising.over = true;
    BOOST_TEST(traffic(cluster, seed + 100) == "");
}

// A peer owes the acknowledgment of a few messages for ever, if it has nothing to say. Who writes behind an atomic and
// a fence asks for it.
BOOST_DATA_TEST_CASE(an_atomic_before_a_fence,
                     boost::unit_test::data::make({connect::Transport::rc, connect::Transport::dc}) *
                         boost::unit_test::data::make({kOneRail, "two-rail"}) *
                         boost::unit_test::data::make({false, true}),
                     transport, fabric, put_before) {
    Cluster cluster(fabric, 2, quick_config(transport));
    BOOST_TEST(traffic(cluster, 1) == "");
    channel::Channel& to = cluster.channel(0, 1);
    const Node::Memory theirs = cluster.node(1).memory(64);
    const std::uint64_t value = 7;
    const auto put = [&] {
        cluster.world.select(0);
        return Interface::put_short(to, &value, sizeof value, theirs.address(), theirs.keys) == Status::ok;
    };
    if (put_before) {
        BOOST_TEST(cluster.until(put, 10 * kMs));
        (void)Interface::fence(to);
    }
    BOOST_TEST(cluster.until(
        [&] {
            cluster.world.select(0);
            return Interface::atomic_post(to, channel::AtomicOp::add, 8, 1, theirs.address() + 8, theirs.keys) ==
                   Status::ok;
        },
        10 * kMs));
    (void)Interface::fence(to);
    BOOST_TEST(cluster.until(put, 10 * kMs));
}
