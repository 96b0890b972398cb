/* Epochs of MPI_Win_post, start, complete and wait: neighbours ring|pair EPOCHS
 *
 * ring: each rank puts to the next one, and is put to by the one before. pair: the first puts to the second one, and
 * the others do nothing meanwhile. neighbours.py counts the messages of every rank. Prints "neighbours: N ranks ok".
 */
#include "checked.h"

enum { kLarge = 4096 };

int main(int argc, char** argv) {
    program = "neighbours";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3 || ranks < 2) fail("ring|pair EPOCHS, two ranks or more");
    const int ring = !strcmp(argv[1], "ring"), epochs = atoi(argv[2]), is_origin = ring || rank == 0,
              is_target = ring || rank == 1;
    const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    unsigned char *memory, *const data = allocate(kLarge);
    MPI_Win win;
    MPI_Group world, to, from;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &next, &to);
    MPI_Group_incl(world, 1, &last, &from);
    MPI_Win_allocate(kLarge, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    for (int epoch = 0; epoch < epochs; epoch++) { /* small ones travel with what tells the end, large ones do not */
        const int bytes = epoch % 2 ? kLarge : 8;
        if (is_target) MPI_Win_post(from, 0, win);
        if (is_origin) {
            fill(data, (size_t)bytes, rank, next, epoch);
            MPI_Win_start(to, 0, win);
            MPI_Put(data, bytes, MPI_BYTE, next, 0, bytes, MPI_BYTE, win);
            MPI_Win_complete(win);
        }
        if (is_target) {
            MPI_Win_wait(win);
            verify(memory, (size_t)bytes, last, rank, epoch, "what was put in an epoch");
        }
    }
    MPI_Win_free(&win);
    MPI_Group_free(&from);
    MPI_Group_free(&to);
    MPI_Group_free(&world);
    if (rank == 0) printf("neighbours: %d ranks ok\n", ranks);
    free(data);
    MPI_Finalize();
    return 0;
}
