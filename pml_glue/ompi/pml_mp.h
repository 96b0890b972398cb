/*
 * pml/mp for Open MPI: joins the core (pml_glue/core/mp_core.h) with Open MPI's requests,
 * datatypes, communicators and modex. C, since Open MPI's internal headers are C.
 * Differences between its series are in series.h of pml_glue/ompi4 and pml_glue/ompi5.
 *
 * Threads: every call of the core is within a turn (mp_turn.h), so that the progress thread is not
 * inside. With MPI_THREAD_MULTIPLE it is also under one lock, which is recursive: a completion may
 * start operations. Below, "the lock" is the turn, and the lock if there are threads. No thread
 * waits with the lock held, and no callback of a request is called with it: callbacks take locks of
 * their own. A thread that waits for a request may be woken with it: that lock is the innermost.
 */
#ifndef UCX_MP_PML_GLUE_OMPI_PML_MP_H
#define UCX_MP_PML_GLUE_OMPI_PML_MP_H

#include "ompi_config.h"

#include <pthread.h>

#include "ompi/communicator/communicator.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/mca/coll/base/coll_base_util.h"
#include "ompi/mca/pml/base/base.h"
#include "ompi/mca/pml/base/pml_base_bsend.h"
#include "ompi/mca/pml/pml.h"
#include "ompi/message/message.h"
#include "ompi/proc/proc.h"
#include "ompi/request/request.h"
#include "ompi/runtime/mpiruntime.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/runtime/opal_progress.h"
#include "pml_glue/core/mp_core.h"
#include "series.h"

/* The use of a request. */
typedef enum mca_pml_mp_kind {
    MP_KIND_NONE, /* in the free list */
    MP_KIND_ONCE, /* the user's, or a blocking call's */
    MP_KIND_PERSISTENT,
    MP_KIND_OWN,      /* a blocking call's that looks at the core's request: Open MPI does not know it */
    MP_KIND_BUFFERED, /* ours: sends a copy out of the user's buffer for MPI_Bsend */
    /* Given back in a way of their own. */
    MP_KIND_HELD,      /* the user's: a small message that leaves with others, copied already */
    MP_KIND_COLLECTIVE /* a persistent one's of coll/mp, whose `buffer` is the call */
} mca_pml_mp_kind_t;

/* The beginning of all requests of ours: pml_mp_wait.c. Open MPI keeps operators and types of
 * non-blocking collective operations behind ompi_request_t, in requests of any component. */
typedef struct mca_pml_mp_waiter mca_pml_mp_waiter_t;
typedef struct mca_pml_mp_waitable {
    union {
        ompi_request_t super;
        ompi_coll_base_nbc_request_t collective;
    };
    mca_pml_mp_waiter_t* waiter; /* a thread that waits for it and others */
} mca_pml_mp_waitable_t;
OMPI_DECLSPEC OBJ_CLASS_DECLARATION(mca_pml_mp_waitable_t);

typedef struct mca_pml_mp_request {
    union {
        ompi_request_t super;
        mca_pml_mp_waitable_t waitable;
    };
    mp_request_storage_t core;
    mca_pml_mp_kind_t kind;
    /* known: the program has it, and may wait for it or free it; retained: it keeps communicator and datatype */
    bool is_send, freed, known, retained, active, convertor_used;
    unsigned completing; /* threads that tell Open MPI of its end */
    int error;           /* the error of one at its end: shown when it is told */
    opal_convertor_t convertor;
    /* a persistent request's, for the next start; `buffer` also of MP_KIND_BUFFERED and MP_KIND_COLLECTIVE */
    void* buffer;
    size_t count;
    ompi_datatype_t* datatype;
    int peer, tag;
    mca_pml_base_send_mode_t mode;
    struct mca_pml_mp_request* next; /* among those that are at their end, or free */
} mca_pml_mp_request_t;
OBJ_CLASS_DECLARATION(mca_pml_mp_request_t);

