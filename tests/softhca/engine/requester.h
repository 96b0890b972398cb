// The requester half of a queue pair: the send queue, packet sequence numbers, acknowledgments, retries, reads, DC
// targets (IB specification 9.7.5-9.7.7, 9.9.2; DC as in the mlx5 interface). One object per QP, private to its
// process. While `slow` is false (ideal fabric, healthy, nothing outstanding) post_send executes requests at once
// (fast_path.cc) under Qp::sq_lock; otherwise everything here runs under Engine::mutex.
#pragma once
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/responder.h"

namespace softhca {

class Requester final : public Source {
public:
    Requester(Engine& engine, Qp& qp);
    ~Requester() override;

    // ---- fast path state (Qp::sq_lock) ----
    bool slow = false;
    bool fast_ok = false; // valid for `generation` of the fabric, recomputed by refresh_path()
    uint32_t generation = 0;
    QpRec* peer = nullptr; // the record that `peer_qpn` at `peer_dlid` names; valid if fast_ok
    uint32_t peer_qpn = 0;
    size_t position = 0; // in Engine::qps; mutex
    uint16_t peer_dlid = 0;
    uint8_t peer_bits = 0; // path bits of what goes there
    uint32_t next_psn = 0; // of the next new packet
    uint32_t mtu = 256;    // bytes
    Reply refused;         // a NAK that the fast path got; the slow path acts on it

    // ---- set-up (Engine::mutex) ----
    void connected(); // state became RTS (or attributes changed): read path, timers from attributes
    void reset();     // back to RESET: forgets everything; packets in flight keep their own copy of the data
    void flush(ibv_wc_status first); // completes the whole send queue: the oldest with `first`, the others flushed
    // SQD: finish what is started, start nothing; SQ_DRAINED when that is done, if `notify`.
    void drain(bool on, bool notify = false);
    [[nodiscard]] bool draining() { return draining_ && started(); }
    bool migrate(ibv_event_type cause); // APM: to the alternate path; false if none is armed
    void retire();                      // QP destroyed; Engine deletes it once unused()
    [[nodiscard]] bool unused() const;

    // ---- data path ----
    // 0 or ENOMEM; mutex held. `posted`: when the program has told the adapter of it, not before now.
    int enqueue(const SendDesc& desc, uint64_t total, uint8_t bad, Nanos posted, Nanos now);
    [[nodiscard]] bool idle() const { return head_ == tail_; }
    // Looks up where `dlid`/`qpn` lead (RC, UC: the connection's own) and whether requests there may be executed at
    // once. `path_bits`: with which they leave, and are answered.
    void refresh_path(uint16_t dlid, uint32_t qpn, uint8_t path_bits);
    // DC: what the fast path has cached is where `desc` goes, and the connection to it stands.
    [[nodiscard]] bool dc_stands(const SendDesc& desc) const;
    void note_fabric_change(Nanos now); // routes, states or the QP's own state (failed by a peer) changed
    [[nodiscard]] uint32_t outstanding() const { return static_cast<uint32_t>(tail_ - head_); }
    static bool reads(uint8_t opcode) {
        return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
               opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    }

    // Source
    bool next_chunk(Chunk& chunk, Nanos now) override;
    void chunk_arrived(Chunk& chunk) override;
    void chunk_injected(Chunk& chunk) override;

