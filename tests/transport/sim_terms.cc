// Peers whose settings differ: windows, rings, segments. And what ends a channel, since it can be neither kept nor
// dropped.
#define BOOST_TEST_MODULE transport_terms
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "both_transports.h"
#include "simulator/traffic.h"
#include "uct_mp/channel/data_path.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

// Numbered messages, in both directions at once as fast as they go; empty: all came, each once and in order.
struct Numbered {
    unsigned delivered = 0, sent = 0;
    std::string mistake;
    static Status take(void* self, void* data, std::size_t length, unsigned) {
        auto& n = *static_cast<Numbered*>(self);
        std::uint64_t number = ~0ull;
        if (length >= 8) std::memcpy(&number, data, 8);
        if (number != n.delivered && n.mistake.empty())
            n.mistake = "number " + std::to_string(number) + " after " + std::to_string(n.delivered);
        ++n.delivered;
        return Status::ok;
    }
};
std::string exchange(Cluster& cluster, unsigned count, Nanos limit) {
    Numbered to[2];
    for (unsigned i = 0; i < 2; ++i) cluster.node(i).on_am(3, Numbered::take, &to[i]);
    const bool done = cluster.until(
        [&] {
            for (unsigned from = 0; from < 2; ++from) {
                Numbered& n = to[1 - from];
                while (n.sent < count && cluster.node(from).iface().am_short(cluster.channel(from, 1 - from), 3, n.sent,
                                                                             "abcdefgh", 8) == Status::ok)
                    ++n.sent;
            }
            return to[0].delivered == count && to[1].delivered == count;
        },
        limit);
    for (unsigned i = 0; i < 2; ++i)
        cluster.node(i).on_am(
            3, [](void*, void*, std::size_t, unsigned) { return Status::ok; }, nullptr);
    if (!to[0].mistake.empty() || !to[1].mistake.empty()) return to[0].mistake + to[1].mistake;
    return done ? "" : "delivered " + std::to_string(to[0].delivered) + " and " + std::to_string(to[1].delivered);
}

std::vector<channel::Config> two(connect::Transport transport,
                                 const std::function<void(unsigned, channel::Config&)>& differ) {
    std::vector<channel::Config> configs(2, config_of(transport));
    for (unsigned i = 0; i < 2; ++i) differ(i, configs[i]);
    return configs;
}

bool greeted(Cluster& cluster, unsigned from = 0) {
    return cluster.until(
        [&] {
            return cluster.node(from).iface().am_short(cluster.channel(from, 1 - from), 5, 0, nullptr, 0) == Status::ok;
        },
        200'000'000);
}

struct Window {
    unsigned ours, theirs;
};
std::ostream& operator<<(std::ostream& out, const Window& w) { return out << w.ours << " and " << w.theirs; }
const Window kWindows[] = {{192, 192}, {192, 64}, {64, 192}, {512, 192}, {1024, 16}, {16, 1024}, {9, 8}, {8, 2048}};

// Length and content follow from the number.
struct Large {
    std::vector<std::size_t> lengths;
    std::vector<void*> kept;
    unsigned received = 0, mistakes = 0;
    bool keeps = true; // every third
    static std::byte at(unsigned number, std::size_t i) { return std::byte(number * 31 + i * 7 + (i >> 8)); }
    static Status take(void* self, void* data, std::size_t length, unsigned flags) {
        auto& n = *static_cast<Large*>(self);
        const auto* bytes = static_cast<const std::byte*>(data);
        bool good = n.received < n.lengths.size() && length == n.lengths[n.received];
        for (std::size_t i = 0; good && i < length; ++i) good = bytes[i] == at(n.received, i);
        n.mistakes += !good;
        ++n.received;
        if (!n.keeps || n.received % 3 || !(flags & channel::kCallbackMayKeep)) return Status::ok;
        std::memset(static_cast<std::byte*>(data) - 32, 0xee, 32); // its headroom is the keeper's
        n.kept.push_back(data);
        return Status::in_progress;
    }
};

} // namespace

