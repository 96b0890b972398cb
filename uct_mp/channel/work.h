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
#include <unordered_set>
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
    Work* next; // free list; pulled works; flushes of an epoch
    Channel* channel;
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
        ++in_use_;
        return work;
    }
    [[nodiscard]] bool at_hand() const { return free_ != nullptr; } // get() needs no new memory
    void put(Work* work) {
        --in_use_;
        work->next = free_;
        free_ = work;
    }
    [[nodiscard]] std::uint32_t in_use() const { return in_use_; }

    // Calls `fn` for each work that is in use. Slow: it looks at all works.
    template <class Fn> void for_each(const Fn& fn) {
        std::unordered_set<const Work*> unused;
        for (const Work* work = free_; work; work = work->next) unused.insert(work);
        for (const auto& chunk : chunks_)
            for (unsigned i = 0; i < kChunk; ++i)
                if (!unused.contains(&chunk[i])) fn(chunk[i]);
    }

private:
    static constexpr unsigned kChunk = 64;
    [[gnu::noinline]] void grow() {
        chunks_.emplace_back(new Work[kChunk]);
        in_use_ += kChunk;
        for (unsigned i = 0; i < kChunk; ++i) put(&chunks_.back()[i]);
    }
    Work* free_ = nullptr;
    std::uint32_t in_use_ = 0;
    std::vector<std::unique_ptr<Work[]>> chunks_;
};

} // namespace ucx_mp::channel
