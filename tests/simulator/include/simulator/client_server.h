// A server and clients that come and go, in virtual time: what its peers cost it, and what it keeps of those that are
// gone. Each is a process of its own; unlike the nodes of a Cluster they may share hosts.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "simulator/cluster.h"

namespace ucx_mp::sim {

class ClientServer {
public:
    static constexpr unsigned kWord = 3; // the message that the server counts

    // The server is on host 0. `config`: of all processes; how often they look for news is set here.
    ClientServer(const std::string& fabric, const channel::Config& config);
    ~ClientServer(); // all at once: no time passes any more
    ClientServer(const ClientServer&) = delete;
    ClientServer& operator=(const ClientServer&) = delete;

    // One more client.
    Node& add(unsigned host = 1);
    // All clients close their interfaces, the last one first. Returns the time that their goodbyes took.
    Nanos leave();
    // The same, but nobody hears their goodbyes: as processes that are killed.
    Nanos leave_silently();

    [[nodiscard]] Channel& attach(Node& from, Node& to);
    // A word to the server. True: it has arrived within `limit`.
    bool send(Channel& to, Nanos limit = 1'000'000'000);

    // Steps the clock until the condition holds; false: not by `limit` ns from now, or nothing happens any more.
    bool until(const std::function<bool()>& condition, Nanos limit = 1'000'000'000);
    void run(Nanos time) {
        (void)until([] { return false; }, time);
    }

    softhca::sim::World world;

private:
    channel::Config config_;

public:
    Node server;
    std::vector<std::unique_ptr<Node>> clients;
    unsigned heard = 0;    // words at the server
    unsigned failures = 0; // peers that somebody was told have failed

private:
    static channel::Config prepared(channel::Config config);
    void prepare(Node& node);
    void progress();
    bool pass(Nanos time); // while one closes, the others go on
};

} // namespace ucx_mp::sim
