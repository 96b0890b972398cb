/* What our MPI programs share: messages with contents of their own, and what becomes of a wrong one. */
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char* program; /* set by main(), with the others */
static int rank, ranks;

static inline void fail(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: rank %d of %d: ", program, rank, ranks);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static inline void* allocate(size_t bytes) {
    void* memory = malloc(bytes ? bytes : 1);
    if (!memory) fail("no memory");
    return memory;
}

/* The contents of message `number` from `from` to `to`: every message has its own, and no two places in it are alike.
 */
static inline uint64_t word(int from, int to, long number, size_t place) {
    uint64_t x = ((uint64_t)from << 48 ^ (uint64_t)to << 32 ^ (uint64_t)number << 20) + place;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline void fill(unsigned char* data, size_t bytes, int from, int to, long number) {
    for (size_t at = 0; at < bytes; at += 8) {
        const uint64_t value = word(from, to, number, at);
        memcpy(data + at, &value, bytes - at < 8 ? bytes - at : 8);
    }
}

static inline void verify(const unsigned char* data, size_t bytes, int from, int to, long number, const char* what) {
    for (size_t at = 0; at < bytes; at += 8) {
        const uint64_t value = word(from, to, number, at);
        if (memcmp(data + at, &value, bytes - at < 8 ? bytes - at : 8))
            fail("%s: message %ld from %d, %zu bytes, is wrong at byte %zu", what, number, from, bytes, at);
    }
}
