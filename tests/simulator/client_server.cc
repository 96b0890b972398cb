#include "simulator/client_server.h"

#include <stdexcept>

namespace ucx_mp::sim {

ClientServer::ClientServer(const std::string& fabric, const channel::Config& config)
    : world(fabric, {.seed = 7}), config_(prepared(config)), server(world, 0, config_) {
    prepare(server);
    server.on_am(
        kWord, [](void* n, void*, std::size_t, unsigned) { return ++*static_cast<unsigned*>(n), Status::ok; }, &heard);
}

ClientServer::~ClientServer() {
    server.services().on_wait = {};
    for (auto& client : clients) client->services().on_wait = {};
}

channel::Config ClientServer::prepared(channel::Config config) {
    // Progress is called only when there is something to be found.
    config.control_interval = config.event_interval = config.quiet_interval = config.silent_interval = 1;
    config.seed = 1;
    return config;
}

void ClientServer::prepare(Node& node) {
    node.on_failure = [this](Channel&, Status) { ++failures; };
    node.services().on_wait = [this](Nanos t) { return pass(t); };
}

Node& ClientServer::add(unsigned host) {
    ++config_.seed;
    clients.push_back(std::make_unique<Node>(world, host, config_));
    prepare(*clients.back());
    return *clients.back();
}

Nanos ClientServer::leave() {
    const Nanos begin = world.now();
    for (; !clients.empty(); clients.pop_back()) clients.back()->close();
    return world.now() - begin;
}

Nanos ClientServer::leave_silently() {
    for (auto& client : clients) client->services().on_wait = {};
    world.fault("drop 100% all");
    const Nanos took = leave();
    world.fault("drop 0% all");
    return took;
}

Channel& ClientServer::attach(Node& from, Node& to) {
    std::string error;
    Channel* const channel = from.iface().attach(to.iface().address(), error);
    if (!channel) throw std::runtime_error(error);
    return *channel;
}

bool ClientServer::send(Channel& to, Nanos limit) {
    const unsigned before = heard;
    return until([&] { return channel::Interface::am_short(to, kWord, 0, nullptr, 0) == Status::ok; }, limit) &&
           until([&] { return heard > before; }, limit);
}

void ClientServer::progress() {
    for (bool any = true; any;) {
        any = server.progress();
        for (auto& client : clients) any |= client->progress();
    }
}

bool ClientServer::until(const std::function<bool()>& condition, Nanos limit) {
    bool over = false;
    const auto timer = world.at(world.now() + limit, [&over] { over = true; });
    progress();
    bool holds = condition();
    for (; !holds && !over && world.step(); holds = condition()) progress();
    world.cancel(timer);
    return holds;
}

bool ClientServer::pass(Nanos time) {
    bool over = false;
    (void)world.at(world.now() + time, [&over] { over = true; });
    while (!over && world.step()) progress();
    return over;
}

} // namespace ucx_mp::sim
