#!/usr/bin/python3
"""One MPI rank of mpi4py's own test suite, started by mpirun: mpi4py_rank.py TESTS RESULTS EXCLUDED MODULE...

Runs the unchanged test modules of the folder TESTS through their own program: main.py of mpi4py 4, runtests.py of mpi4py 3.
Writes one line per event to RESULTS.<rank>: "start ID" before a test and "<outcome> ID" after it, so that a crash tells where
it happened. Tests listed in the file EXCLUDED (one ID per line) are left out on all ranks.
"""

import os
import sys
import unittest

tests, results, excluded, *modules = sys.argv[1:]
sys.dont_write_bytecode = True
sys.path.insert(0, tests)


class Log(unittest.TextTestResult):
    out = None

    def note(self, outcome, test):
        print(outcome, test.id(), file=Log.out, flush=True)

    def startTest(self, test):
        self.bad = False
        self.note("start", test)
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        self.note("end", test)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note("ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note("skipped", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note("FAIL", test)

    def addError(self, test, err):
        super().addError(test, err)
        self.note("ERROR", test)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note("FAIL", test)


def each(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test


class Runner:
    """Says that all is well when all have run: the outcomes are in the file."""

    def run(self, suite):
        from mpi4py import MPI
        with open(excluded, encoding="ascii") as text:
            left_out = set(text.read().split())
        with open(f"{results}.{MPI.COMM_WORLD.Get_rank()}", "w", encoding="ascii") as Log.out:
            chosen = unittest.TestSuite(test for test in each(suite) if test.id() not in left_out)
            print("tests", chosen.countTestCases(), file=Log.out, flush=True)
            result = unittest.TextTestRunner(resultclass=Log, verbosity=2).run(chosen)
            print("done", 0, file=Log.out, flush=True)
        result.wasSuccessful = lambda: True
        return result


def run_tests(_options, suite, runner=None):
    return Runner().run(suite).wasSuccessful()


options = ["--no-builddir", "-i", "^(" + "|".join(modules) + r")(\.py)?$"]
if os.path.exists(os.path.join(tests, "main.py")):
    import main
    main.main(module=None, argv=["main.py", *options], testRunner=Runner())
else:
    import runtests
    runtests.run_tests = run_tests
    sys.exit(runtests.main(options))
