/* Collective operations of our own: blocking ones. The core has the messages (mp_collect.h); here are buffers,
 * datatypes, operators, and communicators. */
#include "coll_mp.h"

/* A call: what the core needs, and what it is told about. */
typedef struct call {
    mp_collective_storage_t core;
    ompi_op_t* op;
    ompi_datatype_t* type; /* of a reduction */
    size_t count;
    char* spans; /* of a reduction of elements with gaps: two vectors */
    bool failed; /* no memory for them */
    bool in_used, out_used;
    opal_convertor_t in, out;
} call_t;

/* Of no thread in particular: with the lock. */
static mca_coll_mp_module_t* kept;

static void keep(mca_coll_mp_module_t* module, ompi_communicator_t* comm) {
    if (module->kept != NULL) return;
    OBJ_RETAIN(comm);
    module->kept = comm;
    module->next_kept = kept;
    kept = module;
}

static void forget(mca_coll_mp_module_t* module) {
    for (mca_coll_mp_module_t** at = &kept; *at != NULL; at = &(*at)->next_kept)
        if (*at == module) {
            *at = module->next_kept;
            return;
        }
}

void mca_coll_mp_sweep(void) {
    if (OPAL_LIKELY(kept == NULL)) return;
    mca_pml_mp_lock();
    for (mca_coll_mp_module_t* module = kept; module != NULL;) {
        if (!mp_group_idle(module->group)) {
            module = module->next_kept;
            continue;
        }
        ompi_communicator_t* comm = module->kept;
        forget(module);
        module->kept = NULL;
        OBJ_RELEASE(comm); /* may end the module, and others */
        module = kept;
    }
    mca_pml_mp_unlock();
}

void mca_coll_mp_leave(mca_coll_mp_module_t* module) {
    if (module->group == NULL) return;
    mca_pml_mp_lock();
    forget(module);
    if (mca_pml_mp.core != NULL) mp_group_free(module->group);
    module->group = NULL;
    mca_pml_mp_unlock();
}

/* With the lock. */
static mp_group_t* make_group(mca_coll_mp_module_t* module, ompi_communicator_t* comm) {
    const int ranks = ompi_comm_size(comm);
    uint64_t* const processes = malloc(sizeof *processes * (size_t)ranks);
    if (processes == NULL) return NULL;
    for (int i = 0; i < ranks; i++) {
        const opal_process_name_t name = ompi_group_get_proc_name(comm->c_local_group, i);
        processes[i] = mca_pml_mp_name(&name);
    }
    const mp_group_config_t config = {.context = mca_pml_mp_context(comm),
                                      .rank = (uint32_t)ompi_comm_rank(comm),
                                      .ranks = (uint32_t)ranks,
                                      .processes = processes,
                                      .in_flight = mca_coll_mp_component.in_flight,
                                      .small = mca_coll_mp_component.small,
                                      .halving = mca_coll_mp_component.halving,
                                      .digest = module->ours};
    module->group = mp_group_create(mca_pml_mp.core, &config);
    free(processes);
    return module->group;
}

/* Whether a call is ours; else the next one below has it. `result` is not OMPI_SUCCESS: nobody. A group that cannot be
 * made is one rank's matter: that must not decide, or others would wait. */
static bool is_ours(mca_coll_mp_module_t* module, ompi_communicator_t* comm, mp_collective_kind_t kind, size_t bytes,
                    int* result) {
    mp_group_t* group = module->group;
    *result = OMPI_SUCCESS;
    if (OPAL_UNLIKELY(group == NULL)) {
        mca_coll_mp_sweep();
        mca_pml_mp_lock();
        group = module->group != NULL ? module->group : make_group(module, comm);
        mca_pml_mp_unlock();
        if (group == NULL) {
            *result = OMPI_ERR_OUT_OF_RESOURCE;
            return false;
        }
    }
    if (OPAL_LIKELY(mp_group_takes(group, kind, bytes))) return true;
    if (OPAL_UNLIKELY(mp_group_broken(group))) *result = mca_pml_mp_code(MP_FAILED);
    return false;
}

