// Groups that talk to each other over a network of dice (fake_port.h), without MPI, and random operations for them.
#pragma once
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <list>

#include "pml_glue/core/collect/group.h"
#include "tests/pml/fake_port.h"

namespace ucx_mp::glue::test {

// x -> a x + b, modulo 2^32: associative, and the order shows. The elements of reductions.
struct Map {
    std::uint32_t a, b;
    bool operator==(const Map&) const = default;
};
inline Map behind(Map first, Map second) { return {first.a * second.a, first.b * second.a + second.b}; }

inline std::byte content(unsigned operation, unsigned rank, std::size_t i) {
    std::uint32_t x = operation * 7919u + rank * 104729u + static_cast<std::uint32_t>(i) * 31u + 17u;
    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    return static_cast<std::byte>(x >> 11);
}

// One call of all ranks.
struct Called {
    mp_collective_kind_t kind;
    std::uint32_t root;
    std::size_t bytes;
    unsigned number;

    [[nodiscard]] std::vector<std::byte> given(unsigned ranks, unsigned rank) const {
        std::size_t length = kind == MP_BARRIER ? 0 : bytes;
        if (kind == MP_SCATTER) length = rank == root ? ranks * bytes : 0;
        if (kind == MP_BCAST && rank != root) return std::vector<std::byte>(bytes, std::byte{0x77});
        std::vector<std::byte> out(length);
        for (std::size_t i = 0; i < length; ++i) out[i] = content(number, rank, i);
        return out;
    }
    [[nodiscard]] std::vector<std::byte> gets(unsigned ranks, unsigned rank) const {
        std::vector<std::byte> out;
        const auto add = [&](const std::vector<std::byte>& more) { out.insert(out.end(), more.begin(), more.end()); };
        switch (kind) {
        case MP_BARRIER:
            return {};
        case MP_BCAST:
            return given(ranks, root);
        case MP_SCATTER: {
            const auto all = given(ranks, root);
            const auto first = all.begin() + static_cast<std::ptrdiff_t>(rank * bytes);
            return {first, first + static_cast<std::ptrdiff_t>(bytes)};
        }
        case MP_GATHER:
            if (rank != root) return {};
            [[fallthrough]];
        case MP_ALLGATHER:
            for (unsigned i = 0; i < ranks; ++i) add(given(ranks, i));
            return out;
        case MP_REDUCE:
            if (rank != root) return {};
            [[fallthrough]];
        case MP_ALLREDUCE:
            out = given(ranks, 0);
            for (unsigned i = 1; i < ranks; ++i) {
                const auto theirs = given(ranks, i);
                for (std::size_t at = 0; at + sizeof(Map) <= bytes; at += sizeof(Map)) {
                    Map sum, one;
                    std::memcpy(&sum, out.data() + at, sizeof sum);
                    std::memcpy(&one, theirs.data() + at, sizeof one);
                    sum = behind(sum, one);
                    std::memcpy(out.data() + at, &sum, sizeof sum);
                }
            }
            return out;
        }
        return {};
    }
};

// Memory that is not contiguous: every byte is kept the other way round, behind each other one.
struct Spread {
    std::vector<std::byte> bytes;
    explicit Spread(const std::vector<std::byte>& packed) : bytes(2 * packed.size()) {
        unpack(this, 0, packed.data(), packed.size());
    }
    static std::size_t pack(void* self, std::size_t offset, void* out, std::size_t length) {
        for (std::size_t i = 0; i < length; ++i)
            static_cast<std::byte*>(out)[i] = ~static_cast<Spread*>(self)->bytes.at(2 * (offset + i) + 1);
        return length;
    }
    static void unpack(void* self, std::size_t offset, const void* in, std::size_t length) {
        for (std::size_t i = 0; i < length; ++i)
            static_cast<Spread*>(self)->bytes.at(2 * (offset + i) + 1) = ~static_cast<const std::byte*>(in)[i];
    }
};

// A call of one rank.
struct Under {
    mp_collective_storage_t storage{};
    std::array<std::uint8_t, 4096> guard{}; // behind its memory: stays 0
    Called call{};
    std::vector<std::byte> in, out;
    std::unique_ptr<Spread> spread_in, spread_out;
    bool begun = false, told = false;

    [[nodiscard]] bool complete() const { return storage.collective.complete; }
    [[nodiscard]] std::vector<std::byte> result() {
        if (!spread_out) return out;
        std::vector<std::byte> packed(spread_out->bytes.size() / 2);
        Spread::pack(spread_out.get(), 0, packed.data(), packed.size());
        return packed;
    }
};

inline void fold(mp_collective_t* operation, const void* in, void* inout) {
    for (std::size_t at = 0; at + sizeof(Map) <= operation->bytes; at += sizeof(Map)) {
        Map first, second;
        std::memcpy(&first, static_cast<const std::byte*>(in) + at, sizeof first);
        std::memcpy(&second, static_cast<std::byte*>(inout) + at, sizeof second);
        second = behind(first, second);
        std::memcpy(static_cast<std::byte*>(inout) + at, &second, sizeof second);
    }
}

struct Member {
    std::unique_ptr<FakePort> port;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<Groups> groups;
};

struct CollectWorld {
    static constexpr std::size_t kSmall = 2000, kHalving = 5000;
    FakeNetwork network;
    std::vector<Member> members;
    std::vector<std::string> reports;

