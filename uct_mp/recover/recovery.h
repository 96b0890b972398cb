// Recovery's memory of a channel while paths of it are down: requests to settle, messages to send again, paths to make
// anew.
//
// Plain records: the parts of Recoverer work on them, and nobody else looks in.
//
// Ownership: Wiring::recovery, made by Failure::recovery_of() when first needed. Its lists are bounded by what the
// queues can hold. Threads: the interface's. Times are ns.
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
struct Work;
class Channel;
} // namespace ucx_mp::channel

namespace ucx_mp::link {
class SendQueue;
}

namespace ucx_mp::recover {

using path::Phase;

inline constexpr std::uint32_t kPsnMask = 0xffffff;
// Half of the number space would do; a quarter leaves room for what is in flight in both directions.
inline constexpr std::uint32_t kMaxPacketsInFlight = 1u << 22;

// A write whose execution is not known.
struct LostPut {
    channel::Work* work;
    std::uint64_t offset;
    std::uint32_t bytes;
    std::uint32_t end_psn;        // after its last packet
    std::uint32_t later_marker;   // fence number of the first marker posted behind it, 0: none
    std::uint32_t newest_marker;  // no marker with a later number has been posted to that path
    std::uint32_t later_messages; // posted behind it
};

// Work that needs commands to the adapter: see jobs.h.
struct Job {
    enum class What : std::uint8_t {
        end,       // a queue pair to the error state
        restart,   // a DC initiator that has been ended
        truth,     // mp_rc: what had come over a path?
        open,      // a path is tried
        take_open, // news that need commands, too
        take_opened,
        migrate, // APM: a queue pair to its other route
        load,    // ... which gets another one
    } what;
    channel::Channel* channel; // null: restart
    link::SendQueue* queue;    // end, restart
    connect::PathNews news{};  // the path, and what was told
};

struct PathRecovery {
    bool stays = false;   // mp_dc: only the initiator has failed, the path goes on carrying traffic
    bool back = false;    // mp_dc: since it failed there was a moment when nothing was posted there
    bool port = false;    // because of our own port or adapter: the other side hears of no event, see tell_gone()
    bool greet = false;   // mp_rc, client: `path_up` has to be sent
    bool retired = false; // on demand: this life ends because nobody wants it
    bool offered = false; // mp_rc, client: the server has been told of the next life, and may be in it
    bool mine_known = false, theirs_known = false;
    std::uint8_t jobs_due = 0; // a bit for each Job::What
    std::uint32_t round = 0;   // Rounds::looks when it failed
    std::uint32_t life = 0;
    connect::PathNews mine, theirs;
    std::vector<LostPut> lost;
    // Where buffers of messages that go again over other paths end meanwhile: small ones, large ones. This path's
    // adapter may still be reading them until what was posted here is back, also if they have been acknowledged.
    std::unique_ptr<link::BufferPool> detour[2];
    Nanos since = 0; // when it failed
    Nanos came_up = 0;
    Nanos not_before = 0; // mp_dc: late packets are gone
    unsigned flaps = 0;   // failures soon after a return
    unsigned attempts = 0;
    Services::Timer timer = 0;
    Nanos probed_since = 0;  // the watchdog's first probe without an answer; 0: none
    verbs::QueuePair next;   // mp_rc, client: the half that is being offered
    std::uint64_t order = 0; // on demand: what is being done aside for this life's end, or for the next; 0: nothing
    // The adapter's answer when this life was ended aside.
    bool ended_aside = false;
    std::uint32_t expected = connect::kUnknownPsn;
    connect::LocalEnd next_end, their_end;
    const char* cause = nullptr; // of the latest failure, for people; lives for ever
    // Statistics
    std::uint32_t failures = 0, returns = 0;
};

// Sends that a flush waits for although their completions were failures: until all messages up to `until` have arrived.
struct Hold {
    std::uint32_t until;
    std::uint32_t requests;
    std::uint8_t epoch;
};

// How messages shall come, in both directions, over this connection: demand.h.
struct Wishes {
    // Our wish for the peer's messages; told until it has answered.
    adapt::Service ours = adapt::Service::shared;
    std::uint32_t number = 0; // 0: none yet
    bool answered = true, refused = false;
    channel::Reason why = channel::Reason::none;
    unsigned attempts = 0;
    Services::Timer timer = 0;
    // The way of our messages, as the peer wants it and we agree.
    adapt::Service theirs = adapt::Service::shared;
    std::uint32_t heard = 0; // the newest; 0: none yet
    bool heard_refused = false;
    bool asks = false; // the newest was for RC, and has been refused when it came
    unsigned answers = 0;
    unsigned revoked = 0; // times that the peer has been told; 0: it need not be
    Services::Timer revoking = 0;
    bool counted = false; // in Demand::in_use
    Nanos left_at = 0;    // when it was not wanted any more
    // About the peer, for giving back: acknowledgments asked for in a row while `acked` was the same; not before
    // ask_at.
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
        std::uint32_t sequence;   // of the fenced message
        schedule::PathIndex path; // whose writes it stands for
        schedule::PathIndex over; // where those went again: order there is the adapter's. kNoPath: they had all arrived
    };
    std::vector<Marker> markers; // to be sent, over any path
    std::vector<Marker> told;    // have been sent so; again if another path fails before the fence is over
    // Writes that go again are all on this path, since a completion says nothing about what the peer sees: another
    // adapter's message may overtake them. The markers that stand for them follow on it.
    schedule::PathIndex puts_over = schedule::kNoPath;
    const channel::Work* put_again = nullptr; // the latest of them that is under way
    bool resend = false;                      // some retained message has no path
    // Keys of adapters of the peer's that are there again (renewal.h): those asked for, and those that are known.
    struct AskedKeys {
        std::uint64_t region;
        unsigned attempts = 0;
        Services::Timer timer = 0;
    };
    std::vector<AskedKeys> asked;
    std::unordered_map<std::uint64_t, verbs::RemoteKeys> renewed; // by region
    // The channel's only path is about to get company (joining.h); told: everything before this record asks for a
    // completion.
    bool widening = false, widening_told = false;
    std::uint32_t widen_behind = 0;
    Wishes wishes;
    bool listed = false;           // in Failure::recovering
    Services::Timer partition = 0; // runs while no path is usable
    Nanos partition_since = 0;
    bool given_up_told = false; // that it has lasted for too long: Reports
    Nanos answered_at = 0;      // latest answer to a probe, over whatever path
    Services::Timer nudge = 0;  // runs while there are holds: the acknowledgment may have been lost
    // Statistics
    std::uint64_t messages_again = 0, puts_again = 0, gets_again = 0, bytes_again = 0, puts_found_done = 0;
};

} // namespace ucx_mp::recover
