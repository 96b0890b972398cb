/*
 * The core of the MPI modules behind a C header: point-to-point messages with MPI's matching, over UCT. Knows nothing
 * of an MPI library; pml_glue/ompi joins it with Open MPI 4.1.
 *
 * Threads: one call at a time, the caller locks; within a turn (mp_turn.h) if there is a progress thread. Hooks are
 * called from within calls, also from mp_core_progress(), and may start operations, but not call mp_core_progress(),
 * which returns 0 then. Ownership: requests are the caller's memory (mp_request_storage_t) until `completed` is called
 * for them.
 */
#ifndef UCX_MP_PML_GLUE_MP_CORE_H
#define UCX_MP_PML_GLUE_MP_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "uct_mp/host/mp_turn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mp_core mp_core_t;       /* one per process */
typedef struct mp_peer mp_peer_t;       /* another process, or this one */
typedef struct mp_message mp_message_t; /* taken out of the matching by mp_core_mprobe() */

enum { MP_ANY_SOURCE = INT32_MIN, MP_ANY_TAG = INT32_MIN };

typedef enum mp_error {
    MP_OK = 0,
    MP_TRUNCATED, /* the message was longer than the receive; the fitting part is there */
    MP_FAILED,    /* the peer is gone, or its data could not be moved */
    MP_CANCELLED,
    MP_RANGE, /* of windows: memory that is not in the target's window */
    MP_BROKEN /* of collective operations: nobody is gone, but they cannot go on */
} mp_error_t;

/* Numbers of uct_mp_hint_t. */
typedef enum mp_hint { MP_HINT_NONE = 0, MP_HINT_BLOCKING, MP_HINT_NON_BLOCKING, MP_HINT_COLLECTIVE } mp_hint_t;

/* Contents of a message in memory. */
typedef struct mp_data {
    void* buffer;    /* contiguous data: its first byte. A send does not write to it */
    size_t bytes;    /* when packed; of a receive: what fits */
    void* convertor; /* not contiguous: the hooks pack and unpack with it; null: contiguous */
} mp_data_t;

typedef struct mp_status {
    int32_t source, tag;
    mp_error_t error;
    size_t bytes; /* received bytes */
} mp_status_t;

typedef struct mp_request {
    mp_status_t status; /* of a complete receive; of a send only `error` */
    bool complete;
} mp_request_t;

enum { MP_REQUEST_BYTES = 320 };
typedef union mp_request_storage {
    mp_request_t request;
    uint64_t storage[MP_REQUEST_BYTES / 8];
} mp_request_storage_t;

typedef struct mp_hooks {
    void* argument; /* first argument of all but pack and unpack */
    /* Next `bytes` of a message at most, from `offset` on; returns how many. Always in order. */
    size_t (*pack)(void* convertor, size_t offset, void* out, size_t bytes);
    void (*unpack)(void* convertor, size_t offset, const void* in, size_t bytes);
    /* A request is complete, and the caller's again. */
    void (*completed)(void* argument, mp_request_t* request);
    /* The address of a process (of mp_core_address() there), which free() takes. False: there is none. */
    bool (*address)(void* argument, uint64_t process, void** address, size_t* length);
    /* Whether a process is rank `source` (MP_ANY_SOURCE: any rank) among those that messages of `context` come from. */
    bool (*is_source)(void* argument, uint32_t context, int32_t source, uint64_t process);
    /* The process that is rank `source` among those that messages of `context` come from. False: nobody. May be null:
     * then peers that one only receives from are not asked whether they live. */
    bool (*process)(void* argument, uint32_t context, int32_t source, uint64_t* process);
    /* The result of mp_core_peer() for a process is void: see mp_core_named(). May be null. */
    void (*forgotten)(void* argument, uint64_t process);
    /* One line about a fault, for the user. */
    void (*report)(void* argument, const char* line);
    /* Another number than before if the program may have unmapped memory since. Memory that is registered for longer
     * than one operation is then registered anew. Null: it does not. */
    uint64_t (*unmapped)(void* argument);
} mp_hooks_t;

/* A size that is chosen for each peer, by the network's estimates of itself. */
#define MP_AUTO (SIZE_MAX - 1)

#define MP_NEVER UINT64_MAX

/* Sizes in bytes. */
typedef struct mp_config {
    uint64_t process; /* our own name, unique in the job and in jobs that it meets; the upper half names the job */
    const char* transports; /* of UCT, by comma, best first among those that reach a peer: "self,posix,cma,mp_rc";
                               "auto": as core/uct/transports.h says */
    const char* local;  /* ranks of this host: "auto" (same machine, same adapters), "host" (same machine), "none" */
    size_t eager_limit; /* larger messages go by rendezvous; or MP_AUTO */
    size_t zero_copy;   /* eager messages from this size on are not copied at the sender; or MP_AUTO */
    size_t hint_limit;  /* operations from this size on carry their hint */
    bool rendezvous_by_put; /* the sender writes, instead of the receiver reading */
    /* Small messages to a peer that nobody waits for: so many leave one by one until progress is
     * made. Further ones leave together: with progress, or when there are many. 0: all leave alone */
    unsigned burst;
    /* A peer that is waited for is asked so often whether it lives, ns. 0: every second; MP_NEVER */
    uint64_t watch_interval;
    /* A receive from any source also asks members of its communicator that nothing has been
     * sent to. Each is connected for it; one that cannot be connected counts as gone */
    bool watch_strangers;
} mp_config_t;

