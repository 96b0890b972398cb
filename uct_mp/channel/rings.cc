#include "uct_mp/channel/rings.h"

#include <sys/random.h>

#include <algorithm>
#include <cinttypes>
#include <mutex>
#include <utility>

#include "uct_mp/channel/core.h"
#include "uct_mp/channel/statistics.h"

namespace ucx_mp::channel {

using State = RingIn::State;

namespace {
constexpr Nanos kRepeat = 2'000'000, kMaxRepeat = 200'000'000; // pauses before an unanswered message is repeated
constexpr Nanos kPreparing = 200'000;                          // first pause before asking for memory again
constexpr Nanos kTurn = 2'000'000;                             // Halves leave the other thread to us for so long
constexpr unsigned kMostDoublings = 10;                        // of ring_pause
constexpr Nanos kSteady = 100;               // a ring that has lasted for so many ring_pauses shows that paths are good
constexpr Nanos kQuarantine = 1'000'000'000; // no late write comes after this, or after twice packet_lifetime if longer
constexpr Nanos kInspection = 100'000'000;
constexpr Nanos kPatience = 10'000'000; // the program may sleep after this, even if a source has not answered
constexpr Nanos kAsleep = 1'000'000;    // pause between polls of a sleeping program that still has rings
// A program that has not wanted to sleep for so long polls again. The time is long, since UCP wants to sleep now and
// then on an interface that it is about to leave, and uses it again for the next endpoint.
constexpr Nanos kAwake = 10'000'000'000;
constexpr std::uint32_t kCold = 64; // after so many polls in vain a ring is polled less often

Nanos pause_after(unsigned attempts, Nanos first = kRepeat) {
    return std::min(kMaxRepeat, first << std::min(attempts, 16u));
}
// The pauses double. In between they stay even for a while, since the other thread may only be busy with another order.
Nanos pause_for_memory(unsigned attempts) {
    constexpr unsigned kEvenly = 12, kDoublings = 3;
    return pause_after(attempts < kEvenly ? std::min(attempts, kDoublings) : attempts - kEvenly + kDoublings,
                       kPreparing);
}
} // namespace

RingPair& Rings::pair_of(Channel& channel) {
    if (!channel.rings) channel.rings = std::make_unique<RingPair>();
    return *channel.rings;
}

void Rings::stop(Services::Timer& timer) {
    if (timer) core_.services.cancel(std::exchange(timer, 0));
}

bool Rings::may_have(const Channel& channel) const {
    return has_rings(core_) && !channel.self && (channel.connection.features & connect::feature::rings) &&
           channel.connection.peer_segment <= core_.config.segment + kMaxUserHeader; // else it sends in parts
}

// -- Receiving side

Status Rings::serve(Channel& channel, bool wanted, Reason why) {
    if (!recoverable(core_, channel) || (channel.gates & gate::not_ready)) return Status::busy;
    if (!may_have(channel) || asleep()) return Status::unsupported;
    RingPair& pair = pair_of(channel);
    if (pair.wanted != wanted) pair.why = why;
    pair.wanted = wanted;
    if (wanted && (pair.in || pair.timer)) return Status::ok;
    if (wanted) {
        pair.attempts = 0;
        return offer(channel);
    }
    if (!pair.in) stop(pair.timer);
    if (pair.in && pair.in->state < State::leaving) take_back(channel);
    return Status::ok;
}

Status Rings::offer(Channel& channel) {
    RingPair& pair = pair_of(channel);
    if (polled_.size() >= core_.config.adapt.max_rings) {
        pair.wanted = false;
        return Status::no_resource;
    }
    auto ring = std::make_unique<RingIn>();
    ring->shape = core_.config.adapt.ring;
    if (!(ring->owner = store_.take(core_.services.now()))) {
        expect(link::RingStore::kBatch);                 // other channels will want some as well
        ring->owner = store_.take(core_.services.now()); // ready at once in simulations
    }
    if (!ring->owner && store_.has_failed()) {
        core_.services.say(LogLevel::info, "no memory for a ring of %zu bytes", ring->shape.bytes());
        pair.wanted = false;
        return Status::no_memory;
    }
    if (!ring->owner) return offer_later(channel, pause_for_memory(pair.attempts++));
    ring->memory = ring->owner->bytes.get();
    ring->since = core_.services.now();
    {
        const std::lock_guard lock(core_.services);
        ring->key = core_.control->random_tag();
    }
    link::clear_ring(ring->memory, ring->shape, ring->key);
    ring->channel = &channel;
    polled_.push_back(ring.get());
    core_.due |= due::rings;
    pair.in = std::move(ring);
    // The peer reuses a slot only when its message is acknowledged, so acknowledgments go more often.
    channel.ack_threshold = std::min(channel.ack_threshold, pair.in->shape.slots / 2);
    channel.ack_after = std::min(channel.ack_after, channel.ack_threshold);
    if (++pair.number == 0) ++pair.number;
    pair.attempts = 0;
    tell(channel);
    return Status::ok;
}

Status Rings::offer_later(Channel& channel, Nanos pause) {
    channel.rings->timer = core_.services.at(core_.services.now() + pause, [this, &channel] {
        RingPair& pair = *channel.rings;
        pair.timer = 0;
        if (!pair.wanted || !recoverable(core_, channel)) return;
        if (asleep())
            pair.wanted = false, pair.why = Reason::asleep; // RingChoice chooses anew when the program polls again
        else if (offer(channel) == Status::no_resource)
            waiting.push_back(channel.local_id); // another channel has taken the last place
    });
    return Status::ok;
}

void Rings::expect(unsigned count) {
    const std::size_t more =
        core_.config.adapt.max_rings - std::min<std::size_t>(core_.config.adapt.max_rings, polled_.size());
    if (count == 0)
        store_.clear();
    else if (!asleep() && store_.prepare(core_.services, core_.devices, core_.config.adapt.ring.bytes(),
                                         static_cast<unsigned>(std::min<std::size_t>(more, count))) ==
                              link::RingStore::Prepared::refused)
        core_.halves.give_way(core_.services.now() + kTurn);
}

bool Rings::awaits_peer(const Channel& channel) {
    constexpr unsigned kDoubt = 6; // repetitions
    if (!channel.rings) return false;
    const RingPair& pair = *channel.rings;
    if (pair.out.timer && pair.out.told > kDoubt) return true;
    if (!pair.in || pair.in->state == State::open) return false;
    return pair.in->state != State::offered || pair.attempts > kDoubt;
}

void Rings::take_back(Channel& channel) {
    RingPair& pair = *channel.rings;
    pair.in->state = State::leaving;
    if (++pair.number == 0) ++pair.number;
    pair.attempts = 0;
    tell(channel);
}

// Repeats the offer, or that it is taken back, until it is answered. There is no bound: a live peer answers, and
// Liveness finds out whether a silent one is dead (awaits_peer()).
void Rings::tell(Channel& channel) {
    RingPair& pair = *channel.rings;
    stop(pair.timer);
    connect::RingOffer offer{.number = pair.number, .shape = {}, .keys = {}};
    if (pair.in->state == State::offered) {
        offer.shape = pair.in->shape;
        offer.address = reinterpret_cast<std::uint64_t>(pair.in->memory);
        offer.key = pair.in->key;
        pair.in->owner->registration.look_up(offer.keys);
        offer.keys.id = 0;
    }
    {
        const std::lock_guard lock(core_.services);
        core_.control->offer_ring(channel.connection, offer, pair.attempts);
    }
    pair.timer = core_.services.at(core_.services.now() + pause_after(pair.attempts++), [this, &channel] {
        channel.rings->timer = 0;
        tell(channel);
    });
}

void Rings::take_verdict(Channel& channel, std::uint32_t number, bool taken, std::uint32_t until) {
    if (!recoverable(core_, channel) || !channel.rings || !channel.rings->in) return;
    RingPair& pair = *channel.rings;
    RingIn& ring = *pair.in;
    if (number != pair.number || ring.state == State::ending) return; // late, or a copy
    if (ring.state == State::leaving) {
        if (taken) return;
        stop(pair.timer);
        ring.state = State::ending;
        // A source that has never heard of this ring tells the number at which it left the last one. If that is half a
        // round of all numbers ago, it looks like a number to come. Real ones are never so far ahead.
        const bool stale = until - channel.expected > core_.ring;
        ring.until = stale ? channel.expected : until;
        ended_ = true;
        return;
    }
    if (taken) {
        if (ring.state == State::offered) {
            ++pair.switches;
            core_.services.say(LogLevel::debug, "peer %016" PRIx64 " has a ring here", channel.uid);
        }
        stop(pair.timer);
        ring.state = State::open;
        return;
    }
    // The peer has left the ring by itself. Our next number tells it that we know.
    note_left(pair);
    take_back(channel);
}

// A ring ends early without our wish. The pause before the next offer doubles each time.
void Rings::note_left(RingPair& pair) const {
    const bool lasted = core_.services.now() - pair.in->since >= kSteady * core_.config.adapt.ring_pause;
    pair.left = lasted ? 1 : pair.left + 1;
}

// The ring is not polled any more. Its memory stays, since the peer's adapter may still write there.
void Rings::retire(Channel& channel) {
    RingPair& pair = *channel.rings;
    RingIn& ring = *pair.in;
    stop(pair.timer);
    ring.channel = nullptr;
    ring.since = core_.services.now();
    ended_ = retired_polled_ = true;
    retired_.push_back(std::move(pair.in));
    next_inspection_ = std::min(next_inspection_, ring.since + kInspection);
    channel.set_ack_threshold();
    if (!pair.wanted || (channel.gates & gate::failed)) return;
    pair.attempts = 0;
    const Nanos pause = pair.left ? core_.config.adapt.ring_pause << std::min(pair.left - 1, kMostDoublings) : 0;
    (void)offer_later(channel, pause);
}

void Rings::retire_ended() {
    bool later = false;
    for (RingIn* const ring : polled_) {
        if (!ring->channel || ring->state != State::ending) continue;
        if (static_cast<std::int32_t>(ring->until - ring->channel->expected) <= 0)
            retire(*ring->channel);
        else
            later = true;
    }
    ended_ = later;
    std::erase_if(polled_, [](const RingIn* ring) { return !ring->channel; });
    retired_polled_ = false;
    if (polled_.empty()) core_.due &= static_cast<std::uint8_t>(~due::rings);
}

unsigned Rings::poll() {
    unsigned n = 0;
    ++round_;
    // Recovery waits for a look at everything (Rounds::looks), so all rings are polled then.
    const bool around = core_.alert || (round_ & core_.rounds.quiet_mask) == 0;
    // By index: callbacks may add rings. None is removed meanwhile.
    for (std::size_t i = 0; i < polled_.size(); ++i) {
        RingIn& ring = *polled_[i];
        if (ring.quiet >= kCold && !around && ring.state == State::open) continue;
        const unsigned found = core_.receiver.take_from_ring(ring);
        n += found;
        ring.quiet = found ? 0 : ring.quiet + (ring.quiet < kCold);
    }
    if (ended_) [[unlikely]]
        retire_ended();
    return n;
}

void Rings::look(Channel& channel) {
    if (channel.rings && channel.rings->in) (void)core_.receiver.take_from_ring(*channel.rings->in);
}

// UCP arms each interface that has no endpoints, and polls it as soon as there is one. That does not count as sleep,
// and such an interface has no rings.
bool Rings::may_sleep() {
    const Nanos now = core_.services.now();
    const bool sleeps = core_.directory.endpoints != 0;
    if (sleeps) awake_at_ = now + kAwake;
    if (!last_wish_ || now - last_wish_ >= kAwake || sleeps != slept_) first_wish_ = now;
    slept_ = sleeps;
    last_wish_ = now;
    for (std::size_t i = 0; i < polled_.size(); ++i) {
        Channel* const channel = polled_[i]->channel;
        if (!channel) continue;
        channel->rings->wanted = false, channel->rings->why = Reason::asleep;
        if (polled_[i]->state < State::leaving) take_back(*channel);
    }
    return polled_.empty() || now - first_wish_ >= kPatience;
}

bool Rings::asleep() const { return core_.services.now() < awake_at_ || (core_.aside & aside::slept) != 0; }

Nanos Rings::next_look() const { return polled_.empty() ? 0 : core_.services.now() + kAsleep; }

void Rings::garbled(Channel& channel) {
    ++garbled_;
    broken(core_, channel, "something into its ring that is no message", channel.expected);
}

// Wipes entries that were written without the key; they were never taken for messages. A message may have been
// overwritten by them, and the writer may do it again. So the peer gets another ring, with other keys.
void Rings::inspect(RingIn& ring) {
    Channel& channel = *ring.channel;
    std::uint32_t found = 0;
    for (std::uint32_t slot = 0; slot < ring.shape.slots; ++slot)
        found += link::wipe_foreign_entry(ring.memory, ring.shape, ring.key, slot, channel.expected);
    if (!found) return;
    foreign_ += found;
    core_.services.say(LogLevel::warn, "somebody else than %s has written into its ring: ignored, it gets another one",
                       connect::describe(channel.connection).c_str());
    if (ring.state >= State::leaving || !recoverable(core_, channel)) return;
    note_left(*channel.rings);
    take_back(channel);
}

void Rings::attend(Nanos now) {
    if (now < next_inspection_ || (polled_.empty() && retired_.empty())) return;
    next_inspection_ = now + kInspection;
    const Nanos rest = std::max(kQuarantine, 2 * core_.config.recovery.packet_lifetime);
    if (!retired_polled_) std::erase_if(retired_, [&](const auto& ring) { return now - ring->since >= rest; });
    for (RingIn* const ring : polled_)
        if (ring->channel) inspect(*ring);
}

// -- Sending side

void Rings::take_offer(Channel& channel, const connect::RingOffer& offer) {
    // may_have() is not asked: it is about the side that offers, and the size of our receives does not matter here.
    if (!recoverable(core_, channel)) return; // the peer repeats it
    RingOut& out = pair_of(channel).out;
    if (out.number && static_cast<std::int32_t>(offer.number - out.number) < 0) return;
    if (offer.number != out.number) {
        // Its keys are of another life of its devices than the one that we know. The peer's list of rails or another
        // offer will come.
        if (offer.shape.slots && offer.keys.lives != channel.remote_lives) return;
        stop(out.timer);
        leave(channel);
        out.number = offer.number;
        out.answers = out.told = 0;
        if (offer.shape.slots) {
            out.open = true;
            out.shape = offer.shape;
            out.key = offer.key;
            out.address = offer.address;
            std::copy_n(offer.keys.rkey, verbs::kMaxDevices, out.rkey);
            channel.gates |= gate::ring;
        } else {
            doubt(channel);
        }
    }
    const std::lock_guard lock(core_.services);
    core_.control->answer_ring(channel.connection, out.number, out.open, out.open ? 0 : out.until, out.answers++);
}

// The next message goes without the ring.
void Rings::leave(Channel& channel) {
    RingOut& out = channel.rings->out;
    if (!std::exchange(out.open, false)) {
        if (out.number == 0) out.until = channel.next_sequence;
        return;
    }
    channel.gates &= ~gate::ring;
    out.until = channel.next_sequence;
}

void Rings::path_failed(Channel& channel) {
    if (!channel.rings || !channel.rings->out.open) return;
    leave(channel);
    channel.rings->out.told = 0;
    tell_left(channel);
}

// Repeated until the peer's next number comes.
void Rings::tell_left(Channel& channel) {
    RingOut& out = channel.rings->out;
    stop(out.timer);
    {
        const std::lock_guard lock(core_.services);
        core_.control->answer_ring(channel.connection, out.number, false, out.until, out.answers++);
    }
    out.timer = core_.services.at(core_.services.now() + pause_after(out.told++), [this, &channel] {
        channel.rings->out.timer = 0;
        tell_left(channel);
    });
}

// -- The end

void Rings::forget(Channel& channel) {
    if (!channel.rings) return;
    RingPair& pair = *channel.rings;
    pair.wanted = false;
    if (pair.in) retire(channel);
    end_timers(pair);
    pair.out.open = false;
    channel.gates &= ~gate::ring;
}

void Rings::end() {
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot)
        if (RingPair* const pair = core_.directory.channels[slot]->rings.get()) end_timers(*pair);
}

