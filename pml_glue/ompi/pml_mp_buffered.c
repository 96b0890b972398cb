/* Buffered sends (MPI 3.6): a copy leaves. */
#include "pml_mp.h"

/* Room in the user's buffer (MPI 3.6). A message may have arrived unnoticed:
 * progress is made as long as it finds something, since a buffered send is local. */
static void* buffer_room(size_t bytes) {
    static const double kPatience = 0.001; /* s without news */
    void* room = mca_pml_base_bsend_request_alloc_buf(bytes);
    if (OPAL_LIKELY(room != NULL) || mca_pml_mp.buffered == 0) return room;
    double until = MPI_Wtime() + kPatience;
    const double end = MPI_Wtime() + 50 * kPatience;
    while (room == NULL && mca_pml_mp.buffered != 0 && MPI_Wtime() < until) {
        if (mp_core_progress(mca_pml_mp.core) && MPI_Wtime() < end) until = MPI_Wtime() + kPatience;
        mca_pml_mp_unlock(); /* the other threads' messages do not wait for it */
        mca_pml_mp_lock();
        room = mca_pml_base_bsend_request_alloc_buf(bytes);
    }
    return room;
}

/* Sends a copy (MPI 3.6); the user's request is complete with it. */
int mca_pml_mp_send_buffered(const void* buffer, size_t count, ompi_datatype_t* datatype, mp_peer_t* peer, int tag,
                             ompi_communicator_t* comm) {
    mca_pml_mp_request_t* const copy = mca_pml_mp_new_request(comm, true, MP_KIND_BUFFERED);
    if (copy == NULL) return OMPI_ERR_OUT_OF_RESOURCE;
    mp_data_t data = mca_pml_mp_data(copy, buffer, count, datatype, true);
    copy->buffer = buffer_room(data.bytes);
    if (copy->buffer == NULL) {
        if (copy->convertor_used) opal_convertor_cleanup(&copy->convertor);
        copy->convertor_used = false;
        mca_pml_mp_release_request(copy);
        return MPI_ERR_BUFFER;
    }
    if (data.convertor) {
        mca_pml_mp_pack(data.convertor, 0, copy->buffer, data.bytes);
        opal_convertor_cleanup(&copy->convertor);
        copy->convertor_used = false;
    } else if (data.bytes) {
        memcpy(copy->buffer, data.buffer, data.bytes);
    }
    data.buffer = copy->buffer;
    data.convertor = NULL;
    copy->active = true;
    mca_pml_mp.buffered++;
    mp_core_send(mca_pml_mp.core, &copy->core, peer, mca_pml_mp_message(comm, tag), data, false,
                 mca_pml_mp_hint(tag, data.bytes, MP_HINT_NON_BLOCKING));
    return OMPI_SUCCESS;
}
