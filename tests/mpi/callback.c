/* What waits inside a callback gets what it waits for: callback
 *
 * Two ranks. Open MPI's own components (one-sided ones, for example) are called when a request is complete, from within
 * progress. Here such a callback receives another message, which is sent later. Open MPI's internal headers.
 */
#include "ompi_config.h"

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

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int bytes = 8; bytes <= BYTES; bytes = bytes == 8 ? BYTES : BYTES + 1) {
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
    MPI_Finalize();
    return 0;
}