    CollectWorld(std::uint32_t seed, unsigned count, std::uint64_t watch_interval = MP_NEVER)
        : network(seed), members(count) {
        network.no_room = seed % 3 == 0 ? 0 : 2 + seed % 5;
        for (unsigned i = 0; i < count; ++i) {
            Member& member = members[i];
            member.port = std::make_unique<FakePort>(network);
            const mp_hooks_t hooks{
                .argument = this,
                .pack = Spread::pack,
                .unpack = Spread::unpack,
                .completed = [](void*, mp_request_t*) {},
                .address = address,
                .is_source = [](void*, std::uint32_t, std::int32_t, std::uint64_t) { return false; },
                .process = nullptr,
                .forgotten = nullptr,
                .report = [](void* world,
                             const char* line) { static_cast<CollectWorld*>(world)->reports.emplace_back(line); }};
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
    Group* group(unsigned member, std::uint32_t context, const std::vector<unsigned>& who, unsigned in_flight,
                 std::uint32_t digest = 0) {
        std::vector<std::uint64_t> processes;
        for (const unsigned one : who) processes.push_back(100 + one);
        const auto rank = static_cast<std::uint32_t>(std::find(who.begin(), who.end(), member) - who.begin());
        return members[member].groups->create({.context = context,
                                               .rank = rank,
                                               .ranks = static_cast<std::uint32_t>(who.size()),
                                               .processes = processes.data(),
                                               .in_flight = in_flight,
                                               .small = kSmall,
                                               .halving = kHalving,
                                               .digest = digest});
    }
    void progress() {
        for (Member& member : members) progress(member);
    }
    static void progress(Member& member) {
        member.engine->progress();
        member.groups->progress();
    }
    unsigned dice(unsigned n) { return static_cast<unsigned>(network.random() % n); }

    [[nodiscard]] Called draw(unsigned number, unsigned ranks) {
        static constexpr mp_collective_kind_t kKinds[] = {MP_BARRIER,   MP_BCAST,  MP_BCAST,  MP_ALLGATHER,
                                                          MP_ALLREDUCE, MP_GATHER, MP_REDUCE, MP_SCATTER};
        Called call{.kind = kKinds[dice(8)], .root = dice(ranks), .bytes = 8 * dice(12), .number = number};
        if (call.kind == MP_BARRIER) call.bytes = 0;
        if (call.kind == MP_BCAST && dice(3) == 0) call.bytes = dice(kSmall + 1);
        if (call.kind == MP_ALLREDUCE && dice(3) == 0) call.bytes = 8 * dice(kHalving / 8 + 1);
        if (call.kind != MP_BCAST && call.kind != MP_ALLREDUCE)
            call.bytes = std::min(call.bytes, kSmall / ranks / 8 * 8);
        if (call.kind == MP_BARRIER || call.kind == MP_BCAST || call.kind == MP_ALLREDUCE) return call;
        if (dice(3) == 0) call.bytes = 8 * dice(static_cast<unsigned>(kSmall / ranks / 8 + 1));
        return call;
    }
    // `tells`: by a hook.
    void start(Group& group, Under& under, const Called& call, unsigned ranks, unsigned rank, bool tells) {
        under.call = call;
        under.in = call.given(ranks, rank);
        under.out.assign(call.gets(ranks, rank).size(), std::byte{0x55});
        under.begun = true;
        mp_collective_t& operation = under.storage.collective;
        operation = {};
        operation.kind = call.kind;
        operation.root = call.root;
        operation.bytes = call.bytes;
        operation.fold = fold;
        const bool bcast = call.kind == MP_BCAST;
        operation.in = {.buffer = under.in.data(), .bytes = under.in.size(), .convertor = nullptr};
        operation.out = {.buffer = under.out.data(), .bytes = under.out.size(), .convertor = nullptr};
        if (bcast) { // one buffer
            under.out = under.in;
            operation.in.buffer = operation.out.buffer = under.out.data();
        }
        if (dice(3) == 0) {
            under.spread_out = std::make_unique<Spread>(under.out);
            operation.out.convertor = under.spread_out.get();
            operation.out.buffer = nullptr;
            if (bcast) operation.in = operation.out;
        }
        if (!bcast && dice(3) == 0) {
            under.spread_in = std::make_unique<Spread>(under.in);
            operation.in.convertor = under.spread_in.get();
            operation.in.buffer = nullptr;
        }
        operation.user = &under;
        if (tells) operation.done = [](mp_collective_t* one) { static_cast<Under*>(one->user)->told = true; };
        group.start(GroupOperation::of(under.storage));
    }
};

} // namespace ucx_mp::glue::test
