/* Chapter 11.5 and 11.7: epochs of all kinds, atomicity and order. */
#include "one_sided.h"

static MPI_Group group_of(int count, const int* members) {
    MPI_Group world, group;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, count, members, &group);
    MPI_Group_free(&world);
    return group;
}

/* 11.5.1: after a fence one's own memory may be used, and only then others write again */
static void fences(void) {
    enum { kRounds = 200 };
    int* memory;
    MPI_Win win;
    MPI_Win_allocate((MPI_Aint)(sizeof(int)) * ranks, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    for (int i = 0; i < ranks; i++) memory[i] = -1;
    MPI_Win_fence(0, win);
    for (int round = 0; round < kRounds; round++) {
        if ((rank + round) % 3 == 0) idle();
        for (int to = 0; to < ranks; to++) {
            const int value = round * 1000 + rank;
            MPI_Put(&value, 1, MPI_INT, to, rank, 1, MPI_INT, win);
            if (round > 190) MPI_Win_fence(0, win), MPI_Win_fence(0, win); /* the last ones have epochs between */
        }
        MPI_Win_fence(0, win);
        for (int from = 0; from < ranks; from++) check(memory[from] == round * 1000 + from, "a value after the fence");
        MPI_Win_fence(MPI_MODE_NOPUT, win);
    }
    MPI_Win_free(&win);
}

/* 11.5.2: each rank with its neighbours in a ring, which run ahead of each other as far as they may */
static void ring(void) {
    enum { kRounds = 100, kBytes = 20000 };
    unsigned char* memory;
    MPI_Win win;
    MPI_Win_allocate(2 * kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    const int neighbours[] = {last_rank(), next_rank()};
    const int count = ranks > 2 ? 2 : 1;
    MPI_Group group = group_of(count, neighbours);
    unsigned char* const data = allocate(2 * kBytes);
    for (int round = 0; round < kRounds; round++) {
        const int bytes = round * 7919 % kBytes;
        MPI_Win_post(group, 0, win);
        MPI_Win_start(group, 0, win);
        for (int side = 0; side < count; side++) {
            const int to = neighbours[side];
            fill(data + side * kBytes, (size_t)bytes, rank, to, round);
            /* I am the other neighbour of my neighbour. */
            MPI_Put(data + side * kBytes, bytes, MPI_BYTE, to, (count - 1 - side) * kBytes, bytes, MPI_BYTE, win);
        }
        if ((rank + round) % 4 == 0) idle();
        MPI_Win_complete(win);
        if (round % 2) {
            MPI_Win_wait(win);
        } else {
            int over = 0;
            while (!over) MPI_Win_test(win, &over);
        }
        for (int side = 0; side < count; side++)
            verify(memory + side * kBytes, (size_t)bytes, neighbours[side], rank, round, one_sided_rule);
    }
    MPI_Group_free(&group);
    free(data);
    MPI_Win_free(&win);
}

/* 11.5.2: one target and many origins, gets and operations, groups that are empty; promises (MPI_MODE_NOCHECK) */
static void groups(void) {
    int* memory;
    MPI_Win win;
    MPI_Win_allocate((MPI_Aint)sizeof(int) * (ranks + 1), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Group world, none = MPI_GROUP_EMPTY;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    for (int target = 0; target < ranks; target++)
        for (int promise = 0; promise < 2; promise++) {
            const int assert = promise ? MPI_MODE_NOCHECK : 0;
            MPI_Group one = group_of(1, &target);
            for (int i = 0; i <= ranks; i++) memory[i] = 50 + i;
            if (rank == target) MPI_Win_post(world, assert, win);
            if (promise) MPI_Barrier(MPI_COMM_WORLD);
            MPI_Win_start(one, assert, win);
            int value = 7, got = -1;
            MPI_Accumulate(&value, 1, MPI_INT, target, 0, 1, MPI_INT, MPI_SUM, win);
            MPI_Get(&got, 1, MPI_INT, target, 1 + rank, 1, MPI_INT, win);
            MPI_Win_complete(win);
            check(got == 51 + rank, "a get in an access epoch");
            if (rank == target) {
                MPI_Win_wait(win);
                check(memory[0] == 50 + 7 * ranks, "the sum of all origins");
            }
            MPI_Win_post(none, 0, win);
            MPI_Win_start(none, 0, win);
            MPI_Win_complete(win);
            MPI_Win_wait(win);
            MPI_Group_free(&one);
        }
    MPI_Group_free(&world);
    MPI_Win_free(&win);
}

/* 11.5.2: a start before the post; the target tells nobody else, and test does not wait */
static void late_post(void) {
    int memory[2] = {0, 0};
    MPI_Win win;
    MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    const int zero = 0, last = ranks - 1;
    MPI_Group target = group_of(1, &zero), origin = group_of(1, &last);
    for (int round = 1; round < 20; round++) {
        if (rank == last && ranks > 1) {
            MPI_Win_start(target, 0, win);
            MPI_Put(&round, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
            MPI_Send(&round, 1, MPI_INT, 0, 9, MPI_COMM_WORLD);
            MPI_Win_complete(win);
        } else if (rank == 0 && ranks > 1) {
            int number, over = 0;
            MPI_Recv(&number, 1, MPI_INT, last, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            idle();
            check(memory[0] == round - 1, "a put before the post");
            MPI_Win_post(origin, 0, win);
            while (!over) MPI_Win_test(win, &over);
            check(memory[0] == round, "a put after the post");
        }
    }
    MPI_Group_free(&target);
    MPI_Group_free(&origin);
    MPI_Win_free(&win);
}

/* 11.5.3: an exclusive lock keeps everybody else out: reading, adding and writing is one step */
static void exclusive(void) {
    enum { kRounds = 30 };
    long* memory;
    MPI_Win win;
    MPI_Win_allocate(2 * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    memory[0] = memory[1] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < kRounds; round++)
        for (int target = 0; target < ranks; target++) {
            long values[2];
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
            MPI_Get(values, 2, MPI_LONG, target, 0, 2, MPI_LONG, win);
            MPI_Win_flush(target, win);
            check(values[0] == values[1], "somebody else is in the epoch");
            values[0]++;
            MPI_Put(values, 1, MPI_LONG, target, 0, 1, MPI_LONG, win);
            MPI_Win_flush(target, win);
            MPI_Put(values, 1, MPI_LONG, target, 1, 1, MPI_LONG, win);
            MPI_Win_unlock(target, win);
        }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    check(memory[0] == (long)kRounds * ranks && memory[1] == memory[0], "the count of all epochs");
    MPI_Win_unlock(rank, win);
    MPI_Win_free(&win);
}

/* 11.5.3: shared locks let others in, exclusive ones wait for them; several targets at once; promises */
static void shared(void) {
    int* memory;
    MPI_Win win;
    MPI_Win_allocate((MPI_Aint)sizeof(int) * ranks, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    for (int i = 0; i < ranks; i++) memory[i] = -1;
    MPI_Barrier(MPI_COMM_WORLD);
    /* All hold rank 0's lock at the same time: nobody passes the barrier otherwise. */
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Put(&rank, 1, MPI_INT, 0, rank, 1, MPI_INT, win);
    MPI_Win_unlock(0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        for (int i = 0; i < ranks; i++) check(memory[i] == i, "a put under a shared lock");
    MPI_Barrier(MPI_COMM_WORLD);
    /* All targets at once, each origin in an order of its own, and all again without a lock that nobody else takes. */
    for (int promise = 0; promise < 2; promise++) {
        for (int i = 0; i < ranks; i++)
            MPI_Win_lock(MPI_LOCK_SHARED, (i + rank) % ranks, promise ? MPI_MODE_NOCHECK : 0, win);
        const int value = 100 * promise + rank;
        for (int to = 0; to < ranks; to++) MPI_Put(&value, 1, MPI_INT, to, rank, 1, MPI_INT, win);
        for (int i = 0; i < ranks; i++) MPI_Win_unlock((ranks - i + rank) % ranks, win);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int from = 0; from < ranks; from++) check(memory[from] == 100 * promise + from, "a put to each target");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_free(&win);
}

/* 11.5.3: exclusive locks of one rank, and lock_all of the others, are never there together */
static void mixed(void) {
    enum { kRounds = 15 };
    long* memory;
    MPI_Win win;
    MPI_Win_allocate(2 * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    memory[0] = memory[1] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < kRounds; round++) {
        const int target = round % ranks;
        if (rank == (round / 2) % ranks) {
            const long one = 1;
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
            MPI_Accumulate(&one, 1, MPI_LONG, target, 0, 1, MPI_LONG, MPI_SUM, win);
            MPI_Win_flush(target, win);
            idle();
            MPI_Accumulate(&one, 1, MPI_LONG, target, 1, 1, MPI_LONG, MPI_SUM, win);
            MPI_Win_unlock(target, win);
        } else {
            long values[2];
            MPI_Win_lock_all(0, win);
            MPI_Get(values, 2, MPI_LONG, target, 0, 2, MPI_LONG, win);
            MPI_Win_flush(target, win);
            check(values[0] == values[1], "half of an exclusive epoch is seen");
            MPI_Win_unlock_all(win);
        }
    }
    MPI_Win_free(&win);
}

/* 11.5.3: two that have all locks shared, their own at once, read each other's memory while it is wanted alone */
static void crossed(void) {
    int memory = 0, token = 0;
    MPI_Win win;
    MPI_Win_create(&memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    for (int round = 1; round <= 3 && ranks > 3; round++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank < 2) {
            const int writer = rank + 2;
            int value = -1, arrived;
            MPI_Win_lock_all(0, win);
            MPI_Sendrecv(&round, 1, MPI_INT, writer, 1, &token, 1, MPI_INT, writer, 1, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            for (const double until = MPI_Wtime() + 0.02; MPI_Wtime() < until;) /* its wish for the lock comes */
                MPI_Iprobe(writer, 2, MPI_COMM_WORLD, &arrived, MPI_STATUS_IGNORE);
            MPI_Get(&value, 1, MPI_INT, 1 - rank, 0, 1, MPI_INT, win);
            MPI_Win_flush(1 - rank, win);
            check(value == round - 1 || value == round, "a value under lock_all"); /* the other one may be through */
            MPI_Win_unlock_all(win);
        } else if (rank < 4) {
            const int reader = rank - 2;
            MPI_Sendrecv(&round, 1, MPI_INT, reader, 1, &token, 1, MPI_INT, reader, 1, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, reader, 0, win);
            MPI_Put(&round, 1, MPI_INT, reader, 0, 1, MPI_INT, win);
            MPI_Win_unlock(reader, win);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_free(&win);
}

/* 11.5.4: after a flush the target has it; flush_local frees the origin's memory; of all targets, and one */
static void flushes(void) {
    enum { kBytes = 70000 };
    unsigned char* memory;
    MPI_Win win;
    MPI_Win_allocate(kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    unsigned char* const data = allocate(kBytes);
    for (int round = 0; round < 8; round++) {
        const int to = next_rank(), bytes = round % 2 ? 5 + round : kBytes - round;
        int token = round;
        MPI_Win_lock_all(round % 2 ? MPI_MODE_NOCHECK : 0, win);
        fill(data, (size_t)bytes, rank, to, round);
        MPI_Put(data, bytes, MPI_BYTE, to, 0, bytes, MPI_BYTE, win);
        if (round & 2) {
            MPI_Win_flush_local(to, win);
            memset(data, 0xaa, (size_t)bytes);
        } else if (round & 4) {
            MPI_Win_flush_local_all(win);
            memset(data, 0xaa, (size_t)bytes);
        }
        if (round & 1)
            MPI_Win_flush(to, win);
        else
            MPI_Win_flush_all(win);
        /* The target looks at its memory when it is told, while our epoch goes on. */
        MPI_Sendrecv_replace(&token, 1, MPI_INT, to, 4, last_rank(), 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Win_sync(win);
        verify(memory, (size_t)bytes, last_rank(), rank, round, one_sided_rule);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_unlock_all(win);
    }
    free(data);
    MPI_Win_free(&win);
}

/* 11.7.1: operations of one origin on one place are in order, small and large, all kinds mixed */
static void order(void) {
    enum { kRounds = 60, kLong = 5000 };
    int* memory;
    MPI_Win win;
    MPI_Win_allocate(kLong * sizeof(int) * (size_t)ranks, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    memset(memory, 0, kLong * sizeof(int) * (size_t)ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    int* const seen = allocate(kRounds * sizeof(int));
    int(*const sets)[kLong] = allocate(sizeof(int) * kLong * kRounds);
    const int to = next_rank();
    MPI_Win_lock(MPI_LOCK_SHARED, to, 0, win);
    for (int round = 0; round < kRounds; round++) {
        for (int i = 0; i < kLong; i++) sets[round][i] = round * 10000 + i;
        const int count = round % 3 ? 1 : kLong;
        MPI_Accumulate(sets[round], count, MPI_INT, to, rank * kLong, count, MPI_INT, MPI_REPLACE, win);
        static const int ten = 10;
        if (round % 4 == 1)
            MPI_Get_accumulate(NULL, 0, MPI_INT, &seen[round], 1, MPI_INT, to, rank * kLong, 1, MPI_INT, MPI_NO_OP,
                               win);
        else
            MPI_Fetch_and_op(&ten, &seen[round], MPI_INT, to, rank * kLong, round % 2 ? MPI_SUM : MPI_REPLACE, win);
    }
    MPI_Win_unlock(to, win);
    for (int round = 0; round < kRounds; round++) check(seen[round] == round * 10000, "what was there before");
    MPI_Barrier(MPI_COMM_WORLD);
    const int* const mine = memory + last_rank() * kLong;
    const int last_long = (kRounds - 1) / 3 * 3;
    for (int i = 1; i < kLong; i++) check(mine[i] == last_long * 10000 + i, "the last long one stays");
    free(seen);
    free(sets);
    MPI_Win_free(&win);
}

/* 11.7.1: operations of all origins on one place are atomic, local ones too: nothing is lost, nothing comes twice */
static void atomic(void) {
    enum { kRounds = 200 };
    long* memory;
    MPI_Win win;
    MPI_Win_allocate(4 * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    memset(memory, 0, 4 * sizeof(long));
    MPI_Barrier(MPI_COMM_WORLD);
    long *const tickets = allocate(sizeof(long) * kRounds), won = 0;
    MPI_Win_lock_all(0, win);
    for (int round = 0; round < kRounds; round++) {
        const long one = 1;
        MPI_Fetch_and_op(&one, &tickets[round], MPI_LONG, 0, 0, MPI_SUM, win);
        if (round % 16 == 0) MPI_Win_flush(0, win);
        long pair[2] = {1, 2};
        MPI_Accumulate(pair, 2, MPI_LONG, 0, 1, 2, MPI_LONG, MPI_SUM, win);
    }
    MPI_Win_flush_all(win);
    for (long turn = 0; turn < 20; turn++) { /* one of us at a time moves the value on */
        long was = -1;
        const long next = turn + 1;
        MPI_Compare_and_swap(&next, &turn, &was, MPI_LONG, 0, 3, win);
        MPI_Win_flush(0, win);
        won += was == turn;
        check(was >= turn, "a value that was passed already");
    }
    MPI_Win_unlock_all(win);
    for (int round = 1; round < kRounds; round++) check(tickets[round] > tickets[round - 1], "tickets are in order");
    long* const all = allocate(sizeof(long) * kRounds * (size_t)ranks);
    MPI_Allgather(tickets, kRounds, MPI_LONG, all, kRounds, MPI_LONG, MPI_COMM_WORLD);
    char* const taken = calloc((size_t)(kRounds * ranks), 1);
    for (int i = 0; i < kRounds * ranks; i++) {
        check(all[i] >= 0 && all[i] < kRounds * ranks && !taken[all[i]], "a ticket was given twice");
        taken[all[i]] = 1;
    }
    long total = 0;
    MPI_Allreduce(&won, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    check(total == 20, "each turn has one winner");
    if (rank == 0)
        check(memory[1] == (long)kRounds * ranks && memory[2] == 2 * memory[1] && memory[3] == 20, "the sums");
    free(all);
    free(taken);
    free(tickets);
    MPI_Win_free(&win);
}

/* 11.7.3: a target that is in no call of the window, but in others of MPI, serves; one that computes is waited for */
static void passive(void) {
    int memory = 0;
    MPI_Win win;
    MPI_Win_create(&memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    if (rank == 0) {
        int token;
        for (int i = 1; i < ranks; i++) MPI_Recv(&token, 1, MPI_INT, i, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(memory == ranks - 1, "all have been served");
    } else {
        const int one = 1;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win);
        MPI_Win_unlock(0, win);
        MPI_Send(&one, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
    }
    MPI_Win_free(&win);
}

/* One of the calls that end something, of a rank that looks at a value. */
static void look(int way, int at, int* value, MPI_Win win) {
    MPI_Request request;
    const int zero = 0;
    if (way < 2) {
        MPI_Win_lock(way ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, at, 0, win);
        MPI_Get(value, 1, MPI_INT, at, 0, 1, MPI_INT, win);
        MPI_Win_unlock(at, win);
        return;
    }
    if (way == 6)
        MPI_Rget(value, 1, MPI_INT, at, 0, 1, MPI_INT, win, &request);
    else if (way % 2)
        MPI_Get(value, 1, MPI_INT, at, 0, 1, MPI_INT, win);
    else
        MPI_Fetch_and_op(&zero, value, MPI_INT, at, 0, MPI_NO_OP, win);
    if (way == 2 || way == 3) MPI_Win_flush(at, win);
    if (way == 4) MPI_Win_flush_local(at, win);
    if (way == 5) MPI_Win_flush_all(win);
    if (way == 6) MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* 11.7.3: who does nothing but look at memory, his own (at 0) or a neighbour's (at 1), serves as well */
static void looking(void) {
    enum { kWays = 7 };
    int memory = 0;
    MPI_Win win;
    MPI_Win_create(&memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    for (int i = 0; i < 2 * kWays && ranks > 1; i++) {
        const int way = i % kWays, at = i / kWays, wanted = at ? 1000 : ranks - 1, one = 1;
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            const double until = MPI_Wtime() + 20;
            if (way > 1) MPI_Win_lock_all(0, win);
            for (int value = 0; value != wanted;) {
                look(way, at, &value, win);
                check(MPI_Wtime() < until, at ? "who looks at a neighbour's memory" : "who looks at his own");
            }
            if (way > 1) MPI_Win_unlock_all(win);
        } else {
            MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
            MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win);
            MPI_Win_unlock(0, win);
            MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win); /* as the one who looks */
            if (at == 1 && rank == 1) memory = wanted;
            MPI_Win_unlock(rank, win);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
        memory = 0;
        MPI_Win_unlock(rank, win);
    }
    MPI_Win_free(&win);
}

static const rule_t rules[] = {{fences, "11.5.1 fences"},
                               {ring, "11.5.2 neighbours"},
                               {groups, "11.5.2 groups"},
                               {late_post, "11.5.2 a late post"},
                               {exclusive, "11.5.3 exclusive locks"},
                               {shared, "11.5.3 shared locks"},
                               {mixed, "11.5.3 locks of both kinds"},
                               {crossed, "11.5.3 crossed locks"},
                               {flushes, "11.5.4 flushes"},
                               {order, "11.7.1 order"},
                               {atomic, "11.7.1 atomicity"},
                               {passive, "11.7.3 progress"},
                               {looking, "11.7.3 progress of who looks at memory"},
                               {NULL, NULL}};

const rule_t* one_sided_sync(void) {
    enter_part();
    return rules;
}
