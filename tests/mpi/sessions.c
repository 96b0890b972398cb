/* A session without threads is there before MPI_Init_thread() asks for them (MPI-4.0, 11.3): sessions. Two ranks, three
 * threads each that send and receive, blocking. Prints "sessions: ok".
 */
#include <pthread.h>
#include <unistd.h>

#include "checked.h"

enum { MESSAGES = 3000, BYTES = 20000 };

static void* work(void* tag_of) {
    const int tag = *(int*)tag_of;
    unsigned char *out = allocate(BYTES), *in = allocate(BYTES);
    for (long i = 0; i < MESSAGES; i++) {
        const size_t bytes = i % 3 == 0 ? 8 : i % 3 == 1 ? 2000 : BYTES;
        fill(out, bytes, rank + 10 * tag, 1 - rank, i);
        if (rank == 0) MPI_Send(out, (int)bytes, MPI_BYTE, 1, tag, MPI_COMM_WORLD);
        MPI_Recv(in, (int)bytes, MPI_BYTE, 1 - rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1) MPI_Send(out, (int)bytes, MPI_BYTE, 0, tag, MPI_COMM_WORLD);
        verify(in, bytes, 1 - rank + 10 * tag, rank, i, "a message between threads");
    }
    free(out), free(in);
    return NULL;
}

int main(int argc, char** argv) {
    MPI_Session session;
    int provided, tags[3] = {1, 2, 3};
    pthread_t threads[3];
    program = "sessions";
    if (MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session) != MPI_SUCCESS) return 1;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (provided != MPI_THREAD_MULTIPLE || ranks != 2) fail("needs threads, and two ranks");
    alarm(100); /* what never ends */
    for (int i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, work, &tags[i])) fail("no thread");
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("sessions: ok\n");
    MPI_Finalize();
    MPI_Session_finalize(&session);
    return 0;
}
