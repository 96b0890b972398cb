"""Dissertation, chapter 6: several queue pairs per port, an adapter with send engines (perf/fabrics/twelve-x), virtual time.

What is calibrated there stands in speed/engines.py.
"""
import os

from experiments.claims import change, curve, latency_of, ratio, simulate
from speed.engines import ENGINE, HOST, Port
from speed.run import ROOT, bandwidth

MIB = 1 << 20


def port_of(c):
    return Port(c)


def messages(c):
    """D 6.2 to 6.4, 6.6, 6.7: latency and bandwidth of messages with one to four queue pairs"""
    port = port_of(c)
    four, single = (port.rate(64, "round_robin", protocol="eager", paths=n) for n in (4, 1))
    alone = [bandwidth(c.build, fabric=port.fabric(ENGINE), op="eager", window=1, size=64, run=50, policy="binding", paths=n,
                       host_post=HOST, host_completion=HOST) for n in (4, 1)]
    yield change("D 6.2", "64 bytes, latency, four queue pairs / one", 0.0, 1 / alone[0], 1 / alone[1])
    yield ratio("D 6.4", "64 bytes, rate, four queue pairs / one", "no loss", four, single, least=0.97)
    four, two = (port.rate(4096, "round_robin", protocol="eager", paths=n, signal_interval=1) for n in (4, 2))
    yield ratio("D 6.4", "4 KiB, four queue pairs / two", "better from 1 KiB on (calibrated)", four, two)
    for size, least in ((16384, 1.15), (32768, 1.03), (65536, 1.03)):
        epc, even = port.rate(size, "epc", "non_blocking"), port.rate(size, "even")
        yield ratio("D 6.6", f"{size // 1024} KiB, bandwidth, EPC / even striping" + (" (calibrated)" if size == 16384 else ""),
                    "much better", epc, even, "the port is the limit from 32 KiB on: perf/findings/engines.md", least=least)
    four, single = (port.rate(MIB, "epc", "non_blocking", paths=n) for n in (4, 1))
    yield ratio("D 6.6", "1 MiB, bandwidth, four queue pairs / one (calibrated)", 2745 / 1661, four, single)
    four, single = (port.rate(MIB, "epc", "non_blocking", "put", paths=n, back=True) for n in (4, 1))
    yield ratio("D 6.7", "1 MiB, bandwidth both ways, four queue pairs / one", 5263 / 3079, four, single)
    even, single = (port.rate(MIB, "even", "blocking", paths=n) for n in (4, 1))
    yield change("D 6.3", "1 MiB, time of blocking messages, four queue pairs / one", -0.33, 1 / even, 1 / single)
    plots(c, port)


def plots(c, port):
    """As the chapter's figures are: one to four queue pairs over sizes."""
    small, large = [2 ** n for n in range(3, 14)], [2 ** n for n in range(14, 21)]
    def alone(paths, policy, op):
        return latency_of(lambda size: bandwidth(c.build, fabric=port.fabric(ENGINE), op=op, window=1, size=size, run=50, policy=policy,
                                                 paths=paths, host_post=HOST, host_completion=HOST))
    def window(paths, policy, op, hint="none", **more):
        return lambda size: port.rate(size, policy, hint, op, paths=paths, **more)
    pairs = {1: "one queue pair", 2: "two", 4: "four"}
    curve(c, "Latency of small messages (D 6.2)", small, {name: alone(n, "round_robin", "eager") for n, name in pairs.items()}, "us")
    curve(c, "Latency of large messages (D 6.3)", large, {name: alone(n, "even", "rendezvous_get") for n, name in pairs.items()}, "us")
    curve(c, "Small messages, windows of 64 (D 6.4)", small, {name: window(n, "round_robin", "eager", signal_interval=1) for n, name in pairs.items()})
    kinds = {"one queue pair": (1, "even"), "four, even striping": (4, "even"), "four, round robin": (4, "round_robin"), "four, EPC": (4, "epc")}
    curve(c, "Bandwidth, windows of 64 (D 6.6)", large,
          {name: window(n, policy, "rendezvous_get", "non_blocking") for name, (n, policy) in kinds.items()})
    curve(c, "Bandwidth both ways (D 6.7)", large,
          {name: window(n, policy, "put", "non_blocking", back=True) for name, (n, policy) in kinds.items()})


def applications(c):
    """D 6.8 to 6.12: all-to-all, IS and FT with EPC"""
    where = {"fabric": os.path.join(ROOT, "perf", "fabrics", "twelve-x.yaml"), "nodes": 2, "paths": 4, "host_post": HOST, "host_completion": HOST}
    policies = {"one": "bss:n_paths=1,n_batch=1,explore=0", "epc": "epc"}
    t = simulate(c, "alltoall", policies, **where, ranks_per_node=4, size=16384)
    yield change("D 6.8", "alltoall 8 (2x4), 16 KiB, EPC / one queue pair", "better", t["epc"], t["one"],
                 "processes of a node talk over the adapter here", expected=-1)
    for figure, kernel, problem, text in (("D 6.9", "is", "A", -0.13), ("D 6.10", "is", "B", -0.09), ("D 6.11", "ft", "A", -0.06),
                                          ("D 6.12", "ft", "B", -0.06)):
        job = {"warm_up": 1, "repeat": 1, **where, "messages": 2, "class": problem}
        alone = simulate(c, kernel, policies, compute=1, **job)  # ns: nothing but communication
        t = simulate(c, kernel, policies, **job)
        yield change(figure, f"{kernel.upper()} {problem} 2, communication, EPC / one queue pair", "less", alone["epc"], alone["one"],
                     expected=-1)
        yield change(figure, f"{kernel.upper()} {problem} 2, time, EPC / one queue pair", text, t["epc"], t["one"],
                     f"processors as in chapter 9 (--mops): communication is {100 * alone['one'] / t['one']:.1f} % of the time")


EXPERIMENTS = [messages, applications]
