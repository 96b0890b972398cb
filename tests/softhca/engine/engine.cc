#include "engine/engine.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "engine/placement.h"
#include "engine/read_stream.h"
#include "engine/requester.h"
#include "engine/waits.h"

namespace softhca {

namespace {
constexpr Nanos kSpin = 30000; // the helper wakes this long before an event and spins: timers of the kernel are late
constexpr Nanos kLeftAlone = 200000;       // then the helper looks whether the program still polls
constexpr Nanos kMostLeftAlone = 3000000;  // less than a real-time network may lag (kMaxLag)
constexpr uint64_t kPollsAfterArming = 16; // who arms a queue and waits looks once more before
// Time on the links, less than any useful retry time: progress is seen when it is copied.
constexpr Nanos kGathered = 1000000;
Engine* g_engine = nullptr;
} // namespace

Engine* Engine::current() { return g_engine; }

unsigned cores() {
    static const unsigned n = static_cast<unsigned>(sysconf(_SC_NPROCESSORS_ONLN));
    return n;
}

Engine::Engine(Process& process, bool virtual_time)
    : process_(process), waiting_(process.seg().proc(process.slot()).waiting), virtual_time_(virtual_time) {
    Segment& seg = process.seg();
    modelled_ = seg.fabric.modelled.load() != 0 || virtual_time;
    chunk_packets_ = modelled_ ? std::clamp<uint32_t>(seg.img().chunk_mtus, 1, 64) : 64;
    network_ = virtual_time ? make_virtual_network(seg, scheduler_) : make_real_network(seg, scheduler_);
    generation_ = seg.fabric.generation.load();
    g_engine = this;
}

Engine::~Engine() {
    if (thread_started_) {
        {
            std::lock_guard guard(sleep_mutex_);
            stopping_ = true;
        }
        process_.ring(process_.slot());
        thread_.join();
    }
    // What was still under way ends with the engine; the events that name it are never fired.
    scheduler_.clear();
    for (Requester* r : graveyard_) delete r;
    for (Qp* qp : qps) {
        if (!qp) continue;
        delete qp->requester;
        qp->requester = nullptr;
    }
    drop_placements(*this);
    if (g_engine == this) g_engine = nullptr;
}

void Engine::run_due(Nanos now_) {
    if (!virtual_time_) {
        gathers_ = true;
        fires_.store(true, std::memory_order_relaxed);
        for (Nanos due; (due = scheduler_.next_due()) <= now_;) {
            if (!gathered_.empty() && due > gathered_until_) deliver_gathered();
            scheduler_.fire_next();
        }
        gathers_ = false;
        deliver_gathered();
        fires_.store(false, std::memory_order_release);
    }
    if (graveyard_.size() >= sweep_from_) sweep();
}

bool Engine::gather(ReadStream& stream, Nanos when) {
    if (!gathers_) return false;
    if (gathered_.empty()) gathered_until_ = when + kGathered;
    if (std::find(gathered_.begin(), gathered_.end(), &stream) == gathered_.end()) gathered_.push_back(&stream);
    return true;
}

void Engine::deliver_gathered() {
    for (size_t i = 0; i < gathered_.size(); ++i) gathered_[i]->deliver_gathered();
    gathered_.clear();
}

void Engine::sweep() {
    std::erase_if(graveyard_, [](Requester* r) {
        if (!r->unused()) return false;
        delete r;
        return true;
    });
    sweep_from_ = 2 * graveyard_.size() + 1;
}

void Engine::forget_qp(const Qp& qp) {
    qps[qp.requester->position] = nullptr;
    if (2 * ++destroyed_ <= qps.size()) return;
    std::erase(qps, nullptr);
    for (size_t i = 0; i < qps.size(); ++i) qps[i]->requester->position = i;
    destroyed_ = 0;
}

void Engine::note_fabric_change() {
    generation_.store(seg().fabric.generation.load(std::memory_order_acquire));
    const Nanos t = now();
    network_->note_change(t);
    for (size_t i = 0; i < qps.size(); ++i)
        if (qps[i] && qps[i]->requester) qps[i]->requester->note_fabric_change(t);
}

void Engine::note_death() {
    const std::lock_guard guard(mutex); // else another thread may be in the middle of it
    if (seg().fabric.generation.load(std::memory_order_acquire) != generation_.load(std::memory_order_relaxed))
        note_fabric_change();
}

void Engine::poll_slow() {
    if (virtual_time_) return;
    poll_count_.store(poll_count_.load(std::memory_order_relaxed) + 1,
                      std::memory_order_relaxed); // a hint: may miss some
    const bool changed =
        seg().fabric.generation.load(std::memory_order_relaxed) != generation_.load(std::memory_order_relaxed);
    if (!changed && next_due_.load(std::memory_order_relaxed) > now()) return; // a timer, far away as a rule
    if (!mutex.try_lock()) return;
    if (seg().fabric.generation.load(std::memory_order_relaxed) != generation_.load(std::memory_order_relaxed))
        note_fabric_change();
    if (scheduler_.next_due() != kNever) {
        run_due(now());
        next_due_.store(scheduler_.next_due(), std::memory_order_relaxed);
    }
    mutex.unlock();
}

void Engine::catch_up() {
    if (virtual_time_ || !Process::current())
        return; // in a child of fork() the mutex may be a thread's that is not there
    // In this order: a time that an event has set while it was fired comes with `fires_`, or from behind it.
    if (next_due_.load(std::memory_order_acquire) > now() && !fires_.load(std::memory_order_acquire)) return poll();
    const std::lock_guard guard(mutex);
    if (seg().fabric.generation.load(std::memory_order_relaxed) != generation_.load(std::memory_order_relaxed))
        note_fabric_change();
    run_due(now());
    next_due_.store(scheduler_.next_due(), std::memory_order_relaxed);
}

void Engine::kick() {
    if (virtual_time_) return;
    const Nanos due = scheduler_.next_due();
    next_due_.store(due, std::memory_order_release);
    if (due == kNever) return;
    if (!thread_started_) {
        thread_started_ = true;
        sigset_t all, old;
        sigfillset(&all);
        for (const int fault : {SIGSEGV, SIGBUS}) sigdelset(&all, fault); // core/guarded_copy.h
        pthread_sigmask(SIG_SETMASK, &all, &old);                         // signals are the application's
        thread_ = std::thread([this] { helper(); });
        pthread_sigmask(SIG_SETMASK, &old, nullptr);
        pthread_setname_np(thread_.native_handle(), "softhca");
        return;
    }
    std::lock_guard guard(sleep_mutex_);
    if (due + kSpin < sleeping_until_) process_.ring(process_.slot());
}

void Engine::expect_sleep() {
    if (virtual_time_) return;
    std::lock_guard guard(sleep_mutex_);
    seen_polls_ = poll_count_.load(std::memory_order_relaxed) + kPollsAfterArming;
    const Nanos due = next_due_.load(std::memory_order_relaxed);
    if (due != kNever && (left_alone_ || due + kSpin < sleeping_until_)) process_.ring(process_.slot());
}

// More processes than processors: looking costs the others' time, and a turn of theirs is longer.
Nanos Engine::left_alone_for() const {
    const uint32_t each = std::max(1u, process_.seg().live_procs.load(std::memory_order_relaxed) / cores());
    return std::min(each * kLeftAlone, kMostLeftAlone);
}

// Others ring without the lock, having said why: that is looked at after the bell. While the program polls it looks at
// its waits by itself.
void Engine::sleep_for(std::unique_lock<std::mutex>& lock, Nanos most) {
    const ProcSlot& own = seg().proc(process_.slot());
    const uint32_t seen = own.bell.load();
    if (own.written.load() != 0 && !left_alone_) return;
    lock.unlock();
    process_.await_bell(seen, most);
    lock.lock();
}

Waits& Engine::waits() {
    if (!waits_) waits_ = std::make_unique<Waits>(*this);
    return *waits_;
}

void Engine::look_at_waits(uint32_t device) {
    const std::unique_lock guard(mutex, std::try_to_lock);
    if (!guard || !waits_) return;
    const Nanos t = now();
    waits_->look(device, t);
    if (virtual_time_) return;
    run_due(t);
    next_due_.store(scheduler_.next_due(), std::memory_order_relaxed);
}

// Drives the engine when nobody polls: sleeps until shortly before the next event, then spins. While the program polls
// by itself (poll_count_ moves), the helper only looks every 200 us whether it still does. kick() does not wake it
// then: messages of a burst would, again and again, and of two processors with two processes it takes the receiver's.
void Engine::helper() {
    for (;;) {
        {
            std::unique_lock lock(sleep_mutex_);
            if (stopping_) return;
            const uint64_t polls = poll_count_.load(std::memory_order_relaxed);
            const bool program_polls = polls > seen_polls_;
            seen_polls_ = std::max(seen_polls_, polls);
            // Read under the lock: kick() publishes first and looks then whether somebody sleeps too long.
            const Nanos due = next_due_.load(std::memory_order_relaxed);
            const Nanos t = now();
            if (due == kNever) {
                sleeping_until_ = kNever;
                // Bounded, because nobody wakes us when the fabric changes.
                sleep_for(lock, 10000000);
            } else if (program_polls) {
                left_alone_ = true;
                sleep_for(lock, left_alone_for());
                left_alone_ = false;
                continue; // what is due is the program's, if it has polled meanwhile
            } else if (due > t + kSpin) {
                sleeping_until_ = due - kSpin;
                sleep_for(lock, std::min<Nanos>(due - kSpin - t, 10000000));
            }
            sleeping_until_ = 0;
            if (stopping_) return;
        }
        const bool changed =
            seg().fabric.generation.load(std::memory_order_relaxed) != generation_.load(std::memory_order_relaxed);
        const bool written = seg().proc(process_.slot()).written.exchange(0) != 0;
        const Nanos soon = next_due_.load(std::memory_order_relaxed);
        if (!changed && !written && (soon == kNever || soon > now() + kSpin)) continue;
        for (int i = 0; i < 100000 && next_due_.load(std::memory_order_relaxed) > now() && !changed && !written; ++i)
            cpu_relax();
        std::lock_guard guard(mutex);
        if (changed) note_fabric_change();
        if (written && waits_) waits_->look_all(now());
        run_due(now());
        next_due_.store(scheduler_.next_due(), std::memory_order_relaxed);
    }
}

bool Engine::step(Nanos& clock) {
    std::lock_guard guard(mutex);
    if (seg().fabric.generation.load(std::memory_order_relaxed) != generation_.load(std::memory_order_relaxed))
        note_fabric_change();
    if (scheduler_.empty()) return false;
    clock = std::max(clock, scheduler_.next_due());
    scheduler_.fire_next();
    if (graveyard_.size() >= sweep_from_) sweep();
    return true;
}

void Engine::charge_command(uint32_t device, int which, uint32_t caller) {
    if (virtual_time_ && !on_command && !(host && host->costs.commands)) return;
    const uint32_t override_ns = seg().device(device).command_ns[which].load(std::memory_order_relaxed);
    const AdapterLimits& l = seg().img().device(device).limits;
    const uint32_t costs[] = {l.command_create_ns, l.command_modify_ns, l.command_query_ns, l.command_reg_ns,
                              l.command_destroy_ns};
    const uint32_t cost = override_ns != kNone ? override_ns : modelled_ ? costs[which] : 0;
    if (cost == 0) return;
    if (virtual_time_) {
        if (on_command)
            on_command(cost);
        else
            host->spend(caller, device, cost, now());
        return;
    }
    const Nanos end = now() + cost;
    if (cost > 60000) {
        const uint32_t most = cost - 50000; // then spin: timers of the kernel are late
        const timespec t{most / 1000000000, static_cast<long>(most % 1000000000)};
        nanosleep(&t, nullptr);
    }
    while (now() < end) cpu_relax();
}

} // namespace softhca