typedef struct mca_pml_mp_module {
    mca_pml_base_module_t super;
    mp_core_t* core;
    opal_free_list_t requests;
    /* First of those that have been used before: no locks but ours. Those of MP_KIND_HELD stay ready for that use. */
    mca_pml_mp_request_t *free, *free_held;
    mca_pml_mp_request_t own; /* MP_KIND_OWN */
    bool own_used;
    ompi_request_t sent; /* complete: for sends that have left at once */
    pthread_mutex_t lock;
    mp_turn_t turn; /* the program's, or the progress thread's */
    bool threads;
    int peer_failed;            /* the code of an operation whose peer is gone */
    bool marked;                /* coll/mp tells who is in a collective operation */
    unsigned in_collective;     /* without threads: depth of such calls */
    bool memory_open, watching; /* pml_mp_memory.c */
    /* At their end, not from within the core: Open MPI is still to be told. In the order of their ends. */
    struct mca_pml_mp_request *ended, *last_ended;
    unsigned buffered;                                   /* copies for MPI_Bsend that are under way */
    uint64_t collectives;                                /* operations that coll/mp has told of */
    void (*free_collective)(struct mca_pml_mp_request*); /* of MP_KIND_COLLECTIVE; with the lock */
    /* MCA parameters */
    char *transports, *local, *rendezvous, *eager_limit, *zero_copy, *async;
    size_t hint_limit;
    unsigned watch_interval; /* ms */
    bool watch_strangers;
    unsigned burst;
    bool statistics;
    int priority;
} mca_pml_mp_module_t;
OMPI_DECLSPEC extern mca_pml_mp_module_t mca_pml_mp;

OMPI_DECLSPEC extern mca_pml_base_component_t mca_pml_mp_component;

/* One thread of the program has only to take its turn. */
static inline void mca_pml_mp_enter(void) { mp_turn_enter(&mca_pml_mp.turn); }
static inline void mca_pml_mp_exit(void) { mp_turn_leave(&mca_pml_mp.turn); }

static inline void mca_pml_mp_lock(void) {
    if (mca_pml_mp.threads) pthread_mutex_lock(&mca_pml_mp.lock);
    mca_pml_mp_enter();
}
static inline void mca_pml_mp_unlock(void) {
    mca_pml_mp_exit();
    if (mca_pml_mp.threads) pthread_mutex_unlock(&mca_pml_mp.lock);
}
static inline bool mca_pml_mp_try_lock(void) {
    if (pthread_mutex_trylock(&mca_pml_mp.lock) != 0) return false;
    mca_pml_mp_enter();
    return true;
}

/* coll/mp: the depth of collective operations of this thread. A thread in one makes no other call
 * meanwhile, so a look-up of thread-local storage is needed only where there are threads. */
OMPI_DECLSPEC extern _Thread_local unsigned mca_pml_mp_in_collective;
static inline unsigned* mca_pml_mp_depth_of_collectives(void) {
    return OPAL_UNLIKELY(mca_pml_mp.threads) ? &mca_pml_mp_in_collective : &mca_pml_mp.in_collective;
}
/* Returns the counter to count down at the end: threads may be there only then. */
static inline unsigned* mca_pml_mp_enter_collective(void) {
    unsigned* const depth = mca_pml_mp_depth_of_collectives();
    ++*depth;
    mca_pml_mp.collectives++; /* for statistics: threads may lose one */
    return depth;
}

/* Tags from -10 down are collectives', from -27 down those of operations that do not block (coll_tags.h of Open
 * MPI). Where coll/mp is on, it tells of the blocking ones, for messages that the transport is told of. */
static inline mp_hint_t mca_pml_mp_hint(int tag, size_t bytes, mp_hint_t otherwise) {
    const bool by_call = OPAL_UNLIKELY(mca_pml_mp.marked) && bytes >= mca_pml_mp.hint_limit;
    const bool inside = by_call ? *mca_pml_mp_depth_of_collectives() > 0 || tag <= -27 : tag <= -10;
    return inside ? MP_HINT_COLLECTIVE : otherwise;
}

/* Used by osc/mp and coll/mp as well: they are linked with this component. */
OMPI_DECLSPEC int mca_pml_mp_code(mp_error_t error);
OMPI_DECLSPEC size_t mca_pml_mp_pack(void* convertor, size_t offset, void* out, size_t bytes);
OMPI_DECLSPEC void mca_pml_mp_unpack(void* convertor, size_t offset, const void* in, size_t bytes);
OMPI_DECLSPEC uint64_t mca_pml_mp_name(const opal_process_name_t* name);

/* pml_mp_component.c: the core, with its questions to Open MPI; one line to the user if it cannot be had. */
bool mca_pml_mp_open_core(bool threads);
/* The progress thread, if pml_mp_async asks for it; again after `threads` has changed. */
bool mca_pml_mp_start_thread(void);
void mca_pml_mp_close_core(void);
/* The peer behind a rank; null: cannot be reached. */
mp_peer_t* mca_pml_mp_connect(ompi_proc_t* proc);
static inline mp_peer_t* mca_pml_mp_peer(ompi_communicator_t* comm, int rank) {
    ompi_proc_t* const proc = ompi_comm_peer_lookup(comm, rank);
    mp_peer_t* const peer = proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML];
    return OPAL_LIKELY(peer != NULL) ? peer : mca_pml_mp_connect(proc);
}

