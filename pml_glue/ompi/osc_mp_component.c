/* The component: windows are made and freed. */
#include "osc_mp.h"

#include <sys/mman.h>
#include <unistd.h>

/* Larger windows are aligned to such pages: adapters and kernels need fewer entries for them. */
enum { HUGE_PAGE = 2 << 20 };

static int component_register(void);
static int component_open(void);
static int component_init(bool progress_threads, bool threads);
static int component_query(ompi_win_t* win, void** base, size_t size, int unit, ompi_communicator_t* comm,
                           opal_info_t* info, int flavor);
static int component_select(ompi_win_t* win, void** base, size_t size, int unit, ompi_communicator_t* comm,
                            opal_info_t* info, int flavor, int* model);
static int component_finalize(void);

mca_osc_mp_component_t mca_osc_mp_component = {
    .super = {
        .osc_version = {OMPI_OSC_BASE_VERSION_3_0_0, .mca_component_name = "mp",
                        MCA_BASE_MAKE_VERSION(component, OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION),
                        .mca_open_component = component_open, .mca_register_component_params = component_register},
        .osc_data = {MCA_BASE_METADATA_PARAM_NONE},
        .osc_init = component_init,
        .osc_query = component_query,
        .osc_select = component_select,
        .osc_finalize = component_finalize}};

static int component_register(void) {
    mca_osc_mp_component.priority = 110;
    (void)mca_base_component_var_register(&mca_osc_mp_component.super.osc_version, "priority",
                                          "Among the components that were not excluded", MCA_BASE_VAR_TYPE_INT, NULL, 0,
                                          0, OPAL_INFO_LVL_3, MCA_BASE_VAR_SCOPE_LOCAL, &mca_osc_mp_component.priority);
    mca_osc_mp_component.in_flight = 256 << 10;
    (void)mca_base_component_var_register(
        &mca_osc_mp_component.super.osc_version, "in_flight",
        "Puts, and gets, that are under way to a target, bytes; two of each always are. Reads and writes of an epoch "
        "take turns",
        MCA_BASE_VAR_TYPE_SIZE_T, NULL, 0, 0, OPAL_INFO_LVL_3, MCA_BASE_VAR_SCOPE_LOCAL,
        &mca_osc_mp_component.in_flight);
    return OMPI_SUCCESS;
}

static int component_open(void) {
    /* pml/mp checks the series and the layouts for messages. */
    if (ompi_win_t_class.cls_sizeof == sizeof(ompi_win_t) && ompi_op_t_class.cls_sizeof == sizeof(ompi_op_t))
        return OMPI_SUCCESS;
    opal_output(0, "osc/mp: this library's windows or operations have another size: other headers than the library's");
    return OMPI_ERR_NOT_AVAILABLE;
}

/* A user that names us wants to know why it does not work; else another component serves. */
static bool named(void) {
    const char** value = NULL;
    const int index = mca_base_var_find("ompi", "osc", NULL, NULL);
    if (index < 0 || mca_base_var_get_value(index, &value, NULL, NULL) != OPAL_SUCCESS || value == NULL ||
        *value == NULL)
        return false;
    return **value != '^';
}

static int component_init(bool progress_threads, bool threads) {
    (void)progress_threads, (void)threads;
    if (mca_pml_mp.core == NULL) {
        if (named()) opal_output(0, "osc/mp: needs pml/mp: --mca pml mp");
        return OMPI_ERR_NOT_AVAILABLE;
    }
    OBJ_CONSTRUCT(&mca_osc_mp_component.requests, opal_free_list_t);
    return opal_free_list_init(&mca_osc_mp_component.requests, sizeof(mca_osc_mp_request_t), opal_cache_line_size,
                               OBJ_CLASS(mca_osc_mp_request_t), 0, 0, 0, -1, 32, NULL, 0, NULL, NULL, NULL);
}

static int component_finalize(void) {
    OBJ_DESTRUCT(&mca_osc_mp_component.requests);
    return OMPI_SUCCESS;
}

