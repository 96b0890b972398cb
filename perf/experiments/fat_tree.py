"""Dissertation, chapters 7 and 8: routes through the 144-port switch, one process per node, mp_sim on config/fabrics/fattree-144.

HOST is calibrated, once for all of it: what a processor needs for a request that it posts, and for a completion that it
collects, such that striping evenly over all twelve routes is as good as one route in figure 7.3, as the text says. The text
has no such time. All else follows.
"""
from experiments.claims import Claim, Heat, change, no_loss, ratio, simulate, table
from speed.run import bandwidth
from speed.rows import Plot

HOST = 4400  # ns
FABRIC = {"fabric": "fattree-144", "paths": 12, "host_post": HOST, "host_completion": HOST}
SIZE = 65536


def weighted(paths, batch):
    return f"bss:n_paths={paths},n_batch={batch},explore=0"


ORIGINAL = {"Original": weighted(1, 1)}
HSAM = {f"HSAM({n})": f"hsam@{n}" for n in (2, 4, 8)}  # over n routes
BSS = {f"BSS({n},{b})": weighted(n, b) for n, b in ((4, 2), (8, 2), (12, 3))}
FOUR = {"HSAM(4)": HSAM["HSAM(4)"]}
BEST = {"BSS(12,3)": BSS["BSS(12,3)"]}

COLLISIONS = ("pairwise exchanges go on in step here, so all flows of a step collide or none does; four fixed routes spread "
              "them, and choosing three of twelve anew for each message makes collisions that weights can't tell from others")
SHARE = "the share of communication in the run is a matter of processors, whose speed the text does not tell: one number (--mops)"
# What BSS is in all experiments of chapter 8 that it loses here.
LOSES = ("with 4.4 us a request its weights do not settle: 48 ranks, 64 KiB take 3.6 ms after one all-to-all, 6.4 after four, 4.9 after "
         "24; HSAM(4) takes 3.8. With free processors they are level (2.7 ms). " + COLLISIONS[0].upper() + COLLISIONS[1:])


def run(c, kernel, ranks, policies, size=SIZE, mapping="block", **more):
    return simulate(c, kernel, {**ORIGINAL, **policies}, nodes=ranks, size=size, mapping=mapping, **FABRIC, **more)


def ours(c, kernel, ranks, size=SIZE, mapping="block", **more):
    """The transport with its defaults: it takes four of the routes."""
    host = {name: value for name, value in FABRIC.items() if name != "paths"}
    return simulate(c, kernel, {"default": "default"}, nodes=ranks, size=size, mapping=mapping, **host, **more)["default"]


def sizes(c):
    return (16384, 65536) if c.quick else (8192, 16384, 32768, 65536, 131072, 262144)


def over_sizes(c, title, kernel, ranks, policies, **more):
    """As the figures are: time over size."""
    found = {size: run(c, kernel, ranks, policies, size, **more) for size in sizes(c)}
    names = list(next(iter(found.values())))
    c.plots.append(Plot(title, "lines", ["KiB per message"],
                        {name: [(size / 1024, found[size][name] / found[size]["Original"]) for size in found] for name in names},
                        "time / Original"))


def latency(c):
    """D 7.2: latency of small messages, near and far"""
    def us(to):
        return 1 / bandwidth(c.build, fabric="fattree-144", op="eager", window=1, size=64, run=50, policy="binding", to=to, **{"from": 0})
    near, far = us(1), us(13)
    hops = 64 * (far - near) / 2  # us: 64 bytes at MB/s, and an answer
    yield Claim("D 7.2", "3 hops / 1 hop, 4 bytes", "+0.25 us", f"{hops:+.2f} us", hops > 0,
                "switches of 200 ns here; 120 ns each by the text")


