/* MPI-3.1, chapter 5: the collective operations that coll/mp has, rule by rule: collectives
 *
 * Each rule is a function with the section that it checks; all ranks go through all of them. Sizes go from nothing over
 * what coll/mp takes to what it hands on. Prints "collectives: N ranks ok, R rules, C checks" and returns 0, or names
 * the rule and aborts.
 */
#include <time.h>

#include "collectives.h"

const char* rule;
long checks;
static int rules;

static layout_t layouts[kLayouts];

static void make_layouts(void) {
    layouts[0] = (layout_t){MPI_INT, 1, 0};
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &layouts[1].type);
    layouts[1].stride = 2;
    layouts[1].at = 0;
    const int blocks[] = {1};
    const MPI_Aint places[] = {2 * sizeof(int)};
    MPI_Datatype inner, types[] = {MPI_INT};
    MPI_Type_create_struct(1, blocks, places, types, &inner);
    MPI_Type_create_resized(inner, 0, 4 * sizeof(int), &layouts[2].type);
    MPI_Type_free(&inner);
    layouts[2].stride = 4;
    layouts[2].at = 2;
    MPI_Type_commit(&layouts[1].type);
    MPI_Type_commit(&layouts[2].type);
}

int* spread(const layout_t* layout, int count) {
    int* memory = allocate((size_t)(count * layout->stride + 4) * sizeof(int));
    for (int i = 0; i < count * layout->stride + 4; i++) memory[i] = kUntouched;
    return memory;
}
int* at(int* memory, const layout_t* layout, int i) { return &memory[i * layout->stride + layout->at]; }
void untouched_between(const int* memory, const layout_t* layout, int count, const char* what) {
    for (int i = 0; i < count * layout->stride + 4; i++)
        if (i >= count * layout->stride || i % layout->stride != layout->at)
            if (memory[i] != kUntouched) fail("%s: %s: something between the elements was written", rule, what);
    checks++;
}
const layout_t* its_layout(int which, int its_rank) { return &layouts[(which + its_rank) % kLayouts]; }

