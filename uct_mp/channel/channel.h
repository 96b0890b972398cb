// A channel: everything between this interface and one peer interface, over all paths (dissertation 4.1: virtual
// channel of subchannels). It owns order: the numbers of what is sent and delivered, and the copies of what has not
// been acknowledged. So it owns the store of what came early, fences, and the epochs that flushes wait for.
//
// Sending. A message gets the next sequence number and a retained buffer. It may be posted if fewer than `window`
// numbers are not acknowledged (the smaller of both sides' windows). Acknowledgments ride on messages of the other
// direction, or go alone when a quarter of the window is owed, or when the sender asks.
//
// Fences (PROTOCOL.md, section 6). A put's completion at one adapter says nothing about another adapter's writes. So
// the first message after a fence carries the set of paths that have carried puts since the fence before. A marker
// follows the puts on each of them. The receiver delivers the message when all markers are in. The message itself is
// the marker of the path that it takes. RDMA after a fence waits until the RDMA before has completed. It need not if
// all of it takes a single queue pair of RC: order is the hardware's then, and what it executed is known if it fails
// (R261).
//
// Completion is not visibility (visibility.h). An acknowledged write may still be on its way from the adapter to
// memory. A peer with several adapters could then be told of it by another adapter, and read what was there before. So:
// - a message behind a write that has completed carries markers as behind a fence (gate::unseen);
// - a flush ends, and RDMA behind a fence goes, when reads have come back over the paths of the writes before.
// Assumed: what comes behind an acknowledged write *by the same adapter* is seen behind it, whatever queue pair brings
// it. That may be a message, a read or a completion. PCIe orders posted writes of one device. UCX_MP_READ_BACK=always
// does without that.
//
// Threads: the interface's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "uct_mp/channel/interface.h"
#include "uct_mp/channel/queues.h"
#include "uct_mp/channel/rings.h"
#include "uct_mp/channel/wire.h"
#include "uct_mp/channel/work.h"
#include "uct_mp/connect/control_plane.h"
#include "uct_mp/path/phase.h"
#include "uct_mp/schedule/scheduler.h"

namespace ucx_mp::recover {
struct Recovery; // what recovery remembers of a channel: nobody else looks into it
}

