"""Windows of MPI messages between pairs of ranks: stock Open MPI over mp_rc with defaults and over rc_verbs, paired runs."""
import collections
import os
import statistics

from speed.run import ROOT, environment, output

SIZES = (8, 16, 32, 64, 128, 256, 1024)  # KiB
WINDOW = 64


def processors():
    return len(os.sched_getaffinity(0))


def run(build, transport, ranks, mode, rounds, where, **more):
    """{KiB: MB/s} of mpi_windows with these ranks, one per emulated node."""
    env = environment(UCX_TLS=transport, UCT_MP_LIBRARY=f"{build}/lib/libuct_mp.so", OMPI_ALLOW_RUN_AS_ROOT="1",
                      OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **more)
    text = output([f"{build}/bin/softhca", "run", "--fabric", where, "--", f"{ROOT}/config/openmpi/mpirun-mp", "--oversubscribe",
                   "--bind-to", "none", "-n", str(ranks), f"{build}/bin/mpi_windows", mode, str(WINDOW), str(rounds),
                   *(str(size * 1024) for size in SIZES)], env)
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == mode:
            found[int(words[1]) // 1024] = float(words[2])
    return found


def compare(build, ranks, mode, turns, rounds, where):
    """{KiB: (ours, stock, ratio)}: medians, the ratio of neighbouring runs; begun by each in turn."""
    pairs = collections.defaultdict(list)
    for turn in range(turns):
        found = {}
        for transport in (("mp_rc", "rc_v") if turn % 2 else ("rc_v", "mp_rc")):
            found[transport] = run(build, transport, ranks, mode, rounds, where)
        for size in SIZES:
            pairs[size].append((found["mp_rc"][size], found["rc_v"][size]))
    return {size: (statistics.median(ours for ours, _ in rows), statistics.median(stock for _, stock in rows),
                   statistics.median(ours / stock for ours, stock in rows)) for size, rows in pairs.items()}
