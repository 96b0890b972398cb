// Completion queues: what has been sent is settled, what has come is handed to receive.cc.
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

[[gnu::always_inline]] inline void Interface::Impl::handle_receive(Adapter& adapter, std::uint64_t id,
                                                                   ibv_wc_status status, std::uint32_t length,
                                                                   std::uint32_t qp_number) {
    auto* buffer = reinterpret_cast<ReceiveBuffer*>(id);
    if (status == IBV_WC_SUCCESS) [[likely]]
        receive(adapter, buffer, length, qp_number);
    else
        adapter.give_back(buffer); // flushed with its queue pair
}

[[gnu::always_inline]] inline void Interface::Impl::handle_send(Adapter& adapter, std::uint64_t id,
                                                                ibv_wc_status status, std::uint64_t ticks,
                                                                std::uint32_t vendor_error) {
    SendQueue& queue = *SendQueue::of(id);
    const std::uint16_t position = SendQueue::position_of(id);
    if (status != IBV_WC_SUCCESS) [[unlikely]]
        send_failed(queue, position, status, vendor_error);
    else if (queue.sole())
        reap_sole(queue, position);
    else
        reap(adapter, queue, position, ticks);
}

unsigned Interface::Impl::poll_receives(Adapter& adapter) {
    unsigned total = 0;
    while (total < config.poll_batch) {
        ibv_wc batch[kBatch];
        const unsigned n = fetch(adapter.cq.get(), batch);
        adapter.to_post += static_cast<std::int32_t>(n);
        at_work += n;
        for (unsigned i = 0; i < n; ++i)
            handle_receive(adapter, batch[i].wr_id, batch[i].status, batch[i].byte_len, batch[i].qp_num);
        if (adapter.to_post >= adapter.batch) adapter.refill(devices, layout);
        total += n;
        if (n < kBatch) break;
    }
    return total;
}

template <bool extended> unsigned Interface::Impl::poll_sends(Adapter& adapter) {
    unsigned total = 0;
    while (total < config.poll_batch) {
        std::conditional_t<extended, Completed, ibv_wc> batch[kBatch];
        const unsigned n = fetch(adapter.send_cq.get(), batch);
        at_work += n;
        for (unsigned i = 0; i < n; ++i) {
            if constexpr (extended)
                handle_send(adapter, batch[i].id, batch[i].status, batch[i].ticks, batch[i].vendor_error);
            else
                handle_send(adapter, batch[i].wr_id, batch[i].status, 0, batch[i].vendor_err);
        }
        total += n;
        if (n < kBatch) break;
    }
    return total;
}

unsigned Interface::Impl::poll(Adapter& adapter, bool all) {
    unsigned n = 0;
    if (adapter.peeked_count) [[unlikely]]
        n = handle_peeked(adapter);
    n += poll_receives(adapter);
    if (adapter.owed > 0 || all) n += adapter.extended ? poll_sends<true>(adapter) : poll_sends<false>(adapter);
    return n;
}

unsigned Interface::Impl::handle_peeked(Adapter& adapter) {
    const unsigned n = std::exchange(adapter.peeked_count, 0);
    for (unsigned i = 0; i < n; ++i) {
        const Peeked& c = adapter.peeked[i];
        if (SendQueue::is_send(c.sent.id))
            handle_send(adapter, c.sent.id, c.sent.status, c.sent.ticks, c.sent.vendor_error);
        else
            ++adapter.to_post, handle_receive(adapter, c.sent.id, c.sent.status, c.length, c.qp_number);
    }
    return n;
}