static double now(void) { /* the same clock for all ranks */
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* 5.3: nobody leaves before all have come */
static void barriers(void) {
    for (int late = 0; late < ranks; late++) {
        if (rank == late)
            for (const double until = now() + 0.002; now() < until;) {}
        const double come = now();
        MPI_Barrier(MPI_COMM_WORLD);
        const double left = now();
        double last;
        MPI_Allreduce(&come, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        check(left >= last, "a rank has left before the last one had come");
    }
    for (int i = 0; i < 100; i++) MPI_Barrier(MPI_COMM_WORLD);
}

/* 5.4: each root, sizes, and layouts that differ by rank */
static void broadcasts(void) {
    for (int root = 0; root < ranks; root++)
        for (int i = 0; i < kCountCount; i++)
            for (int which = 0; which < kLayouts; which++) {
                const int count = kCounts[i];
                const layout_t* layout = its_layout(which, rank);
                int* memory = spread(layout, count);
                for (int k = 0; k < count && rank == root; k++) *at(memory, layout, k) = element(root, which, i, k);
                MPI_Bcast(memory, count, layout->type, root, MPI_COMM_WORLD);
                for (int k = 0; k < count; k++)
                    if (*at(memory, layout, k) != element(root, which, i, k))
                        fail("%s: element %d of %d", rule, k, count);
                untouched_between(memory, layout, count, "bcast");
                free(memory);
            }
}

/* 5.4: a root goes on: many in a row, with roots that change, and nothing that holds the ranks together */
static void broadcasts_in_a_row(void) {
    for (int i = 0; i < 300; i++) {
        const int root = i < 150 ? 0 : i % ranks;
        int value = rank == root ? element(root, 0, i, 0) : 0;
        MPI_Bcast(&value, 1, MPI_INT, root, MPI_COMM_WORLD);
        check(value == element(root, 0, i, 0), "a bcast has overtaken another one");
        if (rank == ranks - 1 && i % 50 == 0)
            for (const double until = now() + 0.002; now() < until;) {}
    }
}

/* 5.5, 5.7: gather and allgather: roots, sizes, layouts of both sides, in place */
static void gathers(void) {
    for (int root = -1; root < ranks; root++) /* -1: allgather */
        for (int i = 0; i < kCountCount - 1; i++)
            for (int which = 0; which < 2 * kLayouts; which++) {
                const int count = kCounts[i], in_place = which >= kLayouts && (root < 0 || rank == root);
                const layout_t *from = its_layout(which, rank), *to = its_layout(which, rank + 1);
                const int gets = root < 0 || rank == root;
                int* out = spread(from, count);
                int* in = gets ? spread(to, ranks * count) : NULL;
                for (int k = 0; k < count; k++)
                    *(in_place ? at(in, to, rank * count + k) : at(out, from, k)) = element(rank, root, i, k);
                const void* sent = in_place ? MPI_IN_PLACE : out;
                if (root < 0)
                    MPI_Allgather(sent, count, from->type, in, count, to->type, MPI_COMM_WORLD);
                else
                    MPI_Gather(sent, count, from->type, in, count, to->type, root, MPI_COMM_WORLD);
                for (int source = 0; source < ranks && gets; source++)
                    for (int k = 0; k < count; k++)
                        if (*at(in, to, source * count + k) != element(source, root, i, k))
                            fail("%s: root %d, element %d of %d from %d", rule, root, k, count, source);
                untouched_between(out, from, count, "what is sent");
                if (gets) untouched_between(in, to, ranks * count, "gather");
                free(out), free(in);
            }
}

/* 5.6: scatter likewise; in place the root's own part stays where it is */
static void scatters(void) {
    for (int root = 0; root < ranks; root++)
        for (int i = 0; i < kCountCount - 1; i++)
            for (int which = 0; which < 2 * kLayouts; which++) {
                const int count = kCounts[i], is_root = rank == root, in_place = which >= kLayouts && is_root;
                const layout_t *from = its_layout(which, rank), *to = its_layout(which, rank + 1);
                int* out = is_root ? spread(from, ranks * count) : NULL;
                int* in = spread(to, count);
                for (int target = 0; target < ranks && is_root; target++)
                    for (int k = 0; k < count; k++) *at(out, from, target * count + k) = element(root, target, i, k);
                MPI_Scatter(out, count, from->type, in_place ? MPI_IN_PLACE : (void*)in, count, to->type, root,
                            MPI_COMM_WORLD);
                for (int k = 0; k < count; k++) {
                    if (!in_place && *at(in, to, k) != element(root, rank, i, k))
                        fail("%s: element %d of %d", rule, k, count);
                    if (in_place && *at(in, to, k) != kUntouched) fail("%s: in place, and written", rule);
                }
                untouched_between(in, to, count, "scatter");
                if (is_root) untouched_between(out, from, ranks * count, "what is sent");
                free(out), free(in);
            }
}

/* 5.1: parts of no bytes: types of no size, and counts of 0 */
static void nothing(void) {
    MPI_Datatype empty;
    MPI_Type_contiguous(0, MPI_INT, &empty);
    MPI_Type_commit(&empty);
    int guard = kUntouched;
    for (int i = 0; i < 20; i++) {
        MPI_Bcast(&guard, 3, empty, i % ranks, MPI_COMM_WORLD);
        MPI_Gather(&guard, 0, MPI_INT, &guard, 0, MPI_INT, i % ranks, MPI_COMM_WORLD);
        MPI_Allgather(&guard, 2, empty, &guard, 2, empty, MPI_COMM_WORLD);
        MPI_Scatter(&guard, 0, MPI_INT, &guard, 0, MPI_INT, i % ranks, MPI_COMM_WORLD);
        MPI_Allreduce(MPI_IN_PLACE, &guard, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Reduce(rank == 0 ? MPI_IN_PLACE : &guard, &guard, 0, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    }
    check(guard == kUntouched, "nothing has written something");
    MPI_Type_free(&empty);
}

/* 5.1, 5.13: operations of several communicators, messages with any tags, and communicators that come and go. */
static void communicators(void) {
    MPI_Comm half, back, again;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, ranks - rank, &half);
    MPI_Comm_split(MPI_COMM_WORLD, 0, ranks - rank, &back); /* ranks the other way round */
    int in_half, halves;
    MPI_Comm_rank(half, &in_half);
    MPI_Comm_size(half, &halves);
    for (int i = 0; i < 60; i++) {
        int value = rank, sum = -1, from = -1;
        MPI_Request request;
        MPI_Irecv(&from, 1, MPI_INT, (rank + ranks - 1) % ranks, i, MPI_COMM_WORLD, &request);
        MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, i % 2 ? half : back);
        int expected = 0;
        for (int k = 0; k < ranks; k++)
            if (i % 2 == 0 || k % 2 == rank % 2) expected += k;
        check(sum == expected, "the sum over a communicator");
        MPI_Send(&value, 1, MPI_INT, (rank + 1) % ranks, i, MPI_COMM_WORLD);
        value = rank;
        MPI_Bcast(&value, 1, MPI_INT, 0, back);
        check(value == ranks - 1, "rank 0 of a communicator is another one's last");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check(from == (rank + ranks - 1) % ranks, "a message among collective operations");
        /* Made, used without any synchronisation, and freed at once. */
        MPI_Comm_dup(i % 2 ? half : MPI_COMM_WORLD, &again);
        for (int k = 0; k < i % 12; k++) {
            int its = k;
            MPI_Bcast(&its, 1, MPI_INT, 0, again);
            check(its == k, "a bcast on a new communicator");
        }
        MPI_Comm_free(&again);
    }
    check(halves == (ranks + 1 - rank % 2) / 2, "half of all");
    MPI_Comm_free(&half);
    MPI_Comm_free(&back);
}

static void run(const char* name, rule_t function) {
    rule = name;
    function();
    rules++;
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    program = "collectives";
    make_layouts();
    run("5.3 barrier", barriers);
    run("5.4 bcast", broadcasts);
    run("5.4 bcasts in a row", broadcasts_in_a_row);
    run("5.5 gather, 5.7 allgather", gathers);
    run("5.6 scatter", scatters);
    run("5.1 nothing", nothing);
    run("5.13 communicators", communicators);
    tell(rank, ranks, run);
    tell_alltoall(rank, ranks, run);
    long all = 0;
    MPI_Reduce(&checks, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("collectives: %d ranks ok, %d rules, %ld checks\n", ranks, rules, all);
    MPI_Type_free(&layouts[1].type);
    MPI_Type_free(&layouts[2].type);
    MPI_Finalize();
    return 0;
}
