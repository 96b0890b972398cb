/* What the parts of communicators share. */
#include "checked.h"

typedef struct rule {
    void (*run)(void);
    const char* section;
} rule_t;

extern const char* communicators_rule; /* that is being checked */
extern long communicators_checks;
extern int communicators_rank, communicators_ranks;

/* communicators_between.c, communicators_shapes.c: the rules there, up to one without a section */
const rule_t* communicators_between(void);
const rule_t* communicators_shapes(void);

/* Each part has its own of these. */
static inline void enter_part(void) {
    program = "communicators";
    rank = communicators_rank;
    ranks = communicators_ranks;
}

#define RULE communicators_rule
#define CHECKS communicators_checks
#include "rules.h"

/* A communicator has these ranks of MPI_COMM_WORLD, in this order, and carries messages, small ones and large ones. */
void members_are(MPI_Comm comm, const int* members, int count, const char* what);
