"""Windows of MPI messages between pairs of ranks: stock Open MPI over mp with defaults and over rc_verbs, paired runs."""
import os
import statistics

from speed.run import ROOT, bandwidth, environment, output

KIB, MIB = 1 << 10, 1 << 20
SIZES = (1, 64, *(n * KIB for n in (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)))
FEWER = (64, *(n * KIB for n in (4, 16, 64, 256, 1024)))
QUICK = (64, *(n * KIB for n in (8, 64, 1024)))
WINDOW = 64
STOCK = "rc_v"


def processors():
    return len(os.sched_getaffinity(0))


def show(size):
    return f"{size} B" if size < KIB else f"{size // KIB} KiB" if size < MIB else f"{size // MIB} MiB"


def mpi(build, transport, ranks, where, program, **more):
    """What the program, a list, prints on these ranks, one per emulated node."""
    env = environment(UCX_TLS=transport, UCT_MP_LIBRARY=f"{build}/lib/libuct_mp.so", OMPI_ALLOW_RUN_AS_ROOT="1",
                      OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **more)
    return output([f"{build}/bin/softhca", "run", "--fabric", where, "--", f"{ROOT}/config/openmpi/mpirun-mp", "--oversubscribe",
                   "--bind-to", "none", "-n", str(ranks), *program], env)


def run(build, transport, ranks, mode, rounds, where, sizes, **more):
    """{size: MB/s} of mpi_windows. A window has 64 MiB at most; up to 16 times the rounds if it has less than 4 MiB, half of
    them from 64 MiB on."""
    def words(size):
        window = min(WINDOW, WINDOW * MIB // size)
        times = max(1, rounds // 2) if window * size >= WINDOW * MIB else rounds * max(1, min(16, WINDOW * KIB // size))
        return f"{size}:{window}:{times}"
    text = mpi(build, transport, ranks, where, [f"{build}/bin/mpi_windows", mode, str(WINDOW), str(rounds), *map(words, sizes)], **more)
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == mode:
            found[int(words[1])] = float(words[2])
    return found


def paired(turns, transports, measure):
    """{transport: {case: (ours, stock, median of ours / stock in one turn)}} of measure(transport) -> {case: number}; who
    begins changes."""
    found = []
    for turn in range(turns):
        order = [*transports, STOCK]
        order = order[turn % len(order):] + order[:turn % len(order)]
        found.append({transport: measure(transport) for transport in order})
    return {transport: {case: (statistics.median(f[transport][case] for f in found), statistics.median(f[STOCK][case] for f in found),
                               statistics.median(f[transport][case] / f[STOCK][case] for f in found))
                        for case in found[0][STOCK]} for transport in transports}


def compare(build, ranks, mode, turns, rounds, where, transports=("mp_rc",), sizes=SIZES, **more):
    """{transport: {size: (MB/s, of stock, ratio)}}"""
    return paired(turns, transports, lambda transport: run(build, transport, ranks, mode, rounds, where, sizes, **more))


def cases(quick):
    """(name, ranks, mode, fabric, transports, sizes, variables): what users get, `mp_rc,mp_dc`, beside mp_rc alone."""
    config = os.path.join(ROOT, "config", "fabrics")
    two, four = os.path.join(config, "two-rail.yaml"), os.path.join(config, "four-path.yaml")
    pair = os.path.join(ROOT, "perf", "fabrics", "four-path-pair.yaml")
    sizes = QUICK if quick else SIZES
    both = ("mp_rc", "mp_rc,mp_dc")
    yield "1 pair, one way", 2, "one", two, both, sizes, {}
    yield "1 pair, both ways", 2, "both", two, both[:1] if quick else both, sizes, {}
    yield "4 pairs, one way", 8, "one", two, both[:1], sizes, {}
    yield "4 pairs, both ways", 8, "both", two, both[:1], sizes, {}
    yield "1 pair, one way, four paths", 2, "one", pair, both[:1], sizes, {}
    yield "4 pairs, one way, four paths", 8, "one", four, both[:1], sizes, {}
    yield "1 pair, one way, PROTO_ENABLE", 2, "one", two, both[:1], QUICK[1:3] if quick else FEWER, {"UCX_PROTO_ENABLE": "y"}
    if not quick:
        yield "4 pairs, both ways, four paths", 8, "both", four, both[:1], sizes, {}
        yield "1 pair, both ways, four paths", 2, "both", pair, both[:1], FEWER, {}
        yield "1 pair, both ways, PROTO_ENABLE", 2, "both", two, both[:1], FEWER, {"UCX_PROTO_ENABLE": "y"}


SMALL = KIB  # the processors are the limit
STEADY = (64 * KIB, 256 * KIB, MIB)  # all by rendezvous: the links are the limit


def host_cost(build, where, real):
    """ns that a request, and likewise a completion, costs this host: such that virtual time has as many small messages."""
    low, high = 0, 100000
    while high - low > 50:
        cost = (low + high) // 2
        fast = bandwidth(build, fabric=where, op="eager", window=WINDOW, size=SMALL, run=10, host_post=cost,
                         host_completion=cost) > real
        low, high = (cost, high) if fast else (low, cost)
    return high


def clocks(build, pairs, turns, rounds, where):
    """(ns of host_cost, {size: (real MB/s, virtual MB/s, median of their ratios)}). Pairs don't meet on any link."""
    turned = [run(build, "mp_rc", 2 * pairs, "one", rounds, where, (SMALL, *STEADY)) for _ in range(turns)]
    cost = host_cost(build, where, statistics.median(found[SMALL] for found in turned) / pairs)
    result = {}
    for size in STEADY:
        exact = pairs * bandwidth(build, fabric=where, op="rendezvous_get", window=WINDOW, size=size, run=1000,
                                  host_post=cost, host_completion=cost)
        real = [found[size] for found in turned]
        result[size] = (statistics.median(real), exact, statistics.median(value / exact for value in real))
    return cost, result
