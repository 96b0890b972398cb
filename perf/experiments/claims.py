"""What a paper says of an experiment, what we measure, whether the order (who wins) is the same, and the size.

A change is of the time that something takes, as a part of the time of what it is compared with: -0.25 is a quarter less.
"""
import collections
import csv
import os

from speed.rows import Plot
from speed.run import jobs

# agrees: the order: True, False, or None (there is nothing to compare with). size: likewise, whether the change is within a
# third of the text's; None also where the text has no figure, or says that nothing changes.
Claim = collections.namedtuple("Claim", "figure what text ours agrees why size", defaults=("", None))
# plots: speed.rows.Plot and Heat; say: shows a line of progress; kept: what mp_sim has measured, so that claims share it
# drawn: False where nobody looks at plots (--order)
Context = collections.namedtuple("Context", "build folder quick say plots kept drawn", defaults=(True,))
# cells: {(x, y): value}
Heat = collections.namedtuple("Heat", "title x y unit cells")

SAME = 0.03  # changes within it are none
NEAR = 1 / 3  # part of the text's change that ours may be off
OURS = ("goal", "ours")  # figures of claims that no paper makes


def is_calibrated(claim):
    """A number that went in was chosen so that this comes out: it says nothing."""
    return "(calibrated" in claim.what


def is_free(claim):
    """A paper's, and it could have come out otherwise."""
    return claim.figure not in OURS and not is_calibrated(claim)


def near(text, ours):
    """Of two changes, or None."""
    return abs(ours - text) <= NEAR * abs(text) if abs(text) > SAME else None


def tally(claims):
    """In words, of the papers' that could have come out otherwise, and of our own goals."""
    free = [c for c in claims if is_free(c)]
    parts = []
    for what, found in (("in the paper's order", [c.agrees for c in free]), ("within a third of its size", [c.size for c in free])):
        judged = [one for one in found if one is not None]
        parts.append(f"{sum(judged)} of {len(judged)} {what}")
    goals = [c.agrees for c in claims if c.figure in OURS and c.agrees is not None]
    met = f"; goals met: {sum(goals)} of {len(goals)}" if goals else ""
    return f"Of claims that are not calibrated: {', '.join(parts)}{met}"


def percent(part):
    return f"{100 * part:+.0f} %" if abs(part) >= 0.005 else "0 %"


def sign(part):
    return 0 if abs(part) <= SAME else 1 if part > 0 else -1


def change(figure, what, text, new, old, why="", expected=None):
    """text: the paper's change, or its words; then `expected` is -1 (less time), 0 or 1, or None where it says nothing."""
    ours = new / old - 1
    size = None
    if not isinstance(text, str):
        size, expected, text = near(text, ours), sign(text), percent(text)
    agrees = None if expected is None else sign(ours) == expected
    return Claim(figure, what, text, percent(ours), agrees, why, size)


def no_loss(figure, what, new, old, why=""):
    return Claim(figure, what, "no loss", percent(new / old - 1), new / old <= 1 + SAME, why)


def ratio(figure, what, text, new, old, why="", least=1 + SAME):
    """Of two rates; the text says that the first is higher (least: by how much it has to be)."""
    shown, size = (text, None) if isinstance(text, str) else (f"{text:.2f}", near(text - 1, new / old - 1))
    return Claim(figure, what, shown, f"{new / old:.2f}", new / old >= least, why, size)


def curve(c, title, sizes, lines, unit="MB/s"):
    """A plot as the papers have them. lines: {name: function of a size}, each of which gives what `unit` says."""
    if not c.drawn:
        return
    sizes = sizes[1::2] if c.quick else sizes
    series = {}
    for name, measure in lines.items():
        c.say(f"{title}: {name}")
        series[name] = [(size / 1024, measure(size)) for size in sizes]
    c.plots.append(Plot(title, "log", ["KiB"], series, unit))


def latency_of(measure):
    """us of one message at a time, of a function that gives MB/s of such."""
    return lambda size: size / measure(size)


def by_routes(policies, options):
    """[({name: policy}, options)]: a policy as "hsam@4" is hsam where there are four routes, whatever `options` say."""
    groups = {}
    for name, policy in policies.items():
        policy, _, routes = policy.partition("@")
        groups.setdefault(routes, {})[name] = policy
    return [(group, {**options, "paths": routes} if routes else options) for routes, group in groups.items()]


def simulate(c, kernel, policies, warm_up=4, repeat=2, **options):
    """{name: us} of one job for each of {name: policy} (by_routes()). Options as mp_sim has them."""
    found = {}
    for group, more in by_routes(policies, options):
        found.update(simulate_group(c, kernel, group, warm_up, repeat, more))
    return {name: found[name] for name in policies}


def simulate_group(c, kernel, policies, warm_up, repeat, options):
    words = ["--kernel", kernel, "--warm-up", str(warm_up), "--repeat", str(repeat)]
    for name, value in options.items():
        words += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
    key = tuple(words)
    known = c.kept.setdefault(key, {})
    missing = [policy for policy in policies.values() if policy not in known]
    if missing:
        c.say(" ".join(words))
        for policy, row in zip(missing, jobs(c.build, c.folder, [*words, "--policy", ";".join(missing)])):
            known[policy] = float(row["time_us"])
    return {name: known[policy] for name, policy in policies.items()}


def table(c, kernel, policies, option, **options):
    """The lines of mp_sim's --transfers or --links, {name: [line]}; policies as in simulate()."""
    found = {}
    for group, more in by_routes(policies, options):
        found.update(table_group(c, kernel, group, option, more))
    return {name: found[name] for name in policies}


def table_group(c, kernel, policies, option, options):
    path = os.path.join(c.folder, option + ".csv")
    words = ["--kernel", kernel, "--policy", ";".join(policies.values()), "--" + option, path]
    for name, value in options.items():
        words += ["--" + name.replace("_", "-"), str(value)]
    c.say(" ".join(words))
    jobs(c.build, c.folder, words)
    found = {name: [] for name in policies}
    names = {"mp_rc " + policy: name for name, policy in policies.items()}
    with open(path, encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            found[names[line["run"]]].append(line)
    return found
