// mp_sim: the real transport in many processes of one, in virtual time. Runs a job (kernel.h) over several transports
// and scheduling policies on one fabric and compares the times. A number from it is a ratio of two runs that differ in
// one thing; the same seed gives the same times, twice.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>

#include "bound.h"
#include "options.h"
#include "pml_run.h"
#include "tables.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Of one seed.
struct Sample {
    double time_us = 0, first_us = 0, connect_us = 0; // first: of the first run, warm-up or not
    std::uint64_t bytes = 0, messages = 0, queue_pairs = 0, limited_pairs = 0, control = 0, parks = 0, misses = 0,
                  fingerprint = 0;
    channel::AdmissionStatistics limit; // all processes together
    Bound bound;                        // --bound
};

struct Result {
    std::string transport, policy;
    std::vector<Sample> samples; // by time
    double wall = 0;
    [[nodiscard]] const Sample& median() const { return samples[samples.size() / 2]; }
    [[nodiscard]] double first_us() const {
        std::vector<double> all;
        for (const Sample& s : samples) all.push_back(s.first_us);
        std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
        return all[all.size() / 2];
    }
    [[nodiscard]] std::string name() const { return transport + " " + policy; }
};

class Meter { // of progress, on standard error
public:
    Meter(bool quiet, std::string what) : quiet_(quiet), what_(std::move(what)), shown_(seconds()) {}
    ~Meter() {
        if (dirty_) std::fprintf(stderr, "\r%79s\r", "");
    }
    void say(const std::string& stage, double share = -1) {
        if (quiet_ || seconds() - shown_ < 0.5) return;
        shown_ = seconds();
        dirty_ = true;
        if (share < 0)
            std::fprintf(stderr, "\r%-40s %-24s      ", what_.c_str(), stage.c_str());
        else
            std::fprintf(stderr, "\r%-40s %-24s %4.0f%%", what_.c_str(), stage.c_str(), 100 * share);
        std::fflush(stderr);
    }

private:
    const bool quiet_;
    const std::string what_;
    double shown_;
    bool dirty_ = false;
};

void count(const SimOptions& o, Cluster& cluster, Sample& out) {
    for (unsigned i = 0; i < cluster.size(); ++i) {
        channel::Interface::Statistics statistics;
        cluster.node(i).iface().statistics(statistics);
        out.queue_pairs += statistics.queue_pairs;
        if (!o.unlimited || i % o.unlimited) out.limited_pairs += statistics.queue_pairs;
        out.control += statistics.control.sent;
        out.parks += statistics.parks;
        const channel::AdmissionStatistics& limit = statistics.admission;
        out.limit.waits += limit.waits;
        out.limit.connections += limit.connections;
        out.limit.partings += limit.partings;
        out.limit.for_places += limit.for_places;
        out.limit.handshakes += limit.handshakes;
        out.limit.questions += limit.questions;
        out.limit.most = std::max(out.limit.most, limit.most);
    }
    for (std::uint32_t i = 0; i < cluster.world.image().devices; ++i) out.misses += cluster.world.cache_misses(i);
}

// Where they are asked for.
struct Tables {
    std::optional<TransferTable> transfers;
    std::optional<LinkTable> links;
    std::optional<KindTable> kinds;
};

// A crossbar's rate is what its ports report, but nothing on it is slowed down: times would be those of no fabric. With
// --bound nothing would hold either.
void refuse_unmodelled(const SimOptions& o, const softhca::FabricImage& image) {
    if (image.ideal) return; // that is what it is for
    for (std::uint32_t i = 0; i < image.ports; ++i)
        if (image.port(i).cabled && image.port(i).link == softhca::kNone)
            throw std::runtime_error("--fabric " + o.fabric +
                                     ": the ports of a crossbar have no wires, so their rate is not modelled; give "
                                     "them links to a switch, or say ideal: true in the file");
}

