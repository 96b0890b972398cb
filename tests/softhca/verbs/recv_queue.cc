// Rings of receive queues in the segment, for QPs and SRQs alike. The record's identity (id, device, cookie users,
// is_srq) is its owner's business; indices come back when completions are polled (engine/completion.cc).
#include <numeric>

#include "verbs/face.h"

namespace softhca::face {

namespace {
uint64_t ring_bytes(const RecvQueue& r) { return (uint64_t{r.mask} + 1) * sizeof(uint32_t); }
uint64_t pool_bytes(const RecvQueue& r) { return uint64_t{r.entries} * r.stride; }
} // namespace

bool make_recv_queue(Process& process, RecvQ& q, uint32_t max_wr, uint32_t max_sge) {
    RecvQueue& r = *q.rec;
    r.owner = process.slot();
    r.mask = round_up_pow2(max_wr) - 1;
    r.entries = max_wr;
    r.stride = static_cast<uint16_t>(sizeof(RecvWqe) + max_sge * sizeof(RecvSge));
    r.owner_cookie = reinterpret_cast<uint64_t>(&q);
    r.tail.store(0);
    r.head.store(0);
    r.seen_tail = 0;
    r.min_length.store(UINT32_MAX);
    r.limit.store(0);
    r.ring = r.pool = 0;
    q.max_wr = max_wr;
    q.max_sge = max_sge;
    q.tail = 0;
    q.ring = nullptr;
    q.pool = nullptr;
    if (max_wr == 0) return true;
    r.ring = process.alloc(ring_bytes(r));
    r.pool = process.alloc(pool_bytes(r));
    if (!r.ring || !r.pool) {
        free_recv_queue(process, q);
        return false;
    }
    q.ring = process.seg().at<uint32_t>(r.ring);
    q.pool = process.seg().at<char>(r.pool);
    q.free.resize(max_wr);
    std::iota(q.free.rbegin(), q.free.rend(), 0u); // lowest index first: touched memory stays dense
    return true;
}

void free_recv_queue(Process& process, RecvQ& q) {
    RecvQueue& r = *q.rec;
    if (r.ring) process.free(r.ring, ring_bytes(r));
    if (r.pool) process.free(r.pool, pool_bytes(r));
    r.ring = r.pool = 0;
}

} // namespace softhca::face
