// Outgoing operations: as writes and reads of the port, or as messages.
#include <algorithm>
#include <cstring>

#include "pml_glue/core/window/window.h"

namespace ucx_mp::glue {

namespace {
constexpr std::size_t kCopied = 4096;         // puts and gets up to this size need no registered memory
constexpr std::size_t kLeastBlock = 1024;     // smaller blocks of a target's memory go many to a message
constexpr std::size_t kUnanswered = 64 << 10; // bytes that a target owes us at most
constexpr unsigned kMostRuns = 128;           // of a message
constexpr unsigned kAlwaysMoving = 2;

unsigned way_of(mp_rma_kind_t kind) { return kind == MP_PUT ? 0 : 1; }
} // namespace

wire::WireRun Cursor::peek_run(std::size_t most) const {
    if (byte_ != 0 || run_->bytes > most) {
        const Piece piece = peek(most);
        return {piece.address, 0, static_cast<std::uint32_t>(piece.bytes), 1};
    }
    const std::uint64_t repeat = std::min<std::uint64_t>(run_->repeat - repeat_, most / run_->bytes);
    return {address(), run_->stride, static_cast<std::uint32_t>(run_->bytes), static_cast<std::uint32_t>(repeat)};
}

void Cursor::skip(std::size_t bytes) {
    while (bytes) {
        const std::size_t now = std::min<std::size_t>(bytes, run_->bytes - byte_);
        bytes -= now;
        byte_ += now;
        if (byte_ != run_->bytes) return;
        byte_ = 0;
        if (++repeat_ != run_->repeat) continue;
        repeat_ = 0;
        ++run_;
    }
}

// By the port: contiguous memory here, or a put that can be packed; blocks there that are worth an operation each.
bool Window::can_move(const Target& target, const mp_rma_t& rma) const {
    if (!target.key || (rma.kind != MP_PUT && rma.kind != MP_GET)) return false;
    const Limits& limits = target.peer->endpoint->limits();
    if ((rma.kind == MP_PUT ? limits.max_put : limits.max_get) == 0) return false;
    if (rma.kind == MP_PUT ? rma.origin.convertor && !limits.max_put_packed : rma.result.convertor != nullptr)
        return false;
    for (std::size_t i = 0; i < rma.run_count; ++i)
        if (rma.runs[i].bytes < kLeastBlock && (rma.run_count > 1 || rma.runs[i].repeat > 1)) return false;
    return true;
}

mp_error_t Window::start(const mp_rma_t& rma) {
    Target& to = target(rma.target);
    if (to.failed) return to.error = MP_FAILED;
    Operation& operation = all_.new_operation();
    operation.target = &to;
    operation.rma = rma;
    operation.total = 0;
    for (std::size_t i = 0; i < rma.run_count; ++i) operation.total += rma.runs[i].bytes * rma.runs[i].repeat;
    if (rma.run_count == 1) {
        operation.run = rma.runs[0];
        operation.rma.runs = &operation.run;
    } else {
        operation.runs = std::make_unique<mp_run_t[]>(rma.run_count);
        std::copy_n(rma.runs, rma.run_count, operation.runs.get());
        operation.rma.runs = operation.runs.get();
    }
    operation.cursor.reset(operation.rma.runs, rma.unit, rma.extent);
    if (rma.kind == MP_COMPARE_SWAP) {
        std::memcpy(operation.small, rma.origin.buffer, rma.origin.bytes);
        operation.rma.origin.buffer = operation.small;
    }
    operation.by_moves = can_move(to, operation.rma) && register_memory(operation);
    operation.asks = config_.dynamic && wants_key(to, operation);
    if (operation.asks || (!operation.by_moves && operation.wants_reply()))
        operation.id = all_.ids_.add(operation, to.peer->secret);
    operation.generation = to.begin();
    or_end("starting an operation", [&] { set_out(operation); }); // the caller cannot be told that it has not begun
    return MP_OK;
}

// Copied when it arrives, and known by its move only.
bool Window::get_now(std::uint32_t rank, void* data, std::size_t bytes, std::uint64_t address, mp_epoch_t epoch) {
    Target& to = target(rank);
    if (epoch == MP_PASSIVE_SHARED) ask_for_lock(to);
    if (!to.key || to.failed || !to.moves[1].empty() || !to.may_go()) return false;
    if (to.moving[1] >= kAlwaysMoving && to.in_flight[1] >= config_.in_flight) return false;
    Endpoint& endpoint = *to.peer->endpoint;
    if (bytes > std::min(kCopied, endpoint.limits().max_get_packed)) return false;
    Move& move = all_.new_move();
    move.operation = nullptr;
    move.target = &to;
    move.bytes = bytes;
    move.completion.done = got;
    const Posted outcome = endpoint.get_packed(data, bytes, address, to.key, move.completion);
    if (outcome == Posted::in_progress) {
        move.generation = to.begin(), ++to.moving[1];
        to.in_flight[1] += bytes;
        ++all_.counts_.gets;
        return true;
    }
    move.next = all_.free_moves_;
    all_.free_moves_ = &move;
    all_.counts_.gets += outcome == Posted::done;
    return outcome == Posted::done;
}

void Window::got(Completion& completion, bool ok) {
    Move& move = *reinterpret_cast<Move*>(reinterpret_cast<char*>(&completion) - offsetof(Move, completion));
    Target& to = *move.target;
    Windows& all = to.window->all_;
    to.end(move.generation);
    --to.moving[1];
    to.in_flight[1] -= move.bytes;
    if (!ok) to.error = MP_FAILED;
    move.next = all.free_moves_;
    all.free_moves_ = &move;
}

// Registers memory that is too long for a copy. False: it cannot be registered.
bool Window::register_memory(Operation& operation) {
    Endpoint& endpoint = *operation.target->peer->endpoint;
    const Limits& limits = endpoint.limits();
    const mp_rma_t& rma = operation.rma;
    const mp_data_t& data = rma.kind == MP_PUT ? rma.origin : rma.result;
    const std::size_t copied = std::min(kCopied, rma.kind == MP_PUT ? limits.max_put_packed : limits.max_get_packed);
    const bool needed = std::any_of(rma.runs, rma.runs + rma.run_count, [&](auto& run) { return run.bytes > copied; });
    if (data.convertor || !needed) return true;
    operation.memory = endpoint.register_memory(data.buffer, data.bytes);
    return operation.memory;
}

// Posts it at once, if no operation of the same way waits.
void Window::set_out(Operation& operation) {
    Target& to = *operation.target;
    if (operation.asks) { // for now a question
        ++to.asking;
    } else if (operation.by_moves) {
        if (operation.rma.kind == MP_PUT) ++to.writes;
    } else if (!operation.is_sync && !operation.wants_reply()) {
        ++to.started;
    }
    Line& line = operation.by_moves ? to.moves[way_of(operation.rma.kind)] : to.messages;
    if (line.empty() && to.may_go() && (operation.by_moves || to.answers.empty()) &&
        advance(operation) != Posted::no_room)
        return;
    line.push(operation);
    all_.list(to);
}

// Any result but `no_room`: the operation needs no turn any more, and may be gone.
Posted Window::advance(Operation& operation) {
    if (operation.asks) return ask_for_key(operation);
    operation.held = true;
    const Posted outcome = operation.by_moves ? advance_moves(operation) : advance_message(operation);
    operation.held = false;
    if (outcome == Posted::no_room) return outcome;
    if (outcome == Posted::failed || outcome == Posted::refused) {
        operation.error = MP_FAILED;
        operation.total = operation.position; // pieces that have left are still answered, so the count ends
        // Without a synchronization the target waits for ever.
        if (outcome == Posted::failed || operation.is_sync) all_.engine_.give_up(*operation.target->peer);
    }
    finish_if_over(operation);
    return outcome;
}

Posted Window::advance_message(Operation& operation) {
    Target& to = *operation.target;
    Endpoint& endpoint = *to.peer->endpoint;
    if (operation.is_sync) {
        wire::WindowSync message{.window = config_.id,
                                 .origin = config_.rank,
                                 .number = operation.position,
                                 .what = operation.sync,
                                 .error = 0,
                                 .zero = 0};
        if (!to.held_puts.empty() && (operation.sync == wire::Sync::done || operation.sync == wire::Sync::fence)) {
            const Posted outcome = endpoint.send_packed(wire::kWindowSync, pack_end, &operation);
            if (outcome == Posted::done) to.held_puts.clear();
            return outcome;
        }
        std::uint64_t header;
        std::memcpy(&header, &message, sizeof header);
        return endpoint.send_short(wire::kWindowSync, header, reinterpret_cast<std::byte*>(&message) + sizeof header,
                                   sizeof message - sizeof header);
    }
    while (operation.position < operation.total) {
        if (operation.wants_reply() && to.unanswered >= kUnanswered) return Posted::no_room;
        const Posted outcome = endpoint.send_packed(wire::kWindowOperation, pack_operation, &operation);
        if (outcome != Posted::done) return outcome;
        ++all_.counts_.messages;
    }
    return Posted::done;
}

// The target's memory for the next message, from `room` bytes for its runs and, with
// `shares`, its data; `most` bytes of data at most. Returns the number of bytes.
std::size_t Window::pack_runs(Operation& operation, std::size_t room, std::size_t most, bool shares, std::byte* out,
                              std::uint16_t& runs) {
    std::size_t length = 0;
    for (runs = 0; operation.position < operation.total && runs < kMostRuns && room > sizeof(wire::WireRun); ++runs) {
        room -= sizeof(wire::WireRun);
        const wire::WireRun run = operation.cursor.peek_run(shares ? std::min(room, most) : most);
        const std::size_t bytes = std::size_t{run.bytes} * run.repeat;
        if (bytes == 0) break;
        std::memcpy(out + runs * sizeof run, &run, sizeof run);
        if (shares) room -= bytes;
        most -= bytes;
        operation.cursor.skip(bytes);
        operation.position += bytes;
        length += bytes;
    }
    return length;
}

// As many elements as fit into the message, and into the reply. A convertor may have packed less, since it does not cut
// the program's elements: then the runs are made anew.
std::size_t Window::pack_operation(void* out, void* argument) {
    Operation& operation = *static_cast<Operation*>(argument);
    const Window& window = *operation.target->window;
    const mp_rma_t& rma = operation.rma;
    const std::size_t most = operation.target->peer->endpoint->limits().max_packed;
    const std::size_t start = operation.position;
    const Cursor cursor = operation.cursor;
    auto* const runs_at = static_cast<std::byte*>(out) + sizeof(wire::OperationHeader);
    const bool pair = rma.kind == MP_COMPARE_SWAP, brings = rma.kind != MP_GET && (pair || start < rma.origin.bytes);
    const std::size_t room = most - sizeof(wire::OperationHeader) - (pair ? 2 * rma.unit : 0);
    const std::size_t fits = std::min<std::size_t>(most - sizeof(wire::ReplyHeader), wire::kMostAnswered);
    std::size_t answered = operation.wants_reply() ? fits : SIZE_MAX;
    if (brings && !pair) answered = std::min(answered, rma.origin.bytes - start); // behind it nothing is brought
    std::uint16_t runs;
    std::size_t length = pack_runs(operation, room, answered, brings && !pair, runs_at, runs), brought = 0;
    if (brings) {
        std::byte* const data = runs_at + runs * sizeof(wire::WireRun);
        const std::size_t wanted = pair ? rma.origin.bytes : length;
        brought = window.pack_data(rma.origin, pair ? 0 : start, data, wanted);
        if (brought < wanted) {
            operation.cursor = cursor;
            operation.position = start;
            length = pack_runs(operation, room, brought, true, runs_at, runs);
            std::memmove(runs_at + runs * sizeof(wire::WireRun), data, length);
            brought = length;
        }
    }
    const wire::OperationHeader header{.window = window.config_.id,
                                       .origin = window.config_.rank,
                                       .reply = operation.id,
                                       .position = start,
                                       .bytes = static_cast<std::uint32_t>(length),
                                       .unit = rma.unit,
                                       .extent = rma.extent,
                                       .op = rma.op,
                                       .type = rma.type,
                                       .runs = runs,
                                       .kind = static_cast<std::uint8_t>(rma.kind),
                                       .brings = brings};
    std::memcpy(out, &header, sizeof header);
    if (operation.wants_reply()) operation.target->unanswered += length;
    return sizeof header + runs * sizeof(wire::WireRun) + brought;
}

std::size_t Window::pack_data(const mp_data_t& data, std::size_t position, void* out, std::size_t bytes) const {
    if (data.convertor) return all_.hooks_.pack(data.convertor, position, out, bytes);
    std::memcpy(out, static_cast<const std::byte*>(data.buffer) + position, bytes);
    return bytes;
}

namespace {
struct Put {
    const Window* window;
    const mp_data_t* data;
    std::size_t position, bytes;
};
} // namespace

std::size_t Window::pack_put(void* out, void* argument) {
    Put& put = *static_cast<Put*>(argument);
    return put.bytes = put.window->pack_data(*put.data, put.position, out, put.bytes);
}

Posted Window::advance_moves(Operation& operation) {
    Target& to = *operation.target;
    Endpoint& endpoint = *to.peer->endpoint;
    RemoteKey* const key = operation.key ? operation.key : to.key;
    const Limits& limits = endpoint.limits();
    const bool put = operation.rma.kind == MP_PUT;
    const mp_data_t& data = put ? operation.rma.origin : operation.rma.result;
    while (operation.position < operation.total) {
        Cursor::Piece piece = operation.cursor.peek(put ? limits.max_put : limits.max_get);
        if (put && !data.convertor && piece.bytes <= limits.max_put_short) {
            const Posted outcome = endpoint.put_short(static_cast<const std::byte*>(data.buffer) + operation.position,
                                                      piece.bytes, piece.address, key);
            if (outcome != Posted::done) return outcome;
            ++all_.counts_.copies;
        } else if (put && limits.max_put_packed && (data.convertor || piece.bytes <= kCopied)) {
            piece.bytes = std::min(piece.bytes, limits.max_put_packed);
            Put packing{this, &data, operation.position, piece.bytes};
            const Posted outcome = endpoint.put_packed(pack_put, &packing, piece.address, key);
            if (outcome != Posted::done) return outcome;
            piece.bytes = packing.bytes;
            ++all_.counts_.copies;
        } else {
            const Posted outcome = post_move(operation, piece, way_of(operation.rma.kind));
            if (outcome != Posted::done && outcome != Posted::in_progress) return outcome;
        }
        operation.cursor.skip(piece.bytes);
        operation.position += piece.bytes;
    }
    return Posted::done;
}

// Moves from or to the program's memory. There are always two under way, and more up to the limit of bytes.
Posted Window::post_move(Operation& operation, Cursor::Piece piece, unsigned way) {
    Target& to = *operation.target;
    Endpoint& endpoint = *to.peer->endpoint;
    RemoteKey* const key = operation.key ? operation.key : to.key;
    const Limits& limits = endpoint.limits();
    const bool put = way == 0;
    if (to.moving[way] >= kAlwaysMoving && to.in_flight[way] >= config_.in_flight) return Posted::no_room;
    auto* const memory =
        static_cast<std::byte*>((put ? operation.rma.origin : operation.rma.result).buffer) + operation.position;
    const bool copied = !put && piece.bytes <= std::min(kCopied, limits.max_get_packed);
    all_.engine_.tell(*to.peer, Hint::one_sided_epoch, operation.total);
    Move& move = all_.new_move();
    move.operation = &operation;
    move.bytes = piece.bytes;
    move.completion.done = moved;
    ++operation.outstanding;
    ++to.moving[way];
    to.in_flight[way] += piece.bytes;
    const Posted outcome =
        put      ? endpoint.put(memory, piece.bytes, operation.memory, piece.address, key, move.completion)
        : copied ? endpoint.get_packed(memory, piece.bytes, piece.address, key, move.completion)
                 : endpoint.get(memory, piece.bytes, operation.memory, piece.address, key, move.completion);
    if (outcome == Posted::done || outcome == Posted::in_progress) ++(put ? all_.counts_.puts : all_.counts_.gets);
    if (outcome == Posted::in_progress) return outcome;
    --operation.outstanding;
    --to.moving[way];
    to.in_flight[way] -= piece.bytes;
    move.next = all_.free_moves_;
    all_.free_moves_ = &move;
    return outcome;
}

void Window::moved(Completion& completion, bool ok) {
    Move& move = *reinterpret_cast<Move*>(reinterpret_cast<char*>(&completion) - offsetof(Move, completion));
    Operation& operation = *move.operation;
    Target& to = *operation.target;
    Window& window = *to.window;
    const unsigned way = way_of(operation.rma.kind);
    --operation.outstanding;
    --to.moving[way];
    to.in_flight[way] -= move.bytes;
    if (!ok) operation.error = MP_FAILED;
    move.next = window.all_.free_moves_;
    window.all_.free_moves_ = &move;
    window.finish_if_over(operation); // the port says whether the target is gone
}

void Window::finish_if_over(Operation& operation) {
    if (operation.held || operation.queued || operation.outstanding || operation.position < operation.total) return;
    if (operation.id && operation.settled < operation.total) return;
    finish(operation);
}

void Window::finish(Operation& operation) {
    Target& to = *operation.target;
    if (operation.id) all_.ids_.remove(operation.id);
    if (operation.memory) to.peer->endpoint->deregister(operation.memory);
    if (operation.key) to.peer->endpoint->release_key(operation.key);
    const mp_error_t error = operation.error;
    if (error != MP_OK) to.error = error;
    void* const user = operation.is_sync ? nullptr : operation.rma.user;
    if (!operation.is_sync) to.end(operation.generation);
    operation.runs.reset();
    operation.next = all_.free_operations_;
    all_.free_operations_ = &operation;
    if (user) all_.engine_.kept().tell(hooks_.rma_done, user, error);
}

void Window::tell_in_order(Target& to, wire::Sync what, std::uint64_t number) {
    Operation& operation = all_.new_operation();
    operation.target = &to;
    operation.is_sync = true;
    operation.sync = what;
    operation.position = operation.total = number;
    set_out(operation);
}

void Window::tell(Target& to, wire::Sync what, std::uint64_t number, mp_error_t error) {
    const wire::WindowSync message{.window = config_.id,
                                   .origin = config_.rank,
                                   .number = number,
                                   .what = what,
                                   .error = static_cast<std::uint8_t>(error),
                                   .zero = 0};
    answer(to, wire::kWindowSync, &message, sizeof message, nullptr, 0);
}

namespace {
struct Parts {
    const void *header, *data;
    std::size_t header_bytes, bytes;
};
std::size_t pack_parts(void* out, void* argument) {
    const Parts& parts = *static_cast<Parts*>(argument);
    std::memcpy(out, parts.header, parts.header_bytes);
    if (parts.bytes) std::memcpy(static_cast<std::byte*>(out) + parts.header_bytes, parts.data, parts.bytes);
    return parts.header_bytes + parts.bytes;
}
} // namespace

void Window::answer(Target& to, MessageKind kind, const void* header, std::size_t header_bytes, const void* data,
                    std::size_t bytes) {
    if (to.failed) return;
    Parts parts{header, data, header_bytes, bytes};
    if (to.answers.empty()) {
        const Posted outcome = to.peer->endpoint->send_packed(kind, pack_parts, &parts);
        // The origin would wait for ever.
        if (outcome == Posted::failed || outcome == Posted::refused) all_.engine_.give_up(*to.peer);
        if (outcome != Posted::no_room) return;
    }
    Answer& answer = to.answers.emplace_back();
    answer.kind = kind;
    answer.bytes.resize(header_bytes + bytes);
    pack_parts(answer.bytes.data(), &parts);
    all_.list(to);
}

void Window::serve(Target& to) {
    while (!to.answers.empty()) {
        Answer answer = std::move(to.answers.front());
        to.answers.pop_front();
        Parts parts{answer.bytes.data(), nullptr, answer.bytes.size(), 0};
        const Posted outcome = to.peer->endpoint->send_packed(answer.kind, pack_parts, &parts);
        if (outcome == Posted::failed || outcome == Posted::refused) all_.engine_.give_up(*to.peer);
        if (outcome == Posted::no_room) {
            to.answers.push_front(std::move(answer));
            return;
        }
    }
    if (!to.may_go()) return;
    (void)serve_line(to.messages);
    // Turn by turn: a put, a get, a put.
    for (bool more = true; more;) {
        more = false;
        for (Line& line : to.moves) {
            if (line.empty()) continue;
            Operation& operation = line.pop();
            if (advance(operation) == Posted::no_room)
                line.push_front(operation);
            else
                more = true;
        }
    }
}

// False: there is no room.
bool Window::serve_line(Line& line) {
    while (!line.empty()) {
        Operation& operation = line.pop();
        if (advance(operation) == Posted::no_room) {
            line.push_front(operation);
            return false;
        }
    }
    return true;
}

void Window::fail(Target& to) {
    if (to.failed) return;
    to.failed = true;
    to.error = MP_FAILED;
    to.answers.clear();
    to.held_puts.clear();
    const auto end = [&](Line& line) {
        while (!line.empty()) {
            Operation& operation = line.pop();
            operation.error = MP_FAILED;
            operation.position = operation.settled = operation.total;
            finish_if_over(operation);
        }
    };
    end(to.messages);
    end(to.moves[0]);
    end(to.moves[1]);
    all_.ids_.for_each([&](Operation& operation) {
        if (operation.target != &to) return;
        operation.error = MP_FAILED;
        operation.position = operation.settled = operation.total;
        finish_if_over(operation);
    });
    all_.locks_wanted_ -=
        static_cast<unsigned>(std::erase_if(waiters_, [&](const Waiter& waiter) { return waiter.target == &to; }));
    release_lock(to);
}

} // namespace ucx_mp::glue
