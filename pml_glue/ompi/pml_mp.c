/* The module: MPI calls it. */
#include "pml_mp.h"

_Thread_local unsigned mca_pml_mp_in_collective;

static __attribute__((noinline)) int progress_among_threads(void) {
    if (!mca_pml_mp_try_lock()) return 0; /* another thread makes it */
    const int found = (int)mp_core_progress(mca_pml_mp.core);
    const bool callbacks = mca_pml_mp.ended != NULL;
    mca_pml_mp_unlock();
    if (OPAL_UNLIKELY(callbacks)) mca_pml_mp_call_back();
    return found + callbacks; /* a caller that looks for a request looks again */
}

int mca_pml_mp_progress(void) {
    if (mca_pml_mp.threads) return progress_among_threads();
    mca_pml_mp_enter();
    const int found = (int)mp_core_progress(mca_pml_mp.core);
    mca_pml_mp_exit();
    if (OPAL_UNLIKELY(mca_pml_mp.ended != NULL)) mca_pml_mp_call_back();
    return found;
}

static void wait_for(mca_pml_mp_request_t* request) {
    if (mca_pml_mp.threads) {
        ompi_request_wait_completion(&request->super);
        return;
    }
    while (!REQUEST_COMPLETE(&request->super)) {
        for (int i = 0; i < MP_POLLS; i++) {
            (void)mca_pml_mp_progress();
            if (REQUEST_COMPLETE(&request->super)) return;
        }
        opal_progress();
    }
}

/* A blocking call has its request for itself, and looks into it: nothing of Open MPI's is made, completed or freed.
 * Null: there are threads, or another one is open (we are in a callback, which waits). */
static mca_pml_mp_request_t* own_request(bool is_send) {
    mca_pml_mp_request_t* const request = &mca_pml_mp.own;
    if (OPAL_UNLIKELY(mca_pml_mp.threads || mca_pml_mp.own_used)) return NULL;
    mca_pml_mp.own_used = true;
    request->kind = MP_KIND_OWN;
    request->is_send = is_send;
    return request;
}

static void leave_own(void) {
    mca_pml_mp_request_t* const request = &mca_pml_mp.own;
    if (request->convertor_used) opal_convertor_cleanup(&request->convertor);
    request->convertor_used = false;
    mca_pml_mp.own_used = false;
}

static int wait_for_own(ompi_status_public_t* status) {
    const mp_request_t* const request = &mca_pml_mp.own.core.request;
    for (int i = 1; !request->complete; i++) {
        (void)mca_pml_mp_progress();
        if (i % MP_POLLS == 0 && !request->complete) opal_progress();
    }
    leave_own();
    if (status != MPI_STATUS_IGNORE) {
        ompi_status_public_t said;
        mca_pml_mp_set_status(&said, &request->status);
        OMPI_COPY_STATUS(status, said, false);
    }
    return mca_pml_mp_code(request->status.error);
}

static int add_procs(struct ompi_proc_t** procs, size_t count) {
    /* Connections are made by the first message. */
    return mca_pml_base_pml_check_selected("mp", procs, count);
}

static int del_procs(struct ompi_proc_t** procs, size_t count) {
    for (size_t i = 0; i < count; i++) procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML] = NULL;
    return OMPI_SUCCESS;
}

static int enable(bool on) {
    if (on) mca_pml_mp.peer_failed = mca_pml_mp_add_peer_failed();
    return OMPI_SUCCESS;
}

/* Messages of communicators that are not known yet are found when their receives come: they are kept by context. With
 * 5.0 a session may have selected us before MPI_Init_thread() asks for threads; its communicators come after that. */
static int add_comm(struct ompi_communicator_t* comm) {
    if (ompi_mpi_thread_multiple && !mca_pml_mp.threads) {
        mp_core_stop_thread(mca_pml_mp.core); /* its turns are others then */
        mca_pml_mp.threads = true;
        if (!mca_pml_mp_start_thread()) return OMPI_ERROR;
    }
    if (mca_pml_mp.threads) mca_pml_mp_wait_among_threads();
    mca_pml_mp_lock();
    const bool named = mca_pml_mp_name_others(comm, true);
    mca_pml_mp_unlock();
    return named ? OMPI_SUCCESS : OMPI_ERR_OUT_OF_RESOURCE;
}