namespace ucx_mp::channel {

struct Core;

using schedule::Direction;
using schedule::kNoPath;
using schedule::PathIndex;
using schedule::PathMask;

inline constexpr unsigned kEpochs = 16;

// One path of a channel (dissertation 4.1: subchannel).
struct Path {
    SendQueue* queue[2] = {nullptr, nullptr}; // by Direction; the same one unless reads have their own
    std::unique_ptr<SendQueue> own[2];        // RC: the queue pairs themselves
    DcAddress dc;                             // DC; RC: the tag
    path::Kind kind = path::Kind::rc;
    std::uint8_t rail = 0;           // ours
    std::uint8_t device = 0;         // ours: which lkey
    std::uint8_t remote_device = 0;  // theirs: which rkey
    std::uint32_t puts = 0;          // writes posted, wraps: markers carry it
    std::uint32_t open = 0;          // DC: posted and not reaped; the initiator is kept while not 0
    std::uint32_t stale = 0;         // the watchdog's looks in a row that found nothing completed
    std::uint64_t watched = 0;       // `requests` at its last look
    std::uint32_t last_marker = 0;   // newest fence whose marker has come over this path; 0: none of half a round
    std::uint32_t migrations = 0;    // APM, see below
    std::uint64_t bytes[2] = {0, 0}; // statistics, by Direction: what has been reaped
    std::uint64_t requests = 0;      // likewise
    bool unconnected = false;        // the queue pair could not be connected: its other end can't be reached
    // APM (recover/migration.h)
    path::PathSpec other; // the route that may be migrated to; `loaded`: the adapter knows it
    bool loaded = false;
    bool migrated = false;        // the connection's path and `other` have changed places
    bool told_to_migrate = false; // by us, and nothing has come through since
    bool load_due = false;        // has migrated: another route is loaded when this record (SendQueue::tail) is reaped
    std::uint32_t load_behind = 0;
    Nanos went_home = 0;       // last return to its own route
    unsigned strays = 0;       // times in a row that it has left it soon after
    unsigned home_probes = 0;  // of its own route, since it has left it or an answer has come
    unsigned home_answers = 0; // in a row
    bool home_silent = false;  // the latest has not been answered yet
    path::Phase phase = path::Phase::up;
};
static_assert(sizeof(Path) == 160, "indexed by every message: a multiple that is cheap");

// Reasons why an operation can't go straight away.
namespace gate {
inline constexpr std::uint32_t not_ready = 1;   // not connected
inline constexpr std::uint32_t held = 2;        // the face has older operations queued
inline constexpr std::uint32_t fence = 4;       // a fence has something to do
inline constexpr std::uint32_t failed = 8;      // the peer is gone
inline constexpr std::uint32_t recovering = 16; // a single path: what was sent goes again first (recover/)
inline constexpr std::uint32_t parts = 64;      // not closed: messages may be too large for the peer (parts.h)
inline constexpr std::uint32_t keys = 32; // the peer is asked for keys of an adapter that is back (recover/renewal.h)
inline constexpr std::uint32_t unseen =
    128; // messages only: writes have completed that another adapter's message could overtake
inline constexpr std::uint32_t ring = 512; // not closed: messages alone may go by a ring, and look for it (rings.h)
inline constexpr std::uint32_t rdma = ~(unseen | parts | ring); // those that concern puts and gets
inline constexpr std::uint32_t retiring = 256; // the peer has been asked whether the connection may end (endings.h)
inline constexpr std::uint32_t lasting = held; // those that have nothing to do with the connection
} // namespace gate

// -- The parts of a channel's state

// Writes that were lost with their path, and are not visible at the peer yet as far as is known. Recovery keeps it.
struct Unsettled {
    PathMask damaged = 0;        // writes on them are not settled: no fence may pass
    std::uint32_t puts_open = 0; // writes under way again
    // Reads that push repeated writes into the peer's memory (visibility.h): `count` of them are under way.
    Completion reading{[](Completion*) {}, 0, Status::ok};
    // Nothing may tell of writes: some are not settled, or what is acknowledged may not be visible yet.
    [[nodiscard]] bool may_not_tell() const { return damaged || puts_open || reading.count; }
};

// The part that can be exchanged or given back: the paths, and all that depends on them.
struct Wiring {
    // A single path, of RC and without tags: its queue pair. There is nothing to choose then, so no account is kept.
    SendQueue* only = nullptr;
    std::unique_ptr<Path[]> paths;
    std::unique_ptr<Buffer*[]> retained; // by sequence & window_mask
    std::uint8_t path_count = 0;         // those in use, and down; see `places`
    bool by_lane = false; // several, of RC and without tags: a message's queue pair is that of its path, nobody else's.
                          // Neither that nor `only`: with tags; the same holds on those of RC, others are initiators'
    std::uint8_t places = 0; // paths agreed: path_count, or more while a single one is there and others may join it
    bool has_dc = false;     // some path is of DC
    std::optional<schedule::Scheduler> scheduler;
    // Recovery's state: bits that all must respect, and its own (made when a path fails for the first time).
    Unsettled unsettled;
    std::unique_ptr<recover::Recovery, void (*)(recover::Recovery*)> recovery{nullptr, [](recover::Recovery*) {}};

    // Made by the handshake, on either side of Services::lock() and under it; Takeover::establish() takes them over.
    struct Prepared {
        std::unique_ptr<Path[]> paths;
        std::uint8_t count = 0;
        bool taken = false; // for good
    } prepared;

