// The handshake that makes connections on demand: a reliable, idempotent request/response protocol over unreliable
// datagram queue pairs, one per rail.
//
//   client                                  server
//   request  (our rails, DCTs, wishes) ->             accept(): is the peer known?
//                                      <-  reply      plan_paths, make_end(): queue pairs in INIT, numbers and PSNs
//   make_end(), connect_end(): every path
//   confirm  (our numbers and PSNs)    ->             connect_end(): RTR, RTS; established()
//                                      <-  ready
//   established(): data may flow
//
// Only the client repeats: request until reply, confirm until ready. Its pauses grow up to a ceiling, with a jitter
// that follows from the uids. The server answers a repeated message with the same answer, by the way it has come. Every
// repetition uses the next pair of rails that can reach each other, then their other routes. So one dead rail does not
// prevent a connection.
// Commands to the adapter take long, and many peers may connect at once. So ends are made and connected path by path, a
// few in a row, while the other handshakes wait (turns.h). A copy that arrives meanwhile only changes where the answer
// goes. Both sides may start at the same time: the one with the smaller uid stays client. The other drops its own
// request and becomes the server; it has no queue pairs yet.
// Messages: wire.h. Nothing is believed: cookie, versions, sizes, ranges and the state are checked before anything
// changes. A message that fails is counted and dropped. A version that does not fit is answered with a refusal.
//
// The owner may assume about data:
//   server  Its queue pairs are in RTS before `ready` leaves, and the client sends nothing before it has `ready`. So
//           nothing arrives before established().
//   client  Its queue pairs are in RTS before `confirm` leaves. The server may send from its established() on, so data
//           may arrive while the state is still confirming: they are good and may be delivered at once. Receive buffers
//           must be posted when connect_end() returns. Sending has to wait for established() (the server's queue pairs
//           may be in INIT, which drops packets).
//
// An interface that starts anew has another uid and is another peer. A peer with the same uid that asks anew although
// we hold a connection with it has dropped its side: Peers::renew().
// A connection to oneself is not made here: the owner loops back.
// Beside the handshake: a question whether a peer lives (ping, pong), and goodbye (ended, ended_known).
//
// Threads: from the thread that progresses the interface or from the asynchronous one, so that a process that computes
// still answers; Services::lock() keeps them apart (taken here, except where said). Slow path throughout. The
// Owner's functions are called inside poll() or a timer, by either thread, with the lock held. They may call start()
// and forget() for any connection, except that make_end and connect_end must not forget theirs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "uct_mp/connect/address.h"
#include "uct_mp/connect/names.h"
#include "uct_mp/connect/terms.h"
#include "uct_mp/host/services.h"
#include "uct_mp/host/status.h"
#include "uct_mp/path/path.h"
#include "uct_mp/verbs/queue_pair.h"

