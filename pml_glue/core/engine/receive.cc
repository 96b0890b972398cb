// Messages that arrive, and their receives.
#include <algorithm>
#include <cstdlib>
#include <new>

#include "pml_glue/core/engine/engine.h"

namespace ucx_mp::glue {

namespace {
// Entries of these sizes are kept for the next message, so many of each.
constexpr std::size_t kRooms[] = {16, 64, 128, 256, 512};
constexpr unsigned kMostFree = 1024;
constexpr std::uint8_t kNoShelf = std::size(kRooms);

template <class Header> bool read(const std::byte* data, std::size_t length, Header& header) {
    if (length < sizeof header) return false;
    std::memcpy(&header, data, sizeof header);
    return true;
}

// False: no message has it, but patterns of receives.
bool read_envelope(const wire::EagerHeader& header, Envelope& out) {
    out = {.context = header.context, .source = header.source, .tag = header.tag};
    return header.source >= 0 && header.tag != kAnyTag;
}
} // namespace

void Engine::on_compact(void* self, const std::byte* data, std::size_t length) {
    std::uint64_t header;
    if (!read(data, length, header)) return static_cast<Engine*>(self)->dropped("a short message is too short");
    static_cast<Engine*>(self)->eager_arrived(wire::expand(header), data + sizeof header, length - sizeof header);
}

void Engine::on_eager(void* self, const std::byte* data, std::size_t length) {
    wire::EagerHeader header;
    Envelope envelope;
    if (!read(data, length, header) || !read_envelope(header, envelope))
        return static_cast<Engine*>(self)->dropped("an eager message is too short, or from nobody");
    static_cast<Engine*>(self)->eager_arrived(envelope, data + sizeof header, length - sizeof header);
}

void Engine::eager_arrived(const Envelope& envelope, const std::byte* data, std::size_t bytes) {
    if (PostedReceive* const found = matcher_.arrive(envelope))
        return deliver_eager(Request::of(*found), envelope, data, bytes);
    store_eager(envelope, data, bytes);
}

void Engine::store_eager(const Envelope& envelope, const std::byte* data, std::size_t bytes) {
    ++counts_.unexpected;
    StoredEntry& entry = new_entry(bytes);
    entry.envelope = envelope;
    entry.bytes = bytes;
    if (bytes) std::memcpy(entry.contents(), data, bytes);
    matcher_.store(entry);
}

// Delivers to a receive that is out of the matching.
void Engine::deliver_eager(Request& request, const Envelope& envelope, const std::byte* data, std::size_t bytes) {
    const std::size_t fits = std::min(bytes, request.data.bytes);
    if (request.data.convertor)
        hooks_.unpack(request.data.convertor, 0, data, fits);
    else if (fits)
        std::memcpy(request.data.buffer, data, fits);
    request.shown.status = {.source = envelope.source, .tag = envelope.tag, .error = MP_OK, .bytes = fits};
    tell_end(request, bytes > fits ? MP_TRUNCATED : MP_OK); // it has neither name nor memory yet
}

void Engine::on_eager_sync(void* self, const std::byte* data, std::size_t length) {
    Engine& engine = *static_cast<Engine*>(self);
    wire::SyncHeader header;
    Envelope envelope;
    if (!read(data, length, header) || !read_envelope(header.envelope, envelope))
        return engine.dropped("a synchronous message is too short, or from nobody");
    if (engine.hold_back(header.sender, wire::kEagerSync, data, length)) return;
    const std::byte* const contents = data + sizeof header;
    const std::size_t bytes = length - sizeof header;
    if (PostedReceive* const found = engine.matcher_.arrive(envelope)) {
        if (Peer* const sender = engine.peer(header.sender))
            engine.tell_done(*sender, wire::kDone, header.request, true);
        return engine.deliver_eager(Request::of(*found), envelope, contents, bytes);
    }
    ++engine.counts_.unexpected;
    StoredEntry& entry = engine.new_entry(bytes);
    entry.envelope = envelope;
    entry.bytes = bytes;
    entry.synchronous = true;
    entry.sender = header.sender;
    entry.request = header.request;
    if (bytes) std::memcpy(entry.contents(), contents, bytes);
    engine.matcher_.store(entry);
}

void Engine::on_request(void* self, const std::byte* data, std::size_t length) {
    Engine& engine = *static_cast<Engine*>(self);
    wire::RequestHeader header;
    if (!read(data, length, header) || length != sizeof header + header.key_bytes)
        return engine.dropped("a request has a wrong length");
    Envelope envelope;
    if (header.hint > static_cast<std::uint8_t>(Hint::collective) || !read_envelope(header.envelope, envelope))
        return engine.dropped("a request has no such hint, or is from nobody");
    if (engine.hold_back(header.sender, wire::kRequest, data, length)) return;
    const Offer offer{.sender = header.sender,
                      .request = header.request,
                      .address = header.address,
                      .bytes = header.bytes,
                      .can_get = (header.flags & wire::kCanGet) != 0,
                      .hint = static_cast<Hint>(header.hint),
                      .key = data + sizeof header,
                      .key_bytes = header.key_bytes};
    if (PostedReceive* const found = engine.matcher_.arrive(envelope))
        return engine.accept(Request::of(*found), envelope, offer);
    ++engine.counts_.unexpected;
    StoredEntry& entry = engine.new_entry(offer.key_bytes);
    entry.envelope = envelope;
    entry.rendezvous = true;
    entry.can_get = offer.can_get;
    entry.hint = offer.hint;
    entry.key_bytes = header.key_bytes;
    entry.sender = offer.sender;
    entry.request = offer.request;
    entry.address = offer.address;
    entry.bytes = offer.bytes;
    std::memcpy(entry.contents(), offer.key, offer.key_bytes);
    engine.matcher_.store(entry);
}

void Engine::start_receive(Request& request, const mp_data_t& data, Hint hint) {
    clear_request(request);
    request.data = data;
    request.hint = hint;
    request.phase = Phase::posted;
}

void Engine::receive(Request& request, const Envelope& pattern, const mp_data_t& data, Hint hint) {
    start_receive(request, data, hint);
    if (StoredEntry* const message = find(pattern)) {
        matcher_.take(*message);
        return deliver(request, *message);
    }
    if (failed_peers_ && has_failed(pattern)) {
        request.shown.status = {.source = pattern.source, .tag = pattern.tag, .error = MP_FAILED, .bytes = 0};
        return complete(request, MP_FAILED);
    }
    matcher_.post(request.posted, pattern);
}

bool Engine::receive_now(const Envelope& pattern, void* data, std::size_t bytes, mp_status_t& status) {
    StoredEntry* const message = find(pattern);
    if (!message || message->rendezvous || message->synchronous || message->broken || message->assembly) return false;
    matcher_.take(*message);
    const std::size_t fits = std::min(bytes, message->bytes);
    if (fits) std::memcpy(data, message->contents(), fits);
    status = {.source = message->envelope.source,
              .tag = message->envelope.tag,
              .error = message->bytes > fits ? MP_TRUNCATED : MP_OK,
              .bytes = fits};
    free_entry(*message);
    return true;
}

void Engine::receive_message(Request& request, StoredEntry& message, const mp_data_t& data, Hint hint) {
    start_receive(request, data, hint);
    deliver(request, message);
}

// Gives a stored message to a receive; both are out of the matching.
void Engine::deliver(Request& request, StoredEntry& message) {
    if (message.broken) {
        request.shown.status = {
            .source = message.envelope.source, .tag = message.envelope.tag, .error = MP_FAILED, .bytes = 0};
        free_entry(message);
        return complete(request, MP_FAILED);
    }
    if (Assembly* const assembly = message.assembly) { // the data so far; the rest comes to the request itself
        fill(request, message.envelope, *assembly);
        put_in(request, message.contents(), assembly->arrived);
        return free_entry(message);
    }
    if (message.rendezvous) {
        // The entry has the key, and accept() may complete the request.
        accept(request, message.envelope,
               {.sender = message.sender,
                .request = message.request,
                .address = message.address,
                .bytes = message.bytes,
                .can_get = message.can_get,
                .hint = message.hint,
                .key = message.contents(),
                .key_bytes = message.key_bytes});
        return free_entry(message);
    }
    if (message.synchronous)
        if (Peer* const sender = peer(message.sender)) tell_done(*sender, wire::kDone, message.request, true);
    // Its memory may belong to the next message once the request is complete.
    deliver_eager(request, message.envelope, message.contents(), message.bytes);
    free_entry(message);
}

bool Engine::cancel(Request& request) {
    if (request.is_send || request.phase != Phase::posted || !matcher_.cancel(request.posted)) return false;
    const Envelope& pattern = request.envelope();
    request.shown.status = {.source = pattern.source, .tag = pattern.tag, .error = MP_CANCELLED, .bytes = 0};
    complete(request, MP_CANCELLED);
    return true;
}

void Engine::drop(std::uint32_t context) {
    std::vector<StoredEntry*> gone;
    matcher_.each_stored([&](StoredMessage& message) {
        if (message.envelope.context == context) gone.push_back(static_cast<StoredEntry*>(&message));
    });
    for (StoredEntry* entry : gone) {
        matcher_.take(*entry);
        free_entry(*entry);
    }
    // The communicator is going away, so its ranks cannot be looked up any more.
    for (Envelope& pattern : watched_.sought)
        if (pattern.context == context) watched_.sought_count = 0;
}

StoredEntry& Engine::new_entry(std::size_t room) {
    std::uint8_t shelf = 0;
    while (shelf < kNoShelf && room > kRooms[shelf]) ++shelf;
    if (shelf < kNoShelf) {
        room = kRooms[shelf];
        FreeEntries& free = free_entries_[shelf];
        if (StoredEntry* const entry = free.first) {
            free.first = entry->next_free;
            --free.count;
            entry->rendezvous = entry->synchronous = entry->broken = false; // its links are out of all tables
            return *entry;
        }
    }
    void* const memory = std::malloc(sizeof(StoredEntry) + room);
    if (!memory) throw std::bad_alloc();
    StoredEntry& entry = *new (memory) StoredEntry{};
    entry.shelf = shelf;
    return entry;
}

// Later data of its message goes nowhere, unless a receive has taken the message over.
void Engine::free_entry(StoredEntry& entry) {
    if (entry.assembly) entry.assembly->entry = nullptr;
    entry.assembly = nullptr;
    if (entry.shelf < kNoShelf && free_entries_[entry.shelf].count < kMostFree) {
        FreeEntries& free = free_entries_[entry.shelf];
        entry.next_free = free.first;
        free.first = &entry;
        ++free.count;
        return;
    }
    std::free(&entry);
}

} // namespace ucx_mp::glue
