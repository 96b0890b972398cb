"""mpi4py's own tests, of the releases that Debian packages (3.1.4 in 12, 4.0.3 in 13), and what of them goes wrong over
stock shared memory on that Debian: a baseline for each.

Record that of this system anew:  /usr/bin/python3 tests/judges/mpi4py_suite.py record [TIMES [RANKS...]]
What stock Open MPI (pml/ucx, osc/ucx) does wrong over UCX's posix shared memory it may do wrong over the adapter, too;
nothing else but what NEEDS_ORDER and NEEDS_LUCK name. A test that crashes or hangs the job there is left out; one that fails may fail,
or pass.
"""

import collections
import glob
import os
import re
import sys
import time

from judge import SOURCE, Failure, Skip

RANK = os.path.join(SOURCE, "tests", "judges", "mpi4py_rank.py")

# Each batch is a job of its own. Windows apart from the rest: stock osc/ucx is where jobs crash. JOBS start processes of
# other jobs, or meet them, and hang over stock shared memory: they are run only where that is asked for. Not run: with 8
# ranks on 2 cores test_rma and test_rma_nb, whose busy-waiting locks take minutes over stock shared memory, too.
JOBS = {"test_dynproc": 4, "test_spawn": 40}  # and their tests
WINDOWS = ("test_rma", "test_rma_nb", "test_win")
# A batch for whoever has collective operations of its own.
COLLECTIVES = ["test_cco_buf", "test_cco_nb_buf", "test_cco_nb_vec", "test_cco_obj", "test_cco_vec", "test_comm", "test_op",
               "test_request", "test_threads"]

# May fail where reads take their time. MPI_Get_accumulate with MPI_REPLACE is a get and then a put in stock osc/ucx, with
# nothing between them: InfiniBand lets a write overtake the read before it unless it has the fence bit (IB specification,
# 10.8.3.3), so the old value may be the new one. In shared memory a get is over when it returns.
NEEDS_ORDER = {"test_rma.TestRMASelf.testGetAccumulate", "test_rma.TestRMAWorld.testGetAccumulate",
               "test_rma_nb.TestRMASelf.testGetAccumulate", "test_rma_nb.TestRMAWorld.testGetAccumulate"}
# May fail where messages to oneself take their time. The test receives a synchronous send of its own rank and then looks once
# whether the send is complete. An adapter may bring its acknowledgement later: stock rc_verbs fails once in 200, mp_rc once
# in 3000.
NEEDS_LUCK = {"test_p2p_obj.TestP2PObjSelf.testCancel", "test_p2p_obj.TestP2PObjWorld.testCancel",
              "test_p2p_obj.TestP2PObjSelfDup.testCancel", "test_p2p_obj.TestP2PObjWorldDup.testCancel"}


def installed():
    """The first number of mpi4py's version."""
    import mpi4py # its tests of another one are no tests of this
    return int(mpi4py.__version__.split(".")[0])


def baseline(release):
    return os.path.join(SOURCE, "tests", "judges", f"mpi4py-{release}-baseline.txt")


def folder():
    """The folder `test` of the source of the mpi4py that is installed. The tests of mpi4py 4 begin in main.py."""
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ucx-mp", "src", "mpi4py")
    other = None
    for place in [os.environ.get("TESTS_MPI4PY", ""), *sorted(glob.glob(cache + "/mpi4py-*/test"))]:
        if place and os.path.exists(os.path.join(place, "runtests.py")):
            if (4 if os.path.exists(os.path.join(place, "main.py")) else 3) == installed():
                return place
            other = place
    if other:
        raise Skip(f"{other} has the tests of another release of mpi4py than {installed()}, which is installed")
    raise Skip(f"no source of mpi4py {installed()}: neither `apt-get source mpi4py` (cmake/install-deps) nor "
               "$TESTS_MPI4PY provides its tests")


def batches(tests, ranks, jobs=False):
    modules = sorted(os.path.basename(path)[:-3] for path in glob.glob(tests + "/test_*.py"))
    rest = [name for name in modules if name not in JOBS and name not in WINDOWS]
    half = len(rest) // 2
    apart = (WINDOWS if ranks < 8 else WINDOWS[2:]) + (tuple(JOBS) if jobs else ())
    return [[name] for name in apart] + [rest[:half], rest[half:]]


def read_baseline():
    """{(ranks, test): outcome} of all that is not ok, and {(ranks, first module of the batch): number of tests}."""
    outcomes, counts = {}, {}
    path = baseline(installed())
    if not os.path.exists(path):
        return outcomes, counts
    with open(path, encoding="ascii") as text:
        for line in text:
            words = line.split("#")[0].split()
            if words and words[0] == "count":
                counts[int(words[1]), words[2]] = int(words[3])
            elif words:
                outcomes.update(((int(ranks), words[1]), words[2]) for ranks in words[0].split(","))
    return outcomes, counts


