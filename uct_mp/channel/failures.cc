#include "uct_mp/channel/failures.h"

#include <algorithm>
#include <cinttypes>
#include <mutex>
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

namespace {
// True: the operation itself is at fault, so it would fail on any path.
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
// True: the peer has acknowledged this zcopy message, so only the adapter's completion is missing. A peer that closes
// behind our last message acknowledges it by its goodbye, which may be faster (PROTOCOL.md R121).
bool is_delivered(const Work& work) { return work.kind == WorkKind::message && work.open == 1; }
} // namespace

// The path is given up, and what was posted there is lost (recover/). After a mistake the whole channel fails.
void Failures::send_failed(SendQueue& queue, std::uint16_t position, ibv_wc_status status, std::uint32_t vendor_error) {
    auto count = static_cast<std::uint16_t>(position - static_cast<std::uint16_t>(queue.tail)) + 1u;
    if (count > queue.records()) return;
    const Posted last = queue.at(queue.tail + count - 1);
    Channel& culprit = *last.channel;
    const bool first = !queue.failed();
    if (first) {
        queue.fail();
        if (!(culprit.gates & gate::failed))
            core_.services.say(LogLevel::debug, "path %u to %016" PRIx64 ": %s (queue pair 0x%x, vendor error 0x%x)",
                               last.path, culprit.uid, ibv_wc_status_str(status), queue.qp->qp_num, vendor_error);
    }
    queue.close();
    core_.observer->faults.drain(queue, culprit, last.path);
    // A message written into a ring needs the peer's key. If that has become void, the user has made no mistake.
    const bool ring = status == IBV_WC_REM_ACCESS_ERR && !last.work && culprit.rings;
    if ((is_mistake(status) && !ring) || !recoverable(core_, culprit))
        mark_failed(core_, culprit, status_of(status));
    else if (first || !queue.dc)
        core_.observer->faults.path_failed(culprit, last.path, ibv_wc_status_str(status), false);
    count = std::min(count, queue.records()); // the calls above drop all records if the adapter is gone
    for (unsigned i = 0; i < count; ++i) {
        const Posted posted = queue.pop();
        Channel& channel = *posted.channel;
        if (queue.dc) channel.wiring.paths[posted.path].open -= posted.requests;
        if (!channel.wiring.only)
            channel.wiring.scheduler->cancel(posted.path, posted.read ? Direction::read : Direction::write,
                                             posted.bytes);
        if (recoverable(core_, channel)) {
            // Requests of other channels on the initiator come back too, though their paths may be all right.
            core_.observer->faults.lost(queue, posted);
            continue;
        }
        mark_failed(core_, channel, status_of(status));
        if (posted.work && !ucx_mp::failed(posted.work->status) && !is_delivered(*posted.work))
            posted.work->status = channel.error;
        Works::settle(core_, posted);
    }
    if (queue.dc && queue.idle()) core_.observer->faults.restart_later(queue);
}

void mark_failed(Core& core, Channel& channel, Status status) {
    if (channel.gates & gate::failed) return;
    channel.gates |= gate::failed;
    channel.set_live();
    channel.error = status;
    channel.ending.failing = true;
    core.enlist(core.lists.failed, &channel);
    ++core.recovery_steps; // the caller of progress() shall call again
    // From here on it is not the peer's channel any more: an endpoint that is made now gets a successor, and no
    // handshake completes here.
    const std::lock_guard lock(core.services);
    channel.ending.buried = !channel.ending.renewing;
    const connect::State state = channel.connection.state;
    if (state == connect::State::requesting || state == connect::State::confirming ||
        state == connect::State::accepting || channel.ending.renewing)
        core.control->forget(channel.connection);
}

void broken(Core& core, Channel& channel, const char* what, std::uint64_t detail) {
    core.services.say(LogLevel::error, "%s has sent %s (%llu): its channel ends",
                      connect::describe(channel.connection).c_str(), what, static_cast<unsigned long long>(detail));
    mark_failed(core, channel, Status::connection_reset);
}

// A channel may have ended quietly. Its user has just tried to use it, so now he is told.
Status refusal(Core& core, Channel& channel) {
    if (channel.ending.renewing) return Status::no_resource;
    if (std::exchange(channel.ending.quiet, false))
        enlist_once(core, core.lists.told_later, channel, channel.ending.failing);
    return channel.error;
}

// The provider refuses although there was room: the queue pair has failed, and no completion may tell that.
void post_refused(Core& core, Channel& channel, SendQueue& queue, const Posted& posted) {
    core.services.say(LogLevel::error, "posting to queue pair 0x%x failed", queue.qp->qp_num);
    if (!channel.wiring.only)
        channel.wiring.scheduler->cancel(posted.path, posted.read ? Direction::read : Direction::write, posted.bytes);
    channel.wiring.paths[posted.path].open -= queue.dc;
    queue.close();
    if (recoverable(core, channel)) return core.observer->faults.refused(queue, posted);
    if (posted.work) posted.work->status = Status::io_error;
    Works::settle(core, posted);
    core.observer->faults.drain(queue, channel, posted.path);
    mark_failed(core, channel, Status::io_error);
}

