/* Stands in for a header of Open MPI 5.0 that Debian's packages leave out. */
#ifndef UCX_MP_PML_GLUE_OMPI5_THREADS_PTHREADS_TSD_H
#define UCX_MP_PML_GLUE_OMPI5_THREADS_PTHREADS_TSD_H

#include <pthread.h>

#include "opal/constants.h"

typedef pthread_key_t opal_tsd_key_t;

static inline int opal_tsd_set(opal_tsd_key_t key, void* value) {
    return pthread_setspecific(key, value) == 0 ? OPAL_SUCCESS : OPAL_ERR_IN_ERRNO;
}
static inline int opal_tsd_get(opal_tsd_key_t key, void** value) {
    *value = pthread_getspecific(key);
    return OPAL_SUCCESS;
}

#endif
