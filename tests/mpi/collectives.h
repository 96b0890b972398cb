/* The collective operations that coll/mp has, by MPI-3.1's chapter 5: what collectives*.c share. */
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#include "checked.h"

extern const char* rule;
extern long checks;
#define RULE rule
#define CHECKS checks
#include "rules.h"

/* Elements per rank: from nothing over what coll/mp takes (8 KiB of all ranks together, a bcast, 64 KiB of a reduction)
 * to what it hands on. */
static const int kCounts[] = {1, 2, 7, 100, 333, 1024, 2047, 2049, 9000, 20000};
enum { kCountCount = sizeof kCounts / sizeof *kCounts, kMost = 20000 };

static inline int32_t element(int from, int to, int number, int i) {
    return (int32_t)word(from, to, number, (size_t)i);
}

typedef void (*rule_t)(void);
typedef void (*runner_t)(const char* name, rule_t rule);

/* Integers that are not in one place: each other one of a vector, or of structures with gaps. The same signature. */
typedef struct layout {
    MPI_Datatype type; /* of one element, which is `stride` integers long */
    int stride, at;    /* where it is */
} layout_t;
enum { kLayouts = 3, kUntouched = 0x5a5a5a5a };
const layout_t* its_layout(int which, int its_rank); /* all ranks have one of their own */
/* `count` elements of a layout in memory of their own; all other integers stay kUntouched. */
int* spread(const layout_t* layout, int count);
int* at(int* memory, const layout_t* layout, int i);
void untouched_between(const int* memory, const layout_t* layout, int count, const char* what);

/* The same rank everywhere; runs the rules of each file. */
void tell(int its_rank, int its_ranks, runner_t run);          /* collectives_reduce.c */
void tell_alltoall(int its_rank, int its_ranks, runner_t run); /* collectives_alltoall.c */
