/* The rules of communicators.c about two groups: 6.6, and chapter 5 between them. */
#include "communicators.h"

enum { kElements = 3000 }; /* of a large collective: more than any eager message */

static MPI_Comm between;            /* low ranks and high ranks of MPI_COMM_WORLD */
static int lows, mine, here, there; /* low ranks; our rank; ranks of our group; of the other one */
static int high;                    /* which is ours */

static int first_of(int side) { return side ? lows : 0; } /* in MPI_COMM_WORLD */

/* What element `k` from `from` to `to` is, both by their ranks in MPI_COMM_WORLD. */
static long value(int from, int to, int k) { return (long)(word(from, to, 3, (size_t)k) >> 8); }

static int* sequence(int count) {
    int* const all = allocate((size_t)count * sizeof *all);
    for (int i = 0; i < count; i++) all[i] = i;
    return all;
}

static void make(int low_ranks) {
    MPI_Comm local;
    lows = low_ranks;
    high = rank >= lows;
    MPI_Comm_split(MPI_COMM_WORLD, high, rank, &local);
    MPI_Comm_rank(local, &mine);
    MPI_Comm_size(local, &here);
    there = ranks - here;
    /* Leaders: the last one of the low ones, and the first one of the high ones. */
    MPI_Intercomm_create(local, high ? 0 : lows - 1, MPI_COMM_WORLD, high ? lows - 1 : lows, 11, &between);
    MPI_Comm_free(&local);
}

/* 6.6.1, 6.6.2: what a communicator of two groups says of itself; duplicates, parts, merging */
static void groups_are(MPI_Comm comm, int local_first, int locals, int remote_first, int remotes) {
    int inter, size, count;
    MPI_Group local, remote, world;
    MPI_Comm_test_inter(comm, &inter);
    check(inter, "MPI_Comm_test_inter");
    MPI_Comm_size(comm, &size);
    check(size == locals, "MPI_Comm_size is not that of the local group");
    MPI_Comm_remote_size(comm, &size);
    check(size == remotes, "MPI_Comm_remote_size");
    MPI_Comm_group(comm, &local);
    MPI_Comm_remote_group(comm, &remote);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_size(local, &count);
    check(count == locals, "the local group's size");
    const MPI_Group each[] = {local, remote};
    const int first[] = {local_first, remote_first}, counts[] = {locals, remotes};
    for (int side = 0; side < 2; side++) {
        int* const all = sequence(counts[side]);
        int* const found = sequence(counts[side]);
        MPI_Group_translate_ranks(each[side], counts[side], all, world, found);
        for (int i = 0; i < counts[side]; i++) check(found[i] == first[side] + i, "a group's members");
        free(found), free(all);
    }
    MPI_Group_free(&local);
    MPI_Group_free(&remote);
    MPI_Group_free(&world);
}

static void talk(MPI_Comm comm, int local_first, int remote_first, int remotes) {
    int local;
    MPI_Comm_rank(comm, &local);
    for (size_t bytes = 8; bytes < 200000; bytes *= 70)
        for (int peer = 0; peer < remotes; peer++) {
            unsigned char *const out = allocate(bytes), *const in = allocate(bytes);
            MPI_Request request;
            MPI_Status status;
            fill(out, bytes, local_first + local, remote_first + peer, (long)bytes);
            MPI_Isend(out, (int)bytes, MPI_BYTE, peer, local, comm, &request);
            if (bytes == 8) /* anybody of the other group, told apart by the tag */
                MPI_Recv(in, (int)bytes, MPI_BYTE, MPI_ANY_SOURCE, peer, comm, &status);
            else
                MPI_Recv(in, (int)bytes, MPI_BYTE, peer, MPI_ANY_TAG, comm, &status);
            check(status.MPI_SOURCE == peer && status.MPI_TAG == peer, "the status of a message of the other group");
            verify(in, bytes, remote_first + peer, local_first + local, (long)bytes, communicators_rule);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            free(in), free(out);
        }
    MPI_Barrier(comm);
}

