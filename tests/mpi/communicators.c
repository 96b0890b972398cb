/* MPI-3.1, chapters 6 and 7, and chapter 5 between two groups, rule by rule: communicators [BEGIN [BEGIN...]]
 *
 * Each rule is a function with the section that it checks; what has to come out is computed beside, without MPI. All
 * ranks go through all rules: those whose name begins with the first BEGIN, and with none of the others. Prints
 * "communicators: N ranks ok, R rules, C checks" and returns 0, or names the rule and aborts.
 */
#include "communicators.h"

enum { kMostRanks = 64, kLarge = 40000 };

const char* communicators_rule;
long communicators_checks;
int communicators_rank, communicators_ranks;

static void ring(MPI_Comm comm, const int* members, int count, size_t bytes, const char* what) {
    int mine;
    MPI_Comm_rank(comm, &mine);
    const int to = (mine + 1) % count, from = (mine + count - 1) % count;
    unsigned char *const out = allocate(bytes), *const in = allocate(bytes);
    MPI_Status status;
    fill(out, bytes, members[mine], members[to], (long)bytes + count);
    memset(in, 0, bytes);
    MPI_Sendrecv(out, (int)bytes, MPI_BYTE, to, 3, in, (int)bytes, MPI_BYTE, from, 3, comm, &status);
    verify(in, bytes, members[from], members[mine], (long)bytes + count, what);
    check(status.MPI_SOURCE == from, "the source of a message is no rank of its communicator");
    free(in), free(out);
}

void members_are(MPI_Comm comm, const int* members, int count, const char* what) {
    int size, mine, here[kMostRanks], there[kMostRanks];
    MPI_Group group, world;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &mine);
    check(size == count, what);
    check(members[mine] == rank, what);
    MPI_Comm_group(comm, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    for (int i = 0; i < count; i++) here[i] = i;
    MPI_Group_translate_ranks(group, count, here, world, there);
    check(!memcmp(there, members, (size_t)count * sizeof *there), what);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    ring(comm, members, count, 8, what);
    ring(comm, members, count, kLarge, what);
    long sum = 0, expected = 0;
    const long value = 1L << (rank % 60);
    for (int i = 0; i < count; i++) expected += 1L << (members[i] % 60);
    MPI_Allreduce(&value, &sum, 1, MPI_LONG, MPI_SUM, comm);
    check(sum == expected, what);
}

/* 6.3: groups are ordered sets: what is made of two of them, and of ranges */
static int group_is(MPI_Group group, const int* members, int count) {
    int size, here[kMostRanks], there[kMostRanks];
    MPI_Group world;
    MPI_Group_size(group, &size);
    if (size != count) return 0;
    if (count == 0) return 1;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    for (int i = 0; i < count; i++) here[i] = i;
    MPI_Group_translate_ranks(group, count, here, world, there);
    MPI_Group_free(&world);
    return !memcmp(there, members, (size_t)count * sizeof *there);
}

