// One transport interface: everything of one UCT interface (one worker, one transport) that does not need UCX. It owns
// the queues and buffers, the channels to all peers, and the handshakes that open them.
//
// Threads: one at a time, the worker's, and no lock on the data path. With Config::background serve() is another
// thread's: it answers peers (connections, questions whether we live) while the application computes; Services::lock()
// keeps the two apart. Only descriptors may be polled elsewhere. Progress: all callbacks (AM handlers, completions,
// Events) run inside progress() or inside the call that caused them, never from another thread. A callback may call
// send operations; it must not destroy the interface.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "uct_mp/adapt/map.h"
#include "uct_mp/adapt/victims.h"
#include "uct_mp/channel/types.h"
#include "uct_mp/channel/wire.h"
#include "uct_mp/connect/control_plane.h"
#include "uct_mp/host/services.h"
#include "uct_mp/link/sizes.h"
#include "uct_mp/path/path.h"
#include "uct_mp/schedule/policy_config.h"
#include "uct_mp/verbs/device.h"
#include "uct_mp/verbs/key_table.h"
#include "uct_mp/verbs/queue_pair.h"

namespace ucx_mp::channel {

class Channel;   // one peer interface: channel.h
struct PathLook; // statistics.h
struct Core;     // what it has inside: core.h
class Beside;    // recovery beside the program: beside.h
class Observer;
using MakeObserver = std::unique_ptr<Observer> (*)(Core& core); // observer.h

enum class DciPolicy : std::uint8_t {
    hash,  // (i + j) mod n, i = us, j = the peer (AQPS, section "DC-sendrecv")
    least, // the one with the fewest outstanding requests, whenever the channel's present one is idle
    quota, // keeps its own while it is busy, gives it back to the pool when idle (UCX's dcs_quota)
};

enum class AtomicsMode : std::uint8_t { target, adapter };

// When flushes (and RDMA behind fences) read back from the peer, see channel.h.
enum class ReadBack : std::uint8_t {
    several, // where it has several adapters
    always,  // also where it has one: for adapters that do not order what several of their queue pairs bring
};

// How paths are given up and taken back (uct_mp/recover). Times are ns.
struct RecoveryConfig {
    // It goes on while the program makes no call: whoever calls serve() calls Beside::recover(), too (beside.h).
    bool thread = false;
    bool enabled = true; // false: a failed path takes its channel with it, as in UCX's own transports; ports that
                         // come up late are not used
    bool packet_numbers = true; // ibv_query_qp tells the truth: exact for programs that poll memory (PROTOCOL.md)
    std::uint32_t untested =
        0; // bit i: not that of device i, as far as is known: it had no active port to test it with
    Nanos ask_interval = 1'000'000, max_ask_interval = 200'000'000;   // first repetition, doubled up to the ceiling
    Nanos open_interval = 1'000'000, max_open_interval = 250'000'000; // likewise, of trying a path that is down
    Nanos max_needed_interval = 20'000'000;                           // the ceiling of both while no path is left
    Nanos hold_down = 100'000'000, max_hold_down = 60'000'000'000; // a path that fails this soon after its return waits
                                                                   // this long, then twice as long, ...
    // A path is looked at if nothing completes there for this long although something is under way. It is given up
    // after about five times this, if the peer answers over others and not over this one. 0: wait for the adapter.
    Nanos watch_interval = 10'000'000;
    Nanos packet_lifetime = 1'000'000; // DC: packets on their way when a port goes down are gone after this
    Nanos reopen_interval = 100'000'000, max_reopen_interval = 2'000'000'000; // of looking for an adapter that has died
    Nanos partition_timeout = 30'000'000'000;                                 // without any path; 0: for ever
};

// RC by demand, between interfaces that both have it (uct_mp/adapt; PROTOCOL.md, "RC that comes and goes").
struct AdaptConfig {
    enum class Mode : std::uint8_t {
        off,    // paths are of the kinds that they have been made of
        manual, // all paths are DC at first; serve_by() says who gets RC
        on,     // all paths are DC at first; the heaviest sources get RC
        eager,  // likewise, and the first peers, as many as max_rc allows, get RC at once
    } mode = Mode::off;
    adapt::Tuning tuning;
    bool measured = true; // the costs are, when the first source could get RC; else those of `tuning`
    unsigned max_rc = 26; // peers that RC is wanted for at a time, for either direction; each on all its paths
    // Rings, of either transport
    bool rings_at_once = false;  // each peer that has sent something gets one; else as `tuning` says, if costs.ring is
                                 // known
    bool rings_measured = false; // if it is not they are measured (link/ring_costs.h)
    unsigned max_rings = 0;      // peers that have a ring here at a time (rings.h); 0: there are no rings
    // Ring memory of a peer. AQPS has 16 of 4 KiB. With 32 the acknowledgments that free slots are hardly more than
    // without rings, and as much memory: onetoall of perf/adaptive is 13 % faster with that.
    link::RingShape ring{32, 2048};
    Nanos ring_pause = 10'000'000; // until the next one, after the peer has left one early; doubled each time
    unsigned pool = 128; // queue pairs of RC that are kept, wanted or not; those not wanted for longest go first
    [[nodiscard]] bool enabled() const { return mode != Mode::off; }
};

struct Config : link::QueueSizes {
    connect::Transport transport = connect::Transport::rc; // the setting by which interfaces find each other
    connect::Names names;                                  // what peers call us in lines; none: they are not told
    // The kinds that its paths may have; none: that of the transport. With both, a channel to another such interface
    // has paths of both at once (path::PathConfig::rc_paths). No variable of the user's sets it yet.
    path::Kinds kinds = path::Kinds::none;
    schedule::PolicyConfig policy;
    path::PathConfig paths;
    AdaptConfig adapt; // of a transport with DC targets; sets `kinds` and `paths` for itself
    verbs::Reliability reliability;
    AtomicsMode atomics = AtomicsMode::target;
    ReadBack read_back = ReadBack::several;
    bool apm = false; // RC: queue pairs have an alternate route (recover/migration.h), if their device can
    // Sizes
    unsigned segment = 8192 + 64;      // bytes of payload of the largest bcopy / zcopy message: 8 KiB with UCP's header
    unsigned inline_bytes = 256;       // wished; header of 16 included
    unsigned max_send_buffers = 16384; // per interface, of each size class
    unsigned poll_batch = 32;          // receives, and sends, per device and progress(); in steps of Adapter::kFetch
    unsigned quiet_interval = 4;       // progress() looks at adapters without traffic every so many calls; power of two
    unsigned silent_interval = 16;     // ... at those that have had none for long, and for failed sends
    unsigned control_interval = 64;    // progress() looks for handshakes of others every so many calls
    unsigned event_interval = 16;      // ... and for port and device events every so many of those
    unsigned dci_count = 8;            // DC: initiators per rail
    unsigned dct_count = 1;            // DC: targets per rail; a peer is told one of them, by its number
    DciPolicy dci_policy = DciPolicy::hash;
    unsigned headroom = 0;  // bytes before the payload of a received message that its keeper may overwrite
    void* keeper = nullptr; // stored in the 8 bytes before that headroom when a handler keeps a message (UCT's
                            // release descriptor)
    RecoveryConfig recovery;
    bool background = false; // serve() is called when control_fds() are readable; else progress() does its work
    Nanos connect_timeout = 60'000'000'000;
    // For tests of nodes with different releases: versions of the handshake that are spoken, features that are told.
    std::uint8_t min_version = connect::kMinVersion, max_version = connect::kMaxVersion;
    std::uint64_t features = ~std::uint64_t{0};
    unsigned max_unused =
        1024; // connections without an endpoint here. The oldest idle ones are ended, new ones have to wait
    // Peers that are connected at once; 0: no limit. A further one waits until one of these gives way (admission.h).
    unsigned max_connections = 0;
    adapt::VictimPolicy victims = adapt::VictimPolicy::leader; // which one
    // Queue pairs that connections have given back, kept for others; of each adapter, at most (link/queue_pair_pool.h).
    // Fewer with a limit of connections.
    unsigned queue_pair_pool = 16;
    Nanos unused_interval = 10'000'000'000; // an idle one's adapter is asked so often whether the peer is there
    Nanos check_interval = 1'000'000'000;   // a peer that acknowledges nothing for so long is asked whether it lives
    std::uint64_t seed = 0; // of names, cookies and packet numbers; 0: random. Simulations repeat with a seed
};

// News of the interface for its face. Slow path.
class Events {
public:
    virtual ~Events() = default;
    // A channel that had refused an operation (no_resource) and asked with want_room() may accept again.
    virtual void room(Channel& channel) = 0;
    // The peer is gone: everything outstanding has been completed with `status`. Called once per channel.
    virtual void peer_failed(Channel& channel, Status status) = 0;
    // One of control_fds() has been replaced by this one (and closed). With the lock held.
    virtual void new_control_fd(int) {}
    // So have some of Beside::fault_fds() and hearsay_fds().
    virtual void new_fault_fds() {}
    // Something is to be recovered: Beside goes on with it if the program makes no call. Told again and again.
    virtual void recover_soon() {}
};

struct Limits {                           // bytes; what one operation may carry
    unsigned max_am_short, max_put_short; // max_am_short: header of 8 included
    unsigned max_bcopy;                   // am, put, get
    unsigned max_am_zcopy, max_am_zcopy_header;
    unsigned max_iov;
    std::size_t max_rdma; // zcopy
};

// Operations. no_resource: nothing has happened, see want_room(). ok: done with the caller's memory; in_progress:
// `completion` will be called (it may be null). Lengths must be within limits() (checked by assertion only). They
// belong to the channel, whichever interface they are called on.
//
// `marked`: each marks its entry and its exit for a thread that takes turns with the program (Beside::turn): some
// five instructions. Interface's own are not marked, and its other functions never are: their caller does so.
template <bool marked> struct Calls {
    static Status am_short(Channel& channel, std::uint8_t id, std::uint64_t header, const void* payload,
                           unsigned length);
    static Status am_short_iov(Channel& channel, std::uint8_t id, const Iov* iov, std::size_t count);
    static ssize_t am_bcopy(Channel& channel, std::uint8_t id, PackFn pack, void* arg); // bytes or Status
    static Status am_zcopy(Channel& channel, std::uint8_t id, const void* header, unsigned header_length,
                           const Iov* iov, std::size_t count, Completion* completion);
    static Status put_short(Channel& channel, const void* buffer, unsigned length, std::uint64_t remote,
                            const verbs::RemoteKeys& keys);
    static ssize_t put_bcopy(Channel& channel, PackFn pack, void* arg, std::uint64_t remote,
                             const verbs::RemoteKeys& keys);
    static Status put_zcopy(Channel& channel, const Iov* iov, std::size_t count, std::uint64_t remote,
                            const verbs::RemoteKeys& keys, Completion* completion);
    static Status get_bcopy(Channel& channel, UnpackFn unpack, void* arg, std::size_t length, std::uint64_t remote,
                            const verbs::RemoteKeys& keys, Completion* completion);
    static Status get_zcopy(Channel& channel, const Iov* iov, std::size_t count, std::uint64_t remote,
                            const verbs::RemoteKeys& keys, Completion* completion);
    // width: 4 or 8. Post: without result.
    static Status atomic_post(Channel& channel, AtomicOp op, unsigned width, std::uint64_t value, std::uint64_t remote,
                              const verbs::RemoteKeys& keys);
    static Status atomic_fetch(Channel& channel, AtomicOp op, unsigned width, std::uint64_t value,
                               std::uint64_t compare, void* result, std::uint64_t remote, const verbs::RemoteKeys& keys,
                               Completion* completion);
};

class Interface : public Calls<false> {
public:
    // `devices`, `services`, `events`, `keys`, `handlers` (kAmIds entries) must outlive it. On failure `error` is one
    // line.
    [[nodiscard]] static Status open(const verbs::DeviceSet& devices, const Config& config, Services& services,
                                     Events& events, const verbs::KeyTable& keys, const AmHandler* handlers,
                                     MakeObserver make_observer, std::unique_ptr<Interface>& out, std::string& error);
    // Outstanding operations are dropped without completion; flush before. Says goodbye to the peers, and waits until
    // they know and have what they are owed (acknowledgments, replies), 100 ms at most (Services::wait).
    ~Interface();
    Interface(const Interface&) = delete;