namespace ucx_mp::connect {

enum class State : std::uint8_t {
    closed,      // nothing known of it at the peer
    requesting,  // client: request sent, no reply yet
    confirming,  // client: our ends are connected, `ready` is missing
    accepting,   // server: asked, replied when our ends are made; no confirm yet, or ends are being connected
    established, // data may flow in both directions
    failed,      // refused or timed out: says so once, then stays
};
[[nodiscard]] const char* name(State state);

// The result of a question whether a peer lives.
enum class Answer : std::uint8_t {
    alive,  // its process lives and holds the connection
    lost,   // its process lives and holds no such connection (any more)
    silent, // no answer: dead, stopped, or no path leads there
};

// Our list of rails on its way to a peer; the control plane's own.
struct Telling {
    std::uint32_t known = 0;   // number of the newest list of ours that the peer has
    std::uint32_t offered = 0; // ... that it will have as soon as the handshake under way is over
    unsigned sent = 0;         // how often the present list has been sent
    unsigned answers = 0;      // our answers to the peer's lists
    std::uint64_t nonce = 0;   // an answer may carry it
    Services::Timer timer = 0;
};

struct Question {                  // the control plane's own
    std::uint32_t number = 0;      // 0: none
    std::uint32_t incarnation = 0; // the connection that it is about
    std::uint64_t nonce = 0;       // the answer carries it
    bool by_owner = false;         // the owner hears the answer
    unsigned sent = 0;
    Nanos until = 0;
    Services::Timer timer = 0;
};

// Our goodbye on its way; the control plane's own.
struct Parting {
    bool closing = false; // the peer has been told that our interface closes
    bool known = false;   // ... and the peer has answered
    Goodbye goodbye;
    std::uint64_t nonce = 0; // an answer may carry it
    unsigned sent = 0;
    Services::Timer timer = 0;
    // Questions of either side, as long as the connection lasts. Each gets one answer, whatever
    // copies of it come: a side that has been told that the connection is needed goes on with it.
    std::uint16_t asked = 0;      // our newest one; 0: none yet
    std::uint16_t heard = 0;      // the newest of the peer's that has been answered
    bool heard_is_needed = false; // ... and the answer was that we need it
};

// One side's half of a path (DC: zeros).
struct LocalEnd {
    std::uint32_t qp_number = 0;
    std::uint32_t psn = 0; // number of the first packet that it sends
};

// A path as this side sees it, whichever side is the server: rails by their numbers, and path bits.
struct Route {
    std::uint8_t ours, our_bits, theirs, their_bits;
    bool operator==(const Route&) const = default;
};

// A connection as messages name it.
struct Bond {
    std::uint64_t own_secret = 0;  // messages to us carry it; 0: there was none
    std::uint64_t peer_secret = 0; // messages to the peer carry it
    std::uint32_t remote_id = 0, incarnation = 0;
};

// One peer. Part of the owner's channel; the control plane alone changes it.
struct Connection {
    State state = State::closed;
    bool server = false;
    InterfaceAddress peer;         // without control addresses as long as only its request is known
    std::uint32_t local_id = 0;    // the owner's name for the channel, see channel/wire.h; set by the owner
    std::uint32_t remote_id = 0;   // the peer's name for it
    std::uint32_t incarnation = 0; // counts connections with this peer, agreed: the larger of both plus one
    std::vector<path::RemoteRail> remote_rails;
    std::vector<path::PathSpec> paths; // agreed
    // The last so many (of each half, if reads have paths of their own) lead over ports that
    // were down. They have no ends yet, and get them later, if ever (recover/joining.h).
    std::uint8_t absent = 0;
    std::vector<LocalEnd> ends;        // ours, one per path
    std::vector<LocalEnd> remote_ends; // theirs
    std::uint64_t dc_key = 0;          // of the peer's DC targets
    // Told in the handshake, see wire::Terms
    std::uint64_t features = 0;      // those that both sides have
    std::uint64_t probe_address = 0; // the peer's; 0: it has none. Keys: RemoteRail::probe_key
    std::uint32_t peer_window = 0, peer_ring = 0, peer_segment = 0;
    path::Kinds peer_kinds = path::Kinds::none; // those of the peer
    Names names;                                // the peer's; for lines and tables only
    std::uint64_t dc_tag = 0;                   // messages to the peer begin with it, if wants_tag()
    std::uint64_t own_dc_tag = 0;               // messages to us begin with it, if we have DC targets
    // The control plane's own
    std::uint64_t own_secret = 0, peer_secret = 0; // of this connection, or of the handshake under way; see Bond
    Bond held; // the latest connection that was established: this one, or one before
    // The peer has answered that it holds neither that connection nor the one under
    // way: the nonce of its own request. 0: it has not answered so, or makes none.
    std::uint64_t awaited = 0;
    bool gives_way = false; // the handshake under way follows no connection, and its client is silent
    // Replaced by accept(), for a handshake that fails. Its client may be anybody, or surely the peer.
    struct {
        std::uint32_t incarnation = 0, seen = 0, rails_number = 0;
        bool by_peer = false;
        Nanos seen_at = 0;
        std::vector<path::RemoteRail> rails;
        Names names;
    } before;
    std::uint32_t transaction = 0; // of the handshake under way or the latest one, numbered by its client
    std::uint32_t seen = 0;        // newest transaction of the peer that is settled or void: not again
    Nanos seen_at = 0;             // since then
    std::uint64_t place = 0;       // place among the handshakes that wait for their turn; 0: it does not wait
    Services::Timer timer = 0;
    Nanos started = 0;           // start() or the request
    Nanos answered = 0;          // server: latest answer, and its way
    bool answered_again = false; // ... soon after another one, by another way
    unsigned answered_from = 0;
    verbs::Destination answered_to;
    unsigned attempts = 0, sent = 0; // of the message being repeated; of the handshake
    unsigned copies = 0;             // client: of the request, beside its repetitions
    Nanos asked_again = 0;           // client: latest copy, sent because the peer is ready for it
    Question question;
    Telling telling;
    Parting parting;
    std::uint32_t rails_number = 0; // number of the peer's newest list that we have; 0: the handshake's
    // The connection before has ended by agreement: until there is another one
    // both sides go on telling each other their addresses. Set by follow_parked().
    bool parked = false;

