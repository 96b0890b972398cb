"""The row small_jobs of perf/adaptive: adaptive selection beside mp_rc, which UCP takes by itself for a few processes."""
import os

from speed import adaptive
from speed.rows import Result
from speed.run import ROOT

# How late processes begin, ns. In step they meet on no route at all over several routes or rails, as long as nothing disturbs them:
# no real job is, and who makes queue pairs meanwhile is not. So it is an accident that is not judged.
FABRICS = {"connect-ib-64": 0, "two-rail": 0, "four-path": 1000, "eight-rail": 1000}
PLACES = 3  # of a process for RC, where not all peers have it
# Processes, kernel, bytes, messages; rounds before what is measured: queue pairs of RC take some 2 ms each, and four looks
# have been made.
CASES = ((2, "ring", 1, 0, 5000), (2, "onetoall", 4096, 80, 300), (4, "ring", 1, 0, 5000), (4, "alltoall", 4096, 0, 3000),
         (4, "halo", 4096, 20, 300), (4, "onetoall", 1, 160, 1000), (4, "onetoall", 4096, 160, 100), (8, "alltoall", 1, 0, 3000),
         (8, "halo", 4096, 20, 100), (8, "onetoall", 1, 320, 500))
QUICK = (1, 4, 5)
# Kernel, KiB, ns of a processor per request and completion: from the fifth run of a job on, while the default measures.
BEGINNINGS = (("alltoall", 1, 500), ("alltoall", 16, 500), ("alltoall", 1, 2000), ("alltoall", 16, 2000), ("alltoall", 64, 2000),
              ("ring", 16, 2000), ("allreduce", 64, 2000))


def beginning(c, kernel, size, host, transport):
    """us of a run of 16 processes over four routes soon after they have begun."""
    return adaptive.simulate(c, kernel, fabric="fattree-144", nodes=16, size=f"{size}K", policy="default", warm_up=4, repeat=10,
                             late=2000, seeds=3, host_post=host, host_completion=host, transport=transport)["time_us"]


def small_jobs(c):
    """Few processes, where UCP takes mp_rc by itself: what adaptive selection, the default, loses"""
    if not adaptive.has_adaptive(c):
        return
    kinds = {"mp_rc": {"transport": "mp_rc"}, "mp_dc": {"transport": "mp_dc"}}
    kinds |= {name: {"transport": name, "adapt_interval": 200_000} for name in ("adaptive", "eager")}
    kinds["eager with three places"] = kinds["eager"] | {"max_rc": PLACES}
    worst = {}
    if adaptive.has_rings(c): # not the default: a comparison
        kinds["eager with rings"] = kinds["eager"] | {"rings": adaptive.RINGS, "ring_costs": adaptive.ring_costs()}
    for fabric, late in FABRICS.items():
        file = os.path.join(ROOT, "perf", "fabrics", fabric + ".yaml")
        for number, (nodes, kernel, size, messages, warm_up) in enumerate(CASES):
            if c.quick and number not in QUICK:
                continue
            times = {}
            for name, how in kinds.items():
                times[name] = adaptive.simulate(c, kernel, fabric=file if os.path.exists(file) else fabric, nodes=nodes, size=size,
                                                messages=messages, policy="default", warm_up=warm_up, late=late,
                                                repeat=max(warm_up // 10, 10), **how)["time_us"]
            # Where not all have RC it shall not be worse than for nobody.
            beside = {"adaptive": "mp_rc", "eager": "mp_rc", "eager with three places": "mp_rc" if nodes <= PLACES + 1 else "mp_dc"}
            for transport, other in beside.items():
                worst[transport, other] = max(worst.get((transport, other), 0), times[transport] / times[other])
            yield Result("small_jobs", f"{fabric}, {nodes} processes, {kernel}, {size} B", ", ".join(
                f"{name} {time:.1f} us" + ("" if name == "mp_rc" else f" ({time / times['mp_rc']:.2f})")
                for name, time in times.items()))
    for kernel, size, host in BEGINNINGS[2:3] if c.quick else BEGINNINGS:
        rc, eager = (beginning(c, kernel, size, host, transport) for transport in ("mp_rc", "eager"))
        yield Result("small_jobs", f"16 processes that begin, {kernel}, {size} KiB, {host / 1e3:g} us",
                     f"mp_rc {rc:.0f} us, eager {eager:.0f} us: {eager / rc:.2f}", eager / rc, "<=", 1.1)
    for (transport, other), ratio in worst.items():
        yield Result("small_jobs", f"worst of {transport} by {other}", f"{ratio:.2f}", ratio, "<=", 1.02)
