/* Looks for messages: MPI_Probe and its like. */
#include "pml_mp.h"

/* One look; `message`: takes it. Progress is made if there is none. */
static int look(int source, int tag, ompi_communicator_t* comm, int* found, struct ompi_message_t** message,
                ompi_status_public_t* status) {
    const mp_envelope_t pattern = mca_pml_mp_pattern(comm, source, tag);
    mp_status_t of;
    mp_message_t* taken = NULL;
    mca_pml_mp_lock();
    if (message != NULL)
        *found = (taken = mp_core_mprobe(mca_pml_mp.core, pattern, &of)) != NULL;
    else
        *found = mp_core_probe(mca_pml_mp.core, pattern, &of);
    const bool failed = !*found && mp_core_source_failed(mca_pml_mp.core, pattern);
    mca_pml_mp_unlock();
    if (failed) return mca_pml_mp.peer_failed;
    if (!*found) return OMPI_SUCCESS;
    ompi_status_public_t result = ompi_status_empty;
    mca_pml_mp_set_status(&result, &of);
    if (status != MPI_STATUS_IGNORE) OMPI_COPY_STATUS(status, result, false);
    if (message != NULL) {
        *message = ompi_message_alloc();
        if (*message == NULL) return OMPI_ERR_OUT_OF_RESOURCE;
        OBJ_RETAIN(comm); /* until it is received: the program may free it before */
        (*message)->comm = comm;
        (*message)->req_ptr = taken;
        (*message)->peer = of.source;
        (*message)->count = of.bytes;
    }
    return OMPI_SUCCESS;
}

static int look_once(int source, int tag, ompi_communicator_t* comm, int* found, struct ompi_message_t** message,
                     ompi_status_public_t* status) {
    static unsigned turn;
    const int result = look(source, tag, comm, found, message, status);
    if (result != OMPI_SUCCESS || *found) return result;
    if (++turn % MP_POLLS == 0)
        opal_progress();
    else
        (void)mca_pml_mp_progress();
    return look(source, tag, comm, found, message, status);
}

int mca_pml_mp_iprobe(int source, int tag, ompi_communicator_t* comm, int* found, ompi_status_public_t* status) {
    return look_once(source, tag, comm, found, NULL, status);
}

int mca_pml_mp_improbe(int source, int tag, ompi_communicator_t* comm, int* found, struct ompi_message_t** message,
                       ompi_status_public_t* status) {
    return look_once(source, tag, comm, found, message, status);
}

int mca_pml_mp_probe(int source, int tag, ompi_communicator_t* comm, ompi_status_public_t* status) {
    int found = 0, result = OMPI_SUCCESS;
    while (result == OMPI_SUCCESS && !found) result = look_once(source, tag, comm, &found, NULL, status);
    return result;
}

int mca_pml_mp_mprobe(int source, int tag, ompi_communicator_t* comm, struct ompi_message_t** message,
                      ompi_status_public_t* status) {
    int found = 0, result = OMPI_SUCCESS;
    while (result == OMPI_SUCCESS && !found) result = look_once(source, tag, comm, &found, message, status);
    return result;
}
