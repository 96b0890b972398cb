// What scheduling costs: nanoseconds and user instructions per message, for every policy. One message is placed or
// planned (pulled where the policy says so) and each of its stripes observed; nothing is sent.
//   bench_schedule_cost [messages]
// Instructions need perf events; where the kernel forbids them, the column is empty: count with callgrind instead.
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "uct_mp/schedule/policy_factory.h"
#include "uct_mp/schedule/scheduler.h"

using namespace ucx_mp::schedule;

namespace {

class Instructions {
public:
    Instructions() {
        perf_event_attr attr{};
        attr.type = PERF_TYPE_HARDWARE;
        attr.size = sizeof attr;
        attr.config = PERF_COUNT_HW_INSTRUCTIONS;
        attr.exclude_kernel = attr.exclude_hv = 1;
        fd_ = static_cast<int>(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
    }
    ~Instructions() {
        if (fd_ >= 0) close(fd_);
    }
    Instructions(const Instructions&) = delete;
    Instructions& operator=(const Instructions&) = delete;
    [[nodiscard]] bool available() const { return fd_ >= 0; }
    [[nodiscard]] long long read() const {
        long long value = 0;
        return available() && ::read(fd_, &value, sizeof value) == sizeof value ? value : 0;
    }

private:
    int fd_;
};

struct Cost {
    double ns, instructions, stripes;
};

// Completions come in order of placing, each path at 1 byte/ns, half a dozen messages behind.
class Loop {
public:
    Loop(const PolicyConfig& config, unsigned paths)
        : scheduler_(config, std::vector<PathSetup>(paths, PathSetup{.nominal_rate = 1})), free_(paths) {}

    void message(std::uint64_t size) {
        now_ += size / free_.size() + 1;
        if (scheduler_.plan({size, MessageKind::put, TrafficHint::none, now_}, plan_) == Outcome::pull) {
            Transfer transfer{size};
            Stripe chunk;
            while (transfer.remaining() > 0) {
                if (scheduler_.next(transfer, now_, chunk))
                    placed(chunk);
                else
                    complete();
            }
        } else {
            for (unsigned k = 0; k < plan_.count; ++k) placed(plan_.stripes[k]);
        }
        while (flying_ > 64) complete();
    }
    // The data path of a small message alone: a path, and a completion for every 16th (the others are unsignaled).
    void small(std::uint64_t size) {
        const PathIndex path = scheduler_.place(Direction::write, size);
        now_ += 100;
        if ((++count_ & 15) == 0) scheduler_.observe({path, Direction::write, size, 16 * size, now_ - 2000, now_});
    }
    [[nodiscard]] std::uint64_t stripes() const { return stripes_; }

private:
    void placed(const Stripe& s) {
        Nanos& free = free_[s.path];
        const Nanos done = free = (free > now_ ? free : now_ + 2000) + s.length;
        ring_[(first_ + flying_++) % kRing] = {s.path, Direction::write, s.length, s.length, now_, done};
        ++stripes_;
    }
    void complete() {
        const Delivery& d = ring_[first_];
        now_ = d.t_done > now_ ? d.t_done : now_;
        scheduler_.observe(d);
        first_ = (first_ + 1) % kRing;
        --flying_;
    }
    static constexpr unsigned kRing = 4096;
    Scheduler scheduler_;
    Plan plan_;
    std::vector<Nanos> free_;
    Nanos now_ = 1;
    Delivery ring_[kRing];
    unsigned first_ = 0, flying_ = 0;
    std::uint64_t stripes_ = 0, count_ = 0;
};

template <class F> Cost measure(Loop& loop, unsigned messages, const Instructions& counter, F&& one) {
    for (unsigned i = 0; i < messages / 10; ++i) one();
    const std::uint64_t stripes = loop.stripes();
    const long long before = counter.read();
    const auto start = std::chrono::steady_clock::now();
    for (unsigned i = 0; i < messages; ++i) one();
    const auto time = std::chrono::steady_clock::now() - start;
    const double n = messages;
    return {std::chrono::duration<double, std::nano>(time).count() / n,
            static_cast<double>(counter.read() - before) / n, static_cast<double>(loop.stripes() - stripes) / n};
}

void print(const Cost& cost, bool instructions, bool stripes) {
    std::printf(" %7.1f", cost.ns);
    if (instructions)
        std::printf(" %7.0f", cost.instructions);
    else
        std::printf("       -");
    if (stripes)
        std::printf(" %5.1f |", cost.stripes);
    else
        std::printf(" |");
}

} // namespace

int main(int argc, char** argv) {
    const unsigned messages = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 200000;
    const Instructions counter;
    std::printf("per message: ns, instructions%s, stripes\n", counter.available() ? "" : " (not available here)");
    for (unsigned paths : {2u, 8u}) {
        std::printf("\n%u paths         8 B (signal 1/16) |        64 KiB         |         1 MiB\n", paths);
        for (unsigned k = 0; k < kPolicyKinds; ++k) {
            const auto kind = static_cast<PolicyKind>(k);
            const PolicyChoice choice = make_policy(name(kind));
            std::printf("%-14s", std::string(name(kind)).c_str());
            Loop small(*choice.config, paths), medium(*choice.config, paths), large(*choice.config, paths);
            print(measure(small, 10 * messages, counter, [&] { small.small(8); }), counter.available(), false);
            print(measure(medium, messages, counter, [&] { medium.message(65536); }), counter.available(), true);
            print(measure(large, messages / 10, counter, [&] { large.message(1 << 20); }), counter.available(), true);
            std::printf("\n");
        }
    }
    return 0;
}
