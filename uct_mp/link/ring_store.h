// Memory for rings, registered ahead. Registering takes a command of some 100 us for each adapter. Progress
// must not pay it: many rings would never pay that back (perf/adaptive). So it is done aside, some at a time.
//
// Each has keys of its own: a writer of one ring reaches no other.
//
// Threads: the interface's. Work that is under way aside owns all that it uses, and may end after this. Slow path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "uct_mp/host/services.h"
#include "uct_mp/verbs/memory.h"

namespace ucx_mp::link {

struct RingMemory {
    std::unique_ptr<std::byte, void (*)(void*)> bytes{nullptr, nullptr};
    verbs::Registration registration; // ends before the bytes
    Nanos ready = 0;                  // since when
};

class RingStore {
public:
    static constexpr unsigned kBatch = 16; // so many at most are made in one go

    RingStore();
    enum class Prepared : std::uint8_t {
        there,
        under_way, // asked for now, or before
        refused,   // something else is done aside; to be asked again
    };
    // Makes about `count` rings of `bytes` each ready soon.
    Prepared prepare(Services& services, const verbs::DeviceSet& devices, std::size_t bytes, unsigned count);
    [[nodiscard]] std::unique_ptr<RingMemory> take(Nanos now); // null: none is ready
    // There was no memory for a request. Told once.
    [[nodiscard]] bool has_failed();
    [[nodiscard]] unsigned count() const;
    void clear();

private:
    struct Shelf; // which the other thread fills
    std::shared_ptr<Shelf> shelf_;
};

} // namespace ucx_mp::link
