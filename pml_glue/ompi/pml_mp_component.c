/* The component: its parameters, and the core with its questions to Open MPI. */
#include "pml_mp.h"

static int component_register(void);
static int component_open(void);
static mca_pml_base_module_t* component_init(int* priority, bool progress_threads, bool threads);
static int component_finalize(void);

mca_pml_base_component_t mca_pml_mp_component = {
    .pmlm_version = {MP_PML_VERSION, .mca_component_name = "mp",
                     MCA_BASE_MAKE_VERSION(component, OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION),
                     .mca_open_component = component_open, .mca_register_component_params = component_register},
    .pmlm_data = {MCA_BASE_METADATA_PARAM_NONE},
    .pmlm_init = component_init,
    .pmlm_finalize = component_finalize};

static void parameter(const char* name, const char* help, mca_base_var_type_t type, void* value) {
    (void)mca_base_component_var_register(&mca_pml_mp_component.pmlm_version, name, help, type, NULL, 0, 0,
                                          OPAL_INFO_LVL_3, MCA_BASE_VAR_SCOPE_LOCAL, value);
}

static int component_register(void) {
    mca_pml_mp.transports = "auto";
    parameter(
        "transports",
        "UCT's transports, the best first among those that reach a peer; auto: self,posix,cma,mp_rc,mp_dc, of the "
        "last two only the one that UCX_TLS names if it names one",
        MCA_BASE_VAR_TYPE_STRING, &mca_pml_mp.transports);
    mca_pml_mp.local = "auto";
    parameter("local", "Who may use shared memory: auto (same machine and adapters), host (same machine), none",
              MCA_BASE_VAR_TYPE_STRING, &mca_pml_mp.local);
    mca_pml_mp.rendezvous = "get";
    parameter("rendezvous", "Large messages: get (the receiver reads) or put (the sender writes)",
              MCA_BASE_VAR_TYPE_STRING, &mca_pml_mp.rendezvous);
    mca_pml_mp.eager_limit = "auto";
    parameter("eager_limit", "Larger messages go by rendezvous: bytes, or auto (by the transport's estimates)",
              MCA_BASE_VAR_TYPE_STRING, &mca_pml_mp.eager_limit);
    mca_pml_mp.zero_copy = "auto";
    parameter("zero_copy",
              "Eager messages from this size on are sent without a copy: bytes, auto (by the transport's estimates, if "
              "the call does not wait), or never",
              MCA_BASE_VAR_TYPE_STRING, &mca_pml_mp.zero_copy);
    mca_pml_mp.hint_limit = 16384;
    parameter("hint_limit", "From this size on the transport is told who waits for it, bytes", MCA_BASE_VAR_TYPE_SIZE_T,
              &mca_pml_mp.hint_limit);
    mca_pml_mp.burst = 16;
    parameter("burst",
              "Small messages to a peer, by calls that do not wait, that leave one by one until progress is made; "
              "further ones leave together. 0: all alone",
              MCA_BASE_VAR_TYPE_UNSIGNED_INT, &mca_pml_mp.burst);
    mca_pml_mp.watch_strangers = false;
    parameter(
        "watch_strangers",
        "A receive from any source that waits: ask members of its communicator, too, that nothing has been sent to. "
        "For jobs that go on without a process: each of them gets a connection",
        MCA_BASE_VAR_TYPE_BOOL, &mca_pml_mp.watch_strangers);
    mca_pml_mp.watch_interval = 1000;
    parameter("watch_interval", "Who is waited for is asked so often whether it lives, ms; 0: never",
              MCA_BASE_VAR_TYPE_UNSIGNED_INT, &mca_pml_mp.watch_interval);
    mca_pml_mp.async = "auto";
    parameter(
        "async",
        "A thread that makes progress while the program computes: y (as if it had a processor for itself), n (none), "
        "or auto (if there is no processor for it, it takes a little of the program's time every 10 ms)",
        MCA_BASE_VAR_TYPE_STRING, &mca_pml_mp.async);
    mca_pml_mp.statistics = false;
    parameter("statistics", "Print what was carried by which transport, at the end", MCA_BASE_VAR_TYPE_BOOL,
              &mca_pml_mp.statistics);
    mca_pml_mp.priority = 10;
    parameter("priority", "Among the components that were not excluded", MCA_BASE_VAR_TYPE_INT, &mca_pml_mp.priority);
    return OMPI_SUCCESS;
}

