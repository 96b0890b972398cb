/* Requests: made, completed, freed, started again. */
#include "pml_mp.h"

#include <stddef.h>

#include "ompi/errhandler/errcode-internal.h"

static int request_free(ompi_request_t** pointer);
static void release_held(mca_pml_mp_request_t* request);

static inline void release(mca_pml_mp_request_t* request) {
    if (OPAL_UNLIKELY(request->kind >= MP_KIND_HELD)) {
        if (request->kind == MP_KIND_HELD) {
            release_held(request);
            return;
        }
        mca_pml_mp.free_collective(request);
        request->super.req_start = mca_pml_mp_start;
        request->super.req_free = request_free; /* Open MPI puts one of its own before it */
    }
    if (request->retained) {
        ompi_communicator_t* comm = request->super.req_mpi_object.comm;
        if (OPAL_UNLIKELY(request->datatype != NULL)) OMPI_DATATYPE_RELEASE(request->datatype);
        OBJ_RELEASE(comm);
        request->retained = false;
    }
    OMPI_REQUEST_FINI(&request->super);
    request->kind = MP_KIND_NONE;
    request->next = mca_pml_mp.free;
    mca_pml_mp.free = request;
}

void mca_pml_mp_release_request(mca_pml_mp_request_t* request) { release(request); }

static int request_free(ompi_request_t** pointer) {
    mca_pml_mp_request_t* const request = (mca_pml_mp_request_t*)*pointer;
    *pointer = MPI_REQUEST_NULL;
    mca_pml_mp_lock();
    if (OPAL_UNLIKELY(request->active || request->completing))
        request->freed = true; /* its operation goes on; its end releases it */
    else
        release(request);
    mca_pml_mp_unlock();
    return OMPI_SUCCESS;
}

/* Sends are not cancelled: MPI leaves it to us (MPI-3.1 3.8.4), and the message may have been seen. */
static int request_cancel(ompi_request_t* base, int flag) {
    (void)flag;
    mca_pml_mp_request_t* const request = (mca_pml_mp_request_t*)base;
    mca_pml_mp_lock();
    if (request->active && !request->is_send) mp_core_cancel(mca_pml_mp.core, &request->core);
    mca_pml_mp_leave();
    return OMPI_SUCCESS;
}

static void construct(mca_pml_mp_request_t* request) {
    OMPI_REQUEST_INIT(&request->super, false);
    request->super.req_type = OMPI_REQUEST_PML;
    request->super.req_start = mca_pml_mp_start;
    request->super.req_free = request_free;
    request->super.req_cancel = request_cancel;
    request->kind = MP_KIND_NONE;
    request->freed = request->known = request->retained = request->active = request->convertor_used = false;
    request->completing = 0;
    request->waitable.waiter = NULL;
    request->buffer = NULL;
    request->datatype = NULL;
    OBJ_CONSTRUCT(&request->convertor, opal_convertor_t);
}

static void destruct(mca_pml_mp_request_t* request) { OBJ_DESTRUCT(&request->convertor); }

OBJ_CLASS_INSTANCE(mca_pml_mp_request_t, mca_pml_mp_waitable_t, construct, destruct);

mca_pml_mp_request_t* mca_pml_mp_new_request(ompi_communicator_t* comm, bool is_send, mca_pml_mp_kind_t kind) {
    mca_pml_mp_request_t* request = mca_pml_mp.free;
    if (OPAL_LIKELY(request != NULL)) {
        mca_pml_mp.free = request->next;
    } else {
        request = (mca_pml_mp_request_t*)opal_free_list_get(&mca_pml_mp.requests);
        if (request == NULL) return NULL;
    }
    request->kind = kind;
    request->is_send = is_send;
    request->freed = request->known = request->retained = request->active = false;
    const bool persistent = OPAL_UNLIKELY(kind == MP_KIND_PERSISTENT);
    request->super.req_persistent = persistent;
    request->super.req_complete = REQUEST_PENDING;
    request->super.req_state = OMPI_REQUEST_ACTIVE;
    if (persistent) {
        request->super.req_complete = REQUEST_COMPLETED;
        request->super.req_state = OMPI_REQUEST_INACTIVE;
    }
    request->super.req_complete_cb = NULL;
    request->super.req_complete_cb_data = NULL;
    request->super.req_mpi_object.comm = comm;
    if (is_send || persistent)
        request->super.req_status = ompi_status_empty;
    else /* its end sets the rest */
        request->super.req_status.MPI_ERROR = MPI_SUCCESS;
    return request;
}

