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
        "all"; // or, with a path for each on its route, "writes" or "reads"; "spare": nothing while others are up
    std::uint32_t failures = 0, returns = 0, migrations = 0;
    unsigned posted = 0;         // requests not yet reaped on its queue pair
    const char* recovery = "up"; // path::Phase
    std::uint32_t life = 0;
    std::string remote_port;     // for people, as the peer calls it if it has told that
    const char* cause = nullptr; // of its latest failure, if it is down or on its way back; and
    Nanos down_for = 0;
};

// A path now, for plots over time. Times as Services::now() tells them, 0: never.
struct PathLook {
    path::Phase phase = path::Phase::up;
    Nanos failed_at = 0, came_up_at = 0; // last
    std::uint32_t failures = 0;
    std::uint64_t writing = 0, reading = 0; // bytes of RDMA that have not completed
    std::uint64_t unacknowledged = 0;       // bytes of messages that the peer has not acknowledged
};

struct RecoveryStatistics { // what has been sent again because its path failed
    bool seen = false;      // some path has
    std::uint64_t messages_again = 0, puts_again = 0, gets_again = 0, bytes_again = 0;
    std::uint64_t puts_found_done = 0; // lost without a completion, but executed
    // Under way
    std::uint64_t damaged = 0; // paths, a bit mask
    std::uint32_t puts_open = 0;
    std::size_t holds = 0, markers = 0;
    bool resend = false, listed = false;
};

// Rings in which messages come (channel/rings.h), of an interface.
struct RingStatistics {
    unsigned rings = 0;                     // that are looked at
    std::uint64_t bytes = 0;                // of their memory, and of those that late writes may still come to
    unsigned prepared = 0;                  // of memory that is registered, and nobody's yet
    std::uint64_t hits = 0, misses = 0;     // looks at a slot: with a message, in vain
    std::uint64_t foreign = 0, garbled = 0; // entries of who does not know the key; of who does, and that mean nothing
    adapt::Costs costs;                     // of rings, as they are known now
};
// Statistics of a channel.
struct RingPairStatistics {
    const char* in = "none";              // offered, open, leaving, ending
    bool wanted = false;                  // there shall be one
    const char* why = "none";             // Reason, of that it shall be so or not
    bool out = false;                     // we may write there
    std::uint64_t messages_out = 0;       // ever
    std::uint64_t by_lane = 0;            // of them: the usual way
    std::uint64_t messages_in = 0;        // into the present one
    std::uint32_t switches = 0, left = 0; // taken by the peer; left by it early, lately
    std::uint64_t bytes = 0;
};

struct ServiceStatistics {         // how messages shall come (adapt::Service)
    const char* ours = "shared";   // to us, as we wish
    const char* theirs = "shared"; // to the peer, as it wishes and we agree
    bool answered = true;          // the peer has, and
    bool refused = false;          // it has no more queue pairs of RC
    const char* why = "none";      // of ours (observer.h, Reason)
    std::uint32_t switches = 0;    // wishes that were granted
    unsigned places = 0;           // queue pairs of RC that it may have; 0: it may not
};

// A change of a path's state, or of a peer's: uct_mp/recover/history.h.
struct TransitionStatistics {
    std::uint64_t peer_uid = 0;
    int path = -1; // -1: the peer as a whole
    const char* what = "";
    Nanos ago = 0;
    Nanos took = 0;          // 0: says nothing
    std::uint32_t again = 0; // writes
    const char* cause = nullptr;
};

struct ChannelStatistics {
    std::uint64_t peer_uid = 0;
    connect::Names peer;
    connect::State state = connect::State::closed;
    bool cut_off = false;               // no path is left
    bool rails_known = true;            // by the peer: as they are now
    std::uint32_t acked = 0, gates = 0; // next number that the peer waits for; channel.h: gate
    bool parked = false;                // its connection has been given back (Interface::park), and
    std::uint64_t parks = 0;            // so often in all
    std::uint64_t sent = 0, delivered = 0, early = 0, duplicates = 0, acks_sent = 0, markers_sent = 0; // messages
    ServiceStatistics service;
    RingPairStatistics ring;
    RecoveryStatistics recovery;
    std::vector<PathStatistics> paths;
};

// The decisions of uct_mp/adapt here.
struct AdaptationStatistics {
    unsigned rc_in_use = 0, rc_kept = 0; // peers that it is wanted for; queue pairs
    std::uint64_t looks = 0;             // at the counts of a time window
    std::uint64_t changes = 0;           // of them: another map was better
    std::uint64_t refusals = 0;          // by sources that have no more queue pairs of RC
    Nanos interval = 0;                  // between two looks
    std::uint64_t count_bytes = 0;       // memory of the counts
    adapt::Costs costs;                  // ns; 0: not measured yet
};

// With a limit of connections (admission.h): what those who wanted a peer have waited for.
struct AdmissionStatistics {
    std::uint64_t waits = 0, connections = 0, partings = 0;
    Nanos for_places = 0; // from being wanted to the handshake, all together
    Nanos handshakes = 0; // from then on until data may go
    Nanos questions = 0;  // from asking a peer whether the connection may end until it is given back
    unsigned most = 0;    // places held at a time
};

struct Interface::Statistics {
    std::uint64_t uid = 0;
    std::uint64_t send_buffer_bytes = 0, receive_buffer_bytes = 0;
    std::uint64_t dropped = 0; // messages that were not believed
    std::uint64_t forged = 0;  // of them: those that another than the channel's peer has sent
    unsigned queue_pairs = 0;
    unsigned pooled = 0;      // of them: given back by connections, for others
    std::uint64_t reused = 0; // taken from there, ever
    AdmissionStatistics admission;
    unsigned parked = 0;     // channels without a connection, which have had one
    std::uint64_t parks = 0; // ever
    connect::ControlCounters control;
    AdaptationStatistics adaptation;
    RingStatistics rings;
    std::vector<ChannelStatistics> channels;
    std::uint64_t transitions = 0;             // ever
    std::vector<TransitionStatistics> history; // the latest of them, oldest first
};

// The peer, for lines: "node7 rank 4", or its number.
[[nodiscard]] std::string describe(const Channel& channel);

// DC: so many initiators could be made, of all rails; an adapter may have fewer than are wished for. RC: 0.
[[nodiscard]] std::size_t count_initiators(Interface& of);

[[nodiscard]] inline const char* state_name(connect::State state) {
    switch (state) {
    case connect::State::closed:
        return "closed";
    case connect::State::requesting:
        return "requesting";
    case connect::State::confirming:
        return "confirming";
    case connect::State::accepting:
        return "accepting";
    case connect::State::established:
        return "established";
    case connect::State::failed:
        return "failed";
    }
    return "?";
}

[[nodiscard]] inline const char* state_name(schedule::PathState state) {
    switch (state) {
    case schedule::PathState::up:
        return "up";
    case schedule::PathState::suspect:
        return "suspect";
    case schedule::PathState::down:
        return "down";
    case schedule::PathState::probing:
        return "probing";
    case schedule::PathState::recovering:
        return "recovering";
    }
    return "?";
}

} // namespace ucx_mp::channel