/* The loader checks neither series nor layouts, and differences would crash later. */
static bool right_series(void) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING], wanted[32];
    int length;
    snprintf(wanted, sizeof wanted, "Open MPI v%d.%d.", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION);
    if (MPI_Get_library_version(text, &length) != MPI_SUCCESS || strncmp(text, wanted, strlen(wanted)) != 0) {
        opal_output(0, "pml/mp: made for %sx, this is %.30s", wanted, text);
        return false;
    }
    static const struct {
        opal_class_t* of;
        size_t size;
        const char* name;
    } layouts[] = {
        {&ompi_request_t_class, sizeof(ompi_request_t), "ompi_request_t"},
        {&ompi_coll_base_nbc_request_t_class, sizeof(ompi_coll_base_nbc_request_t), "ompi_coll_base_nbc_request_t"},
        {&ompi_communicator_t_class, sizeof(ompi_communicator_t), "ompi_communicator_t"},
        {&ompi_datatype_t_class, sizeof(ompi_datatype_t), "ompi_datatype_t"},
        {&ompi_message_t_class, sizeof(ompi_message_t), "ompi_message_t"},
        {&opal_convertor_t_class, sizeof(opal_convertor_t), "opal_convertor_t"},
        {&opal_free_list_t_class, sizeof(opal_free_list_t), "opal_free_list_t"},
        {&opal_mutex_t_class, sizeof(opal_mutex_t), "opal_mutex_t"},
        {&ompi_group_t_class, sizeof(ompi_group_t), "ompi_group_t"},
        {&ompi_proc_t_class, sizeof(ompi_proc_t), "ompi_proc_t"}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].of->cls_sizeof != layouts[i].size) {
            opal_output(0, "pml/mp: this library's %s has %zu bytes, made for %zu: other headers than the library's",
                        layouts[i].name, layouts[i].of->cls_sizeof, layouts[i].size);
            return false;
        }
    /* Members of an object of the library's: its type is known everywhere. */
    const opal_datatype_t* const known = &ompi_mpi_double.dt.super;
    const char* const misfit = known->size == sizeof(double) && known->true_ub == sizeof(double) && known->true_lb == 0
                                   ? mca_pml_mp_misfit()
                                   : "datatypes";
    if (misfit != NULL) {
        opal_output(0, "pml/mp: this library's %s: other than in the headers that pml/mp was made with", misfit);
        return false;
    }
    return true;
}

static int component_open(void) { return right_series() ? OMPI_SUCCESS : OMPI_ERR_NOT_AVAILABLE; }

uint64_t mca_pml_mp_name(const opal_process_name_t* name) { return (uint64_t)name->jobid << 32 | name->vpid; }

static opal_process_name_t process_of(uint64_t name) {
    return (opal_process_name_t){.jobid = (opal_jobid_t)(name >> 32), .vpid = (opal_vpid_t)name};
}

static bool address_of(void* unused, uint64_t process, void** address, size_t* length) {
    (void)unused;
    opal_process_name_t name = process_of(process);
    int result;
    *address = NULL;
    OPAL_MODEX_RECV(result, &mca_pml_mp_component.pmlm_version, &name, address, length);
    return result == OPAL_SUCCESS && *address != NULL;
}

/* Slow: only when a process has failed. */
static bool is_source(void* unused, uint32_t context, int32_t source, uint64_t process) {
    (void)unused;
    ompi_communicator_t* const comm = ompi_comm_lookup((int)context);
    if (comm == NULL) return false;
    ompi_group_t* const group = comm->c_remote_group;
    const int first = source == MP_ANY_SOURCE ? 0 : source;
    const int end = source == MP_ANY_SOURCE ? group->grp_proc_count : source + 1;
    for (int rank = first; rank < end && rank < group->grp_proc_count; rank++) {
        const opal_process_name_t name = ompi_group_get_proc_name(group, rank);
        if (mca_pml_mp_name(&name) == process) return true;
    }
    return false;
}

static bool process_at(void* unused, uint32_t context, int32_t source, uint64_t* process) {
    (void)unused;
    ompi_communicator_t* const comm = ompi_comm_lookup((int)context);
    if (comm == NULL || source < 0 || source >= comm->c_remote_group->grp_proc_count) return false;
    const opal_process_name_t name = ompi_group_get_proc_name(comm->c_remote_group, source);
    *process = mca_pml_mp_name(&name);
    return true;
}

/* The next message connects again. */
static void forgotten(void* unused, uint64_t process) {
    (void)unused;
    const opal_process_name_t name = process_of(process);
    ompi_proc_t* const proc = ompi_proc_find(&name);
    if (proc != NULL) proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML] = NULL;
}

static bool count_others(const ompi_group_t* group, bool comes) {
    bool all = true;
    for (int i = 0; i < group->grp_proc_count; i++) {
        const opal_process_name_t name = ompi_group_get_proc_name((ompi_group_t*)group, i);
        if (name.jobid != OPAL_PROC_MY_NAME.jobid) all &= mp_core_named(mca_pml_mp.core, mca_pml_mp_name(&name), comes);
    }
    return all;
}

