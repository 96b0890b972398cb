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
#include <memory>
#include <string>
#include <vector>

#include "simulator/cluster.h"

using namespace ucx_mp;
using namespace ucx_mp::sim;

namespace {

struct Scene {
    softhca::sim::World world;
    channel::Config config;
    std::unique_ptr<Node> server;
    std::vector<std::unique_ptr<Node>> clients;
    unsigned heard = 0, answered = 0, failures = 0;

    Scene(const std::string& fabric, connect::Transport transport) : world(fabric, {.seed = 7}) {
        config.transport = transport;
        config.control_interval = config.event_interval = config.quiet_interval = config.silent_interval = 1;
        config.receive_depth = 256;
        config.seed = 1;
        server = make(0);
        server->on_am(3, count, &heard);
    }
    ~Scene() {
        server->services().on_wait = {};
        for (auto& client : clients) client->services().on_wait = {};
    }
    static Status count(void* n, void*, std::size_t, unsigned) { return ++*static_cast<unsigned*>(n), Status::ok; }
    std::unique_ptr<Node> make(unsigned host) {
        auto node = std::make_unique<Node>(world, host, config);
        ++config.seed;
        node->services().threshold = LogLevel::error;
        node->on_failure = [this](Channel&, Status) { ++failures; };
        node->services().on_wait = [this](Nanos t) { return until([] { return false; }, t), true; };
        return node;
    }
    void progress() {
        for (bool any = true; any;) {
            any = server->progress();
            for (auto& client : clients) any |= client->progress();
        }
    }
    bool until(const std::function<bool()>& condition, Nanos limit) {
        bool over = false;
        const auto timer = world.at(world.now() + limit, [&over] { over = true; });
        progress();
        bool holds = condition();
        for (; !holds && !over && world.step(); holds = condition()) progress();
        world.cancel(timer);
        return holds;
    }
    // Sends one word to the server and gets one back over an endpoint that is closed then.
    bool talk(Node& client) {
        constexpr Nanos kLimit = 10'000'000'000;
        std::string error;
        client.on_am(4, count, &answered);
        Channel* const to = client.iface().attach(server->iface().address(), error);
        Channel* const back = server->iface().attach(client.iface().address(), error);
        const unsigned before = heard, answers = answered;
        bool good = until([&] { return channel::Interface::am_short(*to, 3, 0, nullptr, 0) == Status::ok; }, kLimit);
        good &= until([&] { return heard > before; }, kLimit);
        good &= until([&] { return channel::Interface::am_short(*back, 4, 0, nullptr, 0) == Status::ok; }, kLimit);
        good &= until([&] { return answered > answers; }, kLimit);
        client.iface().detach(*to);
        server->iface().detach(*back);
        return good;
    }
};

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
    Scene scene(fabric, transport == "mp_dc" ? connect::Transport::dc : connect::Transport::rc);
    const unsigned hosts = scene.world.nodes() - 1;
    std::printf("%10s %10s %12s %10s %12s\n", "clients", "heap KiB", "queue pairs", "channels", "close us");
    Nanos closing = 0;
    bool good = true;
    for (unsigned n = 1, next = 1, since = 0; n <= count; ++n) {
        scene.clients.push_back(scene.make(1 + n % hosts));
        Node& client = *scene.clients.back();
        good &= scene.talk(client);
        const bool show = n == next || n == count;
        if (silent && n % kGroup && !show) continue;
        if (silent) scene.world.fault("drop 100% all");
        for (; !scene.clients.empty(); scene.clients.pop_back(), ++since) {
            if (silent) scene.clients.back()->services().on_wait = {};
            const Nanos begin = scene.world.now();
            scene.clients.back()->close();
            closing += scene.world.now() - begin;
        }
        if (silent) scene.world.fault("drop 0% all");
        if (!show && n % kGroup) continue;
        // Until the simulator has forgotten timers that were cancelled, and those that died have been found.
        scene.until([] { return false; }, 75'000'000'000);
        if (!show) continue;
        channel::Interface::Statistics s;
        scene.server->iface().statistics(s);
        std::printf("%10u %10zu %12u %10zu %12.1f\n", n, mallinfo2().uordblks / 1024, s.queue_pairs, s.channels.size(),
                    static_cast<double>(closing) * 1e-3 / since);
        std::fflush(stdout);
        closing = since = 0;
        next *= 10;
    }
    if (!good || scene.failures) std::printf("not all went well: %u failures told\n", scene.failures);
    return !good || scene.failures != 0;
}
