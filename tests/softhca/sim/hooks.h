// What libsofthca.so exports for the virtual-time world (softhca/world.h), which lives outside of it, in the program.
// The engine's classes stay hidden inside the library; these few functions reach them. C linkage, version node
// SOFTHCA_1. Not thread safe, no exceptions. One world at a time per process. Times: ns of virtual time.
#pragma once
#include <cstdint>

#include "core/segment.h"
#include "softhca/host_costs.h"

extern "C" {

// A segment of this process alone, formatted for `image` (copied); this process attached to it, an engine in virtual
// time that starts at `start`. nullptr: errno (EBUSY: there is a world, or the process is part of a session).
softhca::Segment* softhca_sim_open(const softhca::FabricImage* image, uint64_t seed, uint64_t payload_limit,
                                   uint64_t start);
// Everything of the world is gone. Verbs objects must have been destroyed before.
void softhca_sim_close();

// ibv_get_device_list() shows the adapters of this node from now on; whoever opens them computes on `processor`.
void softhca_sim_select(uint32_t node, uint32_t processor);
uint64_t softhca_sim_now();
// The time of the earliest event; UINT64_MAX: there is none.
uint64_t softhca_sim_next_due();
// Advances the clock to the earliest event and fires it. 0: there is none.
int softhca_sim_step();
// Moves the clock forward to `to`; no event may be due before.
void softhca_sim_advance(uint64_t to);
// fn(self, arg, when) is called by the step that reaches `when` (if that is past: the next step).
void softhca_sim_schedule(uint64_t when, void (*fn)(void* self, uint64_t arg, uint64_t when), void* self, uint64_t arg);
// Hash over everything that has happened: the times of all events and what the network did at them.
uint64_t softhca_sim_digest();
uint64_t softhca_sim_events(); // fired so far
// The nodes that may have something new to see (completions, data written by RDMA or atomics, port and device events)
// since the last call, each once, in order: fills up to `max`, returns how many. What does not fit is reported next
// time.
uint32_t softhca_sim_touched(uint32_t* nodes, uint32_t max);

// fn(self, cost) is called by each verbs command that costs something, before it does anything. nullptr: nothing costs.
void softhca_sim_on_command(void (*fn)(void* self, uint64_t cost), void* self);

// What programs' processors spend from now on (engine/host_time.h). Nodes whose processor is busy are not reported as
// touched before it is through; those whose programs have several are, and again when one is through.
void softhca_sim_host_costs(const softhca::sim::HostCosts* costs);
// A program of that node does something of its own, which takes `cost` ns.
void softhca_sim_spend(uint32_t node, uint32_t processor, uint64_t cost);
// The processor's own time: the world's, or later.
uint64_t softhca_sim_processor_now(uint32_t processor);

// Asynchronous events, as core/notify.h.
void softhca_sim_raise_port_event(uint32_t port, uint32_t type);
void softhca_sim_raise_device_event(uint32_t device, uint32_t type);
}
