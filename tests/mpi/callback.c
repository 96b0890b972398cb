/* What waits inside a callback gets what it waits for: callback [threads]
 *
 * Two ranks. Open MPI's own components (one-sided ones, for example) are called when a request is complete, from within
 * progress. Here such a callback receives another message, which is sent later, or waits for one that has come with its
 * own. With threads Open MPI lets nobody wait in a callback; then none is called with a lock that another thread's call
 * needs. Open MPI's internal headers.
 */
#include "ompi_config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ompi/request/request.h"

enum { BYTES = 300000 };
static char *first, *second;
static int called;

static int complete(ompi_request_t* request) {
    (void)request;
    MPI_Recv(second, BYTES, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    called++;
    return 0;
}

static void need(int holds, const char* what) {
    if (holds) return;
    fprintf(stderr, "callback: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static MPI_Request later;
static int count(ompi_request_t* request) {
    (void)request;
    called++;
    return 0;
}
static int wait_for_later(ompi_request_t* request) {
    (void)request;
    MPI_Wait(&later, MPI_STATUS_IGNORE);
    called++;
    return 0;
}

/* Two messages are there before progress is made, and the first one's callback waits for the second. */
static void both_at_once(int rank) {
    int word[2] = {1, 2};
    if (rank == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
        usleep(100000);
        for (int i = 0; i < 2; i++) MPI_Send(&word[i], 1, MPI_INT, 1, 3 + i, MPI_COMM_WORLD);
        return;
    }
    MPI_Request earlier;
    int got[2] = {0, 0};
    called = 0;
    MPI_Irecv(&got[0], 1, MPI_INT, 0, 3, MPI_COMM_WORLD, &earlier);
    MPI_Irecv(&got[1], 1, MPI_INT, 0, 4, MPI_COMM_WORLD, &later);
    ompi_request_set_callback(earlier, wait_for_later, NULL);
    ompi_request_set_callback(later, count, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    usleep(300000);
    MPI_Wait(&earlier, MPI_STATUS_IGNORE);
    need(called == 2 && got[0] == 1 && got[1] == 2, "two that came together");
}

static atomic_int answered;
static void* ask(void* unused) {
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    answered = 1;
    return unused;
}
static int another_asks(ompi_request_t* request) {
    (void)request;
    pthread_t thread;
    need(pthread_create(&thread, NULL, ask, NULL) == 0, "no thread");
    for (int i = 0; i < 5000 && !answered; i++) usleep(1000);
    need(answered, "a callback is called with the lock");
    pthread_join(thread, NULL);
    called++;
    return 0;
}

/* Open MPI makes progress when there is no room for a buffered send: inside our call. */
static void no_room(int rank) {
    int word = 1;
    if (rank == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
        usleep(100000);
        MPI_Send(&word, 1, MPI_INT, 1, 5, MPI_COMM_WORLD);
        MPI_Recv(first, BYTES, MPI_BYTE, 1, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
    }
    int length = BYTES + MPI_BSEND_OVERHEAD;
    void* buffer = malloc((size_t)length);
    MPI_Buffer_attach(buffer, length);
    MPI_Request request;
    called = 0;
    MPI_Irecv(&word, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, &request);
    ompi_request_set_callback(request, another_asks, NULL);
    MPI_Bsend(first, BYTES, MPI_BYTE, 0, 6, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    usleep(300000);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    need(MPI_Bsend(first, BYTES, MPI_BYTE, 0, 6, MPI_COMM_WORLD) != MPI_SUCCESS, "there is room for two");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    need(called == 1, "one that came while there was no room");
    MPI_Buffer_detach(&buffer, &length);
    free(buffer);
}

/* A callback waits for progress; what has ended behind it is seen at once. Messages to ourselves arrive in the call. */
static void behind_another(int rank) {
    int out[2] = {1, 2}, in[2] = {0, 0};
    MPI_Request receives[2], sends[2];
    called = 0;
    for (int i = 0; i < 2; i++) MPI_Irecv(&in[i], 1, MPI_INT, rank, 7 + i, MPI_COMM_WORLD, &receives[i]);
    ompi_request_set_callback(receives[0], count, NULL);
    for (int i = 0; i < 2; i++) MPI_Isend(&out[i], 1, MPI_INT, rank, 7 + i, MPI_COMM_WORLD, &sends[i]);
    need(called == 0, "a callback is called from within a send");
    need(REQUEST_COMPLETE(receives[1]), "a callback hides who is behind it");
    MPI_Waitall(2, receives, MPI_STATUSES_IGNORE);
    MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
    need(called == 1 && in[0] == 1 && in[1] == 2, "one behind another");
}

int main(int argc, char** argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, argc > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    alarm(60); /* what waits for ever */
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int bytes = argc > 1 ? BYTES + 1 : 8; bytes <= BYTES; bytes = bytes == 8 ? BYTES : BYTES + 1) {
        first = calloc(BYTES, 1);
        second = calloc(BYTES, 1);
        called = 0;
        if (rank == 0) {
            memset(first, 1, BYTES);
            memset(second, 2, BYTES);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Send(first, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            usleep(50000);
            MPI_Send(second, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
        } else {
            MPI_Request request;
            MPI_Irecv(first, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
            ompi_request_set_callback(request, complete, NULL);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            if (called != 1 || first[bytes - 1] != 1 || second[bytes - 1] != 2) {
                fprintf(stderr, "callback: %d B: called %d times, got %d and %d\n", bytes, called, first[bytes - 1],
                        second[bytes - 1]);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
        free(first);
        free(second);
    }
    first = calloc(BYTES, 1);
    if (argc > 1) {
        no_room(rank);
        behind_another(rank);
    } else {
        both_at_once(rank);
    }
    free(first);
    MPI_Finalize();
    return 0;
}
