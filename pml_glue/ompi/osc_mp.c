/* Calls that move data: each becomes one operation of the core. */
#include "osc_mp.h"

/* A buffer of a call. */
typedef struct buffer {
    const void* address;
    size_t count;
    ompi_datatype_t* type;
} buffer_t;

/* An operation as MPI is asked for it. */
typedef struct call {
    mp_rma_kind_t kind;
    buffer_t origin, result, target; /* target.address: not used */
    int rank;
    ptrdiff_t displacement;
    ompi_op_t* op;
    ompi_win_t* win;
} call_t;

static size_t bytes_of(const buffer_t* buffer) {
    return buffer->type == NULL ? 0 : buffer->count * buffer->type->super.size;
}

/* Whether the memory of the runs is in the rank's window. */
static bool in_window(const mca_osc_mp_rank_t* rank, const mp_rma_t* rma) {
    const __int128 start = rank->base, end = start + rank->bytes;
    for (size_t i = 0; i < rma->run_count; i++) {
        const mp_run_t* const run = &rma->runs[i];
        const __int128 first = run->address, last = first + (__int128)run->stride * (__int128)(run->repeat - 1);
        const uint64_t span = (run->bytes / rma->unit - 1) * rma->extent + rma->unit;
        if ((first < last ? first : last) < start || (first < last ? last : first) + span > end) return false;
    }
    return true;
}

/* The written and read bytes have to fit (MPI-3.1 11.3.1 to 11.3.4), and may be less than their room. `bytes`: how many
 * the operation is about, which are whole elements. */
static int set_bytes(const call_t* call, const mp_rma_t* rma, size_t* bytes) {
    const size_t target = bytes_of(&call->target), brings = bytes_of(&call->origin), takes = bytes_of(&call->result);
    const bool writes = call->kind == MP_PUT || call->kind == MP_ACCUMULATE;
    *bytes = writes ? brings : target;
    if (call->kind == MP_COMPARE_SWAP) return OMPI_SUCCESS;
    if (brings > target || (!writes && target > takes)) return MPI_ERR_TRUNCATE;
    return brings % rma->unit || *bytes % rma->unit ? MPI_ERR_TYPE : OMPI_SUCCESS;
}

/* `bytes` at most of a buffer's contents for the core: contiguous
 * memory, or the request's convertor, which keeps the type. */
static mp_data_t data_of(const buffer_t* buffer, size_t bytes, opal_convertor_t* convertor, ompi_datatype_t** kept,
                         bool send) {
    mp_data_t data = {.buffer = NULL, .bytes = bytes_of(buffer) < bytes ? bytes_of(buffer) : bytes, .convertor = NULL};
    if (data.bytes == 0) return data;
    data.buffer = (char*)buffer->address + buffer->type->super.true_lb;
    if (mca_pml_mp_contiguous(buffer->type, buffer->count)) return data;
    opal_convertor_t* const local = ompi_proc_local()->super.proc_convertor;
    if (send)
        opal_convertor_copy_and_prepare_for_send(local, &buffer->type->super, buffer->count, buffer->address, 0,
                                                 convertor);
    else
        opal_convertor_copy_and_prepare_for_recv(local, &buffer->type->super, buffer->count, buffer->address, 0,
                                                 convertor);
    OMPI_DATATYPE_RETAIN(buffer->type);
    *kept = buffer->type;
    data.convertor = convertor;
    return data;
}

static bool needs_convertor(const buffer_t* buffer) {
    return bytes_of(buffer) != 0 && !mca_pml_mp_contiguous(buffer->type, buffer->count);
}

/* Elements of atomic operations. */
static int set_elements(const call_t* call, mp_rma_t* rma) {
    ompi_datatype_t* const element = mca_osc_mp_element(call->target.type);
    if (element == NULL) return MPI_ERR_TYPE;
    if (call->kind != MP_COMPARE_SWAP && !mca_osc_mp_defined(call->op, element)) return MPI_ERR_OP;
    rma->type = (uint16_t)element->d_f_to_c_index;
    rma->op = call->op == NULL ? 0 : (uint16_t)call->op->o_f_to_c_index;
    rma->unit = (uint32_t)element->super.size;
    rma->extent = (uint32_t)(element->super.ub - element->super.lb);
    return OMPI_SUCCESS;
}

