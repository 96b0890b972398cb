// Puts and gets: whole on one path, in stripes at once, or pulled in chunks as paths have room.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "uct_mp/channel/interface_impl.h"

namespace ucx_mp::channel {

Work* Interface::Impl::new_work(Channel& channel, WorkKind kind, Completion* completion) {
    Work* work = works.get();
    work->next = nullptr;
    work->channel = &channel;
    work->completion = completion;
    work->bounce = nullptr;
    work->kind = kind;
    work->epoch = channel.epoch;
    work->pieces = 0;
    work->status = Status::ok;
    ++channel.epoch_open[channel.epoch];
    return work;
}

// May call the user, who may call us.
void Interface::Impl::finish_work(Work& work) {
    Channel& channel = *work.channel;
    Completion* const completion = work.completion;
    const Status status = work.status;
    switch (work.kind) {
    case WorkKind::get_bcopy:
        if (!ucx_mp::failed(status))
            work.unpack(work.unpack_arg, work.bounce->data(), work.transfer.size);
        [[fallthrough]];
    case WorkKind::get: --channel.gets_open; --channel.rdma_open; break;
    case WorkKind::adapter_atomic:
        if (!ucx_mp::failed(status) && work.unpack_arg) std::memcpy(work.unpack_arg, work.bounce->data(), 8);
        --channel.gets_open;
        [[fallthrough]];
    case WorkKind::put: --channel.rdma_open; break;
    case WorkKind::message:
    case WorkKind::atomic:
    case WorkKind::flush: break;
    }
    if (work.bounce) pool_of(*work.bounce).put(work.bounce);
    const std::uint8_t epoch = work.epoch;
    works.put(&work);
    if (completion) complete(completion, status);
    epoch_done(channel, epoch);
}

Status Interface::Impl::pass_gate_rdma(Channel& channel) {
    if (channel.gates & (gate::not_ready | gate::held | gate::failed)) {
        const Status status = blocked(channel);
        if (status != Status::ok) return status;
    }
    return clear_drain(channel) ? Status::ok : Status::no_resource;
}

// Posts [offset, offset + length) of the work; the account has it already. False: the queue is full, or broken.
bool Interface::Impl::post_stripe(Channel& channel, Work& work, std::uint64_t offset, std::uint64_t length,
                                  PathIndex path) {
    const bool read = work.kind != WorkKind::put;
    SendQueue* queue = queue_for(channel, path, read ? Direction::read : Direction::write);
    if (!queue || !queue->room()) return false;
    Subchannel& sub = channel.subs[path];
    ibv_sge sge[kMaxIov];
    int count = 0;
    std::uint64_t skip = offset, left = length;
    for (unsigned i = 0; i < work.pieces && left; ++i) {
        const LocalPiece& piece = work.local[i];
        if (skip >= piece.length) {
            skip -= piece.length;
            continue;
        }
        const std::uint64_t take = std::min(piece.length - skip, left);
        sge[count++] = {piece.address + skip, static_cast<std::uint32_t>(take), piece.lkey[sub.device]};
        left -= take;
        skip = 0;
    }
    Posted posted{&channel, &work, offset, static_cast<std::uint32_t>(length), path, kNoEpoch, read, false, 0};
    if (channel.path_count > 1) {
        posted.timed = true;
        posted.t_post = services.now();
    }
    if (!read) {
        channel.put_paths |= PathMask{1} << path;
        ++sub.puts;
    }
    ++work.open;
    ++sub.open;
    ++sub.requests;
    sub.bytes[read] += length;
    const RemotePiece remote{work.remote + offset, work.keys.rkey[sub.remote_device]};
    const bool in_line = !read && count == 1 && length <= queue->inline_bytes;
    const bool good =
        in_line ? queue->write_inline(sub.dc, reinterpret_cast<void*>(sge[0].addr), static_cast<std::uint32_t>(length),
                                      remote, posted, IBV_SEND_SIGNALED)
                : queue->rdma(sub.dc, read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, sge, count, remote, posted,
                              IBV_SEND_SIGNALED);
    if (good) [[likely]] return true;
    work.status = Status::io_error;
    post_refused(channel, *queue, posted);
    return true; // accounted for: it fails with its channel
}

// `work` holds what is to be done; ok of a placed operation: in_progress. no_resource: the work has been given back.
Status Interface::Impl::rdma(Channel& channel, Work& work) {
    const bool read = work.kind != WorkKind::put;
    const Direction direction = read ? Direction::read : Direction::write;
    const std::uint64_t size = work.transfer.size;
    work.transfer.direction = direction;
    work.transfer.offset = 0;
    work.open = 1; // ours, until everything is placed
    ++channel.rdma_open;
    channel.gets_open += read;
    const auto give_up = [&] {
        --channel.rdma_open;
        channel.gets_open -= read;
        --channel.epoch_open[work.epoch];
        if (work.bounce) pool_of(*work.bounce).put(work.bounce);
        works.put(&work);
        return Status::no_resource;
    };
    const auto whole = [&]() -> Status {
        const PathIndex path = place(channel, direction, size);
        if (path == kNoPath) return give_up();
        work.transfer.offset = size;
        (void)post_stripe(channel, work, 0, size, path); // place() has seen the room
        if (--work.open == 0) finish_work(work);
        return Status::in_progress;
    };
    if (channel.path_count == 1) return whole();
    if (channel.pulled_count >= Channel::kMaxPulled) return give_up();
    const schedule::Message message{size, read ? schedule::MessageKind::get : schedule::MessageKind::put,
                                    schedule::TrafficHint::none, services.now()};
    switch (channel.scheduler->plan(message, plan)) {
    case schedule::Outcome::no_path: return give_up();
    case schedule::Outcome::stripes: {
        if (plan.count == 1 && !path_has_room(channel, plan.stripes[0].path, direction, 1 + SendQueue::kReserve)) {
            channel.scheduler->cancel(plan.stripes[0].path, direction, size);
            return whole();
        }
        unsigned i = 0;
        for (; i < plan.count; ++i) {
            const schedule::Stripe& stripe = plan.stripes[i];
            if (!post_stripe(channel, work, stripe.offset, stripe.length, stripe.path)) break;
        }
        if (i == plan.count) {
            work.transfer.offset = size;
            if (--work.open == 0) finish_work(work);
            return Status::in_progress;
        }
        // Full queues: the rest is pulled as they empty.
        work.transfer.offset = plan.stripes[i].offset;
        for (; i < plan.count; ++i) channel.scheduler->cancel(plan.stripes[i].path, direction, plan.stripes[i].length);
        if (work.transfer.offset == 0 && !any_path_has_room(channel)) return give_up();
        break;
    }
    case schedule::Outcome::pull:
        if (!any_path_has_room(channel)) return give_up();
        break;
    }
    if (channel.pulled_last) channel.pulled_last->next = &work;
    else channel.pulled_first = &work;
    channel.pulled_last = &work;
    ++channel.pulled_count;
    pull(channel);
    return Status::in_progress;
}

void Interface::Impl::pull(Channel& channel) {
    const Nanos now = services.now();
    while (Work* work = channel.pulled_first) {
        schedule::Transfer& transfer = work->transfer;
        schedule::Stripe chunk;
        while (transfer.remaining() && !(channel.gates & gate::failed)) {
            if (!channel.scheduler->next(transfer, now, chunk)) return; // windows are full: completions will come
            if (!post_stripe(channel, *work, chunk.offset, chunk.length, chunk.path)) {
                channel.scheduler->cancel(chunk.path, transfer.direction, chunk.length);
                transfer.offset = chunk.offset;
                // Others have filled a queue that we share: no completion of ours need ever come.
                if (!std::exchange(channel.pull_due, true)) pulls_due.push_back(&channel);
                return;
            }
        }
        channel.pulled_first = work->next;
        if (!channel.pulled_first) channel.pulled_last = nullptr;
        --channel.pulled_count;
        work->next = nullptr;
        if (--work->open == 0) finish_work(*work);
    }
}

void Interface::Impl::pull_due() {
    for (Channel* channel : std::exchange(pulls_due, {})) {
        channel->pull_due = false;
        pull(*channel);
    }
}

// -- The calls

namespace {
void set_pieces(Work& work, const Iov* iov, std::size_t count) {
    std::uint64_t size = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (!iov[i].length) continue;
        work.local[work.pieces++] = {reinterpret_cast<std::uint64_t>(iov[i].buffer), iov[i].length,
                                     iov[i].memory->lkey.data()};
        size += iov[i].length;
    }
    work.transfer.size = size;
}
} // namespace

