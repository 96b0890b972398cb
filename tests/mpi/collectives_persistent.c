/* Persistent collective operations, MPI-4.0's 6.12 and 3.9, of Open MPI 4.1 (MPIX_...) and 5.0:
 * collectives_persistent [ours]
 *
 * ours: types and communicators are freed, and lists overwritten, as soon as requests are made that coll/mp takes. Open
 * MPI 4.1.4's own ones crash then, when they are started.
 *
 * Each rule is a function; all ranks go through all of them. Prints "persistent: N ranks ok, R rules, C checks" and
 * returns 0, or names the rule and aborts.
 */
#include <mpi.h>
#include <stdint.h>
#include <sys/mman.h>
#if OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#define INIT(NAME) MPIX_##NAME##_init
#else
#define INIT(NAME) MPI_##NAME##_init
#endif

#include "checked.h"

static const char* rule;
static long checks;
#define RULE rule
#define CHECKS checks
#include "rules.h"

enum { kKinds = 9, kStarts = 5 };
static const char* const kNames[kKinds] = {"barrier", "bcast",   "allgather", "allreduce", "reduce",
                                           "gather",  "scatter", "alltoall",  "alltoallv"};
/* Of integers for each rank: what goes by plans, all-to-alls that are asked for, and what is handed on. */
static const int kCounts[] = {1, 30, 400, 3000, 40000};
enum { kCountCount = sizeof kCounts / sizeof *kCounts };

/* One request, with memory for all ranks on both sides. Elements are `stride` integers apart. */
typedef struct persistent {
    MPI_Request request;
    int kind, count, root, stride, all;
    int *out, *in, *lists;
    MPI_Datatype type;
} persistent_t;

static int ours;

static int element(int from, int to, int number, int i) { return (int)(word(from, to, number, (size_t)i) & 0xffffff); }

static int pair_count(const persistent_t* its, int from, int to) {
    return its->kind < 8 ? its->count : its->count * ((from + 2 * to) % 3);
}

/* Elements are a type of one integer and a gap. */
static void make(persistent_t* its, MPI_Comm comm, int kind, int count, int root, int stride) {
    MPI_Datatype type;
    MPI_Type_create_resized(MPI_INT, 0, (MPI_Aint)stride * (MPI_Aint)sizeof(int), &type);
    MPI_Type_commit(&type);
    const int each = kind < 8 ? count : 2 * count;
    *its = (persistent_t){.kind = kind, .count = count, .root = root, .stride = stride, .all = each * ranks};
    const size_t bytes = (size_t)its->all * (size_t)stride * sizeof(int);
    its->out = allocate(bytes), its->in = allocate(bytes);
    MPI_Info info = MPI_INFO_NULL;
    int *const lists = allocate((size_t)ranks * 4 * sizeof(int)), *const counts[] = {lists, lists + 2 * ranks};
    for (int sends = 0; sends < 2; sends++)
        for (int i = 0; i < ranks; i++) {
            counts[sends][i] = sends ? pair_count(its, rank, i) : pair_count(its, i, rank);
            counts[sends][ranks + i] = i * each;
        }
    switch (kind) {
    case 0:
        INIT(Barrier)(comm, info, &its->request);
        break;
    case 1:
        INIT(Bcast)(rank == root ? its->out : its->in, count, type, root, comm, info, &its->request);
        break;
    case 2:
        INIT(Allgather)(its->out, count, type, its->in, count, type, comm, info, &its->request);
        break;
    case 3:
        INIT(Allreduce)(its->out, its->in, count, MPI_INT, MPI_SUM, comm, info, &its->request);
        break;
    case 4:
        INIT(Reduce)(its->out, its->in, count, MPI_INT, MPI_MAX, root, comm, info, &its->request);
        break;
    case 5:
        INIT(Gather)(its->out, count, type, its->in, count, type, root, comm, info, &its->request);
        break;
    case 6:
        INIT(Scatter)(its->out, count, type, its->in, count, type, root, comm, info, &its->request);
        break;
    case 7:
        INIT(Alltoall)(its->out, count, type, its->in, count, type, comm, info, &its->request);
        break;
    case 8:
        INIT(Alltoallv)
        (its->out, counts[1], counts[1] + ranks, type, its->in, counts[0], counts[0] + ranks, type, comm, info,
         &its->request);
        break;
    }
    its->lists = lists;
    its->type = type;
    if (!ours || (kind < 7 && count > 40)) return;
    MPI_Type_free(&its->type);
    memset(lists, 0xa5, (size_t)ranks * 4 * sizeof(int));
}

static void drop(persistent_t* its) {
    if (its->request != MPI_REQUEST_NULL) MPI_Request_free(&its->request);
    check(its->request == MPI_REQUEST_NULL, "a request that is freed is null");
    if (its->type != MPI_DATATYPE_NULL) MPI_Type_free(&its->type);
    free(its->out), free(its->in), free(its->lists);
}

