/*
 * Collective operations of the core behind a C header: small ones, by messages of their own that need no matching.
 * Knows nothing of an MPI library: what is combined, and how, is the caller's.
 *
 * Threads: as in mp_core.h. Operations of a group are started in the same order by all its members, with the same kind,
 * root and bytes: what decides how they are done is only that.
 *
 * Ownership: an operation is the caller's memory (mp_collective_storage_t), and what it names too, until it is
 * complete.
 */
#ifndef UCX_MP_PML_GLUE_MP_COLLECT_H
#define UCX_MP_PML_GLUE_MP_COLLECT_H

#include "pml_glue/core/mp_core.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mp_group mp_group_t; /* the members of a communicator */

/* Numbers of Collective (core/plan/plan.h), but for the fifth, which is an allreduce as well, and the tenth, which is
 * an alltoall. */
typedef enum mp_collective_kind {
    MP_BARRIER = 1,
    MP_BCAST,
    MP_ALLGATHER,
    MP_ALLREDUCE,
    MP_GATHER = 6,
    MP_REDUCE,
    MP_SCATTER,
    MP_ALLTOALL,
    MP_ALLTOALLV = 11
} mp_collective_kind_t;

typedef struct mp_collective mp_collective_t;
struct mp_collective {
    mp_collective_kind_t kind;
    uint32_t root;
    size_t bytes; /* of a block, packed: all of a bcast or reduction, else what each rank gives or gets. Not of
                     alltoallv */
    /* Given: a block, or at the root of a scatter a block of each rank. Got: a block, or a block of each rank; `out`
     * without buffer and convertor: nothing is wanted. Both may be the same memory. */
    mp_data_t in, out;
    /* For reductions: `inout` becomes `in` operator `inout`; both have `bytes` bytes, packed, and are aligned as
     * elements are whose size is their alignment. From within mp_collective_start() or mp_core_progress(), and by the
     * progress thread: must not call the program's code. False: no memory; operations of the group fail at all members
     * with MP_BROKEN, since the result is others', too. */
    bool (*fold)(mp_collective_t* operation, const void* in, void* inout);
    /* For an alltoallv, and an alltoall that mp_group_is_small() does not call small: the block for a rank, or of it.
     * Our own block is never asked for: the caller copies it. `in` and `out` are ignored. From the same calls, and by
     * the progress thread. `open` makes a convertor if it has to, which `close` ends; as many are open as
     * mp_group_config_t::peers says, twice, and two. */
    size_t (*size)(mp_collective_t* operation, uint32_t rank, bool sends);
    mp_data_t (*open)(mp_collective_t* operation, uint32_t rank, bool sends);
    void (*close)(mp_collective_t* operation, uint32_t rank, void* convertor, bool sends);
    /* It is complete, and the caller's again: the last touch. Null: the caller looks at `complete`. */
    void (*done)(mp_collective_t* operation);
    void* user;
    /* MP_TRUNCATED: a member has sent another number of bytes. But two members of an alltoallv may wait for ever, if
     * only one has more than `eager` bytes for a block: the other one knows of no question. MP_FAILED: a member is
     * gone. MP_BROKEN: members call different operations, or one has no memory for its part in them, or no room for
     * what comes ahead of its calls. */
    mp_error_t error;
    bool complete;
};

enum { MP_COLLECTIVE_BYTES = 768 };
typedef union __attribute__((aligned(16))) mp_collective_storage {
    mp_collective_t collective;
    uint64_t storage[MP_COLLECTIVE_BYTES / 8];
} mp_collective_storage_t;

/* Chooses who puts the parts of small operations: our processor, or an adapter where there are queues that wait
 * (core/task_port.h) and nothing has to be combined on the way. `auto`: the adapter those of operations that do not
 * block (`done` is set). Members may differ: how a part comes is its sender's choice. */
typedef enum mp_engine { MP_ENGINE_HOST, MP_ENGINE_AUTO, MP_ENGINE_ADAPTER } mp_engine_t;

