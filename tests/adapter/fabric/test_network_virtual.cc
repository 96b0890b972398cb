// The exact fabric model: rates, latencies, fairness, back-pressure, adapter limits, faults, determinism.
#define BOOST_TEST_MODULE network_virtual
#include <boost/test/unit_test.hpp>

#include <memory>
#include <optional>

#include "fabric/network_lru.h"
#include "small_fabric.h"

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr uint64_t kNs = 1; // a byte takes 1 ns at kGB
constexpr uint64_t kChunkNs = Flow::kChunk * kNs;
constexpr uint64_t kMiB = 1 << 20;

struct Model {
    explicit Model(SmallFabric& fabric) : seg(fabric.build(), true), net(make_virtual_network(*seg, scheduler)) {}
    void run(Nanos until = kNever) {
        while (!scheduler.empty() && scheduler.next_due() <= until) {
            now = scheduler.next_due();
            scheduler.fire_next();
        }
        if (until != kNever) now = until;
    }
    TestSegment seg;
    Scheduler scheduler;
    std::unique_ptr<Network> net;
    Nanos now = 0;
};

// Two nodes per switch, two switches, one cable between the switches.
struct Dumbbell : SmallFabric {
    explicit Dumbbell(Wire edge = {}, Wire middle = {}, Costs limits = {}) {
        for (uint32_t& p : ports) p = node(limits);
        const uint32_t left = sw(), right = sw();
        for (int i = 0; i < 4; ++i) links[i] = port_to_switch(ports[i], i < 2 ? left : right, edge);
        trunk = switch_to_switch(left, right, middle);
    }
    uint32_t ports[4], links[4], trunk;
};

uint64_t rate(const Flow& f) { return f.bytes * 1'000'000'000 / f.last_arrival; }

} // namespace

BOOST_AUTO_TEST_CASE(latency_is_once_per_hop_and_serialisation_once) {
    Dumbbell d;
    Model m(d);
    Flow small(d.ports[0], d.lid(d.ports[2]), 64, 1), large(d.ports[1], d.lid(d.ports[3]), Flow::kChunk, 1, 101);
    m.net->activate(small, 0);
    m.run();
    BOOST_TEST(small.last_arrival == 3 * 100u + 64);
    BOOST_TEST(small.last_injected == 64u);
    const Nanos start = m.now;
    m.net->activate(large, start);
    m.run();
    BOOST_TEST(large.last_arrival - start == 3 * 100u + kChunkNs);
    BOOST_TEST(large.in_flight == 0u);
    BOOST_TEST(!large.net_ready);
    // control packets: the same without queueing
    BOOST_TEST(m.net->control(d.ports[0], d.lid(d.ports[3]), 30, 1000, true) == 1000u + 300 + 30);
}

BOOST_AUTO_TEST_CASE(a_flow_gets_exactly_the_slowest_rate) {
    for (const Wire edge : {Wire{}, Wire{.rate = 3 * kGB}, Wire{.rate = kGB * 7 / 9}})
        for (const Wire middle : {Wire{}, Wire{.rate = 4 * kGB}, Wire{.rate = kGB / 3}}) {
            Dumbbell d(edge, middle);
            Model m(d);
            Flow f(d.ports[0], d.lid(d.ports[2]), kMiB, 16);
            m.net->activate(f, 0);
            m.run();
            const double slowest = static_cast<double>(std::min(edge.rate, middle.rate));
            const double expected = 300 + static_cast<double>(f.bytes) * 1e9 / slowest;
            BOOST_TEST(f.bytes == 16 * kMiB);
            BOOST_TEST(f.in_order);
            BOOST_TEST(f.injected_first);
            // The one chunk that is stored before a faster link and sent on a slower one again.
            const bool up = edge.rate < middle.rate;
            const double stored = up ? kChunkNs * kGB * (1 / slowest - 1 / static_cast<double>(middle.rate)) : 0;
            BOOST_TEST(std::abs(static_cast<double>(f.last_arrival) - expected - stored) < 4 + expected * 1e-6,
                       f.last_arrival << " instead of " << expected + stored);
        }
}

