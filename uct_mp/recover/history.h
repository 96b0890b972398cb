// The latest transitions of an interface's paths, for mp_info: a ring that forgets the oldest.
//
// Callers: Reports::note() adds, Recoverer::describe() reads.
// Threads: the interface's.
#pragma once

#include <array>
#include <cstdint>

#include "uct_mp/host/services.h"
#include "uct_mp/schedule/path_state.h"

namespace ucx_mp::recover {

struct Transition {
    enum class What : std::uint8_t { suspect, cleared, down, settled, up, cut_off, reached, migrated } what;
    schedule::PathIndex path; // kNoPath: cut_off (no path is left), reached (one is back)
    std::uint64_t peer;       // uid
    Nanos at;                 // Services::now()
    Nanos took;               // settled, up, reached: ns since it went down
    std::uint32_t again;      // settled: writes sent again
    const char* cause;        // down; a literal
};

[[nodiscard]] constexpr const char* name(Transition::What what) {
    constexpr const char* kNames[] = {"suspect", "cleared", "down", "settled", "up", "cut-off", "reached", "migrated"};
    return kNames[static_cast<unsigned>(what)];
}

class History {
public:
    static constexpr unsigned kKept = 64;
    void add(const Transition& transition) { kept_[count_++ % kKept] = transition; }
    [[nodiscard]] std::uint64_t count() const { return count_; } // all that were added, also those forgotten
    // Goes from the oldest to the newest of those that are kept.
    template <class Each> void for_each(const Each& each) const {
        for (std::uint64_t i = count_ > kKept ? count_ - kKept : 0; i < count_; ++i) each(kept_[i % kKept]);
    }

private:
    std::array<Transition, kKept> kept_{};
    std::uint64_t count_ = 0;
};

} // namespace ucx_mp::recover
