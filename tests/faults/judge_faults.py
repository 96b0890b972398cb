"""Stock Open MPI jobs over our transport while ports, links and packets are lost: nobody may notice.

The faults of a run are a script of the adapter (softhca run --faults) made from a seed, which is printed; the same seed
gives the same script (TESTS_SEED=N tests/judges/run faults CASE). Times are those of the adapter's clock, so what a
fault meets differs from run to run all the same.

No port or link is down for more than MOST seconds, and the two ports of a node together no longer than that: shorter than
UCX_MP_PARTITION_TIMEOUT by far. While the job starts (START seconds) the second ports stay up: a process that finds no
active port has no transport, ours or UCX's. One that starts later yet, on a busy machine, waits for a port of ours
(UCX_MP_PORT_TIMEOUT). That faults met the job is counted in the transport's own log (UCX_LOG_LEVEL=info).
"""

import glob
import os
import random
import re
import time
from collections import Counter

from judge import SOURCE, Failure, Group, check, preloaded
from judge_mpi import hpcc, mpi4py, mpirun, netpipe

group = Group()

TRANSPORTS = ("mp_rc", "mp_dc")
FABRIC = "four-path"
RAILS = ("softhca_0:1", "softhca_1:1")
MOST = 1.5
START = 3


# What happens

class Schedule:
    """A fault script: one list of (time, words), sorted when written."""

    def __init__(self, seed, nodes):
        self.random = random.Random(seed)
        self.nodes = nodes
        self.steps = []
        self.free = Counter()  # from when a target may be hit again

    def hit(self, at, length, targets, begin, end, rest=0.3):
        """`targets` get `begin` for `length`, then `end`; nothing if one of them is still hit or has only just returned."""
        if any(self.free[target] > at for target in targets):
            return
        for target in targets:
            self.free[target] = at + length + rest
            self.steps += [(at, begin.format(target)), (at + length, end.format(target))]

    def port(self, at):
        return f"{self.random.choice(self.nodes)}:{self.random.choice(RAILS if at >= START else RAILS[:1])}"

    def link(self):
        return f"leaf{self.random.randint(1, 4)} spine{self.random.randint(1, 4)}"

    def loud(self, at):
        """Ports (their owners are told), links between switches (nobody is), nodes without any port."""
        kind = self.random.random()
        length = 0.02 + self.random.random() ** 2 * (MOST - 0.02)
        if kind < (0.55 if at >= START else 0.25):
            self.hit(at, length, [self.port(at)], "port down {}", "port up {}")
        elif kind < 0.9 or at < START:
            self.hit(at, length, [self.link()], "link down {}", "link up {}")
        else:
            node = self.random.choice(self.nodes)
            self.hit(at, length, [f"{node}:{rail}" for rail in RAILS], "port down {}", "port up {}")

    def pulled(self, at):
        """One port of a node and links, so that interfaces can be opened at any time."""
        length = self.random.uniform(0.02, MOST)
        target = f"{self.random.choice(self.nodes)}:{RAILS[1]}" if self.random.random() < 0.5 else None
        self.hit(at, length, [target or self.link()], "port down {}" if target else "link down {}",
                 "port up {}" if target else "link up {}")

    def silent(self, at):
        """Nobody is told: all packets of a port lost for some 100 ms, some damaged, all late."""
        kind = self.random.random()
        length = self.random.uniform(0.1, 1.2)
        target = self.port(at) if kind < 0.7 else self.link()
        if kind < 0.45:
            self.hit(at, length, [target], "fault drop 100% {}", "fault drop 0% {}")
        elif kind < 0.8:
            share = self.random.choice((0.5, 5, 50, 100))
            self.hit(at, length, [target], f"fault corrupt {share}% {{}}", "fault corrupt 0% {}")
        else:
            late = self.random.choice((50, 500, 5000))
            self.hit(at, length, [target], f"fault delay {late}us {{}}", "fault delay 0us {}")

    def exchange(self, at):
        """An adapter dies and is exchanged, one of a node at a time: it must have been taken back before the next one dies."""
        if at >= START:
            adapter = self.random.choice(RAILS).split(":")[0]
            self.hit(at, self.random.uniform(0.02, 0.6), [self.random.choice(self.nodes)], f"adapter-death {{}}:{adapter}",
                     f"adapter-revive {{}}:{adapter}", rest=2)

    def write(self, path):
        with open(path, "w", encoding="ascii") as out:
            for at, words in sorted(self.steps):
                out.write(f"at {at:.3f}s {words.removeprefix('fault ')}\n")


