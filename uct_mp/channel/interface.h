// One transport interface: the part of a UCT interface (one worker, one transport) that does not need UCX. It owns the
// queues and buffers, the channels to all peers, and the handshakes that open them.
//
// Threads: one at a time, the worker's; the data path takes no lock. With Config::background another thread calls
// serve(), which answers peers (connections, questions whether we live) while the application computes.
// Services::lock() keeps the two apart. Descriptors may be polled by any thread. All callbacks (AM handlers,
// completions, Events) run inside progress() or inside the call that caused them, never in another thread. A callback
// may call send operations, but must not destroy the interface.
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
struct Core;     // the inside: core.h
class Beside;    // recovery beside the program: beside.h
class Observer;
struct InterfaceStatistics;                                     // statistics.h
using MakeObserver = std::unique_ptr<Observer> (*)(Core& core); // observer.h

enum class DciPolicy : std::uint8_t {
    hash,  // the peer's number mod n; peers are numbered as they are met. (AQPS has (i + j) mod n of ranks: not known
           // here)
    least, // the initiator with the fewest outstanding requests, chosen when the channel has none under way
    quota, // as least, but the channel's last initiator is kept if it is idle (UCX's dcs_quota)
};

enum class AtomicsMode : std::uint8_t { target, adapter };

// When flushes (and RDMA behind fences) read back from the peer, see channel.h.
enum class ReadBack : std::uint8_t {
    several, // if the peer has several adapters
    always,  // also if it has one, for adapters that do not order the writes of different queue pairs
};

// How paths are given up and taken back (uct_mp/recover). Times are ns.
struct RecoveryConfig {
    // Recovery goes on while the program makes no call: the thread that calls serve() also calls Beside::recover().
    bool thread = false;
    bool enabled = true; // false: a failed path fails its channel, as in UCX's own transports, and ports that come up
                         // late are not used
    bool packet_numbers = true; // ibv_query_qp tells packet numbers: exact for programs that poll memory (PROTOCOL.md)
    std::uint32_t untested = 0; // bit i: device i had no active port, so it could not be tested whether it tells them
    Nanos ask_interval = 1'000'000, max_ask_interval = 200'000'000;   // first repetition, doubled up to the ceiling
    Nanos open_interval = 1'000'000, max_open_interval = 250'000'000; // the same for trying a path that is down
    Nanos max_needed_interval = 20'000'000;                           // the ceiling of both while no path is left
    Nanos hold_down = 100'000'000, max_hold_down = 60'000'000'000; // a path that fails this soon after its return waits
                                                                   // this long, then twice as long, ...
    // The watchdog checks a path if nothing completes there for this long although something is under way. It gives the
    // path up after about five times this, if the peer answers over others. 0: wait for the adapter's error.
    Nanos watch_interval = 10'000'000;
    Nanos packet_lifetime = 1'000'000; // DC: packets on their way when a port goes down are gone after this
    Nanos reopen_interval = 100'000'000, max_reopen_interval = 2'000'000'000; // between looks for an adapter that died
    Nanos partition_timeout = 30'000'000'000; // without any path, then the channel fails; 0: never
};

// RC by demand, between interfaces that both have it (uct_mp/adapt; PROTOCOL.md, "RC that comes and goes").
struct AdaptConfig {
    enum class Mode : std::uint8_t {
        off,    // paths keep the kinds that they were made with
        manual, // all paths are DC at first; serve_by() says which peers get RC
        on,     // all paths are DC at first; the peers with the most traffic get RC
        eager,  // as on, but the first peers, as many as max_rc allows, get RC at once
    } mode = Mode::off;
    adapt::Tuning tuning;
    bool measured = true; // costs are measured when a peer could first get RC; false: those of `tuning` count
    unsigned max_rc = 26; // peers with RC at a time, wished by either side; each has it on all its paths
    // Rings, of either transport
    bool rings_at_once = false;  // each peer that has sent something gets one; false: `tuning` decides, if it has
                                 // costs.ring
    bool rings_measured = false; // the costs of rings are measured if `tuning` does not have them (link/ring_costs.h)
    unsigned max_rings = 0;      // peers that have a ring here at a time (rings.h); 0: there are no rings
    // Slots, and bytes of each. AQPS has 16 slots of 4 KiB. 32 of half the size take as much memory, and need hardly
    // more acknowledgments than there are without rings: onetoall of perf/adaptive is 13 % faster so.
    link::RingShape ring{32, 2048};
    Nanos ring_pause = 10'000'000; // pause before the next ring, after the peer has left one early; doubled each time
    unsigned pool = 128; // queue pairs of RC that are kept, wanted or not; those not wanted for longest end first
    [[nodiscard]] bool enabled() const { return mode != Mode::off; }
};

