// softhca port, link, fault, reroute: each sends its words to the session's keeper, which parses them
// (session/faults.h).
#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

#include "cmd/commands.h"
#include "session/client.h"

namespace softhca {

namespace {

const char* const kFaultHelp =
    R"(Faults:
  drop|corrupt|ack-drop PERCENT TARGET   lose packets / damage them (dropped by the CRC check) / lose acknowledgments
  delay TIME TARGET                      added to every packet
  rate RATE|reset TARGET                 another link rate, e.g. 2Gb/s
  adapter-death|adapter-revive DEVICE    the adapter fails (DEVICE_FATAL) / is exchanged
  node-death NODE                        processes killed, adapters dead
  stop|cont NODE                         stop / continue the processes of a node
  lid-swap PORT PORT                     two ports exchange their LIDs (LID_CHANGE); `reroute` keeps them so
  pkeys KEY[,KEY...] PORT                another P_Key table (PKEY_CHANGE), e.g. 0x7fff,0x8001
  clear                                  end all faults except death
Nasty ones:
  place-delay TIME DEVICE                data appear this long after their acknowledgment
  place-delay-qp TIME DEVICE             likewise by up to TIME, another for each queue pair: one overtakes the other
  flush-accepted on|off DEVICE           accepted receives are flushed when the queue pair errs
  wait-prefetch on|off DEVICE            data of what is behind a WAIT are read early, unless fenced
  wait-endian on|off DEVICE              a WAIT that is not for equality compares big-endian numbers
  query truthful|stale|refused DEVICE    what ibv_query_qp says
  lacks WHAT on|off DEVICE               cannot do it, or does not keep to it: dc, timestamps, apm, resize (of completion
                                         queues), srq, read-push (reads see what was written before them), write-order
                                         (the last word of a write is written last), wait (on data)
  loopback-fails on|off PORT             traffic to oneself needs the port up
  address-handles refused|granted PORT   ibv_create_ah on it fails, as over RoCE when a neighbour is silent
  queue-pairs refused|granted PORT       they are made, but none gets from RESET to INIT
  queue-pair-limit N|none DEVICE         no more are made while there are so many: ENOMEM
  command-cost create|modify|query|reg TIME|reset DEVICE
TARGET: a port NODE:DEVICE:PORT (0:softhca_0:1, * = any, all), or two ends of cables by the names of the fabric file
  (leaf1 spine1: both directions), or one direction (leaf1->spine1). DEVICE: NODE:DEVICE.
--at-packet N [--count K]: at the N-th packet from now, for K packets (drop, corrupt, ack-drop, port down, link down).

Scripts (softhca run --faults FILE), one step per line:
  at 1.5s port down 0:softhca_0:1
  after 200ms port up 0:softhca_0:1
  at packet 1000 drop 100% 1:softhca_0:1 --count 3
  every 1s from 2s to 10s corrupt 0.1% all
  random 20 from 1s to 30s for 100ms link down leaf1 spine1
)";

struct FaultArguments {
    std::string session;
    std::vector<std::string> words;
    uint64_t at_packet = 0, count = 0;
};

void add_command(CLI::App& app, const std::string& name, const std::string& help, const std::string& words_help,
                 bool trips, const std::string& footer = "") {
    auto a = std::make_shared<FaultArguments>();
    CLI::App* c = app.add_subcommand(name, help);
    c->add_option("--session", a->session, "Which session (default: $SOFTHCA_SESSION, else the only one running)");
    if (trips) {
        c->add_option("--at-packet", a->at_packet, "Not now, but at the N-th packet from now at the target");
        c->add_option("--count", a->count, "Number of packets that --at-packet affects (default 1)");
    }
    if (!words_help.empty()) c->add_option("what", a->words, words_help)->required();
    c->footer(footer);
    c->callback([a, name] {
        std::string line = name;
        for (const auto& w : a->words) line += " " + w;
        if (a->at_packet) line += " --at-packet " + std::to_string(a->at_packet);
        if (a->count) line += " --count " + std::to_string(a->count);
        const std::string answer = send_command(choose_session(a->session), line);
        if (!answer.empty()) std::printf("%s\n", answer.c_str());
    });
}

} // namespace

void add_fault_commands(CLI::App& app) {
    add_command(app, "port", "Take a port down or up", "down|up NODE:DEVICE:PORT, e.g. down 0:softhca_0:1", true);
    add_command(app, "link", "Take cables down or up", "down|up A B, by the names of the fabric file", true);
    add_command(app, "fault", "Disturb the fabric, an adapter or a node", "FAULT ..., see below", true, kFaultHelp);
    add_command(app, "reroute", "Let the subnet manager compute new routes for what is up", "", false);
}

} // namespace softhca
