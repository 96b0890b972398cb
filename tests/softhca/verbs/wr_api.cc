// The ibv_wr_* interface: requests are collected between wr_start and wr_complete and posted as one batch, or not at
// all.
#include <cstring>
#include <new>

#include "verbs/face.h"

namespace softhca {

// Requests under construction. Data segments and inline data are kept by offset, because their storage grows.
struct Qp::Batch {
    struct Item {
        SendDesc desc;
        size_t sge_at = 0;
    };
    SpinLock lock;        // held from wr_start to wr_complete or wr_abort, as with hardware send queues
    uint32_t allowed = 0; // opcodes (bit = ibv_wr_opcode)
    int error = 0;        // the first
    std::vector<Item> items;
    std::vector<ibv_sge> sges;
    std::vector<char> inlined; // ibv_sge::addr of inline segments is an offset in here until wr_complete

    void clear() {
        error = 0;
        items.clear();
        sges.clear();
        inlined.clear();
    }
    void refuse(int why) {
        if (!error) error = why;
    }
};

namespace face {
namespace {

// The request that setters refer to; a scratch one after an error.
Qp::Batch::Item& current(Qp& qp) {
    static thread_local Qp::Batch::Item scratch;
    return qp.batch->items.empty() ? scratch : qp.batch->items.back();
}

SendDesc& begin(ibv_qp_ex* p, ibv_wr_opcode op) {
    Qp& qp = *qp_of(p);
    if (!(qp.batch->allowed & 1u << op)) qp.batch->refuse(EINVAL);
    Qp::Batch::Item& item = qp.batch->items.emplace_back();
    item.sge_at = qp.batch->sges.size();
    item.desc.wr_id = p->wr_id;
    item.desc.flags = p->wr_flags & ~unsigned{IBV_SEND_INLINE}; // set by the inline setters
    item.desc.opcode = op;
    return item.desc;
}

SendDesc& begin_rdma(ibv_qp_ex* p, ibv_wr_opcode op, uint32_t rkey, uint64_t remote_addr) {
    SendDesc& d = begin(p, op);
    d.rkey = rkey;
    d.remote_addr = remote_addr;
    return d;
}

void wr_send(ibv_qp_ex* p) { begin(p, IBV_WR_SEND); }
void wr_send_imm(ibv_qp_ex* p, __be32 imm) { begin(p, IBV_WR_SEND_WITH_IMM).imm = imm; }
void wr_rdma_write(ibv_qp_ex* p, uint32_t rkey, uint64_t addr) { begin_rdma(p, IBV_WR_RDMA_WRITE, rkey, addr); }
void wr_rdma_write_imm(ibv_qp_ex* p, uint32_t rkey, uint64_t addr, __be32 imm) {
    begin_rdma(p, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr).imm = imm;
}
void wr_rdma_read(ibv_qp_ex* p, uint32_t rkey, uint64_t addr) { begin_rdma(p, IBV_WR_RDMA_READ, rkey, addr); }
void wr_atomic_cmp_swp(ibv_qp_ex* p, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap) {
    SendDesc& d = begin_rdma(p, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr);
    d.compare_add = compare;
    d.swap = swap;
}
void wr_atomic_fetch_add(ibv_qp_ex* p, uint32_t rkey, uint64_t addr, uint64_t add) {
    begin_rdma(p, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr).compare_add = add;
}

void wr_set_sge_list(ibv_qp_ex* p, size_t n, const ibv_sge* list) {
    Qp& qp = *qp_of(p);
    if (n > qp.caps.max_send_sge) return qp.batch->refuse(EINVAL);
    qp.batch->sges.insert(qp.batch->sges.end(), list, list + n);
    current(qp).desc.sges = static_cast<uint32_t>(n);
}

void wr_set_sge(ibv_qp_ex* p, uint32_t lkey, uint64_t addr, uint32_t length) {
    const ibv_sge sge{.addr = addr, .length = length, .lkey = lkey};
    wr_set_sge_list(p, 1, &sge);
}

// Copied here: the program may change its buffer as soon as the call returns.
void wr_set_inline_data_list(ibv_qp_ex* p, size_t n, const ibv_data_buf* list) {
    Qp& qp = *qp_of(p);
    std::vector<char>& store = qp.batch->inlined;
    const size_t at = store.size();
    for (size_t i = 0; i < n; ++i) {
        const char* from = static_cast<const char*>(list[i].addr);
        if (store.size() - at + list[i].length > qp.caps.max_inline) return qp.batch->refuse(EINVAL);
        store.insert(store.end(), from, from + list[i].length);
    }
    qp.batch->sges.push_back({.addr = at, .length = static_cast<uint32_t>(store.size() - at), .lkey = 0});
    Qp::Batch::Item& item = current(qp);
    item.desc.sges = 1;
    item.desc.flags |= IBV_SEND_INLINE;
    if (item.desc.opcode >= IBV_WR_RDMA_READ) qp.batch->refuse(EINVAL);
}

void wr_set_inline_data(ibv_qp_ex* p, void* addr, size_t length) {
    const ibv_data_buf buffer{.addr = addr, .length = length};
    wr_set_inline_data_list(p, 1, &buffer);
}

void wr_set_ud_addr(ibv_qp_ex* p, ibv_ah* ah, uint32_t qpn, uint32_t qkey) {
    SendDesc& d = current(*qp_of(p)).desc;
    d.ah = ah_of(ah);
    d.remote_qpn = qpn;
    d.remote_qkey = qkey;
}

void set_dc_addr(mlx5dv_qp_ex* p, ibv_ah* ah, uint32_t dctn, uint64_t key) {
    SendDesc& d = current(*reinterpret_cast<Qp::DvFace*>(p)->qp).desc;
    d.ah = ah_of(ah);
    d.remote_qpn = dctn;
    d.dc_key = key;
}

// Streams keep an error of one target from stopping others. One stream is what this adapter has.
void set_dc_addr_stream(mlx5dv_qp_ex* p, ibv_ah* ah, uint32_t dctn, uint64_t key, uint16_t) {
    set_dc_addr(p, ah, dctn, key);
}

// ibv_qp_ex::wr_flags do not count: the entry has its own.
void wr_raw_wqe(mlx5dv_qp_ex* p, const void* wqe) {
    Qp& qp = *reinterpret_cast<Qp::DvFace*>(p)->qp;
    Qp::Batch& b = *qp.batch;
    Qp::Batch::Item& item = b.items.emplace_back();
    item.sge_at = b.sges.size();
    item.desc.wr_id = qp.ex.wr_id;
    read_raw(qp, wqe, item.desc, b.sges, b.inlined);
}

void wr_start(ibv_qp_ex* p) {
    Qp& qp = *qp_of(p);
    qp.batch->lock.lock();
    qp.batch->clear();
}

void wr_abort(ibv_qp_ex* p) { qp_of(p)->batch->lock.unlock(); }

int post_batch(Qp& qp, Qp::Batch& b) {
    if (b.error) return b.error;
    if (qp.rec->state.load(std::memory_order_relaxed) < IBV_QPS_RTS) return EINVAL;
    const bool addressed = qp.kind == QpKind::ud || qp.kind == QpKind::dci;
    for (Qp::Batch::Item& item : b.items) {
        if (addressed && !item.desc.ah) return EINVAL;
        item.desc.sge = b.sges.data() + item.sge_at;
        if (item.desc.flags & IBV_SEND_INLINE) b.sges[item.sge_at].addr += reinterpret_cast<uint64_t>(b.inlined.data());
    }
    if (b.items.size() > 1 && b.items.size() > qp.engine->send_room(qp)) return ENOMEM;
    for (const Qp::Batch::Item& item : b.items) {
        const bool raw = (item.desc.flags & kRaw) != 0;
        if (int error = raw ? qp.engine->post_raw(qp, item.desc) : qp.engine->post_send(qp, item.desc)) return error;
    }
    return 0;
}

int wr_complete(ibv_qp_ex* p) {
    Qp& qp = *qp_of(p);
    const int error = post_batch(qp, *qp.batch);
    qp.batch->lock.unlock();
    return error ? fail(error) : 0;
}

// IBV_QP_EX_WITH_* flags and opcodes are different orders of the same things.
constexpr struct {
    uint64_t flag;
    ibv_wr_opcode opcode;
} kOps[] = {
    {IBV_QP_EX_WITH_RDMA_WRITE, IBV_WR_RDMA_WRITE},
    {IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM},
    {IBV_QP_EX_WITH_SEND, IBV_WR_SEND},
    {IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM},
    {IBV_QP_EX_WITH_RDMA_READ, IBV_WR_RDMA_READ},
    {IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_CMP_AND_SWP},
    {IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD},
};

} // namespace

bool set_wr_api(Qp& qp, uint64_t send_ops) {
    uint32_t opcodes = 0;
    for (const auto& op : kOps)
        if (send_ops & op.flag) {
            opcodes |= 1u << op.opcode;
            send_ops &= ~op.flag;
        }
    if (send_ops || (opcodes & ~allowed_opcodes(qp.kind))) return false;
    qp.batch = new (std::nothrow) Qp::Batch;
    if (!qp.batch) return false;
    qp.batch->allowed = opcodes;
    const auto wanted = [opcodes](ibv_wr_opcode op) { return (opcodes & 1u << op) != 0; };
    ibv_qp_ex& ex = qp.ex;
    if (wanted(IBV_WR_SEND)) ex.wr_send = wr_send;
    if (wanted(IBV_WR_SEND_WITH_IMM)) ex.wr_send_imm = wr_send_imm;
    if (wanted(IBV_WR_RDMA_WRITE)) ex.wr_rdma_write = wr_rdma_write;
    if (wanted(IBV_WR_RDMA_WRITE_WITH_IMM)) ex.wr_rdma_write_imm = wr_rdma_write_imm;
    if (wanted(IBV_WR_RDMA_READ)) ex.wr_rdma_read = wr_rdma_read;
    if (wanted(IBV_WR_ATOMIC_CMP_AND_SWP)) ex.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
    if (wanted(IBV_WR_ATOMIC_FETCH_AND_ADD)) ex.wr_atomic_fetch_add = wr_atomic_fetch_add;
    if (qp.kind == QpKind::ud) ex.wr_set_ud_addr = wr_set_ud_addr;
    ex.wr_set_sge = wr_set_sge;
    ex.wr_set_sge_list = wr_set_sge_list;
    ex.wr_set_inline_data = wr_set_inline_data;
    ex.wr_set_inline_data_list = wr_set_inline_data_list;
    ex.wr_start = wr_start;
    ex.wr_complete = wr_complete;
    ex.wr_abort = wr_abort;
    return true;
}

void free_wr_api(Qp& qp) {
    delete qp.batch;
    qp.batch = nullptr;
}

mlx5dv_qp_ex* dv_face(Qp& qp) {
    const bool dci = qp.kind == QpKind::dci;
    if (!(dci || qp.takes_raw) || !qp.batch) return nullptr;
    if (!qp.dv_face) {
        qp.dv_face.reset(new (std::nothrow) Qp::DvFace{});
        if (!qp.dv_face) return fail_null(ENOMEM);
        qp.dv_face->qp = &qp;
        if (dci) qp.dv_face->ex.wr_set_dc_addr = set_dc_addr;
        if (dci) qp.dv_face->ex.wr_set_dc_addr_stream = set_dc_addr_stream;
        if (qp.takes_raw) qp.dv_face->ex.wr_raw_wqe = wr_raw_wqe;
    }
    return &qp.dv_face->ex;
}

} // namespace face
} // namespace softhca
