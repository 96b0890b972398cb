/*
 * coll/mp for Open MPI: the communication marker (dissertation 6.2.3). It stands before the components that perform
 * blocking collective operations, and says to pml/mp for how long the program is in one; who performs it is not its
 * matter. Off by default: no call goes through it then, since the tags tell as well. What does not block is sent by
 * progress, outside of any call: its tags tell.
 *
 * Small messages are told by their tags only (mca_pml_mp_hint()). So a barrier is left alone, and operations none of
 * whose messages is larger than the caller's data are handed on if that is small.
 */
#include "pml_mp.h"

#include "ompi/mca/coll/coll.h"
#include "ompi/op/op.h"

/* X(NAME, (PARAMETERS), (ARGUMENTS)): blocking operations by the types of their parameters (coll.h of Open MPI). */
#define BLOCK const void *sent, int send_count, ompi_datatype_t *send_type, void *got
#define BLOCKS const void *sent, const int *send_counts, const int *send_places
#define ONE_TYPE ompi_datatype_t* send_type
#define TYPES ompi_datatype_t* const* send_types
#define TO_BLOCK int get_count, ompi_datatype_t *get_type
#define TO_BLOCKS const int *get_counts, const int *get_places, ompi_datatype_t *get_type
#define REDUCED const void *sent, void *got, int count, ompi_datatype_t *type, ompi_op_t *op
/* Any message may have several ranks' data. */
#define OPERATIONS(X)                                                                                                  \
    X(allgather, (BLOCK, TO_BLOCK), (sent, send_count, send_type, got, get_count, get_type))                           \
    X(allgatherv, (BLOCK, TO_BLOCKS), (sent, send_count, send_type, got, get_counts, get_places, get_type))            \
    X(alltoall, (BLOCK, TO_BLOCK), (sent, send_count, send_type, got, get_count, get_type))                            \
    X(alltoallv, (BLOCKS, ONE_TYPE, void* got, TO_BLOCKS),                                                             \
      (sent, send_counts, send_places, send_type, got, get_counts, get_places, get_type))                              \
    X(alltoallw,                                                                                                       \
      (BLOCKS, TYPES, void* got, const int* get_counts, const int* get_places, ompi_datatype_t* const* get_types),     \
      (sent, send_counts, send_places, send_types, got, get_counts, get_places, get_types))                            \
    X(gather, (BLOCK, TO_BLOCK, int root), (sent, send_count, send_type, got, get_count, get_type, root))              \
    X(gatherv, (BLOCK, TO_BLOCKS, int root),                                                                           \
      (sent, send_count, send_type, got, get_counts, get_places, get_type, root))                                      \
    X(reduce_scatter, (const void* sent, void* got, const int* counts, ompi_datatype_t* type, ompi_op_t* op),          \
      (sent, got, counts, type, op))                                                                                   \
    X(reduce_scatter_block, (REDUCED), (sent, got, count, type, op))                                                   \
    X(scatter, (BLOCK, TO_BLOCK, int root), (sent, send_count, send_type, got, get_count, get_type, root))             \
    X(scatterv, (BLOCKS, ONE_TYPE, void* got, TO_BLOCK, int root),                                                     \
      (sent, send_counts, send_places, send_type, got, get_count, get_type, root))                                     \
    X(neighbor_allgather, (BLOCK, TO_BLOCK), (sent, send_count, send_type, got, get_count, get_type))                  \
    X(neighbor_allgatherv, (BLOCK, TO_BLOCKS), (sent, send_count, send_type, got, get_counts, get_places, get_type))   \
    X(neighbor_alltoall, (BLOCK, TO_BLOCK), (sent, send_count, send_type, got, get_count, get_type))                   \
    X(neighbor_alltoallv, (BLOCKS, ONE_TYPE, void* got, TO_BLOCKS),                                                    \
      (sent, send_counts, send_places, send_type, got, get_counts, get_places, get_type))                              \
    X(neighbor_alltoallw,                                                                                              \
      (const void* sent, const int* send_counts, const MPI_Aint* send_places, TYPES, void* got, const int* get_counts, \
       const MPI_Aint* get_places, ompi_datatype_t* const* get_types),                                                 \
      (sent, send_counts, send_places, send_types, got, get_counts, get_places, get_types))

/* No message is larger than `count` of `type`. */
#define OPERATIONS_BY_SIZE(X)                                                                                          \
    X(allreduce, (REDUCED), (sent, got, count, type, op))                                                              \
    X(bcast, (void* data, int count, ompi_datatype_t* type, int root), (data, count, type, root))                      \
    X(exscan, (REDUCED), (sent, got, count, type, op))                                                                 \
    X(reduce, (REDUCED, int root), (sent, got, count, type, op, root))                                                 \
    X(scan, (REDUCED), (sent, got, count, type, op))

typedef struct mca_coll_mp_module {
    mca_coll_base_module_t super;
    mca_coll_base_comm_coll_t performs; /* who stands behind us, one reference each */
} mca_coll_mp_module_t;
OBJ_CLASS_DECLARATION(mca_coll_mp_module_t);

static int component_register(void);
static int component_open(void);
static int component_init(bool progress_threads, bool threads);
static mca_coll_base_module_t* component_query(ompi_communicator_t* comm, int* priority);