    // Requests posted there have their order there, also while the path is only suspect and not to be used otherwise.
    [[nodiscard]] bool stands(PathIndex path) const { return path != kNoPath && paths[path].phase == path::Phase::up; }
};

// Fences, sending.
struct Fences {
    PathMask put_paths = 0;    // have carried puts since the last fence
    PathMask fence_paths = 0;  // have carried puts before it: the next message waits for their markers
    PathMask marked_paths = 0; // of fence_paths: the marker is on its way (the others had no room yet)
    bool marker_due = false;   // the next message is a fenced one
    bool catch_up = false;     // puts before the fence had not been posted whole: their paths join fence_paths later
    bool drain_due = false;    // the next RDMA waits for rdma_open == 0 and for `atomics_until`
    bool until_told = false;   // ... or until a message has gone behind what is open: one of next_sequence then,
    std::uint32_t told_from = 0;
    // Fences have passed by the order of this path's queue pair: all open writes are there. See Epochs::sole_path().
    PathIndex passed = kNoPath;
    bool atomics_due = false;
    bool atomics_asked = false; // the peer: for their acknowledgment
    bool atomics_sent = false;  // since the last fence; their last number + 1:
    std::uint32_t atomics_end = 0;
    std::uint32_t atomics_until = 0;          // acked must reach this
    std::uint32_t fence_number = 0;           // 0: none yet; wraps, and leaves 0 out
    static constexpr unsigned kMost = 32;     // fences whose message is not acknowledged
    std::uint32_t fence_sequence[kMost] = {}; // + 1 of the fenced message; to bound fences in flight
    std::uint32_t asked = 0;                  // next_sequence + 1 when an acknowledgment was asked for, for that reason

