/* MPI-3.1, chapter 10: processes of other jobs: spawn [CHILDREN]: started and talked to in both directions, merged, and
 * left again, twice, the second ones met again twice by a port; then one that ends while its communicator is still used
 * by the others. spawn again TIMES: one child after the other instead, each has left when the next one comes.
 * Prints "spawn: N ranks ok" and returns 0, or aborts.
 */
#include <unistd.h>

#include "checked.h"

static void talk(MPI_Comm inter, int side) {
    int remote, mine;
    MPI_Comm_remote_size(inter, &remote);
    MPI_Comm_rank(inter, &mine);
    for (size_t bytes = 1; bytes < 200000; bytes *= 57)
        for (int peer = 0; peer < remote; peer++) {
            unsigned char *out = allocate(bytes), *in = allocate(bytes);
            MPI_Request request;
            fill(out, bytes, mine + 100 * side, peer, (long)bytes);
            MPI_Isend(out, (int)bytes, MPI_BYTE, peer, 4, inter, &request);
            MPI_Recv(in, (int)bytes, MPI_BYTE, peer, 4, inter, MPI_STATUS_IGNORE);
            verify(in, bytes, peer + 100 * !side, mine, (long)bytes, "a message of another job");
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            free(in), free(out);
        }
    MPI_Comm merged;
    MPI_Intercomm_merge(inter, side, &merged);
    int size, sum = 0, one = 1;
    MPI_Comm_size(merged, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, merged);
    if (sum != size) fail("a merged communicator of %d has %d", size, sum);
    MPI_Comm_free(&merged);
}

/* Time in which who is in no communicator any more is forgotten, and the connection given back: a few looks, one in
 * 1024 turns of progress, and what is under way until then. */
static void idle(void) {
    int found;
    const double end = MPI_Wtime() + 0.1;
    for (int turns = 0; turns < 8192 || MPI_Wtime() < end; turns++)
        MPI_Iprobe(MPI_ANY_SOURCE, 9, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
}

/* The same processes again and again, by a port of the parents. With 5.0 MPI_Comm_accept() fails under its launcher. */
static void meet(MPI_Comm* inter, int side) {
#if OMPI_MAJOR_VERSION < 5
    char port[MPI_MAX_PORT_NAME] = "";
    if (side == 0 && rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Send(port, sizeof port, MPI_CHAR, 0, 7, *inter);
    }
    if (side == 1 && rank == 0) MPI_Recv(port, sizeof port, MPI_CHAR, 0, 7, *inter, MPI_STATUS_IGNORE);
    for (int turn = 0; turn < 2; turn++) {
        MPI_Comm_disconnect(inter);
        idle();
        if (side == 0)
            MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, inter);
        else
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, inter);
        talk(*inter, side);
    }
    if (side == 0 && rank == 0) MPI_Close_port(port);
#else
    (void)inter, (void)side;
#endif
}

/* The parents wait for each other in a communicator that a process of another job has left by then. */
static void stay(MPI_Comm inter) {
    MPI_Comm merged;
    int value = 0;
    MPI_Intercomm_merge(inter, 0, &merged);
    MPI_Comm_free(&inter); /* else it would wait for us at its end */
    if (rank == 0) MPI_Recv(&value, 1, MPI_INT, 2, 5, merged, MPI_STATUS_IGNORE); /* so we know it */
    if (rank == 0) MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 6, merged, MPI_STATUS_IGNORE);
    if (rank == 0 && value != 17) fail("a message from any source that is left is %d", value);
    if (rank == 1) {
        sleep(4); /* who is waited for is asked every second */
        value = 17;
        MPI_Send(&value, 1, MPI_INT, 0, 6, merged);
    }
}

static void again(char* program_file, int times) {
    MPI_Comm inter;
    for (int turn = 0; turn < times; turn++) {
        MPI_Comm_spawn(program_file, MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter, MPI_ERRCODES_IGNORE);
        talk(inter, 0);
        MPI_Comm_disconnect(&inter);
    }
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    program = "spawn";
    MPI_Comm parent, inter;
    MPI_Comm_get_parent(&parent);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (parent != MPI_COMM_NULL && argc > 1 && strcmp(argv[1], "leaves") == 0) { /* stay() */
        MPI_Comm merged;
        const int value = 1;
        MPI_Intercomm_merge(parent, 1, &merged);
        MPI_Comm_free(&parent);
        MPI_Send(&value, 1, MPI_INT, 0, 5, merged);
        MPI_Comm_free(&merged);
        idle(); /* they are forgotten, and are not to miss us all the same */
    } else if (parent != MPI_COMM_NULL) {
        talk(parent, 1);
        if (argc > 1) meet(&parent, 1);
        MPI_Comm_disconnect(&parent);
    } else if (argc > 2 && strcmp(argv[1], "again") == 0) {
        again(argv[0], atoi(argv[2]));
        if (rank == 0) printf("spawn: %d ranks ok\n", ranks);
    } else {
        const int children = argc > 1 ? atoi(argv[1]) : 2;
        char *meets[] = {"meets", NULL}, **arguments[] = {MPI_ARGV_NULL, meets};
        for (int turn = 0; turn < 2; turn++) {
            MPI_Comm_spawn(argv[0], arguments[turn], children, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                           MPI_ERRCODES_IGNORE);
            talk(inter, 0);
            if (turn == 1) meet(&inter, 0);
            MPI_Comm_disconnect(&inter);
            idle();
        }
        char* leaves[] = {"leaves", NULL};
        MPI_Comm_spawn(argv[0], leaves, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
        stay(inter);
        if (rank == 0) printf("spawn: %d ranks ok\n", ranks);
    }
    MPI_Finalize();
    return 0;
}
