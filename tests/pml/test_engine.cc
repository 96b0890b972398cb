// Engines that talk to each other over a network of dice (fake_port.h): random programs of all kinds of sends and
// receives. Every message has contents of its own. Checked: contents, lengths, truncation, MPI's order, that
// synchronous sends end after their receive began, that everything ends, and that nothing stays registered.
#define BOOST_TEST_MODULE pml_engine
#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <cstring>
#include <list>
#include <map>

#include "pml_glue/core/engine/engine.h"
#include "tests/pml/fake_port.h"

using namespace ucx_mp::glue;
using namespace ucx_mp::glue::test;

namespace {

// "Derived": every second byte of the user's memory. The convertor of a request.
struct Strided {
    unsigned char* memory;
};
std::size_t pack(void* convertor, std::size_t offset, void* out, std::size_t bytes) {
    const auto& from = *static_cast<Strided*>(convertor);
    for (std::size_t i = 0; i < bytes; ++i) static_cast<unsigned char*>(out)[i] = from.memory[2 * (offset + i)];
    return bytes;
}
void unpack(void* convertor, std::size_t offset, const void* in, std::size_t bytes) {
    const auto& to = *static_cast<Strided*>(convertor);
    for (std::size_t i = 0; i < bytes; ++i) to.memory[2 * (offset + i)] = static_cast<const unsigned char*>(in)[i];
}

unsigned char content(int from, int number, std::size_t at) {
    const std::uint64_t x =
        (static_cast<std::uint64_t>(from) * 1000003 + static_cast<std::uint64_t>(number)) * 0x9e3779b97f4a7c15u +
        at * 0xd6e8feb86659fd93u;
    return static_cast<unsigned char>(x >> 40);
}

struct Operation {
    mp_request_storage_t storage{};
    bool send = false, synchronous = false;
    int rank = 0, number = 0; // of a send: who, its number there
    Envelope envelope{};      // of a receive: the pattern
    std::size_t bytes = 0;
    std::vector<unsigned char> memory;
    Strided strided{};
    bool derived = false, cancelled = false, done = false, checked = false;
    std::uint64_t started = 0;

    [[nodiscard]] Request& request() { return Request::of(storage); }
    [[nodiscard]] mp_data_t data() {
        if (derived) return {memory.data(), bytes, &strided};
        return {memory.data(), bytes, nullptr};
    }
    [[nodiscard]] unsigned char at(std::size_t i) const { return memory[derived ? 2 * i : i]; }
    void resize(std::size_t length) {
        bytes = length;
        memory.assign(derived ? 2 * length + 2 : length + 1, 0xee);
        strided.memory = memory.data();
    }
};

struct World;
struct Rank {
    World* world;
    int number;
    std::unique_ptr<FakePort> port;
    std::unique_ptr<Engine> engine;
    std::list<Operation> operations;
    int sends = 0;
    std::map<std::pair<int, int>, int> last; // number of the last message from (source, tag) in this context
};

// Sizes of the program's messages; the first bytes of each are sender and number, so that a receive can tell it.
constexpr std::size_t kSizes[] = {8, 16, 40, 48, 100, 500, 584, 585, 600, 700, 3000, 5000, 5001, 20000};
constexpr std::uint32_t kContext = 5;

struct World {
    FakeNetwork network;
    std::vector<std::unique_ptr<Rank>> ranks;
    std::map<std::pair<int, int>, std::size_t> sent; // (source, number) -> bytes
    unsigned reports = 0, failed = 0;
    std::size_t open = 0;
    bool faulty = false;