/* New contents; what is there from the last time is gone. Reductions know no gaps. */
static void give(persistent_t* its, int number) {
    const int stride = its->kind == 3 || its->kind == 4 ? 1 : its->stride, blocks = its->all / ranks;
    for (int i = 0; i < its->all; i++) {
        its->out[i * stride] = element(rank, i / blocks, number, i % blocks);
        its->in[i * stride] = -1;
    }
}

static int expected(const persistent_t* its, int number, int i) {
    int sum = 0, most = 0;
    const int blocks = its->all / ranks;
    switch (its->kind) {
    case 1:
        return element(its->root, 0, number, i);
    case 2:
    case 5:
        return element(i / blocks, 0, number, i % blocks);
    case 3:
    case 4:
        for (int from = 0; from < ranks; from++) {
            const int one = element(from, 0, number, i);
            sum += one;
            most = one > most ? one : most;
        }
        return its->kind == 3 ? sum : most;
    case 6:
        return element(its->root, rank, number, i);
    default:
        return i % blocks < pair_count(its, i / blocks, rank) ? element(i / blocks, rank, number, i % blocks) : -1;
    }
}

static void look(const persistent_t* its, int number) {
    const int is_root = rank == its->root, kind = its->kind;
    if (kind == 0 || ((kind == 4 || kind == 5) && !is_root) || (kind == 1 && is_root)) return;
    const int stride = kind == 3 || kind == 4 ? 1 : its->stride;
    const int elements = kind == 2 || kind == 5 || kind >= 7 ? its->all : its->count;
    for (int i = 0; i < elements; i++)
        if (its->in[i * stride] != expected(its, number, i))
            fail("%s: %s of %d, start %d, element %d is %d, not %d", rule, kNames[kind], its->count, number, i,
                 its->in[i * stride], expected(its, number, i));
    checks++;
}

/* 6.12: each operation, each size, elements with gaps and without: started again and again with new contents */
static void again(void) {
    for (int kind = 0; kind < kKinds; kind++)
        for (int size = 0; size < kCountCount; size++) {
            persistent_t its;
            make(&its, MPI_COMM_WORLD, kind, kCounts[size], (kind + size) % ranks, 1 + size % 2);
            for (int i = 0; i < kStarts; i++) {
                give(&its, i);
                MPI_Start(&its.request);
                int over = i % 2;
                if (over) MPI_Wait(&its.request, MPI_STATUS_IGNORE);
                while (!over) MPI_Test(&its.request, &over, MPI_STATUS_IGNORE);
                check(its.request != MPI_REQUEST_NULL, "a request that is over is inactive, not null");
                look(&its, i);
            }
            drop(&its);
        }
}

/* 3.7.3: who waits for a request that is inactive is back at once, with an empty status; so with one never started */
static void inactive(void) {
    persistent_t its[2];
    for (int i = 0; i < 2; i++) make(&its[i], MPI_COMM_WORLD, i ? 7 : 0, 500, 0, 1);
    for (int round = 0; round < 3; round++) {
        MPI_Request requests[] = {its[0].request, its[1].request};
        MPI_Status status;
        int flag = 0, count = -1, index = 0;
        status.MPI_SOURCE = status.MPI_TAG = 7;
        MPI_Wait(&its[0].request, &status);
        MPI_Get_count(&status, MPI_INT, &count);
        check(status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG && count == 0, "the empty status");
        MPI_Test(&its[1].request, &flag, MPI_STATUS_IGNORE);
        check(flag, "MPI_Test of an inactive request");
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        MPI_Waitany(2, requests, &index, &status);
        check(index == MPI_UNDEFINED, "MPI_Waitany without an active request");
        for (int i = 0; i < 2; i++) give(&its[i], round), MPI_Start(&its[i].request);
        for (int left = 2; left > 0; left--) {
            MPI_Waitany(2, requests, &index, &status);
            check(index == 0 || index == 1, "MPI_Waitany with active ones");
        }
        look(&its[1], round);
    }
    for (int i = 0; i < 2; i++) drop(&its[i]);
}

/* 3.9, 6.12: ranks start the same requests in orders of their own; other collective operations go on between */
static void any_order(void) {
    enum { kRequests = 2 * kKinds };
    persistent_t its[kRequests];
    for (int i = 0; i < kRequests; i++)
        make(&its[i], MPI_COMM_WORLD, i % kKinds, kCounts[1 + i % 3], i % ranks, 1 + i % 2);
    for (int round = 0; round < 8; round++) {
        MPI_Request requests[kRequests];
        int from[kRequests], sum = 0, one = 1;
        for (int i = 0; i < kRequests; i++) from[i] = (i * 5 + rank * 7 + round) % kRequests;
        for (int i = 0; i < kRequests; i++) requests[i] = its[from[i]].request, give(&its[from[i]], round);
        if (round % 2)
            MPI_Startall(kRequests, requests);
        else
            for (int i = 0; i < kRequests; i++) {
                MPI_Start(&requests[i]);
                /* One that blocks, at different places. */
                if (i == rank) MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            }
        check(round % 2 || sum == ranks, "an allreduce among them");
        if (round % 3) {
            MPI_Waitall(kRequests, requests, MPI_STATUSES_IGNORE);
        } else {
            for (int i = kRequests - 1; i >= 0; i--) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        }
        for (int i = 0; i < kRequests; i++) look(&its[i], round);
    }
    for (int i = 0; i < kRequests; i++) drop(&its[(i + rank) % kRequests]);
}

