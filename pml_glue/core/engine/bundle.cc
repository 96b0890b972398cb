// Small eager messages that leave together. A program that starts many of them one after the other waits for
// none. From some number on the next ones wait for each other, so an adapter's work is done once for many.
//
// They are copied at once into a bundle, which waits in the peer's queue as one entry. Their
// requests are complete when it has left, so whoever waits for one makes the progress that sends it.
// Nothing in a queue is ever overtaken: once another entry is behind it, a bundle takes no more.
#include <cstring>

#include "pml_glue/core/engine/engine.h"

namespace ucx_mp::glue {

namespace {
constexpr unsigned kMost = 16; // messages of a bundle; with so many, or full, it does not wait for progress()
} // namespace

bool Engine::hold(Peer& peer, std::uint64_t compact, const void* data, std::size_t bytes, Request& request) {
    const std::size_t takes = sizeof(wire::BundleEntry) + bytes;
    const std::size_t room = peer.bundle_room;
    if (bytes > MP_HELD_MOST || bytes > peer.most_now || takes > room || peer.failed) return false;
    Bundle* bundle = peer.open;
    if (!bundle || bundle->count == kMost || bundle->bytes + takes > room) {
        if (bundle && !in_progress_) serve(peer);
        bundle = &new_bundle();
        enqueue(peer, *bundle);
        peer.open = bundle;
    }
    const wire::BundleEntry entry{.compact = compact, .bytes = static_cast<std::uint32_t>(bytes)};
    std::byte* const at = bundle->data + bundle->bytes;
    std::memcpy(at, &entry, sizeof entry);
    if (bytes) std::memcpy(at + sizeof entry, data, bytes);
    bundle->bytes += takes;
    request.shown.complete = false;
    request.waiting.next = nullptr;
    (bundle->first ? bundle->last->next : bundle->first) = &request.waiting;
    bundle->last = &request.waiting;
    if (++bundle->count == kMost && !in_progress_) serve(peer);
    return true;
}

Bundle& Engine::new_bundle() {
    Bundle* bundle = free_bundles_;
    if (bundle) {
        free_bundles_ = static_cast<Bundle*>(bundle->next);
    } else {
        bundle = bundles_.emplace_back(std::make_unique<Bundle>()).get();
        bundle->entry = Waiting::Entry::bundle;
    }
    bundle->first = bundle->last = nullptr;
    bundle->count = 0;
    bundle->bytes = 0;
    return *bundle;
}

// Its requests end. They may start others.
void Engine::end_bundle(Bundle& bundle, mp_error_t error) {
    Waiting* next = bundle.first;
    bundle.next = free_bundles_;
    free_bundles_ = &bundle;
    while (Waiting* const waiting = next) {
        next = waiting->next;
        tell_end(Request::of(*waiting), error);
    }
}

Posted Engine::post_bundle(Peer& peer, Bundle& bundle) {
    if (peer.open == &bundle) peer.open = nullptr;
    const Posted outcome = peer.endpoint->send_packed(
        wire::kBundle,
        [](void* out, void* argument) {
            const Bundle& from = *static_cast<Bundle*>(argument);
            std::memcpy(out, from.data, from.bytes);
            return from.bytes;
        },
        &bundle);
    if (outcome == Posted::no_room) return outcome;
    ++counts_.bundles;
    counts_.eager += bundle.count;
    if (outcome == Posted::failed) endpoint_failed(*peer.endpoint);
    end_bundle(bundle, outcome == Posted::done ? MP_OK : MP_FAILED);
    return outcome;
}

void Engine::on_bundle(void* self, const std::byte* data, std::size_t length) {
    Engine& engine = *static_cast<Engine*>(self);
    while (length) {
        wire::BundleEntry entry;
        if (length < sizeof entry) return engine.dropped("a bundle is too short");
        std::memcpy(&entry, data, sizeof entry);
        data += sizeof entry;
        length -= sizeof entry;
        if (length < entry.bytes) return engine.dropped("a bundle is shorter than its messages");
        engine.eager_arrived(wire::expand(entry.compact), data, entry.bytes);
        data += entry.bytes;
        length -= entry.bytes;
    }
}

} // namespace ucx_mp::glue
