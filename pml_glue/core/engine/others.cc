// Peers of other jobs, which come and go: goodbyes, and those that no communicator has any more. Slow path.
#include <algorithm>

#include "pml_glue/core/engine/engine.h"

namespace ucx_mp::glue {

void Engine::named(std::uint64_t process, bool comes) {
    if (comes) {
        ++named_[process];
        return;
    }
    const auto found = named_.find(process);
    if (found == named_.end() || --found->second) return;
    named_.erase(found);
    unnamed_.push_back(process);
}

// Whether nobody has a pointer to it but peers_, and nothing of it is under way. What failed and is not told yet waits.
bool Engine::idle(Peer& peer) {
    const auto& failed = failed_endpoints_;
    if (peer.listed || peer.waits() || std::find(failed.begin(), failed.end(), peer.endpoint.get()) != failed.end())
        return false;
    bool used = observer_ && observer_->holds(peer);
    slots_.for_each([&](const Request& request) { used |= request.peer == &peer; });
    assemblies_.each_wanted([&](std::uint64_t sender) { used |= sender == peer.process; });
    return !used && peer.endpoint->idle();
}

// A connection of the transport serves both directions, and ends when both sides have let it go.
void Engine::let_go() {
    std::erase_if(unnamed_, [&](std::uint64_t process) {
        const auto found = peers_.find(process);
        if (found == peers_.end() || named_.contains(process)) return true; // never talked to, or needed again
        Peer& peer = *found->second;
        if (!idle(peer)) return false;
        if (peer.failed) --failed_peers_;
        if (hooks_.forgotten) hooks_.forgotten(hooks_.argument, process);
        port_.disconnect(std::move(peer.endpoint));
        peers_.erase(found);
        ++counts_.forgotten;
        return true;
    });
}

void Engine::leave() {
    std::vector<Peer*> others;
    for (const auto& [process, peer] : peers_)
        if (process >> 32 != process_ >> 32 && !peer->failed && !peer->left) others.push_back(peer.get());
    for (Peer* peer : others) control(*peer, wire::kBye, &process_, sizeof process_);
}

void Engine::on_bye(void* self, const std::byte* data, std::size_t length) {
    Engine& engine = *static_cast<Engine*>(self);
    std::uint64_t process;
    if (length != sizeof process) return engine.dropped("a goodbye has a wrong length");
    std::memcpy(&process, data, sizeof process);
    const auto known = engine.peers_.find(process);
    if (known != engine.peers_.end()) known->second->left = true;
}

} // namespace ucx_mp::glue
