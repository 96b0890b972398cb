// Chooses the peers that get RC: counts each channel's messages, measures the gain of RC, and asks the peers for it
// (adapt/, AQPS).
//
// The sequence numbers of all channels are read at the end of each slice of time. Their differences are the counts, so
// the data path pays nothing. The time windows are judged after eight slices (adapt::Windows). If another map is
// better, the peers concerned are asked for it (Interface::serve_by). A refusal counts until the next look.
//
// Both directions count, since a queue pair serves both. Each side asks for itself: the sender knows the cost of its DC
// initiators, which the receiver may not know. A side with more askers than places keeps the heaviest.
//
// The gain of RC is a difference of latencies, measured on paths of both kinds to the same peer (schedule::PathTable).
// So it includes contention, reconnects and cache misses. All values are medians: on a processor that others use, too,
// some messages take a thousand times as long. Once DC's latency is known, the busiest peer gets RC for a trial, which
// is bounded. Where RC has taken over, DC's latency grows old. So the busiest peer goes by DC for a window
// now and then, ever less often. If RC has saved nothing, it is tried again, ever less often. The cost of RC is the
// time of both sides' commands, since a process that is delayed delays those that wait for it.
//
// Under a flood, latencies do not show the time that DC initiators lose when they turn to another target. DcTurns
// measures that loss, and the counts say how many of the messages suffer it. The gain is the larger of the two
// values, since either may include the other.
//
// Mode eager: as long as all peers may have RC, all get it. Nothing is chosen or measured then.
//
// Writes and reads count at the side that posts them, by requests: a large one counts once for each piece, since each
// piece may make an initiator turn. The few requests without data (acknowledgments, markers) count as well.
//
// Callers: Progress (attend), Peers (connected), Endings (parking), recovery (note_commands). Slow path.
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
    [[nodiscard]] bool measures() const { return windows_.has_value(); }
    // Progress is made, every few dozen polls: shows when the processor was away.
    void note_poll(Nanos now);
    // Mode eager: asks for RC at once, while there are no more peers than max_rc.
    void connected(Channel& channel);
    // The channel is being parked. Saves its counts, which its next connection starts from zero.
    void parking(const Channel& channel);
    // `took`: ns that progress spent on making and connecting half of a path. Next to nothing, since the commands are
    // done aside (halves.h).
    void note_commands(Nanos took);
    void describe(AdaptationStatistics& out) const;

    DcTurns turns;

private:
    struct Seen { // state of the channel in this slot at the end of the last slice
        std::uint32_t id = 0, expected = 0, next = 0;
        std::uint32_t parked = 0;             // operations since then over connections that have been parked
        std::uint32_t judged = 0;             // number of the peer's latest wish for which another peer lost its RC
        std::uint64_t messages = 0, sent = 0; // by this connection; `sent` includes writes and reads
        std::uint64_t requests = 0;           // completed
        std::uint64_t aside = 0;              // of `requests`: DcTurns', not the program's
        // Operations sent since the last call. `posted`: DcTurns' writes since then, which are left out.
        [[nodiscard]] std::uint64_t note_sent(const Channel& channel, std::uint32_t posted);
    };
    struct Peer { // one that may get RC
        Channel* channel;
        Served served;
        double sent, received; // in the last slice
        [[nodiscard]] std::uint32_t slot() const { return channel->local_id & kSlotMask; }
        [[nodiscard]] bool has_rc() const {
            return served.ours == adapt::Service::rc || served.theirs == adapt::Service::rc;
        }
    };
    [[nodiscard]] bool all_have_room() const; // mode eager, and there are no more peers than may have RC
    void serve_all();
    [[nodiscard]] std::vector<adapt::Counts::Entry> read_counts();
    void end_slice(Nanos now);
    void leave_out_absence();
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
    [[nodiscard]] double rc_saves() const; // ns per message, as far as is known

    Core& core_;
    const AdaptConfig::Mode mode_;
    std::optional<adapt::Windows> windows_;
    std::vector<Seen> seen_;              // by slot
    std::vector<Peer> peers_;             // found by the last slice, by slot; valid until the next call of progress()
    adapt::Median saving_;                // by RC instead of DC, per small message
    adapt::Median commands_;              // time of progress for half a path, see note_commands()
    adapt::Median dc_latency_;            // of a small message
    double turning_ = 0;                  // turns per message of either direction, if all went by DC
    Nanos polled_ = 0;                    // the last call of note_poll()
    bool was_away_ = false;               // since the last slice: more than kAway between two of them
    unsigned silent_ = 0;                 // slices in a row in which little was sent to the peer on trial
    double tried_ = 0;                    // operations sent to it over RC
    unsigned mute_ = 0;                   // trials that have shown nothing
    std::uint32_t mute_peer_ = kSlotMask; // id of the channel on the last such trial; kSlotMask: none
    unsigned passed_over_ = 0;            // slices since then in which only that peer could have been tried
    unsigned trials_ = 0;
    Nanos next_trial_ = 0;
    Nanos doubted_ = 0; // since when RC saves nothing, or was tried again; 0: it saves something, or is not known
    std::uint32_t reference_ = kSlotMask; // id of the channel that goes by DC for this window; kSlotMask: none
    Reason reference_why_ = Reason::none; // why that channel had RC before
    unsigned references_ = 0;             // how often DC has been measured anew
    Nanos referred_ = 0;                  // the last time, or when a saving was known first
    std::uint64_t looks_ = 0, changes_ = 0, refusals_ = 0;
};

} // namespace ucx_mp::channel
