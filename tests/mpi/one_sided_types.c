/* Chapter 11.3 and 4: every predefined type and operation (one_sided_rows.c), derived types at both sides. The
 * reference of an operation is MPI_Reduce_local. */
#include "one_sided.h"
#include "one_sided_rows.h"

static const type_row_t* row_of(MPI_Datatype type) {
    const type_row_t* row = type_rows();
    while (row->type != type) row++;
    return row;
}

/* What MPI says becomes of `into`. */
static void reduce(const void* from, void* into, int count, const type_row_t* type, MPI_Op op) {
    if (op == MPI_NO_OP) return;
    if (op == MPI_REPLACE)
        MPI_Sendrecv(from, count, type->type, 0, 0, into, count, type->type, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    else
        MPI_Reduce_local(from, into, count, type->type, op);
}

static int value_of(int who, int place, int number) { return 1 + (who * 31 + place * 7 + number * 13) % 5; }

/* Values, and zeros in the gaps. */
static void set_all(char* memory, int count, const type_row_t* type, int who, int number) {
    memset(memory, 0, (size_t)count * type->size);
    for (int i = 0; i < count; i++) type->set(memory + (size_t)i * type->size, value_of(who, i, number));
}

/* x87's numbers have padding that nobody has to keep. */
static int same(const char* a, const char* b, size_t bytes, const type_row_t* type) {
    if (type->type == MPI_LONG_DOUBLE_INT) {
        for (size_t i = 0; i < bytes; i += type->size) /* ten bytes of a number, then an int */
            if (memcmp(a + i, b + i, 10) || memcmp(a + i + 16, b + i + 16, sizeof(int))) return 0;
        return 1;
    }
    if (!type->padded) return memcmp(a, b, bytes) == 0;
    for (size_t i = 0; i < bytes / sizeof(long double); i++) {
        long double x, y;
        memcpy(&x, a + i * sizeof x, sizeof x);
        memcpy(&y, b + i * sizeof y, sizeof y);
        if (x != y) return 0;
    }
    return 1;
}

/* 11.3.4, 5.9.2: each operation on each type: accumulate, get_accumulate and fetch_and_op, in one order */
static void operations(void) {
    enum { kMost = 300 };
    char* memory;
    MPI_Win win;
    MPI_Win_allocate(kMost * 32, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    char *const data = allocate(kMost * 32), *const model = allocate(kMost * 32), *const before = allocate(kMost * 32),
                *const wanted = allocate(kMost * 32);
    const type_row_t* const types = type_rows();
    const op_row_t* const ops = op_rows();
    for (int t = 0; types[t].name; t++)
        for (int o = 0; o < kOps; o++) {
            const type_row_t* const type = &types[t];
            const MPI_Op op = ops[o].op;
            if (!(ops[o].kinds & type->kind)) continue;
            const int count = 1 + (t * 37 + o * 11) % kMost, to = next_rank(), from = last_rank();
            const size_t bytes = (size_t)count * type->size;
            char what[80];
            snprintf(what, sizeof what, "%d of %s with %s", count, type->name, ops[o].name);
            set_all(memory, count, type, rank, 1);
            set_all(model, count, type, to, 1); /* the target's memory as we see it */
            MPI_Win_fence(0, win);
            set_all(data, count, type, rank, 2);
            if (op != MPI_NO_OP) /* which is not for MPI_Accumulate */
                MPI_Accumulate(data, count, type->type, to, 0, count, type->type, op, win);
            MPI_Win_fence(0, win);
            reduce(data, model, count, type, op);
            memcpy(wanted, model, bytes);
            set_all(data, count, type, rank, 3);
            memset(before, 0, bytes);
            MPI_Get_accumulate(data, count, type->type, before, count, type->type, to, 0, count, type->type, op, win);
            MPI_Win_fence(0, win);
            check(same(before, wanted, bytes, type), what);
            reduce(data, model, count, type, op);
            memcpy(wanted, model, type->size);
            memset(before, 0, type->size);
            MPI_Fetch_and_op(data, before, type->type, to, 0, op, win);
            MPI_Win_fence(0, win);
            check(same(before, wanted, type->size, type), what);
            reduce(data, model, 1, type, op);
            /* Our own memory is what our origin has made of it. */
            set_all(wanted, count, type, rank, 1);
            set_all(data, count, type, from, 2);
            reduce(data, wanted, count, type, op);
            set_all(data, count, type, from, 3);
            reduce(data, wanted, count, type, op);
            reduce(data, wanted, 1, type, op);
            check(same(memory, wanted, bytes, type), what);
            MPI_Win_fence(0, win);
        }
    free(data);
    free(model);
    free(before);
    free(wanted);
    MPI_Win_free(&win);
}

/* 11.3.4.4: compare and swap of each type that it is for */
static void swaps(void) {
    char* memory;
    MPI_Win win;
    MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    const type_row_t* const types = type_rows();
    for (int t = 0; types[t].name; t++) {
        const type_row_t* const type = &types[t];
        if (!(type->kind & (kInteger | kLogical | kByte))) continue;
        char compare[16] = {0}, data[16] = {0}, before[16], wanted[16] = {0};
        memset(memory, 0xcc, 64);
        type->set(memory + 16, 1);
        MPI_Win_fence(0, win);
        for (int match = 0; match < 2; match++) {
            type->set(compare, match ? 1 : 0);
            type->set(data, match ? 0 : 1);
            memset(before, 0, sizeof before);
            MPI_Win_lock(MPI_LOCK_SHARED, next_rank(), 0, win);
            MPI_Compare_and_swap(data, compare, before, type->type, next_rank(), 16, win);
            memset(compare, 0x77, sizeof compare); /* before the flush: MPI does not allow it, the module copies */
            type->set(compare, match ? 1 : 0);
            MPI_Win_unlock(next_rank(), win);
            type->set(wanted, 1);
            check(memcmp(before, wanted, type->size) == 0, type->name);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        type->set(wanted, 0);
        check(memcmp(memory + 16, wanted, type->size) == 0, type->name);
        check((unsigned char)memory[15] == 0xcc && (unsigned char)memory[16 + type->size] == 0xcc,
              "bytes beside a swap were written");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_free(&win);
}

enum { kShapes = 7 };
/* Derived types of `number` elements; false: there is no such type. Never more than 4 times as large. */
static MPI_Datatype shape(int which, MPI_Datatype element, int number) {
    MPI_Datatype type, inner;
    MPI_Aint lb, extent;
    MPI_Type_get_extent(element, &lb, &extent);
    int* const lengths = allocate(sizeof(int) * (size_t)(number + 1));
    int* const places = allocate(sizeof(int) * (size_t)(number + 1));
    for (int i = 0; i < number; i++) lengths[i] = 1;
    switch (which) {
    case 0:
        MPI_Type_contiguous(number, element, &type);
        break;
    case 1:
        MPI_Type_vector(number, 1, 2, element, &type);
        break;
    case 2: /* backwards */
        for (int i = 0; i < number; i++) places[i] = 2 * (number - 1 - i);
        MPI_Type_indexed(number, lengths, places, element, &type);
        break;
    case 3: { /* blocks of growing length */
        int blocks = 0, left = number, at = 1;
        for (; left; blocks++) {
            lengths[blocks] = left < blocks + 1 ? left : blocks + 1;
            left -= lengths[blocks];
            places[blocks] = at;
            at += lengths[blocks] + 1;
        }
        MPI_Type_indexed(blocks, lengths, places, element, &type);
        break;
    }
    case 4: { /* a part of a matrix of two columns */
        const int sizes[] = {number, 2}, parts[] = {number, 1}, starts[] = {0, 1};
        MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, element, &type);
        break;
    }
    case 5:
        MPI_Type_create_resized(element, 0, 3 * extent, &inner);
        MPI_Type_contiguous(number, inner, &type);
        MPI_Type_free(&inner);
        break;
    default: { /* a structure of two parts */
        const int parts[] = {number / 2, number - number / 2};
        const MPI_Aint offsets[] = {2 * extent, (number / 2 + 3) * extent};
        const MPI_Datatype types[] = {element, element};
        MPI_Type_create_struct(2, parts, offsets, types, &type);
    }
    }
    MPI_Type_commit(&type);
    free(lengths);
    free(places);
    return type;
}

/* 11.3, 4.1: derived types at both sides, of all pairs of shapes; freed before the operations are over. The reference
 * is a message to oneself. */
static void derived(void) {
    enum { kBytes = 400000 };
    char* memory;
    MPI_Win win;
    MPI_Win_allocate(kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    char *const data = allocate(kBytes), *const model = allocate(kBytes), *const result = allocate(kBytes),
                *const packed = allocate(kBytes);
    const MPI_Datatype elements[] = {MPI_INT, MPI_DOUBLE, MPI_CHAR, MPI_DOUBLE_INT, MPI_SHORT_INT};
    static const int numbers[] = {1, 7, 500, 2500};
    for (int a = 0; a < kShapes; a++)
        for (int b = 0; b < kShapes; b++)
            for (int e = 0; e < 5; e++) {
                const int number = numbers[(a + 2 * b + e) % 4], count = number < 100 ? 3 : 1;
                MPI_Aint lb, extent;
                MPI_Type_get_extent(elements[e], &lb, &extent);
                MPI_Datatype ours = shape(a, elements[e], number * count), theirs = shape(b, elements[e], number);
                const int to = next_rank(), from = last_rank(), what = a * 100 + b * 10 + e;
                fill((unsigned char*)data, kBytes, rank, 0, what);
                memset(memory, 0x11, kBytes);
                memset(result, 0x22, kBytes);
                MPI_Win_fence(0, win);
                MPI_Put(data, 1, ours, to, 8, count, theirs, win);
                MPI_Type_free(&ours);
                MPI_Type_free(&theirs);
                MPI_Win_fence(0, win);
                ours = shape(a, elements[e], number * count), theirs = shape(b, elements[e], number);
                fill((unsigned char*)packed, kBytes, from, 0, what);
                memset(model, 0x11, kBytes);
                MPI_Sendrecv(packed, 1, ours, 0, 1, model + 8, count, theirs, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
                check(memcmp(memory, model, kBytes) == 0, "a put with derived types");
                MPI_Win_fence(0, win);
                MPI_Get(result, 1, ours, to, 8, count, theirs, win);
                MPI_Win_fence(0, win);
                memset(model, 0x22, kBytes);
                MPI_Sendrecv(data, 1, ours, 0, 1, model, 1, ours, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
                check(memcmp(result, model, kBytes) == 0, "a get with derived types");
                /* What was put is replaced by itself, so results are what was there. */
                memset(result, 0x22, kBytes);
                MPI_Get_accumulate(data, 1, ours, result, 1, ours, to, 8, count, theirs, MPI_REPLACE, win);
                MPI_Win_fence(0, win);
                check(memcmp(result, model, kBytes) == 0, "a get_accumulate with derived types");
                memset(model, 0x11, kBytes);
                MPI_Sendrecv(packed, 1, ours, 0, 1, model + 8, count, theirs, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
                check(memcmp(memory, model, kBytes) == 0, "what a get_accumulate has put back");
                MPI_Win_fence(0, win);
                MPI_Type_free(&ours);
                MPI_Type_free(&theirs);
            }
    free(data);
    free(model);
    free(result);
    free(packed);
    MPI_Win_free(&win);
}

/* 11.3.4: sums and places of maxima through derived types at the target, also backwards */
static void derived_sums(void) {
    enum { kNumber = 2000 };
    struct place {
        short x;
        int index;
    } * places;
    MPI_Win win;
    MPI_Win_allocate(4 * kNumber * (MPI_Aint)sizeof(struct place), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &places, &win);
    struct place* const data = allocate(kNumber * sizeof(struct place));
    for (int which = 0; which < kShapes; which++) {
        memset(places, 0, 4 * kNumber * sizeof(struct place));
        MPI_Win_fence(0, win);
        MPI_Datatype type = shape(which, MPI_SHORT_INT, kNumber);
        for (int i = 0; i < kNumber; i++) data[i] = (struct place){(short)(100 + (i * 17 + rank * 5) % 23), rank};
        for (int to = 0; to < ranks; to++)
            MPI_Accumulate(data, kNumber, MPI_SHORT_INT, to, 0, 1, type, MPI_MAXLOC, win);
        MPI_Win_fence(0, win);
        struct place* const model = allocate(kNumber * sizeof(struct place));
        memset(model, 0, kNumber * sizeof(struct place));
        for (int from = 0; from < ranks; from++)
            for (int i = 0; i < kNumber; i++) {
                const short x = (short)(100 + (i * 17 + from * 5) % 23);
                if (x > model[i].x) model[i] = (struct place){x, from};
            }
        memset(data, 0, kNumber * sizeof(struct place));
        MPI_Sendrecv(places, 1, type, 0, 0, data, kNumber, MPI_SHORT_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
        for (int i = 0; i < kNumber; i++)
            check(data[i].x == model[i].x && data[i].index == model[i].index, "a maximum and its place");
        free(model);
        MPI_Type_free(&type);
        MPI_Win_fence(0, win);
    }
    free(data);
    MPI_Win_free(&win);
}

/* 17.1.9 of MPI-3.1: types of a precision and a range. Their Fortran indexes are not the same at all ranks: the first
 * has given one away before, and each asks for them in an order of its own. */
static void fortran_types(void) {
    enum { kNumber = 5 };
    MPI_Datatype other, types[2];
    MPI_Type_dup(MPI_INT, &other);
    if (rank == 0) (void)MPI_Type_c2f(other);
    MPI_Type_create_f90_real(6, 30, &types[0]);
    MPI_Type_create_f90_real(15, 307, &types[1]);
    for (int i = 0; i < 2; i++) (void)MPI_Type_c2f(types[rank % 2 ? 1 - i : i]);
    char* memory;
    MPI_Win win;
    MPI_Win_allocate(256, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    for (int i = 0; i < 2; i++) {
        const type_row_t* const like = row_of(i == 0 ? MPI_FLOAT : MPI_DOUBLE);
        const size_t bytes = kNumber * like->size;
        char data[64], before[64], model[64];
        MPI_Datatype strided;
        MPI_Type_vector(kNumber, 1, 2, types[i], &strided);
        MPI_Type_commit(&strided);
        memset(memory, 0, 256);
        set_all(memory, kNumber, like, rank, 1);
        set_all(model, kNumber, like, next_rank(), 1);
        set_all(data, kNumber, like, 0, 2);
        MPI_Win_fence(0, win);
        code_is(MPI_Accumulate(data, kNumber, types[i], next_rank(), 0, kNumber, types[i], MPI_SUM, win), MPI_SUCCESS,
                "an accumulate of a type with a precision");
        code_is(MPI_Win_fence(0, win), MPI_SUCCESS, "a fence behind it");
        reduce(data, model, kNumber, like, MPI_SUM);
        memset(before, 0, sizeof before);
        code_is(MPI_Get_accumulate(data, kNumber, types[i], before, kNumber, types[i], next_rank(), 0, kNumber,
                                   types[i], MPI_PROD, win),
                MPI_SUCCESS, "a get_accumulate of it");
        code_is(MPI_Win_fence(0, win), MPI_SUCCESS, "a fence behind that");
        check(memcmp(before, model, bytes) == 0, "the result of a get_accumulate of it");
        reduce(data, model, kNumber, like, MPI_PROD);
        code_is(MPI_Fetch_and_op(data, before, types[i], next_rank(), 0, MPI_SUM, win), MPI_SUCCESS,
                "a fetch_and_op of it");
        code_is(MPI_Win_fence(0, win), MPI_SUCCESS, "a fence behind the fetch_and_op");
        check(memcmp(before, model, like->size) == 0, "the result of a fetch_and_op of it");
        code_is(MPI_Accumulate(data, kNumber, types[i], next_rank(), 128, 1, strided, MPI_SUM, win), MPI_SUCCESS,
                "an accumulate of a vector of it");
        code_is(MPI_Win_fence(0, win), MPI_SUCCESS, "a fence behind the vector");
        for (int k = 0; k < kNumber; k++)
            check(memcmp(memory + 128 + 2 * (size_t)k * like->size, data + (size_t)k * like->size, like->size) == 0,
                  "a sum through a vector of it");
        MPI_Type_free(&strided);
    }
    MPI_Win_free(&win);
    MPI_Type_free(&other);
}

static const rule_t rules[] = {{operations, "11.3.4 operations"},
                               {swaps, "11.3.4.4 compare and swap"},
                               {derived, "11.3 derived types"},
                               {derived_sums, "11.3.4 derived types and operations"},
                               {fortran_types, "17.1.9 types of a precision"},
                               {NULL, NULL}};

const rule_t* one_sided_types(void) {
    enter_part();
    return rules;
}
