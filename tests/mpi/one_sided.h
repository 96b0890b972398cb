/* What the parts of one_sided share. */
#include "checked.h"

typedef struct rule {
    void (*run)(void);
    const char* section;
} rule_t;

extern const char* one_sided_rule; /* that is being checked */
extern long one_sided_checks;
extern int one_sided_rank, one_sided_ranks;

/* one_sided_sync.c, one_sided_types.c, one_sided_fit.c, one_sided_random.c: the rules there, up to one without a
 * section */
const rule_t* one_sided_sync(void);
const rule_t* one_sided_types(void);
const rule_t* one_sided_fit(void);
const rule_t* one_sided_random(void);
extern unsigned one_sided_seed;

/* Each part has its own of these. */
static inline void enter_part(void) {
    program = "one_sided";
    rank = one_sided_rank;
    ranks = one_sided_ranks;
}

#define RULE one_sided_rule
#define CHECKS one_sided_checks
#include "rules.h"

static inline int next_rank(void) { return (rank + 1) % ranks; }
static inline int last_rank(void) { return (rank + ranks - 1) % ranks; }

/* Something that lasts for a while, so that what must not happen had time to. */
static inline void idle(void) {
    const double until = MPI_Wtime() + 0.003;
    int flag;
    while (MPI_Wtime() < until) MPI_Iprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
}
