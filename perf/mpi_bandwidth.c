/* Windows of few messages, what a user measures first: mpi_bandwidth REPEATS WAYS SIZES WINDOWS, lists with commas.
 *
 * A window is 1 to 64 messages, started at once; the next begins when it has arrived. Ways:
 *   one, both   MPI_Isend and MPI_Irecv from rank 0 to rank 1 (an answer of a byte ends a window), or both ways
 *   put, get    of rank 0, with a flush behind each window; rank 1 only waits
 *   ring        any number of ranks: isends to both neighbours
 *   alltoall    MPI_Alltoall, `size` bytes for each; windows of one only
 *   hidden      one way, but rank 0 computes for 10 ms behind its isends, without a call
 * Prints a line for each row as it comes, "WAY SIZE WINDOW VALUE": MB/s (1e6 bytes) that a rank sends, the median of
 * REPEATS; of `hidden` the share of the messages' time that the computation hides. Windows that need more than 64 MiB
 * are left out. The last window of each row is compared with what was sent. */
#define USAGE "mpi_bandwidth REPEATS WAY,... SIZE,... WINDOW,..."
#include <string.h>

#include "mpi_usage.h"

enum { MAX_WINDOW = 64, MAX_REPEATS = 99, MAX_ROUNDS = 400, DATA = 1, DONE = 2 };
static const size_t MOST = (size_t)64 << 20;       /* bytes of a window, both directions of a ring together */
static const size_t PER_REPEAT = (size_t)24 << 20; /* bytes that one of the repeats moves, about */
static const double COMPUTATION = 0.01;            /* seconds */

static int rank, ranks;
static char *out, *in;
static MPI_Win win;

struct window {
    size_t size;
    int count;
};

static MPI_Request requests[4 * MAX_WINDOW];
static int started;

static void receive(size_t at, size_t size, int from) {
    MPI_Irecv(in + at, (int)size, MPI_BYTE, from, DATA, MPI_COMM_WORLD, &requests[started++]);
}

static void send(size_t at, size_t size, int to) {
    MPI_Isend(out + at, (int)size, MPI_BYTE, to, DATA, MPI_COMM_WORLD, &requests[started++]);
}

static void complete(void) {
    MPI_Waitall(started, requests, MPI_STATUSES_IGNORE);
    started = 0;
}

