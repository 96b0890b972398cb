"""The rows of perf/adaptive: the experiments of the papers on adaptive selection (AQPS) and on connections (ACTS), in
virtual time, the text's figure beside ours.

A row is a function of a Context; it yields Result. All figures repeat bit for bit.
"""
import collections
import os
import re
import sys

from speed import connections, contexts, kinds, small_jobs
from speed.rows import Plot, Result
from speed.run import ROOT, Failed, environment, jobs, output

Context = collections.namedtuple("Context", "build folder quick say plots found")

FABRIC = "connect-ib-64"
NODES = (8, 16, 32, 64)
# As the text has them: DC-RDMA-OD with 28 queue pairs for data. Adaptive selection has what 26 of RC leave of the adapter's
# contexts (48); in the text it is four, each of which is initiator and target.
DC = {"transport": "mp_dc", "dci": 28}
RC = {"transport": "mp_rc"}
ADAPTIVE = {"transport": "adaptive", "dci": 22} # UCX_MP_DC_ADAPT=on: nobody has RC before its costs are known
EAGER = {"transport": "eager", "dci": 22}       # the default: as many as there is room for have it at once
CHOOSING = {"adaptive": ADAPTIVE, "eager": EAGER}
RINGS = 256  # tau
# Rounds before what is measured. 26 queue pairs of RC are made aside in some 50 ms of virtual time, rings in 6. One round of
# `repeat` is ten of the others.
SETTLED = {"onetoall": 128, "alltoone": 128, "repeat": 32}
ROUNDS = 4  # that are
SEEDS = 3
# What a connection's queue pair takes: requests of 64 bytes and what is copied into them, and a page for the rest. The text
# of ACTS says 44 KB; that of AQPS 1424 KB.
SEND_DEPTH, REQUEST, REST = 128, 64 + 256 + 16, 4096
QUEUE_PAIR = SEND_DEPTH * REQUEST + REST


def simulate(c, kernel, **options):
    """One line of mp_sim as {column: number}; kept, so that rows can share it."""
    words = ["--kernel", kernel]
    for name, value in {"policy": "binding", "fabric": FABRIC, **options}.items():
        for one in value if isinstance(value, list) else [value]:
            words += ["--" + name.replace("_", "-")] + ([] if one is True else [str(one)])
    key = tuple(words)
    if key not in c.found:
        if sys.stderr.isatty():
            print(f"\r\033[K{' '.join(words)[:150]}\r", end="", file=sys.stderr, flush=True)
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
    for name, how in CHOOSING.items() if has_adaptive(c) else ():
        found[name] = how
        if rings:
            found[f"{name} with rings"] = how | rings | {"ring_costs": ring_costs()}
    return found


def interval(name):
    """The text's second would be longer than the whole run: 1/50 of what the text sends is sent."""
    return {"adapt_interval": 200_000} if name.split()[0] in CHOOSING or "rings" in name else {}


def spread(found):
    """The median of the seeds in ns a message, and what lies around it."""
    least, most = (1e3 * found["us_per_message"] * found[name] / found["time_us"] for name in ("least_us", "most_us"))
    return f"{1e3 * found['us_per_message']:.0f} ns" + (f" ({least:.0f}..{most:.0f})" if most > 1.005 * least else "")


