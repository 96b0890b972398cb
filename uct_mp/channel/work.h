// An operation under way that is more than one retained message: RDMA, zcopy messages, atomics, flushes.
//
// RDMA may be in stripes, and not all placed yet. A work keeps what a replay would need: the pieces of local memory,
// the remote range and keys.
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
    atomic,         // executed at the target: waits for the acknowledgment (post) or the reply (fetch)
    flush,          // a completion waiting for an epoch
    read_back,      // reads that push the writes before them into the peer's memory (visibility.h)
    // recover/: part of another work (`unpack_arg`) on its way again
    replayed_put,
    replayed_get,
    replayed_message, // a copy, in the bounce buffer; of which work, or null
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
    std::uint8_t pieces; // of local
    std::uint8_t width;  // atomic: of the result
    Status status;
    std::uint32_t open;          // things that must happen before it is done
    schedule::Transfer transfer; // put, get: what has been placed
    std::uint64_t remote;        // read_back: the paths that it has still to read over, a mask
    UnpackFn unpack;             // get_bcopy
    void* unpack_arg;            // get_bcopy; atomic: result; replayed_*: the Work that this is a part of
    std::uint32_t tag;           // atomic fetch; read_back: some read was lost, all is to be posted again
    LocalPiece local[kMaxIov];
    verbs::RemoteKeys keys;
};

// Grows in chunks, gives nothing back before it ends.
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
    [[nodiscard]] bool at_hand() const { return free_ != nullptr; } // get() need not make any
    void put(Work* work) {
        --in_use_;
        work->next = free_;
        free_ = work;
    }
    [[nodiscard]] std::uint32_t in_use() const { return in_use_; }

    // Those that are in use. Slow.
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