bool mca_pml_mp_name_others(const ompi_communicator_t* comm, bool comes) {
    const bool remote = count_others(comm->c_remote_group, comes);
    return (comm->c_local_group == comm->c_remote_group || count_others(comm->c_local_group, comes)) && remote;
}

/* The core knows a process by its number, "process 332d000100000001 is gone"; the user by rank and host. */
static void report(void* unused, const char* line) {
    static const char word[] = "process ";
    const char* const at = strstr(line, word);
    char* rest = NULL;
    const opal_process_name_t name = process_of(at == NULL ? 0 : strtoull(at + strlen(word), &rest, 16));
    const bool ours = name.jobid == OPAL_PROC_MY_NAME.jobid;
    ompi_proc_t* const proc = at == NULL || rest == at + strlen(word) ? NULL : ompi_proc_find(&name);
    (void)unused;
    if (proc == NULL)
        opal_output(0, "pml/mp: %s", line);
    else
        opal_output(0, "pml/mp: %.*srank %u%s on host %s%s", (int)(at - line), line, name.vpid,
                    ours ? "" : " of another job", opal_get_proc_hostname(&proc->super), rest);
}

/* "auto", "never" or bytes. */
static bool read_size(const char* name, const char* text, size_t* out) {
    char* end = NULL;
    if (strcmp(text, "auto") == 0) {
        *out = MP_AUTO;
    } else if (strcmp(text, "never") == 0) {
        *out = SIZE_MAX;
    } else if (*out = strtoull(text, &end, 10), *text < '0' || *text > '9' || *end != '\0') {
        opal_output(0, "pml/mp: pml_mp_%s=%s: bytes, auto or never", name, text);
        return false;
    }
    return true;
}

static bool thread_tries_lock(void) { return pthread_mutex_trylock(&mca_pml_mp.lock) == 0; }
static void thread_unlocks(void) { pthread_mutex_unlock(&mca_pml_mp.lock); }

/* As OpenMP reads it: the first number is that of the outermost level. */
static unsigned threads_that_compute(void) {
    const char* const text = getenv("OMP_NUM_THREADS");
    const long threads = text == NULL ? 1 : strtol(text, NULL, 10);
    return threads > 0 && threads < 100000 ? (unsigned)threads : 1;
}

bool mca_pml_mp_start_thread(void) {
    char text[256];
    const bool automatic = strcmp(mca_pml_mp.async, "auto") == 0;
    if (strcmp(mca_pml_mp.async, "n") == 0) return true;
    if (!automatic && strcmp(mca_pml_mp.async, "y") != 0) {
        opal_output(0, "pml/mp: pml_mp_async=%s: y, n or auto", mca_pml_mp.async);
        return false;
    }
    const bool spare =
        mp_core_thread_is_spare(mca_pml_mp_local_ranks(), threads_that_compute(), text, sizeof text) || !automatic;
    const mp_thread_config_t config = {.turn = &mca_pml_mp.turn,
                                       .spare = spare,
                                       .try_lock = mca_pml_mp.threads ? thread_tries_lock : NULL,
                                       .unlock = mca_pml_mp.threads ? thread_unlocks : NULL};
    if (mp_core_start_thread(mca_pml_mp.core, &config, text, sizeof text)) return true;
    if (!automatic) opal_output(0, "pml/mp: pml_mp_async=y: no progress thread: %s", text);
    return automatic;
}

