/* Requests of operations: the user's, and those that only keep convertors. */
#include "osc_mp.h"

static int request_free(ompi_request_t** pointer) {
    mca_osc_mp_request_t* const request = (mca_osc_mp_request_t*)*pointer;
    *pointer = MPI_REQUEST_NULL;
    mca_pml_mp_lock();
    if (request->active)
        request->freed = true; /* its operation goes on; its end releases it */
    else
        mca_osc_mp_release_request(request);
    mca_pml_mp_unlock();
    return OMPI_SUCCESS;
}

static int request_cancel(ompi_request_t* base, int flag) {
    (void)base, (void)flag;
    return OMPI_SUCCESS; /* operations are not cancelled */
}

static void construct(mca_osc_mp_request_t* request) {
    OMPI_REQUEST_INIT(&request->super, false);
    request->super.req_type = OMPI_REQUEST_WIN;
    request->super.req_free = request_free;
    request->super.req_cancel = request_cancel;
    request->waitable.waiter = NULL;
    request->origin_type = request->result_type = NULL;
    OBJ_CONSTRUCT(&request->origin, opal_convertor_t);
    OBJ_CONSTRUCT(&request->result, opal_convertor_t);
}

static void destruct(mca_osc_mp_request_t* request) {
    OBJ_DESTRUCT(&request->origin);
    OBJ_DESTRUCT(&request->result);
}

OBJ_CLASS_INSTANCE(mca_osc_mp_request_t, mca_pml_mp_waitable_t, construct, destruct);

mca_osc_mp_request_t* mca_osc_mp_new_request(ompi_win_t* win) {
    mca_osc_mp_request_t* const request = (mca_osc_mp_request_t*)opal_free_list_get(&mca_osc_mp_component.requests);
    if (request == NULL) return NULL;
    request->shown = request->active = request->freed = false;
    request->origin_type = request->result_type = NULL;
    request->super.req_complete = REQUEST_PENDING;
    request->super.req_state = OMPI_REQUEST_ACTIVE;
    request->super.req_complete_cb = NULL;
    request->super.req_complete_cb_data = NULL;
    request->super.req_mpi_object.win = win;
    request->super.req_status = ompi_status_empty;
    return request;
}

static void let_go(opal_convertor_t* convertor, ompi_datatype_t** type) {
    if (*type == NULL) return;
    opal_convertor_cleanup(convertor);
    OMPI_DATATYPE_RELEASE(*type);
    *type = NULL;
}

void mca_osc_mp_release_request(mca_osc_mp_request_t* request) {
    let_go(&request->origin, &request->origin_type);
    let_go(&request->result, &request->result_type);
    OMPI_REQUEST_FINI(&request->super);
    opal_free_list_return(&mca_osc_mp_component.requests, &request->super.super);
}

/* Called by the core, under the lock. */
void mca_osc_mp_done(void* user, mp_error_t error) {
    mca_osc_mp_request_t* const request = user;
    request->active = false;
    let_go(&request->origin, &request->origin_type);
    let_go(&request->result, &request->result_type);
    request->super.req_status.MPI_ERROR = mca_pml_mp_code(error);
    if (request->shown && !request->freed) {
        mca_pml_mp_tell(&request->waitable);
        return;
    }
    if (request->shown) ompi_request_complete(&request->super, false);
    mca_osc_mp_release_request(request);
}
