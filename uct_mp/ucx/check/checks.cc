#include "uct_mp/ucx/check/checks.h"

#include <infiniband/mlx5dv.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "uct_mp/ucx/check/initiator.h"
#include "uct_mp/verbs/clock_fit.h"

namespace ucx_mp::check {

namespace {

constexpr unsigned kRounds = 24;
// Where at the other end: each check has a place of its own, so that what is late disturbs no other.
constexpr std::size_t kLarge = 1 << 20, kReadAt = kLarge, kStampAt = kLarge + 64, kDcAt = kLarge + 128,
                      kApmAt = kLarge + 192, kPsnAt = kLarge + 256, kToldAt = kLarge + 320;

enum class Verdict { yes, no, broken }; // no: the transport does without. broken: it relies on it

// The lines, and what becomes of them.
class Report {
public:
    __attribute__((format(printf, 4, 5))) void line(const char* what, Verdict verdict, const char* format, ...) {
        std::printf("  %-46s %-4s ", what, verdict == Verdict::yes ? "yes" : verdict == Verdict::no ? "no" : "NO");
        std::va_list arguments;
        va_start(arguments, format);
        std::vprintf(format, arguments);
        va_end(arguments);
        std::printf("\n");
        std::fflush(stdout);
        broken += verdict == Verdict::broken;
    }
    // What is on because of it: only if it is so wherever it was tried.
    void feature(const char* name, bool on) {
        const auto [at, first] = features_.try_emplace(name, on);
        if (!first) at->second = at->second && on;
    }
    void features() const {
        for (const bool on : {true, false}) {
            std::string all;
            for (const auto& [name, is] : features_)
                if (is == on) all += (all.empty() ? "" : ", ") + name;
            if (!all.empty()) std::printf("%s: %s\n", on ? "on" : "off", all.c_str());
        }
    }
    void failed(const char* what, const std::string& why) {
        line(what, Verdict::broken, "could not be tried: %s", why.c_str());
    }
    unsigned broken = 0;

private:
    std::map<std::string, bool> features_;
};

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

class Checks {
public:
    Checks(Initiator& initiator, Report& report) : it_(initiator), report_(report) {}

    // Of an adapter of ours.
    void adapter(Lane& lane) {
        const verbs::Device& device = *lane.device;
        report_.line("queue pairs with a shared receive queue", Verdict::yes,
                     "%u reads and atomics, %u bytes inline, %u requests per queue pair", device.max_rd_atomic,
                     lane.granted_inline, device.max_qp_wr);
        resize(device);
        clocks(lane);
    }
    // Of one there, by writing to it.
    void lane(Lane& lane) {
        own_read(lane);
        last_word(lane);
        within(lane);
        dynamic(lane);
        alternate(lane);
        packet_numbers(lane); // ends a queue pair
    }
    void across(Lane& written, Lane& told) {
        const char* what = "a message over another adapter comes behind";
        unsigned stale = 0;
        for (unsigned round = 0; round < kRounds; ++round) {
            bool seen = false;
            if (!told_over(written, 1, told, 1, seen)) return report_.failed(what, it_.trouble());
            stale += !seen;
        }
        if (stale)
            report_.line(what, Verdict::no,
                         "%u of %u stale, as expected: markers and reads keep the order (%s, told over %s)", stale,
                         kRounds, name(written).c_str(), name(told).c_str());
        else
            report_.line(
                what, Verdict::yes,
                "never seen late in %u rounds, not relied on: markers and reads keep the order (%s, told over %s)",
                kRounds, name(written).c_str(), name(told).c_str());
    }
    void summary(const Lane& lane) { // what needs no traffic
        report_.feature("mp_dc (UCX_TLS)", lane.device->has_dc);
        report_.feature("delivery times by the adapters' clocks", lane.device->has_timestamps);
    }
    [[nodiscard]] std::string name(const Lane& lane) const {
        const char* far = it_.far(lane).name;
        return lane.rail->name + " -> " + std::string(far, strnlen(far, sizeof it_.far(lane).name));
    }

private:
    void resize(const verbs::Device& device) {
        const char* what = "completion queues grow";
        verbs::CompletionQueue cq(ibv_create_cq(device.context.get(), 64, nullptr, nullptr, 0));
        if (!cq) return report_.failed(what, std::strerror(errno));
        if (ibv_resize_cq(cq.get(), 1024) == 0)
            report_.line(what, Verdict::yes, "they begin small and grow with the peers");
        else
            report_.line(what, Verdict::no, "they are made at their full size at once");
    }

