// An adapter's abilities, and whether it keeps its promises.
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "uct_mp/host/services.h"
#include "uct_mp/tasks/pool.h"
#include "uct_mp/ucx/check/checks.h"
#include "uct_mp/verbs/clock_fit.h"

namespace ucx_mp::check {

namespace {

struct HostClock final : Services {
    Nanos now() override {
        return static_cast<Nanos>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
                .count());
    }
    Timer at(Nanos, std::function<void()>) override { return 0; }
    void cancel(Timer) override {}
    bool logs(LogLevel) const override { return false; }
    void log(LogLevel, const char*) override {}
};

} // namespace

void Checks::adapter(Lane& lane) {
    const verbs::Device& device = *lane.device;
    report_.line("queue pairs with a shared receive queue", Verdict::yes,
                 "%u reads and atomics, %u bytes inline, %u requests per queue pair", device.max_rd_atomic,
                 lane.granted_inline, device.max_qp_wr);
    resize(device);
    clocks(lane);
    waits(lane);
    // Checks without traffic.
    report_.feature("mp_dc (UCX_TLS)", device.has_dc);
    report_.feature("delivery times by the adapters' clocks", device.has_timestamps);
}

void Checks::resize(const verbs::Device& device) {
    const char* what = "completion queues grow";
    verbs::CompletionQueue cq(ibv_create_cq(device.context.get(), 64, nullptr, nullptr, 0));
    if (!cq) return report_.failed(what, std::strerror(errno));
    if (ibv_resize_cq(cq.get(), 1024) == 0)
        report_.line(what, Verdict::yes, "they begin small and grow with the peers");
    else
        report_.line(what, Verdict::no, "they are made at their full size at once");
}

