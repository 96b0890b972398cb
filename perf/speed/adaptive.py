"""The rows of perf/adaptive: the experiments of the papers on adaptive selection (AQPS) and on connections (ACTS), in
virtual time, the text's figure beside ours.

A row is a function of a Context; it yields Result. All figures repeat bit for bit.
"""
import collections
import os
import re

from speed import connections
from speed.rows import Plot, Result
from speed.run import ROOT, Failed, environment, jobs, output

Context = collections.namedtuple("Context", "build folder quick say plots found")

FABRIC = "connect-ib-64"
NODES = (8, 16, 32, 64)
# As the text has them: DC-RDMA-OD with 28 queue pairs for data. Adaptive selection has what 26 of RC leave of the adapter's
# contexts (48); in the text it is four, each of which is initiator and target.
DC = {"transport": "mp_dc", "dci": 28}
RC = {"transport": "mp_rc"}
ADAPTIVE = {"transport": "adaptive", "dci": 22}
RINGS = 256  # tau
SETTLED = 16  # rounds
# What a connection's queue pair takes: requests of 64 bytes and what is copied into them, and a page for the rest. The text
# of ACTS says 44 KB; that of AQPS 1424 KB.
SEND_DEPTH, REQUEST, REST = 128, 64 + 256 + 16, 4096
QUEUE_PAIR = SEND_DEPTH * REQUEST + REST


def simulate(c, kernel, **options):
    """One line of mp_sim as {column: number}; kept, so that rows can share it."""
    words = ["--kernel", kernel, "--policy", "binding"]
    for name, value in {"fabric": FABRIC, **options}.items():
        for one in value if isinstance(value, list) else [value]:
            words += ["--" + name.replace("_", "-")] + ([] if one is True else [str(one)])
    key = tuple(words)
    if key not in c.found:
        row = jobs(c.build, c.folder, words)[0]
        c.found[key] = {name: float(value) for name, value in row.items() if name not in ("transport", "policy")}
    return c.found[key]


def can(c, **options):
    """Does this build know these options? Asked of mp_sim itself, with the smallest job there is."""
    try:
        simulate(c, "barrier", nodes=2, messages=1, **options)
        return True
    except Failed as why:
        if "this build has no" not in str(why):
            raise
        return False


def has_adaptive(c):
    return can(c, **ADAPTIVE)


def has_rings(c):
    return can(c, **DC, rings=1)


def ring_costs():
    """d, p, c and delta as the fabric's processors have them: what the user would have measured. Memory is registered aside, so
    that a ring costs its offer and the answer."""
    with open(os.path.join(ROOT, "config", "fabrics", FABRIC + ".yaml"), encoding="utf-8") as file:
        found = dict(re.findall(r"^  +(\w+): ([\d.]+) (?:ns|us)$", file.read(), re.MULTILINE))
    ns = {name: float(value) for name, value in found.items()}
    # An acknowledgment is posted, its completion found, and taken from the queue at the other side.
    credit = ns["post"] + ns["completion"] + ns["receive"]
    return f"{ns['receive'] - ns['poll_hit']:.0f},{ns['poll_miss']:.0f},{credit:.0f},{2 * credit:.0f}"


def has_limit(c):
    return can(c, max_conn=4)


def missing(c):
    return ([] if has_adaptive(c) else ["this build has no adaptive selection: its columns are left out"]) + \
           ([] if has_rings(c) else ["this build has no rings: all is compared without"]) + \
           ([] if has_limit(c) else ["this build has no limit of connections: the task pool runs without"])


def competitors(c):
    """With rings, DC-RDMA-OD and RC-RDMA-OD as the text has them: each peer that has sent something gets a ring."""
    rings = {"rings": RINGS} if has_rings(c) else {}
    found = {"DC": DC, "RC": RC}
    if rings:
        found |= {"DC with rings": DC | rings, "RC with rings": RC | rings}
    if has_adaptive(c):
        found["adaptive"] = ADAPTIVE
        if rings:
            found["adaptive with rings"] = ADAPTIVE | rings | {"ring_costs": ring_costs()}
    return found


def interval(name):
    """The text's second would be longer than the whole run: 1/50 of what the text sends is sent."""
    return {"adapt_interval": 200_000} if "adaptive" in name or "rings" in name else {}


