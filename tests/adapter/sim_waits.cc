// Send queues that wait for words, in virtual time: what adapters execute while no program looks, and what it costs.
#define BOOST_TEST_MODULE sim_waits
#include <algorithm>
#include <deque>

#include "raw_requests.h"
#include "sim_fixture.h"

using namespace softhca;
using namespace softhca::test;

namespace {

// A connection's end that takes raw requests.
struct Raw : Rc {
    explicit Raw(Hca& hca, uint32_t depth = 64) : Rc(hca) {
        ibv_destroy_qp(qp);
        qp = raw_test::create(hca.pd, hca.cq, depth);
        must(qp, "raw queue pair");
    }
    // The i-th word of `mr`, which is `value`.
    void wait(const ibv_mr* mr, size_t i, uint64_t value, uint8_t flags = 0) {
        post(raw_test::wait(qp, word(mr, i), mr->lkey, value, UINT64_MAX, flags | raw_test::kFence));
    }
    void write(const ibv_mr* from, size_t i, const ibv_mr* to, size_t j, uint32_t bytes = 8, uint8_t flags = 0) {
        post(raw_test::write(qp, word(from, i), bytes, from->lkey, word(to, j), to->rkey,
                             flags | raw_test::kSmallFence));
    }
    void post(const raw_test::Entry& e) { must(raw_test::post(qp, e, posted++) == 0, "post"); }
    static uint64_t* word(const ibv_mr* mr, size_t i) { return static_cast<uint64_t*>(mr->addr) + i; }
    uint64_t posted = 0;
};

void connect(Rc& x, Rc& y) {
    x.connect(y);
    y.connect(x);
}

// Nodes on one switch, each with registered words.
struct Nodes {
    explicit Nodes(uint32_t n, Costs costs = {}) : fabric(build(n, costs)), world(image(fabric)) {
        for (uint32_t i = 0; i < n; ++i) {
            hcas.emplace_back(world, i, 256);
            memory.emplace_back(4096);
            mrs.push_back(hcas[i].reg(memory[i].data(), memory[i].size() * sizeof(uint64_t)));
        }
    }
    static std::vector<uint64_t> build(uint32_t n, Costs costs) {
        SmallFabric f;
        const uint32_t s = f.sw();
        for (uint32_t i = 0; i < n; ++i) f.port_to_switch(f.node(costs), s);
        return f.build();
    }
    std::vector<ibv_wc> completions(uint32_t node) {
        std::vector<ibv_wc> all(256);
        all.resize(static_cast<size_t>(ibv_poll_cq(hcas[node].cq, 256, all.data())));
        return all;
    }
    std::vector<uint64_t> fabric;
    World world;
    std::deque<Hca> hcas;
    std::vector<std::vector<uint64_t>> memory;
    std::vector<ibv_mr*> mrs;
};

} // namespace

// Round k: a word to rank + 2^k when those of all rounds before are here. Posted once, never looked at. Who comes late
// is waited for.
BOOST_AUTO_TEST_CASE(a_barrier_that_adapters_execute) {
    constexpr uint32_t kRanks = 8, kRounds = 3, kTimes = 5;
    constexpr Nanos kLate = 100'000;
    const auto run = [&](Nanos late) {
        Nodes n(kRanks);
        std::vector<std::vector<std::unique_ptr<Raw>>> out(kRanks);
        std::vector<std::unique_ptr<Rc>> in;
        for (uint32_t i = 0; i < kRanks; ++i)
            for (uint32_t k = 0; k < kRounds; ++k) {
                out[i].push_back(std::make_unique<Raw>(n.hcas[i]));
                in.push_back(std::make_unique<Rc>(n.hcas[(i + (1u << k)) % kRanks]));
                connect(*out[i][k], *in.back());
            }
        constexpr size_t own = 64; // words that are sent
        for (auto& words : n.memory)
            for (uint64_t m = 1; m <= kTimes; ++m) words[own + m] = m;
        std::array<Nanos, kRanks> finished{};
        for (uint64_t m = 1; m <= kTimes; ++m) {
            const auto post = [&, m](uint32_t i) {
                for (uint32_t k = 0; k < kRounds; ++k) {
                    for (uint32_t j = 0; j < k; ++j) out[i][k]->wait(n.mrs[i], j, m);
                    out[i][k]->write(n.mrs[i], own + m, n.mrs[(i + (1u << k)) % kRanks], k);
                }
            };
            const Nanos start = n.world.now();
            for (uint32_t i = 0; i + 1 < kRanks; ++i) post(i);
            n.world.at(start + late, [&] { post(kRanks - 1); });
            uint32_t left = kRanks;
            for (auto& f : finished) f = 0;
            while (left != 0 && n.world.step())
                for (uint32_t i = 0; i < kRanks; ++i) {
                    const auto& words = n.memory[i];
                    const bool all =
                        std::all_of(words.begin(), words.begin() + kRounds, [m](uint64_t w) { return w >= m; });
                    if (all && finished[i] == 0) --left, finished[i] = n.world.now() - start;
                    for (uint32_t k = 0; k < kRounds; ++k) BOOST_REQUIRE(words[k] <= m);
                }
            BOOST_REQUIRE(left == 0);
            n.world.run();
        }
        for (uint32_t i = 0; i < kRanks; ++i) BOOST_TEST(n.completions(i).empty()); // nothing asked for one
        return std::pair(finished, n.world.fingerprint());
    };
    const auto in_time = run(0), late = run(kLate);
    for (uint32_t i = 0; i + 1 < kRanks; ++i) BOOST_TEST(late.first[i] > kLate); // the last finds all words there
    // Three hops after the last has come, at most.
    const Nanos most = std::ranges::max(in_time.first);
    BOOST_TEST(most > 0u);
    BOOST_TEST(std::ranges::max(late.first) <= most + kLate);
    BOOST_TEST(run(0).second == in_time.second);
}