BOOST_AUTO_TEST_CASE(headers_count_on_the_wire) {
    Dumbbell d({}, {}, {.wire_header = 26});
    Model m(d);
    Flow f(d.ports[0], d.lid(d.ports[2]), kMiB, 1);
    m.net->activate(f, 0);
    m.run();
    BOOST_TEST(f.last_arrival == 300 + kMiB + kMiB / 2048 * 26);
    BOOST_TEST(m.seg->link(d.trunk).bytes.load() == kMiB + kMiB / 2048 * 26);
    BOOST_TEST(m.seg->link(d.trunk).packets.load() == kMiB / 2048);
    BOOST_TEST(m.seg->link(d.trunk).chunks.load() == kMiB / Flow::kChunk);
    BOOST_TEST(m.seg->port(d.ports[0]).tx_packets.load() == kMiB / 2048);
    BOOST_TEST(m.seg->port(d.ports[2]).rx_bytes.load() == kMiB + kMiB / 2048 * 26);
}

BOOST_AUTO_TEST_CASE(two_flows_share_a_link_equally) {
    Dumbbell d;
    Model m(d);
    Flow a(d.ports[0], d.lid(d.ports[2]), 4 * kMiB, 100), b(d.ports[1], d.lid(d.ports[3]), kMiB, 400, 101);
    m.net->activate(a, 0);
    m.net->activate(b, 100);
    m.run(50 * kMiB);
    const double share = static_cast<double>(a.bytes) / static_cast<double>(a.bytes + b.bytes);
    BOOST_TEST(std::abs(share - 0.5) < 0.001, share);
    BOOST_TEST(static_cast<double>(a.bytes + b.bytes) > 0.999 * static_cast<double>(m.now));
    BOOST_TEST(m.seg->link(d.trunk).wait_ns.load() > 0u);
    // Two queue pairs of one port.
    SmallFabric f;
    const uint32_t from = f.node(), to = f.node();
    f.port_to_port(from, to);
    Model n(f);
    Flow c(from, f.lid(to), 4 * kMiB, 100), e(from, f.lid(to), 4 * kMiB, 100, 101);
    n.net->activate(c, 0);
    n.net->activate(e, 5'000'000);
    n.run(5'000'000 + 50 * kMiB);
    BOOST_TEST(std::abs(static_cast<double>(e.bytes) - 25 * kMiB) < 3 * Flow::kChunk);
}

BOOST_AUTO_TEST_CASE(a_small_message_passes_large_ones) {
    for (const uint32_t engines : {0u, 1u, 4u})
        for (const int competitors : {1, 3}) {
            Dumbbell d({}, {}, {.engines_per_port = engines});
            Model m(d);
            std::vector<std::unique_ptr<Flow>> large;
            for (int i = 0; i < competitors; ++i) {
                large.push_back(std::make_unique<Flow>(d.ports[0], d.lid(d.ports[2]), 4 * kMiB, 10, 200 + i));
                m.net->activate(*large.back(), 0);
            }
            uint64_t worst = 0;
            for (Nanos t = 100'000; t < 1'000'000; t = std::max(t, m.now) + 10'007) {
                m.run(t);
                Flow small(d.ports[0], d.lid(d.ports[2]), 64, 1, 300);
                m.net->activate(small, t);
                while (!small.done() || small.net_ready) {
                    m.now = m.scheduler.next_due();
                    m.scheduler.fire_next();
                }
                worst = std::max(worst, small.last_arrival - t);
            }
            // A round of the others at the adapter, the links behind it are not the bottleneck; one more round if it
            // shares an engine of several.
            const uint64_t round = static_cast<uint64_t>(competitors + 1) * kChunkNs * (engines == 4 ? 2 : 1);
            BOOST_TEST(worst <= round + 300 + 128, "engines " << engines << ": " << worst);
            if (competitors == 1) BOOST_TEST(worst <= 3 * 2 * kChunkNs);
        }
}

