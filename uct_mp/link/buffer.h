// Memory of the data path: send buffers (registered with every device, so that a message can be sent again on any) and
// receive buffers. Both come from chunks that are registered once; a pool grows in chunks (slow path) up to its limit
// and gives nothing back before it ends.
//
// Threads: the interface's.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "uct_mp/link/sizes.h"
#include "uct_mp/verbs/memory.h"

namespace ucx_mp::link {

class BufferPool;

// A sequenced message from its composition until the receiver has acknowledged it; also the bounce buffer of bcopy puts
// and gets. The message itself follows.
struct alignas(64) Buffer {
    Buffer* next;              // free list
    const std::uint32_t* lkey; // per device
    channel::Work* work;       // zcopy, atomics: told when the acknowledgment comes; else null, also while free
    std::uint32_t length;      // bytes of the message, without pieces elsewhere and without the trailer
    std::uint8_t trailer;      // bytes of a fence's trailer behind them
    std::uint8_t path;         // last path it was posted to
    BufferPool* pool;          // it goes there when it is no longer needed: its pool, or a detour on the way
    std::uint64_t unused[2];
    std::uint64_t tag; // goes before the message, if the peer wants that: SendQueue::post_addressed() writes it
    [[nodiscard]] std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
    [[nodiscard]] std::uint64_t address() { return reinterpret_cast<std::uint64_t>(this + 1); }
};
static_assert(sizeof(Buffer) == 64 && offsetof(Buffer, tag) == 64 - kTagBytes);

// Chunks of registered memory; shared by the pools below.
class RegisteredChunks {
public:
    struct Chunk {
        std::unique_ptr<std::byte, void (*)(void*)> memory{nullptr, nullptr};
        std::unique_ptr<verbs::Registration> registration; // stays where it is: buffers point to its keys
        std::size_t bytes = 0;
    };
    // nullptr: no memory (or the device refuses more).
    Chunk* add(const verbs::DeviceSet& devices, std::size_t bytes);
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

private:
    std::vector<Chunk> chunks_;
    std::size_t bytes_ = 0;
};

class BufferPool {
public:
    BufferPool(const verbs::DeviceSet& devices, unsigned data_bytes, unsigned max)
        : devices_(&devices), data_bytes_(data_bytes), max_(max) {}
    // A detour on the way home, for buffers that an adapter may still be reading when
    // they are not needed otherwise. Buffers that are put here go home with take_home().
    explicit BufferPool(BufferPool& home) : devices_(home.devices_), data_bytes_(0), max_(0), home_(&home) {}
    BufferPool(const BufferPool&) = delete;
    [[nodiscard]] BufferPool& home() { return home_ ? *home_ : *this; }
    void take_home() {
        while (Buffer* const buffer = free_) {
            free_ = buffer->next;
            buffer->pool = home_;
            home_->put(buffer);
        }
    }
    [[nodiscard]] Buffer* get() {
        if (!free_) [[unlikely]] {
            if (!grow()) return nullptr;
        }
        Buffer* buffer = free_;
        free_ = buffer->next;
        return buffer;
    }
    void put(Buffer* buffer) {
        buffer->next = free_;
        free_ = buffer;
    }
    // The same in two steps: one is there, and take() gets it.
    [[nodiscard]] bool at_hand() const { return free_ != nullptr; }
    [[nodiscard]] Buffer* take() {
        Buffer* const buffer = free_;
        free_ = buffer->next;
        return buffer;
    }
    // No buffer could be made since this was cleared last. Buffers that are out come back when peers acknowledge.
    bool starved = false;
    // One is there, or can be made.
    [[nodiscard]] bool available() { return free_ || grow(); }
    [[nodiscard]] bool available(unsigned n) { // n of them; slow
        for (;;) {
            unsigned found = 0;
            for (const Buffer* buffer = free_; buffer && found < n; buffer = buffer->next) ++found;
            if (found == n) return true;
            if (!grow()) return false;
        }
    }
    [[nodiscard]] std::size_t bytes() const { return chunks_.bytes(); }

private:
    bool grow();
    bool grow_by(unsigned count);

    Buffer* free_ = nullptr;
    const verbs::DeviceSet* devices_;
    unsigned data_bytes_, max_, made_ = 0;
    unsigned pause_ = 0, pausing_ = 0; // calls that do not try, after one that has failed
    BufferPool* const home_ = nullptr;
    RegisteredChunks chunks_;
};

// A receive buffer. Layout of its memory: this header, 8 bytes for the keeper's own use (UCT stores its release
// function there, right before the headroom), then
//     | ... headroom ... | payload
//              | header  |
// The message header lies in the last bytes of the headroom: it has been read when a keeper gets the payload.
struct alignas(64) ReceiveBuffer {
    ibv_recv_wr wr; // always complete: a list of free buffers, linked by wr.next, can be posted as it is
    ibv_sge sge;
    std::uint32_t length; // of the message, once received (early ones)
    std::uint8_t adapter; // index; kStored: belongs to the store of early messages
    std::uint8_t life;    // of the adapter (verbs/registry.h) that it was made for
    static constexpr std::uint8_t kStored = 0xff;
    static constexpr std::uint8_t kJoined = 0xfe; // made for one message that has come in parts
    [[nodiscard]] static ReceiveBuffer* of(ibv_recv_wr* wr) { return reinterpret_cast<ReceiveBuffer*>(wr); }
};
static_assert(sizeof(ReceiveBuffer) == 64);

// The layout of a receive buffer; the same for all of an interface.
struct ReceiveLayout {
    unsigned message_offset = 0; // from the ReceiveBuffer to the message header
    unsigned message_bytes = 0;  // largest message
    unsigned stride = 0;         // from buffer to buffer
    unsigned tag_bytes = 0;      // received before the message
    static ReceiveLayout make(unsigned headroom, unsigned header_bytes, unsigned message_bytes, unsigned tag_bytes);
    [[nodiscard]] std::byte* message(ReceiveBuffer* buffer) const {
        return reinterpret_cast<std::byte*>(buffer) + message_offset;
    }
    [[nodiscard]] ReceiveBuffer* buffer_of_message(void* message) const {
        return reinterpret_cast<ReceiveBuffer*>(static_cast<std::byte*>(message) - message_offset);
    }
};

} // namespace ucx_mp::link
