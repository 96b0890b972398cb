// The process-private halves of verbs objects. The public ibv_* structure comes first, so that the verbs face casts.
// Shared halves (what peers touch) are the *Rec of core/segment.h.
//
// Locks, outermost first: Engine::mutex > Qp::sq_lock > QpRec::lock (own or peer's) > SRQ RecvQueue::lock >
// CqRec::lock. Fast path (ideal fabric, healthy, nothing queued): Qp::sq_lock and what lies below. As soon as anything
// must wait (model, fault, RNR, fence, ...) the QP turns `slow`: its send queue then belongs to Engine::mutex until it
// is drained again.
#pragma once
#include <atomic>
#include <deque>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "core/notify.h"
#include "core/process.h"
#include "core/segment.h"
#include "fabric/network.h"

namespace softhca {

class Engine;

struct Pd {
    ibv_pd pd;
    uint32_t number; // session-wide; a parent domain has its parent's
    std::atomic<int> users{0};
    Pd* parent = nullptr; // of a parent domain (ibv_alloc_parent_domain)
    struct Td* td = nullptr;
};

struct Td {
    ibv_td td;
    std::atomic<int> users{0}; // parent domains
};

struct CompChannel {
    ibv_comp_channel channel; // channel.fd = wire.rx
    Channel wire;
    std::mutex mutex;                  // reading `wire`, `live`
    std::unordered_set<uint64_t> live; // CQs (pointers as in messages): a late message for a destroyed one is skipped
};

struct Cq {
    ibv_cq_ex ex; // also usable as ibv_cq (same leading layout, see ibv_cq_ex_to_cq)
    CqRec* rec;
    uint32_t index;
    Cqe* entries;
    uint32_t mask;
    std::atomic<int> users{0}; // QPs
    CompChannel* channel;
    SpinLock poll_lock;
    uint64_t head = 0; // consumer position
    uint64_t published_head = 0;
    uint32_t empty_polls = 0;
    // ibv_cq_ex polling: entry under the cursor, valid between start_poll/next_poll and end_poll.
    Cqe* cursor = nullptr;
    uint64_t wc_flags = 0; // what create_cq_ex asked for
    bool single_threaded = false;
    uint32_t processor = 0; // of its program (HostTime)
    Engine* engine;
    // One consumer at a time: by the lock, or because the program has promised it (IBV_CREATE_CQ_ATTR_SINGLE_THREADED).
    // A promise that is seen broken ends the process, as in rdma-core's mlx5. Polling consumes, and so does what takes
    // the completions of a queue pair out: destroying it, its way back to RESET. Here for as long as the command takes:
    // so it is seen.
    std::atomic<bool> in_use{false};
    void begin_use() {
        if (!single_threaded) return poll_lock.lock();
        if (in_use.load(std::memory_order_relaxed)) [[unlikely]]
            broken_promise();
        in_use.store(true, std::memory_order_relaxed);
    }
    void end_use() {
        if (!single_threaded) return poll_lock.unlock();
        in_use.store(false, std::memory_order_relaxed);
    }
    [[noreturn, gnu::cold]] void broken_promise() const;