def harass(session, nodes, kind, seconds, gap):
    """Prepares the faults of the session's programs: `kind` is a method of Schedule, `gap` the mean time between two."""
    seed = int(os.environ.get("TESTS_SEED") or random.SystemRandom().randrange(1, 10**9))
    print(f"TESTS_SEED={seed}", flush=True)
    schedule = Schedule(seed, nodes)
    at = 0.3
    while at < seconds:
        getattr(schedule, kind)(at)
        at += schedule.random.expovariate(1 / gap)
    script(session, schedule.steps, schedule)


def script(session, steps, schedule=None):
    schedule = schedule or Schedule(0, session.places)
    schedule.steps = steps
    session.faults = os.path.join(session.folder, "faults")
    schedule.write(session.faults)


# What the transport says about it

def logging(tls, **more):
    """Each process has a log file of its own, so that lines do not fall into the program's output."""
    def env(session):
        library = preloaded(tls, **{"UCX_LOG_LEVEL": "info", "UCX_MP_RAILS": ",".join(RAILS), "UCX_MP_PORT_TIMEOUT": "20s",
                                    **more})(session)
        return {**library, "UCX_LOG_FILE": os.path.join(session.folder, "ucx-%p.log")}
    return env


def log_lines(session):
    lines = []
    for path in glob.glob(os.path.join(session.folder, "ucx-*.log")):
        with open(path, encoding="utf-8", errors="replace") as text:
            lines += text.read().splitlines()
    return lines


def counts(session):
    """What happened to paths, over all processes; also prints it."""
    lines = log_lines(session)
    events = {"down": r" is down: ", "up again": r" is up again after", "no path": r"no path to .* is left",
              "there again": r"softhca_\d is there again"}
    found = {name: sum(bool(re.search(pattern, line)) for line in lines) for name, pattern in events.items()}
    causes = Counter(cause for line in lines for cause in re.findall(r" is down: (.*)$", line))
    print(", ".join(f"{name}: {n}" for name, n in found.items()) + "; causes: " +
          ", ".join(f"{cause} {n}" for cause, n in causes.most_common(6)), flush=True)
    return found


def judged(session, job):
    """Runs `job(session)`; a failure comes with the end of the transport's log. Returns what was counted."""
    began = time.monotonic()
    try:
        job(session)
    except Failure as reason:
        counts(session)
        raise Failure(f"{reason}\n" + "\n".join(sorted(log_lines(session))[-40:])) from None
    print(f"done in {time.monotonic() - began:.1f} s", flush=True)
    for line in log_lines(session):
        # MPI_Fetch_and_op of types that have no atomics: osc/ucx asks UCP all the same, also over shared memory.
        if "invalid atomic operation datatype" not in line:
            check(not re.search(r" (ERROR|FATAL) ", line), f"UCX complains: {line}")
    return counts(session)


# Jobs

def program(name, ranks, *argv, seconds, tls=None, library=None):
    """One of tests/mpi, by the short command line of config/openmpi; returns a function that gives its output."""
    def run(session):
        env = (library or logging(tls))(session)
        env = {**env, "LD_PRELOAD": "", "UCT_MP_LIBRARY": env["LD_PRELOAD"]}
        launcher = os.path.join(SOURCE, "config", "openmpi", "mpirun-mp")
        path = os.path.join(session.build, "bin", "mpi_" + name)
        text = session.run([launcher, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), path,
                            *argv], env=env, seconds=seconds)
        check(f"{name}: {ranks} ranks ok" in text, f"{name} does not say that all is well")
        run.output = text
    return run


