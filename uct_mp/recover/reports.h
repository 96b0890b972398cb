// Log lines about faults: which lines there are, when they come, and how they name ports and peers.
//
// A fault of one port or switch concerns many paths, peers and processes at once. So lines about lost peers wait for
// 100 ms and speak of hosts: one line for each host, or one for all of them if there are more than three. An outage
// that is over by then is logged at level info. The first three outages of a host within a minute are logged one by
// one, the others in sum. Peers that share a port are taken for processes of one host, since a host's name is only the
// peer's word (connect/names.h). Each path has a line at level info, but only the first sixteen within a second.
//
// Callers: Failure, Exchange, Replay, Migration, Liveness, RailEvents and Watchdog, when it happens.
// Threads: the interface's. Slow path.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

class Reports {
public:
    explicit Reports(Core& core);
    ~Reports(); // logs the sums that are still due
    Reports(const Reports&) = delete;

    // -- Paths
    // Logs "softhca_1:1 -> node7 rank 4 mlx5_0:1 (path 3) ", followed by the formatted text.
    __attribute__((format(printf, 4, 5))) void tell(const Channel& channel, PathIndex path, const char* format, ...);
    // Adds to the history. `since` (ns): Transition::took counts from there; 0: it does not apply.
    void note(const Channel& channel, Transition::What what, PathIndex path, Nanos since = 0, std::uint32_t again = 0,
              const char* cause = nullptr);
    // A port is up again. Warns once if its rate is below the best one that it has had.
    void port_up(const verbs::Rail& before, const verbs::Rail& now);

    // -- Peers
    // No path is left, and the peer has not said goodbye.
    void cut_off(Channel& channel);
    // A path to the peer is up again.
    void reached(Channel& channel);
    // The partition has lasted for too long, and the channel is about to fail. Logged at once, since that may end the
    // program.
    void given_up(Channel& channel);
    // The channel has failed for another reason.
    void ended(const Channel& channel);

    // -- What others read
    History history;

private:
    struct Host;
    using Port = std::tuple<std::uint64_t, std::uint16_t, verbs::Gid>; // subnet, LID, address

    [[nodiscard]] static bool is_cut(const Channel& channel);
    [[nodiscard]] static std::vector<Port> ports_of(const Channel& channel);
    [[nodiscard]] Host* find(const Channel& channel) const;
    Host& host_of(const Channel& channel);
    [[nodiscard]] std::vector<Host*> survey(Nanos now); // updates all hosts; returns those with an outage
    void look();                                        // logs what is due
    void look_at(Host& host, Nanos now, bool others_away, std::vector<Host*>& lost, std::vector<Host*>& back);
    void sum_up(Host& host, Nanos now);
    void look_again(Nanos at); // look() runs at this time at the latest
    [[nodiscard]] std::string ways_to(const Host& host) const;
    [[nodiscard]] std::string rails_to(const std::vector<Host*>& hosts) const;
    [[nodiscard]] std::string limit() const; // says how long operations wait
    void say(LogLevel level, const std::string& line);

    Core& core_;
    std::vector<std::unique_ptr<Host>> hosts_; // all that have ever been lost
    std::map<Port, Host*> by_port_;
    Services::Timer timer_ = 0;
    Nanos due_ = 0;
    struct {
        Nanos since = 0;
        unsigned lines = 0;
    } burst_;                        // lines about paths in this second
    std::vector<double> best_rates_; // by rail, bytes/ns: the best that it has had
};

} // namespace ucx_mp::recover