    // A send completion of `qp`, for the fast path too.
    void push_completion(uint64_t wr_id, uint8_t opcode, uint64_t bytes, ibv_wc_status status, Nanos when);

private:
    friend class ReadStream;
    friend class Waits;
    friend struct FlightPool;
    struct Flight { // a chunk between injection and arrival
        Flight *next, *prev;
        SendWqe wqe; // as it was when the chunk left
        uint64_t pos, offset;
        uint32_t bytes, psn, era;
        uint16_t packets;
        bool first, last, ack_request;
        std::unique_ptr<char[]> copy; // the payload, once the application owns its buffers again
    };
    struct ReplyEvent {
        Requester* requester;
        Reply reply;
        uint64_t pos;
        uint32_t era;
        ReplyEvent* next;
    };
    SendWqe& wqe(uint64_t pos) { return *reinterpret_cast<SendWqe*>(ring_.get() + (pos & (ring_size_ - 1)) * stride_); }
    ibv_sge* sges(SendWqe& w) { return reinterpret_cast<ibv_sge*>(&w + 1); }
    LocalData data_of(SendWqe& w);
    void grow();
    // waits.cc
    bool pass_wait(Nanos now); // the next request is a WAIT: whether it is over
    void read_early(SendWqe& w);
    static void forget_early(SendWqe& w);
    bool sending() const;
    bool started() { return head_ < tail_ && wqe(head_).assigned; } // something waits for its answer
    bool may_start(SendWqe& w, Nanos now);
    void assign(SendWqe& w);
    Flight* new_flight();
    void drop_flight(Flight* f);
    void orphan_flights(); // copies data that flights still need out of application memory
    void send_reply(uint32_t from_port, const Reply& reply, Nanos when, const Flight& f);
    void handle_reply(const Reply& reply, Nanos when, uint64_t pos);
    void acknowledge(uint32_t psn, Nanos when);
    void complete_done(Nanos when);
    void complete_head(ibv_wc_status status, Nanos when);
    void rewind(uint32_t psn);
    void wake(Nanos now); // something may be sent again
    void wake_at(Nanos when);
    // Of the path in use; 0: never.
    Nanos retry_period() const { return rec_.path.timeout ? Nanos{4096} << rec_.path.timeout : 0; }
    void arm_timer(Nanos now);
    void on_timer(Nanos when);
    void retry(Nanos when, uint32_t from_psn);
    void fail(ibv_wc_status status, Nanos when);
    void progressed(Nanos when);
    void read_arrived(uint64_t pos, const Chunk& c, QpRec* target, uint32_t target_qpn);
    void settle();
    // The memory of the request at `pos` is gone: it fails when all before it is complete.
    void stop_at(uint64_t pos, Nanos when);
    void cancel_reads();
    void apm_exchange(QpRec& target);
    QpRec* find_peer(const SendWqe& w, uint32_t dst_port);
    uint16_t dlid_of(const SendWqe& w) const {
        return rec_.kind == QpKind::ud || rec_.kind == QpKind::dci ? w.dlid : rec_.path.dlid;
    }
    // Path bits that packets of `w` leave with, and that answers to them come back on.
    uint8_t path_bits_of(const SendWqe& w) const {
        return rec_.kind == QpKind::ud || rec_.kind == QpKind::dci ? w.path_bits : rec_.path.path_bits;
    }
    uint32_t source_lid(uint8_t path_bits) const;
    // DC (dc.cc)
    bool dc_ready(SendWqe& w, Nanos now);
    void dc_attempt(Nanos when);
    void dc_leave(Nanos now);
    void dc_release();
    void dc_idle(Nanos now);
    bool dc_join(QpRec& dct);

    Engine& engine_;
    Qp& qp_;
    QpRec& rec_;
    std::unique_ptr<char[]> ring_;
    uint64_t ring_size_ = 0; // entries, power of two
    size_t stride_;
    uint64_t head_ = 0; // oldest not completed
    uint64_t next_ = 0; // next to transmit (or in transmission)
    uint64_t tail_ = 0;
    uint64_t next_offset_ = 0; // payload bytes of `next_` handed out
    uint32_t una_psn_ = 0;     // oldest not acknowledged
    uint32_t reads_out_ = 0; // reads and atomics asked for and not complete: answers count in the order of the requests
    uint32_t chunks_since_ack_ = 0;
    Flight* flights_ = nullptr; // doubly linked
    Nanos timer_base_ = 0;      // last progress
    bool timer_on_ = false;
    Nanos paused_until_ = 0;
    int retries_left_ = 0, rnr_left_ = 0;
    bool draining_ = false, dead_ = false, drained_event_ = false; // drained_event_: is due
    bool stands_ = false;                                          // known to Waits
    uint32_t refs_ = 0;                                            // scheduled events
    uint32_t era_ = 0;                                             // +1 at reset: replies of an older life are ignored
    // DC: the target that the DCI is connected to (or connecting)
    enum class Dc : uint8_t { idle, connecting, connected } dc_ = Dc::idle;
    uint16_t dc_dlid_ = 0;
    uint32_t dc_qpn_ = 0;
    uint64_t dc_key_ = 0;
    uint32_t dc_era_ = 0;                     // era_ of the present association
    bool dc_holds_ = false;                   // one of the target's contexts, of which there are not any number
    std::unique_ptr<class ReadStream> reads_; // made by the first read
};

} // namespace softhca
