#include "campaign.h"

#include "uct_mp/schedule/policy_factory.h"
#include "uct_mp/verbs/registry.h"

namespace ucx_mp::sim {

namespace {
channel::Config config_of(const CampaignOptions& options) {
    channel::Config config;
    config.transport = options.transport;
    config.max_connections = options.max_connections;
    if (options.both_kinds) config.kinds = path::Kinds::both;
    if (options.switch_kinds) {
        config.adapt.mode = channel::AdaptConfig::Mode::manual;
        constexpr unsigned kPools[] = {0, 4, 128};
        config.adapt.pool = kPools[options.seed % 3];
        if (options.seed % 4 == 0) config.adapt.max_rc = 1; // some are refused
    }
    if (options.adapt) {
        config.adapt.mode = options.seed % 2 ? channel::AdaptConfig::Mode::on : channel::AdaptConfig::Mode::eager;
        config.adapt.max_rc = options.seed % 3 ? 2 : 1;
        config.adapt.pool = options.seed % 5 ? 128 : 4;
        config.adapt.tuning.interval = 100'000; // a run takes some 10 ms
        config.adapt.tuning.min_interval = 50'000;
        config.adapt.tuning.least_gain = 1;
        config.adapt.measured = options.seed % 4 != 0;
        if (!config.adapt.measured) config.adapt.tuning.costs = {.rc = 200, .make_rc = 2'000};
    }
    if (options.rings) {
        config.adapt.max_rings = 64;
        config.adapt.ring = {options.seed % 2 ? 16u : 4u, options.seed % 3 ? 4096u : 256u};
        if (options.seed % 4) config.adapt.ring_pause = 20'000; // a run takes some 10 ms, and always something fails
    }
    config.policy = *schedule::make_policy(options.policy).config;
    config.window = options.window;
    config.receive_depth = 128;
    config.send_depth = 32;
    config.dci_count = config.dct_count = 2;
    config.reliability.timeout = 5; // 131 us: a lost packet costs little virtual time
    config.reliability.retry_count = 3;
    config.recovery.packet_numbers = options.packet_numbers;
    config.apm = options.apm;
    config.recovery.partition_timeout = options.member_death ? 20'000'000 : 0;
    if (options.member_death) config.connect_timeout = 500'000'000; // it may die before anybody has connected to it
    config.recovery.hold_down = 1'000'000;
    config.recovery.max_hold_down = 8'000'000;
    config.recovery.ask_interval = 100'000;
    config.recovery.watch_interval = 40'000; // before the adapter gives up
    config.recovery.open_interval = 100'000;
    config.recovery.max_open_interval = 4'000'000;
    config.recovery.reopen_interval = 200'000;
    config.recovery.max_reopen_interval = 400'000;
    config.paths.split_reads = options.split_reads;
    if (options.single_path) config.paths.num_paths = 1;
    config.background = config.recovery.thread = options.compute;
    return config;
}
} // namespace

std::vector<std::string> Campaign::missing_at_start(const CampaignOptions& options) {
    std::vector<std::string> faults;
    if (!options.late_ports && !options.late_adapters) return faults;
    std::mt19937_64 random(options.seed * 104'729 + 7);
    const softhca::sim::World world(options.fabric, {});
    const softhca::FabricImage& image = world.image();
    // All but one of a node may be missing.
    const auto choose = [&](const char* fault, const std::vector<std::string>& from) {
        const std::size_t there = random() % from.size();
        for (std::size_t i = 0; i < from.size(); ++i)
            if (i != there && random() % 3 != 0) faults.push_back(fault + from[i]);
        return from[there];
    };
    for (std::uint32_t node = 0; node < options.nodes; ++node) {
        std::vector<std::string> adapters, ports;
        for (std::uint32_t d = 0; d < image.node(node).devices; ++d)
            adapters.push_back(std::to_string(node) + ":softhca_" + std::to_string(d));
        const std::string there = options.late_adapters ? choose("adapter-death ", adapters) : "";
        for (std::uint32_t d = 0; d < image.node(node).devices; ++d)
            for (std::uint32_t p = 0; p < image.device(image.node(node).first_device + d).ports; ++p)
                if (there.empty() || adapters[d] == there) ports.push_back(adapters[d] + ":" + std::to_string(p + 1));
        if (options.late_ports) choose("port down ", ports);
    }
    return faults;
}

Campaign::Campaign(CampaignOptions options)
    : options_(std::move(options)), random_(options_.seed * 7919 + 13), late_(missing_at_start(options_)),
      cluster_(std::make_unique<Cluster>(
          options_.fabric, options_.nodes, config_of(options_), softhca::sim::Options{.seed = options_.seed},
          options_.single_path ? verbs::DeviceConfig{{"softhca_0:1"}} : verbs::DeviceConfig{}, late_)) {
    for (unsigned node = 0; node < options_.nodes; ++node) {
        const auto& rails = cluster_->node(node).devices().rails();
        for (const verbs::Rail& rail : rails) {
            const std::string port = std::to_string(node) + ":" + rail.name, adapter = port.substr(0, port.rfind(':'));
            ports_.push_back(port);
            if (rail.device != rails.back().device || options_.adapter_return) adapters_.push_back(adapter);
        }
    }
    add_switch_links();
    if (options_.nasty) cluster_->world.fault("flush-accepted on all");
    for (unsigned node = 0; options_.loud && node < options_.nodes; ++node)
        cluster_->node(node).services().threshold = LogLevel::debug;
    for (unsigned node = 0; node < options_.nodes && !options_.loud; ++node)
        cluster_->node(node).services().threshold = LogLevel::error;
}

// A cable between two switches carries the routes of many.
void Campaign::add_switch_links() {
    const softhca::FabricImage& image = cluster_->world.image();
    for (std::uint32_t l = 0; l < image.links; ++l) {
        const softhca::LinkImage& link = image.link(l);
        if (link.from_kind != softhca::EndKind::sw || link.to_kind != softhca::EndKind::sw || link.from > link.to)
            continue;
        const std::string cable = std::string(image.sw(link.from).name) + " " + image.sw(link.to).name;
        if (cable.find(options_.cables) != std::string::npos) cables_.push_back(cable);
    }
}

// Who loses all adapters while his peers cannot hear that they have lost theirs finds nobody any more (PROTOCOL.md): so
// one is exchanged only when everybody knows of the one before.
bool Campaign::all_known() {
    std::uint64_t lives = 0;
    for (unsigned node = 0; node < options_.nodes; ++node) {
        for (const verbs::Device& device : cluster_->node(node).devices().devices())
            lives += cluster_->node(node).devices().registry()->life(device.index);
        channel::Interface::Statistics statistics;
        cluster_->node(node).iface().statistics(statistics);
        for (const auto& channel : statistics.channels)
            // Neither those who are connecting, nor those who have not met yet: an address told before is old then
            // (U9).
            if (!channel.rails_known || (channel.state != connect::State::established && !channel.parked) ||
                channel.state == connect::State::requesting || channel.state == connect::State::confirming ||
                channel.state == connect::State::accepting)
                return false;
    }
    return lives == revivals_;
}

Campaign::Fault Campaign::choose() {
    const std::string& port = ports_[random_() % ports_.size()];
    const auto number = [this](unsigned most) { return std::to_string(1 + random_() % most); };
    if (options_.adapter_death && !dead_ && !adapters_.empty() && random_() % 8 == 0) {
        dead_ = true;
        return {"adapter-death " + adapters_[random_() % adapters_.size()], ""};
    }
    if (options_.adapter_return && !dead_ && random_() % 4 == 0 && all_known()) {
        dead_ = true;
        ++revivals_;
        const std::string& adapter = adapters_[random_() % adapters_.size()];
        return {"adapter-death " + adapter, "adapter-revive " + adapter};
    }
    if (options_.queue_pairs_end && random_() % 6 == 0) {
        const std::string adapter = port.substr(0, port.rfind(':'));
        return {"queue-pair-limit 1 " + adapter, "queue-pair-limit none " + adapter};
    }
    if (!cables_.empty() && random_() % (options_.cables.empty() ? 4 : 1) == 0) {
        const std::string& cable = cables_[random_() % cables_.size()];
        return {"link down " + cable, "link up " + cable};
    }
    switch (random_() % (options_.nasty ? 12 : 6)) {
    case 0:
    case 1:
        return {"port down " + port, "port up " + port};
    case 2:
        return {"drop " + number(20) + "% " + port, "drop 0% " + port};
    case 3:
        return {"drop 100% " + port, "drop 0% " + port}; // silent
    case 4:
        return {"corrupt " + number(10) + "% " + port, "corrupt 0% " + port};
    case 5:
        return {"delay " + number(100) + "us " + port, "delay 0us " + port};
    case 6:
        return {"ack-drop " + number(100) + "% " + port, "ack-drop 0% " + port};
    case 7:
        return {"drop 100% " + port + " --at-packet " + number(60) + " --count " + number(30), "drop 0% " + port};
    case 8:
        tripped_.insert(port);
        return {"port down " + port + " --at-packet " + number(60), "port up " + port};
    case 9:
        return {"ack-drop 100% " + port + " --at-packet " + number(60) + " --count " + number(30),
                "ack-drop 0% " + port};
    case 10: {
        const std::string adapter = port.substr(0, port.rfind(':'));
        return {"query refused " + adapter, "query truthful " + adapter};
    }
    default:
        return {"loopback-fails on " + port, "loopback-fails off " + port};
    }
}

// The packet at which a port was to go down may come long after the end of that fault.
void Campaign::raise_tripped() {
    for (const std::string& port : tripped_) cluster_->world.fault("port up " + port);
    if (!over_) cluster_->world.at(cluster_->world.now() + 3'000'000, [this] { raise_tripped(); });
}

void Campaign::count_kinds() {
    for (unsigned i = 0; i < cluster_->size(); ++i) {
        channel::Interface::Statistics statistics;
        cluster_->node(i).iface().statistics(statistics);
        std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> now; // a peer may have an old channel beside
        for (const auto& channel : statistics.channels) {
            now[channel.peer_uid].first += channel.service.switches + channel.ring.switches;
            now[channel.peer_uid].second += channel.ring.messages_out;
        }
        for (const auto& [peer, sums] : now) {
            Counts& counts = kinds_[{i, peer}];
            counts.switches.note(sums.first);
            counts.by_rings.note(sums.second);
        }
    }
}

void Campaign::switch_kinds() {
    if (over_) return;
    count_kinds();
    const auto at = static_cast<unsigned>(random_() % cluster_->size());
    const auto from = static_cast<unsigned>(random_() % cluster_->size());
    if (cluster_->node(at).computing()) {
        cluster_->world.at(cluster_->world.now() + about(options_.mean_gap / 2), [this] { switch_kinds(); });
        return;
    }
    adapt::Service service = random_() % 2 ? adapt::Service::rc : adapt::Service::shared;
    if (options_.rings && (!options_.switch_kinds || random_() % 2)) // of either transport
        service = service == adapt::Service::rc ? adapt::Service::dc_ring : adapt::Service::shared;
    cluster_->world.select(at);
    (void)cluster_->node(at).iface().serve_by(cluster_->channel(at, from), service);
    cluster_->world.at(cluster_->world.now() + about(options_.mean_gap / 2), [this] { switch_kinds(); });
}

void Campaign::compute() {
    if (over_) return;
    Node& node = cluster_->node(static_cast<unsigned>(random_() % cluster_->size()));
    if (!node.computing()) node.compute(about(2 * options_.mean_length), [] {});
    cluster_->world.at(cluster_->world.now() + about(options_.mean_length), [this] { compute(); });
}

void Campaign::next() {
    if (over_ || done_ == options_.faults) return;
    // Without partitions one fault at a time.
    if (options_.partitions || open_ == 0) {
        const Fault fault = choose();
        ++done_;
        ++open_;
        if (options_.loud) std::printf("%12.3f us  %s\n", double(cluster_->world.now()) / 1e3, fault.begin.c_str());
        cluster_->world.fault(fault.begin);
        cluster_->world.at(cluster_->world.now() + about(options_.mean_length), [this, fault] {
            if (options_.loud) std::printf("%12.3f us  %s\n", double(cluster_->world.now()) / 1e3, fault.end.c_str());
            if (!fault.end.empty()) cluster_->world.fault(fault.end);
            dead_ = dead_ && !fault.end.starts_with("adapter-revive");
            --open_;
        });
    }
    cluster_->world.at(cluster_->world.now() + about(options_.mean_gap), [this] { next(); });
}

// Everything is tried in turn; in each phase of everything else.
void Campaign::intrude() {
    if (over_) return;
    const auto victim = unsigned(lies_() % cluster_->size()), peer = unsigned(lies_() % cluster_->size());
    if (victim != peer) {
        constexpr std::size_t kHandshakes = std::size(Intruder::kOfHandshakes),
                              kConnections = std::size(Intruder::kOfConnections);
        const std::size_t i = lies_() % (2 * kHandshakes + kConnections);
        const Intruder::Kind kind =
            i < kConnections ? Intruder::kOfConnections[i] : Intruder::kOfHandshakes[i % kHandshakes];
        intruder_->say(victim, peer, kind);
    }
    cluster_->world.at(cluster_->world.now() + 1 + lies_() % 20'000, [this] { intrude(); });
}

bool Campaign::run_collectives(Collectives& traffic, CampaignResult& result) {
    if (options_.member_death) {
        const auto node = static_cast<unsigned>(random_() % options_.nodes);
        cluster_->world.at(cluster_->world.now() + about(options_.mean_gap * options_.faults / 2), [&, node] {
            if (over_) return;
            if (options_.loud) std::printf("%12.3f us  node %u dies\n", double(cluster_->world.now()) / 1e3, node);
            traffic.kill(node);
        });
    }
    const bool finished = traffic.run(20'000'000'000);
    result.verdict = traffic.verdict();
    result.bytes = traffic.bytes;
    result.collectives = traffic.complete;
    result.collectives_failed = traffic.failed;
    result.triggered = traffic.count("triggered");
    result.striped = traffic.count("striped");
    result.queues_ended = traffic.count("queues ended") + traffic.count("pairs ended");
    result.resent = traffic.count("resent") + traffic.count("stripes resent");
    return finished;
}

CampaignResult Campaign::run() {
    std::optional<Collectives> collectives;
    std::optional<Stress> stress;
    if (options_.collectives)
        collectives.emplace(*cluster_, CollectivesOptions{.seed = options_.seed,
                                                          .operations = options_.operations,
                                                          .engine = *options_.collectives,
                                                          .threads = options_.threads});
    else
        stress.emplace(*cluster_, StressOptions{.seed = options_.seed,
                                                .operations = options_.operations,
                                                .slot = 1 << 18,
                                                .constant = 1 << 18,
                                                .sequences = options_.sequences,
                                                .late = options_.late_placement ? Nanos{20'000} : 0,
                                                .lull = options_.park ? Nanos{100'000} : 0});
    cluster_->world.at(cluster_->world.now() + about(options_.mean_gap), [this] { next(); });
    raise_tripped();
    if (options_.switch_kinds || options_.rings) switch_kinds();
    if (options_.compute) compute();
    if (options_.intruder) {
        lies_.seed(options_.seed);
        const std::uint32_t host = options_.nodes < cluster_->world.nodes() ? options_.nodes : 0;
        intruder_.emplace(*cluster_, host, options_.seed);
        intrude();
    }
    for (const std::string& fault : late_) {
        const bool port = fault.starts_with("port down ");
        const std::string end = (port ? "port up" : "adapter-revive") + fault.substr(fault.rfind(' '));
        revivals_ += !port;
        cluster_->world.at(cluster_->world.now() + about(4 * options_.mean_gap),
                           [this, end] { cluster_->world.fault(end); });
    }
    CampaignResult result;
    result.finished = collectives ? run_collectives(*collectives, result) : stress->run(2'000'000'000);
    over_ = true;
    if (stress) {
        result.verdict = stress->verdict();
        result.bytes = stress->bytes;
    }
    result.faults = done_;
    result.time = cluster_->world.now() - 1'000'000'000;
    result.fingerprint = cluster_->world.fingerprint();
    count_kinds();
    for (const auto& [who, counts] : kinds_)
        result.switches += counts.switches.all(), result.by_rings += counts.by_rings.all();
    for (unsigned i = 0; i < cluster_->size(); ++i) {
        channel::Interface::Statistics statistics;
        cluster_->node(i).iface().statistics(statistics);
        result.parks += statistics.parks;
        result.beside += channel::beside(cluster_->node(i).iface()).turns;
        result.kept += channel::beside(cluster_->node(i).iface()).kept;
        result.looks += statistics.adaptation.looks;
        result.changes += statistics.adaptation.changes;
        result.turns += statistics.adaptation.costs.turn > 0;
        for (const auto& channel : statistics.channels) {
            result.duplicates += channel.duplicates;
            result.messages_again += channel.recovery.messages_again;
            result.puts_again += channel.recovery.puts_again;
            result.gets_again += channel.recovery.gets_again;
            result.puts_found_done += channel.recovery.puts_found_done;
            result.bytes_again += channel.recovery.bytes_again;
            if (!result.finished || !result.verdict.empty()) {
                const auto& r = channel.recovery;
                char line[256];
                std::snprintf(
                    line, sizeof line,
                    "node %u to %016llx: sent %llu acked %u delivered %llu gates %u damaged %llx puts open %u, "
                    "holds %zu markers %zu resend %d listed %d\n",
                    i, (unsigned long long)channel.peer_uid, (unsigned long long)channel.sent, channel.acked,
                    (unsigned long long)channel.delivered, channel.gates, (unsigned long long)r.damaged, r.puts_open,
                    r.holds, r.markers, r.resend, r.listed);
                result.verdict += line;
            }
            for (const auto& path : channel.paths) {
                result.failures += path.failures;
                result.returns += path.returns;
                result.migrations += path.migrations;
                if (result.finished && result.verdict.empty()) continue;
                result.verdict += "node " + std::to_string(i) + " path " + path.local_rail + " LID " +
                                  std::to_string(path.local_lid) + "->" + std::to_string(path.remote_lid) + ": " +
                                  path.recovery + " life " + std::to_string(path.life) + ", in flight " +
                                  std::to_string(path.in_flight) + ", posted " + std::to_string(path.posted) + "\n";
            }
        }
        if (cluster_->node(i).services().errors > (options_.member_death ? 1u : 0u)) // it says which host is lost
            result.verdict += "node " + std::to_string(i) + ": errors in its log\n";
    }
    return result;
}

} // namespace ucx_mp::sim
