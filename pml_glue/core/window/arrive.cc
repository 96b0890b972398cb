// Requests and answers of other ranks. Nothing that comes is believed: lengths, memory outside
// the window, answers to no question. Only that a member of the window is who it says is not
// checked; an answer has to name something that nobody else has been told (engine/slots.h).
#include <algorithm>
#include <cstring>

#include "pml_glue/core/window/window.h"

namespace ucx_mp::glue {

namespace {
bool makes_sense(const wire::OperationHeader& header) {
    const bool swaps = header.kind == MP_COMPARE_SWAP, reads = header.kind == MP_GET;
    if (header.kind < MP_PUT || header.kind > MP_COMPARE_SWAP || header.bytes == 0 || header.unit == 0 ||
        header.extent < header.unit || header.brings > 1 || (swaps && header.bytes != header.unit))
        return false;
    // Only this kind is both: it may bring nothing, and then it only reads.
    if (header.kind != MP_GET_ACCUMULATE && header.brings == reads) return false;
    return header.brings || header.bytes <= wire::kMostAnswered;
}
} // namespace

void Windows::on_operation(void* self, const std::byte* data, std::size_t length) {
    Windows& all = *static_cast<Windows*>(self);
    wire::OperationHeader header;
    if (length < sizeof header) return all.dropped("an operation is too short");
    std::memcpy(&header, data, sizeof header);
    const std::byte* const runs = data + sizeof header;
    const std::size_t runs_bytes = header.runs * sizeof(wire::WireRun);
    const std::size_t brought = !header.brings                   ? 0
                                : header.kind == MP_COMPARE_SWAP ? std::size_t{2} * header.unit
                                                                 : header.bytes;
    if (length != sizeof header + runs_bytes + brought || !makes_sense(header))
        return all.dropped("an operation makes no sense");
    if (all.hold_back(header.window, header.origin, wire::kWindowOperation, data, length)) return;
    Target* const origin = all.find(header.window, header.origin);
    if (!origin) return all.dropped("an operation is for no window");
    ++all.counts_.executed;
    origin->window->execute(*origin, header, runs, header.brings ? runs + runs_bytes : nullptr);
}

bool Window::in_window(__int128 first, __int128 end) const {
    if (!config_.dynamic) {
        const auto base = reinterpret_cast<std::uint64_t>(config_.base);
        return first >= base && end <= __int128{base} + config_.size;
    }
    while (true) { // it may go on where another piece was attached
        const auto found = std::find_if(regions_.begin(), regions_.end(), [&](const Region& region) {
            return first >= region.base && first < __int128{region.base} + region.size;
        });
        if (found == regions_.end()) return false;
        first = __int128{found->base} + found->size;
        if (first >= end) return true;
    }
}

// Elements have gaps only where they are combined.
bool Window::in_reach(const wire::OperationHeader& header, const wire::WireRun& run) const {
    if (run.bytes % header.unit) return false;
    const bool combines = header.kind == MP_ACCUMULATE || header.kind == MP_GET_ACCUMULATE;
    const std::uint64_t span =
        combines ? (run.bytes / header.unit - 1) * std::uint64_t{header.extent} + header.unit : run.bytes;
    const __int128 first = run.address, last = first + __int128{run.stride} * (run.repeat - 1);
    if (in_window(std::min(first, last), std::max(first, last) + span)) return true;
    if (!config_.dynamic) return false;
    for (std::uint32_t i = 0; i < run.repeat; ++i) // several pieces of attached memory
        if (!in_window(first + __int128{run.stride} * i, first + __int128{run.stride} * i + span)) return false;
    return true;
}

// One block.
bool Window::apply(const wire::OperationHeader& header, std::uint64_t address, std::size_t bytes, const std::byte* in,
                   std::byte* out) const {
    auto* const memory = reinterpret_cast<std::byte*>(address); // NOLINT(performance-no-int-to-ptr)
    switch (header.kind) {
    case MP_PUT:
        std::memcpy(memory, in, bytes);
        return true;
    case MP_GET:
        std::memcpy(out, memory, bytes);
        return true;
    case MP_COMPARE_SWAP: {
        const bool same = std::memcmp(memory, in, bytes) == 0;
        std::memcpy(out, memory, bytes);
        if (same) std::memcpy(memory, in + bytes, bytes);
        return true;
    }
    default:
        return hooks_.apply(header.op, header.type, header.unit, header.extent, memory, bytes / header.unit, in, out);
    }
}

void Window::execute(Target& origin, const wire::OperationHeader& header, const std::byte* runs,
                     const std::byte* data) {
    const bool answers = header.kind != MP_PUT && header.kind != MP_ACCUMULATE;
    mp_error_t error = MP_OK;
    std::uint64_t left = header.bytes;
    for (unsigned i = 0; i < header.runs; ++i) {
        wire::WireRun run;
        std::memcpy(&run, runs + i * sizeof run, sizeof run);
        const std::uint64_t bytes = std::uint64_t{run.bytes} * run.repeat;
        if (bytes == 0 || bytes > left) return all_.dropped("an operation's pieces are not what it says");
        left -= bytes; // first: in_reach() may look at each block
        if (!in_reach(header, run)) error = MP_RANGE;
    }
    if (left) return all_.dropped("an operation's pieces are less than it says");
    if (answers && error == MP_OK) results_.resize(std::max<std::size_t>(results_.size(), header.bytes));
    std::byte* out = answers ? results_.data() : nullptr;
    for (unsigned i = 0; i < header.runs && error == MP_OK; ++i) {
        wire::WireRun run;
        std::memcpy(&run, runs + i * sizeof run, sizeof run);
        for (std::uint32_t k = 0; k < run.repeat; ++k) {
            const std::uint64_t address = run.address + k * static_cast<std::uint64_t>(run.stride);
            if (!apply(header, address, run.bytes, data, out)) error = MP_FAILED;
            if (data) data += run.bytes;
            if (out) out += run.bytes;
        }
    }
    if (answers) return reply(origin, header, results_.data(), error);
    if (error != MP_OK) origin.owed = error;
}

void Window::reply(Target& origin, const wire::OperationHeader& asked, const std::byte* data, mp_error_t error) {
    if (!origin.peer) return;
    wire::ReplyHeader header{.reply = asked.reply,
                             .position = asked.position,
                             .bytes = asked.bytes,
                             .error = static_cast<std::uint32_t>(error)};
    if (error != MP_OK) return answer(origin, wire::kWindowReply, &header, sizeof header, nullptr, 0);
    const std::size_t most = origin.peer->endpoint->limits().max_packed - sizeof header;
    for (std::size_t at = 0; at < asked.bytes; at += header.bytes) {
        header.position = asked.position + at;
        header.bytes = static_cast<std::uint32_t>(std::min<std::size_t>(most, asked.bytes - at));
        answer(origin, wire::kWindowReply, &header, sizeof header, data + at, header.bytes);
    }
}

void Windows::on_reply(void* self, const std::byte* data, std::size_t length) {
    Windows& all = *static_cast<Windows*>(self);
    wire::ReplyHeader header;
    if (length < sizeof header) return all.dropped("a reply is too short");
    std::memcpy(&header, data, sizeof header);
    Operation* const operation = all.ids_.find(header.reply);
    if (!operation || operation->asks) return all.dropped("a reply is for no operation");
    // In order, and not more than was asked for: so the count never gets below nothing.
    if (header.position != operation->settled || header.bytes == 0 ||
        header.bytes > operation->position - operation->settled || header.error > MP_RANGE ||
        length != sizeof header + (header.error ? 0 : header.bytes))
        return all.dropped("a reply is not what was asked for");
    operation->target->window->replied(*operation, header, data + sizeof header);
}

void Window::replied(Operation& operation, const wire::ReplyHeader& header, const std::byte* data) {
    const mp_data_t& result = operation.rma.result;
    operation.target->unanswered -= header.bytes;
    operation.settled += header.bytes;
    if (header.error)
        operation.error = static_cast<mp_error_t>(header.error);
    else if (result.convertor)
        all_.hooks_.unpack(result.convertor, header.position, data, header.bytes);
    else
        std::memcpy(static_cast<std::byte*>(result.buffer) + header.position, data, header.bytes);
    finish_if_over(operation);
}

void Windows::on_sync(void* self, const std::byte* data, std::size_t length) {
    Windows& all = *static_cast<Windows*>(self);
    wire::WindowSync message;
    if (length < sizeof message) return all.dropped("a synchronization is too short");
    std::memcpy(&message, data, sizeof message);
    const bool ends = message.what == wire::Sync::done || message.what == wire::Sync::fence;
    if (all.hold_back(message.window, message.origin, wire::kWindowSync, data, length)) return;
    Target* const origin = all.find(message.window, message.origin);
    if (!origin) return all.dropped("a synchronization is for no window");
    Window& window = *origin->window;
    const std::size_t more = length - sizeof message;
    if (!ends && more) return all.dropped("a synchronization has a wrong length");
    if (more && !window.put_held(*origin, data + sizeof message, more))
        return all.dropped("puts with the end of an epoch are not as long as they say");
    window.on_sync(*origin, message);
}

} // namespace ucx_mp::glue
