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

/* 11.3.4, 11.3.5: operations with requests between strided buffers, of pairs too, also of some that have gaps */
typedef struct double_int {
    double value;
    int place;
} double_int_t;
typedef struct pair {
    int value, place;
} pair_t;

static void set_pair(MPI_Datatype type, void* memory, int at, pair_t to) {
    if (type == MPI_2INT)
        ((pair_t*)memory)[at] = to;
    else
        ((double_int_t*)memory)[at].value = to.value, ((double_int_t*)memory)[at].place = to.place;
}

static int pair_is(MPI_Datatype type, const void* memory, int at, pair_t wanted) {
    if (type == MPI_2INT)
        return ((const pair_t*)memory)[at].value == wanted.value && ((const pair_t*)memory)[at].place == wanted.place;
    return ((const double_int_t*)memory)[at].value == wanted.value &&
           ((const double_int_t*)memory)[at].place == wanted.place;
}

/* The lower index of equal values, with both operations. */
static pair_t located(MPI_Op op, pair_t a, pair_t b) {
    if (a.value == b.value) return a.place < b.place ? a : b;
    return (op == MPI_MINLOC) == (a.value < b.value) ? a : b;
}

static MPI_Datatype every(int stride, int count, MPI_Datatype of) {
    MPI_Datatype type;
    MPI_Type_vector(count, 1, stride, of, &type);
    MPI_Type_commit(&type);
    return type;
}

/* Every second element of the target, every third one of the origin, one after the other in the result. */
static void pairs_by_request(MPI_Datatype type, MPI_Op op, int count, MPI_Win win, void* memory) {
    const int to = next_rank(), places = 3 * count;
    const pair_t unused = {-3, -4};
    void *const data = allocate((size_t)count * 3 * sizeof(double_int_t)), *const result = allocate(
                                                                               (size_t)places * sizeof(double_int_t));
    pair_t* const model = allocate((size_t)places * sizeof *model);
    MPI_Datatype there = every(2, count, type), here = every(3, count, type);
    MPI_Request request;
    for (int i = 0; i < places; i++) {
        model[i] = (pair_t){i * 5 % 7, 1000 + i};
        set_pair(type, memory, i, model[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    for (int turn = 0; turn < 3; turn++) { /* put, get_accumulate, accumulate */
        for (int i = 0; i < 3 * count; i++) set_pair(type, data, i, (pair_t){-1000, -1000});
        for (int i = 0; i < count; i++) set_pair(type, data, 3 * i, (pair_t){(i * 3 + turn) % 7, i});
        for (int i = 0; i < places; i++) set_pair(type, result, i, unused);
        if (turn == 0)
            MPI_Rput(data, 1, here, to, 0, 1, there, win, &request);
        else if (turn == 1)
            MPI_Rget_accumulate(data, 1, here, result, count, type, to, 0, 1, there, op, win, &request);
        else
            MPI_Raccumulate(data, 1, here, to, 0, 1, there, op, win, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < count && turn == 1; i++)
            check(pair_is(type, result, i, model[2 * i]), "MPI_Rget_accumulate's result");
        for (int i = count; i < places; i++)
            check(pair_is(type, result, i, unused), "MPI_Rget_accumulate writes behind its result");
        memset(data, 0x55, (size_t)count * 3 * sizeof(double_int_t)); /* ours again */
        for (int i = 0; i < count; i++) {
            const pair_t said = {(i * 3 + turn) % 7, i};
            model[2 * i] = turn ? located(op, model[2 * i], said) : said;
        }
        MPI_Win_flush(to, win);
        for (int i = 0; i < places; i++) set_pair(type, result, i, unused);
        MPI_Rget(result, 1, there, to, 0, 1, here, win, &request); /* elements 0, 3, 6... into every second one */
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < places; i++)
            check(pair_is(type, result, i, i % 2 || i / 2 >= count ? unused : model[i / 2 * 3]),
                  "MPI_Rget between strided buffers");
    }
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < places; i++) check(pair_is(type, memory, i, model[i]), "what requests have left in the window");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Type_free(&there);
    MPI_Type_free(&here);
    free(model), free(result), free(data);
}

static void requests(void) {
    enum { kMost = 900 };
    void* memory;
    MPI_Win win;
    MPI_Win_allocate(3 * kMost * (MPI_Aint)sizeof(double_int_t), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    const MPI_Datatype types[] = {MPI_2INT, MPI_DOUBLE_INT};
    const MPI_Op ops[] = {MPI_MINLOC, MPI_MAXLOC};
    for (int i = 0; i < 8; i++) pairs_by_request(types[i & 1], ops[i >> 1 & 1], i & 4 ? kMost : 5, win, memory);
    MPI_Win_free(&win);
}

static const rule_t rules[] = {{shorter, "11.3.1 buffers that are longer than what is moved"},
                               {requests, "11.3.5 strided buffers and pairs by request"},
                               {NULL, NULL}};

const rule_t* one_sided_fit(void) {
    enter_part();
    return rules;
}
