// Random collective operations of the core (mp_collect.h), and the bytes that each rank gives and gets.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "pml_glue/core/mp_collect.h"

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

    // Bytes of an all-to-all's block: nothing, little, and much more.
    [[nodiscard]] std::size_t pair(unsigned from, unsigned to) const {
        if (kind == MP_ALLTOALL) return bytes;
        const auto dice = std::to_integer<unsigned>(content(number, from, to)) % 3;
        const auto most = std::to_integer<unsigned>(content(number, to, from)) + 1;
        return dice == 0 ? 0 : most * (dice == 1 ? 1 : 50);
    }
    // Where the block for `other` is in what is given, or the block of `other` in what is got; of ranks: the end.
    [[nodiscard]] std::size_t place(unsigned rank, unsigned other, bool gives) const {
        std::size_t sum = 0;
        for (unsigned i = 0; i < other; ++i) sum += gives ? pair(rank, i) : pair(i, rank);
        return sum;
    }
    [[nodiscard]] bool is_alltoall() const { return kind == MP_ALLTOALL || kind == MP_ALLTOALLV; }
    [[nodiscard]] bool is_reduction() const { return kind == MP_REDUCE || kind == MP_ALLREDUCE; }
    // The contents of a start of a persistent request; a reduction's are always the same.
    [[nodiscard]] std::vector<std::byte> turned(std::vector<std::byte> bytes, unsigned round) const {
        for (std::byte& byte : bytes)
            if (!is_reduction()) byte ^= static_cast<std::byte>(round);
        return bytes;
    }

    [[nodiscard]] std::vector<std::byte> given(unsigned ranks, unsigned rank) const {
        std::size_t length = kind == MP_BARRIER ? 0 : bytes;
        if (is_alltoall()) length = place(rank, ranks, true);
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
        case MP_ALLTOALL:
        case MP_ALLTOALLV:
            for (unsigned i = 0; i < ranks; ++i) {
                const std::size_t first = place(i, rank, true), length = pair(i, rank);
                for (std::size_t at = 0; at < length; ++at) out.push_back(content(number, i, first + at));
            }
            return out;
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
    // Of an alltoall.
    unsigned ranks = 0, rank = 0;
    int open = 0;             // convertors
    unsigned asked_wrong = 0; // for our own block, or behind the end
    struct Part {             // of spread memory: what the convertor of a block is
        Spread* all;
        std::size_t first;
    };
    static std::size_t pack(void* part, std::size_t offset, void* out, std::size_t length) {
        const Part& its = *static_cast<Part*>(part);
        return Spread::pack(its.all, its.first + offset, out, length);
    }
    static void unpack(void* part, std::size_t offset, const void* in, std::size_t length) {
        const Part& its = *static_cast<Part*>(part);
        Spread::unpack(its.all, its.first + offset, in, length);
    }
    Part part_in{}, part_out{};
    std::vector<std::unique_ptr<Part>> parts; // of pairs that are open: a process may end before they are closed
    bool begun = false, told = false;

    [[nodiscard]] bool complete() const { return storage.collective.complete; }
    [[nodiscard]] std::vector<std::byte> result() {
        if (!spread_out) return out;
        std::vector<std::byte> packed(spread_out->bytes.size() / 2);
        Spread::pack(spread_out.get(), 0, packed.data(), packed.size());
        return packed;
    }
};

inline unsigned folds_without_memory = 0; // so many of the next ones fail

inline bool fold(mp_collective_t* operation, const void* in, void* inout) {
    if (folds_without_memory && folds_without_memory--) return false;
    for (std::size_t at = 0; at + sizeof(Map) <= operation->bytes; at += sizeof(Map)) {
        Map first, second;
        std::memcpy(&first, static_cast<const std::byte*>(in) + at, sizeof first);
        std::memcpy(&second, static_cast<std::byte*>(inout) + at, sizeof second);
        second = behind(first, second);
        std::memcpy(static_cast<std::byte*>(inout) + at, &second, sizeof second);
    }
    return true;
}

// dice(n): from 0 to n - 1. `small`, `halving`: of the groups.
template <class Dice> [[nodiscard]] Called draw_call(unsigned number, unsigned ranks, std::size_t small,
                                                     std::size_t halving, const Dice& dice) {
    static constexpr mp_collective_kind_t kKinds[] = {MP_BARRIER,   MP_BCAST,     MP_BCAST,   MP_ALLGATHER,
                                                      MP_ALLREDUCE, MP_GATHER,    MP_REDUCE,  MP_SCATTER,
                                                      MP_ALLTOALL,  MP_ALLTOALLV, MP_ALLTOALL};
    Called call{.kind = kKinds[dice(11)], .root = dice(ranks), .bytes = 8 * dice(12), .number = number};
    if (call.kind == MP_BARRIER) call.bytes = 0;
    if (call.is_alltoall()) {
        call.bytes = dice(2) ? 1 + dice(20) : 1 + dice(12000);
        return call;
    }
    if (call.kind == MP_BCAST && dice(3) == 0) call.bytes = dice(static_cast<unsigned>(small + 1));
    if (call.kind == MP_ALLREDUCE && dice(3) == 0) call.bytes = 8 * dice(static_cast<unsigned>(halving / 8 + 1));
    if (call.kind != MP_BCAST && call.kind != MP_ALLREDUCE) call.bytes = std::min(call.bytes, small / ranks / 8 * 8);
    if (call.kind == MP_BARRIER || call.kind == MP_BCAST || call.kind == MP_ALLREDUCE) return call;
    if (dice(3) == 0) call.bytes = 8 * dice(static_cast<unsigned>(small / ranks / 8 + 1));
    return call;
}

