/* More than 2 and 4 GiB at once, between two ranks: large [messages | windows]
 *
 * Counts of MPI are ints, so the types are large. Contents are told by their place: words at both ends of each page,
 * and all of them around 2 and 4 GiB and at the end. Prints "large: 2 ranks ok". Takes 4.2 GiB of memory per rank.
 */
#include <sys/mman.h>

#include "checked.h"

enum { kPage = 4096, kInts = (1 << 18) + 1, kOverTwo = 2100, kOverFour = 4200 }; /* chunks of 1 MiB and an int */
static const size_t kChunk = kInts * sizeof(int);
static const size_t kMemory = kOverFour * kInts * sizeof(int) + kPage;
static unsigned char* memory;

/* Calls it for the places of words that are looked at. */
static void each_place(size_t bytes, void (*look)(size_t place, long number), long number) {
    const size_t kNear = 1 << 16, borders[] = {(size_t)1 << 31, (size_t)1 << 32, bytes};
    for (size_t page = 0; page + kPage <= bytes; page += kPage) {
        look(page, number);
        look(page + kPage - 8, number);
    }
    for (int i = 0; i < 3; i++)
        for (size_t at = borders[i] - kNear; at + 8 <= borders[i] + kNear && at + 8 <= bytes; at += 8) look(at, number);
    look(bytes - 8, number);
}

static void set(size_t place, long number) {
    const uint64_t value = word(0, 1, number, place);
    memcpy(memory + place, &value, sizeof value);
}

static void is_set(size_t place, long number) {
    const uint64_t value = word(0, 1, number, place);
    if (memcmp(memory + place, &value, sizeof value)) fail("transfer %ld is wrong at byte %zu", number, place);
}

/* What `number` leaves must not be there already, nor anything behind it be written. */
static void prepare(size_t bytes, long number, int has_it) {
    each_place(bytes, set, has_it ? number : ~number);
    if (!has_it) memset(memory + bytes, 0xee, kPage);
}

static void all_there(size_t bytes, long number, int had_it) {
    each_place(bytes, is_set, number);
    for (int i = 0; i < kPage && !had_it; i++)
        if (memory[bytes + (size_t)i] != 0xee) fail("transfer %ld has written behind its end", number);
}

static MPI_Datatype chunks_of(MPI_Datatype element, int count) {
    MPI_Datatype type;
    MPI_Type_contiguous(count, element, &type);
    MPI_Type_commit(&type);
    return type;
}

static void contiguous(int count, long number) {
    const size_t bytes = (size_t)count * kChunk;
    MPI_Datatype chunk = chunks_of(MPI_INT, kInts);
    MPI_Status status;
    prepare(bytes, number, rank == 0);
    if (rank == 0) {
        MPI_Send(memory, count, chunk, 1, (int)number, MPI_COMM_WORLD);
    } else {
        MPI_Count ints;
        int chunks;
        MPI_Recv(memory, count, chunk, 0, (int)number, MPI_COMM_WORLD, &status);
        MPI_Get_elements_x(&status, MPI_INT, &ints);
        MPI_Get_count(&status, chunk, &chunks);
        if (chunks != count || ints != (MPI_Count)count * kInts) fail("transfer %ld: a wrong count", number);
        all_there(bytes, number, 0);
    }
    MPI_Type_free(&chunk);
}

/* Blocks of 1000 ints with a gap of one. */
static void with_gaps(long number) {
    enum { kBlocks = 540000, kEach = 1000 };
    MPI_Datatype type;
    int* const ints = (int*)memory;
    MPI_Type_vector(kBlocks, kEach, kEach + 1, MPI_INT, &type);
    MPI_Type_commit(&type);
    for (int i = 0; i < kBlocks; i++) {
        int* const block = ints + (size_t)i * (kEach + 1);
        block[0] = rank ? -1 : i;
        block[kEach / 2] = rank ? -1 : 2 * i;
        block[kEach - 1] = rank ? -1 : 3 * i;
        block[kEach] = -5;
    }
    if (rank == 0)
        MPI_Send(memory, 1, type, 1, (int)number, MPI_COMM_WORLD);
    else
        MPI_Recv(memory, 1, type, 0, (int)number, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < kBlocks; i++) {
        const int* const block = ints + (size_t)i * (kEach + 1);
        if (block[0] != i || block[kEach / 2] != 2 * i || block[kEach - 1] != 3 * i)
            fail("transfer %ld: block %d is wrong", number, i);
        if (i + 1 < kBlocks && block[kEach] != -5) fail("transfer %ld: the gap behind block %d is written", number, i);
    }
    MPI_Type_free(&type);
}

