// The calls that concern an interface as a whole, passed on to its parts. Slow path.
#include "uct_mp/channel/interface.h"

#include <sys/epoll.h>

#include <mutex>
#include <utility>

#include "uct_mp/channel/core.h"
#include "uct_mp/channel/stand_ins.h"
#include "uct_mp/channel/statistics.h"
#include "uct_mp/schedule/policy_factory.h"

namespace ucx_mp::channel {

void Interface::Close::operator()(Core* core) const {
    close(*core);
    delete core;
}
Interface::Interface(std::unique_ptr<Core, Close> core) : core_(std::move(core)) {}
Interface::~Interface() = default;

Status Interface::open(const verbs::DeviceSet& devices, const Config& config, Services& services, Events& events,
                       const verbs::KeyTable& keys, const AmHandler* handlers, MakeObserver make_observer,
                       std::unique_ptr<Interface>& out, std::string& error) {
    if (config.window < 8 || config.window > 1u << 15) {
        error = "TX_WINDOW " + std::to_string(config.window) + ": 8 to 32768 is allowed";
        return Status::invalid_param;
    }
    if (config.send_depth < 16 || config.send_depth > 1u << 15) {
        error = "TX_QUEUE_LEN " + std::to_string(config.send_depth) + ": 16 to 32768 is allowed";
        return Status::invalid_param;
    }
    if (error = schedule::check_weights(config.policy, unsigned(devices.rails().size())); !error.empty()) {
        error = "POLICY: " + error;
        return Status::invalid_param;
    }
    // An adapter may die while the interface opens. Then it opens again without it. The event that tells so may come
    // later than the failure.
    constexpr Nanos kPause = 10'000'000;
    constexpr unsigned kPauses = 5;
    for (std::size_t attempt = 0;; ++attempt) {
        error.clear();
        std::unique_ptr<Core, Close> core(new Core(devices, config, services, events, keys, handlers, make_observer));
        core->observer->read_rails();
        StandIns stand_ins(*core);
        Status status = stand_ins.begin(error);
        if (ucx_mp::failed(status)) return status;
        status = channel::open(*core, error);
        if (!ucx_mp::failed(status)) {
            stand_ins.end();
            out.reset(new Interface(std::move(core)));
            return Status::ok;
        }
        const bool may_be = status != Status::invalid_param;
        const auto dies = [&] { return may_be && stand_ins.another_has_died(); };
        for (unsigned i = 0; may_be && i < kPauses && !dies(); ++i)
            if (!services.wait(kPause)) break;
        if (attempt == devices.devices().size() || !dies()) return status;
    }
}

connect::InterfaceAddress Interface::address() const {
    const std::lock_guard lock(core_->services);
    return core_->control->address();
}
const Limits& Interface::limits() const { return core_->limits; }

std::size_t count_initiators(Interface& of) {
    const std::lock_guard lock(of.core().services);
    std::size_t n = 0;
    for (const DcRail& rail : of.core().dc.rails) n += rail.initiators.size();
    return n;
}

double Interface::bandwidth() const {
    const std::lock_guard lock(core_->services);
    double sum = 0;
    for (const verbs::Rail& rail : core_->rails)
        if (rail.active) sum += rail.rate;
    return sum;
}
bool Interface::reachable(const connect::InterfaceAddress& peer) const {
    const std::lock_guard lock(core_->services);
    return connect::reachable(peer, core_->rails, core_->control->address());
}

Channel* Interface::attach(const connect::InterfaceAddress& peer, std::string& error) {
    return core_->directory.attach(peer, error);
}
void Interface::detach(Channel& channel) { core_->endings.detach(channel); }

int Interface::event_fd() {
    Core& m = *core_;
    if (m.rounds.event_fd >= 0) return m.rounds.event_fd;
    m.rounds.event_fd = epoll_create1(EPOLL_CLOEXEC);
    if (m.rounds.event_fd < 0) return -1;
    for (unsigned i = 0; i < m.adapter_count; ++i) {
        m.rounds.watch_descriptor(m.adapters[i].channel->fd);
        if (m.adapters[i].send_channel) m.rounds.watch_descriptor(m.adapters[i].send_channel->fd);
        m.rounds.watch_descriptor(m.adapters[i].device->context->async_fd);
    }
    if (!m.config.background)
        for (const int fd : m.control->event_fds()) m.rounds.watch_descriptor(fd);
    return m.rounds.event_fd;
}

std::vector<int> Interface::control_fds() const { return core_->control->event_fds(); }

Beside& beside(Interface& of) { return of.core().progress.beside; }

unsigned Interface::serve() {
    Core& m = *core_;
    const std::lock_guard lock(m.services);
    unsigned n = m.control->poll();
    while (m.control->arm() == Status::busy) n += m.control->poll();
    if (!m.mail.list.empty() || m.admission.due) m.services.wake();
    return n;
}

Status Interface::arm() {
    Core& m = *core_;
    if (m.aside & aside::kept) return Status::busy;
    m.observer->read_events(); // unread events would wake the sleeper at once, again and again
    m.progress.beside.hand_over();
    if (!m.lists.acks.empty() || !m.lists.pushes.empty() || !m.lists.failed.empty() || !m.lists.told_later.empty() ||
        !m.atomics.replies.empty() || !m.endings.leavers.empty() || !m.directory.ending.empty() || m.observer->busy())
        return Status::busy;
    {
        const std::lock_guard lock(m.services);
        if (!m.mail.list.empty() || m.ends.has_graves() || m.admission.due) return Status::busy;
    }
    if (m.small.starved || m.large.starved) m.sender.ask_for_buffers(); // the answers will wake us
    // A message that is written into a ring wakes nobody.
    if (has_rings(m) && !m.rings.may_sleep()) return Status::busy;
    // A thread that sleeps makes few calls of progress(), which would otherwise watch the peers.
    if (const Nanos now = m.services.now(); now >= m.rounds.next_watch) m.observer->watch_peers(now);
    m.progress.beside.hand_over();
    bool busy = m.config.recovery.thread && m.progress.beside.falls_asleep();
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
        // Completions older than the request raise no event (IB specification 11.4.2.2), though they do with some
        // adapters.
        busy |= m.completions.peek(adapter);
    }
    if (!m.config.background && m.control->arm() == Status::busy) busy = true;
    // Asking and watching may have found a channel beyond repair. No event tells of that.
    return busy || !m.lists.failed.empty() ? Status::busy : Status::ok;
}

