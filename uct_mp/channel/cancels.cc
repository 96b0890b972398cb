// UCT_FLUSH_FLAG_CANCEL where several endpoints share a channel: one endpoint's operations end, and the others notice
// nothing. (An endpoint that has the channel for itself ends the whole channel: Interface::invalidate.)
//
// Operations that name the caller's memory must end: reads, zcopy writes and messages, results of atomics. So must the
// endpoint's flushes. Copied messages and writes go on: their sequence numbers cannot be taken back, no caller waits
// for them, and UCT allows it. A timer does the following until nothing is left:
// - Unposted operations are dropped, and so are those lost with a path.
// - A zcopy message that the peer has not acknowledged may have to be sent again. So a copy takes its place.
// - An atomic's result that has not come yet is dropped when it comes.
// - A posted request belongs to the adapter until it completes, which takes microseconds with a live peer. After kGrace
//   the paths that hold it are given up. Their queue pairs end and return everything, and recovery sends the other
//   endpoints' requests again, once (uct_mp/PROTOCOL.md). Without recovery (UCX_MP_RECOVERY=n) that would harm the
//   other endpoints, so the request ends by itself, or when the adapter gives up.
//
// Whose a work is: those of the channel's first endpoint carry the caller's completion, those of another one a Tag in
// its place. An endpoint that shares nothing pays nothing for it.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "uct_mp/channel/data_path.h"

