// Opening and closing what an interface has inside. Slow path.
#include "uct_mp/channel/core.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "uct_mp/verbs/registry.h"

namespace ucx_mp::channel {

namespace {
// sge: the header's buffer, a fence's trailer, and the caller's pieces.
unsigned pieces_per_request(const verbs::DeviceSet& devices) {
    unsigned n = kMaxIov;
    for (const verbs::Device& device : devices.devices()) n = std::min(n, device.max_sge > 3 ? device.max_sge - 2 : 1);
    return n;
}
path::Kinds kinds_of(const Config& config) {
    if (config.adapt.enabled() && config.transport == connect::Transport::dc) return path::Kinds::both;
    return connect::kinds_of({.features = connect::feature::kinds, .kinds = config.kinds}, config.transport);
}

// An adapter may have few queue pairs, or few left: then fewer initiators will do.
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
    : ring(std::bit_ceil(with.window)), handlers(h), devices(from), config(with), kinds(kinds_of(with)), services(s),
      events(e), keys(k), small(devices, std::max(with.inline_bytes, 512u) + kExtra, with.max_send_buffers),
      large(devices, kHeader + with.segment + kMaxUserHeader + kExtra, with.max_send_buffers), progress(*this, with),
      observer(make_observer(*this)) {
    // Opened anew since.
    verbs::Device now;
    for (unsigned i = 0; i < devices.devices().size(); ++i)
        if (devices.registry()->is_there(i, devices.devices()[i].life, now)) devices.renew(now);
}

Status Core::open(std::string& error) {
    limits.max_iov = pieces_per_request(devices);
    layout =
        ReceiveLayout::make(config.headroom, kHeader, kHeader + config.segment + kMaxUserHeader + sizeof(FenceTrailer),
                            has_targets() ? kTagBytes : 0);

    // Timestamps cost a poll for each of their completions. With one rail and one route there is no choice they could
    // serve (a peer with more rails still has several paths to us, and ports may come up: then the time of finding a
    // completion must do).
    timed = kinds == path::Kinds::both || std::ranges::count(rails, true, &verbs::Rail::active) > 1 ||
            config.paths.num_paths > 1 || config.paths.path_bits.size() > 1;
    for (const verbs::Rail& rail : rails) timed |= rail.active && config.paths.num_paths == 0 && rail.lmc > 0;
    adapter_count = static_cast<unsigned>(devices.devices().size());
    adapters = std::make_unique<Adapter[]>(adapter_count);
    for (const verbs::Rail& rail : rails)
        if (rail.active) progress.polled_count = std::max(progress.polled_count, rail.device + 1);
    inline_bytes = config.inline_bytes;
    for (unsigned i = 0; i < adapter_count; ++i) {
        const Status status =
            adapters[i].open(devices.devices()[i], devices, config, layout, 0, timed, has_targets(), error);
        if (ucx_mp::failed(status)) return status;
    }
    // Before the program has used up what may be locked: these suffice to go on, if slowly.
    if (!small.available() || !large.available()) {
        error = "cannot register send buffers: " + verbs::registration_trouble(errno);
        return Status::no_memory;
    }
    progress.calibrate();
    // What a queue pair grants is known only from one that has been made. They keep room for the control plane's.
    std::vector<verbs::QueuePair> probes;
    for (const verbs::Rail& rail : rails) {
        Adapter& adapter = adapters[rail.device];
        std::uint32_t granted = 0;
        probes.push_back(verbs::create_rc(*adapter.device, rail, adapter.queues(),
                                          {config.send_depth + 1, limits.max_iov + 2, config.inline_bytes}, &granted));
        if (!probes.back()) {
            error = "cannot create a queue pair with " + std::to_string(config.send_depth) + " send requests on " +
                    rail.name + ": " + std::strerror(errno) + " (TX_QUEUE_LEN, MAX_INLINE)";
            return Status::io_error;
        }
        inline_bytes = std::min(inline_bytes, granted);
    }
    if (has_targets()) {
        if (config.seed)
            dc.key = config.seed * 0x9e3779b97f4a7c15ull;
        else if (getrandom(&dc.key, sizeof dc.key, 0) != sizeof dc.key)
            dc.key = services.now();
        if (const Status status = make_dc_rails(*this, error); ucx_mp::failed(status)) return status;
    }
    probes.clear();
    limits.max_am_short = inline_bytes > kHeader ? inline_bytes - kHeader : 0;
    limits.max_put_short = inline_bytes;
    limits.max_bcopy = config.segment;
    limits.max_am_zcopy = config.segment;
    limits.max_am_zcopy_header = kMaxUserHeader;
    limits.max_rdma = std::size_t{1} << 30;

    // Local writing as well: kernels want that of memory that is writable.
    if (ucx_mp::failed(verbs::register_memory(devices, visibility.probe_bytes, sizeof visibility.probe_bytes,
                                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
                                              visibility.probe_region))) {
        error = std::string("cannot register ") + std::to_string(sizeof visibility.probe_bytes) +
                " bytes for peers to read: " + verbs::registration_trouble(errno);
        return Status::io_error;
    }
    connect::ControlConfig with;
    with.terms = parts.own_terms();
    with.transport = config.transport;
    with.names = config.names;
    with.min_version = config.min_version;
    with.max_version = config.max_version;
    with.paths = config.paths;
    with.paths.rc_on_demand = rc_on_demand();
    with.timeout = config.connect_timeout;
    with.service_level = config.reliability.service_level;
    with.dc_key = dc.key;
    with.seed = config.seed;
    with.rails = rails;
    for (const DcRail& rail : dc.rails) with.dct_numbers.push_back(rail.target_numbers());
    return connect::ControlPlane::open(devices, with, services, {ends, peers, peers}, control, error);
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

Core::~Core() {
    if (control) closing.say_goodbye();
    {
        const std::lock_guard lock(services);
        for (std::uint32_t slot = 0; control && slot < directory.channels.size(); ++slot)
            control->forget(directory.channels[slot]->connection);
    }
    for (const auto& cancel : cancels.list)
        if (cancel->timer) services.cancel(cancel->timer);
    for (std::uint32_t slot = 0; slot < directory.channels.size(); ++slot) parts.drop_joined(*directory.channels[slot]);
    observer.reset(); // its timers
    rings.end();
    halves.end();
    ends.graves.clear();
    ends.pool.clear();
    // Buffers that completions would have given back go with their pools; the queue pairs end before them.
    dc.rails.clear();
    directory.channels.clear();
    control.reset();
    if (progress.event_fd >= 0) close(progress.event_fd);
}

} // namespace ucx_mp::channel
