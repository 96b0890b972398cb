// Groups that talk to each other over a network of dice (fake_port.h), without MPI.
#pragma once
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <list>

#include "pml_glue/core/collect/group.h"
#include "tests/pml/fake_port.h"
#include "tests/pml/fake_tasks.h"
#include "tests/pml/include/pml/collect_calls.h"
#include "tests/pml/include/pml/group_config.h"

namespace ucx_mp::glue::test {

struct Member {
    std::unique_ptr<FakePort> port;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<Groups> groups;
};

struct CollectWorld {
    static constexpr std::size_t kSmall = 2000, kHalving = 5000, kEager = 100;
    FakeNetwork network;
    FakeAdapters adapters;
    std::vector<Member> members;
    std::vector<std::string> reports;
    std::size_t memory = std::size_t{64} << 20; // of groups that are made from now on
    std::size_t eager = kEager;
    mp_engine_t engine = MP_ENGINE_HOST;
    unsigned after = 0;
    std::uint32_t latency = 0; // 1000: rounds of several messages
    unsigned hosts_after = 8;

    // `waits`: whose adapters do; of none.
    CollectWorld(std::uint32_t seed, unsigned count, std::uint64_t watch_interval = MP_NEVER,
                 bool (*waits)(unsigned member) = nullptr)
        : network(seed), adapters(seed), members(count) {
        network.no_room = seed % 3 == 0 ? 0 : 2 + seed % 5;
        for (unsigned i = 0; i < count; ++i) {
            Member& member = members[i];
            member.port = std::make_unique<FakePort>(network);
            if (waits)
                member.port->task_port =
                    std::make_unique<FakeTaskPort>(adapters, waits(i) ? TaskPort::Can::yes : TaskPort::Can::no);
            const mp_hooks_t hooks{
                .argument = this,
                .pack = Under::pack,
                .unpack = Under::unpack,
                .completed = [](void*, mp_request_t*) {},
                .address = address,
                .is_source = [](void*, std::uint32_t, std::int32_t, std::uint64_t) { return false; },
                .process = nullptr,
                .forgotten = nullptr,
                .report = [](void* world,
                             const char* line) { static_cast<CollectWorld*>(world)->reports.emplace_back(line); },
                .unmapped = [](void* world) { return static_cast<CollectWorld*>(world)->network.unmapped; }};
            const mp_config_t config{.process = 100 + i,
                                     .transports = nullptr,
                                     .local = nullptr,
                                     .eager_limit = 4000,
                                     .zero_copy = SIZE_MAX,
                                     .hint_limit = 1000,
                                     .rendezvous_by_put = false,
                                     .burst = 0,
                                     .watch_interval = watch_interval,
                                     .watch_strangers = false};
            member.engine = std::make_unique<Engine>(*member.port, config, hooks);
            member.groups = std::make_unique<Groups>(*member.engine, *member.port, hooks);
        }
    }
    ~CollectWorld() {
        for (Member& member : members) {
            member.groups.reset();
            member.engine.reset();
        }
    }
    static bool address(void* world, std::uint64_t process, void** out, std::size_t* length) {
        if (process - 100 >= static_cast<CollectWorld*>(world)->members.size()) return false;
        *length = 1;
        *out = std::malloc(1);
        *static_cast<std::uint8_t*>(*out) = static_cast<std::uint8_t>(process - 100);
        return true;
    }
    // Of these members, in this order; our rank is that of `member` among them.
    [[nodiscard]] mp_group_config_t config(unsigned member, std::uint32_t context, const std::vector<unsigned>& who,
                                           unsigned in_flight, std::uint32_t digest = 0) const {
        mp_group_config_t its = group_config(static_cast<std::uint32_t>(std::ranges::find(who, member) - who.begin()),
                                             static_cast<std::uint32_t>(who.size()));
        its.context = context;
        its.process = [](const void* members, std::uint32_t one) {
            return std::uint64_t{100 + (*static_cast<const std::vector<unsigned>*>(members))[one]};
        };
        its.members = &who;
        its.in_flight = in_flight;
        its.small = kSmall;
        its.halving = kHalving;
        its.eager = eager;
        its.latency = latency;
        its.overhead = 200;
        its.within_latency = its.within_overhead = latency / 100;
        its.hosts_after = hosts_after;
        its.digest = digest;
        its.memory = memory;
        its.peers = 1 + context % 4;
        its.engine = engine;
        its.after = after;
        return its;
    }
    Group* group(unsigned member, std::uint32_t context, const std::vector<unsigned>& who, unsigned in_flight,
                 std::uint32_t digest = 0) {
        return members[member].groups->create(config(member, context, who, in_flight, digest));
    }
    // All memory of the program, and mapped anew at the same addresses, between operations.
    void unmap() {
        ++network.unmapped;
        ++adapters.unmapped;
    }
    // A number of the statistics, of all members together.
    [[nodiscard]] std::uint64_t count(const std::string& name) const {
        std::uint64_t sum = 0;
        for (const Member& member : members) {
            const std::string text = member.groups->statistics();
            const std::size_t found = text.find(' ' + name + ' ');
            if (found != std::string::npos) sum += std::strtoull(text.c_str() + found + name.size() + 2, nullptr, 10);
        }
        return sum;
    }
    void progress() {
        adapters.step();
        for (Member& member : members) progress(member);
    }
    void progress(Member& member) {
        if (threads && dice(3) == 0) return turn(member);
        member.engine->tell_kept();
        member.engine->progress();
        member.groups->progress();
    }
    // Of the progress thread: what it does is told by the program's next call.
    void turn(Member& member) {
        std::vector<bool> before;
        for (const Under* one : started) before.push_back(one->complete() || one->told);
        member.engine->kept().in_thread = true;
        member.engine->progress_in_thread();
        member.groups->progress();
        member.engine->kept().in_thread = false;
        for (std::size_t i = 0; i < started.size(); ++i)
            BOOST_REQUIRE_EQUAL(started[i]->complete() || started[i]->told, before[i]);
        ++turns;
    }
    bool threads = false;
    unsigned turns = 0;
    std::vector<const Under*> started; // with `threads`: that are in their place
    unsigned dice(unsigned n) { return static_cast<unsigned>(network.random() % n); }