    // Completions are told in the adapter's time: does that fit ours?
    void clocks(Lane& lane) {
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

    void own_read(Lane& lane) {
        const char* what = "a read sees what its queue pair wrote before";
        unsigned stale = 0;
        for (unsigned round = 0; round < kRounds; ++round) {
            std::uint64_t seen = 0;
            const std::uint64_t value = ++value_;
            if (!it_.write(lane, 1, value, kReadAt, 8) || !it_.read(lane, 1, kReadAt, seen))
                return report_.failed(what, it_.trouble());
            stale += seen != value;
        }
        if (stale == 0)
            report_.line(what, Verdict::yes, "flushes over several adapters end with reads");
        else
            report_.line(what, Verdict::broken,
                         "%u of %u stale: no order over several adapters; set UCX_MP_RAILS to one adapter", stale,
                         kRounds);
    }

    void last_word(Lane& lane) {
        const char* what = "the last word of a write is written last";
        unsigned torn = 0;
        for (unsigned round = 0; round < kRounds; ++round) {
            Message question;
            question.length = kLarge;
            question.value = ++value_;
            std::uint64_t whole = 0;
            if (!it_.armed(Ask::last_word, it_.index(lane), question)) return report_.failed(what, it_.trouble());
            const bool written = it_.write(lane, 1, question.value, 0, kLarge);
            if (!it_.found(whole) || !written) return report_.failed(what, it_.trouble()); // it answers in any case
            torn += whole == 0;
        }
        if (torn == 0)
            report_.line(what, Verdict::yes, "programs may poll the end of a large put (%u of 1 MiB)", kRounds);
        else
            report_.line(what, Verdict::broken,
                         "%u of %u torn: programs must not poll the end of a put, over any transport; wait for a "
                         "message or a flush",
                         torn, kRounds);
    }

    // Written over queue pair `a`, acknowledged; is it there when a message over `b` is?
    bool told_over(Lane& written, unsigned a, Lane& told, unsigned b, bool& seen) {
        Message question;
        question.offset = kToldAt;
        question.length = 8;
        question.value = ++value_;
        std::uint64_t found = 0, settled = 0;
        if (!it_.armed(Ask::message, it_.index(told), question)) return false;
        const bool sent = it_.write(written, a, question.value, kToldAt, 8) && it_.send(told, b);
        if (!it_.found(found) || !sent) return false; // it answers in any case
        seen = found != 0;
        return it_.read(written, a, kToldAt, settled); // pushes what is late out of the way
    }
    void within(Lane& lane) {
        const char* what = "a message over another queue pair comes behind";
        unsigned stale = 0;
        for (unsigned round = 0; round < kRounds; ++round) {
            bool seen = false;
            if (!told_over(lane, round % kQueuePairs, lane, (round + 1 + round / kQueuePairs) % kQueuePairs, seen))
                return report_.failed(what, it_.trouble());
            stale += !seen;
        }
        if (stale == 0)
            report_.line(what, Verdict::yes, "with one adapter at the peer neither flush nor fence costs a read");
        else
            report_.line(what, Verdict::broken,
                         "%u of %u stale although acknowledged: the order within one adapter is relied on; set "
                         "UCX_MP_READ_BACK=always",
                         stale, kRounds);
    }

    void dynamic(Lane& lane) {
        const char* what = "DC: a write and a send to a target";
        if (!lane.device->has_dc) return report_.line(what, Verdict::no, "mp_dc is not offered; mp_rc is");
        Message answer;
        if (!it_.ask(Ask::target, it_.index(lane), 0, answer)) return report_.failed(what, it_.trouble());
        if (answer.error)
            return report_.line(what, Verdict::no, "the other end makes no target (%s): mp_dc is not offered there",
                                std::strerror(answer.error));
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
        bool good = true;
        for (const bool sends : {false, true}) {
            if (!good) break;
            ibv_qp_ex* ex = ibv_qp_to_qp_ex(dci.get());
            ibv_wr_start(ex);
            ex->wr_id = sends;
            ex->wr_flags = IBV_SEND_SIGNALED;
            if (sends)
                ibv_wr_send(ex);
            else
                ibv_wr_rdma_write(ex, it_.facts().rkey[lane.remote_device], it_.facts().memory + kDcAt);
            mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(ex), to.get(), answer.number, answer.key);
            ibv_wr_set_sge(ex, it_.side().keys().lkey[lane.device->index],
                           reinterpret_cast<std::uint64_t>(it_.side().memory()), 8);
            good = ibv_wr_complete(ex) == 0 && it_.wait(lane);
        }
        const bool came = it_.found(seen); // it answers in any case
        good = good && came;
        if (good && seen)
            report_.line(what, Verdict::yes, "mp_dc is offered");
        else
            report_.line(what, Verdict::broken, "claimed, but %s: set UCX_TLS=mp_rc",
                         good ? "the message overtook the write" : it_.trouble().c_str());
    }

