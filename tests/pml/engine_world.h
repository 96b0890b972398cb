// Engines that talk to each other over a network of dice (fake_port.h), and random programs for them. Every message has
// contents of its own, and is checked when it is received.
#pragma once
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>

#include "pml_glue/core/engine/engine.h"
#include "tests/pml/fake_port.h"

namespace ucx_mp::glue::test {

// "Derived": every second byte of the user's memory. The convertor of a request.
struct Strided {
    unsigned char* memory;
};
inline std::size_t pack(void* convertor, std::size_t offset, void* out, std::size_t bytes) {
    const auto& from = *static_cast<Strided*>(convertor);
    for (std::size_t i = 0; i < bytes; ++i) static_cast<unsigned char*>(out)[i] = from.memory[2 * (offset + i)];
    return bytes;
}
inline void unpack(void* convertor, std::size_t offset, const void* in, std::size_t bytes) {
    const auto& to = *static_cast<Strided*>(convertor);
    for (std::size_t i = 0; i < bytes; ++i) to.memory[2 * (offset + i)] = static_cast<const unsigned char*>(in)[i];
}

inline unsigned char content(int from, int number, std::size_t at) {
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
    unsigned reports = 0, failed = 0, forgotten_peers = 0;
    std::size_t open = 0;
    bool faulty = false, alone = false;
    bool threads = false; // progress threads have some turns: nobody is told anything meanwhile
    const bool strangers; // each is of a job of its own

    World(std::uint32_t seed, int count, bool by_put, bool each_alone = false) : network(seed), strangers(each_alone) {
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
                                   .forgotten = forgotten,
                                   .report = report,
                                   .unmapped = nullptr};
            const mp_config_t config{.process = process(i),
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
                                     .burst = seed % 3,
                                     .watch_interval = 1000,
                                     .watch_strangers = true};
            rank->engine = std::make_unique<Engine>(*rank->port, config, hooks);
            ranks.push_back(std::move(rank));
        }
    }
    ~World() {
        for (const auto& rank : ranks) rank->engine.reset();
    }

    int below(std::size_t n) { return static_cast<int>(network.random() % n); }
    [[nodiscard]] std::uint64_t process(int number) const {
        const auto name = static_cast<std::uint64_t>(number) + 100;
        return strangers ? name << 32 | name : name;
    }
    static Rank& of(void* argument) { return *static_cast<Rank*>(argument); }
    static bool address(void* rank, std::uint64_t process, void** out, std::size_t* length) {
        BOOST_REQUIRE(!of(rank).engine->kept().in_thread);
        *out = std::malloc(1);
        *static_cast<unsigned char*>(*out) = static_cast<unsigned char>(static_cast<std::uint32_t>(process) - 100);
        *length = 1;
        return true;
    }
    static bool is_source(void* rank, std::uint32_t, std::int32_t source, std::uint64_t process) {
        BOOST_REQUIRE(!of(rank).engine->kept().in_thread);
        return source == kAnySource || process == of(rank).world->process(source);
    }
    // With `alone` the first one is not among those that messages come from.
    static bool process_at(void* rank, std::uint32_t, std::int32_t source, std::uint64_t* process) {
        const World& world = *of(rank).world;
        *process = world.process(source + world.alone);
        return static_cast<std::size_t>(source) + world.alone < world.ranks.size();
    }
    static void forgotten(void* rank, std::uint64_t) { ++of(rank).world->forgotten_peers; }
    static void report(void* rank, const char* line) {
        BOOST_REQUIRE(!of(rank).engine->kept().in_thread);
        ++of(rank).world->reports;
        BOOST_TEST_MESSAGE(line);
    }
    static void completed(void* argument, mp_request_t* request) {
        Rank& rank = of(argument);
        BOOST_REQUIRE(!rank.engine->kept().in_thread && request->complete);
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
        Peer* const peer = rank.engine->peer(process(to));
        BOOST_REQUIRE(peer);
        if (!each.derived && !each.synchronous && below(2) && wire::fits_compact(each.envelope) &&
            rank.engine->send_now(*peer, wire::compact(each.envelope), each.memory.data(), each.bytes, below(2) == 0)) {
            each.done = true;
            std::fill(each.memory.begin(), each.memory.end(), 0xdd);
            return;
        }
        ++open;
        if (!each.derived && !each.synchronous && below(2) && wire::fits_compact(each.envelope) &&
            rank.engine->hold(*peer, wire::compact(each.envelope), each.memory.data(), each.bytes, each.request())) {
            std::fill(each.memory.begin(), each.memory.end(), 0xdd); // it has a copy
            return;
        }
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
    // What others send while a thread has a turn arrives in that turn.
    unsigned progress() {
        unsigned moved = 0;
        for (const auto& rank : ranks)
            if (threads && below(2)) rank->engine->kept().in_thread = true;
        for (const auto& rank : ranks)
            moved += rank->engine->kept().in_thread ? rank->engine->progress_in_thread() : rank->engine->progress();
        for (const auto& rank : ranks) {
            rank->engine->kept().in_thread = false;
            kept += rank->port->held_back() != 0;
            rank->engine->tell_kept();
        }
        return moved;
    }
    unsigned kept = 0; // turns that have ended with messages held back
    // Until nobody has anything to do, or too long.
    bool settle() {
        for (int idle = 0, turns = 0; idle < 50; ++turns) {
            if (turns > 200000) return false;
            idle = progress() ? 0 : idle + 1;
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

inline std::pair<std::uint32_t, std::uint32_t> seeds(std::uint32_t count) {
    const char* const given = std::getenv("TESTS_SEED");
    const std::uint32_t first = given ? static_cast<std::uint32_t>(std::atol(given)) : 1;
    return {first, given ? first + 1 : first + count};
}

} // namespace ucx_mp::glue::test
