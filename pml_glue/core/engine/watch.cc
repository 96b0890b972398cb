// Whether those live who are waited for. A peer that something is sent to is the network's to watch; one that we only
// receive from, or that has our offer and says nothing, has to be asked. Slow path, a few times per second at most.
#include <algorithm>
#include <utility>

#include "pml_glue/core/engine/engine.h"

namespace ucx_mp::glue {

namespace {
constexpr std::size_t kMost = 64; // peers that are asked at a time
}

// Of posted receives: those that name a source. With any source it is whoever has ever been talked to.
void Engine::sources(std::vector<Peer*>& out) {
    std::vector<std::uint64_t> names;
    bool any = false;
    matcher_.each_posted([&](PostedReceive&, const Envelope& pattern) {
        std::uint64_t process;
        if (pattern.source == kAnySource)
            any = true;
        else if (names.size() < kMost && hooks_.process &&
                 hooks_.process(hooks_.argument, pattern.context, pattern.source, &process))
            names.push_back(process);
    });
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    for (const std::uint64_t name : names)
        if (Peer* const peer = this->peer(name)) out.push_back(peer);
    for (const auto& [process, peer] : peers_)
        if (any) out.push_back(peer.get());
}

void Engine::look() {
    if (watch_interval_ == MP_NEVER) return;
    const std::uint64_t now = port_.now();
    if (now - looked_ < watch_interval_) return;
    const bool first = looked_ == 0; // nobody has waited for so long yet
    looked_ = now;
    if (first) return;
    std::vector<Peer*> peers;
    sources(peers);
    slots_.for_each([&](Request& request) {
        if (request.peer) peers.push_back(request.peer);
    });
    if (observer_) observer_->waits_for(peers);
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    // Of many the next ones every time.
    const std::size_t count = std::min(peers.size(), kMost), from = peers.size() > kMost ? turns_ % peers.size() : 0;
    for (std::size_t i = 0; i < count; ++i) {
        Peer& peer = *peers[(from + i) % peers.size()];
        if (peer.failed || peer.process == process_) continue;
        // Who has never sent anything may not be connected, and then nobody can be asked.
        if (!std::exchange(peer.greeted, true)) {
            const std::uint64_t nothing = 0;
            control(peer, wire::kHello, &nothing, sizeof nothing);
        }
        peer.endpoint->check();
    }
}

} // namespace ucx_mp::glue
