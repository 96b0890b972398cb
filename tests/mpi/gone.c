/*
 * A rank is killed, and the launcher lets the others live: whoever needs it is told, as MPI says (MPI-3.1 8.3), and
 * does not wait for ever. gone send | small | probe | put | lock | epoch    what rank 0 does to rank 1 when that is
 * gone, two ranks; gone held: rank 2 wants a lock of rank 0 that rank 1 has; gone threads: threads of rank 0 wait for
 * rank 1 in as many ways when it is killed; gone any | silent: rank 0 never sends, and receives from any source only.
 * Rank 1 sends a little, or nothing, and is killed, while rank 2 lives on; gone collective: all are in one of coll/mp
 */
#include <mpi.h>
#include <pthread.h>
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

static void send_small_once(void) { MPI_Send(buffer, 8, MPI_CHAR, 0, 1, MPI_COMM_WORLD); }

static int probe(int rank) {
    MPI_Message message;
    const int result = MPI_Probe(rank, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (result == MPI_SUCCESS) return result;
    return MPI_Mprobe(MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
}

/* Ranks 1 and 2 of "any" and "silent": a send, not a synchronous one, whose answer would make rank 0 know us. */
static void send_and_go(int rank, int count) {
    for (int i = 0; i < count; i++) MPI_Send(buffer, 8, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    if (rank == 2) sleep(60);
    usleep(500000); /* they have arrived */
    raise(SIGKILL);
}

static int receive_any(int count) {
    int result = MPI_SUCCESS;
    for (int i = 0; i <= count && result == MPI_SUCCESS; i++) {
        result = MPI_Recv(buffer, 8, MPI_CHAR, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (i < count && result != MPI_SUCCESS) return MPI_ERR_INTERN;
    }
    return result;
}

/* Who waits for the one that is gone, and who waits for a survivor that has left the operation: all are told. */
static int all_of_a_collective(int rank) {
    enum { kBlock = 40000 };
    int result = MPI_SUCCESS, ranks, sum;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char *out = calloc((size_t)ranks, kBlock), *in = calloc((size_t)ranks, kBlock);
    for (int i = 0; result == MPI_SUCCESS; i++) {
        if (rank == 1 && i == 20) raise(SIGKILL);
        if (i % 3 == 0)
            result = MPI_Barrier(MPI_COMM_WORLD);
        else if (i % 3 == 1)
            result = MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        else
            result = MPI_Alltoall(out, kBlock, MPI_CHAR, in, kBlock, MPI_CHAR, MPI_COMM_WORLD);
    }
    free(out), free(in);
    if (rank > 0) { /* all end by themselves: the launcher may not end so many */
        MPI_Send(&result, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
        MPI_Recv(&sum, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        _exit(3);
    }
    for (int other = 2, its; other < ranks; other++) {
        MPI_Recv(&its, 1, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (its != result) result = MPI_ERR_INTERN;
    }
    return result;
}

/* Only when rank 0 has told its result: a launcher that sees one of them end may end rank 0. */
static void let_the_others_end(void) {
    int ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int other = 2; other < ranks; other++) MPI_Send(&ranks, 1, MPI_INT, other, 2, MPI_COMM_WORLD);
    usleep(200000); /* what lets them end has left */
}

static void tell(const char* what, int result, double start) {
    int class, length;
    char text[MPI_MAX_ERROR_STRING];
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

enum { WAYS = 7 };

static int both(int count, MPI_Request* requests) {
    MPI_Status statuses[2];
    const int result = MPI_Waitall(count, requests, statuses);
    /* One that has not been told yet when the other has (MPI-3.1 3.7.5). */
    for (int i = 0; i < count && result == MPI_ERR_IN_STATUS; i++)
        if (statuses[i].MPI_ERROR == MPI_ERR_PENDING) statuses[i].MPI_ERROR = MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    for (int i = 0; i < count && result == MPI_ERR_IN_STATUS; i++)
        if (statuses[i].MPI_ERROR != statuses[0].MPI_ERROR) return MPI_ERR_INTERN;
    return result == MPI_ERR_IN_STATUS ? statuses[0].MPI_ERROR : result;
}

/* What thread `way` waits for; its result is in the place of the number. */
static void* wait_in_a_thread(void* way) {
    int* const result = way;
    static char in[WAYS][8];
    char* const got = in[*result];
    MPI_Request requests[2];
    int index = -1, flag = 0;
    switch (*result) {
    case 0:
        *result = MPI_Recv(got, 8, MPI_CHAR, 1, 50, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        break;
    case 1:
        MPI_Irecv(got, 8, MPI_CHAR, 1, 51, MPI_COMM_WORLD, requests);
        *result = MPI_Wait(requests, MPI_STATUS_IGNORE);
        break;
    case 2:
        *result = MPI_Probe(MPI_ANY_SOURCE, 52, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        break;
    case 3:
        *result = MPI_Ssend(buffer, BYTES, MPI_CHAR, 1, 53, MPI_COMM_WORLD);
        break;
    case 4:
        MPI_Irecv(got, 8, MPI_CHAR, 1, 54, MPI_COMM_WORLD, &requests[0]);
        MPI_Issend(buffer, 8, MPI_CHAR, 1, 54, MPI_COMM_WORLD, &requests[1]);
        *result = both(2, requests);
        break;
    case 5:
        MPI_Irecv(got, 8, MPI_CHAR, MPI_ANY_SOURCE, 55, MPI_COMM_WORLD, requests);
        *result = MPI_Waitany(1, requests, &index, MPI_STATUS_IGNORE);
        break;
    default:
        MPI_Recv_init(got, 8, MPI_CHAR, 1, 56, MPI_COMM_WORLD, requests);
        MPI_Start(requests);
        do *result = MPI_Test(requests, &flag, MPI_STATUS_IGNORE);
        while (*result == MPI_SUCCESS && !flag);
        MPI_Request_free(requests);
    }
    return NULL;
}

static pthread_t waiting[WAYS];
static int outcomes[WAYS];

static void begin_to_wait(void) {
    for (int i = 0; i < WAYS; i++) {
        outcomes[i] = i;
        if (pthread_create(&waiting[i], NULL, wait_in_a_thread, &outcomes[i])) MPI_Abort(MPI_COMM_WORLD, 4);
    }
    usleep(100000);
}

/* All are told the same. */
static int all_told(void) {
    for (int i = 0; i < WAYS; i++) pthread_join(waiting[i], NULL);
    int result = outcomes[0], class, first;
    MPI_Error_class(result, &first);
    for (int i = 1; i < WAYS; i++) {
        MPI_Error_class(outcomes[i], &class);
        if (class != first) fprintf(stderr, "gone: the way %d: %d\n", i, class), result = MPI_ERR_INTERN;
    }
    return result;
}

int main(int argc, char** argv) {
    int rank, level;
    void* memory;
    MPI_Win window;
    const char* const what = argc > 1 ? argv[1] : "send";
    const int threads = strcmp(what, "threads") == 0;
    if (threads)
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    else
        MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (strcmp(what, "nobody") == 0) { /* all live, but are in no call of MPI for longer than a connection's patience */
        const double start = MPI_Wtime();
        if (rank > 0) sleep(8);
        if (rank == 1) send_small_once();
        if (rank == 0) tell(what, receive_any(0), start);
        return MPI_Finalize();
    }
    if (strcmp(what, "collective") == 0) {
        const double start = MPI_Wtime();
        tell(what, all_of_a_collective(rank), start);
        let_the_others_end();
        _exit(3);
    }
    const int silent = strcmp(what, "silent") == 0;
    if (silent || strcmp(what, "any") == 0) { /* nobody has spoken with rank 0 */
        const int count = silent || rank == 2 ? 0 : 5;
        const double start = MPI_Wtime();
        if (rank > 0) send_and_go(rank, count);
        tell(what, receive_any(silent ? 0 : 5), start);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
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
        if (threads) usleep(300000);                                         /* they wait */
        MPI_Ssend(&process, sizeof process, MPI_CHAR, 0, 0, MPI_COMM_WORLD); /* has arrived: another send might not */
        raise(SIGKILL);
    }
    if (rank == 0) {
        if (threads) begin_to_wait();
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
                           : threads                    ? all_told()
                                                        : send_to(1);
        tell(what, result, start);
    }
    MPI_Abort(MPI_COMM_WORLD, 3);
}