def alltoall_48(c):
    """D 7.3, 8.5: all-to-all, 48 processes, sequential"""
    t = run(c, "alltoall", 48, {"even": "even", **HSAM, **BSS})
    yield change("D 7.3", "alltoall 48, even / Original (calibrated)", 0.0, t["even"], t["Original"])
    yield change("D 7.3", "alltoall 48, HSAM(2) / Original", "less", t["HSAM(2)"], t["Original"], expected=-1)
    yield change("D 7.3", "alltoall 48, HSAM(4) / Original", -0.25, t["HSAM(4)"], t["Original"])
    yield change("D 7.3", "alltoall 48, HSAM(8) / HSAM(4)", "more", t["HSAM(8)"], t["HSAM(4)"],
                 "eight routes are +2 % here: level within what a step more or less makes", expected=1)
    yield change("D 7.3", "alltoall 48, HSAM(8) / Original", "more", t["HSAM(8)"], t["Original"], expected=1,
                 why="a route that collides costs more here than late completions do")
    yield change("D 8.5", "alltoall 48, BSS(12,3) / Original", -0.5, t["BSS(12,3)"], t["Original"], LOSES)
    yield change("D 8.5", "alltoall 48, BSS(12,3) / HSAM(4)", -0.27, t["BSS(12,3)"], t["HSAM(4)"], LOSES)
    yield change("D 8.5", "alltoall 48, BSS(12,3) / BSS(4,2)", -0.15, t["BSS(12,3)"], t["BSS(4,2)"], LOSES)
    yield change("ours", "alltoall 48, default / best of theirs", "-", ours(c, "alltoall", 48), min(t[n] for n in (*HSAM, *BSS)))
    over_sizes(c, "Alltoall, 48 processes (D 7.3, 8.5)", "alltoall", 48, {**FOUR, **BSS})


def alltoall_64(c):
    """D 8.6 to 8.8: all-to-all, 64 processes by exclusive or; 32 and 64 on nodes that are drawn"""
    t = run(c, "alltoall-xor", 64, {**FOUR, **BSS})
    for name, text in (("BSS(4,2)", -0.16), ("BSS(8,2)", -0.31), ("BSS(12,3)", -0.32)):
        yield change("D 8.6", f"alltoall 64, {name} / HSAM(4)", text, t[name], t["HSAM(4)"], LOSES)
    yield change("ours", "alltoall 64, default / best of theirs", "-", ours(c, "alltoall-xor", 64), min(t[n] for n in (*FOUR, *BSS)))
    over_sizes(c, "Alltoall, 64 processes (D 8.6)", "alltoall-xor", 64, {**FOUR, **BSS})
    for figure, ranks in (("D 8.7", 32), ("D 8.8", 64)):
        t = run(c, "alltoall-xor", ranks, {**FOUR, **BEST}, mapping="random", of_nodes=64, seeds=3)
        yield change(figure, f"alltoall {ranks}, drawn nodes, BSS(12,3) / Original", "significant", t["BSS(12,3)"], t["Original"],
                     expected=-1)
        yield change(figure, f"alltoall {ranks}, drawn nodes, BSS(12,3) / HSAM(4)", "significant", t["BSS(12,3)"], t["HSAM(4)"],
                     LOSES, expected=-1)


def bad_link(c):
    """BSS where it should be ahead: one link of the fabric is slow. All-to-all, 48 processes, ring, 64; free processors too"""
    for host in (0, HOST):
        for kernel, ranks in (("alltoall", 48), ("ring", 64)):
            for rate in (8, 2):
                how = {**FABRIC, "host_post": host, "host_completion": host, "nodes": ranks, "size": SIZE, "fault": f"rate {rate}Gb/s leaf1 spine1"}
                t = simulate(c, kernel, {**ORIGINAL, **FOUR, **BSS}, **how)
                what = f"{kernel} {ranks}, a link of 16 Gb/s has {rate}, {host / 1000:g} us a request"
                best = min(BSS, key=t.get)
                for other in ("HSAM(4)", "Original"):
                    yield change("ours", f"{what}, best of BSS, {best}, / {other}", "-", t[best], t[other])
                del how["paths"]
                mine = simulate(c, kernel, {"default": "default"}, **how)["default"]
                yield change("ours", f"{what}, default / best of theirs", "-", mine, min(t["HSAM(4)"], t[best]))


