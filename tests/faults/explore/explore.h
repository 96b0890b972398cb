// One run of a small scenario in virtual time, with given faults at given steps: what the explorer (main.cc) does for
// every fault at every step, and every second fault at every later step.
//
// A step is one event of the world's scheduler (a packet leaves, arrives, a time-out, ...). A fault at step k happens
// after k events, from the moment when both nodes have opened their interfaces and start to talk. Same scenario, same
// faults: same run, bit for bit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "simulator/cluster.h"

namespace ucx_mp::sim {

enum class FaultKind : std::uint8_t {
    lose,  // the next packet of the path, data or acknowledgment or datagram of the control plane, in either direction
    hush,  // the path swallows everything for a while, nobody is told
    mute,  // the same, but only acknowledgments: what is sent is executed
    slow,  // packets of a while come much later, datagrams of the control plane after those that repeat them
    dip,   // the port of one node goes down with its event, and comes up before anybody has repaired much
    cut,   // the same for longer
    forge, // a third member of the job sends everything to a node in the other's name: as if it knew all but secrets
};
inline constexpr unsigned kFaultKinds = 7;

struct Fault {
    FaultKind kind;
    std::uint8_t node = 0; // dip, cut: whose port; forge: who gets it
    std::uint8_t path = 0; // forge: 0: messages of handshakes, 1: those of connections
    std::uint32_t step = 0;
};
[[nodiscard]] std::string to_string(const Fault& fault); // KIND.PATH@STEP, KIND.NODE.PATH@STEP
[[nodiscard]] std::optional<Fault> parse_fault(std::string_view text);

enum class Flavour : std::uint8_t {
    rc,      // mp_rc with packet numbers; targets poll their memory
    markers, // mp_rc without them
    dc,      // mp_dc
};

struct Scenario {
    const char* name;
    const char* about;
    const char* scripts[2]; // play.h
    const char* policy = "round_robin";
    bool single_path = false;
    bool close = false;         // node 0 ends its interface as soon as its script is over
    bool nasty = false;         // receives that were accepted are flushed when a queue pair fails
    bool ticks = false;         // progress is called all the time, not only when there is something to be seen
    Nanos naps[2] = {};         // not 0: the program computes, and progresses only so often
    bool crowd = false;         // long queues, of which progress takes little at a time
    bool tasks = false;         // there are queues that wait
    bool choices = false;       // rings and, with flavour dc, RC come and go as the scripts say
    const char* late = nullptr; // this adapter places data 20 us after it has acknowledged them
};
[[nodiscard]] std::span<const Scenario> scenarios();
[[nodiscard]] const char* name(Flavour flavour);

// Where further faults can happen in a run.
struct Trace {
    std::vector<std::uint32_t> steps;      // after which something had changed, ascending
    std::vector<std::uint32_t> packets[2]; // by path: before which a packet passed
};

struct Outcome {
    std::string verdict; // empty: no mistake
    Trace trace;
    std::uint64_t events = 0;
    Nanos time = 0;
    std::uint64_t fingerprint = 0;
    unsigned failures = 0;                               // of paths, as the nodes saw them
    unsigned queues_ended = 0, by_messages = 0;          // of those that wait; their tasks
    std::uint64_t switches = 0, by_rings = 0, parks = 0; // kinds, messages, connections: likewise
};

// `loud`: tells on standard output what happens.
[[nodiscard]] Outcome run_case(const softhca::FabricImage& image, const Scenario& scenario, Flavour flavour,
                               std::span<const Fault> faults, bool loud = false);

} // namespace ucx_mp::sim
