#include "softhca/world.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/notify.h"
#include "core/segment.h"
#include "engine/objects.h"
#include "session/faults.h"
#include "sim/hooks.h"

namespace softhca {

// session/faults.cc is part of this library, the channels that events go through are libsofthca.so's.
void raise_port_event(Segment&, uint32_t port, uint32_t type) { softhca_sim_raise_port_event(port, type); }
void raise_device_event(Segment&, uint32_t device, uint32_t type) { softhca_sim_raise_device_event(device, type); }

namespace sim {

World::World(const FabricImage& image, Options options) { open(image, options); }

World::World(const std::string& fabric, Options options) {
    const FabricBlock block = load_fabric(fabric);
    open(block.image(), options);
}

World::~World() { softhca_sim_close(); }

void World::open(const FabricImage& image, const Options& options) {
    // Every device context has an event queue, which is a socket pair.
    if (rlimit files; getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    segment_ = softhca_sim_open(&image, options.seed, options.payload_limit, options.start);
    if (!segment_) throw std::system_error(errno, std::generic_category(), "virtual-time world");
    image_ = &segment_->img();
    if (const HostCosts costs = options.host.any() ? options.host : sim::host_costs(*image_); costs.any())
        host_costs(costs);
    touched_.resize(image.nodes);
    state_.resize(image.nodes);
}

void World::select(uint32_t node) { softhca_sim_select(node, node); }
void World::select(uint32_t node, uint32_t processor) { softhca_sim_select(node, processor); }
Nanos World::now() const { return softhca_sim_now(); }
Nanos World::now_at(uint32_t processor) const { return softhca_sim_processor_now(processor); }
void World::host_costs(const HostCosts& costs) {
    host_ = costs;
    softhca_sim_host_costs(&costs);
}
void World::spend(uint32_t node, uint32_t processor, Nanos cost) { softhca_sim_spend(node, processor, cost); }
bool World::step() { return softhca_sim_step() != 0; }

void World::run_until(Nanos t) {
    while (softhca_sim_next_due() <= t) softhca_sim_step();
    softhca_sim_advance(t);
}

bool World::run_until(const std::function<bool()>& condition, Nanos limit) {
    while (!condition()) {
        if (softhca_sim_next_due() > limit) {
            softhca_sim_advance(limit);
            return false;
        }
        if (!step()) return false;
    }
    return true;
}

void World::run() {
    while (step()) {}
}

std::span<const uint32_t> World::touched() {
    const auto first = touched_.begin();
    auto end = first + softhca_sim_touched(touched_.data(), static_cast<uint32_t>(touched_.size()));
    end = std::remove_if(first, end, [this](uint32_t node) { return !runs(node); });
    for (const uint32_t node : continued_) // room for every node once
        if (runs(node) && std::find(first, end, node) == end) *end++ = node;
    continued_.clear();
    return {first, end};
}

World::Timer World::at(Nanos t, std::function<void()> fn) {
    if (free_timers_.empty()) {
        free_timers_.push_back(static_cast<uint32_t>(timers_.size()));
        timers_.emplace_back();
    }
    const uint32_t index = free_timers_.back();
    free_timers_.pop_back();
    Slot& slot = timers_[index];
    slot.fn = std::move(fn);
    const Timer timer = uint64_t{slot.use} << 32 | index;
    softhca_sim_schedule(t, on_timer, this, timer);
    return timer;
}

std::function<void(Nanos)> World::on_command(std::function<void(Nanos)> fn) {
    std::swap(on_command_, fn);
    softhca_sim_on_command(on_command_ ? [](void* self, uint64_t cost) { static_cast<World*>(self)->on_command_(cost); }
                                       : static_cast<void (*)(void*, uint64_t)>(nullptr),
                           this);
    return fn;
}

// The event stays in the queue and finds nothing to do: so the slot must not be reused before.
void World::cancel(Timer timer) {
    Slot& slot = timers_[timer & UINT32_MAX];
    if (slot.use == timer >> 32) slot.fn = nullptr;
}

void World::on_timer(void* self, uint64_t timer, uint64_t) {
    World& world = *static_cast<World*>(self);
    const auto index = static_cast<uint32_t>(timer & UINT32_MAX);
    const std::function<void()> fn = std::move(world.timers_[index].fn);
    world.timers_[index].fn = nullptr;
    ++world.timers_[index].use;
    world.free_timers_.push_back(index);
    if (fn) fn();
}

void World::fault(const std::string& command) { apply(parse_fault(segment_->img(), split_words(command))); }

void World::apply(const FaultCommand& command) {
    for (const uint32_t node : command.nodes) {
        NodeState& state = state_[node];
        if (command.verb == FaultVerb::node_death) state = NodeState::dead;
        if (state == NodeState::dead) continue;
        if (command.verb == FaultVerb::cont && state == NodeState::stopped) continued_.push_back(node);
        state = command.verb == FaultVerb::stop ? NodeState::stopped : NodeState::running;
    }
    apply_fault(*segment_, command);
}

World::Timer World::fault_at(Nanos t, const std::string& command) {
    return at(t, [this, parsed = parse_fault(segment_->img(), split_words(command))] { apply(parsed); });
}

World::LinkCounters World::link(uint32_t index) const {
    const LinkState& s = segment_->link(index);
    return {s.bytes, s.packets, s.chunks, s.drops, s.corrupted, s.wait_ns, s.peak_queue_ns};
}

uint64_t World::link_rate(uint32_t index) const {
    const uint64_t rate = segment_->link(index).faults.rate_override;
    return rate != 0 ? rate : image().link(index).rate;
}

World::PortCounters World::port(uint32_t index) const {
    const PortState& s = segment_->port(index);
    return {s.tx_packets, s.rx_packets};
}

World::Objects World::objects(uint32_t device) const {
    const DeviceState& s = segment_->device(device);
    return {s.qps, s.cqs, s.srqs};
}

uint64_t World::cache_misses(uint32_t device) const { return segment_->device(device).cache_misses; }

uint32_t World::queue_pair_state(uint32_t qp_number) const { return segment_->qp(qp_number & (kMaxQps - 1)).state; }

World::QueueBytes World::queue_bytes(uint32_t qp_number) const {
    const RecvQueue& q = segment_->rq(qp_number & (kMaxQps - 1));
    return {.receives = (q.mask + 1) * sizeof(uint32_t) + uint64_t{q.entries} * q.stride,
            .least_send = 4 * (sizeof(SendWqe) + sizeof(ibv_sge)),
            .completion = sizeof(Cqe)};
}

std::string World::end_name(EndKind kind, uint32_t index) const {
    if (kind == EndKind::sw) return image().sw(index).name;
    return image().node(image().device(image().port(index).device).node).name;
}

uint32_t World::find_link(const std::string& from, const std::string& to) const {
    for (uint32_t i = 0; i < image().links; ++i) {
        const LinkImage& l = image().link(i);
        if (end_name(l.from_kind, l.from) == from && end_name(l.to_kind, l.to) == to) return i;
    }
    return kNone;
}

uint64_t World::fingerprint() const { return softhca_sim_digest(); }
uint64_t World::events() const { return softhca_sim_events(); }

} // namespace sim
} // namespace softhca
