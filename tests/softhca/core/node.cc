// Which machine of the fabric a process is.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/liveness.h"
#include "core/process.h"

namespace softhca {

namespace {

// A node's number or name; kNone if there is no such node.
uint32_t find_node(const FabricImage& image, const char* text) {
    char* end = nullptr;
    errno = 0;
    const unsigned long number = std::strtoul(text, &end, 10);
    if (end != text && *end == 0 && errno == 0) return number < image.nodes ? static_cast<uint32_t>(number) : kNone;
    for (uint32_t i = 0; i < image.nodes; ++i)
        if (std::strncmp(image.node(i).name, text, sizeof image.node(i).name) == 0) return i;
    return kNone;
}

bool rank(uint32_t& value) {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
        if (const char* text = std::getenv(name); text && *text) {
            char* end = nullptr;
            value = static_cast<uint32_t>(std::strtoul(text, &end, 10));
            if (*end == 0) return true;
        }
    return false;
}

// The lowest node that no process of the session is on; when all are taken, the next one in turn.
uint32_t next_free(Segment& seg, uint32_t self) {
    const uint32_t nodes = seg.img().nodes, top = seg.proc_top.load();
    for (uint32_t node = 0; node < nodes; ++node) {
        bool taken = false;
        for (uint32_t slot = 0; slot < top && !taken; ++slot) {
            const ProcSlot& p = seg.proc(slot);
            taken = slot != self && p.node.load() == node && p.state.load() != ProcState::free;
        }
        if (!taken) return node;
    }
    return seg.next_node.fetch_add(1) % nodes;
}

} // namespace

uint32_t Process::choose_node() {
    const FabricImage& image = segment_->img();
    if (node_ != kNone || image.nodes == 0) return node_;
    uint32_t chosen = kNone, number = 0;
    if (const char* text = std::getenv(kNodeEnv); text && *text) {
        chosen = find_node(image, text);
        if (chosen == kNone)
            std::fprintf(stderr, "softhca: %s=%s: fabric '%s' has nodes 0 to %u (or their names)\n", kNodeEnv, text,
                         image.name, image.nodes - 1);
    } else if (rank(number)) {
        chosen = number % image.nodes;
    } else if (!image.dynamic_nodes) {
        std::fprintf(stderr, "softhca: fabric '%s' needs a node for every process: `softhca run --node N` or %s\n",
                     image.name, kNodeEnv);
    } else {
        const bool alone = virtual_time();
        Taken how; // from_dead: nothing to repair, a slot's node is one word
        const bool locked = !alone && segment_->table_lock.acquire_within(2000, how);
        chosen = next_free(*segment_, slot_);
        segment_->proc(slot_).node = chosen;
        if (locked) segment_->table_lock.release();
    }
    if (chosen != kNone) segment_->proc(slot_).node = chosen;
    return node_ = chosen;
}

} // namespace softhca
