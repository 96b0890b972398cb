/* What one MPI program measures of a PML: pml_pair latency|rate|bandwidth|both|memory|start|send|recv|isend|irecv|
 * barrier|bcast|allreduce|alltoall BYTES [REPEATS]
 *
 * Two ranks; memory, start and collective operations: any number. Prints one line: WHAT BYTES VALUE UNIT, of rank 0;
 * the best of five rounds, since noise only adds. latency    half a ping-pong, microseconds rate       messages per
 * second of windows of 64 MPI_Isend / MPI_Irecv bandwidth  MB/s of the same windows, one way; both: in both directions
 * memory     of rank 0, KiB per peer that it has exchanged one message with: its resident memory, more than before
 * start      nothing: the job's start and end are measured outside send, recv instructions: rank 0 (1) counts its own
 * calls only, under callgrind (perf/pml instructions); isend, irecv: those of windows barrier, bcast, allreduce,
 * alltoall: the same of the last rank
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

enum { kWindow = 64, kRounds = 5 };
static int rank, bytes, repeats;
static char *out, *in;

static double latency(void) {
    const double begin = MPI_Wtime();
    for (int i = 0; i < repeats; i++) {
        if (rank == 0) MPI_Send(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(in, bytes, MPI_BYTE, !rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1) MPI_Send(out, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
    return (MPI_Wtime() - begin) / repeats / 2 * 1e6;
}

static double windows(int both) {
    MPI_Request requests[2 * kWindow];
    const double begin = MPI_Wtime();
    for (int i = 0; i < repeats; i++) {
        int count = 0;
        for (int k = 0; k < kWindow && (both || rank == 1); k++)
            MPI_Irecv(in, bytes, MPI_BYTE, !rank, 1, MPI_COMM_WORLD, &requests[count++]);
        for (int k = 0; k < kWindow && (both || rank == 0); k++)
            MPI_Isend(out, bytes, MPI_BYTE, !rank, 1, MPI_COMM_WORLD, &requests[count++]);
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        if (rank == 1)
            MPI_Send(out, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
        else
            MPI_Recv(in, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return (MPI_Wtime() - begin) / repeats / kWindow / (both ? 2 : 1);
}

/* Messages of one window are all there when rank 1 receives them: what is counted is the work, not the waiting. */
static void instructions(int counted) {
    for (int i = 0; i < repeats; i++) {
        const int now = i >= repeats / 2;
        for (int k = 0; k < kWindow && rank == 0; k++) {
            if (now && counted == 0) CALLGRIND_TOGGLE_COLLECT;
            MPI_Send(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            if (now && counted == 0) CALLGRIND_TOGGLE_COLLECT;
        }
        if (rank == 0) MPI_Send(out, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
        if (rank == 1) MPI_Probe(0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int k = 0; k < kWindow && rank == 1; k++) {
            if (now && counted == 1) CALLGRIND_TOGGLE_COLLECT;
            MPI_Recv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (now && counted == 1) CALLGRIND_TOGGLE_COLLECT;
        }
        if (rank == 1) MPI_Recv(in, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    /* A receive that was posted before: its posting, and the progress that finds the messages. */
    CALLGRIND_DUMP_STATS;
}

/* Windows as windows() has them, without the waiting: rank 1 looks when rank 0 has long sent them. */
static void instructions_of_windows(int counted) {
    MPI_Request requests[kWindow];
    for (int i = 0; i < repeats; i++) {
        const int now = i >= repeats / 2 && rank == counted;
        MPI_Barrier(MPI_COMM_WORLD);
        if (now) CALLGRIND_TOGGLE_COLLECT;
        for (int k = 0; k < kWindow && rank == 1; k++)
            MPI_Irecv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[k]);
        if (now && rank == 1) CALLGRIND_TOGGLE_COLLECT;
        usleep(rank == 1 ? 100000 : 30000);
        for (int k = 0; k < kWindow && rank == 0; k++)
            MPI_Isend(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[k]);
        if (now && rank == 1) CALLGRIND_TOGGLE_COLLECT;
        MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
        if (now) CALLGRIND_TOGGLE_COLLECT;
    }
    CALLGRIND_DUMP_STATS;
}

/* The last rank comes when all others wait for it alone: with two ranks, four, eight it finds every message there. */
static void instructions_of_collectives(const char* what) {
    int ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < repeats; i++) {
        const int now = i >= repeats / 2 && rank == ranks - 1;
        MPI_Barrier(MPI_COMM_WORLD);
        usleep(rank == ranks - 1 ? 100000 : 30000); /* nobody's messages come before it has left the barrier */
        if (now) CALLGRIND_TOGGLE_COLLECT;
        if (what[1] == 'a')
            MPI_Barrier(MPI_COMM_WORLD);
        else if (what[1] == 'c')
            MPI_Bcast(in, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
        else if (what[3] == 't')
            MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
        else
            MPI_Allreduce(out, in, bytes / 8, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        if (now) CALLGRIND_TOGGLE_COLLECT;
        if (rank != ranks - 1) usleep(150000); /* nor those of the next barrier before it has left the call */
        if (now) CALLGRIND_DUMP_STATS;         /* each call by itself: some have a timer, or an acknowledgment, too */
    }
}

static long resident(void) { /* KiB */
    long pages = 0, here = 0;
    FILE* const file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &pages, &here) != 2) here = 0;
    if (file != NULL) fclose(file);
    return here * (sysconf(_SC_PAGESIZE) / 1024);
}

/* A peer by itself, one after the other: rank 0's memory of all but the first, which has what there is once. */
static double memory(int ranks) {
    long before = 0;
    for (int peer = 1; peer < ranks; peer++) {
        if (rank == 0) MPI_Send(out, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
        if (rank == 0) MPI_Recv(in, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == peer) MPI_Recv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == peer) MPI_Send(out, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        if (peer == 1) before = resident();
    }
    return (double)(resident() - before) / (ranks - 2);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 3) MPI_Abort(MPI_COMM_WORLD, 2);
    const char* const what = argv[1];
    bytes = atoi(argv[2]);
    repeats = argc > 3 ? atoi(argv[3]) : 1000;
    int blocks = 1;
    if (!strcmp(what, "alltoall")) MPI_Comm_size(MPI_COMM_WORLD, &blocks);
    const size_t all = (size_t)bytes * (size_t)blocks;
    out = aligned_alloc(4096, (all + 4096) / 4096 * 4096);
    in = aligned_alloc(4096, (all + 4096) / 4096 * 4096);
    memset(out, 1, all);
    memset(in, 2, all);
    if (!strcmp(what, "memory") || !strcmp(what, "start")) {
        int ranks;
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
        const double value = what[0] == 'm' && ranks > 2 ? memory(ranks) : 0;
        if (rank == 0) printf("%s %d %.1f KiB\n", what, bytes, value);
        free(out), free(in);
        MPI_Finalize();
        return 0;
    }
    double best = 1e30;
    for (int round = 0; round <= kRounds; round++) { /* the first one connects */
        double value = 0;
        if (!strcmp(what, "isend") || !strcmp(what, "irecv")) {
            if (round == 0) instructions_of_windows(!strcmp(what, "irecv"));
            continue;
        }
        if (!strcmp(what, "barrier") || !strcmp(what, "bcast") || !strcmp(what, "allreduce") ||
            !strcmp(what, "alltoall")) {
            if (round == 0) instructions_of_collectives(what);
            continue;
        }
        if (!strcmp(what, "send") || !strcmp(what, "recv")) {
            if (round == 0) instructions(!strcmp(what, "recv"));
            continue;
        }
        MPI_Barrier(MPI_COMM_WORLD);
        value = !strcmp(what, "latency") ? latency() : windows(!strcmp(what, "both"));
        if (round > 0 && value < best) best = value;
    }
    if (rank == 0 && best < 1e30) {
        if (!strcmp(what, "latency"))
            printf("%s %d %.3f us\n", what, bytes, best);
        else if (!strcmp(what, "rate"))
            printf("%s %d %.0f messages/s\n", what, bytes, 1 / best);
        else
            printf("%s %d %.1f MB/s\n", what, bytes, bytes / best / 1e6);
    }
    free(out), free(in);
    MPI_Finalize();
    return 0;
}