    // A path's addresses: our rail and its path bits, the peer's.
    [[nodiscard]] unsigned local_rail(std::size_t path) const {
        return server ? paths[path].server_rail : paths[path].client_rail;
    }
    [[nodiscard]] std::uint8_t local_bits(std::size_t path) const {
        return server ? paths[path].server_bits : paths[path].client_bits;
    }
    [[nodiscard]] unsigned remote_rail_index(std::size_t path) const {
        return server ? paths[path].client_rail : paths[path].server_rail;
    }
    [[nodiscard]] const path::RemoteRail& remote_rail(std::size_t path) const {
        return remote_rails[remote_rail_index(path)];
    }
    [[nodiscard]] std::uint16_t remote_lid(std::size_t path) const { // path bits included
        return std::uint16_t(remote_rail(path).lid + (server ? paths[path].client_bits : paths[path].server_bits));
    }

    [[nodiscard]] Route route(std::size_t path) const {
        const std::uint8_t remote_bits = server ? paths[path].client_bits : paths[path].server_bits;
        return {std::uint8_t(local_rail(path)), local_bits(path), std::uint8_t(remote_rail_index(path)), remote_bits};
    }

    // How many paths share our rail with this one, itself included, for the same purpose.
    [[nodiscard]] unsigned routes_of_rail(std::size_t path) const {
        unsigned count = 0;
        for (std::size_t i = 0; i < paths.size(); ++i)
            count += local_rail(i) == local_rail(path) && paths[i].kind == paths[path].kind &&
                     paths[i].reads == paths[path].reads && paths[i].writes == paths[path].writes;
        return count;
    }

    // Whether the peer wants its tag before every message, on whatever path: all paths share its buffers.
    [[nodiscard]] bool wants_tag() const { return path::has(peer_kinds, path::Kind::dc); }

    // A path with a queue pair at each end, from the beginning.
    [[nodiscard]] bool has_end(std::size_t path) const {
        return paths[path].kind == path::Kind::rc && !is_absent(path);
    }
    [[nodiscard]] bool is_absent(std::size_t path) const {
        const std::size_t part = path::is_split(paths) ? paths.size() / 2 : paths.size();
        return path % part >= part - absent;
    }