void mca_pml_mp_retain(mca_pml_mp_request_t* request, ompi_datatype_t* datatype) {
    request->known = request->retained = true;
    OBJ_RETAIN(request->super.req_mpi_object.comm);
    request->datatype = datatype;
    if (datatype != NULL) OMPI_DATATYPE_RETAIN(datatype);
}

static void release_held(mca_pml_mp_request_t* request) {
    ompi_communicator_t* comm = request->super.req_mpi_object.comm;
    request->freed = false;
    OBJ_RELEASE(comm);
    OMPI_REQUEST_FINI(&request->super);
    request->super.req_status.MPI_ERROR = MPI_SUCCESS;
    request->next = mca_pml_mp.free_held;
    mca_pml_mp.free_held = request;
}

static int held_free(ompi_request_t** pointer) {
    mca_pml_mp_request_t* const request = (mca_pml_mp_request_t*)*pointer;
    *pointer = MPI_REQUEST_NULL;
    mca_pml_mp_lock();
    if (OPAL_UNLIKELY(request->active || request->completing))
        request->freed = true;
    else
        release_held(request);
    mca_pml_mp_unlock();
    return OMPI_SUCCESS;
}

mca_pml_mp_request_t* mca_pml_mp_first_held(void) {
    mca_pml_mp_request_t* const request = mca_pml_mp_new_request(NULL, true, MP_KIND_HELD);
    if (request == NULL) return NULL;
    request->super.req_free = held_free;
    request->known = request->retained = true;
    request->datatype = NULL;
    return request;
}

static void free_all(mca_pml_mp_request_t** first) {
    while (*first != NULL) {
        mca_pml_mp_request_t* const request = *first;
        *first = request->next;
        opal_free_list_return(&mca_pml_mp.requests, &request->super.super);
    }
}

void mca_pml_mp_free_requests(void) {
    free_all(&mca_pml_mp.free);
    free_all(&mca_pml_mp.free_held);
}

int mca_pml_mp_code(mp_error_t error) {
    switch (error) {
    case MP_TRUNCATED:
        return MPI_ERR_TRUNCATE;
    case MP_RANGE:
        return MPI_ERR_RMA_RANGE;
    case MP_FAILED:
        return mca_pml_mp.peer_failed;
    case MP_BROKEN: /* nobody is gone */
        return MPI_ERR_INTERN;
    case MP_CANCELLED:
    case MP_OK:
        break;
    }
    return MPI_SUCCESS;
}

/* The status of a request that got no message has the source and tag of its pattern. Returns the error's code. */
int mca_pml_mp_set_bad_status(ompi_status_public_t* out, const mp_status_t* status) {
    if (status->source == MP_ANY_SOURCE) out->MPI_SOURCE = MPI_ANY_SOURCE;
    if (status->tag == MP_ANY_TAG) out->MPI_TAG = MPI_ANY_TAG;
    out->_cancelled = status->error == MP_CANCELLED;
    return mca_pml_mp_code(status->error);
}

/* mca_pml_mp_end() for most requests: one thread, no callback, not freed before. */
static inline void end(mca_pml_mp_request_t* request) {
    if (OPAL_UNLIKELY(request->super.req_complete_cb != NULL || request->freed || mca_pml_mp.threads)) {
        mca_pml_mp_end(request);
        return;
    }
    request->active = false;
    ompi_request_complete(&request->super, request->known);
}