typedef struct mp_group_config {
    uint32_t context, rank, ranks; /* the same context at all members, of no other group of any of them; 20 bits */
    uint64_t (*process)(const void* members, uint32_t rank); /* of a rank; asked while the group is made */
    const void* members;
    /* The rest has to be the same at all members; else they hear of it (one line), and their operations wait. */
    unsigned in_flight; /* operations that are under way; further ones wait. 2 to 32 */
    size_t small;       /* bytes of all ranks' blocks together, or of a bcast: what is ours */
    size_t halving;     /* bytes of an allreduce that is ours by recursive doubling */
    size_t eager;       /* bytes of an all-to-all's block that is sent without being asked for; fewer among
                           many ranks: 8 MiB of all blocks for one rank, in all operations under way */
    /* How many messages a round of a barrier, an all-gather or a small allreduce has (core/plan/rounds.h): ns that a
     * message is on its way, and that processors spend on one. latency 0: one; adapters put parts only then. If a
     * member gives 0 for its engine's sake, all have to. overhead may differ where latency is 0. */
    uint32_t latency, overhead;
    /* The same of a message between two processes of a host. Then one rank of each host (Port::host()) talks over the
     * network, unless that is expected to take more than a tenth longer (core/plan/hosts.h). Members ask each other for
     * their hosts once, before operation `hosts_after`; 8192 members at most, or as many as have room in `small`.
     * within_latency 0, or latency 0: they do not. */
    uint32_t within_latency, within_overhead, hosts_after;
    uint32_t digest; /* of whatever else decides */
    uint32_t life;   /* mp_group_next_life() of the communicator */
    size_t memory;   /* bytes of messages that come before their operation is called here, of all groups; may differ */
    unsigned peers;  /* blocks of an all-to-all that are asked for, and that are put, at a time; may differ */
    mp_engine_t engine; /* may differ, if latency does not */
    unsigned after;     /* operations until there are such queues; may differ */
} mp_group_config_t;

/* For each communicator that may have a group, once, when it is made: at all its members, also if they never make a
 * group. How many it has had before itself with its context and its members; only these fields count. Messages of those
 * are not taken for its own. Without memory the process ends. */
uint32_t mp_group_next_life(mp_core_t* core, const mp_group_config_t* communicator);
/* At least two ranks. Null: the configuration makes no sense; or there is no memory. Then operations of the group fail
 * at all members with MP_BROKEN, and it is not made any more before mp_core_drop() of its context. */
mp_group_t* mp_group_create(mp_core_t* core, const mp_group_config_t* config);
/* A group for one persistent request: its members create theirs of a communicator in one order, and start them in any.
 * Its operations have the same kind, root, bytes and memory, one after the other; sizes, places and convertors of an
 * all-to-all's blocks do not change. Freed before the communicator's. Null: more than 4095 were made of it, and all
 * members see that alike. Without memory for it the process ends (core/no_memory.h). */
mp_group_t* mp_group_create_request(mp_group_t* communicator);
/* Operations of the caller's are complete. */
void mp_group_free(mp_group_t* group);
/* This member cannot take part: operations of the group fail at all members with MP_BROKEN. */
void mp_group_give_up(mp_group_t* group);
/* Whether an operation of this size is ours; all members get the same answer. */
bool mp_group_takes(const mp_group_t* group, mp_collective_kind_t kind, size_t bytes);
/* Whether an alltoall of this size needs `in` and `out`, which may be the same memory; else `size`, `open`, `close`. */
bool mp_group_is_small(const mp_group_t* group, size_t bytes);
/* MP_FAILED or MP_BROKEN, as above: all operations of the group fail so, here and at all members. In a turn. */
mp_error_t mp_group_error(const mp_group_t* group);
/* Nothing is under way, also of what the group does for itself, and of its requests'. Until then its context has to
 * stay its own. */
bool mp_group_idle(const mp_group_t* group);

/* Starts what the storage's first members say; `error` and `complete` are set here. */
void mp_collective_start(mp_group_t* group, mp_collective_storage_t* operation);

#ifdef __cplusplus
}
#endif

#endif
