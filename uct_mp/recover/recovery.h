// State that recovery keeps for a channel while paths of it are down: writes to settle, messages to send again, paths
// to make anew.
//
// Plain records. Only the parts of recovery use them.
//
// Ownership: Wiring::recovery, made by recovery_of() when first needed. The queues bound the length of its
// lists. Threads: the interface's. Times are ns.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "uct_mp/adapt/map.h"
#include "uct_mp/channel/types.h"
#include "uct_mp/connect/control_plane.h"
#include "uct_mp/host/services.h"
#include "uct_mp/link/buffer.h"
#include "uct_mp/path/phase.h"
#include "uct_mp/schedule/path_state.h"
#include "uct_mp/verbs/handle.h"
#include "uct_mp/verbs/memory.h"

namespace ucx_mp::channel {
struct Core;
struct Work;
class Channel;
} // namespace ucx_mp::channel

namespace ucx_mp::link {
class SendQueue;
}

namespace ucx_mp::recover {

using path::Phase;

inline constexpr std::uint32_t kPsnMask = 0xffffff;
// With so many packets under way the peer's packet number is not used. Comparing works up to half of the 24 bits; a
// quarter leaves a margin.
inline constexpr std::uint32_t kMaxPacketsInFlight = 1u << 22;

// A write that was lost: nobody knows yet whether the peer's adapter has executed it.
struct LostPut {
    channel::Work* work;
    std::uint64_t offset;
    std::uint32_t bytes;
    std::uint32_t end_psn;        // packet number after its last packet
    std::uint32_t later_marker;   // fence number of the first marker posted behind it; 0: none
    std::uint32_t newest_marker;  // upper bound of the fence numbers of markers posted to that path
    std::uint32_t later_messages; // messages posted behind it
};

// Work that needs commands to the adapter: see jobs.h.
struct Job {
    enum class What : std::uint8_t {
        end,       // move a queue pair to the error state
        restart,   // make a DC initiator usable again after that
        truth,     // mp_rc: query what has arrived over a path
        open,      // try to open a path
        take_open, // answer a path_open: connects a half
        take_opened,
        migrate, // APM: change a queue pair to its alternate route
        load,    // APM: load another alternate route after that
    } what;
    channel::Channel* channel; // null: restart
    link::SendQueue* queue;    // end, restart; else null
    connect::PathNews news{};  // the path; take_open, take_opened: what the peer has told
};

struct PathRecovery {
    bool stays = false;   // mp_dc: only the initiator has failed, the path goes on carrying traffic
    bool back = false;    // mp_dc: all that was posted before it failed has come back
    bool port = false;    // our own port or adapter is down. The peer sees no event of that, see tell_gone()
    bool greet = false;   // mp_rc, client: `path_up` is still to be sent
    bool retired = false; // on demand: this life ends because nobody wants it
    bool offered = false; // mp_rc, client: the next life has been offered, and the server may have begun it
    bool mine_known = false, theirs_known = false;
    std::uint8_t jobs_due = 0; // a bit for each Job::What
    std::uint32_t round = 0;   // Rounds::looks when it failed
    std::uint32_t life = 0;
    connect::PathNews mine, theirs;
    std::vector<LostPut> lost;
    // Pools that take buffers of messages sent again over other paths: [0] small ones, [1] large ones. An acknowledged
    // buffer must not be reused yet: until everything posted here is back, this path's adapter may still read it.
    std::unique_ptr<link::BufferPool> detour[2];
    Nanos since = 0; // when it failed
    Nanos came_up = 0;
    Nanos not_before = 0; // mp_dc: the peer is not asked before this; late packets have expired then
    unsigned flaps = 0;   // failures in a row that came soon after a return
    unsigned attempts = 0;
    Services::Timer timer = 0;
    Nanos probed_since = 0;  // the watchdog's first probe without an answer; 0: none
    verbs::QueuePair next;   // mp_rc, client: the half that is being offered
    std::uint64_t order = 0; // on demand: the command that another thread runs for this path; 0: none
    // Another thread has ended this life's queue pair. `expected`: the packet number that its adapter has told.
    bool ended_aside = false;
    std::uint32_t expected = connect::kUnknownPsn;
    connect::LocalEnd next_end, their_end;
    const char* cause = nullptr; // of the latest failure, for people; a literal
    // Statistics
    std::uint32_t failures = 0, returns = 0;
};

// Messages whose sends have failed. A flush of `epoch` waits until the peer has acknowledged all before `until`.
struct Hold {
    std::uint32_t until;
    std::uint32_t requests;
    std::uint8_t epoch;
};

// Whether each side wants the other's messages over RC: demand.h.
struct Wishes {
    // Our wish for the peer's messages. It is repeated until the peer answers.
    adapt::Service ours = adapt::Service::shared;
    std::uint32_t number = 0; // 0: none yet
    bool answered = true, refused = false;
    channel::Reason why = channel::Reason::none;
    unsigned attempts = 0;
    Services::Timer timer = 0;
    // How our messages go, as the peer wishes and we agree.
    adapt::Service theirs = adapt::Service::shared;
    std::uint32_t heard = 0; // number of the peer's newest wish; 0: none yet
    bool heard_refused = false;
    bool asks = false; // the newest was for RC, and we refused it when it came
    unsigned answers = 0;
    unsigned revoked = 0; // how often the peer has been told that its RC is taken back; 0: it need not be told
    Services::Timer revoking = 0;
    bool counted = false; // in Demand::in_use
    Nanos left_at = 0;    // since when RC is not wanted
    // Before a path is given back, its messages must be acknowledged. `asked`: how often in a row the peer was asked
    // while `acked` stayed at `asked_acked`. The next request goes at `ask_at` or later.
    unsigned asked = 0;
    std::uint32_t asked_acked = 0;
    Nanos ask_at = 0;
    std::uint32_t switches = 0; // statistics
};

struct Recovery {
    std::vector<PathRecovery> paths;
    std::vector<Hold> holds;
    struct Marker {
        std::uint32_t number;
        std::uint32_t sequence;   // number of the fenced message
        schedule::PathIndex path; // the path whose writes it stands for
        schedule::PathIndex over; // the path that took those writes again; kNoPath: none had to go again
    };
    std::vector<Marker> markers; // to be sent, over `over` or any path
    std::vector<Marker> told;    // sent again if another path fails before their fence is over
    // The path that takes all writes again. A completed write may not be visible yet, and a message over another
    // adapter might overtake it. So the markers for these writes follow on the same path.
    schedule::PathIndex puts_over = schedule::kNoPath;
    const channel::Work* put_again = nullptr; // the latest of them that is under way
    bool resend = false;                      // some retained message has no path
    // New keys of memory at adapters of the peer that were opened again (renewal.h): questions, and answers.
    struct AskedKeys {
        std::uint64_t region;
        unsigned attempts = 0;
        Services::Timer timer = 0;
    };
    std::vector<AskedKeys> asked;
    std::unordered_map<std::uint64_t, verbs::RemoteKeys> renewed; // by region
    // Other paths wait to join the channel's only path (joining.h). They do when the queue has reaped all records
    // before `widen_behind`. `widening_told`: that position is set, and all before it will complete.
    bool widening = false, widening_told = false;
    std::uint32_t widen_behind = 0;
    Wishes wishes;
    bool listed = false;           // in Phases::recovering
    Services::Timer partition = 0; // runs while no path is usable
    Nanos partition_since = 0;
    bool given_up_told = false; // Reports has said that the partition lasted for too long
    Nanos answered_at = 0;      // latest answer to a probe, over any path
    Services::Timer nudge = 0;  // runs while there are holds: asks for an acknowledgment, which may have been lost
    // Statistics
    std::uint64_t messages_again = 0, puts_again = 0, gets_again = 0, bytes_again = 0, puts_found_done = 0;
};

// The channel's record of what recovery does; made at the first call.
Recovery& recovery_of(channel::Channel& channel);
// Ends the questions for keys (Recovery::asked). The channel must have such a record.
void stop_asking(channel::Core& core, channel::Channel& channel);

} // namespace ucx_mp::recover
