/* What MPI's matching costs beside other receives and messages: match_pair KIND COUNT [REPEATS]
 *
 * Two ranks play ping-pong with 8 bytes while each has COUNT others: receives that wait ("posted", "posted_any": from
 * any source), or messages that nobody has received ("unexpected", "unexpected_any": the ping-pong's receives are from
 * any source). All have tags of their own. Prints one line: KIND COUNT VALUE us, half a ping-pong; the best of five
 * rounds. Then all others end, and their contents are looked at.
 */
#define USAGE "match_pair posted|posted_any|unexpected|unexpected_any COUNT [REPEATS]"
#include <string.h>

#include "mpi_usage.h"

enum { kRounds = 5, kTag = 1, kFirst = 1000 };
static int rank, count, repeats;
static long* values;
static MPI_Request* requests;

static void send_all(void) {
    for (int i = 0; i < count; i++) {
        const long value = 3L * i + rank;
        MPI_Send(&value, 1, MPI_LONG, !rank, kFirst + i, MPI_COMM_WORLD);
    }
}

static void verify(void) {
    for (int i = 0; i < count; i++)
        if (values[i] != 3L * i + !rank) {
            fprintf(stderr, "match_pair: rank %d: message %d is %ld\n", rank, i, values[i]);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

static double ping_pong(int source) {
    long value = 1;
    const double begin = MPI_Wtime();
    for (int i = 0; i < repeats; i++) {
        if (rank == 0) MPI_Send(&value, 1, MPI_LONG, 1, kTag, MPI_COMM_WORLD);
        MPI_Recv(&value, 1, MPI_LONG, source, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1) MPI_Send(&value, 1, MPI_LONG, 0, kTag, MPI_COMM_WORLD);
    }
    return (MPI_Wtime() - begin) / repeats / 2 * 1e6;
}

int main(int argc, char** argv) {
    int ranks, any = 0, posted = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) misuse("two ranks are needed");
    if (argc < 3 || argc > 4) misuse("a kind and a count are needed");
    any = strstr(argv[1], "_any") != NULL;
    posted = strncmp(argv[1], "posted", 6) == 0;
    if (strcmp(argv[1], posted ? any ? "posted_any" : "posted" : any ? "unexpected_any" : "unexpected") != 0)
        misuse("no such kind");
    count = (int)number(argv[2], 1 << 20);
    repeats = argc > 3 ? (int)number(argv[3], 1 << 30) : 2000;
    values = calloc((size_t)count, sizeof *values);
    requests = calloc((size_t)count, sizeof *requests);
    if (values == NULL || requests == NULL) die("no memory");
    for (int i = 0; i < count && posted; i++)
        MPI_Irecv(&values[i], 1, MPI_LONG, any ? MPI_ANY_SOURCE : !rank, kFirst + i, MPI_COMM_WORLD, &requests[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!posted) {
        send_all();
        MPI_Barrier(MPI_COMM_WORLD); /* behind what was sent: all of it is here, and nobody has wanted it */
    }
    double best = 1e30;
    for (int round = 0; round <= kRounds; round++) { /* the first one warms up */
        MPI_Barrier(MPI_COMM_WORLD);
        const double value = ping_pong(any && !posted ? MPI_ANY_SOURCE : !rank);
        if (round > 0 && value < best) best = value;
    }
    if (posted) {
        send_all();
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    } else {
        for (int i = 0; i < count; i++)
            MPI_Recv(&values[i], 1, MPI_LONG, !rank, kFirst + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    verify();
    if (rank == 0) printf("%s %d %.3f us\n", argv[1], count, best);
    free(requests), free(values);
    MPI_Finalize();
    return 0;
}