static void groups(void) {
    MPI_Group world, even, backwards, made;
    int members[kMostRanks], expected[kMostRanks], n = 0, result;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    int range[1][3] = {{0, ranks - 1, 2}};
    MPI_Group_range_incl(world, 1, range, &even);
    for (int i = 0; i < ranks; i += 2) members[n++] = i;
    check(group_is(even, members, n), "MPI_Group_range_incl with a stride");
    int back[1][3] = {{ranks - 1, 0, -1}};
    MPI_Group_range_incl(world, 1, back, &backwards);
    for (int i = 0; i < ranks; i++) expected[i] = ranks - 1 - i;
    check(group_is(backwards, expected, ranks), "MPI_Group_range_incl with a negative stride");
    MPI_Group_compare(world, backwards, &result);
    check(result == (ranks == 1 ? MPI_IDENT : MPI_SIMILAR), "groups in another order are similar");
    MPI_Group_compare(world, even, &result);
    check(result == (ranks == 1 ? MPI_IDENT : MPI_UNEQUAL), "other groups are unequal");
    MPI_Group_union(even, backwards, &made); /* the first, then those of the second that are new, in its order */
    memcpy(expected, members, (size_t)n * sizeof *members);
    int at = n;
    for (int i = ranks - 1; i >= 0; i--)
        if (i % 2) expected[at++] = i;
    check(group_is(made, expected, ranks), "MPI_Group_union");
    MPI_Group_free(&made);
    MPI_Group_intersection(backwards, even, &made); /* in the first one's order */
    at = 0;
    for (int i = ranks - 1; i >= 0; i--)
        if (i % 2 == 0) expected[at++] = i;
    check(group_is(made, expected, at), "MPI_Group_intersection");
    MPI_Group_free(&made);
    MPI_Group_difference(backwards, even, &made);
    at = 0;
    for (int i = ranks - 1; i >= 0; i--)
        if (i % 2) expected[at++] = i;
    check(group_is(made, expected, at), "MPI_Group_difference");
    if (at == 0) {
        MPI_Group_compare(made, MPI_GROUP_EMPTY, &result);
        check(result == MPI_IDENT, "a group without members is the empty one");
    }
    if (made != MPI_GROUP_EMPTY) MPI_Group_free(&made);
    MPI_Group_excl(world, n, members, &made);
    at = 0;
    for (int i = 1; i < ranks; i += 2) expected[at++] = i;
    check(group_is(made, expected, at), "MPI_Group_excl");
    if (made != MPI_GROUP_EMPTY) MPI_Group_free(&made);
    MPI_Group_rank(even, &result);
    check(result == (rank % 2 ? MPI_UNDEFINED : rank / 2), "MPI_Group_rank of who is not in it is undefined");
    int ask[2] = {ranks - 1, MPI_PROC_NULL}, told[2];
    MPI_Group_translate_ranks(world, 2, ask, even, told);
    check(told[0] == ((ranks - 1) % 2 ? MPI_UNDEFINED : (ranks - 1) / 2), "a rank that is not in the other group");
    check(told[1] == MPI_PROC_NULL, "MPI_PROC_NULL translates to itself");
    MPI_Group_free(&backwards);
    MPI_Group_free(&even);
    MPI_Group_free(&world);
    check(world == MPI_GROUP_NULL, "a freed group is not MPI_GROUP_NULL");
}

/* 6.4.1: comparing */
static void comparing(void) {
    MPI_Comm copy, backwards, alone;
    int result;
    MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_WORLD, &result);
    check(result == MPI_IDENT, "a communicator is not identical with itself");
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_compare(MPI_COMM_WORLD, copy, &result);
    check(result == MPI_CONGRUENT, "a duplicate is not congruent");
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &backwards);
    MPI_Comm_compare(MPI_COMM_WORLD, backwards, &result);
    check(result == (ranks == 1 ? MPI_CONGRUENT : MPI_SIMILAR), "another order is not similar");
    MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &alone);
    MPI_Comm_compare(MPI_COMM_WORLD, alone, &result);
    check(result == (ranks == 1 ? MPI_CONGRUENT : MPI_UNEQUAL), "other members are not unequal");
    MPI_Comm_free(&alone);
    MPI_Comm_free(&backwards);
    MPI_Comm_free(&copy);
    check(copy == MPI_COMM_NULL, "a freed communicator is not MPI_COMM_NULL");
}

/* 6.4.2: duplicates, also made without waiting, several at a time; messages stay in theirs */
static void duplicates(void) {
    enum { kCopies = 4 };
    MPI_Comm copies[kCopies];
    MPI_Request requests[kCopies];
    int all[kMostRanks], values[kCopies];
    for (int i = 0; i < ranks; i++) all[i] = i;
    for (int i = 0; i < kCopies; i++) MPI_Comm_idup(MPI_COMM_WORLD, &copies[i], &requests[i]);
    int sum = 0; /* between its start and its end anything may be said */
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(sum == ranks * (ranks - 1) / 2, "a reduction while communicators are made");
    MPI_Waitall(kCopies, requests, MPI_STATUSES_IGNORE);
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Request sends[kCopies];
    for (int i = 0; i < kCopies; i++) {
        values[i] = 100 * rank + i;
        MPI_Isend(&values[i], 1, MPI_INT, to, 1, copies[i], &sends[i]);
    }
    for (int i = kCopies - 1; i >= 0; i--) { /* the last one first: what tells them apart is the communicator */
        int got = -1;
        MPI_Recv(&got, 1, MPI_INT, i % 2 ? from : MPI_ANY_SOURCE, MPI_ANY_TAG, copies[i], MPI_STATUS_IGNORE);
        check(got == 100 * from + i, "a message has come to another communicator");
    }
    MPI_Waitall(kCopies, sends, MPI_STATUSES_IGNORE);
    for (int i = 0; i < kCopies; i++) {
        members_are(copies[i], all, ranks, "a duplicate that was made without waiting");
        MPI_Comm_free(&copies[i]);
    }
    MPI_Info info;
    MPI_Comm copy;
    MPI_Info_create(&info);
    MPI_Info_set(info, "ucx_mp_test", "1");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &copy);
    members_are(copy, all, ranks, "a duplicate with hints");
    MPI_Comm_set_info(copy, info);
    MPI_Info_free(&info);
    MPI_Comm_get_info(copy, &info);
    check(info != MPI_INFO_NULL, "MPI_Comm_get_info gives none");
    MPI_Info_free(&info);
    MPI_Comm_free(&copy);
}

