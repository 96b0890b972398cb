"""Co-design of MPI and applications, in virtual time: P3DFFT's all-to-alls by a host, a thread and the adapter, the
halos of AWP-ODC, and what a member that is late costs the others."""
import os

from experiments.claims import Claim, near, percent
from experiments.collectives import TODAY, collect
from speed.rows import Plot

MOPS = 1250  # operations per us and process: assumed. It sets the share of communication, and so all gains.
WAYS = {"blocking": {"progress": "blocking"}, "host, 0 tests": {"progress": "host"}, "host, 1 test": {"progress": "host", "tests": 1},
        "host, 8 tests": {"progress": "host", "tests": 8}, "thread": {"progress": "thread"}, "adapter": {"progress": "adapter"}}


def cluster(c, nodes, rate=32, bus=32):
    """A fabric of nodes with one adapter, rates in Gb/s. Rates as the texts have them; all other
    numbers, and that it waits, are assumed."""
    path = os.path.join(c.folder, f"nodes-{nodes}-{rate}.yaml")
    with open(path, "w", encoding="ascii") as out:
        out.write(f"name: nodes-{nodes}-{rate}\nadapters:\n"
                  f"  hca: {{message: 100 ns, wait: 300 ns, wait_poll: 600 ns, bus_rate: {bus} Gb/s, wire_header: 26 B}}\n"
                  "host: {post: 200 ns, completion: 100 ns, poll_hit: 50 ns}\n"
                  f"chunk_mtus: 16\nnodes:\n  - {{name: 'node[0-{nodes - 1}]', adapters: [hca]}}\n"
                  f"switches:\n  - {{name: switch, ports: {max(36, nodes)}, latency: 150 ns}}\n"
                  f"links:\n  - {{from: 'node[0-{nodes - 1}]', to: switch, rate: {rate} Gb/s, latency: 300 ns, buffer: 256 KiB}}\n")
    return path


def fft(c, size, mops, **way):
    return collect(c, "p3dfft", fabric=cluster(c, 16), ranks=128, rows=8, size=size, mops=mops, **way)


