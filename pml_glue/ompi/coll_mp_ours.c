/* Collective operations of our own, blocking and not, and persistent ones (coll_mp_persistent.c). The core has the
 * messages (mp_collect.h); here are buffers, datatypes, operators, and requests. The parts of a call are described
 * once, for all three.
 *
 * Non-blocking reductions of one MPI_INT by MPI_MAX or MPI_MIN go below, and non-blocking broadcasts of as many
 * bytes. Open MPI makes communicators by them, and MPI_Comm_idup starts them from progress (between two groups
 * on the communicator of one of them), in no order that all ranks share. But operations of ours are numbered in one
 * order. */
#include "coll_mp_call.h"

typedef mca_coll_mp_call_t call_t;
#define PARAMETERS(...) __VA_ARGS__

/* Whether a call is ours; else the next component below has it. `result` is not OMPI_SUCCESS:
 * no component. Without memory for a group no other component decides either: the core has told the members. */
static bool is_ours(mca_coll_mp_module_t* module, ompi_communicator_t* comm, mp_collective_kind_t kind, size_t bytes,
                    int* result) {
    mp_group_t* group = module->group;
    *result = OMPI_SUCCESS;
    if (OPAL_UNLIKELY(group == NULL)) {
        group = mca_coll_mp_join(module, comm);
        if (group == NULL) {
            *result = OMPI_ERR_OUT_OF_RESOURCE;
            return false;
        }
    }
    if (OPAL_LIKELY(mp_group_takes(group, kind, bytes))) return true;
    mca_pml_mp_lock();
    *result = mca_pml_mp_code(mp_group_error(group));
    mca_pml_mp_unlock();
    return false;
}

static void gives(call_t* call, const void* buffer, size_t count, ompi_datatype_t* type) {
    call->from = type;
    call->core.collective.in = mca_coll_mp_describe(buffer, count, type, &call->in, &call->in_used, true);
}
static void gets(call_t* call, void* buffer, size_t count, ompi_datatype_t* type) {
    call->to = type;
    call->core.collective.out = mca_coll_mp_describe(buffer, count, type, &call->out, &call->out_used, false);
}
static void* place(void* buffer, size_t index, size_t count, const ompi_datatype_t* type) {
    ptrdiff_t lower, extent;
    opal_datatype_get_extent(&type->super, &lower, &extent);
    return (char*)buffer + (ptrdiff_t)(index * count) * extent;
}

static void begin(call_t* call, mp_collective_kind_t kind, size_t bytes) {
    mp_collective_t* const core = &call->core.collective;
    core->kind = kind;
    core->root = 0;
    core->bytes = bytes;
    core->fold = NULL;
    core->done = NULL;
    core->in = core->out = (mp_data_t){.buffer = NULL, .bytes = 0, .convertor = NULL};
    call->in_used = call->out_used = call->blocks_used = false;
    call->failed = OMPI_SUCCESS;
    call->spans = NULL;
}

static void reduces(call_t* call, ompi_op_t* op, ompi_datatype_t* type, size_t count) {
    call->op = op;
    call->type = type;
    call->count = count;
    call->core.collective.fold =
        OPAL_LIKELY(mca_pml_mp_contiguous(type, count)) ? mca_coll_mp_fold : mca_coll_mp_fold_spread;
}

int mca_coll_mp_code_of(const call_t* call) {
    if (OPAL_UNLIKELY(call->failed != OMPI_SUCCESS)) return call->failed;
    return OPAL_LIKELY(call->core.collective.error == MP_OK) ? OMPI_SUCCESS
                                                             : mca_pml_mp_code(call->core.collective.error);
}

static int run(call_t* call, mca_coll_mp_module_t* module, ompi_communicator_t* comm) {
    mp_group_t* const group = module->group;
    if (OPAL_UNLIKELY(call->blocks_used)) mca_coll_mp_copy_own(call, comm);
    mca_pml_mp_lock();
    mp_collective_start(group, &call->core);
    mca_pml_mp_unlock();
    mca_pml_mp_wait_until(&call->core.collective.complete);
    if (OPAL_UNLIKELY(call->in_used || call->out_used || call->spans != NULL)) mca_coll_mp_let_go(call);
    if (OPAL_UNLIKELY(!mp_group_idle(group))) {
        mca_pml_mp_lock();
        if (!mp_group_idle(group)) mca_coll_mp_keep(module, comm);
        mca_pml_mp_unlock();
    }
    return mca_coll_mp_code_of(call);
}

/* Calls that do not block: those that are over, for the next ones. With the lock. */
static call_t* free_calls;