static void put_or_get(MPI_Win win, int count, long number, int put) {
    const size_t bytes = (size_t)count * kChunk;
    const int has_it = put ? rank == 0 : rank == 1;
    MPI_Datatype chunk = chunks_of(MPI_INT, kInts);
    prepare(bytes, number, has_it);
    MPI_Win_fence(0, win);
    if (rank == 0 && put) MPI_Put(memory, count, chunk, 1, 0, count, chunk, win);
    if (rank == 0 && !put) MPI_Get(memory, count, chunk, 1, 0, count, chunk, win);
    MPI_Type_free(&chunk);
    MPI_Win_fence(0, win);
    all_there(bytes, number, has_it);
}

/* Sums of bytes, so that there are more than 2^31 elements; small ones: Open MPI's sums of bytes may stop at 255. */
static const uint64_t kHalves = 0x7f7f7f7f7f7f7f7f;
static void set_halves(size_t place, long number) {
    const uint64_t value = word(0, 1, number, place) & kHalves;
    memcpy(memory + place, &value, sizeof value);
}

static void is_doubled(size_t place, long number) {
    const uint64_t value = 2 * (word(0, 1, number, place) & kHalves);
    if (memcmp(memory + place, &value, sizeof value)) fail("transfer %ld is wrong at byte %zu", number, place);
}

static void sum(MPI_Win win, int count, long number) {
    const size_t bytes = (size_t)count * kChunk;
    MPI_Datatype chunk = chunks_of(MPI_UNSIGNED_CHAR, (int)kChunk);
    each_place(bytes, set_halves, number);
    memset(memory + bytes, 0xee, kPage);
    MPI_Win_fence(0, win);
    if (rank == 0) MPI_Accumulate(memory, count, chunk, 1, 0, count, chunk, MPI_SUM, win);
    MPI_Type_free(&chunk);
    MPI_Win_fence(0, win);
    if (rank == 0) return;
    each_place(bytes, is_doubled, number);
    for (int i = 0; i < kPage; i++)
        if (memory[bytes + (size_t)i] != 0xee) fail("transfer %ld has written behind its end", number);
}

static void done(const char* what, double* start) {
    if (rank == 0) printf("large: %s: %.1f s\n", what, MPI_Wtime() - *start), fflush(stdout);
    *start = MPI_Wtime();
}

int main(int argc, char** argv) {
    program = "large";
    const char* const only = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) fail("is for two ranks");
    memory = mmap(NULL, kMemory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("no memory");
    double start = MPI_Wtime();
    if (strcmp(only, "windows") != 0) {
        contiguous(kOverTwo, 1);
        done("a message of more than 2 GiB", &start);
        contiguous(kOverFour, 2);
        done("a message of more than 4 GiB", &start);
        with_gaps(3);
        done("a message of more than 2 GiB with gaps", &start);
    }
    if (strcmp(only, "messages") != 0) {
        MPI_Win win;
        MPI_Win_create(memory, (MPI_Aint)kMemory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        put_or_get(win, kOverTwo, 4, 1);
        put_or_get(win, kOverFour, 5, 1);
        done("puts", &start);
        put_or_get(win, kOverTwo, 6, 0);
        put_or_get(win, kOverFour, 7, 0);
        done("gets", &start);
        sum(win, kOverTwo, 8);
        done("an accumulate of more than 2 GiB", &start);
        MPI_Win_free(&win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("large: 2 ranks ok\n");
    MPI_Finalize();
    return 0;
}
