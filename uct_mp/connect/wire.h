// Messages of the handshake, version 6: UD datagrams, little endian, packed. control_plane.h tells the protocol.
//
// Every message is a Header, a Proof, a body by its kind, and for some kinds lists. These two and Refuse
// keep their layout from version 6 on, so that any two versions can tell each other that they do not
// fit. Earlier versions have no Proof: their requests are answered with a refusal without one, and only
// such a refusal is read from them. A request is written in the highest version that both sides speak;
// the client knows the server's range from its address. The answers are in the version of the request.
//
// A later library may add three things without another version. Bits of Terms::features: both sides use those that both
// have told. Fields in bytes that are reserved today: a side that does not know them writes 0 there and ignores them.
// Parts of the tail of a request or reply: a side that does not know one skips it. Another layout needs another
// version.
//
// These keep old and foreign messages out:
//   cookie       of the receiver: only a sender that was given its address knows it
//   uid          one per interface and life of a process: a peer that has restarted is another peer
//   transaction  the client numbers its handshakes (1, 2, ..., wraps, one counter per interface). All messages of one
//                handshake carry its number. The server keeps the newest number that it has accepted from a peer. Once
//                that one is settled, it drops requests with the same number or an older one. Both sides drop what does
//                not carry the number of the handshake under way.
//   void_through (reply) the server's own newest number: requests that it sent before it became the server (both had
//                started at once) and that arrive late are void.
//   incarnation  counts the connections of a pair; the data path's messages of an older one are told apart by it
//   secret       each side of a connection has one, which it has told the other side alone. All messages of the
//                connection carry the receiver's. Everything above is known to each member of the job.
//   nonce        random, of a question: a side without such a connection has no secret to show, and shows this
//
// Sizes: 16 rails and 32 paths fit in 1024 bytes, if they are RoCE in 1536. With a smaller MTU on some rail the server
// plans fewer paths. A tail is left out where it does not fit.
//
// Kinds from 16 on belong to an established connection and one of its paths (uct_mp/PROTOCOL.md), or to the connection
// as a whole. More of them are free for later users of these queue pairs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "uct_mp/path/path.h"