/* 6.4.2: by a group: all call MPI_Comm_create, members only MPI_Comm_create_group; disjoint groups at a time */
static void by_group(void) {
    MPI_Group world, mine;
    MPI_Comm comm;
    int members[kMostRanks], n = 0;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    for (int i = ranks - 1; i >= 0; i--) /* backwards: the order is the group's */
        if (i % 2 == rank % 2) members[n++] = i;
    MPI_Group_incl(world, n, members, &mine);
    MPI_Comm_create(MPI_COMM_WORLD, mine, &comm);
    members_are(comm, members, n, "MPI_Comm_create with a group on either side");
    MPI_Comm_free(&comm);
    MPI_Comm_create(MPI_COMM_WORLD, rank % 2 ? MPI_GROUP_EMPTY : mine, &comm);
    check((comm == MPI_COMM_NULL) == (rank % 2), "who is in no group has a communicator, or the others have none");
    if (comm != MPI_COMM_NULL) {
        members_are(comm, members, n, "MPI_Comm_create of a part");
        MPI_Comm_free(&comm);
    }
    for (int turn = 0; turn < 3; turn++) {
        if (rank % 2 != turn % 2) continue; /* the others do not even call it */
        MPI_Comm_create_group(MPI_COMM_WORLD, mine, 70 + turn, &comm);
        members_are(comm, members, n, "MPI_Comm_create_group");
        MPI_Comm_free(&comm);
    }
    MPI_Group_free(&mine);
    MPI_Group_free(&world);
}

/* 6.4.2: split: by colour, in the order of the keys, then of the ranks; undefined: none */
static void splitting(void) {
    static const int colours[] = {3, 1, 2};
    for (int turn = 0; turn < 3; turn++) {
        const int by = colours[turn];
        int members[kMostRanks], n = 0;
        MPI_Comm comm;
        for (int key = -1; key <= 1; key++)
            for (int i = 0; i < ranks; i++)
                if (i % by == rank % by && (i * 7 + turn) % 3 - 1 == key) members[n++] = i;
        const int none = turn == 1 && rank == ranks - 1;
        MPI_Comm_split(MPI_COMM_WORLD, none ? MPI_UNDEFINED : rank % by, (rank * 7 + turn) % 3 - 1, &comm);
        check((comm == MPI_COMM_NULL) == none, "MPI_UNDEFINED");
        if (none) continue;
        if (turn == 1) { /* the last rank is in none */
            int kept = 0;
            for (int i = 0; i < n; i++)
                if (members[i] != ranks - 1) members[kept++] = members[i];
            n = kept;
        }
        members_are(comm, members, n, "MPI_Comm_split");
        MPI_Comm_free(&comm);
    }
    MPI_Comm comm;
    int size, mine;
    MPI_Comm_split_type(MPI_COMM_WORLD, rank == 0 && ranks > 1 ? MPI_UNDEFINED : MPI_COMM_TYPE_SHARED, -rank,
                        MPI_INFO_NULL, &comm);
    check((comm == MPI_COMM_NULL) == (rank == 0 && ranks > 1), "MPI_Comm_split_type with MPI_UNDEFINED");
    if (comm == MPI_COMM_NULL) return;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &mine);
    int* const found = allocate((size_t)size * sizeof *found);
    MPI_Allgather(&rank, 1, MPI_INT, found, 1, MPI_INT, comm);
    for (int i = 1; i < size; i++) check(found[i] < found[i - 1], "MPI_Comm_split_type: the keys' order");
    check(found[mine] == rank, "MPI_Comm_split_type: our place");
    free(found);
    MPI_Comm_free(&comm);
}

