// What a peer may say that is broken, or malicious: messages of a real conversation, changed, sent twice, made up. What
// must hold, whatever it is: nothing is written but where the program has asked for it or in its window, and nothing is
// read beyond the end of a message.
#pragma once
#include "tests/pml/window_world.h"

namespace ucx_mp::glue::test {

using Bytes = std::vector<std::byte>;

// Memory between guards.
class Guarded {
public:
    explicit Guarded(std::size_t bytes) : words_(2 * kEdge + (bytes + 7) / 8, kGuard), bytes_(bytes) {}
    [[nodiscard]] std::uint64_t* data() { return words_.data() + kEdge; }
    [[nodiscard]] std::size_t size() const { return bytes_; }
    [[nodiscard]] bool holds(std::uint64_t address, std::size_t length) const {
        const auto first = reinterpret_cast<std::uint64_t>(words_.data() + kEdge);
        return address >= first && address - first <= bytes_ && length <= bytes_ - (address - first);
    }
    [[nodiscard]] bool intact() const { return intact(words_, kEdge, words_.size() - kEdge); }
    [[nodiscard]] static bool intact(const std::vector<std::uint64_t>& words, std::size_t first, std::size_t end) {
        const auto is_guard = [](std::uint64_t word) { return word == kGuard; };
        return std::all_of(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(first), is_guard) &&
               std::all_of(words.begin() + static_cast<std::ptrdiff_t>(end), words.end(), is_guard);
    }
    static constexpr std::uint64_t kGuard = 0x1111111111111111u;

private:
    static constexpr std::size_t kEdge = 16;
    std::vector<std::uint64_t> words_;
    std::size_t bytes_;
};

// Three ranks that talk to each other in all ways. Their windows are a part of their cells; the first one is the
// victim.
struct Scene {
    static constexpr unsigned kFirst = 500, kEnd = 2500;
    static constexpr std::uint32_t kId = 78;
    World world;
    Done counts;
    std::list<Guarded> memory; // results, and messages
    std::list<mp_request_storage_t> requests;

    explicit Scene(std::uint32_t seed) : world(seed, 3) {
        std::vector<std::uint64_t> processes{100, 101, 102};
        for (unsigned i = 0; i < 3; ++i) {
            Rank& rank = world.ranks[i];
            rank.window->free();
            std::fill(rank.cells.begin(), rank.cells.end(), Guarded::kGuard);
            const mp_window_config_t config{.id = kId,
                                            .rank = i,
                                            .ranks = 3,
                                            .base = rank.cells.data() + kFirst,
                                            .size = 8 * (kEnd - kFirst),
                                            .dynamic = world.dynamic,
                                            .processes = processes.data(),
                                            .in_flight = 2000};
            rank.window = rank.windows->create(config, {.apply = add, .rma_done = done});
            constexpr unsigned kHalf = (kEnd - kFirst) / 2;
            for (unsigned k = 0; k < 2 && world.dynamic; ++k)
                rank.window->attach(rank.cells.data() + kFirst + k * kHalf, 8 * kHalf);
            rank.window->set_keys(rank.keys.data(), 16);
            rank.window->set_direct_fences(world.dice(2) != 0);
        }
        world.network.reachable = [this](std::uint64_t address, std::size_t length) {
            bool found = false;
            for (const Rank& rank : world.ranks) {
                const auto first = reinterpret_cast<std::uint64_t>(rank.cells.data() + kFirst);
                found |= address >= first && address - first <= 8 * (kEnd - kFirst) &&
                         length <= 8 * (kEnd - kFirst) - (address - first);
            }
            for (const Guarded& each : memory) found |= each.holds(address, length);
            return found;
        };
    }
    // Everything ends: nobody can say any more what he owes.
    ~Scene() {
        world.network.tap = nullptr;
        for (Rank& rank : world.ranks)
            for (FakeEndpoint* endpoint : std::vector(rank.port->endpoints)) {
                endpoint->fail();
                rank.port->listener->endpoint_failed(*endpoint);
            }
        for (int i = 0; i < 10; ++i) world.progress();
    }
    Scene(const Scene&) = delete;

    [[nodiscard]] Rank& victim() { return world.ranks[0]; }
    [[nodiscard]] std::uint64_t base() { return reinterpret_cast<std::uint64_t>(victim().cells.data() + kFirst); }

    // As it comes from the network: not a byte more may be read.
    void say(MessageKind kind, const Bytes& message) {
        if (kind >= 32 || !victim().port->handles(kind)) return;
        const std::unique_ptr<std::byte[]> exact(new std::byte[message.size()]);
        if (!message.empty()) std::memcpy(exact.get(), message.data(), message.size());
        victim().port->arrive(kind, exact.get(), message.size());
    }
    [[nodiscard]] bool intact() const {
        for (const Rank& rank : world.ranks)
            if (!Guarded::intact(rank.cells, kFirst, kEnd)) return false;
        return std::all_of(memory.begin(), memory.end(), [](const Guarded& each) { return each.intact(); });
    }