BOOST_AUTO_TEST_CASE(a_hot_spot_spreads_to_other_traffic_of_its_inputs) {
    // Nodes 0..3 behind switch A, 4..6 behind switch B. 0..2 send to 4 (hot), 3 sends to 5 (victim) over the same
    // trunk, which has room for all of them.
    const auto victim_rate = [](uint32_t buffer, bool incast) {
        SmallFabric f;
        uint32_t port[7];
        for (uint32_t& p : port) p = f.node();
        const uint32_t a = f.sw(), b = f.sw();
        for (int i = 0; i < 7; ++i) f.port_to_switch(port[i], i < 4 ? a : b, {.buffer = buffer});
        f.switch_to_switch(a, b, {.rate = 4 * kGB, .buffer = buffer});
        Model m(f);
        std::vector<std::unique_ptr<Flow>> flows;
        for (int i = 0; i < 4; ++i) {
            if (i < 3 && !incast) continue;
            flows.push_back(std::make_unique<Flow>(port[i], f.lid(port[i < 3 ? 4 : 5]), kMiB, 1000, 100 + i));
            m.net->activate(*flows.back(), 0);
        }
        m.run(20'000'000);
        return static_cast<double>(flows.back()->bytes) / 20e6;
    };
    BOOST_TEST(victim_rate(32768, false) > 0.99);
    BOOST_TEST(victim_rate(32768, true) < 0.6); // the trunk's buffer is full of chunks for node 4
    BOOST_TEST(victim_rate(32768, true) > 0.2);
    BOOST_TEST(victim_rate(0, true) > 0.99); // infinite buffers: no back-pressure
}

BOOST_AUTO_TEST_CASE(credits_stop_the_senders) {
    SmallFabric f;
    const uint32_t a = f.node(), b = f.node(), to = f.node(), s = f.sw();
    const uint32_t in = f.port_to_switch(a, s);
    f.port_to_switch(b, s);
    f.port_to_switch(to, s);
    Model m(f);
    Flow x(a, f.lid(to), kMiB, 100), y(b, f.lid(to), kMiB, 100, 101);
    m.net->activate(x, 0);
    m.net->activate(y, 0);
    m.run(10'000'000);
    // Both inputs hold at most their buffers (and the wire), so neither sender is ahead of its deliveries by more.
    BOOST_TEST(x.in_flight * Flow::kChunk <= 32768u + 100 + 2 * Flow::kChunk);
    BOOST_TEST(m.seg->link(in).wait_ns.load() > 0u);
    BOOST_TEST(std::abs(static_cast<double>(x.bytes) - 5e6) < 5e4);
    m.run();
    BOOST_TEST(x.bytes + y.bytes == 200 * kMiB);
}

