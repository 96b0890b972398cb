// What people are told of faults: which lines, of whom, and how many.
#define BOOST_TEST_MODULE transport_reports
#include <algorithm>
#include <regex>

#include "both_transports.h"
#include "simulator/traffic.h"
#include "uct_mp/channel/core.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

constexpr Nanos kMs = 1'000'000, kSecond = 1'000 * kMs;

// Processes on hosts of the fabric, rank by rank; rank 0 talks with all others, and they with it.
struct Job {
    Cluster cluster;
    std::vector<Channel*> channels;

    Job(connect::Transport transport, const std::vector<unsigned>& hosts, bool names = true,
        Nanos partition_timeout = 30 * kSecond)
        : cluster("two-rail", hosts, configs(transport, hosts, names, partition_timeout), {.seed = 1}) {
        for (unsigned i = 0; i < hosts.size(); ++i) cluster.node(i).services().quiet = true;
        for (unsigned i = 1; i < hosts.size(); ++i)
            for (const auto& [from, to] : {std::pair{0u, i}, std::pair{i, 0u}}) {
                Channel& channel = cluster.channel(from, to);
                BOOST_REQUIRE(cluster.until(
                    [&] { return channel::Interface::am_short(channel, 1, 0, nullptr, 0) == Status::ok; }));
                channels.push_back(&channel);
            }
        cluster.run_for(10 * kMs);
    }
    static std::vector<channel::Config> configs(connect::Transport transport, const std::vector<unsigned>& hosts,
                                                bool names, Nanos partition_timeout) {
        std::vector<channel::Config> all;
        for (unsigned i = 0; i < hosts.size(); ++i) {
            channel::Config& config = all.emplace_back(config_of(transport));
            config.recovery.partition_timeout = partition_timeout;
            if (names) config.names = {.host = "n" + std::to_string(hosts[i]), .rank = std::int32_t(i), .ports = {}};
        }
        return all;
    }
    // Ports of a host. What is sent then finds out.
    void cut(unsigned host, bool down = true) {
        const std::string verb = down ? "port down " : "port up ";
        for (const char* adapter : {":softhca_0:1", ":softhca_1:1"})
            cluster.world.fault(verb + std::to_string(host) + adapter);
        for (Channel* channel : channels) (void)channel::Interface::am_short(*channel, 1, 0, nullptr, 0);
    }
    // Of both ports, for so long.
    void outage(unsigned host, Nanos lasts, Nanos then = 600 * kMs) {
        cut(host);
        cluster.run_for(lasts);
        cut(host, false);
        cluster.run_for(then);
    }
    [[nodiscard]] const std::vector<std::string>& said(unsigned rank) { return cluster.node(rank).services().said; }
};

bool matches(const std::string& line, const std::string& pattern) {
    return std::regex_match(line, std::regex(pattern));
}

} // namespace

BOOST_DATA_TEST_CASE(both_ends_by_name, kBoth, transport) {
    Job job(transport, {0, 1});
    job.outage(1, 300 * kMs);
    BOOST_TEST_REQUIRE(job.said(0).size() == 2u);
    BOOST_TEST(
        matches(
            job.said(0)[0],
            R"(no path to n1 rank 1 is left: softhca_0:1 -> softhca_0:1 \(.+\), softhca_1:1 -> softhca_1:1 \(.+\): )"
            R"(operations wait, 30 s at most \(UCX_MP_PARTITION_TIMEOUT\))"),
        job.said(0)[0]);
    BOOST_TEST(matches(job.said(0)[1], R"(n1 rank 1 can be reached again after 0\.[3-8] s)"), job.said(0)[1]);
    BOOST_TEST_REQUIRE(job.said(1).size() == 2u);
    BOOST_TEST(job.said(1)[0].find("its port is down here") != std::string::npos, job.said(1)[0]);
}

// Each path has a line as well, at level info.
BOOST_DATA_TEST_CASE(paths_by_name, kBoth, transport) {
    Job job(transport, {0, 1});
    job.cluster.node(0).services().threshold = job.cluster.node(0).services().kept = LogLevel::info;
    job.cluster.world.fault("port down 0:softhca_1:1");
    job.cluster.run_for(20 * kMs);
    job.cluster.world.fault("port up 0:softhca_1:1");
    BOOST_REQUIRE(all_up(job.cluster, 2));
    const auto count = [&](const std::string& pattern) {
        return std::ranges::count_if(job.said(0), [&](const std::string& line) { return matches(line, pattern); });
    };
    BOOST_TEST(count(R"(softhca_1:1 -> n1 rank 1 softhca_1:1 \(path 1\) is down: its port is down here)") == 1);
    BOOST_TEST(count(R"(softhca_1:1 -> n1 rank 1 softhca_1:1 \(path 1\) is up again after \d+\.\d+ ms)") == 1);
    BOOST_TEST(count(R"(no path to.*)") == 0);
}

