/* Rules of reductions (5.9): all predefined types and operators, operators of users, elements with gaps. */
#include <complex.h>
#include <stdbool.h>

#include "collectives.h"

typedef struct {
    float value;
    int index;
} float_int_t;
typedef struct {
    double value;
    int index;
} double_int_t;
typedef struct {
    long value;
    int index;
} long_int_t;
typedef struct {
    short value;
    int index;
} short_int_t;
typedef struct {
    int value, index;
} int_int_t;
typedef struct {
    long double value;
    int index;
} long_double_int_t;

enum { INTEGER = 1, REAL = 2, LOGICAL = 4, BITS = 8, COMPLEX = 16, PAIR = 32 };

/* X(MPI's name, C's name, what it is) */
#define PLAIN_TYPES(X)                                                                                                 \
    X(MPI_SIGNED_CHAR, signed char, INTEGER | LOGICAL | BITS)                                                          \
    X(MPI_UNSIGNED_CHAR, unsigned char, INTEGER | LOGICAL | BITS)                                                      \
    X(MPI_SHORT, short, INTEGER | LOGICAL | BITS)                                                                      \
    X(MPI_UNSIGNED_SHORT, unsigned short, INTEGER | LOGICAL | BITS)                                                    \
    X(MPI_INT, int, INTEGER | LOGICAL | BITS)                                                                          \
    X(MPI_UNSIGNED, unsigned, INTEGER | LOGICAL | BITS)                                                                \
    X(MPI_LONG, long, INTEGER | LOGICAL | BITS)                                                                        \
    X(MPI_UNSIGNED_LONG, unsigned long, INTEGER | LOGICAL | BITS)                                                      \
    X(MPI_LONG_LONG, long long, INTEGER | LOGICAL | BITS)                                                              \
    X(MPI_UNSIGNED_LONG_LONG, unsigned long long, INTEGER | LOGICAL | BITS)                                            \
    X(MPI_INT8_T, int8_t, INTEGER | LOGICAL | BITS)                                                                    \
    X(MPI_INT16_T, int16_t, INTEGER | LOGICAL | BITS)                                                                  \
    X(MPI_INT32_T, int32_t, INTEGER | LOGICAL | BITS)                                                                  \
    X(MPI_INT64_T, int64_t, INTEGER | LOGICAL | BITS)                                                                  \
    X(MPI_UINT8_T, uint8_t, INTEGER | LOGICAL | BITS)                                                                  \
    X(MPI_UINT16_T, uint16_t, INTEGER | LOGICAL | BITS)                                                                \
    X(MPI_UINT32_T, uint32_t, INTEGER | LOGICAL | BITS)                                                                \
    X(MPI_UINT64_T, uint64_t, INTEGER | LOGICAL | BITS)                                                                \
    X(MPI_AINT, MPI_Aint, INTEGER | BITS)                                                                              \
    X(MPI_OFFSET, MPI_Offset, INTEGER | BITS)                                                                          \
    X(MPI_BYTE, unsigned char, BITS)                                                                                   \
    X(MPI_C_BOOL, bool, LOGICAL)                                                                                       \
    X(MPI_FLOAT, float, REAL)                                                                                          \
    X(MPI_DOUBLE, double, REAL)                                                                                        \
    X(MPI_LONG_DOUBLE, long double, REAL)                                                                              \
    X(MPI_C_FLOAT_COMPLEX, float complex, COMPLEX)                                                                     \
    X(MPI_C_DOUBLE_COMPLEX, double complex, COMPLEX)
#define PAIR_TYPES(X)                                                                                                  \
    X(MPI_FLOAT_INT, float_int_t, PAIR)                                                                                \
    X(MPI_DOUBLE_INT, double_int_t, PAIR)                                                                              \
    X(MPI_LONG_INT, long_int_t, PAIR)                                                                                  \
    X(MPI_SHORT_INT, short_int_t, PAIR)                                                                                \
    X(MPI_2INT, int_int_t, PAIR)                                                                                       \
    X(MPI_LONG_DOUBLE_INT, long_double_int_t, PAIR)

/* Small whole numbers: exact in every type, also as products of two of all ranks. */
static int value_of(int from, int i, int most) { return (int)(word(from, 3, i, 0) % (unsigned)most) + 1; }

#define PLAIN(NAME, TYPE, IS)                                                                                          \
    static void set_##NAME(void* memory, int i, int from, int most) {                                                  \
        ((TYPE*)memory)[i] = (TYPE)value_of(from, i, most);                                                            \
    }                                                                                                                  \
    static bool same_##NAME(const void* one, const void* other, int i) {                                               \
        return ((const TYPE*)one)[i] == ((const TYPE*)other)[i];                                                       \
    }
#define PAIRED(NAME, TYPE, IS)                                                                                         \
    static void set_##NAME(void* memory, int i, int from, int most) {                                                  \
        ((TYPE*)memory)[i] = (TYPE){.value = value_of(from, i, most), .index = from};                                  \
    }                                                                                                                  \
    static bool same_##NAME(const void* one, const void* other, int i) {                                               \
        const TYPE *a = &((const TYPE*)one)[i], *b = &((const TYPE*)other)[i];                                         \
        return a->value == b->value && a->index == b->index;                                                           \
    }
