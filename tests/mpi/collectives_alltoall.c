/* Rules of all-to-alls (5.8), and of operations that do not block (5.12). */
#include "collectives.h"

/* 5.8: blocks of all sizes, in layouts that differ by rank; in place, too */
static void alltoalls(void) {
    for (int i = 0; i < kCountCount; i++)
        for (int which = 0; which < 2 * kLayouts; which++) {
            const int count = kCounts[i], in_place = which >= kLayouts;
            const layout_t *to = its_layout(which, rank), *from = in_place ? to : its_layout(which, rank + 1);
            int *out = spread(from, ranks * count), *in = spread(to, ranks * count);
            for (int target = 0; target < ranks; target++)
                for (int k = 0; k < count; k++)
                    *at(in_place ? in : out, in_place ? to : from, target * count + k) = element(rank, target, i, k);
            MPI_Alltoall(in_place ? MPI_IN_PLACE : (void*)out, count, from->type, in, count, to->type, MPI_COMM_WORLD);
            for (int source = 0; source < ranks; source++)
                for (int k = 0; k < count; k++)
                    if (*at(in, to, source * count + k) != element(source, rank, i, k))
                        fail("%s: element %d of %d from %d", rule, k, count, source);
            untouched_between(in, to, ranks * count, "alltoall");
            if (!in_place) untouched_between(out, from, ranks * count, "what is sent");
            free(out), free(in);
        }
}

/* A count that two ranks have for each other in one round: nothing, little, or much. */
static int count_of(int from, int to, int round) {
    const int dice = (int)(word(from, to, round, 1) % 4);
    return dice == 0 ? 0 : (int)(word(from, to, round, 2) % (dice == 1 ? 30 : dice == 2 ? 1500 : 20000));
}

typedef struct lists {
    int *out, *in, *counts_out, *counts_in, *places_out, *places_in, all_out, all_in;
    const layout_t *from, *to;
} lists_t;

/* Blocks lie in any order, with gaps. */
static lists_t make_lists(int round) {
    lists_t its = {.from = its_layout(round, rank), .to = its_layout(round, rank + 2)};
    int** const arrays[] = {&its.counts_out, &its.counts_in, &its.places_out, &its.places_in};
    for (int i = 0; i < 4; i++) *arrays[i] = allocate((size_t)ranks * sizeof(int));
    for (int i = ranks - 1; i >= 0; i--) {
        its.counts_out[i] = count_of(rank, i, round);
        its.places_out[i] = its.all_out;
        its.all_out += its.counts_out[i] + 1;
    }
    for (int i = 0; i < ranks; i++) {
        its.counts_in[i] = count_of(i, rank, round);
        its.places_in[i] = its.all_in;
        its.all_in += its.counts_in[i] + i % 3;
    }
    its.out = spread(its.from, its.all_out);
    its.in = spread(its.to, its.all_in);
    for (int i = 0; i < ranks; i++)
        for (int k = 0; k < its.counts_out[i]; k++)
            *at(its.out, its.from, its.places_out[i] + k) = element(rank, i, round, k);
    return its;
}

static void look_at_lists(lists_t* its, int round) {
    for (int i = 0; i < ranks; i++)
        for (int k = 0; k < its->counts_in[i]; k++) {
            int* const one = at(its->in, its->to, its->places_in[i] + k);
            if (*one != element(i, rank, round, k))
                fail("%s: round %d, element %d of %d from %d", rule, round, k, its->counts_in[i], i);
            *one = kUntouched;
        }
    for (int i = 0; i < its->all_in * its->to->stride; i++)
        if (its->in[i] != kUntouched) fail("%s: round %d: something between blocks was written", rule, round);
    checks++;
    free(its->out), free(its->in);
    free(its->counts_out), free(its->counts_in), free(its->places_out), free(its->places_in);
}

static void random_lists(void) {
    for (int round = 0; round < 60; round++) {
        lists_t its = make_lists(round);
        MPI_Alltoallv(its.out, its.counts_out, its.places_out, its.from->type, its.in, its.counts_in, its.places_in,
                      its.to->type, MPI_COMM_WORLD);
        look_at_lists(&its, round);
    }
}

