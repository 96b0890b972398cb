/* The tables of one_sided_rows.h. Not in them: MPI_REAL2, MPI_REAL16 and the like, for which C has no type that sets
 * them. */
#include "one_sided_rows.h"

#include <complex.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <wchar.h>

#define SETTER(NAME, TYPE)                                                                                             \
    static void set_##NAME(void* at, int value) {                                                                      \
        const TYPE x = (TYPE)value;                                                                                    \
        memcpy(at, &x, sizeof x);                                                                                      \
    }
#define TRUTH_SETTER(NAME, TYPE)                                                                                       \
    static void set_##NAME(void* at, int value) {                                                                      \
        const TYPE x = (TYPE)(value & 1);                                                                              \
        memcpy(at, &x, sizeof x);                                                                                      \
    }
/* Fortran's pairs: of two numbers alike. */
#define TWO_SETTER(NAME, TYPE)                                                                                         \
    static void set_##NAME(void* at, int value) {                                                                      \
        const TYPE pair[2] = {(TYPE)(value / 2), (TYPE)(value % 5)};                                                   \
        memcpy(at, pair, sizeof pair);                                                                                 \
    }
#define PAIR_SETTER(NAME, TYPE)                                                                                        \
    static void set_##NAME(void* at, int value) {                                                                      \
        struct {                                                                                                       \
            TYPE x;                                                                                                    \
            int index;                                                                                                 \
        } pair;                                                                                                        \
        memcpy(&pair, at, sizeof pair);                                                                                \
        pair.x = (TYPE)(value / 2);                                                                                    \
        pair.index = value % 5;                                                                                        \
        memcpy(at, &pair, sizeof pair);                                                                                \
    }
SETTER(schar, signed char)
SETTER(uchar, unsigned char)
SETTER(short, short)
SETTER(ushort, unsigned short)
SETTER(int, int)
SETTER(unsigned, unsigned)
SETTER(long, long)
SETTER(ulong, unsigned long)
SETTER(longlong, long long)
SETTER(int8, int8_t)
SETTER(int16, int16_t)
SETTER(int32, int32_t)
SETTER(int64, int64_t)
SETTER(uint8, uint8_t)
SETTER(uint16, uint16_t)
SETTER(uint32, uint32_t)
SETTER(uint64, uint64_t)
SETTER(aint, MPI_Aint)
SETTER(offset, MPI_Offset)
SETTER(count, MPI_Count)
SETTER(float, float)
SETTER(double, double)
SETTER(longdouble, long double)
SETTER(cfloat, float complex)
SETTER(cdouble, double complex)
SETTER(clongdouble, long double complex)
SETTER(wchar, wchar_t)
TRUTH_SETTER(bool, bool)
TRUTH_SETTER(truth8, int8_t)
TRUTH_SETTER(truth16, int16_t)
TRUTH_SETTER(truth32, int32_t)
TRUTH_SETTER(truth64, int64_t)
TWO_SETTER(two_float, float)
TWO_SETTER(two_double, double)
PAIR_SETTER(float_int, float)
PAIR_SETTER(double_int, double)
PAIR_SETTER(long_int, long)
PAIR_SETTER(two_int, int)
PAIR_SETTER(short_int, short)
PAIR_SETTER(long_double_int, long double)

#define PAIR_SIZE(TYPE)                                                                                                \
    sizeof(struct {                                                                                                    \
        TYPE x;                                                                                                        \
        int index;                                                                                                     \
    })
