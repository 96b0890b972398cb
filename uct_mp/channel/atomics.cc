// The target's processor executes atomics. So any operation of 32 or 64 bits is possible, and it is atomic against all
// adapters and threads of the target. Request and reply are sequenced messages: each happens exactly once, even if
// paths fail.
#include <cstring>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

namespace {

constexpr std::uint32_t kFetchTag = 1u << 31; // set in tags of requests that want a result

template <class T> T execute(AtomicOp op, T* target, T value, T compare) {
    switch (op) {
    case AtomicOp::add:
        return __atomic_fetch_add(target, value, __ATOMIC_SEQ_CST);
    case AtomicOp::bit_and:
        return __atomic_fetch_and(target, value, __ATOMIC_SEQ_CST);
    case AtomicOp::bit_or:
        return __atomic_fetch_or(target, value, __ATOMIC_SEQ_CST);
    case AtomicOp::bit_xor:
        return __atomic_fetch_xor(target, value, __ATOMIC_SEQ_CST);
    case AtomicOp::swap:
        return __atomic_exchange_n(target, value, __ATOMIC_SEQ_CST);
    case AtomicOp::compare_swap:
        break;
    }
    __atomic_compare_exchange_n(target, &compare, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return compare;
}

} // namespace

// UCX_MP_ATOMICS=adapter: the peer's home adapter executes all of them, since two adapters are not atomic against each
// other. The home adapter is device 0 of DeviceSet, the one of lowest GUID. All processes of a host that use the same
// adapters agree on it.
Status Atomics::adapter_atomic(Channel& channel, AtomicOp op, unsigned width, std::uint64_t value,
                               std::uint64_t compare, void* result, std::uint64_t remote,
                               const verbs::RemoteKeys& rkeys, Completion* completion, bool fetch) {
    if (width != 8 || (op != AtomicOp::add && op != AtomicOp::compare_swap)) return Status::unsupported;
    const verbs::RemoteKeys* present = &rkeys;
    if (channel.gates || rkeys.lives != channel.remote_lives) [[unlikely]] {
        if (const Status status = core_.mover.pass_gate_rdma(channel, present); status != Status::ok) return status;
    }
    for (const PathIndex path : schedule::each(channel.wiring.scheduler->paths().usable(Direction::read))) {
        Path& sub = channel.wiring.paths[path];
        if (sub.remote_device != 0 ||
            !core_.placement.path_has_room(channel, path, Direction::read, 1 + SendQueue::kReserve))
            continue;
        Buffer* bounce = core_.small.get();
        if (!bounce) return Status::no_resource;
        SendQueue& queue = *core_.placement.queue_for(channel, path, Direction::read);
        Work* work = core_.works.new_work(channel, WorkKind::adapter_atomic, completion);
        work->bounce = bounce;
        work->unpack_arg = result;
        work->open = 1;
        ++channel.moving.rdma_open;
        ++channel.moving.gets_open; // it reads, so what follows a fence has to wait for it
        channel.fences.put_paths |= PathMask{1} << path;
        channel.visible.unread |= PathMask{1} << path;
        sub.open += queue.dc;
        const Posted posted{.channel = &channel, .work = work, .path = path, .read = true};
        if (!queue.atomic(sub.dc, {bounce->address(), 8, bounce->lkey[sub.device]}, {remote, present->rkey[0]},
                          op == AtomicOp::add ? value : compare, op == AtomicOp::add ? nullptr : &value, posted)) {
            post_refused(core_, channel, queue, posted);
        }
        return fetch ? Status::in_progress : Status::ok;
    }
    return Status::no_resource;
}

[[gnu::always_inline]] inline Status Atomics::atomic(Channel& channel, AtomicOp op, unsigned width, std::uint64_t value,
                                                     std::uint64_t compare, void* result, std::uint64_t remote,
                                                     const verbs::RemoteKeys& rkeys, Completion* completion,
                                                     bool fetch) {
    if (core_.config.atomics == AtomicsMode::adapter)
        return adapter_atomic(channel, op, width, value, compare, result, remote, rkeys, completion, fetch);
    constexpr std::uint32_t size = kHeader + sizeof(AtomicRequest);
    Sender::Start start;
    if (const Status status = core_.sender.start_message(channel, core_.small, size, start); status != Status::ok)
        return status;
    Work* work = core_.works.new_work(channel, WorkKind::atomic, completion);
    work->open = fetch ? 2 : 1; // waits for the acknowledgment, and for the reply
    work->width = static_cast<std::uint8_t>(width);
    work->unpack_arg = result;
    work->tag = (++channel.moving.atomic_tag & ~kFetchTag) | (fetch ? kFetchTag : 0);
    AtomicRequest request{};
    request.op = static_cast<std::uint8_t>(op);
    request.width = static_cast<std::uint8_t>(width);
    request.fetch = fetch;
    request.region = rkeys.id;
    request.address = remote;
    request.value = value;
    request.compare = compare;
    request.tag = work->tag;
    std::memcpy(start.buffer->data() + kHeader, &request, sizeof request);
    start.buffer->work = work;
    if (fetch) channel.moving.atomics.push_back(work);
    ++channel.moving.atomics_pending;
    core_.sender.finish_message(channel, start, Kind::atomic, 0, size, fetch ? flag::ack_request : 0);
    channel.fences.atomics_sent = true;
    channel.fences.atomics_end = channel.next_sequence;
    return fetch ? Status::in_progress : Status::ok;
}

void Atomics::serve_atomic(Channel& channel, const AtomicRequest& request) {
    AtomicReply reply{0, request.tag, 1};
    const auto op = static_cast<AtomicOp>(request.op);
    const bool good = (request.width == 4 || request.width == 8) && request.op <= 5 &&
                      request.address % request.width == 0 &&
                      core_.keys.enter(request.region, request.address, request.width);
    if (good) {
        reply.status = 0;
        if (request.width == 8)
            reply.value =
                execute(op, reinterpret_cast<std::uint64_t*>(request.address), request.value, request.compare);
        else
            reply.value =
                execute(op, reinterpret_cast<std::uint32_t*>(request.address),
                        static_cast<std::uint32_t>(request.value), static_cast<std::uint32_t>(request.compare));
    }
    core_.keys.leave();
    if (!good) {
        core_.services.say(LogLevel::error,
                           "atomic operation %u of %u bytes at 0x%llx refused: not in registered memory", request.op,
                           request.width, static_cast<unsigned long long>(request.address));
    }
    if (!request.fetch && good) return;
    core_.enlist(replies, {&channel, reply});
    serve_replies();
}

// Replies keep their order per channel. A reply without room blocks only its own channel.
void Atomics::serve_replies() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < replies.size(); ++i) {
        Channel& channel = *replies[i].channel;
        bool sent = false, earlier = false;
        for (std::size_t k = 0; k < kept; ++k) earlier |= replies[k].channel == &channel;
        // gate::held concerns the user's operations only, and a reply must get through. gate::fence does not concern
        // it either: it carries a value that has been read already.
        if (channel.gates & gate::failed) continue;
        Sender::Start start;
        if (!earlier && !(channel.gates & (gate::not_ready | gate::recovering)) &&
            core_.sender.start_plain(channel, core_.small, kHeader + sizeof(AtomicReply), start) == Status::ok) {
            std::memcpy(start.buffer->data() + kHeader, &replies[i].reply, sizeof(AtomicReply));
            core_.sender.finish_message(channel, start, Kind::atomic_reply, 0, kHeader + sizeof(AtomicReply), 0);
            sent = true;
        }
        if (!sent) replies[kept++] = replies[i];
    }
    replies.resize(kept);
}

