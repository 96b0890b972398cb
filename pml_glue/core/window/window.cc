#include "pml_glue/core/window/window.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace ucx_mp::glue {

Window::Window(Windows& all, const mp_window_config_t& config, const mp_window_hooks_t& hooks)
    : all_(all), config_(config), hooks_(hooks), processes_(config.processes, config.processes + config.ranks),
      targets_(config.ranks) {
    if (!config.dynamic && config.size) exposed_ = all.port_.expose(config.base, config.size);
}

Window::~Window() {
    all_.locks_wanted_ -= static_cast<unsigned>(waiters_.size());
    for (Target* target : made_) {
        if (target->listed) std::erase(all_.waiting_, target);
        if (target->key) target->peer->endpoint->release_key(target->key);
    }
}

std::vector<std::byte> Window::keys() const { return exposed_ ? exposed_->keys() : std::vector<std::byte>(); }

void Window::set_keys(const std::byte* keys, std::size_t stride) {
    keys_ = keys;
    keys_stride_ = stride;
    for (Target* target : made_) take_key(*target);
}

// A dynamic window has none: attached memory comes and goes (keys.cc).
void Window::take_key(Target& target) {
    if (target.peer && keys_stride_ && !config_.dynamic)
        target.key = target.peer->endpoint->unpack_exposed(keys_ + target.rank * keys_stride_, keys_stride_);
}

Target& Window::make_target(std::uint32_t rank) {
    made_.reserve(targets_.size()); // steps that may fail come first
    auto known = std::make_unique<Target>();
    known->window = this;
    known->rank = rank;
    known->peer = all_.engine_.peer(processes_[rank]);
    known->failed = !known->peer || known->peer->failed;
    take_key(*known);
    made_.push_back(known.get());
    return *(targets_[rank] = std::move(known));
}

mp_error_t Window::error(std::uint32_t rank) {
    if (rank != MP_ALL_RANKS) return targets_[rank] ? std::exchange(targets_[rank]->error, MP_OK) : MP_OK;
    mp_error_t error = MP_OK;
    for (Target* target : made_) {
        const mp_error_t its = std::exchange(target->error, MP_OK);
        if (its != MP_OK) error = its;
    }
    return error;
}

void Window::attach(void* base, std::size_t size) {
    regions_.push_back({reinterpret_cast<std::uint64_t>(base), size, nullptr});
}

bool Window::detach(const void* base) {
    const auto found = std::find_if(regions_.begin(), regions_.end(), [&](const Region& region) {
        return region.base == reinterpret_cast<std::uint64_t>(base);
    });
    if (found == regions_.end()) return false;
    regions_.erase(found);
    return true;
}

void Window::free() { all_.free(*this); }

Windows::Windows(Engine& engine, Port& port, const mp_hooks_t& hooks)
    : engine_(engine), port_(port), hooks_(hooks), fences_cost_(port.fences_cost()) {
    port.handle(wire::kWindowOperation, on_operation, this);
    port.handle(wire::kWindowReply, on_reply, this);
    port.handle(wire::kWindowSync, on_sync, this);
    port.handle(wire::kWindowAsk, on_ask, this);
    port.handle(wire::kWindowKeys, on_keys, this);
    engine.observe(*this);
}

Windows::~Windows() {
    windows_.clear();
    while (Operation* const operation = free_operations_) {
        free_operations_ = operation->next;
        delete operation;
    }
    while (Move* const move = free_moves_) {
        free_moves_ = move->next;
        delete move;
    }
}

Window* Windows::create(const mp_window_config_t& config, const mp_window_hooks_t& hooks) {
    auto window = std::make_unique<Window>(*this, config, hooks); // first: a search finds no rank without a window
    return windows_.insert_or_assign(config.id, std::move(window)).first->second.get();
}

void Windows::free(Window& window) { windows_.erase(window.config_.id); }

void Windows::look_at_locks() {
    const std::uint64_t now = port_.now();
    for (const auto& [id, window] : windows_) window->look_at_locks(now);
}

Operation& Windows::new_operation() {
    Operation* operation = free_operations_;
    if (operation)
        free_operations_ = operation->next;
    else
        operation = new Operation;
    operation->id = operation->settled = operation->position = 0;
    operation->outstanding = 0;
    operation->memory = nullptr;
    operation->key = nullptr;
    operation->error = MP_OK;
    operation->is_sync = operation->by_moves = operation->held = operation->queued = operation->asks = false;
    return *operation;
}

Move& Windows::new_move() {
    Move* const move = free_moves_;
    if (!move) return *new Move;
    free_moves_ = move->next;
    return *move;
}

// Each target once; a target that still waits stays listed.
unsigned Windows::serve_waiting() {
    serving_ = true;
    turn_.swap(waiting_);
    for (Target* target : turn_) {
        target->listed = false;
        if (target->failed) continue;
        target->window->serve(*target);
        if (target->waits()) list(*target);
    }
    const auto count = static_cast<unsigned>(turn_.size());
    turn_.clear();
    serving_ = false;
    return count;
}

void Windows::peer_failed(Peer& peer) {
    for (const auto& [id, window] : windows_)
        for (Target* target : window->made_)
            if (target->peer == &peer) window->fail(*target);
}

// Never a peer that may be forgotten, with osc/mp: a window's communicator outlives it, and names its
// processes. The core does not rely on that, since a target without its peer would be memory that is gone.
bool Windows::holds(const Peer& peer) const {
    for (const auto& [id, window] : windows_)
        for (const Target* target : window->made_)
            if (target->peer == &peer) return true;
    return false;
}

// Replies, flushes, locks, posts, ends of epochs, barriers, room; and, for others, the holder of a lock that they want.
void Windows::waits_for(std::vector<Peer*>& peers) {
    for (const auto& [id, window] : windows_)
        for (const Target* target : window->made_)
            if (target->peer && !target->failed &&
                (target->open || target->waits() || (!window->waiters_.empty() && target->holds()) ||
                 target->executed < target->asked || target->lock == Lock::wanted ||
                 target->dones_seen < target->posts || target->posts_seen < target->starts ||
                 (target->done_told && target->fences_seen <= window->fences_) || window->barrier_round_ ||
                 target->throughs_seen < target->throughs_due))
                peers.push_back(target->peer);
}

Target* Windows::find(std::uint32_t window, std::uint32_t rank) {
    const auto found = windows_.find(window);
    if (found == windows_.end() || rank >= found->second->config_.ranks) return nullptr;
    return &found->second->target(rank);
}

bool Windows::hold_back(std::uint32_t window, std::uint32_t rank, MessageKind kind, const std::byte* data,
                        std::size_t length) const {
    if (!engine_.kept().in_thread) return false;
    const auto found = windows_.find(window);
    if (found == windows_.end() || rank >= found->second->config_.ranks) return false;
    return engine_.hold_back(found->second->processes_[rank], kind, data, length);
}

void Windows::dropped(const char* why) {
    if (counts_.dropped++ == 0) engine_.report(why);
}

std::string Windows::statistics() const {
    char text[200];
    const auto number = [](std::uint64_t count) { return static_cast<unsigned long long>(count); };
    std::snprintf(
        text, sizeof text,
        "; windows: puts %llu + copied %llu, gets %llu, messages %llu, executed %llu, keys %llu, dropped %llu",
        number(counts_.puts), number(counts_.copies), number(counts_.gets), number(counts_.messages),
        number(counts_.executed), number(counts_.keys), number(counts_.dropped));
    return text;
}

} // namespace ucx_mp::glue
