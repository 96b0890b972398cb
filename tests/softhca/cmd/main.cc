// softhca: the emulated adapter's command.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>

#include "cmd/commands.h"
#include "session/adopt.h"

int main(int argc, char** argv) {
    CLI::App app{"An emulated InfiniBand adapter and fabric: runs verbs programs without hardware.\n"
                 "  softhca run -- ibv_devinfo\n"
                 "  softhca run --fabric two-rail --session lab -- ib_write_bw & softhca run --session lab -- "
                 "ib_write_bw localhost",
                 "softhca"};
    app.set_version_flag("--version", "softhca " SOFTHCA_VERSION);
    app.require_subcommand(1);
    int exit_status = 0;
    softhca::add_run_command(app, exit_status);
    softhca::add_fault_commands(app);
    softhca::add_ls_command(app);
    softhca::add_top_command(app);
    softhca::add_wait_command(app);
    softhca::add_heatmap_command(app);
    softhca::add_routes_command(app);
    softhca::add_trace_command(app);
    try {
        for (const auto& what : softhca::adopt_lost_sessions()) std::fprintf(stderr, "softhca: %s\n", what.c_str());
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) { return app.exit(e); } catch (const std::exception& e) {
        std::fprintf(stderr, "softhca: %s\n", e.what());
        return 1;
    }
    return exit_status;
}