    World(std::uint32_t seed, int count, bool by_put) : network(seed) {
        network.no_room = seed % 3 == 0 ? 0 : 2 + seed % 5;
        network.can_move = seed % 5 != 0;
        for (int i = 0; i < count; ++i) {
            auto rank = std::make_unique<Rank>();
            rank->world = this;
            rank->number = i;
            rank->port = std::make_unique<FakePort>(network);
            const mp_hooks_t hooks{.argument = rank.get(),
                                   .pack = pack,
                                   .unpack = unpack,
                                   .completed = completed,
                                   .address = address,
                                   .is_source = is_source,
                                   .process = process_at,
                                   .report = report};
            const mp_config_t config{.process = 100 + static_cast<std::uint64_t>(i),
                                     .transports = nullptr,
                                     .local = nullptr,
                                     .eager_limit = seed % 4 == 1   ? 64u
                                                    : seed % 4 == 2 ? MP_AUTO
                                                                    : 4000u,
                                     .zero_copy = seed % 2   ? 200u
                                                  : seed % 4 ? MP_AUTO
                                                             : SIZE_MAX,
                                     .hint_limit = 1000,
                                     .rendezvous_by_put = by_put,
                                     .watch_interval = 1000};
            rank->engine = std::make_unique<Engine>(*rank->port, config, hooks);
            ranks.push_back(std::move(rank));
        }
    }
    ~World() {
        for (const auto& rank : ranks) rank->engine.reset();
    }

    int below(std::size_t n) { return static_cast<int>(network.random() % n); }
    static Rank& of(void* argument) { return *static_cast<Rank*>(argument); }
    static bool address(void*, std::uint64_t process, void** out, std::size_t* length) {
        *out = std::malloc(1);
        *static_cast<unsigned char*>(*out) = static_cast<unsigned char>(process - 100);
        *length = 1;
        return true;
    }
    static bool is_source(void*, std::uint32_t, std::int32_t source, std::uint64_t process) {
        return source == kAnySource || process == 100 + static_cast<std::uint64_t>(source);
    }
    static bool process_at(void*, std::uint32_t, std::int32_t source, std::uint64_t* process) {
        *process = 100 + static_cast<std::uint64_t>(source);
        return true;
    }
    static void report(void* rank, const char* line) {
        ++of(rank).world->reports;
        BOOST_TEST_MESSAGE(line);
    }
    static void completed(void* argument, mp_request_t* request) {
        Rank& rank = of(argument);
        for (Operation& each : rank.operations)
            if (&each.storage.request == request) {
                BOOST_REQUIRE(!each.done);
                each.done = true;
                --rank.world->open;
                rank.world->check(rank, each);
                return;
            }
        BOOST_FAIL("a request is complete that nobody knows");
    }

    void check(Rank& rank, Operation& each) {
        const mp_status_t& status = each.storage.request.status;
        if (status.error == MP_CANCELLED) {
            BOOST_REQUIRE(!each.send);
            each.cancelled = true;
            return;
        }
        if (status.error == MP_FAILED) {
            BOOST_REQUIRE(faulty || network.refuses);
            ++failed;
            if (each.send) sent.erase({rank.number, each.number}); // perhaps it has not left
            return;
        }
        if (each.send) {
            BOOST_REQUIRE_EQUAL(status.error, MP_OK);
            std::fill(each.memory.begin(), each.memory.end(), 0xdd); // ours again
            return;
        }
        BOOST_REQUIRE(each.envelope.takes({kContext, status.source, status.tag}));
        int number;
        unsigned char first[4];
        for (std::size_t i = 0; i < 4; ++i) first[i] = each.at(i);
        std::memcpy(&number, first, 4);
        const auto found = sent.find({status.source, number});
        BOOST_REQUIRE(found != sent.end());
        const std::size_t fits = std::min(found->second, each.bytes);
        BOOST_REQUIRE_EQUAL(status.bytes, fits);
        BOOST_REQUIRE_EQUAL(status.error, found->second > each.bytes ? MP_TRUNCATED : MP_OK);
        std::size_t wrong = 0;
        for (std::size_t i = 4; i < each.bytes; ++i)
            wrong += each.at(i) != (i < fits ? content(status.source, number, i) : 0xee);
        BOOST_REQUIRE_EQUAL(wrong, 0u);
        // Each message once.
        sent.erase(found);
        (void)rank;
    }