    void alternate(Lane& lane) {
        const char* what = "automatic path migration (APM)";
        constexpr unsigned kOne = 2; // queue pair
        if (!lane.device->has_apm)
            return report_.line(what, Verdict::no, "not offered; UCX_MP_APM=try does nothing here");
        if (lane.rail->lmc == 0 || it_.far(lane).lmc == 0) {
            // By another port of both adapters.
            const verbs::Rail* port = nullptr;
            for (const verbs::Rail& rail : it_.side().rails())
                if (rail.device == lane.rail->device && rail.index != lane.rail->index && rail.active && !rail.ethernet)
                    port = &rail;
            if (!port) return report_.line(what, Verdict::no, "not tried: no second route (another port, or an LMC)");
        }
        const auto route = [&](std::uint16_t lid, const End& end) {
            End out = end;
            out.lid = static_cast<std::uint16_t>(lid + 1);
            out.path_bits = 1;
            return out;
        };
        Message question, answer;
        question.rail = static_cast<std::uint16_t>(lane.remote_rail);
        End ours[kQueuePairs];
        it_.side().ends(lane, ours);
        question.ends[0] = route(lane.rail->lid, ours[kOne]);
        End theirs = route(it_.far(lane).lid, lane.remote[kOne]);
        const verbs::Rail* rail = lane.rail;
        if (lane.rail->lmc == 0 || it_.far(lane).lmc == 0) { // the other ports
            for (const verbs::Rail& other : it_.side().rails())
                if (other.device == lane.rail->device && other.index != lane.rail->index && other.active) rail = &other;
            unsigned far = lane.remote_rail;
            for (unsigned r = 0; r < it_.facts().count; ++r)
                if (r != lane.remote_rail && it_.facts().rails[r].device == lane.remote_device &&
                    it_.facts().rails[r].subnet == rail->subnet_prefix)
                    far = r;
            if (far == lane.remote_rail) return report_.line(what, Verdict::no, "not tried: no second route there");
            question.rail = static_cast<std::uint16_t>(far);
            question.ends[0].lid = rail->lid;
            theirs.lid = it_.facts().rails[far].lid;
            question.ends[0].path_bits = theirs.path_bits = 0;
        }
        if (!it_.ask(Ask::alternate, it_.index(lane), kOne, answer, question))
            return report_.failed(what, it_.trouble());
        const int error =
            answer.error ? answer.error : verbs::load_alternate(lane.qp[kOne].get(), *rail, remote_of(theirs), {});
        if (error)
            return report_.line(what, Verdict::no, "claimed, but a route cannot be loaded (%s): leave UCX_MP_APM at n",
                                std::strerror(error));
        Message before, after;
        if (!it_.write(lane, kOne, ++value_, kApmAt, 8) || !it_.ask(Ask::migration, it_.index(lane), kOne, before))
            return report_.failed(what, it_.trouble());
        for (unsigned i = 0; i < 100 && before.value != IBV_MIG_ARMED; ++i)
            if (!it_.write(lane, kOne, ++value_, kApmAt, 8) || !it_.ask(Ask::migration, it_.index(lane), kOne, before))
                return report_.failed(what, it_.trouble());
        if (before.value != IBV_MIG_ARMED)
            return report_.line(what, Verdict::no, "a loaded route is never armed: leave UCX_MP_APM at n");
        if (const int refused = verbs::migrate(lane.qp[kOne].get()))
            return report_.line(what, Verdict::no, "refuses to migrate (%s): leave UCX_MP_APM at n",
                                std::strerror(refused));
        if (!it_.write(lane, kOne, ++value_, kApmAt, 8) || !it_.ask(Ask::migration, it_.index(lane), kOne, after))
            return report_.failed(what, it_.trouble());
        const bool useful = after.value == IBV_MIG_MIGRATED && after.length > before.length;
        report_.feature("migration by the adapter (UCX_MP_APM=try)", useful);
        if (useful)
            report_.line(what, Verdict::yes, "armed, migrated, told by an event: UCX_MP_APM=try is of use");
        else
            report_.line(what, Verdict::no, "the other side does not follow, or tells no event: leave UCX_MP_APM at n");
    }

