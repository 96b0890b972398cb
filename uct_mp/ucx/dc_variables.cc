#include "uct_mp/ucx/config.h"
#include "uct_mp/ucx/variable_texts.h"

namespace ucx_mp::face {

namespace {
const char* const kDciPolicies[] = {"hash", "least", "quota", nullptr};
static_assert(int(channel::DciPolicy::hash) == 0 && int(channel::DciPolicy::least) == 1 &&
              int(channel::DciPolicy::quota) == 2);
const char* const kAdaptModes[] = {"off", "on", "eager", nullptr}; // read_options() knows which is which
} // namespace

std::vector<Variable> dc_variables(const channel::Config& defaults) {
    std::vector<Variable> list;
    list.push_back({Group::connections, "NUM_DCI", std::to_string(defaults.dci_count),
                    "DC initiators (send queues) per rail, " + range(1, kMaxDci) +
                        ". Each serves one peer at a time: larger if many peers are sent to at once, smaller if the "
                        "adapter's cache of connections is small.",
                    Syntax::count, offsetof(IfaceOptions, dci_count)});
    list.push_back({Group::tuning, "NUM_DCT", std::to_string(defaults.dct_count),
                    "DC targets (what peers send to) per rail, " + range(1, kMaxDct) +
                        ". Each peer is given one. Larger if more peers send to a process at once than a target of the "
                        "adapter can follow.",
                    Syntax::count, offsetof(IfaceOptions, dct_count)});
    list.push_back({Group::tuning, "DCI_POLICY", choice(kDciPolicies, defaults.dci_policy),
                    "Which initiator serves a peer.\n"
                    " - hash: each in turn, in the order in which peers are met; a peer always has the same.\n"
                    " - least: the one with the fewest outstanding requests, chosen anew when the peer's present one "
                    "is idle.\n"
                    " - quota: kept while it is busy, given back to the pool when idle.",
                    Syntax::choice, offsetof(IfaceOptions, dci_policy), kDciPolicies});
    const channel::AdaptConfig& adapt = defaults.adapt;
    list.push_back({Group::connections, "ADAPT", "eager",
                    "Reliable connections (RC) for the peers that most is exchanged with, if that saves time; the "
                    "others keep DC. Both sides must have it.\n"
                    " - off: DC for all peers.\n"
                    " - on: decided again and again, by what is counted and measured.\n"
                    " - eager: likewise, and the first peers, as many as ADAPT_MAX_RC allows, get RC at once.",
                    Syntax::choice, offsetof(IfaceOptions, adapt), kAdaptModes});
    list.push_back({Group::tuning, "ADAPT_INTERVAL", time(adapt.tuning.interval),
                    "Time between two decisions while the pattern of communication lasts. See ADAPT.", Syntax::time,
                    offsetof(IfaceOptions, adapt_interval)});
    list.push_back(
        {Group::tuning, "ADAPT_MAX_RC", std::to_string(adapt.max_rc),
         "Peers that have RC at a time, " + range(1, kMaxAdaptQueuePairs) +
             ". Each takes a queue pair on each of its paths. All together fewer than the adapter's cache of "
             "connections holds. See ADAPT.",
         Syntax::count, offsetof(IfaceOptions, adapt_max_rc)});
    list.push_back({Group::tuning, "ADAPT_POOL", std::to_string(adapt.pool),
                    "Queue pairs of RC that are kept connected, in use or not, " + range(0, kMaxAdaptQueuePairs) +
                        ". Larger: peers that take turns get RC back without waiting. See ADAPT.",
                    Syntax::count, offsetof(IfaceOptions, adapt_pool)});
    list.push_back({Group::tuning, "ADAPT_MAX_RINGS", std::to_string(adapt.max_rings),
                    "Peers whose small messages may come by a ring of their own in memory, which is polled, at most " +
                        std::to_string(kMaxAdaptRings) + ". Each ring takes " +
                        std::to_string(adapt.ring.bytes() / 1024) +
                        " KiB. It saves the receiver a completion for each message. "
                        "Not for programs that sleep until something comes. See ADAPT.",
                    Syntax::count, offsetof(IfaceOptions, adapt_max_rings)});
    list.push_back({Group::tuning, "ADAPT_GAIN", std::to_string(static_cast<unsigned>(adapt.tuning.least_gain)) + "ns",
                    "Time that a change must save per message. Larger: fewer changes. See ADAPT.", Syntax::time,
                    offsetof(IfaceOptions, adapt_gain)});
    list.push_back({Group::tuning, "ADAPT_COSTS", "measure",
                    "What RC saves per message, and what it costs to give it to a peer: \"measure\", or both in "
                    "nanoseconds, as \"r=150,rho=400000\". With ADAPT_MAX_RINGS also, or alone (then the others "
                    "are measured), what a ring saves per message, what a look at an empty one costs, an "
                    "acknowledgment, and making one, as \"d=100,p=10,c=300,delta=100000\". See ADAPT.",
                    Syntax::text, offsetof(IfaceOptions, adapt_costs)});
    return list;
}

} // namespace ucx_mp::face
