// The MPI modules' core over the real transport in virtual time: 64 processes send and receive messages of all sizes
// and kinds, and use windows, while ports and adapters fail and come back. Nobody may notice anything: each message has
// the right contents and order, what is told to be there is there, and everything ends.
#define BOOST_TEST_MODULE pml_sim_engine
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <deque>
#include <map>
#include <optional>
#include <random>
#include <ucx_mp_places.h>

#include "pml/sim_job.h"
#include "simulator/random_faults.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;
using glue::Hint;
using glue::Request;

namespace {

constexpr std::uint32_t kExact = 1, kAny = 2; // contexts: receives name source and tag, or nothing

std::uint64_t seed_of(std::uint64_t number) {
    const char* const given = std::getenv("TESTS_SEED");
    return given ? std::strtoull(given, nullptr, 10) : number;
}

channel::Config small_queues(std::uint64_t seed) {
    channel::Config config;
    config.receive_depth = 256; // many nodes in one process
    config.send_depth = 64;
    config.background = false;
    if (seed % 2) config.paths.num_paths = 2;
    return config;
}

mp_config_t core_config(std::uint64_t seed) {
    return {.process = 0,
            .transports = nullptr,
            .local = nullptr,
            .eager_limit = seed % 3 ? MP_AUTO : 1000,
            .zero_copy = seed % 3 == 1 ? 600 : MP_AUTO,
            .hint_limit = 16384,
            .rendezvous_by_put = seed % 2 == 0,
            .burst = static_cast<unsigned>(seed % 3),
            .watch_interval = 100'000,
            .watch_strangers = false};
}

std::byte content(unsigned from, unsigned number, std::size_t at) {
    return static_cast<std::byte>(from * 67 + number * 131 + at * 7 + (at >> 8));
}

struct Message {
    mp_request_storage_t storage{}; // first: how it is found again
    bool send = false, done = false;
    unsigned from = 0, to = 0, number = 0;
    std::uint32_t context = 0;
    std::uint64_t order = 0;               // of a receive: among those of its process
    unsigned got_from = 0, got_number = 0; // what it has received
    std::vector<std::byte> memory;
};

// Messages between processes: each starts at a moment of its own, those of a process in order.
class Messages {
public:
    Messages(MpiJob& job, std::uint64_t seed, unsigned each) : job_(job), random_(seed) {
        const unsigned ranks = job.cluster.size();
        job.on_completed = [this](mp_request_t& request) { completed(request); };
        for (unsigned from = 0; from < ranks; ++from) {
            Nanos when = job.cluster.world.now();
            for (unsigned number = 0; number < each; ++number) {
                const unsigned to = neighbour(from, ranks);
                const std::uint32_t context = random_() % 3 ? kExact : kAny;
                when += random_() % 100'000;
                plan_send(from, to, number, context, when);
                plan_receive(from, to, number, context);
            }
        }
    }
    [[nodiscard]] bool over() const { return open_ == 0; }
    std::string mistakes;
    // MPI's order: of one source and tag the first receive has the first message.
    void check_order() {
        std::map<std::pair<unsigned, std::uint64_t>, const Message*> any;
        for (const Message& message : all_) {
            if (message.send) continue;
            if (message.context == kAny)
                any[{message.to, message.order}] = &message;
            else if (message.got_from != message.from || message.got_number != message.number)
                mistakes += "a message has overtaken another\n";
        }
        std::map<std::pair<unsigned, unsigned>, unsigned> last;
        for (const auto& [key, message] : any) {
            unsigned& before = last[{message->to, message->got_from}];
            if (message->got_number + 1 <= before) mistakes += "a message has overtaken another, from any source\n";
            before = message->got_number + 1;
        }
    }

private:
    unsigned neighbour(unsigned from, unsigned ranks) {
        static constexpr unsigned kSteps[] = {0, 1, 2, 8, 17};
        const unsigned step = random_() % 8 == 0 ? static_cast<unsigned>(random_()) : kSteps[random_() % 5];
        return (from + step) % ranks;
    }
    Message& add(unsigned from, unsigned to, unsigned number, std::size_t bytes) {
        Message& message = all_.emplace_back();
        message.from = from;
        message.to = to;
        message.number = number;
        message.memory.resize(bytes);
        ++open_;
        return message;
    }
    static constexpr std::size_t kSizes[] = {8, 9, 100, 1000, 5000, 8192, 20000, 70000, 300000};
    void plan_send(unsigned from, unsigned to, unsigned number, std::uint32_t context, Nanos when) {
        const std::size_t bytes = kSizes[random_() % std::size(kSizes)];
        Message& message = add(from, to, number, bytes);
        message.send = true;
        std::memcpy(message.memory.data(), &from, 4);
        std::memcpy(message.memory.data() + 4, &number, 4);
        for (std::size_t i = 8; i < bytes; ++i) message.memory[i] = content(from, number, i);
        const bool synchronous = random_() % 4 == 0;
        const auto hint = static_cast<Hint>(random_() % 4);
        const auto tag = static_cast<std::int32_t>(number % 3);
        job_[from].node.services().at(when, [this, &message, context, tag, synchronous, hint] {
            Process& process = job_[message.from];
            process.compute(false);
            process.engine.send(Request::of(message.storage), process.peer(message.to),
                                {context, static_cast<std::int32_t>(message.from), tag},
                                {message.memory.data(), message.memory.size(), nullptr}, synchronous, hint);
        });
    }
    // Receives of one source and tag are in order; else they are posted at any time.
    void plan_receive(unsigned from, unsigned to, unsigned number, std::uint32_t context) {
        Message& message = add(from, to, number, 300000);
        const glue::Envelope pattern = context == kAny ? glue::Envelope{kAny, glue::kAnySource, glue::kAnyTag}
                                                       : glue::Envelope{kExact, static_cast<std::int32_t>(from),
                                                                        static_cast<std::int32_t>(number % 3)};
        Nanos& last = posted_[{from, to, context == kAny ? 3 : number % 3}];
        last = std::max(last, job_.cluster.world.now()) + 1 + random_() % 300'000;
        message.context = context;
        job_[to].node.services().at(last, [this, &message, pattern] {
            message.order = ++orders_;
            job_[message.to].compute(false);
            job_[message.to].engine.receive(Request::of(message.storage), pattern,
                                            {message.memory.data(), message.memory.size(), nullptr},
                                            static_cast<Hint>(message.number % 4));
        });
    }