PLAIN_TYPES(PLAIN)
PAIR_TYPES(PAIRED)

typedef struct {
    const char* name;
    MPI_Datatype type;
    size_t size;
    int is;
    void (*set)(void* memory, int i, int from, int most);
    bool (*same)(const void* one, const void* other, int i);
} type_t;

/* By MPI_Reduce_local, in the order of the ranks. */
static void expect(const type_t* type, MPI_Op op, int count, int most, void* out) {
    void* in = allocate((size_t)count * type->size);
    for (int i = 0; i < count; i++) type->set(out, i, ranks - 1, most);
    for (int from = ranks - 2; from >= 0; from--) {
        for (int i = 0; i < count; i++) type->set(in, i, from, most);
        MPI_Reduce_local(in, out, count, type->type, op);
    }
    free(in);
}

static void reduce_all(const type_t* type, MPI_Op op, const char* op_name, int count, int most) {
    void *expected = allocate((size_t)count * type->size), *in = allocate((size_t)count * type->size),
         *out = allocate((size_t)count * type->size), *kept = allocate((size_t)count * type->size);
    expect(type, op, count, most, expected);
    for (int way = 0; way < 4; way++) { /* allreduce, reduce; in place or not */
        const int root = (way + count) % ranks, in_place = way % 2 && (way < 2 || rank == root);
        for (int i = 0; i < count; i++) type->set(in, i, rank, most);
        memcpy(kept, in, (size_t)count * type->size);
        memset(out, 0, (size_t)count * type->size);
        if (in_place) memcpy(out, in, (size_t)count * type->size);
        const void* sent = in_place ? MPI_IN_PLACE : in;
        if (way < 2)
            MPI_Allreduce(sent, out, count, type->type, op, MPI_COMM_WORLD);
        else
            MPI_Reduce(sent, out, count, type->type, op, root, MPI_COMM_WORLD);
        for (int i = 0; i < count && (way < 2 || rank == root); i++)
            if (!type->same(out, expected, i))
                fail("%s: %s of %s, way %d: element %d of %d", rule, op_name, type->name, way, i, count);
        check(memcmp(kept, in, (size_t)count * type->size) == 0, "what is sent has changed");
    }
    free(expected), free(in), free(out), free(kept);
}

