// `softhca routes` and `softhca trace`: look at the LIDs and forwarding tables of a fabric, without a session.
#pragma once

namespace CLI {
class App;
}

namespace softhca {

// Each adds its subcommand to `app`. The work is done in the subcommand's callback; mistakes of the user are thrown
// from there as std::runtime_error with a one-line message (main prints it and exits with 1).
void add_routes_command(CLI::App& app);
void add_trace_command(CLI::App& app);

} // namespace softhca
