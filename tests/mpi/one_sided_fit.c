/* Chapter 11.3: what fits, and what does not. */
#include "one_sided.h"

/* Ints of the target's memory: all, or blocks of three. The index of the i-th. */
enum { kInts = 9000, kMemory = kInts / 3 * 5 };
static int place_of(int i, int blocks) { return blocks ? i / 3 * 5 + i % 3 : i; }

/* The first `count` ints are `times` what was brought, added to what was there with `adds`. Nothing else has changed.
 */
static void brought(const int* memory, int count, int blocks, int times, int adds, const char* what) {
    int* const model = allocate(kMemory * sizeof(int));
    for (int i = 0; i < kMemory; i++) model[i] = -i;
    for (int i = 0; i < count; i++) model[place_of(i, blocks)] = times * (i + 7) - (adds ? place_of(i, blocks) : 0);
    check(memcmp(model, memory, kMemory * sizeof(int)) == 0, what);
    free(model);
}

/* 11.3.1 to 11.3.4: what is moved fits into a buffer that may be longer */
static void shorter(void) {
    static const int kCounts[] = {0, 1, 3, 4, 3000, 3001, kInts - 1, kInts};
    int *memory, *const data = allocate(kInts * sizeof(int)), *const result = allocate(kMemory * sizeof(int));
    MPI_Win win;
    MPI_Datatype triples;
    MPI_Type_vector(kInts / 3, 3, 5, MPI_INT, &triples);
    MPI_Type_commit(&triples);
    MPI_Win_allocate(kMemory * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    const int to = next_rank();
    for (int i = 0; i < kInts; i++) data[i] = i + 7;
    for (int round = 0; round < 2 * (int)(sizeof kCounts / sizeof *kCounts); round++) {
        const int count = kCounts[round / 2], blocks = round % 2, all = blocks ? 1 : kInts;
        const MPI_Datatype type = blocks ? triples : MPI_INT;
        for (int i = 0; i < kMemory; i++) memory[i] = -i;
        MPI_Win_fence(0, win);
        MPI_Put(count ? data : NULL, count, MPI_INT, to, 0, all, type, win);
        MPI_Win_fence(0, win);
        brought(memory, count, blocks, 1, 0, "a put of less than the target's buffer");
        for (int i = 0; i < kMemory; i++) memory[i] = result[i] = -i;
        for (int i = 0; i < count; i++) memory[i] = i + 7;
        MPI_Win_fence(0, win);
        MPI_Get(result, all, type, to, 0, count, MPI_INT, win);
        MPI_Win_fence(0, win);
        brought(result, count, blocks, 1, 0, "a get into a longer buffer");
        for (int i = 0; i < kMemory; i++) memory[i] = -i;
        MPI_Win_fence(0, win);
        MPI_Accumulate(count ? data : NULL, count, MPI_INT, to, 0, all, type, MPI_SUM, win);
        MPI_Win_fence(0, win);
        brought(memory, count, blocks, 1, 1, "an accumulate of less than the target's buffer");
        for (int i = 0; i < kMemory; i++) result[i] = 1;
        MPI_Win_fence(0, win);
        MPI_Get_accumulate(data, count, MPI_INT, result, kMemory, MPI_INT, to, 0, all, type, MPI_SUM, win);
        MPI_Win_fence(0, win);
        brought(memory, count, blocks, 2, 1, "a get_accumulate of less than the target's buffer");
        for (int i = 0; i < kMemory; i++)
            check(result[i] == (i < kInts ? (i < count ? i + 7 : 0) - place_of(i, blocks) : 1),
                  "the result of a get_accumulate with a short origin");
    }
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_lock(MPI_LOCK_SHARED, to, 0, win);
    code_is(MPI_Put(data, 2, MPI_INT, to, 0, 1, MPI_INT, win), MPI_ERR_TRUNCATE, "a put that does not fit");
    code_is(MPI_Put(data, 1, MPI_INT, to, 0, 0, MPI_INT, win), MPI_ERR_TRUNCATE, "a put into nothing");
    code_is(MPI_Get(result, 1, MPI_INT, to, 0, 2, MPI_INT, win), MPI_ERR_TRUNCATE, "a get that does not fit");
    code_is(MPI_Get(NULL, 0, MPI_INT, to, 0, 2, MPI_INT, win), MPI_ERR_TRUNCATE, "a get into nothing");
    code_is(MPI_Accumulate(data, 2, MPI_INT, to, 0, 1, MPI_INT, MPI_SUM, win), MPI_ERR_TRUNCATE,
            "an accumulate that does not fit");
    code_is(MPI_Get_accumulate(data, 2, MPI_INT, result, 1, MPI_INT, to, 0, 2, MPI_INT, MPI_SUM, win), MPI_ERR_TRUNCATE,
            "a get_accumulate whose result does not fit");
    code_is(MPI_Get_accumulate(NULL, 0, MPI_INT, NULL, 0, MPI_INT, to, 0, 2, MPI_INT, MPI_NO_OP, win), MPI_ERR_TRUNCATE,
            "a get_accumulate into nothing");
    code_is(MPI_Put(data, 1, MPI_INT, to, 0, kMemory + 1, MPI_INT, win), MPI_ERR_RMA_RANGE,
            "a buffer over the end of the window");
    MPI_Win_unlock(to, win);
    MPI_Type_free(&triples);
    MPI_Win_free(&win);
    free(data);
    free(result);
}

static const rule_t rules[] = {{shorter, "11.3.1 buffers that are longer than what is moved"}, {NULL, NULL}};

const rule_t* one_sided_fit(void) {
    enter_part();
    return rules;
}