bool Atomics::take_reply(Channel& channel, const AtomicReply& reply) {
    for (std::size_t i = 0; i < channel.moving.atomics.size(); ++i) {
        Work* work = channel.moving.atomics[i];
        if (work->tag != reply.tag) continue;
        channel.moving.atomics.erase(channel.moving.atomics.begin() + static_cast<std::ptrdiff_t>(i));
        if (reply.status != 0) {
            work->status = Status::io_error;
        } else if (work->width == 8) {
            std::memcpy(work->unpack_arg, &reply.value, 8);
        } else {
            const auto value = static_cast<std::uint32_t>(reply.value);
            std::memcpy(work->unpack_arg, &value, 4);
        }
        if (--work->open == 0) core_.works.finish_work(*work);
        return true;
    }
    // A refused atomic without a result has no caller to tell. So the channel fails, as after a refusal by an adapter.
    if (reply.status == 0 || reply.tag & kFetchTag) return false; // the reply to a cancelled fetch
    core_.services.say(LogLevel::error, "%s has refused an atomic operation: not in memory that it offers (any more)",
                       connect::describe(channel.connection).c_str());
    mark_failed(core_, channel, Status::connection_reset);
    return true;
}

namespace {
// Entry, operation and exit in one function: so many arguments are not worth another frame.
template <bool marked> [[gnu::noinline]] Status atomic(Channel& channel, AtomicOp op, unsigned width,
                                                       std::uint64_t value, std::uint64_t compare, void* result,
                                                       std::uint64_t remote, const verbs::RemoteKeys& rkeys,
                                                       Completion* completion, bool fetch) {
    Core& core = *channel.core;
    if (enter<marked>(channel)) [[unlikely]]
        mp_turn_wait(&core.progress.beside.turn);
    return left<marked>(
        core, core.atomics.atomic(channel, op, width, value, compare, result, remote, rkeys, completion, fetch));
}
} // namespace

template <bool marked> Status Calls<marked>::atomic_post(Channel& channel, AtomicOp op, unsigned width,
                                                         std::uint64_t value, std::uint64_t remote,
                                                         const verbs::RemoteKeys& rkeys) {
    return atomic<marked>(channel, op, width, value, 0, nullptr, remote, rkeys, nullptr, false);
}

template <bool marked> Status Calls<marked>::atomic_fetch(Channel& channel, AtomicOp op, unsigned width,
                                                          std::uint64_t value, std::uint64_t compare, void* result,
                                                          std::uint64_t remote, const verbs::RemoteKeys& rkeys,
                                                          Completion* completion) {
    return atomic<marked>(channel, op, width, value, compare, result, remote, rkeys, completion, true);
}

template Status Calls<false>::atomic_post(Channel&, AtomicOp, unsigned, std::uint64_t, std::uint64_t,
                                          const verbs::RemoteKeys&);
template Status Calls<true>::atomic_post(Channel&, AtomicOp, unsigned, std::uint64_t, std::uint64_t,
                                         const verbs::RemoteKeys&);
template Status Calls<false>::atomic_fetch(Channel&, AtomicOp, unsigned, std::uint64_t, std::uint64_t, void*,
                                           std::uint64_t, const verbs::RemoteKeys&, Completion*);
template Status Calls<true>::atomic_fetch(Channel&, AtomicOp, unsigned, std::uint64_t, std::uint64_t, void*,
                                          std::uint64_t, const verbs::RemoteKeys&, Completion*);

} // namespace ucx_mp::channel
