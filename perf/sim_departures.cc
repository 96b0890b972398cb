// What a server keeps of clients that come one after the other, say something, get an answer and go: nothing. The real
// transport in virtual time; every client is a process of its own on another host.
//
//     bench_sim_departures [--clients N] [--transport mp_rc|mp_dc] [--silent] [--fabric F]
//
// --silent: they die without goodbye, in groups of 100, and have to be found.
// Prints, after 1, 10, 100, ... clients: the process's heap in use (KiB, the simulator's part of it included), the
// server's queue pairs and channels, and the virtual time that the goodbyes of the clients since have taken, on
// average.
#include <CLI/CLI.hpp>
#include <malloc.h>

#include <cstdio>
#include <string>

#include "simulator/client_server.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

channel::Config config_of(const std::string& transport) {
    channel::Config config;
    config.transport = transport == "mp_dc" ? connect::Transport::dc : connect::Transport::rc;
    config.receive_depth = 256;
    return config;
}

unsigned answers = 0; // at clients, all in all

// A word to the server, and one back over an endpoint that is closed then.
bool talk(ClientServer& scene, Node& client) {
    constexpr Nanos kLimit = 10'000'000'000;
    constexpr unsigned kAnswer = 4;
    const unsigned before = answers;
    client.on_am(
        kAnswer, [](void*, void*, std::size_t, unsigned) { return ++answers, Status::ok; }, nullptr);
    Channel &to = scene.attach(client, scene.server), &back = scene.attach(scene.server, client);
    const auto answer = [&] { return channel::Interface::am_short(back, kAnswer, 0, nullptr, 0) == Status::ok; };
    const bool good =
        scene.send(to, kLimit) && scene.until(answer, kLimit) && scene.until([&] { return answers > before; }, kLimit);
    client.iface().detach(to);
    scene.server.iface().detach(back);
    return good;
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{"What a server keeps of clients that have come and gone."};
    unsigned count = 10'000;
    std::string transport = "mp_rc", fabric = "four-path";
    bool silent = false;
    app.add_option("--clients", count, "how many")->capture_default_str();
    app.add_option("--transport", transport, "mp_rc or mp_dc")->capture_default_str();
    app.add_option("--fabric", fabric, "fabric file, or a name of config/fabrics")->capture_default_str();
    app.add_flag("--silent", silent, "they die without goodbye");
    CLI11_PARSE(app, argc, argv);
    constexpr unsigned kGroup = 100;
    ClientServer scene(fabric, config_of(transport));
    scene.server.services().threshold = LogLevel::error;
    const unsigned hosts = scene.world.nodes() - 1;
    std::printf("%10s %10s %12s %10s %12s\n", "clients", "heap KiB", "queue pairs", "channels", "close us");
    Nanos closing = 0;
    bool good = true;
    for (unsigned n = 1, next = 1, since = 0; n <= count; ++n) {
        Node& client = scene.add(1 + n % hosts);
        client.services().threshold = LogLevel::error;
        good &= talk(scene, client);
        const bool show = n == next || n == count;
        if (silent && n % kGroup && !show) continue;
        since += static_cast<unsigned>(scene.clients.size());
        closing += silent ? scene.leave_silently() : scene.leave();
        if (!show && n % kGroup) continue;
        // Until the simulator has forgotten timers that were cancelled, and those that died have been found.
        scene.run(75'000'000'000);
        if (!show) continue;
        channel::Interface::Statistics s;
        scene.server.iface().statistics(s);
        std::printf("%10u %10zu %12u %10zu %12.1f\n", n, mallinfo2().uordblks / 1024, s.queue_pairs, s.channels.size(),
                    static_cast<double>(closing) * 1e-3 / since);
        std::fflush(stdout);
        closing = since = 0;
        next *= 10;
    }
    if (!good || scene.failures) std::printf("not all went well: %u failures told\n", scene.failures);
    return !good || scene.failures != 0;
}