/* Counts of two ranks for each other are the same in place. */
static void lists_in_place(void) {
    for (int round = 0; round < 6; round++) {
        int *counts = allocate((size_t)ranks * sizeof *counts), *places = allocate((size_t)ranks * sizeof *places),
            all = 0;
        for (int i = 0; i < ranks; i++) {
            counts[i] = count_of(i < rank ? i : rank, i < rank ? rank : i, round);
            places[i] = all;
            all += counts[i];
        }
        int* memory = allocate((size_t)all * sizeof *memory);
        for (int i = 0; i < ranks; i++)
            for (int k = 0; k < counts[i]; k++) memory[places[i] + k] = element(rank, i, round, k);
        MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, memory, counts, places, MPI_INT, MPI_COMM_WORLD);
        for (int i = 0; i < ranks; i++)
            for (int k = 0; k < counts[i]; k++)
                check(memory[places[i] + k] == element(i, rank, round, k), "in place, with counts");
        free(memory), free(counts), free(places);
    }
}

/* Communicators of all sizes, also of one rank: blocks of eight bytes, and large ones. */
static void sizes(void) {
    for (int some = 1; some <= ranks; some++) {
        MPI_Comm comm;
        MPI_Comm_split(MPI_COMM_WORLD, rank < some ? 0 : MPI_UNDEFINED, -rank, &comm);
        if (comm == MPI_COMM_NULL) continue;
        const int its_rank = some - 1 - rank;
        for (int i = 0; i < 2; i++) {
            const int count = i ? 5000 : 2;
            int *out = allocate((size_t)(some * count) * sizeof *out),
                *in = allocate((size_t)(some * count) * sizeof *in);
            for (int k = 0; k < some * count; k++) out[k] = element(its_rank, k / count, i, k % count);
            MPI_Alltoall(out, count, MPI_INT, in, count, MPI_INT, comm);
            for (int k = 0; k < some * count; k++)
                if (in[k] != element(k / count, its_rank, i, k % count))
                    fail("%s: %d ranks, element %d", rule, some, k);
            free(out), free(in);
        }
        MPI_Comm_free(&comm);
    }
}

/* A type of two integers, each other one, which is freed as soon as the call is back. */
static MPI_Datatype short_lived(void) {
    MPI_Datatype type, resized;
    MPI_Type_vector(2, 1, 2, MPI_INT, &type);
    MPI_Type_create_resized(type, 0, 4 * sizeof(int), &resized);
    MPI_Type_commit(&resized);
    MPI_Type_free(&type);
    return resized;
}

static void product(void* in, void* inout, int* count, MPI_Datatype* type) {
    (void)type;
    for (int i = 0; i < *count; i++) ((int*)inout)[i] *= ((int*)in)[i];
}

