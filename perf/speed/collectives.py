"""Collectives of MPI: stock Open MPI over mp with defaults and over rc_verbs, paired runs."""
from speed.windows import KIB, mpi, paired

SIZES = {"allreduce": (8, 512, 2 * KIB, 8 * KIB, 16 * KIB, 64 * KIB), "alltoall": (64, 512, 2 * KIB, 8 * KIB, 16 * KIB, 64 * KIB)}
QUICK = {"allreduce": (8, 8 * KIB), "alltoall": (64, 8 * KIB)}


def run(build, transport, ranks, rounds, where, sizes):
    """{(name, size): us of a call}"""
    cases = ["barrier"] + [f"{name}:{size}" for name, each in sizes.items() for size in each]
    found = {}
    for line in mpi(build, transport, ranks, where, [f"{build}/bin/mpi_collectives", str(rounds), *cases]).splitlines():
        words = line.split()
        if len(words) == 3 and words[0] in ("barrier", *sizes):
            found[words[0], int(words[1])] = float(words[2])
    return found


def compare(build, ranks, turns, rounds, where, transports, sizes):
    """{transport: {(name, size): (us, of stock, median of ours / stock)}}"""
    return paired(turns, transports, lambda transport: run(build, transport, ranks, rounds, where, sizes))
