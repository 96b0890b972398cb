// Small puts that travel with the end of their epoch.
//
// Where a message tells the end, behind the writes, a few small puts are not written before it: they are
// its contents. That is one message instead of two, needs no fence between, and none over several adapters.
#include <algorithm>
#include <cstring>
#include <utility>

#include "pml_glue/core/window/window.h"

namespace ucx_mp::glue {

namespace {
// Bytes: of one put, of all to a target with their headers.
constexpr std::size_t kHeldPut = sizeof(Operation::small), kHeldPuts = 256;
} // namespace

// A small put of an epoch whose end is told by a message travels with it: one message for both, and no fence between.
bool Window::hold_put(Target& to, const void* from, std::size_t bytes, std::uint64_t address) const {
    if (to.failed || to.rank == config_.rank) return false;
    const wire::HeldPut put{.address = address, .bytes = static_cast<std::uint32_t>(bytes)};
    const std::size_t size = to.held_puts.size(), length = sizeof put + bytes;
    if (bytes > kHeldPut ||
        size + length > std::min(kHeldPuts, to.peer->endpoint->limits().max_packed - sizeof(wire::WindowSync)))
        return false;
    to.held_puts.resize(size + length);
    std::memcpy(to.held_puts.data() + size, &put, sizeof put);
    std::memcpy(to.held_puts.data() + size + sizeof put, from, bytes);
    return true;
}

bool Window::put_now(std::uint32_t rank, const void* from, std::size_t bytes, std::uint64_t address, mp_epoch_t epoch) {
    Target& to = target(rank);
    if (epoch == MP_ACTIVE && hold_put(to, from, bytes, address)) return true;
    if (epoch == MP_PASSIVE_SHARED) ask_for_lock(to);
    if (!to.key || to.failed || !to.moves[0].empty() || !to.may_go()) return false;
    Endpoint& endpoint = *to.peer->endpoint;
    if (bytes > endpoint.limits().max_put_short || endpoint.put_short(from, bytes, address, to.key) != Posted::done)
        return false;
    ++to.writes;
    ++all_.counts_.copies;
    return true;
}

// The epoch ends in another way, after all: they go as operations.
void Window::let_go(Target& to) {
    const std::vector<std::byte> held = std::exchange(to.held_puts, {});
    for (const std::byte *at = held.data(), *const end = at + held.size(); at != end;) {
        wire::HeldPut put;
        std::memcpy(&put, at, sizeof put);
        at += sizeof put;
        const mp_run_t run{put.address, 0, put.bytes, 1};
        Operation& operation = all_.new_operation();
        operation.target = &to;
        operation.rma = {.kind = MP_PUT,
                         .target = to.rank,
                         .runs = &operation.run,
                         .run_count = 1,
                         .origin = {operation.small, put.bytes, nullptr},
                         .result = {},
                         .op = 0,
                         .type = 0,
                         .unit = 1,
                         .extent = 1,
                         .user = nullptr};
        operation.run = run;
        operation.total = put.bytes;
        std::memcpy(operation.small, at, put.bytes);
        operation.cursor.reset(&operation.run, 1, 1);
        operation.by_moves = can_move(to, operation.rma) && register_memory(operation);
        operation.generation = to.begin();
        set_out(operation);
        at += put.bytes;
    }
}

std::size_t Window::pack_end(void* out, void* argument) {
    const Operation& operation = *static_cast<Operation*>(argument);
    const Target& to = *operation.target;
    const wire::WindowSync message{.window = to.window->config_.id,
                                   .origin = to.window->config_.rank,
                                   .number = operation.position,
                                   .what = operation.sync,
                                   .error = 0,
                                   .zero = 0};
    std::memcpy(out, &message, sizeof message);
    std::memcpy(static_cast<std::byte*>(out) + sizeof message, to.held_puts.data(), to.held_puts.size());
    return sizeof message + to.held_puts.size();
}

// False: the contents are malformed; the epoch is not over.
bool Window::put_held(Target& origin, const std::byte* data, std::size_t length) {
    while (length) {
        wire::HeldPut put;
        if (length < sizeof put) return false;
        std::memcpy(&put, data, sizeof put);
        data += sizeof put;
        length -= sizeof put;
        if (length < put.bytes) return false;
        if (in_window(put.address, __int128{put.address} + put.bytes))
            std::memcpy(reinterpret_cast<void*>(put.address), data, put.bytes); // NOLINT(performance-no-int-to-ptr)
        else
            origin.owed = MP_RANGE;
        ++all_.counts_.executed;
        data += put.bytes;
        length -= put.bytes;
    }
    return true;
}

} // namespace ucx_mp::glue