/* Processes of other jobs in a communicator that comes, or goes. With the lock.
 * False: no memory; the processes of a coming one are then never forgotten. */
bool mca_pml_mp_name_others(const ompi_communicator_t* comm, bool comes);

static inline mp_envelope_t mca_pml_mp_message(const ompi_communicator_t* comm, int tag) {
    return (mp_envelope_t){.context = mca_pml_mp_context(comm), .source = comm->c_my_rank, .tag = tag};
}
/* The same if it is connected, else null. */
static inline mp_peer_t* mca_pml_mp_known_peer(const ompi_communicator_t* comm, int rank) {
#if OMPI_GROUP_SPARSE
    (void)comm, (void)rank;
    return NULL;
#else
    ompi_proc_t* const proc = comm->c_remote_group->grp_proc_pointers[rank];
    return OPAL_LIKELY(!ompi_proc_is_sentinel(proc)) ? proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML] : NULL;
#endif
}

/* Polls of our own between two of Open MPI's full polls: it yields the processor there. */
enum { MP_POLLS = 64 };
static inline mp_envelope_t mca_pml_mp_pattern(const ompi_communicator_t* comm, int source, int tag) {
    return (mp_envelope_t){.context = mca_pml_mp_context(comm),
                           .source = source == MPI_ANY_SOURCE ? MP_ANY_SOURCE : source,
                           .tag = tag == MPI_ANY_TAG ? MP_ANY_TAG : tag};
}
int mca_pml_mp_progress(void);

/* pml_mp_probe.c */
int mca_pml_mp_iprobe(int source, int tag, ompi_communicator_t* comm, int* found, ompi_status_public_t* status);
int mca_pml_mp_improbe(int source, int tag, ompi_communicator_t* comm, int* found, struct ompi_message_t** message,
                       ompi_status_public_t* status);
int mca_pml_mp_probe(int source, int tag, ompi_communicator_t* comm, ompi_status_public_t* status);
int mca_pml_mp_mprobe(int source, int tag, ompi_communicator_t* comm, struct ompi_message_t** message,
                      ompi_status_public_t* status);

/* pml_mp_memory.c: UCX hears of memory that is given back */
void mca_pml_mp_watch_memory(void);
void mca_pml_mp_forget_memory(void);
/* Another number than before if memory may have been unmapped since. With the lock. */
uint64_t mca_pml_mp_unmapped(void* unused);

/* pml_mp_request.c */
OMPI_DECLSPEC mca_pml_mp_request_t* mca_pml_mp_new_request(ompi_communicator_t* comm, bool is_send,
                                                           mca_pml_mp_kind_t kind);
OMPI_DECLSPEC void mca_pml_mp_release_request(mca_pml_mp_request_t* request);
/* MP_KIND_HELD, active, retained. Sets only changed fields: it is the dearest part of a small message. */
mca_pml_mp_request_t* mca_pml_mp_first_held(void);
static inline mca_pml_mp_request_t* mca_pml_mp_new_held(ompi_communicator_t* comm) {
    mca_pml_mp_request_t* request = mca_pml_mp.free_held;
    if (OPAL_LIKELY(request != NULL))
        mca_pml_mp.free_held = request->next;
    else if ((request = mca_pml_mp_first_held()) == NULL)
        return NULL;
    request->super.req_complete = REQUEST_PENDING;
    request->super.req_state = OMPI_REQUEST_ACTIVE;
    request->super.req_complete_cb = NULL;
    request->super.req_mpi_object.comm = comm;
    request->active = true;
    OBJ_RETAIN(comm);
    return request;
}
/* Without threads: a receive of the program, active, known, retained. Null: there is none that has been used before. */
static inline mca_pml_mp_request_t* mca_pml_mp_new_receive(ompi_communicator_t* comm) {
    mca_pml_mp_request_t* const request = mca_pml_mp.free;
    if (OPAL_UNLIKELY(request == NULL)) return NULL;
    mca_pml_mp.free = request->next;
    request->kind = MP_KIND_ONCE;
    request->is_send = request->freed = false;
    request->known = request->retained = request->active = true;
    request->datatype = NULL;
    request->super.req_persistent = false;
    request->super.req_complete = REQUEST_PENDING;
    request->super.req_state = OMPI_REQUEST_ACTIVE;
    request->super.req_complete_cb = NULL;
    request->super.req_mpi_object.comm = comm;
    /* A caller that hears of an error among several requests frees all that show one, also an active one. */
    request->super.req_status.MPI_ERROR = MPI_SUCCESS;
    OBJ_RETAIN(comm);
    return request;
}
/* The program has it. Keeps communicator and datatype (if any) until the request is released: the user may free them
 * before. */
