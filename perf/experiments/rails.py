"""Dissertation, chapters 4, 5 and 10: two adapters in a node; bench_sim_transport and mp_sim, virtual time."""
import os

from experiments.claims import change, curve, latency_of, ratio, simulate
from speed.run import ROOT, bandwidth, fabric

MIB = 1 << 20


def two(c):
    return fabric(c.folder, "two", (8, 8))


def one(c):
    return fabric(c.folder, "one", (8,))


def both(c, **options):
    """MB/s with two rails and with one."""
    return [bandwidth(c.build, fabric=where, **options) for where in (two(c), one(c))]


SMALL, LARGE = [2 ** n for n in range(3, 14)], [2 ** n for n in range(13, 21)]


def by_size(c, latency=False, **options):
    """What bench_sim_transport measures with these options, as a function of a size: MB/s, or us."""
    measure = lambda size: bandwidth(c.build, **{"run": 100 if c.quick else 400, **options, "size": size})
    return latency_of(measure) if latency else measure


def rails_curve(c, title, sizes, latency=False, **options):
    """Two rails and one, over sizes."""
    curve(c, title, sizes, {name: by_size(c, latency, fabric=where, **options) for name, where in (("two rails", two(c)), ("one", one(c)))},
          "us" if latency else "MB/s")


def messages(c):
    """D 4.3 to 4.6: latency and bandwidth of messages, two adapters and one"""
    a, b = both(c, op="rendezvous_get", window=1, size=MIB, run=100)
    yield change("D 4.3", "1 MiB, latency, two rails / one", -0.5, 1 / a, 1 / b)
    a, b = both(c, op="eager", window=1, size=8, run=50)
    yield change("D 4.3", "8 bytes, latency, two rails / one", 0.0, 1 / a, 1 / b)
    a, b = both(c, op="eager", window=64, size=1024, run=50, policy="round_robin", host_post=300, host_completion=300)
    yield ratio("D 4.4", "1 KiB messages, two rails / one", "slightly better", a, b, least=1)
    a, b = both(c, op="rendezvous_get", window=64, size=MIB, run=400)
    yield ratio("D 4.5", "1 MiB, bandwidth, two rails / one", 1.95, a, b)
    a, b = both(c, op="put", window=16, size=MIB, run=400, back=True)
    yield ratio("D 4.6", "1 MiB, bandwidth both ways, two rails / one", 1.99, a, b,
                "one bus for both directions (PCI-X) can't be described here: 1877 MB/s of four times 880 there")
    rails_curve(c, "Latency of messages (D 4.3)", LARGE, latency=True, op="rendezvous_get", window=1)
    rails_curve(c, "Small messages, windows of 64 (D 4.4)", SMALL, op="eager", window=64, policy="round_robin", host_post=300,
                host_completion=300)
    rails_curve(c, "Bandwidth, windows of 64 (D 4.5)", LARGE, op="rendezvous_get", window=64)
    rails_curve(c, "Bandwidth both ways (D 4.6)", LARGE, op="put", window=16, back=True)


# One bus of the text's nodes carries both directions, so that one adapter gives half of it to each.
HALF_DUPLEX = ("a link carries both directions at their full rate here, and the two processes send in opposite ones: one rail is enough "
               "for them. It would take PCI-X, one bus for both directions")


def against_one_rail(c, kernel, **options):
    """{name: us}: striping, each process bound to one rail, and the original design, which has one rail only."""
    t = simulate(c, kernel, {"bound": "bound", "even": "even"}, fabric="two-rail", **options)
    return {**t, **simulate(c, kernel, {"original": "binding"}, fabric=fabric(c.folder, "one-of-eight", (8,), nodes=8), **options)}


def two_processes(c):
    """D 4.7, 4.8: bandwidth with two processes per node: striping, each process bound to one rail, one rail"""
    t = against_one_rail(c, "windows", nodes=2, ranks_per_node=2, size=MIB, warm_up=1, repeat=1)
    yield change("D 4.7", "2x2, 1 MiB, time, striping / binding", "less", t["even"], t["bound"], expected=-1)
    yield change("D 4.7", "2x2, 1 MiB, time, striping / original", "less", t["even"], t["original"], expected=-1)
    yield change("D 4.7", "2x2, 1 MiB, time, binding / original", "less", t["bound"], t["original"], HALF_DUPLEX, expected=-1)
    t = against_one_rail(c, "windows-both", nodes=2, ranks_per_node=2, size=MIB, warm_up=1, repeat=1)
    yield change("D 4.8", "2x2, 1 MiB, both ways, time, striping / binding", 0.0, t["even"], t["bound"])
    yield change("D 4.8", "2x2, 1 MiB, both ways, time, binding / original", "less", t["bound"], t["original"], expected=-1)