    // Events handed to the program; destroying waits until it has acknowledged as many. Under ibv_cq::mutex.
    uint32_t comp_events_reported = 0, async_events_reported = 0;
};

// A command to a queue pair that also is a use of its completion queues, if those are for a single thread; else
// clean_cq() locks.
class SoleUse {
public:
    explicit SoleUse(Cq* sends, Cq* receives)
        : cqs_{sends && sends->single_threaded ? sends : nullptr,
               receives && receives != sends && receives->single_threaded ? receives : nullptr} {
        for (Cq* cq : cqs_)
            if (cq) cq->begin_use();
    }
    ~SoleUse() {
        for (Cq* cq : cqs_)
            if (cq) cq->end_use();
    }
    SoleUse(const SoleUse&) = delete;

private:
    Cq* cqs_[2];
};

struct RecvQ { // receive queue of a QP, or SRQ
    RecvQueue* rec;
    SpinLock lock;              // posters and pollers
    std::vector<uint32_t> free; // pool entries not posted
    uint32_t max_wr, max_sge;
    uint64_t tail;
    uint32_t* ring;
    char* pool;
    RecvWqe* wqe(uint32_t i) { return reinterpret_cast<RecvWqe*>(pool + static_cast<size_t>(i) * rec->stride); }
};

struct Srq {
    ibv_srq srq;
    RecvQ queue;
    uint32_t index;
    Pd* pd;
    std::atomic<int> users{0};
    uint32_t events_reported = 0; // as in Cq
    std::vector<std::pair<uint64_t, uint64_t>>
        outgrown; // pools (offset, bytes) of before ibv_modify_srq: peers may look yet
};

struct Ah {
    ibv_ah ah;
    ibv_ah_attr attr;
    uint32_t device;
};

// A send request in normal form, built by ibv_post_send and by the ibv_wr_* calls. Points into the caller's memory.
struct SendDesc {
    uint64_t wr_id = 0;
    ibv_wr_opcode opcode = IBV_WR_SEND;
    uint32_t flags = 0;           // IBV_SEND_*
    uint32_t imm = 0;             // network order
    const ibv_sge* sge = nullptr; // also for inline: address and length of what is copied at post
    uint32_t sges = 0;
    uint64_t remote_addr = 0, compare_add = 0, swap = 0;
    uint32_t rkey = 0;
    const Ah* ah = nullptr; // UD, DCI
    uint32_t remote_qpn = 0, remote_qkey = 0;
    uint64_t dc_key = 0;
    uint8_t bad = 0; // ibv_wc_status that it fails with when its turn comes; 0: what the engine finds
};

// What a raw request (mlx5dv_wr_raw_wqe) has beside ibv_wr_opcode and IBV_SEND_*. A WAIT has no data: remote_addr is
// the word, rkey its local key, compare_add and swap are value and mask as they lie in memory, imm is a WaitOp.
inline constexpr uint8_t kWait = IBV_WR_DRIVER1;  // no request of another kind has it
inline constexpr uint32_t kRaw = 1u << 16;        // completes as IBV_WC_DRIVER2, and only if it asks to itself
inline constexpr uint32_t kSmallFence = 1u << 17; // its data are not read before what is posted before it is through

struct SendWqe { // in the private send ring
    uint64_t wr_id;
    uint64_t remote_addr, compare_add, swap;
    uint64_t dc_key; // RC: its data (char[]), if they have been read early
    uint64_t total;  // bytes
    Nanos posted;    // if the adapter does not know of it at once (HostTime), else 0
    uint32_t rkey, imm, flags;
    uint32_t first_psn, packets; // assigned when first sent
    uint32_t remote_qpn, remote_qkey;
    uint16_t dlid;
    uint8_t sl, path_bits, is_global;
    uint8_t opcode; // ibv_wr_opcode
    uint8_t sges;
    uint8_t inlined;
    uint8_t assigned;  // PSNs are fixed
    uint8_t done;      // read, atomic: response is complete; UD, UC: sent; WAIT: passed
    uint8_t early;     // its data have been read early (fault wait-prefetch)
    uint8_t bad;       // ibv_wc_status that it fails with when its turn comes (local key, length)
    uint64_t received; // read: response bytes placed in order; WAIT: 1 when its word has been seen to have the value
};

struct QpCaps {
    uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
};

class Requester; // engine/requester.h: send queue processing of one QP

// ibv_qp_ex is what libibverbs programs get when they ask for it; ibv_qp is its first member.
struct Qp {
    union {
        ibv_qp qp;
        ibv_qp_ex ex;
    };
    // DC address setters of a DCI, raw requests (mlx5dv_qp_ex_from_ibv_qp_ex): made when first asked for.
    struct DvFace {
        mlx5dv_qp_ex ex;
        Qp* qp;
    };
    std::unique_ptr<DvFace> dv_face;
    bool takes_raw = false; // MLX5DV_QP_EX_WITH_RAW_WQE
    QpRec* rec;
    uint32_t index;
    QpKind kind;
    uint32_t processor = 0; // of its program (HostTime)
    Engine* engine;
    Cq* send_cq;
    Cq* recv_cq;
    Srq* srq;
    Pd* pd;
    QpCaps caps;
    bool sq_sig_all;
    uint64_t create_send_ops = 0; // ibv_create_qp_ex
    RecvQ rq;                     // unused if srq
    ibv_qp_attr attr{};           // what modify_qp has set so far (query_qp returns it with live parts refreshed)
    ibv_qp_init_attr init_attr{};

    SpinLock sq_lock;
    Requester* requester = nullptr;

    // ibv_wr_start .. ibv_wr_complete: requests collected, posted as one batch.
    struct Batch;
    Batch* batch = nullptr;
    uint32_t events_reported = 0; // as in Cq
    Qp() : ex{} {}
};

} // namespace softhca
