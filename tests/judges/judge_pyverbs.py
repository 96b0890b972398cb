"""rdma-core's pyverbs tests (as packed in Debian's python3-pyverbs), against the checked list pyverbs-skips.txt.

One case per test module. A test that is not listed must pass; a listed one must do what the list says.
"""

import fnmatch
import gzip
import os
import re
import shutil

from judge import SOURCE, Failure, Group, Skip, check

group = Group()
SKIPS = os.path.join(SOURCE, "tests", "judges", "pyverbs-skips.txt")
KINDS = ("skips", "varies", "fails", "left-out")

# Modules for which the list leaves nothing to run are no case (their tests are in the list, one line per module).
MODULES = ("addr", "atomic", "cq", "cq_events", "cqex", "device", "fork", "mlx5_cq", "mlx5_dc", "mlx5_raw_wqe", "mlx5_timestamp", "mr",
           "odp", "parent_domain", "pd", "qp", "qpex", "relaxed_ordering", "shared_pd", "srq", "tag_matching",
           "flow", "rss_traffic", "efa_srd", "efadv")


def packed_folder():
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ucx-mp", "src")
    for place in ("/usr/share/doc/rdma-core/tests", os.path.join(cache, "rdma-core-tests")):
        if os.path.exists(os.path.join(place, "run_tests.py")):
            return place
    raise Skip("the package python3-pyverbs brought no tests (cmake/install-deps)")


def unpack(target):
    os.makedirs(target)
    source = packed_folder()
    for name in os.listdir(source):
        path = os.path.join(source, name)
        if name.endswith(".py.gz"):
            with gzip.open(path) as packed, open(os.path.join(target, name[:-3]), "wb") as out:
                shutil.copyfileobj(packed, out)
        elif name.endswith(".py"):
            shutil.copy(path, target)


def without_netdev(session):
    """The suite asks `rdma` which network interface a port has. That program asks the kernel, which knows nothing of emulated
    adapters (and may not know of any). Here it answers as for InfiniBand ports without IPoIB: none has one."""
    folder = os.path.join(session.folder, "bin")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "rdma"), "w", encoding="ascii") as script:
        script.write("#!/bin/sh\n[ \"$*\" = 'link show -j' ] && echo '[]'\n")
    os.chmod(script.name, 0o755)
    return {"PATH": f"{folder}:{os.environ.get('PATH', os.defpath)}"}


def read_skips():
    """[(pattern, kind, reason, whether every release has it)]; a malformed line is a failure."""
    rules = []
    with open(SKIPS, encoding="utf-8") as text:
        for number, line in enumerate(text, 1):
            words = line.split("#")[0].split(None, 2)
            if not words:
                continue
            check(len(words) == 3 and words[1] in KINDS,
                  f"pyverbs-skips.txt:{number}: TEST {'|'.join(KINDS)} REASON expected")
            rules.append((words[0].lstrip("+"), *words[1:], not words[0].startswith("+")))
    return rules


def rule_for(test, rules):
    """The first rule that matches: exact lines may stand before the pattern that they are exceptions of."""
    return next((rule for rule in rules if fnmatch.fnmatchcase(test, rule[0])), None)


def outcomes(text):
    """{test: ok | skipped | failed | broken} from the output of unittest -v."""
    found = {}
    heads = list(re.finditer(r"^(\w+) \((tests\.[\w.]+)\)", text.split("\n======")[0], re.M))
    for index, head in enumerate(heads):
        end = heads[index + 1].start() if index + 1 < len(heads) else len(text)
        body = text[head.end():end].split("\n======")[0]
        verdicts = re.findall(r"(?:\.\.\. |^)(ok|skipped|FAIL|ERROR)\b", body, re.M)
        test = head[2] if head[2].endswith("." + head[1]) else f"{head[2]}.{head[1]}"
        names = {"ok": "ok", "skipped": "skipped", "FAIL": "failed", "ERROR": "failed"}
        found[test] = names[verdicts[-1]] if verdicts else "broken"
    return found


def judge_module(module):
    def run(session):
        rules = read_skips()
        folder = os.path.join(session.folder, "tests")
        unpack(folder)
        argv = ["/usr/bin/python3", "-B", os.path.join(folder, "run_tests.py"), "--dev", "softhca_0"]
        # Which tests there are is asked of the suite itself, so that a crash cannot hide some.
        listing = session.run([*argv, "--list-tests"], seconds=30, code=None)
        every = [line for line in listing.split() if line.startswith(f"tests.test_{module}.")]
        if not every and not os.path.exists(os.path.join(folder, f"test_{module}.py")):
            raise Skip(f"this release of rdma-core has no test_{module}")
        check(every, f"the suite lists no test of test_{module}")
        wanted = [test for test in every if (rule_for(test, rules) or ("", "", ""))[1] != "left-out"]
        if not wanted:
            raise Skip(f"every test of test_{module} is listed as left out")
        text = session.run([*argv, "-v", *wanted], env=without_netdev, seconds=100, code=None)
        got = outcomes(text)
        findings = []
        for test in wanted:
            outcome = got.get(test, "not run")
            rule = rule_for(test, rules)
            expected = {"skips": ("skipped",), "varies": ("ok", "skipped"), "fails": ("failed",)}[rule[1]] if rule else ("ok",)
            if outcome not in expected:
                listed = f"listed as '{rule[1]}'" if rule else "not listed in pyverbs-skips.txt"
                findings.append(f"{test}: {outcome}, {listed}")
        if findings:
            raise Failure(f"{len(findings)} of {len(wanted)} tests\n  " + "\n  ".join(findings))
        passed = sum(got[test] == "ok" for test in wanted)
        print(f"{passed} passed, {len(wanted) - passed} as listed, {len(every) - len(wanted)} left out")
    return run


for module_name in MODULES:
    group.add(judge_module(module_name), module_name, seconds=120, alone=False)


@group.case(fabrics=("ideal",), seconds=60, alone=False)
def list_is_complete(session):
    """Every test of the suite is in a module that is run, or listed; every line of the list matches some test."""
    rules = read_skips()
    folder = os.path.join(session.folder, "tests")
    unpack(folder)
    listing = session.run(["/usr/bin/python3", "-B", os.path.join(folder, "run_tests.py"), "--list-tests"], code=None)
    every = [line for line in listing.split() if line.startswith("tests.test_")]
    check(len(every) > 200, f"the suite lists {len(every)} tests only")
    run = tuple(f"tests.test_{name}." for name in MODULES)
    lost = [test for test in every if not test.startswith(run) and not rule_for(test, rules)]
    check(not lost, "neither run nor listed: " + ", ".join(lost))
    idle = [rule[0] for rule in rules if rule[3] and not any(fnmatch.fnmatchcase(test, rule[0]) for test in every)]
    check(not idle, "lines that match no test: " + ", ".join(idle))
