"""What other commands measure: their rows are run here too, and a target that is met counts as the paper's order."""
import os

from experiments.claims import Claim
from speed import adaptive as rows_of_adaptive
from speed import failover as rows_of_failover
from speed.rows import met


# Of rows that miss their target: why.
WHY = {"port down, put": "a port's event is enough for the transport to send again at once, without any migration"}


def taken(figure, results):
    for r in results:
        yield Claim(figure, r.what, f"{r.sense} {r.target:g}" if r.value is not None else "printed", r.text, met(r),
                    WHY.get(r.what, "a target of ours is missed: see the command"))


def faults(c):
    """D 9.4 to 9.15, 10.13 to 10.20 by what the transport shows of them: perf/failover apm, bandwidth, partition"""
    theirs = rows_of_failover.Context(c.build, c.quick, c.say, c.plots, {})
    yield from taken("D 9", rows_of_failover.ROWS["apm"](theirs))
    yield from taken("D 10.13-16", rows_of_failover.ROWS["bandwidth"](theirs))
    yield from taken("D 10.19-20", rows_of_failover.ROWS["partition"](theirs))


def rc_or_dc(c):
    """A figures 3 to 12, T figures 5 to 8: perf/adaptive"""
    folder = os.path.join(c.folder, "adaptive")
    os.makedirs(folder, exist_ok=True)
    theirs = rows_of_adaptive.Context(c.build, folder, c.quick, c.say, c.plots, {})
    for figure, row in (("A Fig 10", "onetoall"), ("A Fig 11", "alltoone"), ("A Fig 12", "repeat"), ("A Fig 3-5", "traces"),
                        ("A Fig 8, 9", "memory"), ("T Fig 5", "victims"), ("T Fig 5", "taskpool")):
        yield from taken(figure, rows_of_adaptive.ROWS[row](theirs))


EXPERIMENTS = [faults, rc_or_dc]

# What can't be had, and what it would take.
MISSING = [
    ("D 4.7, 4.8", "bandwidth, two processes per node", "binding per process, not per peer"),
    ("D 4.13, 4.14", "visualization", "its pattern is not in the text"),
    ("D 5.5, 5.7, 5.9, 5.11, 5.13", "other buses (EM64T, IA32)", "one bus for both directions"),
    ("D 9.4-9.11", "commands of migration alone, by number of queue pairs", "costs of commands by kind; a benchmark of verbs"),
    ("D 9.12-9.15", "IS, FT, LU while a cable is pulled", "faults at a given time in mp_sim"),
    ("D 10.11, 10.12, 10.17, 10.18", "NAS on nodes with different rails", "nodes of two kinds in one job of mp_sim"),
    ("N, C", "collectives on the adapter, AWP-ODC, P3DFFT", "the engine of collectives"),
]