/* Called by the core, under the lock. */
void mca_pml_mp_completed(void* unused, mp_request_t* core) {
    (void)unused;
    mca_pml_mp_request_t* const request = (mca_pml_mp_request_t*)((char*)core - offsetof(mca_pml_mp_request_t, core));
    if (request->kind == MP_KIND_OWN) return;
    if (request->kind == MP_KIND_HELD) {
        if (OPAL_UNLIKELY(core->status.error != MP_OK))
            request->super.req_status.MPI_ERROR = mca_pml_mp_code(core->status.error);
        end(request);
        return;
    }
    if (request->convertor_used) {
        opal_convertor_cleanup(&request->convertor);
        request->convertor_used = false;
    }
    if (request->kind == MP_KIND_BUFFERED) {
        request->active = false;
        mca_pml_mp.buffered--;
        mca_pml_base_bsend_request_free(request->buffer);
        mca_pml_mp_release_request(request);
        return;
    }
    if (request->is_send)
        request->super.req_status.MPI_ERROR =
            core->status.error == MP_OK ? MPI_SUCCESS : mca_pml_mp_code(core->status.error);
    else
        mca_pml_mp_set_status(&request->super.req_status, &core->status);
    end(request);
}

/* A callback may wait for other messages, and may be set by another thread at any time. Requests of blocking calls have
 * none: nobody else knows them. */
void mca_pml_mp_end(mca_pml_mp_request_t* request) {
    if (OPAL_UNLIKELY(request->super.req_complete_cb != NULL ||
                      (mca_pml_mp.threads && request->known && !request->freed))) {
        request->active = true;
        /* A caller that waits for others, too, and hears of an error among them frees all that show one. */
        request->error = request->super.req_status.MPI_ERROR;
        request->super.req_status.MPI_ERROR = MPI_SUCCESS;
        request->next = NULL;
        *(mca_pml_mp.ended == NULL ? &mca_pml_mp.ended : &mca_pml_mp.last_ended->next) = request;
        mca_pml_mp.last_ended = request;
        return;
    }
    request->active = false;
    if (request->freed) {
        ompi_request_complete(&request->super, false);
        /* Another thread may still tell a persistent request's end before: it releases it then. */
        if (request->completing == 0) mca_pml_mp_release_request(request);
        return;
    }
    /* A blocking call looks at its request itself, if it is alone: nobody to wake. */
    ompi_request_complete(&request->super, request->known || mca_pml_mp.threads);
}

/* Those without a callback. Nobody frees what is in the queue. A callback that is set while its request becomes
 * complete is called by the thread that sets it, if that has seen the end. Else the request is still in the queue, for
 * progress.
 */
void mca_pml_mp_tell_waiting(void) {
    mca_pml_mp_request_t *last = NULL, **from = &mca_pml_mp.ended;
    while (*from != NULL) {
        mca_pml_mp_request_t* const request = *from;
        bool stays = request->super.req_complete_cb != NULL;
        if (!stays) {
            const bool again = request->super.req_persistent; /* may be started at once */
            *from = request->next;
            request->active = false;
            request->super.req_status.MPI_ERROR = request->error;
            mca_pml_mp_tell(&request->waitable);
            stays = !again && request->super.req_complete_cb != NULL;
            if (stays) {
                request->active = true;
                *from = request;
            } else if (request->freed && request->completing == 0) {
                mca_pml_mp_release_request(request);
            }
        }
        if (!stays) continue;
        last = request;
        from = &request->next;
    }
    mca_pml_mp.last_ended = last;
}

/* The first request at its end that has a callback, behind the one before it: whose callback
 * may have left it to be completed, and which may be released then. A persistent request may
 * be started again, and end, before the thread that has told its last end is back. */
static mca_pml_mp_request_t* take_ended(mca_pml_mp_request_t* before, bool completes) {
    mca_pml_mp_lock();
    if (before != NULL) {
        if (completes) mca_pml_mp_tell(&before->waitable);
        if (--before->completing == 0 && before->freed && !before->active) mca_pml_mp_release_request(before);
    }
    mca_pml_mp_request_t* request = NULL;
    if (mp_turn_depth(&mca_pml_mp.turn) <= 1) {
        mca_pml_mp_tell_waiting();
        request = mca_pml_mp.ended;
    }
    if (request != NULL) {
        mca_pml_mp.ended = request->next;
        request->active = false;
        request->completing++;
    }
    mca_pml_mp_unlock();
    return request;
}

/* True: it has not been started again, or freed. */
static bool call(ompi_request_t* request) {
    const ompi_request_complete_fn_t callback = request->req_complete_cb;
    request->req_complete_cb = NULL; /* the callback may set another one */
    return callback == NULL || callback(request) == 0;
}