/* Null: no memory. Then operations of the communicator fail at all members, who would wait for this one. */
static call_t* new_call(mca_coll_mp_module_t* module, ompi_communicator_t* comm) {
    mca_pml_mp_lock();
    call_t* call = free_calls;
    if (OPAL_LIKELY(call != NULL)) free_calls = call->next;
    mca_pml_mp_request_t* const request = mca_pml_mp_new_request(comm, true, MP_KIND_ONCE);
    if (call == NULL) call = malloc(sizeof *call);
    if (OPAL_UNLIKELY(request == NULL || call == NULL)) {
        if (request != NULL) mca_pml_mp_release_request(request);
        free(call);
        mp_group_give_up(module->group);
        mca_pml_mp_unlock();
        return NULL;
    }
    mca_pml_mp_unlock();
    call->module = module;
    call->request = request;
    call->retained[0] = call->retained[1] = NULL;
    return call;
}

/* MPI ignores some arguments (in place, or at a root), which may be anything: only types of convertors are kept. */
void mca_coll_mp_retain_types(call_t* call) {
    const mp_collective_t* const core = &call->core.collective;
    if (call->in_used) call->retained[1] = call->from;
    if (call->out_used) call->retained[0] = call->to;
    if (core->fold != NULL) call->retained[0] = call->type;
    for (int i = 0; i < 2; i++) {
        if (call->blocks_used) call->retained[i] = call->blocks[i].type;
        if (call->retained[i] != NULL) OMPI_DATATYPE_RETAIN(call->retained[i]);
    }
}

void mca_coll_mp_release_types(call_t* call) {
    for (int i = 0; i < 2; i++)
        if (call->retained[i] != NULL) OMPI_DATATYPE_RELEASE(call->retained[i]);
}

/* Called by the core, with the lock. */
static void ended(mp_collective_t* core) {
    call_t* const call = (call_t*)core;
    mca_pml_mp_request_t* const request = call->request;
    const int code = mca_coll_mp_code_of(call);
    if (code != OMPI_SUCCESS) request->super.req_status.MPI_ERROR = ompi_errcode_get_mpi_code(code);
    mca_coll_mp_let_go(call);
    mca_coll_mp_release_types(call);
    if (!mp_group_idle(call->module->group)) mca_coll_mp_keep(call->module, request->super.req_mpi_object.comm);
    call->next = free_calls;
    free_calls = call;
    mca_pml_mp_end(request);
}

static int run_later(call_t* call, ompi_request_t** request) {
    *request = &call->request->super;
    mca_coll_mp_retain_types(call);
    if (call->blocks_used) mca_coll_mp_copy_own(call, call->request->super.req_mpi_object.comm);
    call->core.collective.done = ended;
    mca_pml_mp_lock();
    mca_pml_mp_retain(call->request, NULL);
    call->request->active = true;
    mp_collective_start(call->module->group, &call->core);
    mca_pml_mp_leave();
    return OMPI_SUCCESS;
}

/* Operators of users go below: any thread that makes progress would call them, with the core's lock. */
static bool goes_below(const ompi_op_t* op) { return !ompi_op_is_intrinsic((ompi_op_t*)op); }
static bool makes_communicators(const ompi_op_t* op, const ompi_datatype_t* type, int count) {
    return count == 1 && type == &ompi_mpi_int.dt && (op == &ompi_mpi_op_max.op || op == &ompi_mpi_op_min.op);
}

/* Each operation: the packed bytes that decide (SIZE_MAX: not ours); its parts. `later`: it does not block. */
#define BCAST void *buffer, int count, ompi_datatype_t *type, int root
static size_t size_of_bcast(const ompi_communicator_t* comm, bool later, BCAST) {
    (void)comm, (void)buffer, (void)root;
    const size_t bytes = (size_t)count * type->super.size;
    return later && bytes == sizeof(int) ? SIZE_MAX : bytes; /* makes communicators, too; layouts may differ */
}
static void describe_bcast(call_t* call, ompi_communicator_t* comm, BCAST) {
    call->core.collective.root = (uint32_t)root;
    if (ompi_comm_rank(comm) == root)
        gives(call, buffer, (size_t)count, type);
    else
        gets(call, buffer, (size_t)count, type);
}