Status Interface::put_short(Channel& channel, const void* buffer, unsigned length, std::uint64_t remote,
                            const verbs::RemoteKeys& rkeys) {
    Impl& m = *impl_;
    if (channel.gates) [[unlikely]] {
        if (const Status status = m.pass_gate_rdma(channel); status != Status::ok) return status;
    }
    if (length == 0) return Status::ok;
    Buffer* bounce = m.small.get();
    if (!bounce) return Status::no_resource;
    std::memcpy(bounce->data(), buffer, length);
    Work* work = m.new_work(channel, WorkKind::put, nullptr);
    work->bounce = bounce;
    work->local[work->pieces++] = {bounce->address(), length, bounce->lkey};
    work->transfer.size = length;
    work->remote = remote;
    work->keys = rkeys;
    const Status status = m.rdma(channel, *work);
    return status == Status::in_progress ? Status::ok : status;
}

ssize_t Interface::put_bcopy(Channel& channel, PackFn pack, void* arg, std::uint64_t remote,
                             const verbs::RemoteKeys& rkeys) {
    Impl& m = *impl_;
    if (channel.gates) [[unlikely]] {
        if (const Status status = m.pass_gate_rdma(channel); status != Status::ok) return static_cast<ssize_t>(status);
    }
    // Packing can't be taken back: everything that may fail comes before it.
    if (channel.pulled_count >= Channel::kMaxPulled || !m.any_path_has_room(channel))
        return static_cast<ssize_t>(Status::no_resource);
    Buffer* bounce = m.large.get();
    if (!bounce) return static_cast<ssize_t>(Status::no_resource);
    const std::size_t length = pack(bounce->data(), arg);
    if (length == 0) {
        m.large.put(bounce);
        return 0;
    }
    Work* work = m.new_work(channel, WorkKind::put, nullptr);
    work->bounce = bounce;
    work->local[work->pieces++] = {bounce->address(), length, bounce->lkey};
    work->transfer.size = length;
    work->remote = remote;
    work->keys = rkeys;
    const Status status = m.rdma(channel, *work);
    assert(status == Status::in_progress);
    return status == Status::in_progress ? static_cast<ssize_t>(length) : static_cast<ssize_t>(status);
}