def by_processes(c, row, kernel, messages, text_dc, text_rc):
    """us per message over the number of processes; the text's two reductions at 64. Medians of seeds. The text sends 50 times
    as much in a round; here rounds are repeated until nothing changes any more."""
    series = {name: [] for name in competitors(c)}
    for nodes in (8, 64) if c.quick else NODES:
        at = {}
        for name, how in competitors(c).items():
            # Settled: memory for 63 rings is registered in 6.3 ms. Without choices the second round is as the first.
            fixed = name in ("DC", "RC")
            at[name] = simulate(c, kernel, nodes=nodes, size=1, messages=messages, seeds=1 if c.quick and fixed else SEEDS, **how,
                                warm_up=1 if fixed else SETTLED[kernel], repeat=1 if fixed else ROUNDS, **interval(name))
            series[name].append((nodes, 1e3 * at[name]["us_per_message"]))
        yield Result(row, f"{nodes} processes", ", ".join(f"{name} {spread(found)}" for name, found in at.items())
                     + f" a message; RC/DC {at['RC']['time_us'] / at['DC']['time_us']:.3f}")
    times = {name: found["time_us"] for name, found in at.items()}
    text = (1 - text_dc) / (1 - text_rc)
    # The fabric's numbers were chosen by these two: that they come out says nothing [contexts].
    chosen = " (calibrated)" if row == "onetoall" else ""
    yield Result(row, f"64 processes, RC/DC{chosen}", f"text {text:.3f}, ours {times['RC'] / times['DC']:.3f}")
    rings = " with rings" if "DC with rings" in times else ""
    if rings:
        yield Result(row, "64 processes, what rings save", ", ".join(
            f"{name} {100 * (times[name + rings] / times[name] - 1):+.1f} %" for name in times if name + rings in times))
    for choosing in (name for name in CHOOSING if name in times):
        for name, reduction in (("DC" + rings, text_dc), ("RC" + rings, text_rc)):
            ours = times[choosing + rings] / times[name] - 1
            least, most = (at[choosing + rings][which] / times[name] - 1 for which in ("least_us", "most_us"))
            yield Result(row, f"64 processes, {choosing} by {name}{chosen}", f"text {-100 * reduction:+.0f} %, ours {100 * ours:+.0f} % "
                         f"(by seed {100 * least:+.0f}..{100 * most:+.0f})", 1 + ours, "<=", round(1 - reduction, 2))
    c.plots.append(Plot(f"{kernel}: one message of 1 byte, by processes", "lines", ["processes"], series, "ns"))


def one_to_all(c):
    """One process sends 1 byte to all others in turns (AQPS figure 10)"""
    yield from by_processes(c, "onetoall", "onetoall", 6_400, 0.19, 0.24)


def all_to_one(c):
    """All send 1 byte to one process (AQPS figure 11)"""
    yield from by_processes(c, "alltoone", "alltoone", 4_800, 0.13, 0.13)


def repeat(c):
    """Both in turn, five times (AQPS figure 12)"""
    yield from by_processes(c, "repeat", "repeat", 6_400, 0.21, 0.24)


def traces(c):
    """Synthetic traces with the shapes of three applications (AQPS figures 3 to 5); the text has no times"""
    bars = {name: [] for name in competitors(c)}
    kernels = ("smg2000", "dl-poly", "namd")
    for kernel in kernels:
        at = {}
        for name, how in competitors(c).items():
            at[name] = simulate(c, kernel, nodes=64, size=1, messages=20 if c.quick else 100, warm_up=4, repeat=2,
                                seeds=1 if c.quick else SEEDS, **how, **interval(name))
            bars[name].append(at[name]["time_us"] / 1e3)
        yield Result("traces", f"{kernel}, 64 processes", ", ".join(
            f"{name} {found['time_us'] / 1e3:.3f} ms ({found['least_us'] / 1e3:.3f}..{found['most_us'] / 1e3:.3f})"
            for name, found in at.items()))
        for rings in ("", " with rings"):
            for choosing in (name + rings for name in CHOOSING if name + rings in at):
                best = min(("DC" + rings, "RC" + rings), key=lambda name: at[name]["time_us"])
                ours = at[choosing]["time_us"] / at[best]["time_us"]
                yield Result("traces", f"{kernel}, {choosing} by the better kind", f"{100 * (ours - 1):+.1f} % by {best}", ours,
                             "<=", 1.05)
    c.plots.append(Plot("Synthetic traces, 64 processes", "bars", list(kernels), bars, "ms"))


def memory_of(c, transport, peers):
    """Bytes of one process that talks to so many: {what: bytes}; `count`: its queue pairs."""
    key = ("memory", transport, peers)
    if key not in c.found:
        more = ["--rings", str(RINGS), "--slices", "256"] if transport == "adaptive" else []
        words = output([f"{c.build}/bin/bench_sim_transport", "--memory", "--peers", str(peers), "--transport", transport, *more,
                        "--fabric", os.path.join(ROOT, "perf", "fabrics", "peers-1024.yaml"), "--paths", "1"],
                       environment(SOFTHCA_FABRICS=f"{ROOT}/config/fabrics"), timeout=900).split()
        found = dict(zip(words[::2], map(int, words[1::2])))
        c.found[key] = {"pairs": found["queue_pairs"] * QUEUE_PAIR, "buffers": found["send_buffers"] + found["receive_buffers"],
                        "table": found["table"], "rings": found["ring_bytes"], "count": found["queue_pairs"]}
    return c.found[key]


def line_through(points, what):
    """(bytes a process, value at 2^16) of what has been measured with the two largest numbers of processes."""
    (n0, first), (n1, second) = points[-2:]
    slope = (second[what] - first[what]) / (n1 - n0)
    return slope, second[what] + slope * ((1 << 16) - n1)


