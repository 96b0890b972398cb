// An operation under way that is more than one retained message: RDMA, zcopy messages, atomics, flushes.
//
// RDMA may be cut into stripes, and part of it may not be placed yet. A work keeps what a replay needs: the pieces of
// local memory, the remote range and its keys.
//
// Ownership: the interface's pool (works.h). Its channel counts it in an epoch until it is done.
// Threads: the interface's.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "uct_mp/channel/queues.h"
#include "uct_mp/channel/types.h"
#include "uct_mp/schedule/policy.h"

namespace ucx_mp::channel {

class Channel;

enum class WorkKind : std::uint8_t {
    put,            // from `local`; a bounce buffer may own that memory
    get,            // into `local`
    get_bcopy,      // into the bounce buffer, then `unpack`
    adapter_atomic, // result into the bounce buffer, then to `unpack_arg` (if not null)
    message,        // zcopy message: its completion waits for acknowledgment and send completion
    atomic,         // executed by the target's process: waits for the acknowledgment (post) or the reply (fetch)
    flush,          // a completion that waits for an epoch
    read_back,      // reads that push the writes before them into the peer's memory (visibility.h)
    // recover/: part of another work (`unpack_arg`) that goes again
    replayed_put,
    replayed_get,
    replayed_message, // a copy in the bounce buffer; `unpack_arg`: the message's work, or null
};

struct LocalPiece {
    std::uint64_t address;
    std::uint64_t length;
    const std::uint32_t* lkey; // per device
};

struct Work {
    Work* next;             // free list; pulled works; flushes of an epoch
    Channel* channel;       // of an unused work anything
    Completion* completion; // may be null
    Buffer* bounce;         // given back at the end; may be null
    WorkKind kind;
    std::uint8_t epoch;
    std::uint8_t pieces; // entries of `local`
    std::uint8_t width;  // atomic: bytes of the result
    Status status;
    std::uint32_t open;          // completions and other events that are still to come; at 0 it is done
    schedule::Transfer transfer; // put, get: size, and how much has been placed
    std::uint64_t remote;        // the remote address; read_back: a mask of the paths that are still to be read over
    UnpackFn unpack;             // get_bcopy
    void* unpack_arg;            // get_bcopy; atomic: the result; replayed_*: the Work that this is a part of
    std::uint32_t tag;           // atomic fetch: of the reply; read_back: 1 if some read was lost, so that all go again
    LocalPiece local[kMaxIov];
    verbs::RemoteKeys keys;
};

// The memory of works. It grows in chunks, and frees them only at the end.
class WorkPool {
public:
    [[nodiscard, gnu::always_inline]] Work* get() {
        if (!free_) [[unlikely]]
            grow();
        Work* work = free_;
        free_ = work->next;
        ++taken_;
        return work;
    }
    [[nodiscard]] bool at_hand() const { return free_ != nullptr; } // get() needs no new memory
    void put(Work* work) {
        ++given_back_;
        work->next = free_;
        free_ = work;
    }
    [[nodiscard]] std::uint32_t in_use() const { return taken_ - given_back_; }
    [[nodiscard]] std::uint32_t taken() const { return taken_; } // calls of get(), ever; wraps

    // A walk over all works, in parts. No work may be taken or put back between these.
    class Walk {
        friend WorkPool;
        Work* unused_ = nullptr; // the next one of the free list
        std::size_t next_ = 0;   // the next work, by its place in chunks_
        bool begun_ = false;
    };
    // Calls `fn` for those that are in use among the next `most`. True: all have been seen.
    template <class Fn> bool go_on(Walk& walk, std::size_t most, const Fn& fn) {
        if (!std::exchange(walk.begun_, true)) walk.unused_ = free_;
        for (; walk.unused_ && most; --most, walk.unused_ = walk.unused_->next) walk.unused_->channel = nullptr;
        if (walk.unused_) return false;
        for (const std::size_t end = chunks_.size() * kChunk; walk.next_ != end; ++walk.next_, --most) {
            if (!most) return false;
            if (Work& work = chunks_[walk.next_ / kChunk][walk.next_ % kChunk]; work.channel) fn(work);
        }
        return true;
    }
    // Calls `fn` for each work that is in use. Slow: it looks at all works.
    template <class Fn> void for_each(const Fn& fn) {
        Walk walk;
        (void)go_on(walk, ~std::size_t{0}, fn);
    }

private:
    static constexpr unsigned kChunk = 64;
    [[gnu::noinline]] void grow() {
        chunks_.emplace_back(new Work[kChunk]);
        taken_ += kChunk;
        for (unsigned i = 0; i < kChunk; ++i) put(&chunks_.back()[i]);
    }
    Work* free_ = nullptr;
    std::uint32_t taken_ = 0, given_back_ = 0;
    std::vector<std::unique_ptr<Work[]>> chunks_;
};

} // namespace ucx_mp::channel