    void completed(mp_request_t& request) {
        Message& message = reinterpret_cast<Message&>(request);
        if (std::exchange(message.done, true)) mistakes += "a request has ended twice\n";
        --open_;
        if (request.status.error != MP_OK) mistakes += "a request has failed\n";
        if (message.send)
            std::fill(message.memory.begin(), message.memory.end(), std::byte{0xdd}); // ours again
        else
            check(message, request.status);
    }
    void check(Message& message, const mp_status_t& status) {
        std::memcpy(&message.got_from, message.memory.data(), 4);
        std::memcpy(&message.got_number, message.memory.data() + 4, 4);
        const unsigned from = message.got_from, number = message.got_number;
        std::size_t wrong = 0;
        for (std::size_t i = 8; i < status.bytes; ++i) wrong += message.memory[i] != content(from, number, i);
        if (wrong || from != static_cast<unsigned>(status.source)) mistakes += "wrong contents\n";
        if (status.tag != static_cast<std::int32_t>(number % 3)) mistakes += "a wrong tag\n";
        message.memory = {};
    }

    MpiJob& job_;
    std::mt19937_64 random_;
    std::deque<Message> all_;
    std::map<std::tuple<unsigned, unsigned, unsigned>, Nanos> posted_;
    std::size_t open_ = 0;
    std::uint64_t orders_ = 0;
};

// What each process does with its window, one step after the other: under an exclusive lock it reads a word of another
// one, and writes one more there; it adds to another word; it writes a block and, when that is flushed, tells the
// target to look at it. Then all meet.
class Accesses {
public:
    static constexpr std::size_t kBlock = 40000;
    struct Layout {
        std::uint64_t locked = 0, added = 0;
        std::byte block[kBlock] = {}; // of the one rank that writes here
    };
    Accesses(MpiJob& job, std::uint64_t seed, unsigned rounds)
        : job_(job), sides_(job.cluster.size()), rounds_(rounds) {
        const unsigned ranks = job.cluster.size();
        std::vector<std::uint64_t> names(ranks);
        for (unsigned rank = 0; rank < ranks; ++rank) names[rank] = rank;
        std::vector<std::vector<std::byte>> keys(ranks);
        for (unsigned rank = 0; rank < ranks; ++rank) {
            Side& side = sides_[rank];
            side.random.seed(seed * 1000 + rank);
            side.window = job[rank].windows.create({.id = 7,
                                                    .rank = rank,
                                                    .ranks = ranks,
                                                    .base = &side.memory,
                                                    .size = sizeof side.memory,
                                                    .dynamic = false,
                                                    .processes = names.data(),
                                                    .in_flight = 65536},
                                                   {.apply = add, .rma_done = rma_done});
            keys[rank] = side.window->keys();
        }
        stride_ = keys[0].size();
        for (const auto& each : keys) keys_.insert(keys_.end(), each.begin(), each.end());
        for (unsigned rank = 0; rank < ranks; ++rank) {
            sides_[rank].window->set_keys(keys_.data(), stride_);
            job[rank].turn = [this, rank] { return turn(rank); };
        }
    }
    [[nodiscard]] bool over() const { return finished_ == sides_.size(); }
    std::string mistakes;
    void check_sums() {
        std::uint64_t locked = 0, added = 0;
        for (const Side& side : sides_) {
            locked += side.memory.locked;
            added += side.memory.added;
        }
        if (locked != sides_.size() * rounds_) mistakes += "increments under a lock are lost\n";
        if (added != 3 * sides_.size() * rounds_) mistakes += "additions are lost\n";
    }

private:
    struct Side {
        Layout memory;
        glue::Window* window = nullptr;
        std::mt19937_64 random;
        unsigned step = 0, round = 0, target = 0, looked = 0;
        std::uint64_t word = 0, one = 3;
        std::vector<std::byte> block = std::vector<std::byte>(kBlock);
    };
    static bool add(std::uint16_t, std::uint16_t, std::uint32_t, std::uint32_t, void* memory, std::size_t,
                    const void* in, void*) {
        std::uint64_t value, more;
        std::memcpy(&value, memory, 8);
        std::memcpy(&more, in, 8);
        value += more;
        std::memcpy(memory, &value, 8);
        return true;
    }
    static void rma_done(void*, mp_error_t) {}