    // The address has come out of band. Before that, the first message has told the peer's name and place.
    void take_address(const InterfaceAddress& address) {
        if (peer.count) return;
        peer = address;
        if (state == State::closed && !held.own_secret) remote_rails.clear();
    }
    // Takes the place of `old`, a connection with the same peer: numbers that are void for it are void here.
    void follow(const Connection& old) {
        peer = old.peer;
        names = old.names;
        transaction = old.transaction;
        incarnation = old.incarnation;
        seen = old.seen;
        seen_at = old.seen_at;
        held = old.held;
        own_secret = held.own_secret;
        peer_secret = held.peer_secret;
        awaited = old.awaited;
        if (peer.count && !held.own_secret) return; // its address says its place
        remote_rails = old.remote_rails;
        rails_number = old.rails_number;
    }
    // The same for a connection that has ended by agreement.
    void follow_parked(const Connection& old) {
        follow(old);
        parked = true;
        remote_id = old.remote_id;
        telling.known = old.telling.known;
    }
};

inline constexpr std::uint32_t kUnknownPsn = 0xffffffff; // the side cannot tell

// Told by one side to the other about a path of an established connection; wire.h, PathNews.
struct PathNews {
    std::uint8_t path = 0;
    bool answer = false;
    bool gone = false;
    bool home = false;
    std::uint32_t life = 0;
    std::uint32_t psn = kUnknownPsn;
    std::uint32_t marker = 0;
    std::uint32_t delivered = 0;
    LocalEnd end;
};
enum class NewsKind : std::uint8_t { down, open, opened, probe, probed };

// -- The work of the owner of connections (the interface) for the handshake, by role

// Makes our halves of paths.
class Ends {
public:
    virtual ~Ends() = default;
    // Our half of a path; called for one of connection.paths after the other, beginning with 0, with other calls
    // between. connection.ends has one entry per path, with the packet number already chosen; RC: makes a queue pair
    // in INIT and sets its number (a path that is absent gets none). no_resource or busy: not now, the client will
    // repeat its message; other failures end the handshake. After a failure drop_ends() is called.
    virtual Status make_end(Connection& connection, std::size_t path) = 0;
    // Connects our half, when all are made and remote_ends, remote_rails, remote_id are
    // known (RC: RTR, RTS; DC: an address handle). Called and answered as make_end().
    virtual Status connect_end(Connection& connection, std::size_t path) = 0;
    // Takes back make_end(), of as many halves as were made (the handshake failed or starts anew).
    virtual void drop_ends(Connection& connection) = 0;
    // The present rkey of this rail's device, for reading at
    // ControlConfig::terms.probe_address by way of this rail; 0: none.
    virtual std::uint32_t probe_key(const verbs::Rail&) { return 0; }
};

// Knows the peers, and hears what becomes of their connections.
class Peers {
public:
    virtual ~Peers() = default;
    // A request of an unknown peer: a new Connection (local_id set), or nullptr to refuse (limits).
    virtual Connection* accept(std::uint64_t peer_uid) = 0;
    // For a request of a known peer, by its uid: the present connection, or one that is to take the place of a failed
    // one and may be made now. nullptr: unknown.
    virtual Connection* find(std::uint64_t peer_uid) = 0;
    // The present connection, or nullptr. Nothing is made.
    virtual Connection* find_present(std::uint64_t peer_uid) { return find(peer_uid); }
    // The same, if the connection with it was ended by agreement (say_idle) and there is no other one yet.
    virtual Connection* find_parked(std::uint64_t /*peer_uid*/) { return nullptr; }
    // The connection by our own local_id, as a message brought it; nullptr: none such.
    virtual Connection* find_local(std::uint32_t local_id) = 0;
    virtual void established(Connection& connection) = 0;
    // After drop_ends(). Once; `why` is one line for the log, without the peer's name.
    virtual void failed(Connection& connection, Status status, const char* why) = 0;
    // The peer had asked for a connection and went silent or gave it up. Called after
    // drop_ends(); the state is closed again. start() if there is something to send.
    virtual void abandoned(Connection&) {}
    // The answer to ask(). Once; not if the connection was forgotten meanwhile.
    virtual void answered(Connection&, Answer) {}
    // Whether a request of this peer is to be heard; false: not now, it will be repeated.
    virtual bool hears(std::uint64_t /*peer_uid*/) { return true; }
    // Whether it may be connected. False: not now. The owner start()s the connection
    // when it may be; by then it has all that the request has told of the peer.
    virtual bool admits(Connection&) { return true; }
    // The peer says goodbye: again and again, perhaps. If it is `idle`, say_known() answers; not again after that.
    virtual void ended(Connection&, const Goodbye&) {}
    // The answer to say_idle(). Once: lost (it holds the connection no more), or alive (it needs it).
    virtual void parted(Connection&, Answer) {}
    // For a connection in state confirming: data have come over
    // it, so that the owner uses it already (PROTOCOL.md, R38).
    virtual bool carries_data(Connection&) { return false; }
    // A connection that is established or failed here, or carries data: the peer asks for a new one. It has dropped its
    // side: it has shown the secret, or has been asked. (Never a late repetition: those are told apart.) Either a new
    // Connection takes the old one's place (closed, local_id set; follow() called; the old one is the owner's to bury),
    // or the same: drop_ends() follows. nullptr: refused.
    virtual Connection* renew(Connection&) { return nullptr; }
    // Why nothing can be exchanged with a peer of these terms, one line; empty: it can.
    virtual std::string misfit(const Terms&) { return {}; }
};

// Takes changes that the peer tells of paths, ports and memory.
class News {
public:
    virtual ~News() = default;
    // News of a path (its index is one of the connection's, incarnation and peer are
    // right). The control plane itself answers a `probe`, whatever the application does.
    virtual void path_news(Connection&, NewsKind, const PathNews&) {}
    // The peer's ports have changed: list `number`, as long as the one before.
    // Again and again until take_rails(), which the owner may call from anywhere.
    virtual void rails_told(Connection&, std::uint32_t /*number*/, const std::vector<path::RemoteRail>&) {}
    // The present keys of memory of ours; false: there is none of that name.
    virtual bool find_keys(std::uint64_t /*region*/, verbs::RemoteKeys&) { return false; }
    // The answer to ask_keys(). Not found: `told` has nothing but the id.
    virtual void keys_told(Connection&, bool /*found*/, const verbs::RemoteKeys& /*told*/) {}
    // The peer's wish, again and again until it is answered (ControlPlane::answer), and its answer to a wish of ours.
    virtual void wished(Connection&, const ServiceWish&) {}
    virtual void wish_answered(Connection&, std::uint32_t /*number*/, bool /*taken*/) {}
    // The same for rings. Not taken: nothing has been written there from message `until` on.
    virtual void ring_offered(Connection&, const RingOffer&) {}
    virtual void ring_answered(Connection&, std::uint32_t /*number*/, bool /*taken*/, std::uint32_t /*until*/) {}
};

struct Owner {
    Ends& ends;
    Peers& peers;
    News& news;
};

struct ControlConfig {
    Transport transport = Transport::rc;
    path::PathConfig paths;
    Nanos retry = 5'000'000; // first repetition; doubles up to max_retry
    Nanos max_retry = 200'000'000;
    Nanos timeout = 60'000'000'000;                     // request to established; then failed(timed_out)
    std::uint32_t receive_depth = 256, send_depth = 64; // per rail: storms
    std::uint64_t dc_key = 0;                           // of our DC targets
    path::TargetNumbers dct_numbers;                    // ours; empty: none
    Terms terms{.features = feature::known};            // ours; dc_tag: each connection has its own
    std::vector<verbs::Rail> rails; // their present properties; empty: those when the devices were opened
    std::uint8_t service_level = 0;
    // 0: uid, cookie, Q_Key and packet numbers are random (getrandom). Else they follow from it, so that simulations
    // are repeatable; every interface needs another one.
    std::uint64_t seed = 0;
    std::uint8_t min_version = kMinVersion, max_version = kMaxVersion; // for tests
    std::uint8_t reserved = 0; // for tests: in all reserved bytes of our messages, as a later version may write them
    std::vector<std::uint8_t> tail; // for tests: of our requests and replies (wire::Part), before the parts of `names`
    Names names;                    // ours; `ports`: those of `devices`
};

struct ControlCounters { // messages
    std::uint64_t sent = 0, received = 0;
    std::uint64_t repeated = 0; // sent: again, because no answer had come
    std::uint64_t unsent = 0;   // no buffer was free, or a rail's queue pair is broken; repeated later
    std::uint64_t dropped = 0;  // received: malformed, foreign, wrong cookie
    std::uint64_t late = 0;     // received: well-formed, but of a handshake that is settled (duplicates)
    std::uint64_t refused = 0;  // sent refusals
};

struct Plane; // plane.h, private to this folder

class ControlPlane {
public:
    // Opens one control queue pair per rail. Status and one line. `devices`, `services` and `owner` must outlive it,
    // and so must connections that have been started or accepted, unless they are forgotten before.
    [[nodiscard]] static Status open(const verbs::DeviceSet& devices, const ControlConfig& config, Services& services,
                                     const Owner& owner, std::unique_ptr<ControlPlane>& out, std::string& error);
    ~ControlPlane();
    ControlPlane(const ControlPlane&) = delete;

