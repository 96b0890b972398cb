// A channel: everything between this interface and one peer interface, over all paths (dissertation 4.1: virtual
// channel of subchannels). It keeps the order: sequence numbers of both directions, copies of messages that have not
// been acknowledged, messages that came early, fences, and the epochs that flushes wait for.
//
// Sending. A message gets the next sequence number and a retained buffer. It may be posted if fewer than `window`
// numbers are not acknowledged (the smaller of both sides' windows). Acknowledgments ride on messages of the other
// direction, or go alone when a quarter of the window is owed, or when the sender asks.
//
// Fences (PROTOCOL.md, section 6). A put's completion at one adapter says nothing about another adapter's writes. So
// the first message after a fence names the paths that have carried puts since the fence before. A marker follows the
// puts on each of these paths, and the receiver delivers the message when all markers are in. The message itself is the
// marker of the path that it takes. RDMA after a fence waits until the RDMA before has completed. It need not wait if
// both use the same queue pair of RC: the hardware keeps the order then, and tells what was executed if it fails
// (R261).
//
// Completion is not visibility (visibility.h). An acknowledged write may still be on its way from the adapter to
// memory. If the peer has several adapters, a message over another one could overtake it: the program would then read
// old data. So:
// - a message behind a completed write waits for markers as behind a fence (gate::unseen);
// - a flush ends, and RDMA behind a fence goes, when reads have come back over the paths of the writes before.
// Assumed: a message, read or completion that the *same adapter* brings behind an acknowledged write is seen behind it,
// whatever its queue pair. PCIe orders the posted writes of one device. UCX_MP_READ_BACK=always does not assume it.
//
// Threads: the interface's.
#pragma once

#include <algorithm>
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
struct Recovery; // recovery's state of a channel; private to recover/
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
    std::unique_ptr<SendQueue> own[2];        // RC: owns the queue pairs
    DcAddress dc;                             // DC: the target; RC uses only the tag
    path::Kind kind = path::Kind::rc;
    std::uint8_t rail = 0;           // ours
    std::uint8_t device = 0;         // ours: index of the lkey
    std::uint8_t remote_device = 0;  // the peer's: index of the rkey
    std::uint32_t puts = 0;          // writes posted, wraps: markers carry it
    std::uint32_t open = 0;          // DC: requests posted and not reaped; the initiator is kept while not 0
    std::uint32_t stale = 0;         // the watchdog's looks in a row that found nothing completed
    std::uint64_t watched = 0;       // `requests` at the watchdog's last look
    std::uint32_t last_marker = 0;   // newest fence whose marker has come over this path; 0: none, or long ago
    std::uint32_t migrations = 0;    // APM, see below
    std::uint64_t bytes[2] = {0, 0}; // reaped, by Direction
    std::uint64_t requests = 0;      // reaped
    bool unconnected = false;        // our end could not be made or connected: the path counts as failed
    // APM (recover/migration.h)
    path::PathSpec other;          // the alternate route
    bool loaded = false;           // the adapter knows `other`
    bool migrated = false;         // the connection's path and `other` have changed places
    bool told_to_migrate = false;  // by us, and nothing has come through since
    bool load_due = false;         // it has migrated: the next alternate is loaded when ...
    std::uint32_t load_behind = 0; // ... this record (SendQueue::tail) has been reaped
    Nanos went_home = 0;           // last return to its own route
    unsigned strays = 0;           // times in a row that it has left its own route soon after returning
    unsigned home_probes = 0;      // probes of its own route since it left it, or since the last answer
    unsigned home_answers = 0;     // answers in a row
    bool home_silent = false;      // the latest probe has not been answered yet
    path::Phase phase = path::Phase::up;
};
static_assert(sizeof(Path) == 160, "indexed by every message: a multiple that is cheap");

// Bits of Channel::gates: reasons why an operation does not take the usual way at once.
namespace gate {
inline constexpr std::uint32_t not_ready = 1;   // not connected
inline constexpr std::uint32_t held = 2;        // the UCT layer (uct_mp/ucx) has older operations queued
inline constexpr std::uint32_t fence = 4;       // a fence is not settled yet
inline constexpr std::uint32_t failed = 8;      // the channel has failed or ended
inline constexpr std::uint32_t recovering = 16; // a single path: lost messages go again first (recover/)
inline constexpr std::uint32_t parts = 64;      // blocks nothing: messages may have to be sent in parts (parts.h)
inline constexpr std::uint32_t keys = 32; // the peer is asked for keys of an adapter that is back (recover/renewal.h)
inline constexpr std::uint32_t unseen =
    128; // messages only: writes have completed that another adapter's message could overtake
inline constexpr std::uint32_t ring = 512;                      // blocks nothing: messages may go by a ring (rings.h)
inline constexpr std::uint32_t rdma = ~(unseen | parts | ring); // mask of the gates that concern puts and gets
inline constexpr std::uint32_t retiring = 256; // the peer has been asked whether the connection may end (endings.h)
inline constexpr std::uint32_t lasting = held; // mask of the gates that outlive the connection
} // namespace gate