    void start(Side& side, mp_rma_kind_t kind, unsigned target, std::size_t offset, void* data, std::size_t bytes) {
        const mp_run_t run{reinterpret_cast<std::uint64_t>(&sides_[target].memory) + offset, 0, bytes, 1};
        const mp_data_t contents{data, bytes, nullptr}, none{nullptr, 0, nullptr};
        const mp_rma_t rma{.kind = kind,
                           .target = target,
                           .runs = &run,
                           .run_count = 1,
                           .origin = kind == MP_GET ? none : contents,
                           .result = kind == MP_GET ? contents : none,
                           .op = 0,
                           .type = 0,
                           .unit = kind == MP_ACCUMULATE ? 8u : 1u,
                           .extent = kind == MP_ACCUMULATE ? 8u : 1u,
                           .user = nullptr};
        if (side.window->start(rma) != MP_OK) mistakes += "an operation cannot start\n";
    }
    // As far as it comes.
    bool turn(unsigned rank) {
        Side& side = sides_[rank];
        bool any = false;
        while (side.step != kEnd && step(side, rank)) any = true;
        return any;
    }
    void look(const Side& side, unsigned rank, unsigned round, const char* mistake) {
        const auto before = static_cast<unsigned>((rank + job_.cluster.size() - 1) % job_.cluster.size());
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < kBlock; ++i) wrong += side.memory.block[i] != content(before, round, i);
        if (wrong) mistakes += mistake;
    }
    static constexpr unsigned kEnd = 12;
    // False: it has to wait.
    bool step(Side& side, unsigned rank) {
        const unsigned next = (rank + 1) % job_.cluster.size();
        glue::Window& window = *side.window;
        switch (side.step) {
        case 0:
            side.target = static_cast<unsigned>(side.random() % sides_.size());
            window.want_lock(side.target, true);
            break;
        case 1:
            if (!window.locked(side.target)) return false;
            start(side, MP_GET, side.target, offsetof(Layout, locked), &side.word, 8);
            break;
        case 2:
            if (!window.flushed(side.target, false)) return false;
            ++side.word;
            start(side, MP_PUT, side.target, offsetof(Layout, locked), &side.word, 8);
            break;
        case 3:
            if (!window.unlocked(side.target)) return false;
            side.target = static_cast<unsigned>(side.random() % sides_.size());
            window.want_lock(side.target, false);
            start(side, MP_ACCUMULATE, side.target, offsetof(Layout, added), &side.one, 8);
            break;
        case 4:
            if (!window.unlocked(side.target)) return false;
            window.expose((rank + job_.cluster.size() - 1) % job_.cluster.size(), true);
            window.access(next, true);
            for (std::size_t i = 0; i < kBlock; ++i) side.block[i] = content(rank, side.round, i);
            start(side, MP_PUT, next, offsetof(Layout, block), side.block.data(), kBlock);
            break;
        case 5:
            if (!window.completed(next)) return false;
            std::fill(side.block.begin(), side.block.end(), std::byte{0}); // ours again
            break;
        case 6: {
            const auto before = static_cast<unsigned>((rank + job_.cluster.size() - 1) % job_.cluster.size());
            if (!window.closed(before)) return false;
            look(side, rank, side.round, "a block is not there although its epoch is over\n");
            if (++side.round < rounds_) return side.step = 0, true;
            break;
        }
        case 7:
            if (!window.fence()) return false;
            break;
        case 8:
            for (std::size_t i = 0; i < kBlock; ++i) side.block[i] = content(rank, 99, i);
            start(side, MP_PUT, next, offsetof(Layout, block), side.block.data(), kBlock);
            break;
        case 9:
            if (!window.fence()) return false;
            look(side, rank, 99, "a block is not there behind a fence\n");
            break;
        case 10:
            if (!window.settled()) return false;
            break;
        default:
            if (window.error(MP_ALL_RANKS) != MP_OK) mistakes += "a target has failed\n";
            ++finished_;
        }
        ++side.step;
        return true;
    }