namespace ucx_mp::connect::wire {

inline constexpr std::uint32_t kMagic = 0x5063706d; // "mpcP"
inline constexpr std::size_t kMaxMessage = 1536;

enum class Kind : std::uint8_t {
    request = 1,      // client: Request, rails x Rail
    reply = 2,        // server: Reply, rails x Rail, paths x Path
    confirm = 3,      // client: Confirm, paths x End
    ready = 4,        // server: Ready
    refuse = 5,       // either: Refuse
    ping = 16,        // either: Ping. `transaction` numbers the sender's questions
    pong = 17,        // Pong, to the ping's sender, with its `transaction`
    path_down = 18,   // PathNews: this life of the path is over on the sender's side, and what had arrived
    path_open = 19,   // PathNews: travels over that very path; mp_rc: make it anew with this end, mp_dc: does it work
    path_opened = 20, // PathNews: the answer
    path_probe =
        21, // PathNews: travels over that very path, which carries nothing any more: does anything come through?
    path_probed = 22,   // PathNews: the answer, over the same path, at once
    rails = 23,         // Rails, rails x Rail: the sender's ports as they are since the handshake
    rails_known = 24,   // RailsKnown: the answer
    keys = 25,          // Keys: an adapter of the receiver is there again; which keys has this memory now?
    keys_told = 26,     // KeysTold: the answer
    ended = 27,         // Ended: the sender ends the connection, or wants to
    ended_known = 28,   // EndedKnown: the answer, also for a connection that is not known (any more)
    service = 29,       // Service: how the receiver's messages shall come to the sender
    service_known = 30, // ServiceKnown: the answer
    ring = 31,          // Ring: memory that the receiver's messages may be written to; or not any more
    ring_known = 32,    // RingKnown: the answer
};

// Reasons why a handshake ends. Unknown values are taken as `resources`.
enum class Reason : std::uint8_t {
    version = 1,     // our versions are in the header
    transport = 2,   // mp_rc here, mp_dc there
    unreachable = 3, // no rail of ours is in a subnet of yours
    limits = 4,      // the owner accepts no more connections
    resources = 5,   // queue pairs could not be made or connected
    settled = 6,     // the receiver holds an older connection and keeps it (control_plane.h: Peers::renew)
    unknown = 7,     // we know nothing of this handshake (any more)
    terms = 8,       // your Terms and ours do not fit
    closing = 9,     // our interface closes
};

struct __attribute__((packed)) Header {
    std::uint32_t magic;         // kMagic
    std::uint8_t version;        // version of this message
    std::uint8_t kind;           // Kind
    std::uint16_t length;        // bytes of the whole message
    std::uint64_t cookie;        // the receiver's, from its interface address
    std::uint64_t sender_uid;    // not 0
    std::uint64_t sender_cookie; // answers must carry it
    std::uint32_t sender_q_key;  // of the sender's control queue pairs
    std::uint32_t destination;   // the receiver's name of the connection (its local_id); request: 0 (but R215)
    std::uint32_t source;        // the sender's name of the connection; refuse: may be 0
    std::uint32_t transaction;   // of the client, not 0
    std::uint8_t min_version;    // of the versions that the sender speaks
    std::uint8_t max_version;
    std::uint8_t transport; // connect::Transport
    std::uint8_t reserved;
};
static_assert(sizeof(Header) == 52);

// Shows the sender. Missing in a refusal of a message that was written in a version before kProofSince.
struct __attribute__((packed)) Proof {
    // Kinds from 16 on: the receiver's secret of this connection, or the nonce of the question
    // that this answers. reply, confirm, ready, refuse: the nonce of the message that they answer.
    // request: the receiver's secret of the connection that it follows; 0: it follows none.
    std::uint64_t secret;
    // request, reply, confirm: the sender's secret of the new connection, not 0. ping, rails, ended: random, not 0, the
    // same in all copies of one question. pong: that of the sender's own request; 0: it has none under way. Else 0.
    std::uint64_t nonce;
};
static_assert(sizeof(Proof) == 16);
inline constexpr std::uint8_t kProofSince = 6;

// Behind the lists of a request or a reply may stand a tail of such parts: u8 value[length] follows. Each may be
// missing, and what a reader does not know it skips.
enum class PartKind : std::uint8_t {
    host = 1,  // of the sender: characters, at most kMaxHostName
    rank = 2,  // in its job: u32
    ports = 3, // names of its rails, in their order: PortName each
};
struct __attribute__((packed)) Part {
    std::uint8_t kind;
    std::uint8_t length; // of the value in bytes
};
inline constexpr std::size_t kMaxTail = 96; // bytes, of all parts

// A name in PartKind::ports. u8 rest[length] follows.
struct __attribute__((packed)) PortName {
    std::uint8_t shared; // characters that it begins with as the name before it; of the first: 0
    std::uint8_t length; // of the rest; both together at most 64
};
static_assert(sizeof(PortName) == 2);

// A port of the sender; path::RemoteRail. Behind it, if it is RoCE: u8 gid[16].
struct __attribute__((packed)) Rail {
    std::uint64_t subnet_prefix; // RoCE: verbs::network_of()
    std::uint32_t rate;          // kB/s, not 0
    std::uint32_t dct_number;    // 24 bits; 0: none
    std::uint32_t control_qpn;   // 24 bits, not 0 or 1
    std::uint16_t lid;           // base, unicast, aligned to 2^lmc; 0: RoCE, or the port is not active
    std::uint8_t lmc;            // 0..7
    std::uint8_t mtu;            // ibv_mtu: 1..5
    std::uint8_t device;         // < verbs::kMaxDevices
    std::uint8_t roce;           // 1: a GID follows, lid and lmc are 0; else 0
    std::uint8_t life;           // of the device, counts how often it has been opened again; wraps
    std::uint8_t reserved;
    std::uint32_t probe_key; // for reading Terms::probe_address by way of this port: the rkey of its device; 0: none
};
static_assert(sizeof(Rail) == 32);
inline constexpr std::size_t kGid = 16;
inline constexpr double kRateUnit = 1e-6; // of Rail::rate, in bytes/ns

// One half of a path.
struct __attribute__((packed)) End {
    std::uint32_t qp_number; // 24 bits; of a path of DC, or one that is absent: 0
    std::uint32_t psn;       // 24 bits: first packet that the sender of this message will send
};
static_assert(sizeof(End) == 8);

struct __attribute__((packed)) Path {
    std::uint8_t client_rail;              // index in the list of the request; kOtherKind, kOnDemand
    std::uint8_t server_rail;              // index in the list of the reply
    std::uint8_t client_bits, server_bits; // below 2^LMC of these rails
    End end;                               // the server's
};
static_assert(sizeof(Path) == 12);
// The path is not of the kind that the transport in the header is named after. Only if both sides have told `kinds`.
inline constexpr std::uint8_t kOtherKind = 0x80;
// The path is absent until one of the sides wants it. Only if both have told `on_demand`.
inline constexpr std::uint8_t kOnDemand = 0x40;

// The sender's abilities, and its conditions for messages of the data path that it receives.
struct __attribute__((packed)) Terms {
    std::uint64_t features; // connect::feature; both sides use those that both have told
    std::uint64_t
        probe_address;     // of kProbeBytes bytes that the receiver may read at any time: Rail::probe_key; 0: none
    std::uint64_t dc_tag;  // random, of this connection; messages to the sender of this begin with it, whatever path
                           // brings them, if it has DC targets
    std::uint32_t window;  // sequenced messages of its own that it leaves unacknowledged at most; not 0
    std::uint32_t ring;    // of the receiver's that it can keep while an earlier one is missing; not 0
    std::uint32_t segment; // bytes of the largest message that it can receive, and sends, without what the data path
                           // adds (MessageHeader, FenceTrailer); not 0
    std::uint8_t kinds;    // feature `kinds`: path::Kinds of the sender. None, or without the feature: that of the
                           // transport in the header
    std::uint8_t reserved[3];
};
static_assert(sizeof(Terms) == 40);

struct __attribute__((packed)) Request {
    std::uint32_t incarnation; // of the client's latest connection with this peer, 0: there was none
    std::uint8_t rails;        // 1..verbs::kMaxRails, of Rail behind this body
    std::uint8_t num_paths;    // wish per pair of rails, 0: automatic; at most path::kMaxPathsPerPeer
    std::uint8_t split_reads;  // 1: reads shall have paths of their own; else 0
    std::uint8_t reserved;
    std::uint64_t dc_key; // mp_dc: access key of the client's targets
    Terms terms;          // the client's
};
static_assert(sizeof(Request) == 56);

struct __attribute__((packed)) Reply {
    std::uint32_t incarnation;  // agreed: the larger of both plus one
    std::uint32_t void_through; // the server's requests up to this number are void; 0: it has sent none
    std::uint8_t rails;         // 1..verbs::kMaxRails
    std::uint8_t paths;         // 1..path::kMaxPathsPerPeer
    std::uint8_t absent;        // < paths. So many paths at the end (with split_reads: of each half) lead over a port
                                // that is down. They have no ends yet, and their path bits are a guess (below 128)
    std::uint8_t split_reads;   // 1: the second half of them carries reads, the first the rest (their number is even)
    std::uint64_t dc_key;       // mp_dc: access key of the server's targets
    Terms terms;                // the server's
};
static_assert(sizeof(Reply) == 60);

struct __attribute__((packed)) Confirm {
    std::uint32_t incarnation; // as agreed
    std::uint8_t paths;        // as in the reply
    std::uint8_t reserved[3];
};
static_assert(sizeof(Confirm) == 8);

struct __attribute__((packed)) Ready {
    std::uint32_t incarnation; // as agreed
};
static_assert(sizeof(Ready) == 4);

struct __attribute__((packed)) Refuse {
    std::uint8_t reason; // Reason
    std::uint8_t of;     // Kind of the message that is refused
    std::uint8_t reserved[2];
};
static_assert(sizeof(Refuse) == 4);

struct __attribute__((packed)) PathNews {
    std::uint32_t incarnation; // of the connection
    std::uint8_t path;         // index in the agreed list
    std::uint8_t answer;       // path_down: 1: not to be answered
    std::uint8_t gone;         // path_down of a path of DC: 1: the sender's port is down; not to be answered either
    std::uint8_t
        home; // path_probe, path_probed: 1: by the route that the path has left (APM); answered the way it has come
    std::uint32_t life; // of the path: counts how often it has been made anew; DC: counts the sender's questions
    std::uint32_t psn;  // path_down: next packet that the sender's dead half would have executed, connect::kUnknownPsn
    std::uint32_t marker;    // path_down: newest fence whose marker has come over this path, 0: none
    std::uint32_t delivered; // path_down: sequence number of the next message to be delivered
    End end;                 // path_open, path_opened of a path of RC; else 0
};
static_assert(sizeof(PathNews) == 32);

// Repeated until the answer has come. Only properties that a subnet manager or a cable
// changes may differ from the handshake's list: LID, LMC, subnet, MTU, rate. With another
// life of the device also its key, and the numbers of queue pairs and targets, may differ.
struct __attribute__((packed)) Rails {
    std::uint32_t incarnation; // of the connection
    std::uint32_t number;      // of the list, counted by the sender; wraps. Older ones than the newest are void
    std::uint8_t rails;        // as in the handshake
    std::uint8_t reserved[3];
};
static_assert(sizeof(Rails) == 12);

struct __attribute__((packed)) RailsKnown {
    std::uint32_t incarnation;
    std::uint32_t number; // all lists up to this one need not be told
};
static_assert(sizeof(RailsKnown) == 8);

// Repeated until the answer has come.
struct __attribute__((packed)) Keys {
    std::uint32_t incarnation; // of the connection
    std::uint8_t reserved[4];
    std::uint64_t region; // verbs::RemoteKeys::id
};
static_assert(sizeof(Keys) == 16);

struct __attribute__((packed)) KeysTold {
    std::uint32_t incarnation;
    std::uint8_t found; // 0: that memory is not registered (any more), and the rest is 0
    std::uint8_t count; // of devices: 1..verbs::kMaxDevices
    std::uint8_t reserved[2];
    std::uint64_t region;
    std::uint64_t lives; // byte i: of device i
    std::uint32_t rkey[verbs::kMaxDevices];
};
static_assert(sizeof(KeysTold) == 56);

struct __attribute__((packed)) Ping {
    std::uint32_t incarnation;
    std::uint8_t current; // 1: the sender's present or coming connection; 0: one that ended without a successor
    std::uint8_t reserved[3];
};
static_assert(sizeof(Ping) == 8);

struct __attribute__((packed)) Pong {
    std::uint32_t incarnation; // of the ping
    std::uint8_t holds;        // 1: the sender has this connection, or remembers it if it has ended; 0: it does not
    std::uint8_t reserved[3];
};
static_assert(sizeof(Pong) == 8);

// Repeated until the answer has come, or for a while.
struct __attribute__((packed)) Ended {
    std::uint32_t incarnation; // of the connection
    std::uint32_t delivered;   // sequence number of the next message that the sender would have delivered: acknowledges
                               // all earlier ones
    std::uint8_t idle;         // 1: nothing is under way there, may the connection end? 0: it has, the interface closes
    std::uint8_t reserved;
    std::uint16_t number; // counted by its sender in this connection, wraps to 1; 0: not told
};
static_assert(sizeof(Ended) == 12);

struct __attribute__((packed)) EndedKnown {
    std::uint32_t incarnation;
    std::uint8_t agreed; // 1: the sender holds the connection no more; 0: it needs it (to an idle goodbye only)
    std::uint8_t reserved;
    std::uint16_t number; // number of the question that this answers
};
static_assert(sizeof(EndedKnown) == 8);

// Repeated until the answer has come.
struct __attribute__((packed)) Service {
    std::uint32_t incarnation; // of the connection
    std::uint32_t number;      // counted by the sender in this connection, from 1, wraps; older ones are void
    std::uint8_t service;      // adapt::Service: 0 shared, 2 rc
    std::uint8_t reserved[3];
};
static_assert(sizeof(Service) == 12);

struct __attribute__((packed)) ServiceKnown {
    std::uint32_t incarnation;
    std::uint32_t number; // number of the wish that this answers
    std::uint8_t taken;   // 1: so be it; 0: the sender has no more queue pairs of RC, and nothing changes
    std::uint8_t reserved[3];
};
static_assert(sizeof(ServiceKnown) == 12);

// Repeated until the answer has come. Format of the ring: uct_mp/link/ring.h.
struct __attribute__((packed)) Ring {
    std::uint32_t incarnation; // of the connection
    std::uint32_t number;      // counted by the sender in this connection, from 1, wraps; older ones are void
    std::uint32_t slots;       // 0: the ring before is taken back, and the rest is 0
    std::uint32_t entry;       // bytes of each
    std::uint64_t address;     // aligned to 64
    std::uint64_t key;         // of the entries' tails: a secret
    std::uint64_t lives;       // byte i: of the sender's device i, that its rkey belongs to
    std::uint8_t count;        // of devices: 1..verbs::kMaxDevices
    std::uint8_t reserved[7];
    std::uint32_t rkey[verbs::kMaxDevices];
};
static_assert(sizeof(Ring) == 80);

struct __attribute__((packed)) RingKnown {
    std::uint32_t incarnation;
    std::uint32_t number; // number of the offer that this answers
    std::uint32_t until;  // sequence number from which on the sender has written nothing there; 0 if it is `taken`
    std::uint8_t taken;   // 1: the sender of this uses the ring; 0: it does not, or not any more
    std::uint8_t reserved[3];
};
static_assert(sizeof(RingKnown) == 16);

// `gids`: how many of the rails are RoCE
[[nodiscard]] constexpr std::size_t request_size(std::size_t rails, std::size_t gids) {
    return sizeof(Header) + sizeof(Proof) + sizeof(Request) + rails * sizeof(Rail) + gids * kGid;
}
[[nodiscard]] constexpr std::size_t reply_size(std::size_t rails, std::size_t gids, std::size_t paths) {
    return sizeof(Header) + sizeof(Proof) + sizeof(Reply) + rails * sizeof(Rail) + gids * kGid + paths * sizeof(Path);
}
[[nodiscard]] constexpr std::size_t confirm_size(std::size_t paths) {
    return sizeof(Header) + sizeof(Proof) + sizeof(Confirm) + paths * sizeof(End);
}
static_assert(sizeof(Rails) <= sizeof(Request), "fits wherever a request does");
static_assert(request_size(verbs::kMaxRails, verbs::kMaxRails) + kMaxTail <= kMaxMessage);
static_assert(reply_size(verbs::kMaxRails, verbs::kMaxRails, path::kMaxPathsPerPeer) + kMaxTail <= kMaxMessage);
static_assert(confirm_size(path::kMaxPathsPerPeer) <= kMaxMessage);

} // namespace ucx_mp::connect::wire
