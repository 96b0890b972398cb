// Instructions that a UCT transport executes per operation, send and receive side apart. Two interfaces in one process,
// the public UCT API, any transport (connected endpoint to endpoint as rc_verbs, or to the interface as mp_rc).
//
//     UCX_MP_RAILS=softhca_0:1 softhca run -- valgrind --tool=callgrind --collect-atstart=no
//         bench_uct_instructions mp_rc mp0 [operation ...]
//
// Callgrind counts only inside the calls that an operation needs: posting, and those progress calls that find something
// (they are made in groups of `batch`, so that what a poll costs by itself is shared as under load). One dump per
// operation and side: callgrind.out.<pid>.<n>, its trigger line ends with "<operation> <side> <operations> <empty
// polls>"; perf/transport-speed sums them up. Acknowledgments, credits and refills are in it, as many as the operations
// cause.
#include <valgrind/callgrind.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "perf/uct_pair.h"

using namespace ucx_mp::perf;

namespace {

constexpr std::uint8_t kId = 3;

std::uint64_t received = 0;
ucs_status_t on_message(void*, void*, std::size_t, unsigned) {
    ++received;
    return UCS_OK;
}

std::uint64_t completed = 0;
void on_completion(uct_completion_t*) { ++completed; }

// Collects the calls of one side only.
enum class Count { nothing, send, receive };
Count counting = Count::nothing;
std::uint64_t empty_polls = 0;

template <class F> auto counted(Count side, F&& call) {
    if (side == counting) CALLGRIND_TOGGLE_COLLECT;
    const auto result = call();
    if (side == counting) CALLGRIND_TOGGLE_COLLECT;
    return result;
}

struct Bench {
    Domain domain;
    Side from, to;
    Link link;
    uct_rkey_bundle_t key{};
    uct_iov_t iov{};
    unsigned batch = 16;

    Bench(const char* transport, const char* device)
        : domain(transport, device), from(domain, transport, device), to(domain, transport, device), link(from, to) {
        must(uct_iface_set_am_handler(to.iface, kId, on_message, nullptr, 0), "uct_iface_set_am_handler");
        must(uct_rkey_unpack(domain.component, to.packed_key.data(), &key), "uct_rkey_unpack");
    }
    [[nodiscard]] std::uint64_t remote() const { return reinterpret_cast<std::uint64_t>(to.memory); }

    // Progress of a side, counted. How many of those find nothing is reported: what they cost can be taken off.
    unsigned progress(Side& side, Count count) {
        const unsigned n = counted(count, [&] { return uct_worker_progress(side.worker); });
        if (n == 0 && count == counting) ++empty_polls;
        return n;
    }
    template <class F> void until(Side& side, Count count, F&& condition) {
        for (unsigned idle = 0; !condition();) {
            if (progress(side, count) == 0) {
                if (++idle > 1000000) must(UCS_ERR_TIMED_OUT, "waiting for an operation");
                uct_worker_progress(&side == &from ? to.worker : from.worker); // it may be the other's turn
            } else {
                idle = 0;
            }
        }
    }
    void quiet() {
        for (unsigned i = 0; i < 200; ++i) uct_worker_progress(from.worker), uct_worker_progress(to.worker);
    }

    using Post = std::function<ucs_status_t(uct_completion_t*)>;
    struct Operation {
        const char* name;
        bool message;   // arrives at the other side
        bool completes; // calls a completion, if in progress
        bool served;    // done by the other side's processor
        Post post;
        bool alone = false; // complete before the next one begins
    };