    [[nodiscard]] const InterfaceAddress& address() const;

    // A rail of `devices` has changed since this was opened (verbs::refresh). Handshakes and address() tell its new
    // properties from now on. Established peers are told by tell_rails(), which repeats until they know. All three with
    // the lock held.
    void renew(const verbs::Rail& rail);
    // Tells the peer our list if it does not know it. Also for a parked connection: without a
    // bound then, in growing pauses, since nothing else finds out whether that peer still lives.
    void tell_rails(Connection& connection);
    // Called after News::rails_told: the connection has this list from now on, and the peer hears that.
    void take_rails(Connection& connection, std::uint32_t number, const std::vector<path::RemoteRail>& rails);

    // A device has died and is there again (verbs/registry.h): control queue pairs of its rails are made anew. On
    // failure everything stays as it was. renew() for its rails follows, when the device of ControlPlane::open's
    // `devices` is this one. `dct_numbers` of all rails, as they are now. With the lock held, from progress.
    [[nodiscard]] Status reopen(const verbs::Device& device, const path::TargetNumbers& dct_numbers,
                                std::string& error);
    // Whether the peer has our present list of rails. With the lock held.
    [[nodiscard]] bool knows_rails(const Connection& connection) const;
    // Asks for the present keys of this memory of the peer's. Unreliable; News::keys_told answers. With the lock held.
    void ask_keys(const Connection& connection, std::uint64_t region, unsigned attempt);

