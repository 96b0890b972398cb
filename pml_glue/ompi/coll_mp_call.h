/* A call of an operation of our own: the core's needs, and its results. A blocking call is on the stack, another one
 * in memory of its own until its request is complete, or a persistent one is freed. */
#ifndef UCX_MP_PML_GLUE_OMPI_COLL_MP_CALL_H
#define UCX_MP_PML_GLUE_OMPI_COLL_MP_CALL_H

#include "coll_mp.h"

/* Blocks of all ranks in memory of the program. */
typedef struct mca_coll_mp_blocks {
    char* memory;
    const int *counts, *places; /* of elements; null: `count` each, one behind the other */
    size_t count;
    ompi_datatype_t* type;
} mca_coll_mp_blocks_t;

typedef struct mca_coll_mp_call {
    mp_collective_storage_t core;
    ompi_op_t* op;
    ompi_datatype_t* type; /* for a reduction */
    size_t count;
    char* spans; /* for a reduction of elements with gaps: two vectors */
    int failed;  /* a code: our own block does not fit */
    bool in_used, out_used, blocks_used;
    ompi_datatype_t *from, *to; /* types of the convertors */
    opal_convertor_t in, out;
    mca_coll_mp_blocks_t blocks[2]; /* for an all-to-all: received, sent */
    /* For a call that does not block. */
    mca_coll_mp_module_t* module;
    mca_pml_mp_request_t* request;
    ompi_datatype_t* retained[2]; /* the program may free them */
    struct mca_coll_mp_call* next;
    /* For a persistent one. */
    mp_group_t* group; /* its own */
    int* lists;        /* copies of counts and places */
    bool gives_up;     /* no memory for them: the other members have to hear of it */
} mca_coll_mp_call_t;

/* coll_mp_group.c. For reductions: elements without gaps, and with them. */
bool mca_coll_mp_fold(mp_collective_t* core, const void* in, void* inout);
bool mca_coll_mp_fold_spread(mp_collective_t* core, const void* in, void* inout);
/* For all-to-alls. */
size_t mca_coll_mp_size(mp_collective_t* core, uint32_t rank, bool sends);
mp_data_t mca_coll_mp_open(mp_collective_t* core, uint32_t rank, bool sends);
void mca_coll_mp_close(mp_collective_t* core, uint32_t rank, void* convertor, bool sends);
/* Gives back what it holds. */
void mca_coll_mp_let_go(mca_coll_mp_call_t* call);
/* Makes the group. Null: no memory. */
mp_group_t* mca_coll_mp_join(mca_coll_mp_module_t* module, ompi_communicator_t* comm);
/* Keeps the types of a call; gives them back. */
void mca_coll_mp_retain_types(mca_coll_mp_call_t* call);
void mca_coll_mp_release_types(mca_coll_mp_call_t* call);
/* Copies our own block of an all-to-all. */
void mca_coll_mp_copy_own(mca_coll_mp_call_t* call, ompi_communicator_t* comm);
int mca_coll_mp_code_of(const mca_coll_mp_call_t* call);
/* coll_mp_persistent.c. Null: `result` says why. OMPI_SUCCESS: it is not ours, as all ranks know. */
mca_coll_mp_call_t* mca_coll_mp_new_persistent(mca_coll_mp_module_t* module, ompi_communicator_t* comm, int* result);
/* It is described: the request, which is not active. */
int mca_coll_mp_make_persistent(mca_coll_mp_call_t* call, ompi_request_t** request);
/* The group is not idle: the communicator stays. With the lock. */
void mca_coll_mp_keep(mca_coll_mp_module_t* module, ompi_communicator_t* comm);

static inline mp_data_t mca_coll_mp_describe(const void* buffer, size_t count, ompi_datatype_t* type,
                                             opal_convertor_t* convertor, bool* used, bool sends) {
    mp_data_t data = {
        .buffer = (char*)buffer + type->super.true_lb, .bytes = count * type->super.size, .convertor = NULL};
    *used = false;
    if (OPAL_LIKELY(mca_pml_mp_contiguous(type, count)) || data.bytes == 0) return data;
    opal_convertor_t* const local = ompi_proc_local()->super.proc_convertor;
    OBJ_CONSTRUCT(convertor, opal_convertor_t);
    if (sends)
        opal_convertor_copy_and_prepare_for_send(local, &type->super, count, buffer, 0, convertor);
    else
        opal_convertor_copy_and_prepare_for_recv(local, &type->super, count, buffer, 0, convertor);
    *used = true;
    data.buffer = NULL;
    data.convertor = convertor;
    return data;
}

#endif