    // `count` operations in groups; between them whoever has something to do does it. What has no completion of its own
    // (messages, short puts) is reaped by the sender's progress at the end of each group.
    void run(const Operation& operation, unsigned count) {
        uct_completion_t completion{};
        for (unsigned done = 0; done < count;) {
            const unsigned group = operation.alone ? 1 : std::min(batch, count - done);
            completion.func = on_completion;
            completion.count = static_cast<int>(group) + 1;
            completion.status = UCS_OK;
            const std::uint64_t before = received;
            for (unsigned i = 0; i < group; ++i) {
                ucs_status_t status;
                while ((status = counted(Count::send, [&] { return operation.post(&completion); })) ==
                       UCS_ERR_NO_RESOURCE)
                    uct_worker_progress(from.worker), uct_worker_progress(to.worker);
                if (status == UCS_OK)
                    --completion.count;
                else if (status != UCS_INPROGRESS)
                    must(status, operation.name);
            }
            if (operation.message) until(to, Count::receive, [&] { return received >= before + group; });
            if (operation.served) (void)progress(to, Count::receive);
            if (operation.completes)
                until(from, Count::send, [&] { return completion.count == 1; });
            else
                (void)progress(from, Count::send);
            done += group;
        }
    }
};

std::size_t pack_1k(void* out, void* from) {
    std::memcpy(out, from, 1024);
    return 1024;
}

void unpack_8(void* to, const void* from, std::size_t) { std::memcpy(to, from, 8); }

} // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: %s TRANSPORT DEVICE [--count N] [--batch N] [operation ...]\n", argv[0]);
        return 2;
    }
    Bench bench(argv[1], argv[2]);
    unsigned count = 4096;
    std::vector<std::string> names;
    for (int i = 3; i < argc; ++i) {
        if (!std::strcmp(argv[i], "--count") && i + 1 < argc)
            count = static_cast<unsigned>(std::atoi(argv[++i]));
        else if (!std::strcmp(argv[i], "--batch") && i + 1 < argc)
            bench.batch = static_cast<unsigned>(std::atoi(argv[++i]));
        else
            names.emplace_back(argv[i]);
    }
    Side& from = bench.from;
    const auto piece = [&](std::size_t length) {
        bench.iov = {from.memory, length, from.memh, 0, 1};
        return &bench.iov;
    };
    std::uint64_t result = 0;
    const bool fetch64 = from.attr.cap.atomic64.fop_flags & UCS_BIT(UCT_ATOMIC_OP_ADD);
    const std::vector<Bench::Operation> operations = {
        {"am_short_8", true, false, false,
         [&](uct_completion_t*) { return uct_ep_am_short(bench.link.ab, kId, 1, nullptr, 0); }},
        {"am_short_32", true, false, false,
         [&](uct_completion_t*) { return uct_ep_am_short(bench.link.ab, kId, 1, from.memory, 24); }},
        {"am_bcopy_1k", true, false, false,
         [&](uct_completion_t*) {
             const ssize_t n = uct_ep_am_bcopy(bench.link.ab, kId, pack_1k, from.memory, 0);
             return n < 0 ? static_cast<ucs_status_t>(n) : UCS_OK;
         }},
        {"am_zcopy_4k", true, true, false,
         [&](uct_completion_t* done) {
             return uct_ep_am_zcopy(bench.link.ab, kId, from.memory, 8, piece(4096), 1, 0, done);
         }},
        {"put_short_8", false, false, false,
         [&](uct_completion_t*) {
             return uct_ep_put_short(bench.link.ab, from.memory, 8, bench.remote(), bench.key.rkey);
         }},
        {"put_short_8_flush", false, true, false,
         [&](uct_completion_t* done) {
             const ucs_status_t put = uct_ep_put_short(bench.link.ab, from.memory, 8, bench.remote(), bench.key.rkey);
             return put == UCS_OK ? uct_ep_flush(bench.link.ab, 0, done) : put;
         },
         true},
        {"get_bcopy_8_flush", false, true, false,
         [&](uct_completion_t* done) {
             const ucs_status_t get =
                 uct_ep_get_bcopy(bench.link.ab, unpack_8, &result, 8, bench.remote(), bench.key.rkey, nullptr);
             return get == UCS_INPROGRESS ? uct_ep_flush(bench.link.ab, 0, done) : get;
         },
         true},
        {"put_zcopy_64k", false, true, false,
         [&](uct_completion_t* done) {
             return uct_ep_put_zcopy(bench.link.ab, piece(65536), 1, bench.remote(), bench.key.rkey, done);
         }},
        {"get_zcopy_64k", false, true, false,
         [&](uct_completion_t* done) {
             return uct_ep_get_zcopy(bench.link.ab, piece(65536), 1, bench.remote(), bench.key.rkey, done);
         }},
        {"atomic_fadd_8", false, true, (from.attr.cap.flags & UCT_IFACE_FLAG_ATOMIC_CPU) != 0,
         [&](uct_completion_t* done) {
             return fetch64 ? uct_ep_atomic64_fetch(bench.link.ab, UCT_ATOMIC_OP_ADD, 1, &result, bench.remote(),
                                                    bench.key.rkey, done)
                            : UCS_OK;
         }},
    };
    // Connected, everything allocated that a pool grows by.
    std::uint64_t before = received;
    bench.run(operations[0], 600);
    if (received != before + 600) must(UCS_ERR_IO_ERROR, "warm-up");
    // mp_dc gives the busiest peers RC and rings aside: by a thread, which valgrind lets run now and then. Who sends
    // nothing meanwhile is not busy.
    const auto begun = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(500)) {
        bench.run(operations[0], bench.batch);
        bench.quiet();
        std::this_thread::yield();
    }
    bench.run(operations[0], 600);
    // What a progress call costs that finds nothing.
    bench.quiet();
    counting = Count::send;
    CALLGRIND_ZERO_STATS;
    for (unsigned i = 0; i < count; ++i) (void)bench.progress(from, Count::send);
    CALLGRIND_DUMP_STATS_AT(("empty send " + std::to_string(count) + " 0").c_str());
    counting = Count::nothing;

    for (const auto& operation : operations) {
        bool wanted = names.empty();
        for (const auto& name : names) wanted |= name == operation.name;
        if (!wanted) continue;
        bench.run(operation, 600);
        bench.quiet();
        for (const Count side : {Count::send, Count::receive}) {
            if (side == Count::receive && !operation.message && !operation.served) continue;
            empty_polls = 0;
            counting = side;
            CALLGRIND_ZERO_STATS;
            bench.run(operation, count);
            char text[96];
            std::snprintf(text, sizeof text, "%s %s %u %llu", operation.name, side == Count::send ? "send" : "receive",
                          count, static_cast<unsigned long long>(empty_polls));
            CALLGRIND_DUMP_STATS_AT(text);
            counting = Count::nothing;
            bench.quiet();
        }
    }
    return 0; // what is open is not closed: nobody asks for it
}
