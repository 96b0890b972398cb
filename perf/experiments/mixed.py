"""Dissertation, chapters 9 and 10: applications while a cable is pulled, and on nodes with different networks; mp_sim, virtual time."""
import os

from experiments.claims import change, no_loss, simulate
from speed.run import fabric

FAST, SLOW = 7.04, 0.8  # Gb/s: the 880 and 100 MB/s of section 10.4
DEFAULT = {"default": "default"}
EARLY = ("not settled: binding takes as long. Perhaps because receives count as posted from the begin here, so who is ahead takes a slow receiver's link while that is at another step; "
         "it would take receives that are posted step by step")


def networks(c, name, nodes):
    """Writes a fabric of two networks that have nothing in common; its path. nodes: how many have both, and how many the slow one only."""
    path = os.path.join(c.folder, name + ".yaml")
    with open(path, "w", encoding="ascii") as out:
        out.write(f"name: {name}\nadapters:\n  rail: {{wire_header: 26 B}}\nnodes:\n")
        out.write(f"  - {{name: 'node[0-{nodes[0] - 1}]', adapters: [rail, rail]}}\n")
        if nodes[1]:
            out.write(f"  - {{name: 'node[{nodes[0]}-{sum(nodes) - 1}]', adapters: [rail]}}\n")
        out.write("switches:\n  - {name: 'fast', ports: 36, latency: 150 ns}\n  - {name: 'slow', ports: 36, latency: 150 ns}\n"
                  "link_defaults: {latency: 25 ns, buffer: 32 KiB}\nlinks:\n"
                  f"  - {{from: 'node[0-{nodes[0] - 1}]:1', to: fast, rate: {FAST} Gb/s}}\n"
                  f"  - {{from: 'node[0-{sum(nodes) - 1}]:0', to: slow, rate: {SLOW} Gb/s}}\n"
                  "subnets:\n  - {name: fast, prefix: 0xfe80000000000000, switches: fast}\n"
                  "  - {name: slow, prefix: 0xfe80000000000001, switches: slow}\n")
    return path


def two_ports(c):
    """Writes a fabric of nodes with one adapter, whose two ports are on switches of their own, as chapter 9 has them; its path."""
    path = os.path.join(c.folder, "two-ports.yaml")
    with open(path, "w", encoding="ascii") as out:
        out.write("name: two-ports\nadapters:\n  dual: {ports: 2, wire_header: 26 B}\nnodes:\n  - {name: 'node[0-3]', adapters: [dual]}\n"
                  "switches:\n  - {name: 'switch[1-2]', ports: 36, latency: 150 ns}\n"
                  "link_defaults: {rate: SDR 4x, latency: 25 ns, buffer: 32 KiB}\nlinks:\n"
                  "  - {from: 'node[0-3]:0:1', to: switch1}\n  - {from: 'node[0-3]:0:2', to: switch2}\n"
                  "  - {from: switch1, to: switch2, cables: 4}\n")
    return path


def job(c, kernel, nodes, **more):
    """us"""
    return simulate(c, kernel, DEFAULT, nodes=nodes, messages=2 if kernel == "ft" else 1, repeat=1, **{"warm_up": 1, **more})["default"]


def pulled_cable(c):
    """D 9.12 to 9.15: IS, FT, LU on 4x2 processes while a cable is pulled, over an adapter's two ports, with APM and without"""
    for figure, kernel, problem, text in (("D 9.12", "is", "A", "very much more"), ("D 9.13", "is", "B", "more"),
                                          ("D 9.14", "ft", "B", "+5..7 %"), ("D 9.15", "lu", "B", "+5..7 %")):
        for name, more in (("with APM", {"apm": True}), ("without", {})):
            where = {"fabric": two_ports(c), "ranks_per_node": 2, "class": problem, **more}
            whole = job(c, kernel, 4, **where)
            out = job(c, kernel, 4, **where, fault_at=f"{int(whole * 500)} port down 0:softhca_0:1")
            # The cable stays out, so one node has half of its links from then on.
            yield change(figure if more else "ours", f"{kernel.upper()} {problem}, time, cable pulled at half of it / not, {name}",
                         text if more else "-", out, whole, "queue pairs migrate to a port that is in use already, as those do that are made "
                         "anew; in the text the other port was idle before", expected=1 if more else None)


def mixed_nodes(c):
    """D 10.11, 10.12: IS, CG, FT on eight nodes, four of them on the fast network too"""
    both, slow, fast = networks(c, "half-fast", (4, 4)), fabric(c.folder, "gige-8", (SLOW,), nodes=8), fabric(c.folder, "ib-4", (FAST,))
    for figure, kernel, over_slow, over_fast in (("D 10.11", "is", -0.08, -0.17), ("D 10.11", "cg", -0.20, -0.09), ("D 10.12", "ft", -0.03, None)):
        t = job(c, kernel, 8, fabric=both, **{"class": "A"})
        yield change(figure, f"{kernel.upper()} A, both networks (8 nodes) / the slow one (8)", over_slow, t,
                     job(c, kernel, 8, fabric=slow, **{"class": "A"}), EARLY, expected=-1)
        if over_fast:
            yield change(figure, f"{kernel.upper()} A, both networks (8 nodes) / the fast one (4)", over_fast, t,
                         job(c, kernel, 4, fabric=fast, **{"class": "A"}), EARLY, expected=-1)


def fast_fails(c):
    """D 10.17, 10.18: IS, CG, FT on eight nodes whose fast network fails at the first message"""
    both, slow = networks(c, "both-8", (8, 0)), fabric(c.folder, "gige-8", (SLOW,), nodes=8)
    for figure, kernel in (("D 10.17", "is"), ("D 10.17", "cg"), ("D 10.18", "ft")):
        failed = job(c, kernel, 8, fabric=both, fault_at="1000 port down *:softhca_1:1", **{"class": "A", "warm_up": 0})
        alone = job(c, kernel, 8, fabric=slow, **{"class": "A", "warm_up": 0})
        yield no_loss(figure, f"{kernel.upper()} A, the fast network fails at the first message / the slow one alone", failed, alone)


EXPERIMENTS = [pulled_cable, mixed_nodes, fast_fails]
