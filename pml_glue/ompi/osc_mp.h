/*
 * osc/mp for Open MPI: windows over the core of pml/mp (pml_glue/core/mp_window.h), which has to be selected, too.
 *
 * Here: datatypes as runs of memory, operations of MPI on elements, epochs as MPI wants them to be called, requests.
 * Threads: the lock of pml/mp.
 */
#ifndef UCX_MP_PML_GLUE_OMPI_OSC_MP_H
#define UCX_MP_PML_GLUE_OMPI_OSC_MP_H

#include "pml_mp.h"

#include "ompi/group/group.h"
#include "ompi/mca/osc/osc.h"
#include "ompi/op/op.h"
#include "ompi/win/win.h"
#include "pml_glue/core/mp_window.h"

/* Told by each rank to the others of its window; then its keys follow. */
typedef struct mca_osc_mp_rank {
    uint64_t base, bytes;
    int64_t unit; /* displacements count it */
} mca_osc_mp_rank_t;

/* Our locks of a rank in a passive epoch. */
typedef enum mca_osc_mp_held { MP_HELD_NONE = 0, MP_HELD_LOCK, MP_HELD_NOCHECK } mca_osc_mp_held_t;

typedef struct mca_osc_mp_group { /* of an epoch; count -1: there is none */
    int count;
    int* ranks;
} mca_osc_mp_group_t;

typedef struct mca_osc_mp_module {
    ompi_osc_base_module_t super;
    mp_window_t* window;
    ompi_communicator_t* comm;
    void* memory; /* ours, of MPI_Win_allocate */
    char* table;  /* mca_osc_mp_rank_t and keys of each rank */
    size_t stride;
    bool dynamic, fence;
    mca_osc_mp_group_t access, exposure;
    unsigned locks;       /* of single ranks */
    bool all, all_checks; /* MPI_Win_lock_all */
    unsigned char* held;  /* mca_osc_mp_held_t of each rank */
    bool* reached;        /* ranks of the access group */
} mca_osc_mp_module_t;

static inline mca_osc_mp_module_t* mca_osc_mp_of(const ompi_win_t* win) {
    return (mca_osc_mp_module_t*)win->w_osc_module;
}
static inline const mca_osc_mp_rank_t* mca_osc_mp_rank(const mca_osc_mp_module_t* module, int rank) {
    return (const mca_osc_mp_rank_t*)(module->table + (size_t)rank * module->stride);
}

/* An operation that is not over when its call returns: has convertors, or a request that the user sees. */
typedef struct mca_osc_mp_request {
    union {
        ompi_request_t super;
        mca_pml_mp_waitable_t waitable;
    };
    opal_convertor_t origin, result;
    ompi_datatype_t *origin_type, *result_type; /* kept; null: its convertor is not used */
    bool shown, active, freed;
} mca_osc_mp_request_t;
OBJ_CLASS_DECLARATION(mca_osc_mp_request_t);

typedef struct mca_osc_mp_component {
    ompi_osc_base_component_t super;
    opal_free_list_t requests;
    int priority;
    size_t in_flight;
} mca_osc_mp_component_t;
OMPI_DECLSPEC extern mca_osc_mp_component_t mca_osc_mp_component;

/* osc_mp_type.c: `count` of a type at an address as runs, for elements of `unit` packed bytes (1: just bytes) that are
 * `extent` apart. `one` is used for a single run; otherwise the caller frees what is returned. */
mp_run_t* mca_osc_mp_runs(ompi_datatype_t* type, size_t count, uint64_t address, uint32_t unit, uint32_t extent,
                          mp_run_t* one, size_t* run_count);
/* Keeps only the first `bytes` of them, fewer than they have and more than none: returns the number of runs left. */
size_t mca_osc_mp_cut(mp_run_t* runs, size_t run_count, uint64_t bytes);
/* The predefined type that a type is made of, with an index that
 * is the same at all ranks; null: several. With the lock. */
ompi_datatype_t* mca_osc_mp_element(ompi_datatype_t* type);
/* Before the first window: finds the facts that the progress thread needs of them. With the lock. */
void mca_osc_mp_learn_types(void);
bool mca_osc_mp_defined(const ompi_op_t* op, const ompi_datatype_t* element);
bool mca_osc_mp_apply(uint16_t op, uint16_t type, uint32_t unit, uint32_t step, void* memory, size_t count,
                      const void* in, void* out);

/* osc_mp_request.c */
mca_osc_mp_request_t* mca_osc_mp_new_request(ompi_win_t* win);
void mca_osc_mp_release_request(mca_osc_mp_request_t* request);
void mca_osc_mp_done(void* user, mp_error_t error);

/* osc_mp_epoch.c: waits, with progress, until `asked` says true. */
typedef bool (*mca_osc_mp_asked_t)(mp_window_t* window, uint32_t rank);
void mca_osc_mp_wait(mca_osc_mp_module_t* module, mca_osc_mp_asked_t asked, uint32_t rank);
/* Makes progress in a call that did not have to wait. A process that only looks at memory,
 * its own or shared, makes none in any other call, and others may be waiting for it. */
void mca_osc_mp_pass(void);
/* Whether operations on a rank may be started; asks for a lock that is still missing. */
int mca_osc_mp_may(mca_osc_mp_module_t* module, int rank);
int mca_osc_mp_fence(int promises, ompi_win_t* win);
int mca_osc_mp_start(ompi_group_t* group, int promises, ompi_win_t* win);
int mca_osc_mp_complete(ompi_win_t* win);
int mca_osc_mp_post(ompi_group_t* group, int promises, ompi_win_t* win);
int mca_osc_mp_wait_epoch(ompi_win_t* win);
int mca_osc_mp_test(ompi_win_t* win, int* flag);
int mca_osc_mp_lock(int type, int target, int promises, ompi_win_t* win);
int mca_osc_mp_unlock(int target, ompi_win_t* win);
int mca_osc_mp_lock_all(int promises, ompi_win_t* win);
int mca_osc_mp_unlock_all(ompi_win_t* win);
int mca_osc_mp_sync(ompi_win_t* win);
int mca_osc_mp_flush(int target, ompi_win_t* win);
int mca_osc_mp_flush_all(ompi_win_t* win);
int mca_osc_mp_flush_local(int target, ompi_win_t* win);
int mca_osc_mp_flush_local_all(ompi_win_t* win);

/* osc_mp.c: the functions that move data */
extern const ompi_osc_base_module_t mca_osc_mp_functions;

/* osc_mp_component.c */
int mca_osc_mp_free(ompi_win_t* win);
int mca_osc_mp_attach(ompi_win_t* win, void* base, size_t size);
int mca_osc_mp_detach(ompi_win_t* win, const void* base);
int mca_osc_mp_shared_query(ompi_win_t* win, int rank, size_t* size, int* unit, void* base);

#endif