Status Interface::put_zcopy(Channel& channel, const Iov* iov, std::size_t count, std::uint64_t remote,
                            const verbs::RemoteKeys& rkeys, Completion* completion) {
    Impl& m = *impl_;
    if (channel.gates) [[unlikely]] {
        if (const Status status = m.pass_gate_rdma(channel); status != Status::ok) return status;
    }
    if (total_length(iov, count) == 0) return Status::ok;
    Work* work = m.new_work(channel, WorkKind::put, completion);
    set_pieces(*work, iov, count);
    work->remote = remote;
    work->keys = rkeys;
    return m.rdma(channel, *work);
}

Status Interface::get_zcopy(Channel& channel, const Iov* iov, std::size_t count, std::uint64_t remote,
                            const verbs::RemoteKeys& rkeys, Completion* completion) {
    Impl& m = *impl_;
    if (channel.gates) [[unlikely]] {
        if (const Status status = m.pass_gate_rdma(channel); status != Status::ok) return status;
    }
    if (total_length(iov, count) == 0) return Status::ok;
    Work* work = m.new_work(channel, WorkKind::get, completion);
    set_pieces(*work, iov, count);
    work->remote = remote;
    work->keys = rkeys;
    return m.rdma(channel, *work);
}

Status Interface::get_bcopy(Channel& channel, UnpackFn unpack, void* arg, std::size_t length, std::uint64_t remote,
                            const verbs::RemoteKeys& rkeys, Completion* completion) {
    Impl& m = *impl_;
    if (channel.gates) [[unlikely]] {
        if (const Status status = m.pass_gate_rdma(channel); status != Status::ok) return status;
    }
    if (length == 0) return Status::ok;
    Buffer* bounce = m.large.get();
    if (!bounce) return Status::no_resource;
    Work* work = m.new_work(channel, WorkKind::get_bcopy, completion);
    work->bounce = bounce;
    work->local[work->pieces++] = {bounce->address(), length, bounce->lkey};
    work->transfer.size = length;
    work->remote = remote;
    work->keys = rkeys;
    work->unpack = unpack;
    work->unpack_arg = arg;
    return m.rdma(channel, *work);
}

} // namespace ucx_mp::channel
