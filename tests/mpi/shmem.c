/*
 * OpenSHMEM (1.4): what has been put is there when the library says so. Every processing element talks with its
 * neighbours. shmem [ROUNDS] Put, fence, flag: who sees the flag sees all of what was put before it. Put, quiet,
 * message by others; gets; atomics; non-blocking puts. Blocks of 1 byte to 1 MiB, whose contents are told by round,
 * element and place.
 */
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20 };

static int me, all;
static unsigned char *block, *taken;
static long *flag, *counter;
static unsigned char* mine;

static const size_t kSizes[] = {1, 8, 100, 4096, 8193, 65536, 300001, MOST};
enum { SIZES = sizeof kSizes / sizeof *kSizes };

static void fail(const char* what, size_t at, int round) {
    fprintf(stderr, "shmem: element %d of %d: %s, byte %zu, round %d\n", me, all, what, at, round);
    shmem_global_exit(1);
}

static unsigned char told(int from, int round, size_t at) {
    uint64_t x = (uint64_t)from * 0x9e3779b97f4a7c15u + (uint64_t)round * 0xbf58476d1ce4e5b9u + at;
    x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
    return (unsigned char)(x >> 56);
}

static void fill(unsigned char* memory, size_t bytes, int from, int round) {
    for (size_t i = 0; i < bytes; i++) memory[i] = told(from, round, i);
}

static void check(const unsigned char* memory, size_t bytes, int from, int round, const char* what) {
    for (size_t i = 0; i < bytes; i++)
        if (memory[i] != told(from, round, i)) fail(what, i, round);
}

/* To the right, with a flag behind it; the left one's flag says that ours is there. */
static void put_and_flag(int round, size_t bytes, int by_pieces) {
    const int right = (me + 1) % all, left = (me + all - 1) % all;
    fill(mine, bytes, me, round);
    if (by_pieces) {
        const size_t half = bytes / 2;
        shmem_putmem_nbi(block, mine, half, right);
        shmem_putmem_nbi(block + half, mine + half, bytes - half, right);
    } else {
        shmem_putmem(block, mine, bytes, right);
    }
    shmem_fence();
    shmem_long_p(flag, round, right);
    shmem_long_wait_until(flag, SHMEM_CMP_GE, round);
    check(block, bytes, left, round, by_pieces ? "two puts, a fence, a flag" : "a put, a fence, a flag");
    shmem_quiet(); /* mine is written anew */
    shmem_barrier_all();
}

/* Element 0 is told by all that theirs is there, by an atomic operation behind a quiet; it tells the others. */
static void put_and_count(int round, size_t bytes) {
    const int right = (me + 1) % all, left = (me + all - 1) % all;
    fill(mine, bytes, me, round);
    shmem_putmem(block, mine, bytes, right);
    shmem_quiet();
    shmem_long_atomic_inc(counter, 0);
    if (me == 0) {
        shmem_long_wait_until(counter, SHMEM_CMP_GE, (long)round * all);
        for (int i = 0; i < all; i++) shmem_long_p(flag, round, i);
    }
    shmem_long_wait_until(flag, SHMEM_CMP_GE, round);
    check(block, bytes, left, round, "a put, a quiet, a count");
    memset(taken, 0, bytes);
    shmem_getmem(taken, block, bytes, right);
    check(taken, bytes, me, round, "a get of what was put");
    shmem_barrier_all();
}

/* Every number is drawn once. */
static void numbers(int many) {
    long* const last = flag;
    *last = 0;
    shmem_barrier_all();
    long sum = 0, before = -1;
    for (int i = 0; i < many; i++) {
        const long drawn = shmem_long_atomic_fetch_add(last, 1, all - 1);
        if (drawn <= before) fail("numbers do not grow", (size_t)drawn, i);
        before = drawn;
        sum += drawn;
    }
    shmem_barrier_all();
    shmem_long_atomic_add(counter, sum, 0);
    shmem_barrier_all();
    const long draws = (long)many * all;
    if (me == 0 && *counter != draws * (draws - 1) / 2) fail("a number was drawn twice, or never", (size_t)*counter, 0);
    shmem_barrier_all();
}

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 3;
    shmem_init();
    me = shmem_my_pe();
    all = shmem_n_pes();
    block = shmem_malloc(MOST);
    taken = malloc(MOST);
    mine = malloc(MOST);
    flag = shmem_calloc(1, sizeof *flag);
    counter = shmem_calloc(1, sizeof *counter);
    shmem_barrier_all();
    int round = 0;
    for (int i = 0; i < rounds; i++)
        for (int size = 0; size < SIZES; size++) {
            put_and_flag(++round, kSizes[size], 0);
            put_and_flag(++round, kSizes[size], 1);
        }
    *counter = (long)round * all;
    shmem_barrier_all();
    for (int size = 0; size < SIZES; size++) put_and_count(++round, kSizes[size]);
    *counter = 0;
    shmem_barrier_all();
    numbers(200);
    if (me == 0) printf("shmem: %d elements ok, %d rounds\n", all, round);
    shmem_finalize();
    return 0;
}
