// Copies and atomics between processes.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "core/guarded_copy.h"
#include "core/liveness.h"
#include "core/notify.h"
#include "core/process.h"
#include "core/process_impl.h"

namespace softhca {

namespace {

// What a reader polls for: stored last, by one instruction where it is aligned.
constexpr size_t kLastWord = 8;
constexpr size_t kBatch = 64; // local pieces per system call; the kernel takes up to IOV_MAX
static_assert(kBatch + 2 <= IOV_MAX);

// Position in a list of local pieces.
class Cursor {
public:
    explicit Cursor(std::span<const iovec> pieces) : pieces_(pieces) {}
    // The next piece, at most `most` bytes; length 0 at the end.
    iovec next(size_t most) {
        while (i_ < pieces_.size() && at_ == pieces_[i_].iov_len) {
            ++i_;
            at_ = 0;
        }
        if (i_ == pieces_.size()) return {nullptr, 0};
        const iovec piece{static_cast<char*>(pieces_[i_].iov_base) + at_, std::min(most, pieces_[i_].iov_len - at_)};
        at_ += piece.iov_len;
        return piece;
    }

private:
    std::span<const iovec> pieces_;
    size_t i_ = 0, at_ = 0;
};

// Of a fault at `address` (1: unknown) in a copy of which one side is [remote, remote + length).
CopyResult whose(uintptr_t address, uintptr_t remote, size_t length) {
    return address != 1 && (address < remote || address >= remote + length) ? CopyResult::local_fault
                                                                            : CopyResult::fault;
}

CopyResult write_here(char* to, std::span<const iovec> local, size_t length) {
    const auto failed = [&](uintptr_t at) { return whose(at, reinterpret_cast<uintptr_t>(to), length); };
    const size_t body = length > kLastWord ? length - kLastWord : 0;
    Cursor cursor(local);
    for (size_t done = 0; done < body;) {
        const iovec piece = cursor.next(body - done);
        if (piece.iov_len == 0) return CopyResult::ok;
        if (const uintptr_t at = softhca_guarded_copy(to + done, piece.iov_base, piece.iov_len)) [[unlikely]]
            return failed(at);
        done += piece.iov_len;
    }
    // The last word may be spread over several pieces.
    char last[kLastWord];
    size_t have = 0;
    while (have < length - body) {
        const iovec piece = cursor.next(length - body - have);
        if (piece.iov_len == 0) return CopyResult::ok;
        if (const uintptr_t at = softhca_guarded_copy(last + have, piece.iov_base, piece.iov_len)) [[unlikely]]
            return failed(at);
        have += piece.iov_len;
    }
    std::atomic_thread_fence(std::memory_order_release);
    if (const uintptr_t at = softhca_guarded_copy(to + body, last, have)) [[unlikely]]
        return failed(at);
    return CopyResult::ok;
}

CopyResult read_here(const char* from, std::span<const iovec> local, size_t length) {
    Cursor cursor(local);
    for (size_t done = 0; done < length;) {
        const iovec piece = cursor.next(length - done);
        if (piece.iov_len == 0) return CopyResult::ok;
        if (const uintptr_t at = softhca_guarded_copy(piece.iov_base, from + done, piece.iov_len)) [[unlikely]]
            return whose(at, reinterpret_cast<uintptr_t>(from), length);
        done += piece.iov_len;
    }
    return CopyResult::ok;
}

// Whether all of the pieces can be read, or written.
bool usable(const iovec* pieces, size_t count, bool store) {
    constexpr size_t kPage = 4096;
    for (const iovec* piece = pieces; piece != pieces + count; ++piece) {
        const auto base = reinterpret_cast<uintptr_t>(piece->iov_base), end = base + piece->iov_len;
        for (uintptr_t at = base; at < end; at = (at | (kPage - 1)) + 1)
            if (softhca_guarded_touch(reinterpret_cast<char*>(at), store)) return false;
    }
    return true;
}

CopyResult why_failed(Segment& seg, uint32_t slot) {
    switch (errno) {
    case ESRCH:
        return CopyResult::dead;
    case EPERM:
        if (!slot_alive(seg, slot)) return CopyResult::dead;
        static std::atomic<bool> said{false};
        if (!said.exchange(true))
            std::fprintf(stderr, "softhca: the system forbids copies to process %d (kernel.yama.ptrace_scope, user)\n",
                         seg.proc(slot).pid.load());
        return CopyResult::fault;
    default:
        return CopyResult::fault;
    }
}

enum class Direction { write, read };

// The pieces in batches; a partial copy goes on behind what was copied, so that the error of the rest is found.
template <Direction D>
CopyResult copy_remote(Segment& seg, uint32_t slot, uint64_t remote, std::span<const iovec> local, size_t length) {
    ProcSlot& peer = seg.proc(slot);
    if (peer.state.load(std::memory_order_acquire) != ProcState::alive) return CopyResult::dead;
    if (slot_deserted(seg, slot)) [[unlikely]] // and not reaped yet
        return CopyResult::dead;
    const int pid = peer.pid.load(std::memory_order_relaxed);
    const size_t body = D == Direction::write && length > kLastWord ? length - kLastWord : length;
    Cursor cursor(local);
    std::array<iovec, kBatch> pieces;
    for (size_t gathered = 0; gathered < length;) {
        size_t count = 0, bytes = 0;
        while (count < kBatch && gathered < length) {
            // The last word of a write is a piece of its own: the kernel copies it on its own, last.
            const size_t most = gathered < body ? body - gathered : length - gathered;
            const iovec piece = cursor.next(most);
            if (piece.iov_len == 0) return CopyResult::fault;
            pieces[count++] = piece;
            bytes += piece.iov_len;
            gathered += piece.iov_len;
        }
        for (iovec* at = pieces.data(); bytes != 0;) {
            const iovec there{reinterpret_cast<void*>(remote), bytes};
            const ssize_t n = D == Direction::write ? process_vm_writev(pid, at, count, &there, 1, 0)
                                                    : process_vm_readv(pid, at, count, &there, 1, 0);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) {
                const bool address = errno == EFAULT; // here or there? The kernel does not say
                const CopyResult why = why_failed(seg, slot);
                return address && !usable(at, count, D == Direction::read) ? CopyResult::local_fault : why;
            }
            if (n == 0) return CopyResult::fault;
            bytes -= static_cast<size_t>(n);
            remote += static_cast<uint64_t>(n);
            for (auto left = static_cast<size_t>(n); left != 0;) {
                const size_t step = std::min(left, at->iov_len);
                at->iov_base = static_cast<char*>(at->iov_base) + step;
                at->iov_len -= step;
                left -= step;
                if (at->iov_len == 0) ++at, --count;
            }
        }
    }
    return CopyResult::ok;
}

SharedLock& atomic_lock(Segment& seg, uint32_t slot, uint64_t address) {
    const uint64_t hash = ((address >> 3) + slot * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
    return seg.at<SharedLock>(seg.atomic_locks)[hash >> 54];
}
static_assert(kAtomicLocks == 1u << 10);

} // namespace

CopyResult Process::write_to(uint32_t slot, uint64_t remote, std::span<const iovec> local, size_t length) {
    const CopyResult result = slot != slot_ ? copy_remote<Direction::write>(*segment_, slot, remote, local, length)
                                            : write_here(reinterpret_cast<char*>(remote), local, length);
    if (segment_->proc(slot).waiting.load(std::memory_order_relaxed) != 0) [[unlikely]]
        tell_waiting(slot, remote, length);
    return result;
}

// Not ordered with the look of a queue that is about to stand: that one looks again by itself, a little later.
void Process::tell_waiting(uint32_t slot, uint64_t address, uint64_t length) {
    if (virtual_now_) return g_written(address, length);
    segment_->proc(slot).written.store(1);
    ring(slot);
}

void Process::ring(uint32_t slot) {
    std::atomic<uint32_t>& bell = segment_->proc(slot).bell;
    bell.fetch_add(1);
    (void)syscall(SYS_futex, &bell, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void Process::await_bell(uint32_t seen, Nanos most) {
    const timespec limit{static_cast<time_t>(most / 1000000000), static_cast<long>(most % 1000000000)};
    (void)syscall(SYS_futex, &segment_->proc(slot_).bell, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

CopyResult Process::read_from(uint32_t slot, uint64_t remote, std::span<const iovec> local, size_t length) {
    if (slot != slot_) return copy_remote<Direction::read>(*segment_, slot, remote, local, length);
    return read_here(reinterpret_cast<const char*>(remote), local, length);
}

CopyResult Process::atomic_at(uint32_t slot, uint64_t remote, bool swap, uint64_t compare_add, uint64_t swap_value,
                              uint64_t* old) {
    if (remote % sizeof(uint64_t) != 0) return CopyResult::fault;
    const auto here = [&] {
        auto* word = reinterpret_cast<uint64_t*>(remote);
        const uintptr_t fault = swap ? softhca_guarded_swap(word, compare_add, swap_value, old)
                                     : softhca_guarded_add(word, compare_add, old);
        return fault ? CopyResult::fault : CopyResult::ok;
    };
    if (slot == slot_ && virtual_now_) { // single-threaded by definition
        const CopyResult result = here();
        if (segment_->proc(slot).waiting.load(std::memory_order_relaxed) != 0) [[unlikely]]
            tell_waiting(slot, remote, sizeof(uint64_t));
        return result;
    }
    // Everybody takes the lock, the process that owns the memory too: a remote atomic is a read and a write.
    SharedLock& lock = atomic_lock(*segment_, slot, remote);
    (void)lock.acquire(); // from_dead: the other's atomic has happened (one write) or not; nothing to repair
    CopyResult result = CopyResult::ok;
    if (slot == slot_) {
        result = here();
        if (segment_->proc(slot).waiting.load(std::memory_order_relaxed) != 0) [[unlikely]]
            tell_waiting(slot, remote, sizeof(uint64_t));
    } else {
        uint64_t value = 0;
        const iovec local{&value, sizeof value};
        result = read_from(slot, remote, {&local, 1}, sizeof value);
        *old = value;
        if (swap)
            value = value == compare_add ? swap_value : value;
        else
            value += compare_add;
        if (result == CopyResult::ok && value != *old) result = write_to(slot, remote, {&local, 1}, sizeof value);
    }
    lock.release();
    return result;
}

// ---- memory regions in use
// --------------------------------------------------------------------------------------------

std::atomic<uint32_t>& Process::take_cell(std::atomic<uint32_t> (&cells)[kHazards], uint32_t value) {
    static thread_local uint32_t t_cell = [] {
        static std::atomic<uint32_t> next{0};
        return next.fetch_add(1);
    }();
    for (uint32_t i = 0;; ++i) {
        std::atomic<uint32_t>& c = cells[(t_cell + i) % kHazards];
        uint32_t free = 0;
        if (c.load(std::memory_order_relaxed) == 0 && c.compare_exchange_strong(free, value)) return c;
        if (i % kHazards == kHazards - 1) sched_yield(); // all are in use: not for long
    }
}

MrRec* Process::mark_mr(uint32_t key, std::atomic<uint32_t>*& cell) {
    const uint32_t index = key >> 8;
    if (key == 0 || index >= kMaxMrs) return nullptr;
    MrRec& mr = segment_->mr(index);
    if (mr.key.load(std::memory_order_relaxed) != key) return nullptr;
    cell = &take_cell(segment_->proc(slot_).hazard, index + 1);
    // Mark first, then look again (the exchange is a full barrier): dereg does it the other way round.
    if (mr.key.load(std::memory_order_seq_cst) == key) return &mr;
    clear_mr(cell);
    return nullptr;
}

void Process::wait_mr_unused(uint32_t index) {
    if (virtual_now_) return;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const Nanos start = monotonic_now();
    const uint32_t top = segment_->proc_top.load();
    for (uint32_t slot = 0; slot < top; ++slot) {
        ProcSlot& p = segment_->proc(slot);
        for (auto& cell : p.hazard) {
            for (uint32_t spins = 0; cell.load(std::memory_order_acquire) == index + 1; ++spins) {
                if (spins < 1000) {
                    cpu_relax();
                    continue;
                }
                if (!slot_alive(*segment_, slot)) break;
                if (monotonic_now() - start > 2'000'000'000) {
                    std::fprintf(stderr, "softhca: process %d does not finish a copy; memory is released under it\n",
                                 p.pid.load());
                    return;
                }
                usleep(20);
            }
        }
    }
}

} // namespace softhca
