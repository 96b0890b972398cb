// Completion queues: sends are settled, received messages go to Receiver.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

namespace {

constexpr unsigned kBatch = Adapter::kFetch;

// Takes sends from a queue with timestamps. The entries are copied out first, see Completed.
[[gnu::always_inline]] inline unsigned fetch(ibv_cq* queue, Completed* out) {
    auto* cq = reinterpret_cast<ibv_cq_ex*>(queue);
    ibv_poll_cq_attr attr{};
    if (ibv_start_poll(cq, &attr) != 0) return 0;
    unsigned n = 0;
    do {
        Completed& c = out[n++];
        c.id = cq->wr_id;
        c.status = cq->status;
        if (c.status == IBV_WC_SUCCESS) [[likely]]
            c.ticks = ibv_wc_read_completion_ts(cq);
        else
            c.vendor_error = ibv_wc_read_vendor_err(cq);
    } while (n < kBatch && ibv_next_poll(cq) == 0);
    ibv_end_poll(cq);
    return n;
}

[[gnu::always_inline]] inline unsigned fetch(ibv_cq* queue, ibv_wc* out) {
    const int n = ibv_poll_cq(queue, kBatch, out);
    return n > 0 ? static_cast<unsigned>(n) : 0;
}

// The length of the whole write or read that these bytes are a piece of. 0: it was not cut.
[[nodiscard]] inline std::uint64_t length_if_cut(const Work& work, std::uint64_t bytes) {
    return work.kind <= WorkKind::get_bcopy && bytes < work.transfer.size ? work.transfer.size : 0;
}

} // namespace

[[gnu::always_inline]] inline void Completions::handle_receive(Core& core, Adapter& adapter, std::uint64_t id,
                                                               ibv_wc_status status, std::uint32_t length,
                                                               std::uint32_t qp_number) {
    auto* buffer = reinterpret_cast<ReceiveBuffer*>(id);
    if (status == IBV_WC_SUCCESS) [[likely]]
        Receiver::receive(core, adapter, buffer, length, qp_number);
    else
        adapter.give_back(buffer); // it was flushed with its queue pair
}

[[gnu::always_inline]] inline void Completions::handle_send(Core& core, Adapter& adapter, std::uint64_t id,
                                                            ibv_wc_status status, std::uint64_t ticks,
                                                            std::uint32_t vendor_error) {
    SendQueue& queue = *link::request_id::queue_of(id);
    const std::uint16_t position = link::request_id::position_of(id);
    if (status != IBV_WC_SUCCESS) [[unlikely]]
        core.failures.send_failed(queue, position, status, vendor_error);
    else if (queue.sole)
        reap_sole(core, queue, position);
    else
        core.completions.reap(adapter, queue, position, ticks);
}

// Completions that peek() kept are older than those in `batch`, so they go first.
unsigned Completions::take_receives(Adapter& adapter, ibv_wc* batch, unsigned n) {
    Core& core = core_; // else it would be loaded again after each callback
    const unsigned peeked = adapter.peeked_count ? handle_peeked(adapter) : 0;
    for (unsigned total = 0;;) {
        adapter.to_post += static_cast<std::int32_t>(n);
        for (unsigned i = 0; i < n; ++i)
            handle_receive(core, adapter, batch[i].wr_id, batch[i].status, batch[i].byte_len, batch[i].qp_num);
        if (adapter.to_post >= adapter.batch) adapter.refill(core.devices, core.layout);
        total += n;
        if (n < kBatch || total >= core.config.poll_batch) return peeked + total;
        n = fetch(adapter.cq.get(), batch);
    }
}

template <class Entry> unsigned Completions::take_sends(Adapter& adapter, Entry* batch, unsigned n) {
    Core& core = core_; // else it would be loaded again after each callback
    for (unsigned total = 0;;) {
        for (unsigned i = 0; i < n; ++i) {
            if constexpr (std::is_same_v<Entry, Completed>)
                handle_send(core, adapter, batch[i].id, batch[i].status, batch[i].ticks, batch[i].vendor_error);
            else
                handle_send(core, adapter, batch[i].wr_id, batch[i].status, 0, batch[i].vendor_err);
        }
        total += n;
        if (n < kBatch || total >= core.config.poll_batch) return total;
        n = fetch(adapter.send_cq.get(), batch);
        if (n == 0) return total;
    }
}

unsigned Completions::poll_timed_sends(Adapter& adapter) {
    Completed batch[kBatch];
    const unsigned n = fetch(adapter.send_cq.get(), batch);
    return n ? take_sends(adapter, batch, n) : 0;
}

// Nearly every call finds nothing, or only sends or only receives. So functions of their own handle what is found.
unsigned Completions::poll(Adapter& adapter, bool all) {
    ibv_wc batch[kBatch];
    unsigned n = fetch(adapter.cq.get(), batch);
    // Receives may be left to post: an earlier refill may have been refused.
    if (n || adapter.peeked_count || adapter.to_post >= adapter.batch) n = take_receives(adapter, batch, n);
    if (adapter.owed <= 0 && !all) return n;
    if (adapter.extended) return n + poll_timed_sends(adapter);
    const unsigned sent = fetch(adapter.send_cq.get(), batch);
    return sent ? n + take_sends(adapter, batch, sent) : n;
}

