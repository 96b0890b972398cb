// The session segment: everything that more than one process of a session touches, in one sparse memory file (memfd),
// or in anonymous memory for a virtual-time world. Objects refer to each other by index or by byte offset (Off), never
// by pointer. Records (QpRec, MrRec, CqRec, RecvQueue) live in type-stable tables: memory that was once a QpRec stays
// one, so a stale reference can be checked (number, owner, state) instead of faulting. Who writes what:
//  - the owner process of an object: its set-up fields, posting of receives, polling;
//  - initiators (peers' processes): the responder side of a QpRec under QpRec::lock, RecvQueue::head, CQ entries;
//  - anybody: link, port and fault state, all single atomics.
#pragma once
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/clock.h"
#include "core/lock.h"
#include "softhca/image.h"

namespace softhca {

using Off = uint64_t; // byte offset in the segment, 0 = none

inline constexpr uint32_t kSegmentMagic = 0x53484341; // "SHCA"
inline constexpr uint32_t kSegmentVersion = 7;
inline constexpr uint64_t kSegmentBytes = 1ull << 35; // address space, sparse
inline constexpr uint32_t kMaxProcs = 1024;
inline constexpr uint32_t kQpBits = 20; // QPN = index | reuse count << kQpBits (24 bits)
inline constexpr uint32_t kMaxQps = 1u << kQpBits;
inline constexpr uint32_t kMaxMrs = 1u << 20; // key = index << 8 | reuse count
inline constexpr uint32_t kMaxCqs = 1u << 17;
inline constexpr uint32_t kMaxRecvQueues = kMaxQps; // RQs share the QP's index; SRQs have their own table
inline constexpr uint32_t kMaxSrqs = 1u << 17;
inline constexpr uint32_t kBlock = 64;           // indices are claimed by processes in blocks of this many
inline constexpr uint64_t kHeapPage = 64 * 1024; // the heap is claimed by processes in runs of such pages
inline constexpr uint32_t kAtomicLocks = 1024;

// ---- processes
// -------------------------------------------------------------------------------------------------------
enum class ProcState : uint32_t { free, starting, alive, dead };

inline constexpr uint32_t kKeeperSlot = 0; // the keeper takes locks like any other process; unused in virtual time
inline constexpr uint32_t kHazards = 32;   // threads of a process that copy or announce at the same time (more wait)

struct alignas(64) ProcSlot {
    std::atomic<ProcState> state;
    std::atomic<uint32_t> generation; // +1 at every reuse of the slot
    std::atomic<int32_t> pid;
    std::atomic<uint64_t> start_time;       // field 22 of /proc/PID/stat: tells a reused pid from the real one
    std::atomic<uint32_t> node;             // kNone until it opened the device list
    std::atomic<uint32_t> stop_request;     // 1: stopped by the fault `stop` (keeper)
    std::atomic<uint32_t> hazard[kHazards]; // MR table index + 1 that a thread is copying through (dereg waits for it)
    // CQ index + 1 that a thread is sending an event of, from before it takes `armed` until the event is on its way. Of
    // a killed process: CqRec::owed.
    std::atomic<uint32_t> announcing[kHazards];
    // Send queues of this process that stand at a WAIT (engine/waits.h). Who writes to its memory says so in `written`
    // then, and rings: its helper thread sleeps at `bell`.
    std::atomic<uint32_t> waiting, written, bell;
    char command[32];
    // Held by the main thread (core/liveness.h). The kernel marks it when that ends (a robust mutex), by exit, signal
    // or exec: before its number can be given to another process, and long before anybody has looked.
    pthread_mutex_t life;
};

// ---- fabric run-time state
// ------------------------------------------------------------------------------------------- Faults of one direction
// of a cable or of a port. ppm = parts per million of packets.
struct FaultKnobs {
    std::atomic<uint32_t> drop_ppm, corrupt_ppm, ack_drop_ppm;
    std::atomic<uint32_t> delay_ns;      // added to every packet
    std::atomic<uint64_t> rate_override; // bytes/s, 0 = as in the image
    std::atomic<uint64_t> trip_at;       // when `packets` reaches this, `trip_action` happens once; 0 = never
    std::atomic<uint32_t> trip_action;   // TripAction
    std::atomic<uint32_t> trip_count;    // how many packets it affects (drop)
};
enum class TripAction : uint32_t { none, drop, corrupt, ack_drop, link_down };

// Real time: ports that compete for a link and have not got all they want (fabric/network_turns.h).
inline constexpr uint32_t kLinkTurns = 8;
struct LinkTurns {
    SharedLock lock;
    std::atomic<uint32_t> members; // turns in use
    uint64_t clock;                // tag of the last served competitor
    // Time before busy_until that nobody has reserved: `idle` ns of [idle_from, idle_to). Written without the lock.
    std::atomic<uint64_t> idle, idle_from, idle_to;
    struct Turn {
        uint64_t owner;                    // (process slot + 1) << 32 | image port; 0 = free
        uint64_t tag;                      // link time (ns) it has been served, on the link's own scale (clock)
        std::atomic<uint64_t> due;         // model time of its next reservation
        uint64_t period, length;           // distance and length (ns) of its reservations
        uint64_t weight, cost;             // sources it stands for; what a reservation adds to its tag
        uint64_t bank, bank_from, bank_to; // `bank` ns of [from, to) that others have reserved for it
    } turn[kLinkTurns];
};

struct alignas(64) LinkState {
    std::atomic<uint32_t> up;         // 1 = carries packets
    std::atomic<uint32_t> admin_down; // taken down by command; `up` follows (session/faults)
    FaultKnobs faults;
    alignas(64) std::atomic<uint64_t> busy_until; // real time: the end of the last reservation (ns)
    std::atomic<uint64_t> bytes, packets, chunks;
    std::atomic<uint64_t> drops,
        corrupted;                 // packets lost: dropped (by fault, or the link is down), failed the CRC check
    std::atomic<uint64_t> wait_ns; // sum of queueing times of chunks
    std::atomic<uint64_t> peak_queue_ns;
    alignas(64) LinkTurns turns;
};

struct alignas(64) PortState {
    std::atomic<uint32_t> up;              // administratively and physically up (and its cable)
    std::atomic<uint32_t> admin_down;      // taken down by command; `up` follows (session/faults)
    std::atomic<uint32_t> announced;       // value of `up` that PORT_ERR / PORT_ACTIVE was last raised for
    std::atomic<uint32_t> loopback_fails;  // nasty: traffic to oneself needs the port up
    std::atomic<uint32_t> handles_refused; // nasty: no address handles are made
    std::atomic<uint32_t> init_refused;    // nasty: no queue pair gets beyond RESET
    FaultKnobs faults;                     // also apply in crossbar subnets, which have no links
    std::atomic<uint64_t> tx_bytes, tx_packets, rx_bytes, rx_packets, drops, corrupted;
    std::atomic<uint16_t> lid;              // current base LID (LID_CHANGE)
    std::atomic<uint16_t> pkeys[kMaxPkeys]; // current P_Key table (PKEY_CHANGE); 0: free entry
    std::atomic<uint32_t> transitions;
};

enum class Lack : uint32_t;

struct alignas(64) DeviceState {
    std::atomic<uint32_t> dead; // DEVICE_FATAL happened
    // How often. What was opened or made in an earlier life stays dead when the adapter is back.
    std::atomic<uint32_t> deaths;
    std::atomic<uint32_t> qps, cqs, srqs, mrs;
    // Nasty knobs, see tests/softhca/README.md "Nasty".
    std::atomic<uint32_t> place_delay_ns; // data and receive completions appear this long after the acknowledgment
    std::atomic<uint32_t>
        place_delay_qp_ns;                // likewise, each queue pair by itself: at most this long (engine/placement.h)
    std::atomic<uint32_t> flush_accepted; // receives accepted but not yet placed are flushed when the QP errs
    std::atomic<uint32_t> wait_prefetch;  // data of what is behind a WAIT are read early, unless fenced
    std::atomic<uint32_t> wait_endian;    // a WAIT that is not for equality compares big-endian numbers
    std::atomic<uint32_t> query_mode;     // QueryMode of ibv_query_qp
    std::atomic<uint32_t> lacks;          // bit: Lack
    std::atomic<uint32_t> max_qps;        // no more are made while there are so many; 0: what the session has room for
    [[nodiscard]] bool lack(Lack what) const;
    // Override of AdapterLimits costs (create, modify, query, reg, destroy); kNone = image.
    std::atomic<uint32_t> command_ns[5];
    // Real-time model of the send side, protected by `lock`; the virtual network keeps its own exact state.
    SharedLock lock;
    std::atomic<uint64_t> tx_busy_until, bus_tx_until, bus_rx_until;
    std::atomic<uint64_t> messages, cache_misses;
    Off qp_cache; // uint32_t[qp_cache_entries], 0 = none
};
enum class QueryMode : uint32_t { truthful, stale, refused };
// What an adapter cannot do, or does not keep to, when told so (fault `lacks`). read_push, write_order: see
// engine/placement.h.
enum class Lack : uint32_t { dc, timestamps, apm, resize, srq, read_push, write_order, wait };
inline bool DeviceState::lack(Lack what) const {
    return lacks.load(std::memory_order_relaxed) >> static_cast<uint32_t>(what) & 1;
}

struct FabricState {
    std::atomic<uint32_t> generation; // +1 whenever routes, link or port states or fault knobs change
    std::atomic<uint32_t> modelled;   // 1: chunks go through the network model; 0: ideal
    std::atomic<uint32_t> disturbed;  // count of active faults; 0 lets ideal sessions use the fast path
    std::atomic<uint64_t> seed;
    std::atomic<uint64_t> payload_limit; // virtual time: longer messages are not copied; 0 = copy everything
    std::atomic<uint32_t> shutdown;
};

// ---- memory regions
// --------------------------------------------------------------------------------------------------
struct alignas(64) MrRec {
    std::atomic<uint32_t> key; // lkey == rkey; 0 = free or being taken down
    uint32_t access;           // IBV_ACCESS_*
    uint32_t pd;               // session-wide PD number
    uint32_t owner;            // process slot
    uint32_t device;
    uint32_t uses;               // times that this index was registered: low byte of the key; never reset
    uint64_t iova, length, addr; // peers address iova..iova+length; addr is the owner's virtual address
};

// ---- completion queues
// -----------------------------------------------------------------------------------------------
inline constexpr uint32_t kCqePayload = 192; // receive data that travels in the completion entry

// Longer receive data wait in the completion queue's staging ring until they are polled: a call of the system for each
// message (process_vm_writev, over 1 us) would make messages of 200 bytes five times as dear as those of 192. A message
// is in one piece; what finds no room, or is longer than this, is written into the receive's memory at once.
inline constexpr uint32_t kStagedMost = 8448;
inline constexpr uint64_t kStagingBytes = 128 << 10;
inline constexpr uint8_t kStaged = 255; // Cqe::in_payload

enum class CqeKind : uint8_t { send, recv, dead }; // dead: belonged to a destroyed QP, skipped by poll

struct alignas(64) Cqe {
    std::atomic<uint32_t> seq; // low 32 bits of (position + 1) when valid, written last
    uint32_t qpn;
    uint8_t status; // ibv_wc_status
    uint8_t opcode; // ibv_wc_opcode
    CqeKind kind;
    uint8_t wc_flags; // IBV_WC_WITH_IMM, IBV_WC_GRH
    uint32_t byte_len;
    uint32_t imm;       // network order, as the application gave it
    uint8_t in_payload; // bytes of receive data in payload[], 0 = already placed; kStaged: payload[] has Staged
    uint8_t solicited;
    uint16_t vendor_err;
    uint64_t wr;               // send: wr_id. recv: entry of the RecvQueue's pool
    uint64_t queue;            // recv: RecvQueue::owner_cookie (pointer in the owner's process), 0 = wr is a wr_id
    char payload[kCqePayload]; // the first 24 bytes share the header's cache line
    uint64_t time;             // ns, host clock; 0 unless the CQ wants time stamps
    uint32_t src_qp;           // UD and DCT
    uint16_t slid, pkey_index;
    uint8_t sl, path_bits;
    uint8_t pad[6];
};
static_assert(sizeof(Cqe) == 256);

struct Staged { // where receive data wait: bytes of the staging ring, counted from its first use on
    uint64_t begin, end;
    uint32_t length;
};
static_assert(sizeof(Staged) <= 24);

// What a completion queue's next event is for.
enum Armed : uint32_t { kNotArmed, kArmed, kArmedSolicited /* or an error */ };

struct alignas(64) CqRec {
    // set-up
    uint32_t id; // 0 = free
    uint32_t owner, device;
    uint32_t mask;     // ring size - 1
    uint32_t capacity; // cqe, what the program asked for rounded up
    uint32_t has_channel, wants_time;
    uint64_t channel; // channel id for notify() (core/notify.h)
    uint64_t user;    // owner's pointer (ibv_cq)
    uint64_t async_channel;
    Off entries; // Cqe[mask + 1]
    Off staging; // char[kStagingBytes]; 0: none
    std::atomic<uint32_t> overrun;
    std::atomic<uint32_t> armed;          // Armed
    std::atomic<uint64_t> announced;      // entries before this position have been announced by an event
    std::atomic<uint64_t> announced_head; // `head` then
    std::atomic<uint32_t> owed;           // 1: somebody was killed who may have been about to send an event
    alignas(64) SharedLock lock;          // producers
    uint64_t tail, seen_head;
    uint64_t staged_tail, seen_staged_head;
    alignas(64) std::atomic<uint64_t> head; // consumer
    std::atomic<uint64_t> staged_head;      // all before it has been polled
};

// ---- receive queues
// --------------------------------------------------------------------------------------------------
struct RecvSge {
    uint64_t addr;
    uint32_t length, lkey;
};
struct RecvWqe { // followed by RecvSge[max_sge]
    uint64_t wr_id;
    uint32_t total; // bytes
    uint32_t
        covered; // of them, from the first on, those that the keys cover: a longer message is a local protection error
    uint32_t sges, reserved;
    RecvSge* sge() { return reinterpret_cast<RecvSge*>(this + 1); }
};

// A ring of indices into a pool of RecvWqe. The owner fills ring[tail & mask], initiators take entries from head. A
// pool entry is free again when the completion that names it has been polled, so the poller (who owns the memory) can
// copy small payloads itself and initiators need not look at the entry at all when the payload is <= min_length.
// Completions name the pool entry, not the ring position: an initiator may be descheduled between taking and
// completing, while the ring goes round below it.
struct alignas(64) RecvQueue {
    // set-up
    uint32_t id; // 0 = free; SRQ: no other SRQ of the session has had it
    uint32_t owner, device;
    uint32_t mask, entries;
    uint16_t stride, is_srq; // stride in bytes
    uint64_t owner_cookie;
    uint64_t async_channel, user; // SRQ events and their element
    Off ring;                     // uint32_t[mask + 1]
    Off pool;                     // entries * stride
    // owner writes
    alignas(64) std::atomic<uint64_t> tail;
    std::atomic<uint32_t> min_length; // least `covered` of any entry ever posted; longer: look at the entry
    std::atomic<uint32_t> limit;      // SRQ limit; 0 = not armed
    // initiators write (under the QP's lock for an RQ, under `lock` for an SRQ)
    alignas(64) SharedLock lock;
    std::atomic<uint64_t> head;
    uint64_t seen_tail;
};
static_assert(sizeof(RecvQueue) == 192); // one cache line for each of the three

// ---- queue pairs
// -----------------------------------------------------------------------------------------------------
enum class QpKind : uint8_t { none, rc, uc, ud, dci, dct };

// Where a message stands at the responder. One per reliable connection: inside the target's QpRec for RC/UC; inside the
// initiator's own QpRec for a DCI (its current target's context, which a real DCT would hold).
struct Responder {
    uint32_t expected_psn; // 24 bits
    uint32_t msn;
    uint64_t recv_entry; // pool entry of the receive that the message in progress fills, valid if in_recv
    uint64_t recv_head;  // its place in the queue, likewise
    // DCI: the SRQ that recv_entry is of, and its RecvQueue::id (another one may have got its place meanwhile).
    uint32_t recv_srq, recv_srq_id;
    uint32_t progress;  // bytes of the message in progress that are placed
    uint8_t in_message; // between first and last packet
    uint8_t in_recv;    // holds a receive
    uint8_t nak_sent;   // sequence NAK outstanding: silent until the expected PSN comes
    uint8_t pad[5];
    // Atomic results kept for duplicates (IB 9.4.5): the newest 16. kSaved marks an entry in use.
    uint32_t saved_psn[16];
    uint64_t saved_result[16];
    uint32_t saved_next;
    static constexpr uint32_t kSaved = 1u << 31;
};

struct PathRec {       // one direction of a connection's address
    uint32_t src_port; // image port index
    uint16_t dlid, slid;
    uint8_t sl, path_bits, is_global, valid;
    uint8_t timeout;    // of requests that take it (IB 9.7.6.1.3 code); comes with the path when it is migrated to
    uint8_t pkey_index; // in the table of src_port, or of QpRec::port before there is an address; likewise
};

struct alignas(64) QpRec {
    SharedLock lock;             // responder side and state
    std::atomic<uint32_t> qpn;   // full number; 0 = free
    std::atomic<uint32_t> state; // ibv_qp_state
    QpKind kind;
    uint8_t mtu;       // ibv_mtu
    uint8_t rnr_timer; // min_rnr_timer (IB 9.7.5.2.8 code)
    uint8_t max_dest_rd_atomic;
    uint32_t uses; // reuse count, survives the object (Process::next_qpn)
    uint32_t owner, device, pd;
    uint32_t life; // DeviceState::deaths when it was made
    uint32_t dest_qpn;
    uint32_t access; // qp_access_flags
    uint32_t qkey;
    uint32_t recv_cq;    // CqRec index
    uint32_t recv_queue; // index in recv_queues[] or srqs[]
    uint32_t is_srq;
    std::atomic<uint32_t> sq_psn;    // next PSN that the requester will use (mirrored for the peer's tools)
    std::atomic<uint32_t> mig_state; // ibv_mig_state
    uint32_t port;                   // image port index of the current path
    uint32_t mig_refused;   // image port + 1 that a peer wanted to migrate to in vain; told once (PATH_MIG_ERR)
    uint64_t user;          // owner's pointer (ibv_qp)
    uint64_t async_channel; // where events of this QP go (core/notify.h)
    uint64_t dc_key;        // DCT access key
    Off dct_slots;          // std::atomic<uint32_t>[dct_contexts]: initiators' QPNs; used under lock
    PathRec path, alt;
    Responder responder;
};

// ---- device contexts (async event queues) ---------------------------------------------------------------------------
struct ContextRec {
    std::atomic<uint32_t> used; // owner slot + 1
    uint32_t device;
    uint32_t life;          // DeviceState::deaths when it was opened
    uint64_t async_channel; // channel id
};
inline constexpr uint32_t kMaxContexts = 4096;

// ---- the segment
// -----------------------------------------------------------------------------------------------------
struct alignas(4096) Segment {
    uint32_t magic, version;
    uint64_t bytes;
    char session[64];
    TscScale tsc;
    uint32_t virtual_time;
    std::atomic<uint64_t> next_id; // channels, PDs: never reused
    std::atomic<uint32_t> live_procs;
    std::atomic<uint32_t> proc_top; // slots >= this have never been used
    SharedLock table_lock;          // slots change hands (claim, reap, choice of a node) under this lock
    std::atomic<uint32_t> next_node;
    FabricState fabric;
    // offsets
    Off image, links, ports, devices, procs;
    Off qps, qp_owner; // QpRec[kMaxQps], std::atomic<uint32_t>[kMaxQps / kBlock] (owner slot + 1)
    Off mrs, mr_owner;
    Off cqs, cq_owner;
    Off rqs; // RecvQueue[kMaxQps], same index as the QP
    Off srqs, srq_owner;
    Off contexts;         // ContextRec[kMaxContexts]
    Off heap, heap_owner; // kHeapPage pages; std::atomic<uint32_t>[heap_pages]
    uint64_t heap_pages;
    std::atomic<uint64_t> heap_hint; // search starts here
    // Tables are sparse and reading makes pages real: nothing at or above these has ever been claimed.
    std::atomic<uint32_t> qp_blocks, mr_blocks, cq_blocks, srq_blocks;
    std::atomic<uint64_t> heap_top;
    Off atomic_locks; // SharedLock[kAtomicLocks], by (slot, address): Process::atomic_at