typedef struct mca_coll_mp_component {
    mca_coll_base_component_t super;
    int priority;
} mca_coll_mp_component_t;

OMPI_DECLSPEC mca_coll_mp_component_t mca_coll_mp_component = {
    .super = {.collm_version = {MP_COLL_VERSION, .mca_component_name = "mp",
                                MCA_BASE_MAKE_VERSION(component, OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION,
                                                      OMPI_RELEASE_VERSION),
                                .mca_open_component = component_open,
                                .mca_register_component_params = component_register},
              .collm_data = {MCA_BASE_METADATA_PARAM_NONE},
              .collm_init_query = component_init,
              .collm_comm_query = component_query}};

#define PARAMETERS(...) __VA_ARGS__
#define WRAPPER_UNLESS(SMALL, NAME, TAKES, GIVES)                                                                      \
    static int NAME(PARAMETERS TAKES, ompi_communicator_t* comm, mca_coll_base_module_t* module) {                     \
        const mca_coll_base_comm_coll_t* const performs = &((mca_coll_mp_module_t*)module)->performs;                  \
        if (SMALL) return performs->coll_##NAME(PARAMETERS GIVES, comm, performs->coll_##NAME##_module);               \
        unsigned* const depth = mca_pml_mp_enter_collective();                                                         \
        const int result = performs->coll_##NAME(PARAMETERS GIVES, comm, performs->coll_##NAME##_module);              \
        --*depth;                                                                                                      \
        return result;                                                                                                 \
    }
#define WRAPPER(NAME, TAKES, GIVES) WRAPPER_UNLESS(false, NAME, TAKES, GIVES)
#define WRAPPER_BY_SIZE(NAME, TAKES, GIVES)                                                                            \
    WRAPPER_UNLESS((size_t)count * type->super.size < mca_pml_mp.hint_limit, NAME, TAKES, GIVES)
OPERATIONS(WRAPPER)
OPERATIONS_BY_SIZE(WRAPPER_BY_SIZE)

/* Components of lower priority have had their turn: what the communicator has is theirs. What nobody performs stays so.
 */
static int module_enable(mca_coll_base_module_t* base, ompi_communicator_t* comm) {
    mca_coll_mp_module_t* const module = (mca_coll_mp_module_t*)base;
#define STAND_BEFORE(NAME, TAKES, GIVES)                                                                               \
    if (comm->c_coll->coll_##NAME != NULL) {                                                                           \
        module->performs.coll_##NAME = comm->c_coll->coll_##NAME;                                                      \
        module->performs.coll_##NAME##_module = comm->c_coll->coll_##NAME##_module;                                    \
        if (module->performs.coll_##NAME##_module != NULL) OBJ_RETAIN(module->performs.coll_##NAME##_module);          \
        base->coll_##NAME = NAME;                                                                                      \
    }
    OPERATIONS(STAND_BEFORE)
    OPERATIONS_BY_SIZE(STAND_BEFORE)
    mca_pml_mp.marked = true;
    return OMPI_SUCCESS;
}

static void construct(mca_coll_mp_module_t* module) {
    memset(&module->performs, 0, sizeof module->performs);
    module->super.coll_module_enable = module_enable;
}

static void destruct(mca_coll_mp_module_t* module) {
#define STEP_ASIDE(NAME, TAKES, GIVES)                                                                                 \
    if (module->performs.coll_##NAME##_module != NULL) OBJ_RELEASE(module->performs.coll_##NAME##_module);
    OPERATIONS(STEP_ASIDE)
    OPERATIONS_BY_SIZE(STEP_ASIDE)
}

OBJ_CLASS_INSTANCE(mca_coll_mp_module_t, mca_coll_base_module_t, construct, destruct);

static int component_register(void) {
    mca_coll_mp_component.priority = 0;
    (void)mca_base_component_var_register(
        &mca_coll_mp_component.super.collm_version, "priority",
        "Above that of the components that perform collectives (90, say): the transport is told who is in one by the "
        "call, too. 0: by the tags of its messages only, and calls do not come this way",
        MCA_BASE_VAR_TYPE_INT, NULL, 0, 0, OPAL_INFO_LVL_3, MCA_BASE_VAR_SCOPE_LOCAL, &mca_coll_mp_component.priority);
    return OMPI_SUCCESS;
}

static int component_open(void) {
    /* pml/mp looks at the series and at what messages need. */
    return mca_coll_base_module_t_class.cls_sizeof == sizeof(mca_coll_base_module_t) ? OMPI_SUCCESS
                                                                                     : OMPI_ERR_NOT_AVAILABLE;
}

static int component_init(bool progress_threads, bool threads) {
    (void)progress_threads, (void)threads;
    if (mca_coll_mp_component.priority <= 0) return OMPI_ERR_NOT_AVAILABLE;
    if (mca_pml_mp.core != NULL) return OMPI_SUCCESS;
    opal_output(0, "coll/mp: needs pml/mp: --mca pml mp");
    return OMPI_ERR_NOT_AVAILABLE;
}

static mca_coll_base_module_t* component_query(ompi_communicator_t* comm, int* priority) {
    (void)comm;
    *priority = mca_coll_mp_component.priority;
    mca_coll_mp_module_t* const module = OBJ_NEW(mca_coll_mp_module_t);
    return module == NULL ? NULL : &module->super;
}
