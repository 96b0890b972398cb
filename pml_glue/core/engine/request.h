// Objects that are under way: requests of the program, messages that wait for their receive, peers.
#pragma once

#include <cstring>
#include <string>

#include "pml_glue/core/engine/thresholds.h"
#include "pml_glue/core/match/matcher.h"
#include "pml_glue/core/mp_core.h"
#include "pml_glue/core/port.h"

namespace ucx_mp::glue {

struct Peer;
class Engine;

// The phase of a request of the program. Entered in start_send(), start_receive(), and the handlers named here.
enum class Phase : std::uint8_t {
    idle,    // not started, or complete
    queued,  // send: its first message waits for room
    leaving, // send: its data is leaving without a copy; the completion ends it
    offered, // send: the request message is out; on_clear() or on_done() follows
    writing, // send: clear by put; data, fence and finish are under way
    pieces,  // send: clear for fragments, which are being sent
    parting, // send: its first piece is out, the others follow
    posted,  // receive: in the matching
    reading, // receive: reads the sender's data
    cleared, // receive: waits for fragments, or for the finish
    filling, // receive: has the first piece of its message, and waits for the others
};

// Waits for its turn in a peer's queue, in the order of posting.
struct Waiting {
    enum class Entry : std::uint8_t { request, control, bundle };
    Waiting* next = nullptr;
    Entry entry = Entry::request; // a Request's first message, a Control, a Bundle
};

// A message of the engine itself that found no room.
struct Control : Waiting {
    MessageKind kind = 0;
    std::uint16_t length = 0;
    std::byte bytes[40 + 255]; // the longest: ClearHeader and its key
};

// Small messages that leave together (bundle.cc); from a pool.
struct Bundle : Waiting {
    Waiting *first = nullptr, *last = nullptr; // their requests
    unsigned count = 0;
    std::size_t bytes = 0;
    std::byte data[4096]; // as it leaves
};

// The program sees the first member (mp_core.h).
struct Request {
    mp_request_t shown;
    Phase phase;
    bool is_send, synchronous, truncated;
    bool outstanding; // the port has the completion, and the memory
    bool fenced;      // writing: the fence is behind the data
    bool bulk;        // in the peer's queue of data
    bool broken;      // parting: a piece has failed
    Hint hint;
    PostedReceive posted; // receive; a send keeps its envelope in posted.link.key
    mp_data_t data;
    Engine* engine;
    Peer* peer;             // send: the receiver; receive: the sender, once it is known
    std::uint64_t id;       // in Slots; 0: none
    std::uint64_t other_id; // name of the request at the other side; parting: the message's number
    std::size_t expected;   // bytes of the data phase
    std::size_t moved;      // bytes of it that are done, or under way
    std::uint64_t remote;   // address at the other side
    Memory* memory;
    RemoteKey* key;
    Completion completion;
    Waiting waiting;
    Request* next_bulk;
    std::uint32_t pieces_out; // pieces that leave without a copy: the port has their completions

    [[nodiscard]] char* at(std::size_t offset) const { return static_cast<char*>(data.buffer) + offset; }
    [[nodiscard]] const Envelope& envelope() const { return posted.link.key; }
    static Request& of(mp_request_storage_t& storage) { return reinterpret_cast<Request&>(storage); }
    static Request& of(PostedReceive& receive) {
        return *reinterpret_cast<Request*>(reinterpret_cast<char*>(&receive) - offsetof(Request, posted));
    }
    static Request& of(Completion& done) {
        return *reinterpret_cast<Request*>(reinterpret_cast<char*>(&done) - offsetof(Request, completion));
    }
    static Request& of(Waiting& entry) {
        return *reinterpret_cast<Request*>(reinterpret_cast<char*>(&entry) - offsetof(Request, waiting));
    }
};
static_assert(sizeof(Request) <= MP_REQUEST_BYTES);

struct Assembly;

// The completion of one piece; from a pool.
struct Piece {
    Completion completion;
    Request* request = nullptr;
    Piece* next_free = nullptr;
};

// A message without a receive: an eager one with its data behind it, or the offer of a rendezvous with its key.
struct StoredEntry : StoredMessage {
    bool rendezvous = false, synchronous = false, can_get = false;
    Hint hint = Hint::none;
    std::uint16_t key_bytes = 0;
    std::uint64_t sender = 0, request = 0, address = 0; // for a rendezvous or a synchronous message
    std::size_t bytes = 0;                              // of the message
    std::uint8_t shelf = 0;                             // the list on which it is kept for the next message
    Assembly* assembly = nullptr;                       // its data is not complete
    bool broken = false;                                // and will never be: the sender is gone
    StoredEntry* next_free = nullptr;

    [[nodiscard]] std::byte* contents() { return reinterpret_cast<std::byte*>(this + 1); }
};

// Another process. Lives as long as the engine, but for those of other jobs (others.cc).
struct Peer {
    std::uint64_t process = 0;
    std::unique_ptr<Endpoint> endpoint;
    std::uint32_t secret = 0; // hidden in the names that it is told (slots.h)
    bool failed = false;      // and then busy, too
    std::size_t most_now = 0; // bytes of the largest message that Engine::send_now() takes
    // Small messages that nobody waits for: how many left one by one in this turn of progress(), and how many may.
    std::uint32_t turn = 0, gone_alone = 0, burst = UINT32_MAX;
    std::uint32_t held = 0;      // requests that have come to the queue since it was served
    Bundle* open = nullptr;      // the last entry of the queue, if it takes more
    std::size_t bundle_room = 0; // bytes of a bundle
    Thresholds thresholds{};
    Hint hint = Hint::none; // the endpoint has been told it
    // Messages that wait for room: first messages and controls in order, then data of requests in turn.
    Waiting *first = nullptr, *last = nullptr;
    bool busy = false; // the first queue is not empty, or is being served: new messages go behind
    Request *bulk_first = nullptr, *bulk_last = nullptr;
    bool listed = false;  // in Engine::waiting_
    bool left = false;    // has said goodbye: only operations that name it miss it
    bool greeted = false; // by Engine::look()
    bool parted = false;  // has had our goodbye

    [[nodiscard]] bool waits() const { return first || bulk_first; }
};

} // namespace ucx_mp::glue
