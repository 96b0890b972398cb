// Statistics of an interface, for mp_info, VFS and tests.
//
// Interface::statistics() makes a copy, in the interface's thread. Rates are bytes/ns, times ns.
#pragma once

#include <string>
#include <vector>

#include "uct_mp/channel/interface.h"
#include "uct_mp/path/kind.h"
#include "uct_mp/path/phase.h"
#include "uct_mp/schedule/path_state.h"

namespace ucx_mp::channel {

struct PathStatistics {
    std::string local_rail;
    std::uint16_t local_lid = 0, remote_lid = 0; // path bits included; RoCE: 0
    std::string from, to;                        // LIDs or IP addresses, for people
    std::uint32_t qp_number = 0;                 // DC: of the initiator in use
    path::Kind kind = path::Kind::rc;
    schedule::PathState state = schedule::PathState::up;
    double weight = 0, write_rate = 0, read_rate = 0;                              // bytes/ns
    double latency = 0;                                                            // ns
    bool write_rate_known = false, read_rate_known = false, latency_known = false; // measured: else a first guess
    std::uint64_t written = 0, read = 0, requests = 0;                             // bytes, bytes, count
    std::uint64_t in_flight = 0;                                                   // bytes
    const char* carries =
        "all"; // "writes", "reads": its route has a path for each; "spare": nothing while others are up
    std::uint32_t failures = 0, returns = 0, migrations = 0;
    unsigned posted = 0;         // requests not yet reaped on its queue pair
    const char* recovery = "up"; // path::Phase
    std::uint32_t life = 0;
    std::string remote_port;     // for people: the peer's name for it, if it has told one
    const char* cause = nullptr; // of its latest failure, while it is down or on its way back; else null
    Nanos down_for = 0;          // likewise
};

// A path at this moment, for plots over time. Times are of Services::now(); 0: never.
struct PathLook {
    path::Phase phase = path::Phase::up;
    Nanos failed_at = 0, came_up_at = 0; // the last time
    std::uint32_t failures = 0;
    std::uint64_t writing = 0, reading = 0; // bytes of RDMA that have not completed
    std::uint64_t unacknowledged = 0;       // bytes of messages that the peer has not acknowledged
};

struct RecoveryStatistics { // operations that were sent again because their path failed
    bool seen = false;      // recovery has state of this channel
    std::uint64_t messages_again = 0, puts_again = 0, gets_again = 0, bytes_again = 0;
    std::uint64_t puts_found_done = 0; // lost without a completion, but executed
    // Under way
    std::uint64_t damaged = 0; // paths, a bit mask
    std::uint32_t puts_open = 0;
    std::size_t holds = 0, markers = 0;
    bool resend = false, listed = false;
};

// The message rings of an interface that peers write into (channel/rings.h).
struct RingStatistics {
    unsigned rings = 0;                     // that are polled
    std::uint64_t bytes = 0;                // their memory, and memory that is kept since late writes may come
    unsigned prepared = 0;                  // pieces of registered memory that no ring uses yet
    std::uint64_t hits = 0, misses = 0;     // looks at a slot that found a message, or none
    std::uint64_t foreign = 0, garbled = 0; // entries written without the key; with the key, but not a message
    adapt::Costs costs;                     // of rings, as far as they are known
};
// The same for a channel.
struct RingPairStatistics {
    const char* in = "none";              // ours: offered, open, leaving, ending
    bool wanted = false;                  // we want the peer to have one
    const char* why = "none";             // the reason for `wanted` (observer.h, Reason)
    bool out = false;                     // we may write into the peer's
    std::uint64_t messages_out = 0;       // ever
    std::uint64_t by_lane = 0;            // those of messages_out that took the fast path
    std::uint64_t messages_in = 0;        // into the present ring
    std::uint32_t switches = 0, left = 0; // rings that the peer has taken; RingPair::left
    std::uint64_t bytes = 0;
};

struct ServiceStatistics {         // how messages go (adapt::Service)
    const char* ours = "shared";   // the peer's messages to us, as we wish
    const char* theirs = "shared"; // our messages to the peer, as it wishes and we agree
    bool answered = true;          // the peer has answered our wish
    bool refused = false;          // ... and has no more queue pairs of RC
    const char* why = "none";      // the reason for `ours` (observer.h, Reason)
    std::uint32_t switches = 0;    // wishes that were granted
    unsigned places = 0;           // RC paths that the channel may have
};

// A change of a path's state, or of a peer's: uct_mp/recover/history.h.
struct TransitionStatistics {
    std::uint64_t peer_uid = 0;
    int path = -1; // -1: the peer as a whole
    const char* what = "";
    Nanos ago = 0;
    Nanos took = 0;          // 0: does not apply
    std::uint32_t again = 0; // writes that were sent again
    const char* cause = nullptr;
};

struct ChannelStatistics {
    std::uint64_t peer_uid = 0;
    connect::Names peer;
    connect::State state = connect::State::closed;
    bool cut_off = false;               // no path is left
    bool rails_known = true;            // the peer knows our present rails
    std::uint32_t acked = 0, gates = 0; // next number that the peer waits for; channel.h: gate
    bool parked = false;                // its connection has been given back (Interface::park)
    std::uint64_t parks = 0;            // how often that has happened
    std::uint64_t sent = 0, delivered = 0, early = 0, duplicates = 0, acks_sent = 0, markers_sent = 0; // messages
    ServiceStatistics service;
    RingPairStatistics ring;
    RecoveryStatistics recovery;
    std::vector<PathStatistics> paths;
};

// Decisions of uct_mp/adapt in this interface.
struct AdaptationStatistics {
    unsigned rc_in_use = 0, rc_kept = 0; // peers for which RC is wanted; RC paths on demand that exist
    std::uint64_t looks = 0;             // at the counts of a time window
    std::uint64_t changes = 0;           // looks that found a better map
    std::uint64_t refusals = 0;          // by sources that have no more queue pairs of RC
    Nanos interval = 0;                  // between two looks
    std::uint64_t count_bytes = 0;       // memory of the counts
    adapt::Costs costs;                  // ns; 0: not measured yet
};

// With a limit of connections (admission.h): the waiting times of peers that were wanted, in sum.
struct AdmissionStatistics {
    std::uint64_t waits = 0, connections = 0, partings = 0;
    Nanos for_places = 0; // from being wanted to the beginning of the handshake
    Nanos handshakes = 0; // from then on until data may go
    Nanos questions = 0;  // from asking a peer whether the connection may end until it is given back
    unsigned most = 0;    // places held at the same time, at most
};

struct InterfaceStatistics {
    std::uint64_t uid = 0;
    std::uint64_t send_buffer_bytes = 0, receive_buffer_bytes = 0;
    std::uint64_t dropped = 0; // messages that were not believed
    std::uint64_t forged = 0;  // those of `dropped` that came by a way that is not the channel's
    unsigned queue_pairs = 0;
    unsigned pooled = 0;      // those of queue_pairs that no connection uses now
    std::uint64_t reused = 0; // queue pairs taken from the pool, ever
    AdmissionStatistics admission;
    unsigned parked = 0;     // channels whose connection has been given back
    std::uint64_t parks = 0; // ever
    connect::ControlCounters control;
    AdaptationStatistics adaptation;
    RingStatistics rings;
    std::vector<ChannelStatistics> channels;
    std::uint64_t transitions = 0;             // ever
    std::vector<TransitionStatistics> history; // the latest of them, the oldest first
};

// The peer's name for log lines: "node7 rank 4", or its uid.
[[nodiscard]] std::string describe(const Channel& channel);

// DC: the initiators that could be made, over all rails; an adapter may grant fewer than are configured. RC: 0.
[[nodiscard]] std::size_t count_initiators(Interface& of);

} // namespace ucx_mp::channel