def limit(ranks, modules):
    """Seconds that a batch may take. Half a minute for a few ranks; eight on two cores took 120 for the longest. JOBS may be
    started several times."""
    return 60 if modules[0] in JOBS else 120 if ranks < 8 else 300


# `fate`: None if the job came to its end, else a word on how it did not.
Result = collections.namedtuple("Result", "planned outcomes broken fate")


STARTS = 4  # of a job of which a process never comes out of the runtime


def waits_for_its_runtime(program):
    """Open MPI 4.1 with PMIx 4 (openpmix issue 2735): now and then a spawned process waits for ever in PMIx_Init(), and its parents
    in PMIx_Lookup(). It has loaded no component for messages by then, neither stock ones nor ours."""
    for maps in glob.glob("/proc/[0-9]*/maps"):
        pid = int(maps.split("/")[2])
        try:
            if os.getsid(pid) != program.process.pid:
                continue
            with open(f"/proc/{pid}/cmdline", "rb") as words, open(maps, encoding="utf-8") as files:
                argv = words.read().split(b"\0")
                child = b"python" in argv[0] and RANK.encode() not in argv
                if child and "/mca_pml_" not in files.read():
                    return True
        except OSError:
            continue # it has ended
    return False


def run_batch(start, ranks, tests, modules, work, excluded, seconds, given_up):
    """Runs a job, and again if its runtime hangs: such a Program is appended to `given_up`. start(argv) starts it and returns a
    Program. Outcomes are the worst over all ranks."""
    for left in reversed(range(STARTS)):
        result, hung = run_job(start, ranks, tests, modules, work, excluded, seconds)
        if not hung or not left:
            return result
        given_up.append(hung)
        print(f"{modules[0]}: a spawned process has not come out of PMIx_Init() in {seconds} s: once more", flush=True)


def run_job(start, ranks, tests, modules, work, excluded, seconds):
    """A Result, and the Program if it waits_for_its_runtime(), else None."""
    results = os.path.join(work, f"results-{ranks}-{modules[0]}")
    for old in glob.glob(results + "*"):
        os.remove(old)
    with open(results + "-excluded", "w", encoding="ascii") as out:
        out.write("\n".join(sorted(excluded)))
    program = start(ranks, ["/usr/bin/python3", RANK, tests, results, results + "-excluded", *modules])
    hung = fate = None
    try:
        program.wait(seconds, code=None)
        code = program.process.returncode
        fate = None if code == 0 else f"ended with exit code {code} after {time.monotonic() - program.started:.0f} s"
    except Failure:
        fate = f"hung: still running after {seconds} s"
        hung = program if modules[0] in JOBS and waits_for_its_runtime(program) else None
        program.stop()
    order = ("ok", "skipped", "FAIL", "ERROR")
    outcomes, broken, planned, complete = {}, set(), 0, 0
    for rank in range(ranks):
        try:
            with open(f"{results}.{rank}", encoding="ascii") as text:
                lines = [line.split() for line in text if len(line.split()) == 2]
        except OSError:
            continue
        current = None
        for event, test in lines:
            if event == "tests":
                planned = max(planned, int(test))
            elif event == "done":
                complete += 1
            elif event == "start":
                current = test
            elif event == "end":
                current = None
            elif order.index(event) >= order.index(outcomes.get(test, "ok")):
                outcomes[test] = event
        if current:
            broken.add(current)
    if not fate and complete < ranks:
        fate = "ended, but not all ranks came to the end of their tests"
    return Result(planned, outcomes, broken, fate), hung