def jobs(tls, storm_lasts=2, seconds=60):
    """Some last as long as they take, storm at least `storm_lasts` seconds."""
    return {
        "hpcc": (4, hpcc(4, 2, 2, env=logging(tls))),
        "netpipe": (2, netpipe("-i", "-n", "400", integrity=True, env=logging(tls))),
        "mpi4py": (2, mpi4py(2, env=logging(tls))),
        "storm": (4, program("storm", 4, "1000000", "2", str(storm_lasts), seconds=seconds, tls=tls)),
    }


def under_faults(tls, name, kind, gap, least):
    def run(session):
        ranks, job = jobs(tls)[name]
        harass(session, session.places[:ranks], kind, 120, gap)
        for _ in range(4):  # a quick job may be over before faults meet it: the script goes on, and so does the count
            if judged(session, job)["down"] >= least:
                return
        raise Failure(f"fewer than {least} paths have failed: nothing has been tested")
    return run


for transport in TRANSPORTS:
    for job_name, mean_gap in (("hpcc", 0.3), ("netpipe", 0.15), ("storm", 0.15)):
        group.add(under_faults(transport, job_name, "loud", mean_gap, 4), f"{job_name}_{transport}", (FABRIC,), seconds=260)
    group.add(under_faults(transport, "mpi4py", "loud", 0.3, 4), f"mpi4py_{transport}", (FABRIC,), seconds=400,
              long=True) # in every run over our modules (judge.pml)
    # What is lost for less than the queue pairs' patience (TIMEOUT, RETRY_COUNT: 0.5 s) need not fail a path.
    group.add(under_faults(transport, "storm", "silent", 0.1, 1), f"silent_{transport}", (FABRIC,), seconds=130)


def exchange(tls):
    def run(session):
        """Adapters die and are exchanged: the job goes on over the others, and over the new ones."""
        _, job = jobs(tls, storm_lasts=8, seconds=110)["storm"]
        harass(session, session.places[:4], "exchange", 60, 0.4)
        found = judged(session, job)
        check(found["there again"] >= 2, "the job was over before adapters were exchanged")
        check(found["up again"] >= found["there again"], "paths have not come back with their adapters")
    return run


for transport in TRANSPORTS:
    group.add(exchange(transport), f"exchange_{transport}", (FABRIC,), seconds=130)


# Adaptive selection with costs that make everything worth its while: RC and rings come and go every 100 ms.
RESTLESS = {"UCX_MP_DC_ADAPT": "on", "UCX_MP_DC_ADAPT_INTERVAL": "100ms", "UCX_MP_DC_ADAPT_GAIN": "0ns",
            "UCX_MP_DC_ADAPT_MAX_RC": "2", "UCX_MP_DC_ADAPT_POOL": "2", "UCX_MP_DC_ADAPT_MAX_RINGS": "2",
            "UCX_MP_DC_ADAPT_COSTS": "r=2000,rho=1000,d=1000,p=1,c=1,delta=1000", "UCX_LOG_LEVEL": "debug"}


def adaptive(places, job_name, gap):
    """Places for one or two peers of three, RC and rings that come and go, and ports and links that are pulled."""
    def run(session):
        library = logging("mp_rc,mp_dc", UCX_MP_DC_MAX_CONN=str(places), UCX_MP_RC_MAX_CONN=str(places), **RESTLESS)
        job = {"hpcc": hpcc(4, 2, 2, env=library),
               "storm": program("storm", 4, "1000000", "2", "2", seconds=100, library=library)}[job_name]
        harass(session, session.places[:4], "pulled", 120, gap)
        # How often at least. All connections end when the job does, but those are few.
        wanted = {"RC": (1, r"as it is wanted"), "rings": (1, r"has a ring here"), "partings": (100, r"established -> closed")}
        for _ in range(4):
            down, lines = judged(session, job)["down"], log_lines(session)
            seen = {name: sum(bool(re.search(pattern, line)) for line in lines) for name, (_, pattern) in wanted.items()}
            print(", ".join(f"{name}: {n}" for name, n in seen.items()), flush=True)
            if down >= 4 and all(seen[name] >= least for name, (least, _) in wanted.items()):
                return
        raise Failure("nothing has been tested: too few paths have failed, or RC, rings or partings have not been seen")
    return run


