/*
 * A rank is killed, and the launcher lets the others live: whoever needs it is told, as MPI says (MPI-3.1 8.3), and
 * does not wait for ever. gone send | small | probe | put | lock | epoch    what rank 0 does to rank 1 when that is
 * gone, two ranks; gone held: rank 2 wants a lock of rank 0 that rank 1 has
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 1 << 20, MANY = 100 };

static char buffer[BYTES];

static int send_to(int rank) {
    int result = MPI_SUCCESS;
    for (int i = 0; i < MANY && result == MPI_SUCCESS; i++)
        result = MPI_Ssend(buffer, BYTES, MPI_CHAR, rank, i, MPI_COMM_WORLD);
    return result;
}

/* Each leaves at once, until there is no room any more. */
static int send_small_to(int rank) {
    int result = MPI_SUCCESS;
    while (result == MPI_SUCCESS) result = MPI_Send(buffer, 8, MPI_CHAR, rank, 1, MPI_COMM_WORLD);
    return result;
}

static int probe(int rank) {
    MPI_Message message;
    const int result = MPI_Probe(rank, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (result == MPI_SUCCESS) return result;
    return MPI_Mprobe(MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
}

/* Rank 2's: only rank 0 can see that the holder is gone, and waits for us. */
static void held(MPI_Win window) {
    int word = 0;
    MPI_Recv(&word, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window) == MPI_SUCCESS)
        MPI_Send(&word, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
    sleep(60);
}

/* A lock that cannot be had begins no epoch: others may begin. */
static int lock(int rank, MPI_Win window) {
    const int result = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
    if (MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window) != result || MPI_Win_lock_all(0, window) != MPI_SUCCESS)
        return MPI_ERR_INTERN;
    MPI_Win_unlock_all(window);
    return result;
}

/* Both sides of an epoch are told: what the end of one says does not count for the other. */
static int epoch(int rank, MPI_Win window) {
    MPI_Group world, other;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &rank, &other);
    MPI_Win_post(other, MPI_MODE_NOCHECK, window);
    MPI_Win_start(other, 0, window);
    MPI_Put(buffer, BYTES, MPI_CHAR, rank, 0, BYTES, MPI_CHAR, window);
    const int exposure = MPI_Win_wait(window), access = MPI_Win_complete(window);
    return exposure == access ? access : MPI_ERR_INTERN;
}

static int put_to(int rank, MPI_Win window) {
    int result = MPI_SUCCESS;
    for (int i = 0; i < MANY && result == MPI_SUCCESS; i++) {
        result = MPI_Put(buffer, BYTES, MPI_CHAR, rank, 0, BYTES, MPI_CHAR, window);
        if (result == MPI_SUCCESS) result = MPI_Win_flush(rank, window);
    }
    return result;
}

int main(int argc, char** argv) {
    int rank, class = -1, length;
    void* memory;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Win window;
    const char* const what = argc > 1 ? argv[1] : "send";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Win_allocate(BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    if (strcmp(what, "put") == 0) MPI_Win_lock_all(0, window);
    /* All have spoken with all. */
    for (int i = 0; i < 2; i++) MPI_Alltoall(MPI_IN_PLACE, 1, MPI_CHAR, buffer, 1, MPI_CHAR, MPI_COMM_WORLD);
    pid_t process = getpid();
    const int holds = strcmp(what, "held") == 0;
    if (rank == 2 && holds) held(window);
    if (rank == 1) {
        if (holds) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Ssend(&process, sizeof process, MPI_CHAR, 0, 0, MPI_COMM_WORLD); /* has arrived: another send might not */
        raise(SIGKILL);
    }
    if (rank == 0) {
        MPI_Recv(&process, sizeof process, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        while (kill(process, 0) == 0) usleep(1000);
        const double start = MPI_Wtime();
        if (holds) {
            int word = 0;
            MPI_Send(&word, 1, MPI_INT, 2, 1, MPI_COMM_WORLD);
            MPI_Recv(&word, 1, MPI_INT, 2, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            printf("gone: held: told after %.1f s\n", MPI_Wtime() - start);
            fflush(stdout);
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
        const int result = strcmp(what, "put") == 0     ? put_to(1, window)
                           : strcmp(what, "lock") == 0  ? lock(1, window)
                           : strcmp(what, "epoch") == 0 ? epoch(1, window)
                           : strcmp(what, "small") == 0 ? send_small_to(1)
                           : strcmp(what, "probe") == 0 ? probe(1)
                                                        : send_to(1);
        MPI_Error_class(result, &class);
        MPI_Error_string(result, text, &length);
        printf("gone: %s: %s (%s) after %.1f s\n", what,
               class == MPI_SUCCESS ? "no error" :
#ifdef MPI_ERR_PROC_FAILED
               class == MPI_ERR_PROC_FAILED ? "told"
#else
               class == MPI_ERR_OTHER ? "told"
#endif
                                            : "another error",
               text, MPI_Wtime() - start);
        fflush(stdout);
    }
    MPI_Abort(MPI_COMM_WORLD, 3);
}
