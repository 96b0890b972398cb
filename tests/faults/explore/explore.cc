#include "explore.h"

#include <algorithm>
#include <charconv>

#include "play.h"
#include "simulator/intruder.h"
#include "uct_mp/schedule/policy_factory.h"

namespace ucx_mp::sim {

namespace {

// Long enough for: the adapter gives up (4 tries of 131 us), or just not; repairs, and part of them.
constexpr Nanos kHush = 700'000, kSlow = 60'000, kDip = 20'000, kCut = 900'000;
constexpr Nanos kBusy = 10'000;
// After the last fault is over: a handshake that has backed off needs 400 ms at most.
constexpr Nanos kPatience = 2'000'000'000;

constexpr const char* kNames[kFaultKinds] = {"lose", "hush", "mute", "slow", "dip", "cut", "forge"};
constexpr bool has_node(FaultKind kind) { return kind >= FaultKind::dip; }

const Scenario kScenarios[] = {
    {"messages", "messages of all kinds from both sides, and flushes", {"ssbzsX", "szsX"}},
    {"fences", "puts, fences and messages that tell of them", {"sspfcpfcX", "spfcX"}},
    {"stripes",
     "puts over both paths, fences, messages that tell of them",
     {"PfcsPpfcX", "PfcX"},
     "even:stripe_threshold=1K,one_sided_threshold=1K,min_stripe=512,window=1"},
    {"shorts", "short puts, which follow each other, beside messages", {"qqsqfcqX", "qfcX"}},
    {"burst", "more short puts than a queue pair takes", {"qqqqqqqqqqqqqqqqqqqqX", "qfc"}},
    {"reads", "gets behind puts and fences", {"pfgsfggX", "gsX"}},
    {"both-ways",
     "puts that let gets go first, fences, messages that tell of them",
     {"GPPwGPPfcPGPPX", "GPPPfcPX"},
     "default:stripe_threshold=1K,one_sided_threshold=1K,min_stripe=512,chunk_time=1us,min_chunk=1K"},
    {"atomics", "atomics at the target, with and without results", {"aoasoX", "oaX"}},
    {"mixture",
     "everything once",
     {"spfcgaPoxsX", "zPfcaX"},
     "even:stripe_threshold=1K,one_sided_threshold=1K,min_stripe=512,window=1"},
    {"close", "a flush, and the interface is closed behind it", {"ssssX", ""}, "round_robin", false, true},
    {"close-all", "the same behind other operations", {"szpsoX", ""}, "round_robin", false, true},
    {"close-fence",
     "the same behind a message that tells of puts",
     {"Psfcsx", ""},
     "even:stripe_threshold=1K,one_sided_threshold=1K,min_stripe=512,window=1",
     false,
     true},
    {"single", "one path only: nothing to move to", {"spfcgaspX", "saX"}, "default", true},
    {"watch",
     "the programs poll all the time, so that the watchdog sees silent losses",
     {"spfcsX", "sX"},
     "round_robin",
     false,
     false,
     false,
     true},
    {"lazy",
     "the programs compute, so that completions lie about",
     {"sspfcpX", "spfcX"},
     "round_robin",
     false,
     false,
     false,
     false,
     {500, 800}},
    {"crowd",
     "the target computes until more has come than it takes at a time",
     {"ssssssssssssssssspfcX", "X"},
     "binding",
     false,
     false,
     false,
     false,
     {0, 100'000},
     true},
    {"nasty",
     "messages that the adapter has acknowledged are flushed",
     {"ssspfcsX", "ssX"},
     "round_robin",
     false,
     false,
     true},
    {.name = "late",
     .about = "an adapter places late: puts over both paths, fences, messages that tell of them",
     .scripts = {"PfcPPfcsX", "PfcX"},
     .policy = "even:stripe_threshold=1K,one_sided_threshold=1K,min_stripe=512,window=1",
     .late = "1:softhca_1"},
    {.name = "late-reads",
     .about = "the same: flushes, gets and messages behind puts",
     .scripts = {"PXcPfgwcPwcX", "PwcX"},
     .policy = "even:stripe_threshold=1K,one_sided_threshold=1K,min_stripe=512,window=1",
     .late = "1:softhca_0"},
    {.name = "rings",
     .about = "rings come and go beside messages of all kinds, asked for by either side",
     .scripts = {"Rs..ssbsss.Nspfcs.X", "s.Rs..sszssspfc.NsX"},
     .choices = true},
    {.name = "switch",
     .about = "RC and rings come and go beside messages, puts and gets",
     .scripts = {"Ks..spfcsg..Nsspfc.sX", "s.s..Ksspfc..sNsX"},
     .choices = true},
    {.name = "park",
     .about = "connections are given back by either side, and wanted again",
     .scripts = {"spfcX.D..spfcX.D.sX", "sX...s..D.sX"}},
    {.name = "park-switch",
     .about = "the same while RC and rings come and go",
     .scripts = {"sK..spfcX.D..sX.K.spfcX..NsX", "s.R..sX...D..sR.sX..sX"},
     .choices = true},
    {.name = "tasks",
     .about = "queues that wait, from both sides, beside messages",
     .scripts = {"tt.rtsr.ttrr.trrX", "t.rtsrX"},
     .tasks = true},
};

channel::Config config_of(const Scenario& scenario, Flavour flavour) {
    channel::Config config;
    config.transport = flavour == Flavour::dc ? connect::Transport::dc : connect::Transport::rc;
    config.policy = *schedule::make_policy(scenario.policy).config;
    config.window = 16;
    config.segment = 4096;
    config.receive_depth = 32;
    config.send_depth = 16;
    config.completion_depth = 64;
    config.dci_count = config.dct_count = 2;
    config.reliability.timeout = 5; // 131 us
    config.reliability.retry_count = 3;
    config.recovery.packet_numbers = flavour == Flavour::rc;
    config.recovery.partition_timeout = 0;
    config.recovery.hold_down = 200'000;
    config.recovery.max_hold_down = 400'000;
    config.recovery.ask_interval = 50'000;
    config.recovery.max_ask_interval = 400'000;
    config.recovery.watch_interval = 40'000;
    config.recovery.packet_lifetime = 300'000; // `slow` is not slower
    config.recovery.open_interval = 50'000;
    config.recovery.max_open_interval = 400'000;
    config.recovery.max_needed_interval = 400'000;
    if (scenario.single_path) config.paths.num_paths = 1;
    if (scenario.choices) {
        if (flavour == Flavour::dc) config.adapt.mode = channel::AdaptConfig::Mode::manual;
        config.adapt.pool = 1;
        config.adapt.max_rings = 4;
        config.adapt.ring = {4, 256};
    }
    if (scenario.crowd) {
        config.window = 64;
        config.receive_depth = config.send_depth = 64;
        config.completion_depth = 128;
        config.poll_batch = 1;
    }
    return config;
}

class Run {
public:
    Run(const softhca::FabricImage& image, const Scenario& scenario, Flavour flavour, std::span<const Fault> faults,
        bool loud)
        : scenario_(scenario), faults_(faults.begin(), faults.end()), loud_(loud),
          cluster_(image, 2, config_of(scenario, flavour), {.seed = 1},
                   scenario.single_path ? verbs::DeviceConfig{{"softhca_0:1"}} : verbs::DeviceConfig{}),
          play_(cluster_, scenario.scripts, flavour == Flavour::rc) {
        paths_ = scenario.single_path ? 1 : 2;
        if (scenario.tasks) play_.tasks = &tasks_.emplace(cluster_);
        for (unsigned node = 0; node < 2; ++node) {
            cluster_.node(node).services().threshold = loud ? LogLevel::debug : LogLevel::error;
            for (const verbs::Rail& rail : cluster_.node(node).devices().rails()) {
                const std::string device = rail.name.substr(0, rail.name.rfind(':'));
                const softhca::FabricImage& fabric = cluster_.world.image();
                const softhca::NodeImage& of = fabric.node(node);
                for (std::uint32_t d = 0; d < of.devices; ++d)
                    if (device == "softhca_" + std::to_string(d))
                        ports_[node][rail.index] = fabric.device(of.first_device + d).first_port;
            }
        }
        if (std::ranges::any_of(faults_, [](const Fault& f) { return f.kind == FaultKind::forge; }))
            intruder_.emplace(cluster_, 2);
        if (scenario.nasty) cluster_.world.fault("flush-accepted on all");
        if (scenario.late) cluster_.world.fault("place-delay 20us " + std::string(scenario.late));
        cluster_.after_progress = [this] { play_.pump(); };
        if (scenario.ticks) tick();
        for (unsigned node = 0; node < 2; ++node) {
            if (scenario.naps[node]) wake(node);
            lazy_ |= scenario.naps[node] != 0;
        }
    }

    void go(Outcome& out) {
        softhca::sim::World& world = cluster_.world;
        const std::uint64_t zero = world.events();
        Nanos last_over = world.now();
        std::size_t next = 0;
        count_packets(out.trace, 0);
        play_.pump();
        (void)cluster_.settle_all();
        out.trace.steps.push_back(0);
        bool changed = true, was_healthy = false;
        for (;;) {
            const auto step = static_cast<std::uint32_t>(world.events() - zero);
            for (; next < faults_.size() && faults_[next].step <= step; ++next) {
                last_over = std::max(last_over, begin(faults_[next]));
                (void)cluster_.settle();
            }
            const bool done = scenario_.close ? close_when_over() : play_.finished();
            if (!play_.mistakes().empty()) break;
            const bool healthy = next == faults_.size() && world.now() > last_over;
            if (done && healthy && (changed || !was_healthy) && repaired()) break;
            was_healthy = healthy;
            if (world.now() > last_over + kPatience || !world.step()) {
                out.verdict = done ? "not repaired\n" : "deadlock: not finished\n";
                break;
            }
            const bool moved = count_packets(out.trace, step);
            changed = (lazy_ ? cluster_.settle_all() : cluster_.settle()) || moved;
            for (unsigned node = 0; node < 2; ++node) cluster_.sleep(node, scenario_.naps[node] != 0);
            play_.look();
            if (changed) out.trace.steps.push_back(step + 1);
        }
        out.events = world.events() - zero;
        out.time = world.now() - 1'000'000'000;
        out.fingerprint = world.fingerprint();
        if (out.verdict.empty() && play_.mistakes().empty()) {
            for (unsigned node = 0; node < 2; ++node) cluster_.sleep(node, false);
            cluster_.run_for(100'000); // what still comes must change nothing
            play_.check_end();
        }
        out.verdict += play_.mistakes();
        for (unsigned node = 0; node < 2; ++node)
            if (cluster_.node(node).services().errors)
                out.verdict += "node " + std::to_string(node) + ": errors in its log\n";
        if (!out.verdict.empty()) out.verdict += play_.state();
        for (unsigned node = 0; node < 2; ++node) describe(node, out);
        if (tasks_) {
            out.queues_ended = tasks_->ended();
            out.by_messages = tasks_->by_messages();
            play_.tasks = nullptr;
            tasks_.reset();
        }
        if (out.verdict.empty()) end(out);
    }

private:
    // As if the programs polled all the time.
    void tick() {
        for (unsigned node = 0; node < 2; ++node)
            if (!cluster_.node(node).closed()) (void)cluster_.node(node).services().at(cluster_.world.now() + 1, [] {});
        cluster_.world.at(cluster_.world.now() + 20'000, [this] { tick(); });
    }

    // As often as the scenario says while something happens, now and then during the repairs.
    void wake(unsigned node) {
        cluster_.sleep(node, false);
        const Nanos now = cluster_.world.now(), least = now < busy_until_ ? 0 : 20'000;
        cluster_.world.at(now + std::max(scenario_.naps[node], least), [this, node] { wake(node); });
    }

    // The end of the fault.
    Nanos begin(const Fault& fault) {
        softhca::sim::World& world = cluster_.world;
        busy_until_ = world.now() + kBusy;
        if (fault.kind == FaultKind::forge) return forge(fault), world.now();
        if (fault.path >= paths_) return world.now();
        const std::string at = std::to_string(fault.node) + ":softhca_" + std::to_string(fault.path) + ":1";
        if (loud_) std::printf("%12.3f us  %s\n", static_cast<double>(world.now()) / 1e3, to_string(fault).c_str());
        switch (fault.kind) {
        case FaultKind::lose:
            world.fault("drop 100% " + at + " --at-packet 1 --count 1");
            return world.now();
        case FaultKind::hush:
            return take_back("drop", at, kHush);
        case FaultKind::mute:
            return take_back("ack-drop", at, kHush);
        case FaultKind::slow:
            return take_back("delay", at, kSlow);
        case FaultKind::dip:
            return take_back("port", at, kDip);
        case FaultKind::cut:
            return take_back("port", at, kCut);
        case FaultKind::forge:
            break;
        }
        return 0;
    }
    void forge(const Fault& fault) {
        const unsigned victim = fault.node, peer = 1 - fault.node;
        if (cluster_.node(victim).closed() || cluster_.node(peer).closed()) return;
        if (loud_)
            std::printf("%12.3f us  %s\n", static_cast<double>(cluster_.world.now()) / 1e3, to_string(fault).c_str());
        const std::span<const Intruder::Kind> kinds =
            fault.path ? std::span<const Intruder::Kind>(Intruder::kOfConnections) : Intruder::kOfHandshakes;
        for (const Intruder::Kind kind : kinds) intruder_->say(victim, peer, kind);
    }
    // Of two faults of the same thing the later end counts.
    Nanos take_back(const std::string& what, const std::string& at, Nanos length) {
        softhca::sim::World& world = cluster_.world;
        const auto command = [what, at](bool begins) {
            if (what == "port") return (begins ? "port down " : "port up ") + at;
            if (what == "delay") return (begins ? "delay 200us " : "delay 0us ") + at;
            return what + (begins ? " 100% " : " 0% ") + at;
        };
        world.fault(command(true));
        const Nanos until = world.now() + length;
        Nanos& end = ends_[what + at];
        end = std::max(end, until);
        world.at(until, [this, command, &end, until] {
            if (end != until) return;
            if (loud_) std::printf("%12.3f us  %s\n", static_cast<double>(until) / 1e3, command(false).c_str());
            cluster_.world.fault(command(false));
        });
        return end;
    }

    // Whether packets have passed since the last call; which paths', before step `before`.
    bool count_packets(Trace& trace, std::uint32_t before) {
        bool moved = false;
        for (unsigned node = 0; node < 2; ++node)
            for (unsigned path = 0; path < paths_; ++path) {
                const auto port = cluster_.world.port(ports_[node][path]);
                const std::uint64_t now = port.tx_packets + port.rx_packets;
                if (now == std::exchange(passed_[node][path], now)) continue;
                moved = true;
                if (node == 0) trace.packets[path].push_back(before);
            }
        return moved;
    }

    // Node 0 goes when it has nothing more to say. True: and node 1 has heard all of it.
    bool close_when_over() {
        if (!cluster_.node(0).closed() && play_.over(0)) {
            cluster_.node(0).close();
            if (loud_) std::printf("%12.3f us  node 0 closes\n", static_cast<double>(cluster_.world.now()) / 1e3);
        }
        return play_.finished();
    }

    // Nothing is left to be done on either side.
    bool repaired() {
        if (scenario_.close) return true; // who is left can't know
        for (unsigned node = 0; node < 2; ++node) {
            channel::Interface::Statistics statistics;
            cluster_.node(node).iface().statistics(statistics);
            for (const auto& channel : statistics.channels) {
                const auto& r = channel.recovery;
                if (r.damaged || r.puts_open || r.holds || r.markers || r.resend) return false;
                if (channel.parked) continue;
                if (channel.paths.empty()) return false;
                for (const auto& path : channel.paths)
                    if (scenario_.choices && path.recovery == std::string_view("absent"))
                        continue; // RC that nobody wants
                    else if (path.recovery != std::string_view("up") || path.state != schedule::PathState::up)
                        return false;
            }
        }
        return true;
    }

    void describe(unsigned node, Outcome& out) {
        if (cluster_.node(node).closed()) return;
        channel::Interface::Statistics statistics;
        cluster_.node(node).iface().statistics(statistics);
        // A connection may end while acknowledgments are on their way: the next one does not know them.
        if (statistics.dropped && statistics.parks == 0 && out.verdict.empty())
            out.verdict = "messages that were not believed\n";
        out.parks += statistics.parks;
        for (const auto& channel : statistics.channels) {
            out.switches += channel.service.switches + channel.ring.switches;
            out.by_rings += channel.ring.messages_out;
            for (const auto& path : channel.paths) out.failures += path.failures;
            if (out.verdict.empty()) continue;
            const auto& r = channel.recovery;
            char line[256];
            std::snprintf(
                line, sizeof line,
                "node %u: %s, sent %llu acked %u delivered %llu gates %u damaged %llx puts open %u, holds %zu "
                "markers %zu resend %d listed %d\n",
                node, connect::name(channel.state), (unsigned long long)channel.sent, channel.acked,
                (unsigned long long)channel.delivered, channel.gates, (unsigned long long)r.damaged, r.puts_open,
                r.holds, r.markers, r.resend, r.listed);
            out.verdict += line;
            for (const auto& path : channel.paths) {
                std::snprintf(line, sizeof line, "  path on %s: %s, %s, life %u, in flight %llu, posted %u\n",
                              path.local_rail.c_str(), path.recovery, schedule::name(path.state), path.life,
                              (unsigned long long)path.in_flight, path.posted);
                out.verdict += line;
            }
        }
    }

    // Both interfaces end, one after the other; what they have made is gone.
    void end(Outcome& out) {
        if (!cluster_.node(0).closed()) cluster_.node(0).close();
        cluster_.run_for(300'000);
        cluster_.node(1).close();
        for (unsigned node = 0; node < 2; ++node)
            for (unsigned path = 0; path < paths_; ++path) {
                const auto left = cluster_.world.objects(cluster_.world.image().port(ports_[node][path]).device);
                if (left.queue_pairs || left.completion_queues || left.shared_receive_queues)
                    out.verdict += "node " + std::to_string(node) + ": " + std::to_string(left.queue_pairs) +
                                   " queue pairs, " + std::to_string(left.completion_queues) + " completion queues, " +
                                   std::to_string(left.shared_receive_queues) + " receive queues left after its end\n";
            }
        out.verdict += play_.mistakes(); // completions that come from the end of an interface
    }

    const Scenario& scenario_;
    const std::vector<Fault> faults_;
    const bool loud_;
    Cluster cluster_;
    Play play_; // its memory goes before the adapters
    std::optional<TaskPlay> tasks_;
    std::optional<Intruder> intruder_;
    unsigned paths_ = 2;
    std::uint32_t ports_[2][verbs::kMaxRails] = {};
    std::uint64_t passed_[2][2] = {};
    std::map<std::string, Nanos> ends_;
    bool lazy_ = false;
    Nanos busy_until_ = cluster_.world.now() + kBusy;
};

} // namespace

std::span<const Scenario> scenarios() { return kScenarios; }

const char* name(Flavour flavour) {
    switch (flavour) {
    case Flavour::rc:
        return "rc";
    case Flavour::markers:
        return "markers";
    case Flavour::dc:
        return "dc";
    }
    return "?";
}

std::string to_string(const Fault& fault) {
    std::string text = kNames[static_cast<unsigned>(fault.kind)];
    if (has_node(fault.kind)) text += "." + std::to_string(fault.node);
    return text + "." + std::to_string(fault.path) + "@" + std::to_string(fault.step);
}

std::optional<Fault> parse_fault(std::string_view text) {
    const std::size_t at = text.find('@');
    if (at == text.npos) return {};
    std::vector<std::string_view> words;
    for (std::string_view rest = text.substr(0, at); !rest.empty();) {
        const std::size_t end = std::min(rest.find('.'), rest.size());
        words.push_back(rest.substr(0, end));
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    const auto kind = words.empty() ? std::end(kNames) : std::find(std::begin(kNames), std::end(kNames), words[0]);
    if (kind == std::end(kNames)) return {};
    Fault fault{static_cast<FaultKind>(kind - std::begin(kNames))};
    const auto number = [](std::string_view word, auto& value) {
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
        return error == std::errc{} && end == word.data() + word.size();
    };
    const bool node = has_node(fault.kind);
    if (words.size() != (node ? 3u : 2u) || !number(words.back(), fault.path) ||
        (node && !number(words[1], fault.node)) || fault.node > 1 || fault.path > 1 ||
        !number(text.substr(at + 1), fault.step))
        return {};
    return fault;
}

Outcome run_case(const softhca::FabricImage& image, const Scenario& scenario, Flavour flavour,
                 std::span<const Fault> faults, bool loud) {
    Outcome out;
    try {
        Run(image, scenario, flavour, faults, loud).go(out);
    } catch (const std::exception& e) { out.verdict += std::string(e.what()) + "\n"; }
    return out;
}

} // namespace ucx_mp::sim