bool Interface::Impl::peek(Adapter& adapter) {
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
[[gnu::always_inline]] inline void Interface::Impl::reap_sole(SendQueue& queue, std::uint16_t position) {
    auto count = static_cast<std::uint16_t>(position - static_cast<std::uint16_t>(queue.tail)) + 1u;
    if (count > queue.records()) [[unlikely]]
        return; // of an earlier life of this queue pair
    do {
        const Posted& posted = queue.pop();
        tally(posted);
        settle(posted);
    } while (--count != 0);
}

// The same where the accounts of several paths are kept.
void Interface::Impl::reap(Adapter& adapter, SendQueue& queue, std::uint16_t position, std::uint64_t ticks) {
    const auto count = static_cast<std::uint16_t>(position - static_cast<std::uint16_t>(queue.tail)) + 1u;
    if (count > queue.records()) [[unlikely]]
        return; // of an earlier life of this queue pair
    const Posted last = queue.at(position);
    std::uint64_t settled = 0;
    for (unsigned i = 0; i < count; ++i) {
        const Posted posted = queue.pop();
        Channel& channel = *posted.channel;
        tally(posted);
        if (queue.dc) channel.subs[posted.path].open -= posted.requests;
        if (&channel == last.channel && posted.path == last.path && posted.read == last.read)
            settled += posted.bytes;
        else
            channel.scheduler->cancel(posted.path, posted.read ? Direction::read : Direction::write, posted.bytes);
        settle(posted);
    }
    Channel& channel = *last.channel;
    const Direction direction = last.read ? Direction::read : Direction::write;
    if (last.timed) {
        // Without timestamps the time of finding it must do (7.2.2: inexact when completions are found late).
        const Nanos done = adapter.timestamps ? adapter.clock.to_host(ticks) : services.now();
        const std::uint64_t bytes = last.work ? last.bytes : last.offset;
        channel.scheduler->observe({last.path, direction, bytes, settled, last.t_post, done});
    } else {
        channel.scheduler->cancel(last.path, direction, settled);
    }
    if (channel.pulled_count) pull(channel);
}

// -- Failures

namespace {
// The operation itself is at fault: it would fail on any path.
bool is_mistake(ibv_wc_status status) {
    switch (status) {
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR:
        return true;
    default:
        return false;
    }
}
Status status_of(ibv_wc_status status) {
    switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
        return Status::endpoint_timeout;
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR:
        return Status::connection_reset;
    case IBV_WC_WR_FLUSH_ERR:
        return Status::canceled;
    default:
        return Status::io_error;
    }
}
} // namespace

// The path is given up and what was posted there is lost (recover/); mistakes take their channel with them.
void Interface::Impl::send_failed(SendQueue& queue, std::uint16_t position, ibv_wc_status status,
                                  std::uint32_t vendor_error) {
    auto count = static_cast<std::uint16_t>(position - static_cast<std::uint16_t>(queue.tail)) + 1u;
    if (count > queue.records()) return;
    const Posted last = queue.at(queue.tail + count - 1);
    Channel& culprit = *last.channel;
    const bool first = !queue.failed();
    if (first) {
        queue.fail();
        if (!(culprit.gates & gate::failed))
            services.say(LogLevel::debug, "path %u to %016" PRIx64 ": %s (queue pair 0x%x, vendor error 0x%x)",
                         last.path, culprit.uid, ibv_wc_status_str(status), queue.qp->qp_num, vendor_error);
    }
    queue.close();
    drain(queue, culprit, last.path);
    if (is_mistake(status) || !recoverable(culprit))
        fail_channel(culprit, status_of(status));
    else if (first || !queue.dc)
        path_failed(culprit, last.path, ibv_wc_status_str(status), false);
    count = std::min(count, queue.records()); // an adapter that is gone: they have all been dropped
    for (unsigned i = 0; i < count; ++i) {
        const Posted posted = queue.pop();
        Channel& channel = *posted.channel;
        if (queue.dc) channel.subs[posted.path].open -= posted.requests;
        if (!channel.only)
            channel.scheduler->cancel(posted.path, posted.read ? Direction::read : Direction::write, posted.bytes);
        if (recoverable(channel)) {
            // Others on the initiator suffer for the culprit: their paths may be as good as ever.
            if (queue.dc) path_failed(channel, posted.path, "", true);
            lose(queue, posted);
            if (queue.dc) note_back(channel, posted.path);
            continue;
        }
        fail_channel(channel, status_of(status));
        if (posted.work && !ucx_mp::failed(posted.work->status)) posted.work->status = channel.error;
        settle(posted);
    }
    if (queue.dc && queue.idle()) restart_later(queue);
}

