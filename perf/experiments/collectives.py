"""The thesis on Myrinet, chapter 4: plans on queues that wait, beside hosts that forward
(bench_sim_collect), in virtual time.

Ten numbers went in, and one guess (which nodes are slow). Three are of the adapter (its `finish` is assumed to be its `wait`) and
two of the host, by barriers of two and four nodes and what a bcast costs its root. Three are of data, by single messages (table 4.1)
and the root's time. Two are of making a communicator. All other numbers of nodes and operations are predicted: their errors stand in
the table.
"""
import os

from experiments.claims import Claim, near, percent
from speed.rows import Plot
from speed.run import ROOT, environment, output

FABRIC = os.path.join(ROOT, "perf", "fabrics", "myrinet-2003.yaml")
TODAY = os.path.join(ROOT, "perf", "fabrics", "hdr-2rail.yaml")

# ns. Of the adapter: `start` is the host's, by the root's 18 us in a bcast of 8 bytes, which are also two messages of two requests
# (table 4.5); `finish` is what the adapter takes for a message. With the fabric's `wait` both barriers are met.
# Of the host: `receive` by the barrier of four, in which the root takes a message that has come before, `send` what is left of
# two. (The text has 38 us for taking such a message, 4.2.)
NIC = {"start": 12000, "finish": 7800}
HOST = {"send": 11200, "receive": 31400}
# Four of the eight nodes have processors of 266 MHz, four of 552. The text does not say which ranks; the rise at five nodes would
# have the slow ones last.
SLOW = {"slow_from": 4, "slow": 2.075}
# Table 4.1: 30 us more for 512 bytes than for none, 58 ns per byte. The link and the DMA take 11.2 of it, the sender's processor 30
# (by the root's 45 us, table 4.5), the receiver's the rest. 40 us more from 513 bytes on, where memory is pinned and the
# envelope goes ahead.
DATA = {"byte_out": 30, "byte_in": 17, "small": 512, "pin": 40000}
# Of a communicator: what is left of two and four nodes (table 4.3), less the barrier.
CREATE = {"adapter": 212700, "host": 257000}

# us by nodes: adapter, host
BARRIER = {2: (31, 89), 3: (45, 147), 4: (50, 209), 5: (78, 327), 6: (90, 366), 7: (114, 426), 8: (123, 506)}
CREATES = {2: (244, 344), 3: (256, 396), 4: (263, 468), 5: (322, 604), 6: (359, 670), 7: (384, 724), 8: (404, 817)}
FITTED = (2, 4)
# by bytes, eight nodes
LATENCY = {4: (50, 140), 32: (51, 143), 128: (64, 158), 256: (80, 177), 512: (92, 217), 1024: (164, 195), 2048: (219, 347),
           4096: (292, 407), 8192: (423, 545), 16384: (761, 864), 32768: (1440, 1446), 65536: (2808, 2812), 131072: (5502, 5597),
           262144: (10927, 11216)}
# by bytes, at the root of seven: in a row, alone, host
ROOTS = {8: (60, 18, 19), 32: (61, 18, 20), 128: (68, 24, 26), 512: (97, 45, 46), 1024: (150, 86, 178), 2048: (186, 103, 195),
         4096: (285, 155, 251), 8192: (465, 250, 343), 16384: (797, 454, 520)}


def collect(c, command, **options):
    """{word: number} that bench_sim_collect prints."""
    words = [command]
    for name, value in options.items():
        if value is not False:
            words += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
    key = ("collect", *words)
    if key not in c.kept:
        c.say(" ".join(words))
        text = output([f"{c.build}/bin/bench_sim_collect", *words], environment(SOFTHCA_FABRICS=f"{ROOT}/config/fabrics"), 1200)
        c.kept[key] = dict((name, float(value)) for name, value in (line.split() for line in text.splitlines()))
    return c.kept[key]


def error(ours, text):
    return f"{ours:.0f} us (text {text}, {percent(ours / text - 1)})"


def factor(figure, what, texts, ours, why="", within=None):
    """What the host takes, divided by what the adapter takes. within: of the text's factor, or its order does not agree."""
    text, found = texts[1] / texts[0], ours[1] / ours[0]
    agrees = found > 1 if within is None else abs(found / text - 1) <= within
    if within is None and abs(text - 1) < 0.05:
        agrees = abs(found - 1) < 0.15
    return Claim(figure, f"{what}: {error(ours[1], texts[1])} / {error(ours[0], texts[0])}", f"{text:.2f}", f"{found:.2f}", agrees,
                 why, near(text - 1, found - 1))