static int del_comm(struct ompi_communicator_t* comm) {
    if (mca_pml_mp.core == NULL) return OMPI_SUCCESS;
    mca_pml_mp_lock();
    mp_core_drop(mca_pml_mp.core, mca_pml_mp_context(comm));
    (void)mca_pml_mp_name_others(comm, false);
    mca_pml_mp_unlock();
    return OMPI_SUCCESS;
}

int mca_pml_mp_start_send(mca_pml_mp_request_t* request, const void* buffer, size_t count, ompi_datatype_t* datatype,
                          int rank, int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t* comm, mp_hint_t hint) {
    mp_peer_t* const peer = mca_pml_mp_peer(comm, rank);
    if (OPAL_UNLIKELY(peer == NULL)) return OMPI_ERR_UNREACH;
    if (OPAL_UNLIKELY(mode == MCA_PML_BASE_SEND_BUFFERED)) {
        const int result = mca_pml_mp_send_buffered(buffer, count, datatype, peer, tag, comm);
        if (result == OMPI_SUCCESS) mca_pml_mp_end(request);
        return result;
    }
    const mp_data_t data = mca_pml_mp_data(request, buffer, count, datatype, true);
    request->active = true;
    mp_core_send(mca_pml_mp.core, &request->core, peer, mca_pml_mp_message(comm, tag), data,
                 mode == MCA_PML_BASE_SEND_SYNCHRONOUS, mca_pml_mp_hint(tag, data.bytes, hint));
    return OMPI_SUCCESS;
}

void mca_pml_mp_start_receive(mca_pml_mp_request_t* request, void* buffer, size_t count, ompi_datatype_t* datatype,
                              int source, int tag, ompi_communicator_t* comm, mp_hint_t hint) {
    const mp_data_t data = mca_pml_mp_data(request, buffer, count, datatype, false);
    request->active = true;
    mp_core_receive(mca_pml_mp.core, &request->core, mca_pml_mp_pattern(comm, source, tag), data,
                    mca_pml_mp_hint(tag, data.bytes, hint));
}

/* Contiguous, and its envelope fits into 64 bits: may leave without a request. */
static inline bool is_plain(size_t count, const ompi_datatype_t* datatype, int tag, mca_pml_base_send_mode_t mode,
                            const ompi_communicator_t* comm) {
    return mode != MCA_PML_BASE_SEND_SYNCHRONOUS && mode != MCA_PML_BASE_SEND_BUFFERED &&
           mca_pml_mp_contiguous(datatype, count) && mp_fits_compact(mca_pml_mp_context(comm), comm->c_my_rank, tag);
}

/* Small, and there is room: has left without a request. Called with the lock. */
static inline bool send_now(const void* buffer, size_t count, ompi_datatype_t* datatype, int tag,
                            mca_pml_base_send_mode_t mode, ompi_communicator_t* comm, mp_peer_t* peer, bool waits) {
    const uint32_t context = mca_pml_mp_context(comm);
    if (!is_plain(count, datatype, tag, mode, comm)) return false;
    return mp_core_send_now(mca_pml_mp.core, peer, mp_compact(context, comm->c_my_rank, tag),
                            (const char*)buffer + datatype->super.true_lb, count * datatype->super.size, waits);
}

/* Nearly all small messages: one thread, and a peer that we have sent something to. */
static inline bool send_at_once(const void* buffer, size_t count, ompi_datatype_t* datatype, int rank, int tag,
                                mca_pml_base_send_mode_t mode, ompi_communicator_t* comm) {
    if (OPAL_UNLIKELY(mca_pml_mp.threads)) return false;
    mca_pml_mp_enter(); /* first: a peer may be forgotten */
    mp_peer_t* const peer = mca_pml_mp_known_peer(comm, rank);
    const bool left = OPAL_LIKELY(peer != NULL) && send_now(buffer, count, datatype, tag, mode, comm, peer, true);
    mca_pml_mp_exit();
    return left;
}

