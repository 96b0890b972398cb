/* What goes on while the program computes: while_computing [SECONDS [sends]]
 *
 * Two ranks. One starts something and then computes: it makes no call of MPI until the other one says, in memory that
 * both have, that it has got what it waits for. Without somebody who makes progress for the computing rank that never
 * happens, and after SECONDS (30) the program fails. No time is measured.
 *
 * `sends`: instead, for so many seconds rank 0 sends small messages, which are complete at once, and computes until
 * they have come. Links are pulled meanwhile: what is lost has to go again without its sender's call.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checked.h"

static atomic_int* said; /* number of the step that the other rank is through with */
static double patience = 30;
static int step;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void say(void) { atomic_store(said, step); }

static void compute(const char* what) {
    volatile double x = 1;
    for (const double until = now() + patience; atomic_load(said) != step;) {
        for (int i = 0; i < 1000; i++) x = x * 1.0000001 + 1e-9;
        if (now() > until) fail("%s: nothing has gone on for %.0f s while a rank computed", what, patience);
    }
}

/* The steps begin with both at the same place. */
static void begin(void) {
    step++;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void map_memory(void) {
    char name[64];
    int id = (int)getpid();
    MPI_Bcast(&id, 1, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(name, sizeof name, "/ucx-mp-while-computing-%d", id);
    const int file = shm_open(name, O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, sizeof *said) != 0) fail("no shared memory");
    said = mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (said == MAP_FAILED) fail("no shared memory");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) shm_unlink(name);
}