def memory(c):
    """Memory of a process by processes (AQPS figures 8 and 9): measured, then by formula to 2^16"""
    measured = (63, 255) if c.quick else (63, 255, 1023)
    series, at = {}, {}
    for transport in ("mp_rc", "mp_dc", *(["adaptive"] if has_adaptive(c) and has_rings(c) else [])):
        points = [(peers + 1, memory_of(c, transport, peers)) for peers in measured]
        for processes, found in points:
            yield Result("memory", f"{transport}, {processes} processes", f"{found['count']} queue pairs, {found['pairs'] / 1e6:.2f} "
                         f"MB; table {found['table'] / 1e6:.3f} MB; buffers {found['buffers'] / 1e6:.2f} MB, rings "
                         f"{found['rings'] / 1e6:.2f} MB")
        slopes = {what: line_through(points, what)[0] for what in ("pairs", "buffers", "table")}
        at[transport] = {what: line_through(points, what)[1] for what in ("pairs", "buffers", "table")}
        series[transport] = [(n, found["pairs"] + found["table"]) for n, found in points] + [
            (1 << k, sum(points[-1][1][what] + slopes[what] * ((1 << k) - points[-1][0]) for what in ("pairs", "table")))
            for k in range(measured[-1].bit_length() + 1, 17)]
    rc, dc = at["mp_rc"], at["mp_dc"]
    yield Result("memory", "mp_rc, 65536 processes", f"text 93 GB without buffers; ours {rc['pairs'] / 1e9:.2f} GB, by formula; "
                 f"buffers {rc['buffers'] / 1e6:.1f} MB")
    yield Result("memory", "mp_dc, 65536 processes", f"text 4.3 MB with 28 initiators, without buffers; ours {dc['pairs'] / 1e6:.1f} MB; "
                 f"buffers {dc['buffers'] / 1e6:.1f} MB")
    if "adaptive" in at:
        # All sources have sent in every slice, which is the most that the table can hold. The pool of RC may be full.
        table, pool = at["adaptive"]["table"], 128 * QUEUE_PAIR
        whole = dc["pairs"] + pool + table
        yield Result("memory", "adaptive, 65536 processes", f"text 273 MB without buffers, RC 93 GB: 1/341; ours {whole / 1e6:.1f} MB, "
                     f"RC {rc['pairs'] / 1e9:.2f} GB: 1/{rc['pairs'] / whole:.0f}; of rings {RINGS * 65536 / 1e6:.1f} MB in both",
                     whole / 1e6, "<=", 273)
        yield Result("memory", "adaptive, 65536 processes, the table", f"text 87 MB; ours {table / 1e6:.1f} MB, all of them active",
                     table / 1e6, "<=", 87)
        series["adaptive"] = [(n, value + pool) for n, value in series["adaptive"]]
    c.plots.append(Plot(f"Queue pairs and table of a process, by processes (log2; measured to {measured[-1] + 1})", "lines",
                        ["log2 of processes"], {name: [(n.bit_length() - 1, value / 1e6) for n, value in points]
                                                for name, points in series.items() if name != "mp_rc"}, "MB"))


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
        # Commands take milliseconds, and what turns cost is measured now and then: so this is after 96 rounds.
        settled = simulate(c, "onetoall", nodes=64, size=1, warm_up=96, messages=6000, adapt_interval=100_000, **ADAPTIVE)
        claims.append(("onetoall, 64 processes: adaptive, settled, is not behind DC with as many initiators",
                       settled["time_us"] <= 1.05 * time("onetoall", 64, {**DC, "dci": ADAPTIVE["dci"]}, messages=6000)))
        claims.append(("alltoall, 16 processes that begin: what the default measures delays nobody much",
                       small_jobs.beginning(c, "alltoall", 1, 2000, "eager") <
                       1.25 * small_jobs.beginning(c, "alltoall", 1, 2000, "mp_rc")))
    wrong = [text for text, holds in claims if not holds]
    for text, holds in claims:
        c.say(f"{'ok   ' if holds else 'WRONG'} {text}")
    return wrong


ROWS = {"onetoall": one_to_all, "alltoone": all_to_one, "repeat": repeat, "contexts": contexts.contexts, "switches": kinds.switches,
        "traces": traces, "memory": memory, "victims": connections.victims, "taskpool": connections.task_pool,
        "dataservers": connections.data_servers, "servers": connections.servers_that, "small_jobs": small_jobs.small_jobs}