/* One of many small messages: leaves with others. Null: it does not. */
static inline ompi_request_t* hold_back(const void* data, size_t bytes, uint64_t compact, ompi_communicator_t* comm,
                                        mp_peer_t* peer) {
    mca_pml_mp_request_t* const request = mca_pml_mp_new_held(comm);
    if (OPAL_UNLIKELY(request == NULL)) return NULL;
    if (OPAL_LIKELY(mp_core_hold(mca_pml_mp.core, &request->core, peer, compact, data, bytes))) return &request->super;
    mca_pml_mp_release_request(request);
    return NULL;
}

static __attribute__((noinline)) int isend_slowly(const void* buffer, size_t count, ompi_datatype_t* datatype, int rank,
                                                  int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t* comm,
                                                  ompi_request_t** out) {
    mca_pml_mp_lock();
    mp_peer_t* const peer = mca_pml_mp_peer(comm, rank);
    int result = OMPI_SUCCESS;
    if (OPAL_UNLIKELY(peer == NULL)) {
        result = OMPI_ERR_UNREACH;
    } else if (mca_pml_mp.threads && tag >= 0 && send_now(buffer, count, datatype, tag, mode, comm, peer, false)) {
        /* Not the library's own request: their senders may write to the request. */
        *out = &mca_pml_mp.sent;
    } else if (mode == MCA_PML_BASE_SEND_BUFFERED) {
        result = mca_pml_mp_send_buffered(buffer, count, datatype, peer, tag, comm);
        if (result == OMPI_SUCCESS) *out = &mca_pml_mp.sent;
    } else {
        mca_pml_mp_request_t* const request = mca_pml_mp_new_request(comm, true, MP_KIND_ONCE);
        if (request == NULL) {
            result = OMPI_ERR_OUT_OF_RESOURCE;
        } else {
            mca_pml_mp_retain(request, NULL);
            *out = &request->super;
            result =
                mca_pml_mp_start_send(request, buffer, count, datatype, rank, tag, mode, comm, MP_HINT_NON_BLOCKING);
            mca_pml_mp_retain_used(request, datatype);
        }
    }
    mca_pml_mp_leave();
    return result;
}

static int isend(const void* buffer, size_t count, ompi_datatype_t* datatype, int rank, int tag,
                 mca_pml_base_send_mode_t mode, ompi_communicator_t* comm, ompi_request_t** out) {
    if (OPAL_LIKELY(!mca_pml_mp.threads)) {
        mca_pml_mp_enter();
        ompi_request_t* left = NULL;
        mp_peer_t* const peer = mca_pml_mp_known_peer(comm, rank);
        if (OPAL_LIKELY(peer != NULL && is_plain(count, datatype, tag, mode, comm))) {
            const uint64_t compact = mp_compact(mca_pml_mp_context(comm), comm->c_my_rank, tag);
            const char* const data = (const char*)buffer + datatype->super.true_lb;
            const size_t bytes = count * datatype->super.size;
            if (mp_core_send_now(mca_pml_mp.core, peer, compact, data, bytes, false))
                left = &mca_pml_mp.sent;
            else if (bytes <= MP_HELD_MOST)
                left = hold_back(data, bytes, compact, comm, peer);
        }
        mca_pml_mp_exit();
        if (OPAL_LIKELY(left != NULL)) {
            *out = left;
            return OMPI_SUCCESS;
        }
    }
    return isend_slowly(buffer, count, datatype, rank, tag, mode, comm, out);
}

