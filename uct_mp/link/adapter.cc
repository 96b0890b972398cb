#include "uct_mp/link/adapter.h"

#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace ucx_mp::link {

namespace {
std::string failure(const verbs::Device& device, const char* what) {
    return std::string(what) + " on " + device.name + ": " + std::strerror(errno);
}

unsigned most_spare(const ReceiveLayout& layout) {
    constexpr unsigned kMost = 128, kMostBytes = 2 << 20; // segments may be large
    return std::min(kMost, kMostBytes / layout.stride);
}

// For the worker's thread alone; providers that do not know the flag refuse, and do without. nullptr: errno.
ibv_cq* make_queue(const verbs::Device& device, unsigned entries, ibv_comp_channel* channel, std::uint64_t flags) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = entries;
    attr.channel = channel;
    attr.wc_flags = flags;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    ibv_cq_ex* made = ibv_create_cq_ex(device.context.get(), &attr);
    if (!made) {
        attr.comp_mask = 0;
        made = ibv_create_cq_ex(device.context.get(), &attr);
    }
    return made ? ibv_cq_ex_to_cq(made) : nullptr;
}
} // namespace

Status Adapter::open(const verbs::Device& from, const verbs::DeviceSet& devices, const QueueSizes& sizes,
                     const ReceiveLayout& layout, unsigned peers, bool timed, bool tags, std::string& error) {
    device = &from;
    domain = from.pd;
    tagged = tags;
    nobody = std::uint64_t{1} << 32; // no number of a queue pair
    if (tagged)
        while (getrandom(&nobody, sizeof nobody, 0) != sizeof nobody) {}
    forget();
    index = static_cast<std::uint8_t>(from.index);
    for (verbs::CompletionChannel* const made : {&channel, &send_channel}) {
        if (made == &send_channel && !tells_failures) continue;
        made->reset(ibv_create_comp_channel(from.context.get()));
        if (*made && fcntl((*made)->fd, F_SETFL, fcntl((*made)->fd, F_GETFL) | O_NONBLOCK) == 0) continue;
        error = failure(from, "cannot create a completion channel");
        return Status::io_error;
    }
    const unsigned receives = std::min(sizes.receive_depth, from.max_srq_wr);
    if (from.max_cqe < std::max(receives, kDrains + 64)) {
        error = failure(from, "completion queues are too small (RX_QUEUE_LEN)");
        return Status::invalid_param;
    }
    send_credits = static_cast<std::int32_t>(std::min(sizes.completion_depth, from.max_cqe - kDrains));
    scarce_credits = std::max(send_credits / 2, static_cast<std::int32_t>(SendQueue::kReserve));
    const unsigned entries = static_cast<unsigned>(send_credits) + kDrains;
    ibv_comp_channel* const sends = tells_failures ? send_channel.get() : channel.get();
    if (from.has_timestamps && timed) {
        send_cq.reset(make_queue(from, entries, sends, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP));
        extended = timestamps = send_cq != nullptr;
    }
    if (!send_cq) send_cq.reset(ibv_create_cq(from.context.get(), static_cast<int>(entries), nullptr, sends, 0));
    unsigned wanted = level_for(peers, sizes);
    const auto make_cq = [&](unsigned size) {
        cq.reset(make_queue(from, size, channel.get(), IBV_WC_EX_WITH_BYTE_LEN));
        if (!cq) cq.reset(ibv_create_cq(from.context.get(), static_cast<int>(size), nullptr, channel.get(), 0));
    };
    make_cq(wanted < receives ? wanted / 2 : wanted);
    if (cq && wanted < receives && ibv_resize_cq(cq.get(), static_cast<int>(wanted)) != 0)
        make_cq(wanted = receives); // it cannot resize
    if (!send_cq || !cq) {
        error = failure(from, "cannot create a completion queue");
        return Status::io_error;
    }
    ibv_srq_init_attr attr{};
    attr.attr.max_wr = receives;
    attr.attr.max_sge = 1;
    srq.reset(ibv_create_srq(from.pd.get(), &attr));
    if (!srq) {
        error = failure(from, "cannot create a shared receive queue");
        return Status::io_error;
    }
    set_level(wanted);
    if (reserve(devices, layout, receives)) fill(devices, layout);
    if (to_post == static_cast<std::int32_t>(level)) {
        error = from.name + ": cannot register receive buffers: " + verbs::registration_trouble(errno);
        return Status::no_memory;
    }
    reserve_spare(devices, layout);
    return Status::ok;
}

unsigned Adapter::level_for(unsigned peers, const QueueSizes& sizes) const {
    // A peer may send before we know it. Acknowledgments and markers are outside
    // of the window, and some messages have been received and not posted again.
    const std::uint64_t wanted = std::uint64_t{std::max(peers, 1u)} * (sizes.window + kControl) + kBatch + kFetch;
    return static_cast<unsigned>(std::min<std::uint64_t>({wanted, sizes.receive_depth, device->max_srq_wr}));
}

int Adapter::provide(unsigned peers, const verbs::DeviceSet& devices, const QueueSizes& sizes,
                     const ReceiveLayout& layout) {
    unsigned wanted = level_for(peers, sizes);
    if (wanted <= level) {
        set_level(wanted);
        reserve_spare(devices, layout);
        return 0;
    }
    int error = 0;
    if (static_cast<unsigned>(cq->cqe) < wanted) {
        error = ibv_resize_cq(cq.get(), static_cast<int>(wanted));
        if (error) wanted = std::max(level, static_cast<unsigned>(cq->cqe)); // the next peer tries again
    }
    set_level(wanted);
    fill(devices, layout);
    reserve_spare(devices, layout);
    return error;
}

