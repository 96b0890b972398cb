// Eager messages that do not fit into one network message: the first piece is matched, the others follow unasked.
#include <algorithm>

#include "pml_glue/core/engine/engine.h"

namespace ucx_mp::glue {

namespace {
struct Header {
    wire::FirstHeader first;
    wire::MoreHeader more;
    bool is_first;
    [[nodiscard]] const void* bytes() const { return is_first ? static_cast<const void*>(&first) : &more; }
    [[nodiscard]] std::size_t length() const { return is_first ? sizeof first : sizeof more; }
    [[nodiscard]] MessageKind kind() const { return is_first ? wire::kFirst : wire::kMore; }
};

Header header_of(const Request& request, std::uint64_t process) {
    const Envelope& envelope = request.envelope();
    const auto number = static_cast<std::uint32_t>(request.other_id);
    return {
        .first = {.envelope = {.context = envelope.context, .source = envelope.source, .tag = envelope.tag, .zero = 0},
                  .sender = process,
                  .bytes = request.data.bytes,
                  .number = number,
                  .zero = 0},
        .more = {.sender = process, .number = number, .offset = static_cast<std::uint32_t>(request.moved)},
        .is_first = request.moved == 0};
}
} // namespace

// Sender. Pieces behind the first one have no order among messages: they wait behind the data of others.
Posted Engine::post_pieces(Request& request) {
    if (request.id == 0) request.id = slots_.add(request, request.peer->secret);
    request.other_id = ++message_number_ ^ request.peer->secret;
    request.phase = Phase::parting;
    const Posted outcome = send_piece(request);
    if (outcome != Posted::done) return outcome;
    ++counts_.eager;
    ++counts_.in_pieces;
    if (request.peer->bulk_first || part_on(request) == Posted::no_room) enqueue_bulk(request);
    return Posted::done;
}

// Sends as far as there is room. no_room: call it again.
Posted Engine::part_on(Request& request) {
    while (request.moved < request.data.bytes) {
        const Posted outcome = send_piece(request);
        if (outcome == Posted::no_room) return outcome;
        if (outcome == Posted::failed || outcome == Posted::refused) { // the receiver has a part, and waits
            request.broken = true;
            endpoint_failed(*request.peer->endpoint);
            break;
        }
    }
    if (request.pieces_out == 0) complete(request, request.broken ? MP_FAILED : MP_OK);
    return Posted::done;
}

Posted Engine::send_piece(Request& request) {
    if (leaves_without_copy(request)) {
        const Posted outcome = send_piece_from_place(request);
        if (outcome != Posted::refused) return outcome;
    }
    return request.peer->endpoint->send_packed(request.moved == 0 ? wire::kFirst : wire::kMore, pack_piece, &request);
}

std::size_t Engine::pack_piece(void* out, void* argument) {
    Request& request = *static_cast<Request*>(argument);
    const Header header = header_of(request, request.engine->process_);
    std::memcpy(out, header.bytes(), header.length());
    const std::size_t most = request.peer->endpoint->limits().max_packed - header.length();
    const std::size_t bytes = std::min(most, request.data.bytes - request.moved);
    const std::size_t packed =
        request.engine->pack_data(request, request.moved, static_cast<std::byte*>(out) + header.length(), bytes);
    request.moved += packed;
    return header.length() + packed;
}

Posted Engine::send_piece_from_place(Request& request) {
    if (!free_pieces_) {
        pieces_.push_back(std::make_unique<Piece>());
        free_pieces_ = pieces_.back().get();
    }
    Piece& piece = *free_pieces_;
    piece.request = &request;
    piece.completion.done = piece_left;
    const Header header = header_of(request, process_);
    Endpoint& endpoint = *request.peer->endpoint;
    // The first piece has less than all. All would have fitted, but memory could not be registered before.
    const std::size_t left = request.data.bytes - request.moved - (request.moved == 0);
    const std::size_t bytes = std::min(left, endpoint.limits().max_zero_copy);
    const Posted outcome = endpoint.send_zero_copy(header.kind(), header.bytes(), header.length(),
                                                   request.at(request.moved), bytes, request.memory, piece.completion);
    if (outcome != Posted::done && outcome != Posted::in_progress) return outcome;
    request.moved += bytes;
    if (outcome == Posted::in_progress) {
        free_pieces_ = piece.next_free;
        ++request.pieces_out;
    }
    return Posted::done;
}

void Engine::piece_left(Completion& completion, bool ok) {
    Piece& piece = reinterpret_cast<Piece&>(completion);
    static_assert(offsetof(Piece, completion) == 0);
    Request& request = *piece.request;
    Engine& engine = *request.engine;
    piece.next_free = engine.free_pieces_;
    engine.free_pieces_ = &piece;
    if (!ok) {
        request.broken = true; // the receiver cannot have all of it
        engine.endpoint_failed(*request.peer->endpoint);
    }
    if (--request.pieces_out > 0) return;
    // With pieces to come it is in the queue of data: its turn, or the failure of the peer, ends it.
    if (request.moved == request.data.bytes || (request.broken && !request.bulk))
        engine.complete(request, request.broken ? MP_FAILED : MP_OK);
}

// Receiver.
void Engine::on_first(void* self, const std::byte* data, std::size_t length) {
    Engine& engine = *static_cast<Engine*>(self);
    wire::FirstHeader header;
    if (length <= sizeof header) return engine.dropped("a first piece is too short");
    std::memcpy(&header, data, sizeof header);
    const std::size_t bytes = length - sizeof header;
    if (header.bytes <= bytes || header.bytes > wire::kMostPieces || header.envelope.source < 0 ||
        header.envelope.tag == kAnyTag)
        return engine.dropped("a first piece has a wrong length, or is from nobody");
    Assembly* const assembly = engine.assemblies_.open(header.sender, header.number);
    if (!assembly) return engine.dropped("a first piece is of a message that has one");
    assembly->bytes = header.bytes;
    const Envelope envelope{
        .context = header.envelope.context, .source = header.envelope.source, .tag = header.envelope.tag};
    if (PostedReceive* const found = engine.matcher_.arrive(envelope)) {
        engine.fill(Request::of(*found), envelope, *assembly);
        return engine.arrived(*assembly, data + sizeof header, bytes);
    }
    ++engine.counts_.unexpected;
    StoredEntry& entry = engine.new_entry(header.bytes);
    entry.envelope = envelope;
    entry.bytes = header.bytes;
    entry.assembly = assembly;
    assembly->entry = &entry;
    engine.arrived(*assembly, data + sizeof header, bytes);
    engine.matcher_.store(entry);
}

void Engine::on_more(void* self, const std::byte* data, std::size_t length) {
    Engine& engine = *static_cast<Engine*>(self);
    wire::MoreHeader header;
    if (length <= sizeof header) return engine.dropped("a piece is too short");
    std::memcpy(&header, data, sizeof header);
    const std::size_t bytes = length - sizeof header;
    Assembly* const assembly = engine.assemblies_.find(header.sender, header.number);
    if (!assembly) return engine.dropped("a piece is of no message");
    if (header.offset != assembly->arrived || bytes > assembly->bytes - assembly->arrived)
        return engine.dropped("a piece is out of its place");
    engine.arrived(*assembly, data + sizeof header, bytes);
}

// A receive that is out of the matching gets a message that is not complete.
void Engine::fill(Request& request, const Envelope& envelope, Assembly& assembly) {
    request.phase = Phase::filling;
    request.expected = std::min(request.data.bytes, assembly.bytes);
    request.truncated = assembly.bytes > request.data.bytes;
    request.shown.status = {.source = envelope.source, .tag = envelope.tag, .error = MP_OK, .bytes = request.expected};
    assembly.request = &request;
    assembly.entry = nullptr;
}

// The last piece ends it: the assembly is closed, and the request may be gone.
void Engine::arrived(Assembly& assembly, const std::byte* data, std::size_t bytes) {
    if (assembly.request)
        put_in(*assembly.request, data, bytes);
    else if (assembly.entry)
        std::memcpy(assembly.entry->contents() + assembly.arrived, data, bytes);
    assembly.arrived += bytes;
    if (assembly.arrived < assembly.bytes) return;
    Request* const request = assembly.request;
    if (assembly.entry) assembly.entry->assembly = nullptr;
    assemblies_.close(assembly);
    if (request) complete(*request, request->truncated ? MP_TRUNCATED : MP_OK);
}

// Takes as much as it wants of the next piece.
void Engine::put_in(Request& request, const std::byte* data, std::size_t bytes) {
    const std::size_t wanted = std::min(bytes, request.expected - request.moved);
    if (wanted == 0) return;
    if (request.data.convertor)
        hooks_.unpack(request.data.convertor, request.moved, data, wanted);
    else
        std::memcpy(request.at(request.moved), data, wanted);
    request.moved += wanted;
}

void Engine::forget_pieces(Peer& peer) {
    std::vector<Request*> ended;
    assemblies_.each_of(peer.process, [&](Assembly& assembly) {
        if (assembly.request) ended.push_back(assembly.request);
        if (StoredEntry* const entry = assembly.entry) {
            entry->broken = true;
            entry->assembly = nullptr;
        }
        assemblies_.close(assembly);
    });
    for (Request* request : ended) {
        request->shown.status.bytes = request->moved;
        complete(*request, MP_FAILED);
    }
}

} // namespace ucx_mp::glue