    void packet_numbers(Lane& lane) {
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
            if (in_error && !it_.ask(Ask::fail, it_.index(lane), kOne, after))
                return report_.failed(what, it_.trouble());
            if (!it_.ask(Ask::query, it_.index(lane), kOne, after)) return report_.failed(what, it_.trouble());
            if (after.error) return wrong(std::strerror(after.error));
            if (((after.value - before.value) & 0xffffff) != kWrites)
                return wrong(in_error ? "not in the error state" : "not what was executed");
        }
        report_.feature("exact replay of polled puts (UCX_MP_PACKET_NUMBERS)", true);
        report_.line(what, Verdict::yes,
                     "polled puts go again exactly when a path of mp_rc fails (UCX_MP_PACKET_NUMBERS=try)");
    }

    Initiator& it_;
    Report& report_;
    std::uint64_t value_ = 0x100; // written last
};

int run(Side& side, Stream stream) {
    Initiator initiator(side, std::move(stream));
    std::string error;
    if (!initiator.open(error)) {
        std::fprintf(stderr, "mp_info: %s\n", error.c_str());
        return 1;
    }
    Report report;
    Checks checks(initiator, report);
    std::set<unsigned> seen;
    for (auto& lane : initiator.lanes()) {
        if (!seen.insert(lane->device->index).second) continue;
        std::printf("%s\n", lane->device->name.c_str());
        checks.adapter(*lane);
        checks.summary(*lane);
    }
    Lane *first = nullptr, *second = nullptr; // to two adapters there
    for (auto& lane : initiator.lanes()) {
        if (!first)
            first = lane.get();
        else if (!second && lane->remote_device != first->remote_device)
            second = lane.get();
    }
    for (auto& lane : initiator.lanes()) {
        std::printf("%s\n", checks.name(*lane).c_str());
        checks.lane(*lane);
    }
    if (second) {
        std::printf("across adapters\n");
        checks.across(*first, *second);
        checks.across(*second, *first);
    }
    report.features();
    if (report.broken)
        std::printf("%u of what the transport relies on does not hold: see NO above for what to set\n", report.broken);
    else
        std::printf("all that the transport relies on holds\n");
    return report.broken ? 1 : 0;
}

} // namespace

int check(const std::vector<std::string>& rails, const std::string& host) {
    std::string error;
    Side side;
    const auto trouble = [&] {
        std::fprintf(stderr, "mp_info: %s\n", error.c_str());
        return 1;
    };
    if (!side.open(rails, error)) return trouble();
    if (!host.empty()) {
        Stream stream = connect_to(host, error);
        if (!stream.good()) return trouble();
        return run(side, std::move(stream));
    }
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
        error = std::string("socketpair: ") + std::strerror(errno);
        return trouble();
    }
    Stream here(ends[0]), there(ends[1]);
    Side other;
    if (!other.open(rails, error)) return trouble();
    std::thread answering([&] { (void)other.serve(there); });
    const int result = run(side, std::move(here));
    answering.join();
    return result;
}

int listen(const std::vector<std::string>& rails, unsigned port) {
    std::string error;
    Side side;
    if (side.open(rails, error)) {
        const Stream stream = listen_at(port, error);
        if (stream.good()) {
            if (side.serve(stream)) return 0;
            error = "the other end went away";
        }
    }
    std::fprintf(stderr, "mp_info: %s\n", error.c_str());
    return 1;
}

} // namespace ucx_mp::check