/* 5.12: all of them are under way together, and end in any order; types and operators are freed at once. */
static void under_way(void) {
    enum { kKinds = 9, kRequests = kKinds + 1 };
    static const int counts[] = {1, 30, 500, 3000};
    for (int round = 0; round < 24; round++) {
        const int count = counts[round % 4], root = round % ranks, all = ranks * count;
        MPI_Request requests[kRequests];
        int *in[kKinds], *out[kKinds];
        for (int i = 0; i < kKinds; i++) {
            in[i] = allocate((size_t)all * 4 * sizeof(int));
            out[i] = allocate((size_t)all * 4 * sizeof(int));
            for (int k = 0; k < all * 4; k++) in[i][k] = element(rank, i, round, k), out[i][k] = kUntouched;
        }
        for (int k = 0; k < count; k++) in[4][k] = in[5][k] = in[8][k] = 1 + (rank + k) % 3;
        if (rank == root) memcpy(out[1], in[1], (size_t)count * 4 * sizeof(int));
        lists_t lists = make_lists(1000 + round);
        MPI_Datatype type = short_lived();
        MPI_Op own;
        MPI_Op_create(product, 1, &own);
        MPI_Ibarrier(MPI_COMM_WORLD, &requests[0]);
        MPI_Ibcast(out[1], count, type, root, MPI_COMM_WORLD, &requests[1]);
        MPI_Iallgather(in[2], count, type, out[2], count, type, MPI_COMM_WORLD, &requests[2]);
        MPI_Ialltoall(in[3], count, type, out[3], count, type, MPI_COMM_WORLD, &requests[3]);
        MPI_Iallreduce(in[4], out[4], count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[4]);
        MPI_Ireduce(in[5], out[5], count, MPI_INT, MPI_MAX, root, MPI_COMM_WORLD, &requests[5]);
        MPI_Igather(in[6], count, type, out[6], count, type, root, MPI_COMM_WORLD, &requests[6]);
        MPI_Iscatter(in[7], count, type, out[7], count, type, root, MPI_COMM_WORLD, &requests[7]);
        MPI_Iallreduce(in[8], out[8], count, MPI_INT, own, MPI_COMM_WORLD, &requests[8]);
        MPI_Ialltoallv(lists.out, lists.counts_out, lists.places_out, lists.from->type, lists.in, lists.counts_in,
                       lists.places_in, lists.to->type, MPI_COMM_WORLD, &requests[9]);
        MPI_Type_free(&type);
        MPI_Op_free(&own);
        if (round % 3 == 0) MPI_Barrier(MPI_COMM_WORLD); /* one that blocks is not one of these */
        if (round % 2)
            MPI_Waitall(kRequests, requests, MPI_STATUSES_IGNORE);
        else
            for (int left = kRequests; left > 0; left--) {
                int index;
                MPI_Waitany(kRequests, requests, &index, MPI_STATUS_IGNORE);
            }
        look_at_lists(&lists, 1000 + round);
        int sum = 0, most = 0, factor = 1;
        for (int i = 0; i < ranks; i++) {
            const int one = 1 + i % 3;
            sum += one, factor *= one;
            most = one > most ? one : most;
        }
        check(out[4][0] == sum, "iallreduce");
        check(out[8][0] == factor, "iallreduce by an operator that is freed");
        check(rank != root || out[5][0] == most, "ireduce");
        for (int k = 0; k < count; k++)
            for (int i = 0; i < 4; i += 2) {
                const int at = 4 * k + i;
                if (out[1][at] != element(root, 1, round, at)) fail("%s: ibcast, element %d", rule, at);
                if (out[7][at] != element(root, 7, round, 4 * rank * count + at))
                    fail("%s: iscatter, element %d", rule, at);
                for (int source = 0; source < ranks; source++) {
                    const int there = 4 * source * count + at;
                    if (out[2][there] != element(source, 2, round, at)) fail("%s: iallgather, element %d", rule, there);
                    if (out[3][there] != element(source, 3, round, 4 * rank * count + at))
                        fail("%s: ialltoall, element %d from %d", rule, at, source);
                    if (rank == root && out[6][there] != element(source, 6, round, at))
                        fail("%s: igather, element %d", rule, there);
                }
                check(out[3][at + 1] == kUntouched && (rank == root || out[1][at + 1] == kUntouched),
                      "something between the elements was written");
            }
        for (int i = 0; i < kKinds; i++) free(in[i]), free(out[i]);
    }
}

/* 5.12: a derived type at one side only: Open MPI keeps it with the request, and looks at both when that is over. */
static void one_side(void) {
    enum { kBlocks = 16 };
    for (int round = 0; round < 20; round++) {
        MPI_Datatype four;
        MPI_Request request;
        const int all = ranks * 4 * kBlocks, gets = round % 2;
        int *out = allocate((size_t)all * sizeof *out), *in = allocate((size_t)all * sizeof *in);
        for (int i = 0; i < all; i++) out[i] = element(rank, i / (4 * kBlocks), round, i % (4 * kBlocks));
        MPI_Type_contiguous(4, MPI_INT, &four);
        MPI_Type_commit(&four);
        MPI_Ialltoall(out, gets ? 4 * kBlocks : kBlocks, gets ? MPI_INT : four, in, gets ? kBlocks : 4 * kBlocks,
                      gets ? four : MPI_INT, MPI_COMM_WORLD, &request);
        MPI_Type_free(&four);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < all; i++)
            if (in[i] != element(i / (4 * kBlocks), rank, round, i % (4 * kBlocks))) fail("%s: element %d", rule, i);
        free(in), free(out);
    }
}