    // Client side; state must be closed, peer and local_id set. The result comes through Owner, never from within.
    void start(Connection& connection);
    // Forgets the connection: cancels its timer, sends nothing, state is closed. The owner drops its ends. Its
    // memory may go afterwards. If it is kept and started again, it is a new connection with the next incarnation.
    void forget(Connection& connection);

    // The interface closes: from now on requests are refused. With the lock held.
    void close();
    // forget() for a handshake under way; the peer is told if we know its half. With the lock held.
    void give_up(Connection& connection);

    // Asks the peer of a connection that is or was established whether it lives, over every route in turn for `limit`
    // ns at most; Peers::answered() tells. A question under way is not asked again.
    void ask(Connection& connection, Nanos limit);

    // Says goodbye (goodbye.h) to the peer of an established connection; with the lock held. The peer of an idle
    // connection is asked whether it may end, again and again until it answers: Peers::parted(). There is no
    // bound: it may have agreed long ago, and a dead peer is found otherwise. Only if the peer has feature::park.
    void say_idle(Connection& connection, std::uint32_t delivered);
    // The interface closes: once, by another route with each attempt; Connection::parting.known when the answer
    // has come. False: there is no room now. Also to the peer of a connection that has ended by agreement.
    bool say_closing(Connection& connection, std::uint32_t delivered, unsigned attempt);
    // Answers the peer's idle goodbye `number`. Not agreed: the connection stays.
    void say_known(Connection& connection, std::uint16_t number, bool agreed);

    // Sends news of a path of an established connection. Unreliable: the caller repeats.
    // By any route; `attempt` counts, so that repetitions take others. Or over
    // this path (of the connection) and no other; false: there is no room now.
    void tell(const Connection& connection, NewsKind kind, const PathNews& news, unsigned attempt);
    bool tell_over_path(const Connection& connection, unsigned path, NewsKind kind, const PathNews& news);
    // ... or over another route of the same connection.
    bool tell_over_route(const Connection& connection, const path::PathSpec& route, NewsKind kind,
                         const PathNews& news);
    // Wishes a way for the peer's messages, and answers such a wish.
    // Unreliable: the side that wishes repeats, and each copy is answered.
    void wish(const Connection& connection, const ServiceWish& wish, unsigned attempt);
    void answer(const Connection& connection, std::uint32_t number, bool taken, unsigned attempt);
    // The same for a ring, or for its end.
    void offer_ring(const Connection& connection, const RingOffer& ring, unsigned attempt);
    void answer_ring(const Connection& connection, std::uint32_t number, bool taken, std::uint32_t until,
                     unsigned attempt);
    [[nodiscard]] std::uint32_t random_psn();
    [[nodiscard]] std::uint64_t random_tag(); // tells nothing of other tags
    // The port of a rail is active again.
    void port_active(unsigned rail);

    // Handles messages that have arrived, and goes on with handshakes for a while; returns the number
    // of messages and of steps. Cheap if there is nothing. Call often while busy(). `occupied`: the
    // caller has found other things to do since the call before, and shall have time for them.
    unsigned poll(bool occupied = false);
    // Whether a handshake of ours is under way. With the lock held.
    [[nodiscard]] bool busy() const;

    // For sleeping: one pollable descriptor per device that becomes readable when a
    // control message arrives after arm(). arm(): busy if a message is there already.
    [[nodiscard]] std::vector<int> event_fds() const;
    [[nodiscard]] Status arm();

    [[nodiscard]] const ControlCounters& counters() const;

private:
    explicit ControlPlane(std::unique_ptr<Plane> plane);
    std::unique_ptr<Plane> plane_;
};

} // namespace ucx_mp::connect