/* 6.4.3: a communicator that is freed goes on to be, for its requests; more of both than may be under way */
static void of_freed_communicators(void) {
    enum { kRequests = 6 };
    for (int round = 0; round < 10; round++) {
        MPI_Comm comm;
        persistent_t its[kRequests];
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        for (int i = 0; i < kRequests; i++) make(&its[i], comm, 1 + (i + round) % 8, 40, 0, 1);
        if (ours) MPI_Comm_free(&comm);
        for (int start = 0; start < 12; start++)
            for (int i = 0; i < kRequests; i++) {
                give(&its[i], start);
                MPI_Start(&its[i].request);
                MPI_Wait(&its[i].request, MPI_STATUS_IGNORE);
                look(&its[i], start);
            }
        for (int i = 0; i < kRequests; i++) drop(&its[i]);
        if (!ours) MPI_Comm_free(&comm);
    }
}

/* Bcasts hold nobody together: the root starts and waits many times while another rank has not begun */
static void ahead(void) {
    persistent_t its;
    make(&its, MPI_COMM_WORLD, 1, 30, 0, 1);
    for (int i = 0; i < 100; i++) {
        give(&its, i);
        MPI_Start(&its.request);
        MPI_Wait(&its.request, MPI_STATUS_IGNORE);
        look(&its, i);
        if (rank == ranks - 1 && i == 3)
            for (const double until = MPI_Wtime() + 0.01; MPI_Wtime() < until;) {}
    }
    drop(&its);
}

static int* map(int* at, size_t bytes) {
    void* const memory =
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
    check(memory != MAP_FAILED && (!at || memory == at), "mmap");
    return memory;
}

/* Buffers are other pages at each start, at the same addresses: whoever remembers what it has registered has to see
 * that. */
static void mapped_anew(void) {
    const int count = kCounts[kCountCount - 1];
    const size_t bytes = (size_t)ranks * (size_t)count * sizeof(int);
    int *const out = map(NULL, bytes), *const in = map(NULL, bytes);
    MPI_Request request;
    INIT(Alltoall)(out, count, MPI_INT, in, count, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int number = 0; number < 12; number++) {
        if (number % 4 != 3) { /* and sometimes they stay */
            munmap(out, bytes), munmap(in, bytes);
            map(out, bytes), map(in, bytes);
        }
        for (int i = 0; i < ranks * count; i++) out[i] = element(rank, i / count, number, i % count);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < ranks * count; i++)
            if (in[i] != element(i / count, rank, number, i % count))
                fail("%s: start %d, element %d is %d, not %d", rule, number, i, in[i],
                     element(i / count, rank, number, i % count));
        checks++;
    }
    MPI_Request_free(&request);
    munmap(out, bytes), munmap(in, bytes);
}

/* More requests of one communicator than coll/mp numbers: later ones are Open MPI's. */
static void many(void) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < 4100; i++) {
        MPI_Request request;
        INIT(Barrier)(comm, MPI_INFO_NULL, &request);
        if (i % 500 == 0 || i > 4090) {
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        MPI_Request_free(&request);
    }
    MPI_Comm_free(&comm);
    checks++;
}

int main(int argc, char** argv) {
    program = "persistent";
    ours = argc > 1 && strcmp(argv[1], "ours") == 0;
    int level = MPI_THREAD_SINGLE;
    const char* const threads = getenv("OMPI_MPI_THREAD_LEVEL");
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    static const struct {
        const char* name;
        void (*check)(void);
    } rules[] = {{"6.12 started again", again},
                 {"3.7.3 inactive", inactive},
                 {"3.9 any order", any_order},
                 {"6.4.3 freed communicators", of_freed_communicators},
                 {"6.12 ahead", ahead},
                 {"mapped anew", mapped_anew},
                 {"many", many}};
    enum { kRules = sizeof rules / sizeof *rules };
    for (int i = 0; i < kRules; i++) {
        rule = rules[i].name;
        if (getenv("LOUD")) fprintf(stderr, "%d: %s\n", rank, rule);
        rules[i].check();
    }
    if (rank == 0) printf("persistent: %d ranks ok, %d rules, %ld checks\n", ranks, kRules, checks);
    MPI_Finalize();
    return 0;
}