def allgather(c):
    """D 8.9 to 8.12: ring all-gather, sequential and on nodes that are drawn"""
    for figure, ranks in (("D 8.9", 48), ("D 8.10", 64)):
        t = run(c, "ring", ranks, {**FOUR, **BEST})
        yield change(figure, f"allgather {ranks}, BSS(12,3) / Original", 0.0, t["BSS(12,3)"], t["Original"],
                     "neighbours have routes for themselves, and three requests for a message in place of one cost processors "
                     "time: with free ones (no --host-post) there is no difference")
    for figure, ranks, original, hsam in (("D 8.11", 32, -0.32, None), ("D 8.12", 64, -0.43, -0.32)):
        t = run(c, "ring", ranks, {**FOUR, **BEST}, mapping="random", of_nodes=64, seeds=3)
        yield change(figure, f"allgather {ranks}, drawn nodes, BSS(12,3) / Original", original, t["BSS(12,3)"], t["Original"])
        if hsam:
            yield change(figure, f"allgather {ranks}, drawn nodes, BSS(12,3) / HSAM(4)", hsam, t["BSS(12,3)"], t["HSAM(4)"], LOSES)
        mine = ours(c, "ring", ranks, mapping="random", of_nodes=64, seeds=3)
        yield change("ours", f"allgather {ranks}, drawn nodes, default / BSS(12,3)", "-", mine, t["BSS(12,3)"])


def reductions(c):
    """D 7.4, 7.5, 8.13 to 8.16: reduce-scatter and all-reduce"""
    t = run(c, "reduce-scatter", 48, FOUR, size=48 * SIZE)
    yield change("D 7.5", "reduce-scatter 48, HSAM(4) / Original", -0.19, t["HSAM(4)"], t["Original"],
                 "adding up is not computed here, so all of the time is communication")
    t = run(c, "allreduce", 48, {**FOUR, **BEST}, size=16 * SIZE)
    yield change("D 7.4", "allreduce 48, HSAM(4) / Original", "(no figure)", t["HSAM(4)"], t["Original"])
    yield change("D 8.13", "allreduce 48, BSS(12,3) / Original", 0.0, t["BSS(12,3)"], t["Original"],
                 "MVAPICH doubles recursively for 48; here the nearest power of two halves and doubles")
    t = run(c, "allreduce", 64, {**FOUR, **BEST}, size=16 * SIZE)
    yield change("D 8.14", "allreduce 64, BSS(12,3) / Original", "less", t["BSS(12,3)"], t["Original"], expected=-1)
    for figure, ranks in (("D 8.15", 32), ("D 8.16", 64)):
        t = run(c, "allreduce", ranks, {**FOUR, **BEST}, size=16 * SIZE, mapping="random", of_nodes=64, seeds=3)
        yield change(figure, f"allreduce {ranks}, drawn nodes, BSS(12,3) / Original", -0.32, t["BSS(12,3)"], t["Original"])


def displaced_ring(c):
    """D 3.5, 7.6, 7.7: displaced ring, 24 processes: bandwidth of each step, and which links it uses"""
    policies = {**ORIGINAL, **FOUR}
    found = table(c, "displaced-ring", policies, "transfers", nodes=24, size=1 << 20, warm_up=2, repeat=1, **FABRIC)
    mean = {}
    for name, lines in found.items():
        cells = {(int(line["rank"]), int(line["number"]) + 1):
                 float(line["bytes"]) / (float(line["end_ns"]) - float(line["begin_ns"])) * 1e3 for line in lines}
        mean[name] = sum(cells.values()) / len(cells)
        c.plots.append(Heat(f"Displaced ring, 24 processes, {name} (D {'7.7' if name == 'Original' else '7.6'})", "rank", "step",
                            "MB/s", cells))
    yield ratio("D 7.6, 7.7", "displaced ring 24, mean bandwidth, HSAM(4) / Original", 1.21, mean["HSAM(4)"], mean["Original"])
    for name, busy in links(c, "Displaced ring, 24 processes", "displaced-ring", 24, policies, "D 3.5", size=1 << 20).items():
        if name == "Original":
            yield Claim("D 3.5", "links from leaves to spines, least and most used", "0 to 4 flows",
                        f"{busy[0]:.0f} to {busy[-1]:.0f} % of their rate", busy[0] < 0.5 * busy[-1])