#define ROW(TYPE, KIND, CTYPE, SETTER)                                                                                 \
    { TYPE, #TYPE, KIND, sizeof(CTYPE), set_##SETTER, 0 }
#define PADDED_ROW(TYPE, KIND, CTYPE, SETTER)                                                                          \
    { TYPE, #TYPE, KIND, sizeof(CTYPE), set_##SETTER, 1 }
#define PAIR_ROW(TYPE, CTYPE, SETTER)                                                                                  \
    { TYPE, #TYPE, kPair, PAIR_SIZE(CTYPE), set_##SETTER, 0 }

/* Whether the library has it, as the C type beside it. */
static int there(const type_row_t* row) {
    MPI_Aint lb, extent;
    if (row->type == MPI_DATATYPE_NULL) return 0;
    MPI_Type_get_extent(row->type, &lb, &extent);
    return (size_t)extent == row->size;
}

const type_row_t* type_rows(void) {
    const type_row_t all[] = {
        ROW(MPI_SIGNED_CHAR, kInteger, signed char, schar),
        ROW(MPI_UNSIGNED_CHAR, kInteger, unsigned char, uchar),
        ROW(MPI_SHORT, kInteger, short, short),
        ROW(MPI_UNSIGNED_SHORT, kInteger, unsigned short, ushort),
        ROW(MPI_INT, kInteger, int, int),
        ROW(MPI_UNSIGNED, kInteger, unsigned, unsigned),
        ROW(MPI_LONG, kInteger, long, long),
        ROW(MPI_UNSIGNED_LONG, kInteger, unsigned long, ulong),
        ROW(MPI_LONG_LONG, kInteger, long long, longlong),
        ROW(MPI_INT8_T, kInteger, int8_t, int8),
        ROW(MPI_INT16_T, kInteger, int16_t, int16),
        ROW(MPI_INT32_T, kInteger, int32_t, int32),
        ROW(MPI_INT64_T, kInteger, int64_t, int64),
        ROW(MPI_UINT8_T, kInteger, uint8_t, uint8),
        ROW(MPI_UINT16_T, kInteger, uint16_t, uint16),
        ROW(MPI_UINT32_T, kInteger, uint32_t, uint32),
        ROW(MPI_UINT64_T, kInteger, uint64_t, uint64),
        ROW(MPI_AINT, kInteger, MPI_Aint, aint),
        ROW(MPI_OFFSET, kInteger, MPI_Offset, offset),
        ROW(MPI_COUNT, kInteger, MPI_Count, count),
        ROW(MPI_FLOAT, kFloat, float, float),
        ROW(MPI_DOUBLE, kFloat, double, double),
        PADDED_ROW(MPI_LONG_DOUBLE, kFloat, long double, longdouble),
        ROW(MPI_C_BOOL, kLogical, bool, bool),
        ROW(MPI_C_FLOAT_COMPLEX, kComplex, float complex, cfloat),
        ROW(MPI_C_DOUBLE_COMPLEX, kComplex, double complex, cdouble),
        PADDED_ROW(MPI_C_LONG_DOUBLE_COMPLEX, kComplex, long double complex, clongdouble),
        ROW(MPI_BYTE, kByte, unsigned char, uchar),
        ROW(MPI_WCHAR, kOther, wchar_t, wchar),
        PAIR_ROW(MPI_FLOAT_INT, float, float_int),
        PAIR_ROW(MPI_DOUBLE_INT, double, double_int),
        PAIR_ROW(MPI_LONG_INT, long, long_int),
        PAIR_ROW(MPI_2INT, int, two_int),
        PAIR_ROW(MPI_SHORT_INT, short, short_int),
        PAIR_ROW(MPI_LONG_DOUBLE_INT, long double, long_double_int),
        ROW(MPI_CHAR, kOther, char, schar),
        ROW(MPI_PACKED, kOther, char, schar),
        /* C++ */
        ROW(MPI_CXX_BOOL, kLogical, bool, bool),
        ROW(MPI_CXX_FLOAT_COMPLEX, kComplex, float complex, cfloat),
        ROW(MPI_CXX_DOUBLE_COMPLEX, kComplex, double complex, cdouble),
        PADDED_ROW(MPI_CXX_LONG_DOUBLE_COMPLEX, kComplex, long double complex, clongdouble),
        /* Fortran */
        ROW(MPI_INTEGER, kFortranInteger, int, int),
        ROW(MPI_INTEGER1, kFortranInteger, int8_t, int8),
        ROW(MPI_INTEGER2, kFortranInteger, int16_t, int16),
        ROW(MPI_INTEGER4, kFortranInteger, int32_t, int32),
        ROW(MPI_INTEGER8, kFortranInteger, int64_t, int64),
        ROW(MPI_REAL, kFloat, float, float),
        ROW(MPI_DOUBLE_PRECISION, kFloat, double, double),
        ROW(MPI_REAL4, kFloat, float, float),
        ROW(MPI_REAL8, kFloat, double, double),
        ROW(MPI_COMPLEX, kComplex, float complex, cfloat),
        ROW(MPI_DOUBLE_COMPLEX, kComplex, double complex, cdouble),
        ROW(MPI_COMPLEX8, kComplex, float complex, cfloat),
        ROW(MPI_COMPLEX16, kComplex, double complex, cdouble),
        ROW(MPI_LOGICAL, kLogical, int, truth32),
        ROW(MPI_LOGICAL1, kLogical, int8_t, truth8),
        ROW(MPI_LOGICAL2, kLogical, int16_t, truth16),
        ROW(MPI_LOGICAL4, kLogical, int32_t, truth32),
        ROW(MPI_LOGICAL8, kLogical, int64_t, truth64),
        ROW(MPI_CHARACTER, kOther, char, schar),
        ROW(MPI_2INTEGER, kPair, int[2], two_int),
        ROW(MPI_2REAL, kPair, float[2], two_float),
        ROW(MPI_2DOUBLE_PRECISION, kPair, double[2], two_double),
    };
    enum { kAll = sizeof all / sizeof *all };
    static type_row_t rows[kAll + 1];
    int count = 0;
    for (int i = 0; i < kAll; i++)
        if (there(&all[i])) rows[count++] = all[i];
    return rows;
}

const op_row_t* op_rows(void) {
    static op_row_t rows[kOps];
    const int any = kInteger | kFloat | kLogical | kComplex | kByte | kPair | kOther | kFortranInteger;
    const op_row_t all[kOps] = {{MPI_MAX, "MPI_MAX", kInteger | kFloat | kFortranInteger},
                                {MPI_MIN, "MPI_MIN", kInteger | kFloat | kFortranInteger},
                                {MPI_SUM, "MPI_SUM", kInteger | kFloat | kComplex | kFortranInteger},
                                {MPI_PROD, "MPI_PROD", kInteger | kFloat | kComplex | kFortranInteger},
                                {MPI_LAND, "MPI_LAND", kInteger | kLogical},
                                {MPI_LOR, "MPI_LOR", kInteger | kLogical},
                                {MPI_LXOR, "MPI_LXOR", kInteger | kLogical},
                                {MPI_BAND, "MPI_BAND", kInteger | kByte | kFortranInteger},
                                {MPI_BOR, "MPI_BOR", kInteger | kByte | kFortranInteger},
                                {MPI_BXOR, "MPI_BXOR", kInteger | kByte | kFortranInteger},
                                {MPI_MINLOC, "MPI_MINLOC", kPair},
                                {MPI_MAXLOC, "MPI_MAXLOC", kPair},
                                {MPI_REPLACE, "MPI_REPLACE", any},
                                {MPI_NO_OP, "MPI_NO_OP", any}};
    memcpy(rows, all, sizeof rows);
    return rows;
}
