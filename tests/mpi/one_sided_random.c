/* Random programs: every rank knows what all of them do, and what comes out.
 *
 * Each window has a part for puts and gets, where within a round no place is used twice, and a part for sums, where
 * anybody adds at any time. A round is an epoch of one kind for all. */
#include "one_sided.h"

enum { kPlaces = 6000, kSums = 64, kCells = kPlaces + kSums, kRounds = 25, kMostOperations = 60 };
enum { kFence, kGroups, kLocks, kLockAll, kEpochs };

static uint64_t state; /* the same at all ranks */
static unsigned dice(unsigned n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

typedef struct operation {
    int kind; /* 0 put, 1 get, 2 accumulate, 3 fetch_and_op, 4 get_accumulate */
    int origin, target, place, count, stride, with_request;
    long number;
    long* memory; /* of the origin */
    MPI_Datatype there;
} operation_t;

static long* model; /* of all windows: rank * kCells + place */

static long value_at(const operation_t* each, int i) {
    return (long)(word(each->origin, each->target, each->number, (size_t)i) >> 20);
}
static long sum_at(const operation_t* each, int i) { return 1 + (each->number + i) % 7; }
static int cell(const operation_t* each, int i) { return each->place + i * each->stride; }

static int draw(operation_t* all, long* number) {
    const int count = 1 + (int)dice(kMostOperations);
    static char used[64][kPlaces];
    memset(used, 0, sizeof used);
    int n = 0;
    for (int i = 0; i < count; i++) {
        operation_t* const each = &all[n];
        memset(each, 0, sizeof *each);
        each->kind = (int)dice(5);
        each->origin = (int)dice((unsigned)ranks);
        each->target = (int)dice((unsigned)ranks);
        each->stride = 1 + (int)(dice(3) == 0) * (int)dice(4);
        each->with_request = (int)dice(4) == 0;
        each->number = ++*number;
        if (each->kind >= 2) {
            each->count = each->kind == 3 ? 1 : 1 + (int)dice(kSums / 5);
            each->place = kPlaces + (int)dice((unsigned)(kSums - (each->count - 1) * each->stride));
        } else {
            each->count = dice(3) ? 1 + (int)dice(20) : 1 + (int)dice(kPlaces / 6);
            each->place = (int)dice((unsigned)(kPlaces - (each->count - 1) * each->stride));
            int free_places = 1;
            for (int k = 0; k < each->count; k++) free_places &= !used[each->target][cell(each, k)];
            if (!free_places) continue;
            for (int k = 0; k < each->count; k++) used[each->target][cell(each, k)] = 1;
        }
        n++;
    }
    return n;
}

static void issue(operation_t* each, MPI_Win win, int may_request, MPI_Request* requests, int* open) {
    each->memory = allocate(sizeof(long) * (size_t)each->count * 2);
    for (int i = 0; i < each->count; i++) each->memory[i] = each->kind >= 2 ? sum_at(each, i) : value_at(each, i);
    long* const result = each->memory + (each->kind == 1 ? 0 : each->count);
    MPI_Datatype there = MPI_LONG;
    int there_count = each->count;
    if (each->stride > 1) {
        MPI_Type_vector(each->count, 1, each->stride, MPI_LONG, &there);
        MPI_Type_commit(&there);
        there_count = 1;
    }
    const int n = each->count, to = each->target, place = each->place;
    const int request = may_request && each->with_request;
    switch (each->kind) {
    case 0:
        if (request)
            MPI_Rput(each->memory, n, MPI_LONG, to, place, there_count, there, win, &requests[(*open)++]);
        else
            MPI_Put(each->memory, n, MPI_LONG, to, place, there_count, there, win);
        break;
    case 1:
        if (request)
            MPI_Rget(result, n, MPI_LONG, to, place, there_count, there, win, &requests[(*open)++]);
        else
            MPI_Get(result, n, MPI_LONG, to, place, there_count, there, win);
        break;
    case 2:
        if (request)
            MPI_Raccumulate(each->memory, n, MPI_LONG, to, place, there_count, there, MPI_SUM, win,
                            &requests[(*open)++]);
        else
            MPI_Accumulate(each->memory, n, MPI_LONG, to, place, there_count, there, MPI_SUM, win);
        break;
    case 3:
        MPI_Fetch_and_op(each->memory, result, MPI_LONG, to, place, MPI_SUM, win);
        break;
    default:
        MPI_Get_accumulate(each->memory, n, MPI_LONG, result, n, MPI_LONG, to, place, there_count, there, MPI_SUM, win);
    }
    if (there != MPI_LONG) MPI_Type_free(&there);
}

/* All of ours of one target; of all targets: -1. */
static void issue_all(operation_t* all, int count, int target, MPI_Win win, int may_request) {
    static MPI_Request requests[kMostOperations];
    int open = 0;
    for (int i = 0; i < count; i++)
        if (all[i].origin == rank && (target < 0 || all[i].target == target))
            issue(&all[i], win, may_request, requests, &open);
    MPI_Waitall(open, requests, MPI_STATUSES_IGNORE);
}

static MPI_Group partners(const operation_t* all, int count, int as_origin) {
    int members[64], n = 0;
    for (int other = 0; other < ranks; other++) {
        int has = 0;
        for (int i = 0; i < count; i++)
            has |= as_origin ? all[i].origin == rank && all[i].target == other
                             : all[i].target == rank && all[i].origin == other;
        if (has) members[n++] = other;
    }
    MPI_Group world, group;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, n, members, &group);
    MPI_Group_free(&world);
    return group;
}

