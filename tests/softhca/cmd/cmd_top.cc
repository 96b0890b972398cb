// softhca top: links and adapters, live.
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>

#include "cmd/commands.h"
#include "fabric/units.h"
#include "session/client.h"
#include "session/record.h"

namespace softhca {

namespace {

struct TopArguments {
    std::string session;
    double interval = 1;
    uint32_t rows = 20;
    bool once = false;
};

struct DeviceCounters {
    uint64_t messages = 0, misses = 0;
};

struct Sample {
    Nanos time = 0;
    std::vector<LinkCounters> links;
    std::vector<DeviceCounters> devices;
};

Sample take(Segment& seg, Carriers& carriers) {
    Sample s;
    s.time = monotonic_now();
    for (size_t i = 0; i < carriers.count(); ++i) s.links.push_back(carriers.read(i));
    for (uint32_t d = 0; d < seg.img().devices; ++d)
        s.devices.push_back({seg.device(d).messages.load(), seg.device(d).cache_misses.load()});
    return s;
}

// The busiest links first, then the adapters that have queue pairs.
void print(Segment& seg, Carriers& carriers, const Sample& a, const Sample& b, uint32_t rows) {
    const double seconds = static_cast<double>(b.time - a.time) / 1e9;
    const FabricImage& image = seg.img();
    std::printf("session %s, fabric %s%s: %u processes, %u active faults\n\n", seg.session, image.name,
                image.ideal ? " (ideal)" : "", seg.live_procs.load(), seg.fabric.disturbed.load());
    std::printf("%-44s %5s %12s %7s %12s %10s\n", "link", "state", "MB/s", "use", "queue", "lost");
    std::vector<size_t> order(carriers.count());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto moved = [&](size_t i) { return b.links[i].bytes - a.links[i].bytes; };
    std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) { return moved(x) > moved(y); });
    for (size_t n = 0; n < order.size() && n < rows; ++n) {
        const size_t i = order[n];
        const double bytes = static_cast<double>(moved(i)) / seconds;
        const uint64_t packets = b.links[i].packets - a.links[i].packets, rate = carriers.rate(i);
        char use[16] = "-";
        if (rate) std::snprintf(use, sizeof use, "%.1f %%", 100 * bytes / static_cast<double>(rate));
        const std::string queue = packets ? time_text((b.links[i].wait_ns - a.links[i].wait_ns) / packets) : "-";
        std::printf("%-44s %5s %12.2f %7s %12s %10llu\n", carriers.name(i).c_str(), carriers.up(i) ? "up" : "DOWN",
                    bytes / 1e6, use, queue.c_str(), static_cast<unsigned long long>(b.links[i].drops));
    }
    if (order.size() > rows) std::printf("... %zu more\n", order.size() - rows);
    std::printf("\n%-44s %5s %8s %8s %12s %12s\n", "adapter", "state", "QPs", "MRs", "messages/s", "misses/s");
    for (uint32_t d = 0; d < image.devices; ++d) {
        const DeviceState& state = seg.device(d);
        if (state.qps.load() == 0 && b.devices[d].messages == 0 && !state.dead.load()) continue;
        const std::string name =
            std::string(image.node(image.device(d).node).name) + ":softhca_" + std::to_string(image.device(d).index);
        std::printf("%-44s %5s %8u %8u %12.0f %12.0f\n", name.c_str(), state.dead.load() ? "DEAD" : "ok",
                    state.qps.load(), state.mrs.load(),
                    static_cast<double>(b.devices[d].messages - a.devices[d].messages) / seconds,
                    static_cast<double>(b.devices[d].misses - a.devices[d].misses) / seconds);
    }
}

void top(const TopArguments& a) {
    Observer observer(choose_session(a.session));
    Segment& seg = observer.seg();
    Carriers carriers(seg);
    const bool screen = !a.once && isatty(STDOUT_FILENO);
    Sample last = take(seg, carriers);
    do {
        usleep(static_cast<useconds_t>(a.interval * 1e6));
        const Sample now = take(seg, carriers);
        if (screen) std::printf("\033[H\033[J");
        print(seg, carriers, last, now, a.rows);
        std::fflush(stdout);
        last = now;
    } while (!a.once && !observer.session_over());
}

} // namespace

void add_top_command(CLI::App& app) {
    auto a = std::make_shared<TopArguments>();
    CLI::App* c = app.add_subcommand("top", "Live view of links and adapters of a session");
    c->add_option("--session", a->session, "Which session (default: $SOFTHCA_SESSION, else the only one running)");
    c->add_option("--interval", a->interval, "Seconds between refreshes")
        ->check(CLI::Range(0.05, 3600.0))
        ->capture_default_str();
    c->add_option("--rows", a->rows, "Links shown, the busiest first")->capture_default_str();
    c->add_flag("--once", a->once, "Print one table and end");
    c->footer("queue: mean time that a packet waited. use: of the link's rate. Ports are listed where subnets have no\n"
              "modelled links; on an ideal, undisturbed fabric data moves without being counted.");
    c->callback([a] { top(*a); });
}

} // namespace softhca
