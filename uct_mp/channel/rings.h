// Message rings: memory that one peer writes its small messages into, and that the receiver polls (format: link/ring.h;
// exchange: PROTOCOL.md, "Rings"). A ring saves the receiver a completion and a receive for each message.
//
// A ring belongs to the receiver. It offers the ring to one peer, with a key of its own, and takes it back later. The
// peer answers both. The source decides for each message whether it goes by the ring: it must be short and not fenced,
// and its slot must be free. Else it goes as it would without a ring. Either way it has its sequence number and is
// retained, so nobody waits when a ring comes or goes. Any path may carry the write: over RC this is the RC ring of
// AQPS, over DC its DC ring.
//
// A slot is free when the message `slots` before has been acknowledged. That message may have been lost with a path and
// sent again over another one. Its first write may then still come late, over a newer message in the slot. So when a
// path has failed the source stops using the ring, and the receiver makes a new one, with other memory and another key.
//
// A third party that has the memory's remote key may overwrite a message that has arrived and was not read yet. The
// receiver looks for that now and then, and takes the ring back. The source sends messages again that are not
// acknowledged soon after a ring was taken back (R263).
//
// A ring keeps the order with writes as a receive does: the writes of one adapter are placed in order. A message that
// might overtake writes goes fenced (visibility.h), never by a ring.
//
// Nothing wakes a sleeping program when a ring is written to. So an interface whose program sleeps takes all rings
// back. Until the sources have answered, the program wakes now and then to poll.
//
// Callers: RingChoice and Interface (serve), recovery (path_failed), Peers (the peer's news), Progress (poll), Sender
// and Receiver. Threads: the interface's. Times are ns.
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

// Receiving side. The memory stays until late writes cannot come any more, even if the channel is gone.
struct RingIn {
    Channel* channel = nullptr; // null: it is not polled any more
    link::RingShape shape;
    std::uint64_t key = 0;
    std::byte* memory = nullptr;
    enum class State : std::uint8_t {
        offered, // the peer has not answered yet; polled already
        open,    // the peer uses it
        leaving, // taken back, and the peer has not answered yet
        ending,  // the peer has left it; polled until all messages before `until` have been delivered
    } state = State::offered;
    std::uint32_t quiet = 0; // polls in a row that have found nothing
    std::uint32_t until = 0; // ending: a sequence number
    std::uint64_t messages = 0;
    Nanos since = 0; // when it was offered, later when it was retired
    std::unique_ptr<link::RingMemory> owner;
};

// The peer has taken its ring back, and messages there may have been overwritten (R263). They are sent again when the
// requests that were posted by then have come back.
struct RingDoubt {
    // By path: queue (null: none), and its head when the doubt began.
    std::vector<std::pair<const link::SendQueue*, std::uint32_t>> behind;
    Services::Timer timer = 0;
};

// Sending side.
struct RingOut {
    bool open = false;
    link::RingShape shape;
    std::uint64_t key = 0, address = 0;
    std::uint32_t rkey[verbs::kMaxDevices] = {}; // by the peer's device
    std::uint32_t number = 0;                    // of the peer's newest offer; 0: none yet
    std::uint32_t until = 0;                     // not open: next_sequence when it was left
    unsigned answers = 0, told = 0;
    Services::Timer timer = 0; // repeats that we have left the ring
    std::uint64_t messages = 0;
    std::uint64_t aside = 0; // those of `messages` that went by Sender::finish_ring, not by the fast path
    std::unique_ptr<RingDoubt> doubt;
};

// The rings of one channel; made when first needed.
struct RingPair {
    std::unique_ptr<RingIn> in;
    RingOut out;
    std::uint32_t number = 0;  // of our newest offer, or of taking one back
    bool wanted = false;       // we want one: it is there, or will be offered
    Reason why{};              // the reason for `wanted`
    unsigned attempts = 0;     // of telling our number; before that, of getting memory
    unsigned left = 0;         // rings in a row that ended early without our wish
    Services::Timer timer = 0; // tells our number again, or offers again
    std::uint32_t switches = 0;
};

class Rings {
public:
    explicit Rings(Core& core) : core_(core) {}
    // Ends all timers. The memory stays until this object is destroyed.
    void end();

    // -- Receiving side
    // Offers the peer a ring, or takes it back. unsupported: it cannot have one. no_resource: there are too many rings.
    Status serve(Channel& channel, bool wanted, Reason why);
    void take_verdict(Channel& channel, std::uint32_t number, bool taken, std::uint32_t until);
    // Polls all rings. Returns how many messages have come. Data path.
    unsigned poll();
    // Polls this channel's ring. Called before a message is stored as early.
    void look(Channel& channel);
    // The program wants to sleep: takes all rings back. False: it should poll on until they are gone, but not for long,
    // since a source that computes answers late. The answer is true after 10 ms. A program that sleeps while there are
    // rings wakes at next_look() and polls. 0: there are none.
    [[nodiscard]] bool may_sleep();
    [[nodiscard]] Nanos next_look() const;
    [[nodiscard]] bool asleep() const; // true: the program has slept lately, so no ring is offered
    void attend(Nanos now);            // called now and then by Progress: inspects rings, frees memory
    // So many rings may be wanted soon: another thread makes memory for them ready. 0: none, frees that memory.
    void expect(unsigned count);

    // -- Sending side
    void take_offer(Channel& channel, const connect::RingOffer& offer);
    // A path of the channel has failed: leaves the ring, since late writes may come there.
    void path_failed(Channel& channel);

    // The channel has failed: retires its ring, and ends its timers.
    void forget(Channel& channel);
    [[nodiscard]] bool may_have(const Channel& channel) const; // we may offer it one
    // True: the peer has not answered for long, or a message from before the end of its ring is missing.
    [[nodiscard]] static bool awaits_peer(const Channel& channel);
    void describe(RingStatistics& out) const;
    static void describe(const Channel& channel, RingPairStatistics& out);
    void garbled(Channel& channel); // the next entry has the key, but is no message: fails the channel

    std::uint64_t hits = 0, misses = 0;
    // Ids of channels that RingChoice has chosen and that have no ring yet, since others must give theirs back first or
    // memory is not ready.
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
    bool ended_ = false;          // one of polled_ is ending, or was retired
    bool retired_polled_ = false; // one of retired_ is still in polled_
    link::RingStore store_;
    std::uint64_t foreign_ = 0, garbled_ = 0;
    Nanos next_inspection_ = 0;
    Nanos first_wish_ = 0, last_wish_ = 0; // calls of may_sleep()
    Nanos awake_at_ = 0;                   // asleep() until then
    bool slept_ = false;                   // the interface had endpoints at the last call of may_sleep()
};

} // namespace ucx_mp::channel
