/* What the transport is told of who waits for what: hints
 *
 * Two ranks. Rank 1 receives large messages of blocking, non-blocking and collective calls, then writes to a window:
 * what its module says of itself at the end (--mca pml_mp_statistics 1) has to be 3 blocking, 7 non-blocking, 2 of an
 * epoch, and at least 2 collective: MPI_Bcast and two of MPI_Ibcast, 3 messages with 4.1. Chapter 6 asks whether others
 * may be under way to the same peer: so MPI_Ssend blocks, MPI_Startall does not. Where rank 0 writes (--mca
 * pml_mp_rendezvous put) it tells the same, but again whenever there was no room.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 20 };

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char* const data = malloc(5 * BYTES);
    memset(data, rank + 1, 5 * BYTES);
    for (int i = 0; i < 3; i++) {
        if (rank == 0) MPI_Ssend(data, BYTES, MPI_BYTE, 1, i, MPI_COMM_WORLD);
        if (rank == 1) MPI_Recv(data, BYTES, MPI_BYTE, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Request requests[5];
    for (int i = 0; i < 5; i++) {
        if (rank == 0) MPI_Isend(data + i * BYTES, BYTES, MPI_BYTE, 1, i, MPI_COMM_WORLD, &requests[i]);
        if (rank == 1) MPI_Irecv(data + i * BYTES, BYTES, MPI_BYTE, 0, i, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(5, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 2; i++) {
        if (rank == 0) MPI_Send_init(data + i * BYTES, BYTES, MPI_BYTE, 1, i, MPI_COMM_WORLD, &requests[i]);
        if (rank == 1) MPI_Recv_init(data + i * BYTES, BYTES, MPI_BYTE, 0, i, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 2; i++) MPI_Request_free(&requests[i]);
    MPI_Bcast(data, BYTES, MPI_BYTE, 0, MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++) MPI_Ibcast(data + i * BYTES, BYTES, MPI_BYTE, 0, MPI_COMM_WORLD, &requests[i]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    char* memory;
    MPI_Win win;
    MPI_Win_allocate(2 * BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < 2 && rank == 1; i++) MPI_Put(data, BYTES, MPI_BYTE, 0, i * BYTES, BYTES, MPI_BYTE, win);
    MPI_Win_fence(0, win);
    if (rank == 0 && (memory[0] != 1 || memory[2 * BYTES - 1] != 1)) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Win_free(&win);
    free(data);
    MPI_Finalize();
    return 0;
}