/* 6.4.3: what is under way in a communicator that is freed ends as always */
static void freeing(void) {
    enum { kBytes = 100000 };
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    unsigned char *const out = allocate(kBytes), *const in = allocate(kBytes);
    for (int turn = 0; turn < 20; turn++) {
        MPI_Comm comm;
        MPI_Request requests[2];
        const int bytes = turn % 2 ? kBytes : 100;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        fill(out, (size_t)bytes, rank, to, turn);
        memset(in, 0, (size_t)bytes);
        MPI_Irecv(in, bytes, MPI_BYTE, from, 1, comm, &requests[0]);
        MPI_Isend(out, bytes, MPI_BYTE, to, 1, comm, &requests[1]);
        MPI_Comm_free(&comm);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        verify(in, (size_t)bytes, from, rank, turn, "a message of a freed communicator");
        communicators_checks++;
    }
    free(in), free(out);
}

/* 6.7: attributes: copied as their callbacks say, deleted by overwriting, deleting and freeing */
static int copies, deletions, refuses;
static long extra_state = 5;
static int copy_attribute(MPI_Comm comm, int key, void* extra, void* in, void* out, int* flag) {
    (void)comm, (void)key;
    copies++;
    if (refuses) return MPI_ERR_OTHER;
    *(void**)out = (char*)in + *(long*)extra;
    *flag = 1;
    return MPI_SUCCESS;
}
static int delete_attribute(MPI_Comm comm, int key, void* value, void* extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    deletions++;
    return MPI_SUCCESS;
}

static void attributes(void) {
    MPI_Comm one, two;
    int counted, shared, lost, flag;
    static char place[16];
    void* found = NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &one);
    MPI_Comm_create_keyval(copy_attribute, delete_attribute, &counted, &extra_state);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &shared, NULL);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &lost, NULL);
    MPI_Comm_get_attr(one, counted, &found, &flag);
    check(!flag, "an attribute that nobody has set");
    copies = deletions = refuses = 0;
    MPI_Comm_set_attr(one, counted, place);
    MPI_Comm_set_attr(one, shared, place + 1);
    MPI_Comm_set_attr(one, lost, place + 2);
    MPI_Comm_dup(one, &two);
    check(copies == 1, "the copy callback is not called once by MPI_Comm_dup");
    MPI_Comm_get_attr(two, counted, &found, &flag);
    check(flag && found == place + 5, "the copy callback's value, made with its extra state");
    MPI_Comm_get_attr(two, shared, &found, &flag);
    check(flag && found == place + 1, "MPI_COMM_DUP_FN");
    MPI_Comm_get_attr(two, lost, &found, &flag);
    check(!flag, "MPI_COMM_NULL_COPY_FN");
    MPI_Comm_set_attr(two, counted, place + 7);
    check(deletions == 1, "an attribute that is overwritten is not deleted");
    MPI_Comm_get_attr(two, counted, &found, &flag);
    check(flag && found == place + 7, "an attribute that was overwritten");
    MPI_Comm_delete_attr(two, counted);
    check(deletions == 2, "MPI_Comm_delete_attr does not call the callback");
    MPI_Comm_get_attr(two, counted, &found, &flag);
    check(!flag, "an attribute that was deleted");
    MPI_Comm_set_attr(two, counted, place);
    MPI_Comm_free(&two);
    check(deletions == 3, "MPI_Comm_free does not delete attributes");
    MPI_Comm_split(one, 0, rank, &two);
    check(copies == 1, "MPI_Comm_split copies attributes");
    MPI_Comm_free(&two);
    MPI_Comm_set_errhandler(one, MPI_ERRORS_RETURN);
    refuses = 1;
    const int code = MPI_Comm_dup(one, &two);
    check(code != MPI_SUCCESS, "MPI_Comm_dup succeeds though a copy callback does not");
    refuses = 0;
    const int key = counted;
    MPI_Comm_free_keyval(&counted);
    check(counted == MPI_KEYVAL_INVALID, "a freed key is not MPI_KEYVAL_INVALID");
    MPI_Comm_get_attr(one, key, &found, &flag);
    check(flag && found == place, "a key that was freed lives as long as its attributes");
    MPI_Comm_free(&one);
    check(deletions == 4, "an attribute whose key was freed is not deleted");
    MPI_Comm_free_keyval(&shared);
    MPI_Comm_free_keyval(&lost);
    int* limit = NULL;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &flag);
    check(flag && *limit >= 32767, "MPI_TAG_UB");
}

/* 6.7.3, 6.7.4: the same of windows, which have no duplicates, and of types */
static int copy_of_type(MPI_Datatype type, int key, void* extra, void* in, void* out, int* flag) {
    (void)type;
    return copy_attribute(MPI_COMM_NULL, key, extra, in, out, flag);
}
static int delete_of_type(MPI_Datatype type, int key, void* value, void* extra) {
    (void)type;
    return delete_attribute(MPI_COMM_NULL, key, value, extra);
}
static int delete_of_window(MPI_Win window, int key, void* value, void* extra) {
    (void)window;
    return delete_attribute(MPI_COMM_NULL, key, value, extra);
}