void Rings::end_timers(RingPair& pair) {
    stop(pair.timer);
    stop(pair.out.timer);
    if (pair.out.doubt) stop(pair.out.doubt->timer);
}

void Rings::describe(RingStatistics& out) const {
    out = {.hits = hits, .misses = misses, .foreign = foreign_, .garbled = garbled_, .costs = {}};
    for (const auto& ring : retired_) out.bytes += ring->shape.bytes();
    out.prepared = store_.count();
    for (const RingIn* const ring : polled_) {
        if (!ring->channel) continue;
        ++out.rings;
        out.bytes += ring->shape.bytes();
    }
}

void Rings::describe(const Channel& channel, RingPairStatistics& out) {
    if (!channel.rings) return;
    const RingPair& pair = *channel.rings;
    out.out = pair.out.open;
    out.messages_out = pair.out.messages;
    out.by_lane = pair.out.messages - pair.out.aside;
    out.switches = pair.switches;
    out.left = pair.left;
    out.wanted = pair.wanted;
    out.why = name(pair.why);
    if (!pair.in) return;
    constexpr const char* kStates[] = {"offered", "open", "leaving", "ending"};
    out.in = kStates[static_cast<unsigned>(pair.in->state)];
    out.messages_in = pair.in->messages;
    out.bytes = pair.in->shape.bytes();
}

} // namespace ucx_mp::channel
