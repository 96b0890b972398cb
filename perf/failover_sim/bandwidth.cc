#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "failover_sim/cases.h"
#include "failover_sim/traffic.h"
#include "uct_mp/link/buffer.h"

namespace ucx_mp::failover {

namespace {

constexpr double kMs = 1e6, kUs = 1e3;
constexpr double kFull = 0.98; // of a rate: from here on it counts as full

Nanos ns(double ms) { return static_cast<Nanos>(ms * kMs); }

// Two processes and a stream between them.
struct Stream {
    explicit Stream(const CaseOptions& options)
        : options(options), kind(kind_of(options.op)), size(options.size            ? options.size
                                                            : kind == Kind::message ? 8000
                                                                                    : 65536),
          job(options.fabric, options.rails,
              // The content of messages is checked; puts and gets need none: tests/faults checks theirs.
              {.seed = 1, .payload_limit = kind == Kind::message ? 0u : 1024u}),
          a(job.add(options.from, config_of(options))), b(job.add(options.to, config_of(options))) {
        if (options.loud) a.threshold = b.threshold = LogLevel::info;
        job.connect({{0, 1}, {1, 0}});
        round_trip = measure_round_trip();
        flow = std::make_unique<Flow>(a, b, kind, size, options.window, curve);
        ends[0] = &flow->channel();
        ends[1] = &b.channel_to(a);
        a.on_turn = [this] { flow->pump(); };
        const softhca::FabricImage& image = job.world.image();
        const softhca::NodeImage& sink = image.node(kind == Kind::get ? options.from : options.to);
        for (std::uint32_t d = sink.first_device; d < sink.first_device + sink.devices; ++d)
            for (std::uint32_t p = image.device(d).first_port; p < image.device(d).first_port + image.device(d).ports;
                 ++p)
                if (image.port(p).link != softhca::kNone) links.push_back(image.link(image.port(p).link).reverse);
        sample();
        job.poll_every(static_cast<Nanos>(options.poll_us * kUs));
        flow->pump();
    }
    // What comes over the last links of its way: full or not, whenever operations are done with it.
    void sample() {
        std::uint64_t bytes = 0;
        for (const std::uint32_t link : links) bytes += job.world.link(link).bytes;
        wire.add(job.world.now(), bytes - wire.total());
        if (tracking) track(0), track(1);
        job.world.at(job.world.now() + 1'000, [this] { sample(); });
    }
    // An empty message there and back, nothing else under way.
    Nanos measure_round_trip() {
        bool back = false;
        b.on_am(
            30,
            [](void* self, void*, std::size_t, unsigned) {
                auto& s = *static_cast<Stream*>(self);
                return (void)s.b.iface().am_short(s.b.channel_to(s.a), 30, 0, nullptr, 0), Status::ok;
            },
            this);
        a.on_am(
            30, [](void* seen, void*, std::size_t, unsigned) { return *static_cast<bool*>(seen) = true, Status::ok; },
            &back);
        const Nanos begin = job.world.now();
        if (a.iface().am_short(a.channel_to(b), 30, 0, nullptr, 0) != Status::ok ||
            !job.until([&] { return back; }, ns(100)))
            throw std::runtime_error("no round trip");
        return job.world.now() - begin;
    }
    void drain() {
        flow->paused = true;
        if (!job.until([&] { return flow->idle(); }, ns(5000)))
            throw std::runtime_error("the stream does not come to its end");
    }
    // Bytes under way on each path of one end, as long as it is up: so what there was when it was given up. Messages
    // are under way until the peer's transport has acknowledged them, puts and gets until they complete.
    void track(unsigned end) {
        look_at(end);
        under_way[end].resize(paths.size());
        for (std::size_t i = 0; i < paths.size(); ++i) {
            if (paths[i].phase != path::Phase::up) continue;
            under_way[end][i] = paths[i].unacknowledged;
            if (kind != Kind::message) under_way[end][i] += paths[i].writing + paths[i].reading;
        }
    }
    void look_at(unsigned end) { (end ? b : a).iface().look_at_paths(*ends[end], paths); }
    [[nodiscard]] std::string points(Nanos origin, Nanos from, Nanos to) const {
        const auto bin = static_cast<Nanos>(options.bin_us * kUs);
        std::string out = "[";
        for (Nanos t = from; t + bin <= to; t += bin) {
            char point[64];
            std::snprintf(point, sizeof point, "%s[%.3f, %.4g]", out.size() > 1 ? ", " : "",
                          (static_cast<double>(t + bin / 2) - static_cast<double>(origin)) / kMs,
                          wire.rate(t, t + bin));
            out += point;
        }
        return out + "]";
    }

    const CaseOptions& options;
    const Kind kind;
    const std::size_t size;
    Curve curve, wire;
    std::vector<std::uint32_t> links; // to the host that gets the data
    Job job;
    Process &a, &b;
    Nanos round_trip = 0;
    std::unique_ptr<Flow> flow;
    Channel* ends[2] = {};
    bool tracking = false;
    std::vector<std::uint64_t> under_way[2]; // see track()
    std::vector<channel::PathLook> paths;    // see look_at()
};

// What the channels of both sides say about the fault at t0.
struct Seen {
    Nanos first_down = 0, last_down = 0; // a path was given up
    std::uint64_t in_flight = 0;         // bytes under way there when that happened, both sides
};

void describe(Json& out, const char* what, const CaseOptions& o, std::size_t size) {
    out.text("case", what).text("fabric", o.fabric).text("transport", o.transport).text("op", o.op);
    out.number("size", static_cast<double>(size)).number("window", o.window);
}

} // namespace

channel::Config config_of(const CaseOptions& options) {
    channel::Config config;
    if (options.transport != "mp_rc" && options.transport != "mp_dc")
        throw std::runtime_error("--transport: " + options.transport + " is not mp_rc or mp_dc");
    config.transport = options.transport == "mp_dc" ? connect::Transport::dc : connect::Transport::rc;
    config.paths.num_paths = options.paths;
    config.apm = options.apm;
    config.recovery.enabled = !options.no_recovery;
    config.recovery.watch_interval = ns(options.watch_ms);
    config.recovery.hold_down = ns(options.hold_down_ms);
    return config;
}

channel::Config small_config_of(const CaseOptions& options) {
    channel::Config small = config_of(options);
    small.segment = 1024;
    small.receive_depth = 64;
    small.send_depth = 32;
    small.completion_depth = 256;
    return small;
}

Counters count(Job& job) {
    Counters sum;
    for (unsigned i = 0; i < job.size(); ++i) {
        channel::Interface::Statistics s;
        job.process(i).iface().statistics(s);
        sum.buffers += s.send_buffer_bytes + s.receive_buffer_bytes;
        sum.queue_pairs += s.queue_pairs;
        sum.datagrams += s.control.sent;
        sum.unsent += s.control.unsent;
        for (const auto& c : s.channels) {
            sum.messages_again += c.recovery.messages_again;
            sum.puts_again += c.recovery.puts_again;
            sum.gets_again += c.recovery.gets_again;
            sum.bytes_again += c.recovery.bytes_again;
            sum.puts_found_done += c.recovery.puts_found_done;
            sum.duplicates += c.duplicates;
            for (const auto& path : c.paths) {
                sum.failures += path.failures;
                sum.returns += path.returns;
                sum.migrations += path.migrations;
                sum.away += std::string(path.recovery) != "up";
            }
        }
    }
    return sum;
}

void Counters::print(Json& out) const {
    out.number("messages_again", static_cast<double>(messages_again))
        .number("puts_again", static_cast<double>(puts_again));
    out.number("gets_again", static_cast<double>(gets_again)).number("bytes_again", static_cast<double>(bytes_again));
    out.number("puts_found_done", static_cast<double>(puts_found_done))
        .number("duplicates_dropped", static_cast<double>(duplicates));
    out.number("migrations", static_cast<double>(migrations));
    out.number("path_failures", static_cast<double>(failures)).number("path_returns", static_cast<double>(returns));
}

std::uint64_t resident() {
    std::uint64_t pages = 0, all = 0;
    std::ifstream("/proc/self/statm") >> all >> pages;
    return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::uint64_t heap() {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

void steady(const CaseOptions& options) {
    Stream s(options);
    s.job.run_for(ns(options.warm_up_ms));
    const Nanos begin = s.job.world.now();
    s.job.run_for(ns(options.after_ms));
    const double rate = s.curve.rate(begin, s.job.world.now());
    s.drain();
    Json out;
    describe(out, "steady", options, s.size);
    out.number("rate", rate)
        .number("mistakes", static_cast<double>(s.flow->mistakes() + s.a.peers_failed + s.b.peers_failed));
    out.print();
}

void fault(const CaseOptions& options) {
    Stream s(options);
    softhca::sim::World& world = s.job.world;
    s.job.run_for(ns(options.warm_up_ms));
    const Nanos t0 = world.now();
    const double original = s.curve.rate(t0 - ns(options.warm_up_ms / 2), t0);

    s.tracking = true;
    s.track(0);
    s.track(1);
    world.fault(options.fault);
    const Nanos t1 = t0 + ns(options.down_ms);
    s.job.run_for(t1 - t0);
    s.tracking = false;

    Seen seen;
    unsigned paths_down = 0;
    for (unsigned e = 0; e < 2; ++e) {
        s.look_at(e);
        for (std::size_t i = 0; i < s.paths.size(); ++i) {
            const channel::PathLook& path = s.paths[i];
            if (path.failures == 0 || path.failed_at < t0) continue;
            ++paths_down;
            seen.in_flight += s.under_way[e][i];
            seen.first_down = seen.first_down ? std::min(seen.first_down, path.failed_at) : path.failed_at;
            seen.last_down = std::max(seen.last_down, path.failed_at);
        }
    }
    const Counters after_fault = count(s.job);
    const double remaining = s.curve.rate(t1 - ns(options.down_ms / 4), t1);

    world.fault(options.repair);
    const Nanos t2 = t1 + ns(options.after_ms);
    s.job.run_for(t2 - t1);
    const double final_rate = s.curve.rate(t2 - ns(options.after_ms / 4), t2);
    Nanos came_up = 0;
    for (unsigned e = 0; e < 2; ++e) {
        s.look_at(e);
        for (const channel::PathLook& path : s.paths) came_up = std::max(came_up, path.came_up_at);
    }
    s.drain();

    constexpr std::uint64_t kGrain = 16384; // a chunk
    const double wire_rate = s.wire.rate(t0 - ns(options.warm_up_ms / 2), t0);
    const Nanos full = s.wire.full_from(t0, t1, kFull * options.share * wire_rate, kGrain);
    const Nanos whole = s.wire.full_from(t1, t2, kFull * wire_rate, kGrain);
    const auto since = [](Nanos t, Nanos origin) {
        return t ? (static_cast<double>(t) - static_cast<double>(origin)) / kUs : -1.0;
    };
    Json out;
    describe(out, "fault", options, s.size);
    out.text("fault", options.fault).number("watch_ms", options.watch_ms);
    out.number("round_trip_us", static_cast<double>(s.round_trip) / kUs);
    out.number("original", original)
        .number("share", options.share)
        .number("remaining", remaining)
        .number("final", final_rate);
    out.number("paths_down", paths_down);
    out.number("first_noticed_us", since(seen.first_down, t0)).number("last_noticed_us", since(seen.last_down, t0));
    out.number("full_us", full < t1 ? since(full, t0) : -1)
        .number("full_after_notice_us", full < t1 ? since(full, seen.last_down) : -1);
    out.number("delivery_gap_us", static_cast<double>(s.curve.longest_gap(t0, t1)) / kUs);
    out.number("wire_gap_us", static_cast<double>(s.wire.longest_gap(t0, t1)) / kUs);
    out.number("path_back_us", came_up > t1 ? since(came_up, t1) : -1)
        .number("whole_us", whole < t2 ? since(whole, t1) : -1);
    out.number("in_flight", static_cast<double>(seen.in_flight));
    out.number("again_at_fault", static_cast<double>(after_fault.bytes_again));
    count(s.job).print(out);
    out.number("mistakes",
               static_cast<double>(s.flow->mistakes() + s.a.peers_failed + s.b.peers_failed + s.a.errors + s.b.errors));
    if (options.curve) {
        out.number("repaired_ms", options.down_ms);
        out.raw("curve", s.points(t0, t0 - ns(10), t2));
    }
    out.print();
}

} // namespace ucx_mp::failover