static void epoch(int kind, operation_t* all, int count, MPI_Win win) {
    if (kind == kFence) {
        MPI_Win_fence(0, win);
        issue_all(all, count, -1, win, 0);
        MPI_Win_fence(0, win);
    } else if (kind == kGroups) {
        MPI_Group origins = partners(all, count, 0), targets = partners(all, count, 1);
        MPI_Win_post(origins, 0, win);
        MPI_Win_start(targets, 0, win);
        issue_all(all, count, -1, win, 0);
        MPI_Win_complete(win);
        MPI_Win_wait(win);
        MPI_Group_free(&origins);
        MPI_Group_free(&targets);
    } else if (kind == kLocks) {
        for (int i = 0; i < ranks; i++) {
            const int target = (rank + i) % ranks;
            MPI_Win_lock(target % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, target, 0, win);
            issue_all(all, count, target, win, 1);
            MPI_Win_unlock(target, win);
        }
    } else {
        MPI_Win_lock_all(0, win);
        issue_all(all, count, -1, win, 1);
        MPI_Win_unlock_all(win);
    }
}

static void apply(operation_t* all, int count) {
    for (int i = 0; i < count; i++) {
        const operation_t* const each = &all[i];
        long* const window = model + (size_t)each->target * kCells;
        for (int k = 0; k < each->count; k++) {
            if (each->kind == 0) window[cell(each, k)] = value_at(each, k);
            if (each->kind >= 2) window[cell(each, k)] += sum_at(each, k);
        }
    }
}

static void random_programs(void) {
    long *memory, number = 0;
    MPI_Win win;
    if (ranks > 64) return;
    state = one_sided_seed * 0x9e3779b97f4a7c15u + 5;
    MPI_Win_allocate(kCells * (MPI_Aint)sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    model = calloc((size_t)ranks * kCells, sizeof(long));
    memset(memory, 0, kCells * sizeof(long));
    operation_t* const all = allocate(sizeof(operation_t) * kMostOperations);
    for (int round = 0; round < kRounds; round++) {
        const int kind = (int)dice(kEpochs), count = draw(all, &number);
        MPI_Barrier(MPI_COMM_WORLD);
        epoch(kind, all, count, win);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < count; i++) {
            operation_t* const each = &all[i];
            if (each->origin != rank) continue;
            const long* const there = model + (size_t)each->target * kCells;
            for (int k = 0; k < each->count; k++) {
                const long got = each->memory[(each->kind == 1 ? 0 : each->count) + k], was = there[cell(each, k)];
                if (each->kind == 1) check(got == was, "a get of a random program");
                if (each->kind >= 3) check(got >= was, "what was there before, in a random program");
            }
        }
        apply(all, count);
        for (int i = 0; i < count; i++)
            if (all[i].origin == rank) free(all[i].memory);
        MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
        for (int i = 0; i < kCells; i++)
            if (memory[i] != model[(size_t)rank * kCells + (size_t)i])
                fail("%s: seed %u, round %d, epoch %d: cell %d is %ld, expected %ld", one_sided_rule, one_sided_seed,
                     round, kind, i, memory[i], model[(size_t)rank * kCells + (size_t)i]);
        MPI_Win_unlock(rank, win);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    free(all);
    free(model);
    MPI_Win_free(&win);
}

static const rule_t rules[] = {{random_programs, "random programs"}, {NULL, NULL}};

const rule_t* one_sided_random(void) {
    enter_part();
    return rules;
}
