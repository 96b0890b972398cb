/*
 * coll/mp for Open MPI: the component, and the communication marker (dissertation 6.2.3). The marker stands before the
 * components that perform blocking collective operations, and tells pml/mp how long the program is in one; it does not
 * care which component performs it. Off by default: no call goes through it then, since the tags tell as well. Progress
 * sends messages of operations that do not block, outside of any call: their tags tell. Operations of our own:
 * coll_mp_ours.c.
 *
 * Small messages are told by their tags only (mca_pml_mp_hint()). So a barrier is left alone.
 * An operation without a message larger than the caller's data is handed on if that is small.
 */
#include "coll_mp.h"

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

static int component_register(void);
static int component_open(void);
static int component_init(bool progress_threads, bool threads);
static mca_coll_base_module_t* component_query(ompi_communicator_t* comm, int* priority);

mca_coll_mp_component_t mca_coll_mp_component = {
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

/* Components of lower priority have had their turn: the communicator has theirs. An operation
 * without a component stays without. Ours stand before the marker's, which stand before theirs. */
static int module_enable(mca_coll_base_module_t* base, ompi_communicator_t* comm) {
    mca_coll_mp_module_t* const module = (mca_coll_mp_module_t*)base;
    mca_coll_base_comm_coll_t* const performs = &module->performs;
#define KEEP(NAME)                                                                                                     \
    if (comm->c_coll->coll_##NAME != NULL && performs->coll_##NAME == NULL) {                                          \
        performs->coll_##NAME = comm->c_coll->coll_##NAME;                                                             \
        performs->coll_##NAME##_module = comm->c_coll->coll_##NAME##_module;                                           \
        if (performs->coll_##NAME##_module != NULL) OBJ_RETAIN(performs->coll_##NAME##_module);                        \
    }
#define STAND_BEFORE(NAME, TAKES, GIVES)                                                                               \
    KEEP(NAME)                                                                                                         \
    if (performs->coll_##NAME != NULL) base->coll_##NAME = NAME;
    if (mca_coll_mp_component.priority > 0) {
        OPERATIONS(STAND_BEFORE)
        OPERATIONS_BY_SIZE(STAND_BEFORE)
        mca_pml_mp.marked = true;
    }
#define TAKE(NAME, KIND)                                                                                               \
    if (module->ours & 1u << (KIND)) {                                                                                 \
        KEEP(NAME)                                                                                                     \
        module->below.NAME = base->coll_##NAME != NULL ? base->coll_##NAME : performs->coll_##NAME;                    \
        module->below.NAME##_module = base->coll_##NAME != NULL ? base : performs->coll_##NAME##_module;               \
        if (module->below.NAME != NULL) base->coll_##NAME = mca_coll_mp_##NAME;                                        \
    }
    MCA_COLL_MP_OURS(TAKE)
    MCA_COLL_MP_LATER(TAKE)
    MCA_COLL_MP_AGAIN(TAKE)
    return OMPI_SUCCESS;
}

static void construct(mca_coll_mp_module_t* module) {
    memset((char*)module + sizeof module->super, 0, sizeof *module - sizeof module->super);
    module->super.coll_module_enable = module_enable;
}

static void destruct(mca_coll_mp_module_t* module) {
    mca_coll_mp_leave(module);
#define LET_GO(NAME)                                                                                                   \
    if (module->performs.coll_##NAME##_module != NULL) {                                                               \
        OBJ_RELEASE(module->performs.coll_##NAME##_module);                                                            \
        module->performs.coll_##NAME##_module = NULL; /* it may stand in both lists */                                 \
    }
#define STEP_ASIDE(NAME, TAKES, GIVES) LET_GO(NAME)
#define STEP_BACK(NAME, KIND) LET_GO(NAME)
    OPERATIONS(STEP_ASIDE)
    OPERATIONS_BY_SIZE(STEP_ASIDE)
    MCA_COLL_MP_OURS(STEP_BACK)
    MCA_COLL_MP_LATER(STEP_BACK)
    MCA_COLL_MP_AGAIN(STEP_BACK)
}

OBJ_CLASS_INSTANCE(mca_coll_mp_module_t, mca_coll_base_module_t, construct, destruct);

static void parameter(const char* name, const char* help, mca_base_var_type_t type, void* value) {
    (void)mca_base_component_var_register(&mca_coll_mp_component.super.collm_version, name, help, type, NULL, 0, 0,
                                          OPAL_INFO_LVL_3, MCA_BASE_VAR_SCOPE_LOCAL, value);
}

static int component_register(void) {
    mca_coll_mp_component.priority = 0;
    parameter("priority",
              "Above that of the components that perform collectives (90, say): the transport is told who is in one by "
              "the call, too. 0: by the tags of its messages only, and calls do not come this way",
              MCA_BASE_VAR_TYPE_INT, &mca_coll_mp_component.priority);
    mca_coll_mp_component.enable = "none";
    parameter("enable",
              "Collective operations that are ours, blocking or not, most if they are small: none, all, or "
              "names (" MCA_COLL_MP_NAMES "), by comma. The same at all ranks, as are all parameters of coll/mp",
              MCA_BASE_VAR_TYPE_STRING, &mca_coll_mp_component.enable);
    mca_coll_mp_component.small = 8192;
    parameter("small", "Bytes that are small: of a bcast, or of all ranks' blocks together; at most 65536",
              MCA_BASE_VAR_TYPE_SIZE_T, &mca_coll_mp_component.small);
    mca_coll_mp_component.halving = 65536;
    parameter("halving", "Bytes of an allreduce that is ours by recursive doubling; at most 1048576",
              MCA_BASE_VAR_TYPE_SIZE_T, &mca_coll_mp_component.halving);
    mca_coll_mp_component.eager = 4096;
    parameter("eager", "Bytes of a block of an all-to-all that is sent without being asked for; at most 65536",
              MCA_BASE_VAR_TYPE_SIZE_T, &mca_coll_mp_component.eager);
    mca_coll_mp_component.peers = 8;
    parameter("peers", "Larger blocks of an all-to-all that a rank asks for, and that it puts, at a time; 1 to 1024",
              MCA_BASE_VAR_TYPE_UNSIGNED_INT, &mca_coll_mp_component.peers);
    mca_coll_mp_component.memory = (size_t)64 << 20;
    parameter("memory",
              "Bytes of messages of operations that this process has not called yet. If more come the operations of "
              "that communicator fail",
              MCA_BASE_VAR_TYPE_SIZE_T, &mca_coll_mp_component.memory);
    mca_coll_mp_component.in_flight = 16;
    parameter("in_flight", "Operations of a communicator that are under way; further ones wait. 2 to 32",
              MCA_BASE_VAR_TYPE_UNSIGNED_INT, &mca_coll_mp_component.in_flight);
    mca_coll_mp_component.latency = 1000;
    parameter("latency",
              "ns that a small message is on its way. With coll_mp_overhead it decides how many messages of a barrier, "
              "allgather or small allreduce are under way at a time: more where the way is long. 0: one, and so where "
              "coll_mp_engine is not host. At most 1000000",
              MCA_BASE_VAR_TYPE_UNSIGNED_INT, &mca_coll_mp_component.latency);
    mca_coll_mp_component.overhead = 200;
    parameter("overhead", "ns that processors spend on a small message; at most 1000000",
              MCA_BASE_VAR_TYPE_UNSIGNED_INT, &mca_coll_mp_component.overhead);
    mca_coll_mp_component.local_latency = 250;
    parameter(
        "local_latency",
        "The same as coll_mp_latency, between two ranks of a host. Unless it should take more than a tenth longer, "
        "one rank of each host talks over the network in small operations, the others within their host. 0: hosts do "
        "not count. At most 1000000",
        MCA_BASE_VAR_TYPE_UNSIGNED_INT, &mca_coll_mp_component.local_latency);
    mca_coll_mp_component.local_overhead = 100;
    parameter("local_overhead", "The same as coll_mp_overhead, between two ranks of a host; at most 1000000",
              MCA_BASE_VAR_TYPE_UNSIGNED_INT, &mca_coll_mp_component.local_overhead);
    mca_coll_mp_component.engine_name = "host";
    parameter(
        "engine",
        "Who sends what small barriers, bcasts, allgathers, allreduces and scatters need: host; adapter, where it "
        "waits for data (UCX_MP_TASKS, mp_info --check); auto: the adapter if the operation does not block. host at "
        "all ranks or at none, unless coll_mp_latency is 0: ranks that differ say so in one line, and wait",
        MCA_BASE_VAR_TYPE_STRING, &mca_coll_mp_component.engine_name);
    mca_coll_mp_component.after = 8;
    parameter("after", "Operations of a communicator before it asks for queues that adapters execute",
              MCA_BASE_VAR_TYPE_UNSIGNED_INT, &mca_coll_mp_component.after);
    return OMPI_SUCCESS;
}

static int component_open(void) {
    /* pml/mp checks the series and the layouts for messages. */
    return mca_coll_base_module_t_class.cls_sizeof == sizeof(mca_coll_base_module_t) &&
                   ompi_op_t_class.cls_sizeof == sizeof(ompi_op_t)
               ? OMPI_SUCCESS
               : OMPI_ERR_NOT_AVAILABLE;
}

/* The names of `enable`. False: one is none, and the user has heard of it. */
static bool read_names(uint32_t* ours) {
    static const struct {
        const char* name;
        unsigned kind;
    } names[] = {
#define NAMED(NAME, KIND) {#NAME, KIND},
        MCA_COLL_MP_OURS(NAMED)};
    *ours = 0;
    const char* at = mca_coll_mp_component.enable;
    if (at == NULL || strcmp(at, "none") == 0) return true;
    while (*at != '\0') {
        const size_t length = strcspn(at, ",");
        uint32_t found = 0;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if ((length == 3 && strncmp(at, "all", 3) == 0) ||
                (strlen(names[i].name) == length && strncmp(at, names[i].name, length) == 0))
                found |= 1u << names[i].kind;
        if (found == 0) {
            opal_output(0, "coll/mp: coll_mp_enable=%s: none, all, or of " MCA_COLL_MP_NAMES,
                        mca_coll_mp_component.enable);
            return false;
        }
        *ours |= found;
        at += length + (at[length] == ',');
    }
    return true;
}

static bool read_engine(void) {
    mca_coll_mp_component_t* const its = &mca_coll_mp_component;
    static const char* const names[] = {"host", "auto", "adapter"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (its->engine_name != NULL && strcmp(its->engine_name, names[i]) == 0) {
            its->engine = (mp_engine_t)i;
            return true;
        }
    opal_output(0, "coll/mp: coll_mp_engine=%s: auto, host or adapter", its->engine_name ? its->engine_name : "");
    return false;
}

static bool in_range(const char* name, size_t value, size_t least, size_t most) {
    if (value >= least && value <= most) return true;
    opal_output(0, "coll/mp: coll_mp_%s=%zu: from %zu to %zu", name, value, least, most);
    return false;
}

/* A user that forces an algorithm gets it. */
static bool forces_algorithms(void) {
    const bool* value = NULL;
    const int index = mca_base_var_find("ompi", "coll", "tuned", "use_dynamic_rules");
    return index >= 0 && mca_base_var_get_value(index, &value, NULL, NULL) == OPAL_SUCCESS && value != NULL && *value;
}

static int component_init(bool progress_threads, bool threads) {
    (void)progress_threads, (void)threads;
    mca_coll_mp_component_t* const its = &mca_coll_mp_component;
    if (!read_names(&its->ours) || !read_engine() || !in_range("small", its->small, 0, 65536) ||
        !in_range("halving", its->halving, 0, 1 << 20) || !in_range("in_flight", its->in_flight, 2, 32) ||
        !in_range("eager", its->eager, 0, 65536) || !in_range("peers", its->peers, 1, 1024) ||
        !in_range("latency", its->latency, 0, 1000000) || !in_range("overhead", its->overhead, 0, 1000000) ||
        !in_range("local_latency", its->local_latency, 0, 1000000) ||
        !in_range("local_overhead", its->local_overhead, 0, 1000000))
        return OMPI_ERR_NOT_AVAILABLE;
    if (its->ours != 0 && forces_algorithms()) its->ours = 0;
    if (its->priority <= 0 && its->ours == 0) return OMPI_ERR_NOT_AVAILABLE;
    if (mca_pml_mp.core != NULL) return OMPI_SUCCESS;
    opal_output(0, "coll/mp: needs pml/mp: --mca pml mp");
    return OMPI_ERR_NOT_AVAILABLE;
}

/* Ours are within one job: members of several jobs end at different times,
 * and are not always reached by all. All members see this alike. */
static bool is_ours(ompi_communicator_t* comm) {
    if (OMPI_COMM_IS_INTER(comm) || ompi_comm_size(comm) < 2) return false;
    const opal_process_name_t first = ompi_group_get_proc_name(comm->c_local_group, 0);
    for (int i = 1; i < ompi_comm_size(comm); i++)
        if (ompi_group_get_proc_name(comm->c_local_group, i).jobid != first.jobid) return false;
    return true;
}

static mca_coll_base_module_t* component_query(ompi_communicator_t* comm, int* priority) {
    enum { OURS = 40 }; /* above tuned, libnbc and han; below self */
    const mca_coll_mp_component_t* const its = &mca_coll_mp_component;
    mca_coll_mp_sweep();
    const uint32_t ours = its->ours != 0 && is_ours(comm) ? its->ours : 0;
    if (its->priority <= 0 && ours == 0) return NULL;
    const uint32_t life = ours != 0 ? mca_coll_mp_next_life(comm) : 0; /* whatever fails here: others count it, too */
    *priority = ours != 0 && its->priority < OURS ? OURS : its->priority;
    mca_coll_mp_module_t* const module = OBJ_NEW(mca_coll_mp_module_t);
    if (module == NULL) return NULL;
    module->ours = ours;
    module->life = life;
    return &module->super;
}