static void accessors(void) {
    for (int low_ranks = 1; low_ranks < ranks; low_ranks++) {
        MPI_Comm copy, merged, part;
        MPI_Request request;
        MPI_Group local, sub;
        int result;
        make(low_ranks);
        const int ours = first_of(high), theirs = first_of(!high);
        groups_are(between, ours, here, theirs, there);
        talk(between, ours, theirs, there);
        MPI_Comm_dup(between, &copy);
        groups_are(copy, ours, here, theirs, there);
        MPI_Comm_compare(between, copy, &result);
        check(result == MPI_CONGRUENT, "a duplicate of two groups is not congruent");
        MPI_Comm_compare(between, MPI_COMM_WORLD, &result);
        check(result == MPI_UNEQUAL, "two groups and one are not unequal");
        talk(copy, ours, theirs, there);
        MPI_Comm_free(&copy);
        MPI_Comm_idup(between, &copy, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        groups_are(copy, ours, here, theirs, there);
        talk(copy, ours, theirs, there);
        MPI_Comm_free(&copy);
        /* Who says `high` comes behind: the low ranks first, then the high ones first. */
        for (int turn = 0; turn < 2; turn++) {
            int* const members = sequence(ranks);
            for (int i = 0; i < ranks; i++) members[i] = turn ? (i + lows) % ranks : i;
            MPI_Intercomm_merge(between, turn ? !high : high, &merged);
            members_are(merged, members, ranks, "MPI_Intercomm_merge");
            MPI_Comm_free(&merged);
            free(members);
        }
        /* Parts: the first of either group; nobody else. */
        MPI_Comm_group(between, &local);
        MPI_Group_incl(local, 1, (int[]){0}, &sub);
        MPI_Comm_create(between, sub, &part);
        check((part == MPI_COMM_NULL) == (mine != 0), "MPI_Comm_create of two groups: who is in");
        if (part != MPI_COMM_NULL) {
            groups_are(part, ours, 1, theirs, 1);
            talk(part, ours, theirs, 1);
            MPI_Comm_free(&part);
        }
        MPI_Group_free(&sub);
        MPI_Group_free(&local);
        /* The first of either group by a colour of their own; the others, if there are any on both sides. */
        MPI_Comm_split(between, mine > 0, 0, &part);
        const int both = mine == 0 || (here > 1 && there > 1);
        check((part != MPI_COMM_NULL) == both, "MPI_Comm_split of two groups: a colour that only one of them has");
        if (part != MPI_COMM_NULL) {
            groups_are(part, ours + (mine > 0), mine ? here - 1 : 1, theirs + (mine > 0), mine ? there - 1 : 1);
            talk(part, ours + (mine > 0), theirs + (mine > 0), mine ? there - 1 : 1);
            MPI_Comm_free(&part);
        }
        MPI_Comm_free(&between);
    }
}

static void rooted(int root, int root_high, int n) {
    const int is_root = high == root_high && mine == root, receives = high != root_high;
    const int at = is_root ? MPI_ROOT : receives ? root : MPI_PROC_NULL, from = first_of(root_high) + root;
    const int me = first_of(high) + mine, others = first_of(!root_high), count = root_high ? lows : ranks - lows;
    long* const big = allocate((size_t)count * (size_t)n * sizeof *big);
    long* const small = allocate((size_t)n * sizeof *small);
    /* broadcast */
    for (int k = 0; k < n; k++) small[k] = is_root ? value(from, 0, k) : -1;
    MPI_Bcast(small, n, MPI_LONG, at, between);
    for (int k = 0; k < n && receives; k++) check(small[k] == value(from, 0, k), "MPI_Bcast between two groups");
    for (int k = 0; k < n && !receives && !is_root; k++) check(small[k] == -1, "MPI_Bcast reaches the root's group");
    /* gather */
    for (int k = 0; k < n; k++) small[k] = value(me, from, k);
    MPI_Gather(small, n, MPI_LONG, big, n, MPI_LONG, at, between);
    for (int i = 0; i < count && is_root; i++)
        for (int k = 0; k < n; k++)
            check(big[i * n + k] == value(others + i, from, k), "MPI_Gather between two groups");
    /* gatherv: i + 1 elements of rank i, the last one's first */
    int* const counts = sequence(count);
    int* const places = sequence(count);
    long* const pieces = allocate((size_t)count * (size_t)(count + 1) * sizeof *pieces);
    for (int i = count - 1, place = 0; i >= 0; i--) counts[i] = i + 1, places[i] = place, place += i + 1;
    long* const own = allocate((size_t)ranks * sizeof *own);
    for (int k = 0; k <= mine; k++) own[k] = value(me, from, k);
    MPI_Gatherv(own, receives ? mine + 1 : 0, MPI_LONG, pieces, counts, places, MPI_LONG, at, between);
    for (int i = 0; i < count && is_root; i++)
        for (int k = 0; k <= i; k++)
            check(pieces[places[i] + k] == value(others + i, from, k), "MPI_Gatherv between two groups");
    /* scatter */
    for (int i = 0; i < count && is_root; i++)
        for (int k = 0; k < n; k++) big[i * n + k] = value(from, others + i, k);
    MPI_Scatter(big, n, MPI_LONG, small, n, MPI_LONG, at, between);
    for (int k = 0; k < n && receives; k++) check(small[k] == value(from, me, k), "MPI_Scatter between two groups");
    /* scatterv */
    for (int i = 0; i < count && is_root; i++)
        for (int k = 0; k <= i; k++) pieces[places[i] + k] = value(from, others + i, k);
    MPI_Scatterv(pieces, counts, places, MPI_LONG, own, receives ? mine + 1 : 0, MPI_LONG, at, between);
    for (int k = 0; k <= mine && receives; k++) check(own[k] == value(from, me, k), "MPI_Scatterv between two groups");
    /* reduce: the other group's sum comes to the root */
    for (int k = 0; k < n; k++) small[k] = value(me, 0, k) >> 8;
    MPI_Reduce(small, big, n, MPI_LONG, MPI_SUM, at, between);
    for (int k = 0; k < n && is_root; k++) {
        long sum = 0;
        for (int i = 0; i < count; i++) sum += value(others + i, 0, k) >> 8;
        check(big[k] == sum, "MPI_Reduce between two groups");
    }
    free(own), free(pieces), free(places), free(counts), free(small), free(big);
}

static void finish(int code, MPI_Request* request, const char* what) {
    code_is(code, MPI_SUCCESS, what);
    code_is(MPI_Wait(request, MPI_STATUS_IGNORE), MPI_SUCCESS, what);
}

/* Each of a group sends to each of the other one; `wait`: by the non-blocking calls. */
static void all_to_all(int n, int wait) {
    const int me = first_of(high) + mine, others = first_of(!high);
    const size_t room = (size_t)ranks * (size_t)(n + ranks);
    long *const out = allocate(room * sizeof *out), *const in = allocate(room * sizeof *in);
    int *const counts = sequence(there), *const places = sequence(there);
    MPI_Request request;
    for (int k = 0; k < n; k++) out[k] = value(me, 0, k);
    if (wait)
        finish(MPI_Iallgather(out, n, MPI_LONG, in, n, MPI_LONG, between, &request), &request, "MPI_Iallgather");
    else
        MPI_Allgather(out, n, MPI_LONG, in, n, MPI_LONG, between);
    for (int i = 0; i < there; i++)
        for (int k = 0; k < n; k++) check(in[i * n + k] == value(others + i, 0, k), "MPI_Allgather between two groups");
    for (int i = there - 1, place = 0; i >= 0; i--) counts[i] = i + 1, places[i] = place, place += i + 1;
    for (int k = 0; k <= mine; k++) out[k] = value(me, 1, k);
    if (wait)
        finish(MPI_Iallgatherv(out, mine + 1, MPI_LONG, in, counts, places, MPI_LONG, between, &request), &request,
               "MPI_Iallgatherv");
    else
        MPI_Allgatherv(out, mine + 1, MPI_LONG, in, counts, places, MPI_LONG, between);
    for (int i = 0; i < there; i++)
        for (int k = 0; k <= i; k++)
            check(in[places[i] + k] == value(others + i, 1, k), "MPI_Allgatherv between two groups");
    for (int i = 0; i < there; i++)
        for (int k = 0; k < n; k++) out[i * n + k] = value(me, others + i, k);
    if (wait)
        finish(MPI_Ialltoall(out, n, MPI_LONG, in, n, MPI_LONG, between, &request), &request, "MPI_Ialltoall");
    else
        MPI_Alltoall(out, n, MPI_LONG, in, n, MPI_LONG, between);
    for (int i = 0; i < there; i++)
        for (int k = 0; k < n; k++) check(in[i * n + k] == value(others + i, me, k), "MPI_Alltoall between two groups");
    /* To rank i as many as both ranks together, plus one. */
    int* const bytes = sequence(there);
    MPI_Datatype* const types = allocate((size_t)there * sizeof *types);
    for (int i = 0, place = 0; i < there; i++) {
        counts[i] = mine + i + 1, places[i] = place, types[i] = MPI_LONG, place += counts[i];
        bytes[i] = places[i] * (int)sizeof(long);
        for (int k = 0; k < counts[i]; k++) out[places[i] + k] = value(me, others + i, k + 7);
    }
    for (int of_types = 0; of_types < 2; of_types++) {
        memset(in, 0, room * sizeof *in);
        if (!of_types && !wait)
            MPI_Alltoallv(out, counts, places, MPI_LONG, in, counts, places, MPI_LONG, between);
        else if (!of_types)
            finish(MPI_Ialltoallv(out, counts, places, MPI_LONG, in, counts, places, MPI_LONG, between, &request),
                   &request, "MPI_Ialltoallv");
        else if (!wait)
            MPI_Alltoallw(out, counts, bytes, types, in, counts, bytes, types, between);
        else
            finish(MPI_Ialltoallw(out, counts, bytes, types, in, counts, bytes, types, between, &request), &request,
                   "MPI_Ialltoallw");
        for (int i = 0; i < there; i++)
            for (int k = 0; k < counts[i]; k++)
                check(in[places[i] + k] == value(others + i, me, k + 7),
                      of_types ? "MPI_Alltoallw between two groups" : "MPI_Alltoallv between two groups");
    }
    free(types), free(bytes), free(places), free(counts), free(in), free(out);
}

/* What comes out is made of the other group's elements. */
static void reductions(int n, int wait) {
    const int me = first_of(high) + mine, others = first_of(!high), total = here * there;
    const int most = n > total ? n : total;
    long *const out = allocate((size_t)most * sizeof *out), *const in = allocate((size_t)most * sizeof *in);
    long* const sums = calloc((size_t)most, sizeof *sums);
    MPI_Request request;
    if (!sums) fail("no memory");
    for (int k = 0; k < most; k++) {
        out[k] = value(me, 0, k) >> 8;
        for (int i = 0; i < there; i++) sums[k] += value(others + i, 0, k) >> 8;
    }
    if (wait)
        finish(MPI_Iallreduce(out, in, n, MPI_LONG, MPI_SUM, between, &request), &request, "MPI_Iallreduce");
    else
        MPI_Allreduce(out, in, n, MPI_LONG, MPI_SUM, between);
    check(!memcmp(in, sums, (size_t)n * sizeof *in), "MPI_Allreduce between two groups");
    /* As many elements all in all on either side: that of us gets `there` of them each. */
    if (wait)
        finish(MPI_Ireduce_scatter_block(out, in, there, MPI_LONG, MPI_SUM, between, &request), &request,
               "MPI_Ireduce_scatter_block");
    else
        MPI_Reduce_scatter_block(out, in, there, MPI_LONG, MPI_SUM, between);
    check(!memcmp(in, sums + mine * there, (size_t)there * sizeof *in), "MPI_Reduce_scatter_block between two groups");
    int* const counts = sequence(here); /* the first has all but one of the others each */
    for (int i = 0; i < here; i++) counts[i] = i ? 1 : total - here + 1;
    if (wait)
        finish(MPI_Ireduce_scatter(out, in, counts, MPI_LONG, MPI_SUM, between, &request), &request,
               "MPI_Ireduce_scatter");
    else
        MPI_Reduce_scatter(out, in, counts, MPI_LONG, MPI_SUM, between);
    const int place = mine ? total - here + mine : 0;
    check(!memcmp(in, sums + place, (size_t)counts[mine] * sizeof *in), "MPI_Reduce_scatter between two groups");
    free(counts), free(sums), free(in), free(out);
}

/* 5.2.2, 5.2.3: collectives between two groups: with a root, and from each to each */
static void collectives(void) {
    for (int low_ranks = 1; low_ranks < ranks; low_ranks++) {
        make(low_ranks);
        for (int side = 0; side < 2; side++)
            for (int root = 0; root < (side ? ranks - lows : lows); root++) {
                rooted(root, side, 1);
                rooted(root, side, kElements);
            }
        for (int wait = 0; wait < 2; wait++) {
            MPI_Request request;
            if (wait)
                finish(MPI_Ibarrier(between, &request), &request, "MPI_Ibarrier");
            else
                MPI_Barrier(between);
            all_to_all(1, wait);
            all_to_all(kElements, wait);
            reductions(1, wait);
            reductions(kElements, wait);
        }
        MPI_Comm_free(&between);
    }
}

/* 5.3: nobody leaves a barrier before all of the other group have come */
static void barrier(void) {
    if (ranks < 2) return;
    make(1);
    for (int late = 0; late < ranks; late++) {
        int flag = 0, before;
        if (rank == late) {
            const double until = MPI_Wtime() + 0.01;
            while (MPI_Wtime() < until) MPI_Iprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            for (int i = 0; i < there; i++) MPI_Send(&late, 1, MPI_INT, i, 21, between);
        }
        MPI_Barrier(between);
        if ((late >= lows) != high) { /* what was said before the barrier has been sent by then */
            MPI_Recv(&before, 1, MPI_INT, late - first_of(!high), 21, between, MPI_STATUS_IGNORE);
            check(before == late, "what was sent before a barrier");
        }
    }
    MPI_Comm_free(&between);
}

/* 6.4.2: a duplicate is made while the communicator has collectives of its own */
static void duplicates_meanwhile(void) {
    if (ranks < 2) return;
    make(ranks / 2);
    for (int round = 0; round < 100; round++) {
        MPI_Comm copy;
        MPI_Request request;
        const int one = 1000 + round;
        int sum = -1;
        MPI_Comm_idup(between, &copy, &request);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, between);
        check(sum == one * there, "MPI_Allreduce while a duplicate is made");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Comm_free(&copy);
    }
    MPI_Comm_free(&between);
}

static const rule_t rules[] = {{accessors, "6.6 two groups"},
                               {barrier, "5.3 barrier between two groups"},
                               {collectives, "5.2 collectives between two groups"},
                               {duplicates_meanwhile, "6.4 a duplicate is made meanwhile"},
                               {NULL, NULL}};

const rule_t* communicators_between(void) {
    enter_part();
    return rules;
}