struct Config : link::QueueSizes {
    connect::Transport transport = connect::Transport::rc; // the setting by which interfaces find each other
    connect::Names names;                                  // told to peers for their log lines; none: not told
    // Kinds that paths may have; none: the transport's kind. With both, a channel to another such interface has paths
    // of both kinds at once (path::PathConfig::rc_paths). No variable of the user sets it yet.
    path::Kinds kinds = path::Kinds::none;
    schedule::PolicyConfig policy;
    path::PathConfig paths;
    AdaptConfig adapt; // for mp_dc; sets `kinds` and `paths` itself
    verbs::Reliability reliability;
    AtomicsMode atomics = AtomicsMode::target;
    ReadBack read_back = ReadBack::several;
    bool apm = false; // RC: queue pairs have an alternate route (recover/migration.h), if their device can
    // Sizes
    unsigned segment = 8192 + 64;      // bytes of payload of the largest bcopy / zcopy message: 8 KiB with UCP's header
    unsigned inline_bytes = 256;       // asked for, adapters may grant less; the header of 16 bytes is included
    unsigned max_send_buffers = 16384; // per interface, of each size class
    unsigned poll_batch = 32;          // receives, and sends, per device and progress(); in steps of Adapter::kFetch
    unsigned quiet_interval = 4;       // progress() looks at adapters without traffic every so many calls; power of two
    unsigned silent_interval = 16;     // ... at adapters without traffic for long, and for failed sends
    unsigned control_interval = 64;    // progress() polls the control plane every so many calls
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
    // For tests of nodes with different releases: versions of the handshake that we speak, features that we tell.
    std::uint8_t min_version = connect::kMinVersion, max_version = connect::kMaxVersion;
    std::uint64_t features = ~std::uint64_t{0};
    unsigned max_unused =
        1024; // connections without an endpoint here. The oldest idle ones are ended, and new ones have to wait
    // Peers that are connected at once; 0: no limit. One more has to wait until another gives way (admission.h).
    unsigned max_connections = 0;
    adapt::VictimPolicy victims = adapt::VictimPolicy::leader; // which one
    // Queue pairs of ended connections that are kept for others, at most for each adapter (link/queue_pair_pool.h).
    // Fewer are kept with a limit of connections.
    unsigned queue_pair_pool = 16;
    Nanos unused_interval = 10'000'000'000; // a peer of an idle unused connection is checked so often
    Nanos check_interval = 1'000'000'000;   // a peer that acknowledges nothing for so long is asked whether it lives
    std::uint64_t seed = 0; // for uids, cookies and packet numbers; 0: random. Simulations repeat with a seed

    [[nodiscard]] const char* name() const { return connect::name(transport); }
    // Channels to peers of our transport have paths of RC that come and go (AdaptConfig).
    [[nodiscard]] bool rc_on_demand() const { return adapt.enabled() && transport == connect::Transport::dc; }
    // The kinds that a peer takes us for if it knows nothing but our transport.
    [[nodiscard]] path::Kinds named_kinds() const { return connect::kinds_of({}, transport); }
    [[nodiscard]] path::Kinds path_kinds() const {
        if (rc_on_demand()) return path::Kinds::both;
        return connect::kinds_of({.features = connect::feature::kinds, .kinds = kinds}, transport);
    }
};

// Calls from the interface to its user, the UCT layer. Slow path.
class Events {
public:
    virtual ~Events() = default;
    // A channel that had refused an operation (no_resource) may accept one again, after want_room().
    virtual void room(Channel& channel) = 0;
    // The channel has failed. Everything outstanding has been completed with an error, unless an adapter has held it
    // for more than a second. Called once per channel.
    virtual void peer_failed(Channel& channel, Status status) = 0;
    // This descriptor replaces one of control_fds(), which is closed. With the lock held.
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
// `marked`: each marks its entry and its exit for a thread that takes turns with the program (Beside::turn): 3
// to 5 instructions. Interface's own are not marked, and its other functions never are: their caller does so.
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
    // Drops outstanding operations without completion, so flush before. Says goodbye to the peers. Waits until they
    // have heard it and have got acknowledgments and replies, for 100 ms at most (Services::wait).
    ~Interface();
    Interface(const Interface&) = delete;

    // These four may be asked by any thread.
    [[nodiscard]] connect::InterfaceAddress address() const;
    [[nodiscard]] const Limits& limits() const;
    [[nodiscard]] double bandwidth() const; // bytes/ns: sum of the rails that were active when they were looked at last
    [[nodiscard]] bool reachable(const connect::InterfaceAddress& peer) const; // at this moment

    // The channel to a peer, which all endpoints to that peer share. The first operation connects it. nullptr, with one
    // line in `error`: the peer is unreachable. References are counted, and detach() drops one. After the last detach()
    // a channel stays for the peer's use, until the peer goes or too many are idle (Config::max_unused). A failed
    // channel is removed after the last detach().
    [[nodiscard]] Channel* attach(const connect::InterfaceAddress& peer, std::string& error);
    void detach(Channel& channel);