void Interface::hold(Channel& channel, bool held) {
    channel.gates = held ? channel.gates | gate::held : channel.gates & ~gate::held;
}

void Interface::set_hint(Channel& channel, schedule::TrafficHint hint) { channel.hint = hint; }

Status Interface::serve_by(Channel& channel, adapt::Service service) {
    // A ring needs no path of its own: writes to it take any path.
    const Status ring = core_->rings.serve(channel, service != adapt::Service::shared, Reason::call);
    if (service == adapt::Service::dc_ring && ucx_mp::failed(ring)) return ring;
    if (service != adapt::Service::rc && core_->observer->wiring.served(channel).places == 0) return ring;
    return core_->observer->wiring.serve_by(channel, service == adapt::Service::rc ? service : adapt::Service::shared,
                                            Reason::call);
}

Interface::Looks Interface::ring_looks() const { return {core_->rings.hits, core_->rings.misses}; }

Status Interface::park(Channel& channel) { return core_->endings.park(channel); }

Status Interface::want_room(Channel& channel) {
    // The refused operation has asked for a connection. That one may have been parked since, so ask again.
    if ((channel.gates & (gate::not_ready | gate::failed)) == gate::not_ready) (void)core_->sender.blocked(channel);
    if (surely_room(*core_, channel)) return Status::busy;
    enlist_once(*core_, core_->lists.waiting, channel, channel.usage.waiting);
    return Status::ok;
}

Nanos Interface::next_watch() const {
    const Core& m = *core_;
    if (const Nanos look = m.rings.next_look()) return look;
    for (std::uint32_t slot = 0; slot < m.directory.channels.size(); ++slot) {
        const Channel& channel = *m.directory.channels[slot];
        if (channel.gates & (gate::not_ready | gate::failed)) continue;
        if (Endings::is_owed(channel)) return std::max<Nanos>(m.rounds.next_watch, 1);
    }
    return 0;
}

void Interface::check(Channel& channel) {
    if (!(channel.gates & (gate::not_ready | gate::failed)))
        channel.core->observer->life.check(channel);
    else if (channel.gates & gate::failed)
        (void)refusal(*channel.core, channel);
}

void Interface::invalidate(Channel& channel, Status status, bool quiet) {
    if (quiet) channel.ending.error_told = true;
    if (channel.ending.renewing) { // it was being parked: now it ends for good
        {
            const std::lock_guard lock(core_->services);
            channel.ending.renewing = false;
            channel.ending.buried = true;
        }
        channel.error = status;
        (void)refusal(*core_, channel);
        return;
    }
    mark_failed(*core_, channel, status);
    core_->failures.end(channel);
}

} // namespace ucx_mp::channel
