// softhca run
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <filesystem>
#include <memory>
#include <stdexcept>

#include "cmd/commands.h"
#include "session/launcher.h"

namespace softhca {

namespace {

// Beside this executable: ../lib in a build tree, ../lib/ucx-mp where it is installed.
std::string find_library() {
    namespace fs = std::filesystem;
    const fs::path lib = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib";
    for (const fs::path& library : {lib / "libsofthca.so", lib / "ucx-mp" / "libsofthca.so"})
        if (fs::exists(library)) return library.lexically_normal().string();
    throw std::runtime_error("the adapter's library is missing: libsofthca.so in " + lib.string());
}

} // namespace

void add_run_command(CLI::App& app, int& exit_status) {
    auto o = std::make_shared<RunOptions>();
    CLI::App* run = app.add_subcommand("run", "Run a program on emulated adapters");
    run->add_option("--fabric", o->fabric,
                    "Fabric file, or name of one in config/fabrics (default: $SOFTHCA_FABRIC, "
                    "else ideal-2rail; when joining: what the session runs)");
    run->add_flag("--ideal", o->ideal, "No model of links and adapters: everything as fast as memory");
    run->add_option("--session", o->session, "Join the session of this name, or start it (default: one of its own)")
        ->check([](const std::string& name) {
            for (char c : name)
                if (!isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.')
                    return std::string("letters, digits, '-', '_' and '.' only");
            return std::string(name.empty() || name.size() > 48 ? "1 to 48 characters" : "");
        });
    auto* node = run->add_option("--node", o->node,
                                 "Machine of the fabric that the program is on: number or name (default: "
                                 "$SOFTHCA_NODE, else its MPI rank, else the next free one)");
    run->add_option("--place", o->place,
                    "Machines of the ranks of an MPI job: 0,4,1,5 puts rank 0 on node 0, rank 1 on node 4 "
                    "(default: $SOFTHCA_PLACE, else a rank's number is its node's)")
        ->excludes(node)
        ->check([](const std::string& places) { return std::string(places.empty() ? "nodes, as in 0,4,1,5" : ""); });
    run->add_option("--faults", o->faults, "Fault script, see `softhca fault --help`")->check(CLI::ExistingFile);
    auto* seed = run->add_option("--seed", o->seed, "Of everything random: losses, random faults (default: printed)");
    run->add_flag("--verbose,-v", o->verbose, "Say which session, seed and faults");
    run->add_option("--record", o->record, "Write link counters to this CSV file while the program runs");
    run->add_option("--record-interval", o->record_ms, "Milliseconds between samples")
        ->check(CLI::Range(1, 60000))
        ->capture_default_str();
    run->add_option("command", o->command, "The program and its arguments, after --")->required();
    run->positionals_at_end();
    run->footer("Exit status: the program's, 128 + N if signal N ended it, 127 if it can't be run.");
    run->callback([o, seed, &exit_status] {
        o->seed_given = seed->count() > 0;
        o->library = find_library();
        exit_status = run_program(*o);
    });
}

} // namespace softhca
