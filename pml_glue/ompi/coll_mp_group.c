/* Operations of our own: groups of communicators, and the core's questions about a call while it is under way. */
#include "coll_mp_call.h"

/* Used by any thread, with the lock. */
static mca_coll_mp_module_t* kept;

void mca_coll_mp_keep(mca_coll_mp_module_t* module, ompi_communicator_t* comm) {
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

static uint64_t process_of(const void* comm, uint32_t rank) {
    const opal_process_name_t name =
        ompi_group_get_proc_name(((const ompi_communicator_t*)comm)->c_local_group, (int)rank);
    return mca_pml_mp_name(&name);
}

/* Asked for each communicator when it is made, whatever it is used for: all members count alike. */
uint32_t mca_coll_mp_next_life(ompi_communicator_t* comm) {
    const mp_group_config_t config = {.context = mca_pml_mp_context(comm),
                                      .ranks = (uint32_t)ompi_comm_size(comm),
                                      .process = process_of,
                                      .members = comm};
    mca_pml_mp_lock();
    const uint32_t life = mp_group_next_life(mca_pml_mp.core, &config);
    mca_pml_mp_unlock();
    return life;
}

/* Operations of a communicator before its members ask each other for their hosts: a short-lived one does not. */
enum { HOSTS_AFTER = 8 };

/* With the lock. */
static mp_group_t* make_group(mca_coll_mp_module_t* module, ompi_communicator_t* comm) {
    const mp_group_config_t config = {
        .context = mca_pml_mp_context(comm),
        .rank = (uint32_t)ompi_comm_rank(comm),
        .ranks = (uint32_t)ompi_comm_size(comm),
        .process = process_of,
        .members = comm,
        .in_flight = mca_coll_mp_component.in_flight,
        .small = mca_coll_mp_component.small,
        .halving = mca_coll_mp_component.halving,
        .eager = mca_coll_mp_component.eager,
        .latency = mca_coll_mp_component.engine == MP_ENGINE_HOST ? mca_coll_mp_component.latency : 0,
        .overhead = mca_coll_mp_component.overhead,
        .within_latency = mca_coll_mp_component.local_latency,
        .within_overhead = mca_coll_mp_component.local_overhead,
        .hosts_after = HOSTS_AFTER,
        .digest = module->ours,
        .life = module->life,
        .memory = mca_coll_mp_component.memory,
        .peers = mca_coll_mp_component.peers,
        .engine = mca_coll_mp_component.engine,
        .after = mca_coll_mp_component.after};
    module->group = mp_group_create(mca_pml_mp.core, &config);
    return module->group;
}

mp_group_t* mca_coll_mp_join(mca_coll_mp_module_t* module, ompi_communicator_t* comm) {
    mca_coll_mp_sweep();
    mca_pml_mp_lock();
    mp_group_t* const group = module->group != NULL ? module->group : make_group(module, comm);
    mca_pml_mp_unlock();
    return group;
}

static void convert(const mca_coll_mp_call_t* call, char* memory, void* packed, bool pack) {
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

/* For elements with gaps: operators know them in memory only. */
bool mca_coll_mp_fold_spread(mp_collective_t* core, const void* in, void* inout) {
    mca_coll_mp_call_t* const call = (mca_coll_mp_call_t*)core;
    ptrdiff_t gap;
    const ptrdiff_t span = opal_datatype_span(&call->type->super, (int64_t)call->count, &gap);
    if (call->spans == NULL) call->spans = calloc(2, (size_t)span);
    if (call->spans == NULL) return false;
    char *const first = call->spans - gap, *const second = first + span;
    convert(call, first, (void*)in, false);
    convert(call, second, inout, false);
    ompi_op_reduce(call->op, first, second, call->count, call->type);
    convert(call, second, inout, true);
    return true;
}

bool mca_coll_mp_fold(mp_collective_t* core, const void* in, void* inout) {
    const mca_coll_mp_call_t* const call = (const mca_coll_mp_call_t*)core;
    const ptrdiff_t lower = call->type->super.true_lb;
    ompi_op_reduce(call->op, (char*)in - lower, (char*)inout - lower, call->count, call->type);
    return true;
}

static const mca_coll_mp_blocks_t* blocks(mp_collective_t* core, bool sends) {
    return &((mca_coll_mp_call_t*)core)->blocks[sends];
}

static size_t count_of(const mca_coll_mp_blocks_t* its, uint32_t rank) {
    return its->counts != NULL ? (size_t)its->counts[rank] : its->count;
}

size_t mca_coll_mp_size(mp_collective_t* core, uint32_t rank, bool sends) {
    const mca_coll_mp_blocks_t* const its = blocks(core, sends);
    return count_of(its, rank) * its->type->super.size;
}

/* Also by the progress thread: a convertor needs nothing of the program. */
mp_data_t mca_coll_mp_open(mp_collective_t* core, uint32_t rank, bool sends) {
    const mca_coll_mp_blocks_t* const its = blocks(core, sends);
    const size_t count = count_of(its, rank);
    ptrdiff_t lower, extent;
    opal_datatype_get_extent(&its->type->super, &lower, &extent);
    const ptrdiff_t first = its->places != NULL ? its->places[rank] : (ptrdiff_t)(rank * count);
    char* const memory = its->memory + first * extent;
    bool used;
    mp_data_t data = {.buffer = memory + its->type->super.true_lb, .bytes = count * its->type->super.size};
    if (OPAL_LIKELY(mca_pml_mp_contiguous(its->type, count)) || data.bytes == 0) return data;
    opal_convertor_t* const convertor = OBJ_NEW(opal_convertor_t);
    if (convertor == NULL) return (mp_data_t){.buffer = NULL, .bytes = data.bytes, .convertor = NULL};
    data = mca_coll_mp_describe(memory, count, its->type, convertor, &used, sends);
    return data;
}

void mca_coll_mp_close(mp_collective_t* core, uint32_t rank, void* pointer, bool sends) {
    (void)core, (void)rank, (void)sends;
    opal_convertor_t* convertor = pointer;
    opal_convertor_cleanup(convertor);
    OBJ_RELEASE(convertor);
}

void mca_coll_mp_let_go(mca_coll_mp_call_t* call) {
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