/* One at a time: a callback may wait for the next request. A request
 * that is complete already got its callback when it became so. */
void mca_pml_mp_call_back(void) {
    mca_pml_mp_request_t* request = NULL;
    bool completes = false;
    while ((request = take_ended(request, completes)) != NULL) {
        const bool complete = REQUEST_COMPLETE(&request->super);
        if (!complete) request->super.req_status.MPI_ERROR = request->error;
        completes = call(&request->super) && !complete;
    }
}

void mca_pml_mp_leave_among_threads(void) {
    if (mca_pml_mp.ended != NULL && mp_turn_depth(&mca_pml_mp.turn) == 1) mca_pml_mp_tell_waiting();
    mca_pml_mp_unlock();
}

mp_data_t mca_pml_mp_prepare(mca_pml_mp_request_t* request, mp_data_t data, const void* buffer, size_t count,
                             ompi_datatype_t* datatype, bool send) {
    opal_convertor_t* const local = ompi_proc_local()->super.proc_convertor;
    if (send)
        opal_convertor_copy_and_prepare_for_send(local, &datatype->super, count, buffer, 0, &request->convertor);
    else
        opal_convertor_copy_and_prepare_for_recv(local, &datatype->super, count, buffer, 0, &request->convertor);
    data.buffer = (void*)buffer;
    data.convertor = &request->convertor;
    request->convertor_used = true;
    return data;
}

static inline size_t convert(bool packs, opal_convertor_t* convertor, size_t offset, void* data, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        struct iovec part = {.iov_base = (char*)data + done, .iov_len = bytes - done};
        uint32_t parts = 1;
        size_t length = part.iov_len, position = offset + done;
        if (convertor->bConverted != position) opal_convertor_set_position(convertor, &position);
        const int32_t result = packs ? opal_convertor_pack(convertor, &part, &parts, &length)
                                     : opal_convertor_unpack(convertor, &part, &parts, &length);
        if (result < 0 || length == 0) break;
        done += length;
    }
    return done;
}

size_t mca_pml_mp_pack(void* convertor, size_t offset, void* out, size_t bytes) {
    return convert(true, convertor, offset, out, bytes);
}

void mca_pml_mp_unpack(void* convertor, size_t offset, const void* in, size_t bytes) {
    (void)convert(false, convertor, offset, (void*)in, bytes);
}

/* Persistent requests; refuses others that MPI_Start is given by mistake. */
int mca_pml_mp_start(size_t count, ompi_request_t** requests) {
    int first_error = OMPI_SUCCESS;
    for (size_t i = 0; i < count; i++) {
        if (requests[i] == NULL || requests[i]->req_type != OMPI_REQUEST_PML) continue;
        mca_pml_mp_request_t* const request = (mca_pml_mp_request_t*)requests[i];
        if (request->kind != MP_KIND_PERSISTENT || request->active) return OMPI_ERR_REQUEST;
        ompi_communicator_t* const comm = request->super.req_mpi_object.comm;
        request->super.req_complete = REQUEST_PENDING;
        request->super.req_state = OMPI_REQUEST_ACTIVE;
        request->super.req_status = ompi_status_empty;
        mca_pml_mp_lock();
        int result = OMPI_SUCCESS;
        if (request->is_send)
            result = mca_pml_mp_start_send(request, request->buffer, request->count, request->datatype, request->peer,
                                           request->tag, request->mode, comm, MP_HINT_NON_BLOCKING);
        else
            mca_pml_mp_start_receive(request, request->buffer, request->count, request->datatype, request->peer,
                                     request->tag, comm, MP_HINT_NON_BLOCKING);
        if (OPAL_UNLIKELY(result != OMPI_SUCCESS)) {
            /* MPI_Startall ignores our result: the request has it, for its wait. */
            request->super.req_status.MPI_ERROR = ompi_errcode_get_mpi_code(result);
            mca_pml_mp_end(request);
            first_error = first_error == OMPI_SUCCESS ? result : first_error;
        }
        mca_pml_mp_leave();
    }
    return first_error;
}