    [[nodiscard]] std::uint32_t next() const { return fence_number + 1 ? fence_number + 1 : 1; }
    // Something is still to be done for one, reads aside.
    [[nodiscard]] bool pending() const { return marker_due || catch_up || drain_due || passed != kNoPath; }
};

// Writes that are acknowledged and perhaps not visible: visibility.h.
struct Visible {
    std::uint32_t unseen_gate = 0;     // gate::unseen if our paths lead to several adapters of the peer, else 0
    std::uint32_t read_backs_open = 0; // of rdma_open
    PathMask unread = 0;               // have carried puts since the last read back was posted there; see has_unread()
    std::uint32_t sole_puts = 0;       // the same of an only path, which has no masks: Path::puts then
    bool reads_back = false;           // flushes do: the peer has several adapters
    bool read_back_due = false;        // in the interface's list
    PathIndex put_lane = 0;            // of writes without a completion, while any is open
    struct {
        Work* first = nullptr;
        Work* last = nullptr;
    } read_backs; // not posted yet, or to be posted again; in the order of their epochs
};

// Works under way.
struct Moving {
    std::uint32_t rdma_open = 0; // RDMA operations not complete
    std::uint32_t gets_open = 0; // those that read
    PathMask open_paths = 0;     // several paths: have carried operations since none was open
    bool in_order = false;       // likewise: fences have passed by the order of a queue pair since then
    // Not all placed yet, in order; by Direction, since reads must not wait behind writes (5.2.2): they fill the other
    // direction of the links. Writes may be there to let reads go first (schedule/both_ways.h).
    struct {
        Work* first = nullptr;
        Work* last = nullptr;
    } pulled[2];
    std::uint32_t pulled_count = 0; // in both
    static constexpr std::uint32_t kMaxPulled = 64;
    // From `patience` on no write waits for reads. It grows where reads have come for those that waited, and begins
    // anew where none has: such a program computes now, perhaps, and should have left little behind.
    static constexpr std::uint32_t kFewWaiting = 4, kMaxWaiting = 48;
    std::uint32_t patience = kFewWaiting;
    bool impatient = false;      // a write has not waited because so many did
    bool reads_came = false;     // since the first of those that wait
    bool pull_due = false;       // in the interface's list: works that found queues full
    bool push_due = false;       // likewise: flushes
    Work* flushes[kEpochs] = {}; // waiting for this epoch and all before
    std::uint32_t atomic_tag = 0;
    // One more operation, where there are several paths.
    void begin() {
        if (rdma_open++ != 0) return;
        open_paths = 0;
        in_order = false;
    }
    std::vector<Work*> atomics;        // fetches waiting for a reply, few
    std::uint32_t atomics_pending = 0; // requests not acknowledged
    std::uint32_t parts_asked = 0; // next_sequence + 1 when an acknowledgment was asked for, to make room for parts, or
                                   // for want of buffers
};

// How a channel ends: endings.h.
struct Ending {
    bool failing = false;  // in the interface's list of failures
    bool quiet = false;    // failed with nothing outstanding: nobody need be told, unless he uses it
    bool whole = false;    // likewise: its flushes end well, whoever uses it since
    bool renewing = false; // likewise, and it begins anew as soon as nothing refers to what it was
    bool listed = false;   // in the list of those that end
    bool leaving = false;  // in the list of those whose peer has said goodbye
    bool error_told = false;
    bool pushed = false; // completions of what was posted before the goodbye have been asked for
    bool buried = false; // failed: a new channel takes its place. Under the lock, too
    bool parted = false; // the peer has agreed that the connection ends: so will this side. Under the lock, too
    std::uint32_t ending_since = 0, leaving_since = 0; // Rounds::looks
    connect::Goodbye goodbye;                          // the peer's
    Nanos left_at = 0;                                 // when it came
    Nanos asked_at = 0; // when the peer was asked whether the connection may end. Under the lock
    Nanos failed_at = 0;
};

// Its users.
struct Usage {
    unsigned endpoints = 0;  // that attach() has given it to
    unsigned cancels = 0;    // of which operations are being cancelled (cancels.h)
    bool waiting = false;    // in the interface's list of those who want room
    Nanos used_at = 0;       // about, while no endpoint uses it
    std::uint64_t parks = 0; // statistics
    // For Admission, if connections are limited
    Nanos connected_at = 0, spared_until = 0; // until then the peer is not asked whether the connection may end
    Nanos granted_at = 0;                     // when it got its place; 0: it is connected, or has none
    std::uint32_t moved = 0;                  // Admission::moved() when a victim was sought last
    unsigned refusals = 0;                    // of the peer, since the connection ended last
    unsigned nudges = 0;                      // times that it was to be parked and was not idle, since then
    unsigned stalls = 0;                      // ... in a row while nothing was acknowledged
    std::uint32_t acked = 0;                  // Channel::acked at the last of them
    Nanos nudged_until = 0;                   // until then not again, unless something is acknowledged
};

// When it was looked at.
struct Watch {
    bool open = false;         // something was not acknowledged when the watchdog looked last:
    std::uint32_t acked = 0;   // ... up to here
    Nanos asked_at = 0;        // its adapter, while no endpoint uses it
    std::uint32_t counted = 0; // messages by Usage::used_at, in both directions
};

struct Counts { // statistics
    std::uint64_t early = 0, duplicates = 0, acks_sent = 0, markers_sent = 0;
};

// A parked channel keeps these: the peer's identity, its users and their waiting operations. Everything else is taken
// away with the wiring, and begins as in a new channel (Endings::begin_anew). Beside this, Connection::follow() keeps
// what rules out late messages of the handshake, and gate::lasting is kept.
struct Lasting {
    std::uint64_t uid = 0; // of the peer
    struct DeadRoute {
        connect::Route route;
        Nanos since;
    };
    std::vector<DeadRoute> dead_routes; // when the connection was taken away
    void* user = nullptr;               // the face's
    Usage usage;
    schedule::TrafficHint hint = schedule::TrafficHint::none;
    bool self = false;   // our own interface
    bool parked = false; // there was a connection, which has been taken away, and there is no other one yet
};

class alignas(64) Channel : public Lasting {
public:
    // -- Sending, hot: one cache line with the beginning of the wiring, and the epochs' counters
    alignas(64) std::uint32_t gates = gate::not_ready;
    std::uint32_t next_sequence = 0; // of the next message
    std::uint32_t acked = 0;         // all before have been delivered
    std::uint32_t window_mask = 0;
    std::uint32_t window = 0;      // while no copies can be retained: 0
    std::uint8_t epoch = 0;        // that new operations belong to
    std::uint8_t oldest_epoch = 0; // not over
    std::uint64_t header = 0;      // of every message: protocol version and remote_id, as compose() writes them
    Core* core = nullptr;          // whose it is
    Wiring wiring;
    std::uint32_t epoch_open[kEpochs] = {};

