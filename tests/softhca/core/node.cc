// Which machine of the fabric a process is.
#include "core/node.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "core/liveness.h"
#include "core/process.h"

namespace softhca {

namespace {

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

// The node of this rank by kPlaceEnv, else by its number.
uint32_t node_of_rank(const FabricImage& image, uint32_t rank, std::string& why) {
    const char* text = std::getenv(kPlaceEnv);
    if (!text || !*text) return rank % image.nodes;
    const std::vector<uint32_t> places = read_places(image, text, why);
    if (rank < places.size()) return places[rank];
    why = std::string(kPlaceEnv) + "=" + text + ": " +
          (places.empty() ? why : "no node for rank " + std::to_string(rank) + "; one for every rank is needed");
    return kNone;
}

} // namespace

uint32_t find_node(const FabricImage& image, std::string_view text, std::string& why) {
    uint32_t number = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc{} && stop == end && number < image.nodes) return number;
    for (uint32_t i = 0; i < image.nodes; ++i)
        if (text == image.node(i).name) return i;
    why = std::string("fabric '") + image.name + "' has nodes 0 to " + std::to_string(image.nodes - 1) +
          " (or their names)";
    return kNone;
}

std::vector<uint32_t> read_places(const FabricImage& image, std::string_view text, std::string& why) {
    std::vector<uint32_t> places;
    for (size_t end = 0; end < text.size() + 1;) {
        const size_t begin = end;
        end = std::min(text.find(',', begin), text.size());
        const std::string_view entry = text.substr(begin, end++ - begin);
        places.push_back(find_node(image, entry, why));
        if (places.back() != kNone) continue;
        why = "'" + std::string(entry) + "' is no node: " + why;
        return {};
    }
    return places;
}

uint32_t Process::choose_node() {
    const FabricImage& image = segment_->img();
    if (node_ != kNone || image.nodes == 0) return node_;
    uint32_t chosen = kNone, number = 0;
    std::string why;
    if (const char* text = std::getenv(kNodeEnv); text && *text) {
        chosen = find_node(image, text, why);
        if (chosen == kNone) why = std::string(kNodeEnv) + "=" + text + ": " + why;
    } else if (rank(number)) {
        chosen = node_of_rank(image, number, why);
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
    if (!why.empty()) std::fprintf(stderr, "softhca: %s\n", why.c_str());
    if (chosen != kNone) segment_->proc(slot_).node = chosen;
    return node_ = chosen;
}

} // namespace softhca
