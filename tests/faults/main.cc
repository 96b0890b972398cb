// fault_campaign: long fault campaigns in virtual time. Prints the seed of what fails; the same seed replays it.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <map>

#include "campaign.h"
#include "uct_mp/schedule/policy_factory.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

int main(int argc, char** argv) {
    CLI::App app{
        "Random traffic of all kinds under random faults, in virtual time, everything checked. A failure prints its\n"
        "seed, which replays it.\n"
        "Example: fault_campaign --transport mp_dc --fabric four-path --nodes 3 --seconds 60"};
    CampaignOptions options;
    std::string transport = "mp_rc";
    unsigned runs = 1, seconds = 0;
    std::uint64_t events = 0;
    std::vector<std::string> sequences;
    const auto sequence_of = [](const std::string& name) {
        unsigned i = 0;
        while (i < kSequences && name != name_of(static_cast<Sequence>(i))) ++i;
        return i;
    };
    const auto is_sequence = [&](const std::string& name) {
        return sequence_of(name) < kSequences ? "" : "no such sequence: " + name;
    };
    bool one_at_a_time = false, no_packet_numbers = false;
    app.add_option("--fabric", options.fabric, "a file, or the name of one of config/fabrics")->capture_default_str();
    app.add_option("--transport", transport, "mp_rc or mp_dc")
        ->capture_default_str()
        ->check(CLI::IsMember({"mp_rc", "mp_dc"}));
    app.add_flag("--both-kinds", options.both_kinds, "paths of RC and of DC in every channel");
    app.add_flag("--adapt", options.adapt, "mp_dc: who has RC is chosen by what is measured");
    app.add_flag("--switch-kinds", options.switch_kinds, "mp_dc: RC comes and goes, by either side's wish");
    app.add_flag("--rings", options.rings, "message rings come and go, over whatever paths there are");
    app.add_option("--policy", options.policy, "as UCX_MP_POLICY")->capture_default_str();
    app.add_option("--nodes", options.nodes, "that talk, each with each and with itself")
        ->capture_default_str()
        ->check(CLI::Range(1, 64));
    app.add_option("--seed", options.seed, "of the first run; the next ones count up")->capture_default_str();
    app.add_option("--operations", options.operations, "per ordered pair of nodes and run")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    app.add_option("--faults", options.faults, "per run, at most")->capture_default_str();
    app.add_option("--gap", options.mean_gap, "ns between faults, on average")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    app.add_option("--length", options.mean_length, "ns that a fault lasts, on average")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    app.add_option("--window", options.window, "unacknowledged messages per channel")->capture_default_str();
    app.add_option("--runs", runs, "with one seed each")->capture_default_str();
    app.add_option("--events", events, "go on until so many faults have happened");
    app.add_option("--seconds", seconds, "go on for so long");
    app.add_flag("--no-packet-numbers", no_packet_numbers, "as if ibv_query_qp were not to be believed");
    app.add_flag("--one-at-a-time", one_at_a_time, "no second fault before the first is over");
    app.add_flag("--split-reads", options.split_reads, "reads on paths of their own (UCX_MP_SPLIT_READS)");
    app.add_flag("--single-path", options.single_path, "only one path between any two");
    app.add_option("--cables", options.cables,
                   "nothing fails but cables between switches with this in their names `A B`");
    app.add_flag("--nasty", options.nasty,
                 "also: lost acknowledgments, faults at the n-th packet, accepted receives flushed, ...");
    app.add_flag("--park", options.park, "channels are parked at any moment, by either side");
    app.add_option("--max-conn", options.max_connections, "peers that a node is connected to at once; 0: no limit")
        ->capture_default_str();
    app.add_flag("--late-placement", options.late_placement,
                 "one adapter of each node places data after acknowledging them");
    app.add_option("--sequences", sequences,
                   "only these follow puts: fence-am, complete-am, complete-fence-am, flush-am, fence-flag, "
                   "fence-get, flush-get, flush-add")
        ->delimiter(',')
        ->check(is_sequence);
    app.add_flag("--late-ports", options.late_ports, "some ports are down at the start and come up at any time");
    app.add_flag("--late-adapters", options.late_adapters,
                 "some adapters are dead at the start, and there again at any time");
    app.add_flag("--queue-pairs-end", options.queue_pairs_end, "some adapters make no more queue pairs for a while");
    app.add_flag("--apm", options.apm, "mp_rc with automatic path migration (UCX_MP_APM)");
    app.add_flag("--adapter-death", options.adapter_death, "an adapter dies in every run");
    app.add_flag("--adapter-return", options.adapter_return, "adapters die, one at a time, and are there again");
    app.add_flag("--compute", options.compute, "nodes compute at any moment, and recovery goes on beside them");
    app.add_flag("--intruder", options.intruder,
                 "somebody speaks in the others' names, and knows everything but their secrets");
    const std::map<std::string, mp_engine_t> engines{
        {"host", MP_ENGINE_HOST}, {"auto", MP_ENGINE_AUTO}, {"adapter", MP_ENGINE_ADAPTER}};
    CLI::Option* const collectives = app.add_option(
        "--collectives", options.collectives,
        "collective operations of pml_glue's core instead of other traffic: as coll_mp_engine. --operations: of each "
        "of three communicators");
    collectives->transform(CLI::CheckedTransformer(engines));
    app.add_flag("--threads", options.threads, "with --collectives: progress threads work beside programs")
        ->needs(collectives);
    app.add_flag("--member-death", options.member_death, "with --collectives: a node is killed in every run")
        ->needs(collectives);
    app.add_flag("--loud", options.loud, "tell what happens");
    CLI11_PARSE(app, argc, argv);
    if (const auto policy = schedule::make_policy(options.policy, "--policy"); !policy.config) {
        std::fprintf(stderr, "fault_campaign: %s\n", policy.error.c_str());
        return 2;
    }
    options.transport = transport == "mp_rc" ? connect::Transport::rc : connect::Transport::dc;
    if (options.switch_kinds || options.adapt) options.transport = connect::Transport::dc;
    options.partitions = !one_at_a_time;
    if (!sequences.empty()) options.sequences = 0;
    for (const std::string& name : sequences) options.sequences |= 1u << sequence_of(name);
    options.packet_numbers = !no_packet_numbers;
    const auto begin = std::chrono::steady_clock::now();
    CampaignResult sum;
    for (unsigned run = 0;; ++run) {
        const bool more = events    ? sum.faults < events
                          : seconds ? std::chrono::steady_clock::now() - begin < std::chrono::seconds(seconds)
                                    : run < runs;
        if (!more) break;
        CampaignResult result;
        try {
            result = Campaign(options).run();
        } catch (const std::exception& e) { result.verdict = e.what(); }
        std::printf("seed %llu: %u faults, %llu path failures, %llu returns, again: %llu messages %llu puts %llu gets, "
                    "%llu puts found done, %llu duplicates dropped, %.1f MB (%.1f again) in %.2f ms\n",
                    (unsigned long long)options.seed, result.faults, (unsigned long long)result.failures,
                    (unsigned long long)result.returns, (unsigned long long)result.messages_again,
                    (unsigned long long)result.puts_again, (unsigned long long)result.gets_again,
                    (unsigned long long)result.puts_found_done, (unsigned long long)result.duplicates,
                    double(result.bytes) / 1e6, double(result.bytes_again) / 1e6, double(result.time) / 1e6);
        if (options.adapt)
            std::printf("  %llu looks, %llu other maps, %llu nodes know what a turn costs\n",
                        (unsigned long long)result.looks, (unsigned long long)result.changes,
                        (unsigned long long)result.turns);
        if (options.switch_kinds || options.rings || options.adapt)
            std::printf("  %llu wishes were granted\n", (unsigned long long)result.switches);
        if (options.compute)
            std::printf("  %llu turns beside programs, %llu things kept for them\n", (unsigned long long)result.beside,
                        (unsigned long long)result.kept);
        if (options.rings) std::printf("  %llu messages by rings\n", (unsigned long long)result.by_rings);
        if (options.collectives)
            std::printf("  %llu calls of collective operations, %llu failed, %llu triggered, %llu striped; %llu queues "
                        "ended, %llu parts again\n",
                        (unsigned long long)result.collectives, (unsigned long long)result.collectives_failed,
                        (unsigned long long)result.triggered, (unsigned long long)result.striped,
                        (unsigned long long)result.queues_ended, (unsigned long long)result.resent);
        std::fflush(stdout);
        if (!result.finished || !result.verdict.empty()) {
            std::printf("FAILED with --seed %llu%s\n%s\n", (unsigned long long)options.seed,
                        result.finished ? "" : ": not finished", result.verdict.c_str());
            return 1;
        }
        sum.faults += result.faults;
        sum.failures += result.failures;
        sum.bytes += result.bytes;
        sum.by_rings += result.by_rings;
        sum.looks += result.looks;
        sum.turns += result.turns;
        sum.beside += result.beside;
        sum.kept += result.kept;
        sum.collectives += result.collectives;
        sum.collectives_failed += result.collectives_failed;
        sum.triggered += result.triggered;
        sum.striped += result.striped;
        ++options.seed;
    }
    // Initiators are shared by three others; the fourth seed has its costs given.
    if (options.adapt && (!sum.looks || (options.nodes > 3 && runs > 3 && !sum.turns))) {
        std::printf("FAILED: nothing was adapted, %llu looks, a turn measured by %llu nodes\n",
                    (unsigned long long)sum.looks, (unsigned long long)sum.turns);
        return 1;
    }
    if (options.compute && (!sum.beside || !sum.kept)) {
        std::printf("FAILED: recovery had %llu turns beside programs, and kept %llu things for them\n",
                    (unsigned long long)sum.beside, (unsigned long long)sum.kept);
        return 1;
    }
    if (options.rings && !sum.by_rings) {
        std::printf("FAILED: no message has come by a ring\n");
        return 1;
    }
    if (options.collectives && (!sum.collectives || (*options.collectives != MP_ENGINE_HOST && !sum.triggered) ||
                                (options.member_death && !sum.collectives_failed))) {
        std::printf("FAILED: %llu calls, %llu of them failed, %llu triggered, %llu striped\n",
                    (unsigned long long)sum.collectives, (unsigned long long)sum.collectives_failed,
                    (unsigned long long)sum.triggered, (unsigned long long)sum.striped);
        return 1;
    }
    std::printf("%u faults, %llu path failures, %.1f MB checked%s: no mistake\n", sum.faults,
                (unsigned long long)sum.failures, double(sum.bytes) / 1e6,
                options.rings ? (", " + std::to_string(sum.by_rings) + " messages by rings").c_str() : "");
    return 0;
}