// Completions are told in the adapter's time: does that fit ours?
void Checks::clocks(Lane& lane) {
    const char* what = "completion time stamps";
    const verbs::Device& device = *lane.device;
    if (!device.has_timestamps || !lane.stamped)
        return report_.line(what, Verdict::no,
                            "delivery times are taken when completions are found: coarser, policies learn slower");
    HostClock clock;
    verbs::ClockFit fit;
    for (unsigned i = 0; i < 3; ++i) {
        if (!fit.calibrate(device, clock)) return report_.failed(what, "the adapter's clock cannot be read");
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    Nanos worst = 0;
    for (unsigned i = 0; i < kRounds; ++i) {
        const Nanos before = clock.now();
        if (!it_.write(lane, 0, i, kStampAt, 8)) return report_.failed(what, it_.trouble());
        const Nanos after = clock.now(), at = fit.to_host(it_.stamp);
        worst = std::max({worst, at < before ? before - at : 0, at > after ? at - after : 0});
    }
    if (worst < 20'000)
        report_.line(what, Verdict::yes,
                     "%u bits, %.6f ns per tick, within %.1f us of the host's clock: delivery times are exact",
                     device.timestamp_bits, device.ns_per_tick, static_cast<double>(worst) * 1e-3);
    else
        report_.line(what, Verdict::broken,
                     "%.1f us away from the host's clock: measured rates are wrong; set UCX_MP_POLICY=round_robin, "
                     "which needs none",
                     static_cast<double>(worst) * 1e-3);
}

// Nobody relies on it: without, hosts do what such queues would.
void Checks::waits(const Lane& lane) {
    const char* what = "queues that wait for data";
    HostClock clock;
    tasks::Pool pool(it_.side().devices(), clock, {});
    tasks::Waits is = pool.can_wait(*lane.rail);
    while (is == tasks::Waits::trying) { // bounded by the pool's patience
        (void)pool.poll();
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        is = pool.can_wait(*lane.rail);
    }
    report_.feature("collectives by adapters (UCX_MP_TASKS)", is == tasks::Waits::yes);
    if (is == tasks::Waits::yes)
        report_.line(what, Verdict::yes,
                     "a write goes when a word has its value, not before: adapters may execute "
                     "collectives");
    else if (is == tasks::Waits::no)
        report_.line(what, Verdict::no, "%s: processors execute collectives", pool.why_not(*lane.rail).c_str());
    else
        report_.line(what, Verdict::no, "a queue cannot be made now (%s): processors execute collectives",
                     std::strerror(errno));
}

void Checks::dynamic_target(Lane& lane) {
    const char* what = "DC: a write and a send to a target";
    if (!lane.device->has_dc) return report_.line(what, Verdict::no, "mp_dc is not offered; mp_rc is");
    Message target;
    if (!it_.ask(Ask::target, it_.index(lane), 0, target)) return report_.failed(what, it_.trouble());
    if (target.error)
        return report_.line(what, Verdict::no, "the other end makes no target (%s): mp_dc is not offered there",
                            std::strerror(target.error));
    const verbs::QueuePair dci = verbs::create_dci(*lane.device, *lane.rail, ibv_cq_ex_to_cq(lane.sends.get()),
                                                   {.send_wr = 8, .send_sge = 1, .inline_bytes = 0}, {}, nullptr);
    const verbs::AddressHandle to =
        verbs::create_ah(*lane.device, *lane.rail, remote_of(lane.remote[0]).destination(), 0);
    if (!dci || !to)
        return report_.line(what, Verdict::broken, "claimed, but %s: set UCX_TLS=mp_rc", std::strerror(errno));
    Message question;
    question.offset = kDcAt;
    question.length = 8;
    question.value = ++value_;
    std::memcpy(it_.side().memory(), &question.value, 8);
    std::uint64_t seen = 0;
    if (!it_.armed(Ask::message, it_.index(lane), question)) return report_.failed(what, it_.trouble());
    const bool sent = write_and_send(dci.get(), to.get(), target, lane);
    const bool came = it_.found(seen); // it answers in any case
    if (sent && came && seen)
        report_.line(what, Verdict::yes, "mp_dc is offered");
    else
        report_.line(what, Verdict::broken, "claimed, but %s: set UCX_TLS=mp_rc",
                     sent && came ? "the message overtook the write" : it_.trouble().c_str());
}

// Writes one after the other, to `target`.
bool Checks::write_and_send(ibv_qp* dci, ibv_ah* to, const Message& target, Lane& lane) {
    for (const bool sends : {false, true}) {
        ibv_qp_ex* ex = ibv_qp_to_qp_ex(dci);
        ibv_wr_start(ex);
        ex->wr_id = sends;
        ex->wr_flags = IBV_SEND_SIGNALED;
        if (sends)
            ibv_wr_send(ex);
        else
            ibv_wr_rdma_write(ex, it_.facts().rkey[lane.remote_device], it_.facts().memory + kDcAt);
        mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(ex), to, target.number, target.key);
        ibv_wr_set_sge(ex, it_.side().keys().lkey[lane.device->index],
                       reinterpret_cast<std::uint64_t>(it_.side().memory()), 8);
        if (ibv_wr_complete(ex) != 0 || !it_.wait(lane)) return false;
    }
    return true;
}

void Checks::packet_numbers(Lane& lane) {
    const char* what = "rq_psn is told truthfully";
    constexpr unsigned kOne = kQueuePairs - 1, kWrites = 3;
    const auto wrong = [&](const char* why) {
        report_.feature("exact replay of polled puts (UCX_MP_PACKET_NUMBERS)", false);
        report_.line(what, Verdict::no,
                     "%s: markers tell what was executed (UCX_MP_PACKET_NUMBERS=n); puts that a program polls for "
                     "are not exact when a path fails",
                     why);
    };
    Message before, after;
    if (!it_.ask(Ask::query, it_.index(lane), kOne, before)) return report_.failed(what, it_.trouble());
    if (before.error) return wrong(std::strerror(before.error));
    for (unsigned i = 0; i < kWrites; ++i)
        if (!it_.write(lane, kOne, ++value_, kPsnAt, 8)) return report_.failed(what, it_.trouble());
    for (const bool in_error : {false, true}) {
        if (in_error && !it_.ask(Ask::fail, it_.index(lane), kOne, after)) return report_.failed(what, it_.trouble());
        if (!it_.ask(Ask::query, it_.index(lane), kOne, after)) return report_.failed(what, it_.trouble());
        if (after.error) return wrong(std::strerror(after.error));
        if (((after.value - before.value) & 0xffffff) != kWrites)
            return wrong(in_error ? "not in the error state" : "not what was executed");
    }
    report_.feature("exact replay of polled puts (UCX_MP_PACKET_NUMBERS)", true);
    report_.line(what, Verdict::yes,
                 "polled puts go again exactly when a path of mp_rc fails (UCX_MP_PACKET_NUMBERS=try)");
}

} // namespace ucx_mp::check
