/*
 * Whose turn it is: the program, or a thread beside it. One of them is inside at a time. Two have such a thread: the
 * MPI modules (pml_glue/core/async, progress) and an interface of the transport (ucx/background.h, recovery).
 *
 * The program pays an addition and a branch when it enters, and a subtraction when it leaves: no lock, no locked
 * instruction. It adds to `calls`, and the sign of the sum says that it is to look at `attention`. The thread sets
 * TAKEN and the sign, makes every processor of the process pass a barrier (membarrier(2)), and only then compares
 * `calls` with what it was before. If no call has come or gone, the program is outside, its next call sees the sign,
 * and waits until the thread leaves, which it does within MP_TURN_SLICE. Else the thread gives up.
 *
 * The program's addition is not atomic, so it may undo the sign. But it is one instruction: a barrier comes before it,
 * and then it sees the sign, or behind it, and then the thread sees the sum. Where an addition takes several
 * instructions, the program stores the sum and then looks at `attention`.
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
#define MP_TURN_LOOK (UINT64_C(1) << 63) /* of `calls`: there may be something in `attention` */

typedef struct mp_turn {
    uint64_t calls;           /* number of calls << 8 | depth: the program's. LOOK is set by the thread, atomically */
    uint32_t attention;       /* written by both, atomically */
    void (*tell)(void* core); /* tells the program the thread's results; may be null */
    void* core;
} mp_turn_t;

/* The program has entered, and is to look at `attention`: it waits until the thread has left, and tells its news. */
__attribute__((visibility("default"))) void mp_turn_wait(mp_turn_t* turn);

static inline unsigned mp_turn_depth(const mp_turn_t* turn) {
    return (unsigned)__atomic_load_n(&turn->calls, __ATOMIC_RELAXED) & MP_TURN_DEPTH;
}

/* True: mp_turn_wait() follows. The compiler keeps the order; membarrier() makes the processor keep it. */
#if defined __x86_64__ && !defined __SANITIZE_THREAD__
static inline __attribute__((always_inline)) bool mp_turn_begin(mp_turn_t* turn) {
    bool look;
    __asm__ volatile("addq %[call], %[calls]"
                     : [calls] "+m"(turn->calls), "=@ccs"(look)
                     : [call] "e"(MP_TURN_CALL)
                     : "memory");
    return look;
}

static inline __attribute__((always_inline)) void mp_turn_leave(mp_turn_t* turn) {
    __asm__ volatile("subq $1, %0" : "+m"(turn->calls) : : "memory", "cc");
}
#else
static inline bool mp_turn_begin(mp_turn_t* turn) {
    __atomic_store_n(&turn->calls, __atomic_load_n(&turn->calls, __ATOMIC_RELAXED) + MP_TURN_CALL, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    const bool look = __atomic_load_n(&turn->attention, __ATOMIC_RELAXED) != 0;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return look;
}

static inline void mp_turn_leave(mp_turn_t* turn) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&turn->calls, __atomic_load_n(&turn->calls, __ATOMIC_RELAXED) - 1, __ATOMIC_RELEASE);
}
#endif

static inline void mp_turn_enter(mp_turn_t* turn) {
    if (__builtin_expect(mp_turn_begin(turn), 0)) mp_turn_wait(turn);
}

#ifdef __cplusplus
}
#endif

#endif
