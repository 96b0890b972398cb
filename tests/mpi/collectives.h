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

void reduction_rules(runner_t run);                   /* collectives_reduce.c */
void nonblocking_rules(runner_t run);                 /* collectives_later.c */
void tell(int its_rank, int its_ranks, runner_t run); /* the same rank everywhere */