def rises(figure, what, factors):
    """With the depth of the tree, of which 2, 4 and 8 nodes are the largest."""
    depths = [factors[n] for n in (2, 4, 8)]
    return Claim(figure, f"{what}, 2, 4, 8 nodes: the factor rises with the depth of the tree", "rises",
                 ", ".join(f"{one:.1f}" for one in depths), depths[0] < depths[1] < depths[2])


def both(c, command, own, **options):
    """us of the adapter and of the host"""
    return [collect(c, command, fabric=FABRIC, engine=engine, **costs, **own[engine], **options)["us"]
            for engine, costs in (("adapter", NIC), ("host", HOST))]


NOTHING = {"adapter": {}, "host": {}}
RISE = "from five nodes on all takes longer than two and four nodes say, by more than hops, with either engine (findings/collectives.md)"


PINS = "pinning was calibrated by single messages; what a host pins in a bcast is not told"


def barriers(c):
    """N table 4.2: barriers of 2 to 8 nodes, fitted at 2 and 4"""
    factors = {}
    for n in (2, 4, 8) if c.quick else BARRIER:
        fitted = " (calibrated)" if n in FITTED else ""
        us = both(c, "barrier", NOTHING, ranks=n, algorithm="binary")
        factors[n] = us[1] / us[0]
        yield factor("N Table 4.2", f"barrier, {n} nodes{fitted}", BARRIER[n], us, RISE, None if fitted else 0.15)
    yield rises("N Fig 4.2", "barrier", factors)
    for n in (8,) if c.quick else (5, 6, 7, 8):
        yield factor("N Table 4.2", f"barrier, {n} nodes (calibrated: by the rise at five, the last are the slow ones)", BARRIER[n],
                     both(c, "barrier", NOTHING, ranks=n, algorithm="binary", **SLOW), RISE, 0.15)
    for n in () if c.quick else (16, 64):
        fabric, found = more_nodes(c, n), {}
        for algorithm in ("binary", "dissemination"):
            for engine, costs in (("host", HOST), ("adapter", NIC)):
                found[f"{algorithm} {engine}"] = collect(c, "barrier", fabric=fabric, ranks=n, algorithm=algorithm, engine=engine, **costs)["us"]
        yield Claim("ours", f"barrier, {n} such nodes: " + ", ".join(f"{name} {t:.0f}" for name, t in found.items()) + " us", "printed",
                    f"{found['binary host'] / found['binary adapter']:.2f}", None)


def more_nodes(c, nodes):
    path = os.path.join(c.folder, f"myrinet-{nodes}.yaml")
    with open(FABRIC, encoding="ascii") as text, open(path, "w", encoding="ascii") as out:
        out.write(text.read().replace("node[0-7]", f"node[0-{nodes - 1}]").replace("ports: 8", f"ports: {nodes}").replace("myrinet-2003", f"myrinet-{nodes}"))
    return path


def creation(c):
    """N table 4.3: making a communicator, fitted at 2 and 4"""
    own = {engine: {"before": cost} for engine, cost in CREATE.items()}
    factors = {}
    for n in (2, 4, 8) if c.quick else CREATES:
        fitted = " (calibrated)" if n in FITTED else ""
        us = both(c, "barrier", own, ranks=n, algorithm="binary", bytes=4)
        factors[n] = us[1] / us[0]
        yield factor("N Table 4.3", f"communicator, {n} nodes{fitted}", CREATES[n], us, RISE, None if fitted else 0.15)
    yield rises("N Fig 4.3", "communicator", factors)


def bcasts(c):
    """N table 4.4, figure 4.4: latency of broadcasts, 8 nodes"""
    sizes = (4, 512, 8192, 65536) if c.quick else LATENCY
    own = {"adapter": {"acknowledged": True}, "host": {}}
    lines = {"adapter": [], "host": []}
    for size in sizes:
        ours = both(c, "bcast", own, ranks=8, bytes=size, measure="latency", **DATA)
        lines["adapter"].append((size / 1024, ours[0]))
        lines["host"].append((size / 1024, ours[1]))
        why = "" if size <= 512 else PINS if size < 32768 else "both children share the link here"
        yield factor("N Table 4.4", f"bcast, {size} bytes", LATENCY[size], ours, why)
    for size in (64, 8192):
        found = []
        for n in (2, 8):
            ours = both(c, "bcast", own, ranks=n, bytes=size, measure="latency", **DATA)
            found.append(ours[1] / ours[0])
        yield Claim("N Fig 4.4", f"bcast, {size} bytes: factor with 8 nodes beside that with 2", "more", f"{found[1] / found[0]:.2f}",
                    found[1] > found[0])
    if c.drawn:
        c.plots.append(Plot("Broadcasts of eight nodes (N table 4.4)", "log", ["KiB"], lines, "us"))