/* Shared windows are osc/sm's. */
static int component_query(ompi_win_t* win, void** base, size_t size, int unit, ompi_communicator_t* comm,
                           opal_info_t* info, int flavor) {
    (void)win, (void)base, (void)size, (void)unit, (void)comm, (void)info;
    return flavor == MPI_WIN_FLAVOR_SHARED || mca_pml_mp.core == NULL ? OMPI_ERROR : mca_osc_mp_component.priority;
}

static void release(mca_osc_mp_module_t* module) {
    if (module->window != NULL) {
        mca_pml_mp_lock();
        mp_window_free(module->window);
        mca_pml_mp_unlock();
    }
    if (module->comm != NULL) ompi_comm_free(&module->comm);
    free(module->access.ranks);
    free(module->exposure.ranks);
    free(module->memory);
    free(module->table);
    free(module->held);
    free(module->reached);
    free(module);
}

/* All ranks learn base, size and keys of all. No rank is through before all have a window that takes messages. */
static int exchange(mca_osc_mp_module_t* module, const mca_osc_mp_rank_t* mine, const void* keys, size_t length) {
    ompi_communicator_t* const comm = module->comm;
    const int size = ompi_comm_size(comm);
    /* The length, and whether some rank wants no direct fences. */
    unsigned long own[2] = {sizeof *mine + length, !mp_window_wants_direct_fences(module->window)}, most[2] = {0, 0};
    int result = comm->c_coll->coll_allreduce(own, most, 2, MPI_UNSIGNED_LONG, MPI_MAX, comm,
                                              comm->c_coll->coll_allreduce_module);
    if (result != OMPI_SUCCESS) return result;
    mp_window_set_direct_fences(module->window, !most[1]);
    module->stride = (most[0] + 7) & ~(size_t)7;
    module->table = calloc((size_t)size + 1, module->stride);
    if (module->table == NULL) return OMPI_ERR_OUT_OF_RESOURCE;
    char* const entry = module->table + (size_t)size * module->stride;
    memcpy(entry, mine, sizeof *mine);
    memcpy(entry + sizeof *mine, keys, length);
    result = comm->c_coll->coll_allgather(entry, (int)module->stride, MPI_BYTE, module->table, (int)module->stride,
                                          MPI_BYTE, comm, comm->c_coll->coll_allgather_module);
    if (result != OMPI_SUCCESS) return result;
    mca_pml_mp_lock();
    mp_window_set_keys(module->window, module->table + sizeof *mine, module->stride);
    mca_pml_mp_unlock();
    return OMPI_SUCCESS;
}

static bool no_locks(opal_info_t* info) {
    char key[] = "no_locks"; /* 4.1 wants to be able to write it */
    bool value = false;
    int found = 0;
    return info != NULL && opal_info_get_bool(info, key, &value, &found) == OPAL_SUCCESS && found && value;
}