// -- The parts of a channel's state

// Writes that were lost with their path, and may not be visible at the peer yet. Recovery maintains it.
struct Unsettled {
    PathMask damaged = 0;        // writes on them are not settled: no fence may pass
    std::uint32_t puts_open = 0; // repeated writes that have not completed
    // Reads that push repeated writes into the peer's memory (visibility.h): `count` of them are under way.
    Completion reading{[](Completion*) {}, 0, Status::ok};
    // True: the peer must not be told that writes are done. Some are not settled, or may not be visible yet.
    [[nodiscard]] bool may_not_tell() const { return damaged || puts_open || reading.count; }
};

// The paths, and all that depends on them. It is exchanged with the connection.
struct Wiring {
    // The queue pair of a single path of RC without tags, else null. There is no choice then, so no account is kept.
    SendQueue* only = nullptr;
    std::unique_ptr<Path[]> paths;
    std::unique_ptr<Buffer*[]> retained; // by sequence & window_mask
    std::uint8_t path_count = 0;         // paths in use or down; see `places`
    // Several paths, all of RC and without tags: each has a queue pair of this channel's own. If neither this nor
    // `only` is set, messages carry tags, and paths of DC use shared initiators.
    bool by_lane = false;
    std::uint8_t places = 0; // paths agreed: path_count, or more while there is a single path that others may join
    bool has_dc = false;     // some path is of DC
    std::optional<schedule::Scheduler> scheduler;
    // Recovery's state: the part that all must respect, and its own (made when a path fails for the first time).
    Unsettled unsettled;
    std::unique_ptr<recover::Recovery, void (*)(recover::Recovery*)> recovery{nullptr, [](recover::Recovery*) {}};

    // Paths that the handshake has made, by either thread, with the lock held. Takeover::establish() takes them over.
    struct Prepared {
        std::unique_ptr<Path[]> paths;
        std::uint8_t count = 0;
        bool taken = false; // stays true until the channel ends
    } prepared;

    // The path exists and is connected, so requests posted there keep their order. It may be suspect, though.
    [[nodiscard]] bool stands(PathIndex path) const { return path != kNoPath && paths[path].phase == path::Phase::up; }
};

// Fences, on the sending side.
struct Fences {
    PathMask put_paths = 0;      // have carried puts since the last fence
    PathMask fence_paths = 0;    // have carried puts before it: the peer holds the fenced message for their markers
    PathMask marked_paths = 0;   // of fence_paths: the marker is on its way (the others had no room yet)
    bool marker_due = false;     // the next message is a fenced one
    bool catch_up = false;       // puts before the fence had not been posted whole: their paths join fence_paths later
    bool drain_due = false;      // the next RDMA waits for rdma_open == 0, and for `atomics_until` if atomics_due
    bool until_told = false;     // ... or, over a single queue pair, for a message posted behind what is open:
    std::uint32_t told_from = 0; // ... one with this sequence number or a later one
    // Fences were passed by the order of this path's queue pair: all open writes are there. See Epochs::sole_path().
    PathIndex passed = kNoPath;
    bool atomics_due = false;                 // the next RDMA waits for acknowledgments of atomics
    bool atomics_asked = false;               // the peer was asked for these acknowledgments
    bool atomics_sent = false;                // some were sent since the last fence
    std::uint32_t atomics_end = 0;            // sequence number of the last of them, + 1
    std::uint32_t atomics_until = 0;          // atomics_due: Channel::acked must reach this
    std::uint32_t fence_number = 0;           // 0: none yet; wraps, and leaves 0 out
    static constexpr unsigned kMost = 32;     // fenced messages that may be unacknowledged
    std::uint32_t fence_sequence[kMost] = {}; // by fence number: sequence number of the fenced message, + 1
    std::uint32_t asked = 0;                  // next_sequence + 1 when the limit kMost last asked for an acknowledgment

    [[nodiscard]] std::uint32_t next() const { return fence_number + 1 ? fence_number + 1 : 1; }
    // A fence is not settled yet. Open reads are not looked at here.
    [[nodiscard]] bool pending() const { return marker_due || catch_up || drain_due || passed != kNoPath; }
};