Sample measure(const SimOptions& o, Tables& tables, const std::string& transport, const std::string& policy,
               std::uint64_t seed) {
    const Job job = find_kernel(o.kernel).make(kernel_options(o, seed));
    Meter meter(o.quiet, transport + " " + policy + (o.seeds > 1 ? " seed " + std::to_string(seed) : ""));
    meter.say("opening...");
    // Messages are carried, what is written and read is not.
    const bool pml = o.module == "pml";
    const channel::Config config = config_of(o, transport, policy);
    const std::uint64_t carried = pml ? config.segment + 128 : std::max<std::uint64_t>(512, o.eager + 128);
    const std::vector<unsigned> hosts = hosts_of(o, seed);
    std::vector<channel::Config> configs(hosts.size(), config);
    for (std::size_t i = 0; o.unlimited && i < configs.size(); i += o.unlimited) configs[i].max_connections = 0;
    Cluster cluster(o.fabric, hosts, configs, {.seed = seed, .payload_limit = carried}, rails_of(o, policy, hosts));
    refuse_unmodelled(o, cluster.world.image());
    // What links that fail make each process say is no part of the table.
    for (unsigned i = 0; o.quiet && i < cluster.size(); ++i) cluster.node(i).services().quiet = true;
    // Opening the interfaces is free; connecting is not.
    cluster.world.host_costs(host_costs(o, softhca::sim::host_costs(cluster.world.image())));
    for (const std::string& fault : o.faults) cluster.world.fault(fault);
    const Rendezvous rendezvous = o.rendezvous == "get" ? Rendezvous::get : Rendezvous::put;
    std::unique_ptr<Run> run;
    TransportRun* own = nullptr; // of the transport alone
    if (pml) {
        run = std::make_unique<PmlRun>(cluster, job, rendezvous == Rendezvous::put);
    } else {
        auto alone = std::make_unique<TransportRun>(cluster, job, o.eager, rendezvous);
        own = alone.get();
        run = std::move(alone);
    }
    run->begin_late(o.late, seed);
    Sample out;
    meter.say("connecting...");
    if (!o.on_demand) out.connect_us = static_cast<double>(run->connect()) / 1e3;
    if (o.bound) out.bound = bound_of(cluster, job, hosts, run->eager(), rendezvous);
    if (tables.kinds) tables.kinds->begin(cluster, *run, transport + " " + policy);
    const auto once = [&](const char* what, unsigned i) {
        const double us =
            static_cast<double>(run->once([&](double share) { meter.say(what + std::to_string(i + 1), share); })) / 1e3;
        if (out.first_us == 0) out.first_us = us;
        return us;
    };
    for (unsigned i = 0; i < o.warm_up; ++i) (void)once("warm-up ", i);
    Sample before;
    count(o, cluster, before);
    std::vector<Transfer> transfers;
    if (tables.transfers && own) own->record(&transfers);
    if (tables.links) tables.links->begin(cluster.world);
    const auto later = later_faults(o);
    for (unsigned i = 0; i < o.repeat; ++i) {
        std::vector<softhca::sim::World::Timer> due;
        due.reserve(later.size());
        for (const auto& [at, fault] : later) due.push_back(cluster.world.fault_at(cluster.world.now() + at, fault));
        out.time_us += once("run ", i) / o.repeat;
        for (const auto timer : due) cluster.world.cancel(timer); // of a time after the job
    }
    if (own) own->record(nullptr);
    if (tables.kinds) tables.kinds->end();
    if (tables.transfers) tables.transfers->add(transport + " " + policy, transfers);
    if (tables.links) tables.links->end(cluster.world, transport + " " + policy);
    out.bytes = bytes_of(job);
    out.messages = messages_of(job);
    out.fingerprint = cluster.world.fingerprint();
    count(o, cluster, out);
    out.misses = (out.misses - before.misses) / o.repeat;
    out.parks = (out.parks - before.parks) / o.repeat;
    return out;
}

void print(const SimOptions& o, const std::vector<Result>& results, unsigned ranks) {
    std::printf("%s, %u ranks on %u nodes, %s, %llu bytes per message, %s mapping, seed %llu%s\n", o.fabric.c_str(),
                ranks, o.nodes, o.kernel.c_str(), static_cast<unsigned long long>(o.size), o.mapping.c_str(),
                static_cast<unsigned long long>(o.seed),
                o.seeds > 1 ? (" and " + std::to_string(o.seeds - 1) + " more: medians").c_str() : "");
    std::printf("%-34s %12s %8s %17s %10s %10s %12s %8s %9s %9s %7s  %s\n", "transport policy", "time us", "ratio",
                "least..most", "us/message", "GB/s/rank", "connect us", "QPs/rank", "parks/rk", "misses/m", "wall s",
                "fingerprint");
    for (const Result& r : results) {
        const Sample& s = r.median();
        const double first = results[0].median().time_us, per = s.messages ? static_cast<double>(s.messages) : 1;
        char spread[40] = "";
        if (r.samples.size() > 1)
            std::snprintf(spread, sizeof spread, "%.3f..%.3f", r.samples.front().time_us / first,
                          r.samples.back().time_us / first);
        std::printf("%-34s %12.1f %8.3f %17s %10.4f %10.3f %12.1f %8.1f %9.1f %9.3f %7.1f  %016llx\n", r.name().c_str(),
                    s.time_us, s.time_us / first, spread, s.messages ? s.time_us / per : 0.0,
                    static_cast<double>(s.bytes) / 1e3 / s.time_us / ranks, s.connect_us,
                    static_cast<double>(s.queue_pairs) / ranks, static_cast<double>(s.parks) / ranks,
                    static_cast<double>(s.misses) / per, r.wall, static_cast<unsigned long long>(s.fingerprint));
    }
    const auto each = [](Nanos sum, std::uint64_t n) { return n ? static_cast<double>(sum) / 1e3 / double(n) : 0; };
    for (const Result& r : results)
        if (const auto& l = r.median().limit; l.connections)
            std::printf("%-34s a process: %.1f waits for a place of %.1f us, %.1f handshakes of %.1f us, %.1f partings "
                        "of %.1f us; %u places at most\n",
                        r.name().c_str(), double(l.waits) / ranks, each(l.for_places, l.waits),
                        double(l.connections) / ranks, each(l.handshakes, l.connections), double(l.partings) / ranks,
                        each(l.questions, l.partings), l.most);
    for (const Result& r : results)
        if (const Bound& b = r.median().bound; b.in_order > 0)
            std::printf(
                "%-34s links need %.1f us step by step (%.2f of the time), %.1f us if all is sent at once (%.2f); "
                "processors %.1f us (%.2f)\n",
                r.name().c_str(), b.in_order, b.in_order / r.median().time_us, b.at_once,
                b.at_once / r.median().time_us, b.processors, b.processors / r.median().time_us);
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::printf("peak memory %.0f MB\n", static_cast<double>(usage.ru_maxrss) / 1024);
}

