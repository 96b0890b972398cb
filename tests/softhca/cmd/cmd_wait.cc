// softhca wait: until the programs of a session are up.
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cmd/commands.h"
#include "session/client.h"

namespace softhca {

namespace {

struct WaitArguments {
    std::string session;
    uint32_t machines = 1;
    double timeout = 60;
};

uint32_t machines_in_use(Segment& seg) {
    const FabricImage& image = seg.img();
    std::vector<bool> used(image.nodes);
    for (uint32_t d = 0; d < image.devices; ++d)
        if (seg.device(d).qps.load()) used[image.device(d).node] = true;
    uint32_t count = 0;
    for (const bool one : used) count += one;
    return count;
}

void wait_for_programs(const WaitArguments& a) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(a.timeout);
    std::optional<Observer> observer; // the session may be about to start
    uint32_t found = 0;
    for (; std::chrono::steady_clock::now() < end; usleep(5000)) {
        if (!observer) {
            try {
                observer.emplace(choose_session(a.session));
            } catch (const std::runtime_error&) { continue; }
        }
        if (observer->session_over()) throw std::runtime_error("the session has ended");
        found = machines_in_use(observer->seg());
        if (found >= a.machines) return;
    }
    if (!observer) throw std::runtime_error("no such session has started in time (--timeout)");
    throw std::runtime_error("programs of " + std::to_string(found) + " machines have queue pairs, not of " +
                             std::to_string(a.machines) + " (--timeout)");
}

} // namespace

void add_wait_command(CLI::App& app) {
    auto a = std::make_shared<WaitArguments>();
    CLI::App* c = app.add_subcommand("wait", "Wait until the programs of a session are up");
    c->add_option("--session", a->session, "Which session (default: $SOFTHCA_SESSION, else the only one that runs)");
    c->add_option("--machines", a->machines, "How many machines have to have a program with queue pairs")
        ->check(CLI::Range(1u, 1u << 20))
        ->capture_default_str();
    c->add_option("--timeout", a->timeout, "Seconds until it gives up, with exit code 1")
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    c->footer("The session may start later. A rank of MPI has queue pairs in MPI_Init, and is a machine of its own by\n"
              "default: so all N ranks are up after `softhca wait --machines N`, and faults can be timed from there.");
    c->callback([a] { wait_for_programs(*a); });
}

} // namespace softhca
