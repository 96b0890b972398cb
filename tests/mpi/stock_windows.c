/* Windows as a stock program makes them: stock_windows BYTES
 *
 * MPI_Win_allocate_shared, whose memory every rank loads and stores, and MPI_Win_allocate, of which each rank puts
 * BYTES to the next one. Prints "windows: N ranks ok" and returns 0, or says what was wrong and aborts the job.
 */
#include "checked.h"

enum { CELLS = 1000 };

static void shared(void) {
    long *own, *next;
    MPI_Win win;
    MPI_Aint size;
    int unit;
    MPI_Win_allocate_shared(CELLS * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &own, &win);
    MPI_Win_shared_query(win, (rank + 1) % ranks, &size, &unit, &next);
    if (size != CELLS * sizeof(long) || unit != sizeof(long)) fail("a shared window of %ld bytes", (long)size);
    MPI_Win_fence(0, win);
    for (long i = 0; i < CELLS; i++) next[i] = 1000000 * rank + i;
    MPI_Win_fence(0, win);
    for (long i = 0; i < CELLS; i++)
        if (own[i] != 1000000 * ((rank + ranks - 1) % ranks) + i) fail("cell %ld of a shared window: %ld", i, own[i]);
    MPI_Win_free(&win);
}

static void allocated(size_t bytes) {
    unsigned char *own, *const data = allocate(bytes);
    MPI_Win win;
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Win_allocate((MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &win);
    fill(data, bytes, rank, to, 1);
    MPI_Win_fence(0, win);
    MPI_Put(data, (int)bytes, MPI_BYTE, to, 0, (int)bytes, MPI_BYTE, win);
    MPI_Win_fence(0, win);
    verify(own, bytes, from, rank, 1, "a window");
    MPI_Win_free(&win);
    free(data);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    program = "windows";
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    shared();
    allocated(argc > 1 ? (size_t)atol(argv[1]) : 1000000);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("windows: %d ranks ok\n", ranks);
    MPI_Finalize();
    return 0;
}