    [[nodiscard]] const connect::InterfaceAddress& address() const;
    [[nodiscard]] const Limits& limits() const;
    [[nodiscard]] double bandwidth() const; // bytes/ns: sum of the rails that were active when they were looked at last
    [[nodiscard]] bool reachable(const connect::InterfaceAddress& peer) const; // at this moment

    // The channel to a peer, new or not; several endpoints to one peer share it. Nothing is connected before the first
    // operation. nullptr and a line if it is unreachable. References are counted, and detach() drops one. The channel
    // and its queue pairs stay, since the peer may use them: until the peer has gone, or until too many are idle
    // (Config::max_unused). A channel that has failed is given back after the last detach().
    [[nodiscard]] Channel* attach(const connect::InterfaceAddress& peer, std::string& error);
    void detach(Channel& channel);

    static Status fence(Channel& channel);
    // Remote completion of puts and atomics, local completion of the rest. ok: nothing was outstanding. Puts are
    // visible then to whoever is told of it by whatever way, over whatever adapter of the peer.
    Status flush(Channel& channel, Completion* completion);
    Status flush_all(); // ok or in_progress (no completion, as UCX's iface_flush)
    void fence_all();

    // The caller's knowledge of the next operations on this channel (uct_mp/api/uct_mp.h).
    void set_hint(Channel& channel, schedule::TrafficHint hint);