BOOST_DATA_TEST_CASE(a_short_outage_is_no_warning, kBoth, transport) {
    Job job(transport, {0, 1});
    job.outage(1, 20 * kMs);
    BOOST_TEST(job.said(0).empty());
    BOOST_TEST(job.said(1).empty());
}

// A peer of an earlier release tells no names.
BOOST_DATA_TEST_CASE(without_names, kBoth, transport) {
    Job job(transport, {0, 1}, false);
    job.outage(1, 300 * kMs);
    BOOST_TEST_REQUIRE(job.said(0).size() == 2u);
    BOOST_TEST(
        matches(job.said(0)[0], R"(no path to peer [0-9a-f]{16} \(LID \d+\) is left: softhca_0:1 -> LID \d+ \(.*)"),
        job.said(0)[0]);
}

BOOST_DATA_TEST_CASE(a_line_for_a_host, kBoth, transport) {
    Job job(transport, {0, 1, 1, 2, 1});
    job.outage(1, 300 * kMs);
    BOOST_TEST_REQUIRE(job.said(0).size() == 2u);
    BOOST_TEST(job.said(0)[0].starts_with("no path to n1 ranks 1, 2, 4 is left: "), job.said(0)[0]);
    BOOST_TEST(job.said(0)[1].starts_with("n1 ranks 1, 2, 4 can be reached again after 0."), job.said(0)[1]);
    BOOST_TEST(job.said(3).empty()); // its host is fine
}

// A switch restarts: all hosts are gone at once.
BOOST_DATA_TEST_CASE(one_line_for_many_hosts, kBoth, transport) {
    Job job(transport, {0, 1, 2, 3, 4, 5});
    job.outage(0, 300 * kMs);
    BOOST_TEST_REQUIRE(job.said(0).size() == 2u);
    BOOST_TEST(matches(job.said(0)[0],
                       R"(no path to 5 hosts \(n\d rank \d, n\d rank \d, n\d rank \d and 2 more\) is left, )"
                       R"(over softhca_0:1, softhca_1:1: operations wait, 30 s at most .*)"),
               job.said(0)[0]);
    BOOST_TEST(job.said(0)[1].starts_with("5 hosts ("), job.said(0)[1]);
}

BOOST_DATA_TEST_CASE(in_sum_after_the_third, kBoth, transport) {
    Job job(transport, {0, 1});
    for (unsigned i = 0; i < 8; ++i) job.outage(1, 300 * kMs, 1'500 * kMs);
    BOOST_TEST(job.said(0).size() == 6u); // three of them, and back
    job.cluster.run_for(60 * kSecond);
    BOOST_TEST_REQUIRE(job.said(0).size() == 7u);
    BOOST_TEST(job.said(0)[6].starts_with("n1 rank 1 could not be reached 5 more times in the last "), job.said(0)[6]);
    job.outage(1, 300 * kMs); // one more
    job.cut(1);
    job.cluster.run_for(6 * kSecond); // whatever has been: one that lasts is told
    BOOST_TEST(job.said(0).back().starts_with("no path to n1 rank 1 is left"), job.said(0).back());
}

BOOST_DATA_TEST_CASE(one_line_when_a_partition_has_lasted, kBoth, transport) {
    Job job(transport, {0, 1, 1, 2}, true, kSecond);
    for (unsigned i = 0; i < 4; ++i) job.cluster.node(i).on_failure = [](Channel&, Status) {};
    job.cut(0);
    BOOST_REQUIRE(job.cluster.until([&] { return job.cluster.node(0).services().errors != 0; }, 5 * kSecond));
    job.cluster.run_for(200 * kMs);
    BOOST_TEST(job.cluster.node(0).services().errors == 1u);
    BOOST_TEST(matches(job.cluster.node(0).services().last_error,
                       R"(n1 ranks 1, 2, n2 rank 3 unreachable for 1\.0 s over softhca_0:1, softhca_1:1 )"
                       R"(\(UCX_MP_PARTITION_TIMEOUT\))"),
               job.cluster.node(0).services().last_error);
    for (const std::string& line : job.said(0)) BOOST_TEST(line.find("reached again") == std::string::npos, line);
}

BOOST_DATA_TEST_CASE(a_port_that_has_become_slower, kBoth, transport) {
    Job job(transport, {0, 1});
    job.cluster.node(0).iface().core().rails[1].rate *= 4; // before
    for (unsigned i = 0; i < 3; ++i) {                     // and it stays so
        job.cluster.world.fault("port down 0:softhca_1:1");
        job.cluster.run_for(5 * kMs);
        job.cluster.world.fault("port up 0:softhca_1:1");
        job.cluster.run_for(5 * kMs);
    }
    BOOST_TEST_REQUIRE(job.said(0).size() == 1u);
    BOOST_TEST(
        matches(job.said(0)[0], R"(softhca_1:1 is up at 1 GB/s only, before it was 4 GB/s: look at its cable.*)"),
        job.said(0)[0]);
}
