// Keys of dynamic windows, whose memory comes and goes.
//
// A large put or get asks whether its memory is attached, and gets keys for itself alone: memory that a program has
// detached is never written with an earlier key. The question waits for the epoch as the operation would, since the
// target may attach until then. The epoch ends when all is there, so nothing is under way when memory is detached.
// Without a useful answer the operation is sent as messages, which find several pieces of memory, or say what is wrong.
#include <cstring>

#include "pml_glue/core/window/window.h"

namespace ucx_mp::glue {

namespace {
constexpr std::size_t kMessages = 2; // an operation that fits into so many messages needs no keys
}

// One block, and memory of ours that the port can move by itself.
bool Window::wants_key(const Target& to, const Operation& operation) const {
    const mp_rma_t& rma = operation.rma;
    if ((rma.kind != MP_PUT && rma.kind != MP_GET) || rma.run_count != 1 || rma.runs[0].repeat != 1) return false;
    const Limits& limits = to.peer->endpoint->limits();
    return operation.total > kMessages * limits.max_packed &&
           (rma.kind == MP_PUT ? limits.max_put : limits.max_get) > 0 &&
           !(rma.kind == MP_PUT ? rma.origin : rma.result).convertor;
}

// After the message the operation may be gone: a message to this process has been handled then.
Posted Window::ask_for_key(Operation& operation) {
    Target& to = *operation.target;
    const wire::AskHeader header{.window = config_.id,
                                 .origin = config_.rank,
                                 .reply = operation.id,
                                 .address = operation.run.address,
                                 .bytes = operation.total};
    const Posted outcome = to.peer->endpoint->send_packed(
        wire::kWindowAsk,
        [](void* out, void* argument) {
            std::memcpy(out, argument, sizeof(wire::AskHeader));
            return sizeof(wire::AskHeader);
        },
        const_cast<wire::AskHeader*>(&header));
    if (outcome == Posted::done || outcome == Posted::no_room) return outcome;
    --to.asking;
    operation.asks = false;
    operation.error = MP_FAILED;
    operation.total = 0;
    if (outcome == Posted::failed) all_.engine_.give_up(*to.peer);
    finish(operation);
    return outcome;
}

void Windows::on_ask(void* self, const std::byte* data, std::size_t length) {
    Windows& all = *static_cast<Windows*>(self);
    wire::AskHeader header;
    if (length != sizeof header) return all.dropped("a question for keys has a wrong length");
    std::memcpy(&header, data, sizeof header);
    if (all.hold_back(header.window, header.origin, wire::kWindowAsk, data, length)) return;
    Target* const origin = all.find(header.window, header.origin);
    if (!origin) return all.dropped("a question for keys is for no window");
    origin->window->give_keys(*origin, header);
}

void Window::give_keys(Target& origin, const wire::AskHeader& asked) {
    if (!origin.peer) return;
    std::vector<std::byte> keys;
    for (Region& region : regions_) {
        if (asked.address < region.base || asked.address - region.base > region.size ||
            asked.bytes > region.size - (asked.address - region.base))
            continue;
        if (!region.exposed)
            region.exposed = all_.port_.expose(reinterpret_cast<void*>(region.base),
                                               region.size); // NOLINT(performance-no-int-to-ptr)
        if (region.exposed) keys = region.exposed->keys();
        break;
    }
    wire::KeysHeader header{.reply = asked.reply, .bytes = 0, .zero = 0};
    if (sizeof header + keys.size() > origin.peer->endpoint->limits().max_packed) keys.clear();
    header.bytes = static_cast<std::uint32_t>(keys.size());
    answer(origin, wire::kWindowKeys, &header, sizeof header, keys.data(), keys.size());
}

void Windows::on_keys(void* self, const std::byte* data, std::size_t length) {
    Windows& all = *static_cast<Windows*>(self);
    wire::KeysHeader header;
    if (length < sizeof header) return all.dropped("keys are too short");
    std::memcpy(&header, data, sizeof header);
    if (length != sizeof header + header.bytes) return all.dropped("keys have a wrong length");
    Operation* const operation = all.ids_.find(header.reply);
    if (!operation || !operation->asks || operation->queued) return all.dropped("keys are for no operation");
    operation->target->window->go_on(*operation, data + sizeof header, header.bytes);
}

void Window::go_on(Operation& operation, const std::byte* keys, std::size_t length) {
    Target& to = *operation.target;
    --to.asking;
    operation.asks = false;
    if (length) operation.key = to.peer->endpoint->unpack_exposed(keys, length);
    operation.by_moves = operation.key && register_memory(operation);
    all_.counts_.keys += operation.by_moves;
    if (operation.by_moves || !operation.wants_reply()) {
        all_.ids_.remove(operation.id);
        operation.id = 0;
    }
    set_out(operation);
}

} // namespace ucx_mp::glue
