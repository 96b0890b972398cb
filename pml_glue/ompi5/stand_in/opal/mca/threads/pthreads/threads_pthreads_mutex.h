/*
 * Stands in for a header of Open MPI 5.0 that Debian's packages leave out. opal_mutex_t embeds the first type, and
 * communicators embed that, so the type decides layouts: the component compares the classes' sizes with the library's.
 */
#ifndef UCX_MP_PML_GLUE_OMPI5_THREADS_PTHREADS_MUTEX_H
#define UCX_MP_PML_GLUE_OMPI5_THREADS_PTHREADS_MUTEX_H

#include <pthread.h>
#include <stdbool.h>

#include "opal/class/opal_object.h"
#include "opal/constants.h"

typedef pthread_mutex_t opal_thread_internal_mutex_t;
typedef pthread_cond_t opal_thread_internal_cond_t;

static inline int opal_thread_internal_mutex_init(opal_thread_internal_mutex_t* mutex, bool recursive) {
    pthread_mutexattr_t kind;
    if (pthread_mutexattr_init(&kind) != 0) return OPAL_ERR_IN_ERRNO;
    if (recursive) pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    const int failed = pthread_mutex_init(mutex, &kind);
    pthread_mutexattr_destroy(&kind);
    return failed ? OPAL_ERR_IN_ERRNO : OPAL_SUCCESS;
}
static inline void opal_thread_internal_mutex_destroy(opal_thread_internal_mutex_t* mutex) {
    pthread_mutex_destroy(mutex);
}
static inline void opal_thread_internal_mutex_lock(opal_thread_internal_mutex_t* mutex) { pthread_mutex_lock(mutex); }
static inline void opal_thread_internal_mutex_unlock(opal_thread_internal_mutex_t* mutex) {
    pthread_mutex_unlock(mutex);
}
/* 0: we have it */
static inline int opal_thread_internal_mutex_trylock(opal_thread_internal_mutex_t* mutex) {
    return pthread_mutex_trylock(mutex) != 0;
}

static inline int opal_thread_internal_cond_init(opal_thread_internal_cond_t* condition) {
    return pthread_cond_init(condition, NULL) == 0 ? OPAL_SUCCESS : OPAL_ERR_IN_ERRNO;
}
static inline void opal_thread_internal_cond_destroy(opal_thread_internal_cond_t* condition) {
    pthread_cond_destroy(condition);
}
static inline void opal_thread_internal_cond_signal(opal_thread_internal_cond_t* condition) {
    pthread_cond_signal(condition);
}

#endif
