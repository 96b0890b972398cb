/* Collectives of MPI: mpi_collectives ROUNDS CASE...
 *
 * CASE: barrier, allreduce:SIZE or alltoall:SIZE (bytes of each rank's vector, or to each rank). Prints for each
 * "NAME SIZE us": the time of one call, where all ranks call ROUNDS times in a row, by the slowest rank. A quarter as
 * many calls before are not counted. What the last call gave is compared with what it has to be. */
#define USAGE "mpi_collectives ROUNDS barrier|allreduce:SIZE|alltoall:SIZE..."
#include <string.h>

#include "mpi_usage.h"

enum kind { BARRIER, ALLREDUCE, ALLTOALL };

static const char* const names[] = {"barrier", "allreduce", "alltoall"};
static int rank, ranks;

struct job {
    enum kind kind;
    long size;
    char *out, *in;
};

static void call(const struct job* job) {
    if (job->kind == BARRIER)
        MPI_Barrier(MPI_COMM_WORLD);
    else if (job->kind == ALLREDUCE)
        MPI_Allreduce(job->out, job->in, (int)(job->size / (long)sizeof(double)), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    else
        MPI_Alltoall(job->out, (int)job->size, MPI_BYTE, job->in, (int)job->size, MPI_BYTE, MPI_COMM_WORLD);
}

/* What rank `from` has in the block for `to`. */
static char content(int from, int to, long i) { return (char)(i * 7 + from * 31 + to); }

static void fill(const struct job* job) {
    double* vector = (double*)job->out;
    if (job->kind == ALLREDUCE)
        for (long i = 0; i < job->size / (long)sizeof(double); ++i) vector[i] = (double)(i + rank);
    for (int to = 0; job->kind == ALLTOALL && to < ranks; ++to)
        for (long i = 0; i < job->size; ++i) job->out[to * job->size + i] = content(rank, to, i);
}

static void check(const struct job* job) {
    const double* sum = (const double*)job->in;
    if (job->kind == ALLREDUCE)
        for (long i = 0; i < job->size / (long)sizeof(double); ++i)
            if (sum[i] != (double)i * ranks + ranks * (ranks - 1) / 2.0) die("wrong sum");
    for (int from = 0; job->kind == ALLTOALL && from < ranks; ++from)
        for (long i = 0; i < job->size; ++i)
            if (job->in[from * job->size + i] != content(from, rank, i)) die("wrong data");
}

static void measure(const struct job* job, int rounds) {
    for (int i = 0; i < rounds / 4 + 1; ++i) call(job);
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime(), mine, longest;
    for (int i = 0; i < rounds; ++i) call(job);
    mine = MPI_Wtime() - begun;
    MPI_Reduce(&mine, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    memset(job->in, 0, (size_t)ranks * (size_t)job->size);
    call(job);
    check(job);
    if (rank == 0) {
        printf("%s %ld %.2f\n", names[job->kind], job->kind == BARRIER ? 0 : job->size, longest / rounds * 1e6);
        fflush(stdout);
    }
}

static struct job parse(const char* text) {
    struct job job = {.kind = BARRIER, .size = 1};
    const char* colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    while (strlen(names[job.kind]) != length || strncmp(names[job.kind], text, length))
        if (job.kind++ == ALLTOALL) misuse("a case is none");
    if ((job.kind == BARRIER) != !colon) misuse("a barrier has no size, all else has one");
    if (colon) job.size = number(colon + 1, 1 << 26);
    if (job.kind == ALLREDUCE && job.size % (long)sizeof(double)) misuse("allreduce is of numbers of eight bytes");
    return job;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3) misuse("too few arguments");
    int rounds = (int)number(argv[1], 1000000);
    for (int i = 2; i < argc; ++i) {
        struct job job = parse(argv[i]);
        job.out = malloc((size_t)ranks * (size_t)job.size);
        job.in = malloc((size_t)ranks * (size_t)job.size);
        if (!job.out || !job.in) die("no memory");
        fill(&job);
        measure(&job, rounds);
        free(job.out);
        free(job.in);
    }
    MPI_Finalize();
    return 0;
}
