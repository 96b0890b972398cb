// Waking a process: completion channels and asynchronous events.
// A channel is a pipe in its owner's process; other processes take a duplicate of the writing end with pidfd_getfd
// (same permission as process_vm_writev) and keep it, keyed by a channel id that names that very pipe. A pipe and not a
// socket pair, because it holds thousands of small messages: a lost completion event would be a hang. All messages of a
// channel have the same size, so that they never tear: for completion channels the owner's CQ pointer (8 bytes), for
// async queues an AsyncMessage.
#pragma once
#include <cstdint>

#include "core/segment.h"

namespace softhca {

struct AsyncMessage {
    uint32_t type;    // ibv_event_type
    uint32_t port;    // 1-based, port events
    uint64_t element; // owner's pointer (ibv_cq, ibv_qp, ibv_srq) or 0
};

// Owned by this process: rx goes to the application as the channel's fd.
struct Channel {
    int rx = -1, tx = -1;
    uint64_t id = 0; // session-wide: owner slot, fd and inode packed; never 0
};
[[nodiscard]] bool open_channel(Channel&); // false: errno
void close_channel(Channel&);

// Sends `bytes` of `message` to channel `id`, wherever it lives. Never blocks: if the receiver's buffer is full or the
// owner is dead the message is dropped (a full buffer wakes the reader anyway). Thread safe.
void notify(uint64_t id, const void* message, uint32_t bytes);

// Drops all duplicates of other processes' descriptors and forgets the own channels (Process::detach).
void forget_channels();
// The same in the child of a fork, without touching what belongs to the parent.
void abandon_channels();

// Async events are addressed by device context: each open context has a row in the segment's context table.
// raise_* are slow path and callable from any process (fault commands, keeper, initiators).
void raise_device_event(Segment&, uint32_t device, uint32_t type); // to every context of the device
void raise_port_event(Segment&, uint32_t port, uint32_t type);     // image port index
void raise_object_event(Segment&, uint64_t async_channel, uint32_t type, uint64_t element); // QP, CQ, SRQ events

// Virtual time: called with a device whose node may have something new to see (completion, RDMA data, port or device
// event); nullptr in real time. sim/hooks.cc sets it.
extern void (*g_touched)(uint32_t device);
// Virtual time: called with memory that has been written while some send queue stands at a WAIT (engine/waits.h).
extern void (*g_written)(uint64_t address, uint64_t length);

} // namespace softhca