def links(c, title, kernel, ranks, policies, figure, **more):
    """A heat map for each policy: how busy links are from the leaves that have ranks to the spines. {name: [percent, in order]}"""
    found = {}
    leaves = {f"leaf{n + 1}" for n in range((ranks + 11) // 12)}  # twelve nodes each
    for name, lines in table(c, kernel, policies, "links", nodes=ranks, warm_up=0, repeat=1, **FABRIC, **more).items():
        up = {(int(line["to"][5:]), int(line["from"][4:])): 100 * float(line["share"]) for line in lines
              if line["from"] in leaves and line["to"].startswith("spine")}
        c.plots.append(Heat(f"{title}, how busy links are, {name} ({figure})", "spine", "leaf", "%", up))
        found[name] = sorted(up.values())
    return found


def link_use(c):
    """Heat maps of links: all-to-all in both orders of exchange, all-gather; 48 processes"""
    policies = {**ORIGINAL, **FOUR, **BEST}
    for title, kernel in (("All-to-all, i + k", "alltoall"), ("All-to-all, i xor k", "alltoall-xor"), ("All-gather", "ring")):
        for name, busy in links(c, f"{title}, 48 processes", kernel, 48, policies, "no figure", size=SIZE).items():
            yield Claim("ours", f"{title}, {name}: links to spines, least and most used", "-", f"{busy[0]:.0f}..{busy[-1]:.0f} %", None)


def applications(c):
    """D 7.8 to 7.10, 8.17 to 8.19: FT, PSTSWM, other NAS benchmarks"""
    more = {"messages": 2, "warm_up": 1, "repeat": 1}
    for name, cases in (("B", ((16, 0.0, None, None), (32, -0.08, -0.105, -0.065), (64, -0.06, -0.105, -0.065))),
                        ("C", ((32, -0.09, -0.13, -0.065), (64, -0.08, -0.13, -0.065)))):
        if name == "C" and c.quick:
            continue
        for ranks, hsam, original, both in cases:
            t = run(c, "ft", ranks, {**FOUR, **BEST}, **more, **{"class": name})
            seven, eight = ("D 7.8", "D 8.17") if name == "B" else ("D 7.9", "D 8.18")
            yield change(seven, f"FT {name} {ranks}, HSAM(4) / Original", hsam, t["HSAM(4)"], t["Original"], SHARE)
            if original:
                yield change(eight, f"FT {name} {ranks}, BSS(12,3) / Original", original, t["BSS(12,3)"], t["Original"], SHARE)
                yield change(eight, f"FT {name} {ranks}, BSS(12,3) / HSAM(4)", both, t["BSS(12,3)"], t["HSAM(4)"], LOSES)
            mine = ours(c, "ft", ranks, **more, **{"class": name})
            yield change("ours", f"FT {name} {ranks}, default / Original", "-", mine, t["Original"])
    for ranks, text in ((36, 0.0), (48, 0.0), (64, -0.04)):
        t = run(c, "pstswm", ranks, FOUR, **more, **{"class": "B"})
        yield change("D 7.10", f"PSTSWM {ranks}, HSAM(4) / Original", text, t["HSAM(4)"], t["Original"],
                     "what it computes per point is made up")
    for kernel in ("is", "cg", "lu"):
        problem, ranks = ("A", 16) if c.quick and kernel != "is" else ("C", 64)
        t = run(c, kernel, ranks, BEST, messages=1, warm_up=0, repeat=1, **{"class": problem})
        yield no_loss("D 8.19", f"{kernel.upper()} {problem} {ranks}, BSS(12,3) / Original", t["BSS(12,3)"], t["Original"])


EXPERIMENTS = [latency, alltoall_48, alltoall_64, bad_link, allgather, reductions, displaced_ring, link_use, applications]