OMPI_DECLSPEC void mca_pml_mp_retain(mca_pml_mp_request_t* request, ompi_datatype_t* datatype);
/* The datatype of a started request, if it is still needed: contiguous data needs none. */
static inline void mca_pml_mp_retain_used(mca_pml_mp_request_t* request, ompi_datatype_t* datatype) {
    if (OPAL_LIKELY(!request->convertor_used)) return;
    request->datatype = datatype;
    OMPI_DATATYPE_RETAIN(datatype);
}
void mca_pml_mp_completed(void* unused, mp_request_t* core);
/* A request of the program is at its end: Open MPI is told, perhaps later. Called with the lock. */
OMPI_DECLSPEC void mca_pml_mp_end(mca_pml_mp_request_t* request);
/* Tells Open MPI of requests at their end. Not with the lock; then it does nothing. */
void mca_pml_mp_call_back(void);
/* A call that may have ended requests gives the lock back (those of messages to this process, say).
 * MPI_Testsome and its like look before they make progress, and not again: they are to see it. Requests with a
 * callback wait for progress, and hide none behind them: our caller may hold a lock that the callback takes. */
OMPI_DECLSPEC void mca_pml_mp_leave_among_threads(void);
static inline void mca_pml_mp_leave(void) {
    if (OPAL_UNLIKELY(mca_pml_mp.threads))
        mca_pml_mp_leave_among_threads();
    else
        mca_pml_mp_exit();
}
int mca_pml_mp_start(size_t count, ompi_request_t** requests);
int mca_pml_mp_set_bad_status(ompi_status_public_t* out, const mp_status_t* status);
static inline void mca_pml_mp_set_status(ompi_status_public_t* out, const mp_status_t* status) {
    out->_ucount = status->bytes;
    out->MPI_SOURCE = status->source;
    out->MPI_TAG = status->tag;
    out->_cancelled = 0;
    out->MPI_ERROR = OPAL_LIKELY(status->error == MP_OK) ? MPI_SUCCESS : mca_pml_mp_set_bad_status(out, status);
}
void mca_pml_mp_free_requests(void); /* at the end */
/* Returns requests at their end. With the lock, which is taken once. */
void mca_pml_mp_tell_waiting(void);

/* pml_mp_wait.c: a request with its status is complete, and its waiter is told. With the lock. */
OMPI_DECLSPEC void mca_pml_mp_tell(mca_pml_mp_waitable_t* request);
/* Makes progress until it is true. Not with the lock. */
OMPI_DECLSPEC void mca_pml_mp_wait_until(const bool* complete);
/* MPI_Waitall and its like are ours from now on, or not any more. */
void mca_pml_mp_wait_among_threads(void);
void mca_pml_mp_wait_as_before(void);
static inline bool mca_pml_mp_contiguous(const ompi_datatype_t* datatype, size_t count) {
    return count <= INT32_MAX && opal_datatype_is_contiguous_memory_layout(&datatype->super, (int32_t)count);
}
mp_data_t mca_pml_mp_prepare(mca_pml_mp_request_t* request, mp_data_t data, const void* buffer, size_t count,
                             ompi_datatype_t* datatype, bool send);
/* A message's contents; prepares the request's convertor if they are not contiguous. */
static inline mp_data_t mca_pml_mp_data(mca_pml_mp_request_t* request, const void* buffer, size_t count,
                                        ompi_datatype_t* datatype, bool send) {
    const mp_data_t data = {
        .buffer = (char*)buffer + datatype->super.true_lb, .bytes = count * datatype->super.size, .convertor = NULL};
    if (OPAL_LIKELY(mca_pml_mp_contiguous(datatype, count)) || data.bytes == 0) return data;
    return mca_pml_mp_prepare(request, data, buffer, count, datatype, send);
}

/* pml_mp_buffered.c: sends a copy; the user's request is complete with it. With the lock. */
int mca_pml_mp_send_buffered(const void* buffer, size_t count, ompi_datatype_t* datatype, mp_peer_t* peer, int tag,
                             ompi_communicator_t* comm);

/* pml_mp.c: starts a request by its fields */
int mca_pml_mp_start_send(mca_pml_mp_request_t* request, const void* buffer, size_t count, ompi_datatype_t* datatype,
                          int peer, int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t* comm, mp_hint_t hint);
void mca_pml_mp_start_receive(mca_pml_mp_request_t* request, void* buffer, size_t count, ompi_datatype_t* datatype,
                              int source, int tag, ompi_communicator_t* comm, mp_hint_t hint);

#endif