void Interface::Impl::fail_channel(Channel& channel, Status status) {
    if (channel.gates & gate::failed) return;
    channel.gates |= gate::failed;
    channel.set_live();
    channel.error = status;
    channel.failed_at = services.now();
    channel.failing = true;
    enlist(failures, &channel);
    bury(channel);
    abandon_recovery(channel, status);
    // Everything posted comes back flushed; not what has been executed without asking for a completion, therefore a
    // last request that does. A DC initiator is shared: others' requests on it must not suffer.
    if (config.transport == connect::Transport::dc) (void)push_out(channel);
    for (unsigned i = 0; i < channel.path_count; ++i)
        for (const auto& own : channel.subs[i].own)
            if (own) drain(*own, channel, static_cast<PathIndex>(i));
    // The buffers stay where they are: adapters may be reading them, see free_retained().
    for (std::uint32_t i = channel.acked; i != channel.next_sequence; ++i) {
        Work* const work = std::exchange(channel.retained[i & channel.window_mask]->work, nullptr);
        if (!work) continue;
        work->status = status;
        if (work->kind == WorkKind::atomic) --channel.atomics_pending;
        if (--work->open == 0) finish_work(*work);
    }
    end_read_backs(channel, status);
    for (Work* work : std::exchange(channel.atomics, {})) {
        work->status = status;
        if (--work->open == 0) finish_work(*work);
    }
    for (auto& list : channel.pulled) {
        while (Work* work = list.first) {
            list.first = work->next;
            --channel.pulled_count;
            work->status = status;
            if (--work->open == 0) finish_work(*work);
        }
        list.last = nullptr;
    }
    close_epochs(channel);
}

bool Interface::Impl::all_back(const Channel& channel) {
    for (unsigned i = 0; channel.subs && i < channel.places; ++i) {
        if (channel.subs[i].open != 0) return false;
        for (const auto& own : channel.subs[i].own)
            if (own && !own->idle()) return false;
    }
    return true;
}

// Of a failed channel, when nothing of it is posted any more.
void Interface::Impl::free_retained(Channel& channel) {
    for (; channel.acked != channel.next_sequence; ++channel.acked) {
        Buffer* const buffer = channel.retained[channel.acked & channel.window_mask];
        buffer->pool = &buffer->pool->home();
        buffer->pool->put(buffer);
    }
    for (PathIndex path = 0; channel.recovery && path < channel.recovery->paths.size(); ++path)
        end_detours(channel, path);
}

// Outside of everything else: the user may do anything in it. When everything has come back: users close their
// endpoints now, and UCX 1.13 fails an assertion of its own if a program closes its worker while a cancelling flush is
// under way.
void Interface::Impl::tell_failures() {
    constexpr Nanos kPatience = 1'000'000'000; // adapters flush at once; a dead one never does
    for (Channel* channel : std::exchange(failures, {})) {
        if (!all_back(*channel)) {
            if (services.now() - channel->failed_at >= kPatience)
                abandon(*channel);
            else if (config.transport == connect::Transport::dc)
                (void)push_out(*channel); // there may have been no room
        }
        const bool back = all_back(*channel);
        if (back) free_retained(*channel);
        const bool tell = channel->epochs_empty() || services.now() - channel->failed_at >= kPatience;
        channel->failing = !back || !tell;
        if (channel->failing)
            enlist(failures, channel);
        else if (channel->references == 0 || channel->renewing)
            list_ending(*channel);
        if (!tell || channel->error_told || channel->quiet || channel->references == 0) continue;
        channel->error_told = true;
        events.peer_failed(*channel, channel->error);
    }
}

} // namespace ucx_mp::channel
