/* Windows with MPI_THREAD_MULTIPLE (MPI-3.1, 11.5 and 12.4): window_threads [SECONDS]. Two ranks, two threads each.
 * Threads that lock different ranks lose no lock. A flush ends while another thread goes on and on, for so many
 * seconds; what was put before it can be read then, and each sum counts once. Prints "window_threads: ok".
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "checked.h"

enum { LOCKS = 300000, CHECKED = 1000, FLUSHES = 50, WORDS = 64 };

static MPI_Win window;
static atomic_int over;
static int sums; /* of put() */

static void need(int result, const char* what) {
    if (result != MPI_SUCCESS) fail("%s: error %d", what, result);
}

static void* lock(void* target) {
    const int rank = *(int*)target;
    for (int i = 0; i < LOCKS; i++) {
        need(MPI_Win_lock(MPI_LOCK_SHARED, rank, i < CHECKED ? 0 : MPI_MODE_NOCHECK, window), "a lock");
        need(MPI_Win_unlock(rank, window), "its end");
    }
    return NULL;
}

static void* put(void* target) {
    static int words[WORDS], got[WORDS], one = 1;
    const int rank = *(int*)target;
    for (long i = 0; !over; i++) {
        need(MPI_Put(words, 1, MPI_INT, rank, 0, 1, MPI_INT, window), "a put");
        need(MPI_Accumulate(&one, 1, MPI_INT, rank, WORDS, 1, MPI_INT, MPI_SUM, window), "a sum");
        sums++;
        need(MPI_Get(got, 1, MPI_INT, rank, 2 * WORDS, 1, MPI_INT, window), "a get");
        if (i % 16 == 0) need(MPI_Win_flush_local(rank, window), "a local flush"); /* else ever more are queued */
    }
    return NULL;
}

int main(int argc, char** argv) {
    int provided, targets[2] = {0, 1}, *memory;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    program = "window_threads";
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (provided != MPI_THREAD_MULTIPLE || ranks != 2) fail("needs threads, and two ranks");
    alarm(150); /* what never ends */
    MPI_Win_allocate(4 * WORDS * (MPI_Aint)sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    memset(memory, 0, 4 * WORDS * sizeof(int));
    MPI_Barrier(MPI_COMM_WORLD);

    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, lock, &targets[i])) fail("no thread");
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    need(MPI_Win_lock_all(0, window), "a lock of all, when no other one is left");

    const int other = 1 - rank;
    const double end = MPI_Wtime() + (argc > 1 ? atof(argv[1]) : 0);
    int value = 0, seen, theirs;
    if (pthread_create(&threads[0], NULL, put, &targets[other])) fail("no thread");
    for (int i = 0; i < FLUSHES || MPI_Wtime() < end; i++) {
        value = i;
        need(MPI_Put(&value, 1, MPI_INT, other, 3 * WORDS, 1, MPI_INT, window), "a put");
        need(i % 3 == 0   ? MPI_Win_flush(other, window)
             : i % 3 == 1 ? MPI_Win_flush_all(window)
                          : MPI_Win_flush_local(other, window),
             "a flush");
        if (i % 3 == 2) continue; /* not there yet, perhaps */
        need(MPI_Get(&seen, 1, MPI_INT, other, 3 * WORDS, 1, MPI_INT, window), "a get");
        need(MPI_Win_flush_local(other, window), "a local flush");
        if (seen != value) fail("a put that was flushed is not there: %d instead of %d", seen, value);
    }
    over = 1;
    pthread_join(threads[0], NULL);
    need(MPI_Win_unlock_all(window), "the end of all locks");
    const int last = value;
    MPI_Sendrecv(&last, 1, MPI_INT, other, 1, &value, 1, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&sums, 1, MPI_INT, other, 2, &theirs, 1, MPI_INT, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (memory[3 * WORDS] != value) fail("the last put is not there");
    if (memory[WORDS] != theirs) fail("%d sums count %d", theirs, memory[WORDS]);
    if (rank == 0) printf("window_threads: ok\n");
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
