// The network that the engine needs: messages, writes and reads to one process at a time. Implemented
// over UCT (uct/port.h), and by a network within one process for tests (tests/pml/fake_port.h).
//
// Threads: one at a time; the caller has a lock if there are several.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pml_glue/core/handlers.h"
#include "pml_glue/core/task_port.h"

namespace ucx_mp::glue {

// Outcome of an operation that was handed to an endpoint.
enum class Posted : std::uint8_t {
    done,        // the caller's memory is free again; no completion follows
    in_progress, // the completion is called from progress()
    no_room,     // nothing has happened; to be tried again after progress()
    refused,     // nothing has happened, and never will with this operation: the peer is there, others may go
    failed,      // the peer is gone, or the network is broken for good
};

// Completion of one operation. The caller's, in one place until `done` is called.
struct Completion {
    void (*done)(Completion& self, bool ok) = nullptr;
    alignas(void*) std::byte port[24]; // for the port
};

struct Memory;    // registered, of an endpoint's network
struct RemoteKey; // unpacked key of a peer's memory

// Writes a message of at most max_packed bytes; returns its length. Called at most once, and only if there is room.
using Packer = std::size_t (*)(void* out, void* argument);

// The program's knowledge of an operation: see uct_mp/api/uct_mp.h. Same numbers.
enum class Hint : std::uint8_t { none, blocking, non_blocking, collective, one_sided_epoch };

// Bytes. 0: the network does not have the operation.
struct Limits {
    std::size_t max_short = 0;     // payload of send_short(), without its header
    std::size_t max_packed = 0;    // a message of send_packed(), all of it
    std::size_t max_zero_copy = 0; // data of send_zero_copy()
    std::size_t max_header = 0;    // header of send_zero_copy()
    std::size_t max_get = 0, max_put = 0;
    std::size_t max_put_short = 0;                      // of put_short()
    std::size_t max_put_packed = 0, max_get_packed = 0; // of put_packed() and get_packed()
    std::size_t key_bytes = 0;                          // of a packed key
    // Messages behind a fence() come after the writes before it. Otherwise they come only
    // after writes that have completed, since writes and messages go different ways.
    bool fence_orders = true;
};

// Estimates of the network, to choose protocols by: nanoseconds, and nanoseconds per byte. 0: not known.
struct Costs {
    double message = 0;                     // of the processor, at either side, per message
    double latency = 0, byte = 0;           // of a message on its way
    double copy = 0;                        // of the processor, per byte that is copied once
    double move = 0;                        // of the processor that starts a write or read
    double move_latency = 0, move_byte = 0; // of a write on its way
    double registration = 0;                // of memory, as a rule
};

// The way to one process. Messages arrive once each and in order. Only fence() orders writes and reads.
class Endpoint {
public:
    virtual ~Endpoint() = default;
    [[nodiscard]] const Limits& limits() const { return limits_; }
    [[nodiscard]] const Costs& costs() const { return costs_; }

    // `header` is the first 8 bytes of the message (host byte order), `payload` follows.
    virtual Posted send_short(MessageKind kind, std::uint64_t header, const void* payload, std::size_t length) = 0;
    virtual Posted send_packed(MessageKind kind, Packer packer, void* argument) = 0;
    // `data` may be changed when the completion has been called.
    virtual Posted send_zero_copy(MessageKind kind, const void* header, std::size_t header_length, const void* data,
                                  std::size_t length, Memory* memory, Completion& completion) = 0;

    // A write's completion says that `from` may be changed; a read's, that `to` has the data. A message that is sent
    // behind a completed write comes after it.
    virtual Posted put(const void* from, std::size_t length, Memory* memory, std::uint64_t to, RemoteKey* key,
                       Completion& completion) = 0;
    virtual Posted get(void* to, std::size_t length, Memory* memory, std::uint64_t from, RemoteKey* key,
                       Completion& completion) = 0;
    // The same with data that is copied: no registered memory at
    // our side. The packer writes max_put_packed bytes at most.
    virtual Posted put_packed(Packer, void* /*argument*/, std::uint64_t /*to*/, RemoteKey*) { return Posted::failed; }
    virtual Posted put_short(const void* /*from*/, std::size_t /*length*/, std::uint64_t /*to*/, RemoteKey*) {
        return Posted::failed;
    }
    virtual Posted get_packed(void* /*to*/, std::size_t /*length*/, std::uint64_t /*from*/, RemoteKey*, Completion&) {
        return Posted::failed;
    }
    // A peer that sees a message from behind it sees all writes from before it.
    virtual Posted fence() = 0;
    // Complete when all writes from before it are in the peer's memory, visible to everybody.
    virtual Posted flush(Completion&) { return Posted::failed; }
    virtual void hint(Hint hint) = 0;
    // Whether all messages have arrived, and nothing is under way:
    // it may be given back. Ask again after progress(). Slow path.
    [[nodiscard]] virtual bool idle() { return true; }
    // Asks whether the peer is there, if it has ever been talked to; a failure is told to the listener. Slow path.
    virtual void check() {}

