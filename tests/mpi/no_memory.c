/* A rank whose memory is used up by messages that nobody has received: no_memory
 *
 * It says so in one line, and ends; with it the job. Rank 1 may have 64 MiB more than it has, rank 0 sends it far more.
 */
#include <sys/resource.h>

#include "checked.h"

enum { BYTES = 4000, MESSAGES = 100000 };

static void limit_memory(void) {
    long pages = 0;
    FILE* const said = fopen("/proc/self/statm", "r");
    if (said == NULL || fscanf(said, "%ld", &pages) != 1) fail("no /proc/self/statm");
    fclose(said);
    const rlim_t most = (rlim_t)pages * 4096 + (64 << 20);
    if (setrlimit(RLIMIT_AS, &(struct rlimit){most, most}) != 0) fail("no limit");
}

int main(int argc, char** argv) {
    static char data[BYTES];
    MPI_Init(&argc, &argv);
    program = "no_memory";
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) limit_memory();
    if (rank == 0)
        for (int i = 0; i < MESSAGES; i++) MPI_Send(data, BYTES, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
