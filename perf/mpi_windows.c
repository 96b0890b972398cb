/* Windows of MPI messages between pairs of ranks: mpi_windows MODE WINDOW ROUNDS SIZE[:WINDOW[:ROUNDS]]...
 *
 * Rank i of the first half and rank i + half are a pair. A round is WINDOW messages of SIZE bytes, all started at once,
 * answered by one message of four bytes. MODE one: the first half sends; both: both halves send, and both are answered.
 * Prints for each size "MODE SIZE MB/s", the sum of all pairs (1e6 bytes, what was sent by anybody). ROUNDS of warm-up
 * (a quarter) are not counted. A size may have a window and rounds of its own. The last round of each size is compared
 * with what was sent. */
#define USAGE "mpi_windows one|both WINDOW ROUNDS SIZE[:WINDOW[:ROUNDS]]..."
#include <string.h>

#include "mpi_usage.h"

enum { MAX_WINDOW = 1024, DATA = 1, DONE = 2 };

static int rank, ranks;

struct job {
    int window, peer, sends, receives;
    long size;
    char *out, *in;
};

static void round_of(const struct job* job) {
    MPI_Request requests[2 * MAX_WINDOW];
    int n = 0, token = 0;
    for (int i = 0; job->receives && i < job->window; ++i)
        MPI_Irecv(job->in + i * job->size, (int)job->size, MPI_BYTE, job->peer, DATA, MPI_COMM_WORLD, &requests[n++]);
    for (int i = 0; job->sends && i < job->window; ++i)
        MPI_Isend(job->out + i * job->size, (int)job->size, MPI_BYTE, job->peer, DATA, MPI_COMM_WORLD, &requests[n++]);
    MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
    if (job->receives) MPI_Send(&token, 1, MPI_INT, job->peer, DONE, MPI_COMM_WORLD);
    if (job->sends) MPI_Recv(&token, 1, MPI_INT, job->peer, DONE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void measure(const char* mode, struct job* job, int rounds) {
    for (int i = 0; i < rounds / 4 + 1; ++i) round_of(job);
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime(), mine, longest;
    for (int i = 0; i < rounds; ++i) round_of(job);
    mine = MPI_Wtime() - begun;
    MPI_Reduce(&mine, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);

    size_t bytes = (size_t)job->window * (size_t)job->size;
    if (job->receives) memset(job->in, 0, bytes);
    round_of(job);
    if (job->receives)
        for (size_t i = 0; i < bytes; ++i)
            if (job->in[i] != (char)(i * 7 + (size_t)job->peer)) die("wrong data");
    if (rank == 0) {
        double senders = ranks / 2.0 * (strcmp(mode, "both") ? 1 : 2);
        printf("%s %ld %.5g\n", mode, job->size, senders * (double)bytes * rounds / longest / 1e6);
        fflush(stdout);
    }
}

/* SIZE[:WINDOW[:ROUNDS]]; what is left out stays as it is. */
static void parse(char* text, struct job* job, int* rounds) {
    char* colon = strchr(text, ':');
    char* second = colon ? strchr(colon + 1, ':') : NULL;
    if (colon) *colon = 0;
    if (second) *second = 0;
    job->size = number(text, 1 << 26);
    if (colon) job->window = (int)number(colon + 1, MAX_WINDOW);
    if (second) *rounds = (int)number(second + 1, 1000000);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 5) misuse("too few arguments");
    if (ranks % 2) misuse("an even number of ranks is needed");
    if (strcmp(argv[1], "one") && strcmp(argv[1], "both")) misuse("the mode is neither one nor both");
    struct job job = {.window = (int)number(argv[2], MAX_WINDOW)};
    int rounds = (int)number(argv[3], 1000000), first = rank < ranks / 2, both = strcmp(argv[1], "both") == 0;
    job.peer = first ? rank + ranks / 2 : rank - ranks / 2;
    job.sends = first || both;
    job.receives = !first || both;
    const int window = job.window;
    for (int i = 4; i < argc; ++i) {
        int times = rounds;
        job.window = window;
        parse(argv[i], &job, &times);
        size_t bytes = (size_t)job.window * (size_t)job.size;
        job.out = malloc(bytes);
        job.in = malloc(bytes);
        if (!job.out || !job.in) die("no memory");
        for (size_t k = 0; k < bytes; ++k) job.out[k] = (char)(k * 7 + (size_t)rank);
        measure(argv[1], &job, times);
        free(job.out);
        free(job.in);
    }
    MPI_Finalize();
    return 0;
}