static void other_attributes(void) {
    MPI_Datatype one, two;
    MPI_Win window;
    int of_type, of_window, flag;
    static char place[16];
    char memory[8];
    void* found = NULL;
    copies = deletions = refuses = 0;
    MPI_Type_create_keyval(copy_of_type, delete_of_type, &of_type, &extra_state);
    MPI_Type_vector(3, 1, 2, MPI_INT, &one);
    MPI_Type_set_attr(one, of_type, place);
    MPI_Type_dup(one, &two);
    MPI_Type_get_attr(two, of_type, &found, &flag);
    check(flag && found == place + 5 && copies == 1, "MPI_Type_dup copies attributes by their callback");
    MPI_Type_delete_attr(two, of_type);
    MPI_Type_free(&two);
    check(deletions == 1, "MPI_Type_delete_attr");
    MPI_Type_free(&one);
    check(deletions == 2, "MPI_Type_free does not delete attributes");
    MPI_Type_free_keyval(&of_type);
    MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, delete_of_window, &of_window, NULL);
    MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_set_attr(window, of_window, place);
    MPI_Win_set_attr(window, of_window, place + 1);
    check(deletions == 3, "an attribute of a window that is overwritten is not deleted");
    MPI_Win_get_attr(window, of_window, &found, &flag);
    check(flag && found == place + 1, "an attribute of a window");
    MPI_Win_free(&window);
    check(deletions == 4, "MPI_Win_free does not delete attributes");
    MPI_Win_free_keyval(&of_window);
}

/* 6.8: names */
static void names(void) {
    char name[MPI_MAX_OBJECT_NAME + 1];
    int length;
    MPI_Comm comm;
    MPI_Comm_get_name(MPI_COMM_WORLD, name, &length);
    check(!strcmp(name, "MPI_COMM_WORLD") && length == 14, "the name of MPI_COMM_WORLD");
    MPI_Comm_get_name(MPI_COMM_SELF, name, &length);
    check(!strcmp(name, "MPI_COMM_SELF"), "the name of MPI_COMM_SELF");
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &comm);
    MPI_Comm_set_name(comm, "a ring of ranks");
    MPI_Comm_get_name(comm, name, &length);
    check(!strcmp(name, "a ring of ranks") && length == 15, "a name that was set");
    MPI_Comm_set_name(comm, "");
    MPI_Comm_get_name(comm, name, &length);
    check(name[0] == 0 && length == 0, "a name that was taken away");
    MPI_Comm_free(&comm);
    MPI_Type_get_name(MPI_DOUBLE, name, &length);
    check(!strcmp(name, "MPI_DOUBLE"), "the name of MPI_DOUBLE");
}

static const rule_t rules[] = {{groups, "6.3 groups"},
                               {comparing, "6.4.1 comparing"},
                               {duplicates, "6.4.2 duplicates"},
                               {by_group, "6.4.2 by groups"},
                               {splitting, "6.4.2 splitting"},
                               {freeing, "6.4.3 freeing"},
                               {attributes, "6.7.2 attributes"},
                               {other_attributes, "6.7.3 attributes of windows and types"},
                               {names, "6.8 names"},
                               {NULL, NULL}};

static int begins(const char* section, char** all, int count) {
    for (int i = 0; i < count; i++)
        if (!strncmp(section, all[i], strlen(all[i]))) return 1;
    return 0;
}

int main(int argc, char** argv) {
    program = "communicators";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    communicators_rank = rank;
    communicators_ranks = ranks;
    if (ranks > kMostRanks) fail("%d ranks at most", kMostRanks);
    const rule_t* const parts[] = {rules, communicators_between(), communicators_shapes()};
    int count = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (const rule_t* each = parts[i]; each->section; each++) {
            if (argc > 1 && !begins(each->section, argv + 1, 1)) continue;
            if (argc > 2 && begins(each->section, argv + 2, argc - 2)) continue;
            communicators_rule = each->section;
            MPI_Barrier(MPI_COMM_WORLD);
            each->run();
            count++;
        }
    if (count == 0) fail("no rule begins with '%s'", argc > 1 ? argv[1] : "");
    if (rank == 0) printf("communicators: %d ranks ok, %d rules, %ld checks\n", ranks, count, communicators_checks);
    MPI_Finalize();
    return 0;
}
