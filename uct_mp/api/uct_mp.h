/*
 * Extensions of the transports mp_rc and mp_dc beside UCT's own API: hints about traffic, and a look at the paths of an
 * endpoint. For programs that call UCT directly (MPI modules, benchmarks); UCP's users need none of it. Example:
 * example.c, beside this file or in the documentation.
 *
 * Link libuct_mp.so, or look the functions up with dlsym(): both must be the library that UCX has loaded.
 * Threads: as every UCT call, from the thread that uses the endpoint's worker.
 *
 * Stable: the declarations here stay, with these values; functions are added, and fields at the end of
 * structures. Not stable: everything else that the library exports (it is for its own programs and modules).
 */
#ifndef UCT_MP_H
#define UCT_MP_H

#include <stddef.h>
#include <stdint.h>
#include <uct/api/uct.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The caller's knowledge of the next operations (communication marker, dissertation
 * 6.2.3). Other policies ignore it; `default` and `epc` cut large operations for one that
 * is waited for, and keep them whole in a window of many. It changes speed, never results.
 */
typedef enum uct_mp_hint {
    UCT_MP_HINT_NONE = 0,       /* nothing is known; every endpoint starts with it */
    UCT_MP_HINT_BLOCKING,       /* the caller waits for each operation: shortest time of one */
    UCT_MP_HINT_NON_BLOCKING,   /* many are under way: highest rate of all */
    UCT_MP_HINT_COLLECTIVE,     /* steps of a collective: waited for, whatever the calls look like */
    UCT_MP_HINT_ONE_SIDED_EPOCH /* puts and gets without order until the next flush or fence (dissertation ch. 5) */
} uct_mp_hint_t;

/*
 * Sets the hint of all later operations of this endpoint; for one operation, set it before and back after. Endpoints of
 * one interface to the same peer share it.
 * UCS_ERR_INVALID_PARAM: no such hint. UCS_ERR_UNSUPPORTED: not an endpoint of mp_rc or mp_dc.
 */
ucs_status_t uct_mp_ep_set_hint(uct_ep_h ep, uct_mp_hint_t hint);

/* One path of an endpoint. Fields are only ever added at the end. */
typedef struct uct_mp_path {
    char local_rail[32];            /* "mlx5_0:1" */
    uint16_t local_lid, remote_lid; /* path bits included; RoCE: 0 */
    uint32_t state;                 /* 0 up, 1 suspect, 2 down, 3 probing, 4 recovering */
    double weight;                  /* for policies that have weights */
    double write_rate, read_rate;   /* measured, bytes per nanosecond; 0: not yet */
    double latency;                 /* small messages', smoothed, nanoseconds */
    uint64_t written, read;         /* bytes completed so far */
    uint64_t in_flight;             /* bytes posted and not completed */
} uct_mp_path_t;

/*
 * The paths to the endpoint's peer. `*count`: in: entries of `paths`, each of `path_size` bytes (sizeof(uct_mp_path_t)
 * of the caller); out: the number of paths, which may be larger. 0 before the first operation has connected.
 * UCS_ERR_UNSUPPORTED: not an endpoint of mp_rc or mp_dc. Slow: copies statistics of the whole interface.
 */
ucs_status_t uct_mp_ep_query_paths(uct_ep_h ep, uct_mp_path_t* paths, size_t path_size, unsigned* count);

/*
 * How many adapters the interface's rails are on. With several, a peer that sees a message need
 * not see earlier writes over another adapter: a fence or flush behind writes costs messages.
 * UCS_ERR_UNSUPPORTED: not an interface of mp_rc or mp_dc.
 */
ucs_status_t uct_mp_iface_query_adapters(uct_iface_h iface, unsigned* count);

/*
 * Queues that wait: tasks that an adapter executes while no processor looks. A queue leads to one peer over
 * one rail. A task is a list: wait for words of ours, put data into the peer's memory, put a word behind it.
 * A word is 8 bytes of registered memory, aligned, with one writer. A wait compares for equality, so a word
 * must never pass a value that somebody waits for. A word follows its data if both came over one queue.
 *
 * Nothing happens unless these functions are called. The adapter has to be one that waits for data (raw requests
 * of the mlx5 interface); trying shows whether it is. That has been tried with the emulated adapter only, so others
 * have such queues only with UCX_MP_TASKS=y.
 *
 * Threads: that of the interface's worker. All queues of an interface are gone when it closes: a handle must not be
 * used afterwards, not even to destroy it. Bounded: so many queues per rail and requests per adapter, see the errors of
 * create. A rail whose adapter has died has no such queues for the rest of the interface's life, even if the adapter is
 * there again.
 */
typedef struct uct_mp_task_queue* uct_mp_task_queue_h;

enum {
    UCT_MP_TASK_HALF_SIZE = 32, /* bytes: a half of a queue tells the other one, to be connected */
    UCT_MP_TASK_ENDED_SIZE = 24 /* bytes: it tells them when it is dead */
};