/* 5.12: more than may be under way, in the same order everywhere; late ranks; MPI_Comm_idup in between */
static void many(void) {
    enum { kMany = 100 };
    for (int round = 0; round < 4; round++) {
        MPI_Request requests[kMany], making;
        MPI_Comm made;
        int values[kMany], sums[kMany], pairs[kMany][2], value = rank, again = -1;
        MPI_Comm_idup(MPI_COMM_WORLD, &made, &making);
        for (int i = 0; i < kMany; i++) {
            values[i] = rank * kMany + i;
            if (i % 10 == rank) MPI_Barrier(MPI_COMM_SELF);
            if (i % 3 == 0) {
                MPI_Iallreduce(&values[i], &sums[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
            } else {
                sums[i] = i % ranks == rank ? i : -1;
                pairs[i][0] = pairs[i][1] = sums[i];
                /* One of an integer's bytes would not be ours. */
                MPI_Ibcast(pairs[i], 2, MPI_INT, i % ranks, MPI_COMM_WORLD, &requests[i]);
            }
        }
        MPI_Wait(&making, MPI_STATUS_IGNORE);
        MPI_Allreduce(&value, &again, 1, MPI_INT, MPI_SUM, made);
        check(again == ranks * (ranks - 1) / 2, "a communicator that was made meanwhile");
        MPI_Comm_free(&made);
        MPI_Waitall(kMany, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < kMany; i++)
            check(i % 3 ? pairs[i][0] == i && pairs[i][1] == i
                        : sums[i] == kMany * (ranks * (ranks - 1) / 2) + ranks * i,
                  "one of many");
    }
    /* The communicator is freed while its operations are under way. Open MPI 4.1's libnbc ends with a SIGSEGV there,
     * now and then; so only where ours are on. */
    if (!getenv("OMPI_MCA_coll_mp_enable")) return;
    for (int round = 0; round < 20; round++) {
        MPI_Comm made;
        MPI_Request requests[2];
        int out = rank, sum = -1, *blocks = allocate((size_t)ranks * 2000 * sizeof *blocks),
            *got = allocate((size_t)ranks * 2000 * sizeof *got);
        for (int i = 0; i < ranks * 2000; i++) blocks[i] = element(rank, i / 2000, round, i % 2000);
        MPI_Comm_dup(MPI_COMM_WORLD, &made);
        MPI_Iallreduce(&out, &sum, 1, MPI_INT, MPI_SUM, made, &requests[0]);
        MPI_Ialltoall(blocks, 2000, MPI_INT, got, 2000, MPI_INT, made, &requests[1]);
        MPI_Comm_free(&made);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        check(sum == ranks * (ranks - 1) / 2, "a sum over a communicator that is freed");
        for (int i = 0; i < ranks * 2000; i++)
            if (got[i] != element(i / 2000, rank, round, i % 2000)) fail("%s: element %d, freed", rule, i);
        free(blocks), free(got);
    }
}

void tell_alltoall(int its_rank, int its_ranks, runner_t run) {
    rank = its_rank;
    ranks = its_ranks;
    program = "collectives";
    run("5.8 alltoall", alltoalls);
    run("5.8 alltoallv", random_lists);
    run("5.8 alltoallv in place", lists_in_place);
    run("5.8 communicators of all sizes", sizes);
    run("5.12 under way together", under_way);
    run("5.12 a derived type at one side", one_side);
    run("5.12 many", many);
}