static __attribute__((noinline)) int send_slowly(const void* buffer, size_t count, ompi_datatype_t* datatype, int rank,
                                                 int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t* comm) {
    mca_pml_mp_lock();
    mp_peer_t* const peer = mca_pml_mp_peer(comm, rank);
    mca_pml_mp_request_t* request = NULL;
    int result = OMPI_SUCCESS;
    if (OPAL_UNLIKELY(peer == NULL)) {
        result = OMPI_ERR_UNREACH;
    } else if (send_now(buffer, count, datatype, tag, mode, comm, peer, true)) {
    } else if (mode == MCA_PML_BASE_SEND_BUFFERED) {
        result = mca_pml_mp_send_buffered(buffer, count, datatype, peer, tag, comm);
    } else if ((request = own_request(true)) != NULL) {
        result = mca_pml_mp_start_send(request, buffer, count, datatype, rank, tag, mode, comm, MP_HINT_BLOCKING);
        mca_pml_mp_leave();
        if (result == OMPI_SUCCESS) return wait_for_own(MPI_STATUS_IGNORE);
        leave_own();
        return result;
    } else {
        request = mca_pml_mp_new_request(comm, true, MP_KIND_ONCE);
        result = request == NULL
                     ? OMPI_ERR_OUT_OF_RESOURCE
                     : mca_pml_mp_start_send(request, buffer, count, datatype, rank, tag, mode, comm, MP_HINT_BLOCKING);
    }
    mca_pml_mp_leave();
    if (request == NULL) return result;
    if (result == OMPI_SUCCESS) {
        wait_for(request);
        result = request->super.req_status.MPI_ERROR;
    }
    mca_pml_mp_lock();
    mca_pml_mp_release_request(request);
    mca_pml_mp_leave();
    return result;
}

static int send_and_wait(const void* buffer, size_t count, ompi_datatype_t* datatype, int rank, int tag,
                         mca_pml_base_send_mode_t mode, ompi_communicator_t* comm) {
    if (OPAL_LIKELY(send_at_once(buffer, count, datatype, rank, tag, mode, comm))) return OMPI_SUCCESS;
    return send_slowly(buffer, count, datatype, rank, tag, mode, comm);
}

static int isend_init(const void* buffer, size_t count, ompi_datatype_t* datatype, int rank, int tag,
                      mca_pml_base_send_mode_t mode, ompi_communicator_t* comm, ompi_request_t** out) {
    mca_pml_mp_lock();
    mca_pml_mp_request_t* const request = mca_pml_mp_new_request(comm, true, MP_KIND_PERSISTENT);
    if (request != NULL) {
        request->buffer = (void*)buffer;
        request->count = count;
        request->peer = rank;
        request->tag = tag;
        request->mode = mode;
        mca_pml_mp_retain(request, datatype);
        *out = &request->super;
    }
    mca_pml_mp_unlock();
    return request == NULL ? OMPI_ERR_OUT_OF_RESOURCE : OMPI_SUCCESS;
}

static int irecv_init(void* buffer, size_t count, ompi_datatype_t* datatype, int source, int tag,
                      ompi_communicator_t* comm, ompi_request_t** out) {
    mca_pml_mp_lock();
    mca_pml_mp_request_t* const request = mca_pml_mp_new_request(comm, false, MP_KIND_PERSISTENT);
    if (request != NULL) {
        request->buffer = buffer;
        request->count = count;
        request->peer = source;
        request->tag = tag;
        mca_pml_mp_retain(request, datatype);
        *out = &request->super;
    }
    mca_pml_mp_unlock();
    return request == NULL ? OMPI_ERR_OUT_OF_RESOURCE : OMPI_SUCCESS;
}

static __attribute__((noinline)) int irecv_slowly(void* buffer, size_t count, ompi_datatype_t* datatype, int source,
                                                  int tag, ompi_communicator_t* comm, ompi_request_t** out) {
    mca_pml_mp_lock();
    mca_pml_mp_request_t* const request = mca_pml_mp_new_request(comm, false, MP_KIND_ONCE);
    if (request != NULL) {
        mca_pml_mp_retain(request, NULL);
        *out = &request->super;
        mca_pml_mp_start_receive(request, buffer, count, datatype, source, tag, comm, MP_HINT_NON_BLOCKING);
        mca_pml_mp_retain_used(request, datatype);
    }
    mca_pml_mp_leave();
    return request == NULL ? OMPI_ERR_OUT_OF_RESOURCE : OMPI_SUCCESS;
}