    void send(Rank& rank) {
        Operation& each = rank.operations.emplace_back();
        const int to = below(ranks.size());
        each.send = true;
        each.synchronous = below(5) == 0;
        each.derived = below(4) == 0;
        each.number = ++rank.sends;
        each.resize(kSizes[below(std::size(kSizes))]);
        each.envelope = {kContext, rank.number, below(3) - 1};
        if (each.envelope.tag < 0 && below(2)) each.envelope.tag = -5000000 - 4000000; // does not fit the short form
        for (std::size_t i = 0; i < each.bytes; ++i)
            each.memory[each.derived ? 2 * i : i] =
                i < 4 ? reinterpret_cast<unsigned char*>(&each.number)[i] : content(rank.number, each.number, i);
        sent[{rank.number, each.number}] = each.bytes;
        Peer* const peer = rank.engine->peer(100 + static_cast<std::uint64_t>(to));
        BOOST_REQUIRE(peer);
        if (!each.derived && !each.synchronous && below(2) &&
            rank.engine->send_now(*peer, each.envelope, each.memory.data(), each.bytes)) {
            each.done = true;
            std::fill(each.memory.begin(), each.memory.end(), 0xdd);
            return;
        }
        ++open;
        rank.engine->send(each.request(), *peer, each.envelope, each.data(), each.synchronous,
                          static_cast<Hint>(below(3)));
    }

    Envelope pattern() {
        Envelope result{kContext, below(ranks.size()), below(3) - 1};
        if (result.tag < 0 && below(2)) result.tag = -9000000;
        if (below(2)) result.source = kAnySource;
        if (below(3) == 0) result.tag = kAnyTag;
        return result;
    }
    void receive(Rank& rank, const Envelope& wanted, bool exact) {
        Operation& each = rank.operations.emplace_back();
        each.derived = below(4) == 0;
        each.envelope = wanted;
        each.resize(exact ? 20000 : kSizes[below(std::size(kSizes))]);
        ++open;
        if (!each.derived && below(3) == 0 &&
            rank.engine->receive_now(wanted, each.memory.data(), each.bytes, each.storage.request.status)) {
            each.done = true;
            --open;
            return check(rank, each);
        }
        if (below(3) == 0) {
            if (StoredEntry* const message = rank.engine->find(wanted)) {
                rank.engine->take(*message);
                return rank.engine->receive_message(each.request(), *message, each.data(), Hint::blocking);
            }
        }
        rank.engine->receive(each.request(), wanted, each.data(), static_cast<Hint>(below(4)));
    }
    void cancel(Rank& rank) {
        for (Operation& each : rank.operations)
            if (!each.done && !each.send && below(3) == 0) {
                const bool cancelled = rank.engine->cancel(each.request());
                BOOST_REQUIRE_EQUAL(cancelled, each.done);
                return;
            }
    }
    void progress() {
        for (const auto& rank : ranks) rank->engine->progress();
    }
    // Until nobody has anything to do, or too long.
    bool settle() {
        for (int idle = 0, turns = 0; idle < 50; ++turns) {
            if (turns > 200000) return false;
            unsigned moved = 0;
            for (const auto& rank : ranks) moved += rank->engine->progress();
            idle = moved ? 0 : idle + 1;
        }
        return true;
    }
    // Takes what is left: every message finds a receive, every receive is cancelled.
    void finish() {
        for (int round = 0; round < 20000 && open; ++round) {
            BOOST_REQUIRE(settle());
            for (const auto& rank : ranks) {
                for (const std::int32_t tag : {kAnyTag, -1, -9000000})
                    while (rank->engine->find({kContext, kAnySource, tag}))
                        receive(*rank, {kContext, kAnySource, tag}, true);
            }
            BOOST_REQUIRE(settle());
            bool more = false;
            for (const auto& rank : ranks)
                for (const std::int32_t tag : {kAnyTag, -1, -9000000})
                    more |= rank->engine->find({kContext, kAnySource, tag}) != nullptr;
            if (more) continue;
            for (const auto& rank : ranks)
                for (Operation& each : rank->operations)
                    if (!each.done && !each.send) rank->engine->cancel(each.request());
        }
    }
};

std::pair<std::uint32_t, std::uint32_t> seeds(std::uint32_t count) {
    const char* const given = std::getenv("TESTS_SEED");
    const std::uint32_t first = given ? static_cast<std::uint32_t>(std::atol(given)) : 1;
    return {first, given ? first + 1 : first + count};
}

} // namespace

