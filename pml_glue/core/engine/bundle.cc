// Small eager messages that leave together. A program that starts many of them one after the other waits for none: from
// some number on the next ones wait for each other, and an adapter's work is done once for many.
//
// They wait in the peer's queue with requests that are not complete, so that whoever waits for one makes the progress
// that sends it. Nothing of a queue is ever overtaken.
#include <cstring>

#include "pml_glue/core/engine/engine.h"

namespace ucx_mp::glue {

namespace {
constexpr unsigned kMost = 32;          // messages of a bundle; so many do not wait for progress()
constexpr std::size_t kMostBytes = 256; // of one of them
struct Bundle {
    Request* requests[kMost];
    unsigned count = 0;
};
} // namespace

// True: the request is in the queue, or has left from there.
bool Engine::hold_back(Request& request) {
    Peer& peer = *request.peer;
    if (!peer.busy && !(peer.turn == turns_ && peer.left > peer.burst && fits_bundle(request))) return false;
    enqueue(peer, request.waiting);
    if (++peer.held >= kMost && !in_progress_) serve(peer);
    return true;
}

bool Engine::fits_bundle(const Request& request) {
    return !request.synchronous && !request.data.convertor && request.data.bytes <= kMostBytes &&
           request.data.bytes <= request.peer->most_now && wire::fits_compact(request.envelope());
}

// The first messages of the queue, if they go together: how many. With `no_room` they are there again. They are taken
// out before: what they complete at ourselves may start others.
unsigned Engine::post_bundle(Peer& peer, Posted& outcome) {
    Endpoint& endpoint = *peer.endpoint;
    Bundle bundle;
    std::size_t bytes = 0;
    Waiting* next = peer.first;
    for (; next && !next->is_control && bundle.count < kMost; next = next->next) {
        Request& request = Request::of(*next);
        bytes += sizeof(wire::BundleEntry) + request.data.bytes;
        if (!fits_bundle(request) || bytes > endpoint.limits().max_packed) break;
        bundle.requests[bundle.count++] = &request;
    }
    if (bundle.count < 2) return 0;
    peer.first = next;
    outcome = endpoint.send_packed(wire::kBundle, pack_bundle, &bundle);
    if (outcome == Posted::no_room) {
        Waiting& last = bundle.requests[bundle.count - 1]->waiting;
        last.next = peer.first;
        if (!peer.first) peer.last = &last;
        peer.first = &bundle.requests[0]->waiting;
        return bundle.count;
    }
    ++counts_.bundles;
    counts_.eager += bundle.count;
    if (outcome == Posted::failed) endpoint_failed(endpoint);
    for (unsigned i = 0; i < bundle.count; ++i)
        complete(*bundle.requests[i], outcome == Posted::done ? MP_OK : MP_FAILED);
    return bundle.count;
}

std::size_t Engine::pack_bundle(void* out, void* argument) {
    const Bundle& bundle = *static_cast<Bundle*>(argument);
    auto* at = static_cast<std::byte*>(out);
    for (unsigned i = 0; i < bundle.count; ++i) {
        const Request& request = *bundle.requests[i];
        const wire::BundleEntry entry{.compact = wire::compact(request.envelope()),
                                      .bytes = static_cast<std::uint32_t>(request.data.bytes)};
        std::memcpy(at, &entry, sizeof entry);
        at += sizeof entry;
        if (entry.bytes) std::memcpy(at, request.data.buffer, entry.bytes);
        at += entry.bytes;
    }
    return static_cast<std::size_t>(at - static_cast<std::byte*>(out));
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
