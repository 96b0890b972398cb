// Opening and closing an interface; making channels. Slow path.
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "uct_mp/channel/interface_impl.h"
#include "uct_mp/verbs/registry.h"

namespace ucx_mp::channel {

namespace {
// sge: the header's buffer, a fence's trailer, and the caller's pieces.
unsigned pieces_per_request(const verbs::DeviceSet& devices) {
    unsigned n = kMaxIov;
    for (const verbs::Device& device : devices.devices()) n = std::min(n, device.max_sge > 3 ? device.max_sge - 2 : 1);
    return n;
}
} // namespace

Interface::Impl::Impl(const verbs::DeviceSet& from, const Config& with, Services& s, Events& e,
                      const verbs::KeyTable& k, const AmHandler* h)
    : quiet_mask(std::bit_ceil(std::max(with.quiet_interval, 1u)) - 1),
      silent_mask(std::bit_ceil(std::max(with.silent_interval, 1u)) - 1), ring(std::bit_ceil(with.window)), handlers(h),
      devices(from), config(with), services(s), events(e), keys(k),
      small(devices, std::max(with.inline_bytes, 512u) + kExtra, with.max_send_buffers),
      large(devices, kHeader + with.segment + kMaxUserHeader + kExtra, with.max_send_buffers) {
    nobody.gates = gate::not_ready | gate::failed;
    nobody.local_id = nobody.live_id = nobody.connection.local_id = ChannelTable::kMaxSlots;
    // Opened anew since.
    verbs::Device now;
    for (unsigned i = 0; i < devices.devices().size(); ++i)
        if (devices.registry()->is_there(i, devices.devices()[i].life, now)) devices.renew(now);
}

Status Interface::Impl::open(std::string& error) {
    read_rails();
    limits.max_iov = pieces_per_request(devices);
    layout =
        ReceiveLayout::make(config.headroom, kHeader, kHeader + config.segment + kMaxUserHeader + sizeof(FenceTrailer),
                            config.transport == connect::Transport::dc ? kTagBytes : 0);

    // Timestamps cost a poll for each of their completions. With one rail and one route there is no choice they could
    // serve (a peer with more rails still has several paths to us, and ports may come up: then the time of finding a
    // completion must do).
    timed = std::ranges::count(rails, true, &verbs::Rail::active) > 1 || config.paths.num_paths > 1 ||
            config.paths.path_bits.size() > 1;
    for (const verbs::Rail& rail : rails) timed |= rail.active && config.paths.num_paths == 0 && rail.lmc > 0;
    adapter_count = static_cast<unsigned>(devices.devices().size());
    adapters = std::make_unique<Adapter[]>(adapter_count);
    for (const verbs::Rail& rail : rails)
        if (rail.active) polled_count = std::max(polled_count, rail.device + 1);
    inline_bytes = config.inline_bytes;
    for (unsigned i = 0; i < adapter_count; ++i) {
        const Status status = adapters[i].open(devices.devices()[i], devices, config, layout, 0, timed, error);
        if (ucx_mp::failed(status)) return status;
    }
    calibrate();
    for (const verbs::Device& device : devices.devices()) seen_migrations[device.index] = device.events->migrations();
    // What a queue pair grants is known only from one that has been made.
    for (const verbs::Rail& rail : rails) {
        Adapter& adapter = adapters[rail.device];
        std::uint32_t granted = 0;
        verbs::QueuePair probe =
            verbs::create_rc(*adapter.device, rail, adapter.queues(),
                             {config.send_depth + 1, limits.max_iov + 2, config.inline_bytes}, &granted);
        if (!probe) {
            error = "cannot create a queue pair with " + std::to_string(config.send_depth) + " send requests on " +
                    rail.name + ": " + std::strerror(errno) + " (TX_QUEUE_LEN, MAX_INLINE)";
            return Status::io_error;
        }
        inline_bytes = std::min(inline_bytes, granted);
    }
    if (config.transport == connect::Transport::dc) {
        const Status status = open_dc(error);
        if (ucx_mp::failed(status)) return status;
    }
    limits.max_am_short = inline_bytes > kHeader ? inline_bytes - kHeader : 0;
    limits.max_put_short = inline_bytes;
    limits.max_bcopy = config.segment;
    limits.max_am_zcopy = config.segment;
    limits.max_am_zcopy_header = kMaxUserHeader;
    limits.max_rdma = std::size_t{1} << 30;

    // Local writing as well: kernels want that of memory that is writable.
    if (ucx_mp::failed(verbs::register_memory(devices, probe_bytes, sizeof probe_bytes,
                                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, probe_region))) {
        error = std::string("cannot register ") + std::to_string(sizeof probe_bytes) +
                " bytes for peers to read: " + std::strerror(errno);
        return Status::io_error;
    }
    connect::ControlConfig with;
    with.terms = own_terms();
    with.transport = config.transport;
    with.paths = config.paths;
    with.timeout = config.connect_timeout;
    with.service_level = config.reliability.service_level;
    with.dc_key = dc_key;
    with.seed = config.seed;
    with.rails = rails;
    for (const DcRail& rail : dc_rails) with.dct_numbers.push_back(rail.target->qp_num);
    return connect::ControlPlane::open(devices, with, services, *this, control, error);
}

Status Interface::Impl::open_dc(std::string& error) {
    if (config.seed)
        dc_key = config.seed * 0x9e3779b97f4a7c15ull;
    else if (getrandom(&dc_key, sizeof dc_key, 0) != sizeof dc_key)
        dc_key = services.now();
    for (const verbs::Rail& rail : rails) {
        Adapter& adapter = adapters[rail.device];
        const Status status = make_dc_rail(rail, *adapter.device, adapter, dc_rails.emplace_back(), error);
        if (ucx_mp::failed(status)) return status;
    }
    return Status::ok;
}

Status Interface::Impl::make_dc_rail(const verbs::Rail& rail, const verbs::Device& device, Adapter& adapter, DcRail& dc,
                                     std::string& error) {
    dc.target = verbs::create_dct(device, rail, adapter.cq.get(), adapter.srq.get(), key_of_life(dc_key, device.life),
                                  config.reliability);
    if (!dc.target) {
        error = "cannot create a DC target on " + rail.name + ": " + std::strerror(errno);
        return Status::io_error;
    }
    for (unsigned i = 0; i < config.dci_count; ++i) {
        std::uint32_t granted = 0;
        verbs::QueuePair qp = verbs::create_dci(
            device, rail, adapter.send_cq.get(),
            {config.send_depth + 1, limits.max_iov + 2, config.inline_bytes + kTagBytes}, config.reliability, &granted);
        if (!qp) {
            error = "cannot create DC initiator " + std::to_string(i) + " of " + std::to_string(config.dci_count) +
                    " on " + rail.name + ": " + std::strerror(errno) + " (UCX_MP_DC_NUM_DCI)";
            return Status::io_error;
        }
        inline_bytes = std::min(inline_bytes, granted - std::min(granted, kTagBytes));
        dc.initiators.push_back(std::make_unique<SendQueue>(std::move(qp), adapter, config, inline_bytes, true));
    }
    return Status::ok;
}

Interface::Impl::~Impl() {
    if (control) say_goodbye();
    {
        const std::lock_guard lock(services);
        for (std::uint32_t slot = 0; control && slot < channels.size(); ++slot)
            control->forget(channels[slot]->connection);
    }
    for (const Services::Timer timer : reopen_timer)
        if (timer) services.cancel(timer);
    for (const auto& cancel : cancels)
        if (cancel->timer) services.cancel(cancel->timer);
    if (jobs_timer) services.cancel(jobs_timer);
    if (numbers_timer) services.cancel(numbers_timer);
    if (watch_timer) services.cancel(watch_timer);
    for (std::uint32_t slot = 0; slot < channels.size(); ++slot) {
        drop_joined(*channels[slot]);
        const recover::Recovery* recovery = channels[slot]->recovery.get();
        if (!recovery) continue;
        if (recovery->partition) services.cancel(recovery->partition);
        if (recovery->nudge) services.cancel(recovery->nudge);
        for (const recover::PathRecovery& path : recovery->paths)
            if (path.timer) services.cancel(path.timer);
        stop_asking(*channels[slot]);
    }
    graves.clear();
    // Buffers that completions would have given back go with their pools; the queue pairs end before them.
    dc_rails.clear();
    channels.clear();
    control.reset();
    if (event_fd >= 0) close(event_fd);
}

Channel::~Channel() {
    for (unsigned i = 0; impl && i < impl->adapter_count; ++i)
        if (impl->adapters[i].heard_channel == this) impl->adapters[i].forget();
}

Channel* Interface::Impl::make_channel(std::uint64_t uid) {
    // The generation differs from run to run: a stranger's message does not match by chance of both being young.
    std::uint32_t id = 0;
    if (!channels.next_id(static_cast<std::uint32_t>((uid ^ services.now()) * 0x9e3779b97f4a7c15ull >> 52), id))
        return nullptr;
    auto made = std::make_unique<Channel>();
    Channel& channel = *made;
    channel.impl = this;
    channel.uid = uid;
    channel.used_at = services.now();
    channel.local_id = id;
    channel.connection.local_id = channel.local_id;
    channel.set_live();
    channel.connection.peer.uid = uid;
    channels.add(std::move(made));
    by_uid[uid] = &channel;
    ++unused;
    return &channel;
}

Channel* Interface::Impl::successor(Channel& channel) {
    if (!channel.buried) return &channel;
    Channel* const next = make_channel(channel.uid);
    if (!next) return nullptr;
    next->connection.follow(channel.connection);
    next->self = channel.self;
    return next;
}

Channel* Interface::Impl::attach(const connect::InterfaceAddress& peer, std::string& error) {
    const std::lock_guard lock(services);
    Channel* channel = nullptr;
    if (const auto known = by_uid.find(peer.uid); known != by_uid.end()) {
        // A peer that has failed may live again, or never have been dead: a new connection will tell.
        channel = successor(*known->second);
        if (!channel) {
            error = "too many peers";
            return nullptr;
        }
        // Known only from its request: the full address has come out of band now.
        if (channel->connection.peer.count == 0) channel->connection.peer = peer;
    } else {
        if (!connect::reachable(peer, rails, config.transport)) {
            error = "no rail in the peer's subnet, or another transport or protocol version";
            return nullptr;
        }
        channel = make_channel(peer.uid);
        if (!channel) {
            error = "too many peers";
            return nullptr;
        }
        channel->connection.peer = peer;
        channel->self = peer.uid == control->address().uid;
    }
    if (channel->references++ == 0) --unused;
    return channel;
}

Interface::Interface(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Interface::~Interface() = default;

Status Interface::open(const verbs::DeviceSet& devices, const Config& config, Services& services, Events& events,
                       const verbs::KeyTable& keys, const AmHandler* handlers, std::unique_ptr<Interface>& out,
                       std::string& error) {
    if (config.window < 8 || config.window > 1u << 15) {
        error = "TX_WINDOW " + std::to_string(config.window) + ": 8 to 32768 is allowed";
        return Status::invalid_param;
    }
    if (config.send_depth < 16 || config.send_depth > 1u << 15) {
        error = "TX_QUEUE_LEN " + std::to_string(config.send_depth) + ": 16 to 32768 is allowed";
        return Status::invalid_param;
    }
    auto impl = std::make_unique<Impl>(devices, config, services, events, keys, handlers);
    const Status status = impl->open(error);
    if (ucx_mp::failed(status)) return status;
    out.reset(new Interface(std::move(impl)));
    return Status::ok;
}

const connect::InterfaceAddress& Interface::address() const { return impl_->control->address(); }
const Limits& Interface::limits() const { return impl_->limits; }

double Interface::bandwidth() const {
    double sum = 0;
    for (const verbs::Rail& rail : impl_->rails)
        if (rail.active) sum += rail.rate;
    return sum;
}
bool Interface::reachable(const connect::InterfaceAddress& peer) const {
    const std::lock_guard lock(impl_->services);
    return connect::reachable(peer, impl_->rails, impl_->config.transport);
}

Channel* Interface::attach(const connect::InterfaceAddress& peer, std::string& error) {
    return impl_->attach(peer, error);
}
void Interface::detach(Channel& channel) { impl_->detach(channel); }

void Interface::Impl::detach(Channel& channel) {
    const std::lock_guard lock(services);
    if (--channel.references != 0) return;
    ++unused;
    channel.used_at = services.now();
    const bool never = (channel.gates & gate::not_ready) && channel.connection.state == connect::State::closed;
    if ((channel.gates & gate::failed) ? !channel.failing : never) list_ending(channel);
}

void Interface::Impl::watch_descriptor(int fd) {
    epoll_event event{EPOLLIN, {}};
    (void)epoll_ctl(event_fd, EPOLL_CTL_ADD, fd, &event);
}

int Interface::event_fd() {
    Impl& m = *impl_;
    if (m.event_fd >= 0) return m.event_fd;
    m.event_fd = epoll_create1(EPOLL_CLOEXEC);
    if (m.event_fd < 0) return -1;
    for (unsigned i = 0; i < m.adapter_count; ++i) {
        m.watch_descriptor(m.adapters[i].channel->fd);
        m.watch_descriptor(m.adapters[i].device->context->async_fd);
    }
    if (!m.config.background)
        for (const int fd : m.control->event_fds()) m.watch_descriptor(fd);
    return m.event_fd;
}

std::vector<int> Interface::control_fds() const { return impl_->control->event_fds(); }

unsigned Interface::serve() {
    Impl& m = *impl_;
    const std::lock_guard lock(m.services);
    unsigned n = m.control->poll();
    while (m.control->arm() == Status::busy) n += m.control->poll();
    if (!m.mail.empty()) m.services.wake();
    return n;
}

Status Interface::arm() {
    Impl& m = *impl_;
    m.read_events(); // or their descriptor would wake us for ever
    if (!m.acks_due.empty() || !m.pushes_due.empty() || !m.failures.empty() || !m.replies.empty() ||
        !m.recovering.empty() || !m.questions.empty() || !m.leavers.empty() || !m.endings.empty() ||
        (m.jobs_wait() && !m.jobs_timer))
        return Status::busy;
    {
        const std::lock_guard lock(m.services);
        if (!m.mail.empty() || !m.graves.empty()) return Status::busy;
    }
    // Who sleeps makes few calls of progress().
    if (const Nanos now = m.services.now(); now >= m.next_watch) m.watch_peers(now);
    bool busy = false;
    for (unsigned i = 0; i < m.adapter_count; ++i) {
        Adapter& adapter = m.adapters[i];
        ibv_cq* cq;
        void* context;
        while (ibv_get_cq_event(adapter.channel.get(), &cq, &context) == 0) { // never blocks: see Adapter::open
            ibv_ack_cq_events(cq, 1);
            busy = true;
        }
        if (ibv_req_notify_cq(adapter.cq.get(), 0) || ibv_req_notify_cq(adapter.send_cq.get(), 0))
            return Status::io_error;
        // What came before the request raises no event (IB specification 11.4.2.2; some adapters do it all the same).
        busy |= m.peek(adapter);
    }
    if (!m.config.background && m.control->arm() == Status::busy) busy = true;
    return busy ? Status::busy : Status::ok;
}

void Interface::hold(Channel& channel, bool held) {
    channel.gates = held ? channel.gates | gate::held : channel.gates & ~gate::held;
}

void Interface::set_hint(Channel& channel, schedule::TrafficHint hint) { channel.hint = hint; }

Status Interface::want_room(Channel& channel) {
    if (impl_->surely_room(channel)) return Status::busy;
    impl_->list_waiting(channel);
    return Status::ok;
}

} // namespace ucx_mp::channel
