// Puts and gets of one peer at the same time: reads go first, so that both directions of all links are filled, and what
// waits for them is not forgotten.
#define BOOST_TEST_MODULE transport_both_ways
#include "both_transports.h"
#include "uct_mp/channel/channel.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

constexpr unsigned kWindow = 16; // puts, and as many gets, per flush

// From one node to the other: the operations of `turns` (p, g), again and again, with a flush behind every 2 x kWindow.
class Exchange {
public:
    Exchange(Cluster& cluster, unsigned from, std::size_t size, std::string turns)
        : iface_(cluster.node(from).iface()), channel_(cluster.channel(from, 1 - from)), size_(size),
          turns_(std::move(turns)), mine_(cluster.node(from).memory(size)),
          theirs_(cluster.node(1 - from).memory(size)) {}
    void pump() {
        for (; posted_ < 2 * kWindow; ++posted_)
            if (!post(turns_[posted_ % turns_.size()] == 'g')) return;
        if (flushing_) return;
        const Status status = iface_.flush(channel_, op([](Exchange& e) { e.flushing_ = false, e.posted_ = 0; }));
        BOOST_REQUIRE(status == Status::in_progress);
        flushing_ = true;
    }
    bool post(bool get) {
        const Iov iov = mine_.iov(0, size_);
        Completion* done = op([](Exchange& e) { e.bytes += e.size_, --e.open; });
        const Status status = get ? iface_.get_zcopy(channel_, &iov, 1, theirs_.address(), theirs_.keys, done)
                                  : iface_.put_zcopy(channel_, &iov, 1, theirs_.address(), theirs_.keys, done);
        BOOST_REQUIRE((status == Status::in_progress || status == Status::no_resource));
        open += status == Status::in_progress;
        if (status != Status::in_progress) delete static_cast<Op*>(done);
        return status == Status::in_progress;
    }
    void fence() { (void)iface_.fence(channel_); }
    // A message goes, or the channel says that there is no room.
    [[nodiscard]] bool keeps_its_word() {
        return iface_.am_short(channel_, 1, 0, nullptr, 0) == Status::ok || iface_.want_room(channel_) != Status::busy;
    }
    std::uint64_t bytes = 0;
    unsigned open = 0;
    [[nodiscard]] bool idle() const { return open == 0 && !flushing_; }
    [[nodiscard]] unsigned waiting() const { return channel_.moving.pulled_count; }

private:
    struct Op : Completion {
        Exchange* exchange;
        void (*then)(Exchange&);
    };
    Op* op(void (*then)(Exchange&)) {
        return new Op{{[](Completion* self) {
                           const std::unique_ptr<Op> op(static_cast<Op*>(self));
                           op->then(*op->exchange);
                       },
                       1, Status::ok},
                      this,
                      then};
    }
    channel::Interface& iface_;
    Channel& channel_;
    const std::size_t size_;
    const std::string turns_;
    Node::Memory mine_, theirs_;
    unsigned posted_ = 0;
    bool flushing_ = false;
};

// Bytes/ns that one node, or both at once, exchange with the other.
double rate(connect::Transport transport, unsigned rails, std::size_t size, bool back, const char* turns) {
    Cluster cluster("two-rail", 2, config_of(transport), {.seed = 1, .payload_limit = 1024},
                    rails == 1 ? verbs::DeviceConfig{{"softhca_0:1"}} : verbs::DeviceConfig{});
    Exchange a(cluster, 0, size, turns), b(cluster, 1, size, turns);
    cluster.after_progress = [&] {
        a.pump();
        if (back) b.pump();
    };
    cluster.after_progress();
    cluster.run_for(20'000'000);
    const std::uint64_t before = a.bytes + b.bytes;
    const Nanos begin = cluster.world.now();
    cluster.run_for(100'000'000);
    const double found =
        static_cast<double>(a.bytes + b.bytes - before) / static_cast<double>(cluster.world.now() - begin);
    // To the end, so that nothing is under way when its memory goes.
    const auto end = [&] { return a.idle() && b.idle(); };
    cluster.after_progress = {};
    BOOST_REQUIRE(cluster.until(end));
    return found;
}

// The channel is connected, and knows that it is read from.
void begin(Cluster& cluster, Exchange& exchange) {
    BOOST_REQUIRE(cluster.until([&] { return exchange.post(true); }));
    BOOST_REQUIRE(cluster.until([&] { return exchange.open == 0; }));
}

} // namespace

