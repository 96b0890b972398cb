/* A job that faults happen to: endure alltoall SECONDS BYTES [FILE], or endure compute SECONDS
 *
 * alltoall: rounds of MPI_Alltoall with BYTES per pair, each checked byte for byte, for SECONDS; then prints the number
 * of rounds, the longest one (of rank 0, which no round can end without) and how much the ranks have grown from the end
 * of the first second to the end. A partition is a long round. With FILE it ends as soon as that exists, at the latest
 * then. compute: rank 1 does nothing for SECONDS, as if it computed, while all others send it as much as they can:
 * small messages until they are refused for good, large ones behind them. Then it takes and checks all. Prints "endure:
 * N ranks ok, ..." and returns 0, or says what was wrong and aborts the job.
 */
#include <unistd.h>

#include "checked.h"

/* Resident memory of this process, KiB. */
static long resident(void) {
    long all = 0, pages = 0;
    FILE* file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &all, &pages) != 2) pages = 0;
    if (file) fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void alltoall(double seconds, size_t bytes, const char* end) {
    unsigned char *out = allocate(bytes * ranks), *in = allocate(bytes * ranks);
    const double began = MPI_Wtime();
    double longest = 0;
    long rounds = 0, early = 0;
    for (int more = 1; more; rounds++) {
        for (int peer = 0; peer < ranks; peer++) fill(out + bytes * peer, bytes, rank, peer, rounds);
        memset(in, 0xee, bytes * ranks);
        const double start = MPI_Wtime();
        MPI_Alltoall(out, (int)bytes, MPI_BYTE, in, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
        const double now = MPI_Wtime();
        for (int peer = 0; peer < ranks; peer++) verify(in + bytes * peer, bytes, peer, rank, rounds, "MPI_Alltoall");
        if (rounds && now - start > longest) longest = now - start; /* the first one connects */
        if (!early && now - began > 1) early = resident();
        more = now - began < seconds && !(end && access(end, F_OK) == 0);
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    long grown = early ? resident() - early : 0, most = 0;
    MPI_Reduce(&grown, &most, 1, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("endure: %d ranks ok, %ld rounds, longest %.3f s, grown by %ld KiB at most\n", ranks, rounds, longest,
               most);
    free(in);
    free(out);
}

enum { kSmall = 4000, kSmallBytes = 600, kLarge = 4, kLargeBytes = 300000 };

static void compute(unsigned seconds) {
    unsigned char* data = allocate(kSmall * kSmallBytes + kLarge * kLargeBytes);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        sleep(seconds);
        for (int from = 0; from < ranks; from++)
            for (int i = 0; from != 1 && i < kSmall + kLarge; i++) {
                const int bytes = i < kSmall ? kSmallBytes : kLargeBytes;
                MPI_Recv(data, bytes, MPI_BYTE, from, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                verify(data, (size_t)bytes, from, rank, i, "message");
            }
    } else {
        MPI_Request* requests = allocate((kSmall + kLarge) * sizeof(MPI_Request));
        unsigned char* next = data;
        for (int i = 0; i < kSmall + kLarge; i++) {
            const int bytes = i < kSmall ? kSmallBytes : kLargeBytes;
            fill(next, (size_t)bytes, rank, 1, i);
            MPI_Isend(next, bytes, MPI_BYTE, 1, 7, MPI_COMM_WORLD, &requests[i]);
            next += bytes;
        }
        MPI_Waitall(kSmall + kLarge, requests, MPI_STATUSES_IGNORE);
        free(requests);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("endure: %d ranks ok, %u s without progress\n", ranks, seconds);
    free(data);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    program = "endure";
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if ((argc == 4 || argc == 5) && !strcmp(argv[1], "alltoall")) {
        alltoall(atof(argv[2]), strtoul(argv[3], NULL, 0), argc == 5 ? argv[4] : NULL);
    } else if (argc == 3 && !strcmp(argv[1], "compute") && ranks > 1) {
        compute((unsigned)atoi(argv[2]));
    } else {
        if (rank == 0)
            fprintf(stderr, "usage: endure alltoall SECONDS BYTES [FILE] | compute SECONDS (two ranks at least)\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Finalize();
    return 0;
}
