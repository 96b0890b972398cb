// Compiled into libsofthca.so.
#include "sim/hooks.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "core/notify.h"
#include "core/process.h"
#include "core/segment.h"
#include "engine/engine.h"

using namespace softhca;

namespace {

struct SimWorld {
    void* memory = nullptr;
    Process* process = nullptr;
    std::unique_ptr<Engine> engine;
    Nanos clock = 0;
    uint64_t events = 0;
    uint64_t digest = 0;
    std::vector<uint32_t> touched; // nodes
    std::vector<char> is_touched;
    std::vector<char> several; // the node's programs do not share the processor of the node's number
    void (*on_command)(void*, uint64_t) = nullptr;
    void* on_command_self = nullptr;
};
SimWorld* g_world = nullptr;

void touch(uint32_t device) {
    const uint32_t node = g_world->process->seg().img().device(device).node;
    if (g_world->is_touched[node]) return;
    g_world->is_touched[node] = true;
    g_world->touched.push_back(node);
}

} // namespace

#define SIM_API extern "C" __attribute__((visibility("default")))

SIM_API Segment* softhca_sim_open(const FabricImage* image, uint64_t seed, uint64_t payload_limit, uint64_t start) {
    if (g_world || Process::current()) {
        errno = EBUSY;
        return nullptr;
    }
    auto world = std::make_unique<SimWorld>();
    world->memory = map_private_segment();
    if (!world->memory) return nullptr;
    format_segment(world->memory, *image, "virtual", true);
    auto* segment = static_cast<Segment*>(world->memory);
    segment->fabric.seed = seed;
    segment->fabric.payload_limit = payload_limit;
    world->process = Process::attach_local(segment);
    if (!world->process) {
        const int error = errno;
        unmap_segment(world->memory);
        errno = error;
        return nullptr;
    }
    world->clock = start;
    world->process->set_virtual_clock(&world->clock);
    world->engine = std::make_unique<Engine>(*world->process, true);
    world->is_touched.resize(image->nodes);
    world->several.resize(image->nodes);
    g_world = world.release();
    g_touched = touch;
    return segment;
}

SIM_API void softhca_sim_close() {
    if (!g_world) return;
    g_touched = nullptr;
    g_world->engine.reset();
    g_world->process->detach();
    unmap_segment(g_world->memory);
    delete g_world;
    g_world = nullptr;
}

SIM_API void softhca_sim_select(uint32_t node, uint32_t processor) {
    g_world->process->select_node(node);
    g_world->engine->processor = processor;
    if (processor != node) g_world->several[node] = true;
}
SIM_API uint64_t softhca_sim_now() { return g_world->clock; }
SIM_API uint64_t softhca_sim_next_due() { return g_world->engine->scheduler().next_due(); }

SIM_API int softhca_sim_step() {
    if (!g_world->engine->step(g_world->clock)) return 0;
    ++g_world->events;
    g_world->digest = (g_world->digest ^ g_world->clock) * 0x9e3779b97f4a7c15u;
    return 1;
}

SIM_API void softhca_sim_advance(uint64_t to) {
    if (to > g_world->clock) g_world->clock = to;
}

SIM_API void softhca_sim_schedule(uint64_t when, void (*fn)(void*, uint64_t, uint64_t), void* self, uint64_t arg) {
    std::lock_guard guard(g_world->engine->mutex);
    g_world->engine->scheduler().at(when, fn, self, arg);
}

SIM_API uint64_t softhca_sim_digest() { return g_world->digest ^ g_world->engine->network().digest(); }
SIM_API uint64_t softhca_sim_events() { return g_world->events; }

SIM_API uint32_t softhca_sim_touched(uint32_t* nodes, uint32_t max) {
    std::vector<uint32_t>& touched = g_world->touched;
    // Who is busy is touched again when it is through.
    if (g_world->engine->host)
        std::erase_if(touched, [](uint32_t node) {
            const bool busy = !g_world->several[node] && softhca_sim_processor_now(node) > g_world->clock;
            if (busy) g_world->is_touched[node] = false;
            return busy;
        });
    const auto n = std::min(max, static_cast<uint32_t>(touched.size()));
    for (uint32_t i = 0; i < n; ++i) {
        nodes[i] = touched[i];
        g_world->is_touched[touched[i]] = false;
    }
    touched.erase(touched.begin(), touched.begin() + n);
    return n;
}

SIM_API void softhca_sim_on_command(void (*fn)(void*, uint64_t), void* self) {
    g_world->on_command = fn;
    g_world->on_command_self = self;
    g_world->engine->on_command = fn ? [](Nanos cost) { g_world->on_command(g_world->on_command_self, cost); }
                                     : static_cast<void (*)(Nanos)>(nullptr);
}

SIM_API void softhca_sim_host_costs(const sim::HostCosts* costs) {
    Engine& engine = *g_world->engine;
    if (!engine.host) engine.host = std::make_unique<HostTime>(engine.scheduler());
    engine.host->costs = *costs;
}
SIM_API void softhca_sim_spend(uint32_t node, uint32_t processor, uint64_t cost) {
    Engine& engine = *g_world->engine;
    const uint32_t device = engine.seg().img().node(node).first_device;
    if (engine.host) engine.host->spend(processor, device, cost, g_world->clock);
}
SIM_API uint64_t softhca_sim_processor_now(uint32_t processor) {
    const auto& host = g_world->engine->host;
    return host ? host->now(processor, g_world->clock) : g_world->clock;
}

SIM_API void softhca_sim_raise_port_event(uint32_t port, uint32_t type) {
    raise_port_event(g_world->process->seg(), port, type);
}
SIM_API void softhca_sim_raise_device_event(uint32_t device, uint32_t type) {
    raise_device_event(g_world->process->seg(), device, type);
}