void Adapter::fill(const verbs::DeviceSet& devices, const ReceiveLayout& layout) {
    while (to_post > 0) {
        const std::int32_t before = to_post;
        refill(devices, layout);
        if (to_post == before) break;
    }
}

void Adapter::reserve_spare(const verbs::DeviceSet& devices, const ReceiveLayout& layout) {
    if (const unsigned most = most_spare(layout); !rest.left && spare < most)
        (void)reserve(devices, layout, most - spare);
}

bool Adapter::may_wait(const ReceiveLayout& layout) {
    if (spare_used == spare) {
        if (!rest.left || spare >= most_spare(layout)) return false;
        make(layout, 1);
        ++spare;
    }
    ++spare_used;
    ++kept;
    return true;
}

unsigned Adapter::take_failure_events() {
    unsigned n = 0;
    ibv_cq* cq;
    void* context;
    for (; tells_failures && ibv_get_cq_event(send_channel.get(), &cq, &context) == 0; ++n) ibv_ack_cq_events(cq, 1);
    return n;
}

void Adapter::take_over(Adapter& fresh) {
    srq = std::move(fresh.srq);
    cq = std::move(fresh.cq);
    send_cq = std::move(fresh.send_cq);
    channel = std::move(fresh.channel);
    send_channel = std::move(fresh.send_channel);
    domain = std::move(fresh.domain);
    peeked_count = 0;
    forget();
    extended = fresh.extended;
    timestamps = fresh.timestamps;
    clock = fresh.clock;
    send_credits = fresh.send_credits;
    scarce_credits = fresh.scarce_credits;
    free = fresh.free;
    free_count = fresh.free_count;
    to_post = fresh.to_post;
    level = fresh.level;
    batch = fresh.batch;
    rest = fresh.rest;
    spare = spare_used = 0;
    // Handlers keep their buffers; nobody refers to the rest of the old memory any more.
    old_kept += std::exchange(kept, 0);
    old_chunks.push_back(std::exchange(chunks, std::move(fresh.chunks)));
    if (old_kept == 0) old_chunks.clear();
}

bool Adapter::reserve(const verbs::DeviceSet& devices, const ReceiveLayout& layout, unsigned count) {
    RegisteredChunks::Chunk* chunk = chunks.add(devices, std::size_t{layout.stride} * count);
    if (!chunk) return false;
    rest = {chunk->memory.get(), count, chunk->registration->lkey[index]};
    return true;
}

void Adapter::make(const ReceiveLayout& layout, unsigned count) {
    for (; count > 0 && rest.left > 0; --count, --rest.left, rest.begin += layout.stride) {
        auto* buffer = new (rest.begin) ReceiveBuffer{};
        buffer->sge = {reinterpret_cast<std::uint64_t>(layout.message(buffer)) - layout.tag_bytes,
                       layout.message_bytes + layout.tag_bytes, rest.lkey};
        buffer->wr.wr_id = reinterpret_cast<std::uint64_t>(buffer);
        buffer->wr.sg_list = &buffer->sge;
        buffer->wr.num_sge = 1;
        buffer->adapter = index;
        buffer->life = device->life;
        give_back(buffer);
    }
}

// As many as memory allows. Where there is none, finding out costs
// a command to the adapter, and progress comes again and again.
void Adapter::make_missing(const verbs::DeviceSet& devices, const ReceiveLayout& layout, unsigned missing) {
    constexpr unsigned kMostPause = 4096;
    if (!rest.left) {
        if (pausing) return void(--pausing);
        unsigned wanted = std::max(missing, kBatch);
        while (!reserve(devices, layout, wanted)) {
            if (wanted == kBatch) return void(pausing = pause = std::min(std::max(16u, 2 * pause), kMostPause));
            wanted = std::max(wanted / 2, kBatch);
        }
        pause = 0;
    }
    make(layout, missing);
}

void Adapter::refill(const verbs::DeviceSet& devices, const ReceiveLayout& layout) {
    // Kept buffers are missing here: as many new ones are made, since the level is a promise to the senders.
    const auto lacking = static_cast<std::uint32_t>(to_post); // called while it is positive
    if (free_count < lacking) [[unlikely]] {
        make_missing(devices, layout, lacking - free_count);
        if (free_count == 0) return;
    }
    ibv_recv_wr* first = free;
    unsigned count = free_count;
    if (count <= lacking) [[likely]] {
        free = nullptr;
    } else {
        ibv_recv_wr* last = first;
        for (count = lacking; count > 1; --count) last = last->next;
        count = lacking;
        free = last->next;
        last->next = nullptr;
    }
    free_count -= count;
    to_post -= static_cast<std::int32_t>(count);
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_srq_recv(srq.get(), first, &bad) == 0) [[likely]]
        return;
    // Buffers that were not taken come back; the next refill tries again.
    while (bad) {
        ibv_recv_wr* const next = bad->next;
        give_back(ReceiveBuffer::of(bad));
        ++to_post;
        bad = next;
    }
}

} // namespace ucx_mp::link
