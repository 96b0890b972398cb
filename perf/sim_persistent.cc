// What is hidden of a persistent all-to-all behind computation: the core of pml/mp in virtual time, whose processes
// compute for as long as the exchange takes alone.
//
//     bench_sim_persistent [--ranks N] [--bytes BLOCK ...]
//
// Fabric two-rail. Prints for each size of a block: over how many rails, who goes on with it meanwhile (the host when
// the program asks again; a progress thread that has a processor and costs nothing to wake; adapters that wait for
// data), its time alone, the hidden share, and how often a thread has looked. Then two rails against one.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>

#include "pml/sim_persistent.h"

using namespace ucx_mp::sim;

int main(int argc, char** argv) {
    CLI::App app{"What is hidden of a persistent all-to-all behind computation."};
    unsigned ranks = 16;
    std::vector<std::size_t> sizes{65536, 262144, 1048576};
    app.add_option("--ranks", ranks, "processes, from 2 on; 16 at most")
        ->capture_default_str()
        ->check(CLI::Range(2, 16));
    app.add_option("--bytes", sizes, "of a block, from 4097 on")
        ->capture_default_str()
        ->check(CLI::Range(4097, 1 << 26));
    CLI11_PARSE(app, argc, argv);
    try {
        std::printf("%10s %6s %-8s %12s %8s %8s\n", "block", "rails", "by", "alone us", "hidden", "looks");
        for (const std::size_t bytes : sizes) {
            double alone[2] = {};
            for (const unsigned rails : {1u, 2u})
                for (const PersistentWay way : {PersistentWay::host, PersistentWay::thread, PersistentWay::adapter}) {
                    const PersistentRow row = persistent_row(ranks, bytes, way, rails);
                    alone[rails - 1] = static_cast<double>(row.alone) / 1e3;
                    std::printf("%10zu %6u %-8s %12.1f %8.3f %8llu\n", bytes, rails, row.name, alone[rails - 1],
                                row.hidden, static_cast<unsigned long long>(row.looks));
                    std::fflush(stdout);
                }
            std::printf("%10zu two rails by adapters are %.2f times as fast as one\n", bytes, alone[0] / alone[1]);
        }
    } catch (const std::exception& exception) {
        std::fprintf(stderr, "bench_sim_persistent: %s\n", exception.what());
        return 1;
    }
    return 0;
}
