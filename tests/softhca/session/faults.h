// The fault language: one parser and one executor for the command line and for fault scripts.
//
//   port down|up PORT                      PORT_ERR / PORT_ACTIVE events; up: with its cable
//   link down|up A B                       every cable between A and B, by the names of the fabric file
//   drop|corrupt|ack-drop PERCENT TARGET   of the packets; corrupt = dropped by the CRC check; 0 % ends it
//   delay TIME TARGET                      added to every packet
//   rate RATE|unlimited|reset TARGET       instead of the fabric file's
//   adapter-death|adapter-revive DEVICE    DEVICE_FATAL; the adapter answers nothing any more
//   node-death NODE                        its processes are killed, its adapters are dead
//   stop|cont NODE                         its processes are stopped (outside of shared critical sections), continued
//   place-delay TIME DEVICE                nasty: data appear this long after their acknowledgment
//   place-delay-qp TIME DEVICE             nasty: likewise by up to TIME, another one for each queue pair, and in order
//                                          within each queue pair only
//   flush-accepted on|off DEVICE           nasty: accepted receives are flushed when the queue pair errs
//   wait-prefetch on|off DEVICE            nasty: data of what is behind a WAIT are read early, unless fenced
//   wait-endian on|off DEVICE              nasty: a WAIT that is not for equality compares big-endian numbers
//   query truthful|stale|refused DEVICE    nasty: ibv_query_qp
//   lacks WHAT on|off DEVICE               nasty: cannot do it, or does not keep to it: dc, timestamps, apm, resize (of
//                                          completion queues), srq, read-push (reads see what was written before
//                                          them), write-order (the last word of a write is written last), wait
//   loopback-fails on|off PORT             nasty: traffic to oneself needs the port up
//   address-handles refused|granted PORT   nasty: ibv_create_ah on it fails, as over RoCE when a neighbour is silent
//   queue-pairs refused|granted PORT       nasty: they are made, but none gets from RESET to INIT
//   queue-pair-limit N|none DEVICE         no more are made while there are so many: ENOMEM
//   command-cost create|modify|query|reg|destroy TIME|reset DEVICE
//   clear                                  ends all of the above except death, and what comes below
//   lid-swap PORT PORT                     two ports of a subnet exchange their LIDs, as when a subnet manager comes up
//                                          without its memory: LID_CHANGE; connections to them lead to the wrong port
//   pkeys KEY,... PORT                     the port's P_Key table from now on: PKEY_CHANGE; queue pairs keep their
//   index reroute                                the subnet manager computes new tables for what is up
// With `--at-packet N [--count K]` (drop, corrupt, ack-drop, port down, link down): happens at the N-th packet from now
// at that target, to K packets. A leading word `fault` is accepted.
//   PORT    NODE:DEVICE:PORT, e.g. 0:softhca_0:1; NODE is a number or a name; `*` stands for any, `all` for *:*:*
//   DEVICE  NODE:DEVICE, likewise
//   TARGET  PORT, or A B (both directions of the cables between them), or A->B (one direction)
#pragma once
#include <string>
#include <vector>

#include "core/segment.h"
#include "softhca/fabric.h" // FabricError

namespace softhca {

enum class FaultVerb : uint8_t {
    port_down,
    port_up,
    link_down,
    link_up,
    drop,
    corrupt,
    ack_drop,
    delay,
    rate,
    adapter_death,
    adapter_revive,
    node_death,
    stop,
    cont,
    place_delay,
    place_delay_qp,
    flush_accepted,
    wait_prefetch,
    wait_endian,
    query,
    lacks,
    loopback_fails,
    address_handles,
    queue_pairs,
    queue_pair_limit,
    command_cost,
    lid_swap,
    pkeys,
    clear,
    reroute
};

struct FaultCommand {
    FaultVerb verb = FaultVerb::clear;
    std::vector<uint32_t> ports, links, devices, nodes; // image indices; links: each direction
    uint64_t value = 0;                                 // ppm, ns, bytes/s, mode
    uint32_t which = 0;     // command-cost: 0 create, 1 modify, 2 query, 3 reg, 4 destroy; lacks: Lack
    uint64_t at_packet = 0; // 0 = now
    uint32_t count = 1;
    std::vector<uint16_t> keys; // pkeys
    std::string text;           // as given
};

// Throws FabricError with one line that names what is wrong and what is allowed.
FaultCommand parse_fault(const FabricImage& image, const std::vector<std::string>& words);
std::vector<std::string> split_words(const std::string& line);

// Writes the states and knobs, then raises FabricState::generation, then the events. Everything except `stop`, `cont`,
// `node_death`'s killing and `reroute`, which need the keeper (keeper_actions.cc): for those it does nothing.
// Call from one process at a time (the keeper). An attached Process is needed for the events.
void apply_fault(Segment& seg, const FaultCommand& command);
// Makes LinkState::up and PortState::up follow from what commands and deaths say, counts FabricState::disturbed, raises
// the generation, and raises the port events that are due.
void refresh_states(Segment& seg);

} // namespace softhca
