/*
 * Windows of the core behind a C header: writes, reads and atomic operations on other
 * processes' memory, and the synchronization of MPI-3.1's chapter 11. It does not know any
 * MPI library: the caller reduces elements, by its own operations (mp_window_hooks_t).
 *
 * Threads and hooks: as in mp_core.h. Functions that return bool and have no other purpose are asked again and again,
 * with mp_core_progress() in between, until they say true; the first call starts what is needed.
 *
 * The transport executes puts and gets of contiguous pieces, if both sides' memory is registered with it. (In a dynamic
 * window: if they are large, and the target has been asked.) The target executes everything else, from within
 * mp_core_progress(). All atomic operations of a window are executed by the target, one after the other, so they are
 * atomic with each other whoever they come from.
 */
#ifndef UCX_MP_PML_GLUE_MP_WINDOW_H
#define UCX_MP_PML_GLUE_MP_WINDOW_H

#include "pml_glue/core/mp_core.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mp_window mp_window_t;

typedef enum mp_rma_kind { MP_PUT = 1, MP_GET, MP_ACCUMULATE, MP_GET_ACCUMULATE, MP_COMPARE_SWAP } mp_rma_kind_t;

/* `repeat` blocks of the target's memory, `stride` bytes from start to start; `bytes` of a block are those of packed
 * elements. */
typedef struct mp_run {
    uint64_t address;
    int64_t stride;
    uint64_t bytes, repeat;
} mp_run_t;

/* One operation. Packed bytes of the runs and of `origin`, `result` are as many, with two
 * exceptions. The origin of MP_COMPARE_SWAP is one element to compare with and one to
 * store. The origin of MP_GET_ACCUMULATE may have fewer, or none: the rest is only read. */
typedef struct mp_rma {
    mp_rma_kind_t kind;
    uint32_t target;
    const mp_run_t* runs; /* copied */
    size_t run_count;
    mp_data_t origin; /* for all but MP_GET */
    mp_data_t result; /* for MP_GET, MP_GET_ACCUMULATE, MP_COMPARE_SWAP */
    uint16_t op, type;
    uint32_t unit, extent; /* bytes of an element when packed, and from element to element in a block */
    void* user;            /* for rma_done; null: nobody wants to know */
} mp_rma_t;

typedef struct mp_window_hooks {
    /* At the target: `count` elements in memory, one after the other by their extent. `out`, if not
     * null, gets their old values; then `in`, if not null, is applied. Both are packed, and not
     * aligned. False: no such operation or type, or its elements have other sizes, packed (`unit`) and
     * from one to the next (`extent`): the origin says all of them. Nothing has been touched then. */
    bool (*apply)(uint16_t op, uint16_t type, uint32_t unit, uint32_t extent, void* memory, size_t count,
                  const void* in, void* out);
    /* The origin's memory of an operation is the caller's again (and has the result). Last touch of the operation. */
    void (*rma_done)(void* user, mp_error_t error);
} mp_window_hooks_t;

typedef struct mp_window_config {
    uint32_t id, rank, ranks; /* the same id at all of them, of no other window of any of them */
    void* base;
    size_t size;
    bool dynamic;              /* memory comes by mp_window_attach() */
    const uint64_t* processes; /* of the ranks; copied */
    size_t in_flight; /* bytes of puts, and of gets, that are under way to a target; two operations always are */
} mp_window_config_t;

/* Null: no memory. It takes part in messages at once; a user of it has to know that all ranks are so far. */
mp_window_t* mp_window_create(mp_core_t* core, const mp_window_config_t* config, const mp_window_hooks_t* hooks);
/* The keys that the others need to write to it; free() takes it. */
void* mp_window_keys(mp_window_t* window, size_t* length);
/* Those of all ranks, `stride` bytes from one to the next; stays the caller's while the window lives. */
void mp_window_set_keys(mp_window_t* window, const void* keys, size_t stride);
/* Whether our messages to others have arrived: the last step before all ranks agree to free it. */
bool mp_window_settled(mp_window_t* window);
void mp_window_free(mp_window_t* window);
bool mp_window_attach(mp_window_t* window, void* base, size_t size);
bool mp_window_detach(mp_window_t* window, const void* base);

/* Starts an operation. MP_FAILED: the target is gone; rma_done is not called. */
mp_error_t mp_window_start(mp_window_t* window, const mp_rma_t* rma);

/* The epoch of an operation. */
typedef enum mp_epoch {
    MP_PASSIVE,        /* the lock is there, or wanted, or none is needed */
    MP_PASSIVE_SHARED, /* a shared lock is wanted, if it has not been so before */
    MP_ACTIVE          /* ends by a fence or mp_window_completed() */
} mp_epoch_t;

/* A small put of contiguous data: true if it has left, and `from` may be changed. MP_ACTIVE: it may travel with the end
 * of the epoch. */
bool mp_window_put_now(mp_window_t* window, uint32_t rank, const void* from, size_t bytes, uint64_t address,
                       mp_epoch_t epoch);

/* A small get, in the same way: true if it is under way, or over; `to` has the data when operations are flushed, if
 * only locally. */
bool mp_window_get_now(mp_window_t* window, uint32_t rank, void* to, size_t bytes, uint64_t address, mp_epoch_t epoch);

enum { MP_ALL_RANKS = UINT32_MAX };
/* Whether all operations to a rank that were started before the first of these calls are over here (`local`), or also
 * there. `call` is 0 then, and ours. Null: all that were started before this one, if no other thread starts any. */
bool mp_window_flushed(mp_window_t* window, uint32_t rank, bool local, uint64_t* call);
/* The same for one rank, there, if no other thread starts any; makes progress so many times
 * at most, and counts them down. True: `error` is the result of mp_window_error(). */
bool mp_window_flush(mp_window_t* window, uint32_t rank, unsigned* polls, mp_error_t* error);
/* The error of operations on a rank since the last call. */
mp_error_t mp_window_error(mp_window_t* window, uint32_t rank);
/* Whether the rank is gone: requests to it end at once. */
bool mp_window_gone(mp_window_t* window, uint32_t rank);

/* Passive epochs. A lock that is wanted holds operations back until it is there. */
void mp_window_want_lock(mp_window_t* window, uint32_t rank, bool exclusive);
bool mp_window_wants_lock(mp_window_t* window, uint32_t rank);
bool mp_window_locked(mp_window_t* window, uint32_t rank);
bool mp_window_unlocked(mp_window_t* window, uint32_t rank);

/* Active epochs, one access epoch and one exposure epoch at a time. Operations wait for the target's post. */
void mp_window_access(mp_window_t* window, uint32_t rank, bool check);
bool mp_window_completed(mp_window_t* window, uint32_t rank);
void mp_window_expose(mp_window_t* window, uint32_t rank, bool check);
bool mp_window_closed(mp_window_t* window, uint32_t rank);

/* The way of fences: each rank tells all others, or all flush and have
 * a barrier. The first if all ranks want it: they have to agree. */
bool mp_window_wants_direct_fences(const mp_window_t* window);
void mp_window_set_direct_fences(mp_window_t* window, bool direct);
/* Whether all ranks of the window have come here, and their earlier operations are done, at both sides. */
bool mp_window_fence(mp_window_t* window);
/* Whether all ranks of the window have come here. */
bool mp_window_barrier(mp_window_t* window);

#ifdef __cplusplus
}
#endif

#endif