// Writes that are acknowledged and perhaps not visible: visibility.h.
struct Visible {
    std::uint32_t unseen_gate = 0;     // gate::unseen if our paths lead to several adapters of the peer, else 0
    std::uint32_t read_backs_open = 0; // included in rdma_open
    PathMask unread = 0;               // paths with puts since the last read back was posted there; see has_unread()
    std::uint32_t sole_puts = 0;       // Wiring::only has no masks: its Path::puts when has_unread() last looked
    bool reads_back = false;           // flushes read back: the peer has several adapters
    bool read_back_due = false;        // in Lists::read_backs
    PathIndex put_lane = 0;            // the path of copied writes, while any RDMA is open
    struct {
        Work* first = nullptr;
        Work* last = nullptr;
    } read_backs; // not posted yet, or to be posted again; in the order of their epochs
};

// Works under way.
struct Moving {
    std::uint32_t rdma_open = 0; // RDMA operations not complete
    std::uint32_t gets_open = 0; // of these: reads, and atomics that an adapter executes
    PathMask open_paths = 0;     // paths that have carried RDMA since rdma_open was 0; not kept for a single path
    bool in_order = false;       // since then, fences were passed by the order of a queue pair
    // Works that are not fully posted, in order. Each Direction has a list: reads fill the other direction of the links
    // and must not wait behind writes (5.2.2). Writes may wait here to let reads go first (schedule/both_ways.h).
    struct {
        Work* first = nullptr;
        Work* last = nullptr;
    } pulled[2];
    std::uint32_t pulled_count = 0; // in both lists
    static constexpr std::uint32_t kMaxPulled = 64;
    // At most so many writes wait for reads. The limit grows when reads came while writes waited. It falls back to
    // kFewWaiting when none came: the program may be computing, and should have few writes unposted.
    static constexpr std::uint32_t kFewWaiting = 4, kMaxWaiting = 48;
    std::uint32_t patience = kFewWaiting;
    bool impatient = false;       // a write did not wait because `patience` writes waited already
    bool reads_came = false;      // reads were posted since the first write began to wait
    bool pull_due = false;        // in Lists::pulls
    bool push_due = false;        // in Lists::pushes
    Work* flushes[kEpochs] = {};  // lists, by epoch: each flush waits for this epoch and all before
    std::uint32_t atomic_tag = 0; // of the last atomic
    // Counts one more RDMA operation. Wiring::only needs rdma_open alone.
    void begin() {
        if (rdma_open++ != 0) return;
        open_paths = 0;
        in_order = false;
    }
    std::vector<Work*> atomics;        // fetches waiting for a reply, few
    std::uint32_t atomics_pending = 0; // atomic requests not acknowledged
    // next_sequence + 1 when an acknowledgment was last asked for, because parts need room or buffers are short.
    std::uint32_t parts_asked = 0;
};

// How a channel ends: endings.h.
struct Ending {
    bool failing = false;    // in Lists::failed or told_later
    bool quiet = false;      // ended with nothing outstanding: the user is told only if he uses the channel
    bool whole = false;      // ended with nothing outstanding: its flushes succeed, even if it has been used since
    bool renewing = false;   // ended in order to be parked: it begins anew as soon as nothing refers to the old state
    bool listed = false;     // in Directory::ending
    bool leaving = false;    // in Endings::leavers: the peer has said goodbye
    bool error_told = false; // Events::peer_failed was called, or must not be
    bool pushed = false;     // a timer wakes progress when the time for completions after the goodbye is over
    bool buried = false;     // failed: a new channel takes its place. Under the lock, too
    bool parted = false;     // both sides have agreed that the connection ends. Under the lock, too
    std::uint32_t ending_since = 0, leaving_since = 0; // Rounds::looks then
    connect::Goodbye goodbye;                          // the peer's
    Nanos left_at = 0;                                 // when the goodbye came
    Nanos asked_at = 0; // when the peer was asked whether the connection may end. Under the lock
    Nanos failed_at = 0;
};

// The users of a channel, and its use.
struct Usage {
    unsigned endpoints = 0;  // references: attach() counts up, detach() down
    unsigned cancels = 0;    // endpoints whose operations are being cancelled (cancels.h)
    bool waiting = false;    // in Lists::waiting
    Nanos used_at = 0;       // last use, roughly; kept while no endpoint uses it
    std::uint64_t parks = 0; // statistics
    // For Admission, if connections are limited
    Nanos connected_at = 0, spared_until = 0; // until then the peer is not asked whether the connection may end
    Nanos granted_at = 0;                     // when it got its place; 0: it is connected, or has none
    std::uint32_t moved = 0;                  // Admission::moved() when a victim was sought last
    unsigned refusals = 0;                    // by the peer, since the channel was parked last
    unsigned nudges = 0;                      // times since then that it was to be parked and was not idle
    unsigned stalls = 0;                      // ... in a row while nothing was acknowledged
    std::uint32_t acked = 0;                  // Channel::acked at the last nudge
    Nanos nudged_until = 0;                   // no nudge before, unless something is acknowledged
};