static int fill(mca_osc_mp_module_t* module, void** base, size_t size, int unit, ompi_communicator_t* comm,
                int flavor) {
    int result = ompi_comm_dup(comm, &module->comm);
    if (result != OMPI_SUCCESS) return result;
    const size_t ranks = (size_t)ompi_comm_size(module->comm);
    module->held = calloc(ranks, sizeof *module->held);
    module->reached = calloc(ranks, sizeof *module->reached);
    uint64_t* const processes = calloc(ranks, sizeof *processes);
    if (flavor == MPI_WIN_FLAVOR_ALLOCATE) {
        const bool huge = size >= HUGE_PAGE;
        if (posix_memalign(&module->memory, huge ? HUGE_PAGE : (size_t)getpagesize(), size ? size : 1) != 0)
            module->memory = NULL;
        if (huge && module->memory != NULL) (void)madvise(module->memory, size, MADV_HUGEPAGE);
        *base = module->memory;
    }
    if (module->held == NULL || module->reached == NULL || processes == NULL ||
        (flavor == MPI_WIN_FLAVOR_ALLOCATE && module->memory == NULL)) {
        free(processes);
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    for (size_t i = 0; i < ranks; i++) {
        const opal_process_name_t name = ompi_group_get_proc_name(module->comm->c_local_group, (int)i);
        processes[i] = mca_pml_mp_name(&name);
    }
    module->dynamic = flavor == MPI_WIN_FLAVOR_DYNAMIC;
    const mp_window_config_t config = {.id = mca_pml_mp_context(module->comm),
                                       .rank = (uint32_t)ompi_comm_rank(module->comm),
                                       .ranks = (uint32_t)ranks,
                                       .base = module->dynamic ? NULL : *base,
                                       .size = size,
                                       .dynamic = module->dynamic,
                                       .processes = processes,
                                       .in_flight = mca_osc_mp_component.in_flight};
    static const mp_window_hooks_t hooks = {.apply = mca_osc_mp_apply, .rma_done = mca_osc_mp_done};
    size_t length = 0;
    mca_pml_mp_lock();
    mca_osc_mp_learn_types();
    module->window = mp_window_create(mca_pml_mp.core, &config, &hooks);
    void* const keys = module->window == NULL ? NULL : mp_window_keys(module->window, &length);
    mca_pml_mp_unlock();
    free(processes);
    if (keys == NULL) return OMPI_ERR_OUT_OF_RESOURCE;
    const mca_osc_mp_rank_t mine = {
        .base = (uint64_t)(uintptr_t)config.base, .bytes = size, .unit = module->dynamic ? 1 : unit};
    result = exchange(module, &mine, keys, length);
    free(keys);
    return result;
}

static int component_select(ompi_win_t* win, void** base, size_t size, int unit, ompi_communicator_t* comm,
                            opal_info_t* info, int flavor, int* model) {
    mca_osc_mp_module_t* const module = calloc(1, sizeof *module);
    if (module == NULL) return OMPI_ERR_OUT_OF_RESOURCE;
    module->super = mca_osc_mp_functions;
    module->access.count = module->exposure.count = -1;
    const int result = fill(module, base, size, unit, comm, flavor);
    if (result != OMPI_SUCCESS) {
        release(module);
        return result;
    }
    if (no_locks(info)) win->w_flags |= OMPI_WIN_NO_LOCKS;
    win->w_osc_module = &module->super;
    *model = MPI_WIN_UNIFIED;
    return OMPI_SUCCESS;
}

static bool settled(mp_window_t* window, uint32_t unused) {
    (void)unused;
    return mp_window_settled(window);
}

int mca_osc_mp_free(ompi_win_t* win) {
    mca_osc_mp_module_t* const module = mca_osc_mp_of(win);
    if (module == NULL) return OMPI_SUCCESS;
    if (module->access.count >= 0 || module->exposure.count >= 0 || module->locks || module->all)
        return OMPI_ERR_RMA_SYNC;
    mca_osc_mp_wait(module, settled, 0);
    const int result = module->comm->c_coll->coll_barrier(module->comm, module->comm->c_coll->coll_barrier_module);
    win->w_osc_module = NULL;
    /* A rank is gone, and others may not be here yet: they still use the window, its memory and its name. So it stays,
     * to the end of the program. The handle is gone all the same. */
    if (result == OMPI_SUCCESS) release(module);
    return OMPI_SUCCESS;
}

int mca_osc_mp_attach(ompi_win_t* win, void* base, size_t size) {
    mca_osc_mp_module_t* const module = mca_osc_mp_of(win);
    if (!module->dynamic) return MPI_ERR_RMA_FLAVOR;
    mca_pml_mp_lock();
    const bool attached = mp_window_attach(module->window, base, size);
    mca_pml_mp_unlock();
    return attached ? OMPI_SUCCESS : OMPI_ERR_RMA_ATTACH;
}

int mca_osc_mp_detach(ompi_win_t* win, const void* base) {
    mca_osc_mp_module_t* const module = mca_osc_mp_of(win);
    if (!module->dynamic) return MPI_ERR_RMA_FLAVOR;
    mca_pml_mp_lock();
    const bool detached = mp_window_detach(module->window, base);
    mca_pml_mp_unlock();
    return detached ? OMPI_SUCCESS : OMPI_ERR_BASE;
}

int mca_osc_mp_shared_query(ompi_win_t* win, int rank, size_t* size, int* unit, void* base) {
    (void)win, (void)rank, (void)size, (void)unit, (void)base;
    return MPI_ERR_RMA_FLAVOR; /* of osc/sm's windows only */
}
