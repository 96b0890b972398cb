/* Many ranks that all meet at once: storm [LARGE-BYTES [ROUNDS [SECONDS]]]
 *
 * ROUNDS, and as many more as begin within SECONDS: a test whose faults come at given times must not depend on how fast
 * the ranks are.
 *
 * Nobody waits for anybody before the first message to everybody, so that all connections are made in one storm. Then
 * messages to wildcard receives, large messages, collectives, counters and blocks in windows. Everything that arrives
 * is checked byte for byte, every message's place in the order of its sender, every counter for lost and repeated
 * additions. Prints "storm: N ranks ok" and returns 0, or says what was wrong and aborts the job.
 */
#include "checked.h"

static MPI_Comm wild; /* for wildcard receives: others may be at their next step already */

/* One message of `bytes` from everybody to everybody, all at once. */
static void everybody(size_t bytes, int number, const char* what) {
    unsigned char *out = allocate(bytes * ranks), *in = allocate(bytes * ranks);
    MPI_Request* requests = allocate(2 * ranks * sizeof(MPI_Request));
    memset(in, 0xee, bytes * ranks);
    for (int i = 0; i < ranks; i++) {
        const int peer = (rank + i) % ranks;
        MPI_Irecv(in + bytes * peer, (int)bytes, MPI_BYTE, peer, number, MPI_COMM_WORLD, &requests[i]);
    }
    for (int i = 0; i < ranks; i++) {
        const int peer = (rank + i) % ranks;
        fill(out + bytes * peer, bytes, rank, peer, number);
        MPI_Isend(out + bytes * peer, (int)bytes, MPI_BYTE, peer, number, MPI_COMM_WORLD, &requests[ranks + i]);
    }
    MPI_Waitall(2 * ranks, requests, MPI_STATUSES_IGNORE);
    for (int peer = 0; peer < ranks; peer++) verify(in + bytes * peer, bytes, peer, rank, number, what);
    free(requests);
    free(in);
    free(out);
}

/* `count` messages of mixed sizes from everybody to everybody; the receiver takes what comes. The tag is the number. */
static size_t mixed_size(int from, int to, int number, size_t most) {
    static const size_t sizes[] = {0, 1, 8, 100, 300, 2000, 8192, 20000, 65536};
    const size_t size = sizes[word(from, to, number, 7) % (sizeof(sizes) / sizeof(sizes[0]))];
    return size < most ? size : most;
}

static void wildcards(int count, size_t most) {
    MPI_Request* requests = allocate((size_t)count * ranks * sizeof(MPI_Request));
    unsigned char** data = allocate((size_t)count * ranks * sizeof(*data));
    unsigned char* in = allocate(most);
    int* next = allocate(ranks * sizeof(int));
    int sends = 0;
    memset(next, 0, ranks * sizeof(int));
    for (int number = 0; number < count; number++)
        for (int i = 0; i < ranks; i++, sends++) {
            const int peer = (rank + 1 + i) % ranks;
            const size_t bytes = mixed_size(rank, peer, number, most);
            data[sends] = allocate(bytes);
            fill(data[sends], bytes, rank, peer, number);
            MPI_Isend(data[sends], (int)bytes, MPI_BYTE, peer, number, wild, &requests[sends]);
        }
    for (int i = 0; i < count * ranks; i++) {
        MPI_Status status;
        int bytes;
        MPI_Recv(in, (int)most, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, wild, &status);
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        const int from = status.MPI_SOURCE;
        if (status.MPI_TAG != next[from])
            fail("wildcards: message %d from %d instead of %d", status.MPI_TAG, from, next[from]);
        if ((size_t)bytes != mixed_size(from, rank, next[from], most))
            fail("wildcards: message %d from %d has %d bytes", next[from], from, bytes);
        verify(in, bytes, from, rank, next[from]++, "wildcards");
    }
    MPI_Waitall(sends, requests, MPI_STATUSES_IGNORE);
    while (sends) free(data[--sends]);
    free(next);
    free(in);
    free(data);
    free(requests);
}