    static Status fence(Channel& channel);
    // Completes puts and atomics at the peer, and everything else locally. ok: nothing was outstanding. The puts are
    // then visible at the peer to all who learn of it, over whatever adapter.
    Status flush(Channel& channel, Completion* completion);
    Status flush_and_leave(Channel& channel, Completion* completion); // as progress_and_leave()
    Status flush_all(); // ok or in_progress (no completion, as UCX's iface_flush)
    void fence_all();

    // Tells what the next operations on this channel will be like (uct_mp/api/uct_mp.h).
    void set_hint(Channel& channel, schedule::TrafficHint hint);

    // ok: Events::room(channel) will be called when there may be room. busy: there is room now.
    Status want_room(Channel& channel);
    // While held, operations of this channel answer no_resource: the UCT layer has older ones queued.
    void hold(Channel& channel, bool held);

    // Gives back a receive buffer that a handler kept; `data` as the handler got it.
    void release(void* data);

    // If the channel is connected: asks the peer's adapter over every path that has nothing under way (requests under
    // way find out by themselves). If the peer is dead, Events::peer_failed follows.
    void check(Channel& channel);
    // Ends the channel. Everything outstanding completes with `status`, and new operations answer it. The peer's
    // operations fail, too. `quiet`: Events::peer_failed is not called.
    void invalidate(Channel& channel, Status status, bool quiet);

    // Ends the connection of a channel that is idle at both sides: queue pairs, retained messages, schedulers. The
    // channel stays with its endpoints, and the next operation of either side connects again. Operations that come
    // meanwhile wait (no_resource, want_room()). ok: there is no connection. busy: something is under way here, or our
    // writes are being read back; try later. in_progress: the peer is asked. If it refuses, nothing changes, and
    // another call asks again; statistics() shows the state. unsupported: never with this peer (it is ourselves, or
    // lacks feature::park).
    [[nodiscard]] Status park(Channel& channel);

    // Says how messages of this peer shall come. Mode::manual of AdaptConfig leaves that to the caller. ok: they come
    // so, or the peer is asked; it may refuse RC, see statistics(). Traffic goes on meanwhile. no_resource: as many
    // queue pairs of RC as are allowed here are in use. busy: not connected. unsupported: there are no places for RC.
    [[nodiscard]] Status serve_by(Channel& channel, adapt::Service service);

    // Tells the users of one channel (endpoints) apart. Operations of the first user, origin 0, carry his completion.
    // Those of others carry a tag in its place (`user` may be null). Call untag() unless the operation has answered
    // in_progress. Slow path.
    [[nodiscard]] Completion* tag(Completion* user, std::uint32_t origin);
    void untag(Completion* tag);
    // Ends one user's operations and flushes, with Status::canceled unless they happen to succeed. Other users' go on
    // (cancels.h). ok: nothing under way named this user's memory. in_progress: `completion` (may be null) will be
    // called, with Status::canceled. The user must start nothing more. `origin` becomes another number, since the
    // channel's next user may get the old one. Another call with the new number waits for the same end.
    [[nodiscard]] Status cancel(Channel& channel, std::uint32_t& origin, Completion* completion);
    // One user goes: completions of his flushes that are under way are called here, with Status::canceled.
    void end_flushes(const Channel& channel, std::uint32_t origin);
    // A channel for users that have cancelled: every operation fails with Status::canceled. Never attached or detached.
    [[nodiscard]] Channel& canceled_channel();

    // Polls, delivers, completes. Returns how many things happened.
    unsigned progress();
    // The same for a caller that has entered Beside::turn: it leaves that at its end.
    unsigned progress_and_leave();

    // Config::background: to be called, from any thread, whenever one of control_fds() is readable. Slow path.
    unsigned serve();
    [[nodiscard]] std::vector<int> control_fds() const;
    // The time at which progress() should be called even if nothing happens (a peer is to be asked). 0: no need.
    [[nodiscard]] Nanos next_watch() const;

    // Sleeping (UCX wake-up): one descriptor for everything. arm(): ok: sleep on it; busy: call progress() first.
    [[nodiscard]] int event_fd();
    Status arm();

    // Slots of rings that progress() has polled so far: with a message (hits), and without.
    struct Looks {
        std::uint64_t hits, misses;
    };
    [[nodiscard]] Looks ring_looks() const;

    // For mp_info, VFS and tests, see statistics.h.
    using Statistics = InterfaceStatistics;
    void statistics(Statistics& out) const;
    // The paths to one peer. Cheap enough to be called after every event of a simulation. Empty: not connected.
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