namespace ucx_mp::channel {

namespace {

constexpr Nanos kGrace = 20'000'000;                         // so long posted requests may take to complete
constexpr Nanos kFirstLook = 100'000, kMaxLook = 10'000'000; // pause between two looks, doubled each time

Tag* tag_of(Completion* completion) {
    completion = Beside::original(completion);
    return completion && completion->callback == Tag::fired ? static_cast<Tag*>(completion) : nullptr;
}
Tag* tag_of(const Work& work) { return tag_of(work.completion); }

// The number of the user whose completion this is.
std::uint32_t origin_of(Completion* completion) {
    const Tag* const tag = tag_of(completion);
    return !tag ? 0 : tag->cancel ? tag->cancel->number : tag->origin;
}

// True: the operation uses the caller's memory until it ends.
bool names_memory(const Work& work) {
    switch (work.kind) {
    case WorkKind::put:
        return !work.bounce;
    case WorkKind::get:
    case WorkKind::get_bcopy:
    case WorkKind::message:
        return true;
    case WorkKind::adapter_atomic:
    case WorkKind::atomic:
        return work.unpack_arg != nullptr;
    case WorkKind::flush:
        return work.completion != nullptr;
    default:
        return false;
    }
}

// The cancelled work that this one is, or is a part of. Null: it is not being cancelled.
Work* part_of(Work* work, const Cancel& cancel) {
    if (work && (work->kind == WorkKind::replayed_put || work->kind == WorkKind::replayed_get ||
                 work->kind == WorkKind::replayed_message))
        work = static_cast<Work*>(work->unpack_arg);
    const Tag* const tag = work ? tag_of(*work) : nullptr;
    return tag && tag->cancel == &cancel ? work : nullptr;
}

} // namespace

void Tag::fired(Completion* self) {
    Tag& tag = *static_cast<Tag*>(self);
    Completion* const user = tag.user;
    const Status status = tag.status;
    Cancel* const cancel = tag.cancel;
    Cancels& owner = *tag.owner;
    owner.untag(self);
    if (cancel && --cancel->left == 0) cancel->over = true;
    complete(user, status);
    if (cancel && cancel->over) owner.announce(*cancel);
}

Completion* Cancels::tag(Completion* user, std::uint32_t origin) {
    if (!free_tags) {
        free_tags = tags.emplace_back(std::make_unique<Tag>()).get();
        free_tags->callback = Tag::fired;
        free_tags->owner = this;
        free_tags->next = nullptr;
    }
    Tag* const made = std::exchange(free_tags, free_tags->next);
    made->count = 1;
    made->status = Status::ok;
    made->user = user;
    made->origin = origin;
    made->cancel = nullptr;
    return made;
}

void Cancels::untag(Completion* completion) {
    Tag* const tag = static_cast<Tag*>(completion);
    tag->next = std::exchange(free_tags, tag);
}

Status Cancels::join(std::uint32_t number, Completion* completion) {
    for (const auto& cancel : list) {
        if (cancel->number != number || cancel->announced) continue;
        if (completion) cancel->completions.push_back(completion);
        return Status::in_progress;
    }
    return Status::ok;
}

void Cancels::end_flushes(const Channel& channel, std::uint32_t origin) {
    const Channel* flushed = origin & kGone ? nullptr : &channel; // such a number has left its channel
    std::vector<Completion*> waiting;
    for (const auto& [of, completion] : core_.progress.beside.kept_flushes())
        if (completion && origin_of(completion) == origin && (!flushed || of == flushed))
            waiting.push_back(std::exchange(completion, nullptr));
    if (const auto cancel = std::ranges::find(list, origin, [](const auto& c) { return c->number; });
        cancel != list.end()) {
        flushed = (*cancel)->channel;
        const std::vector<Completion*> its = std::exchange((*cancel)->completions, {});
        waiting.insert(waiting.end(), its.begin(), its.end());
    }
    for (unsigned epoch = 0; flushed && epoch < kEpochs; ++epoch)
        for (Work* work = flushed->moving.flushes[epoch]; work; work = work->next) {
            if (origin_of(work->completion) != origin) continue;
            Tag* const tag = tag_of(*work); // the work stays until its epoch ends, without a completion
            waiting.push_back(std::exchange(tag ? tag->user : work->completion, nullptr));
        }
    for (Completion* const completion : waiting) complete(completion, Status::canceled); // the user may do anything
}

Status Cancels::cancel(Channel& channel, std::uint32_t& user, Completion* completion) {
    if (user & kGone) return join(user, completion);
    const std::uint32_t origin = std::exchange(user, kGone | ++gone);
    for (const auto& [of, kept] : core_.progress.beside.kept_flushes()) {
        if (!kept || of != &channel || origin_of(kept) != origin) continue;
        if (Tag* const mark = tag_of(kept))
            mark->origin = user;
        else
            kept = tag(kept, user);
    }
    auto made = std::make_unique<Cancel>();
    made->channel = &channel;
    made->number = user;
    core_.works.pool.for_each([&](Work& work) {
        if (work.channel != &channel || !names_memory(work)) return;
        Tag* mark = tag_of(work);
        if ((mark ? mark->origin : 0) != origin || (mark && mark->cancel))
            return; // a work that has a Cancel is an earlier user's, who may have had the same number
        if (!mark) {
            // Inside a stand-in, so that a turn keeps what the last work's end calls.
            Completion*& his = Beside::users(work.completion);
            his = mark = static_cast<Tag*>(tag(his, origin));
        }
        mark->cancel = made.get();
        if (!ucx_mp::failed(work.status)) work.status = Status::canceled;
        ++made->left;
    });
    if (made->left == 0) return Status::ok;
    if (completion) made->completions.push_back(completion);
    made->since = core_.services.now();
    made->pause = kFirstLook;
    {
        const std::lock_guard lock(core_.services);
        ++channel.usage.endpoints; // until go_on() calls detach()
        ++channel.usage.cancels;
        ++core_.directory.endpoints;
    }
    // Not done here: the caller may be inside any of our callbacks.
    made->timer = core_.services.at(made->since, [this, &cancel = *made] { go_on(cancel); });
    list.push_back(std::move(made));
    return Status::in_progress;
}

// The last work has ended. May run inside any call that ends works.
void Cancels::announce(Cancel& cancel) {
    cancel.announced = true;
    for (Completion* const completion : std::exchange(cancel.completions, {})) complete(completion, Status::canceled);
}

void Cancels::go_on(Cancel& cancel) {
    cancel.timer = 0;
    Channel& channel = *cancel.channel;
    if (!cancel.over && !(channel.gates & gate::failed)) {
        cancel_waiting(cancel);
        if (!cancel.over) cancel_retained(cancel);
        if (!cancel.over && core_.services.now() - cancel.since >= kGrace) take_back_posted(cancel);
    }
    if (!cancel.announced) {
        cancel.pause = std::min(2 * cancel.pause, kMaxLook);
        cancel.timer = core_.services.at(core_.services.now() + cancel.pause, [this, &cancel] { go_on(cancel); });
        return;
    }
    std::erase_if(list, [&](const auto& c) { return c.get() == &cancel; });
    --channel.usage.cancels;
    core_.endings.detach(channel);
}

// Ends the operations that wait in our own lists: no adapter holds them.
void Cancels::cancel_waiting(Cancel& cancel) {
    Channel& channel = *cancel.channel;
    for (Work*& list : channel.moving.flushes)
        for (Work** at = &list; *at;) {
            Work* const work = *at;
            if (part_of(work, cancel) != work) {
                at = &work->next;
                continue;
            }
            *at = work->next;
            Completion* const completion = work->completion;
            core_.works.pool.put(work);
            complete(completion, Status::canceled); // the user may change the list: begin again
            at = &list;
        }
    for (const bool read : {false, true})
        for (Work* work = channel.moving.pulled[read].first; work;) {
            if (!part_of(work, cancel)) {
                work = work->next;
                continue;
            }
            core_.mover.unlink(channel, read, *work);
            if (--work->open == 0) core_.works.finish_work(*work); // the user may change the list: begin again
            work = channel.moving.pulled[read].first;
        }
    std::vector<Work*> parts;
    core_.works.pool.for_each([&](Work& work) {
        if (work.channel == &channel && part_of(&work, cancel)) parts.push_back(&work);
    });
    core_.observer->repeats.drop_lost(channel, parts);
    const auto mine = [&](Work* work) { return part_of(work, cancel) == work; };
    for (auto at = channel.moving.atomics.begin();
         (at = std::ranges::find_if(channel.moving.atomics, mine)) != channel.moving.atomics.end();) {
        Work* const work = *at;
        channel.moving.atomics.erase(at); // so its reply will be dropped
        if (--work->open == 0) core_.works.finish_work(*work);
    }
}

// Ends works whose messages have not been acknowledged. Each message stays retained, with a copy of the caller's bytes.
void Cancels::cancel_retained(Cancel& cancel) {
    Channel& channel = *cancel.channel;
    for (std::uint32_t i = channel.acked; i != channel.next_sequence; ++i) {
        Buffer*& place = channel.wiring.retained[i & channel.window_mask];
        Buffer& buffer = *place;
        Work* const work = buffer.work;
        if (!work || part_of(work, cancel) != work) continue;
        if (work->kind == WorkKind::message) {
            Buffer* const copy = core_.large.get(); // has room for any message, with its header and a trailer
            if (!copy) continue;                    // go_on() tries again
            std::byte* to = copy->data();
            const auto append = [&to](const void* from, std::size_t n) { std::memcpy(to, from, n), to += n; };
            append(buffer.data(), buffer.length);
            for (unsigned p = 0; p < work->pieces; ++p)
                append(reinterpret_cast<const void*>(work->local[p].address), work->local[p].length);
            copy->length = static_cast<std::uint32_t>(to - copy->data());
            append(buffer.data() + buffer.length, buffer.trailer);
            copy->trailer = buffer.trailer;
            copy->path = buffer.path;
            copy->work = nullptr;
            place = copy;
            work->bounce = &buffer; // the adapter may still read the header there: the buffer stays until the work ends
            buffer.pool = &buffer.pool->home();
        } else {
            --channel.moving.atomics_pending;
        }
        buffer.work = nullptr;
        if (--work->open == 0) core_.works.finish_work(*work); // may call the user
        if (cancel.over || (channel.gates & gate::failed)) return;
    }
}

void Cancels::take_back_posted(Cancel& cancel) {
    Channel& channel = *cancel.channel;
    if (!recoverable(core_, channel)) return;
    schedule::PathMask holding = 0, spared = 0;
    const auto look = [&](SendQueue& queue) {
        for (std::uint32_t i = queue.tail; i != queue.head; ++i) {
            const Posted& posted = queue.at(i);
            if (posted.channel != &channel || !posted.work) continue;
            const auto bit = schedule::PathMask{1} << posted.path;
            if (part_of(posted.work, cancel))
                holding |= bit;
            else if (posted.work->kind == WorkKind::adapter_atomic)
                spared |= bit; // another endpoint's: recovery could not repeat it
        }
    };
    for (PathIndex path = 0; path < channel.wiring.path_count; ++path)
        for (const auto& own : channel.wiring.paths[path].own)
            if (own) look(*own);
    for (const DcRail& rail : core_.dc.rails)
        for (const auto& initiator : rail.initiators) look(*initiator);
    for (const PathIndex path : schedule::each(holding & ~spared)) {
        core_.observer->faults.path_failed(channel, path, "an endpoint's operations are cancelled", false);
        if (cancel.over || !recoverable(core_, channel)) return;
    }
}

Channel& Cancels::canceled_channel() {
    if (!canceled) {
        canceled = std::make_unique<Channel>(&core_);
        canceled->gates = gate::failed | gate::not_ready;
        canceled->set_live();
        canceled->error = Status::canceled;
        canceled->ending.error_told = canceled->ending.buried = true;
        ++canceled->usage.endpoints;
    }
    return *canceled;
}

Completion* Interface::tag(Completion* user, std::uint32_t origin) { return core_->cancels.tag(user, origin); }
void Interface::untag(Completion* completion) { core_->cancels.untag(completion); }
Status Interface::cancel(Channel& channel, std::uint32_t& origin, Completion* completion) {
    const Status status = core_->cancels.cancel(channel, origin, completion);
    if (!(core_->aside & aside::kept) || status != Status::ok) return status;
    Completion* const his = completion ? core_->cancels.tag(completion, origin) : nullptr;
    return core_->progress.beside.behind_kept(status, his, channel);
}
void Interface::end_flushes(const Channel& channel, std::uint32_t origin) {
    core_->cancels.end_flushes(channel, origin);
}
Channel& Interface::canceled_channel() { return core_->cancels.canceled_channel(); }

} // namespace ucx_mp::channel