/* Starts it; `out`: MPI's request, null: none. Called with the lock. */
static int start(const call_t* call, ompi_request_t** out) {
    mca_osc_mp_module_t* const module = mca_osc_mp_of(call->win);
    int result = mca_osc_mp_may(module, call->rank);
    if (result != OMPI_SUCCESS) return result;
    mca_osc_mp_request_t* request = NULL;
    if (out != NULL || needs_convertor(&call->origin) || needs_convertor(&call->result)) {
        request = mca_osc_mp_new_request(call->win);
        if (request == NULL) return OMPI_ERR_OUT_OF_RESOURCE;
        request->shown = out != NULL;
    }
    mp_rma_t rma = {.kind = call->kind, .target = (uint32_t)call->rank, .unit = 1, .extent = 1, .user = request};
    mp_run_t one, *runs = NULL;
    size_t bytes = 0;
    if (call->kind != MP_PUT && call->kind != MP_GET && bytes_of(&call->target) != 0) result = set_elements(call, &rma);
    if (result == OMPI_SUCCESS) result = set_bytes(call, &rma, &bytes);
    if (result == OMPI_SUCCESS && bytes == 0) { /* nothing to do, but the request */
        if (request != NULL) {
            mca_osc_mp_done(request, MP_OK);
            if (out != NULL) *out = &request->super;
        }
        return OMPI_SUCCESS;
    }
    const mca_osc_mp_rank_t* const there = mca_osc_mp_rank(module, call->rank);
    if (result == OMPI_SUCCESS) {
        const uint64_t address = there->base + (uint64_t)(call->displacement * there->unit);
        runs =
            mca_osc_mp_runs(call->target.type, call->target.count, address, rma.unit, rma.extent, &one, &rma.run_count);
        rma.runs = runs;
        if (runs == NULL)
            result = OMPI_ERR_OUT_OF_RESOURCE;
        else if (!module->dynamic && !in_window(there, &rma))
            result = MPI_ERR_RMA_RANGE;
    }
    if (result == OMPI_SUCCESS) {
        if (bytes < bytes_of(&call->target)) rma.run_count = mca_osc_mp_cut(runs, rma.run_count, bytes);
        rma.origin = request ? data_of(&call->origin, SIZE_MAX, &request->origin, &request->origin_type, true)
                             : data_of(&call->origin, SIZE_MAX, NULL, NULL, true);
        rma.result = request ? data_of(&call->result, bytes, &request->result, &request->result_type, false)
                             : data_of(&call->result, bytes, NULL, NULL, false);
        if (request != NULL) request->active = true;
        if (out != NULL) *out = &request->super;
        const mp_error_t error = mp_window_start(module->window, &rma);
        if (error != MP_OK) result = mca_pml_mp_code(error);
    }
    if (runs != &one) free(runs);
    if (result != OMPI_SUCCESS && request != NULL) {
        request->active = false;
        mca_osc_mp_release_request(request);
    }
    return result;
}

static int locked_start(const call_t* call, ompi_request_t** out) {
    mca_pml_mp_lock();
    const int result = start(call, out);
    mca_pml_mp_unlock();
    if (out != NULL && result == OMPI_SUCCESS && REQUEST_COMPLETE(*out)) mca_osc_mp_pass();
    return result;
}

static buffer_t buffer(const void* address, int count, ompi_datatype_t* type) {
    return (buffer_t){.address = address, .count = (size_t)count, .type = type};
}

static int rput(const void* origin, int count, ompi_datatype_t* type, int target, ptrdiff_t displacement,
                int target_count, ompi_datatype_t* target_type, ompi_win_t* win, ompi_request_t** out) {
    const call_t call = {.kind = MP_PUT,
                         .origin = buffer(origin, count, type),
                         .target = buffer(NULL, target_count, target_type),
                         .rank = target,
                         .displacement = displacement,
                         .win = win};
    return locked_start(&call, out);
}

/* `most` bytes, contiguous at both sides: their number, and the place; 0: another call. */
static inline size_t small_block(const mca_osc_mp_module_t* module, int count, const ompi_datatype_t* type, int target,
                                 ptrdiff_t displacement, int target_count, const ompi_datatype_t* target_type,
                                 size_t most, uint64_t* address) {
    const size_t bytes = (size_t)count * type->super.size;
    if (bytes - 1 >= most || bytes != (size_t)target_count * target_type->super.size ||
        !mca_pml_mp_contiguous(type, (size_t)count) ||
        (target_type != type && !mca_pml_mp_contiguous(target_type, (size_t)target_count)))
        return 0;
    const mca_osc_mp_rank_t* const there = mca_osc_mp_rank(module, target);
    const uint64_t offset = (uint64_t)(displacement * there->unit + target_type->super.true_lb);
    if (offset > there->bytes || bytes > there->bytes - offset) return 0;
    *address = there->base + offset;
    return bytes;
}

