// Many connect at once, and every command to the adapter takes time: handshakes take turns with everything else.
#define BOOST_TEST_MODULE transport_turns
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "simulator/cluster.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

constexpr Nanos kCommand = 100'000;
constexpr unsigned kPeers = 24, kPaths = 2;
// Four commands for each path, and an address handle for datagrams (mp_dc: for each path)
constexpr Nanos kWork = kPeers * (4 * kPaths + 1) * kCommand, kWorkDc = kPeers * kPaths * kCommand;
constexpr Nanos kLongest = 400'000; // 200 us, and the last step's two commands

// A process whose commands take time, and peers of it whose commands take none.
class Job {
public:
    explicit Job(connect::Transport transport, Nanos timeout = 10'000'000'000, const char* fault = nullptr)
        : world("two-rail", {.seed = 3}),
          a((fault ? world.fault(fault) : void(), world), 0, config_of(transport, 1, timeout)) {
        for (unsigned i = 0; i < kPeers; ++i) {
            peers.push_back(
                std::make_unique<Node>(world, 1 + i % (world.nodes() - 1), config_of(transport, 2 + i, timeout)));
            failures.push_back(0);
            peers[i]->on_failure = [this, i](Channel&, Status) { ++failures[i]; };
            peers[i]->on_am(1, count, &arrived);
        }
        a.on_failure = [this](Channel&, Status) { ++own_failures; };
        a.on_am(1, count, &arrived);
        for (const char* which : {"create", "modify", "query"})
            world.fault(std::string("command-cost ") + which + " 100us all");
        world.on_command([this](Nanos cost) {
            if (!charged_) return;
            a.services().spent += cost;
            ++commands;
        });
    }
    ~Job() { world.on_command(nullptr); }

    // One word from one to the other, as soon as that is possible.
    void say(Node& from, Node& to) {
        std::string error;
        Channel* const channel = from.iface().attach(to.iface().address(), error);
        BOOST_REQUIRE(channel);
        words_.push_back({&from, channel});
    }
    bool until(const std::function<bool()>& condition, Nanos limit = 1'000'000'000) {
        const Nanos end = world.now() + limit;
        while (turn()) {}
        while (!condition()) {
            if (world.now() > end || !world.step()) return false;
            while (turn()) {}
        }
        return true;
    }
    [[nodiscard]] channel::Interface::Statistics statistics(Node& node) {
        channel::Interface::Statistics out;
        node.iface().statistics(out);
        return out;
    }
    [[nodiscard]] unsigned in(connect::State state) {
        unsigned n = 0;
        for (const auto& channel : statistics(a).channels) n += channel.state == state;
        return n;
    }
    [[nodiscard]] unsigned established() { return in(connect::State::established); }

    softhca::sim::World world;
    Node a;
    std::vector<std::unique_ptr<Node>> peers;
    std::vector<unsigned> failures;
    unsigned own_failures = 0, arrived = 0, commands = 0;
    Nanos longest = 0; // call of progress

private:
    static channel::Config config_of(connect::Transport transport, std::uint64_t seed, Nanos timeout) {
        channel::Config config;
        config.transport = transport;
        config.control_interval = config.event_interval = config.quiet_interval = config.silent_interval = 1;
        config.completion_depth = 256;
        config.receive_depth = 64;
        config.send_depth = 32;
        config.connect_timeout = timeout;
        config.seed = seed;
        return config;
    }
    static Status count(void* n, void*, std::size_t, unsigned) { return ++*static_cast<unsigned*>(n), Status::ok; }

    void speak(Node& node) {
        std::erase_if(words_, [&](auto& word) {
            return word.first == &node &&
                   channel::Interface::am_short(*word.second, 1, 0, nullptr, 0) != Status::no_resource;
        });
    }
    bool turn() {
        bool any = false;
        for (auto& peer : peers)
            if (peer) {
                any |= peer->services().run_due() | (peer->iface().progress() != 0);
                speak(*peer);
            }
        if (world.now() < busy_until_) return any;
        charged_ = true;
        any |= a.services().run_due() | (a.iface().progress() != 0);
        longest = std::max(longest, a.services().spent);
        speak(a);
        charged_ = false;
        if (const Nanos spent = std::exchange(a.services().spent, 0)) {
            busy_until_ = world.now() + spent;
            world.at(busy_until_, [] {});
        }
        return any;
    }

    std::vector<std::pair<Node*, Channel*>> words_;
    Nanos busy_until_ = 0;
    bool charged_ = false;
};

const connect::Transport kTransports[] = {connect::Transport::rc, connect::Transport::dc};

} // namespace

