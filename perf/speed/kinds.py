"""The row of perf/adaptive that looks on while the pattern changes: kinds over time, transitions, and who stands still."""
import csv
import os

from speed import adaptive
from speed.rows import Plot, Result

EVERY = 100_000 # ns between two looks
INTERVAL = 200_000 # of adaptive selection
WAYS = ("dc", "dc_ring", "rc", "rc_ring")
NAMES = ("DC", "DC ring", "RC", "RC ring")


def looks(c, name, messages, how):
    """mp_sim's lines over time, [{column: number}], of `repeat` from the first message on."""
    path = os.path.join(c.folder, "kinds.csv")
    adaptive.simulate(c, "repeat", nodes=64, size=1, messages=messages, warm_up=0, kinds=path, kinds_every=EVERY, **how,
                      **adaptive.interval(name))
    with open(path, encoding="utf-8") as rows:
        return [{column: float(value) for column, value in row.items() if column != "run"} for row in csv.DictReader(rows)]


def phases(rows):
    """[(begin, end)] in lines: while rank 0 mostly sends, or mostly receives."""
    found, kind, since = [], None, 0
    for i in range(1, len(rows)):
        sent, received = (rows[i][name] - rows[i - 1][name] for name in ("sent_0", "received_0"))
        now = kind if sent == received else sent > received
        if kind is not None and now != kind:
            found.append((since, i - 1))
            since = i - 1
        kind = now
    return found + [(since, len(rows) - 1)]


def transitions(rows):
    """us from each beginning of a phase to the last switch in it."""
    took = []
    for begin, end in phases(rows):
        last = max((i for i in range(begin + 1, end + 1) if rows[i]["switches"] > rows[i - 1]["switches"]), default=None)
        if last is not None:
            took.append(rows[last]["us"] - rows[begin]["us"])
    return took


def switches(c):
    """Kinds over time while one-to-all and all-to-one take turns, from the first message on: transitions, pauses"""
    messages = 32_000 if c.quick else 160_000
    pauses = {}
    for name, how in adaptive.competitors(c).items():
        rows = looks(c, name, messages, how)
        pauses[name] = max(row["pause_us"] for row in rows)
        if name in ("DC", "RC"):
            continue
        last, took = rows[-1], transitions(rows)
        windows = ", ".join(f"{1e3 * one / INTERVAL:.1f}" for one in took)
        yield Result("switches", f"{name}, 64 processes", f"{last['switches']:.0f} switches in {last['us'] / 1e3:.1f} ms, at the end "
                     + ", ".join(f"{last[way]:.0f} {label}" for way, label in zip(WAYS, NAMES))
                     + f"; phase by phase, windows of {INTERVAL / 1e3:.0f} us until nothing was switched any more: {windows or 'none'}")
        for suffix, whose in (("", "all processes"), ("_0", "rank 0")):
            c.plots.append(Plot(f"{name}: how messages come to {whose}, repeat with 64 processes", "time",
                                [(rows[begin]["us"] / 1e3, "") for begin, _ in phases(rows)[1:]],
                                {label: [(row["us"] / 1e3, row[way + suffix]) for row in rows]
                                 for way, label in zip(WAYS, NAMES)}, "sources"))
        c.plots.append(Plot(f"{name}: switches so far, repeat with 64 processes", "time", [],
                            {"switches": [(row["us"] / 1e3, row["switches"]) for row in rows]}, "switches"))
    # The text suspends a channel in J1, J4 and J5. Here none is: what a switch costs can only be a processor's time.
    for name, longest in pauses.items():
        if name in ("DC", "RC"):
            continue
        beside = pauses[name.split()[0] if name.split()[0] in ("DC", "RC") else "DC"]
        yield Result("switches", f"{name}, longest pause of a process", f"text: suspended at each switch; ours {longest:.0f} us, "
                     f"without switches {beside:.0f} us", longest / beside, "<=", 1.05)
