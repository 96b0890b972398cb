// The steps after the offer of a large message (wire.h has the pictures).
#include <algorithm>

#include "pml_glue/core/engine/engine.h"

namespace ucx_mp::glue {

namespace {
// The hint of both calls together: if one of them waits for the data, it is waited for.
Hint together(Hint sender, Hint receiver) {
    if (sender == Hint::collective || receiver == Hint::collective) return Hint::collective;
    if (sender == Hint::blocking || receiver == Hint::blocking) return Hint::blocking;
    return sender == Hint::none ? receiver : sender;
}
} // namespace

// Receiver: a receive that is out of the matching gets an offered message.
void Engine::accept(Request& request, const Envelope& envelope, const Offer& offer) {
    request.shown.status = {.source = envelope.source, .tag = envelope.tag, .error = MP_OK, .bytes = 0};
    request.peer = peer(offer.sender);
    if (!request.peer || request.peer->failed) return complete(request, MP_FAILED);
    request.expected = std::min(request.data.bytes, offer.bytes);
    request.truncated = offer.bytes > request.data.bytes;
    request.other_id = offer.request;
    request.hint = together(offer.hint, request.hint);
    if (request.expected == 0) {
        Peer& sender = *request.peer;
        tell_done(sender, wire::kDone, offer.request, true);
        return complete(request, request.truncated ? MP_TRUNCATED : MP_OK);
    }
    request.id = slots_.add(request, request.peer->secret);
    if (!start_reading(request, offer)) clear(request);
}

// False: this memory cannot be read.
bool Engine::start_reading(Request& request, const Offer& offer) {
    Endpoint& endpoint = *request.peer->endpoint;
    const Limits& limits = endpoint.limits();
    if (!offer.can_get || request.data.convertor || limits.max_get == 0) return false;
    if (offer.key_bytes != limits.key_bytes) { // a host with more adapters or fewer
        ++counts_.unlike;
        return false;
    }
    request.memory = endpoint.register_memory(request.data.buffer, request.expected);
    if (!request.memory) return false;
    request.key = endpoint.unpack_key(offer.key);
    if (!request.key) {
        release(request);
        request.id = slots_.add(request, request.peer->secret);
        return false;
    }
    ++counts_.reads;
    request.remote = offer.address;
    request.phase = Phase::reading;
    request.completion.done = moved;
    if (move(request) == Posted::no_room) enqueue_bulk(request);
    return true;
}

// Data phases: as far as there is room. no_room: call it again. Any other result: another event goes on with it.
Posted Engine::move(Request& request) {
    switch (request.phase) {
    case Phase::reading:
        return read_on(request);
    case Phase::writing:
        return write_on(request);
    case Phase::pieces:
        return send_pieces(request);
    case Phase::parting:
        return part_on(request);
    default:
        return Posted::done;
    }
}

Posted Engine::read_on(Request& request) {
    Endpoint& endpoint = *request.peer->endpoint;
    while (request.moved < request.expected) {
        const std::size_t piece = std::min(request.expected - request.moved, endpoint.limits().max_get);
        tell(*request.peer, request.hint, request.expected);
        const Posted outcome = endpoint.get(request.at(request.moved), piece, request.memory,
                                            request.remote + request.moved, request.key, request.completion);
        if (outcome == Posted::no_room) return outcome;
        if (outcome == Posted::failed) {
            lost(request);
            return outcome;
        }
        if (outcome == Posted::refused) {
            cannot_read(request);
            return outcome;
        }
        request.moved += piece;
        if (outcome == Posted::in_progress) {
            request.outstanding = true;
            return outcome;
        }
    }
    Peer& sender = *request.peer;
    const std::uint64_t id = request.other_id;
    request.shown.status.bytes = request.expected;
    complete(request, request.truncated ? MP_TRUNCATED : MP_OK);
    tell_done(sender, wire::kDone, id, true);
    return Posted::done;
}

// Nothing is there yet, so the data comes in fragments. Else the message has failed, and the sender hears of that.
void Engine::cannot_read(Request& request) {
    if (request.moved == 0) {
        release(request);
        request.id = slots_.add(request, request.peer->secret);
        return clear(request);
    }
    part(request, wire::kDone);
}

// A message that cannot be moved to its end has failed for both sides; the peer has not.
void Engine::part(Request& request, MessageKind kind) {
    Peer& peer = *request.peer;
    const std::uint64_t id = request.other_id;
    complete(request, MP_FAILED);
    tell_done(peer, kind, id, false);
}

void Engine::moved(Completion& completion, bool ok) {
    Request& request = Request::of(completion);
    Engine& engine = *request.engine;
    request.outstanding = false;
    if (!ok) {
        // The first piece: some networks say only now that they cannot read this memory.
        const bool first = request.moved <= request.peer->endpoint->limits().max_get;
        if (first && !request.peer->failed) request.moved = 0;
        return engine.cannot_read(request);
    }
    if (engine.read_on(request) == Posted::no_room) engine.enqueue_bulk(request);
}

// Receiver: asks for the data, by put if memory and network allow it, else in fragments.
void Engine::clear(Request& request) {
    Endpoint& endpoint = *request.peer->endpoint;
    const Limits& limits = endpoint.limits();
    struct {
        wire::ClearHeader header;
        std::byte key[wire::kMaxKey];
    } message;
    message.header = {.request = request.other_id,
                      .receive = request.id,
                      .bytes = request.expected,
                      .address = 0,
                      .way = wire::Way::fragments,
                      .hint = static_cast<std::uint8_t>(request.hint),
                      .key_bytes = 0,
                      .zero = 0};
    if (by_put_ && !request.data.convertor && limits.max_put > 0 && limits.key_bytes <= wire::kMaxKey)
        request.memory = endpoint.register_memory(request.data.buffer, request.expected);
    if (request.memory && endpoint.pack_key(request.memory, message.key)) {
        message.header.way = wire::Way::put;
        message.header.address = reinterpret_cast<std::uint64_t>(request.data.buffer);
        message.header.key_bytes = static_cast<std::uint16_t>(limits.key_bytes);
    }
    request.remote = message.header.address; // 0: nobody may say that it is written
    request.phase = Phase::cleared;
    control(*request.peer, wire::kClear, &message, sizeof message.header + message.header.key_bytes);
}

// Sender.
void Engine::on_clear(void* self, const std::byte* data, std::size_t length) {
    Engine& engine = *static_cast<Engine*>(self);
    wire::ClearHeader header;
    if (length < sizeof header) return engine.dropped("a clear is too short");
    std::memcpy(&header, data, sizeof header);
    if (length != sizeof header + header.key_bytes) return engine.dropped("a clear has a wrong length");
    Request* const request = engine.slots_.find(header.request);
    if (!request || request->phase != Phase::offered || !request->is_send || header.bytes == 0 ||
        header.bytes > request->data.bytes || (header.way != wire::Way::fragments && header.way != wire::Way::put) ||
        header.hint > static_cast<std::uint8_t>(Hint::collective))
        return engine.dropped("a clear is for no offer");
    request->other_id = header.receive;
    request->expected = header.bytes;
    request->hint = static_cast<Hint>(header.hint);
    Endpoint& endpoint = *request->peer->endpoint;
    // A key of another length comes from a host with more adapters or fewer.
    if (header.way == wire::Way::put && header.key_bytes != endpoint.limits().key_bytes) ++engine.counts_.unlike;
    if (header.way == wire::Way::put && !request->data.convertor && header.key_bytes == endpoint.limits().key_bytes) {
        request->key = endpoint.unpack_key(data + sizeof header);
        if (!request->memory) request->memory = endpoint.register_memory(request->data.buffer, request->data.bytes);
        if (request->key && request->memory) {
            ++engine.counts_.writes;
            request->remote = header.address;
            request->phase = Phase::writing;
            request->completion.done = wrote;
            if (engine.write_on(*request) == Posted::no_room) engine.enqueue_bulk(*request);
            return;
        }
        // Data that cannot be written goes in fragments, which the receiver takes as well.
    }
    ++engine.counts_.fragments;
    request->phase = Phase::pieces;
    if (engine.send_pieces(*request) == Posted::no_room) engine.enqueue_bulk(*request);
}

// Data, then a fence, then the message that ends the receive. The fence need not wait for the completion.
Posted Engine::write_on(Request& request) {
    Endpoint& endpoint = *request.peer->endpoint;
    if (request.broken && !request.outstanding) return part(request, wire::kFinish), Posted::refused;
    while (request.moved < request.expected) {
        if (request.outstanding) return Posted::in_progress;
        const std::size_t piece = std::min(request.expected - request.moved, endpoint.limits().max_put);
        tell(*request.peer, request.hint, request.expected);
        const Posted outcome = endpoint.put(request.at(request.moved), piece, request.memory,
                                            request.remote + request.moved, request.key, request.completion);
        if (outcome == Posted::no_room) return outcome;
        if (outcome == Posted::failed) {
            lost(request);
            return outcome;
        }
        if (outcome == Posted::refused) {
            if (request.moved) return part(request, wire::kFinish), outcome;
            ++counts_.fragments;
            request.phase = Phase::pieces;
            return send_pieces(request);
        }
        request.moved += piece;
        request.outstanding = outcome == Posted::in_progress;
    }
    if (!request.fenced) {
        if (request.outstanding && !endpoint.limits().fence_orders) return Posted::in_progress;
        const Posted outcome = endpoint.fence();
        if (outcome == Posted::no_room) return outcome;
        if (outcome != Posted::done) { // nobody may be told that the data is there
            request.broken = true;
            give_up(*request.peer);
            if (!request.outstanding) complete(request, MP_FAILED);
            return outcome;
        }
        request.fenced = true;
        tell_done(*request.peer, wire::kFinish, request.other_id, true);
    }
    if (!request.outstanding) complete(request, MP_OK);
    return Posted::done;
}

void Engine::wrote(Completion& completion, bool ok) {
    Request& request = Request::of(completion);
    Engine& engine = *request.engine;
    request.outstanding = false;
    if (!ok && request.fenced) return engine.complete(request, MP_FAILED); // the receiver has been told already
    if (!ok) return request.bulk ? void(request.broken = true) : engine.part(request, wire::kFinish);
    if (request.broken) return engine.complete(request, MP_FAILED);
    if (request.bulk) return; // its turn comes
    if (engine.write_on(request) == Posted::no_room) engine.enqueue_bulk(request);
}

std::size_t Engine::pack_fragment(void* out, void* argument) {
    Request& request = *static_cast<Request*>(argument);
    const wire::FragmentHeader header{.receive = request.other_id, .offset = request.moved};
    std::memcpy(out, &header, sizeof header);
    const std::size_t most = request.peer->endpoint->limits().max_packed - sizeof header;
    const std::size_t bytes = std::min(most, request.expected - request.moved);
    const std::size_t packed =
        request.engine->pack_data(request, request.moved, static_cast<std::byte*>(out) + sizeof header, bytes);
    request.moved += packed;
    return sizeof header + packed;
}

Posted Engine::send_pieces(Request& request) {
    Endpoint& endpoint = *request.peer->endpoint;
    while (request.moved < request.expected) {
        const Posted outcome = endpoint.send_packed(wire::kFragment, pack_fragment, &request);
        if (outcome == Posted::no_room) return outcome;
        if (outcome == Posted::failed) {
            lost(request);
            return outcome;
        }
        if (outcome == Posted::refused) return part(request, wire::kFinish), outcome;
    }
    complete(request, MP_OK);
    return Posted::done;
}

// Receiver.
void Engine::on_fragment(void* self, const std::byte* data, std::size_t length) {
    Engine& engine = *static_cast<Engine*>(self);
    wire::FragmentHeader header;
    if (length < sizeof header) return engine.dropped("a fragment is too short");
    std::memcpy(&header, data, sizeof header);
    const std::size_t bytes = length - sizeof header;
    Request* const request = engine.slots_.find(header.receive);
    if (!request || request->is_send || request->phase != Phase::cleared)
        return engine.dropped("a fragment is for no receive");
    if (header.offset != request->moved || bytes > request->expected - request->moved)
        return engine.dropped("a fragment is out of its place");
    if (request->data.convertor)
        engine.hooks_.unpack(request->data.convertor, request->moved, data + sizeof header, bytes);
    else
        std::memcpy(request->at(request->moved), data + sizeof header, bytes);
    request->moved += bytes;
    if (request->moved < request->expected) return;
    request->shown.status.bytes = request->expected;
    engine.complete(*request, request->truncated ? MP_TRUNCATED : MP_OK);
}

void Engine::on_finish(void* self, const std::byte* data, std::size_t length) {
    Engine& engine = *static_cast<Engine*>(self);
    wire::DoneHeader header;
    if (length != sizeof header) return engine.dropped("a finish has a wrong length");
    std::memcpy(&header, data, sizeof header);
    Request* const request = engine.slots_.find(header.id);
    if (!request || request->is_send || request->phase != Phase::cleared)
        return engine.dropped("a finish is for no receive");
    if (!header.ok) return engine.complete(*request, MP_FAILED);
    if (request->remote == 0 || request->moved) return engine.dropped("a finish is of what comes in fragments");
    request->shown.status.bytes = request->expected;
    engine.complete(*request, request->truncated ? MP_TRUNCATED : MP_OK);
}

void Engine::on_done(void* self, const std::byte* data, std::size_t length) {
    Engine& engine = *static_cast<Engine*>(self);
    wire::DoneHeader header;
    if (length != sizeof header) return engine.dropped("a done has a wrong length");
    std::memcpy(&header, data, sizeof header);
    Request* const request = engine.slots_.find(header.id);
    if (!request || !request->is_send || request->phase != Phase::offered)
        return engine.dropped("a done is for no offer");
    engine.complete(*request, header.ok ? MP_OK : MP_FAILED);
}

} // namespace ucx_mp::glue
