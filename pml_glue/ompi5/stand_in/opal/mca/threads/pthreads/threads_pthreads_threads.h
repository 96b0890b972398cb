/* Stands in for a header of Open MPI 5.0 that Debian's packages leave out. */
#ifndef UCX_MP_PML_GLUE_OMPI5_THREADS_PTHREADS_THREADS_H
#define UCX_MP_PML_GLUE_OMPI5_THREADS_PTHREADS_THREADS_H

#include <pthread.h>
#include <sched.h>

static inline void opal_thread_yield(void) { sched_yield(); }

#endif
