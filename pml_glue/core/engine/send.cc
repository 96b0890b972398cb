// How messages leave: at once if there is room, else in their order.
#include <algorithm>

#include "pml_glue/core/engine/engine.h"

namespace ucx_mp::glue {

namespace {
constexpr std::uint32_t kServed = 32; // with so many in a queue they do not wait for progress()

wire::EagerHeader header_of(const Envelope& envelope) {
    return {.context = envelope.context, .source = envelope.source, .tag = envelope.tag, .zero = 0};
}
} // namespace

void Engine::send(Request& request, Peer& peer, const Envelope& envelope, const mp_data_t& data, bool synchronous,
                  Hint hint) {
    clear_request(request);
    request.is_send = true;
    request.synchronous = synchronous;
    request.hint = hint;
    request.posted.link.key = envelope;
    request.data = data;
    request.peer = &peer;
    request.phase = Phase::queued;
    if (peer.failed) return complete(request, MP_FAILED);
    if (peer.busy || hint == Hint::non_blocking) [[unlikely]]
        if (goes_behind(request)) return;
    settle_first(request, post_first(request));
}

// True: the request is in the queue, or has left from there.
bool Engine::goes_behind(Request& request) {
    Peer& peer = *request.peer;
    const mp_data_t& data = request.data;
    if (!peer.busy && !(peer.turn == turns_ && peer.gone_alone > peer.burst)) return false;
    if (!request.synchronous && !data.convertor && wire::fits_compact(request.envelope()) &&
        hold(peer, wire::compact(request.envelope()), data.buffer, data.bytes, request))
        return true;
    if (!peer.busy) return false;
    enqueue(peer, request.waiting);
    if (++peer.held >= kServed && !in_progress_) serve(peer);
    return true;
}

const Sizes& Engine::sizes_of(const Request& request) {
    const Thresholds& thresholds = request.peer->thresholds;
    return request.hint == Hint::blocking || request.hint == Hint::collective ? thresholds.waiting : thresholds.other;
}

// A synchronous message is answered anyway: pieces would save it nothing.
bool Engine::needs_rendezvous(const Request& request) const {
    const std::size_t most = sizes_of(request).eager;
    if (!request.synchronous) return request.data.bytes > most;
    return request.data.bytes > std::min(most, request.peer->endpoint->limits().max_packed - sizeof(wire::SyncHeader));
}

// Sends the first message of a request. The request gets its next phase before the endpoint
// is called, since the answer may come within the call. After `done` the request may be gone.
Posted Engine::post_first(Request& request) {
    const Posted outcome = needs_rendezvous(request) ? post_offer(request)
                           : request.synchronous     ? post_synchronous(request)
                                                     : post_eager(request);
    if (outcome == Posted::no_room) request.phase = Phase::queued;
    return outcome;
}

void Engine::settle_first(Request& request, Posted outcome) {
    if (outcome == Posted::no_room)
        enqueue(*request.peer, request.waiting);
    else if (outcome == Posted::failed)
        lost(request);
    else if (outcome == Posted::refused)
        complete(request, MP_FAILED);
}

Posted Engine::post_eager(Request& request) {
    Endpoint& endpoint = *request.peer->endpoint;
    const mp_data_t& data = request.data;
    Posted outcome;
    if (!data.convertor && data.bytes <= endpoint.limits().max_short && wire::fits_compact(request.envelope()))
        outcome = endpoint.send_short(wire::kCompact, wire::compact(request.envelope()), data.buffer, data.bytes);
    else if (data.bytes <= endpoint.limits().max_zero_copy && leaves_without_copy(request))
        return post_zero_copy(request);
    else if (data.bytes > endpoint.limits().max_packed - sizeof(wire::EagerHeader))
        return post_pieces(request);
    else
        outcome = endpoint.send_packed(wire::kEager, pack_eager, &request);
    if (outcome == Posted::done) {
        ++counts_.eager;
        complete(request, MP_OK);
    }
    return outcome;
}

bool Engine::leaves_without_copy(Request& request) {
    const Limits& limits = request.peer->endpoint->limits();
    const mp_data_t& data = request.data;
    if (data.convertor || data.bytes == 0 || data.bytes < sizes_of(request).zero_copy || limits.max_zero_copy == 0 ||
        limits.max_header < sizeof(wire::FirstHeader))
        return false;
    if (!request.memory) request.memory = request.peer->endpoint->register_memory(data.buffer, data.bytes);
    return request.memory;
}

Posted Engine::post_zero_copy(Request& request) {
    const wire::EagerHeader header = header_of(request.envelope());
    const mp_data_t& data = request.data;
    if (request.id == 0) request.id = slots_.add(request, request.peer->secret);
    request.phase = Phase::leaving;
    request.completion.done = left;
    const Posted outcome = request.peer->endpoint->send_zero_copy(wire::kEager, &header, sizeof header, data.buffer,
                                                                  data.bytes, request.memory, request.completion);
    if (outcome == Posted::done || outcome == Posted::in_progress) ++counts_.eager;
    if (outcome == Posted::in_progress) request.outstanding = true;
    if (outcome == Posted::done) complete(request, MP_OK);
    return outcome;
}

void Engine::left(Completion& completion, bool ok) {
    Request& request = Request::of(completion);
    request.outstanding = false;
    request.engine->complete(request, ok ? MP_OK : MP_FAILED);
}

Posted Engine::post_synchronous(Request& request) {
    if (request.id == 0) request.id = slots_.add(request, request.peer->secret);
    request.phase = Phase::offered;
    const Posted outcome = request.peer->endpoint->send_packed(wire::kEagerSync, pack_eager, &request);
    if (outcome == Posted::done) ++counts_.eager;
    return outcome;
}

std::size_t Engine::pack_eager(void* out, void* argument) {
    Request& request = *static_cast<Request*>(argument);
    auto* at = static_cast<std::byte*>(out);
    if (request.synchronous) {
        const wire::SyncHeader header{
            .envelope = header_of(request.envelope()), .sender = request.engine->process_, .request = request.id};
        std::memcpy(at, &header, sizeof header);
        at += sizeof header;
    } else {
        const wire::EagerHeader header = header_of(request.envelope());
        std::memcpy(at, &header, sizeof header);
        at += sizeof header;
    }
    at += request.engine->pack_data(request, 0, at, request.data.bytes);
    return static_cast<std::size_t>(at - static_cast<std::byte*>(out));
}

std::size_t Engine::pack_data(Request& request, std::size_t offset, void* out, std::size_t bytes) {
    if (bytes == 0) return 0;
    if (request.data.convertor) return hooks_.pack(request.data.convertor, offset, out, bytes);
    std::memcpy(out, request.at(offset), bytes);
    return bytes;
}

namespace {
struct OfferMessage {
    wire::RequestHeader header;
    std::byte key[wire::kMaxKey];
};
std::size_t pack_offer(void* out, void* argument) {
    const auto& message = *static_cast<OfferMessage*>(argument);
    const std::size_t length = sizeof message.header + message.header.key_bytes;
    std::memcpy(out, &message, length);
    return length;
}
} // namespace

// Rendezvous: sends the envelope, and a key to read the data with. Data that
// is not contiguous, or that the network cannot read, goes in fragments.
Posted Engine::post_offer(Request& request) {
    Endpoint& endpoint = *request.peer->endpoint;
    const Limits& limits = endpoint.limits();
    const mp_data_t& data = request.data;
    OfferMessage message;
    message.header = {.envelope = header_of(request.envelope()),
                      .sender = process_,
                      .request = 0,
                      .bytes = data.bytes,
                      .address = reinterpret_cast<std::uint64_t>(data.buffer),
                      .flags = 0,
                      .hint = static_cast<std::uint8_t>(request.hint),
                      .key_bytes = 0,
                      .zero = 0};
    const bool readable = !data.convertor && limits.max_get > 0 && limits.key_bytes <= wire::kMaxKey;
    if (readable && !by_put_ && !request.memory) request.memory = endpoint.register_memory(data.buffer, data.bytes);
    if (request.memory) {
        if (endpoint.pack_key(request.memory, message.key)) {
            message.header.flags = wire::kCanGet;
            message.header.key_bytes = static_cast<std::uint16_t>(limits.key_bytes);
        }
    }
    if (request.id == 0) request.id = slots_.add(request, request.peer->secret);
    message.header.request = request.id;
    request.phase = Phase::offered;
    const Posted outcome = endpoint.send_packed(wire::kRequest, pack_offer, &message);
    if (outcome == Posted::done) ++counts_.offers;
    return outcome;
}

} // namespace ucx_mp::glue