    MpiJob& job_;
    std::vector<Side> sides_;
    const unsigned rounds_;
    std::vector<std::byte> keys_;
    std::size_t stride_ = 0, finished_ = 0;
};

// Processes that compute now and then, from 10 us to 2 ms, and make no call meanwhile.
class Computing {
public:
    Computing(MpiJob& job, std::uint64_t seed) : job_(job), random_(seed) {
        for (unsigned rank = 0; rank < job.cluster.size(); ++rank) next(rank, true);
    }

private:
    void next(unsigned rank, bool computes) {
        Node& node = job_[rank].node;
        node.services().at(job_.cluster.world.now() + 10'000 + random_() % 2'000'000, [this, rank, computes] {
            job_[rank].compute(computes);
            next(rank, !computes);
        });
    }
    MpiJob& job_;
    std::mt19937_64 random_;
};

constexpr const char* kFabric = UCX_MP_SOURCE_DIR "/tests/pml/two-rail-64.yaml";

template <class What> void judge(Cluster& cluster, MpiJob& job, What& what, bool over, const Faults& faults) {
    BOOST_TEST(over);
    BOOST_TEST(what.mistakes == "");
    BOOST_TEST(job.reports.empty());
    for (const auto& process : job.processes) BOOST_TEST(process->port.failures == 0u);
    BOOST_TEST(faults.begun > 0u);
    std::printf("virtual time %.3f ms, %u faults\n", static_cast<double>(cluster.world.now() - 1'000'000'000) / 1e6,
                faults.begun);
}

void run_messages(std::uint64_t seed) {
    Cluster cluster(kFabric, 64, small_queues(seed), {.seed = seed});
    MpiJob job(cluster, core_config(seed));
    Faults faults(cluster, seed);
    Messages messages(job, seed, 24);
    std::optional<Computing> computing;
    if (seed % 2 == 0) computing.emplace(job, seed);
    const bool over = cluster.until([&] { return messages.over(); });
    messages.check_order();
    judge(cluster, job, messages, over, faults);
    faults.over = true;
}

void run_accesses(std::uint64_t seed) {
    Cluster cluster(kFabric, 64, small_queues(seed), {.seed = seed});
    MpiJob job(cluster, core_config(seed));
    Faults faults(cluster, seed);
    Accesses accesses(job, seed, 6);
    std::optional<Computing> computing;
    if (seed % 2 == 0) computing.emplace(job, seed);
    for (unsigned rank = 0; rank < cluster.size(); ++rank)
        (void)job[rank].node.services().at(cluster.world.now() + 1, [] {}); // its first turn
    const bool over = cluster.until([&] { return accesses.over(); });
    accesses.check_sums();
    judge(cluster, job, accesses, over, faults);
    faults.over = true;
}

} // namespace

BOOST_DATA_TEST_CASE(messages_of_64_processes_come_through_faults, boost::unit_test::data::xrange(3), number) {
    const std::uint64_t seed = seed_of(static_cast<std::uint64_t>(number) + 1);
    BOOST_TEST_CONTEXT("TESTS_SEED=" << seed) { run_messages(seed); }
}

BOOST_DATA_TEST_CASE(windows_of_64_processes_come_through_faults, boost::unit_test::data::xrange(3), number) {
    const std::uint64_t seed = seed_of(static_cast<std::uint64_t>(number) + 1);
    BOOST_TEST_CONTEXT("TESTS_SEED=" << seed) { run_accesses(seed); }
}
