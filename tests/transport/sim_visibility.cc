// Completion is not visibility: what comes behind a put is seen behind it, although one adapter of the target places
// data after it has acknowledged them (DESIGN "Failure" 2, uct_mp/PROTOCOL.md). Every sequence that UCT promises an
// order for, over all policies, by content; to a peer, to oneself, and told by a third one.
#define BOOST_TEST_MODULE transport_visibility
#include <cstring>
#include <memory>
#include <sstream>

#include "both_transports.h"
#include "softhca/fabric.h"
#include "uct_mp/schedule/policy_factory.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
using channel::AtomicOp;

namespace {

constexpr const char* kLate = "30us"; // longer than a round trip
constexpr std::size_t kSizes[] = {8, 256, 4096, 65536, 1 << 20}, kLargest = 1 << 20;
constexpr const char* kPolicies[] = {"default", "even", "round_robin", "spray", "binding"};
constexpr unsigned kRounds = 2; // of each: the second one finds paths that are known
constexpr unsigned kTold = 3;   // AM id

// What follows the put, and then looks at it.
enum class Then { complete_am, flush_am, fence_am, fence_flag, fence_get, flush_get, flush_add };
constexpr Then kAll[] = {Then::complete_am, Then::flush_am,  Then::fence_am, Then::fence_flag,
                         Then::fence_get,   Then::flush_get, Then::flush_add};
constexpr const char* kNames[] = {"put, complete, am",         "put, flush, am",  "put, fence, am",
                                  "put, fence, put of a flag", "put, fence, get", "put, flush, get",
                                  "put, flush, fetch-add"};

struct Done : Completion {
    Done() : Completion{fired, 1, Status::ok} {}
    bool done = false;
    static void fired(Completion* self) { static_cast<Done*>(self)->done = true; }
};

const softhca::FabricImage& two_rail() {
    static const softhca::FabricBlock block = softhca::load_fabric("two-rail"); // read once
    return block.image();
}

// One put from node `from` to node `to`, and what is seen of it.
class Look {
public:
    Look(Cluster& cluster, unsigned from, unsigned to)
        : cluster_(cluster), from_(from), to_(to), source_(cluster.node(from).memory(kLargest)),
          target_(cluster.node(to).memory(kLargest)), flag_(cluster.node(to).memory(4096)),
          back_(cluster.node(from).memory(kLargest)) {
        cluster.node(to).on_am(kTold, told, this);
        Done flushed;
        go([&] { return iface().am_short(channel(), kTold + 1, 0, nullptr, 0); }, nullptr); // connects
        go([&] { return iface().flush(channel(), &flushed); }, &flushed);
    }
    // Bytes that were wrong; -1: it has not ended.
    long stale(Then then, std::size_t size) {
        ++round_;
        size_ = size;
        for (std::size_t i = 0; i < size; ++i) source_.data[i] = pattern(i);
        std::memset(target_.data, 0, size);
        std::memset(back_.data, 0, size);
        told_ = -1;
        Done put, second, third;
        const Iov iov = source_.iov(0, size);
        if (!go([&] { return iface().put_zcopy(channel(), &iov, 1, target_.address(), target_.keys, &put); },
                then == Then::complete_am ? &put : nullptr))
            return -1;
        const bool put_open = open_;
        const bool flushes = then == Then::flush_am || then == Then::flush_get || then == Then::flush_add;
        if (flushes && !go([&] { return iface().flush(channel(), &second); }, &second)) return -1;
        if (!flushes && then != Then::complete_am) (void)iface().fence(channel());
        long wrong = -1;
        switch (then) {
        case Then::complete_am:
        case Then::flush_am:
        case Then::fence_am:
            (void)go([&] { return iface().am_short(channel(), kTold, 0, nullptr, 0); }, nullptr);
            (void)cluster_.until([&] { return told_ >= 0; });
            wrong = told_;
            break;
        case Then::fence_flag:
            (void)go([&] { return iface().put_short(channel(), &round_, sizeof round_, flag_.address(), flag_.keys); },
                     nullptr);
            if (cluster_.until([&] { return std::memcmp(flag_.data, &round_, sizeof round_) == 0; }))
                wrong = wrong_bytes(target_);
            break;
        case Then::fence_get:
        case Then::flush_get: {
            const Iov into = back_.iov(0, size);
            if (go([&] { return iface().get_zcopy(channel(), &into, 1, target_.address(), target_.keys, &third); },
                   &third))
                wrong = wrong_bytes(back_);
            break;
        }
        case Then::flush_add: {
            std::uint64_t old = 0, first, now;
            if (!go(
                    [&] {
                        return iface().atomic_fetch(channel(), AtomicOp::add, 8, 1, 0, &old, target_.address(),
                                                    target_.keys, &third);
                    },
                    &third))
                break;
            cluster_.run_for(200'000); // a late write would wipe the sum out
            std::memcpy(&first, source_.data, 8);
            std::memcpy(&now, target_.data, 8);
            wrong = 8 * (old != first) + 8 * (now != first + 1);
            break;
        }
        }
        // Nothing is under way when the memory is used again.
        Done end;
        if (!go([&] { return iface().flush(channel(), &end); }, &end)) return -1;
        cluster_.run_for(100'000);
        return put.done || !put_open ? wrong : -1;
    }
    [[nodiscard]] long wrong_bytes(const Node::Memory& memory) const {
        long wrong = 0;
        for (std::size_t i = 0; i < size_; ++i) wrong += memory.data[i] != pattern(i);
        return wrong;
    }
    [[nodiscard]] bool put(std::size_t size, Done& done) {
        size_ = size;
        ++round_;
        for (std::size_t i = 0; i < size; ++i) source_.data[i] = pattern(i);
        std::memset(target_.data, 0, size);
        const Iov iov = source_.iov(0, size);
        return go([&] { return iface().put_zcopy(channel(), &iov, 1, target_.address(), target_.keys, &done); },
                  nullptr);
    }
    // Until it has been taken, and has completed if `done` is given.
    template <class Operation> bool go(Operation operation, Done* done) {
        Status status = Status::no_resource;
        if (!cluster_.until([&] { return (status = operation()) != Status::no_resource; })) return false;
        BOOST_REQUIRE(!failed(status));
        open_ = status == Status::in_progress;
        return !done || status == Status::ok || cluster_.until([&] { return done->done; });
    }
    [[nodiscard]] channel::Interface& iface() { return cluster_.node(from_).iface(); }
    [[nodiscard]] Channel& channel() { return cluster_.channel(from_, to_); }
    [[nodiscard]] const Node::Memory& target() const { return target_; }

private:
    [[nodiscard]] std::byte pattern(std::size_t i) const {
        return static_cast<std::byte>(1 + (i * 131 + round_ * 29 + (i >> 8)) % 255);
    }
    static Status told(void* self, void*, std::size_t, unsigned) {
        auto& look = *static_cast<Look*>(self);
        look.told_ = look.wrong_bytes(look.target_);
        return Status::ok;
    }
    Cluster& cluster_;
    const unsigned from_, to_;
    Node::Memory source_, target_, flag_, back_;
    std::uint64_t round_ = 0;
    std::size_t size_ = 0;
    long told_ = -1;
    bool open_ = false; // what go() did last was not done at once
};

channel::Config visibility_config(connect::Transport transport, const char* policy) {
    channel::Config config;
    config.transport = transport;
    config.policy = *schedule::make_policy(policy).config;
    config.receive_depth = 256;
    return config;
}

struct Verdict {
    unsigned cases = 0, stale = 0;
    std::ostringstream which;
    template <class Case> void add(long wrong, const Case& name) {
        ++cases;
        if (wrong == 0) return;
        ++stale;
        which << "\n  ";
        name(which);
        if (wrong < 0)
            which << ": does not end";
        else
            which << ": " << wrong << " bytes";
    }
};

// All sequences, sizes, policies and late adapters. `knob`: how they are late.
void look(connect::Transport transport, unsigned from, unsigned to, const char* knob = "place-delay",
          channel::ReadBack read_back = channel::ReadBack::several) {
    Verdict verdict;
    for (const char* policy : kPolicies)
        for (const unsigned late : {0u, 1u})
            for (const Then then : kAll) {
                channel::Config config = visibility_config(transport, policy);
                config.read_back = read_back;
                Cluster cluster(two_rail(), std::max(from, to) + 1, config, {.seed = 1});
                Look look(cluster, from, to);
                cluster.world.fault(std::string(knob) + " " + kLate + " " + std::to_string(to) + ":softhca_" +
                                    std::to_string(late));
                for (const std::size_t size : kSizes) {
                    long wrong = 0;
                    for (unsigned round = 0; round < kRounds && wrong == 0; ++round) wrong = look.stale(then, size);
                    verdict.add(wrong, [&](std::ostream& out) {
                        out << kNames[static_cast<unsigned>(then)] << ", " << policy << ", adapter " << late
                            << " late, " << size << " bytes";
                    });
                }
            }
    BOOST_TEST_MESSAGE(verdict.stale << " of " << verdict.cases << " cases");
    BOOST_TEST(verdict.stale == 0u,
               "stale in " << verdict.stale << " of " << verdict.cases << " cases:" << verdict.which.str());
}

} // namespace

BOOST_DATA_TEST_CASE(to_a_peer, kBoth, transport) { look(transport, 0, 1); }
BOOST_DATA_TEST_CASE(to_oneself, kBoth, transport) { look(transport, 0, 0); }

// An adapter that keeps order within each queue pair only, not between them: what UCX_MP_READ_BACK=always is for.
BOOST_DATA_TEST_CASE(adapters_without_order, kBoth, transport) {
    look(transport, 0, 1, "place-delay-qp", channel::ReadBack::always);
}

// The same between the queue pairs of one adapter. The sequences that the usual way of reading gets wrong there show
// that the test sees something.
BOOST_DATA_TEST_CASE(one_adapter_without_order, kBoth, transport) {
    unsigned stale[2] = {0, 0};
    for (const bool always : {false, true})
        for (const Then then : kAll)
            for (const std::size_t size : kSizes) {
                channel::Config config = visibility_config(transport, "round_robin");
                config.paths.num_paths = 4;
                config.read_back = always ? channel::ReadBack::always : channel::ReadBack::several;
                verbs::DeviceConfig rails;
                rails.rails = {"softhca_0"};
                Cluster cluster("dual-port", 2, config, {.seed = 1}, rails);
                Look look(cluster, 0, 1);
                cluster.world.fault(std::string("place-delay-qp ") + kLate + " 1:softhca_0");
                for (unsigned round = 0; round < 4; ++round) stale[always] += look.stale(then, size) != 0;
            }
    BOOST_TEST(stale[true] == 0u);
    BOOST_TEST(stale[false] > 0u);
}

// A puts to C and flushes, then tells B, who tells C: whichever way that takes, C sees what A has put.
BOOST_DATA_TEST_CASE(told_by_a_third, kBoth, transport) {
    struct Relay {
        Cluster* cluster;
        Look* look;
        long wrong = -1;
        bool due = false;
        static Status to_b(void* self, void*, std::size_t, unsigned) {
            static_cast<Relay*>(self)->due = true; // passed on from outside of the handler
            return Status::ok;
        }
        static Status to_c(void* self, void*, std::size_t, unsigned) {
            auto& relay = *static_cast<Relay*>(self);
            relay.wrong = relay.look->wrong_bytes(relay.look->target());
            return Status::ok;
        }
    };
    constexpr unsigned kA = 0, kB = 1, kC = 2;
    Verdict verdict;
    for (const char* policy : kPolicies)
        for (const unsigned late : {0u, 1u}) {
            Cluster cluster(two_rail(), 3, visibility_config(transport, policy), {.seed = 1});
            Look look(cluster, kA, kC);
            Relay relay{&cluster, &look};
            cluster.node(kB).on_am(7, Relay::to_b, &relay);
            cluster.node(kC).on_am(8, Relay::to_c, &relay);
            Channel& ab = cluster.channel(kA, kB);
            Channel& bc = cluster.channel(kB, kC);
            for (Channel* channel : {&ab, &bc})
                (void)look.go([&] { return channel::Interface::am_short(*channel, 9, 0, nullptr, 0); }, nullptr);
            cluster.run_for(1'000'000);
            cluster.world.fault(std::string("place-delay ") + kLate + " 2:softhca_" + std::to_string(late));
            for (const std::size_t size : kSizes)
                for (unsigned told = 0; told < 4; ++told) { // over any rail
                    relay.wrong = -1;
                    relay.due = false;
                    Done put, flushed;
                    BOOST_REQUIRE(look.put(size, put));
                    BOOST_REQUIRE(look.go([&] { return look.iface().flush(look.channel(), &flushed); }, &flushed));
                    BOOST_REQUIRE(look.go([&] { return channel::Interface::am_short(ab, 7, 0, nullptr, 0); }, nullptr));
                    BOOST_REQUIRE(cluster.until([&] { return relay.due; }));
                    BOOST_REQUIRE(look.go([&] { return channel::Interface::am_short(bc, 8, 0, nullptr, 0); }, nullptr));
                    (void)cluster.until([&] { return relay.wrong >= 0; });
                    verdict.add(relay.wrong, [&](std::ostream& out) {
                        out << policy << ", adapter " << late << " late, " << size << " bytes, message " << told;
                    });
                    cluster.run_for(100'000);
                }
        }
    BOOST_TEST_MESSAGE(verdict.stale << " of " << verdict.cases << " cases");
    BOOST_TEST(verdict.stale == 0u,
               "stale in " << verdict.stale << " of " << verdict.cases << " cases:" << verdict.which.str());
}
