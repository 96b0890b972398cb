// Rings: memory that one peer's small messages are written into, where they are polled (format: link/ring.h; exchange:
// PROTOCOL.md, "Rings"). It saves the receiver a completion and a receive for each message.
//
// A ring is the receiver's. It is offered to one peer, with a key of its own, and taken back; each is answered. The
// source decides for each message whether it goes by the ring: if it is short, is not fenced, and its slot is free.
// Else it goes as it would without a ring. Either way it has its number and is retained, so there is nothing to wait
// for when a ring comes or goes. Which path carries the write does not matter: over RC it is the RC ring of AQPS, over
// DC its DC ring.
//
// A slot is free when the message `slots` before has been acknowledged. That one may have been lost with a path and be
// sent again elsewhere: then its write may still come, late, over what lies there by then. So from the failure of a
// path on the source uses the ring no more, and the receiver makes a new one, elsewhere and with another key.
//
// A holder of the ring's keys may overwrite a message that has arrived and was not looked at yet. The receiver finds
// that now and then, and takes the ring back; and what has not been acknowledged soon after a ring was taken back is
// sent again (R263).
//
// A ring promises as much about writes before a message as a receive: the writes of one adapter are placed in order. A
// message that might overtake writes goes fenced (visibility.h), never by a ring.
//
// Nothing wakes who sleeps when a ring is written to. So an interface that is armed once has no rings any more, as soon
// as their sources have heard that. Until then it wakes now and then, and looks.
//
// Callers: recovery (serve, path_failed), Peers (the peer's news), Progress (poll), Sender and Receiver. Threads: the
// interface's. Times are ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "uct_mp/channel/types.h"
#include "uct_mp/connect/control_plane.h"
#include "uct_mp/host/services.h"
#include "uct_mp/link/ring.h"
#include "uct_mp/link/ring_store.h"
#include "uct_mp/link/send_queue.h"

namespace ucx_mp::channel {

struct Core;
class Channel;
enum class Reason : std::uint8_t;
struct RingStatistics;
struct RingPairStatistics;

// Receiving. It stays where it is until late writes cannot come any more, also when its channel is gone.
struct RingIn {
    Channel* channel = nullptr; // null: nobody looks here any more
    link::RingShape shape;
    std::uint64_t key = 0;
    std::byte* memory = nullptr;
    enum class State : std::uint8_t {
        offered, // no answer yet; looked at
        open,    // the peer uses it
        leaving, // it shall not any more, and has not answered yet
        ending,  // it does not any more: until message `until` has been delivered
    } state = State::offered;
    std::uint32_t quiet = 0; // looks in a row that have found nothing
    std::uint32_t until = 0; // ending
    std::uint64_t messages = 0;
    Nanos since = 0; // offered; retired
    std::unique_ptr<link::RingMemory> owner;
};

// Somebody else may have written over messages of a ring that the peer has taken back (R263). Requests posted by then,
// by path; null: none, or they have come back.
struct RingDoubt {
    std::vector<std::pair<const link::SendQueue*, std::uint32_t>> behind; // queue, and its head
    Services::Timer timer = 0;
};

// Sending.
struct RingOut {
    bool open = false;
    link::RingShape shape;
    std::uint64_t key = 0, address = 0;
    std::uint32_t rkey[verbs::kMaxDevices] = {}; // by the peer's device
    std::uint32_t number = 0;                    // the newest that has been heard; 0: none
    std::uint32_t until = 0;                     // not open: next_sequence when it was left
    unsigned answers = 0, told = 0;
    Services::Timer timer = 0; // the peer is told that it has been left
    std::uint64_t messages = 0;
    std::uint64_t aside = 0; // of them: not by the lane (Sender::finish_ring)
    std::unique_ptr<RingDoubt> doubt;
};

// Rings of one channel; made when first needed.
struct RingPair {
    std::unique_ptr<RingIn> in;
    RingOut out;
    std::uint32_t number = 0;  // of our newest offer, or of taking it back
    bool wanted = false;       // by us: there, or to be made
    Reason why{};              // of that
    unsigned attempts = 0;     // of telling our number; before: of having memory for it
    unsigned left = 0;         // times that the peer has left one early, lately
    Services::Timer timer = 0; // tells our number again; or offers again
    std::uint32_t switches = 0;
};

class Rings {
public:
    explicit Rings(Core& core) : core_(core) {}
    // Timers end. The memory is there until this is destroyed.
    void end();

    // -- Receiving side
    // Whether the peer's messages shall come by a ring. unsupported: they cannot. no_resource: too many rings.
    Status serve(Channel& channel, bool wanted, Reason why);
    void take_verdict(Channel& channel, std::uint32_t number, bool taken, std::uint32_t until);
    // Looks at all of them; messages that have come. Data path.
    unsigned poll();
    // At this channel's, before something is stored because it came early.
    void look(Channel& channel);
    // The program may sleep now: there are no rings any more, and none soon. False: not yet. Not for long: a source
    // that computes answers late. A program that sleeps all the same wakes at next_look(), and polls. 0: there is none.
    [[nodiscard]] bool may_sleep();
    [[nodiscard]] Nanos next_look() const;
    [[nodiscard]] bool asleep() const; // who polls has slept of late: there are no rings, and there will be none soon
    void attend(Nanos now);            // now and then
    // So many may be wanted soon: memory for them is made ready aside. 0: none.
    void expect(unsigned count);

    // -- Sending side
    void take_offer(Channel& channel, const connect::RingOffer& offer);
    // A path has: nothing more is written to a ring that late writes may come to.
    void path_failed(Channel& channel);

    // The channel has failed.
    void forget(Channel& channel);
    [[nodiscard]] bool may_have(const Channel& channel) const; // we may offer it one
    // The peer has not answered for long, or a message from before the end of its ring is missing.
    [[nodiscard]] static bool awaits_peer(const Channel& channel);
    void describe(RingStatistics& out) const;
    static void describe(const Channel& channel, RingPairStatistics& out);
    void garbled(Channel& channel); // the entry that is next there

    std::uint64_t hits = 0, misses = 0;
    // Ids of channels that RingChoice has chosen and that have no ring yet: others have to give theirs back, or memory
    // is not ready.
    std::vector<std::uint32_t> waiting;

private:
    static RingPair& pair_of(Channel& channel);
    Status offer(Channel& channel);
    Status offer_later(Channel& channel, Nanos pause);
    void take_back(Channel& channel);
    void tell(Channel& channel);
    void tell_left(Channel& channel);
    void leave(Channel& channel);
    void doubt(Channel& channel);
    void seek_lost(Channel& channel);
    void seek_lost_later(Channel& channel);
    void retire(Channel& channel);
    void retire_ended();
    void inspect(RingIn& ring);
    void stop(Services::Timer& timer);
    void end_timers(RingPair& pair);
    void note_left(RingPair& pair) const;

    Core& core_;
    std::vector<RingIn*> polled_;
    std::vector<std::unique_ptr<RingIn>> retired_;
    std::uint32_t round_ = 0;
    bool ended_ = false;          // one of polled_ is over, or will be
    bool retired_polled_ = false; // one of retired_ is still in polled_
    link::RingStore store_;
    std::uint64_t foreign_ = 0, garbled_ = 0;
    Nanos next_inspection_ = 0;
    Nanos first_wish_ = 0, last_wish_ = 0; // to sleep
    Nanos awake_at_ = 0;
    bool slept_ = false; // the last wish was one of somebody with endpoints
};

} // namespace ucx_mp::channel