void write_csv(const SimOptions& o, const std::vector<Result>& results, unsigned ranks) {
    std::ofstream out(o.csv);
    out << "transport,policy,time_us,ratio,least_us,most_us,us_per_message,connect_us,queue_pairs,limited_pairs,parks,"
           "misses,"
           "waits,wait_us,handshakes,handshake_us,partings,parting_us,most,in_order_us,at_once_us,processors_us,first_"
           "us\n";
    for (const Result& r : results) {
        const Sample& s = r.median();
        out << r.transport << ",\"" << r.policy << "\"," << s.time_us << ',' << s.time_us / results[0].median().time_us
            << ',' << r.samples.front().time_us << ',' << r.samples.back().time_us << ','
            << (s.messages ? s.time_us / static_cast<double>(s.messages) : 0) << ',' << s.connect_us << ','
            << static_cast<double>(s.queue_pairs) / ranks << ','
            << static_cast<double>(s.limited_pairs) /
                   (o.unlimited ? ranks - (ranks + o.unlimited - 1) / o.unlimited : ranks)
            << ',' << static_cast<double>(s.parks) / ranks << ',' << s.misses;
        const auto& l = s.limit; // a process
        const double n = ranks;
        out << ',' << double(l.waits) / n << ',' << double(l.for_places) / 1e3 / n << ',' << double(l.connections) / n
            << ',' << double(l.handshakes) / 1e3 / n << ',' << double(l.partings) / n << ','
            << double(l.questions) / 1e3 / n << ',' << l.most << ',' << s.bound.in_order << ',' << s.bound.at_once
            << ',' << s.bound.processors << ',' << r.first_us() << '\n';
    }
    if (!out.flush()) throw std::runtime_error("--csv " + o.csv + ": cannot be written");
}

// Whom each rank opens a conversation with, in order: what a policy for connections works on.
void write_trace(const SimOptions& o) {
    const Job job = find_kernel(o.kernel).make(kernel_options(o, o.seed));
    std::ofstream out(o.trace);
    for (const Steps& steps : job) {
        bool first = true;
        for (const Step& s : steps)
            if (s.peer != kAnyone && s.kind != Step::Kind::wait && s.kind != Step::Kind::meet) {
                if (!first) out << ' ';
                first = false;
                out << s.peer;
            }
        out << '\n';
    }
    if (!out.flush()) throw std::runtime_error("--trace " + o.trace + ": cannot be written");
}

} // namespace

int main(int argc, char** argv) {
    const SimOptions o = parse(argc, argv);
    try {
        if (!o.trace.empty()) {
            write_trace(o);
            return 0;
        }
        const auto ranks = static_cast<unsigned>(hosts_of(o, o.seed).size());
        std::vector<Result> results;
        Tables tables;
        if (!o.transfers.empty()) tables.transfers.emplace(o.transfers);
        if (!o.links.empty()) tables.links.emplace(o.links);
        if (!o.kinds.empty()) tables.kinds.emplace(o.kinds, o.kinds_every);
        for (const std::string& transport : o.transports)
            for (const std::string& policy : o.policies) {
                const double begin = seconds();
                Result result{.transport = transport, .policy = policy, .samples = {}, .wall = 0};
                for (unsigned i = 0; i < o.seeds; ++i)
                    result.samples.push_back(measure(o, tables, transport, policy, o.seed + i));
                std::sort(result.samples.begin(), result.samples.end(),
                          [](const Sample& a, const Sample& b) { return a.time_us < b.time_us; });
                result.wall = seconds() - begin;
                results.push_back(std::move(result));
            }
        print(o, results, ranks);
        if (!o.csv.empty()) write_csv(o, results, ranks);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "mp_sim: %s\n", error.what());
        return 1;
    }
}
