/* Epochs for random.c. A window of each rank has three parts: places for puts and gets, of which each is used once in
 * an epoch; cells of all types for accumulates by anybody, with one operation for each type in an epoch, so that their
 * order does not matter; and cells of one origin each, where it fetches: its operations on a place are in order. */
#include "random.h"

enum { kPlaces = 40000, kTypes = 7, kCells = 32, kWide = 16, kOwn = 16, kMostOperations = 40, kMostRanks = 64 };
enum { kShared = kPlaces, kOwned = kShared + kTypes * kCells * kWide, kBytes = kOwned + kMostRanks * kOwn * 8 };
enum { kFence, kGroups, kLocks, kLockAll, kEpochs };
enum { kPut, kGet, kAccumulate, kGetAccumulate, kFetch, kCompare, kKinds };

typedef struct operation {
    int kind, origin, target, place, bytes, shape_here, shape_there, type, count, with_request, number;
    MPI_Op op;
    unsigned char *out, *in; /* of the origin */
} operation_t;

static unsigned char* memory;
static MPI_Win win;
static long numbers;

void random_windows_begin(int own_rank, int all_ranks) {
    program = "random";
    rank = own_rank;
    ranks = all_ranks;
    if (ranks > kMostRanks) fail("%d ranks at most", kMostRanks);
    MPI_Win_allocate(kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    memset(memory, 1, kBytes);
    MPI_Barrier(MPI_COMM_WORLD);
}

void random_windows_end(void) { MPI_Win_free(&win); }

static MPI_Datatype type_of(int type) {
    const MPI_Datatype all[kTypes] = {MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T,
                                      MPI_INT,     MPI_FLOAT,    MPI_DOUBLE};
    return all[type];
}
static int size_of(int type) {
    int size;
    MPI_Type_size(type_of(type), &size);
    return size;
}

static int draw(random_t* rng, operation_t* all) {
    static char used[kMostRanks][kPlaces];
    const MPI_Op integers[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN, MPI_BAND, MPI_BOR, MPI_BXOR};
    const MPI_Op others[] = {MPI_MAX, MPI_MIN};
    MPI_Op ops[kTypes]; /* sums of floating point depend on their order, and those of signed numbers may overflow */
    memset(used, 0, sizeof used);
    /* Open MPI's op/avx ends sums of 8 and 16 bits at the largest number, if they are long: their order would matter.
     */
    for (int i = 0; i < kTypes; i++)
        ops[i] = i < 2   ? integers[2 + random_dice(rng, 5)]
                 : i < 4 ? integers[random_dice(rng, 7)]
                         : others[random_dice(rng, 2)];
    const int count = 1 + (int)random_dice(rng, kMostOperations);
    int n = 0;
    for (int i = 0; i < count; i++) {
        operation_t* const each = &all[n];
        *each = (operation_t){.kind = (int)random_dice(rng, kKinds),
                              .origin = (int)random_dice(rng, (unsigned)ranks),
                              .target = (int)random_dice(rng, (unsigned)ranks),
                              .shape_here = random_dice(rng, 2) ? 0 : (int)random_dice(rng, kShapes),
                              .shape_there = random_dice(rng, 2) ? 0 : (int)random_dice(rng, kShapes),
                              .with_request = random_dice(rng, 4) == 0,
                              .number = (int)++numbers};
        if (each->kind <= kGet) {
            each->bytes = 1 + (int)(random_dice(rng, 3) ? random_dice(rng, 200) : random_dice(rng, kPlaces / 6));
            each->place = (int)random_dice(rng, (unsigned)(kPlaces - 2 * each->bytes));
            int free_places = 1;
            for (int k = 0; k < 2 * each->bytes; k++) free_places &= !used[each->target][each->place + k];
            if (!free_places) continue;
            memset(&used[each->target][each->place], 1, 2 * (size_t)each->bytes);
        } else if (each->kind == kAccumulate) {
            each->type = (int)random_dice(rng, kTypes);
            each->op = ops[each->type];
            each->count = 1 + (int)random_dice(rng, kCells / 2);
            const int first = (int)random_dice(rng, (unsigned)(kCells - 2 * each->count + 1));
            each->shape_there &= 1; /* each, or every other one */
            each->bytes = each->count * size_of(each->type);
            each->place = kShared + each->type * kCells * kWide + first * size_of(each->type);
        } else {
            const MPI_Op with_old[] = {MPI_SUM, MPI_REPLACE, MPI_NO_OP, MPI_BXOR, MPI_MAX};
            each->op = with_old[random_dice(rng, 5)];
            each->type = 3;
            each->count = each->kind == kGetAccumulate ? 1 + (int)random_dice(rng, kOwn / 2) : 1;
            each->bytes = 8 * each->count;
            each->shape_there = each->kind == kGetAccumulate ? each->shape_there & 1 : 0;
            each->place =
                kOwned + 8 * (each->origin * kOwn + (int)random_dice(rng, (unsigned)(kOwn - 2 * each->count + 1)));
        }
        n++;
    }
    return n;
}

static void issue(operation_t* each, int may_request, MPI_Request* requests, int* open) {
    const size_t room = 2 * (size_t)each->bytes;
    each->out = allocate(room), each->in = allocate(room);
    fill(each->out, room, each->origin, each->target, each->number);
    memset(each->in, 0xee, room);
    const int to = each->target, request = may_request && each->with_request;
    const MPI_Aint place = each->place;
    int here_count, there_count;
    MPI_Request* const next = &requests[*open];
    if (each->kind <= kGet) {
        MPI_Datatype here = random_shape(each->shape_here, each->bytes, &here_count);
        MPI_Datatype there = random_shape(each->shape_there, each->bytes, &there_count);
        if (each->kind == kPut && request)
            MPI_Rput(each->out, here_count, here, to, place, there_count, there, win, next), ++*open;
        else if (each->kind == kPut)
            MPI_Put(each->out, here_count, here, to, place, there_count, there, win);
        else if (request)
            MPI_Rget(each->in, here_count, here, to, place, there_count, there, win, next), ++*open;
        else
            MPI_Get(each->in, here_count, here, to, place, there_count, there, win);
        random_shape_free(&here);
        random_shape_free(&there);
        return;
    }
    const MPI_Datatype type = type_of(each->type);
    MPI_Datatype there = type;
    if (each->type >= 5) { /* any bytes are no numbers */
        for (int i = 0; i < each->count; i++) {
            const float small = (float)(each->out[i] - 100);
            const double large = 3.5 * each->out[i];
            if (each->type == 5)
                memcpy(each->out + 4 * i, &small, 4);
            else
                memcpy(each->out + 8 * i, &large, 8);
        }
    }
    there_count = each->count;
    if (each->shape_there) {
        MPI_Type_vector(each->count, 1, 2, type, &there);
        MPI_Type_commit(&there);
        there_count = 1;
    }
    if (each->kind == kAccumulate && request)
        MPI_Raccumulate(each->out, each->count, type, to, place, there_count, there, each->op, win, next), ++*open;
    else if (each->kind == kAccumulate)
        MPI_Accumulate(each->out, each->count, type, to, place, there_count, there, each->op, win);
    else if (each->kind == kGetAccumulate && request)
        MPI_Rget_accumulate(each->out, each->count, type, each->in, each->count, type, to, place, there_count, there,
                            each->op, win, next),
            ++*open;
    else if (each->kind == kGetAccumulate)
        MPI_Get_accumulate(each->out, each->count, type, each->in, each->count, type, to, place, there_count, there,
                           each->op, win);
    else if (each->kind == kFetch)
        MPI_Fetch_and_op(each->out, each->in, type, to, place, each->op, win);
    else /* compares with what may be there: the pattern of the beginning */
        memset(each->out + 8, 1, 8), MPI_Compare_and_swap(each->out, each->out + 8, each->in, type, to, place, win);
    if (there != type) MPI_Type_free(&there);
}

static void issue_all(operation_t* all, int count, int target, int may_request) {
    MPI_Request requests[kMostOperations];
    int open = 0;
    for (int i = 0; i < count; i++)
        if (all[i].origin == rank && (target < 0 || all[i].target == target))
            issue(&all[i], may_request, requests, &open);
    MPI_Waitall(open, requests, MPI_STATUSES_IGNORE);
}

static MPI_Group partners(const operation_t* all, int count, int as_origin) {
    int members[kMostRanks], n = 0;
    MPI_Group world, group;
    for (int other = 0; other < ranks; other++)
        for (int i = 0; i < count; i++) {
            const int mine = as_origin ? all[i].origin : all[i].target,
                      theirs = as_origin ? all[i].target : all[i].origin;
            if (mine != rank || theirs != other) continue;
            members[n++] = other;
            break;
        }
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, n, members, &group);
    MPI_Group_free(&world);
    return group;
}

