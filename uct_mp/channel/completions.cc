// Completion queues: what has been sent is settled, what has come is handed to Receiver.
#include <algorithm>
#include <cinttypes>
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

namespace {

constexpr unsigned kBatch = Adapter::kFetch;

// Sends, from a queue with timestamps; what comes is copied out, see Completed.
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

} // namespace

[[gnu::always_inline]] inline void Completions::handle_receive(Core& core, Adapter& adapter, std::uint64_t id,
                                                               ibv_wc_status status, std::uint32_t length,
                                                               std::uint32_t qp_number) {
    auto* buffer = reinterpret_cast<ReceiveBuffer*>(id);
    if (status == IBV_WC_SUCCESS) [[likely]]
        Receiver::receive(core, adapter, buffer, length, qp_number);
    else
        adapter.give_back(buffer); // flushed with its queue pair
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

unsigned Completions::poll_receives(Adapter& adapter) {
    Core& core = core_; // once: callbacks in between
    unsigned total = 0;
    while (total < core.config.poll_batch) {
        ibv_wc batch[kBatch];
        const unsigned n = fetch(adapter.cq.get(), batch);
        adapter.to_post += static_cast<std::int32_t>(n);
        core.completions.at_work += n;
        for (unsigned i = 0; i < n; ++i)
            handle_receive(core, adapter, batch[i].wr_id, batch[i].status, batch[i].byte_len, batch[i].qp_num);
        if (adapter.to_post >= adapter.batch) adapter.refill(core.devices, core.layout);
        total += n;
        if (n < kBatch) break;
    }
    return total;
}

template <bool extended> unsigned Completions::poll_sends(Adapter& adapter) {
    Core& core = core_; // once: callbacks in between
    unsigned total = 0;
    while (total < core.config.poll_batch) {
        std::conditional_t<extended, Completed, ibv_wc> batch[kBatch];
        const unsigned n = fetch(adapter.send_cq.get(), batch);
        core.completions.at_work += n;
        for (unsigned i = 0; i < n; ++i) {
            if constexpr (extended)
                handle_send(core, adapter, batch[i].id, batch[i].status, batch[i].ticks, batch[i].vendor_error);
            else
                handle_send(core, adapter, batch[i].wr_id, batch[i].status, 0, batch[i].vendor_err);
        }
        total += n;
        if (n < kBatch) break;
    }
    return total;
}

unsigned Completions::poll(Adapter& adapter, bool all) {
    unsigned n = 0;
    if (adapter.peeked_count) [[unlikely]]
        n = handle_peeked(adapter);
    n += poll_receives(adapter);
    if (adapter.owed > 0 || all) n += adapter.extended ? poll_sends<true>(adapter) : poll_sends<false>(adapter);
    return n;
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

// The completion at `position` also covers the records before it. The queue pair of the only path to a peer: no
// account.
[[gnu::always_inline]] inline void Completions::reap_sole(Core& core, SendQueue& queue, std::uint16_t position) {
    auto count = static_cast<std::uint16_t>(position - static_cast<std::uint16_t>(queue.tail)) + 1u;
    if (count > queue.records()) [[unlikely]]
        return; // of an earlier life of this queue pair
    do {
        const Posted& posted = queue.pop();
        tally(posted);
        settle(core, posted);
    } while (--count != 0);
}

// The same where the accounts of several paths are kept.
void Completions::reap(Adapter& adapter, SendQueue& queue, std::uint16_t position, std::uint64_t ticks) {
    const auto count = static_cast<std::uint16_t>(position - static_cast<std::uint16_t>(queue.tail)) + 1u;
    if (count > queue.records()) [[unlikely]]
        return; // of an earlier life of this queue pair
    const Posted last = queue.at(position);
    std::uint64_t settled = 0;
    for (unsigned i = 0; i < count; ++i) {
        const Posted posted = queue.pop();
        Channel& channel = *posted.channel;
        tally(posted);
        if (queue.dc) channel.wiring.paths[posted.path].open -= posted.requests;
        if (&channel == last.channel && posted.path == last.path && posted.read == last.read)
            settled += posted.bytes;
        else
            channel.wiring.scheduler->cancel(posted.path, posted.read ? Direction::read : Direction::write,
                                             posted.bytes);
        settle(core_, posted);
    }
    Channel& channel = *last.channel;
    const Direction direction = last.read ? Direction::read : Direction::write;
    if (last.timed) {
        // Without timestamps the time of finding it must do (7.2.2: inexact when completions are found late).
        const Nanos done = adapter.timestamps ? adapter.clock.to_host(ticks) : core_.services.now();
        const std::uint64_t bytes = last.work ? last.bytes : last.offset;
        channel.wiring.scheduler->observe({.path = last.path,
                                           .direction = direction,
                                           .bytes = bytes,
                                           .settled = settled,
                                           .t_post = last.t_post,
                                           .t_done = done});
    } else {
        channel.wiring.scheduler->cancel(last.path, direction, settled);
    }
    if (channel.moving.pulled_count) core_.mover.pull(channel);
}

} // namespace ucx_mp::channel
