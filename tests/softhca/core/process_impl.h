// The private half of Process.
#pragma once
#include "core/heap.h"
#include "core/index_pool.h"
#include "core/process.h"

namespace softhca {

struct ProcessImpl {
    ProcessImpl(Segment& seg, uint32_t slot)
        : qps(seg, seg.qp_owner, seg.qp_blocks, kMaxQps, 2, slot), // QPs 0 and 1 are the subnet manager's
          mrs(seg, seg.mr_owner, seg.mr_blocks, kMaxMrs, 1, slot),
          cqs(seg, seg.cq_owner, seg.cq_blocks, kMaxCqs, 1, slot),
          srqs(seg, seg.srq_owner, seg.srq_blocks, kMaxSrqs, 1, slot), heap(seg, slot) {}
    IndexPool qps, mrs, cqs, srqs;
    Heap heap;
    int32_t pid = 0;
    int keeper = -1;     // connection, process kind
    int memory = -1;     // the session's file, for who looks for sessions without a keeper (session/adopt.h)
    bool mapped = false; // the segment was mapped by attach()

    // Makes `slot` (already claimed) this process's own.
    static Process* enter(Segment* segment, uint32_t slot);
    static void leave_parent(); // in the child of a fork
};

} // namespace softhca