def roots(c):
    """N table 4.5: what broadcasts take of the root, 7 nodes"""
    for size in (8, 512, 1024) if c.quick else ROOTS:
        texts = ROOTS[size]
        job = {"fabric": FABRIC, "ranks": 7, "bytes": size, **DATA}
        row, alone = (collect(c, "bcast", engine="adapter", acknowledged=True, measure=m, **NIC, **job)["us"] for m in ("row", "alone"))
        host = collect(c, "bcast", engine="host", measure="alone", **HOST, **job)["us"]
        fitted = size in (8, 512)
        yield factor("N Table 4.5", f"root, {size} bytes: host / adapter alone{' (calibrated: the adapter)' if fitted else ''}", texts[1:],
                     (alone, host), PINS if size > 512 else "")
        yield factor("N Table 4.5", f"root, {size} bytes, adapter: in a row / alone{', which was calibrated' if fitted else ''}",
                     texts[1::-1], (alone, row))
        if size <= 512:
            ours, single = (collect(c, "bcast", engine="adapter", measure=m, **NIC, **job)["us"] for m in ("row", "alone"))
            yield Claim("ours", f"root, {size} bytes, our slots without acknowledgments: in a row / alone", "<= 1.3",
                        f"{ours / single:.2f}", ours / single <= 1.3)


def today(c):
    """N table 4.2 with costs of today (hdr-2rail, assumed): who wins"""
    numbers = (16, 64) if c.quick else (16, 64, 256, 1024)
    lines = {}
    for n in numbers:
        found = {}
        for algorithm in ("binary", "dissemination"):
            for engine in ("host", "adapter"):
                found[algorithm, engine] = collect(c, "barrier", fabric=TODAY, ranks=n, algorithm=algorithm, engine=engine, times=30)["us"]
                lines.setdefault(f"{algorithm}, {engine}", []).append((n, found[algorithm, engine]))
        best = min(found, key=found.get)
        yield Claim("ours", f"barrier today, {n} nodes: " + ", ".join(f"{a} {e} {t:.1f}" for (a, e), t in found.items()) + " us",
                    "printed", f"{best[0]}, {best[1]}", None)
    if c.drawn:
        c.plots.append(Plot("Barriers with costs of today", "log", ["nodes"], lines, "us"))


def small(c):
    """Goals of coll/mp: barrier, allreduce of 8 bytes and MPI_Comm_dup beside those of coll/tuned and libnbc (hdr-2rail, one rail)"""
    for n in (8, 64) if c.quick else (8, 12, 16, 48, 64, 100, 256):  # 1000 take 4.4 GB and two minutes
        us = collect(c, "core", fabric=TODAY, ranks=n, times=20)
        rounds = (n - 1).bit_length()
        for what in ("barrier", "allreduce", "dup"):
            ours = us[f"{what}_us"]
            name, theirs = next((key.split("_")[1], time) for key, time in us.items() if key.startswith(what + "_") and key != f"{what}_us")
            as_few = name == "bruck" or (name == "doubling" and n == 1 << rounds)
            goal = 1.02 if as_few and what != "dup" else 0.7
            yield Claim("goal", f"{what}, {n} ranks: {ours:.2f} us / {theirs:.2f} us ({name})", f"<= {goal}", f"{ours / theirs:.2f}",
                        ours / theirs <= goal, "findings/collectives.md")


def hosts(c):
    """coll/mp by hosts, beside itself without them and coll/tuned: adapters of today (5 ns a message), and of 2005 (200 ns)"""
    jobs = ((16, 4), (64, 8)) if c.quick else ((8, 2), (16, 4), (24, 8), (64, 8), (256, 16))
    for fabric, what in ((TODAY, "today"), ("fattree-144", "2005")):
        for n, each in jobs:
            us, flat = (collect(c, "core", fabric=fabric, ranks=n, ranks_per_node=each, times=20, **more) for more in ({}, {"flat": True}))
            for name in ("barrier", "allreduce"):
                theirs = next(time for key, time in us.items() if key.startswith(name + "_") and key != f"{name}_us")
                yield Claim("goal", f"{name}, {n} ranks, {each} to a host, {what}: {us[f'{name}_us']:.2f} us by hosts, "
                            f"{flat[f'{name}_us']:.2f} without, {theirs:.2f} tuned", "<= 1.15", f"{us[f'{name}_us'] / theirs:.2f}",
                            us[f"{name}_us"] / theirs <= 1.15, "findings/collectives.md")


EXPERIMENTS = [barriers, creation, bcasts, roots, today, small, hosts]