/* False: operations on the rank may not be started. */
static inline bool epoch_of(const mca_osc_mp_module_t* module, int rank, mp_epoch_t* epoch) {
    if (module->all) {
        *epoch = module->all_checks ? MP_PASSIVE_SHARED : MP_PASSIVE;
        return true;
    }
    *epoch = module->held[rank] == MP_HELD_NONE ? MP_ACTIVE : MP_PASSIVE;
    return *epoch == MP_PASSIVE || (module->access.count >= 0 ? module->reached[rank] : module->fence);
}

static int put(const void* origin, int count, ompi_datatype_t* type, int target, ptrdiff_t displacement,
               int target_count, ompi_datatype_t* target_type, ompi_win_t* win) {
    enum { kSmall = 256 };
    const mca_osc_mp_module_t* const module = mca_osc_mp_of(win);
    mp_epoch_t epoch;
    uint64_t address;
    mca_pml_mp_lock();
    const size_t bytes =
        small_block(module, count, type, target, displacement, target_count, target_type, kSmall, &address);
    const bool left = bytes && epoch_of(module, target, &epoch) &&
                      mp_window_put_now(module->window, (uint32_t)target, (const char*)origin + type->super.true_lb,
                                        bytes, address, epoch);
    mca_pml_mp_unlock();
    if (OPAL_LIKELY(left)) return OMPI_SUCCESS;
    return rput(origin, count, type, target, displacement, target_count, target_type, win, NULL);
}

static int rget(void* result, int count, ompi_datatype_t* type, int target, ptrdiff_t displacement, int target_count,
                ompi_datatype_t* target_type, ompi_win_t* win, ompi_request_t** out) {
    const call_t call = {.kind = MP_GET,
                         .result = buffer(result, count, type),
                         .target = buffer(NULL, target_count, target_type),
                         .rank = target,
                         .displacement = displacement,
                         .win = win};
    return locked_start(&call, out);
}

static int get(void* result, int count, ompi_datatype_t* type, int target, ptrdiff_t displacement, int target_count,
               ompi_datatype_t* target_type, ompi_win_t* win) {
    enum { kSmall = 4096 };
    const mca_osc_mp_module_t* const module = mca_osc_mp_of(win);
    mp_epoch_t epoch;
    uint64_t address;
    mca_pml_mp_lock();
    const size_t bytes =
        small_block(module, count, type, target, displacement, target_count, target_type, kSmall, &address);
    const bool left =
        bytes && epoch_of(module, target, &epoch) &&
        mp_window_get_now(module->window, (uint32_t)target, (char*)result + type->super.true_lb, bytes, address, epoch);
    mca_pml_mp_unlock();
    if (OPAL_LIKELY(left)) return OMPI_SUCCESS;
    return rget(result, count, type, target, displacement, target_count, target_type, win, NULL);
}

static int raccumulate(const void* origin, int count, ompi_datatype_t* type, int target, ptrdiff_t displacement,
                       int target_count, ompi_datatype_t* target_type, ompi_op_t* op, ompi_win_t* win,
                       ompi_request_t** out) {
    const call_t call = {.kind = MP_ACCUMULATE,
                         .origin = buffer(origin, count, type),
                         .target = buffer(NULL, target_count, target_type),
                         .rank = target,
                         .displacement = displacement,
                         .op = op,
                         .win = win};
    return locked_start(&call, out);
}

static int accumulate(const void* origin, int count, ompi_datatype_t* type, int target, ptrdiff_t displacement,
                      int target_count, ompi_datatype_t* target_type, ompi_op_t* op, ompi_win_t* win) {
    return raccumulate(origin, count, type, target, displacement, target_count, target_type, op, win, NULL);
}

