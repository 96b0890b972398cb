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
    list.push_back(
        {.group = Group::connections,
         .name = "NUM_DCI",
         .initial = std::to_string(defaults.dci_count),
         .help = "DC initiators (send queues) per rail, " + range(1, kMaxDci) +
                 ". Each serves one peer at a time: larger if many peers are sent to at once, smaller if the "
                 "adapter's cache of connections is small.",
         .syntax = Syntax::count,
         .offset = offsetof(IfaceOptions, dci_count)});
    list.push_back(
        {.group = Group::tuning,
         .name = "NUM_DCT",
         .initial = std::to_string(defaults.dct_count),
         .help = "DC targets (what peers send to) per rail, " + range(1, kMaxDct) +
                 ". Each peer is given one. Larger if more peers send to a process at once than a target of the "
                 "adapter can follow.",
         .syntax = Syntax::count,
         .offset = offsetof(IfaceOptions, dct_count)});
    list.push_back(
        {.group = Group::tuning,
         .name = "DCI_POLICY",
         .initial = choice(kDciPolicies, defaults.dci_policy),
         .help = "Which initiator serves a peer.\n"
                 " - hash: each in turn, in the order in which peers are met; a peer always has the same.\n"
                 " - least: the one with the fewest outstanding requests, chosen anew when the peer's present one "
                 "is idle.\n"
                 " - quota: kept while it is busy, given back to the pool when idle.",
         .syntax = Syntax::choice,
         .offset = offsetof(IfaceOptions, dci_policy),
         .choices = kDciPolicies});
    const channel::AdaptConfig& adapt = defaults.adapt;
    list.push_back({.group = Group::connections,
                    .name = "ADAPT",
                    .initial = "eager",
                    .help =
                        "Reliable connections (RC) for the peers that most is exchanged with, if that saves time; the "
                        "others keep DC. Both sides must have it.\n"
                        " - off: DC for all peers.\n"
                        " - on: decided again and again, by what is counted and measured.\n"
                        " - eager: likewise, and the first peers, as many as ADAPT_MAX_RC allows, get RC at once.",
                    .syntax = Syntax::choice,
                    .offset = offsetof(IfaceOptions, adapt),
                    .choices = kAdaptModes});
    list.push_back({.group = Group::tuning,
                    .name = "ADAPT_INTERVAL",
                    .initial = time(adapt.tuning.interval),
                    .help = "Time between two decisions while the pattern of communication lasts. See ADAPT.",
                    .syntax = Syntax::time,
                    .offset = offsetof(IfaceOptions, adapt_interval)});
    list.push_back(
        {.group = Group::tuning,
         .name = "ADAPT_MAX_RC",
         .initial = std::to_string(adapt.max_rc),
         .help = "Peers that have RC at a time, " + range(1, kMaxAdaptQueuePairs) +
                 ". Each takes a queue pair on each of its paths. All together fewer than the adapter's cache of "
                 "connections holds. See ADAPT.",
         .syntax = Syntax::count,
         .offset = offsetof(IfaceOptions, adapt_max_rc)});
    list.push_back({.group = Group::tuning,
                    .name = "ADAPT_POOL",
                    .initial = std::to_string(adapt.pool),
                    .help = "Queue pairs of RC that are kept connected, in use or not, " +
                            range(0, kMaxAdaptQueuePairs) +
                            ". Larger: peers that take turns get RC back without waiting. See ADAPT.",
                    .syntax = Syntax::count,
                    .offset = offsetof(IfaceOptions, adapt_pool)});
    list.push_back(
        {.group = Group::tuning,
         .name = "ADAPT_MAX_RINGS",
         .initial = std::to_string(adapt.max_rings),
         .help = "Peers whose small messages may come by a ring of their own in memory, which is polled, at most " +
                 std::to_string(kMaxAdaptRings) + ". Each ring takes " + std::to_string(adapt.ring.bytes() / 1024) +
                 " KiB. It saves the receiver a completion for each message. "
                 "Not for programs that sleep until something comes. See ADAPT.",
         .syntax = Syntax::count,
         .offset = offsetof(IfaceOptions, adapt_max_rings)});
    list.push_back({.group = Group::tuning,
                    .name = "ADAPT_GAIN",
                    .initial = std::to_string(static_cast<unsigned>(adapt.tuning.least_gain)) + "ns",
                    .help = "Time that a change must save per message. Larger: fewer changes. See ADAPT.",
                    .syntax = Syntax::time,
                    .offset = offsetof(IfaceOptions, adapt_gain)});
    list.push_back({.group = Group::tuning,
                    .name = "ADAPT_COSTS",
                    .initial = "measure",
                    .help =
                        "What RC saves per message, and what it costs to give it to a peer: \"measure\", or both in "
                        "nanoseconds, as \"r=150,rho=400000\". With ADAPT_MAX_RINGS also, or alone (then the others "
                        "are measured), what a ring saves per message, what a look at an empty one costs, an "
                        "acknowledgment, and making one, as \"d=100,p=10,c=300,delta=100000\". See ADAPT.",
                    .syntax = Syntax::text,
                    .offset = offsetof(IfaceOptions, adapt_costs)});
    return list;
}

} // namespace ucx_mp::face
