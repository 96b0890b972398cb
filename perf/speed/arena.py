"""perf/arena's measuring: jobs in virtual time with each contender, and what is concluded from the times."""
import concurrent.futures
import csv
import dataclasses
import math
import os
import subprocess
import tempfile

from speed.arena_jobs import fabric_path
from speed.run import ROOT, environment

POLICIES = ("default", "binding", "even", "adaptive", "bss:n_paths=4,n_batch=2", "bss:n_paths=4,n_batch=4", "spray", "window_rr",
            "load_balanced")
TRANSPORTS = ("mp_rc", "mp_dc", "eager")
SEEDS = 3  # of mp_sim in each half: the first choose the best, others time it
LIMIT = 1800  # seconds of a run


@dataclasses.dataclass
class Times:
    """us, medians: of the seeds that choose, of the others, of either's first run."""
    choose: float = 0
    choose_first: float = 0
    time: float = 0
    first: float = 0


@dataclasses.dataclass
class Outcome:
    job: object
    times: dict = dataclasses.field(default_factory=dict)  # by contender
    links: float = 0  # us that the links need, and the busiest processor
    processors: float = 0
    failures: list = dataclasses.field(default_factory=list)

    @property
    def limit(self):
        return max(self.links, self.processors)

    def best(self, but=None, cold=False):
        """The contender that the choosing seeds say is fastest."""
        others = [name for name in self.times if name != but]
        return min(others, key=lambda name: self.times[name].choose_first if cold else self.times[name].choose)

    def time(self, name, cold=False):
        return self.times[name].first if cold else self.times[name].time

    def ratio(self, name, cold=False):
        """Time of the best of the others by its own, at most 1."""
        return min(1, self.time(self.best(name, cold), cold) / self.time(name, cold))

    @property
    def of_limit(self):
        return self.limit / self.time(self.best())


class Arena:
    """contenders: policies, or transports under the default policy. `quick`: (seeds, warm-up, runs) in place of 3, 8, 3."""

    def __init__(self, build, contenders, transports=False, cold=False, module="", extra=(), quick=None):
        self.program = os.path.join(build, "bin", "mp_sim")
        self.contenders, self.transports = contenders, transports
        self.seeds, self.warm_up, self.repeat = quick or (SEEDS, *((0, 1) if cold else (8, 3)))
        self.extra = (["--module", module] if module else []) + list(extra)
        if transports:
            self.extra += ["--adapt-interval", "200000"]

    def words(self, job, contender=None):
        what = ["--transport", contender or "mp_rc", "--policy", "default"] if self.transports else ["--policy", contender or "binding"]
        return [*map(fabric_path, job.words), *what, *self.extra]

    def simulate(self, words):
        """The row of mp_sim's table."""
        with tempfile.NamedTemporaryFile("r", suffix=".csv") as table:
            try:
                done = subprocess.run([self.program, *words, "--quiet", "--csv", table.name], capture_output=True, text=True, timeout=LIMIT,
                                      check=False, env=environment(SOFTHCA_FABRICS=f"{ROOT}/config/fabrics"))
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"no end within {LIMIT} s") from None
            rows = list(csv.DictReader(table))
        if done.returncode or not rows:
            raise RuntimeError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
        row = {name: float(value) for name, value in rows[0].items() if name.endswith("_us")}
        if row["time_us"] <= 0:
            raise RuntimeError("a time of 0")
        return row

    def contest(self, job, contender):
        """Times of one contender. Seeds of the two halves are never the same."""
        runs = ["--warm-up", str(self.warm_up), "--repeat", str(self.repeat), "--seeds", str(self.seeds)]
        words = self.words(job, contender) + runs
        choose = self.simulate([*words, "--seed", str(10 * job.seed)])
        time = self.simulate([*words, "--seed", str(10 * job.seed + SEEDS)])
        return Times(choose["time_us"], choose["first_us"], time["time_us"], time["first_us"])

    def bound(self, job):
        row = self.simulate([*self.words(job), "--bound", "--warm-up", "0", "--seed", str(10 * job.seed + SEEDS)])
        return row["at_once_us"], row["processors_us"]

    def run(self, jobs, known, processes=2, limits=True, progress=lambda done, all_: None):
        """[Outcome] of the jobs. `known`: {(seed, words, contender): Times} that need not be measured again."""
        outcomes = [Outcome(job) for job in jobs]
        tasks = {}
        with concurrent.futures.ThreadPoolExecutor(processes) as pool:
            for outcome in outcomes:
                for contender in self.contenders:
                    key = (outcome.job.seed, " ".join(outcome.job.words), contender)
                    if key in known:
                        outcome.times[contender] = known[key]
                    else:
                        tasks[pool.submit(self.contest, outcome.job, contender)] = (outcome, contender)
                if limits:
                    key = (outcome.job.seed, " ".join(outcome.job.words), "")
                    if key in known:
                        outcome.links, outcome.processors = known[key].choose, known[key].time
                    else:
                        tasks[pool.submit(self.bound, outcome.job)] = (outcome, "")
            for count, task in enumerate(concurrent.futures.as_completed(tasks)):
                outcome, contender = tasks[task]
                try:
                    if contender:
                        outcome.times[contender] = task.result()
                    else:
                        outcome.links, outcome.processors = task.result()
                except RuntimeError as failure:
                    outcome.failures.append((contender or "limit", str(failure)))
                progress(count + 1, len(tasks))
        for outcome in outcomes:
            outcome.times = {name: outcome.times[name] for name in self.contenders if name in outcome.times}
        return outcomes


FIELDS = ("seed", "group", "contender", "choose_us", "choose_first_us", "time_us", "first_us", "how", "words")


def write(path, outcomes, how):
    """A line for each job and contender, and one without a contender for the limits. `how`: runs and seeds, so that figures of
    another kind are not taken for these."""
    with open(path, "w", newline="", encoding="utf-8") as out:
        table = csv.writer(out)
        table.writerow(FIELDS)
        for outcome in outcomes:
            rows = dict(outcome.times)
            if outcome.limit:
                rows[""] = Times(outcome.links, 0, outcome.processors, 0)
            for contender, t in rows.items():
                table.writerow([outcome.job.seed, outcome.job.group, contender, t.choose, t.choose_first, t.time, t.first, how,
                                " ".join(outcome.job.words)])


def read(path, how):
    """{(seed, words, contender): Times}. Raises ValueError with one line."""
    found = {}
    with open(path, newline="", encoding="utf-8") as text:
        table = csv.DictReader(text)
        if tuple(table.fieldnames or ()) != FIELDS:
            raise ValueError(f"{path}: no table of arena's --csv")
        for number, row in enumerate(table, 2):
            if row["how"] != how:
                raise ValueError(f"{path}:{number}: measured with '{row['how']}', but this is '{how}'")
            try:
                times = Times(*(float(row[name]) for name in FIELDS[3:7]))
                found[int(row["seed"]), row["words"], row["contender"]] = times
            except ValueError:
                raise ValueError(f"{path}:{number}: not a line of arena's --csv") from None
    return found


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