BOOST_DATA_TEST_CASE(two_rails_are_twice_one, kBoth* boost::unit_test::data::make({65536u, 1u << 20}), transport,
                     size) {
    const double one = rate(transport, 1, size, true, "pg"), two = rate(transport, 2, size, true, "pg");
    BOOST_TEST(two >= 1.95 * one, two << " and " << one << " bytes/ns: " << two / one);
    // Of what the links carry: 8 Gb/s each way.
    BOOST_TEST(two >= 0.98 * 4 * 4096 / (4096 + 30.0), two << " bytes/ns");
}

BOOST_DATA_TEST_CASE(gets_may_come_some_puts_later, kBoth, transport) {
    for (const char* turns : {"ppgg", "ppppgggg"}) {
        const double found = rate(transport, 2, 1 << 20, false, turns);
        BOOST_TEST(found >= 0.95 * 4 * 4096 / (4096 + 30.0), turns << ": " << found << " bytes/ns");
    }
}

// Chapter 5: all puts of an epoch are issued before its gets.
BOOST_DATA_TEST_CASE(all_gets_may_come_behind_all_puts,
                     kBoth* boost::unit_test::data::make({8192u, 16384u, 20000u, 32768u, 65536u, 1u << 20}), transport,
                     size) {
    const double found = rate(transport, 2, size, false, "ppppppppppppppppgggggggggggggggg");
    // Few epochs are over in that time, so one more or less counts. Long writes don't go whole before the first read.
    BOOST_TEST(found >= (size < 65536 ? 0.87 : 0.95) * 4 * 4096 / (4096 + 30.0), found << " bytes/ns");
}

// More writes wait where reads have come behind them, and only as long as they do.
BOOST_DATA_TEST_CASE(patience_is_learned_and_lost, kBoth, transport) {
    Cluster cluster("two-rail", 2, config_of(transport), {.seed = 1, .payload_limit = 1024});
    Exchange exchange(cluster, 0, 1 << 17, "");
    begin(cluster, exchange);
    const auto most_waiting = [&](unsigned gets) {
        unsigned most = 0;
        for (unsigned i = 0; i < kWindow; ++i) {
            BOOST_TEST(exchange.post(false));
            most = std::max(most, exchange.waiting());
        }
        for (unsigned i = 0; i < gets; ++i) BOOST_TEST(exchange.post(true));
        BOOST_REQUIRE(cluster.until([&] { return exchange.open == 0; }));
        return most;
    };
    BOOST_TEST(most_waiting(kWindow) == channel::Moving::kFewWaiting);
    BOOST_TEST(most_waiting(kWindow) > channel::Moving::kFewWaiting);
    BOOST_TEST(most_waiting(0) > channel::Moving::kFewWaiting); // no read comes this time
    begin(cluster, exchange);
    BOOST_TEST(most_waiting(0) == channel::Moving::kFewWaiting);
}

// What is too short to teach a rate is in nobody's way, however many puts would wait.
BOOST_DATA_TEST_CASE(short_puts_wait_for_nothing, kBoth, transport) {
    Cluster cluster("two-rail", 2, config_of(transport), {.seed = 1, .payload_limit = 1024});
    Exchange exchange(cluster, 0, 1 << 17, ""), small(cluster, 0, 2048, "");
    begin(cluster, exchange);
    for (unsigned i = 0; i < kWindow; ++i) BOOST_TEST(exchange.post(false));
    for (unsigned i = 0; i < kWindow; ++i) BOOST_TEST(exchange.post(true));
    BOOST_REQUIRE(cluster.until([&] { return exchange.open == 0; }));
    BOOST_TEST(small.post(false));
    BOOST_TEST(small.post(false)); // while the first is under way
    BOOST_TEST(small.waiting() == 0u);
    BOOST_REQUIRE(cluster.until([&] { return small.open == 0; }));
}

// No flush, no fence, no further read: completions alone bring what waits onto the paths.
BOOST_DATA_TEST_CASE(what_waits_is_not_forgotten, kBoth, transport) {
    Cluster cluster("two-rail", 2, config_of(transport), {.seed = 1, .payload_limit = 1024});
    Exchange exchange(cluster, 0, 1 << 20, "");
    begin(cluster, exchange);
    unsigned most = 0;
    for (unsigned puts = 1; puts <= 12; ++puts) {
        if (puts % 3 == 0) (void)exchange.post(true);
        for (unsigned i = 0; i < puts; ++i) {
            BOOST_TEST(exchange.post(false));
            most = std::max(most, exchange.waiting());
        }
        BOOST_REQUIRE(cluster.until([&] { return exchange.open == 0; }, 100'000'000));
        BOOST_TEST(exchange.waiting() == 0u);
    }
    BOOST_TEST(most ==
               channel::Moving::kFewWaiting); // some did wait; a program that computes now has left no more behind
}

