/* What one rank has put, the other one sees when MPI says so: contents are compared after MPI_Win_fence, after a
 * message, after a rendezvous by put (UCX_RNDV_SCHEME=put_zcopy) and after MPI_Raccumulate under a lock. Meant for
 * adapters that place data late. One that does is enough, since the other one tells of it.
 *
 *     mpirun -n 2 mpi_seen [BYTES] [ROUNDS]
 */
#include "checked.h"

static size_t bytes = 1 << 20;
static long rounds = 10;

/* One more round in which nothing comes late any more by chance. */
static void pause_and_meet(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double until = MPI_Wtime() + 0.01;
    while (MPI_Wtime() < until) {}
    MPI_Barrier(MPI_COMM_WORLD);
}

static void put_and_fence(MPI_Win window, unsigned char* memory, unsigned char* data) {
    for (long i = 0; i < rounds; ++i) {
        MPI_Win_fence(0, window);
        if (rank == 0) {
            fill(data, bytes, 0, 1, i);
            MPI_Put(data, (int)bytes, MPI_BYTE, 1, 0, (int)bytes, MPI_BYTE, window);
        }
        MPI_Win_fence(0, window);
        if (rank == 1) verify(memory, bytes, 0, 1, i, "MPI_Put and MPI_Win_fence");
        pause_and_meet();
    }
}

static void put_flush_and_message(MPI_Win window, unsigned char* memory, unsigned char* data) {
    for (long i = 0; i < rounds; ++i) {
        if (rank == 0) {
            fill(data, bytes, 0, 1, rounds + i);
            MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window);
            MPI_Put(data, (int)bytes, MPI_BYTE, 1, 0, (int)bytes, MPI_BYTE, window);
            MPI_Win_flush(1, window);
            MPI_Send(NULL, 0, MPI_BYTE, 1, 5, MPI_COMM_WORLD);
            MPI_Win_unlock(1, window);
        } else {
            MPI_Recv(NULL, 0, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            verify(memory, bytes, 0, 1, rounds + i, "MPI_Put, MPI_Win_flush and a message");
        }
        pause_and_meet();
    }
}

static void rendezvous(unsigned char* data) {
    for (long i = 0; i < rounds; ++i) {
        if (rank == 0) {
            fill(data, bytes, 0, 1, 2 * rounds + i);
            MPI_Send(data, (int)bytes, MPI_BYTE, 1, 7, MPI_COMM_WORLD);
        } else {
            memset(data, 0, bytes);
            MPI_Recv(data, (int)bytes, MPI_BYTE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            verify(data, bytes, 0, 1, 2 * rounds + i, "a message");
        }
        pause_and_meet();
    }
}

/* osc/ucx reads, adds and puts back, while it holds a lock of its own at the target. */
static void accumulate(MPI_Win window, int* memory, int* data) {
    const int count = (int)(bytes / sizeof *data);
    for (long i = 0; i < rounds; ++i) {
        if (rank == 1) {
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window);
            for (int k = 0; k < count; ++k) memory[k] = (int)i;
            MPI_Win_unlock(1, window);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            for (int k = 0; k < count; ++k) data[k] = k % 1000 + 1;
            MPI_Request request;
            MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window);
            MPI_Raccumulate(data, count, MPI_INT, 1, 0, count, MPI_INT, MPI_SUM, window, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Win_unlock(1, window);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1) {
            MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window);
            for (int k = 0; k < count; ++k)
                if (memory[k] != (int)i + k % 1000 + 1)
                    fail("MPI_Raccumulate: round %ld, element %d is %d instead of %d", i, k, memory[k],
                         (int)i + k % 1000 + 1);
            MPI_Win_unlock(1, window);
        }
        pause_and_meet();
    }
}

int main(int argc, char** argv) {
    program = "seen";
    if (argc > 1) bytes = (size_t)atol(argv[1]);
    if (argc > 2) rounds = atol(argv[2]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2 || bytes < 8 || bytes % 8 || rounds < 1)
        fail("usage: mpirun -n 2 mpi_seen [BYTES, a multiple of 8] [ROUNDS]");
    unsigned char* memory;
    MPI_Win window;
    MPI_Win_allocate((MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    unsigned char* const data = allocate(bytes);
    memset(memory, 0, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    put_and_fence(window, memory, data);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
    put_flush_and_message(window, memory, data);
    rendezvous(data);
    accumulate(window, (int*)memory, (int*)data);
    MPI_Win_free(&window);
    if (rank == 0) printf("seen: %ld rounds of %zu bytes, all right\n", rounds, bytes);
    free(data);
    MPI_Finalize();
    return 0;
}