def by_processes(c, row, kernel, messages, text_dc, text_rc):
    """us per message over the number of processes; the text's two reductions at 64."""
    if c.quick:
        messages //= 10
    series = {name: [] for name in competitors(c)}
    for nodes in NODES:
        for name, how in competitors(c).items():
            # Settled: memory for 63 rings is registered in 6.3 ms. Without choices the second round is as the first.
            found = simulate(c, kernel, nodes=nodes, size=1, messages=messages, seeds=1 if c.quick else 3, **how,
                             warm_up=1 if name in ("DC", "RC") else SETTLED, **interval(name))
            series[name].append((nodes, 1e3 * found["us_per_message"]))
        at = {name: points[-1][1] for name, points in series.items()}
        yield Result(row, f"{nodes} processes", ", ".join(f"{name} {value:.0f} ns" for name, value in at.items())
                     + f" a message; RC/DC {at['RC'] / at['DC']:.3f}")
    text = (1 - text_dc) / (1 - text_rc)
    yield Result(row, "64 processes, RC/DC", f"text {text:.3f}, ours {at['RC'] / at['DC']:.3f}")
    rings = " with rings" if "DC with rings" in at else ""
    if rings:
        yield Result(row, "64 processes, what rings save", ", ".join(
            f"{name} {100 * (at[name + rings] / at[name] - 1):+.1f} %" for name in at if name + rings in at))
    if "adaptive" in at:
        for name, reduction in (("DC" + rings, text_dc), ("RC" + rings, text_rc)):
            ours = at["adaptive" + rings] / at[name] - 1
            yield Result(row, f"64 processes, adaptive by {name}", f"text {-100 * reduction:+.0f} %, ours {100 * ours:+.0f} %",
                         1 + ours, "<=", round(1 - reduction, 2))
    c.plots.append(Plot(f"{kernel}: one message of 1 byte, by processes", "lines", ["processes"], series, "ns"))


def one_to_all(c):
    """One process sends 1 byte to all others in turns (AQPS figure 10)"""
    yield from by_processes(c, "onetoall", "onetoall", 64_000, 0.19, 0.24)


def all_to_one(c):
    """All send 1 byte to one process (AQPS figure 11)"""
    yield from by_processes(c, "alltoone", "alltoone", 48_000, 0.13, 0.13)


def repeat(c):
    """Both in turn, five times (AQPS figure 12)"""
    yield from by_processes(c, "repeat", "repeat", 64_000, 0.21, 0.24)


def traces(c):
    """Synthetic traces with the shapes of three applications (AQPS figures 3 to 5); the text has no times"""
    bars = {name: [] for name in competitors(c)}
    kernels = ("smg2000", "dl-poly", "namd")
    for kernel in kernels:
        for name, how in competitors(c).items():
            found = simulate(c, kernel, nodes=64, size=1, messages=20 if c.quick else 100, repeat=2, **how, **interval(name))
            bars[name].append(found["time_us"] / 1e3)
        yield Result("traces", f"{kernel}, 64 processes", ", ".join(f"{name} {times[-1]:.3f} ms" for name, times in bars.items()))
    c.plots.append(Plot("Synthetic traces, 64 processes", "bars", list(kernels), bars, "ms"))


def memory_of(c, transport, peers):
    """Bytes of one process that talks to so many: (queue pairs, buffers, number of queue pairs)."""
    key = ("memory", transport, peers)
    if key not in c.found:
        words = output([f"{c.build}/bin/bench_sim_transport", "--memory", "--peers", str(peers), "--transport", transport,
                        "--fabric", os.path.join(ROOT, "perf", "fabrics", "thousand.yaml"), "--paths", "1"],
                       environment(SOFTHCA_FABRICS=f"{ROOT}/config/fabrics"), timeout=900).split()
        found = dict(zip(words[::2], map(int, words[1::2])))
        c.found[key] = (found["queue_pairs"] * QUEUE_PAIR, found["send_buffers"] + found["receive_buffers"], found["queue_pairs"])
    return c.found[key]


