// Recovery beside a program that computes (channel/beside.h): what is lost goes again, and nothing of the user's is
// called meanwhile.
#define BOOST_TEST_MODULE transport_beside
#include <cstring>
#include <string>
#include <vector>

#include "both_transports.h"
#include "uct_mp/channel/core.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

constexpr Nanos kLong = 10'000'000'000, kSoon = 50'000'000;

channel::Config config_of_thread(connect::Transport transport, bool thread) {
    channel::Config config = config_of(transport);
    config.background = true;
    config.recovery.thread = thread;
    return config;
}

struct Counted : Completion {
    explicit Counted(unsigned& counter) : Completion{fired, 1, Status::ok}, count_of(counter) {}
    unsigned& count_of;
    static void fired(Completion* self) { ++static_cast<Counted*>(self)->count_of; }
};

// The numbers of the messages that have come.
Status take(void* list, void* data, std::size_t, unsigned) {
    std::uint64_t number;
    std::memcpy(&number, data, sizeof number);
    static_cast<std::vector<std::uint64_t>*>(list)->push_back(number);
    return Status::ok;
}

struct Pair {
    Cluster cluster;
    std::vector<std::uint64_t> taken[2];
    std::uint64_t sent[2] = {};
    Pair(connect::Transport transport, bool thread) : cluster("two-rail", 2, config_of_thread(transport, thread)) {
        for (unsigned i = 0; i < 2; ++i) cluster.node(i).on_am(1, take, &taken[i]);
        say(0, 100);
        say(1, 100);
        BOOST_REQUIRE(come());
    }
    void say(unsigned from, unsigned messages) {
        Channel& to = cluster.channel(from, 1 - from);
        for (; messages; --messages, ++sent[from])
            BOOST_REQUIRE(cluster.until([&] {
                cluster.world.select(from);
                return channel::Interface::am_short(to, 1, sent[from], nullptr, 0) == Status::ok;
            }));
    }
    [[nodiscard]] bool all_here() const { return taken[0].size() == sent[1] && taken[1].size() == sent[0]; }
    bool come(Nanos limit = kSoon) {
        return cluster.until([this] { return all_here(); }, limit);
    }
    [[nodiscard]] bool in_order() const {
        for (const auto& list : taken)
            for (std::size_t i = 0; i < list.size(); ++i)
                if (list[i] != i) return false;
        return true;
    }
    void compute(unsigned node) {
        cluster.node(node).compute(kLong, [] {});
    }
    [[nodiscard]] channel::Beside& beside(unsigned node) { return channel::beside(cluster.node(node).iface()); }
};

const auto kFaults = boost::unit_test::data::make(
    {"drop 100% 1:softhca_0:1", "drop 100% 1:softhca_1:1", "port down 0:softhca_0:1", "port down 0:softhca_1:1"});

// Some go over a rail that has just failed.
void say_amid(Pair& pair, const char* fault) {
    pair.cluster.world.fault(fault);
    for (unsigned i = 0; i < 8; ++i) {
        Channel& to = pair.cluster.channel(0, 1);
        pair.cluster.world.select(0);
        if (channel::Interface::am_short(to, 1, pair.sent[0], nullptr, 0) == Status::ok) ++pair.sent[0];
    }
    BOOST_TEST_REQUIRE(pair.sent[0] > 100u); // else nothing could be missing
}

// How many of the messages have come soon although their sender computes behind them.
std::size_t missing(connect::Transport transport, bool thread, const char* fault) {
    Pair pair(transport, thread);
    say_amid(pair, fault);
    pair.compute(0);
    (void)pair.come();
    BOOST_TEST(pair.cluster.node(0).computing());
    const std::size_t missing = pair.sent[0] - pair.taken[1].size();
    BOOST_TEST(pair.cluster.until([&] { return pair.all_here(); }, 2 * kLong));
    BOOST_TEST(pair.in_order());
    return missing;
}

} // namespace

BOOST_DATA_TEST_CASE(what_a_sender_that_computes_has_lost, kBoth* kFaults, transport, fault) {
    BOOST_TEST(missing(transport, true, fault) == 0u);
}

// The same without: one of the rails carried them.
BOOST_DATA_TEST_CASE(waits_for_its_call_without_a_thread, kBoth, transport) {
    BOOST_TEST(missing(transport, false, "drop 100% 1:softhca_0:1") +
                   missing(transport, false, "drop 100% 1:softhca_1:1") >
               0u);
}

