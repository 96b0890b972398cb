// What the files of the C ABI face share: owners behind ibv_device and ibv_context, error returns, small look-ups.
// The face validates as libibverbs, kernel and device firmware do together, keeps the set-up halves of objects, and
// calls Engine for everything that moves data or state. Functions follow rdma-core's conventions: pointers are nullptr
// with errno set, int calls return an errno value (and set errno too).
#pragma once
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>

#include "engine/engine.h"
#include "engine/objects.h"

#define VERBS_API extern "C" __attribute__((visibility("default")))

namespace softhca::face {

inline constexpr uint32_t kMaxInline = 1024;
inline constexpr uint32_t kMaxSge = 30;
inline constexpr uint32_t kMaxQpWr = 32768;
inline constexpr uint32_t kMaxCqe = (1u << 22) - 1;
inline constexpr uint32_t kMaxSrqWr = 32767;
inline constexpr uint32_t kMaxRdAtomic = 16; // Responder::saved has as many
inline constexpr uint32_t kMaxMessage = 1u << 30;
inline constexpr uint32_t kGids = 1, kPkeys = kMaxPkeys;
inline constexpr uint64_t kClockMask = INT64_MAX; // valid bits of completion time stamps

// What ibv_get_device_list shows. Lives as long as the process, because contexts refer to it.
struct Device {
    ibv_device dev;
    char provider_data[256]; // zero: provider libraries (libmlx5, libefa) look behind ibv_device whether it is theirs
    uint32_t index;          // image device
};

struct Context {
    verbs_context vctx; // vctx.context is last and what programs hold
    uint32_t device;    // image device
    uint32_t row;       // ContextRec
    uint32_t life;      // DeviceState::deaths when it was opened
    uint32_t processor; // of the program (HostTime)
    Process* process;
    Engine* engine;
    Channel async;
    std::mutex mutex;                     // reading `async`, `live`, `regions`
    std::unordered_set<uint64_t> live;    // objects that events may name; late events for destroyed ones are skipped
    std::unordered_set<uint32_t> regions; // indices of registered memory

