// The subcommands of `softhca`, one file each. Every function adds its subcommand(s) to `app`; the work is done in the
// subcommand's callback, mistakes of the user are thrown from there as std::runtime_error with a one-line message (main
// prints it and exits with 1).
#pragma once
#include "cmd/cmd_routes.h" // routes, trace

namespace softhca {

void add_run_command(CLI::App& app, int& exit_status); // run: the program's exit status goes to `exit_status`
void add_fault_commands(CLI::App& app);                // port, link, fault, reroute
void add_ls_command(CLI::App& app);
void add_top_command(CLI::App& app);
void add_wait_command(CLI::App& app);
void add_heatmap_command(CLI::App& app);

} // namespace softhca
