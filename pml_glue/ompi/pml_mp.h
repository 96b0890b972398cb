/*
 * pml/mp for Open MPI: joins the core (pml_glue/core/mp_core.h) with Open MPI's requests, datatypes, communicators
 * and modex. C, since Open MPI's internal headers are C. What is not the same in each series of it is in series.h of
 * pml_glue/ompi4 and pml_glue/ompi5.
 *
 * Threads: with MPI_THREAD_MULTIPLE every call of the core is under one lock, which is recursive: what completes may
 * start operations. Nobody waits with the lock held.
 */
#ifndef UCX_MP_PML_GLUE_OMPI_PML_MP_H
#define UCX_MP_PML_GLUE_OMPI_PML_MP_H

#include "ompi_config.h"

#include <pthread.h>

#include "ompi/communicator/communicator.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/mca/pml/base/base.h"
#include "ompi/mca/pml/base/pml_base_bsend.h"
#include "ompi/mca/pml/pml.h"
#include "ompi/message/message.h"
#include "ompi/proc/proc.h"
#include "ompi/request/request.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/runtime/opal_progress.h"
#include "pml_glue/core/mp_core.h"
#include "series.h"

/* What a request is for. */
typedef enum mca_pml_mp_kind {
    MP_KIND_NONE, /* in the free list */
    MP_KIND_ONCE, /* of the user, or of a blocking call */
    MP_KIND_PERSISTENT,
    MP_KIND_OWN,     /* of a blocking call that looks at the core's request: Open MPI does not know it */
    MP_KIND_BUFFERED /* ours: sends a copy out of the user's buffer for MPI_Bsend */
} mca_pml_mp_kind_t;

typedef struct mca_pml_mp_request {
    ompi_request_t super;
    mp_request_storage_t core;
    mca_pml_mp_kind_t kind;
    bool is_send, freed, retained, active, convertor_used;
    opal_convertor_t convertor;
    /* of a persistent request, for the next start; `buffer` also of MP_KIND_BUFFERED */
    void* buffer;
    size_t count;
    ompi_datatype_t* datatype;
    int peer, tag;
    mca_pml_base_send_mode_t mode;
    struct mca_pml_mp_request* next_deferred;
} mca_pml_mp_request_t;
OBJ_CLASS_DECLARATION(mca_pml_mp_request_t);

typedef struct mca_pml_mp_module {
    mca_pml_base_module_t super;
    mp_core_t* core;
    opal_free_list_t requests;
    mca_pml_mp_request_t own; /* MP_KIND_OWN */
    bool own_used;
    ompi_request_t sent; /* complete: of sends that have left at once */
    pthread_mutex_t lock;
    bool threads;
    bool marked;                         /* coll/mp tells who is in a collective operation */
    bool memory_open, watching;          /* pml_mp_memory.c */
    struct mca_pml_mp_request* deferred; /* complete, but for a callback that may wait: not from within the core */
    unsigned buffered;                   /* copies for MPI_Bsend that are under way */
    uint64_t collectives;                /* operations that coll/mp has told of */
    /* MCA parameters */
    char *transports, *local, *rendezvous, *eager_limit, *zero_copy;
    size_t hint_limit;
    unsigned watch_interval; /* ms */
    bool statistics;
    int priority;
} mca_pml_mp_module_t;
OMPI_DECLSPEC extern mca_pml_mp_module_t mca_pml_mp;

OMPI_DECLSPEC extern mca_pml_base_component_t mca_pml_mp_component;

static inline void mca_pml_mp_lock(void) {
    if (mca_pml_mp.threads) pthread_mutex_lock(&mca_pml_mp.lock);
}
static inline void mca_pml_mp_unlock(void) {
    if (mca_pml_mp.threads) pthread_mutex_unlock(&mca_pml_mp.lock);
}

/* coll/mp: this thread is in so many collective operations, one in another. */
OMPI_DECLSPEC extern _Thread_local unsigned mca_pml_mp_in_collective;
static inline void mca_pml_mp_enter_collective(void) {
    mca_pml_mp_in_collective++;
    mca_pml_mp.collectives++; /* for statistics: threads may lose one */
}
static inline void mca_pml_mp_leave_collective(void) { mca_pml_mp_in_collective--; }

/* What osc/mp uses as well: it is linked with this component. */
OMPI_DECLSPEC int mca_pml_mp_code(mp_error_t error);
OMPI_DECLSPEC size_t mca_pml_mp_pack(void* convertor, size_t offset, void* out, size_t bytes);
OMPI_DECLSPEC void mca_pml_mp_unpack(void* convertor, size_t offset, const void* in, size_t bytes);
OMPI_DECLSPEC uint64_t mca_pml_mp_name(const opal_process_name_t* name);

/* pml_mp_component.c: the core, with what it asks of Open MPI; one line to the user if it cannot be had. */
bool mca_pml_mp_open_core(bool threads);
void mca_pml_mp_close_core(void);
/* The peer behind a rank; null: cannot be reached. */
mp_peer_t* mca_pml_mp_connect(ompi_proc_t* proc);
static inline mp_peer_t* mca_pml_mp_peer(ompi_communicator_t* comm, int rank) {
    ompi_proc_t* const proc = ompi_comm_peer_lookup(comm, rank);
    mp_peer_t* const peer = proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML];
    return OPAL_LIKELY(peer != NULL) ? peer : mca_pml_mp_connect(proc);
}

/* pml_mp_memory.c: UCX hears of memory that is given back */
void mca_pml_mp_watch_memory(void);
void mca_pml_mp_forget_memory(void);

/* pml_mp_request.c */
mca_pml_mp_request_t* mca_pml_mp_new_request(ompi_communicator_t* comm, bool is_send, mca_pml_mp_kind_t kind);
void mca_pml_mp_release_request(mca_pml_mp_request_t* request);
/* Keeps communicator and datatype until the request is released: the user may free them before. */
void mca_pml_mp_retain(mca_pml_mp_request_t* request, ompi_datatype_t* datatype);
void mca_pml_mp_completed(void* unused, mp_request_t* core);
void mca_pml_mp_call_back(void);
int mca_pml_mp_start(size_t count, ompi_request_t** requests);
void mca_pml_mp_set_status(ompi_status_public_t* out, const mp_status_t* status);
/* What a message's contents are; prepares the request's convertor if they are not contiguous. */
mp_data_t mca_pml_mp_data(mca_pml_mp_request_t* request, const void* buffer, size_t count, ompi_datatype_t* datatype,
                          bool send);
static inline bool mca_pml_mp_contiguous(const ompi_datatype_t* datatype, size_t count) {
    return count <= INT32_MAX && opal_datatype_is_contiguous_memory_layout(&datatype->super, (int32_t)count);
}

/* pml_mp.c: starts what a request says */
int mca_pml_mp_start_send(mca_pml_mp_request_t* request, const void* buffer, size_t count, ompi_datatype_t* datatype,
                          int peer, int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t* comm, mp_hint_t hint);
void mca_pml_mp_start_receive(mca_pml_mp_request_t* request, void* buffer, size_t count, ompi_datatype_t* datatype,
                              int source, int tag, ompi_communicator_t* comm, mp_hint_t hint);

#endif