BOOST_AUTO_TEST_CASE(engines_and_the_bus_limit_the_rate) {
    SmallFabric f;
    const Costs limits{.engines_per_port = 2, .engine_rate = kGB * 6 / 10};
    const uint32_t a = f.node(limits), b = f.node();
    f.port_to_port(a, b);
    {
        Model m(f);
        Flow x(a, f.lid(b), kMiB, 20, 2); // engine 0
        m.net->activate(x, 0);
        m.run();
        BOOST_TEST(std::abs(static_cast<double>(rate(x)) / 6e8 - 1) < 0.001, rate(x));
    }
    {
        Model m(f);
        Flow x(a, f.lid(b), kMiB, 20, 2), y(a, f.lid(b), kMiB, 20, 3), z(a, f.lid(b), kMiB, 20, 4);
        for (Flow* s : {&x, &y, &z}) m.net->activate(*s, 0);
        m.run(20'000'000);
        BOOST_TEST(static_cast<double>(x.bytes + y.bytes + z.bytes) > 0.998 * 20e6); // two engines fill the link
        BOOST_TEST(std::abs(static_cast<double>(y.bytes) - 10e6) < 1e5);             // alone on its engine
        BOOST_TEST(std::abs(static_cast<double>(x.bytes) - 5e6) < 1e5);
    }
    // Two ports, each 1 GB/s, on a bus of 1.2 GB/s.
    SmallFabric g;
    const uint32_t p = g.node({.bus_rate = kGB * 12 / 10}, 2), q = g.node(), r = g.node();
    g.port_to_port(p, q);
    g.port_to_port(p + 1, r);
    Model m(g);
    Flow x(p, g.lid(q), kMiB, 100), y(p + 1, g.lid(r), kMiB, 100, 101);
    m.net->activate(x, 0);
    m.net->activate(y, 0);
    m.run(20'000'000);
    BOOST_TEST(std::abs(static_cast<double>(x.bytes + y.bytes) - 24e6) < 1e5);
    BOOST_TEST(std::abs(static_cast<double>(x.bytes) - static_cast<double>(y.bytes)) < 1e5);
}