BOOST_DATA_TEST_CASE(many_connect_at_once,
                     boost::unit_test::data::make({false, true}) * boost::unit_test::data::make({false, true}), dc,
                     inward) {
    Job job(kTransports[dc]);
    for (auto& peer : job.peers) inward ? job.say(*peer, job.a) : job.say(job.a, *peer);
    const Nanos begin = job.world.now();
    BOOST_TEST(job.until([&] { return job.arrived == kPeers; }));
    const Nanos took = job.world.now() - begin;
    BOOST_TEST_MESSAGE("longest call " << job.longest / 1000 << " us, all in " << took / 1000 << " us");
    BOOST_TEST(job.longest <= kLongest);
    BOOST_TEST(job.established() == kPeers);
    BOOST_TEST(job.own_failures == 0u);
    // Nothing else was to be done, so that little time is left to it.
    BOOST_TEST(took <= (dc ? kWorkDc + kPeers * kCommand : kWork) * 12 / 10);
    // Repetitions have made nothing twice.
    (void)job.until([] { return false; }, 100'000'000);
    BOOST_TEST(job.arrived == kPeers);
    const auto statistics = job.statistics(job.a);
    if (!dc) BOOST_TEST(statistics.queue_pairs == kPeers * kPaths);
    if (!dc && inward) BOOST_TEST(statistics.control.late > 0u); // there were some
    for (unsigned failures : job.failures) BOOST_TEST(failures == 0u);
}

// Losses, so that all messages are repeated, and handshakes begin anew.
BOOST_DATA_TEST_CASE(with_losses, boost::unit_test::data::make({false, true}), inward) {
    Job job(connect::Transport::rc);
    job.world.fault("drop 20% all");
    for (auto& peer : job.peers) inward ? job.say(*peer, job.a) : job.say(job.a, *peer);
    BOOST_TEST(job.until([&] { return job.established() == kPeers; }, 5'000'000'000));
    job.world.fault("drop 0% all");
    BOOST_TEST(job.until([&] { return job.arrived == kPeers; }, 5'000'000'000));
    BOOST_TEST(job.longest <= kLongest + 300'000); // and a turn of recovery
    BOOST_TEST(job.statistics(job.a).queue_pairs == kPeers * kPaths);
}

// Both sides begin, the servers' own requests wait while those of their clients arrive.
BOOST_DATA_TEST_CASE(both_sides_at_once, boost::unit_test::data::make({false, true}), dc) {
    Job job(kTransports[dc]);
    for (auto& peer : job.peers) job.say(*peer, job.a), job.say(job.a, *peer);
    BOOST_TEST(job.until([&] { return job.arrived == 2 * kPeers; }));
    BOOST_TEST(job.longest <= kLongest);
    BOOST_TEST(job.established() == kPeers);
    if (!dc) BOOST_TEST(job.statistics(job.a).queue_pairs == kPeers * kPaths);
}

// Who has to wait longer than its patience gives up, and nothing of it is left; who dies while it waits, too.
BOOST_AUTO_TEST_CASE(given_up_while_waiting) {
    Job job(connect::Transport::rc, 12'000'000);
    for (auto& peer : job.peers) job.say(*peer, job.a);
    BOOST_TEST(job.until([&] { return job.arrived == 2; }));
    job.peers.back().reset();
    (void)job.until([] { return false; }, 200'000'000);
    unsigned failures = 0;
    for (unsigned n : job.failures) failures += n;
    BOOST_TEST_MESSAGE(failures << " of " << kPeers << " have given up");
    BOOST_TEST(failures > 0u);
    BOOST_TEST(failures + job.arrived + 1 == kPeers);
    BOOST_TEST(job.established() - job.arrived <= 1u); // one may have given up while its confirmation was worked at
    BOOST_TEST(job.statistics(job.a).queue_pairs == job.established() * kPaths);
    BOOST_TEST(job.longest <= kLongest);
}

// Queue pairs that nobody comes for any more are destroyed in turns, too.
BOOST_AUTO_TEST_CASE(all_are_given_up_at_once) {
    Job job(connect::Transport::rc, 40'000'000);
    for (auto& peer : job.peers) job.say(*peer, job.a);
    BOOST_TEST(job.until([&] { return job.in(connect::State::accepting) == kPeers; }));
    job.world.fault("drop 100% all");
    (void)job.until([] { return false; }, 35'000'000);
    BOOST_TEST(job.in(connect::State::accepting) == kPeers);
    const unsigned before = job.commands;
    (void)job.until([] { return false; }, 50'000'000);
    BOOST_TEST(job.statistics(job.a).channels.size() == 0u); // and what they had has been given back
    BOOST_TEST(job.commands - before == kPeers * kPaths);
    BOOST_TEST(job.longest <= kLongest);
}

// All who are connected are told of it, and what they open then are commands for recovery.
BOOST_DATA_TEST_CASE(a_port_comes_up, boost::unit_test::data::make({false, true}), dc) {
    Job job(kTransports[dc], 10'000'000'000, "port down 0:softhca_0:1");
    for (auto& peer : job.peers) job.say(*peer, job.a);
    BOOST_TEST(job.until([&] { return job.arrived == kPeers; }));
    (void)job.until([] { return false; }, 20'000'000);
    const auto up = [&] {
        unsigned n = 0;
        for (const auto& channel : job.statistics(job.a).channels)
            for (const auto& path : channel.paths)
                n += path.state == schedule::PathState::up && path.local_rail == "softhca_0:1";
        return n;
    };
    BOOST_TEST(up() == 0u);
    job.longest = 0;
    job.world.fault("port up 0:softhca_0:1");
    BOOST_TEST(job.until([&] { return up() >= kPeers; }));
    BOOST_TEST_MESSAGE("longest call " << job.longest / 1000 << " us");
    BOOST_TEST(job.longest <= kLongest + 500'000); // and recovery's commands, the last job of its turn included
}