    // -- Receiving, hot
    std::uint32_t expected = 0;  // next number to deliver
    std::uint32_t ack_after = 1; // deliveries after which an acknowledgment is owed
    std::uint32_t ack_sent = 0;  // the last one that we told
    std::uint32_t ack_seen = 0;  // the last one that a usual message has brought
    std::uint32_t live_id = 0;   // local_id while messages may be taken the usual way, else nobody's
    std::uint16_t early_count = 0;
    bool ack_due = false; // in the interface's list
    bool ack_now = false; // whatever the list's threshold says
    PathIndex heard = 0;  // path of the message that an acknowledgment is owed for: it takes the same, where both look
    std::uint32_t local_id = 0; // what messages to us carry
    std::uint32_t remote_id = 0;
    std::uint32_t ack_threshold = 1; // what ack_after usually is: well before the peer's window is full
    std::uint32_t ack_until = 0;     // the number up to which the peer waits for each acknowledgment, see ack_after
    std::unique_ptr<ReceiveBuffer*[]> early; // by sequence & window_mask; made when first needed

    Moving moving;
    Fences fences;
    Visible visible;
    struct Markers {              // fences, receiving
        std::uint32_t number = 0; // 0: none
        PathMask paths = 0;
    };
    Markers markers[Fences::kMost];
    std::uint32_t newest_marker = 0; // number, over whatever path
    struct {                         // the message whose parts are coming (parts.h)
        ReceiveBuffer* buffer = nullptr;
        std::uint32_t bytes = 0, capacity = 0;
    } joining;

    // -- Who
    connect::Connection connection; // under the lock, while it is not established
    std::uint64_t remote_lives = 0; // of the peer's devices, as in MemoryKeys: what keys must be of
    bool asked = false;             // for a connection; a peer that gives up its own request takes that back
    Status error = Status::ok;
    Watch watch;
    Ending ending;
    Counts counts;
    std::unique_ptr<RingPair> rings; // made when one side wants one

    explicit Channel(Core* of = nullptr, const Lasting& lasting = {}) : Lasting(lasting), core(of) {}
    Channel(const Channel&) = delete;
    ~Channel(); // nobody is told any more that a message is its: Adapter::heard

    // After a change of early_count, gate::not_ready or gate::failed.
    void set_live() {
        live_id =
            early_count || (gates & (gate::not_ready | gate::failed)) ? ~local_id : local_id; // ~: of another slot
    }
    // Something is to be read back before a flush ends; `always`: or would be, if the peer had several adapters.
    [[nodiscard]] bool has_unread(bool always = false) {
        if (!visible.reads_back && !always) return false;
        if (wiring.only && std::exchange(visible.sole_puts, wiring.paths[0].puts) != wiring.paths[0].puts)
            visible.unread = 1;
        return visible.unread != 0;
    }
    [[nodiscard]] std::uint32_t in_flight() const { return next_sequence - acked; }
    [[nodiscard]] bool window_open() const { return in_flight() < window; }
    [[nodiscard]] bool epochs_empty() const { return epoch == oldest_epoch && epoch_open[epoch] == 0; }
};

} // namespace ucx_mp::channel
