/*
 * Whose turn it is: the program, or a thread beside it. One of them is inside at a time. Two have such a thread: the
 * MPI modules (pml_glue/core/async, progress) and an interface of the transport (ucx/background.h, recovery).
 *
 * The program pays two additions and a comparison per call: no lock, no locked instruction. It adds to `calls` when it
 * enters and then looks at `attention`. The thread sets `attention`, makes every processor of the process pass a
 * barrier (membarrier(2)), and only then looks at `calls`. So either the thread sees the program inside and gives up,
 * or the program sees the thread and waits until it leaves, which it does within MP_TURN_SLICE.
 *
 * Threads: the program's calls are by one thread at a time. Where several make them, they hold a lock of their own
 * around every turn, and the thread takes that lock as well, or instead.
 */
#ifndef UCX_MP_HOST_MP_TURN_H
#define UCX_MP_HOST_MP_TURN_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MP_TURN_DEPTH = 0xff,  /* of `calls`: calls within calls; 0: the program is outside */
    MP_TURN_CALL = 0x101,  /* one more call, which is inside */
    MP_TURN_TAKEN = 1,     /* of `attention`: the thread is inside, or about to be */
    MP_TURN_NEWS = 2,      /* the thread has been inside: the program's next call tells its results */
    MP_TURN_SLICE = 200000 /* ns; the thread stays inside for no longer, but for the last step that it has begun */
};

typedef struct mp_turn {
    uint64_t calls;           /* number of calls << 8 | depth. Written by the program only */
    uint32_t attention;       /* written by both, atomically; read by the program plainly */
    void (*tell)(void* core); /* tells the program the thread's results; may be null */
    void* core;
} mp_turn_t;

/* The program has entered and seen `attention`: waits until the thread has left, and tells its news. */
__attribute__((visibility("default"))) void mp_turn_wait(mp_turn_t* turn);

static inline unsigned mp_turn_depth(const mp_turn_t* turn) { return (unsigned)turn->calls & MP_TURN_DEPTH; }

/* The compiler keeps the order; membarrier() makes the processor keep it. */
#if defined __x86_64__ && !defined __SANITIZE_THREAD__
/* Two instructions and one. Compilers make more of it. True: mp_turn_wait() follows. */
static inline __attribute__((always_inline)) bool mp_turn_begin(mp_turn_t* turn) {
    bool attention;
    __asm__ volatile("addq %[call], %[calls]\n\tcmpl $0, %[attention]"
                     : [calls] "+m"(turn->calls), "=@ccne"(attention)
                     : [call] "e"(MP_TURN_CALL), [attention] "m"(turn->attention)
                     : "memory");
    return attention;
}

static inline __attribute__((always_inline)) void mp_turn_leave(mp_turn_t* turn) {
    __asm__ volatile("subq $1, %0" : "+m"(turn->calls) : : "memory", "cc");
}
#else
static inline bool mp_turn_begin(mp_turn_t* turn) {
    __atomic_store_n(&turn->calls, turn->calls + MP_TURN_CALL, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    const bool attention = __atomic_load_n(&turn->attention, __ATOMIC_RELAXED) != 0;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return attention;
}

static inline void mp_turn_leave(mp_turn_t* turn) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&turn->calls, turn->calls - 1, __ATOMIC_RELEASE);
}
#endif

static inline void mp_turn_enter(mp_turn_t* turn) {
    if (__builtin_expect(mp_turn_begin(turn), 0)) mp_turn_wait(turn);
}

#ifdef __cplusplus
}
#endif

#endif
