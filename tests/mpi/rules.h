/* Checks of programs that go through rules of MPI's text: what fails is named with its rule, what was checked is
 * counted. Who includes this names the two variables: RULE, the rule that is being checked, and CHECKS. */
static inline void check(int condition, const char* what) {
    CHECKS++;
    if (!condition) fail("%s: %s", RULE, what);
}

static inline void code_is(int code, int wanted, const char* what) {
    int class = MPI_SUCCESS;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
    CHECKS++;
    if (class != wanted) fail("%s: %s: error class %d, expected %d", RULE, what, class, wanted);
}
