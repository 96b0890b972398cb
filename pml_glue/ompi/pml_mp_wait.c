/*
 * Waiting for several requests among threads, instead of Open MPI's functions for it.
 *
 * Those hang one object of the waiting thread to all its requests, and every thread that completes one of them updates
 * it. An error ends the wait, though other threads may be about to update the object, which is on a stack that is left:
 * a peer that is gone fails many requests at a time. (4.1 also waits for ever if one has failed before.) Here the
 * object hangs at the requests by a member of ours, is told once, with the lock, and is taken from all of them with it.
 *
 * Left: a request that MPI_Waitall calls pending, and that fails before Open
 * MPI's error handler looks at it, is freed there, and nobody hears of its error.
 */
#include "pml_mp.h"

#include <stddef.h>

/* Its parent has the fields that Open MPI reads before it lets operators and types go. */
OBJ_CLASS_INSTANCE(mca_pml_mp_waitable_t, ompi_coll_base_nbc_request_t, NULL, NULL);

struct mca_pml_mp_waiter {
    ompi_wait_sync_t sync;
    size_t missing; /* requests that still have to end */
    bool told;
};

static ompi_request_fns_t others; /* functions, before ours */
static bool installed;

/* Null: not of our modules. */
static mca_pml_mp_waitable_t* waitable(ompi_request_t* request) {
    const bool ours = ((opal_object_t*)request)->obj_class->cls_parent == OBJ_CLASS(mca_pml_mp_waitable_t);
    return ours ? (mca_pml_mp_waitable_t*)request : NULL;
}

void mca_pml_mp_tell(mca_pml_mp_waitable_t* request) {
    const int error = request->super.req_status.MPI_ERROR; /* behind the exchange the request may be started again */
    mca_pml_mp_waiter_t* const waiter = request->waiter;
    request->waiter = NULL;
    ompi_wait_sync_t* const alone =
        (ompi_wait_sync_t*)OPAL_ATOMIC_SWAP_PTR(&request->super.req_complete, REQUEST_COMPLETED);
    if ((void*)alone != REQUEST_PENDING) wait_sync_update(alone, 1, error);
    if (OPAL_LIKELY(waiter == NULL) || waiter->told) return;
    if (--waiter->missing > 0 && error == MPI_SUCCESS) return;
    waiter->told = true;
    wait_sync_update(&waiter->sync, 1, OPAL_SUCCESS);
}

/* Blocking messages wait in the same way (pml_mp.c): polls of our own between two of Open MPI's full polls. */
void mca_pml_mp_wait_until(const bool* complete) {
    for (int i = 1; !__atomic_load_n(complete, __ATOMIC_ACQUIRE); i++) {
        (void)mca_pml_mp_progress();
        if (i % MP_POLLS == 0 && !__atomic_load_n(complete, __ATOMIC_ACQUIRE)) opal_progress();
    }
}

typedef struct {
    size_t pending, complete;
    bool failed, foreign; /* foreign: one of another module that is not complete, or of the program */
} mca_pml_mp_found_t;

static mca_pml_mp_found_t look_at(size_t count, ompi_request_t** requests) {
    mca_pml_mp_found_t found = {0, 0, false, false};
    for (size_t i = 0; i < count; i++) {
        if (requests[i]->req_state == OMPI_REQUEST_INACTIVE) continue;
        if (REQUEST_COMPLETE(requests[i]) && requests[i]->req_type != OMPI_REQUEST_GEN) {
            found.complete++;
            found.failed |= requests[i]->req_status.MPI_ERROR != MPI_SUCCESS;
        } else if (waitable(requests[i]) != NULL) {
            found.pending++;
        } else {
            found.foreign = true;
        }
    }
    opal_atomic_rmb(); /* their received data is there */
    return found;
}

static bool is_over(const mca_pml_mp_found_t* found, bool any) {
    return found->pending == 0 || (any ? found->complete > 0 : found->failed);
}

/* Until one has ended (`any`), or all have, or one has failed. */
static void wait_until(size_t count, ompi_request_t** requests, bool any) {
    mca_pml_mp_waiter_t waiter = {.told = false};
    WAIT_SYNC_INIT(&waiter.sync, 1);
    mca_pml_mp_lock();
    mca_pml_mp_tell_waiting();
    const mca_pml_mp_found_t found = look_at(count, requests);
    const bool over = is_over(&found, any);
    waiter.missing = any ? 1 : found.pending;
    for (size_t i = 0; i < count && !over; i++)
        if (requests[i]->req_state != OMPI_REQUEST_INACTIVE && !REQUEST_COMPLETE(requests[i]))
            waitable(requests[i])->waiter = &waiter;
    mca_pml_mp_unlock();
    if (over) {
        WAIT_SYNC_RELEASE_NOWAIT(&waiter.sync);
        return;
    }
    SYNC_WAIT(&waiter.sync);
    mca_pml_mp_lock();
    for (size_t i = 0; i < count; i++) {
        mca_pml_mp_waitable_t* const request = waitable(requests[i]);
        if (request != NULL && request->waiter == &waiter) request->waiter = NULL;
    }
    mca_pml_mp_unlock();
    WAIT_SYNC_RELEASE(&waiter.sync);
}

