/* Locked memory is used up: locked [SIZE [AT_ONCE]]: rank 0 sends many buffers, each kept afterwards; then AT_ONCE
 * messages of growing sizes up to SIZE bytes are under way together, in both directions. All that the transport has
 * registered and nobody uses has to be given back then, and what cannot be registered goes by copies. Two ranks.
 * Prints "locked: 2 ranks ok" and returns 0, or aborts.
 */
#include <sys/mman.h>

#include "checked.h"

static unsigned char* pages(size_t bytes) { /* fresh ones, in no heap that has been registered */
    void* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("no memory");
    return memory;
}

int main(int argc, char** argv) {
    enum { kKept = 40, kBytes = 1 << 20, kMost = 16 };
    MPI_Init(&argc, &argv);
    program = "locked";
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) fail("two ranks are needed");
    const size_t largest = argc > 1 ? strtoul(argv[1], NULL, 10) : 5 << 20;
    const int at_once = argc > 2 ? atoi(argv[2]) : 6, peer = 1 - rank;
    unsigned char* kept[kKept];
    for (int i = 0; i < kKept; i++) {
        kept[i] = pages(kBytes);
        if (rank == 0) {
            fill(kept[i], kBytes, 0, 1, i);
            MPI_Send(kept[i], kBytes, MPI_BYTE, 1, i, MPI_COMM_WORLD);
        } else {
            MPI_Recv(kept[i], kBytes, MPI_BYTE, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            verify(kept[i], kBytes, 0, 1, i, "a buffer that is kept");
        }
    }
    for (size_t bytes = 1000; bytes <= largest; bytes = bytes < largest && bytes * 5 > largest ? largest : bytes * 5) {
        MPI_Request requests[2 * kMost];
        unsigned char *in[kMost], *out[kMost];
        for (int i = 0; i < at_once; i++) {
            in[i] = pages(bytes), out[i] = pages(bytes);
            fill(out[i], bytes, rank, peer, i);
            MPI_Irecv(in[i], (int)bytes, MPI_BYTE, peer, i, MPI_COMM_WORLD, &requests[2 * i]);
            MPI_Isend(out[i], (int)bytes, MPI_BYTE, peer, i, MPI_COMM_WORLD, &requests[2 * i + 1]);
        }
        MPI_Waitall(2 * at_once, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < at_once; i++) {
            verify(in[i], bytes, peer, rank, i, "a message when memory lacks");
            munmap(in[i], bytes), munmap(out[i], bytes);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("locked: %d ranks ok\n", ranks);
    MPI_Finalize();
    return 0;
}