    [[nodiscard]] Called draw(unsigned number, unsigned ranks) {
        return draw_call(number, ranks, kSmall, kHalving, [this](unsigned n) { return dice(n); });
    }
    // `tells`: by a hook.
    void start(Group& group, Under& under, const Called& call, unsigned ranks, unsigned rank, bool tells) {
        for (Member& member : members) member.engine->tell_kept();
        describe(under, call, ranks, rank, tells, [this](unsigned n) { return dice(n); });
        group.start(GroupOperation::of(under.storage));
    }
    // The next start of a persistent request: new contents in the same memory.
    void again(Group& group, Under& under, unsigned round) {
        for (Member& member : members) member.engine->tell_kept();
        describe_again(under, round);
        group.start(GroupOperation::of(under.storage));
    }
};

// What a call that is over has left.
inline void check(Under& under, unsigned ranks, unsigned rank) {
    BOOST_REQUIRE(under.complete());
    BOOST_REQUIRE(std::ranges::all_of(under.guard, [](std::uint8_t byte) { return byte == 0; }));
    BOOST_REQUIRE_EQUAL(under.open, 0);
    BOOST_REQUIRE_EQUAL(under.asked_wrong, 0u);
    BOOST_REQUIRE_EQUAL(under.storage.collective.error, MP_OK);
    BOOST_REQUIRE_MESSAGE(under.call.gets(ranks, rank) == under.result() ||
                              (under.call.kind == MP_BCAST && rank == under.call.root),
                          "operation " << under.call.number << " of kind " << under.call.kind << ", "
                                       << under.call.bytes << " bytes, root " << under.call.root << ", rank " << rank);
}

// One group of all members, whose calls come one after the other.
struct Simple {
    CollectWorld world;
    std::vector<unsigned> who;
    std::vector<Group*> groups;
    std::list<std::vector<Under>> rounds;
    // `hosts`: members share so many, in turn; 0: none shares one.
    explicit Simple(std::uint32_t seed, unsigned ranks, std::uint64_t watch_interval = MP_NEVER,
                    bool (*waits)(unsigned) = nullptr, unsigned hosts = 0)
        : world(seed, ranks, watch_interval, waits) {
        if (waits) world.engine = MP_ENGINE_ADAPTER;
        world.network.hosts = hosts;
        if (hosts) world.latency = 1000;
        world.hosts_after = 0;
        for (unsigned i = 0; i < ranks; ++i) who.push_back(i);
        for (unsigned i = 0; i < ranks; ++i) groups.push_back(world.group(i, 9, who, 16));
    }
    // Of all but `without`.
    std::vector<Under>& call(const Called& call, unsigned without = UINT32_MAX) {
        const auto ranks = static_cast<unsigned>(who.size());
        auto& under = rounds.emplace_back(ranks);
        for (unsigned i = 0; i < ranks; ++i)
            if (i != without) world.start(*groups[i], under[i], call, ranks, i, false);
        return under;
    }
    [[nodiscard]] bool complete(std::vector<Under>& under, unsigned without = UINT32_MAX) {
        for (int turn = 0; turn < 50000; ++turn) {
            bool all = true;
            for (unsigned i = 0; i < under.size(); ++i) all &= i == without || under[i].complete();
            if (all) return true;
            world.progress();
        }
        return false;
    }
};

} // namespace ucx_mp::glue::test