// Kept by Observer::watch_peers(): its last look at the channel.
struct Watch {
    bool open = false;         // something was not acknowledged
    std::uint32_t acked = 0;   // Channel::acked then
    Nanos asked_at = 0;        // when the peer's adapter was asked, while no endpoint uses the channel
    std::uint32_t counted = 0; // messages of both directions at Usage::used_at
};

struct Counts { // statistics
    std::uint64_t early = 0, duplicates = 0, acks_sent = 0, markers_sent = 0;
};

// The part of a channel that outlives parking: the peer's identity, and the users. Everything else begins as in a new
// channel (Endings::begin_anew). Beside this, Connection::follow_parked() keeps what rules out late messages of the
// handshake, and the gates of gate::lasting stay.
struct Lasting {
    std::uint64_t uid = 0; // of the peer
    struct DeadRoute {
        connect::Route route;
        Nanos since;
    };
    std::vector<DeadRoute> dead_routes; // when the connection was taken away
    void* user = nullptr;               // belongs to the UCT layer
    Usage usage;
    schedule::TrafficHint hint = schedule::TrafficHint::none;
    bool self = false;   // the peer is our own interface
    bool parked = false; // its connection was taken away, and there is no new one yet
};

class alignas(64) Channel : public Lasting {
public:
    // -- Sending, hot: one cache line with the beginning of the wiring, then the epochs' counters
    alignas(64) std::uint32_t gates = gate::not_ready;
    std::uint32_t next_sequence = 0; // number of the next message
    std::uint32_t acked = 0;         // all messages before this number have been delivered
    std::uint32_t window_mask = 0;
    std::uint32_t window = 0;      // 0 until the channel is connected
    std::uint8_t epoch = 0;        // new operations belong to it
    std::uint8_t oldest_epoch = 0; // the oldest one that is not over
    std::uint64_t header = 0;      // of every message: protocol version and remote_id, as compose() writes them
    Core* core = nullptr;          // its interface
    Wiring wiring;
    std::uint32_t epoch_open[kEpochs] = {};

    // -- Receiving, hot
    std::uint32_t expected = 0;  // next number to deliver
    std::uint32_t ack_after = 1; // deliveries after which an acknowledgment is owed
    std::uint32_t ack_sent = 0;  // the last acknowledgment that we sent
    std::uint32_t ack_seen = 0;  // the last one that a usual message has brought
    std::uint32_t live_id = 0;   // local_id while messages may be taken the usual way, else an id that none carries
    std::uint16_t early_count = 0;
    bool ack_due = false; // in Lists::acks
    bool ack_now = false; // send it even below ack_after
    PathIndex heard = 0;  // path of the latest message; the acknowledgment takes it too, since both sides poll there
    std::uint32_t local_id = 0; // messages to us carry it
    std::uint32_t remote_id = 0;
    std::uint32_t ack_threshold = 1;         // usual value of ack_after: well before the peer's window is full
    std::uint32_t ack_until = 0;             // up to this number the peer waits for each acknowledgment, see ack_after
    std::unique_ptr<ReceiveBuffer*[]> early; // by sequence & window_mask; made when first needed

    Moving moving;
    Fences fences;
    Visible visible;
    struct Markers {              // that have come for one fence
        std::uint32_t number = 0; // of the fence; 0: none
        PathMask paths = 0;
    };
    Markers markers[Fences::kMost];
    std::uint32_t newest_marker = 0; // the newest fence that any path has brought a marker for
    struct {                         // the message whose parts are coming (parts.h)
        ReceiveBuffer* buffer = nullptr;
        std::uint32_t bytes = 0, capacity = 0;
    } joining;

    // -- Connection and end
    connect::Connection connection; // under the lock, while it is not established
    std::uint64_t remote_lives = 0; // lives of the peer's devices, as in MemoryKeys: keys must belong to these
    bool asked = false;             // we want a connection; reset when the peer gives up its own request
    Status error = Status::ok;
    Watch watch;
    Ending ending;
    Counts counts;
    std::unique_ptr<RingPair> rings; // made when first needed

    explicit Channel(Core* of = nullptr, const Lasting& lasting = {}) : Lasting(lasting), core(of) {}
    Channel(const Channel&) = delete;
    ~Channel(); // makes adapters forget it (Adapter::heard_channel)

    // To be called after a change of early_count, gate::not_ready or gate::failed.
    void set_live() {
        live_id =
            early_count || (gates & (gate::not_ready | gate::failed)) ? ~local_id : local_id; // ~: no message has it
    }
    // The peer stops sending when a whole window is not acknowledged, so acknowledgments go well before that. For a
    // channel without a message ring.
    void set_ack_threshold() { ack_threshold = std::max(1u, window / 4); }
    void drop_joined(); // the parts of a message that will not be complete
    // Something is to be read back before a flush ends. `always`: also if the peer has one adapter only.
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