    template <class T> T* at(Off o) { return reinterpret_cast<T*>(reinterpret_cast<char*>(this) + o); }
    const FabricImage& img() { return *at<FabricImage>(image); }
    LinkState& link(uint32_t i) { return at<LinkState>(links)[i]; }
    PortState& port(uint32_t i) { return at<PortState>(ports)[i]; }
    DeviceState& device(uint32_t i) { return at<DeviceState>(devices)[i]; }
    ProcSlot& proc(uint32_t i) { return at<ProcSlot>(procs)[i]; }
    QpRec& qp(uint32_t index) { return at<QpRec>(qps)[index]; }
    MrRec& mr(uint32_t index) { return at<MrRec>(mrs)[index]; }
    CqRec& cq(uint32_t index) { return at<CqRec>(cqs)[index]; }
    RecvQueue& rq(uint32_t index) { return at<RecvQueue>(rqs)[index]; }
    ContextRec& context(uint32_t i) { return at<ContextRec>(contexts)[i]; }
    RecvQueue& srq(uint32_t index) { return at<RecvQueue>(srqs)[index]; }
};

// Memory for a segment, sparse and zeroed. All return -1 / nullptr with errno set.
int create_segment_file(const char* name);      // memfd of kSegmentBytes, close-on-exec
void* map_segment_file(int fd, bool read_only); // at any address
void* map_private_segment();                    // no file: virtual-time worlds and tests
void unmap_segment(void* memory);

// Lays a segment out over `memory` (kSegmentBytes of zeroes, sparse) for `image`. Called once, by the session's creator
// or the virtual-time world, before anybody else maps it.
void format_segment(void* memory, const FabricImage& image, const char* session, bool virtual_time);

} // namespace softhca