BOOST_AUTO_TEST_CASE(random_programs_end_with_the_right_contents) {
    const auto [first, end] = seeds(300);
    for (std::uint32_t seed = first; seed < end; ++seed) {
        BOOST_TEST_INFO("TESTS_SEED=" << seed);
        BOOST_TEST_CONTEXT("TESTS_SEED=" << seed) {
            World world(seed, 1 + static_cast<int>(seed % 4), seed % 2);
            for (int step = 0; step < 400; ++step) {
                Rank& rank = *world.ranks[static_cast<std::size_t>(world.below(world.ranks.size()))];
                const int what = world.below(16);
                if (what < 6)
                    world.send(rank);
                else if (what < 11)
                    world.receive(rank, world.pattern(), false);
                else if (what == 11)
                    world.cancel(rank);
                else
                    world.progress();
            }
            world.finish();
            BOOST_REQUIRE_EQUAL(world.open, 0u);
            BOOST_REQUIRE(world.sent.empty());
            BOOST_REQUIRE_EQUAL(world.network.registered, 0u);
            BOOST_REQUIRE_EQUAL(world.network.keys, 0u);
            BOOST_REQUIRE_EQUAL(world.reports, 0u);
        }
    }
}

// An operation that the network refuses has failed, or takes another way; the peer has not, and hears of it.
BOOST_AUTO_TEST_CASE(what_is_refused_fails_alone) {
    const auto [first, end] = seeds(200);
    unsigned failed = 0;
    for (std::uint32_t seed = first; seed < end; ++seed) {
        BOOST_TEST_CONTEXT("TESTS_SEED=" << seed) {
            World world(seed, 2, seed % 2);
            world.network.refuses = 5;
            for (int step = 0; step < 300; ++step) {
                Rank& rank = *world.ranks[static_cast<std::size_t>(world.below(2))];
                if (world.below(2))
                    world.send(rank);
                else
                    world.progress();
            }
            world.finish();
            BOOST_REQUIRE_EQUAL(world.open, 0u);
            BOOST_REQUIRE(world.sent.empty());
            BOOST_REQUIRE_EQUAL(world.network.registered, 0u);
            BOOST_REQUIRE_EQUAL(world.network.keys, 0u);
            BOOST_REQUIRE_EQUAL(world.reports, 0u); // nobody is gone
            failed += world.failed;
        }
    }
    BOOST_TEST(failed > 100u);
}

// Who is waited for is asked whether it lives: a source, one that has our offer; nobody else.
BOOST_AUTO_TEST_CASE(who_is_waited_for_is_asked) {
    World world(3, 3, false);
    Rank& rank = *world.ranks[0];
    for (const auto& each : world.ranks) each->port->tick = 1000; // else no time passes
    const auto checks = [&](int of) {
        unsigned count = 0;
        for (const FakeEndpoint* endpoint : rank.port->endpoints)
            if (&endpoint->to == world.ranks[static_cast<std::size_t>(of)]->port.get()) count += endpoint->checks;
        return count;
    };
    const auto turns = [&] {
        for (int i = 0; i < 3000; ++i) world.progress();
    };
    turns();
    BOOST_TEST(rank.port->endpoints.empty());
    world.receive(rank, {kContext, 1, 5}, true);
    turns();
    BOOST_TEST(checks(1) > 0u);
    BOOST_TEST(checks(2) == 0u);
    Operation& send = rank.operations.emplace_back();
    send.send = true;
    send.resize(20000);
    ++world.open;
    rank.engine->send(send.request(), *rank.engine->peer(102), {kContext, 0, 9}, send.data(), true, Hint::none);
    turns();
    BOOST_TEST(checks(2) > 0u);
}