#define ENTRY(NAME, TYPE, IS)                                                                                          \
    {.name = #NAME, .type = NAME, .size = sizeof(TYPE), .is = IS, .set = set_##NAME, .same = same_##NAME},

/* 5.9.2, 5.9.4: each operator on each type that it is for */
static void predefined(void) {
    const type_t types[] = {PLAIN_TYPES(ENTRY) PAIR_TYPES(ENTRY)};
    const struct {
        MPI_Op op;
        const char* name;
        int on, most;
    } ops[] = {{MPI_MAX, "MPI_MAX", INTEGER | REAL, 100},
               {MPI_MIN, "MPI_MIN", INTEGER | REAL, 100},
               {MPI_SUM, "MPI_SUM", INTEGER | REAL | COMPLEX, 5},
               {MPI_PROD, "MPI_PROD", INTEGER | REAL | COMPLEX, 2},
               {MPI_LAND, "MPI_LAND", LOGICAL, 2},
               {MPI_LOR, "MPI_LOR", LOGICAL, 2},
               {MPI_LXOR, "MPI_LXOR", LOGICAL, 2},
               {MPI_BAND, "MPI_BAND", BITS, 100},
               {MPI_BOR, "MPI_BOR", BITS, 100},
               {MPI_BXOR, "MPI_BXOR", BITS, 100},
               {MPI_MAXLOC, "MPI_MAXLOC", PAIR, 20},
               {MPI_MINLOC, "MPI_MINLOC", PAIR, 20}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
            if (types[i].is & ops[k].on) {
                reduce_all(&types[i], ops[k].op, ops[k].name, 1, ops[k].most);
                reduce_all(&types[i], ops[k].op, ops[k].name, 37, ops[k].most);
            }
    for (int i = 0; i < kCountCount; i++) reduce_all(&types[4], MPI_SUM, "MPI_SUM", kCounts[i], 1000);
}

/* x -> a x + b: associative, not commutative. */
typedef struct {
    uint32_t a, b;
} map_t;
static void behind(void* in, void* inout, int* count, MPI_Datatype* type) {
    (void)type;
    for (int i = 0; i < *count; i++) {
        const map_t first = ((map_t*)in)[i], second = ((map_t*)inout)[i];
        ((map_t*)inout)[i] = (map_t){first.a * second.a, first.b * second.a + second.b};
    }
}
/* The same with gaps: 12 bytes of 24, and not from the first on. */
typedef struct {
    uint32_t before, a, gap, b, behind[2];
} wide_t;
static void wide_behind(void* in, void* inout, int* count, MPI_Datatype* type) {
    MPI_Aint lower, extent;
    MPI_Type_get_extent(*type, &lower, &extent);
    check(extent == sizeof(wide_t), "an operator gets the type that was given");
    for (int i = 0; i < *count; i++) {
        const wide_t* first = &((wide_t*)in)[i];
        wide_t* second = &((wide_t*)inout)[i];
        second->b = first->b * second->a + second->b;
        second->a = first->a * second->a;
    }
}
static map_t map_of(int from, int i) {
    return (map_t){(uint32_t)element(from, 0, 1, i) | 1, (uint32_t)element(from, 0, 2, i)};
}
static map_t all_maps(int i) {
    map_t out = map_of(0, i);
    int one = 1;
    for (int from = 1; from < ranks; from++) {
        map_t next = map_of(from, i);
        behind(&out, &next, &one, NULL);
        out = next;
    }
    return out;
}

/* 5.9.5: operators of users, in the order of the ranks; types of users, with and without gaps */
static void users(void) {
    MPI_Datatype dense, wide, inner;
    MPI_Op op, wide_op;
    MPI_Type_contiguous(2, MPI_UINT32_T, &dense);
    MPI_Type_commit(&dense);
    const int blocks[] = {1, 1};
    const MPI_Aint places[] = {offsetof(wide_t, a), offsetof(wide_t, b)};
    const MPI_Datatype parts[] = {MPI_UINT32_T, MPI_UINT32_T};
    MPI_Type_create_struct(2, blocks, places, parts, &inner);
    MPI_Type_create_resized(inner, 0, sizeof(wide_t), &wide);
    MPI_Type_commit(&wide);
    MPI_Type_free(&inner);
    MPI_Op_create(behind, 0, &op);
    MPI_Op_create(wide_behind, 0, &wide_op);
    for (int c = 0; c < kCountCount; c++)
        for (int root = -1; root < (c < 4 ? ranks : 0); root++) {
            const int count = kCounts[c];
            map_t *in = allocate((size_t)count * sizeof *in), *out = allocate((size_t)count * sizeof *out);
            wide_t *gives = allocate((size_t)count * sizeof *gives), *gets = allocate((size_t)count * sizeof *gets);
            memset(gives, 0x33, (size_t)count * sizeof *gives);
            memset(gets, 0x44, (size_t)count * sizeof *gets);
            for (int i = 0; i < count; i++) {
                in[i] = map_of(rank, i);
                gives[i].a = in[i].a;
                gives[i].b = in[i].b;
            }
            if (root < 0) {
                MPI_Allreduce(in, out, count, dense, op, MPI_COMM_WORLD);
                MPI_Allreduce(gives, gets, count, wide, wide_op, MPI_COMM_WORLD);
            } else {
                MPI_Reduce(in, out, count, dense, op, root, MPI_COMM_WORLD);
                MPI_Reduce(gives, gets, count, wide, wide_op, root, MPI_COMM_WORLD);
            }
            for (int i = 0; i < count && (root < 0 || root == rank); i++) {
                const map_t expected = all_maps(i);
                if (out[i].a != expected.a || out[i].b != expected.b)
                    fail("%s: root %d, %d of %d", rule, root, i, count);
                if (gets[i].a != expected.a || gets[i].b != expected.b || gets[i].before != 0x44444444 ||
                    gets[i].gap != 0x44444444)
                    fail("%s: with gaps: root %d, %d of %d", rule, root, i, count);
            }
            checks += 2;
            free(in), free(out), free(gives), free(gets);
        }
    MPI_Op_free(&op);
    MPI_Op_free(&wide_op);
    MPI_Type_free(&dense);
    MPI_Type_free(&wide);
}

/* Advice to implementors in 5.9.1: the same bits, at all ranks and every time, whatever is summed. */
static void same_bits(void) {
    for (int c = 0; c < kCountCount - 2; c++) {
        const int count = kCounts[c];
        double *in = allocate((size_t)count * sizeof *in), *out = allocate((size_t)count * sizeof *out),
               *first = allocate((size_t)count * sizeof *first);
        for (int i = 0; i < count; i++) in[i] = 1.0 / (1 + value_of(rank, i, 1000000));
        for (int again = 0; again < 3; again++) {
            MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            if (again == 0) {
                memcpy(first, out, (size_t)count * sizeof *out);
                MPI_Bcast(first, count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
            }
            check(memcmp(first, out, (size_t)count * sizeof *out) == 0, "sums differ in their bits");
        }
        free(in), free(out), free(first);
    }
}

static void reduction_rules(runner_t run) {
    run("5.9.2 predefined operators", predefined);
    run("5.9.5 operators of users", users);
    run("5.9.1 the same bits", same_bits);
}

void tell(int its_rank, int its_ranks, runner_t run) {
    rank = its_rank;
    ranks = its_ranks;
    program = "collectives";
    reduction_rules(run);
}
