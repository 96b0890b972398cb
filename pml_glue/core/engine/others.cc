// Peers of other jobs, which come and go: goodbyes, and peers that no communicator has any more. Slow path.
#include <algorithm>
#include <utility>

#include "pml_glue/core/engine/engine.h"

namespace ucx_mp::glue {

void Engine::named(std::uint64_t process, bool comes) {
    if (comes) {
        ++named_[process];
        const auto known = peers_.find(process);
        if (known == peers_.end()) return;
        known->second->left = false;
        // Our goodbye may still be on its way: this message comes behind it.
        if (std::exchange(known->second->parted, false))
            control(*known->second, wire::kHello, &process_, sizeof process_);
        return;
    }
    const auto found = named_.find(process);
    if (found == named_.end()) return;
    if (found->second == 1) unnamed_.push_back(process);
    if (--found->second == 0) named_.erase(found);
}

// Whether only peers_ points to it, and nothing of it is under way. A failure that is not told yet waits.
bool Engine::idle(Peer& peer) {
    const auto& failed = failed_endpoints_;
    if (peer.listed || peer.waits() || std::find(failed.begin(), failed.end(), peer.endpoint.get()) != failed.end())
        return false;
    bool used = std::any_of(observers_.begin(), observers_.end(), [&](const auto* one) { return one->holds(peer); });
    slots_.for_each([&](const Request& request) { used |= request.peer == &peer; });
    assemblies_.each_wanted([&](std::uint64_t sender) { used |= sender == peer.process; });
    return !used && peer.endpoint->idle();
}

// A connection of the transport serves both directions, and ends when both sides have let it go.
// A peer that still has a communicator with us is told, so that it does not miss us when we end.
void Engine::let_go() {
    std::erase_if(unnamed_, [&](std::uint64_t process) {
        const auto found = peers_.find(process);
        if (found == peers_.end() || named_.contains(process)) return true; // never talked to, or needed again
        Peer& peer = *found->second;
        if (!idle(peer)) return false;
        if (!peer.failed && !peer.left && !std::exchange(peer.parted, true)) {
            control(peer, wire::kBye, &process_, sizeof process_);
            return false; // until it has arrived
        }
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
        if (is_other(process) && !peer->failed && !peer->left && !peer->parted) others.push_back(peer.get());
    for (Peer* peer : others) control(*peer, wire::kBye, &process_, sizeof process_);
}

void Engine::says(const std::byte* data, std::size_t length, bool leaves) {
    std::uint64_t process;
    if (length != sizeof process) return dropped("a greeting or goodbye has a wrong length");
    std::memcpy(&process, data, sizeof process);
    const auto known = peers_.find(process);
    if (known != peers_.end()) known->second->left = leaves;
}

void Engine::on_bye(void* self, const std::byte* data, std::size_t length) {
    static_cast<Engine*>(self)->says(data, length, true);
}

void Engine::on_hello(void* self, const std::byte* data, std::size_t length) {
    static_cast<Engine*>(self)->says(data, length, false);
}

} // namespace ucx_mp::glue
