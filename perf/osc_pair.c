/* What one MPI program measures of windows: osc_pair put|get|fetch|fence|pscw|epoch BYTES [REPEATS]
 *
 * Prints one line: WHAT BYTES VALUE UNIT, of rank 0; the best of five rounds, since noise only adds.
 *   put, get, fetch  rank 0 in an epoch of MPI_Win_lock_all: one operation on rank 1, and a flush, microseconds
 *   fence, pscw      all ranks: an epoch with one put to each neighbour (next, second next, and back), microseconds
 *   epoch            rank 0: 16 puts and 16 gets, and a flush, MB/s
 * Rank 1 waits in MPI_Recv meanwhile.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRounds = 5, kEpoch = 16 };
static int rank, ranks, bytes, repeats;
static char *out, *in;
static MPI_Win win;

static void perform(char what) {
    if (what == 'p') MPI_Put(out, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, win);
    if (what == 'g') MPI_Get(in, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, win);
    if (what == 'f') MPI_Fetch_and_op(out, in, MPI_LONG, 1, 0, MPI_SUM, win);
    for (int i = 0; i < kEpoch && what == 'e'; i++)
        MPI_Put(out + (size_t)i * (size_t)bytes, bytes, MPI_BYTE, 1, (MPI_Aint)i * bytes, bytes, MPI_BYTE, win);
    for (int i = 0; i < kEpoch && what == 'e'; i++)
        MPI_Get(in + (size_t)i * (size_t)bytes, bytes, MPI_BYTE, 1, (MPI_Aint)(kEpoch + i) * bytes, bytes, MPI_BYTE,
                win);
    MPI_Win_flush(1, win);
}

/* By itself, so that callgrind can count it: --toggle-collect=operate. */
__attribute__((noinline)) static void operate(char what) { perform(what); }

static double passive(char what) {
    double time = 0;
    if (rank == 0) {
        MPI_Win_lock_all(0, win);
        perform(what); /* the lock */
        const double begin = MPI_Wtime();
        for (int i = 0; i < repeats; i++) operate(what);
        time = (MPI_Wtime() - begin) / repeats;
        MPI_Win_unlock_all(win);
        MPI_Send(out, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Recv(in, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return time;
}

static double active(int fence) {
    int neighbours[4] = {(rank + 1) % ranks, (rank + 2) % ranks, (rank + ranks - 1) % ranks,
                         (rank + ranks - 2) % ranks};
    const int count = ranks >= 5 ? 4 : 1;
    MPI_Group world, group;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, count, neighbours, &group);
    if (fence) MPI_Win_fence(0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < repeats; i++) {
        if (!fence) MPI_Win_post(group, 0, win);
        if (!fence) MPI_Win_start(group, 0, win);
        for (int k = 0; k < count; k++)
            MPI_Put(out, bytes, MPI_BYTE, neighbours[k], (MPI_Aint)k * bytes, bytes, MPI_BYTE, win);
        if (fence) MPI_Win_fence(0, win);
        if (!fence) MPI_Win_complete(win);
        if (!fence) MPI_Win_wait(win);
    }
    const double time = (MPI_Wtime() - begin) / repeats;
    if (fence) MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    return time;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3 || ranks < 2 || atoi(argv[2]) < 8) MPI_Abort(MPI_COMM_WORLD, 2);
    const char* const what = argv[1];
    bytes = atoi(argv[2]);
    repeats = argc > 3 ? atoi(argv[3]) : 1000;
    const size_t room = (size_t)bytes * 2 * kEpoch;
    char* memory;
    out = calloc(room, 1);
    in = calloc(room, 1);
    MPI_Win_allocate((MPI_Aint)room, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    memset(memory, 0, room);
    double best = 1e9;
    for (int round = 0; round < kRounds; round++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const int collective = strcmp(what, "fence") == 0 || strcmp(what, "pscw") == 0;
        const double time = collective ? active(what[0] == 'f') : passive(what[0]);
        if (time < best) best = time;
    }
    if (rank == 0 && strcmp(what, "epoch") == 0)
        printf("%s %d %.1f MB/s\n", what, bytes, 2.0 * kEpoch * bytes / best / 1e6);
    else if (rank == 0)
        printf("%s %d %.3f us\n", what, bytes, best * 1e6);
    MPI_Win_free(&win);
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
