// bench_sim_collect: collective operations on queues that wait, and programs that use them, in virtual time. What the
// thesis on Myrinet and the co-design text measure, with costs that are told; perf/papers has them.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "job.h"

using namespace ucx_mp::collect_sim;

int main(int argc, char** argv) {
    Options o;
    CLI::App app{"Collective operations on queues that wait, in virtual time. Prints names and numbers."};
    app.require_subcommand(1);
    const auto common = [&o](CLI::App* to, bool engine) {
        to->add_option("--fabric", o.fabric, "fabric file, or a name of config/fabrics")->required();
        to->add_option("--ranks", o.ranks, "processes")->check(CLI::Range(2, 4096))->capture_default_str();
        if (engine)
            to->add_option("--engine", o.engine, "who puts: host (it polls) or adapter (it waits)")
                ->check(CLI::IsMember({"host", "adapter"}))
                ->capture_default_str();
        to->add_option("--bytes", o.bytes, "bytes of data");
        to->add_option("--start", o.costs.start, "adapter: ns of the host that tell it of an operation");
        to->add_option("--finish", o.costs.finish, "adapter: ns until the host has seen its end");
        to->add_option("--send", o.costs.send, "host: ns of a put");
        to->add_option("--receive", o.costs.receive, "host: ns of a word that is taken");
        to->add_option("--byte-out", o.costs.byte_out, "ns per byte of small data that is put");
        to->add_option("--byte-in", o.costs.byte_in, "ns per byte of small data that is taken");
        to->add_option("--small", o.costs.small, "bytes of data that processors move");
        to->add_option("--pin", o.costs.pin, "ns of the host for larger data that is put");
        to->add_option("--slow-from", o.costs.slow_from, "the first rank of those whose processors are slower");
        to->add_option("--slow", o.costs.slow, "so many times");
        to->add_option("--wake", o.wake, "ns of the program's processor until a thread that sleeps has begun")
            ->capture_default_str();
    };
    const auto command = [&](const char* name, const char* help, void (*run)(const Options&), bool engine = true) {
        CLI::App* const sub = app.add_subcommand(name, help);
        common(sub, engine);
        sub->callback([run, &o] { run(o); });
        return sub;
    };
    CLI::App* sub = command("barrier", "the mean of calls in a row", barrier);
    sub->add_option("--algorithm", o.algorithm, "binary: up and down a tree; dissemination")->capture_default_str();
    sub->add_option("--times", o.times)->capture_default_str();
    sub->add_option("--before", o.before, "ns that a call has to do before");

    sub = command("bcast", "down a binary tree", bcast);
    sub->add_option("--measure", o.measure, "latency: until the last rank has it; row, alone: the root's call")
        ->check(CLI::IsMember({"latency", "row", "alone"}))
        ->capture_default_str();
    sub->add_option("--times", o.times)->capture_default_str();
    sub->add_flag("--acknowledged", o.acknowledged, "children tell, and one is under way; else barriers between");

    sub = command("late", "what a late member costs the others", late);
    sub->add_option("--measure", o.measure, "barrier: it starts late; bcast: it looks late")
        ->check(CLI::IsMember({"barrier", "bcast"}))
        ->required();
    sub->add_option("--algorithm", o.algorithm)->capture_default_str();
    sub->add_option("--late", o.late, "ns")->required();
    sub->add_option("--late-rank", o.late_rank)->capture_default_str();
    sub->add_option("--compute", o.compute, "ns that all compute before they wait");
    sub->add_flag("--thread", o.thread, "a thread makes progress meanwhile");

    sub = command("p3dfft", "FFTs of several variables, there and back", p3dfft, false);
    sub->add_option("--size", o.size, "points in each dimension")->capture_default_str();
    sub->add_option("--rows", o.rows, "ranks of a node: a ROW")->capture_default_str();
    sub->add_option("--variables", o.variables)->capture_default_str();
    sub->add_option("--progress", o.progress, "blocking, host (with --tests), thread or adapter")->required();
    sub->add_option("--tests", o.tests, "calls of MPI_Test in each FFT")->capture_default_str();
    sub->add_option("--mops", o.mops, "operations of a process per us")->capture_default_str();
    sub->add_option("--copy", o.copy, "GB/s of a process that copies")->capture_default_str();
    sub->add_option("--peers", o.peers, "blocks at a time")->capture_default_str();

    sub = command("awp", "time steps of waves: halos of nine components", awp, false);
    sub->add_option("--size", o.size, "points of a process in each dimension")->capture_default_str();
    sub->add_option("--times", o.times, "time steps")->capture_default_str();
    sub->add_option("--ranks-per-node", o.per_node)->capture_default_str();
    sub->add_option("--progress", o.progress, "blocking: all is exchanged when all is computed; adapter: meanwhile")
        ->check(CLI::IsMember({"blocking", "adapter"}))
        ->required();
    sub->add_flag("--interior", o.interior, "a component's points that are far from its faces come first");
    sub->add_option("--local", o.local, "how faces come to neighbours of the node: copies, or adapter (loop-back)")
        ->check(CLI::IsMember({"copies", "adapter"}))
        ->capture_default_str();
    sub->add_option("--mops", o.mops, "operations of a process per us")->capture_default_str();
    sub->add_option("--flops", o.flops, "operations for a point of a component")->capture_default_str();
    sub->add_option("--copy", o.copy, "GB/s of a process that copies")->capture_default_str();

    sub = command("core", "small operations of coll/mp beside those of coll/tuned and libnbc", core, false);
    sub->add_option("--times", o.times)->capture_default_str();
    sub->add_option("--latency", o.latency, "coll_mp_latency")->capture_default_str();
    sub->add_option("--overhead", o.overhead, "coll_mp_overhead")->capture_default_str();
    sub->add_option("--ranks-per-node", o.per_node, "ranks that share a host")->capture_default_str();
    sub->add_option("--local-latency", o.local_latency,
                    "ns of a message between two of them, and coll_mp_local_latency")
        ->capture_default_str();
    sub->add_option("--local-overhead", o.local_overhead, "ns of both processors for it, and coll_mp_local_overhead")
        ->capture_default_str();
    sub->add_flag("!--flat", o.by_hosts, "coll/mp does not look at hosts");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) { return app.exit(error); } catch (const std::exception& error) {
        std::fprintf(stderr, "bench_sim_collect: %s\n", error.what());
        return 2;
    }
    return 0;
}
