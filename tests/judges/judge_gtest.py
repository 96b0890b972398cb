"""UCX's own unit tests of UCT and UCP over mp_rc and mp_dc, if TESTS_UCX_GTEST names their program: see gtest_source.py.

A test that is not listed in gtest-exceptions.txt must pass, or skip itself. The program runs with the libraries of the
installed UCX, not with those that it was built beside.
"""

import fnmatch
import glob
import os
import re
import subprocess

from judge import SOURCE, Failure, Group, Skip, check, preloaded

group = Group()
EXCEPTIONS = os.path.join(SOURCE, "tests", "judges", "gtest-exceptions.txt")
KINDS = ("fails", "varies", "left-out")
BATCH = 40    # tests of one program
SECONDS = 120 # one program may say nothing for so long

# Peers that close before they have been connected to are waited for; UCX's tests do that, and wait as well.
BRIEF = {"UCX_MP_RC_CONNECT_TIMEOUT": "3s", "UCX_MP_DC_CONNECT_TIMEOUT": "3s", "UCX_MP_PARTITION_TIMEOUT": "3s"}


def program():
    path = os.environ.get("TESTS_UCX_GTEST", "")
    if not path:
        raise Skip("$TESTS_UCX_GTEST names no program with UCX's unit tests (tests/judges/gtest_source.py)")
    check(os.access(path, os.X_OK), f"TESTS_UCX_GTEST={path}: no such program")
    return path


def environment(session):
    folders = [os.path.dirname(path) for path in glob.glob("/usr/lib/*/libucs.so.0")]
    check(folders, "no libucs.so.0 in /usr/lib")
    libraries = os.pathsep.join([folders[0], os.path.join(folders[0], "ucx")]) # libuct_ib once: it is linked, too
    env = preloaded("all", **BRIEF)(session)
    del env["UCX_TLS"]
    return {**env, "LD_LIBRARY_PATH": libraries, "UCX_HANDLE_ERRORS": "bt"}


def read_exceptions():
    rules = []
    with open(EXCEPTIONS, encoding="utf-8") as text:
        for number, line in enumerate(text, 1):
            words = line.split("#")[0].split(None, 2)
            if words:
                check(len(words) == 3 and words[1] in KINDS, f"gtest-exceptions.txt:{number}: TEST {'|'.join(KINDS)} REASON")
                rules.append(words)
    return rules


def kind_of(test, rules):
    bare = test.split("/", 1)[1].rsplit("/", 1)[0]
    return next((kind for pattern, kind, _ in rules if fnmatch.fnmatchcase(bare, pattern)), "passes")


def list_tests(session, pattern):
    text = session.run([program(), "--gtest_list_tests", "--gtest_filter=" + pattern], env=environment, seconds=60)
    tests, suite = [], ""
    for line in text.splitlines():
        if re.match(r"\S+\.(\s|$)", line):
            suite = line.split()[0]
        elif line.startswith("  ") and suite:
            tests.append(suite + line.split()[0])
    check(tests, f"no test is called {pattern}")
    return tests


def run_batch(session, tests):
    """{test: OK | FAILED | broken} of those that have been started; only the last one may be broken."""
    started = session.start([program(), "--gtest_filter=" + ":".join(tests)], env=environment)
    said = 0
    while started.running():
        try:
            started.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            size = os.path.getsize(started.path)
            if size == said:
                started.stop()
            said = size
    found = {}
    for word, test in re.findall(r"^\[ +(RUN|OK|FAILED) +\] ([^\s,]+)", started.output(), re.M):
        if word == "RUN" or found.get(test) == "broken":
            found[test] = "broken" if word == "RUN" else word
    return found


def judge_tests(pattern):
    def run(session):
        rules = read_exceptions()
        every = list_tests(session, pattern)
        todo = [test for test in every if kind_of(test, rules) != "left-out"]
        count, findings = len(todo), []
        while todo:
            found = run_batch(session, todo[:BATCH])
            if not found:
                raise Failure(f"nothing has run of {todo[0]} ...")
            for test, outcome in found.items():
                kind = kind_of(test, rules)
                good = {"passes": ("OK",), "fails": ("FAILED",), "varies": ("OK", "FAILED")}[kind]
                if outcome not in good:
                    findings.append(f"{test}: {outcome}, " + (f"listed as '{kind}'" if kind != "passes" else "not listed"))
            todo = [test for test in todo if test not in found]
        if findings:
            raise Failure(f"{len(findings)} of {count} tests\n  " + "\n  ".join(findings))
        print(f"{count} as expected, {len(every) - count} left out")
    return run


for transport, instance in (("mp_rc", "mprc"), ("mp_dc", "mpdc")):
    group.add(judge_tests(f"{transport}/*"), f"uct_{transport}", seconds=900, long=True)
    parts = {"tag": "*tag*", "wireup": "*wireup*", "am": "*test_ucp_am*", "rma": "*rma*:{0}/*atomic*:{0}/*fence*:{0}/*mmap*"}
    for part, names in parts.items():
        group.add(judge_tests(f"{instance}/" + names.format(instance) + "-*sockaddr*"), f"ucp_{transport}_{part}",
                  fabrics=("ideal",), seconds=1200, long=True)
    rest = ":".join(f"*{names.strip('*')}*" for names in ("tag", "wireup", "test_ucp_am", "rma", "atomic", "fence", "mmap"))
    group.add(judge_tests(f"{instance}/*-{rest}:*sockaddr*"), f"ucp_{transport}_rest", fabrics=("ideal",), seconds=600,
              long=True)