/* The receiver computes: it has to read, or to ask for the data, when the offer comes. */
static void received(size_t bytes, int blocks, const char* what) {
    unsigned char* data = allocate(2 * bytes);
    MPI_Datatype type = MPI_BYTE;
    if (blocks) {
        MPI_Type_vector(blocks, (int)bytes / blocks, 2 * (int)bytes / blocks, MPI_BYTE, &type);
        MPI_Type_commit(&type);
    }
    const int count = blocks ? 1 : (int)bytes;
    MPI_Request request;
    if (rank == 1) {
        MPI_Irecv(data, count, type, 0, step, MPI_COMM_WORLD, &request);
        if (blocks) MPI_Type_free(&type); /* the request keeps it */
        begin();
        compute(what);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        unsigned char* packed = allocate(bytes);
        for (size_t i = 0; i < bytes; i++) {
            const size_t block = blocks ? bytes / (size_t)blocks : bytes;
            packed[i] = data[i / block * 2 * block + i % block];
        }
        verify(packed, bytes, 0, 1, step - 1, what);
        free(packed);
    } else {
        fill(data, bytes, 0, 1, step);
        begin();
        MPI_Ssend(data, (int)bytes, MPI_BYTE, 1, step - 1, MPI_COMM_WORLD);
        say();
        if (blocks) MPI_Type_free(&type);
    }
    free(data);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The sender computes: it has to pack what the receiver asks for. Its request is freed at once. */
static void sent(size_t bytes) {
    unsigned char* data = allocate(2 * bytes);
    if (rank == 0) {
        MPI_Datatype type;
        MPI_Request request;
        const size_t block = 64;
        unsigned char* packed = allocate(bytes);
        fill(packed, bytes, 0, 1, step);
        for (size_t i = 0; i < bytes; i++) data[i / block * 2 * block + i % block] = packed[i];
        free(packed);
        MPI_Type_vector((int)(bytes / block), (int)block, 2 * (int)block, MPI_BYTE, &type);
        MPI_Type_commit(&type);
        begin();
        MPI_Isend(data, 1, type, 1, step - 1, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
        MPI_Type_free(&type);
        compute("a send of separate blocks");
    } else {
        begin();
        MPI_Recv(data, (int)bytes, MPI_BYTE, 0, step - 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        verify(data, bytes, 0, 1, step - 1, "a send of separate blocks");
        say();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    free(data);
}

/* The target computes: it executes what others ask of its window. */
static void windows(void) {
    enum { CELLS = 1000, TIMES = 200 };
    long* cells;
    MPI_Win win;
    MPI_Win_allocate((CELLS + 1) * (MPI_Aint)sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &cells, &win);
    memset(cells, 0, (CELLS + 1) * sizeof(long));
    begin();
    if (rank == 0) {
        long one = 1, before = 0, sum = 0, ones[CELLS];
        for (int i = 0; i < CELLS; i++) ones[i] = i;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
        for (int i = 0; i < TIMES; i++) {
            MPI_Fetch_and_op(&one, &before, MPI_LONG, 1, 0, MPI_SUM, win);
            MPI_Win_flush(1, win);
            sum += before;
        }
        /* Puts whose completions come while this rank computes, and flushes that meet the thread. */
        for (int i = 0; i < 20; i++) {
            MPI_Put(&one, 1, MPI_LONG, 1, CELLS, 1, MPI_LONG, win);
            for (const double until = now() + 0.003; now() < until;) {}
            MPI_Win_flush(1, win);
        }
        MPI_Accumulate(ones, CELLS - 1, MPI_LONG, 1, 1, CELLS - 1, MPI_LONG, MPI_SUM, win);
        MPI_Win_unlock(1, win);
        if (sum != TIMES * (TIMES - 1) / 2) fail("fetched sums are %ld", sum);
        say();
    } else {
        compute("a window's operations");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
        for (int i = 0; i < CELLS; i++)
            if (cells[i] != (i ? i - 1 : TIMES)) fail("cell %d of a window has %ld", i, cells[i]);
        MPI_Win_unlock(1, win);
    }
    MPI_Win_free(&win);
}

/* A child has no progress thread, and none of what it may have held. */
static void forks(void) {
    for (int i = 0; i < 50; i++) {
        MPI_Request request;
        unsigned char* data = allocate(200000);
        if (rank == 1) MPI_Irecv(data, 200000, MPI_BYTE, 0, step, MPI_COMM_WORLD, &request);
        begin();
        if (rank == 0) {
            MPI_Send(data, 200000, MPI_BYTE, 1, step - 1, MPI_COMM_WORLD);
        } else {
            const pid_t child = fork();
            if (child == 0) {
                for (int k = 0; k < 20; k++) free(allocate(1 << 20)); /* large: memory comes and goes */
                if (i % 2) _exit(0);
                exit(0); /* through what libraries have asked for */
            }
            int status = 1;
            if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
                fail("a child has ended with %d", status);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        free(data);
    }
}

static void sends(double seconds) {
    unsigned char data[3000];
    int more = 1;
    for (const double until = now() + seconds; more;) {
        more = now() < until;
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
        begin();
        for (int i = 0; i < 8; i++) {
            const size_t bytes = i % 2 ? 100 : sizeof data;
            if (rank == 0) {
                fill(data, bytes, 0, 1, step * 8 + i);
                MPI_Send(data, (int)bytes, MPI_BYTE, 1, i, MPI_COMM_WORLD);
            } else {
                MPI_Recv(data, (int)bytes, MPI_BYTE, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                verify(data, bytes, 0, 1, step * 8 + i, "a small message");
            }
        }
        if (rank == 0)
            compute("small messages");
        else
            say();
    }
}

int main(int count, char** arguments) {
    program = "while_computing";
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) fail("two ranks are needed");
    map_memory();
    if (count > 2 && strcmp(arguments[2], "sends") == 0) {
        sends(atof(arguments[1]));
    } else {
        if (count > 1) patience = atof(arguments[1]);
        for (int i = 0; i < 3; i++) {
            received(4 << 20, 0, "a large receive");
            received(1 << 20, 1024, "a receive into separate blocks");
            received(100, 0, "a small synchronous message");
            sent(1 << 20);
            windows();
        }
        forks();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("while_computing: %d steps ok\n", step);
    MPI_Finalize();
    return 0;
}