    // Something that a program may do.
    void act() {
        const unsigned what = world.dice(10), from = world.dice(3), to = world.dice(3);
        Window& window = *world.ranks[from].window;
        if (what < 5) return operate(static_cast<mp_rma_kind_t>(MP_PUT + what), from, to);
        if (what < 7) return message(from, to);
        if (what == 7 && !window.wants_lock(to)) window.want_lock(to, world.dice(2) != 0);
        if (what == 8) (void)window.flushed(MP_ALL_RANKS, world.dice(2) != 0);
        if (what == 9) (void)(world.dice(2) ? window.fence() : window.unlocked(to));
    }
    void operate(mp_rma_kind_t kind, unsigned from, unsigned to) {
        const bool sums = kind == MP_ACCUMULATE || kind == MP_GET_ACCUMULATE, swaps = kind == MP_COMPARE_SWAP;
        const unsigned cells = swaps ? 1 : 1 + world.dice(world.dice(2) ? 8 : 300);
        const std::size_t bytes = std::size_t{8} * cells;
        const unsigned place = kFirst + world.dice(kEnd - kFirst - cells);
        const auto address = reinterpret_cast<std::uint64_t>(world.ranks[to].cells.data() + place);
        Guarded& result = memory.emplace_back(bytes);
        Guarded& origin = memory.emplace_back(swaps ? 16 : bytes);
        if (kind == MP_PUT && bytes <= 64 &&
            world.ranks[from].window->put_now(to, origin.data(), bytes, address, MP_ACTIVE))
            return;
        const mp_run_t run{.address = address, .stride = 0, .bytes = bytes, .repeat = 1};
        const mp_rma_t rma{.kind = kind,
                           .target = to,
                           .runs = &run,
                           .run_count = 1,
                           .origin = {origin.data(), kind == MP_GET ? 0 : origin.size(), nullptr},
                           .result = {result.data(), bytes, nullptr},
                           .op = 0,
                           .type = 0,
                           .unit = sums || swaps ? 8u : 1u,
                           .extent = sums || swaps ? 8u : 1u,
                           .user = &counts};
        (void)world.ranks[from].window->start(rma);
    }
    void message(unsigned from, unsigned to) {
        static constexpr std::size_t kSizes[] = {8, 40, 100, 500, 700, 3000, 6000, 20000};
        const std::size_t bytes = kSizes[world.dice(8)];
        const auto tag = static_cast<std::int32_t>(world.dice(3));
        Guarded &out = memory.emplace_back(bytes), &in = memory.emplace_back(kSizes[world.dice(8)]);
        Engine &sender = *world.ranks[from].engine, &receiver = *world.ranks[to].engine;
        receiver.receive(Request::of(requests.emplace_back()), {5, kAnySource, tag}, {in.data(), in.size(), nullptr},
                         Hint::none);
        sender.send(Request::of(requests.emplace_back()), *sender.peer(100 + to),
                    {5, static_cast<std::int32_t>(from), world.dice(4) ? tag : -9000000}, {out.data(), bytes, nullptr},
                    world.dice(4) == 0, Hint::none);
    }

    // A few changes of a message: bits, numbers near edges, cuts, growth, pieces of others.
    void change(Bytes& bytes, const std::vector<Bytes>& others) {
        const std::uint64_t end = base() + 8 * (kEnd - kFirst);
        const std::uint64_t numbers[] = {0,       1,       2,          4,          8,       0x7fffffff, 0x80000000,
                                         ~0u,     ~0ull,   ~0ull - 31, 1ull << 63, base(),  base() - 8, end,
                                         end - 8, end - 1, 1ull << 32, 1 << 20,    1 << 24, 600,        0x10001};
        for (unsigned changes = 1 + world.dice(3); changes; --changes) {
            if (bytes.empty()) bytes.emplace_back();
            const auto size = static_cast<unsigned>(bytes.size());
            const std::size_t place = world.dice(size), field = place & ~std::size_t{1};
            const std::size_t width = std::min<std::size_t>(std::size_t{1} << world.dice(4), size - field);
            std::uint64_t number = 0;
            switch (world.dice(6)) {
            case 0:
                bytes[place] ^= static_cast<std::byte>(1u << world.dice(8));
                break;
            case 1:
                number = numbers[world.dice(std::size(numbers))];
                std::memcpy(bytes.data() + field, &number, width);
                break;
            case 2:
                std::memcpy(&number, bytes.data() + field, width);
                number += static_cast<std::uint64_t>(std::int64_t{world.dice(33)} - 16);
                std::memcpy(bytes.data() + field, &number, width);
                break;
            case 3:
                bytes.resize(world.dice(size + 1));
                break;
            case 4:
                bytes.resize(size + world.dice(80));
                break;
            case 5:
                const Bytes& other = others[world.dice(static_cast<unsigned>(others.size()))];
                std::copy_n(other.begin(), std::min(other.size(), std::size_t{place}), bytes.begin());
                break;
            }
        }
    }
};

} // namespace ucx_mp::glue::test
