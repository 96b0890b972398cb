// bench_sim_failover: one case of perf/failover, in virtual time. Prints one line of JSON.
#include <CLI/CLI.hpp>

#include "failover_sim/cases.h"

using namespace ucx_mp::failover;

int main(int argc, char** argv) {
    CLI::App app{"What a fault costs, over the real transport in virtual time. One case per run, one line of JSON.\n"
                 "Example: bench_sim_failover fault --op put --fault 'port down 0:softhca_0:1' --repair 'port up "
                 "0:softhca_0:1'"};
    const std::map<std::string, void (*)(const CaseOptions&)> cases{
        {"steady", steady},     {"fault", fault},         {"peers", peers}, {"connect", connect},
        {"receiver", receiver}, {"partition", partition}, {"flaps", flaps}};
    CaseOptions o;
    std::string name;
    app.add_option("case", name, "steady, fault, peers, connect, receiver, partition, flaps")->required();
    app.add_option("--fabric", o.fabric, "fabric file, or a name of config/fabrics")->capture_default_str();
    app.add_option("--transport", o.transport, "mp_rc or mp_dc")->capture_default_str();
    app.add_option("--op", o.op, "am, put or get")->capture_default_str();
    app.add_option("--fault", o.fault, "fault command")->capture_default_str();
    app.add_option("--repair", o.repair, "its end")->capture_default_str();
    app.add_option("--rails", o.rails, "as UCX_MP_RAILS")->delimiter(',');
    app.add_option("--paths", o.paths, "routes per pair of rails; 0: the transport's choice")->capture_default_str();
    app.add_option("--from", o.from, "host that sends")->capture_default_str();
    app.add_option("--to", o.to, "host that receives")->capture_default_str();
    app.add_option("--size", o.size, "bytes per operation; 0: the case's choice")->capture_default_str();
    app.add_option("--window", o.window, "operations under way")->capture_default_str();
    app.add_option("--warm-up", o.warm_up_ms, "ms")->capture_default_str();
    app.add_option("--down", o.down_ms, "ms that the fault lasts")->capture_default_str();
    app.add_option("--after", o.after_ms, "ms after it")->capture_default_str();
    app.add_option("--share", o.share, "of the original rate that the remaining paths carry")->capture_default_str();
    app.add_option("--watch", o.watch_ms, "ms, as UCX_MP_WATCH_INTERVAL; 0: off")->capture_default_str();
    app.add_option("--hold-down", o.hold_down_ms, "ms, as UCX_MP_HOLD_DOWN")->capture_default_str();
    app.add_option("--poll", o.poll_us, "us after which a program looks even if nothing has come")
        ->capture_default_str();
    app.add_option("--bin", o.bin_us, "us, of the curve")->capture_default_str();
    app.add_option("--peers", o.peers, "connected processes")->capture_default_str()->check(CLI::Range(1, 1500));
    app.add_option("--command", o.command_us, "us that a verbs command takes")->capture_default_str();
    app.add_option("--count", o.count, "flaps; rounds of the alltoall")->capture_default_str();
    app.add_option("--seconds", o.seconds, "that a receiver computes, that a partition lasts")->capture_default_str();
    app.add_flag("--stopped", o.stopped, "the receiver is stopped, not computing");
    app.add_flag("--inward", o.inward, "the peers connect to the process, not it to them");
    app.add_flag("--idle", o.idle, "it has no traffic meanwhile");
    app.add_flag("--apm", o.apm, "UCX_MP_APM=y");
    app.add_flag("--no-recovery", o.no_recovery, "UCX_MP_RECOVERY=n");
    app.add_flag("--curve", o.curve, "print the rate over time");
    app.add_flag("--loud", o.loud, "the transport's log on stderr");
    CLI11_PARSE(app, argc, argv);
    const auto found = cases.find(name);
    if (found == cases.end()) {
        std::fprintf(stderr, "bench_sim_failover: no case %s; see --help\n", name.c_str());
        return 2;
    }
    try {
        found->second(o);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "bench_sim_failover: %s\n", e.what());
        return 1;
    }
    std::fflush(stdout);
    std::_Exit(0); // operations may be under way: they are dropped
}