unsigned Completions::handle_peeked(Adapter& adapter) {
    const unsigned n = std::exchange(adapter.peeked_count, 0);
    for (unsigned i = 0; i < n; ++i) {
        const Peeked& c = adapter.peeked[i];
        if (link::request_id::is_send(c.sent.id))
            handle_send(core_, adapter, c.sent.id, c.sent.status, c.sent.ticks, c.sent.vendor_error);
        else
            ++adapter.to_post, handle_receive(core_, adapter, c.sent.id, c.sent.status, c.length, c.qp_number);
    }
    return n;
}

bool Completions::peek(Adapter& adapter) {
    if (adapter.peeked_count) return true;
    ibv_wc wc[kBatch];
    const auto keep = [&](unsigned n) {
        for (unsigned i = 0; i < n; ++i)
            adapter.peeked[adapter.peeked_count++] = {
                {wc[i].wr_id, 0, wc[i].vendor_err, wc[i].status}, wc[i].byte_len, wc[i].qp_num};
    };
    keep(fetch(adapter.cq.get(), wc));
    if (adapter.extended) {
        Completed sent[kBatch];
        const unsigned n = fetch(adapter.send_cq.get(), sent);
        for (unsigned i = 0; i < n; ++i) adapter.peeked[adapter.peeked_count++] = {sent[i], 0, 0};
    } else {
        keep(fetch(adapter.send_cq.get(), wc));
    }
    return adapter.peeked_count != 0;
}

// Reaps the record at `position` and all before it, which its completion covers too. For the queue pair of an only
// path, which has no account.
[[gnu::always_inline]] inline void Completions::reap_sole(Core& core, SendQueue& queue, std::uint16_t position) {
    auto count = static_cast<std::uint16_t>(position - static_cast<std::uint16_t>(queue.tail)) + 1u;
    if (count > queue.records()) [[unlikely]]
        return; // the completion is of an earlier life of this queue pair
    do {
        const Posted& posted = queue.pop();
        tally(posted, posted.channel->wiring.paths[0]);
        Works::settle(core, posted);
    } while (--count != 0);
}

// Like reap_sole(), where paths have accounts, which the scheduler learns from.
void Completions::reap(Adapter& adapter, SendQueue& queue, std::uint16_t position, std::uint64_t ticks) {
    const auto count = static_cast<std::uint16_t>(position - static_cast<std::uint16_t>(queue.tail)) + 1u;
    if (count > queue.records()) [[unlikely]]
        return; // the completion is of an earlier life of this queue pair
    // `last` stays valid: there is one record more than the queue pair has requests, so requests that the user posts
    // meanwhile don't overwrite it.
    const Posted& last = queue.at(position);
    const std::uint64_t whole = last.work ? length_if_cut(*last.work, last.bytes) : 0;
    std::uint64_t settled = 0;
    for (unsigned i = 0; i < count; ++i) {
        const Posted& posted = queue.pop();
        Channel& channel = *posted.channel;
        tally(posted, channel.wiring.paths[posted.path]);
        if (queue.dc) channel.wiring.paths[posted.path].open -= posted.requests;
        if (&channel == last.channel && posted.path == last.path && posted.read == last.read) {
            settled += posted.bytes;
        } else {
            channel.wiring.scheduler->cancel(posted.path, posted.read ? Direction::read : Direction::write,
                                             posted.bytes);
            // A channel that shares the initiator may have no other completion coming that would pull its works.
            if (channel.moving.pulled_count) enlist_once(core_, core_.lists.pulls, channel, channel.moving.pull_due);
        }
        Works::settle(core_, posted);
    }
    Channel& channel = *last.channel;
    const Direction direction = last.read ? Direction::read : Direction::write;
    if (last.timed) {
        // Without timestamps, the time at which it is found is taken (7.2.2: inexact if that is late).
        const Nanos done = adapter.timestamps ? adapter.clock.to_host(ticks) : core_.services.now();
        // DcTurns reads this time in the record's t_post, before another request takes the record.
        const Nanos t_post = std::exchange(queue.at(position).t_post, done);
        const std::uint64_t bytes = last.work ? last.bytes : last.offset;
        channel.wiring.scheduler->observe({.path = last.path,
                                           .direction = direction,
                                           .bytes = bytes,
                                           .settled = settled,
                                           .t_post = t_post,
                                           .t_done = done,
                                           .whole = whole});
    } else {
        channel.wiring.scheduler->settle_quietly(last.path, direction, settled);
    }
    if (channel.moving.pulled_count) core_.mover.pull(channel);
}

} // namespace ucx_mp::channel