static mp_data_t describe(const void* buffer, size_t count, ompi_datatype_t* type, opal_convertor_t* convertor,
                          bool* used, bool sends) {
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

static void gives(call_t* call, const void* buffer, size_t count, ompi_datatype_t* type) {
    call->core.collective.in = describe(buffer, count, type, &call->in, &call->in_used, true);
}
static void gets(call_t* call, void* buffer, size_t count, ompi_datatype_t* type) {
    call->core.collective.out = describe(buffer, count, type, &call->out, &call->out_used, false);
}
static void* place(void* buffer, size_t index, size_t count, const ompi_datatype_t* type) {
    ptrdiff_t lower, extent;
    opal_datatype_get_extent(&type->super, &lower, &extent);
    return (char*)buffer + (ptrdiff_t)(index * count) * extent;
}

static void convert(const call_t* call, char* memory, void* packed, bool pack) {
    opal_convertor_t convertor, *const local = ompi_proc_local()->super.proc_convertor;
    OBJ_CONSTRUCT(&convertor, opal_convertor_t);
    if (pack) {
        opal_convertor_copy_and_prepare_for_send(local, &call->type->super, call->count, memory, 0, &convertor);
        (void)mca_pml_mp_pack(&convertor, 0, packed, call->core.collective.bytes);
    } else {
        opal_convertor_copy_and_prepare_for_recv(local, &call->type->super, call->count, memory, 0, &convertor);
        mca_pml_mp_unpack(&convertor, 0, packed, call->core.collective.bytes);
    }
    opal_convertor_cleanup(&convertor);
    OBJ_DESTRUCT(&convertor);
}

/* Of elements with gaps: operators know them in memory only. */
static void fold_spread(mp_collective_t* core, const void* in, void* inout) {
    call_t* const call = (call_t*)core;
    ptrdiff_t gap;
    const ptrdiff_t span = opal_datatype_span(&call->type->super, (int64_t)call->count, &gap);
    if (call->spans == NULL) call->spans = calloc(2, (size_t)span);
    if (call->spans == NULL) {
        call->failed = true;
        return;
    }
    char *const first = call->spans - gap, *const second = first + span;
    convert(call, first, (void*)in, false);
    convert(call, second, inout, false);
    ompi_op_reduce(call->op, first, second, call->count, call->type);
    convert(call, second, inout, true);
}

static void fold(mp_collective_t* core, const void* in, void* inout) {
    const call_t* const call = (const call_t*)core;
    const ptrdiff_t lower = call->type->super.true_lb;
    ompi_op_reduce(call->op, (char*)in - lower, (char*)inout - lower, call->count, call->type);
}

static void begin(call_t* call, mp_collective_kind_t kind, int root, size_t bytes) {
    mp_collective_t* const core = &call->core.collective;
    core->kind = kind;
    core->root = (uint32_t)root;
    core->bytes = bytes;
    core->fold = NULL;
    core->done = NULL;
    core->in = core->out = (mp_data_t){.buffer = NULL, .bytes = 0, .convertor = NULL};
    call->in_used = call->out_used = call->failed = false;
    call->spans = NULL;
}

static void reduces(call_t* call, ompi_op_t* op, ompi_datatype_t* type, size_t count) {
    call->op = op;
    call->type = type;
    call->count = count;
    call->core.collective.fold = OPAL_LIKELY(mca_pml_mp_contiguous(type, count)) ? fold : fold_spread;
}

static void let_go(call_t* call) {
    if (call->in_used) {
        opal_convertor_cleanup(&call->in);
        OBJ_DESTRUCT(&call->in);
    }
    if (call->out_used) {
        opal_convertor_cleanup(&call->out);
        OBJ_DESTRUCT(&call->out);
    }
    free(call->spans);
}

static int run(call_t* call, mca_coll_mp_module_t* module, ompi_communicator_t* comm) {
    mp_group_t* const group = module->group;
    mca_pml_mp_lock();
    mp_collective_start(group, &call->core);
    mca_pml_mp_unlock();
    mca_pml_mp_wait_until(&call->core.collective.complete);
    if (OPAL_UNLIKELY(call->in_used || call->out_used || call->spans != NULL)) let_go(call);
    if (OPAL_UNLIKELY(!mp_group_idle(group))) {
        mca_pml_mp_lock();
        keep(module, comm);
        mca_pml_mp_unlock();
    }
    if (OPAL_UNLIKELY(call->failed)) return OMPI_ERR_OUT_OF_RESOURCE;
    return OPAL_LIKELY(call->core.collective.error == MP_OK) ? OMPI_SUCCESS
                                                             : mca_pml_mp_code(call->core.collective.error);
}

#define MODULE mca_coll_mp_module_t* const module = (mca_coll_mp_module_t*)base;
#define UNLESS_OURS(KIND, BYTES, BELOW, ...)                                                                           \
    int result;                                                                                                        \
    if (OPAL_UNLIKELY(!is_ours(module, comm, KIND, BYTES, &result)))                                                   \
        return result != OMPI_SUCCESS ? result : module->below.BELOW(__VA_ARGS__, comm, module->below.BELOW##_module);

static int barrier(ompi_communicator_t* comm, mca_coll_base_module_t* base) {
    MODULE
    int result;
    if (OPAL_UNLIKELY(!is_ours(module, comm, MP_BARRIER, 0, &result))) return result;
    call_t call;
    begin(&call, MP_BARRIER, 0, 0);
    return run(&call, module, comm);
}

static int bcast(void* buffer, int count, ompi_datatype_t* type, int root, ompi_communicator_t* comm,
                 mca_coll_base_module_t* base) {
    MODULE
    const size_t bytes = (size_t)count * type->super.size;
    UNLESS_OURS(MP_BCAST, bytes, bcast, buffer, count, type, root)
    call_t call;
    begin(&call, MP_BCAST, root, bytes);
    if (ompi_comm_rank(comm) == root)
        gives(&call, buffer, (size_t)count, type);
    else
        gets(&call, buffer, (size_t)count, type);
    return run(&call, module, comm);
}

static int allgather(const void* sent, int send_count, ompi_datatype_t* send_type, void* got, int count,
                     ompi_datatype_t* type, ompi_communicator_t* comm, mca_coll_base_module_t* base) {
    MODULE
    const size_t bytes = (size_t)count * type->super.size, ranks = (size_t)ompi_comm_size(comm);
    UNLESS_OURS(MP_ALLGATHER, bytes, allgather, sent, send_count, send_type, got, count, type)
    call_t call;
    begin(&call, MP_ALLGATHER, 0, bytes);
    if (sent == MPI_IN_PLACE)
        gives(&call, place(got, (size_t)ompi_comm_rank(comm), (size_t)count, type), (size_t)count, type);
    else
        gives(&call, sent, (size_t)send_count, send_type);
    gets(&call, got, ranks * (size_t)count, type);
    return run(&call, module, comm);
}

/* Also for operators of users: they would be called by whatever thread makes progress, with the core's lock. */
static bool below(const ompi_op_t* op) { return !ompi_op_is_intrinsic((ompi_op_t*)op); }

static int allreduce(const void* sent, void* got, int count, ompi_datatype_t* type, ompi_op_t* op,
                     ompi_communicator_t* comm, mca_coll_base_module_t* base) {
    MODULE
    const size_t bytes = (size_t)count * type->super.size;
    UNLESS_OURS(MP_ALLREDUCE, below(op) ? SIZE_MAX : bytes, allreduce, sent, got, count, type, op)
    call_t call;
    begin(&call, MP_ALLREDUCE, 0, bytes);
    reduces(&call, op, type, (size_t)count);
    gives(&call, sent == MPI_IN_PLACE ? got : sent, (size_t)count, type);
    gets(&call, got, (size_t)count, type);
    return run(&call, module, comm);
}

static int reduce(const void* sent, void* got, int count, ompi_datatype_t* type, ompi_op_t* op, int root,
                  ompi_communicator_t* comm, mca_coll_base_module_t* base) {
    MODULE
    const size_t bytes = (size_t)count * type->super.size;
    UNLESS_OURS(MP_REDUCE, below(op) ? SIZE_MAX : bytes, reduce, sent, got, count, type, op, root)
    call_t call;
    begin(&call, MP_REDUCE, root, bytes);
    reduces(&call, op, type, (size_t)count);
    gives(&call, sent == MPI_IN_PLACE ? got : sent, (size_t)count, type);
    if (ompi_comm_rank(comm) == root) gets(&call, got, (size_t)count, type);
    return run(&call, module, comm);
}

static int gather(const void* sent, int send_count, ompi_datatype_t* send_type, void* got, int count,
                  ompi_datatype_t* type, int root, ompi_communicator_t* comm, mca_coll_base_module_t* base) {
    MODULE
    const bool is_root = ompi_comm_rank(comm) == root;
    const size_t bytes = is_root ? (size_t)count * type->super.size : (size_t)send_count * send_type->super.size;
    UNLESS_OURS(MP_GATHER, bytes, gather, sent, send_count, send_type, got, count, type, root)
    call_t call;
    begin(&call, MP_GATHER, root, bytes);
    if (is_root && sent == MPI_IN_PLACE)
        gives(&call, place(got, (size_t)root, (size_t)count, type), (size_t)count, type);
    else
        gives(&call, sent, (size_t)send_count, send_type);
    if (is_root) gets(&call, got, (size_t)ompi_comm_size(comm) * (size_t)count, type);
    return run(&call, module, comm);
}

static int scatter(const void* sent, int send_count, ompi_datatype_t* send_type, void* got, int count,
                   ompi_datatype_t* type, int root, ompi_communicator_t* comm, mca_coll_base_module_t* base) {
    MODULE
    const bool is_root = ompi_comm_rank(comm) == root;
    const size_t bytes = is_root ? (size_t)send_count * send_type->super.size : (size_t)count * type->super.size;
    UNLESS_OURS(MP_SCATTER, bytes, scatter, sent, send_count, send_type, got, count, type, root)
    call_t call;
    begin(&call, MP_SCATTER, root, bytes);
    if (is_root) gives(&call, sent, (size_t)ompi_comm_size(comm) * (size_t)send_count, send_type);
    if (!is_root || got != MPI_IN_PLACE) gets(&call, got, (size_t)count, type);
    return run(&call, module, comm);
}

#define DEFINE(NAME, KIND) const mca_coll_base_module_##NAME##_fn_t mca_coll_mp_##NAME = NAME;
MCA_COLL_MP_OURS(DEFINE)