void Failures::end_failed() {
    for (std::vector<Channel*> failed = core_.lists.failed; Channel * channel : failed) end(*channel);
}

void Failures::end(Channel& channel) {
    if (std::erase(core_.lists.failed, &channel) == 0) return; // by a callback, meanwhile
    const Status status = channel.error;
    channel.ending.failed_at = core_.services.now();
    drop_what_comes(channel);
    core_.observer->life.ended(channel, status);
    core_.rings.forget(channel);
    // Queue pairs of our own are drained: everything posted there comes back flushed. A DC initiator is shared, and
    // other channels' requests on it must not suffer. So there an empty write asks for the missing completions.
    if (channel.wiring.has_dc) (void)core_.epochs.push_out(channel);
    for (unsigned i = 0; i < channel.wiring.path_count; ++i)
        for (const auto& own : channel.wiring.paths[i].own)
            if (own) core_.observer->faults.drain(*own, channel, static_cast<PathIndex>(i));
    // The buffers stay retained, since adapters may still read them, see free_retained().
    for (std::uint32_t i = channel.acked; i != channel.next_sequence; ++i) {
        Work* const work = std::exchange(channel.wiring.retained[i & channel.window_mask]->work, nullptr);
        if (!work) continue;
        work->status = status;
        if (work->kind == WorkKind::atomic) --channel.moving.atomics_pending;
        if (--work->open == 0) core_.works.finish_work(*work);
    }
    core_.visibility.end_read_backs(channel, status);
    for (Work* work : std::exchange(channel.moving.atomics, {})) {
        work->status = status;
        if (--work->open == 0) core_.works.finish_work(*work);
    }
    for (auto& list : channel.moving.pulled) {
        while (Work* work = list.first) {
            list.first = work->next;
            --channel.moving.pulled_count;
            work->status = status;
            if (--work->open == 0) core_.works.finish_work(*work);
        }
        list.last = nullptr;
    }
    core_.works.close_epochs(channel);
    // Last: a user's completion may call progress, and tell_failures() frees what has been walked here.
    core_.enlist(core_.lists.told_later, &channel);
}

// Drops early messages, and buffers that were prepared for more.
void Failures::drop_what_comes(Channel& channel) {
    const std::lock_guard lock(core_.services);
    core_.ends.drop_prepared(channel);
    if (channel.early) {
        for (std::uint32_t i = 0; i < core_.ring; ++i)
            if (ReceiveBuffer* const buffer = std::exchange(channel.early[i], nullptr))
                core_.receiver.drop_early(buffer);
        channel.early_count = 0;
        channel.set_live();
    }
    channel.drop_joined();
}

bool Failures::all_back(const Channel& channel) {
    for (unsigned i = 0; channel.wiring.paths && i < channel.wiring.places; ++i) {
        if (channel.wiring.paths[i].open != 0) return false;
        for (const auto& own : channel.wiring.paths[i].own)
            if (own && !own->idle()) return false;
    }
    return true;
}

// For a failed channel of which nothing is posted any more, so that no adapter reads these buffers.
void Failures::free_retained(Channel& channel) {
    for (; channel.acked != channel.next_sequence; ++channel.acked) {
        Buffer* const buffer = channel.wiring.retained[channel.acked & channel.window_mask];
        buffer->pool = &buffer->pool->home();
        buffer->pool->put(buffer);
    }
    core_.observer->faults.free_detours(channel);
}

// Progress calls it outside of everything else, since the user may do anything in Events::peer_failed. It waits until
// everything has come back, for kPatience at most. Users close their endpoints then, and UCX 1.13 fails an assertion of
// its own if a program closes its worker while a cancelling flush is under way.
void Failures::tell_failures() {
    constexpr Nanos kPatience = 1'000'000'000; // adapters flush at once; a dead one never does
    for (Channel* channel : std::exchange(core_.lists.told_later, {})) {
        if (!all_back(*channel)) {
            if (core_.services.now() - channel->ending.failed_at >= kPatience)
                core_.observer->faults.abandon(*channel);
            else if (channel->wiring.has_dc)
                (void)core_.epochs.push_out(*channel); // again: there may have been no room before
        }
        const bool back = all_back(*channel);
        if (back) free_retained(*channel);
        const bool tell = channel->epochs_empty() || core_.services.now() - channel->ending.failed_at >= kPatience;
        channel->ending.failing = !back || !tell;
        if (channel->ending.failing)
            core_.enlist(core_.lists.told_later, channel);
        else if (channel->usage.endpoints == 0 || channel->ending.renewing)
            core_.directory.list_ending(*channel);
        if (!tell || channel->ending.error_told || channel->ending.quiet || channel->usage.endpoints == 0) continue;
        channel->ending.error_told = true;
        core_.events.peer_failed(*channel, channel->error);
    }
}

} // namespace ucx_mp::channel
