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

static inline void check(int condition, const char* what) {
    communicators_checks++;
    if (!condition) fail("%s: %s", communicators_rule, what);
}

static inline void code_is(int code, int wanted, const char* what) {
    int class = MPI_SUCCESS;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
    communicators_checks++;
    if (class != wanted) fail("%s: %s: error class %d, expected %d", communicators_rule, what, class, wanted);
}

/* A communicator has these ranks of MPI_COMM_WORLD, in this order, and carries messages, small ones and large ones. */
void members_are(MPI_Comm comm, const int* members, int count, const char* what);
