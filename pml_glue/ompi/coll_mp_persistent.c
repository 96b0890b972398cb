/* Persistent operations of our own: MPIX_*_init of Open MPI 4.1, MPI_*_init of 5.0. Each has a group of the core's, so
 * that members may start theirs in any order. The description stays from one start to the next: convertors are set
 * back when they are used again. Our own block of an all-to-all is copied at each start. */
#include "coll_mp_call.h"

#include "ompi/errhandler/errcode-internal.h"

typedef mca_coll_mp_call_t call_t;

/* Called by the core, with the lock. */
static void ended(mp_collective_t* core) {
    call_t* const call = (call_t*)core;
    mca_pml_mp_request_t* const request = call->request;
    const int code = mca_coll_mp_code_of(call);
    if (code != OMPI_SUCCESS) request->super.req_status.MPI_ERROR = ompi_errcode_get_mpi_code(code);
    mca_pml_mp_end(request);
}

static int start(size_t count, ompi_request_t** requests) {
    for (size_t i = 0; i < count; i++) {
        if (requests[i] == NULL || requests[i]->req_type != OMPI_REQUEST_PML) continue;
        mca_pml_mp_request_t* const request = (mca_pml_mp_request_t*)requests[i];
        if (request->kind != MP_KIND_COLLECTIVE || request->active) return OMPI_ERR_REQUEST;
        call_t* const call = request->buffer;
        request->super.req_complete = REQUEST_PENDING;
        request->super.req_state = OMPI_REQUEST_ACTIVE;
        request->super.req_status = ompi_status_empty;
        call->failed = OMPI_SUCCESS;
        if (call->blocks_used) mca_coll_mp_copy_own(call, request->super.req_mpi_object.comm);
        mca_pml_mp_lock();
        request->active = true;
        mp_collective_start(call->group, &call->core);
        mca_pml_mp_leave();
    }
    return OMPI_SUCCESS;
}

/* By whoever releases the request, with the lock. A barrier of the group's own may be under way: until it is over the
 * communicator's number stays in use. */
static void free_call(mca_pml_mp_request_t* request) {
    call_t* const call = request->buffer;
    mca_coll_mp_let_go(call);
    mca_coll_mp_release_types(call);
    if (mca_pml_mp.core != NULL) {
        if (call->gives_up) mp_group_give_up(call->group);
        mp_group_free(call->group);
        if (!mp_group_idle(call->module->group)) mca_coll_mp_keep(call->module, request->super.req_mpi_object.comm);
    }
    free(call->lists);
    free(call);
    request->buffer = NULL;
}

call_t* mca_coll_mp_new_persistent(mca_coll_mp_module_t* module, ompi_communicator_t* comm, int* result) {
    *result = OMPI_SUCCESS;
    call_t* const call = malloc(sizeof *call);
    mca_pml_mp_lock();
    mca_pml_mp_request_t* const request = mca_pml_mp_new_request(comm, true, MP_KIND_PERSISTENT);
    mp_group_t* const group = mp_group_create_request(module->group); /* all ranks number them */
    const bool made = group != NULL && request != NULL && call != NULL;
    if (!made && group != NULL) {
        *result = OMPI_ERR_OUT_OF_RESOURCE;
        mp_group_give_up(group); /* the others wait for us */
        mp_group_free(group);
    }
    if (!made && request != NULL) mca_pml_mp_release_request(request);
    mca_pml_mp.free_collective = free_call;
    mca_pml_mp_unlock();
    if (!made) {
        free(call);
        return NULL;
    }
    call->module = module;
    call->group = group;
    call->request = request;
    call->retained[0] = call->retained[1] = NULL;
    call->lists = NULL;
    call->gives_up = false;
    return call;
}

/* The program may change its lists once it has the request, as Open MPI's own component lets it. */
static bool copy_lists(call_t* call) {
    const size_t ranks = (size_t)ompi_comm_size(call->request->super.req_mpi_object.comm);
    if (!call->blocks_used || call->blocks[0].counts == NULL) return true;
    call->lists = malloc(4 * ranks * sizeof *call->lists);
    if (call->lists == NULL) return false;
    for (int i = 0; i < 2; i++) {
        int *const counts = call->lists + (size_t)(2 * i) * ranks, *const places = counts + ranks;
        memcpy(counts, call->blocks[i].counts, ranks * sizeof *counts);
        memcpy(places, call->blocks[i].places, ranks * sizeof *places);
        call->blocks[i].counts = counts;
        call->blocks[i].places = places;
    }
    return true;
}

int mca_coll_mp_make_persistent(call_t* call, ompi_request_t** out) {
    mca_pml_mp_request_t* const request = call->request;
    const bool copied = copy_lists(call);
    mca_coll_mp_retain_types(call);
    call->core.collective.done = ended;
    mca_pml_mp_lock();
    mca_pml_mp_retain(request, NULL);
    request->kind = MP_KIND_COLLECTIVE;
    request->buffer = call;
    request->super.req_start = start;
    if (!copied) {
        call->gives_up = true;
        mca_pml_mp_release_request(request);
    }
    mca_pml_mp_unlock();
    if (!copied) return OMPI_ERR_OUT_OF_RESOURCE;
    *out = &request->super;
    return OMPI_SUCCESS;
}
