// Chooses the peers that get RC: counts messages of each channel, measures the gain of RC, and wishes it (adapt/,
// AQPS).
//
// At the end of each slice of time the numbers of all channels are read: their differences are the counts, so the data
// path pays nothing. After eight slices the time windows are looked at (adapt::Windows). A better map is wished from
// the peers (Interface::serve_by); a refusal counts until the next look.
//
// Both directions count, since a queue pair serves both, and each side wishes by itself: who sends knows what its DC
// initiators cost, and who receives may not. A peer that is asked by more than it can serve keeps the heaviest.
//
// The gain of RC is the difference of the latencies that paths of both kinds to the same peers have shown
// (schedule::PathTable). So it has contention, reconnects and cache misses in it. All are medians: on a processor that
// others use, too, some messages take a thousand times as long. When those of DC are known the
// busiest peer gets RC for trial. A trial ends, whether it has shown something or not. Where RC has taken over, DC's
// latency is forgotten after a while. Then one of them goes by DC for a window, ever less often. RC is tried again,
// too, ever less often, if it has saved nothing. The cost of RC is that of both sides' commands: a process that is
// waited for delays others.
//
// A flood hides in its latencies what it saves that DC initiators need not turn to other targets. That is measured
// apart (DcTurns), and weighed by the part of all messages that turn, as it follows from the counts. The gain is the
// larger of the two, since either may include the other.
//
// Eager, while there are no more peers than may have RC: all have it, so nobody is chosen and nothing is measured.
//
// Writes and reads count at the side that posts them, by their requests: a large one is as many as it has pieces.
// Each of them may make an initiator turn. The few requests that carry nothing (acknowledgments, markers) count, too.
//
// Callers: Progress, now and then; Peers, Ends and recovery tell. Slow path.
// Threads: the interface's.
#pragma once

#include <optional>
#include <vector>

#include "uct_mp/adapt/median.h"
#include "uct_mp/adapt/windows.h"
#include "uct_mp/channel/channel.h"
#include "uct_mp/channel/dc_turns.h"
#include "uct_mp/channel/observer.h"

namespace ucx_mp::channel {

class Adaptation {
public:
    explicit Adaptation(Core& core);

    void attend(Nanos now);
    // Eager: RC at once, while there are no more peers than max_rc.
    void connected(Channel& channel);
    // It is parked now: what has come and gone counts nevertheless.
    void parking(const Channel& channel);
    // Progress has paid so much for the commands that made and connected half of a path, ns: next to nothing, since
    // they are done aside (halves.h).
    void note_commands(Nanos took);
    void describe(AdaptationStatistics& out) const;

    DcTurns turns;

private:
    struct Seen { // of the channel in this slot, at the end of the last slice
        std::uint32_t id = 0, expected = 0, next = 0;
        std::uint32_t parked = 0;             // operations since then, of connections that have been parked
        std::uint32_t judged = 0;             // the wish of the peer that another one's RC has been taken back for
        std::uint64_t messages = 0, sent = 0; // by this connection; writes and reads as well
        std::uint64_t requests = 0;           // that have completed
        std::uint64_t aside = 0;              // of these, none of the program's
        // Since it was called last. `posted`: likewise, to be left out.
        [[nodiscard]] std::uint64_t note_sent(const Channel& channel, std::uint32_t posted);
    };
    struct Peer { // of a slot that may get RC
        Channel* channel;
        Served served;
        double sent, received; // in the last slice
        [[nodiscard]] std::uint32_t slot() const { return channel->local_id & kSlotMask; }
        [[nodiscard]] bool has_rc() const {
            return served.ours == adapt::Service::rc || served.theirs == adapt::Service::rc;
        }
    };
    [[nodiscard]] bool all_have_room() const; // eager, and as few peers as may have RC
    void serve_all();
    [[nodiscard]] std::vector<adapt::Counts::Entry> read_counts();
    void end_slice(Nanos now);
    void leave_out_absence(Nanos now);
    void send_for_reference(const Peer& peer);
    void measure();
    void note_turns();
    [[nodiscard]] bool has_paid(const Peer& peer, const std::vector<adapt::Source>& counts) const;
    [[nodiscard]] bool on_trial();
    void give_trial();
    void doubt_saving();
    void renew_reference();
    void end_reference();
    void look();
    void apply(const adapt::Mapping& map);
    void choose_among_askers();
    void leave_all();
    void clear_refusals();
    [[nodiscard]] double both_halves() const;
    [[nodiscard]] double rc_saves() const; // a message, as far as is known

    Core& core_;
    const AdaptConfig::Mode mode_;
    std::optional<adapt::Windows> windows_;
    std::vector<Seen> seen_;   // by slot
    std::vector<Peer> peers_;  // that the last slice has found, by slot; valid until the next call of progress()
    adapt::Median saving_;     // of a small message by RC
    adapt::Median commands_;   // of half a path
    adapt::Median dc_latency_; // of a small message by DC
    double turning_ = 0;  // part of what a turn takes that a message, of either direction, would lose if all went by DC
    Nanos attended_ = 0;  // last
    unsigned silent_ = 0; // slices that the peer on trial has sent little in
    double tried_ = 0;    // what has been sent to it
    unsigned mute_ = 0;   // trials that have shown nothing
    std::uint32_t mute_peer_ = kSlotMask; // on the last one; or nobody's id
    unsigned passed_over_ = 0; // slices since then in which it was passed over and nobody else could be tried
    unsigned trials_ = 0;
    Nanos next_trial_ = 0;
    Nanos doubted_ =
        0; // since when RC saves nothing, or when it was tried again; 0: it saves something, or is not known
    std::uint32_t reference_ = kSlotMask; // the channel that goes by DC meanwhile; or nobody's id
    Reason reference_why_ = Reason::none; // it had RC before
    unsigned references_ = 0;             // times that DC has been measured anew
    Nanos referred_ = 0;                  // the last one, or when a first difference was known
    std::uint64_t looks_ = 0, changes_ = 0, refusals_ = 0;
};

} // namespace ucx_mp::channel
