// The lines about faults: which there are, when, and how ports and peers are named in them.
//
// A fault of one port or switch concerns many paths, peers and processes at once. So lines about lost peers wait for
// 100 ms and speak of hosts: one line for each host, or one for all of them if there are more than three. An outage
// that is over by then is said at level info. The first three outages of a host within a minute are told one by one,
// the others in sum. Processes of one host are told by the ports that they share, since names are a peer's own word
// (connect/names.h). Paths have a line each at level info, the first sixteen within a second.
//
// Callers: Failure, Exchange, Replay, Migration, Liveness and RailEvents, when it happens.
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
    ~Reports(); // says what it has summed up
    Reports(const Reports&) = delete;

    // -- Paths
    // "softhca_1:1 -> node7 rank 4 mlx5_0:1 (path 3) " and this.
    __attribute__((format(printf, 4, 5))) void tell(const Channel& channel, PathIndex path, const char* format, ...);
    // A port that is up again: told once if it has come up at less than its rate before.
    void port_up(const verbs::Rail& before, const verbs::Rail& now);

    // -- Peers
    // No path is left, and the peer has not said why.
    void cut_off(Channel& channel);
    // A path is there again.
    void reached(Channel& channel);
    // The partition has lasted for too long: the channel is about to fail. At once, since the program may end by it.
    void given_up(Channel& channel);
    // The channel has failed for another reason.
    void ended(const Channel& channel);

private:
    struct Host;
    using Port = std::tuple<std::uint64_t, std::uint16_t, verbs::Gid>; // subnet, LID, address

    [[nodiscard]] static bool is_cut(const Channel& channel);
    [[nodiscard]] static std::vector<Port> ports_of(const Channel& channel);
    [[nodiscard]] Host* find(const Channel& channel) const;
    Host& host_of(const Channel& channel);
    [[nodiscard]] std::vector<Host*> survey(Nanos now); // those that are or were lost, with what is true of them now
    void look();                                        // says what is due
    void look_at(Host& host, Nanos now, bool others_away, std::vector<Host*>& lost, std::vector<Host*>& back);
    void sum_up(Host& host, Nanos now);
    void look_again(Nanos at); // at the latest
    [[nodiscard]] std::string ways_to(const Host& host) const;
    [[nodiscard]] std::string rails_to(const std::vector<Host*>& hosts) const;
    [[nodiscard]] std::string limit() const; // how long operations wait
    void say(LogLevel level, const std::string& line);

    Core& core_;
    std::vector<std::unique_ptr<Host>> hosts_; // that have been lost, ever
    std::map<Port, Host*> by_port_;
    Services::Timer timer_ = 0;
    Nanos due_ = 0;
    struct {
        Nanos since = 0;
        unsigned lines = 0;
    } burst_;                        // of lines about paths
    std::vector<double> best_rates_; // of our rails, as far as they have been seen
};

} // namespace ucx_mp::recover
