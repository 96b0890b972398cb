// Asks whether peers live that are waited for. The network watches a peer that something is sent to. A peer that we
// only receive from, or that has our offer and is silent, has to be asked. Slow path, a few times per second at most.
//
// An eager message does not name its process, so a process that has only sent is no peer of ours. If strangers
// are to be watched, a receive from any source that waits for longer than an interval makes peers of the
// communicator's members, some at a time: it may wait for one of them. That costs connections which nobody
// else needs, and a member that cannot be connected in time counts as gone. So it is for jobs that go on
// without a process. Members of other jobs are left out: they may have left, and could not tell a stranger.
#include <algorithm>
#include <utility>

#include "pml_glue/core/engine/engine.h"

namespace ucx_mp::glue {

namespace {
constexpr std::size_t kMostAsked = 64;           // peers that are asked at a time
constexpr unsigned kNew = 16;                    // strangers that are connected at a time
constexpr unsigned kMembers = 1024;              // members that are looked at for that
constexpr std::uint64_t kRankBits = 0xffff'ffff; // part of a process' name that holds about its rank in the job
} // namespace

// In turn: if there are many looks, the last ones are remembered.
bool Engine::source_failed(const Envelope& pattern) {
    const auto last = (watched_.sought_count + watched_.sought.size() - 1) % watched_.sought.size();
    if (watched_.sought_count == 0 || !(watched_.sought[last] == pattern))
        watched_.sought[watched_.sought_count++ % watched_.sought.size()] = pattern;
    return has_failed(pattern);
}

// Receives, and looks for a message, that name a source. If they name none, every peer so far is asked.
void Engine::sources(std::vector<std::uint64_t>& names) {
    bool any = false;
    std::vector<std::uint32_t> contexts, looked_for;
    const auto add = [&](const Envelope& pattern, bool for_long) {
        std::uint64_t process;
        if (pattern.source == kAnySource) {
            any = true;
            if (for_long && watch_strangers_ && (contexts.empty() || contexts.back() != pattern.context))
                contexts.push_back(pattern.context);
        } else if (hooks_.process && hooks_.process(hooks_.argument, pattern.context, pattern.source, &process) &&
                   (names.empty() || names.back() != process)) {
            names.push_back(process);
        }
    };
    matcher_.each_posted([&](PostedReceive& receive, const Envelope& pattern) {
        add(pattern, receive.number <= watched_.posted_before);
    });
    watched_.posted_before = matcher_.last_posted();
    for (std::size_t i = 0; i < std::min(watched_.sought_count, watched_.sought.size()); ++i) {
        const Envelope& pattern = watched_.sought[i];
        const auto& before = watched_.any_sought;
        add(pattern, std::find(before.begin(), before.end(), pattern.context) != before.end());
        if (pattern.source == kAnySource) looked_for.push_back(pattern.context);
    }
    watched_.sought_count = 0;
    watched_.any_sought = std::move(looked_for);
    if (watch_strangers_) meet(contexts);
    for (const auto& [process, peer] : peers_)
        if (any && !peer->failed) names.push_back(process);
}

// Remembers the position in each communicator as long as somebody waits there.
void Engine::meet(std::vector<std::uint32_t>& contexts) {
    std::sort(contexts.begin(), contexts.end());
    contexts.erase(std::unique(contexts.begin(), contexts.end()), contexts.end());
    std::erase_if(watched_.met,
                  [&](const auto& each) { return !std::binary_search(contexts.begin(), contexts.end(), each.first); });
    if (!hooks_.process || contexts.empty()) return;
    unsigned room = kNew, looks = kMembers;
    std::rotate(contexts.begin(), contexts.begin() + static_cast<std::ptrdiff_t>(watched_.meetings++ % contexts.size()),
                contexts.end());
    for (const std::uint32_t context : contexts) {
        std::uint64_t process;
        // Begins behind our own rank, since otherwise all ranks would meet the first ones at the same time.
        std::int32_t& next =
            watched_.met.try_emplace(context, static_cast<std::int32_t>(process_ & kRankBits)).first->second;
        bool wrapped = false;
        for (; looks && room; --looks) {
            if (!hooks_.process(hooks_.argument, context, next, &process)) {
                next = 0;
                if (std::exchange(wrapped, true)) break;
                continue;
            }
            ++next;
            if (process == process_ || is_other(process) || peers_.contains(process)) continue;
            ask(process);
            --room;
        }
    }
}

void Engine::look() {
    if (watch_interval_ == MP_NEVER) return;
    const std::uint64_t now = port_.now();
    if (now - watched_.looked < watch_interval_) return;
    const bool first = watched_.looked == 0; // nobody has waited for so long yet
    watched_.looked = now;
    if (first) return;
    std::vector<std::uint64_t> names;
    sources(names);
    assemblies_.each_wanted([&](std::uint64_t sender) { names.push_back(sender); });
    std::vector<Peer*> peers = waiting_; // a peer that takes nothing more may be gone
    slots_.for_each([&](Request& request) {
        if (request.peer) peers.push_back(request.peer);
    });
    for (PeerObserver* observer : observers_) observer->waits_for(peers);
    for (const Peer* peer : peers) names.push_back(peer->process);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    // If there are many, each time the next ones.
    const auto next =
        static_cast<std::size_t>(std::upper_bound(names.begin(), names.end(), watched_.asked) - names.begin());
    for (std::size_t i = 0; i < std::min(names.size(), kMostAsked); ++i)
        ask(watched_.asked = names[(next + i) % names.size()]);
}

void Engine::ask(std::uint64_t process) {
    Peer* const peer = process == process_ ? nullptr : this->peer(process);
    if (!peer || peer->failed) return;
    // A process that has never sent anything may not be connected, and then it cannot be asked.
    if (!std::exchange(peer->greeted, true)) {
        const std::uint64_t nothing = 0;
        control(*peer, wire::kHello, &nothing, sizeof nothing);
    }
    peer->endpoint->check();
}

} // namespace ucx_mp::glue