BOOST_DATA_TEST_CASE(flush_and_fence_leave_nothing_waiting, kBoth, transport) {
    Cluster cluster("two-rail", 2, config_of(transport), {.seed = 1, .payload_limit = 1024});
    Exchange exchange(cluster, 0, 1 << 20, "p");
    begin(cluster, exchange);
    (void)exchange.post(false);
    (void)exchange.post(false);
    BOOST_TEST(exchange.waiting() == 2u);
    exchange.fence();
    BOOST_TEST(exchange.waiting() == 0u);
    BOOST_REQUIRE(cluster.until([&] { return exchange.open == 0; }));
    begin(cluster, exchange);
    exchange.pump(); // puts, and a flush behind them
    BOOST_TEST(exchange.waiting() == 0u);
    BOOST_REQUIRE(cluster.until([&] { return exchange.idle(); }));
}

// UCP would try for ever, without progress. The fence has found reads that are not posted, so nothing of it is left
// when they are done but that what is not posted belongs to it.
BOOST_DATA_TEST_CASE(no_room_is_promised_behind_a_fence, kBoth, transport) {
    Cluster cluster("two-rail", 2, config_of(transport), {.seed = 1, .payload_limit = 1024});
    Exchange exchange(cluster, 0, 1 << 20, "");
    begin(cluster, exchange);
    BOOST_TEST(exchange.keeps_its_word()); // one of the queues has less room: the last read is posted in part
    while (exchange.post(true)) {}
    BOOST_REQUIRE(exchange.waiting() != 0u);
    exchange.fence();
    BOOST_REQUIRE(cluster.until([&] { return exchange.open == 0; }));
    for (unsigned i = 0; i < 8 && exchange.waiting() == 0; ++i) BOOST_TEST(exchange.post(false));
    BOOST_REQUIRE(exchange.waiting() != 0u);
    BOOST_TEST(exchange.keeps_its_word());
    BOOST_REQUIRE(cluster.until([&] { return exchange.open == 0; }));
}

// Nothing waits where a program only writes.
BOOST_DATA_TEST_CASE(puts_alone_go_at_once, kBoth, transport) {
    Cluster cluster("two-rail", 2, config_of(transport), {.seed = 1, .payload_limit = 1024});
    Exchange exchange(cluster, 0, 1 << 18, "");
    BOOST_REQUIRE(cluster.until([&] { return exchange.post(false); }));
    for (unsigned i = 0; i < kWindow; ++i) {
        BOOST_TEST(exchange.post(false));
        BOOST_TEST(exchange.waiting() == 0u);
    }
    BOOST_REQUIRE(cluster.until([&] { return exchange.open == 0; }));
}

namespace {
// Of `bytes` each, from node 0.
void send(Cluster& cluster, unsigned to, unsigned messages, std::size_t bytes) {
    const auto pack = [](void* memory, void* size) -> std::size_t {
        std::memset(memory, 1, *static_cast<std::size_t*>(size));
        return *static_cast<std::size_t*>(size);
    };
    for (unsigned i = 0; i < messages; ++i)
        BOOST_REQUIRE(cluster.until(
            [&] { return cluster.node(0).iface().am_bcopy(cluster.channel(0, to), 1, pack, &bytes) > 0; }));
}
} // namespace

// Small messages ask for a completion only now and then. Those that have none coming may fill the windows of all paths:
// a write that waits for room there gets it nevertheless, without a flush or another message. On a shared initiator
// the completion may be of what has been sent to somebody else.
BOOST_DATA_TEST_CASE(messages_without_completions_let_writes_go, kBoth* boost::unit_test::data::make({false, true}),
                     transport, shared) {
    channel::Config config = config_of(transport);
    config.policy.kind = schedule::PolicyKind::spray;
    config.policy.chunk_time = 16000; // windows as of links of 2 Gb/s
    config.dci_count = 1;
    Cluster cluster("two-rail", 3, config, {.seed = 1, .payload_limit = 8192});
    Exchange exchange(cluster, 0, 1 << 20, "");
    begin(cluster, exchange);
    if (shared) send(cluster, 2, 1, 8);
    for (unsigned messages = 8; messages <= 72; ++messages) {
        cluster.run_for(1'000'000);
        send(cluster, 1, messages, 4000);
        if (shared) send(cluster, 2, 4, 6000);
        BOOST_TEST(cluster.until([&] { return exchange.post(false); }));
        BOOST_TEST_CONTEXT(messages << " messages")
        BOOST_REQUIRE(cluster.until([&] { return exchange.open == 0; }, 100'000'000));
        BOOST_TEST(exchange.waiting() == 0u);
    }
}