def collectives(c):
    """D 4.9 to 4.12: broadcast and all-to-all over two adapters, 8 and 16 processes"""
    for ranks, per_node in ((8, 1), (16, 2)):
        for figure, kernel in (("D 4.9" if ranks == 8 else "D 4.11", "bcast"), ("D 4.10" if ranks == 8 else "D 4.12", "alltoall")):
            t = against_one_rail(c, kernel, nodes=8, ranks_per_node=per_node, size=262144)
            yield change(figure, f"{kernel} {ranks}, 256 KiB, striping / original", "less", t["even"], t["original"], expected=-1)
            if per_node > 1:  # with one process per node binding has one rail
                yield change(figure, f"{kernel} {ranks}, 256 KiB, striping / binding of processes", "less", t["even"], t["bound"], expected=-1)


def applications(c):
    """D 4.13, 4.14: IS and FT over two adapters"""
    where = {"fabric": "two-rail", "nodes": 8, "class": "A", "messages": 2, "warm_up": 1,
             "repeat": 1}
    policies = {"one": "bound", "two": "even"}  # one process per node: bound to its first rail, as the original is
    for kernel, text in (("is", -0.38), ("ft", -0.5)):
        t = simulate(c, kernel, policies, **where, compute=1)  # ns: nothing but communication
        yield change("D 4.13", f"{kernel.upper()} A 8, communication, striping / original", text, t["two"], t["one"])
    t = simulate(c, "is", policies, **where)
    yield change("D 4.13", "IS A 8, time, striping / original", -0.22, t["two"], t["one"],
                 "processors as in 10.4.2, where communication is a much smaller share of the time")


def one_sided(c):
    """D 5.4 to 5.13: puts and gets, two adapters and one"""
    for figure, op, text in (("D 5.4", "put", 1750 / 880), ("D 5.10", "get", 1705 / 881)):
        a, b = both(c, op=op, window=16, size=MIB, run=400)
        yield ratio(figure, f"1 MiB {op}, bandwidth, two rails / one", text, a, b)
    for figure, op, text in (("D 5.8", "put", -0.46), ("D 5.12", "get", -0.45)):
        a, b = both(c, op=op, window=1, size=MIB, run=100)
        yield change(figure, f"1 MiB {op}, latency, two rails / one", text, 1 / a, 1 / b)
    a, b = both(c, op="put", window=16, size=MIB, run=400, back=True)
    yield ratio("D 5.6", "1 MiB put, both ways, two rails / one", 1810 / 941, a, b)
    for put_or_get, wide, long in (("put", "5.4", "5.8"), ("get", "5.10", "5.12")):
        rails_curve(c, f"{put_or_get}, windows of 16 (D {wide})", LARGE, op=put_or_get, window=16)
        rails_curve(c, f"{put_or_get}, one at a time (D {long})", LARGE, latency=True, op=put_or_get, window=1)
    rails_curve(c, "put, both ways (D 5.6)", LARGE, op="put", window=16, back=True)