    // The next successful progress that may have made room calls Events::room(channel). busy: there is room now.
    Status want_room(Channel& channel);
    // While set, operations of this channel answer no_resource (the face has older ones queued).
    void hold(Channel& channel, bool held);

    // Gives back a receive buffer that a handler kept; `data` as the handler got it.
    void release(void* data);

    // Asks the peer's adapter over every path that has nothing under way (what is under way asks by itself), if it is
    // connected; never connects. A dead peer is told by Events::peer_failed.
    void check(Channel& channel);
    // Ends the channel: everything outstanding completes with `status`, and so does every operation from now on. The
    // peer's operations fail, too. `quiet`: Events::peer_failed is not called.
    void invalidate(Channel& channel, Status status, bool quiet);

    // Gives back the connection of a channel that is idle at both sides: queue pairs, copies, schedulers. The channel
    // stays, with its endpoints, and the next operation of either side connects again. Nobody is told, and nothing that
    // came meanwhile is lost: it waits (no_resource, want_room()). Only the mechanism: when to do so is the caller's to
    // know. ok: there is no connection. busy: something is under way here, or the peer's writes are being read back;
    // try later. in_progress: the peer is asked. It may say no, which leaves everything as it was; it is asked again by
    // another call. Its state: statistics(). unsupported: never with this peer (it is ourselves, or lacks
    // feature::park).
    [[nodiscard]] Status park(Channel& channel);