static void epoch(int kind, operation_t* all, int count, int flushes) {
    if (kind == kFence) {
        MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
        issue_all(all, count, -1, 0);
        MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    } else if (kind == kGroups) {
        MPI_Group origins = partners(all, count, 0), targets = partners(all, count, 1);
        MPI_Win_post(origins, 0, win);
        MPI_Win_start(targets, 0, win);
        issue_all(all, count, -1, 0);
        MPI_Win_complete(win);
        MPI_Win_wait(win);
        if (origins != MPI_GROUP_EMPTY) MPI_Group_free(&origins);
        if (targets != MPI_GROUP_EMPTY) MPI_Group_free(&targets);
    } else if (kind == kLocks) {
        for (int i = 0; i < ranks; i++) {
            const int target = (rank + i) % ranks;
            MPI_Win_lock(target % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, target, 0, win);
            issue_all(all, count, target, 1);
            MPI_Win_unlock(target, win);
        }
    } else {
        MPI_Win_lock_all(0, win);
        issue_all(all, count, -1, 1);
        if (flushes) MPI_Win_flush_all(win);
        MPI_Win_unlock_all(win);
    }
}

void random_windows_run(random_t* rng) {
    static operation_t all[kMostOperations];
    const int kind = (int)random_dice(rng, kEpochs), flushes = (int)random_dice(rng, 2), count = draw(rng, all);
    MPI_Barrier(MPI_COMM_WORLD); /* nobody looks at its window any more */
    epoch(kind, all, count, flushes);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) {
        operation_t* const each = &all[i];
        if (each->origin != rank) continue;
        if (each->kind != kPut && each->kind != kAccumulate) random_add(rng, each->in, 2 * (size_t)each->bytes);
        free(each->out), free(each->in);
    }
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    random_add(rng, memory, kBytes);
    MPI_Win_unlock(rank, win);
}