for job_places in (1, 2):
    for job_name in ("hpcc", "storm"):
        # hpcc waits for each of its messages: what a lost one costs adds up.
        mean_gap = 1 / job_places if job_name == "hpcc" else 0.2
        group.add(adaptive(job_places, job_name, mean_gap), f"adaptive_{job_name}_{job_places}", (FABRIC,), seconds=280,
                  long=(job_name, job_places) != ("storm", 2))


@group.case(fabrics=(FABRIC,), seconds=60)
def contrast_rc_verbs(session):
    """What stock UCX makes of the same faults. It is shown, not judged: it may be lucky."""
    harass(session, session.places[:4], "loud", 60, 0.15)
    env = {"UCX_TLS": "rc_v,ud_v", "UCX_LOG_LEVEL": "error", "UCX_NET_DEVICES": "softhca_0:1,softhca_1:1"}
    path = os.path.join(session.build, "bin", "mpi_storm")
    stock = session.start(mpirun(4, path, "1000000", "2"), env=env)
    try:
        text = stock.wait(8, code=None)
        outcome = "ends well" if stock.process.returncode == 0 and "ranks ok" in text else \
            f"aborts after {time.monotonic() - stock.started:.1f} s, exit code {stock.process.returncode}"
    except Failure:
        outcome = "hangs (stopped after 8 s)"
    stock.stop()
    errors = re.findall(r"^\[.*(?:ERROR|FATAL).*$", stock.output(), re.M)
    print(f"storm over stock rc_verbs: {outcome}" + "".join("\n  " + line for line in errors[:3]))


# Longer ones: ctest -C long

def compute(tls):
    def run(session):
        """A process without progress for 10 s makes the others wait (its receive buffers run out), no path fails."""
        found = judged(session, program("endure", 4, "compute", "10", seconds=80, tls=tls))
        check(not any(found.values()), "a failover without a fault")
    return run


def partition(tls):
    def run(session):
        """One of four ranks has no path to anybody for 10 s in the middle of a job."""
        down, up = 4.0, 14.0
        node = session.places[1]
        script(session, [(at, f"port {word} {node}:{rail}") for at, word in ((down, "down"), (up, "up")) for rail in RAILS])
        job = program("endure", 4, "alltoall", "16", "100000", seconds=90, tls=tls)
        found = judged(session, job)
        line = re.search(r"endure: .*longest ([\d.]+) s.*", job.output)
        print(line[0] + f"; the partition lasted {up - down:.0f} s")
        check(found["no path"] >= 3 and found["up again"] >= 3, "there was no partition")
        check(float(line[1]) >= 0.95 * (up - down), "the job did not wait: the partition missed it")
    return run


for transport in TRANSPORTS:
    group.add(compute(transport), f"compute_{transport}", (FABRIC,), seconds=100, long=True)
    group.add(partition(transport), f"partition_{transport}", (FABRIC,), seconds=110, long=True)
    for fault_kind in ("loud", "silent"):
        def campaign(session, tls=transport, kind=fault_kind):
            _, job = jobs(tls, storm_lasts=30, seconds=400)["storm"]
            harass(session, session.places[:4], kind, 400, 0.15)
            found = judged(session, job)
            check(found["down"] >= 50, "hardly any fault met the job")
        group.add(campaign, f"campaign_{fault_kind}_{transport}", (FABRIC,), seconds=430, long=True)
