/* Predefined types and operations, and what may be done with what (MPI-3.1, 5.9.2 and tables 3.1, 3.2, 3.3, 16.2). */
#ifndef UCX_MP_TESTS_MPI_ONE_SIDED_ROWS_H
#define UCX_MP_TESTS_MPI_ONE_SIDED_ROWS_H

#include <mpi.h>
#include <stddef.h>

/* Kinds of types, by what may be done with them (5.9.2). */
enum {
    kInteger = 1,
    kFloat = 2,
    kLogical = 4,
    kComplex = 8,
    kByte = 16,
    kPair = 32,
    kOther = 64,
    kFortranInteger = 128
};

typedef struct type_row {
    MPI_Datatype type;
    const char* name;
    int kind;
    size_t size; /* in memory, bytes */
    void (*set)(void*, int);
    int padded; /* it has bytes that nobody has to keep: x87's numbers */
} type_row_t;

typedef struct op_row {
    MPI_Op op;
    const char* name;
    int kinds;
} op_row_t;

enum { kOps = 14 };

/* All that the library has: those of Fortran, for one, may be missing. Ends with one without a name. */
const type_row_t* type_rows(void);
const op_row_t* op_rows(void); /* kOps of them */

#endif