BOOST_AUTO_TEST_CASE(messages_and_context_misses_cost_time) {
    const auto time_for = [](Costs limits, int qps, int messages) {
        SmallFabric f;
        const uint32_t a = f.node(limits), b = f.node();
        f.port_to_port(a, b);
        Model m(f);
        std::vector<std::unique_ptr<Flow>> flows;
        for (int i = 0; i < qps; ++i) {
            flows.push_back(std::make_unique<Flow>(a, f.lid(b), 64, messages, 100 + i));
            m.net->activate(*flows.back(), 0);
        }
        m.run();
        Nanos last = 0;
        for (const auto& x : flows) last = std::max(last, x->last_arrival);
        return std::pair{last - 100, m.seg->device(0).cache_misses.load()};
    };
    BOOST_TEST(time_for({.message_ns = 250}, 1, 1000).first == 250'000u + 64); // costs overlap the wire
    BOOST_TEST(time_for({.message_ns = 250}, 4, 250).first == 250'000u + 64);  // one unit per adapter
    BOOST_TEST(time_for({.message_ns = 20}, 1, 1000).first == 20u + 64'000);   // the wire is slower
    BOOST_TEST(time_for({.qp_message_ns = 1000}, 1, 101).first == 100'000u + 64);
    BOOST_TEST(time_for({.qp_message_ns = 1000}, 10, 101).first < 101'000u);
    // An engine's own time does not overlap with what it moves, but with other engines.
    const Costs engine{.engines_per_port = 2, .engine_message_ns = 1000, .engine_rate = kGB / 10};
    BOOST_TEST(time_for(engine, 1, 100).first == 100 * (1000 + 640u));
    BOOST_TEST(time_for(engine, 2, 100).first < 100 * (1000 + 640u) + 100);
    BOOST_TEST(time_for(engine, 4, 100).first >= 200 * (1000 + 640u)); // two on each
    const Costs cache{.qp_cache_entries = 4, .qp_cache_miss_ns = 500};
    BOOST_TEST(time_for(cache, 4, 100).second == 4u);
    BOOST_TEST(time_for(cache, 4, 100).first < 4 * 500 + 400 * 64 + 500);
    BOOST_TEST(time_for(cache, 5, 100).second == 500u); // round robin over one more than it holds: LRU never hits
    BOOST_TEST(time_for(cache, 5, 100).first == 500 * 500 + 64u);
}

BOOST_AUTO_TEST_CASE(context_cache_is_lru) {
    QpCache cache(3);
    for (const uint32_t qpn : {1u, 2u, 3u}) BOOST_TEST(!cache.touch(qpn));
    BOOST_TEST(cache.touch(1)); // 2 is the oldest now
    BOOST_TEST(!cache.touch(4));
    for (const uint32_t qpn : {1u, 3u, 4u}) BOOST_TEST(cache.touch(qpn));
    BOOST_TEST(!cache.touch(2));
    BOOST_TEST(!cache.touch(1));
    BOOST_TEST(QpCache(0).touch(7)); // unlimited
    // Against the obvious implementation.
    QpCache big(50);
    std::vector<uint32_t> order;
    uint32_t x = 1;
    for (int i = 0; i < 20'000; ++i) {
        x = x * 1664525 + 1013904223;
        const uint32_t qpn = (x >> 16) % (i % 2000 < 1000 ? 60 : 300);
        const auto at = std::find(order.begin(), order.end(), qpn);
        const bool hit = at != order.end();
        if (hit) order.erase(at);
        order.insert(order.begin(), qpn);
        if (order.size() > 50) order.pop_back();
        BOOST_REQUIRE(big.touch(qpn) == hit);
    }
}

BOOST_AUTO_TEST_CASE(loopback_and_crossbar_have_no_wire) {
    SmallFabric f(2, true);
    const uint32_t a = f.node({.engine_rate = kGB}), b = f.node();
    Model m(f);
    Flow x(a, f.lid(b) + 3, kMiB, 1), self(b, f.lid(b) + 1, kMiB, 1, 101);
    m.net->activate(x, 0);
    m.net->activate(self, 0);
    m.run();
    BOOST_TEST(x.last_arrival == kMiB);
    BOOST_TEST(self.last_arrival == 0u);
    BOOST_TEST(m.net->route(a, f.lid(b)).ok);
    BOOST_TEST(m.net->route(a, f.lid(b)).links.empty());
    // Its own port goes down: loop-back goes on unless the adapter is nasty.
    m.seg->port(b).up = 0;
    m.seg->fabric.generation++;
    Flow again(b, f.lid(b), 64, 1), away(b, f.lid(a), 64, 1, 101);
    m.net->activate(again, m.now);
    m.net->activate(away, m.now);
    m.run();
    BOOST_TEST(again.lost_packets == 0u);
    BOOST_TEST(away.lost_packets == 1u);
    m.seg->port(b).loopback_fails = 1;
    m.seg->fabric.generation++;
    Flow fails(b, f.lid(b), 64, 1);
    m.net->activate(fails, m.now);
    m.run();
    BOOST_TEST(fails.lost_packets == 1u);
    BOOST_TEST(!m.net->route(b, f.lid(b)).ok);
}

BOOST_AUTO_TEST_CASE(a_down_link_drops_what_is_on_it) {
    for (const bool first_hop : {false, true}) {
        Dumbbell d;
        Model m(d);
        Flow f(d.ports[0], d.lid(d.ports[2]), kMiB, 10);
        m.net->activate(f, 0);
        m.run(5 * kMiB);
        const uint32_t link = first_hop ? d.links[0] : d.trunk;
        m.seg->link(link).up = 0;
        m.seg->fabric.generation++;
        m.run(7 * kMiB);
        const uint64_t arrived = f.bytes;
        BOOST_TEST(f.last_good <= 5 * kMiB + 300 + kChunkNs);
        m.seg->link(link).up = 1;
        m.seg->fabric.generation++;
        m.run();
        BOOST_TEST(f.done());
        BOOST_TEST(f.packets == 10 * kMiB / 2048);
        BOOST_TEST(f.lost_packets == m.seg->link(link).drops.load());
        BOOST_TEST(std::abs(static_cast<double>(f.lost_packets) - 2 * kMiB / 2048) < 16);
        BOOST_TEST(f.bytes > arrived);
        BOOST_TEST(f.in_order);
        BOOST_TEST(m.now < 10 * kMiB + 1000); // a dead link does not stop the sender
    }
    // Queues behind a link that stays down are not stuck.
    Dumbbell d({}, {.rate = kGB / 4});
    Model m(d);
    Flow a(d.ports[0], d.lid(d.ports[2]), kMiB, 1), b(d.ports[1], d.lid(d.ports[2]), kMiB, 1, 101);
    m.net->activate(a, 0);
    m.net->activate(b, 0);
    m.run(500'000);
    BOOST_TEST(a.in_flight + b.in_flight >= 8u); // the buffers before the trunk are full
    m.seg->link(d.trunk).up = 0;
    m.seg->fabric.generation++;
    m.net->note_change(m.now);
    m.run(500'000 + 5000 + kChunkNs);
    BOOST_TEST(a.in_flight + b.in_flight <= 5u); // what was queued is lost at once, but for the chunk on the wire
    m.run();
    BOOST_TEST(m.now < 500'000 + kMiB + 100'000); // the senders are not slowed down by the dead link
    BOOST_TEST(a.done());
    BOOST_TEST(b.done());
    BOOST_TEST(!m.net->route(d.ports[0], d.lid(d.ports[2])).ok);
    BOOST_TEST(m.net->control(d.ports[0], d.lid(d.ports[2]), 30, m.now, true) == kNever);
    BOOST_TEST(m.net->route(d.ports[0], d.lid(d.ports[1])).ok);
}

BOOST_AUTO_TEST_CASE(faults_of_links_and_ports) {
    Dumbbell d;
    Model m(d);
    LinkState& trunk = m.seg->link(d.trunk);
    trunk.faults.drop_ppm = 50'000;
    trunk.faults.corrupt_ppm = 20'000;
    m.seg->fabric.generation++;
    Flow f(d.ports[0], d.lid(d.ports[2]), kMiB, 100);
    m.net->activate(f, 0);
    m.run();
    const double packets = static_cast<double>(f.packets);
    BOOST_TEST(std::abs(static_cast<double>(trunk.drops.load()) / packets - 0.05) < 0.003);
    BOOST_TEST(std::abs(static_cast<double>(trunk.corrupted.load()) / packets - 0.019) < 0.003);
    BOOST_TEST(f.lost_packets == trunk.drops.load() + trunk.corrupted.load());

    trunk.faults.drop_ppm = trunk.faults.corrupt_ppm = 0;
    trunk.faults.delay_ns = 5000;
    trunk.faults.rate_override = kGB / 2;
    m.seg->port(d.ports[2]).faults.drop_ppm = 1'000'000;
    m.seg->fabric.generation++;
    Flow slow(d.ports[0], d.lid(d.ports[3]), Flow::kChunk, 1), lost(d.ports[0], d.lid(d.ports[2]), kMiB, 1, 101);
    const Nanos start = m.now;
    m.net->activate(slow, start);
    m.run();
    BOOST_TEST(slow.last_arrival - start == 300 + 5000 + 2 * kChunkNs);
    m.net->activate(lost, m.now);
    m.run();
    BOOST_TEST(lost.lost_packets == lost.packets);
    BOOST_TEST(m.seg->port(d.ports[2]).drops.load() == lost.packets);

    // Acknowledgments only.
    trunk.faults.ack_drop_ppm = 1'000'000;
    m.seg->fabric.generation++;
    BOOST_TEST(m.net->control(d.ports[0], d.lid(d.ports[3]), 30, 0, true) == kNever);
    BOOST_TEST(m.net->control(d.ports[0], d.lid(d.ports[3]), 30, 0, false) != kNever);
    BOOST_TEST(m.net->control(d.ports[3], d.lid(d.ports[0]), 30, 0, true) != kNever); // the other direction
}

BOOST_AUTO_TEST_CASE(trips_at_the_nth_packet) {
    Dumbbell d;
    Model m(d);
    LinkState& trunk = m.seg->link(d.trunk);
    trunk.faults.trip_at = 10;
    trunk.faults.trip_action = static_cast<uint32_t>(TripAction::drop);
    trunk.faults.trip_count = 3;
    m.seg->fabric.generation++;
    struct Watch : Flow {
        using Flow::Flow;
        void chunk_arrived(Chunk& c) override {
            for (uint32_t i = 0; i < c.packets; ++i)
                if (c.lost >> i & 1) lost.push_back(packets + i + 1);
            Flow::chunk_arrived(c);
        }
        std::vector<uint64_t> lost;
    } f(d.ports[0], d.lid(d.ports[2]), kMiB, 1);
    m.net->activate(f, 0);
    m.run();
    const std::vector<uint64_t> expected{10, 11, 12};
    BOOST_TEST(f.lost == expected, boost::test_tools::per_element());
    BOOST_TEST(trunk.faults.trip_at.load() == 0u);

    trunk.faults.trip_at = trunk.packets + 100;
    trunk.faults.trip_action = static_cast<uint32_t>(TripAction::link_down);
    const uint32_t generation = ++m.seg->fabric.generation;
    Flow cut(d.ports[0], d.lid(d.ports[2]), kMiB, 1);
    m.net->activate(cut, m.now);
    m.run();
    BOOST_TEST(cut.packets - cut.lost_packets == 99u);
    BOOST_TEST(m.seg->fabric.generation.load() != generation);
    BOOST_TEST(trunk.up.load() == 0u);
    BOOST_TEST(m.seg->link(m.seg->img().link(d.trunk).reverse).up.load() == 0u);
    BOOST_TEST(m.seg->port(d.ports[0]).up.load() == 1u); // a cable between switches

    m.seg->link(d.links[1]).faults.trip_at = 5;
    m.seg->link(d.links[1]).faults.trip_action = static_cast<uint32_t>(TripAction::link_down);
    ++m.seg->fabric.generation;
    Flow own(d.ports[1], d.lid(d.ports[0]), kMiB, 1);
    m.net->activate(own, m.now);
    m.run();
    BOOST_TEST(own.packets - own.lost_packets == 4u);
    BOOST_TEST(m.seg->port(d.ports[1]).up.load() == 0u);
}

BOOST_AUTO_TEST_CASE(the_same_seed_gives_the_same_run) {
    const auto run = [](uint64_t seed) {
        SmallFabric f;
        std::vector<uint32_t> ports;
        for (int i = 0; i < 16; ++i)
            ports.push_back(f.node({.qp_cache_entries = 4, .qp_cache_miss_ns = 300, .message_ns = 100}));
        const uint32_t s[] = {f.sw(), f.sw(), f.sw(), f.sw()};
        for (int i = 0; i < 16; ++i) f.port_to_switch(ports[i], s[i / 4]);
        for (int i = 0; i < 3; ++i) f.switch_to_switch(s[i], s[3], {.rate = 2 * kGB});
        Model m(f);
        m.seg->fabric.seed = seed;
        for (uint32_t i = 0; i < m.seg->img().links; ++i) m.seg->link(i).faults.drop_ppm = 1000;
        m.seg->fabric.generation++;
        std::vector<std::unique_ptr<Flow>> flows;
        for (int i = 0; i < 16; ++i)
            for (int j = 0; j < 16; ++j)
                if (i != j) {
                    flows.push_back(std::make_unique<Flow>(ports[i], f.lid(ports[j]), 50'000, 3, 100 + j));
                    m.net->activate(*flows.back(), 0);
                }
        m.run();
        uint64_t hash = 0;
        for (const auto& x : flows) {
            BOOST_REQUIRE(x->done());
            for (const uint64_t v : {x->first_arrival, x->last_arrival, x->lost_packets, x->last_injected})
                hash = (hash ^ v) * 0x100000001b3u;
        }
        return hash;
    };
    BOOST_TEST(run(1) == run(1));
    BOOST_TEST(run(1) != run(2));
}