BOOST_DATA_TEST_CASE(windows_that_differ, kBoth* boost::unit_test::data::make(kWindows), transport, window) {
    for (const char* fault : {"", "delay 20us 0:softhca_1:1"}) {
        Cluster cluster("two-rail", two(transport, [&](unsigned i, channel::Config& config) {
                            config.window = i ? window.theirs : window.ours;
                            config.policy.kind = schedule::PolicyKind::round_robin;
                        }));
        BOOST_REQUIRE(greeted(cluster));
        if (*fault) cluster.world.fault(fault);
        const Nanos before = cluster.world.now();
        BOOST_TEST(exchange(cluster, 4000, 1'000'000'000) == "");
        // Nobody waits for anything but the wire: no timer acknowledges what the threshold has not.
        const unsigned common = std::min(window.ours, window.theirs);
        BOOST_TEST(cluster.world.now() - before < 4000u / common * 100'000 + 10'000'000);
        for (unsigned i = 0; i < 2; ++i) {
            BOOST_TEST(cluster.channel(i, 1 - i).window == common);
            BOOST_TEST(cluster.node(i).services().errors == 0u);
        }
    }
}

BOOST_DATA_TEST_CASE(everything_with_windows_that_differ, kBoth, transport) {
    Cluster cluster("four-path",
                    two(transport, [](unsigned i, channel::Config& config) { config.window = i ? 16 : 512; }));
    BOOST_TEST(traffic(cluster, 1, 200, true) == "");
}

// Larger messages than the peer's segment go in parts; what the handler keeps is its own.
BOOST_DATA_TEST_CASE(segments_that_differ, kBoth* boost::unit_test::data::make({"two-rail", "one-path"}), transport,
                     fabric) {
    const bool one = std::string(fabric) == "one-path";
    for (const unsigned smaller : {512u, 1000u, 8000u, 8191u}) {
        auto configs = two(transport, [&](unsigned i, channel::Config& config) {
            config.segment = i ? smaller : 8192;
            config.headroom = 32;
            if (one) config.paths.num_paths = 1;
        });
        Cluster cluster("two-rail", configs);
        BOOST_REQUIRE(greeted(cluster));
        if (one) cluster.world.fault("port down 0:softhca_1:1");
        for (unsigned from = 0; from < 2; ++from) {
            Node &node = cluster.node(from), &target = cluster.node(1 - from);
            Large large;
            const std::size_t most = node.iface().limits().max_bcopy;
            for (const std::size_t length :
                 {std::size_t{0}, std::size_t{1}, std::size_t{200}, std::size_t{smaller - 1}, std::size_t{smaller},
                  std::size_t{smaller + 255}, std::size_t{smaller + 256}, std::size_t{smaller + 257},
                  std::size_t{2 * smaller + 512}, std::size_t{2 * smaller + 513}, most - 1, most})
                if (length <= most) large.lengths.insert(large.lengths.end(), 3, length);
            target.on_am(4, Large::take, &large);
            Node::Memory source = node.memory(most);
            for (unsigned i = 0; i < large.lengths.size(); ++i) {
                const std::size_t length = large.lengths[i];
                std::vector<std::byte> bytes(length);
                for (std::size_t b = 0; b < length; ++b) bytes[b] = Large::at(i, b);
                if (i % 7 == 3) (void)node.iface().fence(cluster.channel(from, 1 - from));
                if (i % 3) {
                    BOOST_REQUIRE(cluster.until([&] {
                        struct Pack {
                            static std::size_t pack(void* to, void* arg) {
                                const auto& from = *static_cast<std::vector<std::byte>*>(arg);
                                if (!from.empty()) std::memcpy(to, from.data(), from.size());
                                return from.size();
                            }
                        };
                        const ssize_t packed =
                            node.iface().am_bcopy(cluster.channel(from, 1 - from), 4, Pack::pack, &bytes);
                        BOOST_REQUIRE((packed == static_cast<ssize_t>(length) ||
                                       packed == static_cast<ssize_t>(Status::no_resource)));
                        return packed >= 0;
                    }));
                } else { // with a user's header
                    if (length) std::memcpy(source.data, bytes.data(), length);
                    const unsigned head = std::min<unsigned>(static_cast<unsigned>(length), 100);
                    Completion done{[](Completion*) {}, 1, Status::ok};
                    const Iov iov = source.iov(head, length - head);
                    Status status = Status::no_resource;
                    BOOST_REQUIRE(cluster.until([&] {
                        status = node.iface().am_zcopy(cluster.channel(from, 1 - from), 4, source.data, head, &iov, 1,
                                                       &done);
                        return status != Status::no_resource;
                    }));
                    BOOST_REQUIRE(!failed(status));
                    if (status == Status::in_progress) BOOST_REQUIRE(cluster.until([&] { return done.count == 0; }));
                }
            }
            BOOST_TEST(cluster.until([&] { return large.received == large.lengths.size(); }, 2'000'000'000));
            BOOST_TEST(large.mistakes == 0u);
            for (void* data : large.kept) target.iface().release(data);
        }
        for (unsigned i = 0; i < 2; ++i) BOOST_TEST(cluster.node(i).services().errors == 0u);
    }
}

// The same among all other traffic, while paths come and go.
BOOST_DATA_TEST_CASE(parts_and_faults, kBoth, transport) {
    for (unsigned seed = 1; seed <= 4; ++seed) {
        Cluster cluster("four-path",
                        two(transport, [](unsigned i, channel::Config& config) { config.segment = i ? 600 : 4096; }));
        for (unsigned moment = 0; moment < 6; ++moment) {
            const std::string port = std::to_string(moment % 2) + ":softhca_" + std::to_string(moment / 2 % 2) + ":1";
            cluster.world.at(cluster.world.now() + 50'000 + moment * 400'000,
                             [&cluster, port] { cluster.world.fault("port down " + port); });
            cluster.world.at(cluster.world.now() + 250'000 + moment * 400'000,
                             [&cluster, port] { cluster.world.fault("port up " + port); });
        }
        BOOST_TEST(traffic(cluster, seed, 200, true) == "");
    }
}

// Settings that can't work together: neither side connects, and both say why.
BOOST_DATA_TEST_CASE(too_different, kBoth* boost::unit_test::data::make({0u, 1u}), transport, client) {
    Cluster cluster("two-rail", two(transport, [](unsigned i, channel::Config& config) {
                        config.segment = i ? 512 : 8192;
                        config.window = 8;
                    }));
    Status failure = Status::ok;
    cluster.node(client).on_failure = [&](Channel&, Status status) { failure = status; };
    Channel& channel = cluster.channel(client, 1 - client);
    BOOST_TEST(cluster.until(
                   [&] {
                       return failed(cluster.node(client).iface().am_short(channel, 5, 0, nullptr, 0)) &&
                              failure != Status::ok;
                   },
                   1'000'000'000) == true);
    BOOST_TEST((failure == Status::unsupported));
    for (unsigned i = 0; i < 2; ++i) {
        BOOST_TEST(cluster.node(i).services().errors == 1u);
        const std::string& line = cluster.node(i).services().last_error;
        BOOST_TEST(line.find("SEG_SIZE") != std::string::npos, line);
        if (i != client)
            BOOST_TEST((line.find("8192") != std::string::npos && line.find("512") != std::string::npos), line);
    }
}

namespace {
// As a peer does that does not keep to what has been agreed: the next message, but of the number `ahead` further.
void send_ahead(Cluster& cluster, std::uint32_t ahead) {
    Channel& channel = cluster.channel(0, 1);
    struct {
        std::uint64_t room; // mp_dc: for the tag
        channel::MessageHeader header;
        std::uint64_t body;
    } message{};
    message.header.kind = static_cast<std::uint8_t>(channel::Kind::am) & 0xf;
    message.header.version = channel::kWireVersion & 0xf;
    message.header.am_id = 3;
    message.header.channel = channel.remote_id;
    message.header.sequence = channel.next_sequence + ahead;
    message.header.ack = channel.expected;
    const channel::Posted posted{.channel = &channel};
    channel::SendQueue& queue =
        *cluster.node(0).iface().core().placement.queue_for(channel, 0, schedule::Direction::write);
    channel.wiring.paths[0].open += queue.dc;
    BOOST_REQUIRE(
        queue.send_inline(channel.wiring.paths[0].dc, &message.header, sizeof message - 8, posted, IBV_SEND_SIGNALED));
}
// Both sides hear of the end: who sends, as soon as it wants anything.
bool both_fail(Cluster& cluster, const std::function<void()>& cause) {
    bool failed[2] = {};
    for (unsigned i = 0; i < 2; ++i) cluster.node(i).on_failure = [&, i](Channel&, Status) { failed[i] = true; };
    // Over DC the watchdog asks (Config::check_interval); nothing else happens meanwhile.
    for (unsigned i = 1; i < 100; ++i) cluster.world.at(cluster.world.now() + i * 100'000'000, [] {});
    cause();
    const bool both = cluster.until([&] {
        (void)cluster.settle_all();
        if (failed[1] && !failed[0]) (void)cluster.node(0).iface().am_short(cluster.channel(0, 1), 5, 0, nullptr, 0);
        return failed[0] && failed[1];
    });
    for (unsigned i = 0; i < 2; ++i) cluster.node(i).on_failure = {};
    return both;
}
} // namespace

BOOST_DATA_TEST_CASE(ahead_of_the_ring, kBoth, transport) {
    Cluster cluster("two-rail", 2, config_of(transport));
    BOOST_REQUIRE(greeted(cluster));
    cluster.run_for(1'000'000);
    send_ahead(cluster, 200); // within the ring: kept
    cluster.run_for(1'000'000);
    BOOST_TEST(cluster.channel(1, 0).counts.early == 1u);
    send_ahead(cluster, 0u - 1); // behind: a copy
    cluster.run_for(1'000'000);
    BOOST_TEST(cluster.channel(1, 0).counts.duplicates == 1u);
    BOOST_TEST(cluster.node(1).services().errors == 0u);
    BOOST_TEST(both_fail(cluster, [&] { send_ahead(cluster, 256); }));
    BOOST_TEST(cluster.node(1).services().errors == 1u);
    BOOST_TEST(cluster.node(1).services().last_error.find("too far ahead") != std::string::npos);
}

namespace {
// Messages of 4000 bytes over two rails of which one is slow, all delivered; statistics of the receiver.
struct EarlyOnes {
    explicit EarlyOnes(connect::Transport transport) : cluster("two-rail", 2, rotating(transport)) {
        BOOST_REQUIRE(greeted(cluster));
        cluster.run_for(1'000'000);
        cluster.world.fault("delay 20us 0:softhca_1:1");
    }
    static channel::Config rotating(connect::Transport transport) {
        channel::Config config = config_of(transport);
        config.policy.kind = schedule::PolicyKind::round_robin;
        config.headroom = 32;
        return config;
    }
    void send() {
        large.lengths.assign(400, 4000);
        cluster.node(1).on_am(4, Large::take, &large);
        for (unsigned i = 0; i < large.lengths.size(); ++i) {
            std::vector<std::byte> bytes(large.lengths[i]);
            for (std::size_t b = 0; b < bytes.size(); ++b) bytes[b] = Large::at(i, b);
            const auto pack = [](void* to, void* arg) -> std::size_t {
                const auto& from = *static_cast<std::vector<std::byte>*>(arg);
                std::memcpy(to, from.data(), from.size());
                return from.size();
            };
            BOOST_REQUIRE(cluster.until(
                [&] { return cluster.node(0).iface().am_bcopy(cluster.channel(0, 1), 4, pack, &bytes) > 0; }));
        }
        BOOST_TEST(cluster.until([&] { return large.received == large.lengths.size(); }, 2'000'000'000));
        BOOST_TEST(large.mistakes == 0u);
        BOOST_TEST(cluster.channel(1, 0).counts.early > 100u);
        BOOST_TEST(sum(&channel::Adapter::spare_used) == 0u);
        BOOST_TEST(sum(&channel::Adapter::kept) == large.kept.size());
        for (void* data : large.kept) cluster.node(1).iface().release(data);
        BOOST_TEST(sum(&channel::Adapter::kept) == 0u);
    }
    template <class T> std::size_t sum(T channel::Adapter::*member) {
        channel::Core& core = cluster.node(1).iface().core();
        std::size_t total = 0;
        for (unsigned i = 0; i < core.adapter_count; ++i) total += core.adapters[i].*member;
        return total;
    }
    std::size_t registered() {
        channel::Interface::Statistics statistics;
        cluster.node(1).iface().statistics(statistics);
        return statistics.receive_buffer_bytes;
    }
    Cluster cluster;
    Large large;
};
} // namespace

// What comes over the faster rail waits for the slower one, where it has come, and gives its place back.
BOOST_DATA_TEST_CASE(early_messages_stay_where_they_are, kBoth, transport) {
    EarlyOnes early(transport);
    early.send();
    BOOST_TEST(early.sum(&channel::Adapter::spare) > 0u);
    BOOST_TEST(early.sum(&channel::Adapter::spare) < 100u);
}

// They are copied where no registered memory is left for others in their places: none is registered meanwhile.
BOOST_DATA_TEST_CASE(early_messages_register_nothing, kBoth, transport) {
    EarlyOnes early(transport);
    channel::Core& core = early.cluster.node(1).iface().core();
    for (unsigned i = 0; i < core.adapter_count; ++i) core.adapters[i].rest.left = 0;
    const std::size_t before = early.registered();
    early.large.keeps = false; // others for those are registered
    early.send();
    BOOST_TEST(early.sum(&channel::Adapter::spare) == 0u);
    BOOST_TEST(early.registered() == before);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
BOOST_DATA_TEST_CASE(no_memory_for_what_comes_early, kBoth, transport) {
    channel::Config config = config_of(transport);
    config.segment = 1 << 20; // 32 of them at a time
    config.receive_depth = 128;
    config.window = 16;
    config.max_send_buffers = 64;
    Cluster cluster("two-rail", 2, config);
    BOOST_REQUIRE(greeted(cluster));
    cluster.run_for(1'000'000);
    (void)cluster.channel(1, 0); // or nobody is told there
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit before{};
    getrlimit(RLIMIT_AS, &before);
    rlimit tight = before;
    tight.rlim_cur = static_cast<rlim_t>(pages) * 4096 + (8u << 20);
    BOOST_REQUIRE(setrlimit(RLIMIT_AS, &tight) == 0);
    std::vector<void*> blocks; // free ones of the heap, left by earlier cases, are not for it
    for (void* one = nullptr; (one = std::aligned_alloc(64, 32u << 20));) blocks.push_back(one);
    const bool told = both_fail(cluster, [&] { send_ahead(cluster, 5); });
    setrlimit(RLIMIT_AS, &before);
    for (void* const one : blocks) std::free(one);
    BOOST_TEST(told);
    BOOST_TEST(cluster.node(1).services().errors == 1u);
    BOOST_TEST(cluster.node(1).services().last_error.find("no memory") != std::string::npos);
}
#endif
