#include "pml_glue/core/engine/engine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace ucx_mp::glue {

namespace {
constexpr std::uint64_t kWatchInterval = 1'000'000'000; // ns
}

Engine::Engine(Port& port, const mp_config_t& config, const mp_hooks_t& hooks)
    : port_(port), hooks_(hooks), process_(config.process), eager_limit_(config.eager_limit),
      zero_copy_(config.zero_copy), hint_limit_(config.hint_limit), by_put_(config.rendezvous_by_put),
      burst_(config.burst), watch_interval_(config.watch_interval ? config.watch_interval : kWatchInterval),
      watch_strangers_(config.watch_strangers) {
    port_.handle(wire::kCompact, on_compact, this);
    port_.handle(wire::kEager, on_eager, this);
    port_.handle(wire::kEagerSync, on_eager_sync, this);
    port_.handle(wire::kRequest, on_request, this);
    port_.handle(wire::kClear, on_clear, this);
    port_.handle(wire::kFragment, on_fragment, this);
    port_.handle(wire::kFinish, on_finish, this);
    port_.handle(wire::kDone, on_done, this);
    port_.handle(wire::kFirst, on_first, this);
    port_.handle(wire::kMore, on_more, this);
    port_.handle(wire::kBundle, on_bundle, this);
    port_.handle(wire::kHello, on_hello, this);
    port_.handle(wire::kBye, on_bye, this);
    port_.listen(*this);
}

Engine::~Engine() {
    for (const auto& [process, peer] : peers_)
        while (Waiting* const entry = peer->first) {
            peer->first = entry->next;
            if (entry->entry == Waiting::Entry::control) delete static_cast<Control*>(entry);
        }
    std::vector<StoredEntry*> entries;
    matcher_.each_stored([&](StoredMessage& message) { entries.push_back(static_cast<StoredEntry*>(&message)); });
    for (StoredEntry* entry : entries) std::free(entry);
    for (FreeEntries& free : free_entries_)
        while (StoredEntry* const entry = free.first) {
            free.first = entry->next_free;
            std::free(entry);
        }
}

Peer* Engine::peer(std::uint64_t process) {
    const auto known = peers_.find(process);
    if (known != peers_.end()) return known->second.get();
    if (kept_.in_thread) return nullptr; // the program connects
    void* address = nullptr;
    std::size_t length = 0;
    std::string error = "it has told no address";
    std::unique_ptr<Endpoint> endpoint;
    if (hooks_.address(hooks_.argument, process, &address, &length))
        endpoint = port_.connect(static_cast<const std::byte*>(address), length, process == process_, error);
    std::free(address);
    if (!endpoint) {
        char line[400];
        std::snprintf(line, sizeof line, "process %llx cannot be reached: %s", static_cast<unsigned long long>(process),
                      error.c_str());
        report(line);
        return nullptr;
    }
    auto peer = std::make_unique<Peer>();
    peer->process = process;
    peer->endpoint = std::move(endpoint);
    peer->secret = std::random_device{}();
    choose(*peer);
    if (is_other(process) && !named_.contains(process)) unnamed_.push_back(process); // a late answer: let_go()
    return peers_.emplace(process, std::move(peer)).first->second.get();
}

void Engine::choose(Peer& peer) const {
    const Limits& limits = peer.endpoint->limits();
    peer.thresholds =
        thresholds(peer.endpoint->costs(), limits.max_packed - sizeof(wire::FirstHeader), limits.max_get > 0);
    for (Sizes* sizes : {&peer.thresholds.other, &peer.thresholds.waiting}) {
        if (eager_limit_ != MP_AUTO) sizes->eager = std::min(eager_limit_, wire::kMostPieces);
        if (zero_copy_ != MP_AUTO) sizes->zero_copy = zero_copy_;
    }
    peer.most_now = std::min({limits.max_short, peer.thresholds.other.eager, peer.thresholds.waiting.eager});
    peer.bundle_room = std::min(sizeof(Bundle::data), limits.max_packed);
    if (burst_ && peer.process != process_) peer.burst = burst_;
}

std::string Engine::statistics() const {
    const auto told = [&](Hint hint) {
        return static_cast<unsigned long long>(counts_.told[static_cast<std::size_t>(hint)]);
    };
    char text[600];
    std::snprintf(
        text, sizeof text,
        "; eager %llu (in pieces %llu, bundles %llu), rendezvous %llu (read %llu, written %llu, in fragments %llu; "
        "%llu for "
        "keys of another size), unexpected %llu, waited "
        "%llu, dropped %llu; stored %zu, posted %zu, peers %zu (forgotten %llu); told: blocking %llu, non-blocking "
        "%llu, collective %llu, epoch "
        "%llu",
        static_cast<unsigned long long>(counts_.eager), static_cast<unsigned long long>(counts_.in_pieces),
        static_cast<unsigned long long>(counts_.bundles), static_cast<unsigned long long>(counts_.offers),
        static_cast<unsigned long long>(counts_.reads), static_cast<unsigned long long>(counts_.writes),
        static_cast<unsigned long long>(counts_.fragments), static_cast<unsigned long long>(counts_.unlike),
        static_cast<unsigned long long>(counts_.unexpected), static_cast<unsigned long long>(counts_.waited),
        static_cast<unsigned long long>(counts_.dropped), matcher_.stored(), matcher_.posted(), peers_.size(),
        static_cast<unsigned long long>(counts_.forgotten), told(Hint::blocking), told(Hint::non_blocking),
        told(Hint::collective), told(Hint::one_sided_epoch));
    return port_.traffic() + text;
}

} // namespace ucx_mp::glue