/* Fields are only ever added at the end. */
typedef struct uct_mp_task_queue_attr {
    uint64_t posted, done; /* tasks: posted, and complete for certain */
    /* failed: an error, or its port has been down. End it: until then the adapter may go on when the port is up again.
     * dead: nothing leaves or arrives any more. */
    int failed, dead;
} uct_mp_task_queue_attr_t;

/*
 * Whether a rail (by its number, from 0) has an adapter that waits. The first call begins a self-test of some
 * milliseconds. UCS_INPROGRESS: call progress and ask again. UCS_ERR_UNSUPPORTED: it does not, or UCX_MP_TASKS
 * switches it off, or not an interface of mp_rc or mp_dc. UCS_ERR_UNREACHABLE: it cannot be tried now, as its port is
 * down, its adapter has died or lacks something. UCS_ERR_INVALID_PARAM: no such rail. UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_mp_tasks_query(uct_iface_h iface, unsigned rail);
/* Takes completions of all queues, and goes on with self-tests. Returns the number of completions. */
unsigned uct_mp_tasks_progress(uct_iface_h iface);

/*
 * A half of a queue that has `depth` requests (waits, writes and words; 1 to 1024) under way at most. A command to the
 * adapter, and another one to connect. UCS_ERR_UNSUPPORTED: uct_mp_tasks_query() has not said UCS_OK.
 * UCS_ERR_NO_RESOURCE: there are too many. UCS_ERR_UNREACHABLE: the port is down, or the adapter has died.
 * UCS_ERR_INVALID_PARAM: no such rail, or another depth. UCS_ERR_IO_ERROR: the adapter refuses; UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_mp_task_queue_create(uct_iface_h iface, unsigned rail, unsigned depth, uct_mp_task_queue_h* queue);
/* Its tasks under way are lost. To know how far it has come, end it before. */
void uct_mp_task_queue_destroy(uct_mp_task_queue_h queue);
/* The bytes for the other half: UCT_MP_TASK_HALF_SIZE of them. */
ucs_status_t uct_mp_task_queue_tell(uct_mp_task_queue_h queue, void* half);
/*
 * UCS_ERR_INVALID_PARAM: `half` is none, or of another kind of network, or it is connected already; UCS_ERR_IO_ERROR:
 * the adapter refuses.
 */
ucs_status_t uct_mp_task_queue_connect(uct_mp_task_queue_h queue, const void* half, size_t size);

/*
 * The requests of the next task, in order. Memory is registered with the interface's domain, remote keys come from the
 * peer that the queue leads to. UCS_ERR_NO_RESOURCE: more than `depth`; UCS_ERR_INVALID_PARAM: a word that is not
 * aligned, more than 2 GiB; UCS_ERR_UNREACHABLE: the adapter here or there has no key for it.
 */
ucs_status_t uct_mp_task_wait(uct_mp_task_queue_h queue, const uint64_t* word, uct_mem_h memh, uint64_t value);
ucs_status_t uct_mp_task_write(uct_mp_task_queue_h queue, const void* from, size_t length, uct_mem_h memh,
                               uint64_t remote, uct_rkey_t rkey);
ucs_status_t uct_mp_task_word(uct_mp_task_queue_h queue, uint64_t value, uint64_t remote, uct_rkey_t rkey);
/*
 * The task is posted as a whole, or not. UCS_ERR_NO_RESOURCE: when others are complete, it stays as it is;
 * UCS_ERR_IO_ERROR: the queue has failed or is not connected, the task is forgotten; UCS_ERR_INVALID_PARAM: it is
 * empty.
 */
ucs_status_t uct_mp_task_post(uct_mp_task_queue_h queue);
/* Drops requests that were added and not posted: the next task begins anew. */
void uct_mp_task_forget(uct_mp_task_queue_h queue);

/* `size`: sizeof(*attr) of the caller. After uct_mp_tasks_progress(). */
ucs_status_t uct_mp_task_queue_query(uct_mp_task_queue_h queue, uct_mp_task_queue_attr_t* attr, size_t size);
/*
 * Ends our half. UCS_INPROGRESS: call progress, and again. UCS_OK: it is dead, at once
 * where the adapter has died. Then tell the other half `ended`, UCT_MP_TASK_ENDED_SIZE
 * bytes. UCS_ERR_IO_ERROR: the adapter refuses, and nothing has changed.
 */
ucs_status_t uct_mp_task_queue_end(uct_mp_task_queue_h queue, void* ended);
/*
 * Takes the dead other half's bytes: how many of our tasks are complete for certain. Later tasks
 * have arrived or not, in order, and the other side's words tell which; no more of them will arrive.
 * UCS_INPROGRESS: our half is not dead yet; UCS_ERR_INVALID_PARAM: not the bytes of a dead half.
 */
ucs_status_t uct_mp_task_queue_how_far(uct_mp_task_queue_h queue, const void* ended, size_t size, uint64_t* done);

/* The version of the library that is loaded: "0.1.0". */
const char* uct_mp_version(void);

#ifdef __cplusplus
}
#endif

#endif
