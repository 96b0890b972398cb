// A program may close its interface as soon as it has what it waited for. Its peers may still wait for acknowledgments
// and replies. Without a word they would wait until the adapters, the watchdog or the time-out of a partition give up.
// So the interface sends first what it owes, then tells every peer (connect/goodbye.cc), and waits for both to arrive:
// not for long, since a peer may be dead or stopped. No handler and no completion of the program's is called any more.
// Slow path.
#include <algorithm>
#include <mutex>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

namespace {
constexpr Nanos kPatience = 100'000'000; // for everything
constexpr Nanos kForOwed = 20'000'000;   // of this: until the peers are told, at the latest
constexpr Nanos kRepeat = 2'000'000;     // first repetition of the goodbye, doubled
constexpr Nanos kPause = 20'000;

void forget_posted(SendQueue& queue, std::uint16_t position, ibv_wc_status status) {
    auto count = static_cast<std::uint16_t>(position - static_cast<std::uint16_t>(queue.tail)) + 1u;
    if (count > queue.records()) return;
    if (status != IBV_WC_SUCCESS) queue.fail();
    for (; count != 0; --count) {
        const Posted posted = queue.pop();
        if (queue.dc) posted.channel->wiring.paths[posted.path].open -= posted.requests;
    }
}
} // namespace

// Takes completions without any call to the program. Received messages are dropped: the goodbye tells their senders
// that they were not delivered.
unsigned Closing::poll_closing() {
    unsigned n = 0;
    for (unsigned i = 0; i < core_.adapter_count; ++i) {
        Adapter& adapter = core_.adapters[i];
        while (core_.completions.peek(adapter)) {
            const unsigned found = std::exchange(adapter.peeked_count, 0);
            n += found;
            for (unsigned k = 0; k < found; ++k) {
                const Completed& c = adapter.peeked[k].sent;
                if (link::request_id::is_send(c.id))
                    forget_posted(*link::request_id::queue_of(c.id), link::request_id::position_of(c.id), c.status);
                else
                    adapter.give_back(ReceiveBuffer::of(reinterpret_cast<ibv_recv_wr*>(c.id)));
            }
        }
    }
    return n + core_.control->poll();
}

void Closing::say_goodbye() {
    std::unique_lock lock(core_.services);
    core_.control->close();
    (void)core_.control->poll(); // takes requests and goodbyes that have come just now
    std::vector<Channel*> peers;
    bool under_way = false; // a handshake is given up: a peer that misses our answer repeats its message
    for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot) {
        Channel& channel = *core_.directory.channels[slot];
        const connect::State state = channel.connection.state;
        if (state == connect::State::requesting || state == connect::State::confirming ||
            state == connect::State::accepting) {
            core_.control->give_up(channel.connection);
            under_way = true;
        }
        const bool half = state == connect::State::confirming; // the peer may be connected already
        const bool renewing = channel.ending.renewing;         // both sides have agreed to park it just now
        if (channel.self || channel.ending.buried || ((channel.gates & gate::failed) && !renewing)) continue;
        // A parked peer may have endpoints to us, and would wait for an answer to its next request. A peer that has
        // connected while our program computed waits as well, though our side is not ready yet.
        if (channel.parked || renewing || half || state == connect::State::established) peers.push_back(&channel);
    }
    if (peers.empty() && !under_way) return;
    core_.works.pool.for_each([](Work& work) { // so that no completion of the program's is called
        work.completion = nullptr;
        work.status = Status::canceled;
    });
    const auto drop_those_who_know = [&] { // peers that have answered, or have said goodbye themselves
        std::unordered_set<const Channel*> leaving;
        for (const Mail& m : core_.mail.list)
            if (m.what == Mail::What::ended && !m.goodbye.idle) leaving.insert(m.channel);
        std::erase_if(peers, [&](const Channel* channel) {
            return channel->connection.parting.known || (channel->ending.leaving && !channel->ending.goodbye.idle) ||
                   leaving.contains(channel);
        });
    };
    const auto is_busy = [](const Channel* channel) {
        return std::ranges::any_of(std::span(channel->wiring.paths.get(), channel->wiring.path_count),
                                   [](const Path& sub) {
                                       const SendQueue* const queue = sub.queue[0];
                                       return queue && !queue->failed() && (queue->dc ? sub.open != 0 : !queue->idle());
                                   });
    };
    const auto say = [&](Channel& channel, unsigned attempt) { // false: the control plane has no room now
        return channel.connection.parting.known ||
               core_.control->say_closing(channel.connection, channel.expected, attempt);
    };
    drop_those_who_know();
    const Nanos begin = core_.services.now();
    // Sends what is owed: replies to executed atomics, and acknowledgments of delivered messages.
    core_.atomics.serve_replies();
    for (Channel* channel : peers) {
        if (channel->gates & (gate::failed | gate::not_ready)) continue;
        if (channel->expected != channel->ack_sent) (void)core_.acks.send_ack(*channel, Kind::ack);
        (void)core_.epochs.push_out(*channel);
    }
    Nanos next = 0, now = begin;
    bool told = false;
    std::vector<Channel*> round; // peers still to be told in this attempt: there may be no room for all at once
    const auto hears = [&] { return under_way && now - begin < kForOwed; };
    for (unsigned attempt = 0; (!peers.empty() || hears()) && now - begin < kPatience; now = core_.services.now()) {
        const bool any = poll_closing() != 0;
        const bool owed = std::ranges::any_of(peers, is_busy);
        if (told) drop_those_who_know();
        if (told && peers.empty() && !owed && !hears()) break;
        if ((!owed || now - begin >= kForOwed) && now >= next && round.empty()) {
            round.assign(peers.rbegin(), peers.rend());
            told = true;
            next = now + (kRepeat << std::min(attempt, 8u));
            ++attempt;
        }
        while (!round.empty() && say(*round.back(), attempt - 1)) round.pop_back();
        if (any) continue;
        lock.unlock();
        const bool passes = core_.services.wait(kPause);
        lock.lock();
        if (passes) continue;
        // Time does not pass here (a simulation): waiting is useless. Tell the peers, if that is still to be done.
        if (!told)
            for (Channel* channel : peers) (void)say(*channel, 0);
        break;
    }
    if (!peers.empty()) core_.services.say(LogLevel::debug, "%zu peers have not answered our goodbye", peers.size());
}

} // namespace ucx_mp::channel
