"""What other commands measure: their rows are run here too, and a target that is met counts as the paper's order."""
import os

from experiments.claims import Claim
from speed import adaptive as rows_of_adaptive
from speed import failover as rows_of_failover
from speed.rows import met


def taken(figure, results):
    for r in results:
        yield Claim(figure, r.what, f"{r.sense} {r.target:g}" if r.value is not None else "printed", r.text, met(r),
                    "a target of ours is missed: see the command")


def faults(c):
    """D 9.4 to 9.15, 10.13 to 10.20 by what the transport shows of them: perf/failover apm, bandwidth, partition"""
    theirs = rows_of_failover.Context(c.build, c.quick, c.say, c.plots, {})
    yield from taken("D 9.12-9.15", rows_of_failover.ROWS["apm"](theirs))
    yield from taken("D 10.13-16", rows_of_failover.ROWS["bandwidth"](theirs))
    yield from taken("D 10.19-20", rows_of_failover.ROWS["partition"](theirs))


def rc_or_dc(c):
    """A figures 3 to 12, T figures 5 to 8: perf/adaptive"""
    folder = os.path.join(c.folder, "adaptive")
    os.makedirs(folder, exist_ok=True)
    theirs = rows_of_adaptive.Context(c.build, folder, c.quick, c.say, c.plots, {})
    for figure, row in (("A Fig 10", "onetoall"), ("A Fig 11", "alltoone"), ("A Fig 12", "repeat"), ("A Fig 3-5", "traces"),
                        ("A Fig 8, 9", "memory"), ("T Fig 5", "victims"), ("T Fig 5", "dataservers")):
        yield from taken(figure, rows_of_adaptive.ROWS[row](theirs))


EXPERIMENTS = [faults, rc_or_dc]

# What can't be had, and what it would take.
MISSING = [
    ("D 4.13, 4.14", "visualization", "its pattern is not in the text"),
    ("D 5.16", "reads and writes in one epoch on IA32", "one bus for both directions (PCI-X)"),
    ("D 6.5", "small messages both ways", "windows of messages both ways in bench_sim_transport, and costs of copies there: they are the limit"),
    ("D 9.4-9.11", "commands of migration alone, by number of queue pairs", "costs of commands by kind; a benchmark of verbs"),
    ("D 10.7", "latency of the layer", "nothing: perf/failover cost has it, in instructions"),
    ("D 10.12, 10.18", "MG on nodes with different rails", "the kernel"),
    ("T Fig 6-8", "4096 and 6144 processes of NWChem", "the task pool at that size: perf/adaptive has 1024"),
    ("N Table 4.1", "latency and bandwidth of a message, 42 us and 89 MB/s", "nothing: the network and adapter of 2003, without collectives"),
    ("C Fig 3b", "AWP-ODC, 8192 processes", "so many interfaces in one process, and a network whose routes are shared: codesign.awp has one switch"),
    ("N 4.2 text", "receive from any source, 2 to 8 nodes", "MPI's matching in virtual time: bench_sim_pml has two processes"),
]

# All figures and tables with measurements of the papers.
FIGURES = {f"{paper} {chapter}.{n}" for paper, chapter, first, last in (
    ("D", 3, 5, 5), ("D", 4, 3, 14), ("D", 5, 4, 13), ("D", 5, 16, 17), ("D", 6, 2, 12), ("D", 7, 2, 10), ("D", 8, 5, 19),
    ("D", 9, 4, 15), ("D", 10, 7, 20)) for n in range(first, last + 1)}
FIGURES |= {f"A {n}" for n in (3, 4, 5, 8, 9, 10, 11, 12)} | {f"T {n}" for n in (5, 6, 7, 8)}
FIGURES |= {f"N Table 4.{n}" for n in (1, 2, 3, 4, 5)} | {f"N 4.{n}" for n in (2, 3, 4)} | {"C 3a", "C 3b", "C 4"}


def figures_of(label):
    """{"D 4.3", "D 4.4"} of "D 4.3, 4.4" or "D 4.3-4.4"; "A Fig 3-5" is {"A 3", "A 4", "A 5"}."""
    paper, _, rest = label.partition(" ")
    found = set()
    for part in rest.replace("Fig ", "").split(","):
        first, _, last = part.strip().partition("-")
        chapter, dot, number = first.rpartition(".")
        if number.isdigit():
            for n in range(int(number), int(last.rpartition(".")[2] or number) + 1):
                found.add(f"{paper} {chapter}{dot}{n}")
        else:
            found.add(f"{paper} {first}")
    return found


def unmentioned(claims):
    """Figures that neither a claim nor MISSING is about."""
    labels = [claim.figure for claim in claims] + [figure for figure, _, _ in MISSING]
    return sorted(FIGURES - set().union(*map(figures_of, labels)))
