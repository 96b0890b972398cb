/* Parts of Open MPI 5.0 that differ from 4.1: names and values that the common part (pml_glue/ompi) uses. */
#ifndef UCX_MP_PML_GLUE_OMPI5_SERIES_H
#define UCX_MP_PML_GLUE_OMPI5_SERIES_H

#include "ompi/communicator/communicator.h"
#include "ompi/mca/pml/pml.h"
#include "ompi/runtime/params.h"
#include "opal/mca/pmix/pmix-internal.h"
#include "opal/util/proc.h"

#define MP_PML_VERSION MCA_PML_BASE_VERSION_2_1_0
#define MP_COLL_VERSION MCA_COLL_BASE_VERSION_2_4_0
#define MP_MODEX_GLOBAL PMIX_GLOBAL

/* The code of an operation whose peer is gone. */
static inline int mca_pml_mp_add_peer_failed(void) { return MPI_ERR_PROC_FAILED; }

/* The index is the same at all ranks: we don't say that we know the longer identities, with which it would not be. */
static inline uint32_t mca_pml_mp_context(const ompi_communicator_t* comm) { return comm->c_index; }

/* Processes of this job, on this host, with ourselves. */
static inline unsigned mca_pml_mp_local_ranks(void) { return opal_process_info.num_local_peers + 1; }

/* Why it cannot work in this job; null: it can. */
static inline const char* mca_pml_mp_unfit(void) {
    return ompi_ftmpi_enabled ? "mpirun --with-ft needs pml/ob1, whose transports it uses itself" : NULL;
}

/* A type of ours that differs from the library's; null: there is none. */
const char* mca_pml_mp_misfit(void);

#endif