def memory(c):
    """Memory of a process by processes (AQPS figures 8 and 9): measured, then by formula to 2^16"""
    measured = (63, 255) if c.quick else (63, 255, 999)
    series = {}
    for transport in ("mp_rc", "mp_dc"):
        points = [(peers + 1, *memory_of(c, transport, peers)) for peers in measured]
        for processes, pairs, buffers, count in points:
            yield Result("memory", f"{transport}, {processes} processes",
                         f"{count} queue pairs, {pairs / 1e6:.2f} MB; buffers {buffers / 1e6:.2f} MB")
        (n0, p0, b0, _), (n1, p1, b1, _) = points[-2:]
        per_pair, per_buffer = (p1 - p0) / (n1 - n0), (b1 - b0) / (n1 - n0)
        full = [(1 << k, (p1 + per_pair * ((1 << k) - n1), max(b0, b1 + per_buffer * ((1 << k) - n1)))) for k in range(10, 17)]
        series[f"{transport}, queue pairs"] = [(n, p) for n, p, *_ in points] + [(n, both[0]) for n, both in full]
        text = {"mp_rc": "93 GB", "mp_dc": "4.3 MB with 28 initiators"}[transport]
        yield Result("memory", f"{transport}, 65536 processes", f"text {text} without buffers; ours {full[-1][1][0] / 1e6:.1f} MB, "
                     f"buffers {full[-1][1][1] / 1e6:.1f} MB ({per_pair:.0f} and {per_buffer:.0f} bytes a process)")
    # 128 queue pairs of RC in the pool beside mp_dc; the table of who has sent what is not in it.
    dc = series["mp_dc, queue pairs"][-1][1]
    yield Result("memory", "adaptive, 65536 processes", f"text 273 MB (87 of them its table); ours {(dc + 128 * QUEUE_PAIR) / 1e6:.1f} MB "
                 "and the table, by formula: a pool of 128")
    series["adaptive (formula, no table)"] = [(n, value + 128 * QUEUE_PAIR) for n, value in series["mp_dc, queue pairs"]]
    c.plots.append(Plot("Queue pairs of a process, by processes (log2; measured to 1000)", "lines", ["log2 of processes"],
                        {name: [(n.bit_length() - 1 + (n / (1 << n.bit_length() - 1) - 1), value / 1e6) for n, value in points]
                         for name, points in series.items()}, "MB"))


def wrong_order(c):
    """Who wins where; lines of what is not so. Never how much."""
    def time(kernel, nodes, how, **more):
        return simulate(c, kernel, nodes=nodes, size=1, warm_up=1, **how, **more)["time_us"]
    claims = [
        ("onetoall, 16 processes: all contexts are held, RC is ahead of DC",
         time("onetoall", 16, RC, messages=3000) < time("onetoall", 16, DC, messages=3000)),
        ("onetoall, 64 processes: more queue pairs than contexts, DC is ahead of RC",
         time("onetoall", 64, DC, messages=6000) < time("onetoall", 64, RC, messages=6000)),
        ("onetoall, 64 processes: four initiators wait for each other, 28 do not",
         time("onetoall", 64, DC, messages=6000) < time("onetoall", 64, {**DC, "dci": 4}, messages=6000)),
        ("halo, 64 processes: few peers each, RC is ahead of DC", time("halo", 64, RC) < time("halo", 64, DC)),
        ("taskpool: who connects on demand is behind who is connected",
         time("taskpool", 16, RC, messages=3) < simulate(c, "taskpool", nodes=16, size=1, warm_up=0, on_demand=True, messages=3,
                                                         **RC)["time_us"]),
    ]
    if has_adaptive(c):
        # Commands take milliseconds, so this is after 32 rounds. It does not come up to RC here.
        settled = simulate(c, "onetoall", nodes=64, size=1, warm_up=32, messages=6000, adapt_interval=100_000, **ADAPTIVE)
        claims.append(("onetoall, 64 processes: adaptive, settled, is not behind DC with as many initiators",
                       settled["time_us"] <= 1.05 * time("onetoall", 64, {**DC, "dci": ADAPTIVE["dci"]}, messages=6000)))
    wrong = [text for text, holds in claims if not holds]
    for text, holds in claims:
        c.say(f"{'ok   ' if holds else 'WRONG'} {text}")
    return wrong


ROWS = {"onetoall": one_to_all, "alltoone": all_to_one, "repeat": repeat, "traces": traces, "memory": memory,
        "victims": connections.victims, "taskpool": connections.task_pool,
        "dataservers": connections.data_servers}
