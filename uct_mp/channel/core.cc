// Opens and closes the inside of an interface. Slow path.
#include "uct_mp/channel/core.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "uct_mp/verbs/registry.h"

namespace ucx_mp::channel {

namespace {
// sge: the header's buffer, a fence's trailer, and the caller's pieces.
unsigned pieces_per_request(const verbs::DeviceSet& devices) {
    unsigned n = kMaxIov;
    for (const verbs::Device& device : devices.devices()) n = std::min(n, device.max_sge > 3 ? device.max_sge - 2 : 1);
    return n;
}

// An adapter may have few queue pairs, or few left. So fewer initiators are tried after a failure for want of them.
Status make_dc_rails(Core& core, std::string& error) {
    for (unsigned initiators = core.config.dci_count;; initiators = (initiators + 1) / 2) {
        const std::uint32_t before = core.inline_bytes;
        std::string trouble;
        Status status = Status::ok;
        for (const verbs::Rail& rail : core.rails) {
            Adapter& adapter = core.adapters[rail.device];
            status =
                core.make_dc_rail(rail, *adapter.device, adapter, initiators, core.dc.rails.emplace_back(), trouble);
            if (ucx_mp::failed(status)) break;
        }
        if (error.empty()) error = trouble;
        if (!ucx_mp::failed(status)) {
            if (initiators < core.config.dci_count)
                core.services.say(LogLevel::warn, "%s: goes on with %u", error.c_str(), initiators);
            error.clear();
            return status;
        }
        core.dc.rails.clear();
        core.inline_bytes = before;
        if (status != Status::no_memory || initiators == 1) return status;
    }
}
} // namespace

Core::Core(const verbs::DeviceSet& from, const Config& with, Services& s, Events& e, const verbs::KeyTable& k,
           const AmHandler* h, MakeObserver make_observer)
    : ring(std::bit_ceil(with.window)), handlers(h), devices(from), config(with), kinds(with.path_kinds()), services(s),
      events(e), keys(k), small(devices, std::max(with.inline_bytes, 512u) + kExtra, with.max_send_buffers),
      large(devices, kHeader + with.segment + kMaxUserHeader + kExtra, with.max_send_buffers), progress(*this, with),
      observer(make_observer(*this)) {
    // A device may have been opened again since `from` was made: its present life is taken.
    verbs::Device now;
    for (unsigned i = 0; i < devices.devices().size(); ++i)
        if (devices.registry()->is_there(i, devices.devices()[i].life, now)) devices.renew(now);
}

Status open(Core& core, std::string& error) {
    core.limits.max_iov = pieces_per_request(core.devices);
    core.layout = ReceiveLayout::make(core.config.headroom, kHeader,
                                      kHeader + core.config.segment + kMaxUserHeader + sizeof(FenceTrailer),
                                      core.has_targets() ? kTagBytes : 0);

    // Timestamps make each completion dearer to poll. They serve the choice of paths, and with one rail and one route
    // there is none. (A peer with more rails still has several paths to us, and ports may come up. The time at which a
    // completion is found must do then.)
    core.timed = core.kinds == path::Kinds::both || std::ranges::count(core.rails, true, &verbs::Rail::active) > 1 ||
                 core.config.paths.num_paths > 1 || core.config.paths.path_bits.size() > 1;
    for (const verbs::Rail& rail : core.rails)
        core.timed |= rail.active && core.config.paths.num_paths == 0 && rail.lmc > 0;
    core.adapter_count = static_cast<unsigned>(core.devices.devices().size());
    core.adapters = std::make_unique<Adapter[]>(core.adapter_count);
    for (const verbs::Rail& rail : core.rails)
        if (rail.active) core.rounds.polled_count = std::max(core.rounds.polled_count, rail.device + 1);
    core.inline_bytes = core.config.inline_bytes;
    for (unsigned i = 0; i < core.adapter_count; ++i) {
        core.adapters[i].tells_failures = core.config.recovery.thread;
        const Status status = core.adapters[i].open(core.devices.devices()[i], core.devices, core.config, core.layout,
                                                    0, core.timed, core.has_targets(), error);
        if (ucx_mp::failed(status)) return status;
        if (core.config.recovery.thread) (void)core.adapters[i].tell_failures();
    }
    // Send buffers are registered now, before the program has used up the memory that may be locked. The first chunk
    // suffices to go on, if slowly.
    if (!core.small.available() || !core.large.available()) {
        error = "cannot register send buffers: " + verbs::registration_trouble(errno);
        return Status::no_memory;
    }
    core.progress.calibrate();
    // A queue pair tells only after it was made how many inline bytes it grants. The probes live until the initiators
    // are made, so that these leave room for the control plane's queue pairs.
    std::vector<verbs::QueuePair> probes;
    for (const verbs::Rail& rail : core.rails) {
        Adapter& adapter = core.adapters[rail.device];
        std::uint32_t granted = 0;
        probes.push_back(verbs::create_rc(
            *adapter.device, rail, adapter.queues(),
            {core.config.send_depth + 1, core.limits.max_iov + 2, core.config.inline_bytes}, &granted));
        if (!probes.back()) {
            error = "cannot create a queue pair with " + std::to_string(core.config.send_depth) + " send requests on " +
                    rail.name + ": " + std::strerror(errno) + " (TX_QUEUE_LEN, MAX_INLINE)";
            return Status::io_error;
        }
        core.inline_bytes = std::min(core.inline_bytes, granted);
    }
    if (core.has_targets()) {
        if (core.config.seed)
            core.dc.key = core.config.seed * 0x9e3779b97f4a7c15ull;
        else if (getrandom(&core.dc.key, sizeof core.dc.key, 0) != sizeof core.dc.key)
            core.dc.key = core.services.now();
        if (const Status status = make_dc_rails(core, error); ucx_mp::failed(status)) return status;
    }
    probes.clear();
    core.limits.max_am_short = core.inline_bytes > kHeader ? core.inline_bytes - kHeader : 0;
    core.limits.max_put_short = core.inline_bytes;
    core.limits.max_bcopy = core.config.segment;
    core.limits.max_am_zcopy = core.config.segment;
    core.limits.max_am_zcopy_header = kMaxUserHeader;
    core.limits.max_rdma = std::size_t{1} << 30;

    // LOCAL_WRITE: kernels want it for memory that is writable.
    if (ucx_mp::failed(verbs::register_memory(core.devices, core.ends.probe_bytes, sizeof core.ends.probe_bytes,
                                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
                                              core.ends.probe_region))) {
        error = std::string("cannot register ") + std::to_string(sizeof core.ends.probe_bytes) +
                " bytes for peers to read: " + verbs::registration_trouble(errno);
        return Status::io_error;
    }
    connect::ControlConfig with;
    with.terms = own_terms(core);
    with.names = core.config.names;
    with.transport = core.config.transport;
    with.min_version = core.config.min_version;
    with.max_version = core.config.max_version;
    with.paths = core.config.paths;
    with.paths.rc_on_demand = core.config.rc_on_demand();
    with.timeout = core.config.connect_timeout;
    with.service_level = core.config.reliability.service_level;
    with.dc_key = core.dc.key;
    with.seed = core.config.seed;
    with.rails = core.rails;
    for (const DcRail& rail : core.dc.rails) with.dct_numbers.push_back(rail.target_numbers());
    return connect::ControlPlane::open(core.devices, with, core.services, {core.ends, core.peers, core.peers},
                                       core.control, error);
}

Status Core::make_dc_rail(const verbs::Rail& rail, const verbs::Device& device, Adapter& adapter, unsigned initiators,
                          DcRail& out, std::string& error) {
    const DcPool::Wishes wishes{.initiators = initiators,
                                .targets = std::max(1u, config.dct_count), // peers are told one
                                .max_sge = limits.max_iov + 2,
                                .inline_bytes = config.inline_bytes,
                                .sizes = config,
                                .reliability = config.reliability};
    return dc.make_rail(wishes, rail, device, adapter, out, inline_bytes, error);
}

void close(Core& core) {
    if (core.control) core.closing.say_goodbye();
    {
        const std::lock_guard lock(core.services);
        for (std::uint32_t slot = 0; core.control && slot < core.directory.channels.size(); ++slot)
            core.control->forget(core.directory.channels[slot]->connection);
    }
    for (const auto& cancel : core.cancels.list)
        if (cancel->timer) core.services.cancel(cancel->timer);
    for (std::uint32_t slot = 0; slot < core.directory.channels.size(); ++slot)
        core.directory.channels[slot]->drop_joined();
    core.observer.reset(); // ends its timers
    core.rings.end();
    core.halves.end();
    core.ends.graves.clear();
    core.ends.pool.clear();
    // Buffers that are still posted go with their pools. The queue pairs end before the pools do.
    core.dc.rails.clear();
    core.directory.channels.clear();
    core.control.reset();
    if (core.rounds.event_fd >= 0) ::close(core.rounds.event_fd);
}

} // namespace ucx_mp::channel