// Messages of one sender with one tag are received in the order in which they were sent, whatever their sizes and
// protocols (MPI-3.1 3.5), although the queue has to wait for room at every other message.
BOOST_AUTO_TEST_CASE(messages_do_not_overtake) {
    const auto [first, end] = seeds(200);
    for (std::uint32_t seed = first; seed < end; ++seed) {
        BOOST_TEST_CONTEXT("TESTS_SEED=" << seed) {
            World world(seed, 2, seed % 2);
            Rank &from = *world.ranks[0], &to = *world.ranks[1];
            Peer* const peer = from.engine->peer(101);
            std::vector<Operation> sends(60), receives(60);
            const auto receive = [&](std::size_t i) {
                to.operations.emplace_back().resize(20000);
                Operation& each = to.operations.back();
                each.envelope = {kContext, i % 3 ? 0 : kAnySource, i % 5 ? 7 : kAnyTag};
                ++world.open;
                to.engine->receive(each.request(), each.envelope, each.data(), Hint::none);
            };
            const std::size_t early = seed % 60;
            for (std::size_t i = 0; i < early; ++i) receive(i);
            for (int i = 1; i <= 60; ++i) {
                from.operations.emplace_back().derived = world.below(4) == 0;
                Operation& each = from.operations.back();
                each.send = true;
                each.number = i;
                each.resize(kSizes[world.below(std::size(kSizes))]);
                for (std::size_t k = 0; k < each.bytes; ++k)
                    each.memory[each.derived ? 2 * k : k] =
                        k < 4 ? reinterpret_cast<unsigned char*>(&i)[k] : content(0, i, k);
                world.sent[{0, i}] = each.bytes;
                ++world.open;
                from.engine->send(each.request(), *peer, {kContext, 0, 7}, each.data(), world.below(5) == 0,
                                  Hint::none);
                if (world.below(3) == 0) world.progress();
            }
            for (std::size_t i = early; i < 60; ++i) {
                receive(i);
                if (world.below(3) == 0) world.progress();
            }
            BOOST_REQUIRE(world.settle());
            BOOST_REQUIRE_EQUAL(world.open, 0u);
            int expected = 0;
            for (Operation& each : to.operations) {
                int number;
                unsigned char bytes[4] = {each.at(0), each.at(1), each.at(2), each.at(3)};
                std::memcpy(&number, bytes, 4);
                BOOST_REQUIRE_EQUAL(number, ++expected);
            }
        }
    }
}

// A synchronous send is not complete before its receive has been posted (MPI-3.1 3.4).
BOOST_AUTO_TEST_CASE(synchronous_sends_wait_for_their_receive) {
    for (const std::size_t bytes : {0u, 8u, 500u, 20000u}) {
        World world(7, 2, false);
        Rank &from = *world.ranks[0], &to = *world.ranks[1];
        Operation& send = from.operations.emplace_back();
        send.send = true;
        send.resize(bytes);
        const int number = 1;
        if (bytes) std::memcpy(send.memory.data(), &number, 4);
        for (std::size_t i = 4; i < bytes; ++i) send.memory[i] = content(0, 1, i);
        world.sent[{0, bytes ? 1 : static_cast<int>(0xeeeeeeee)}] = bytes;
        world.open = 1;
        from.engine->send(send.request(), *from.engine->peer(101), {kContext, 0, 3}, send.data(), true, Hint::none);
        BOOST_REQUIRE(world.settle());
        BOOST_TEST(!send.done);
        BOOST_TEST(to.engine->find({kContext, kAnySource, kAnyTag}) != nullptr);
        BOOST_REQUIRE(world.settle());
        BOOST_TEST(!send.done);
        Operation& receive = to.operations.emplace_back();
        receive.resize(bytes ? bytes : 4);
        receive.envelope = {kContext, 0, 3};
        ++world.open;
        to.engine->receive(receive.request(), receive.envelope, receive.data(), Hint::none);
        BOOST_REQUIRE(world.settle());
        BOOST_TEST(send.done);
        BOOST_TEST(receive.done);
    }
}

