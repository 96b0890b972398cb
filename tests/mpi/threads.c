/* MPI_THREAD_MULTIPLE (MPI-3.1, 12.4): threads N [MESSAGES]: N threads of every rank, each with a communicator of its
 * own or all in one, send to everybody and receive from everybody, wait in all ways, blocking and not. Before that:
 * what a call has brought to its end the next look sees; behind it: many receives fail at a time. Prints "threads: N
 * ranks ok" and returns 0, or says what was wrong and aborts the job. */
#include <pthread.h>

#include "checked.h"

static long messages = 300;
static int threads = 3;

struct Worker {
    pthread_t thread;
    int number;
    MPI_Comm own, shared;
};

static void exchange(MPI_Comm comm, int tag, long number, size_t bytes, int way) {
    unsigned char **out = allocate(sizeof *out * (size_t)ranks), **in = allocate(sizeof *in * (size_t)ranks);
    MPI_Request* requests = allocate(2 * sizeof *requests * (size_t)ranks);
    for (int peer = 0; peer < ranks; peer++) {
        out[peer] = allocate(bytes);
        in[peer] = allocate(bytes);
        fill(out[peer], bytes, rank + 100 * tag, peer, number);
    }
    if (way == 0) {
        for (int step = 0; step < ranks; step++) {
            const int to = (rank + step) % ranks, from = (rank + ranks - step) % ranks;
            MPI_Sendrecv(out[to], (int)bytes, MPI_BYTE, to, tag, in[from], (int)bytes, MPI_BYTE, from, tag, comm,
                         MPI_STATUS_IGNORE);
        }
    } else {
        for (int peer = 0; peer < ranks; peer++) {
            MPI_Irecv(in[peer], (int)bytes, MPI_BYTE, peer, tag, comm, &requests[peer]);
            MPI_Isend(out[peer], (int)bytes, MPI_BYTE, peer, tag, comm, &requests[ranks + peer]);
        }
        if (way == 1) MPI_Waitall(2 * ranks, requests, MPI_STATUSES_IGNORE);
        for (int index = 0; way == 2 && index != MPI_UNDEFINED;)
            MPI_Waitany(2 * ranks, requests, &index, MPI_STATUS_IGNORE);
        for (int flag = 0; way == 3 && !flag;) MPI_Testall(2 * ranks, requests, &flag, MPI_STATUSES_IGNORE);
    }
    for (int peer = 0; peer < ranks; peer++) {
        verify(in[peer], bytes, peer + 100 * tag, rank, number, "a message between threads");
        free(in[peer]), free(out[peer]);
    }
    free(requests), free(in), free(out);
}

static void* work(void* argument) {
    struct Worker* const self = argument;
    static const size_t kSizes[] = {0, 8, 200, 4000, 8192, 40000};
    for (long i = 0; i < messages; i++) {
        exchange(self->own, 1, i, kSizes[i % 6], (int)(i % 4));
        exchange(self->shared, 10 + self->number, i, kSizes[(i + 3) % 6], (int)((i + 1) % 4));
        if (i % 10 == 0) MPI_Barrier(self->own);
    }
    return NULL;
}

/* MPI_Testsome looks once. Open MPI's own look for what is there, and so mpi4py's tests. */
static void look(void) {
    enum { REQUESTS = 6 };
    static const int kOrder[][3] = {{5, -1, -1}, {-1, -1, -1}, {3, 1, 2}, {0, 4, -1}};
    MPI_Request requests[REQUESTS];
    int in[REQUESTS], count, indices[REQUESTS];
    for (int way = 0; way < 3; way++) {
        for (int i = 0; i < REQUESTS; i++) MPI_Irecv(&in[i], 1, MPI_INT, rank, i, MPI_COMM_WORLD, &requests[i]);
        for (int turn = 0; turn < 4; turn++) {
            int sent = 0;
            for (; sent < 3 && kOrder[turn][sent] >= 0; sent++) {
                const int tag = kOrder[turn][sent], value = tag + 70;
                MPI_Request request;
                if (way == 0) MPI_Ssend(&value, 1, MPI_INT, rank, tag, MPI_COMM_WORLD);
                if (way == 1) MPI_Send(&value, 1, MPI_INT, rank, tag, MPI_COMM_WORLD);
                if (way == 2) MPI_Isend(&value, 1, MPI_INT, rank, tag, MPI_COMM_WORLD, &request);
                if (way == 2) MPI_Request_free(&request);
            }
            MPI_Testsome(REQUESTS, requests, &count, indices, MPI_STATUSES_IGNORE);
            if (count != sent) fail("MPI_Testsome: %d instead of %d messages to ourselves", count, sent);
            for (int i = 0; i < count; i++)
                if (in[indices[i]] != indices[i] + 70) fail("a message to ourselves is %d", in[indices[i]]);
        }
    }
}