    // For writes and reads of both sides. Null: cannot be registered. The port may keep registrations for later.
    [[nodiscard]] virtual Memory* register_memory(void* address, std::size_t length) = 0;
    virtual void deregister(Memory* memory) = 0;
    // limits().key_bytes. False: there is no key.
    [[nodiscard]] virtual bool pack_key(Memory* memory, std::byte* out) = 0;
    [[nodiscard]] virtual RemoteKey* unpack_key(const std::byte* key) = 0; // null: not a key
    virtual void release_key(RemoteKey* key) = 0;
    // A key out of the peer's Exposed::keys(). Null: there is none that this endpoint can use.
    [[nodiscard]] virtual RemoteKey* unpack_exposed(const std::byte* /*keys*/, std::size_t /*length*/) {
        return nullptr;
    }

protected:
    Limits limits_;
    Costs costs_;
};

// Memory of ours that any peer may write and read, by whatever transport; until it is destroyed.
class Exposed {
public:
    virtual ~Exposed() = default;
    [[nodiscard]] virtual std::vector<std::byte> keys() const = 0; // for Endpoint::unpack_exposed()
};

// Hears that a peer is gone. From progress() or a sending call; the endpoint lives until the engine destroys it.
class FailureListener {
public:
    virtual void endpoint_failed(Endpoint& endpoint) = 0;

protected:
    ~FailureListener() = default;
};

class Port {
public:
    virtual ~Port() = default;
    // Called before anything can arrive.
    virtual void handle(MessageKind kind, Handler handler, void* argument) = 0;
    virtual void listen(FailureListener& listener) = 0;
    // Processes with the same number talk to each other by memory that they share. 0: nobody does with us.
    [[nodiscard]] virtual std::uint64_t host() const { return 0; }
    // The address that a peer needs to connect to us.
    [[nodiscard]] virtual std::vector<std::byte> address() const = 0;
    // Null: not reachable, and `error` has one line that says why. `self`: the address is our own.
    [[nodiscard]] virtual std::unique_ptr<Endpoint> connect(const std::byte* address, std::size_t length, bool self,
                                                            std::string& error) = 0;
    // Gives an endpoint back that is idle(), or has failed and has no completion under way.
    virtual void disconnect(std::unique_ptr<Endpoint> endpoint) { endpoint.reset(); }
    // Null: no transport can write or read it.
    [[nodiscard]] virtual std::unique_ptr<Exposed> expose(void* /*address*/, std::size_t /*length*/) { return nullptr; }
    // Whether a fence() costs messages: writes and messages go over several adapters. All our endpoints'.
    [[nodiscard]] virtual bool fences_cost() const { return false; }
    // Null: no transport has queues that wait. Lives as long as the port.
    [[nodiscard]] virtual TaskPort* tasks() { return nullptr; }
    // Returns the number of events found.
    virtual unsigned progress() = 0;

    // For a thread that sleeps until there is work. Descriptors become readable then, after
    // an arm() that has returned true; false: there is work already, so make progress.
    [[nodiscard]] virtual std::vector<int> event_descriptors() { return {}; }
    [[nodiscard]] virtual bool arm() { return true; }
    // Whether every transport that connects us to a peer has such a descriptor.
    [[nodiscard]] virtual bool all_wake() const { return false; }
    // Messages that must not be taken now: see MessageHandlers. Slow path.
    void hold_back(MessageKind kind, const std::byte* data, std::size_t length) {
        handlers_.hold_back(kind, data, length);
    }
    [[nodiscard]] std::size_t held_back() const { return handlers_.held_back(); } // messages
    void give_back() { handlers_.give_back(); }
    // Waits until sent messages need nothing of us any more, but not for long. Then only destructors may follow.
    virtual void drain() = 0;
    // Nanoseconds since some moment. Slow path.
    [[nodiscard]] virtual std::uint64_t now() const {
        const auto time = std::chrono::steady_clock::now().time_since_epoch();
        return static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count());
    }
    // The traffic in words: "mp_rc 12 messages 3456 bytes, self ..."
    [[nodiscard]] virtual std::string traffic() const = 0;

protected:
    MessageHandlers handlers_;
};

} // namespace ucx_mp::glue