static void answer(void) {
    char token = 0;
    if (rank == 1)
        MPI_Send(&token, 1, MPI_BYTE, 0, DONE, MPI_COMM_WORLD);
    else
        MPI_Recv(&token, 1, MPI_BYTE, 1, DONE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void one(struct window w) {
    for (int k = 0; k < w.count; ++k)
        if (rank == 0)
            send((size_t)k * w.size, w.size, 1);
        else
            receive((size_t)k * w.size, w.size, 0);
    complete();
    answer();
}

static void both(struct window w) {
    for (int k = 0; k < w.count; ++k) receive((size_t)k * w.size, w.size, !rank);
    for (int k = 0; k < w.count; ++k) send((size_t)k * w.size, w.size, !rank);
    complete();
}

static void put(struct window w) {
    if (rank != 0) return;
    for (int k = 0; k < w.count; ++k)
        MPI_Put(out + (size_t)k * w.size, (int)w.size, MPI_BYTE, 1, (MPI_Aint)((size_t)k * w.size), (int)w.size,
                MPI_BYTE, win);
    MPI_Win_flush(1, win);
}

static void get(struct window w) {
    if (rank != 0) return;
    for (int k = 0; k < w.count; ++k)
        MPI_Get(in + (size_t)k * w.size, (int)w.size, MPI_BYTE, 1, (MPI_Aint)((size_t)k * w.size), (int)w.size,
                MPI_BYTE, win);
    MPI_Win_flush(1, win);
}

/* What goes to the right lies in the first half of the buffers, what goes to the left in the second. */
static void ring(struct window w) {
    const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
    const size_t half = (size_t)w.count * w.size;
    for (int k = 0; k < w.count; ++k) {
        receive((size_t)k * w.size, w.size, left);
        receive(half + (size_t)k * w.size, w.size, right);
    }
    for (int k = 0; k < w.count; ++k) {
        send((size_t)k * w.size, w.size, right);
        send(half + (size_t)k * w.size, w.size, left);
    }
    complete();
}

static void alltoall(struct window w) {
    MPI_Alltoall(out, (int)w.size, MPI_BYTE, in, (int)w.size, MPI_BYTE, MPI_COMM_WORLD);
}

static char pattern(int sender, size_t at) { return (char)(at * 7 + (at >> 12) + (size_t)sender * 31); }

static void expect(int sender, size_t at_sender, size_t at, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
        if (in[at + i] != pattern(sender, at_sender + i)) die("wrong data");
}

struct way {
    const char* name;
    void (*window)(struct window);
};
static const struct way ways[] = {{"one", one},   {"both", both},         {"put", put},   {"get", get},
                                  {"ring", ring}, {"alltoall", alltoall}, {"hidden", one}};

/* A last window into clean memory. What a get reads is the other's `in`, which a window exposes. */
static void verify(const struct way* way, struct window w) {
    const size_t bytes = (size_t)w.count * w.size, block = w.size;
    memset(in, 0, way->window == ring ? 2 * bytes : way->window == alltoall ? (size_t)ranks * block : bytes);
    if (way->window == get && rank == 1)
        for (size_t i = 0; i < bytes; ++i) in[i] = pattern(1, i);
    MPI_Barrier(MPI_COMM_WORLD);
    way->window(w);
    MPI_Barrier(MPI_COMM_WORLD);
    if (way->window == ring) {
        expect((rank + ranks - 1) % ranks, 0, 0, bytes);
        expect((rank + 1) % ranks, bytes, bytes, bytes);
    } else if (way->window == alltoall) {
        for (int i = 0; i < ranks; ++i) expect(i, (size_t)rank * block, (size_t)i * block, block);
    } else if (way->window == get) {
        if (rank == 0) expect(1, 0, 0, bytes);
    } else if (way->window == both || rank == 1) {
        expect(!rank, 0, 0, bytes);
    }
}

static void compute(void) {
    for (const double end = MPI_Wtime() + COMPUTATION; MPI_Wtime() < end;) {}
}

/* Seconds of one of `rounds` windows, by the slowest rank. */
static double timed(void (*window)(struct window), struct window w, int rounds) {
    for (int i = 0; i < 2; ++i) window(w);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < rounds; ++i) window(w);
    double mine = (window == put || window == get) && rank != 0 ? 0 : (MPI_Wtime() - begin) / rounds, longest;
    MPI_Allreduce(&mine, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return longest;
}

/* Rank 0's seconds from its isends until they are complete. */
static double sent(struct window w, int computing) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int k = 0; k < w.count; ++k)
        if (rank == 0)
            send((size_t)k * w.size, w.size, 1);
        else
            receive((size_t)k * w.size, w.size, 0);
    if (computing && rank == 0) compute();
    complete();
    double mine = MPI_Wtime() - begin;
    MPI_Bcast(&mine, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return mine;
}

static double hidden(struct window w) {
    (void)sent(w, 0);
    const double alone = sent(w, 0), beside = sent(w, 1) - COMPUTATION;
    return 1 - beside / alone;
}

static int by_value(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

static void measure(const struct way* way, struct window w, int repeats) {
    const size_t bytes = (size_t)w.count * w.size;
    double values[MAX_REPEATS];
    const int is_hidden = strcmp(way->name, "hidden") == 0;
    int rounds = (int)(PER_REPEAT / bytes) + 2;
    if (rounds > MAX_ROUNDS) rounds = MAX_ROUNDS;
    for (int i = 0; i < repeats; ++i)
        values[i] = is_hidden ? hidden(w) : (double)bytes / timed(way->window, w, rounds) / 1e6;
    verify(way, w);
    qsort(values, (size_t)repeats, sizeof *values, by_value);
    if (rank == 0) {
        printf("%s %zu %d %.4g\n", way->name, w.size, w.count, values[repeats / 2]);
        fflush(stdout);
    }
}

static const struct way* find(const char* name) {
    for (size_t i = 0; i < sizeof ways / sizeof *ways; ++i)
        if (strcmp(name, ways[i].name) == 0) return &ways[i];
    misuse("a way is none of one, both, put, get, ring, alltoall, hidden");
    return NULL;
}

static int numbers(char* text, long most, long* into, int room) {
    int n = 0;
    for (char* word = strtok(text, ","); word; word = strtok(NULL, ",")) {
        if (n == room) misuse("a list is too long");
        into[n++] = number(word, most);
    }
    return n;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 5) misuse("four arguments are needed");
    if (ranks < 2) misuse("at least two ranks are needed");
    long sizes[32], windows[32];
    const int repeats = (int)number(argv[1], MAX_REPEATS);
    const int n_sizes = numbers(argv[3], (long)(MOST / 2), sizes, 32),
              n_windows = numbers(argv[4], MAX_WINDOW, windows, 32);
    out = malloc(MOST);
    in = malloc(MOST);
    if (!out || !in) die("no memory");
    for (size_t i = 0; i < MOST; ++i) out[i] = pattern(rank, i);
    memset(in, 0, MOST);
    MPI_Win_create(in, (MPI_Aint)MOST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_lock_all(0, win);
    const struct way* wanted[8];
    int n_ways = 0;
    for (char* name = strtok(argv[2], ","); name; name = strtok(NULL, ",")) {
        if (n_ways == 8) misuse("a list is too long");
        wanted[n_ways++] = find(name);
    }
    for (int i = 0; i < n_ways; ++i) {
        const int all = wanted[i]->window == ring || wanted[i]->window == alltoall;
        if (!all && ranks != 2) misuse("only ring and alltoall are for more than two ranks");
        for (int s = 0; s < n_sizes; ++s)
            for (int k = 0; k < n_windows; ++k) {
                const struct window w = {(size_t)sizes[s], (int)windows[k]};
                const size_t times = wanted[i]->window == ring ? 2 : wanted[i]->window == alltoall ? (size_t)ranks : 1;
                if ((size_t)w.count * w.size * times > MOST || (wanted[i]->window == alltoall && w.count > 1)) continue;
                measure(wanted[i], w, repeats);
            }
    }
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    MPI_Finalize();
    return 0;
}