enum { SHORT = 8 };

static void ended(int error, MPI_Request request) {
    if (error != MPI_ERR_TRUNCATE) fail("a message that is too long ends with %d", error);
    if (request != MPI_REQUEST_NULL) fail("a request that has failed is left");
}

/* Waits for some of them, in one of three ways; those that are left are waited for again (MPI-3.1 3.7.5). Open MPI
 * frees all that have failed when it tells of one. */
static int wait_for_failures(MPI_Request* requests, int way) {
    MPI_Status statuses[SHORT];
    int count = 0, indices[SHORT], result, waited[SHORT], left = 0;
    for (int i = 0; i < SHORT; i++) waited[i] = requests[i] != MPI_REQUEST_NULL;
    if (way == 0) {
        result = MPI_Waitall(SHORT, requests, statuses);
        for (int i = 0; i < SHORT; i++)
            if (waited[i] && statuses[i].MPI_ERROR != MPI_ERR_PENDING) ended(statuses[i].MPI_ERROR, requests[i]);
    } else if (way == 1) {
        result = MPI_Waitany(SHORT, requests, indices, MPI_STATUS_IGNORE);
        ended(result, requests[indices[0]]);
    } else {
        result = MPI_Waitsome(SHORT, requests, &count, indices, statuses);
        for (int i = 0; i < count; i++) ended(statuses[i].MPI_ERROR, requests[indices[i]]);
    }
    if (result != (way == 1 ? MPI_ERR_TRUNCATE : MPI_ERR_IN_STATUS)) fail("waiting for what fails: %d", result);
    for (int i = 0; i < SHORT; i++) left += requests[i] != MPI_REQUEST_NULL;
    return left;
}

/* Many requests fail at a time, and other threads hear of it. Some have failed before they are waited for. */
static void* fail_together(void* argument) {
    struct Worker* const self = argument;
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Request in[SHORT], out[SHORT];
    char buffer[SHORT], text[2] = "";
    for (long round = 0; round < 10 * messages; round++) {
        for (int i = 0; i < SHORT; i++) MPI_Irecv(&buffer[i], 1, MPI_CHAR, from, i, self->own, &in[i]);
        if (round % 4 == 3) MPI_Barrier(self->own);
        for (int i = 0; i < SHORT; i++) MPI_Isend(text, 2, MPI_CHAR, to, i, self->own, &out[i]);
        if (round % 8 == 3) MPI_Barrier(self->own);
        while (wait_for_failures(in, (int)(round % 3)) > 0) {}
        MPI_Waitall(SHORT, out, MPI_STATUSES_IGNORE);
    }
    return NULL;
}

static void in_threads(struct Worker* workers, void* (*what)(void*)) {
    for (int i = 0; i < threads; i++)
        if (pthread_create(&workers[i].thread, NULL, what, &workers[i])) fail("no thread");
    for (int i = 0; i < threads; i++) pthread_join(workers[i].thread, NULL);
}

int main(int argc, char** argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    program = "threads";
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc > 1) threads = atoi(argv[1]);
    if (argc > 2) messages = atol(argv[2]);
    if (provided != MPI_THREAD_MULTIPLE) fail("only thread level %d is provided", provided);
    look();
    struct Worker* workers = allocate(sizeof *workers * (size_t)threads);
    MPI_Comm shared;
    MPI_Comm_dup(MPI_COMM_WORLD, &shared);
    for (int i = 0; i < threads; i++) {
        workers[i].number = i;
        workers[i].shared = shared;
        MPI_Comm_dup(MPI_COMM_WORLD, &workers[i].own);
    }
    in_threads(workers, work);
    for (int i = 0; i < threads; i++) MPI_Comm_set_errhandler(workers[i].own, MPI_ERRORS_RETURN);
    in_threads(workers, fail_together);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("threads: %d ranks ok, %d threads each\n", ranks, threads);
    for (int i = 0; i < threads; i++) MPI_Comm_free(&workers[i].own);
    MPI_Comm_free(&shared);
    free(workers);
    MPI_Finalize();
    return 0;
}
