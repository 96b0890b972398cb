"""The row of perf/adaptive that takes away what its fabric has been given: how much of the gain of adaptive selection (AQPS) is the
choice of two numbers that the text does not have.

The text tells neither what a message takes of its adapter's unit nor what a miss of its context costs; how many contexts there
are it tells by two numbers between which they lie. All three were chosen in config/fabrics/connect-ib-64 by the text's own
figures. Here each is varied while the others stay.
"""
import os
import re

from speed import adaptive
from speed.rows import Plot, Result
from speed.run import ROOT

GAIN = 0.03 # less than that is none
# What is measured is what has settled: quick commands let it settle in fewer rounds.
COMMANDS = {"command_create": "20 us", "command_modify": "5 us", "command_reg": "2 us"}
MESSAGES, CONTEXTS, MISSES = (15, 30, 60, 120, 240), (24, 36, 48, 64, 96), (16, 32, 64, 128)


def variant(c, **values):
    """The fabric with other numbers of its adapter; its path."""
    with open(os.path.join(ROOT, "config", "fabrics", adaptive.FABRIC + ".yaml"), encoding="utf-8") as file:
        text = file.read()
    for name, value in (COMMANDS | values).items():
        text, found = re.subn(rf"^(    {name}:) .*$", rf"\1 {value}", text, flags=re.MULTILINE)
        assert found == 1, name
    path = os.path.join(c.folder, "-".join(f"{name}_{value}" for name, value in values.items()).replace(" ", "") + ".yaml")
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    return path


def times(c, contexts, **values):
    """ns of a message of onetoall, 64 processes, by DC, by RC, and by the default. Its initiators leave room for 26 of RC."""
    job = {"nodes": 64, "size": 1, "messages": 6_400, "fabric": variant(c, **values)}
    initiators = max(4, min(28, contexts - 26))
    found = {"DC": adaptive.simulate(c, "onetoall", **job, **adaptive.DC, warm_up=1, repeat=1),
             "RC": adaptive.simulate(c, "onetoall", **job, **adaptive.RC, warm_up=1, repeat=1),
             "eager": adaptive.simulate(c, "onetoall", **job, **adaptive.EAGER | {"dci": initiators}, warm_up=24, repeat=2,
                                        adapt_interval=200_000)}
    return {name: 1e3 * one["us_per_message"] for name, one in found.items()}


def contexts(c):
    """From where on adaptive selection gains in onetoall, by the numbers of the adapter that the text does not have"""
    sweeps = {"message": ("ns of a message in the unit", {n: {"message": f"{n} ns"} for n in MESSAGES}),
              "qp_cache_miss": ("ns of a miss", {n: {"qp_cache_miss": f"{n} ns"} for n in MISSES}),
              "qp_cache_entries": ("contexts", {n: {"qp_cache_entries": n} for n in CONTEXTS})}
    for name, (what, cases) in sweeps.items():
        cases = dict(list(cases.items())[1::2]) if c.quick else cases
        series, gains = {"by DC": [], "by RC": []}, {}
        for value, numbers in cases.items():
            at = times(c, value if name == "qp_cache_entries" else 48, **numbers)
            for other in ("DC", "RC"):
                series[f"by {other}"].append((value, 100 * (1 - at["eager"] / at[other])))
            gains[value] = 1 - at["eager"] / min(at["DC"], at["RC"])
            yield Result("contexts", f"onetoall, 64 processes, {value} {what}",
                         ", ".join(f"{kind} {found:.0f} ns" for kind, found in at.items()) +
                         f"; default by the better kind {-100 * gains[value]:+.0f} %")
        ahead = [value for value, gain in gains.items() if gain > GAIN]
        yield Result("contexts", f"onetoall, 64 processes, {what}: the default gains more than {100 * GAIN:.0f} %",
                     f"at {', '.join(map(str, ahead)) or 'none'} of {', '.join(map(str, gains))}")
        c.plots.append(Plot(f"onetoall, 64 processes: what the default gains, by {what}", "lines", [what], series, "%"))
