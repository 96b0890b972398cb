/* MPI-3.1, chapter 11, rule by rule: one_sided [SEED [RULE]]
 *
 * Each rule is a function with the section that it checks. All ranks go through all of them. What is expected comes
 * from a model in memory: contents that are computed from origin, target and number, and MPI_Reduce_local for
 * operations. Prints "one_sided: N ranks ok, R rules, C checks" and returns 0, or names the rule and aborts. RULE: only
 * those whose section begins so.
 */
#include <sys/mman.h>

#include "one_sided.h"

const char* one_sided_rule;
long one_sided_checks;
int one_sided_rank, one_sided_ranks;
unsigned one_sided_seed = 1;
static const int kSizes[] = {0, 1, 8, 100, 1000, 4096, 4097, 8192, 20000, 300000};
enum { kSizeCount = sizeof kSizes / sizeof *kSizes, kLargest = 300000 };
static unsigned char *out, *in;

/* 11.2.1, 11.2.6: what a created window says of itself */
static void created(void) {
    double* const memory = allocate(1000);
    MPI_Win win;
    MPI_Win_create(memory, 1000, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    void* value;
    int flag;
    MPI_Win_get_attr(win, MPI_WIN_BASE, &value, &flag);
    check(flag && value == memory, "MPI_WIN_BASE");
    MPI_Win_get_attr(win, MPI_WIN_SIZE, &value, &flag);
    check(flag && *(MPI_Aint*)value == 1000, "MPI_WIN_SIZE");
    MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &value, &flag);
    check(flag && *(int*)value == 8, "MPI_WIN_DISP_UNIT");
    MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &value, &flag);
    check(flag && *(int*)value == MPI_WIN_FLAVOR_CREATE, "MPI_WIN_CREATE_FLAVOR");
    MPI_Win_get_attr(win, MPI_WIN_MODEL, &value, &flag);
    check(flag && *(int*)value == MPI_WIN_UNIFIED, "MPI_WIN_MODEL");
    MPI_Group group, world;
    int same;
    MPI_Win_get_group(win, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_compare(group, world, &same);
    check(same == MPI_IDENT, "the window's group");
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    MPI_Win_free(&win);
    check(win == MPI_WIN_NULL, "a freed window");
    free(memory);
}