    // How messages of this peer shall come: the mechanism; who gets what is AdaptConfig's to decide. ok: it is so, or
    // the peer is asked; it may refuse RC, see statistics(). Nothing stops meanwhile. no_resource: as many queue pairs
    // of RC as are allowed here are in use. busy: not connected. unsupported: there are no places for RC.
    [[nodiscard]] Status serve_by(Channel& channel, adapt::Service service);

    // Tells several users of one channel (the face's endpoints) apart. Operations of the first one, origin 0, are given
    // as they are. Those of others have a tag in place of the completion, which may be null. untag() it unless the
    // operation has answered in_progress. Slow path.
    [[nodiscard]] Completion* tag(Completion* user, std::uint32_t origin);
    void untag(Completion* tag);
    // Ends one user's operations, with Status::canceled unless they happen to succeed, and his flushes; the others' go
    // on (cancels.h). ok: nothing was under way that names memory of his. in_progress: `completion` (may be null) will
    // be called, with Status::canceled. He starts nothing more, and has another number from then on (the channel's next
    // user may get his); who asks again with that joins in.
    [[nodiscard]] Status cancel(Channel& channel, std::uint32_t& origin, Completion* completion);
    // One user goes: completions of his flushes that are under way are called here, with Status::canceled.
    void end_flushes(const Channel& channel, std::uint32_t origin);
    // Where he turns to then: every operation fails with Status::canceled. Never attached or detached.
    [[nodiscard]] Channel& canceled_channel();

    // Polls, delivers, completes. Number of things that happened.
    unsigned progress();

    // Config::background: to be called, from any thread, whenever one of control_fds() is readable. Slow path.
    unsigned serve();
    [[nodiscard]] std::vector<int> control_fds() const;
    // When progress() should be called again although nothing happens (a peer is to be asked); 0: no need.
    [[nodiscard]] Nanos next_watch() const;

    // Sleeping (UCX wake-up): one descriptor for all. arm(): busy if something happened meanwhile; progress() then.
    [[nodiscard]] int event_fd();
    Status arm();

    // Slots of rings that progress() has looked at so far: with a message, and in vain.
    struct Looks {
        std::uint64_t hits, misses;
    };
    [[nodiscard]] Looks ring_looks() const;

    // A look from outside, for mp_info, VFS and tests. See statistics.h.
    struct Statistics;
    void statistics(Statistics& out) const;
    // The same of one peer's paths, cheap enough to be called after every event of a simulation. Empty: not connected.
    void look_at_paths(const Channel& channel, std::vector<PathLook>& out) const;

    [[nodiscard]] Core& core() { return *core_; } // for tests

private:
    struct Close {
        void operator()(Core* core) const;
    };
    explicit Interface(std::unique_ptr<Core, Close> core);
    std::unique_ptr<Core, Close> core_;
};

} // namespace ucx_mp::channel