// What was executed of the writes that are lost the peer says, though it computes.
BOOST_DATA_TEST_CASE(a_receiver_that_computes_says_what_it_has, kBoth, transport) {
    constexpr std::size_t kBytes = 1 << 20;
    Pair pair(transport, true);
    auto from = pair.cluster.node(0).memory(kBytes), to = pair.cluster.node(1).memory(kBytes);
    std::memset(from.data, 7, kBytes);
    Channel& channel = pair.cluster.channel(0, 1);
    auto& iface = pair.cluster.node(0).iface();
    pair.compute(1);
    unsigned done = 0;
    Counted put(done), flush(done);
    const channel::Iov iov = from.iov(0, kBytes);
    pair.cluster.world.select(0);
    BOOST_REQUIRE((iface.put_zcopy(channel, &iov, 1, to.address(), to.keys, &put) == Status::in_progress));
    BOOST_REQUIRE((iface.flush(channel, &flush) == Status::in_progress));
    pair.cluster.run_for(20'000);
    pair.cluster.world.fault("port down 0:softhca_0:1");
    BOOST_TEST(pair.cluster.until([&] { return done == 2; }, kSoon));
    BOOST_TEST(pair.cluster.node(1).computing());
    BOOST_TEST(std::memcmp(from.data, to.data, kBytes) == 0);
    BOOST_TEST((put.status == Status::ok));
}

// A write, a fence, and the message that tells of it: before the message goes again, the sender reads back what it
// wrote.
BOOST_DATA_TEST_CASE(what_a_fence_orders_goes_again, kBoth* kFaults, transport, fault) {
    constexpr std::size_t kBytes = 1 << 16;
    Pair pair(transport, true);
    auto from = pair.cluster.node(0).memory(kBytes), to = pair.cluster.node(1).memory(kBytes);
    std::memset(from.data, 7, kBytes);
    std::memset(to.data, 0, kBytes);
    Channel& channel = pair.cluster.channel(0, 1);
    auto& iface = pair.cluster.node(0).iface();
    pair.cluster.world.fault(fault);
    unsigned done = 0;
    Counted put(done);
    const channel::Iov iov = from.iov(0, kBytes);
    pair.cluster.world.select(0);
    BOOST_REQUIRE((iface.put_zcopy(channel, &iov, 1, to.address(), to.keys, &put) == Status::in_progress));
    BOOST_REQUIRE((iface.fence(channel) == Status::ok));
    const Status told = channel::Interface::am_short(channel, 1, pair.sent[0], nullptr, 0);
    if (told == Status::no_resource) return; // it waits for the program then
    ++pair.sent[0];
    pair.compute(0);
    BOOST_TEST(pair.come());
    BOOST_TEST(pair.cluster.node(0).computing());
    BOOST_TEST(std::memcmp(from.data, to.data, kBytes) == 0);
    BOOST_TEST(done == 0u);
    BOOST_TEST(pair.cluster.until([&] { return done == 1; }, 2 * kLong));
}

// Completions, messages and what is read wait for the program, in their order.
BOOST_DATA_TEST_CASE(nothing_of_the_users_is_called, kBoth* kFaults, transport, fault) {
    constexpr std::size_t kBytes = 2000, kMessages = 20;
    Pair pair(transport, true);
    auto from = pair.cluster.node(0).memory(kBytes), there = pair.cluster.node(1).memory(kBytes);
    std::memset(there.data, 9, kBytes);
    Channel& channel = pair.cluster.channel(0, 1);
    auto& iface = pair.cluster.node(0).iface();
    pair.cluster.world.fault(fault);
    unsigned done = 0, unpacked = 0;
    std::vector<std::unique_ptr<Counted>> completions;
    const auto completion = [&] { return completions.emplace_back(std::make_unique<Counted>(done)).get(); };
    const channel::Iov iov = from.iov(0, kBytes);
    unsigned wanted = 0;
    pair.cluster.world.select(0);
    for (unsigned i = 0; i < 4; ++i) {
        const std::uint64_t header = pair.sent[0];
        Status status = iface.am_zcopy(channel, 1, &header, sizeof header, &iov, 1, completion());
        if (status != Status::in_progress) break;
        ++wanted;
        ++pair.sent[0];
        status = iface.get_bcopy(
            channel,
            [](void* count, const void* data, std::size_t length) {
                *static_cast<unsigned*>(count) += length == kBytes && *static_cast<const char*>(data) == 9;
            },
            &unpacked, kBytes, there.address(), there.keys, completion());
        if (status != Status::in_progress) break;
        ++wanted;
    }
    BOOST_REQUIRE(wanted > 0u);
    const Status flushed = iface.flush(channel, completion());
    BOOST_REQUIRE((flushed == Status::in_progress));
    ++wanted;
    pair.compute(0);
    pair.say(1, kMessages);
    BOOST_TEST(pair.cluster.until([&] { return pair.taken[1].size() == pair.sent[0]; }, kSoon));
    pair.cluster.run_for(kSoon);
    BOOST_TEST(pair.cluster.node(0).computing());
    BOOST_TEST(done == 0u);
    BOOST_TEST(unpacked == 0u);
    BOOST_TEST(pair.taken[0].size() == pair.sent[1] - kMessages);
    BOOST_TEST(pair.beside(0).turns > 0u);
    BOOST_TEST(pair.cluster.until([&] { return pair.all_here() && done == wanted; }, 2 * kLong));
    BOOST_TEST(pair.in_order());
    BOOST_TEST(unpacked == wanted / 2);
    for (const auto& each : completions)
        if (each->count == 0) BOOST_TEST((each->status == Status::ok));
}

// A flush that a turn has completed is told by progress. If its user goes before that, it ends there and then; the
// flushes of others go on.
BOOST_DATA_TEST_CASE(a_user_goes_before_he_is_told, kBoth, transport) {
    constexpr std::size_t kBytes = 2000;
    for (const std::uint32_t goes : {0u, 5u}) {
        Pair pair(transport, true);
        auto from = pair.cluster.node(0).memory(kBytes), to = pair.cluster.node(1).memory(kBytes);
        Channel& channel = pair.cluster.channel(0, 1);
        auto& iface = pair.cluster.node(0).iface();
        pair.cluster.world.fault("port down 0:softhca_0:1");
        unsigned done = 0, flushed[2] = {};
        Counted put(done), first(flushed[0]), other(flushed[1]);
        const channel::Iov iov = from.iov(0, kBytes);
        pair.cluster.world.select(0);
        BOOST_REQUIRE((iface.put_zcopy(channel, &iov, 1, to.address(), to.keys, &put) == Status::in_progress));
        BOOST_REQUIRE((iface.flush(channel, &first) == Status::in_progress));
        BOOST_REQUIRE((iface.flush(channel, iface.tag(&other, 5)) == Status::in_progress));
        pair.compute(0);
        BOOST_TEST(pair.cluster.until([&] { return pair.beside(0).kept == 3; }, kSoon));
        BOOST_TEST((pair.cluster.node(0).computing() && done + flushed[0] + flushed[1] == 0));
        const unsigned his = goes ? 1 : 0;
        iface.end_flushes(channel, goes);
        BOOST_TEST(flushed[his] == 1u);
        BOOST_TEST(flushed[1 - his] == 0u);
        BOOST_TEST(((goes ? other : first).status == Status::canceled));
        BOOST_TEST(pair.cluster.until([&] { return done && flushed[1 - his]; }, 2 * kLong));
        BOOST_TEST(flushed[his] == 1u);
        BOOST_TEST(((goes ? first : other).status == Status::ok));
    }
}

// The same if he has cancelled: then he has another number.
BOOST_DATA_TEST_CASE(a_user_cancels_and_goes_before_he_is_told, kBoth, transport) {
    constexpr std::size_t kBytes = 2000;
    Pair pair(transport, true);
    auto from = pair.cluster.node(0).memory(kBytes), to = pair.cluster.node(1).memory(kBytes);
    Channel& channel = pair.cluster.channel(0, 1);
    auto& iface = pair.cluster.node(0).iface();
    pair.cluster.world.fault("port down 0:softhca_0:1");
    unsigned done = 0, flushed = 0, cancelled = 0;
    Counted put(done), flush(flushed), cancel(cancelled);
    const channel::Iov iov = from.iov(0, kBytes);
    pair.cluster.world.select(0);
    BOOST_REQUIRE((iface.put_zcopy(channel, &iov, 1, to.address(), to.keys, &put) == Status::in_progress));
    BOOST_REQUIRE((iface.flush(channel, iface.tag(&flush, 5)) == Status::in_progress));
    pair.compute(0);
    BOOST_TEST(pair.cluster.until([&] { return pair.beside(0).kept == 2; }, kSoon));
    std::uint32_t number = 5;
    BOOST_TEST((iface.cancel(channel, number, &cancel) == Status::in_progress));
    iface.end_flushes(channel, 5); // somebody else has this number by now
    BOOST_TEST(flushed + cancelled == 0u);
    iface.end_flushes(iface.canceled_channel(), number);
    BOOST_TEST((flushed == 1 && cancelled == 1 && done == 0));
    BOOST_TEST(pair.cluster.until([&] { return done; }, 2 * kLong));
    BOOST_TEST((flushed == 1 && cancelled == 1));
}

// He cancels between two turns, and his last operation ends in the second one: he is told by progress all the same.
BOOST_DATA_TEST_CASE(what_a_user_cancels_ends_in_a_turn, kBoth, transport) {
    constexpr std::size_t kBytes = 4 << 20;
    Pair pair(transport, true);
    auto from = pair.cluster.node(0).memory(kBytes), to = pair.cluster.node(1).memory(kBytes);
    Channel& channel = pair.cluster.channel(0, 1);
    auto& iface = pair.cluster.node(0).iface();
    unsigned done = 0, cancelled = 0;
    Counted put(done), cancel(cancelled);
    const channel::Iov iov = from.iov(0, kBytes);
    pair.cluster.world.select(0);
    BOOST_REQUIRE((iface.put_zcopy(channel, &iov, 1, to.address(), to.keys, &put) == Status::in_progress));
    pair.cluster.world.fault("port down 0:softhca_0:1");
    pair.compute(0);
    BOOST_REQUIRE(pair.cluster.until([&] { return pair.beside(0).turns > 1; }, kSoon));
    BOOST_REQUIRE(pair.beside(0).kept == 0u);
    std::uint32_t number = 0;
    BOOST_REQUIRE((iface.cancel(channel, number, &cancel) == Status::in_progress));
    BOOST_TEST(pair.cluster.until([&] { return pair.beside(0).kept > 0; }, kSoon));
    BOOST_TEST((pair.cluster.node(0).computing() && done + cancelled == 0));
    BOOST_TEST(pair.cluster.until([&] { return done && cancelled; }, 2 * kLong));
}

// Turns are short however many operations are under way.
BOOST_DATA_TEST_CASE(thousands_of_operations, kBoth, transport) {
    constexpr std::size_t kBytes = 2000;
    constexpr unsigned kFlushes = 10'000;
    Pair pair(transport, true);
    auto from = pair.cluster.node(0).memory(kBytes), to = pair.cluster.node(1).memory(kBytes);
    Channel& channel = pair.cluster.channel(0, 1);
    auto& iface = pair.cluster.node(0).iface();
    pair.cluster.world.fault("port down 0:softhca_0:1");
    unsigned done = 0;
    Counted put(done);
    const channel::Iov iov = from.iov(0, kBytes);
    pair.cluster.world.select(0);
    BOOST_REQUIRE((iface.put_zcopy(channel, &iov, 1, to.address(), to.keys, &put) == Status::in_progress));
    std::vector<std::unique_ptr<Counted>> flushes;
    for (unsigned i = 0; i < kFlushes; ++i)
        BOOST_REQUIRE(
            (iface.flush(channel, flushes.emplace_back(std::make_unique<Counted>(done)).get()) == Status::in_progress));
    const std::uint64_t before = pair.beside(0).turns;
    pair.compute(0);
    BOOST_TEST(pair.cluster.until([&] { return pair.beside(0).kept == kFlushes + 1; }, kSoon));
    BOOST_TEST(pair.beside(0).turns - before > kFlushes / 2000);
    BOOST_TEST(pair.cluster.node(0).computing());
    BOOST_TEST(done == 0u);
    BOOST_TEST(pair.cluster.until([&] { return done == kFlushes + 1; }, 2 * kLong));
}

// What a turn has put in place of the user's stays there. It calls him when the program itself completes the operation.
BOOST_DATA_TEST_CASE(the_program_completes_what_a_turn_has_seen, kBoth, transport) {
    constexpr std::size_t kBytes = 2000;
    Pair pair(transport, true);
    auto from = pair.cluster.node(0).memory(kBytes), there = pair.cluster.node(1).memory(kBytes);
    for (std::byte* const data : {from.data, there.data}) std::memset(data, 9, kBytes);
    Channel& channel = pair.cluster.channel(0, 1);
    auto& iface = pair.cluster.node(0).iface();
    unsigned done = 0, unpacked = 0;
    Counted put(done), get(done), flush(done);
    const channel::Iov iov = from.iov(0, kBytes);
    const auto unpack = [](void* count, const void* data, std::size_t length) {
        *static_cast<unsigned*>(count) += length == kBytes && *static_cast<const char*>(data) == 9;
    };
    for (unsigned round = 0; round < 3; ++round) {
        pair.cluster.world.select(0);
        const auto read = [&](Completion* completion) {
            return iface.get_bcopy(channel, unpack, &unpacked, kBytes, there.address(), there.keys, completion);
        };
        for (Counted* one : {&put, &get, &flush}) static_cast<Completion&>(*one) = {Counted::fired, 1, Status::ok};
        done = unpacked = 0;
        BOOST_REQUIRE((read(&get) == Status::in_progress && read(nullptr) == Status::in_progress));
        BOOST_REQUIRE((iface.put_zcopy(channel, &iov, 1, there.address(), there.keys, &put) == Status::in_progress));
        BOOST_REQUIRE((iface.flush(channel, &flush) == Status::in_progress));
        (void)pair.beside(0).recover([] { return 0u; }); // nothing has come yet
        BOOST_TEST((done == 0 && unpacked == 0));
        const bool all = pair.cluster.until([&] { return done == 3 && unpacked == 2; }, kSoon);
        BOOST_TEST(all, "round " << round << ": " << done << " done, " << unpacked << " read");
    }
    BOOST_TEST(pair.beside(0).kept == 0u);
}

// The end of a channel that nothing is wrong with is the program's affair. A fault is the thread's.
BOOST_DATA_TEST_CASE(an_ordinary_end_is_no_alarm, kBoth, transport) {
    Cluster cluster("two-rail", 3, config_of_thread(transport, true));
    Channel& used = cluster.channel(0, 1);
    Channel& unused = cluster.channel(0, 2);
    channel::Interface& iface = cluster.node(0).iface();
    cluster.world.select(0);
    BOOST_REQUIRE(cluster.until([&] { return channel::Interface::am_short(used, 1, 0, nullptr, 0) == Status::ok; }));
    cluster.run_for(kSoon);
    const auto turn = [&] {
        cluster.world.select(0);
        return channel::beside(iface).recover([] { return 0u; }).next;
    };
    BOOST_TEST(turn() == 0u);
    iface.detach(unused);
    BOOST_TEST(iface.core().alert);
    BOOST_TEST(turn() == 0u);
    BOOST_TEST(iface.core().alert); // it waits for the program
    cluster.world.fault("port down 0:softhca_0:1");
    BOOST_TEST(turn() != 0u);
}

// A program wants to sleep before the thread has seen the fault, can't, and computes: the thread still sees it.
BOOST_DATA_TEST_CASE(who_cannot_sleep_computes, kBoth* kFaults, transport, fault) {
    Pair pair(transport, true);
    Node& node = pair.cluster.node(0);
    say_amid(pair, fault);
    node.asleep = true; // neither has a processor
    pair.cluster.run_for(kLong);
    node.asleep = false;
    pair.cluster.world.select(0);
    const bool lost = pair.taken[1].size() != pair.sent[0];
    const Status sleeps = node.iface().arm();
    BOOST_TEST((!lost || sleeps == Status::busy));
    pair.compute(0);
    BOOST_TEST(pair.come());
    BOOST_TEST(node.computing());
}

// Messages in a ring wake nobody. So a program that sleeps gets none, however long it sleeps and whoever takes turns.
BOOST_DATA_TEST_CASE(a_sleeper_gets_no_ring, kBoth, transport) {
    Pair pair(transport, true);
    Node& node = pair.cluster.node(0);
    const auto& core = node.iface().core();
    pair.cluster.world.select(0);
    BOOST_TEST(!core.rings.asleep());
    const auto arm = [&] {
        pair.cluster.world.select(0);
        return node.iface().arm() == Status::ok;
    };
    BOOST_REQUIRE(pair.cluster.until(arm));
    node.asleep = true;
    pair.cluster.run_for(3 * kLong);
    BOOST_TEST(core.rings.asleep());
    node.asleep = false;
    (void)pair.cluster.settle_all();
    BOOST_TEST(!core.rings.asleep());
}
