// What programs' processors spend in virtual time, by kind of work. Units: ns; 0: free.
//
// A program's calls return at once. What they do happens when its processor has come to it, and the node is not
// touched() before (World). A cost arises where the work is done: in the verbs call that posts or collects, in the
// command; or, for what a program does in its own memory, where that program says so (World::spend()).
#pragma once
#include "softhca/image.h"
#include "softhca/time.h"

namespace softhca::sim {

struct HostCosts {
    Nanos post = 0;       // a send request posted
    Nanos completion = 0; // a completion of a send collected, and of a receive unless `receive` says otherwise
    // A message taken from a completion queue: its entry and its buffer are looked at, and a receive is posted again.
    // 0: as `completion`.
    Nanos receive = 0;
    double copy = 0; // per byte: of what a request carries inline, and of what programs copy
    // A slot of a ring in memory, which peers write to: looked at in vain, and with a message in it. Programs poll such
    // memory without a verbs call.
    Nanos poll_miss = 0, poll_hit = 0;
    // Commands (create, modify, destroy a queue pair, register memory, ...) take the processor's time, by what the
    // fabric file says (command_create, ...) or the fault command-cost. Without World::on_command() only.
    bool commands = false;

    [[nodiscard]] bool any() const {
        return post != 0 || completion != 0 || receive != 0 || copy > 0 || poll_miss != 0 || poll_hit != 0 || commands;
    }
};

// What the fabric file says (`host`); a world starts with it unless its Options say something.
[[nodiscard]] inline HostCosts host_costs(const FabricImage& image) {
    const HostImage& h = image.host;
    return {.post = h.post_ns,
            .completion = h.completion_ns,
            .receive = h.receive_ns,
            .copy = h.copy_rate != 0 ? 1e9 / static_cast<double>(h.copy_rate) : 0,
            .poll_miss = h.poll_miss_ns,
            .poll_hit = h.poll_hit_ns,
            .commands = h.commands != 0};
}

} // namespace softhca::sim