#define BLOCKS const void *sent, int send_count, ompi_datatype_t *send_type, void *got, int count, ompi_datatype_t *type
static size_t size_of_allgather(const ompi_communicator_t* comm, bool later, BLOCKS) {
    (void)comm, (void)later, (void)sent, (void)send_count, (void)send_type, (void)got;
    return (size_t)count * type->super.size;
}
static void describe_allgather(call_t* call, ompi_communicator_t* comm, BLOCKS) {
    if (sent == MPI_IN_PLACE)
        gives(call, place(got, (size_t)ompi_comm_rank(comm), (size_t)count, type), (size_t)count, type);
    else
        gives(call, sent, (size_t)send_count, send_type);
    gets(call, got, (size_t)ompi_comm_size(comm) * (size_t)count, type);
}

#define REDUCED const void *sent, void *got, int count, ompi_datatype_t *type, ompi_op_t *op
static size_t size_of_allreduce(const ompi_communicator_t* comm, bool later, REDUCED) {
    (void)comm, (void)sent, (void)got;
    if (goes_below(op) || (later && makes_communicators(op, type, count))) return SIZE_MAX;
    return (size_t)count * type->super.size;
}
static void describe_allreduce(call_t* call, ompi_communicator_t* comm, REDUCED) {
    (void)comm;
    reduces(call, op, type, (size_t)count);
    gives(call, sent == MPI_IN_PLACE ? got : sent, (size_t)count, type);
    gets(call, got, (size_t)count, type);
}

static size_t size_of_reduce(const ompi_communicator_t* comm, bool later, REDUCED, int root) {
    (void)comm, (void)sent, (void)got, (void)root;
    if (goes_below(op) || (later && makes_communicators(op, type, count))) return SIZE_MAX;
    return (size_t)count * type->super.size;
}
static void describe_reduce(call_t* call, ompi_communicator_t* comm, REDUCED, int root) {
    call->core.collective.root = (uint32_t)root;
    reduces(call, op, type, (size_t)count);
    gives(call, sent == MPI_IN_PLACE ? got : sent, (size_t)count, type);
    if (ompi_comm_rank(comm) == root) gets(call, got, (size_t)count, type);
}

static size_t size_of_gather(const ompi_communicator_t* comm, bool later, BLOCKS, int root) {
    (void)later, (void)sent, (void)got;
    return ompi_comm_rank((ompi_communicator_t*)comm) == root ? (size_t)count * type->super.size
                                                              : (size_t)send_count * send_type->super.size;
}
static void describe_gather(call_t* call, ompi_communicator_t* comm, BLOCKS, int root) {
    const bool is_root = ompi_comm_rank(comm) == root;
    call->core.collective.root = (uint32_t)root;
    if (is_root && sent == MPI_IN_PLACE)
        gives(call, place(got, (size_t)root, (size_t)count, type), (size_t)count, type);
    else
        gives(call, sent, (size_t)send_count, send_type);
    if (is_root) gets(call, got, (size_t)ompi_comm_size(comm) * (size_t)count, type);
}

static size_t size_of_scatter(const ompi_communicator_t* comm, bool later, BLOCKS, int root) {
    (void)later, (void)sent, (void)got;
    return ompi_comm_rank((ompi_communicator_t*)comm) == root ? (size_t)send_count * send_type->super.size
                                                              : (size_t)count * type->super.size;
}
static void describe_scatter(call_t* call, ompi_communicator_t* comm, BLOCKS, int root) {
    const bool is_root = ompi_comm_rank(comm) == root;
    call->core.collective.root = (uint32_t)root;
    if (is_root) gives(call, sent, (size_t)ompi_comm_size(comm) * (size_t)send_count, send_type);
    if (!is_root || got != MPI_IN_PLACE) gets(call, got, (size_t)count, type);
}

void mca_coll_mp_copy_own(call_t* call, ompi_communicator_t* comm) {
    const uint32_t rank = (uint32_t)ompi_comm_rank(comm);
    const void* memory[2];
    int counts[2];
    for (int sends = 0; sends < 2; sends++) {
        const mca_coll_mp_blocks_t* const its = &call->blocks[sends];
        counts[sends] = its->counts != NULL ? its->counts[rank] : (int)its->count;
        const size_t first = its->places != NULL ? (size_t)its->places[rank] : rank * its->count;
        memory[sends] = place(its->memory, first, 1, its->type);
    }
    call->failed = ompi_datatype_sndrcv((void*)memory[1], counts[1], call->blocks[1].type, (void*)memory[0], counts[0],
                                        call->blocks[0].type);
}
static void exchanges(call_t* call) {
    call->blocks_used = true;
    call->core.collective.size = mca_coll_mp_size;
    call->core.collective.open = mca_coll_mp_open;
    call->core.collective.close = mca_coll_mp_close;
}