// A peer that is gone ends everything that needs it, and nothing else.
BOOST_AUTO_TEST_CASE(a_peer_that_fails_ends_what_needs_it) {
    const auto [first, end] = seeds(200);
    for (std::uint32_t seed = first; seed < end; ++seed) {
        BOOST_TEST_CONTEXT("TESTS_SEED=" << seed) {
            World world(seed, 3, seed % 2);
            world.faulty = true;
            for (int step = 0; step < 150; ++step) {
                Rank& rank = *world.ranks[static_cast<std::size_t>(world.below(3))];
                const int what = world.below(14);
                if (what < 6)
                    world.send(rank);
                else if (what < 10)
                    world.receive(rank, {kContext, world.below(3), world.below(2)}, false);
                else
                    world.progress();
            }
            for (const int survivor : {0, 1})
                for (FakeEndpoint* endpoint : world.ranks[static_cast<std::size_t>(survivor)]->port->endpoints)
                    if (&endpoint->to == world.ranks[2]->port.get()) {
                        endpoint->fail();
                        world.ranks[static_cast<std::size_t>(survivor)]->port->listener->endpoint_failed(*endpoint);
                    }
            for (FakeEndpoint* endpoint : world.ranks[2]->port->endpoints) endpoint->failed = true; // says nothing more
            for (const int survivor : {0, 1}) {
                Rank& rank = *world.ranks[static_cast<std::size_t>(survivor)];
                // Connected, so that it is known to have failed.
                Peer* const dead = rank.engine->peer(102);
                if (!dead->failed) {
                    static_cast<FakeEndpoint&>(*dead->endpoint).fail();
                    rank.port->listener->endpoint_failed(*dead->endpoint);
                }
            }
            for (int i = 0; i < 3000; ++i)
                for (const int survivor : {0, 1}) world.ranks[static_cast<std::size_t>(survivor)]->engine->progress();
            for (const int survivor : {0, 1}) {
                Rank& rank = *world.ranks[static_cast<std::size_t>(survivor)];
                for (Operation& each : rank.operations)
                    if (!each.done) {
                        // Only what the other survivor could still match.
                        BOOST_REQUIRE(each.send ? each.request().peer->process != 102 : each.envelope.source != 2);
                    }
                Operation& late = rank.operations.emplace_back();
                late.envelope = {kContext, 2, 77};
                late.resize(8);
                ++world.open;
                rank.engine->receive(late.request(), late.envelope, late.data(), Hint::none);
                BOOST_REQUIRE(late.done);
                BOOST_REQUIRE(rank.engine->source_failed({kContext, kAnySource, 1}));
            }
        }
    }
}

// What no engine sends: nothing is believed, nothing changes, nothing is read beyond its end.
BOOST_AUTO_TEST_CASE(messages_that_make_no_sense_are_dropped) {
    World world(3, 2, true);
    FakePort& port = *world.ranks[0]->port;
    for (int i = 0; i < 20000; ++i) {
        std::vector<std::byte> data(static_cast<std::size_t>(world.below(90)));
        for (std::byte& each : data) each = static_cast<std::byte>(world.below(3) ? 0 : world.below(256));
        const auto kind = static_cast<MessageKind>(wire::kClear + world.below(4)); // answers to what was never asked
        port.arrive(kind, data);
    }
    BOOST_TEST(world.reports == 1u); // the first one
    BOOST_TEST(world.ranks[0]->engine->statistics().find("dropped 20000") != std::string::npos);
}
