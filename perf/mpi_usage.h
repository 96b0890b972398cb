/* Arguments of the MPI programs here: who includes it defines USAGE, "NAME ARGUMENTS". */
#pragma once

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void die(const char* what) {
    fprintf(stderr, "%s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* All ranks have the same arguments, so all come here: one line, before any of them ends the job. */
static void misuse(const char* what) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) fprintf(stderr, "%s; usage: " USAGE "\n", what);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static long number(const char* text, long most) {
    char* end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < 1 || value > most) misuse("a number is not one, or out of range");
    return value;
}
