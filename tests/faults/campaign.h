// A fault campaign in virtual time: random traffic of all kinds (simulator/stress.h), random faults of all kinds
// on links, ports and packets, everything checked. All follows from the seed.
#pragma once

#include <cstdio>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "collectives.h"
#include "simulator/intruder.h"
#include "simulator/stress.h"

namespace ucx_mp::sim {

struct CampaignOptions {
    std::string fabric = "two-rail";
    connect::Transport transport = connect::Transport::rc;
    bool both_kinds = false;   // paths of RC and of DC in every channel
    bool switch_kinds = false; // mp_dc: RC is wished and left at random moments, by either side
    bool rings = false;        // message rings come and go in the same way, over either transport
    bool adapt = false;        // mp_dc: who has RC is chosen by what is measured (UCX_MP_DC_ADAPT=on, eager)
    std::string policy = "default";
    unsigned nodes = 2;
    std::uint64_t seed = 1;
    unsigned operations = 1000; // per ordered pair
    unsigned faults = 50;       // at most; each is taken back after a while
    Nanos mean_gap = 300'000;   // between faults
    Nanos mean_length = 400'000;
    bool partitions = true; // faults may take all paths away
    bool loud = false;
    unsigned window = 64;
    bool packet_numbers = true;
    bool single_path = false; // one path per peer (rail 0 of each): nothing to move to, Channel::only
    bool split_reads = false;
    std::string cables; // not empty: only cables between switches fail, those with this in `A B`
    bool nasty = false; // acknowledgments lost, faults at the n-th packet, accepted receives flushed, queries refused
    bool late_placement = false;        // one adapter of each node, by the seed, places data late
    unsigned sequences = kAllSequences; // that follow puts
    bool park = false;            // channels are parked at random moments, and there are lulls in which that succeeds
    unsigned max_connections = 0; // of each node at once; 0: no limit
    bool late_ports = false;      // some ports are down at the start (never all of a node) and come up at any time
    bool late_adapters = false;   // some adapters are dead then, and there again at any time
    bool queue_pairs_end = false; // some adapters make no more for a while
    bool apm = false;             // queue pairs have an alternate route
    bool adapter_death = false;   // one adapter dies for good at some moment (never the last rail of a node)
    bool adapter_return = false;  // adapters die, one at a time, and are there again
    bool compute = false;         // nodes compute at any moment, and recovery goes on beside them
    bool intruder = false;        // somebody speaks in the others' names, and knows all but their secrets
    std::optional<mp_engine_t> collectives; // the traffic: collective operations of pml_glue's core
    bool threads = false;                   // with progress threads
    bool member_death = false;              // one node is killed at some moment
};

struct CampaignResult {
    bool finished = false;
    std::string verdict; // empty: no mistake
    unsigned faults = 0;
    std::uint64_t failures = 0, returns = 0, messages_again = 0, puts_again = 0, gets_again = 0, puts_found_done = 0,
                  switches = 0, migrations = 0, parks = 0, duplicates = 0, bytes = 0, bytes_again = 0, by_rings = 0,
                  looks = 0, changes = 0, turns = 0, beside = 0, kept = 0;
    std::uint64_t collectives = 0, collectives_failed = 0, triggered = 0, striped = 0, queues_ended = 0, resent = 0;
    Nanos time = 0;
    std::uint64_t fingerprint = 0;
};

class Campaign {
public:
    explicit Campaign(CampaignOptions options);
    CampaignResult run();

private:
    struct Fault {
        std::string begin, end;
    };
    // What begins anew with each connection: a parked one takes its counts along. At least so many there were.
    struct Count {
        std::uint64_t latest = 0, before = 0;
        void note(std::uint64_t value) {
            if (value < latest) before += latest - value;
            latest = value;
        }
        [[nodiscard]] std::uint64_t all() const { return before + latest; }
    };
    struct Counts {
        Count switches, by_rings;
    };
    Fault choose();
    [[nodiscard]] bool all_known();
    void add_switch_links();
    void raise_tripped();
    void switch_kinds();
    void compute();
    void count_kinds();
    [[nodiscard]] static std::vector<std::string> missing_at_start(const CampaignOptions& options);
    void next();
    void intrude();
    [[nodiscard]] bool run_collectives(Collectives& traffic, CampaignResult& result); // false: it does not end
    [[nodiscard]] Nanos about(Nanos mean) { return 1 + static_cast<Nanos>(random_() % (2 * mean)); }

    const CampaignOptions options_;
    std::mt19937_64 random_;
    const std::vector<std::string> late_; // "port down NODE:DEVICE:PORT", "adapter-death NODE:DEVICE"; before the
                                          // cluster, as it has a world of its own
    std::unique_ptr<Cluster> cluster_;
    std::vector<std::string> ports_, adapters_; // NODE:DEVICE:PORT, NODE:DEVICE
    std::vector<std::string> cables_;           // between switches: "A B"
    std::set<std::string> tripped_;
    std::map<std::pair<unsigned, std::uint64_t>, Counts> kinds_; // by node and peer
    unsigned done_ = 0, open_ = 0;
    bool over_ = false, dead_ = false;
    std::uint64_t revivals_ = 0;
    std::optional<Intruder> intruder_;
    std::mt19937_64 lies_; // of its own: what else happens is the same without it
};

} // namespace ucx_mp::sim
