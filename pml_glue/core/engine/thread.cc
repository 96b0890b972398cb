// Turns of the progress thread. The program is outside, and may look at
// requests that are complete, and at their status. So nothing is told here.
#include <utility>

#include "pml_glue/core/engine/engine.h"

namespace ucx_mp::glue {

namespace {
constexpr std::size_t kMostHeldBack = 1024; // messages
}

bool Engine::stops_thread() const { return port_.held_back() >= kMostHeldBack; }

unsigned Engine::progress_in_thread() {
    in_progress_ = true;
    unsigned count = port_.progress(); // also with messages held back: the transport goes on
    if (!waiting_.empty() && failed_endpoints_.empty()) count += serve_waiting();
    in_progress_ = false;
    return count;
}

// True: the message comes from a process that is not connected, and is held back for the program.
bool Engine::hold_back(std::uint64_t process, MessageKind kind, const std::byte* data, std::size_t length) {
    if (!kept_.in_thread || peers_.contains(process)) return false;
    port_.hold_back(kind, data, length);
    return true;
}

void Engine::report(const char* line) {
    if (kept_.in_thread)
        kept_.lines.emplace_back(line);
    else
        hooks_.report(hooks_.argument, line);
}

// First the operations that have ended: held back messages came later. A request is its owner's again once it is told.
void Engine::tell_kept() {
    if (!kept_.any() && !port_.held_back()) return;
    const bool before = std::exchange(in_progress_, true);
    Kept kept;
    std::swap(kept, kept_);
    for (const std::string& line : kept.lines) report(line.c_str());
    while (Request* const request = kept.first) {
        kept.first = request->next_bulk;
        request->shown.complete = true;
        hooks_.completed(hooks_.argument, &request->shown);
    }
    for (const Kept::Operation& each : kept.operations) each.done(each.user, each.error);
    port_.give_back();
    in_progress_ = before;
}

} // namespace ucx_mp::glue
