/*
 * coll/mp for Open MPI: the marker (coll_mp.c), and collective operations of our own (coll_mp_ours.c),
 * which hand on the others, call by call. They decide only by facts that all ranks know: the operation,
 * its packed bytes, the ranks, parameters. They never decide by layouts, MPI_IN_PLACE, or memory.
 */
#ifndef UCX_MP_PML_GLUE_OMPI_COLL_MP_H
#define UCX_MP_PML_GLUE_OMPI_COLL_MP_H

#include "pml_mp.h"

#include "ompi/mca/coll/coll.h"
#include "ompi/op/op.h"
#include "pml_glue/core/mp_collect.h"

/* X(NAME, KIND) */
#define MCA_COLL_MP_OURS(X)                                                                                            \
    X(barrier, MP_BARRIER)                                                                                             \
    X(bcast, MP_BCAST)                                                                                                 \
    X(allgather, MP_ALLGATHER)                                                                                         \
    X(allreduce, MP_ALLREDUCE)                                                                                         \
    X(gather, MP_GATHER)                                                                                               \
    X(reduce, MP_REDUCE)                                                                                               \
    X(scatter, MP_SCATTER)                                                                                             \
    X(alltoall, MP_ALLTOALL)                                                                                           \
    X(alltoallv, MP_ALLTOALLV)
/* The same without blocking, and persistent: a name stands for all. */
#define MCA_COLL_MP_LATER(X)                                                                                           \
    X(ibarrier, MP_BARRIER)                                                                                            \
    X(ibcast, MP_BCAST)                                                                                                \
    X(iallgather, MP_ALLGATHER)                                                                                        \
    X(iallreduce, MP_ALLREDUCE)                                                                                        \
    X(igather, MP_GATHER)                                                                                              \
    X(ireduce, MP_REDUCE)                                                                                              \
    X(iscatter, MP_SCATTER)                                                                                            \
    X(ialltoall, MP_ALLTOALL)                                                                                          \
    X(ialltoallv, MP_ALLTOALLV)
#define MCA_COLL_MP_AGAIN(X)                                                                                           \
    X(barrier_init, MP_BARRIER)                                                                                        \
    X(bcast_init, MP_BCAST)                                                                                            \
    X(allgather_init, MP_ALLGATHER)                                                                                    \
    X(allreduce_init, MP_ALLREDUCE)                                                                                    \
    X(gather_init, MP_GATHER)                                                                                          \
    X(reduce_init, MP_REDUCE)                                                                                          \
    X(scatter_init, MP_SCATTER)                                                                                        \
    X(alltoall_init, MP_ALLTOALL)                                                                                      \
    X(alltoallv_init, MP_ALLTOALLV)
#define MCA_COLL_MP_NAMES "barrier, bcast, allgather, allreduce, gather, reduce, scatter, alltoall, alltoallv"

typedef struct mca_coll_mp_module {
    mca_coll_base_module_t super;
    mca_coll_base_comm_coll_t performs; /* the operations behind us, one reference each */
    uint32_t ours;                      /* bits of mp_collective_kind_t */
    uint32_t life;                      /* mp_group_next_life() */
    struct {                            /* behind ours: the marker, or another component */
#define MCA_COLL_MP_BELOW(NAME, KIND)                                                                                  \
    mca_coll_base_module_##NAME##_fn_t NAME;                                                                           \
    mca_coll_base_module_t* NAME##_module;
        MCA_COLL_MP_OURS(MCA_COLL_MP_BELOW)
        MCA_COLL_MP_LATER(MCA_COLL_MP_BELOW)
        MCA_COLL_MP_AGAIN(MCA_COLL_MP_BELOW)
    } below;
    mp_group_t* group; /* from the first call on */
    /* The group is not idle though no call of the program is under way: the communicator
     * is kept, since another one must not get its number. One of the list of those. */
    ompi_communicator_t* kept;
    struct mca_coll_mp_module* next_kept;
} mca_coll_mp_module_t;
OBJ_CLASS_DECLARATION(mca_coll_mp_module_t);

typedef struct mca_coll_mp_component {
    mca_coll_base_component_t super;
    uint32_t ours; /* bits of mp_collective_kind_t */
    /* MCA parameters */
    int priority;
    char* enable;
    size_t small, halving, eager, memory;
    unsigned in_flight, peers, after, latency, overhead, local_latency, local_overhead;
    char* engine_name;
    mp_engine_t engine;
} mca_coll_mp_component_t;
OMPI_DECLSPEC extern mca_coll_mp_component_t mca_coll_mp_component;

/* coll_mp_ours.c */
#define MCA_COLL_MP_DECLARE(NAME, KIND) extern const mca_coll_base_module_##NAME##_fn_t mca_coll_mp_##NAME;
MCA_COLL_MP_OURS(MCA_COLL_MP_DECLARE)
MCA_COLL_MP_LATER(MCA_COLL_MP_DECLARE)
MCA_COLL_MP_AGAIN(MCA_COLL_MP_DECLARE)
/* coll_mp_group.c. The communicator is gone. */
void mca_coll_mp_leave(mca_coll_mp_module_t* module);
/* A communicator of ours comes. */
uint32_t mca_coll_mp_next_life(ompi_communicator_t* comm);
/* Gives communicators back that were kept, and whose group is idle now. */
void mca_coll_mp_sweep(void);

#endif
