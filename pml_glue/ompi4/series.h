/* What Open MPI 4.1 has in another way than 5.0: see pml_glue/ompi5/series.h. */
#ifndef UCX_MP_PML_GLUE_OMPI4_SERIES_H
#define UCX_MP_PML_GLUE_OMPI4_SERIES_H

#include "ompi/communicator/communicator.h"
#include "ompi/mca/pml/pml.h"
#include "opal/mca/pmix/pmix.h"
#include "orte/util/proc_info.h"

#define MP_PML_VERSION MCA_PML_BASE_VERSION_2_0_0
#define MP_COLL_VERSION MCA_COLL_BASE_VERSION_2_0_0
#define MP_MODEX_GLOBAL OPAL_PMIX_GLOBAL
/* There is no class for a process that has failed. */
#define MP_ERR_PEER_FAILED MPI_ERR_OTHER

static inline uint32_t mca_pml_mp_context(const ompi_communicator_t* comm) { return comm->c_contextid; }

/* Of this job, on this host, with ourselves. */
static inline unsigned mca_pml_mp_local_ranks(void) { return (unsigned)orte_process_info.num_local_peers + 1; }

/* Nothing is in its way. */
static inline const char* mca_pml_mp_unfit(void) { return NULL; }

/* All headers are there. */
static inline const char* mca_pml_mp_misfit(void) { return NULL; }

#endif
