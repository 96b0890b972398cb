// What each rank of a job does, as a list of steps; kernels make these lists (one file per family), run.h executes
// them. Like an MPI program a rank does one step after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace ucx_mp::sim {

inline constexpr unsigned kAnyone = UINT32_MAX;

struct Step {
    enum class Kind : std::uint8_t {
        send,     // `amount` bytes to `peer`, by its size as an eager message or by rendezvous (run.h)
        wait,     // until `amount` more messages of `peer` (kAnyone: of all) are here, counted since the run began
        complete, // until all that this rank has started is complete
        compute,  // `amount` ns without progress; adapters work on
        get,      // reads `amount` bytes of the peer's memory
        put,      // writes as many
        add,      // fetches and adds 1 at the peer
        sync,     // as send, of the barrier's own messages: what waits for data does not see them
        meet,     // as wait, likewise, of one peer
    };
    Kind kind;
    unsigned peer;
    std::uint64_t amount;
};
using Steps = std::vector<Step>;
using Job = std::vector<Steps>; // by rank

struct KernelOptions {
    unsigned ranks = 2;
    std::uint64_t size = 65536; // bytes per message
    std::uint64_t messages = 0; // how many of them (or tasks, or phases); 0: as the kernel likes
    unsigned window = 64;       // messages that are started at once, in kernels of windows
    std::uint64_t compute = 0;  // ns of computation, where a kernel has some; 0: as it likes
    double skew = 0.6;          // of kernels that draw whom they talk to: Zipf's exponent
    char problem = 'A';         // of applications: NPB's class, A to C
    double mops = 243;          // of applications: operations per process and us
    unsigned per_node = 1;      // ranks that share a node
    std::uint64_t seed = 1;     // of what is drawn
};

struct Kernel {
    const char* name;
    const char* help;
    Job (*make)(const KernelOptions& options);
};

// Of each file; all of them.
[[nodiscard]] std::vector<Kernel> exchanges(), one_sided_many(), traces(), task_pools(), applications();
[[nodiscard]] const std::vector<Kernel>& kernels();
[[nodiscard]] std::string kernel_names();
// Throws std::runtime_error with one line for a name that is none.
[[nodiscard]] const Kernel& find_kernel(const std::string& name);

// Messages, reads, writes and atomic operations of a job, barriers left out: what a time per message refers to.
[[nodiscard]] std::uint64_t messages_of(const Job& job);
[[nodiscard]] std::uint64_t bytes_of(const Job& job);

// What kernels are made of. A message: its send and its wait.
inline void send(Job& job, unsigned from, unsigned to, std::uint64_t bytes) {
    job[from].push_back({Step::Kind::send, to, bytes});
}
inline void wait(Job& job, unsigned rank, unsigned from, std::uint64_t n = 1) {
    job[rank].push_back({Step::Kind::wait, from, n});
}
inline void complete(Job& job, unsigned rank) { job[rank].push_back({Step::Kind::complete, kAnyone, 0}); }
inline void compute(Job& job, unsigned rank, std::uint64_t ns) {
    if (ns) job[rank].push_back({Step::Kind::compute, kAnyone, ns});
}
// Both send to each other, and go on when both messages are here and away.
void exchange(Job& job, unsigned a, unsigned b, std::uint64_t bytes);
// Dissemination: log2(n) rounds of messages without payload, among all ranks.
void barrier(Job& job);

// Draws 0 <= i < n with probability ~ 1 / (i + 1)^skew. Same numbers everywhere: no library distribution.
class Zipf {
public:
    Zipf(unsigned n, double skew);
    [[nodiscard]] unsigned operator()(std::mt19937_64& random) const;

private:
    std::vector<double> upto_;
};
// Uniform in [0, n), likewise.
[[nodiscard]] inline unsigned below(std::mt19937_64& random, unsigned n) { return static_cast<unsigned>(random() % n); }

} // namespace ucx_mp::sim