    Segment& seg() const { return process->seg(); }
    const DeviceImage& image() const { return seg().img().device(device); }
    DeviceState& state() const { return seg().device(device); }
    [[nodiscard]] bool has_timestamps() const {
        return image().limits.has_timestamps && !state().lack(Lack::timestamps);
    }
    // For good: who wants the adapter back has to open it again.
    [[nodiscard]] bool dead() const {
        return state().dead.load(std::memory_order_relaxed) != 0 ||
               state().deaths.load(std::memory_order_relaxed) != life;
    }
    // The image port of a 1-based port number; kNone if the device has no such port.
    [[nodiscard]] uint32_t port(uint32_t number) const {
        const DeviceImage& d = image();
        return number >= 1 && number <= d.ports ? d.first_port + number - 1 : kNone;
    }
};

enum Command { create_cmd, modify_cmd, query_cmd, reg_cmd, destroy_cmd }; // Engine::charge_command

[[nodiscard]] inline Context* context_of(ibv_context* c) {
    // The pointer sits in verbs_context::priv, which belongs to the library and is never read by programs.
    return reinterpret_cast<Context*>(verbs_get_ctx(c)->priv);
}

[[nodiscard]] inline int fail(int error) { return errno = error; }
[[nodiscard]] inline std::nullptr_t fail_null(int error) {
    errno = error;
    return nullptr;
}

// Whoever tells the program that its device is dead asks so: from then on the program uses its memory for other things.
[[nodiscard]] inline bool told_dead(Context& c) {
    if (!c.dead()) return false;
    c.engine->note_death();
    return true;
}

// Every command to the device begins with it: costs time, and fails when the device is dead.
[[nodiscard]] inline int command(Context& c, Command which) {
    c.engine->charge_command(c.device, which, c.processor);
    return told_dead(c) ? fail(EIO) : 0;
}

[[nodiscard]] inline Pd* pd_of(ibv_pd* p) { return reinterpret_cast<Pd*>(p); }
[[nodiscard]] inline Cq* cq_of(ibv_cq* p) { return reinterpret_cast<Cq*>(p); }
[[nodiscard]] inline Srq* srq_of(ibv_srq* p) { return reinterpret_cast<Srq*>(p); }
[[nodiscard]] inline Qp* qp_of(ibv_qp* p) { return reinterpret_cast<Qp*>(p); }
[[nodiscard]] inline Qp* qp_of(ibv_qp_ex* p) { return reinterpret_cast<Qp*>(p); }
[[nodiscard]] inline Ah* ah_of(ibv_ah* p) { return reinterpret_cast<Ah*>(p); }

// An enumeration that a program filled in, before it is known to be one of its values.
template <class Enum> [[nodiscard]] uint32_t raw(const Enum& e) {
    uint32_t value;
    static_assert(sizeof value == sizeof e);
    __builtin_memcpy(&value, &e, sizeof value);
    return value;
}

[[nodiscard]] inline uint32_t round_up_pow2(uint32_t n) { return n <= 1 ? 1 : 1u << (32 - __builtin_clz(n - 1)); }

// context.cc, query.cc
[[nodiscard]] uint64_t adapter_time(const DeviceImage&, Nanos host);
int query_port(ibv_context*, uint8_t port, ibv_port_attr*, size_t bytes);
int query_device_ex(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex*, size_t bytes);
int query_rt_values(ibv_context*, ibv_values_ex*);
[[nodiscard]] ibv_gid gid_of(Segment&, uint32_t port);

// ah.cc. 0 or EINVAL. Multicast destinations are for UD address handles only.
enum class Destination { unicast, any };
[[nodiscard]] int check_address(const Context&, const ibv_ah_attr&, Destination);

// recv_queue.cc: rings of a receive queue in the segment. false: ENOMEM.
[[nodiscard]] bool make_recv_queue(Process&, RecvQ&, uint32_t max_wr, uint32_t max_sge);
void free_recv_queue(Process&, RecvQ&);

// events.cc
void init_waiter(pthread_mutex_t&, pthread_cond_t&);
void await_acks(pthread_mutex_t&, pthread_cond_t&, const uint32_t& completed, const uint32_t& reported);
void add_event_target(Context&, const void* object);
// No event of `object` is delivered afterwards: queued ones are taken out.
void remove_event_target(Context&, const void* object);
void remove_channel_target(CompChannel&, const Cq*);

// cq.cc, srq.cc, qp.cc: entries of verbs_context
ibv_cq_ex* create_cq_ex(ibv_context*, ibv_cq_init_attr_ex*);
int modify_cq(ibv_cq*, ibv_modify_cq_attr*);
void set_cq_ex_calls(Cq&); // cq_ex.cc
ibv_srq* create_srq_ex(ibv_context*, ibv_srq_init_attr_ex*);
int get_srq_num(ibv_srq*, uint32_t*);
ibv_qp* create_qp_ex(ibv_context*, ibv_qp_init_attr_ex*);
ibv_qp* create_raw_qp(ibv_context*, ibv_qp_init_attr_ex*); // likewise, takes raw requests
void revoke_mr(Context& c, uint32_t index);
ibv_td* alloc_td(ibv_context*, ibv_td_init_attr*);
int dealloc_td(ibv_td*);
ibv_pd* alloc_parent_domain(ibv_context*, ibv_parent_domain_init_attr*);

// What create_qp, create_qp_ex and mlx5dv_create_qp have in common, in one form.
struct QpRequest {
    QpKind kind = QpKind::none;
    ibv_pd* pd = nullptr;
    ibv_cq* send_cq = nullptr;
    ibv_cq* recv_cq = nullptr;
    ibv_srq* srq = nullptr;
    void* qp_context = nullptr;
    ibv_qp_type type = IBV_QPT_RC; // as the program named it
    ibv_qp_cap cap{};
    bool sq_sig_all = false;
    bool with_ex = false;  // ibv_wr_* interface wanted
    bool raw = false;      // and mlx5dv_wr_raw_wqe
    uint64_t send_ops = 0; // IBV_QP_EX_WITH_*
    uint64_t dc_key = 0;
};
[[nodiscard]] Qp* create_qp(Context&, QpRequest&); // cap: what was granted

// wr_api.cc
[[nodiscard]] bool set_wr_api(Qp&, uint64_t send_ops); // false: EOPNOTSUPP for this kind of QP
void free_wr_api(Qp&);
mlx5dv_qp_ex* dv_face(Qp&);

// raw_wqe.cc: what the adapter reads in a work queue entry of the mlx5 interface. Data segments and inline data are
// appended; inline data's segment has its offset as address. Whatever it cannot execute: SendDesc::bad.
void read_raw(const Qp&, const void* wqe, SendDesc&, std::vector<ibv_sge>&, std::vector<char>& inlined);

// post.cc
int post_send(ibv_qp*, ibv_send_wr*, ibv_send_wr** bad);
int post_recv(ibv_qp*, ibv_recv_wr*, ibv_recv_wr** bad);
int post_srq_recv(ibv_srq*, ibv_recv_wr*, ibv_recv_wr** bad);
int poll_cq(ibv_cq*, int entries, ibv_wc*);
int req_notify_cq(ibv_cq*, int solicited_only);
// Opcodes (bit = ibv_wr_opcode) that a send queue of this kind accepts.
[[nodiscard]] uint32_t allowed_opcodes(QpKind);

} // namespace softhca::face
