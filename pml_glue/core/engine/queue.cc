// Operations that wait for room; failures; endings.
#include <algorithm>
#include <cstdio>

#include "pml_glue/core/engine/engine.h"

namespace ucx_mp::glue {

namespace {
constexpr std::uint32_t kTurns = 1024; // of progress(), between two looks at the clock
constexpr unsigned kPortions = 1024;
struct Bytes {
    const std::byte* data;
    std::size_t length;
};
std::size_t pack_bytes(void* out, void* argument) {
    const auto& bytes = *static_cast<Bytes*>(argument);
    std::memcpy(out, bytes.data, bytes.length);
    return bytes.length;
}
} // namespace

void Engine::enqueue(Peer& peer, Waiting& entry) {
    ++counts_.waited;
    peer.busy = true;
    peer.open = nullptr;
    entry.next = nullptr;
    (peer.first ? peer.last->next : peer.first) = &entry;
    peer.last = &entry;
    list(peer);
}

void Engine::enqueue_bulk(Request& request) {
    Peer& peer = *request.peer;
    request.bulk = true;
    request.next_bulk = nullptr;
    (peer.bulk_first ? peer.bulk_last->next_bulk : peer.bulk_first) = &request;
    peer.bulk_last = &request;
    list(peer);
}

void Engine::list(Peer& peer) {
    if (peer.listed) return;
    peer.listed = true;
    waiting_.push_back(&peer);
}

void Engine::control(Peer& peer, MessageKind kind, const void* message, std::size_t length) {
    if (peer.failed) return;
    const auto* const bytes = static_cast<const std::byte*>(message);
    if (!peer.busy) {
        const Posted outcome = post_control(peer, kind, bytes, length);
        if (outcome == Posted::failed || outcome == Posted::refused) give_up(peer); // else it would wait for ever
        if (outcome != Posted::no_room) return;
    }
    auto* const entry = new Control;
    entry->entry = Waiting::Entry::control;
    entry->kind = kind;
    entry->length = static_cast<std::uint16_t>(length);
    std::memcpy(entry->bytes, bytes, length);
    enqueue(peer, *entry);
}

Posted Engine::post_control(Peer& peer, MessageKind kind, const std::byte* message, std::size_t length) {
    Endpoint& endpoint = *peer.endpoint;
    std::uint64_t header;
    if (length >= sizeof header && length - sizeof header <= endpoint.limits().max_short) {
        std::memcpy(&header, message, sizeof header);
        return endpoint.send_short(kind, header, message + sizeof header, length - sizeof header);
    }
    Bytes bytes{message, length};
    return endpoint.send_packed(kind, pack_bytes, &bytes);
}

void Engine::tell_done(Peer& peer, MessageKind kind, std::uint64_t id, bool ok) {
    const wire::DoneHeader header{.id = id, .ok = ok, .zero = 0};
    control(peer, kind, &header, sizeof header);
}

unsigned Engine::progress() {
    if (in_progress_) return 0;
    in_progress_ = true;
    unsigned count = port_.progress();
    if (!failed_endpoints_.empty()) [[unlikely]]
        fail_peers();
    if (!waiting_.empty()) [[unlikely]]
        count += serve_waiting();
    if (++turns_ % kTurns == 0) [[unlikely]] {
        look();
        if (!unnamed_.empty()) let_go();
    }
    in_progress_ = false;
    return count;
}

// Each peer once; a peer that still waits stays listed. Peers that are listed meanwhile get their turn next time.
unsigned Engine::serve_waiting() {
    std::vector<Peer*> turn;
    turn.swap(waiting_);
    unsigned count = 0;
    for (Peer* peer : turn) {
        peer->listed = false;
        count += serve(*peer) + serve_bulk(*peer);
        if (peer->waits()) list(*peer);
    }
    return count;
}

// An entry is taken out before it is posted: after that its memory may have another owner.
unsigned Engine::serve(Peer& peer) {
    unsigned count = 0;
    peer.held = 0;
    while (Waiting* const entry = peer.first) {
        Posted outcome = Posted::done;
        peer.first = entry->next;
        if (entry->entry == Waiting::Entry::bundle) {
            outcome = post_bundle(peer, *static_cast<Bundle*>(entry));
        } else if (entry->entry == Waiting::Entry::control) {
            auto* const message = static_cast<Control*>(entry);
            outcome = post_control(peer, message->kind, message->bytes, message->length);
            if (outcome == Posted::failed || outcome == Posted::refused) give_up(peer);
            if (outcome != Posted::no_room) delete message;
        } else {
            Request& request = Request::of(*entry);
            outcome = post_first(request);
            if (outcome == Posted::failed) lost(request);
            if (outcome == Posted::refused) complete(request, MP_FAILED);
        }
        if (outcome == Posted::no_room) {
            entry->next = peer.first;
            if (!peer.first) peer.last = entry;
            peer.first = entry;
            return count;
        }
        ++count;
    }
    peer.busy = peer.failed;
    return count;
}

// Every peer with data to move gets a turn; the first one without room ends it.
unsigned Engine::serve_bulk(Peer& peer) {
    unsigned count = 0;
    while (Request* const request = peer.bulk_first) {
        peer.bulk_first = request->next_bulk;
        request->bulk = false;
        if (move(*request) == Posted::no_room) {
            request->bulk = true;
            request->next_bulk = peer.bulk_first;
            if (!peer.bulk_first) peer.bulk_last = request;
            peer.bulk_first = request;
            return count;
        }
        ++count;
    }
    return count;
}

void Engine::endpoint_failed(Endpoint& endpoint) { failed_endpoints_.push_back(&endpoint); }

void Engine::lost(Request& request) {
    endpoint_failed(*request.peer->endpoint);
    complete(request, MP_FAILED);
}

// Messages from before its failure may still be here: over shared memory they come in small portions.
void Engine::fail_peers() {
    for (unsigned i = 0; i < kPortions && port_.progress(); ++i) {}
    std::vector<Endpoint*> failed;
    failed.swap(failed_endpoints_);
    for (Endpoint* endpoint : failed)
        for (const auto& [process, peer] : peers_)
            if (peer->endpoint.get() == endpoint && !peer->failed) {
                fail(*peer);
                break;
            }
}

// Memory that the port still has comes back to its completion, with an error.
void Engine::fail(Peer& peer) {
    peer.failed = true;
    ++failed_peers_;
    const std::uint64_t before = counts_.lost;
    peer.bulk_first = peer.bulk_last = nullptr;
    peer.open = nullptr;
    peer.busy = true;
    while (Waiting* const entry = peer.first) {
        peer.first = entry->next;
        if (entry->entry == Waiting::Entry::control)
            delete static_cast<Control*>(entry);
        else if (entry->entry == Waiting::Entry::bundle)
            end_bundle(*static_cast<Bundle*>(entry), MP_FAILED);
        else
            complete(Request::of(*entry), MP_FAILED);
    }
    slots_.for_each([&](Request& request) {
        if (request.peer != &peer) return;
        request.bulk = false;
        request.broken = true;
        if (!request.outstanding && request.pieces_out == 0) complete(request, MP_FAILED);
    });
    forget_pieces(peer);
    std::vector<PostedReceive*> receives;
    matcher_.each_posted([&](PostedReceive& receive, const Envelope& pattern) {
        if (ends(pattern, peer)) receives.push_back(&receive);
    });
    for (PostedReceive* receive : receives) {
        if (!receive->link.linked) continue; // a hook has cancelled it
        Request& request = Request::of(*receive);
        request.shown.status = {
            .source = request.envelope().source, .tag = request.envelope().tag, .error = MP_FAILED, .bytes = 0};
        matcher_.cancel(*receive);
        complete(request, MP_FAILED);
    }
    for (PeerObserver* observer : observers_) observer->peer_failed(peer);
    if (counts_.lost == before) return; // nobody misses it: it may have left normally
    char line[96];
    std::snprintf(line, sizeof line, "process %llx is gone", static_cast<unsigned long long>(peer.process));
    report(line);
}

bool Engine::has_failed(const Envelope& pattern) const {
    if (failed_peers_ == 0) return false;
    for (const auto& [process, peer] : peers_)
        if (peer->failed && ends(pattern, *peer)) return true;
    return false;
}

// Whether a receive ends with this peer. A receive from any source
// does not, if the peer has left normally and another one is there.
bool Engine::ends(const Envelope& pattern, const Peer& peer) const {
    if (!hooks_.is_source(hooks_.argument, pattern.context, pattern.source, peer.process)) return false;
    if (!peer.left || pattern.source != kAnySource || !hooks_.process) return true;
    std::uint64_t process;
    for (std::int32_t rank = 0; hooks_.process(hooks_.argument, pattern.context, rank, &process); ++rank) {
        const auto known = peers_.find(process);
        if (known == peers_.end() || (!known->second->failed && !known->second->left)) return false;
    }
    return true;
}

void Engine::release(Request& request) {
    if (request.id) slots_.remove(request.id);
    if (request.key) request.peer->endpoint->release_key(request.key);
    if (request.memory) request.peer->endpoint->deregister(request.memory);
    request.id = 0;
    request.key = nullptr;
    request.memory = nullptr;
}

void Engine::complete(Request& request, mp_error_t error) {
    if (request.id || request.memory) release(request); // a key comes with memory
    tell_end(request, error);
}

void Engine::dropped(const char* why) {
    if (counts_.dropped++ == 0) report(why);
}

} // namespace ucx_mp::glue
