// Queues of tasks between nodes of a virtual-time fabric: the self-test, triggered writes, limits, and how a queue
// ends.
#define BOOST_TEST_MODULE sim_tasks
#include <boost/test/data/test_case.hpp>
#include <deque>

#include "../verbs/verbs_world.h"
#include "uct_mp/tasks/pool.h"
#include "uct_mp/verbs/memory.h"

using namespace verbs_test;
using namespace ucx_mp::tasks;
namespace data = boost::unit_test::data;

namespace {

constexpr std::size_t kWords = 1 << 14;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
constexpr Nanos kSecond = 1'000'000'000;

struct Node {
    Node(World& world, uint32_t number, Limits limits = {})
        : world(world), services(world), devices(open_devices(world, number)), words(kWords),
          pool(devices, services, limits) {
        BOOST_REQUIRE(register_memory(devices, words.data(), kWords * 8, kAccess, registration) == Status::ok);
    }
    [[nodiscard]] const Rail& rail(unsigned i = 0) const { return devices.rails()[i]; }
    [[nodiscard]] uint64_t at(std::size_t word) const { return reinterpret_cast<uint64_t>(words.data() + word); }
    Waits tried(unsigned on = 0) {
        (void)pool.can_wait(rail(on));
        const Nanos limit = world.now() + 3 * kSecond;
        while (pool.can_wait(rail(on)) == Waits::trying && world.now() < limit) {
            world.run_until(world.now() + 100'000);
            (void)pool.poll();
        }
        return pool.can_wait(rail(on));
    }
    std::unique_ptr<Queue> queue(unsigned depth = 64, unsigned on = 0) {
        std::unique_ptr<Queue> made;
        BOOST_REQUIRE(pool.create(rail(on), depth, made) == Status::ok);
        return made;
    }
    World& world;
    WorldServices services;
    DeviceSet devices;
    std::vector<uint64_t> words;
    Registration registration;
    Pool pool;
};

void connect(Queue& x, Queue& y) {
    Half a, b;
    x.tell(a);
    y.tell(b);
    BOOST_REQUIRE(x.connect(b) == Status::ok);
    BOOST_REQUIRE(y.connect(a) == Status::ok);
}

struct Two {
    explicit Two(Limits limits = {}) : world(fabric("two-rail")), x(world, 0, limits), y(world, 1) {
        for (unsigned on : {0u, 1u}) BOOST_REQUIRE(x.tried(on) == Waits::yes);
        for (unsigned on : {0u, 1u}) BOOST_REQUIRE(y.tried(on) == Waits::yes);
    }
    World world;
    Node x, y;
};

// Word 0 of `from`, when it is m: a block, then word 0 of `to`.
void triggered(Node& from, Queue& q, Node& to, uint64_t m, uint32_t words, unsigned on = 0) {
    const uint32_t lkey = from.registration.lkey[on], rkey = to.registration.rkey[on];
    BOOST_REQUIRE(q.wait(from.at(0), lkey, m) == Status::ok);
    BOOST_REQUIRE(q.write(from.at(1024), words * 8, lkey, to.at(1024), rkey) == Status::ok);
    BOOST_REQUIRE(q.word(m, to.at(0), rkey) == Status::ok);
    BOOST_REQUIRE(q.post() == Status::ok);
}

} // namespace

BOOST_AUTO_TEST_CASE(what_the_self_test_says) {
    struct Case {
        const char* adapter;
        const char* fault;
        Waits expected;
        const char* why;
    };
    for (const Case& c : {Case{"ports: 1", nullptr, Waits::yes, ""},
                          Case{"ports: 1", "lacks wait on *:*", Waits::no, "a WAIT ends with local QP operation error"},
                          Case{"has_wait: false", nullptr, Waits::no, "a WAIT ends with local QP operation error"},
                          Case{"has_wait: false, has_dc: false", nullptr, Waits::no, "it takes no raw requests"},
                          Case{"ports: 1", "wait-prefetch on *:*", Waits::yes, ""},
                          Case{"ports: 1", "wait-endian on *:*", Waits::yes, ""}}) {
        BOOST_TEST_CONTEXT(c.adapter << " " << (c.fault ? c.fault : "")) {
            const softhca::FabricBlock fabric = crossbar(c.adapter);
            World world(fabric.image());
            Node node(world, 0);
            if (c.fault) world.fault(c.fault);
            std::unique_ptr<Queue> none;
            BOOST_TEST((node.pool.create(node.rail(), 8, none) == Status::unsupported)); // not asked yet
            BOOST_TEST((node.tried() == c.expected));
            BOOST_TEST(has(node.pool.why_not(node.rail()), c.why));
            BOOST_TEST(node.world.objects(0).queue_pairs == 0u); // nothing is left of it
        }
    }
}

// Who waits for the word, over which rail, with what between them: the word is never ahead of its data.
BOOST_DATA_TEST_CASE(a_triggered_write,
                     data::make({"", "place-delay 30us *:*", "place-delay-qp 50us *:*", "wait-prefetch on *:*",
                                 "drop 5 all", "delay 10us all"}),
                     fault) {
    Two t;
    if (*fault) t.world.fault(fault);
    for (unsigned on : {0u, 1u}) {
        const auto a = t.x.queue(64, on), b = t.y.queue(64, on);
        connect(*a, *b);
        t.x.words[0] = t.y.words[0] = 0;
        constexpr uint32_t kBlock = 1500;
        for (uint64_t m = 1; m <= 10; ++m) {
            triggered(t.x, *a, t.y, m, kBlock, on);
            t.world.run_until(t.world.now() + 100'000);
            (void)t.x.pool.poll();
            BOOST_REQUIRE(t.y.words[0] == m - 1); // it waits
            BOOST_REQUIRE(a->done() == m - 1);
            std::fill_n(t.x.words.begin() + 1024, kBlock, m);
            t.x.words[0] = m;
            (void)t.x.pool.poll(); // a store of the program is seen then
            BOOST_REQUIRE(t.world.run_until([&] { return t.y.words[0] == m; }, t.world.now() + 10 * kSecond));
            for (uint32_t i = 0; i < kBlock; ++i) BOOST_REQUIRE(t.y.words[1024 + i] == m);
            BOOST_REQUIRE(
                t.world.run_until([&] { return t.x.pool.poll(), a->done() == m; }, t.world.now() + 10 * kSecond));
        }
    }
}

// A chain through three nodes, posted once; nobody polls while it runs.
BOOST_AUTO_TEST_CASE(adapters_pass_it_on) {
    World world(fabric("two-rail"));
    std::deque<Node> nodes;
    std::vector<std::unique_ptr<Queue>> out, in;
    constexpr uint32_t kNodes = 3;
    for (uint32_t i = 0; i < kNodes; ++i) {
        nodes.emplace_back(world, i);
        BOOST_REQUIRE(nodes[i].tried() == Waits::yes);
    }
    for (uint32_t i = 0; i < kNodes; ++i) {
        out.push_back(nodes[i].queue());
        in.push_back(nodes[(i + 1) % kNodes].queue());
        connect(*out[i], *in[i]);
    }
    constexpr uint64_t kRounds = 15;
    // Node 0 begins round m when round m - 1 has come back to it, but the first by itself.
    for (uint64_t m = 1; m <= kRounds; ++m)
        for (uint32_t i = 0; i < kNodes; ++i) {
            Queue& q = *out[i];
            Node& to = nodes[(i + 1) % kNodes];
            if (i != 0 || m != 1)
                BOOST_REQUIRE(q.wait(nodes[i].at(0), nodes[i].registration.lkey[0], i == 0 ? m - 1 : m) == Status::ok);
            BOOST_REQUIRE(q.write(nodes[i].at(1024), 8000, nodes[i].registration.lkey[0], to.at(1024),
                                  to.registration.rkey[0]) == Status::ok);
            BOOST_REQUIRE(q.word(m, to.at(0), to.registration.rkey[0]) == Status::ok);
            BOOST_REQUIRE(q.post() == Status::ok);
        }
    std::fill_n(nodes[0].words.begin() + 1024, 1000, 42);
    world.run();
    for (uint32_t i = 0; i < kNodes; ++i) {
        BOOST_TEST(nodes[i].words[0] == kRounds);
        BOOST_TEST(nodes[i].words[1024 + 999] == 42u);
        BOOST_TEST(out[i]->done() == 0u); // nobody has looked
        (void)nodes[i].pool.poll();
        BOOST_TEST(out[i]->done() == kRounds);
    }
}

BOOST_AUTO_TEST_CASE(what_is_refused) {
    Two t({.queues = 2, .requests = 100});
    std::unique_ptr<Queue> q, r, s;
    BOOST_TEST((t.x.pool.create(t.x.rail(), 0, q) == Status::invalid_param));
    BOOST_TEST((t.x.pool.create(t.x.rail(), kMostRequests + 1, q) == Status::invalid_param));
    BOOST_TEST((t.x.pool.create(t.x.rail(), 101, q) == Status::no_resource));
    q = t.x.queue(6);
    r = t.x.queue(8);
    BOOST_TEST((t.x.pool.create(t.x.rail(), 8, s) == Status::no_resource)); // the third
    r.reset();
    r = t.x.queue(8);
    const auto peer = t.y.queue(8);
    BOOST_TEST((q->post() == Status::io_error)); // not connected
    Half half;
    peer->tell(half);
    for (const auto& spoil : std::initializer_list<void (*)(Half&)>{
             [](Half& h) { h.version = 9; }, [](Half& h) { h.mtu = 0; }, [](Half& h) { h.mtu = 6; },
             [](Half& h) { h.device = 200; }, [](Half& h) { h.ethernet = 1; }, [](Half& h) { h.lid = 0; },
             [](Half& h) { h.qp_number = 1u << 24; }}) {
        Half bad = half;
        spoil(bad);
        BOOST_TEST((q->connect(bad) == Status::invalid_param));
    }
    connect(*q, *peer);
    BOOST_TEST((q->post() == Status::invalid_param)); // nothing
    const uint32_t lkey = t.x.registration.lkey[0], rkey = t.y.registration.rkey[0];
    BOOST_TEST((q->wait(t.x.at(0) + 4, lkey, 1) == Status::invalid_param));
    BOOST_TEST((q->word(1, t.y.at(0) + 4, rkey) == Status::invalid_param));
    // Six requests: two tasks of three; a third when one is over, and it has stayed as it was.
    triggered(t.x, *q, t.y, 1, 1);
    triggered(t.x, *q, t.y, 2, 1);
    BOOST_REQUIRE(q->word(3, t.y.at(0), rkey) == Status::ok);
    BOOST_TEST((q->post() == Status::no_resource));
    t.x.words[0] = 1;
    (void)t.x.pool.poll();
    t.world.run();
    (void)t.x.pool.poll();
    BOOST_TEST((q->post() == Status::ok));
    for (int i = 0; i < 6; ++i) BOOST_REQUIRE(q->word(3, t.y.at(0), rkey) == Status::ok);
    BOOST_TEST((q->word(3, t.y.at(0), rkey) == Status::no_resource));
    q->forget();
    BOOST_TEST(q->done() == 1u);
}

// One half ends, with tasks that wait: it is dead, and the other one's fails and ends, too. What is not complete has
// arrived or not, in order.
BOOST_AUTO_TEST_CASE(a_queue_ends) {
    Two t;
    const auto a = t.x.queue(), b = t.y.queue();
    connect(*a, *b);
    for (uint64_t m = 1; m <= 3; ++m) triggered(t.x, *a, t.y, m, 10);
    triggered(t.y, *b, t.x, 7, 10); // waits for ever
    t.x.words[0] = 1;
    (void)t.x.pool.poll();
    t.world.run_until(t.world.now() + 100'000);
    BOOST_TEST(t.y.words[0] == 1u);
    Ended ours{}, theirs{};
    BOOST_TEST((a->how_far({.version = kHalfVersion, .zero = 0, .done = 0, .posted = 1}, ours) == Status::in_progress));
    while (a->end() == Status::in_progress) t.world.run_until(t.world.now() + 1000), (void)t.x.pool.poll();
    BOOST_TEST(a->dead());
    BOOST_TEST((a->post() == Status::io_error));
    while (b->end() == Status::in_progress) t.world.run_until(t.world.now() + 1000), (void)t.y.pool.poll();
    BOOST_REQUIRE((a->how_far(b->ended(), ours) == Status::ok));
    BOOST_REQUIRE((b->how_far(a->ended(), theirs) == Status::ok));
    BOOST_TEST(ours.posted == 3u);
    BOOST_TEST(ours.done == 1u);
    BOOST_TEST(theirs.posted == 1u);
    BOOST_TEST(theirs.done == 0u);
    BOOST_TEST((a->how_far({.version = 3, .zero = 0, .done = 0, .posted = 0}, ours) == Status::invalid_param));
    BOOST_TEST(
        (a->how_far({.version = kHalfVersion, .zero = 0, .done = 2, .posted = 1}, ours) == Status::invalid_param));
    // Nothing comes late.
    t.x.words[0] = 2;
    (void)t.x.pool.poll();
    t.world.run();
    BOOST_TEST(t.y.words[0] == 1u);
    BOOST_TEST(t.x.words[0] == 2u);
}

// The way is lost in the middle of a task: it fails by itself. Each of the tasks has arrived as a whole, or its word
// has not.
BOOST_AUTO_TEST_CASE(the_way_is_lost) {
    for (const unsigned packet : {1u, 2u, 3u, 4u}) {
        Two t;
        const auto a = t.x.queue(), b = t.y.queue();
        connect(*a, *b);
        constexpr uint32_t kBlock = 1200; // some packets
        std::fill_n(t.x.words.begin() + 1024, kBlock, 5);
        for (uint64_t m = 1; m <= 2; ++m) triggered(t.x, *a, t.y, m, kBlock);
        t.world.fault("port down --at-packet " + std::to_string(packet) + " 0:softhca_0:1");
        t.x.words[0] = 1;
        (void)t.x.pool.poll();
        BOOST_REQUIRE(t.world.run_until([&] { return t.x.pool.poll(), a->failed(); }, t.world.now() + 60 * kSecond));
        BOOST_TEST(a->trouble() == IBV_WC_RETRY_EXC_ERR);
        while (a->end() == Status::in_progress) t.world.run_until(t.world.now() + 1000), (void)t.x.pool.poll();
        while (b->end() == Status::in_progress) t.world.run_until(t.world.now() + 1000), (void)t.y.pool.poll();
        Ended ours{};
        BOOST_REQUIRE((a->how_far(b->ended(), ours) == Status::ok));
        BOOST_TEST(ours.done <= t.y.words[0]);
        BOOST_TEST(t.y.words[0] <= 1u);
        if (t.y.words[0] == 1)
            for (uint32_t i = 0; i < kBlock; ++i) BOOST_REQUIRE(t.y.words[1024 + i] == 5u);
    }
}

// The adapter dies, with tasks under way or none: its queues end at once, and there are no others on it.
BOOST_AUTO_TEST_CASE(the_adapter_dies) {
    Two t;
    const auto a = t.x.queue(), b = t.y.queue(), ending = t.x.queue(), unused = t.x.queue();
    const auto peer = t.y.queue();
    connect(*a, *b);
    connect(*ending, *peer);
    triggered(t.x, *a, t.y, 7, 10); // waits for ever
    triggered(t.x, *ending, t.y, 7, 10);
    (void)ending->end();
    t.world.fault("adapter-death 0:softhca_0");
    t.world.run_until(t.world.now() + 100'000);
    for (Queue* const q : {a.get(), ending.get(), unused.get()}) {
        BOOST_TEST((q->end() == Status::ok));
        BOOST_TEST(q->dead());
        BOOST_TEST((q->post() == Status::io_error));
        Half half;
        q->tell(half);
        BOOST_TEST((q->connect(half) == Status::invalid_param));
    }
    Ended ours{};
    BOOST_TEST((a->how_far({.version = kHalfVersion, .zero = 0, .done = 0, .posted = 0}, ours) == Status::ok));
    BOOST_TEST(ours.posted == 1u);
    BOOST_TEST(ours.done == 0u);
    std::unique_ptr<Queue> none;
    BOOST_TEST((t.x.pool.create(t.x.rail(), 8, none) == Status::unreachable));
    BOOST_TEST((t.x.pool.can_wait(t.x.rail()) == Waits::unknown));
    (void)t.x.queue(8, 1); // the other one lives
}

// One that is dead already is in the list with the context of another one.
BOOST_AUTO_TEST_CASE(the_adapter_is_dead_at_start) {
    World world(fabric("two-rail"));
    world.fault("adapter-death 0:softhca_0");
    Node x(world, 0);
    unsigned dead = 0;
    for (const Rail& rail : x.devices.rails()) {
        if (rail.active) continue;
        ++dead;
        BOOST_TEST((x.tried(rail.index) == Waits::unknown));
    }
    BOOST_TEST(dead == 1u);
}