def p3dfft(c):
    """C figure 4: P3DFFT, 128 processes (16 x 8), four ways of progress"""
    sizes = (512,) if c.quick else (512, 640, 800)
    for size in sizes:
        found = {name: fft(c, size, MOPS, **way) for name, way in WAYS.items()}
        us = {name: one["us"] for name, one in found.items()}
        adapter = us["adapter"]
        share = 1 - found["blocking"]["computed_us"] / us["blocking"]
        what = f"N = {size}, communication {100 * share:.0f} % of blocking"
        put_in = f"(calibrated: {MOPS} operations per us are assumed)"
        yield between(f"{what}: adapter / blocking {put_in}", "-10..-23 %", -0.23, -0.10, adapter / us["blocking"] - 1)
        yield between(f"N = {size}: adapter / host without a test {put_in}", "-10..-17 %", -0.17, -0.10, adapter / us["host, 0 tests"] - 1)
        for name in ("host, 1 test", "host, 8 tests", "thread"):
            yield Claim("C Fig 4", f"N = {size}: adapter / {name}", "printed", percent(adapter / us[name] - 1), None)
        order = us["blocking"] >= us["host, 0 tests"] >= adapter
        yield Claim("C Fig 4", f"N = {size}: " + ", ".join(f"{name} {t / 1e3:.0f}" for name, t in us.items()) + " ms",
                    "blocking, host, adapter", "this order" if order else "another", order)
        yield Claim("ours", f"N = {size}: a thread that goes on, {found['thread']['wakes']:.0f} wake-ups of 5 us (assumed)", "printed",
                    f"{100 * found['thread']['stolen']:.1f} % of a core", None)
    if c.drawn and not c.quick:
        lines = {name: [] for name in WAYS if name != "blocking"}
        for mops in (MOPS // 2, MOPS, 2 * MOPS, 4 * MOPS):
            blocking = fft(c, 512, mops, progress="blocking")
            ratio = blocking["computed_us"] / (blocking["us"] - blocking["computed_us"])
            for name in lines:
                lines[name].append((ratio, 100 * (fft(c, 512, mops, **WAYS[name])["us"] / blocking["us"] - 1)))
        c.plots.append(Plot("P3DFFT, N = 512: less time than blocking (C figure 4)", "log", ["computation : communication"], lines, "%"))


def between(what, text, least, most, ours):
    """A change that the text gives a range of. Near: within a third of its nearer end."""
    off = max(least - ours, ours - most, 0)
    return Claim("C Fig 4", what, text, percent(ours), ours < -0.03,
                 "the gain is the share of communication: the text does not tell it", off <= abs(most if ours > most else least) / 3)


# Of AWP-ODC, which the text does not tell: 303 operations per point and step by 220 Tflop/s, 436e9 points and 0.6 s of its
# reference 3, so 34 for a component. Assumed: 900 operations per us of a core, 0.5 GB/s of a process that copies. Both set
# the share of communication.
WAVES = {"flops": 34, "mops": 900}
WHY_LESS = "communication is a smaller part of the time, and nothing is left to be computed beside the last component's faces"
KINDS = {"all waits": {"progress": "blocking"}, "puts that overlap": {"progress": "adapter"},
         "and loop-back": {"progress": "adapter", "local": "adapter"},
         "and interior first": {"progress": "adapter", "local": "adapter", "interior": True}}


def waves(c, fabric, ranks, per_node, size, **kind):
    """Of two steps in the middle: nothing follows the last one."""
    two, four = (collect(c, "awp", fabric=fabric, ranks=ranks, ranks_per_node=per_node, size=size, times=times, copy=0.5, **WAVES, **kind)
                 for times in (2, 4))
    return {name: four[name] - two[name] for name in two}


def awp(c):
    """C figures 3a, 3b: AWP-ODC, halos by puts that overlap"""
    two = cluster(c, 2)
    found = {name: waves(c, two, 48, 24, 128, **kind) for name, kind in KINDS.items()}
    left = {name: one["us"] - one["computed_us"] for name, one in found.items()}
    hidden = {name: 1 - time / left["all waits"] for name, time in left.items()}
    yield Claim("C Fig 3a", "48 processes on 2 nodes: hidden of communication, loop-back, one component after the other", "all of 132 s",
                f"{hidden['and loop-back']:.2f}", hidden["and loop-back"] >= 0.95,
                "nothing is left to be computed beside the last component's faces", hidden["and loop-back"] >= 2 / 3)
    full = hidden["and interior first"]
    yield Claim("ours", "the same, interior first (not in the text)", "printed", f"{full:.2f}", None)
    copies = hidden["puts that overlap"]
    yield Claim("C Fig 3a", "with copies between processes of a node", "not all", f"{copies:.2f}", copies < hidden["and loop-back"])
    lines = {name: [] for name in KINDS}
    for nodes in (4, 16):
        sdr, ranks = cluster(c, nodes, 8), 16 * nodes
        us = {name: waves(c, sdr, ranks, 16, 128, **kind)["us"] for name, kind in KINDS.items()}
        for name, time in us.items():
            lines[name].append((ranks, time / 2e3))
        alone, loop, first = (us[name] / us["all waits"] - 1 for name in ("puts that overlap", "and loop-back", "and interior first"))
        yield Claim("C Fig 3b", f"{ranks} processes, 16 to a node, SDR: overlap alone {percent(alone)}, with loop-back", "-15 %",
                    percent(loop), loop < -0.03, WHY_LESS, near(-0.15, loop))
        yield Claim("ours", f"{ranks} processes, interior first (not in the text)", "printed", percent(first), None)
    last = lines["and interior first"]
    flat = last[-1][1] / last[-2][1] - 1
    yield Claim("C Fig 3b", f"time of a step, {last[-1][0]} processes beside {last[-2][0]}, on one switch", "printed", percent(flat), None)
    if c.drawn:
        c.plots.append(Plot("AWP-ODC: a step of 128^3 points per process (C figure 3b)", "log", ["processes"], lines, "ms"))


def late(c):
    """What a member that is late by up to 1 ms costs the others: host, thread, adapter (64 nodes of today)"""
    ways = {"host": {"engine": "host"}, "thread": {"engine": "host", "thread": True}, "adapter": {"engine": "adapter"}}
    ranks = 16 if c.quick else 64
    lines = {name: [] for name in ways}
    for after in (100, 1000) if c.quick else (100, 250, 500, 1000):
        down, meet = {}, {}
        for name, way in ways.items():
            job = {"fabric": TODAY, "ranks": ranks, "late": after * 1000, "wake": 5000, **way}
            one = collect(c, "late", measure="bcast", bytes=8, **job)
            down[name] = one["late_mean_us"] - one["in_time_mean_us"]
            meet[name] = collect(c, "late", measure="barrier", compute=1_200_000, **job)["late_mean_us"]
            lines[name].append((after, down[name]))
        yield Claim("ours", f"bcast, {ranks} nodes, an inner one computes {after} us: others wait longer by "
                    + ", ".join(f"{name} {t:.1f}" for name, t in down.items()) + " us", "adapter: nothing", f"{down['adapter']:.1f}",
                    down["adapter"] <= 0.05 * down["host"] and down["thread"] <= down["host"])
        yield Claim("ours", f"ibarrier, {ranks} nodes, one {after} us late, others compute 1.2 ms: they wait then "
                    + ", ".join(f"{name} {t:.1f}" for name, t in meet.items()) + " us", "adapter: least", f"{meet['adapter']:.1f}",
                    meet["adapter"] <= min(meet.values()))
    if c.drawn:
        c.plots.append(Plot(f"Bcast, {ranks} nodes: what an inner member that computes costs the others", "log", ["us late"], lines, "us"))


EXPERIMENTS = [p3dfft, awp, late]