def judge(start, ranks, work, ordered, own_windows=False, jobs=False, collectives=False):
    """Raises Failure if anything is worse than in the baseline. `ordered`: reads are executed at once. `own_windows`: not
    stock osc/ucx's, so what the baseline and NEEDS_ORDER forgive windows does not count. `jobs`: run JOBS, too.
    `collectives`: nothing but COLLECTIVES."""
    tests = folder()
    outcomes, counts = read_baseline()
    parts = [COLLECTIVES] if collectives else batches(tests, ranks, jobs)
    unknown = [modules[0] for modules in parts if modules[0] not in JOBS and (ranks, modules[0]) not in counts]
    if unknown:
        raise Skip(f"what stock Open MPI does wrong in {', '.join(unknown)}... of mpi4py {installed()} with {ranks} ranks is not recorded")
    if own_windows:
        ordered = True
        outcomes = {(n, test): outcome for (n, test), outcome in outcomes.items()
                    if outcome == "skipped" or test.split(".")[0] not in WINDOWS}
    worse, given_up = [], []
    for modules in parts:
        excluded = {test for (n, test), outcome in outcomes.items() if n == ranks and outcome == "breaks"}
        result = run_batch(start, ranks, tests, modules, work, excluded, limit(ranks, modules), given_up)
        wanted = counts.get((ranks, modules[0]), JOBS.get(modules[0], 0))
        if result.planned < wanted:
            worse.append(f"{modules[0]}...: {result.planned} tests instead of {wanted}")
        unlucky = all(result.outcomes.get(test) == "FAIL" for test in NEEDS_LUCK) # then it is no luck
        for test, outcome in sorted(result.outcomes.items()):
            if test in NEEDS_ORDER and not ordered and outcome == "FAIL": # a wrong value; an error would be ours
                continue
            if test in NEEDS_LUCK and outcome == "FAIL" and not unlucky:
                continue
            if outcome != "ok" and outcome != outcomes.get((ranks, test), "ok"):
                worse.append(f"{outcome} {test}")
        if result.fate:
            where = ", ".join(sorted(result.broken)) or "at the start or the end"
            worse.append(f"the job of {modules[0]}... {result.fate}, in {where}")
        elif len(result.outcomes) < result.planned:
            worse.append(f"{modules[0]}...: only {len(result.outcomes)} of {result.planned} tests have an outcome")
    if worse:
        raise Failure(f"worse than the baseline with {ranks} ranks: {len(worse)} findings\n  " + "\n  ".join(worse))
    return given_up


def record_batch(run, ranks, found, times):
    """Adds what goes wrong to `found`; the number of tests. What breaks the job is left out from then on, and it is run again."""
    planned = 0
    for _ in range(times):
        broken = True
        while broken:
            result = run({test for (n, test), outcome in found.items() if n == ranks and outcome == "breaks"})
            planned, broken = result.planned, result.fate and result.broken
            for test, outcome in result.outcomes.items():
                if outcome != "ok" and found.get((ranks, test)) != "breaks":
                    found[ranks, test] = outcome
            if result.fate:
                print(f"{ranks} ranks: {result.fate}, in {result.broken}", flush=True)
                found.update({(ranks, test): "breaks" for test in result.broken})
    return planned


def record(times, numbers):
    """Writes the baseline for some numbers of ranks: the union of what goes wrong in some runs over stock shared memory."""
    import tempfile

    import judge as library
    from judge_mpi import mpirun
    tests = folder()
    found, counts = ({key: value for key, value in kept.items() if key[0] not in numbers} for kept in read_baseline())
    with tempfile.TemporaryDirectory() as work:
        session = library.Session(None, "ideal", work)

        def start(ranks, argv):
            return session.start(mpirun(ranks, *argv), env={"UCX_TLS": "posix,cma,self", "UCX_LOG_LEVEL": "fatal"})

        for ranks in numbers:
            for modules in batches(tests, ranks) + ([COLLECTIVES] if ranks == 2 else []):
                began = time.monotonic()
                counts[ranks, modules[0]] = record_batch(
                    lambda excluded, n=ranks, m=modules: run_batch(start, n, tests, m, work, excluded, 5 * limit(n, m), []),
                    ranks, found, times)
                print(f"{ranks} ranks, {modules[0]}: {counts[ranks, modules[0]]} tests, {time.monotonic() - began:.0f} s", flush=True)
        session.close()
    write_baseline(found, counts)


def write_baseline(found, counts):
    """Why a test goes wrong is written behind its line by hand, and stays."""
    path = baseline(installed())
    reasons, ranks = {}, collections.defaultdict(list)
    if os.path.exists(path):
        with open(path, encoding="ascii") as text:
            reasons = {line.split()[1]: line[line.index("#"):].rstrip() for line in text if re.match(r"\d.*#", line)}
    for number, test in sorted(found):
        ranks[test, found[number, test]].append(str(number))
    with open(path, "w", encoding="ascii") as out:
        out.write("# mpi4py's tests over stock Open MPI (pml/ucx, osc/ucx) on UCX posix shared memory: what is not ok.\n"
                  "# RANKS TEST OUTCOME; breaks = crashes or hangs the job, left out. count RANKS MODULE TESTS = run.\n"
                  "# Recorded by tests/judges/mpi4py_suite.py record.\n")
        out.writelines(f"count {number} {module} {tests}\n" for (number, module), tests in sorted(counts.items()))
        for (test, outcome), numbers in sorted(ranks.items()):
            out.write(" ".join([",".join(numbers), test, outcome, *filter(None, [reasons.get(test)])]) + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] != "record":
        sys.exit(__doc__)
    record(int(sys.argv[2]) if len(sys.argv) > 2 else 1, [int(word) for word in sys.argv[3:]] or [2, 4, 8])