/* 11.2.2: allocated windows, of different sizes and units; 11.2.1: nobody needs memory */
static void allocated(void) {
    int* base;
    MPI_Win win;
    const int mine = 4 * (rank + 1);
    MPI_Win_allocate(mine * (MPI_Aint)sizeof(int), rank % 2 ? 4 : 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    for (int i = 0; i < mine; i++) base[i] = -1;
    MPI_Win_fence(0, win);
    const int to = next_rank(), value = 1000 + rank;
    for (int i = 0; i < 4 * (to + 1); i++) MPI_Put(&value, 1, MPI_INT, to, to % 2 ? i : 4 * i, 1, MPI_INT, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < mine; i++) check(base[i] == 1000 + last_rank(), "a put into allocated memory");
    MPI_Win_free(&win);
    MPI_Win_create(rank ? NULL : base, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    MPI_Put(&value, 0, MPI_INT, to, 0, 0, MPI_INT, win);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
}

/* 11.3.1, 11.5.1: puts of each size to everybody, at places of their own */
static void puts_by_fence(void) {
    const size_t each = kLargest + 16;
    unsigned char* memory;
    MPI_Win win;
    MPI_Win_allocate((MPI_Aint)(each * (size_t)ranks), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    for (int i = 0; i < kSizeCount; i++) {
        memset(memory, 0xee, each * (size_t)ranks);
        MPI_Win_fence(i % 2 ? MPI_MODE_NOPRECEDE : 0, win);
        unsigned char* const data = allocate((size_t)kSizes[i] * (size_t)ranks);
        for (int to = 0; to < ranks; to++) {
            fill(data + to * kSizes[i], (size_t)kSizes[i], rank, to, i);
            MPI_Put(data + to * kSizes[i], kSizes[i], MPI_BYTE, to, (MPI_Aint)each * rank + 3, kSizes[i], MPI_BYTE,
                    win);
        }
        MPI_Win_fence(i % 3 ? MPI_MODE_NOSUCCEED : 0, win);
        for (int from = 0; from < ranks; from++) {
            const unsigned char* const place = memory + each * (size_t)from;
            verify(place + 3, (size_t)kSizes[i], from, rank, i, one_sided_rule);
            check(place[2] == 0xee && place[3 + kSizes[i]] == 0xee, "bytes beside a put were written");
        }
        MPI_Win_fence(0, win);
        free(data);
    }
    MPI_Win_free(&win);
}

/* 11.3.2: gets of each size from everybody */
static void gets_by_fence(void) {
    unsigned char* memory;
    MPI_Win win;
    MPI_Win_allocate(kLargest, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    fill(memory, kLargest, rank, rank, 7);
    for (int i = 0; i < kSizeCount; i++) {
        unsigned char* const data = allocate((size_t)(kSizes[i] + 1) * (size_t)ranks);
        memset(data, 0xee, (size_t)(kSizes[i] + 1) * (size_t)ranks);
        MPI_Win_fence(0, win);
        for (int from = 0; from < ranks; from++)
            MPI_Get(data + from * (kSizes[i] + 1), kSizes[i], MPI_BYTE, from, 0, kSizes[i], MPI_BYTE, win);
        MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
        for (int from = 0; from < ranks; from++) {
            verify(data + from * (kSizes[i] + 1), (size_t)kSizes[i], from, from, 7, one_sided_rule);
            check(data[from * (kSizes[i] + 1) + kSizes[i]] == 0xee, "bytes behind a get were written");
        }
        free(data);
    }
    MPI_Win_free(&win);
}

/* 11.3: operations with MPI_PROC_NULL do nothing */
static void nobody(void) {
    int memory = 5, value = 7, result = 9;
    MPI_Win win;
    MPI_Win_create(&memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Request request;
    MPI_Win_fence(0, win);
    MPI_Put(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win);
    MPI_Get(&result, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win);
    MPI_Accumulate(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, MPI_SUM, win);
    MPI_Fetch_and_op(&value, &result, MPI_INT, MPI_PROC_NULL, 0, MPI_SUM, win);
    MPI_Win_fence(0, win);
    MPI_Win_lock_all(0, win);
    MPI_Rget(&result, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_unlock_all(win);
    check(memory == 5 && result == 9, "memory has changed");
    MPI_Win_free(&win);
}

/* 11.3.5: request-based operations, whose completion is theirs alone; 11.3: their buffers are free then */
static void requests(void) {
    enum { kOperations = 20, kEach = 30000 };
    unsigned char* memory;
    MPI_Win win;
    MPI_Win_allocate((MPI_Aint)kOperations * kEach * 2, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    memset(memory, 0, (size_t)kOperations * kEach * 2);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    MPI_Request all[kOperations];
    unsigned char* const data = allocate((size_t)kOperations * kEach);
    for (int i = 0; i < kOperations; i++) {
        const int bytes = i * i * 60;
        fill(data + i * kEach, (size_t)bytes, rank, next_rank(), i);
        MPI_Rput(data + i * kEach, bytes, MPI_BYTE, next_rank(), i * kEach, bytes, MPI_BYTE, win, &all[i]);
    }
    for (int done = 0; done < kOperations; done++) {
        int index;
        MPI_Waitany(kOperations, all, &index, MPI_STATUS_IGNORE);
        memset(data + index * kEach, 0xaa, kEach); /* it is ours again */
    }
    MPI_Win_flush_all(win);
    for (int i = 0; i < kOperations; i++)
        MPI_Rget(data + i * kEach, i * i * 60, MPI_BYTE, next_rank(), i * kEach, i * i * 60, MPI_BYTE, win, &all[i]);
    for (int done = 0; done < kOperations; done++) {
        int index;
        MPI_Waitany(kOperations, all, &index, MPI_STATUS_IGNORE);
        verify(data + index * kEach, (size_t)(index * index * 60), rank, next_rank(), index, one_sided_rule);
    }
    /* The same with operations: a sum of ones, and what was there before. */
    int ones[64], before[64], sums[64];
    for (int i = 0; i < 64; i++) ones[i] = 1, before[i] = sums[i] = -1;
    const MPI_Aint place = (MPI_Aint)kOperations * kEach;
    for (int round = 0; round < 5; round++) {
        MPI_Request request;
        MPI_Raccumulate(ones, 64, MPI_INT, next_rank(), place, 64, MPI_INT, MPI_SUM, win, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Rget_accumulate(ones, 64, MPI_INT, before, 64, MPI_INT, next_rank(), place, 64, MPI_INT, MPI_SUM, win,
                            &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < 64; i++) check(before[i] == 2 * round + 1, "MPI_Rget_accumulate's result");
    }
    MPI_Request request;
    MPI_Rget_accumulate(NULL, 0, MPI_INT, sums, 64, MPI_INT, next_rank(), place, 64, MPI_INT, MPI_NO_OP, win, &request);
    int flag = 0;
    while (!flag) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    for (int i = 0; i < 64; i++) check(sums[i] == 10, "MPI_NO_OP reads");
    MPI_Rput(data, 0, MPI_BYTE, next_rank(), 0, 0, MPI_BYTE, win, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_unlock_all(win);
    free(data);
    MPI_Win_free(&win);
}

/* 11.2.4: dynamic windows, attached and detached again and again. What is attached anew is other memory at the same
 * address: a key from before would lead nowhere. */
static void dynamic(void) {
    MPI_Win win;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    unsigned char* memory[2] = {NULL, allocate(kLargest)};
    for (int round = 0; round < 6; round++) {
        memory[0] = mmap(memory[0], kLargest, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | (memory[0] ? MAP_FIXED : 0), -1, 0);
        check(memory[0] != MAP_FAILED, "memory");
        MPI_Aint here[2], *const there = allocate(2 * sizeof(MPI_Aint) * (size_t)ranks);
        for (int k = 0; k < 2; k++) {
            MPI_Win_attach(win, memory[k], kLargest);
            MPI_Get_address(memory[k], &here[k]);
        }
        MPI_Allgather(here, 2, MPI_AINT, there, 2, MPI_AINT, MPI_COMM_WORLD);
        memset(memory[1], 0, sizeof(int));
        MPI_Barrier(MPI_COMM_WORLD);
        const int bytes = 1 + 50000 * round, to = next_rank();
        fill(out, (size_t)bytes, rank, to, round);
        int one = 1, old = -1;
        MPI_Win_lock_all(0, win);
        MPI_Put(out, bytes, MPI_BYTE, to, there[2 * to], bytes, MPI_BYTE, win);
        MPI_Accumulate(&one, 1, MPI_INT, 0, there[1], 1, MPI_INT, MPI_SUM, win);
        MPI_Win_flush(to, win);
        MPI_Get(in, bytes, MPI_BYTE, to, there[2 * to], bytes, MPI_BYTE, win);
        MPI_Win_flush(to, win);
        verify(in, (size_t)bytes, rank, to, round, one_sided_rule);
        MPI_Win_unlock_all(win);
        MPI_Barrier(MPI_COMM_WORLD);
        verify(memory[0], (size_t)bytes, last_rank(), rank, round, one_sided_rule);
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
        MPI_Fetch_and_op(NULL, &old, MPI_INT, 0, there[1], MPI_NO_OP, win);
        MPI_Win_unlock(0, win);
        check(old == ranks, "the sum in attached memory");
        MPI_Barrier(MPI_COMM_WORLD);
        for (int k = 0; k < 2; k++) MPI_Win_detach(win, memory[(k + round) % 2]);
        free(there);
    }
    munmap(memory[0], kLargest);
    free(memory[1]);
    MPI_Win_free(&win);
}

/* 11.2.4: pieces attached one behind the other, and accesses that go over their borders */
static void borders(void) {
    enum { kPiece = 20000 };
    unsigned char* const memory = allocate(3 * kPiece);
    MPI_Aint here, *const there = allocate(sizeof(MPI_Aint) * (size_t)ranks);
    MPI_Win win;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    for (int k = 2; k >= 0; k--) MPI_Win_attach(win, memory + k * kPiece, k == 2 ? kPiece / 2 : kPiece);
    MPI_Get_address(memory, &here);
    MPI_Allgather(&here, 1, MPI_AINT, there, 1, MPI_AINT, MPI_COMM_WORLD);
    const int to = next_rank();
    static const int kBytes[] = {2, 1000, kPiece + 2, 2 * kPiece};
    for (int i = 0; i < 4; i++) {
        const int bytes = kBytes[i];
        const MPI_Aint at = there[to] + (i < 2 ? kPiece - 1 : kPiece / 2 - 1);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, win);
        fill(out, (size_t)bytes, rank, to, i);
        MPI_Put(out, bytes, MPI_BYTE, to, at, bytes, MPI_BYTE, win);
        code_is(MPI_Win_flush(to, win), MPI_SUCCESS, "a put over borders");
        MPI_Get(in, bytes, MPI_BYTE, to, at, bytes, MPI_BYTE, win);
        code_is(MPI_Win_flush(to, win), MPI_SUCCESS, "a get over borders");
        verify(in, (size_t)bytes, rank, to, i, one_sided_rule);
        fill(out, (size_t)bytes, rank, to, 100 + i);
        MPI_Accumulate(out, bytes, MPI_BYTE, to, at, bytes, MPI_BYTE, MPI_REPLACE, win);
        MPI_Get_accumulate(NULL, 0, MPI_BYTE, in, bytes, MPI_BYTE, to, at, bytes, MPI_BYTE, MPI_NO_OP, win);
        code_is(MPI_Win_unlock(to, win), MPI_SUCCESS, "accumulates over borders");
        verify(in, (size_t)bytes, rank, to, 100 + i, one_sided_rule);
    }
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, win);
    MPI_Put(out, 2, MPI_BYTE, to, there[to] + 2 * kPiece + kPiece / 2 - 1, 2, MPI_BYTE, win);
    code_is(MPI_Win_unlock(to, win), MPI_ERR_RMA_RANGE, "a put over the end of the last piece");
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = 0; k < 3; k++) MPI_Win_detach(win, memory + k * kPiece);
    MPI_Win_free(&win);
    free(memory);
    free(there);
}

/* 11.6: what has no epoch, no memory, or no meaning, is told */
static void errors(void) {
    int memory[4] = {0}, value = 1;
    MPI_Win win;
    MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    code_is(MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC, "a put without an epoch");
    code_is(MPI_Win_flush(0, win), MPI_ERR_RMA_SYNC, "a flush without a lock");
    code_is(MPI_Win_unlock(0, win), MPI_ERR_RMA_SYNC, "an unlock without a lock");
    code_is(MPI_Win_unlock_all(win), MPI_ERR_RMA_SYNC, "an unlock_all without a lock_all");
    code_is(MPI_Win_complete(win), MPI_ERR_RMA_SYNC, "a complete without a start");
    code_is(MPI_Win_wait(win), MPI_ERR_RMA_SYNC, "a wait without a post");
    MPI_Win_lock(MPI_LOCK_SHARED, next_rank(), 0, win);
    code_is(MPI_Put(&value, 1, MPI_INT, next_rank(), 4, 1, MPI_INT, win), MPI_ERR_RMA_RANGE, "a put behind the end");
    code_is(MPI_Put(memory, 3, MPI_INT, next_rank(), 2, 3, MPI_INT, win), MPI_ERR_RMA_RANGE, "a put over the end");
    code_is(MPI_Accumulate(&value, 1, MPI_INT, next_rank(), 0, 1, MPI_INT, MPI_MINLOC, win), MPI_ERR_OP,
            "MPI_MINLOC of integers");
    code_is(MPI_Win_lock_all(0, win), MPI_ERR_RMA_SYNC, "a lock_all beside a lock");
    code_is(MPI_Win_lock(MPI_LOCK_SHARED, next_rank(), 0, win), MPI_ERR_RMA_SYNC, "a second lock");
    MPI_Datatype four;
    MPI_Type_contiguous(4, MPI_BYTE, &four);
    MPI_Type_commit(&four);
    const MPI_Datatype wrong[] = {four, MPI_FLOAT, MPI_DOUBLE, MPI_C_FLOAT_COMPLEX};
    for (int i = 0; i < 4; i++)
        code_is(MPI_Compare_and_swap(memory, memory, memory + 2, wrong[i], next_rank(), 0, win), MPI_ERR_TYPE,
                "a comparison of what is no whole number");
    MPI_Type_free(&four);
    MPI_Win_unlock(next_rank(), win);
    for (int all = 0; all < 2; all++) { /* between fences there is no other epoch, and none goes on behind it */
        MPI_Win_fence(0, win);
        code_is(all ? MPI_Win_lock_all(0, win) : MPI_Win_lock(MPI_LOCK_SHARED, next_rank(), 0, win), MPI_SUCCESS,
                "a lock");
        code_is(all ? MPI_Win_unlock_all(win) : MPI_Win_unlock(next_rank(), win), MPI_SUCCESS, "an unlock");
        code_is(MPI_Put(&value, 1, MPI_INT, next_rank(), 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC, "a put behind a lock");
        MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    }
    MPI_Win_free(&win);

    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_lock(MPI_LOCK_SHARED, next_rank(), 0, win);
    MPI_Put(&value, 1, MPI_INT, next_rank(), (MPI_Aint)memory, 1, MPI_INT, win);
    code_is(MPI_Win_flush(next_rank(), win), MPI_ERR_RMA_RANGE, "a put into memory that is not attached");
    MPI_Get(&value, 1, MPI_INT, next_rank(), (MPI_Aint)memory, 1, MPI_INT, win);
    code_is(MPI_Win_flush(next_rank(), win), MPI_ERR_RMA_RANGE, "a get from memory that is not attached");
    code_is(MPI_Win_flush(next_rank(), win), MPI_SUCCESS, "the error is told once");
    MPI_Put(in, kLargest, MPI_BYTE, next_rank(), (MPI_Aint)memory, kLargest, MPI_BYTE, win);
    code_is(MPI_Win_flush(next_rank(), win), MPI_ERR_RMA_RANGE, "a large put into memory that is not attached");
    MPI_Get(in, kLargest, MPI_BYTE, next_rank(), (MPI_Aint)memory, kLargest, MPI_BYTE, win);
    code_is(MPI_Win_flush(next_rank(), win), MPI_ERR_RMA_RANGE, "a large get from memory that is not attached");
    MPI_Win_unlock(next_rank(), win);
    /* Also where the end of an epoch needs no answer of the target. */
    MPI_Group world, to, from;
    const int next = next_rank(), last = last_rank();
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &next, &to);
    MPI_Group_incl(world, 1, &last, &from);
    for (int i = 0; i < 2; i++) {
        MPI_Win_post(from, 0, win);
        MPI_Win_start(to, 0, win);
        if (i)
            MPI_Accumulate(&value, 1, MPI_INT, next, (MPI_Aint)memory, 1, MPI_INT, MPI_SUM, win);
        else
            MPI_Put(&value, 1, MPI_INT, next, (MPI_Aint)memory, 1, MPI_INT, win);
        code_is(MPI_Win_complete(win), MPI_ERR_RMA_RANGE, "an epoch that wrote to memory that is not attached");
        code_is(MPI_Win_wait(win), MPI_SUCCESS, "the other side of that epoch");
    }
    MPI_Group_free(&world);
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    MPI_Win_free(&win);
}

/* 11.2: windows of sub-communicators, many at once, freed in another order */
static void many(void) {
    enum { kWindows = 12 };
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    int me, size;
    MPI_Comm_rank(half, &me);
    MPI_Comm_size(half, &size);
    MPI_Win windows[kWindows];
    long* memory[kWindows];
    for (int i = 0; i < kWindows; i++) MPI_Win_allocate(8 * size, 8, MPI_INFO_NULL, half, &memory[i], &windows[i]);
    for (int i = 0; i < kWindows; i++) MPI_Win_fence(0, windows[i]);
    long* const values = allocate(kWindows * size * sizeof(long)); /* theirs until the fence */
    for (long i = 0; i < kWindows; i++)
        for (int to = 0; to < size; to++) {
            long* const value = &values[i * size + to];
            *value = 1000 * i + 100 * me + to;
            MPI_Accumulate(value, 1, MPI_LONG, to, me, 1, MPI_LONG, MPI_REPLACE, windows[i]);
        }
    for (int i = kWindows - 1; i >= 0; i--) MPI_Win_fence(0, windows[i]);
    for (long i = 0; i < kWindows; i++)
        for (int from = 0; from < size; from++)
            check(memory[i][from] == 1000 * i + 100 * from + me, "a value of one of many windows");
    free(values);
    for (int i = 0; i < kWindows; i++) MPI_Win_free(&windows[i * 5 % kWindows]);
    MPI_Comm_free(&half);
}

static const rule_t rules[] = {{created, "11.2.1 created windows"},
                               {allocated, "11.2.2 allocated windows"},
                               {puts_by_fence, "11.3.1 puts"},
                               {gets_by_fence, "11.3.2 gets"},
                               {nobody, "11.3 MPI_PROC_NULL"},
                               {requests, "11.3.5 request-based operations"},
                               {dynamic, "11.2.4 dynamic windows"},
                               {borders, "11.2.4 borders"},
                               {errors, "11.6 errors"},
                               {many, "11.2 many windows"},
                               {NULL, NULL}};

/* whether the name of a rule begins with one of these */
static int begins(const char* section, char** names, int count) {
    for (int i = 0; i < count; i++)
        if (strncmp(section, names[i], strlen(names[i])) == 0) return 1;
    return 0;
}

/* one_sided [SEED [BEGIN [BEGIN...]]]: only the rules whose name begins with the first BEGIN, and none that begins with
 * another */
int main(int argc, char** argv) {
    program = "one_sided";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    one_sided_rank = rank;
    one_sided_ranks = ranks;
    if (argc > 1) one_sided_seed = (unsigned)strtoul(argv[1], NULL, 10);
    out = allocate(kLargest + 8);
    in = allocate(kLargest + 8);
    const rule_t* const parts[] = {rules, one_sided_sync(), one_sided_types(), one_sided_fit(), one_sided_random()};
    int count = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (const rule_t* each = parts[i]; each->section; each++) {
            if (argc > 2 && !begins(each->section, argv + 2, 1)) continue;
            if (argc > 3 && begins(each->section, argv + 3, argc - 3)) continue;
            one_sided_rule = each->section;
            MPI_Barrier(MPI_COMM_WORLD);
            each->run();
            count++;
        }
    free(out);
    free(in);
    if (count == 0) fail("no rule begins with '%s'", argc > 2 ? argv[2] : "");
    if (rank == 0) printf("one_sided: %d ranks ok, %d rules, %ld checks\n", ranks, count, one_sided_checks);
    MPI_Finalize();
    return 0;
}
