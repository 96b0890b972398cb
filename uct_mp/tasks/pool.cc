#include "uct_mp/tasks/pool.h"

#include <infiniband/mlx5dv.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "uct_mp/tasks/wait_entry.h"

namespace ucx_mp::tasks {

namespace {
constexpr Nanos kQuiet = 2'000'000;        // twice, while nothing may happen; adapters look more often than that
constexpr Nanos kPatience = 1'000'000'000; // then it must have happened
constexpr unsigned kBatch = 16;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
const std::string kNothing;
} // namespace

// The probe writes to itself: one queue, four words. It needs no more than the public calls.
struct Pool::Probe {
    enum class Step : std::uint8_t { other_value, half_the_value, the_value } step = Step::other_value;
    static constexpr std::uint64_t kValue = 0x5a5a5a5a00000007, kHalf = kValue & 0xffffffff, kData = 0x1234;
    alignas(64) std::array<std::uint64_t, 8> words{}; // 0: the word of the WAIT, 1: the data, 2: their destination
    verbs::MemoryRegion memory;
    std::unique_ptr<Queue> queue;
    Nanos until = 0;

    void store(unsigned word, std::uint64_t value) {
        std::atomic_ref(words[word]).store(value, std::memory_order_release);
    }
    [[nodiscard]] std::uint64_t look(unsigned word) {
        return std::atomic_ref(words[word]).load(std::memory_order_acquire);
    }
};

Pool::Pool(const verbs::DeviceSet& devices, Services& services, const Limits& limits)
    : devices_(devices), services_(services), limits_(limits) {}

Pool::~Pool() {
    for (PerDevice& on : per_device_) on.probe.reset(); // their queues use the others
}

const std::string& Pool::why_not(const verbs::Rail& rail) const { return per_device_[rail.device].why_not; }

unsigned Pool::room(const verbs::Device& device) const { return std::min(limits_.requests, device.max_cqe); }

bool Pool::open(const verbs::Device& device, PerDevice& on) {
    if (!on.cq) on.cq.reset(ibv_create_cq(device.context.get(), static_cast<int>(room(device)), nullptr, nullptr, 0));
    return on.cq != nullptr;
}

void Pool::settle(PerDevice& on, Waits result, std::string why_not) {
    on.probe.reset();
    on.waits = result;
    on.why_not = std::move(why_not);
}

Waits Pool::can_wait(const verbs::Rail& rail) {
    PerDevice& on = per_device_[rail.device];
    if (verbs::is_dead(devices_.device_of(rail))) return Waits::unknown;
    if (on.waits == Waits::unknown) begin_probe(rail, on);
    return on.waits;
}

void Pool::begin_probe(const verbs::Rail& rail, PerDevice& on) {
    const verbs::Device& device = devices_.device_of(rail);
    on.waits = Waits::yes; // so that create() makes one
    auto probe = std::make_unique<Probe>();
    errno = 0;
    const Status made = create(rail, 4, probe->queue);
    // A failure that may be gone the next time says nothing about the adapter.
    on.waits = Waits::unknown;
    if (failed(made)) {
        if (made == Status::io_error && errno == EOPNOTSUPP)
            settle(on, Waits::no, std::string("it takes no raw requests: ") + std::strerror(errno));
        return;
    }
    probe->memory.reset(ibv_reg_mr(device.pd.get(), probe->words.data(), sizeof probe->words, kAccess));
    Half half;
    probe->queue->tell(half);
    if (!probe->memory || failed(probe->queue->connect(half))) return;
    const auto at = [&probe](unsigned word) { return reinterpret_cast<std::uint64_t>(&probe->words[word]); };
    (void)probe->queue->wait(at(0), probe->memory->lkey, Probe::kValue);
    (void)probe->queue->write(at(1), sizeof(std::uint64_t), probe->memory->lkey, at(2), probe->memory->rkey);
    if (failed(probe->queue->post())) return;
    on.waits = Waits::trying;
    probe->until = services_.now() + kQuiet;
    on.probe = std::move(probe);
}

void Pool::step(PerDevice& on) {
    Probe& p = *on.probe;
    const Nanos now = services_.now();
    if (p.queue->failed() && p.queue->trouble() == IBV_WC_SUCCESS) { // its port was down: that says nothing about it
        on.probe.reset();
        on.waits = Waits::unknown;
        return;
    }
    if (p.queue->failed())
        return settle(on, Waits::no, std::string("a WAIT ends with ") + ibv_wc_status_str(p.queue->trouble()));
    if (p.step == Probe::Step::the_value) {
        if (p.queue->done() != 0)
            return settle(on, p.look(2) == Probe::kData ? Waits::yes : Waits::no,
                          p.look(2) == Probe::kData ? "" : "data behind a WAIT are read before it is over");
        if (now >= p.until) settle(on, Waits::no, "a WAIT does not end when its word is there");
        return;
    }
    if (p.queue->done() != 0 || p.look(2) != 0) return settle(on, Waits::no, "a WAIT does not wait");
    if (now < p.until) return;
    if (p.step == Probe::Step::other_value) {
        p.step = Probe::Step::half_the_value;
        p.store(0, Probe::kHalf);
        p.until = now + kQuiet;
    } else {
        p.step = Probe::Step::the_value;
        p.store(1, Probe::kData);
        p.store(0, Probe::kValue);
        p.until = now + kPatience;
    }
}

Status Pool::create(const verbs::Rail& rail, unsigned depth, std::unique_ptr<Queue>& out) {
    PerDevice& on = per_device_[rail.device];
    const verbs::Device& device = devices_.device_of(rail);
    if (on.waits != Waits::yes) return Status::unsupported;
    if (verbs::is_dead(device)) return Status::unreachable; // `device` may be a stand-in of one that lives
    if (depth == 0 || depth > std::min(kMostRequests, device.max_qp_wr)) return Status::invalid_param;
    verbs::Rail now = rail; // its LID may be another one by now
    if (!open(device, on) || !verbs::refresh(device, now)) return Status::io_error;
    if (!now.active) return Status::unreachable;
    if (queues_[rail.index] >= limits_.queues || on.requests + depth > room(device)) return Status::no_resource;
    auto queue = std::make_unique<Queue>(*this, device, now, depth);
    queue->qp_ =
        verbs::create_waiting_rc(device, now, on.cq.get(), {.send_wr = depth, .send_sge = 1, .inline_bytes = kInline});
    if (!queue->qp_) return Status::io_error;
    queue->ex_ = ibv_qp_to_qp_ex(queue->qp_.get());
    queue->dv_ = mlx5dv_qp_ex_from_ibv_qp_ex(queue->ex_);
    on.queues.emplace(queue->number(), queue.get());
    on.requests += depth;
    ++queues_[rail.index];
    out = std::move(queue);
    return Status::ok;
}

// The queue is on its way out; its entries in the completion queue go with its queue pair.
void Pool::forget(const Queue& queue) {
    if (!queue.qp_) return;
    PerDevice& on = per_device_[queue.device_.index];
    on.queues.erase(queue.number());
    on.requests -= queue.depth_;
    --queues_[queue.rail_.index];
}

void Pool::look_at_ports(const verbs::Device& device, PerDevice& on) {
    std::uint32_t downs = 0;
    for (const verbs::Rail& rail : devices_.rails())
        if (rail.device == device.index) downs += device.events->seen(rail.port).downs;
    if (std::exchange(on.downs, downs) == downs) return;
    for (const auto& [number, queue] : on.queues) queue->look_at_port();
}

unsigned Pool::poll() {
    unsigned all = 0;
    for (const verbs::Device& device : devices_.devices()) {
        PerDevice& on = per_device_[device.index];
        if (!on.cq) continue;
        look_at_ports(device, on);
        std::array<ibv_wc, kBatch> some;
        for (int n; (n = ibv_poll_cq(on.cq.get(), kBatch, some.data())) > 0; all += static_cast<unsigned>(n))
            for (int i = 0; i < n; ++i)
                if (const auto it = on.queues.find(some[i].qp_num); it != on.queues.end())
                    it->second->completed(some[i]);
        if (on.probe) step(on);
    }
    return all;
}

} // namespace ucx_mp::tasks
