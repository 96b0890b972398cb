// Receive queues as a responder uses them, in the shared records: taking a posted receive, filling it, completing it.
#pragma once
#include "engine/objects.h"

namespace softhca {

struct LocalData;
struct Request;

// Gives `ctx` a receive (recv_entry), unless it holds one; false if there is none. Caller holds the QP's lock (SRQs
// lock themselves), and sets in_recv if the queue is an SRQ's.
bool take_receive(Segment& seg, RecvQueue& q, Responder& ctx);
inline RecvWqe* recv_entry(Segment& seg, const RecvQueue& q, uint64_t entry) {
    return reinterpret_cast<RecvWqe*>(seg.at<char>(q.pool) + entry * q.stride);
}
inline RecvQueue& recv_queue_of(Segment& seg, QpRec& t) {
    return t.is_srq ? seg.srq(t.recv_queue) : seg.rq(t.recv_queue);
}

// Stores `length` bytes of the payload from message offset `from` into the receive's buffers at `at` bytes. fault: also
// if a key that the receive was posted with is not valid any more.
CopyResult scatter_to_receive(Process& p, RecvQueue& q, uint64_t entry, uint64_t at, const LocalData& data,
                              uint64_t from, uint64_t length);

// A successful receive completion for `r`; its length and payload are the caller's, and its status if it is another.
void fill_receive(Cqe& e, const QpRec& target, const RecvQueue& q, uint64_t entry, const Request& r);

// Completes all posted receives with flush errors. rec.lock held; SRQ: nothing but LAST_WQE_REACHED.
void flush_receives(Segment& seg, QpRec& rec);

} // namespace softhca