/* False: for the functions before ours. */
static bool wait_among_ours(size_t count, ompi_request_t** requests, bool any) {
    mca_pml_mp_found_t found = look_at(count, requests);
    if (found.foreign) return false;
    if (!is_over(&found, any)) wait_until(count, requests, any);
    if (any) return true;
    /* Other requests that the failure has ended are told in the next progress: MPI_Waitall says so at once. */
    found = look_at(count, requests);
    if (OPAL_UNLIKELY(found.failed && found.pending > 0)) opal_progress();
    return true;
}

/* Gives a complete request back to the program. Returns its error. */
static int give_back(ompi_request_t** pointer, ompi_status_public_t* status, bool with_error) {
    ompi_request_t* const request = *pointer;
    const int error = request->req_status.MPI_ERROR;
    if (status != MPI_STATUS_IGNORE) OMPI_COPY_STATUS(status, request->req_status, with_error);
    if (request->req_persistent)
        request->req_state = OMPI_REQUEST_INACTIVE;
    else if (error == MPI_SUCCESS) /* Open MPI looks at the others, and frees them then */
        (void)ompi_request_free(pointer);
    return error;
}

static int wait_all(size_t count, ompi_request_t** requests, ompi_status_public_t* statuses) {
    if (!wait_among_ours(count, requests, false)) return others.req_wait_all(count, requests, statuses);
    int result = OMPI_SUCCESS;
    for (size_t i = 0; i < count; i++) {
        ompi_status_public_t* const status = statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[i];
        if (requests[i]->req_state == OMPI_REQUEST_INACTIVE) {
            if (status != MPI_STATUS_IGNORE) OMPI_COPY_STATUS(status, ompi_status_empty, true);
        } else if (OPAL_UNLIKELY(!REQUEST_COMPLETE(requests[i]))) {
            if (status != MPI_STATUS_IGNORE) status->MPI_ERROR = MPI_ERR_PENDING;
            result = MPI_ERR_IN_STATUS;
        } else if (give_back(&requests[i], status, true) != MPI_SUCCESS) {
            result = MPI_ERR_IN_STATUS;
        }
    }
    return result;
}

static int wait_any(size_t count, ompi_request_t** requests, int* index, ompi_status_public_t* status) {
    if (!wait_among_ours(count, requests, true)) return others.req_wait_any(count, requests, index, status);
    for (size_t i = 0; i < count; i++) {
        if (requests[i]->req_state == OMPI_REQUEST_INACTIVE || !REQUEST_COMPLETE(requests[i])) continue;
        *index = (int)i;
        return give_back(&requests[i], status, false);
    }
    *index = MPI_UNDEFINED;
    if (status != MPI_STATUS_IGNORE) OMPI_COPY_STATUS(status, ompi_status_empty, false);
    return OMPI_SUCCESS;
}

static int wait_some(size_t count, ompi_request_t** requests, int* out, int* indices, ompi_status_public_t* statuses) {
    if (!wait_among_ours(count, requests, true)) return others.req_wait_some(count, requests, out, indices, statuses);
    int result = OMPI_SUCCESS, ended = 0;
    for (size_t i = 0; i < count; i++) {
        if (requests[i]->req_state == OMPI_REQUEST_INACTIVE || !REQUEST_COMPLETE(requests[i])) continue;
        ompi_status_public_t* const status = statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[ended];
        indices[ended++] = (int)i;
        if (give_back(&requests[i], status, true) != MPI_SUCCESS) result = MPI_ERR_IN_STATUS;
    }
    *out = ended == 0 ? MPI_UNDEFINED : ended;
    return result;
}

void mca_pml_mp_wait_among_threads(void) {
    if (installed) return;
    installed = true;
    others = ompi_request_functions;
    ompi_request_functions.req_wait_all = wait_all;
    ompi_request_functions.req_wait_any = wait_any;
    ompi_request_functions.req_wait_some = wait_some;
}

void mca_pml_mp_wait_as_before(void) {
    if (!installed) return;
    ompi_request_functions = others;
    installed = false;
}
