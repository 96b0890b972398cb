/* Parts of Open MPI 4.1 that differ from 5.0: see pml_glue/ompi5/series.h. */
#ifndef UCX_MP_PML_GLUE_OMPI4_SERIES_H
#define UCX_MP_PML_GLUE_OMPI4_SERIES_H

#include <string.h>

#include "ompi/communicator/communicator.h"
#include "ompi/errhandler/errcode.h"
#include "ompi/mca/pml/pml.h"
#include "opal/mca/pmix/pmix.h"
#include "orte/util/proc_info.h"

#define MP_PML_VERSION MCA_PML_BASE_VERSION_2_0_0
#define MP_COLL_VERSION MCA_COLL_BASE_VERSION_2_0_0
#define MP_MODEX_GLOBAL OPAL_PMIX_GLOBAL

/* The code of an operation whose peer is gone. There is no class for a process that has failed: a code of MPI_ERR_OTHER
 * with a text of its own. Called once, when MPI_Init() has made the codes. */
static inline int mca_pml_mp_add_peer_failed(void) {
    static const char text[] = "MPI_ERR_OTHER: pml/mp: the peer is gone: its process has ended, or no path to it has "
                               "come back in time (UCX_MP_PARTITION_TIMEOUT)";
    const int code = ompi_mpi_errcode_add(MPI_ERR_OTHER);
    if (code < 0 || ompi_mpi_errnum_add_string(code, text, (int)strlen(text)) != OMPI_SUCCESS) return MPI_ERR_OTHER;
    return code;
}

static inline uint32_t mca_pml_mp_context(const ompi_communicator_t* comm) { return comm->c_contextid; }

/* Processes of this job, on this host, with ourselves. */
static inline unsigned mca_pml_mp_local_ranks(void) { return (unsigned)orte_process_info.num_local_peers + 1; }

/* Nothing is in its way. */
static inline const char* mca_pml_mp_unfit(void) { return NULL; }

/* All headers are there. */
static inline const char* mca_pml_mp_misfit(void) { return NULL; }

#endif
