/* A job that loses a rank: what needs it ends with an error, in time, and the others go on: lost
 *
 * Three ranks, and a launcher that lets a job live without one of them (--enable-recovery). Rank 2 sends a message
 * and is killed. Rank 0 only receives from it, by source and from any source. Rank 1 has a window with it: a lock and a
 * put. Then rank 0 frees a window, and rank 1, which is not there yet, still puts into it.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int rank;

static void need(int holds, const char* what) {
    if (holds) return;
    fprintf(stderr, "lost: rank %d: %s\n", rank, what);
    _exit(1);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int word = rank, *memory, *early_memory;
    MPI_Win win, early;
    MPI_Win_allocate(4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &early_memory, &early);
    MPI_Win_set_errhandler(early, MPI_ERRORS_RETURN);
    MPI_Win_allocate(4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 2) {
        MPI_Send(&word, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
        usleep(100000); /* it has left */
        raise(SIGKILL);
    }
    const double begin = MPI_Wtime();
    if (rank == 0) {
        MPI_Request any;
        MPI_Irecv(&word, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &any);
        need(MPI_Recv(&word, 1, MPI_INT, 2, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS && word == 2,
             "the message from before is lost");
        need(MPI_Recv(&word, 1, MPI_INT, 2, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE) != MPI_SUCCESS,
             "a receive from nobody has succeeded");
        MPI_Status status;
        need(MPI_Wait(&any, &status) != MPI_SUCCESS, "a receive from any source does not know that one is gone");
    } else {
        int result = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 2, 0, win);
        if (result == MPI_SUCCESS) result = MPI_Put(&word, 1, MPI_INT, 2, 0, 1, MPI_INT, win);
        if (result == MPI_SUCCESS) result = MPI_Win_flush(2, win);
        usleep(300000);
        if (result == MPI_SUCCESS) result = MPI_Put(&word, 1, MPI_INT, 2, 0, 1, MPI_INT, win);
        if (result == MPI_SUCCESS) result = MPI_Win_flush(2, win);
        need(result != MPI_SUCCESS, "a put to nobody has succeeded");
    }
    const double took = MPI_Wtime() - begin;
    /* The others are there for each other. */
    if (rank == 1)
        need(MPI_Send(&word, 1, MPI_INT, 0, 3, MPI_COMM_WORLD) == MPI_SUCCESS, "no message between survivors");
    if (rank == 0) {
        need(MPI_Recv(&word, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS && word == 1,
             "no message between survivors");
        *early_memory = 0;
        (void)MPI_Win_free(&early);
        MPI_Send(&word, 1, MPI_INT, 1, 4, MPI_COMM_WORLD);
        MPI_Recv(&word, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        need(word == 77 && *early_memory == 77, "what the other one has put is not there");
        printf("lost: both survivors know, and go on, after %.1f s\n", took);
        fflush(stdout);
    } else {
        MPI_Recv(&word, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        word = 77;
        need(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, early) == MPI_SUCCESS &&
                 MPI_Put(&word, 1, MPI_INT, 0, 0, 1, MPI_INT, early) == MPI_SUCCESS &&
                 MPI_Win_unlock(0, early) == MPI_SUCCESS,
             "a survivor cannot end what it does to a window that the other one has freed");
        MPI_Send(&word, 1, MPI_INT, 0, 5, MPI_COMM_WORLD);
    }
    usleep(rank == 0 ? 300000 : 600000);
    _exit(0); /* MPI_Finalize would wait for all */
}