/* In place goes below, which all ranks know: blocks would meet others that are not sent yet. */
static size_t size_of_alltoall(const ompi_communicator_t* comm, bool later, BLOCKS) {
    (void)comm, (void)later, (void)send_count, (void)send_type, (void)got;
    return sent == MPI_IN_PLACE ? SIZE_MAX : (size_t)count * type->super.size;
}
static void describe_alltoall(call_t* call, ompi_communicator_t* comm, BLOCKS) {
    if (mp_group_is_small(call->module->group, call->core.collective.bytes)) {
        const size_t ranks = (size_t)ompi_comm_size(comm);
        gives(call, sent, ranks * (size_t)send_count, send_type);
        gets(call, got, ranks * (size_t)count, type);
        return;
    }
    call->blocks[0] = (mca_coll_mp_blocks_t){.memory = got, .count = (size_t)count, .type = type};
    call->blocks[1] = (mca_coll_mp_blocks_t){.memory = (char*)sent, .count = (size_t)send_count, .type = send_type};
    exchanges(call);
}

#define LISTS                                                                                                          \
    const void *sent, const int *send_counts, const int *send_places, ompi_datatype_t *send_type, void *got,           \
        const int *counts, const int *places, ompi_datatype_t *type
static size_t size_of_alltoallv(const ompi_communicator_t* comm, bool later, LISTS) {
    (void)comm, (void)later, (void)send_counts, (void)send_places, (void)send_type;
    (void)got, (void)counts, (void)places, (void)type;
    return sent == MPI_IN_PLACE ? SIZE_MAX : 0;
}
static void describe_alltoallv(call_t* call, ompi_communicator_t* comm, LISTS) {
    (void)comm;
    call->blocks[0] = (mca_coll_mp_blocks_t){.memory = got, .counts = counts, .places = places, .type = type};
    call->blocks[1] =
        (mca_coll_mp_blocks_t){.memory = (char*)sent, .counts = send_counts, .places = send_places, .type = send_type};
    exchanges(call);
}

#define BLOCKS_GIVEN sent, send_count, send_type, got, count, type
#define REDUCED_GIVEN sent, got, count, type, op
/* X(NAME, LATER, AGAIN, KIND, (PARAMETERS), (ARGUMENTS)) */
#define OPERATIONS(X)                                                                                                  \
    X(bcast, ibcast, bcast_init, MP_BCAST, (BCAST), (buffer, count, type, root))                                       \
    X(allgather, iallgather, allgather_init, MP_ALLGATHER, (BLOCKS), (BLOCKS_GIVEN))                                   \
    X(allreduce, iallreduce, allreduce_init, MP_ALLREDUCE, (REDUCED), (REDUCED_GIVEN))                                 \
    X(reduce, ireduce, reduce_init, MP_REDUCE, (REDUCED, int root), (REDUCED_GIVEN, root))                             \
    X(gather, igather, gather_init, MP_GATHER, (BLOCKS, int root), (BLOCKS_GIVEN, root))                               \
    X(scatter, iscatter, scatter_init, MP_SCATTER, (BLOCKS, int root), (BLOCKS_GIVEN, root))                           \
    X(alltoall, ialltoall, alltoall_init, MP_ALLTOALL, (BLOCKS), (BLOCKS_GIVEN))                                       \
    X(alltoallv, ialltoallv, alltoallv_init, MP_ALLTOALLV, (LISTS),                                                    \
      (sent, send_counts, send_places, send_type, got, counts, places, type))

