// Polling through ibv_cq_ex: a cursor over entries in place. poll_lock is held from start_poll to end_poll.
#include <ctime>

#include "verbs/face.h"

namespace softhca::face {
namespace {

Cq& cq_of_ex(ibv_cq_ex* p) { return *reinterpret_cast<Cq*>(p); }

// Puts the cursor on the next entry; ENOENT if there is none.
int step(Cq& cq) {
    cq.cursor = cq.engine->next_cqe(cq);
    if (!cq.cursor) return ENOENT;
    cq.ex.wr_id = Engine::cqe_wr_id(*cq.cursor);
    cq.ex.status = static_cast<ibv_wc_status>(cq.cursor->status);
    Engine::retire(*cq.cursor); // programs post the next receive while they look at this completion
    return 0;
}

int start_poll(ibv_cq_ex* p, ibv_poll_cq_attr* attr) {
    Cq& cq = cq_of_ex(p);
    if (attr && attr->comp_mask) [[unlikely]]
        return EINVAL;
    cq.engine->poll();
    cq.begin_use();
    if (step(cq) == 0) [[likely]]
        return 0;
    cq.end_use(); // no end_poll after ENOENT from here
    cq.engine->poll_waits(cq.rec->device);
    cq.engine->empty_poll(cq);
    return ENOENT;
}

int next_poll(ibv_cq_ex* p) {
    Cq& cq = cq_of_ex(p);
    cq.engine->consume_cqe(cq);
    return step(cq);
}

// The cursor stays where it is: programs may look at the last entry still, as with the mlx5 provider (rdma-core's own
// test of raw requests does).
void end_poll(ibv_cq_ex* p) {
    Cq& cq = cq_of_ex(p);
    if (cq.cursor) cq.engine->consume_cqe(cq);
    cq.empty_polls = 0;
    cq.end_use();
}

const Cqe& entry(ibv_cq_ex* p) { return *cq_of_ex(p).cursor; }

ibv_wc_opcode read_opcode(ibv_cq_ex* p) { return static_cast<ibv_wc_opcode>(entry(p).opcode); }
uint32_t read_vendor_err(ibv_cq_ex* p) { return entry(p).vendor_err; }
uint32_t read_byte_len(ibv_cq_ex* p) { return entry(p).byte_len; }
__be32 read_imm_data(ibv_cq_ex* p) { return entry(p).imm; }
uint32_t read_qp_num(ibv_cq_ex* p) { return entry(p).qpn; }
uint32_t read_src_qp(ibv_cq_ex* p) { return entry(p).src_qp; }
unsigned read_wc_flags(ibv_cq_ex* p) { return entry(p).wc_flags; }
uint32_t read_slid(ibv_cq_ex* p) { return entry(p).slid; }
uint8_t read_sl(ibv_cq_ex* p) { return entry(p).sl; }
uint8_t read_dlid_path_bits(ibv_cq_ex* p) { return entry(p).path_bits; }

uint64_t read_completion_ts(ibv_cq_ex* p) {
    Cq& cq = cq_of_ex(p);
    return adapter_time(cq.engine->seg().img().device(cq.rec->device), cq.cursor->time);
}

// The completion's time on the calendar clock. Virtual worlds start at the epoch.
uint64_t read_wallclock(ibv_cq_ex* p) {
    Cq& cq = cq_of_ex(p);
    if (cq.engine->process().virtual_time()) return cq.cursor->time;
    timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    const uint64_t now = static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
    return now - cq.engine->now() + cq.cursor->time;
}

} // namespace

// A reader exists only if the CQ was created for that field, as with real providers: programs that forget to ask fail
// here too.
void set_cq_ex_calls(Cq& cq) {
    ibv_cq_ex& ex = cq.ex;
    ex.start_poll = start_poll;
    ex.next_poll = next_poll;
    ex.end_poll = end_poll;
    ex.read_opcode = read_opcode;
    ex.read_vendor_err = read_vendor_err;
    ex.read_wc_flags = read_wc_flags;
    const auto offer = [&](uint64_t flag, auto& slot, auto call) {
        if (cq.wc_flags & flag) slot = call;
    };
    offer(IBV_WC_EX_WITH_BYTE_LEN, ex.read_byte_len, read_byte_len);
    offer(IBV_WC_EX_WITH_IMM, ex.read_imm_data, read_imm_data);
    offer(IBV_WC_EX_WITH_QP_NUM, ex.read_qp_num, read_qp_num);
    offer(IBV_WC_EX_WITH_SRC_QP, ex.read_src_qp, read_src_qp);
    offer(IBV_WC_EX_WITH_SLID, ex.read_slid, read_slid);
    offer(IBV_WC_EX_WITH_SL, ex.read_sl, read_sl);
    offer(IBV_WC_EX_WITH_DLID_PATH_BITS, ex.read_dlid_path_bits, read_dlid_path_bits);
    offer(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, ex.read_completion_ts, read_completion_ts);
    offer(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, ex.read_completion_wallclock_ns, read_wallclock);
}

} // namespace softhca::face