// Until when a word is written that holds the way free, and when that has arrived.
struct Passed {
    explicit Passed(Costs costs) : n(2, costs), a(n.hcas[0]), b(n.hcas[1]), c(n.hcas[1]), d(n.hcas[0]) {
        connect(a, b);
        connect(c, d);
        n.memory[1][10] = 1;
        n.memory[0][11] = 2;
    }
    // Behind a wait for word 0, which the other node writes after so long; when the write behind it arrives there.
    Nanos write(Nanos after) {
        const Nanos start = n.world.now();
        n.world.at(start + after, [this] { c.write(n.mrs[1], 10, n.mrs[0], 0); });
        return pass() - start;
    }
    Nanos pass() {
        n.memory[1][20] = 0;
        a.wait(n.mrs[0], 0, 1);
        a.write(n.mrs[0], 11, n.mrs[1], 20);
        BOOST_REQUIRE(n.world.run_until([&] { return n.memory[1][20] == 2; }, n.world.now() + 1'000'000'000));
        return n.world.now();
    }
    Nodes n;
    Raw a;
    Rc b;
    Raw c;
    Rc d;
};

BOOST_AUTO_TEST_CASE(what_a_wait_costs) {
    const Nanos free = Passed({}).write(5000);
    BOOST_TEST(Passed({.wait_ns = 700}).write(5000) == free + 700);
    // Looked at every 3 us.
    const Nanos seen = Passed({.wait_poll_ns = 3000}).write(5000);
    const Nanos hop = (free - 5000) / 2;
    BOOST_TEST(seen == (5000 + hop + 2999) / 3000 * 3000 + hop);
    // Both, and a wait that holds when its turn comes.
    Passed both({.wait_ns = 700, .wait_poll_ns = 3000});
    BOOST_TEST(both.write(5000) == seen + 700);
    both.n.world.run();
    const Nanos start = both.n.world.now();
    BOOST_TEST(both.pass() == start + 700 + hop);
}

// One queue pair's word is looked at, that which has waited for the longest.
BOOST_AUTO_TEST_CASE(how_many_are_looked_at) {
    for (const uint32_t limit : {0u, 1u}) {
        Nodes n(2, {.wait_limit = limit});
        Raw a(n.hcas[0]), b(n.hcas[0]);
        Rc x(n.hcas[1]), y(n.hcas[1]), z(n.hcas[0]);
        Raw c(n.hcas[1]);
        connect(a, x);
        connect(b, y);
        connect(c, z);
        n.memory[0][11] = n.memory[1][11] = 1;
        a.wait(n.mrs[0], 0, 1);
        a.write(n.mrs[0], 11, n.mrs[1], 20);
        b.wait(n.mrs[0], 1, 1);
        b.write(n.mrs[0], 11, n.mrs[1], 21);
        c.write(n.mrs[1], 11, n.mrs[0], 1);
        n.world.run();
        BOOST_TEST(n.memory[1][21] == (limit ? 0u : 1u));
        c.write(n.mrs[1], 11, n.mrs[0], 0);
        n.world.run();
        BOOST_TEST(n.memory[1][20] == 1u);
        BOOST_TEST(n.memory[1][21] == 1u);
    }
}

// A queue pair that waits costs no event: the world ends. A store of the program is seen when it polls.
BOOST_AUTO_TEST_CASE(a_store_of_the_program) {
    Nodes n(2);
    Raw a(n.hcas[0]);
    Rc b(n.hcas[1]);
    connect(a, b);
    a.wait(n.mrs[0], 0, 1, raw_test::kSignal);
    n.world.run();
    n.memory[0][0] = 1;
    n.world.run();
    BOOST_TEST(n.completions(0).empty());
    n.world.run();
    const auto seen = n.completions(0);
    BOOST_REQUIRE(seen.size() == 1u);
    BOOST_TEST(seen[0].opcode == IBV_WC_DRIVER2);
}

// Packets that are lost are sent again, across waits that are over: each request once, in order, words behind data.
BOOST_AUTO_TEST_CASE(lost_packets_and_late_data) {
    for (const char* fault :
         {"drop 10 all", "ack-drop 20 all", "fault place-delay 20us *:*", "fault place-delay-qp 50us *:*"}) {
        Nodes n(3);
        // Node 0 writes data and word to node 1, whose adapter passes them on to node 2.
        Raw a(n.hcas[0], 128), c(n.hcas[1], 128);
        Rc b(n.hcas[1]), d(n.hcas[2]);
        a.connect(b, 0, 8);
        b.connect(a);
        c.connect(d, 0, 8);
        d.connect(c);
        n.world.fault(fault);
        constexpr uint64_t kTimes = 20;
        constexpr size_t kWords = 150; // three packets with the word's
        auto& from = n.memory[0];
        for (uint64_t m = 1; m <= kTimes; ++m) {
            c.wait(n.mrs[1], 0, m, raw_test::kSignal);
            c.write(n.mrs[1], 1000, n.mrs[2], 1000, kWords * 8);
            c.write(n.mrs[1], 0, n.mrs[2], 0, 8, raw_test::kSignal);
        }
        for (uint64_t m = 1; m <= kTimes; ++m) {
            std::fill_n(from.begin() + 1000, kWords, m);
            from[0] = m;
            a.write(n.mrs[0], 1000, n.mrs[1], 1000, kWords * 8);
            a.write(n.mrs[0], 0, n.mrs[1], 0, 8, raw_test::kSignal);
            const auto& to = n.memory[2];
            uint64_t told = 0;
            while ((told == 0 || to[0] != m) && n.world.step()) {
                for (const ibv_wc& wc : n.completions(0)) {
                    BOOST_REQUIRE(wc.status == IBV_WC_SUCCESS);
                    ++told;
                }
                BOOST_REQUIRE(to[0] <= m);
                if (to[0] != m) continue;
                BOOST_REQUIRE(
                    std::all_of(to.begin() + 1000, to.begin() + 1000 + kWords, [m](uint64_t w) { return w == m; }));
            }
            BOOST_REQUIRE(to[0] == m);
        }
        n.world.run();
        uint64_t next = 0;
        for (const ibv_wc& wc : n.completions(1)) {
            BOOST_TEST(wc.status == IBV_WC_SUCCESS);
            BOOST_TEST(wc.wr_id == next);
            next += next % 3 == 0 ? 2 : 1;
        }
        BOOST_TEST(next == 3 * kTimes);
    }
}

// Killed in the middle: what waits is flushed.
BOOST_AUTO_TEST_CASE(the_adapter_dies) {
    Nodes n(2);
    Raw a(n.hcas[0]);
    Rc b(n.hcas[1]);
    connect(a, b);
    a.wait(n.mrs[0], 0, 1, raw_test::kSignal);
    a.write(n.mrs[0], 0, n.mrs[1], 0);
    n.world.run();
    n.world.fault("adapter-death node0:softhca_0");
    n.world.at(n.world.now() + 1000, [] {});
    n.world.run();
    n.memory[0][0] = 1;
    const auto seen = n.completions(0);
    n.world.run();
    BOOST_TEST(n.memory[1][0] == 0u);
    for (const ibv_wc& wc : seen) BOOST_TEST(wc.status == IBV_WC_WR_FLUSH_ERR);
}