static int irecv(void* buffer, size_t count, ompi_datatype_t* datatype, int source, int tag, ompi_communicator_t* comm,
                 ompi_request_t** out) {
    if (OPAL_UNLIKELY(mca_pml_mp.threads || !mca_pml_mp_contiguous(datatype, count)))
        return irecv_slowly(buffer, count, datatype, source, tag, comm, out);
    mca_pml_mp_enter();
    mca_pml_mp_request_t* const request = mca_pml_mp_new_receive(comm);
    if (OPAL_LIKELY(request != NULL)) {
        const mp_data_t data = {.buffer = (char*)buffer + datatype->super.true_lb,
                                .bytes = count * datatype->super.size};
        *out = &request->super;
        mp_core_receive(mca_pml_mp.core, &request->core, mca_pml_mp_pattern(comm, source, tag), data,
                        mca_pml_mp_hint(tag, data.bytes, MP_HINT_NON_BLOCKING));
    }
    mca_pml_mp_exit();
    return OPAL_LIKELY(request != NULL) ? OMPI_SUCCESS : irecv_slowly(buffer, count, datatype, source, tag, comm, out);
}

/* The end of a blocking receive. */
static int wait_and_release(mca_pml_mp_request_t* request, ompi_status_public_t* status) {
    wait_for(request);
    const int result = request->super.req_status.MPI_ERROR;
    if (status != MPI_STATUS_IGNORE) OMPI_COPY_STATUS(status, request->super.req_status, false);
    mca_pml_mp_lock();
    mca_pml_mp_release_request(request);
    mca_pml_mp_leave();
    return result;
}

static __attribute__((noinline)) int receive_slowly(void* buffer, size_t count, ompi_datatype_t* datatype, int source,
                                                    int tag, ompi_communicator_t* comm, ompi_status_public_t* status) {
    mca_pml_mp_lock();
    mca_pml_mp_request_t* const own = own_request(false);
    if (OPAL_LIKELY(own != NULL)) {
        mca_pml_mp_start_receive(own, buffer, count, datatype, source, tag, comm, MP_HINT_BLOCKING);
        mca_pml_mp_leave();
        return wait_for_own(status);
    }
    mca_pml_mp_request_t* const request = mca_pml_mp_new_request(comm, false, MP_KIND_ONCE);
    if (request != NULL)
        mca_pml_mp_start_receive(request, buffer, count, datatype, source, tag, comm, MP_HINT_BLOCKING);
    mca_pml_mp_unlock();
    return request == NULL ? OMPI_ERR_OUT_OF_RESOURCE : wait_and_release(request, status);
}

static __attribute__((noinline)) int tell_now(const mp_status_t* now, ompi_status_public_t* status) {
    if (status != MPI_STATUS_IGNORE) {
        ompi_status_public_t said;
        mca_pml_mp_set_status(&said, now);
        OMPI_COPY_STATUS(status, said, false);
    }
    return mca_pml_mp_code(now->error);
}

/* A message that is there needs no request. */
static int receive_and_wait(void* buffer, size_t count, ompi_datatype_t* datatype, int source, int tag,
                            ompi_communicator_t* comm, ompi_status_public_t* status) {
    if (OPAL_LIKELY(!mca_pml_mp.threads && mca_pml_mp_contiguous(datatype, count))) {
        mp_status_t now;
        mca_pml_mp_enter();
        const bool received =
            mp_core_receive_now(mca_pml_mp.core, mca_pml_mp_pattern(comm, source, tag),
                                (char*)buffer + datatype->super.true_lb, count * datatype->super.size, &now);
        mca_pml_mp_exit();
        if (received) {
            if (OPAL_LIKELY(status == MPI_STATUS_IGNORE && now.error == MP_OK)) return OMPI_SUCCESS;
            return tell_now(&now, status);
        }
    }
    return receive_slowly(buffer, count, datatype, source, tag, comm, status);
}

