// This process in its session: joining, its slot, allocation from the segment, and access to other processes' memory.
// Set-up path, except copy_*() and the inline look-ups.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <sys/uio.h>

#include "core/segment.h"

namespace softhca {

inline constexpr const char* kSessionEnv = "SOFTHCA_SESSION"; // set by `softhca run`: name of the session to join

// dead: the process is gone (ESRCH). fault: a bad address there, or fewer local bytes than asked for; local_fault: one
// here.
enum class CopyResult { ok, dead, fault, local_fault };

// Exactly one per process (or per virtual-time world in that process), created by the first verbs call.
class Process {
public:
    // Joins the session named by kSessionEnv; nullptr with errno set and one line on stderr if there is none or it
    // can't be joined. A child of fork() that calls verbs joins again as a new process.
    static Process* attach();
    // Joins a segment that the caller holds (the virtual-time world, the tests).
    static Process* attach_local(Segment* segment);
    static Process* current() { return current_; }
    // Leaves: the slot becomes free, all its objects are released as if the process had died, this object is deleted.
    // For tests and virtual-time worlds. Real processes just end: the keeper cleans up when they are gone for sure, so
    // that threads and exit handlers that still run can't touch what has been given to somebody else.
    void detach();
    // +1 in the child of every fork(): what was built on an older value belongs to the parent. In the child current()
    // is nullptr and the parent's segment is replaced by private zeroes, so that stale pointers do no harm.
    static uint32_t fork_epoch();

    Segment& seg() { return *segment_; }
    uint32_t slot() const { return slot_; }
    uint32_t node() const { return node_; } // node that device enumeration shows; select_node() in virtual time
    // Chooses the node: explicit, else kNodeEnv (core/node.h), else by OMPI_COMM_WORLD_RANK / PMIX_RANK / PMI_RANK /
    // SLURM_PROCID the one that kPlaceEnv names for this rank, else the rank's number, else next free.
    uint32_t choose_node();
    void select_node(uint32_t node) { node_ = node; }
    Nanos now() const { return virtual_now_ ? *virtual_now_ : scaled_now(segment_->tsc); }
    bool virtual_time() const { return virtual_now_ != nullptr; }
    void set_virtual_clock(const Nanos* now) { virtual_now_ = now; }

    // Index tables (type-stable). 0 is never returned as a valid index; kNone when the table is full.
    // Freed indices are reused as late as possible (first in, first out).
    uint32_t claim_qp();
    uint32_t claim_mr();
    uint32_t claim_cq();
    uint32_t claim_srq();
    void free_qp(uint32_t), free_mr(uint32_t), free_cq(uint32_t), free_srq(uint32_t);
    // The full number / key for a newly claimed index: differs from those of the index's last uses. Call once per
    // claim; stores only the reuse count (QpRec::uses, MrRec::uses): QpRec::qpn / MrRec::key are the caller's to
    // publish, last.
    uint32_t next_qpn(uint32_t index);
    uint32_t next_mr_key(uint32_t index);

    // Heap memory in the segment, zeroed, 64-byte aligned, owned by this process; 0 when full. Thread safe, slow path.
    Off alloc(uint64_t bytes);
    void free(Off, uint64_t bytes);

    // Copies between this process and the process in `slot`. `local` and remote range have the same total length.
    // Order: ascending addresses; the last 8 bytes of a write are stored by one instruction or one final copy, so that
    // a reader polling the last word sees the whole message (as RDMA hardware in practice, see README).
    CopyResult write_to(uint32_t slot, uint64_t remote, std::span<const iovec> local, size_t length);
    CopyResult read_from(uint32_t slot, uint64_t remote, std::span<const iovec> local, size_t length);
    // Performs an atomic on 8 bytes of the other process; caller holds nothing. Atomic against all other softhca
    // atomics of the session on that address (IBV_ATOMIC_HCA). `swap`: compare-and-swap, else fetch-and-add.
    CopyResult atomic_at(uint32_t slot, uint64_t remote, bool swap, uint64_t compare_add, uint64_t swap_value,
                         uint64_t* old);

    // MR look-up with a hazard mark, so that dereg can wait for copies in flight. mark returns nullptr if `key` is not
    // valid (or becomes invalid meanwhile). clear after the copy. `thread_cell` is a hazard cell of the calling thread.
    MrRec* mark_mr(uint32_t key, std::atomic<uint32_t>*& cell);
    static void clear_mr(std::atomic<uint32_t>* cell) { cell->store(0, std::memory_order_release); }
    // A free one of these cells of our slot, which now says `value`; a full barrier. Waits while all are in use.
    static std::atomic<uint32_t>& take_cell(std::atomic<uint32_t> (&cells)[kHazards], uint32_t value);
    // Wakes who is in await_bell() of the process in `slot`.
    void ring(uint32_t slot);
    // Returns when somebody has rung at this process since ProcSlot::bell was `seen`, after `most`, or earlier.
    void await_bell(uint32_t seen, Nanos most);
    void wait_mr_unused(uint32_t index); // dereg: until no live process copies through it (bounded, 2 s, then warns)

private:
    friend struct ProcessImpl;
    void tell_waiting(uint32_t slot, uint64_t address, uint64_t length); // that it has been written
    Segment* segment_ = nullptr;
    uint32_t slot_ = 0, node_ = kNone;
    const Nanos* virtual_now_ = nullptr;
    struct ProcessImpl* impl_ = nullptr;
    static Process* current_;
};

// Releases everything that a dead process owned: QPs vanish from the fabric (peers see no more acknowledgments), tables
// and heap become free, the slot is reusable. Does nothing if the process in `slot` is alive. Idempotent, may be killed
// at any point and repeated by somebody else; the keeper calls it. Safe while
// initiators of other processes are inside its objects, provided that they use what they find in a record only under
// the record's lock and after checking its number (QpRec::qpn, CqRec::id, RecvQueue::id != 0). False: a live process
// has held one of the locks for too long; call again later.
bool reap_process(Segment& seg, uint32_t slot);

} // namespace softhca
