// Names for requests that the other side may use: an index and the generation of its slot.
// An outdated or invented name finds nothing. The generation is told by exclusive or with
// a secret of that side's: the names that a peer has been told do not let it guess others.
#pragma once

#include <cstdint>
#include <vector>

namespace ucx_mp::glue {

struct Request;

// `Generation`: how often a slot is used before its names come again.
template <class Request, class Generation = std::uint32_t> class SlotsOf {
public:
    // Never 0, which says that there is no name. Allocates when there are more open requests than ever.
    [[nodiscard]] std::uint64_t add(Request& request, std::uint32_t secret) {
        if (free_ == kNone) {
            slots_.push_back({}); // if that fails nothing has changed
            free_ = static_cast<std::uint32_t>(slots_.size() - 1);
        }
        const std::uint32_t index = free_;
        Slot& slot = slots_[index];
        free_ = slot.next_free;
        slot.request = &request;
        slot.name = ++slot.generation ^ static_cast<Generation>(secret);
        if (slot.name == 0)
            slot.name = ++slot.generation ^ static_cast<Generation>(secret); // all were 0 in the first slot
        return std::uint64_t{slot.name} << 32 | index;
    }
    [[nodiscard]] Request* find(std::uint64_t id) const {
        const auto index = static_cast<std::uint32_t>(id);
        if (index >= slots_.size() || slots_[index].name != id >> 32) return nullptr;
        return slots_[index].request;
    }
    void remove(std::uint64_t id) {
        Slot& slot = slots_[static_cast<std::uint32_t>(id)];
        slot.request = nullptr;
        slot.next_free = free_;
        free_ = static_cast<std::uint32_t>(id);
    }
    // The function may remove the request that it gets, and add others. Slow path.
    template <class F> void for_each(F&& function) {
        for (std::size_t i = 0; i < slots_.size(); ++i)
            if (slots_[i].request) function(*slots_[i].request);
    }

private:
    static constexpr std::uint32_t kNone = UINT32_MAX;
    struct Slot {
        Request* request = nullptr;
        Generation generation = 0, name = 0;
        std::uint32_t next_free = kNone;
    };
    std::vector<Slot> slots_;
    std::uint32_t free_ = kNone;
};
using Slots = SlotsOf<Request>;

} // namespace ucx_mp::glue
