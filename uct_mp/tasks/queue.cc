#include "uct_mp/tasks/queue.h"

#include <infiniband/mlx5dv.h>

#include <cassert>
#include <cerrno>
#include <cstring>
#include <random>

#include "uct_mp/tasks/pool.h"
#include "uct_mp/tasks/wait_entry.h"

namespace ucx_mp::tasks {

namespace {
constexpr std::uint64_t kWord = 8;
constexpr std::uint64_t kLast = 1; // bit of a request's id: the last one of its task; above it: the task's number
} // namespace

Queue::Queue(Pool& pool, const verbs::Device& device, const verbs::Rail& rail, unsigned depth)
    : pool_(pool), device_(device), rail_(rail), depth_(depth), task_(depth), sizes_(depth),
      first_psn_(std::random_device{}() & 0xffffff), downs_(device.events->seen(rail.port).downs) {}

Queue::~Queue() { pool_.forget(*this); }

void Queue::set(State to) {
    assert(to > state_); // never back
    state_ = to;
}

void Queue::tell(Half& out) const {
    out = {.version = kHalfVersion,
           .mtu = static_cast<std::uint8_t>(rail_.mtu),
           .device = static_cast<std::uint8_t>(device_.index),
           .ethernet = rail_.ethernet,
           .lid = rail_.lid,
           .zero = 0,
           .qp_number = number(),
           .first_psn = first_psn_,
           .gid = {}};
    std::memcpy(out.gid, rail_.gid.data(), sizeof out.gid);
}

Status Queue::connect(const Half& peer) {
    const bool good = peer.version == kHalfVersion && peer.mtu >= IBV_MTU_256 && peer.mtu <= IBV_MTU_4096 &&
                      peer.device < verbs::kMaxDevices && peer.ethernet == (rail_.ethernet ? 1 : 0) &&
                      peer.qp_number < 1u << 24 && (peer.ethernet || peer.lid != 0);
    if (!good || state_ != State::made) return Status::invalid_param;
    verbs::RemoteEnd remote{.dlid = peer.lid,
                            .source_path_bits = 0,
                            .mtu = static_cast<ibv_mtu>(peer.mtu),
                            .qp_number = peer.qp_number,
                            .rq_psn = peer.first_psn,
                            .gid = {}};
    std::memcpy(remote.gid.data(), peer.gid, sizeof peer.gid);
    if (const int error = verbs::connect_rc(qp_.get(), rail_, remote, pool_.limits_.reliability, first_psn_)) {
        errno = error;
        return Status::io_error;
    }
    set(State::connected);
    look_at_port(); // it may have gone down since the queue was made
    return Status::ok;
}

Status Queue::add(const Request& request) {
    if (filled_ == depth_) return Status::no_resource;
    task_[filled_++] = request;
    return Status::ok;
}

Status Queue::wait(std::uint64_t word, std::uint32_t lkey, std::uint64_t value) {
    if (word % kWord != 0) return Status::invalid_param;
    return add(
        {.kind = Request::Kind::wait, .bytes = 0, .lkey = lkey, .rkey = 0, .local = word, .value = value, .remote = 0});
}

Status Queue::write(std::uint64_t from, std::uint32_t bytes, std::uint32_t lkey, std::uint64_t to, std::uint32_t rkey) {
    return add({.kind = Request::Kind::write,
                .bytes = bytes,
                .lkey = lkey,
                .rkey = rkey,
                .local = from,
                .value = 0,
                .remote = to});
}

Status Queue::word(std::uint64_t value, std::uint64_t to, std::uint32_t rkey) {
    if (to % kWord != 0) return Status::invalid_param;
    return add(
        {.kind = Request::Kind::word, .bytes = 0, .lkey = 0, .rkey = rkey, .local = 0, .value = value, .remote = to});
}

// A task's last request asks for a completion. Writes behind a WAIT are fenced: their data must not be read before.
Status Queue::post() {
    if (state_ != State::connected) {
        forget();
        return Status::io_error;
    }
    if (filled_ == 0) return Status::invalid_param;
    if (used_ + filled_ > depth_) return Status::no_resource;
    ibv_wr_start(ex_);
    bool waited = false;
    for (unsigned i = 0; i < filled_; ++i) {
        Request& r = task_[i];
        const bool last = i + 1 == filled_;
        ex_->wr_id = posted_ << 1 | (last ? kLast : 0);
        ex_->wr_flags = (last ? IBV_SEND_SIGNALED : 0) | (waited ? IBV_SEND_FENCE : 0);
        waited = r.kind == Request::Kind::wait;
        switch (r.kind) {
        case Request::Kind::wait: {
            const WaitEntry entry = wait_until_equal(qp_->qp_num, r.local, r.lkey, r.value, last);
            mlx5dv_wr_raw_wqe(dv_, &entry);
            break;
        }
        case Request::Kind::write:
            ibv_wr_rdma_write(ex_, r.rkey, r.remote);
            ibv_wr_set_sge(ex_, r.lkey, r.local, r.bytes);
            break;
        case Request::Kind::word:
            ibv_wr_rdma_write(ex_, r.rkey, r.remote);
            ibv_wr_set_inline_data(ex_, &r.value, sizeof r.value);
            break;
        }
    }
    const int error = ibv_wr_complete(ex_);
    const unsigned size = filled_;
    forget();
    if (error) { // the adapter has taken none of it
        errno = error;
        set(State::failed);
        return Status::io_error;
    }
    sizes_[posted_ % depth_] = size;
    used_ += size;
    ++posted_;
    return Status::ok;
}

// Also where it is up again by now: what was under way meanwhile is tried again only after a timeout.
void Queue::look_at_port() {
    if (state_ == State::connected && device_.events->seen(rail_.port).downs != downs_) set(State::failed);
}

// Completions of a queue pair come in order. After an error every request has one, except those that succeeded unasked.
void Queue::completed(const ibv_wc& wc) {
    const std::uint64_t task = wc.wr_id >> 1;
    if (wc.status != IBV_WC_SUCCESS) {
        if (trouble_ == IBV_WC_SUCCESS) trouble_ = wc.status;
        if (state_ == State::connected) set(State::failed);
    }
    if ((wc.wr_id & kLast) == 0) return;
    if (wc.status == IBV_WC_SUCCESS) done_ = task + 1;
    used_ -= sizes_[task % depth_];
    back_ = task + 1;
    all_back();
}

void Queue::all_back() {
    if (state_ == State::ending && back_ == posted_) set(State::dead);
}

Status Queue::end() {
    forget();
    if (state_ == State::dead) return Status::ok;
    if (verbs::is_dead(device_)) {
        leave();
        return Status::ok;
    }
    if (state_ != State::ending) {
        if (const int error = verbs::to_error(qp_.get())) {
            errno = error;
            return Status::io_error;
        }
        set(State::ending);
        all_back();
        if (state_ != State::dead) (void)pool_.poll();
    }
    return state_ == State::dead ? Status::ok : Status::in_progress;
}

// A dead adapter takes no commands and gives back only the entries of the completion queue.
void Queue::leave() {
    (void)pool_.poll();
    pool_.forget(*this);
    qp_.reset();
    ex_ = nullptr;
    dv_ = nullptr;
    set(State::dead);
}

Ended Queue::ended() const { return {.version = kHalfVersion, .zero = 0, .done = done_, .posted = posted_}; }

Status Queue::how_far(const Ended& peer, Ended& ours) const {
    if (peer.version != kHalfVersion || peer.done > peer.posted) return Status::invalid_param;
    if (state_ != State::dead) return Status::in_progress;
    ours = ended();
    return Status::ok;
}

} // namespace ucx_mp::tasks