inline Under& under_of(mp_collective_t* operation) { return *static_cast<Under*>(operation->user); }
inline std::size_t size_of_pair(mp_collective_t* operation, std::uint32_t other, bool sends) {
    Under& under = under_of(operation);
    under.asked_wrong += other == under.rank;
    return sends ? under.call.pair(under.rank, other) : under.call.pair(other, under.rank);
}
inline mp_data_t open_pair(mp_collective_t* operation, std::uint32_t other, bool sends) {
    Under& under = under_of(operation);
    const std::size_t first = under.call.place(under.rank, other, sends), bytes = size_of_pair(operation, other, sends);
    Spread* const spread = sends ? under.spread_in.get() : under.spread_out.get();
    under.asked_wrong += under.complete();
    if (!spread) return {.buffer = (sends ? under.in : under.out).data() + first, .bytes = bytes, .convertor = nullptr};
    ++under.open;
    return {.buffer = nullptr,
            .bytes = bytes,
            .convertor = under.parts.emplace_back(std::make_unique<Under::Part>(Under::Part{spread, first})).get()};
}
inline void close_pair(mp_collective_t* operation, std::uint32_t, void* convertor, bool) {
    Under& under = under_of(operation);
    --under.open;
    std::erase_if(under.parts, [convertor](const auto& part) { return part.get() == convertor; });
}
inline void copy_own(Under& under) {
    const Called& call = under.call;
    std::copy_n(under.in.begin() + static_cast<std::ptrdiff_t>(call.place(under.rank, under.rank, true)),
                call.pair(under.rank, under.rank),
                under.out.begin() + static_cast<std::ptrdiff_t>(call.place(under.rank, under.rank, false)));
}

// What a rank says of a call before it starts it. `tells`: its end, by a hook.
template <class Dice>
void describe(Under& under, const Called& call, unsigned ranks, unsigned rank, bool tells, const Dice& dice) {
    under.call = call;
    under.in = call.given(ranks, rank);
    under.out.assign(call.gets(ranks, rank).size(), std::byte{0x55});
    under.begun = true;
    under.ranks = ranks;
    under.rank = rank;
    mp_collective_t& operation = under.storage.collective;
    operation = {};
    operation.kind = call.kind;
    operation.root = call.root;
    operation.bytes = call.bytes;
    operation.fold = fold;
    operation.size = size_of_pair;
    operation.open = open_pair;
    operation.close = close_pair;
    if (call.is_alltoall()) copy_own(under);
    const bool bcast = call.kind == MP_BCAST;
    if (bcast) under.out = under.in; // one buffer
    operation.in = {.buffer = under.in.data(), .bytes = under.in.size(), .convertor = nullptr};
    operation.out = {.buffer = under.out.data(), .bytes = under.out.size(), .convertor = nullptr};
    if (bcast) operation.in.buffer = operation.out.buffer;
    if (dice(3) == 0) {
        under.spread_out = std::make_unique<Spread>(under.out);
        under.part_out = {under.spread_out.get(), 0};
        operation.out.convertor = &under.part_out;
        operation.out.buffer = nullptr;
        if (bcast) operation.in = operation.out;
    }
    if (!bcast && dice(3) == 0) {
        under.spread_in = std::make_unique<Spread>(under.in);
        under.part_in = {under.spread_in.get(), 0};
        operation.in.convertor = &under.part_in;
        operation.in.buffer = nullptr;
    }
    operation.user = &under;
    if (tells) operation.done = [](mp_collective_t* one) { under_of(one).told = true; };
}
// Before the next start of a persistent request: new contents in the same memory.
inline void describe_again(Under& under, unsigned round) {
    const std::vector<std::byte> in = under.call.turned(under.call.given(under.ranks, under.rank), round);
    std::copy(in.begin(), in.end(), under.in.begin());
    if (under.call.kind == MP_BCAST)
        std::copy(in.begin(), in.end(), under.out.begin());
    else
        std::fill(under.out.begin(), under.out.end(), std::byte{0x55});
    if (under.call.is_alltoall()) copy_own(under);
    if (under.spread_in) Spread::unpack(under.spread_in.get(), 0, in.data(), in.size());
    if (under.spread_out) Spread::unpack(under.spread_out.get(), 0, under.out.data(), under.out.size());
    under.told = false;
}

} // namespace ucx_mp::glue::test