bool mca_pml_mp_open_core(bool threads) {
    char error[512];
    size_t eager_limit, zero_copy;
    const bool by_put = strcmp(mca_pml_mp.rendezvous, "put") == 0;
    if (!by_put && strcmp(mca_pml_mp.rendezvous, "get") != 0) {
        opal_output(0, "pml/mp: pml_mp_rendezvous=%s: get or put", mca_pml_mp.rendezvous);
        return false;
    }
    if (!read_size("eager_limit", mca_pml_mp.eager_limit, &eager_limit) ||
        !read_size("zero_copy", mca_pml_mp.zero_copy, &zero_copy))
        return false;
    const mp_config_t config = {
        .process = mca_pml_mp_name(&OPAL_PROC_MY_NAME),
        .transports = mca_pml_mp.transports,
        .local = mca_pml_mp.local,
        .eager_limit = eager_limit,
        .zero_copy = zero_copy,
        .hint_limit = mca_pml_mp.hint_limit,
        .rendezvous_by_put = by_put,
        .burst = mca_pml_mp.burst,
        .watch_interval = mca_pml_mp.watch_interval ? (uint64_t)mca_pml_mp.watch_interval * 1000000 : MP_NEVER,
        .watch_strangers = mca_pml_mp.watch_strangers};
    const mp_hooks_t hooks = {.argument = NULL,
                              .pack = mca_pml_mp_pack,
                              .unpack = mca_pml_mp_unpack,
                              .completed = mca_pml_mp_completed,
                              .address = address_of,
                              .is_source = is_source,
                              .process = process_at,
                              .forgotten = forgotten,
                              .report = report,
                              .unmapped = mca_pml_mp_unmapped};
    mca_pml_mp.threads = threads;
    mca_pml_mp_watch_memory();
    mca_pml_mp.core = mp_core_open(&config, &hooks, error, sizeof error);
    if (mca_pml_mp.core == NULL) {
        opal_output(0, "pml/mp: %s", error);
        mca_pml_mp_forget_memory();
        return false;
    }
    size_t length;
    void* const address = mp_core_address(mca_pml_mp.core, &length);
    int result;
    OPAL_MODEX_SEND(result, MP_MODEX_GLOBAL, &mca_pml_mp_component.pmlm_version, address, length);
    free(address);
    if (result == OPAL_SUCCESS && mca_pml_mp_start_thread()) return true;
    if (result != OPAL_SUCCESS) opal_output(0, "pml/mp: the launcher does not take our address");
    mp_core_close(mca_pml_mp.core);
    mca_pml_mp.core = NULL;
    mca_pml_mp_forget_memory();
    return false;
}

void mca_pml_mp_close_core(void) {
    if (mca_pml_mp.core == NULL) return;
    mp_core_stop_thread(mca_pml_mp.core);
    if (mca_pml_mp.statistics) {
        char text[2200];
        mp_core_statistics(mca_pml_mp.core, text, sizeof text);
        opal_output(0, "pml/mp: rank %u: %s; marked %llu collectives", OPAL_PROC_MY_NAME.vpid, text,
                    (unsigned long long)mca_pml_mp.collectives);
    }
    mp_core_close(mca_pml_mp.core);
    mca_pml_mp.core = NULL;
    mca_pml_mp_forget_memory();
}

mp_peer_t* mca_pml_mp_connect(ompi_proc_t* proc) {
    mp_peer_t* const peer = mp_core_peer(mca_pml_mp.core, mca_pml_mp_name(&proc->super.proc_name));
    proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML] = peer;
    return peer;
}

static int sent_free(ompi_request_t** request) {
    *request = MPI_REQUEST_NULL;
    return OMPI_SUCCESS;
}

static int sent_cancel(ompi_request_t* request, int flag) {
    (void)request, (void)flag;
    return OMPI_SUCCESS;
}

static mca_pml_base_module_t* component_init(int* priority, bool progress_threads, bool threads) {
    (void)progress_threads;
    if (mca_pml_mp_unfit() != NULL) {
        opal_output(0, "pml/mp: %s", mca_pml_mp_unfit());
        return NULL;
    }
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mca_pml_mp.lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    if (!mca_pml_mp_open_core(threads)) return NULL;

    OBJ_CONSTRUCT(&mca_pml_mp.requests, opal_free_list_t);
    opal_free_list_init(&mca_pml_mp.requests, sizeof(mca_pml_mp_request_t), opal_cache_line_size,
                        OBJ_CLASS(mca_pml_mp_request_t), 0, 0, 128, -1, 128, NULL, 0, NULL, NULL, NULL);
    OBJ_CONSTRUCT(&mca_pml_mp.own, mca_pml_mp_request_t);
    OBJ_CONSTRUCT(&mca_pml_mp.sent, ompi_request_t);
    OMPI_REQUEST_INIT(&mca_pml_mp.sent, false);
    mca_pml_mp.sent.req_type = OMPI_REQUEST_PML;
    mca_pml_mp.sent.req_state = OMPI_REQUEST_ACTIVE;
    mca_pml_mp.sent.req_free = sent_free;
    mca_pml_mp.sent.req_cancel = sent_cancel;
    mca_pml_mp.sent.req_status = ompi_status_empty;
    mca_pml_mp.sent.req_mpi_object.comm = &ompi_mpi_comm_world.comm;
    ompi_request_complete(&mca_pml_mp.sent, false);
    *priority = mca_pml_mp.priority;
    return &mca_pml_mp.super;
}

static int component_finalize(void) {
    mca_pml_mp_wait_as_before();
    mca_pml_mp_close_core();
    OMPI_REQUEST_FINI(&mca_pml_mp.sent);
    OBJ_DESTRUCT(&mca_pml_mp.sent);
    OBJ_DESTRUCT(&mca_pml_mp.own);
    mca_pml_mp_free_requests();
    OBJ_DESTRUCT(&mca_pml_mp.requests);
    return OMPI_SUCCESS;
}
