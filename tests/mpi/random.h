/* What the parts of random share. */
#include "checked.h"

/* The same at all ranks: what is drawn; of each rank: what it has received. */
typedef struct random {
    uint64_t state, digest;
} random_t;

static inline unsigned random_dice(random_t* rng, unsigned n) {
    rng->state = rng->state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(rng->state >> 33) % n;
}

static inline void random_add(random_t* rng, const void* data, size_t bytes) {
    const unsigned char* const at = data;
    for (size_t i = 0; i < bytes; i++) rng->digest = (rng->digest ^ at[i]) * 1099511628211u;
}

/* Types of `bytes` bytes that lie in twice as many: whole, a vector, blocks of all lengths, blocks backwards, a struct
 * of vectors and blocks, whole ones with a gap behind each. Messages are bytes: any two of them match. */
enum { kShapes = 6 };
MPI_Datatype random_shape(int shape, int bytes, int* count); /* with how many of them */
void random_shape_free(MPI_Datatype* type);

/* random_windows.c: a window of all ranks, and an epoch with operations on it; what they have fetched, and what is in
 * the window then, goes into the digest. */
void random_windows_begin(int own_rank, int all_ranks);
void random_windows_run(random_t* rng);
void random_windows_end(void);