static void collectives(size_t bytes) {
    unsigned char *out = allocate(bytes * ranks), *in = allocate(bytes * ranks);
    for (int peer = 0; peer < ranks; peer++) fill(out + bytes * peer, bytes, rank, peer, 3000);
    MPI_Alltoall(out, (int)bytes, MPI_BYTE, in, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
    for (int peer = 0; peer < ranks; peer++) verify(in + bytes * peer, bytes, peer, rank, 3000, "MPI_Alltoall");
    long sum = rank;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (sum != (long)ranks * (ranks - 1) / 2) fail("MPI_Allreduce: %ld", sum);
    free(in);
    free(out);
}

/* Everybody adds 1 to everybody's counter `count` times. Every value is fetched once: the values that all ranks get
 * from one counter are 0 .. ranks * count - 1. Then blocks are put and got. */
static void windows(int count, size_t bytes) {
    const long one = 1;
    long *counter = NULL, *seen, *total;
    unsigned char *block = NULL, *buffer = allocate(bytes * ranks);
    MPI_Win numbers, blocks;
    MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &counter, &numbers);
    MPI_Win_allocate((MPI_Aint)(bytes * ranks), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &block, &blocks);
    *counter = 0;
    memset(block, 0xee, bytes * ranks);
    seen = allocate((size_t)ranks * 2 * sizeof(long));
    total = allocate((size_t)ranks * 2 * sizeof(long));
    memset(seen, 0, (size_t)ranks * 2 * sizeof(long));
    MPI_Barrier(MPI_COMM_WORLD);

    MPI_Win_lock_all(0, numbers);
    for (int i = 0; i < ranks; i++) {
        const int peer = (rank + i) % ranks;
        long last = -1;
        for (int k = 0; k < count; k++) {
            long value = -1;
            MPI_Fetch_and_op(&one, &value, MPI_LONG, peer, 0, MPI_SUM, numbers);
            MPI_Win_flush(peer, numbers);
            if (value <= last || value >= (long)ranks * count)
                fail("fetch-and-add at %d: %ld after %ld", peer, value, last);
            last = value;
            seen[2 * peer] += value;
            seen[2 * peer + 1] += value * value;
        }
    }
    MPI_Win_unlock_all(numbers);
    MPI_Allreduce(seen, total, 2 * ranks, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    const long n = (long)ranks * count;
    for (int peer = 0; peer < ranks; peer++)
        if (total[2 * peer] != n * (n - 1) / 2 || total[2 * peer + 1] != (n - 1) * n * (2 * n - 1) / 6)
            fail("fetch-and-add at %d: values lost or repeated", peer);
    long mine = 0;
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, numbers);
    MPI_Get(&mine, 1, MPI_LONG, rank, 0, 1, MPI_LONG, numbers);
    MPI_Win_unlock(rank, numbers);
    if (mine != n) fail("counter is %ld instead of %ld", mine, n);

    for (int peer = 0; peer < ranks; peer++) fill(buffer + bytes * peer, bytes, rank, peer, 4000);
    MPI_Win_fence(0, blocks);
    for (int i = 0; i < ranks; i++) {
        const int peer = (rank + i) % ranks;
        MPI_Put(buffer + bytes * peer, (int)bytes, MPI_BYTE, peer, (MPI_Aint)(bytes * rank), (int)bytes, MPI_BYTE,
                blocks);
    }
    MPI_Win_fence(0, blocks);
    for (int peer = 0; peer < ranks; peer++) verify(block + bytes * peer, bytes, peer, rank, 4000, "MPI_Put");
    memset(buffer, 0, bytes * ranks);
    MPI_Win_fence(0, blocks);
    for (int i = 0; i < ranks; i++) { /* what the right neighbour of the peer has put there */
        const int peer = (rank + i) % ranks;
        MPI_Get(buffer + bytes * peer, (int)bytes, MPI_BYTE, peer, (MPI_Aint)(bytes * ((peer + 1) % ranks)), (int)bytes,
                MPI_BYTE, blocks);
    }
    MPI_Win_fence(0, blocks);
    for (int peer = 0; peer < ranks; peer++)
        verify(buffer + bytes * peer, bytes, (peer + 1) % ranks, peer, 4000, "MPI_Get");
    MPI_Win_free(&blocks);
    MPI_Win_free(&numbers);
    free(total);
    free(seen);
    free(buffer);
}

/* Rank 0 says it for all. */
static int goes_on(int round, int rounds, double until) {
    if (round < rounds) return 1;
    int more = MPI_Wtime() < until;
    MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return more;
}

int main(int argc, char** argv) {
    const size_t large = argc > 1 ? strtoul(argv[1], NULL, 0) : 1 << 20;
    const int rounds = argc > 2 ? atoi(argv[2]) : 2;
    const double seconds = argc > 3 ? atof(argv[3]) : 0;
    MPI_Init(&argc, &argv);
    program = "storm";
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const double began = MPI_Wtime();
    everybody(8, 1000, "first messages");
    const double connected = MPI_Wtime();
    MPI_Comm_dup(MPI_COMM_WORLD, &wild);
    /* Tags stay below 3001 however many rounds there are. */
    for (int round = 0; goes_on(round, rounds, began + seconds); round++) {
        everybody(4000, 1001 + round % 1000, "4000 bytes");
        wildcards(6, large < 65536 ? large : 65536);
        everybody(large, 2001 + round % 1000, "large messages");
        collectives(1000);
        windows(20, 10000);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_free(&wild);
    if (rank == 0)
        printf("storm: %d ranks ok, first messages %.2f s, all %.2f s\n", ranks, connected - began,
               MPI_Wtime() - began);
    MPI_Finalize();
    return 0;
}