/* Options of the progress thread. */
typedef struct mp_thread_config {
    mp_turn_t* turn; /* which every call of the program takes (mp_turn.h); lives until the thread has stopped */
    bool spare;      /* it has a processor for itself; else it only keeps operations going that others wait for */
    /* If several threads of the program make calls: the lock that they hold meanwhile. Null: one makes them. */
    bool (*try_lock)(void);
    void (*unlock)(void);
} mp_thread_config_t;

/* Null: `error` has one line that says why. */
mp_core_t* mp_core_open(const mp_config_t* config, const mp_hooks_t* hooks, char* error, size_t error_size);
/* To be called after the last call of all processes of the job. Requests that are open are forgotten. */
void mp_core_close(mp_core_t* core);
/* The address that peers need to reach us; free() takes it. */
void* mp_core_address(mp_core_t* core, size_t* length);
/* The process with this name; connects if it is new. Null: cannot be reached, which has been reported. */
mp_peer_t* mp_core_peer(mp_core_t* core, uint64_t process);
/* Returns how much was found. Bounded. */
unsigned mp_core_progress(mp_core_t* core);
/* Starts a thread that makes progress while the program is outside. It calls pack, unpack and mp_window_hooks_t::apply;
 * the program's next call tells its results. False: there is none, and `error` has one line. */
bool mp_core_start_thread(mp_core_t* core, const mp_thread_config_t* config, char* error, size_t error_size);
/* The program has the turn behind it. Without a thread: nothing happens. Outside of any turn. */
void mp_core_stop_thread(mp_core_t* core);
/* Whether a thread would have a processor for itself beside so many ranks on this
 * host, with so many computing threads each. `why` has the numbers in one line. */
bool mp_core_thread_is_spare(unsigned ranks, unsigned threads, char* why, size_t why_size);

/* `source`: our rank in the communicator. */
typedef struct mp_envelope {
    uint32_t context;
    int32_t source, tag;
} mp_envelope_t;

/* The envelope of most messages in 64 bits: 20 of context, 20 of source, 24 of tag with its sign. */
enum { MP_CONTEXT_BITS = 20, MP_SOURCE_BITS = 20, MP_TAG_BITS = 24 };
static inline bool mp_fits_compact(uint32_t context, int32_t source, int32_t tag) {
    return (context | (uint32_t)source) < 1u << MP_SOURCE_BITS &&
           (uint32_t)tag + (1u << (MP_TAG_BITS - 1)) < 1u << MP_TAG_BITS;
}
static inline uint64_t mp_compact(uint32_t context, int32_t source, int32_t tag) {
    return (uint64_t)context << (MP_SOURCE_BITS + MP_TAG_BITS) | (uint64_t)(uint32_t)source << MP_TAG_BITS |
           ((uint32_t)tag & ((1u << MP_TAG_BITS) - 1));
}

/* A small message without a request: true if it has left. Contiguous data, not synchronous.
 * `compact`: the envelope. `waits`: the caller does nothing else until it has left; else it
 * may be held back to leave with others (mp_config_t::burst), and wants a request. */
bool mp_core_send_now(mp_core_t* core, mp_peer_t* peer, uint64_t compact, const void* data, size_t bytes, bool waits);
/* The same for a message that mp_core_send_now() has not taken: it leaves with others, and the request
 * ends then. The data has been copied. False: too large (surely above MP_HELD_MOST bytes), or not now. */
enum { MP_HELD_MOST = 256 };
bool mp_core_hold(mp_core_t* core, mp_request_storage_t* request, mp_peer_t* peer, uint64_t compact, const void* data,
                  size_t bytes);
void mp_core_send(mp_core_t* core, mp_request_storage_t* request, mp_peer_t* peer, mp_envelope_t envelope,
                  mp_data_t data, bool synchronous, mp_hint_t hint);
void mp_core_receive(mp_core_t* core, mp_request_storage_t* request, mp_envelope_t pattern, mp_data_t data,
                     mp_hint_t hint);
/* A message that is there already, without a request: true if it has been received. Contiguous data. */
bool mp_core_receive_now(mp_core_t* core, mp_envelope_t pattern, void* data, size_t bytes, mp_status_t* status);
/* For receives only. True: it is complete now, with MP_CANCELLED. False: too late. */
bool mp_core_cancel(mp_core_t* core, mp_request_storage_t* request);

/* Whether a message is there, and which. Neither makes progress. */
bool mp_core_probe(mp_core_t* core, mp_envelope_t pattern, mp_status_t* status);
/* Takes the message, for one mp_core_receive_message(). Null: there is none. */
mp_message_t* mp_core_mprobe(mp_core_t* core, mp_envelope_t pattern, mp_status_t* status);
void mp_core_receive_message(mp_core_t* core, mp_request_storage_t* request, mp_message_t* message, mp_data_t data,
                             mp_hint_t hint);

/* A communicator is gone: its messages are forgotten. */
void mp_core_drop(mp_core_t* core, uint32_t context);
/* A communicator comes, or goes, that has this process of another job. A process that no
 * communicator has any more is forgotten, with its connection, once nothing of it is under
 * way. False: no memory; for one that goes this only means that it is never forgotten. */
bool mp_core_named(mp_core_t* core, uint64_t process, bool comes);
/* For mp_core_probe() and its like in a loop: whether `source` can still send. */
bool mp_core_source_failed(mp_core_t* core, mp_envelope_t pattern);

/* "mp_rc 12 messages 3456 bytes, ...": what was sent, written or read; and the matching's and protocols' counts. */
void mp_core_statistics(mp_core_t* core, char* text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