#define DEFINE(NAME, LATER, AGAIN, KIND, TAKES, GIVES)                                                                 \
    static int NAME(PARAMETERS TAKES, ompi_communicator_t* comm, mca_coll_base_module_t* base) {                       \
        mca_coll_mp_module_t* const module = (mca_coll_mp_module_t*)base;                                              \
        const size_t bytes = size_of_##NAME(comm, false, PARAMETERS GIVES);                                            \
        int result;                                                                                                    \
        if (OPAL_UNLIKELY(!is_ours(module, comm, KIND, bytes, &result)))                                               \
            return result != OMPI_SUCCESS ? result                                                                     \
                                          : module->below.NAME(PARAMETERS GIVES, comm, module->below.NAME##_module);   \
        call_t call;                                                                                                   \
        call.module = module;                                                                                          \
        begin(&call, KIND, bytes);                                                                                     \
        describe_##NAME(&call, comm, PARAMETERS GIVES);                                                                \
        return run(&call, module, comm);                                                                               \
    }                                                                                                                  \
    static int LATER(PARAMETERS TAKES, ompi_communicator_t* comm, ompi_request_t** request,                            \
                     mca_coll_base_module_t* base) {                                                                   \
        mca_coll_mp_module_t* const module = (mca_coll_mp_module_t*)base;                                              \
        const size_t bytes = size_of_##NAME(comm, true, PARAMETERS GIVES);                                             \
        int result;                                                                                                    \
        if (OPAL_UNLIKELY(!is_ours(module, comm, KIND, bytes, &result)))                                               \
            return result != OMPI_SUCCESS                                                                              \
                       ? result                                                                                        \
                       : module->below.LATER(PARAMETERS GIVES, comm, request, module->below.LATER##_module);           \
        call_t* const call = new_call(module, comm);                                                                   \
        if (OPAL_UNLIKELY(call == NULL)) return OMPI_ERR_OUT_OF_RESOURCE;                                              \
        begin(call, KIND, bytes);                                                                                      \
        describe_##NAME(call, comm, PARAMETERS GIVES);                                                                 \
        return run_later(call, request);                                                                               \
    }                                                                                                                  \
    static int AGAIN(PARAMETERS TAKES, ompi_communicator_t* comm, struct ompi_info_t* info, ompi_request_t** request,  \
                     mca_coll_base_module_t* base) {                                                                   \
        mca_coll_mp_module_t* const module = (mca_coll_mp_module_t*)base;                                              \
        const size_t bytes = size_of_##NAME(comm, false, PARAMETERS GIVES);                                            \
        int result;                                                                                                    \
        call_t* const call =                                                                                           \
            is_ours(module, comm, KIND, bytes, &result) ? mca_coll_mp_new_persistent(module, comm, &result) : NULL;    \
        if (call == NULL)                                                                                              \
            return result != OMPI_SUCCESS                                                                              \
                       ? result                                                                                        \
                       : module->below.AGAIN(PARAMETERS GIVES, comm, info, request, module->below.AGAIN##_module);     \
        begin(call, KIND, bytes);                                                                                      \
        describe_##NAME(call, comm, PARAMETERS GIVES);                                                                 \
        return mca_coll_mp_make_persistent(call, request);                                                             \
    }                                                                                                                  \
    const mca_coll_base_module_##NAME##_fn_t mca_coll_mp_##NAME = NAME;                                                \
    const mca_coll_base_module_##LATER##_fn_t mca_coll_mp_##LATER = LATER;                                             \
    const mca_coll_base_module_##AGAIN##_fn_t mca_coll_mp_##AGAIN = AGAIN;
OPERATIONS(DEFINE)

static int barrier(ompi_communicator_t* comm, mca_coll_base_module_t* base) {
    mca_coll_mp_module_t* const module = (mca_coll_mp_module_t*)base;
    int result;
    if (OPAL_UNLIKELY(!is_ours(module, comm, MP_BARRIER, 0, &result))) return result;
    call_t call;
    begin(&call, MP_BARRIER, 0);
    return run(&call, module, comm);
}
static int ibarrier(ompi_communicator_t* comm, ompi_request_t** request, mca_coll_base_module_t* base) {
    mca_coll_mp_module_t* const module = (mca_coll_mp_module_t*)base;
    int result;
    if (OPAL_UNLIKELY(!is_ours(module, comm, MP_BARRIER, 0, &result))) return result;
    call_t* const call = new_call(module, comm);
    if (OPAL_UNLIKELY(call == NULL)) return OMPI_ERR_OUT_OF_RESOURCE;
    begin(call, MP_BARRIER, 0);
    return run_later(call, request);
}
static int barrier_init(ompi_communicator_t* comm, struct ompi_info_t* info, ompi_request_t** request,
                        mca_coll_base_module_t* base) {
    mca_coll_mp_module_t* const module = (mca_coll_mp_module_t*)base;
    int result;
    call_t* const call =
        is_ours(module, comm, MP_BARRIER, 0, &result) ? mca_coll_mp_new_persistent(module, comm, &result) : NULL;
    if (call == NULL)
        return result != OMPI_SUCCESS
                   ? result
                   : module->below.barrier_init(comm, info, request, module->below.barrier_init_module);
    begin(call, MP_BARRIER, 0);
    return mca_coll_mp_make_persistent(call, request);
}
const mca_coll_base_module_barrier_fn_t mca_coll_mp_barrier = barrier;
const mca_coll_base_module_ibarrier_fn_t mca_coll_mp_ibarrier = ibarrier;
const mca_coll_base_module_barrier_init_fn_t mca_coll_mp_barrier_init = barrier_init;
