// Rings where something is unusual: sources that are gone or will not have one, memory that does not come, a single
// path.
#define BOOST_TEST_MODULE transport_ring_edges
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "edges.h"
#include "ring_nodes.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {
// Its process goes, and nobody hears that.
void kill(Cluster& cluster, unsigned i) {
    cluster.node(i).services().on_wait = {};
    cluster.world.fault("drop 100% all");
    cluster.node(i).close();
    cluster.world.fault("drop 0% all");
}
// Time passes for a program that polls.
void poll(Cluster& cluster, Nanos time) {
    for (constexpr Nanos kTurn = 10 * kMs; time; time -= std::min(time, kTurn)) {
        cluster.world.at(cluster.world.now() + kTurn, [] {});
        cluster.run_for(kTurn);
        cluster.world.select(0);
        for (unsigned i = 0; i < 8; ++i) (void)cluster.node(0).progress();
    }
}
} // namespace

// A source that has died, or has given its channel up, answers nothing any more: it is asked whether it is there.
// Whoever waits for it goes on, and has the place for another ring again.
BOOST_DATA_TEST_CASE(source_is_gone, boost::unit_test::data::make({"killed", "gave up", "ending", "offered"}), how) {
    channel::Config c = config({16, 256}, 1);
    c.recovery.partition_timeout = 2'000 * kMs;
    Cluster cluster("two-rail", 3, c);
    BOOST_TEST(traffic(cluster, 1) == "");
    unsigned failures = 0;
    for (unsigned i = 0; i < 3; ++i) {
        cluster.node(i).services().quiet = true;
        cluster.node(i).on_failure = [&failures, i](channel::Channel&, Status) { failures += i == 0; };
    }
    channel::Channel& channel = cluster.channel(0, 1);
    Interface& iface = cluster.node(0).iface();
    const bool offered = how[0] == 'o', ending = how[0] == 'e';
    if (!offered) {
        BOOST_TEST((serve(cluster, 0, 1, Service::dc_ring) == Status::ok));
        BOOST_REQUIRE(settles(cluster, 1));
    }
    if (how[0] == 'g') {
        cluster.world.select(1);
        cluster.node(1).iface().invalidate(cluster.channel(1, 0), Status::canceled, true);
    } else {
        kill(cluster, 1);
    }
    cluster.world.select(0);
    if (offered) BOOST_TEST((iface.serve_by(channel, Service::dc_ring) == Status::ok));
    if (ending) { // it has answered, and what it had sent before has not come
        BOOST_TEST((iface.serve_by(channel, Service::shared) == Status::ok));
        iface.core().rings.take_verdict(channel, channel.rings->number, false, channel.expected + 1);
    }
    const auto may_sleep = [&] {
        cluster.world.select(0);
        return failures || (!ending && !offered && iface.arm() == Status::ok);
    };
    for (unsigned i = 0; i < 1000 && !may_sleep(); ++i) poll(cluster, 10 * kMs);
    BOOST_TEST(may_sleep());
    poll(cluster, 5'000 * kMs);
    BOOST_TEST(statistics(cluster.node(0)).rings.rings == 0u);
    BOOST_TEST(failures == 1u);
    if (!ending && !offered) return; // it sleeps
    BOOST_TEST((serve(cluster, 0, 2, Service::dc_ring) == Status::ok));
    BOOST_TEST(cluster.until([&] { return of_rings(cluster.node(0)).in == 1; }, 100 * kMs));
}

// A source that has not heard of a ring says of it where it left the one before. That may be long ago.
BOOST_AUTO_TEST_CASE(left_long_ago) {
    Cluster cluster("two-rail", 2, config());
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST((serve(cluster, 0, 1, Service::dc_ring) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 1));
    channel::Channel& channel = cluster.channel(0, 1);
    cluster.world.select(0);
    Interface& iface = cluster.node(0).iface();
    BOOST_TEST((iface.serve_by(channel, Service::shared) == Status::ok));
    iface.core().rings.take_verdict(channel, channel.rings->number, false, channel.expected + (1u << 31) - 1);
    poll(cluster, 100 * kMs);
    BOOST_TEST(of_rings(cluster.node(0)).in == 0u); // its place is free
    BOOST_TEST(cluster.until([&] { return cluster.world.select(0), iface.arm() == Status::ok; }, 100 * kMs));
}

// A message that has come by the ring, and then a round of all numbers that did not use its slot: it is not taken
// again, nor for somebody else's.
BOOST_AUTO_TEST_CASE(slot_of_a_round_before) {
    Cluster cluster("two-rail", 2, config({16, 256}));
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST((serve(cluster, 0, 1, Service::dc_ring) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 1));
    Notes notes(cluster);
    notes.burst = 1;
    channel::Channel& from = cluster.channel(1, 0);
    BOOST_REQUIRE(quiet(cluster, 1, 0));
    const std::uint64_t before = of_rings(cluster).messages;
    const std::uint32_t first = from.next_sequence;
    BOOST_REQUIRE(notes.send(1, 0, 1));
    BOOST_REQUIRE(of_rings(cluster).messages == before + 1);
    BOOST_REQUIRE(notes.send(1, 0, from.window_mask, 1000)); // sent: longer than an entry
    for (unsigned quarter = 1; quarter <= 4; ++quarter) {
        BOOST_REQUIRE(quiet(cluster, 1, 0));
        set_sequence(cluster, 1, 0, first + (quarter << 30));
        poll(cluster, 300 * kMs);
    }
    BOOST_REQUIRE(from.next_sequence == first);
    poll(cluster, 300 * kMs);
    BOOST_TEST(notes.taken[0] == 1 + from.window_mask);
    BOOST_TEST(notes.send(1, 0, 40));
    BOOST_TEST(!notes.wrong);
    BOOST_TEST(statistics(cluster.node(0)).rings.foreign == 0u);
    BOOST_TEST(of_rings(cluster.node(0)).in == 1u);
}

// A source whose own receives are smaller takes a ring all the same: it sends nothing in parts.
BOOST_AUTO_TEST_CASE(smaller_segment_at_the_source) {
    std::vector<channel::Config> configs(2, config());
    for (channel::Config& c : configs) c.send_depth = 64; // all parts of a message find room in the queue
    configs[0].segment = 16384;
    configs[1].segment = 8192;
    Cluster cluster("two-rail", configs);
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST((serve(cluster, 0, 1, Service::dc_ring) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 1));
    Notes notes(cluster);
    BOOST_TEST(notes.send(1, 0, 100));
    BOOST_TEST(of_rings(cluster).messages >= 100 - notes.burst); // the first ones may meet a ring without a free slot
    BOOST_TEST((serve(cluster, 1, 0, Service::dc_ring) == Status::unsupported)); // that one sends in parts
    BOOST_TEST(cluster.until([&] { return cluster.node(0).iface().arm() == Status::ok; }, 100 * kMs));
    BOOST_TEST(!notes.wrong);
}

// A source that computes keeps nobody awake: who sleeps looks into its ring now and then.
BOOST_AUTO_TEST_CASE(source_computes) {
    Cluster cluster("two-rail", 2, config());
    BOOST_TEST(traffic(cluster, 1) == "");
    BOOST_TEST((serve(cluster, 0, 1, Service::dc_ring) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 1));
    Notes notes(cluster);
    BOOST_TEST(notes.send(1, 0, 20));
    unsigned got = 0;
    cluster.node(0).on_am(
        3, [](void* count, void*, std::size_t, unsigned) { return ++*static_cast<unsigned*>(count), Status::ok; },
        &got);
    cluster.run_for(10 * kMs);
    cluster.sleep(1, true);
    Interface& iface = cluster.node(0).iface();
    const auto may_sleep = [&] {
        cluster.world.select(0);
        return iface.arm() == Status::ok;
    };
    BOOST_TEST(!may_sleep());
    BOOST_TEST(cluster.until(may_sleep, 50 * kMs));
    channel::Channel& channel = cluster.channel(1, 0);
    const std::uint64_t messages = of_rings(cluster.node(1)).messages;
    for (unsigned i = 1; i <= 5; ++i) {
        const Nanos look = iface.next_watch();
        BOOST_TEST(look > cluster.world.now());
        BOOST_TEST(look <= cluster.world.now() + kMs);
        cluster.sleep(0, true);
        cluster.world.select(1); // it has not heard yet that the ring is to go
        BOOST_TEST((Interface::am_short(channel, 3, 0, nullptr, 0) == Status::ok));
        cluster.world.at(look, [] {});
        cluster.run_for(look - cluster.world.now());
        cluster.sleep(0, false);
        cluster.world.select(0);
        (void)cluster.node(0).progress();
        BOOST_TEST(got == i);
        BOOST_TEST(cluster.until(may_sleep, 5 * kMs));
    }
    BOOST_TEST(of_rings(cluster.node(1)).messages == messages + 5);
    cluster.sleep(1, false);
    BOOST_TEST(settles(cluster, 0));
    BOOST_TEST(cluster.until([&] { return may_sleep() && iface.next_watch() == 0; }, 10 * kMs));
    BOOST_TEST(traffic(cluster, 2) == "");
}

// Memory of rings that are over is given back, although another ring still waits for a message from before its end.
BOOST_AUTO_TEST_CASE(memory_is_given_back) {
    Cluster cluster("two-rail", 3, config({16, 256}));
    BOOST_TEST(traffic(cluster, 1) == "");
    channel::Channel& late = cluster.channel(0, 1);
    for (unsigned i = 1; i < 3; ++i) BOOST_TEST((serve(cluster, 0, i, Service::dc_ring) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 2));
    const std::uint64_t both = statistics(cluster.node(0)).rings.bytes;
    BOOST_TEST((serve(cluster, 0, 1, Service::shared) == Status::ok));
    cluster.node(0).iface().core().rings.take_verdict(late, late.rings->number, false, late.expected + 1);
    BOOST_TEST((serve(cluster, 0, 2, Service::shared) == Status::ok));
    poll(cluster, 3'000 * kMs);
    BOOST_TEST((late.rings->in->state == channel::RingIn::State::ending));
    BOOST_TEST(statistics(cluster.node(0)).rings.rings == 1u);
    BOOST_TEST(statistics(cluster.node(0)).rings.bytes == both / 2);
    BOOST_TEST(traffic(cluster, 2) == "");
    BOOST_TEST(statistics(cluster.node(0)).rings.rings == 0u);
}

// Nobody makes memory ready aside, as where no thread can be made: it is asked for less and less often.
BOOST_AUTO_TEST_CASE(nothing_aside) {
    Cluster cluster("two-rail", 2, config());
    BOOST_TEST(traffic(cluster, 1) == "");
    SimServices& services = cluster.node(0).services();
    services.refuses_aside = true;
    BOOST_TEST((serve(cluster, 0, 1, Service::dc_ring) == Status::ok));
    cluster.run_for(3'000 * kMs);
    BOOST_TEST(services.refused_aside > 10u);
    BOOST_TEST(services.refused_aside < 40u);
    services.refuses_aside = false;
    BOOST_TEST(settles(cluster, 1));
    BOOST_TEST(traffic(cluster, 2) == "");
}

// Over an only path no account is kept. One that joins later begins with an empty one, and gets its share.
BOOST_AUTO_TEST_CASE(only_path) {
    channel::Config c = config();
    c.transport = connect::Transport::rc;
    Cluster cluster("two-rail", 2, c, {}, {}, {"port down 0:softhca_1:1", "port down 1:softhca_1:1"});
    Notes notes(cluster);
    BOOST_TEST(notes.send(1, 0, 10));
    BOOST_TEST((serve(cluster, 0, 1, Service::dc_ring) == Status::ok));
    BOOST_REQUIRE(settles(cluster, 1));
    BOOST_TEST(notes.send(1, 0, 1000));
    BOOST_TEST(of_rings(cluster).messages > 900u);
    cluster.run_for(10 * kMs);
    channel::Channel& channel = cluster.channel(1, 0);
    BOOST_TEST(channel.wiring.only != nullptr);
    const auto in_flight = [&](unsigned path) { return channel.wiring.scheduler->paths()[path].account[0].in_flight; };
    BOOST_TEST(in_flight(0) == 0u);
    for (unsigned i = 0; i < 2; ++i) cluster.world.fault("port up " + std::to_string(i) + ":softhca_1:1");
    BOOST_TEST(cluster.until([&] { return !channel.wiring.only; }, 1'000 * kMs));
    BOOST_TEST(all_up(cluster, 2, 1'000 * kMs));
    const std::uint64_t before = statistics(cluster.node(1)).channels[0].paths[0].written;
    (void)put_rate(cluster, 1, 1 << 16);
    const auto now = statistics(cluster.node(1)).channels[0];
    BOOST_TEST(now.paths[0].written - before > (200u << 16) / 4);
    BOOST_TEST(now.paths[1].written > (200u << 16) / 4);
    cluster.run_for(10 * kMs);
    for (unsigned path = 0; path < 2; ++path) BOOST_TEST(in_flight(path) == 0u);
    BOOST_TEST(!notes.wrong);
}

namespace {
// Who gets a ring is chosen by what is counted, at the first node; looks are far apart.
channel::Config choosing(unsigned rings) {
    channel::Config c = config({16, 256}, rings);
    c.adapt.mode = channel::AdaptConfig::Mode::on;
    c.adapt.max_rc = 0;
    c.adapt.tuning.interval = c.adapt.tuning.min_interval = 80 * kMs;
    c.adapt.tuning.costs = {.ring = 100, .make_ring = 1000};
    c.adapt.measured = false;
    return c;
}
void pass(Cluster& cluster, Nanos time) { // though nothing happens
    (void)cluster.world.at(cluster.world.now() + time, [] {});
    cluster.run_for(time);
}
bool has_ring(Cluster& cluster, unsigned from) {
    for (const auto& channel : statistics(cluster.node(0)).channels)
        if (channel.peer_uid == cluster.node(from).iface().address().uid && channel.ring.in == std::string("open"))
            return true;
    return false;
}

// Node 1, that sends for up to a second.
bool gets_a_ring(Cluster& cluster, Notes& notes) {
    for (unsigned i = 0; !has_ring(cluster, 1) && i < 1000; ++i) {
        BOOST_TEST(notes.send(1, 0, 40));
        pass(cluster, kMs);
    }
    return has_ring(cluster, 1);
}
} // namespace

// All rings are taken: who is chosen now gets one when those that give way have, not with the next look.
BOOST_AUTO_TEST_CASE(chosen_while_all_are_taken) {
    std::vector<channel::Config> configs(4, config({16, 256}));
    configs[0] = choosing(1);
    Cluster cluster("two-rail", configs);
    BOOST_TEST(traffic(cluster, 1) == "");
    Notes notes(cluster);
    BOOST_REQUIRE(gets_a_ring(cluster, notes));
    const auto changes = [&] { return cluster.channel(0, 1).core->ring_choice.changes; };
    const std::uint64_t before = changes();
    for (unsigned i = 0; changes() == before && i < 2000; ++i) {
        BOOST_TEST(notes.send(2, 0, 400));
        pass(cluster, kMs);
    }
    BOOST_REQUIRE(changes() == before + 1);
    for (unsigned i = 0; !has_ring(cluster, 2) && i < 40; ++i) {
        BOOST_TEST(notes.send(1, 0, 4)); // what went by its ring is over
        BOOST_TEST(notes.send(2, 0, 40));
        pass(cluster, kMs);
    }
    BOOST_TEST(has_ring(cluster, 2));
    BOOST_TEST(changes() == before + 1);
    BOOST_TEST(!notes.wrong);
}

// Two are chosen, and one place is free: while memory is made ready for both, one takes it. The other one gets the
// next.
BOOST_AUTO_TEST_CASE(two_wait_for_one_place) {
    std::vector<channel::Config> configs(5, config({16, 256}));
    configs[0] = choosing(2);
    Cluster cluster("two-rail", configs);
    BOOST_TEST(traffic(cluster, 1) == "");
    Notes notes(cluster);
    const auto open = [&](unsigned a, unsigned b) { return has_ring(cluster, a) + has_ring(cluster, b); };
    const auto send = [&](unsigned a, unsigned b, unsigned count) {
        BOOST_TEST(notes.send(a, 0, count));
        BOOST_TEST(notes.send(b, 0, count));
        pass(cluster, kMs);
    };
    for (unsigned i = 0; open(1, 2) < 2 && i < 1000; ++i) send(1, 2, 40);
    BOOST_REQUIRE(open(1, 2) == 2);
    cluster.world.fault("command-cost reg 1ms all");
    const auto changes = [&] { return cluster.channel(0, 1).core->ring_choice.changes; };
    const std::uint64_t before = changes();
    cluster.sleep(2, true); // it does not answer
    for (unsigned i = 0; changes() == before && i < 2000; ++i) send(3, 4, 400);
    BOOST_REQUIRE(changes() == before + 1);
    for (unsigned i = 0; open(3, 4) < 1 && i < 60; ++i) {
        BOOST_TEST(notes.send(1, 0, 4)); // what went by its ring is over
        send(3, 4, 40);
    }
    BOOST_TEST(open(3, 4) == 1);
    cluster.sleep(2, false);
    for (unsigned i = 0; open(3, 4) < 2 && i < 240 && changes() == before + 1; ++i) {
        BOOST_TEST(notes.send(2, 0, 4));
        send(3, 4, 40);
    }
    BOOST_TEST(open(3, 4) == 2);
    BOOST_TEST(changes() == before + 1);
    BOOST_TEST(!notes.wrong);
}

// Who sleeps has no rings any more, and chooses nobody.
BOOST_AUTO_TEST_CASE(nobody_is_chosen_asleep) {
    std::vector<channel::Config> configs(2, config({16, 256}));
    configs[0] = choosing(4);
    configs[0].adapt.tuning.interval = configs[0].adapt.tuning.min_interval = 4 * kMs;
    Cluster cluster("two-rail", configs);
    BOOST_TEST(traffic(cluster, 1) == "");
    Notes notes(cluster);
    BOOST_REQUIRE(gets_a_ring(cluster, notes));
    BOOST_TEST(cluster.until([&] { return cluster.node(0).iface().arm() == Status::ok; }, 100 * kMs));
    const std::uint64_t before = cluster.channel(0, 1).core->ring_choice.changes;
    for (unsigned i = 0; i < 100; ++i) {
        BOOST_TEST(notes.send(1, 0, 40));
        pass(cluster, kMs);
    }
    BOOST_TEST(cluster.channel(0, 1).core->ring_choice.changes == before);
    BOOST_TEST(statistics(cluster.node(0)).rings.rings == 0u);
    // It does not sleep any more.
    pass(cluster, 10000 * kMs);
    BOOST_TEST(gets_a_ring(cluster, notes));
}

// UCP arms what nobody uses yet, and begins to poll it with the first endpoint.
BOOST_AUTO_TEST_CASE(who_was_armed_without_endpoints_is_not_asleep) {
    std::vector<channel::Config> configs(2, config({16, 256}));
    configs[0] = choosing(4);
    configs[0].adapt.tuning.interval = configs[0].adapt.tuning.min_interval = 4 * kMs;
    Cluster cluster("two-rail", configs);
    BOOST_TEST(cluster.until([&] { return cluster.node(0).iface().arm() == Status::ok; }, 100 * kMs));
    BOOST_TEST(traffic(cluster, 1) == "");
    Notes notes(cluster);
    BOOST_TEST(gets_a_ring(cluster, notes));
}

namespace {
// Its ring is over, and the next one is for later.
bool is_left(Cluster& cluster, Notes& notes) {
    channel::Channel& source = cluster.channel(1, 0);
    cluster.world.select(1);
    source.core->rings.path_failed(source);
    const auto& pair = *cluster.channel(0, 1).rings;
    return notes.send(1, 0, 4) && cluster.until([&] { return !pair.in; }, 5 * kMs) && pair.timer && pair.wanted;
}
} // namespace

// Who falls asleep before the next ring comes gives one when it does not sleep any more.
BOOST_AUTO_TEST_CASE(asleep_before_the_next_one) {
    std::vector<channel::Config> configs(2, config({16, 256}));
    configs[0] = choosing(4);
    configs[0].adapt.tuning.interval = configs[0].adapt.tuning.min_interval = 4 * kMs;
    Cluster cluster("two-rail", configs);
    BOOST_TEST(traffic(cluster, 1) == "");
    Notes notes(cluster);
    BOOST_REQUIRE(gets_a_ring(cluster, notes));
    BOOST_REQUIRE(is_left(cluster, notes));
    BOOST_TEST(cluster.until([&] { return cluster.node(0).iface().arm() == Status::ok; }, 5 * kMs));
    pass(cluster, 100 * kMs); // the time of the next one
    BOOST_TEST(!cluster.channel(0, 1).rings->in);
    pass(cluster, 10000 * kMs);
    BOOST_TEST(gets_a_ring(cluster, notes));
    BOOST_TEST(!notes.wrong);
}

// Another takes the only place before the next ring comes: who waits gets it back without a new choice.
BOOST_AUTO_TEST_CASE(place_is_taken_meanwhile) {
    std::vector<channel::Config> configs(3, config({16, 256}));
    configs[0] = choosing(1);
    Cluster cluster("two-rail", configs);
    BOOST_TEST(traffic(cluster, 1) == "");
    Notes notes(cluster);
    BOOST_REQUIRE(gets_a_ring(cluster, notes));
    BOOST_REQUIRE(is_left(cluster, notes));
    const std::uint64_t before = cluster.channel(0, 1).core->ring_choice.changes;
    BOOST_TEST((serve(cluster, 0, 2, Service::dc_ring) == Status::ok));
    BOOST_TEST(cluster.until([&] { return has_ring(cluster, 2); }, 5 * kMs));
    pass(cluster, 30 * kMs);
    BOOST_TEST(!cluster.channel(0, 1).rings->wanted);
    BOOST_TEST((serve(cluster, 0, 2, Service::shared) == Status::ok));
    for (unsigned i = 0; !has_ring(cluster, 1) && i < 30; ++i) {
        BOOST_TEST(notes.send(1, 0, 4));
        pass(cluster, kMs);
    }
    BOOST_TEST(has_ring(cluster, 1));
    BOOST_TEST(cluster.channel(0, 1).core->ring_choice.changes == before);
}

// What rings cost cannot be measured here: nothing comes back while somebody waits for it by the system's clock. That
// may be so on any machine for a while, so it is tried again, and rarely.
BOOST_AUTO_TEST_CASE(costs_that_could_not_be_measured) {
    channel::Config c = config();
    c.adapt.mode = channel::AdaptConfig::Mode::on;
    c.adapt.rings_measured = true;
    Cluster cluster("two-rail", 2, c);
    BOOST_TEST(traffic(cluster, 1) == "");
    Notes notes(cluster);
    const unsigned before = cluster.node(0).services().taken_aside;
    for (unsigned i = 0; i < 15; ++i) {
        BOOST_TEST(notes.send(1, 0, 4));
        cluster.run_for(100 * kMs);
    }
    BOOST_TEST(cluster.node(0).services().taken_aside ==
               before + 1); // it has been tried at the start, and a second later
}

// The provider takes no more although there was room, while messages go by the lane. The path is given up; what was
// refused goes again, once and in its place. An initiator of DC has another peer's messages in its records, too.
BOOST_DATA_TEST_CASE(refused_post, boost::unit_test::data::make<std::string>({"RC ring", "DC ring", "DC"}), how) {
    channel::Config c = config();
    c.dci_count = 1; // of all peers
    Cluster cluster("two-rail", 3, c);
    for (unsigned i = 0; i < 3; ++i) cluster.node(i).services().quiet = true;
    Notes notes(cluster); // and no fence, behind which nothing goes by a lane
    BOOST_TEST(notes.send(1, 0, 4));
    const bool ring = how.size() > 2;
    if (ring) {
        BOOST_TEST((serve(cluster, 0, 1, how[0] == 'R' ? Service::rc : Service::dc_ring) == Status::ok));
        BOOST_REQUIRE(settles(cluster, 1));
    }
    BOOST_TEST(notes.send(1, 0, 40));
    channel::Channel& channel = cluster.channel(1, 0);
    BOOST_TEST((of_rings(cluster.node(1)).messages != 0) == ring);
    const auto lane = [&] { return channel.wiring.scheduler->current(schedule::Direction::write).lane.path; };
    const Kind kind = how[0] == 'R' ? Kind::rc : Kind::dc;
    for (unsigned i = 0; i < 50 && channel.wiring.paths[lane()].kind != kind; ++i) {
        poll(cluster, 10 * kMs); // queue pairs of RC come later than the ring
        BOOST_TEST(notes.send(1, 0, 8));
    }
    cluster.world.select(1);
    const unsigned path = lane();
    BOOST_REQUIRE(path < channel.wiring.path_count);
    link::SendQueue* const queue = channel.wiring.paths[path].queue[0];
    BOOST_REQUIRE(queue);
    BOOST_TEST(queue->dc == (how[0] == 'D'));
    // The refused one goes by the lane, and shares a record with what has been posted before.
    const auto joins = [&] {
        return lane() == path && channel.wiring.scheduler->current(schedule::Direction::write).lasts() &&
               queue->joinable();
    };
    for (unsigned i = 0; i < 1000 && !joins(); ++i) BOOST_TEST(notes.send(1, 0, 1));
    BOOST_REQUIRE(joins());
    BOOST_REQUIRE(channel.gates == (ring ? channel::gate::ring : 0));
    cluster.world.select(1);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RESET;
    BOOST_REQUIRE(ibv_modify_qp(queue->qp.get(), &attributes, IBV_QP_STATE) == 0);
    BOOST_TEST(notes.send(1, 0, 200));
    BOOST_TEST(of_rings(cluster.node(1)).again >= 1u);
    BOOST_TEST(notes.send(1, 2, 40)); // the others that use it
    BOOST_TEST(!notes.wrong);
    BOOST_TEST(traffic(cluster, 1) == "");
    cluster.run_for(100 * kMs);
    for (const std::uint32_t open : channel.epoch_open) BOOST_TEST(open == 0u); // it has been counted once
    for (unsigned i = 0; i < channel.wiring.path_count; ++i)
        BOOST_TEST(channel.wiring.scheduler->paths()[i].account[0].in_flight == 0u);
}