/* A request for a message that was taken by a probe; null: no memory. Called with the lock. */
static mca_pml_mp_request_t* receive_message(void* buffer, size_t count, ompi_datatype_t* datatype,
                                             struct ompi_message_t** message, bool retain, mp_hint_t hint) {
    mca_pml_mp_request_t* const request = mca_pml_mp_new_request((*message)->comm, false, MP_KIND_ONCE);
    if (request == NULL) return NULL;
    mp_message_t* const taken = (*message)->req_ptr;
    ompi_message_return(*message);
    *message = MPI_MESSAGE_NULL;
    if (retain) mca_pml_mp_retain(request, NULL);
    const mp_data_t data = mca_pml_mp_data(request, buffer, count, datatype, false);
    request->active = true;
    mp_core_receive_message(mca_pml_mp.core, &request->core, taken, data, hint);
    if (retain) mca_pml_mp_retain_used(request, datatype);
    return request;
}

static int imrecv(void* buffer, size_t count, ompi_datatype_t* datatype, struct ompi_message_t** message,
                  ompi_request_t** out) {
    ompi_communicator_t* comm = (*message)->comm;
    mca_pml_mp_lock();
    mca_pml_mp_request_t* const request = receive_message(buffer, count, datatype, message, true, MP_HINT_NON_BLOCKING);
    mca_pml_mp_leave();
    if (request == NULL) return OMPI_ERR_OUT_OF_RESOURCE;
    OBJ_RELEASE(comm); /* the request keeps it */
    *out = &request->super;
    return OMPI_SUCCESS;
}

static int mrecv(void* buffer, size_t count, ompi_datatype_t* datatype, struct ompi_message_t** message,
                 ompi_status_public_t* status) {
    ompi_communicator_t* comm = (*message)->comm;
    mca_pml_mp_lock();
    mca_pml_mp_request_t* const request = receive_message(buffer, count, datatype, message, false, MP_HINT_BLOCKING);
    mca_pml_mp_unlock();
    if (request == NULL) return OMPI_ERR_OUT_OF_RESOURCE;
    const int result = wait_and_release(request, status);
    /* MPI_Mrecv asks it for the handler of an error: the last reference would be missing there. */
    if (result == OMPI_SUCCESS || ((opal_object_t*)comm)->obj_reference_count > 1) OBJ_RELEASE(comm);
    return result;
}

static int dump(struct ompi_communicator_t* comm, int verbose) {
    (void)verbose;
    char text[1024];
    mca_pml_mp_lock();
    mp_core_statistics(mca_pml_mp.core, text, sizeof text);
    mca_pml_mp_unlock();
    opal_output(0, "pml/mp: communicator %u, rank %d: %s", mca_pml_mp_context(comm), comm->c_my_rank, text);
    return OMPI_SUCCESS;
}

mca_pml_mp_module_t mca_pml_mp = {.super = {.pml_add_procs = add_procs,
                                            .pml_del_procs = del_procs,
                                            .pml_enable = enable,
                                            .pml_progress = mca_pml_mp_progress,
                                            .pml_add_comm = add_comm,
                                            .pml_del_comm = del_comm,
                                            .pml_irecv_init = irecv_init,
                                            .pml_irecv = irecv,
                                            .pml_recv = receive_and_wait,
                                            .pml_isend_init = isend_init,
                                            .pml_isend = isend,
                                            .pml_send = send_and_wait,
                                            .pml_iprobe = mca_pml_mp_iprobe,
                                            .pml_probe = mca_pml_mp_probe,
                                            .pml_start = mca_pml_mp_start,
                                            .pml_improbe = mca_pml_mp_improbe,
                                            .pml_mprobe = mca_pml_mp_mprobe,
                                            .pml_imrecv = imrecv,
                                            .pml_mrecv = mrecv,
                                            .pml_dump = dump,
                                            .pml_max_contextid = INT32_MAX,
                                            .pml_max_tag = INT32_MAX,
                                            .pml_flags = 0}};