/* With MPI_NO_OP the origin's buffer is not looked at: it may be null. */
static int rget_accumulate(const void* origin, int count, ompi_datatype_t* type, void* result, int result_count,
                           ompi_datatype_t* result_type, int target, ptrdiff_t displacement, int target_count,
                           ompi_datatype_t* target_type, ompi_op_t* op, ompi_win_t* win, ompi_request_t** out) {
    const bool reads_only = op == &ompi_mpi_op_no_op.op;
    const call_t call = {.kind = MP_GET_ACCUMULATE,
                         .origin = reads_only ? buffer(NULL, 0, NULL) : buffer(origin, count, type),
                         .result = buffer(result, result_count, result_type),
                         .target = buffer(NULL, target_count, target_type),
                         .rank = target,
                         .displacement = displacement,
                         .op = op,
                         .win = win};
    return locked_start(&call, out);
}

static int get_accumulate(const void* origin, int count, ompi_datatype_t* type, void* result, int result_count,
                          ompi_datatype_t* result_type, int target, ptrdiff_t displacement, int target_count,
                          ompi_datatype_t* target_type, ompi_op_t* op, ompi_win_t* win) {
    return rget_accumulate(origin, count, type, result, result_count, result_type, target, displacement, target_count,
                           target_type, op, win, NULL);
}

static int fetch_and_op(const void* origin, void* result, ompi_datatype_t* type, int target, ptrdiff_t displacement,
                        ompi_op_t* op, ompi_win_t* win) {
    return rget_accumulate(origin, 1, type, result, 1, type, target, displacement, 1, type, op, win, NULL);
}

/* MPI-3.1 11.3.4: whole numbers, logical and multi-language types, and bytes; nothing derived. */
static bool compares(const ompi_datatype_t* type) {
    const int kind = type->super.flags & OMPI_DATATYPE_FLAG_DATA_TYPE;
    return ompi_datatype_is_predefined(type) && kind != OMPI_DATATYPE_FLAG_DATA_FLOAT &&
           kind != OMPI_DATATYPE_FLAG_DATA_COMPLEX && mca_pml_mp_contiguous(type, 1);
}

static int compare_and_swap(const void* origin, const void* compare, void* result, ompi_datatype_t* type, int target,
                            ptrdiff_t displacement, ompi_win_t* win) {
    char both[32]; /* the core keeps a copy */
    const size_t size = type->super.size;
    if (2 * size > sizeof both || !compares(type)) return MPI_ERR_TYPE;
    memcpy(both, compare, size);
    memcpy(both + size, origin, size);
    const call_t call = {.kind = MP_COMPARE_SWAP,
                         .origin = buffer(both, 2, type),
                         .result = buffer(result, 1, type),
                         .target = buffer(NULL, 1, type),
                         .rank = target,
                         .displacement = displacement,
                         .win = win};
    return locked_start(&call, NULL);
}

const ompi_osc_base_module_t mca_osc_mp_functions = {.osc_win_shared_query = mca_osc_mp_shared_query,
                                                     .osc_win_attach = mca_osc_mp_attach,
                                                     .osc_win_detach = mca_osc_mp_detach,
                                                     .osc_free = mca_osc_mp_free,
                                                     .osc_put = put,
                                                     .osc_get = get,
                                                     .osc_accumulate = accumulate,
                                                     .osc_compare_and_swap = compare_and_swap,
                                                     .osc_fetch_and_op = fetch_and_op,
                                                     .osc_get_accumulate = get_accumulate,
                                                     .osc_rput = rput,
                                                     .osc_rget = rget,
                                                     .osc_raccumulate = raccumulate,
                                                     .osc_rget_accumulate = rget_accumulate,
                                                     .osc_fence = mca_osc_mp_fence,
                                                     .osc_start = mca_osc_mp_start,
                                                     .osc_complete = mca_osc_mp_complete,
                                                     .osc_post = mca_osc_mp_post,
                                                     .osc_wait = mca_osc_mp_wait_epoch,
                                                     .osc_test = mca_osc_mp_test,
                                                     .osc_lock = mca_osc_mp_lock,
                                                     .osc_unlock = mca_osc_mp_unlock,
                                                     .osc_lock_all = mca_osc_mp_lock_all,
                                                     .osc_unlock_all = mca_osc_mp_unlock_all,
                                                     .osc_sync = mca_osc_mp_sync,
                                                     .osc_flush = mca_osc_mp_flush,
                                                     .osc_flush_all = mca_osc_mp_flush_all,
                                                     .osc_flush_local = mca_osc_mp_flush_local,
                                                     .osc_flush_local_all = mca_osc_mp_flush_local_all};