def two_ports(c):
    """D 5.5, 5.7, 5.9, 5.11, 5.13: puts and gets, two ports behind one bus (EM64T, fabrics/em64t) and one"""
    def of(policy, latency=False, **options):
        return by_size(c, latency, fabric=os.path.join(ROOT, "perf", "fabrics", "em64t.yaml"), policy=policy, **options)
    kinds = {"two ports": "default", "one": "binding"}  # a channel is bound to one port
    for op, wide, text, long, change_of in (("put", "5.5", 1500 / 971, "5.9", -0.32), ("get", "5.11", 1494 / 969, "5.13", -0.33)):
        a, b = (of(policy, op=op, window=16)(MIB) for policy in kinds.values())
        yield ratio(f"D {wide}", f"1 MiB {op}, two ports / one{' (calibrated: the bus)' if op == 'put' else ''}", text, a, b)
        a, b = (of(policy, latency=True, op=op, window=1)(MIB) for policy in kinds.values())
        yield change(f"D {long}", f"1 MiB {op}, latency, two ports / one", change_of, a, b)
        curve(c, f"{op} over two ports, windows of 16 (D {wide})", LARGE, {n: of(p, op=op, window=16) for n, p in kinds.items()})
        curve(c, f"{op} over two ports, one at a time (D {long})", LARGE, {n: of(p, latency=True, op=op, window=1) for n, p in kinds.items()}, "us")
    a, b = (of(policy, op="put", window=16, back=True)(MIB) for policy in kinds.values())
    yield ratio("D 5.7", "1 MiB put, both ways, two ports / one", 2620 / 1910, a, b)
    curve(c, "put over two ports, both ways (D 5.7)", LARGE, {n: of(p, op="put", window=16, back=True) for n, p in kinds.items()})


def epochs(c):
    """D 5.17: 16 puts and 16 gets in an epoch, in the program's order and reordered"""
    options = {"op": "both", "window": 16, "size": 65536, "run": 400}
    text_order = {**options, "turns": "p" * 16 + "g" * 16}
    a, b = both(c, **text_order, policy="even")  # the papers' policies post all at once; the default reorders
    ours, apart = (bandwidth(c.build, fabric=two(c), split_reads=split, **text_order) for split in (False, True))
    mixed, alone = both(c, **options, turns="pg" * 16)
    yield ratio("D 5.17", "16 puts, then 16 gets, two rails, reordered / not", 2604 / 1474, ours, a)
    yield ratio("D 5.17", "16 puts, then 16 gets, two rails / one, not reordered", 1474 / 962, a, b)
    yield ratio("D 5.17", "16 puts + 16 gets, two rails / one, reordered", 2604 / 1900, mixed, alone)
    yield ratio("ours", "16 puts, then 16 gets, the default / UCX_MP_SPLIT_READS=y", "-", ours, apart, least=0)
    rails = {"two rails": two(c), "one": one(c)}
    orders = {"in order": {**text_order, "policy": "even"}, "reordered": {**options, "turns": "pg" * 16}}
    curve(c, "16 puts and 16 gets in an epoch (D 5.17)", LARGE,
          {f"{name}, {order}": by_size(c, fabric=where, **words) for name, where in rails.items() for order, words in orders.items()})


def second_network(c):
    """D 10.8 to 10.10: a slow second network (880 and 100 MB/s)"""
    # Warm: ports can't tell of such a rate, so it has to be learned.
    pair, fast = fabric(c.folder, "ib-gige", (7.04, 0.8)), fabric(c.folder, "ib", (7.04,))
    a, b = (bandwidth(c.build, fabric=where, op="rendezvous_get", window=1, size=MIB // 2, run=200) for where in (pair, fast))
    yield change("D 10.8", "512 KiB, latency, both networks / the fast one", -0.1, 1 / a, 1 / b)
    a, b = (bandwidth(c.build, fabric=where, op="rendezvous_get", window=64, size=MIB, run=800, warm_up=300)
            for where in (pair, fast))
    yield ratio("D 10.9", "1 MiB, bandwidth, both networks / the fast one", 963 / 880, a, b)
    a, b = (bandwidth(c.build, fabric=where, op="put", window=16, size=MIB, run=800, warm_up=300, back=True)
            for where in (pair, fast))
    yield ratio("D 10.10", "1 MiB, both ways, both networks / the fast one", 1095 / 931, a, b)
    for title, latency, options in (("Latency (D 10.8)", True, {"op": "rendezvous_get", "window": 1}),
                                    ("Bandwidth, windows of 64 (D 10.9)", False, {"op": "rendezvous_get", "window": 64}),
                                    ("Bandwidth both ways (D 10.10)", False, {"op": "put", "window": 16, "back": True})):
        curve(c, f"{title}: a fast and a slow network", LARGE,
              {name: by_size(c, latency, fabric=where, run=200, warm_up=100, **options) for name, where in (("both", pair), ("the fast one", fast))},
              "us" if latency else "MB/s")


EXPERIMENTS = [messages, two_processes, collectives, applications, one_sided, two_ports, epochs, second_network]
