"""Windows of MPI messages between pairs of ranks: stock Open MPI over mp_rc with defaults and over rc_verbs, paired runs."""
import collections
import os
import statistics

from speed.run import ROOT, bandwidth, environment, output

SIZES = (8, 16, 32, 64, 128, 256, 1024)  # KiB
WINDOW = 64


def processors():
    return len(os.sched_getaffinity(0))


def run(build, transport, ranks, mode, rounds, where, sizes=SIZES, **more):
    """{KiB: MB/s} of mpi_windows with these ranks, one per emulated node."""
    env = environment(UCX_TLS=transport, UCT_MP_LIBRARY=f"{build}/lib/libuct_mp.so", OMPI_ALLOW_RUN_AS_ROOT="1",
                      OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **more)
    text = output([f"{build}/bin/softhca", "run", "--fabric", where, "--", f"{ROOT}/config/openmpi/mpirun-mp", "--oversubscribe",
                   "--bind-to", "none", "-n", str(ranks), f"{build}/bin/mpi_windows", mode, str(WINDOW), str(rounds),
                   *(str(size * 1024) for size in sizes)], env)
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


SMALL = 1  # KiB: the processors are the limit
STEADY = (64, 256, 1024)  # KiB, all by rendezvous: the links are the limit


def host_cost(build, where, real):
    """ns that a request, and likewise a completion, costs this host: such that virtual time has as many small messages."""
    low, high = 0, 100000
    while high - low > 50:
        cost = (low + high) // 2
        fast = bandwidth(build, fabric=where, op="eager", window=WINDOW, size=SMALL * 1024, run=10, host_post=cost,
                         host_completion=cost) > real
        low, high = (cost, high) if fast else (low, cost)
    return high


def clocks(build, pairs, turns, rounds, where):
    """(ns of host_cost, {KiB: (real MB/s, virtual MB/s, median of their ratios)}). Pairs don't meet on any link."""
    turned = [run(build, "mp_rc", 2 * pairs, "one", rounds, where, (SMALL, *STEADY)) for _ in range(turns)]
    cost = host_cost(build, where, statistics.median(found[SMALL] for found in turned) / pairs)
    result = {}
    for size in STEADY:
        exact = pairs * bandwidth(build, fabric=where, op="rendezvous_get", window=WINDOW, size=size * 1024, run=1000,
                                  host_post=cost, host_completion=cost)
        real = [found[size] for found in turned]
        result[size] = (statistics.median(real), exact, statistics.median(value / exact for value in real))
    return cost, result
