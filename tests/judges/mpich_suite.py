"""MPICH's own tests of MPI (folder test/mpi of its source, 3.4 to 4.0), compiled here with Open MPI's mpicc.

The suite's lists say ranks and arguments of each test, its Makefile.am what a test is made of; its configure is not
needed. Tests of what Open MPI does not have (MPI-4, functions that MPI-3.0 removed, MPIX_) do not compile and are left
out. So are those that mpich-excepted.txt names, with the reason.
"""

import collections
import os
import re
import shlex
import subprocess

from judge import SOURCE, Failure, Skip

EXCEPTED = os.path.join(SOURCE, "tests", "judges", "mpich-excepted.txt")

# What the suite's configure would find out here.
HAVE = ("STRING_H", "STRINGS_H", "UNISTD_H", "STDLIB_H", "STDINT_H", "STDARG_H", "SYS_TIME_H", "SYS_RESOURCE_H",
        "GETRUSAGE", "STRDUP", "USLEEP", "PTHREAD_H", "PTHREAD_BARRIER_INIT", "LONG_DOUBLE", "LONG_LONG", "LONG_LONG_INT",
        "_BOOL", "FLOAT__COMPLEX", "DOUBLE__COMPLEX", "LONG_DOUBLE__COMPLEX", "MPI_SPAWN", "MPI_WIN_CREATE", "MPI_IO",
        "H_ADDR_LIST")
MORE = {"THREAD_PACKAGE_NAME": "THREAD_PACKAGE_POSIX", "USE_LONG_DOUBLE_COMPLEX": "1", "POINTERINT_t": "long",
        "SIZEOF_VOID_P": "8", "SIZEOF_INT": "4", "SIZEOF_LONG": "8", "SIZEOF_LONG_LONG": "8", "SIZEOF_SHORT": "2",
        "USE_STRICT_MPI": "1"}
HELPERS = ("util/mtest.c", "util/mtest_common.c", "util/dtypes.c", "dtpools/src/dtpools.c", "dtpools/src/dtpools_misc.c",
           "dtpools/src/dtpools_init_verify.c", "dtpools/src/dtpools_desc.c", "dtpools/src/dtpools_attr.c",
           "dtpools/src/dtpools_custom.c")
STARTS = ("util/mtest_single.c", "util/mtest_thread.c")  # one of them, by the folder
OLD = ("-DOMPI_OMIT_MPI1_COMPAT_DECLS=0", "-DOMPI_REMOVED_USE_STATIC_ASSERT=0")  # the helpers name MPI-1's functions
MOST_GIBIBYTES = 1.5

Test = collections.namedtuple("Test", "folder name ranks arguments result")


class NotThere(Exception):
    """A test does not compile: why."""


def folder():
    """The folder test/mpi of MPICH's source."""
    place = os.environ.get("TESTS_MPICH", "")
    if not os.path.exists(os.path.join(place, "util", "mtest.c")):
        raise Skip("no source of MPICH: $TESTS_MPICH names no folder test/mpi of it")
    return place


def excepted():
    """{folder/test: reason}"""
    with open(EXCEPTED, encoding="ascii") as text:
        rows = [line.split("#")[0].split(None, 1) for line in text]
    return {row[0]: row[1].strip() for row in rows if row}


class Suite:
    def __init__(self, source, work):
        self.source = source
        self.work = work
        self.include = os.path.join(work, "include")
        os.makedirs(os.path.join(work, "objects"))
        os.makedirs(self.include)
        lines = [f"#define HAVE_{name} 1\n" for name in HAVE] + [f"#define {name} {value}\n" for name, value in MORE.items()]
        for name, text in (("include/mpitestconf.h", "".join(lines)), ("include/mtest_mpix.h", ""), ("dtpoolsconf.h", "")):
            with open(os.path.join(work, name), "w", encoding="ascii") as out:
                out.write(text)
        self.objects = {}
        for name in HELPERS + STARTS:
            target = os.path.join(work, "objects", os.path.basename(name)[:-2] + ".o")
            self.compile(["-c", os.path.join(source, name), "-o", target])
            self.objects[name] = target

    def compile(self, argv):
        include = [f"-I{path}" for path in (self.include, os.path.join(self.source, "include"),
                                            os.path.join(self.source, "dtpools", "include"))]
        done = subprocess.run(["mpicc.openmpi", "-g", "-O1", "-w", *OLD, *include, *argv], text=True, capture_output=True)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if "error" in line or "undefined" in line]
            raise NotThere((said or [done.stderr])[0])

    def read(self, *path):
        try:
            with open(os.path.join(self.source, *path), encoding="utf-8") as text:
                return text.read()
        except FileNotFoundError:
            return ""

    def tests(self, place):
        """Of a folder. What sets variables of MPICH's own would be the same test twice."""
        found = []
        for line in (self.read(place, "testlist") + self.read(place, "testlist.in")).splitlines():
            words = re.sub(r"@\w+@", lambda word: "#" if word[0] == "@largetest@" else "", line).split("#")[0].split()
            if len(words) < 2 or not words[1].isdigit() or "env=MPIR_" in line:
                continue
            values = collections.defaultdict(list)
            for word in words[2:]:
                key, _, value = word.partition("=")
                values[key].append(value)
            if float((values["mem"] or ["0"])[0]) <= MOST_GIBIBYTES:
                found.append(Test(place, words[0], int(words[1]), tuple(values["arg"]), (values["resultTest"] or [""])[0]))
        return found

    def program(self, test):
        """Its path."""
        target = os.path.join(self.work, "bin", test.folder, test.name)
        if os.path.exists(target):
            return target
        os.makedirs(os.path.dirname(target), exist_ok=True)
        makefile = self.read(test.folder, "Makefile.am").replace("\\\n", " ")
        variables = dict(re.findall(r"^(\w+)\s*=\s*(.*)$", makefile, re.M))
        threads = "Makefile_threads" in makefile
        here = os.path.join(self.source, test.folder)
        sources = [word for word in variables.get(f"{test.name}_SOURCES", f"{test.name}.c").split() if word.endswith(".c")]
        flags = [word for word in shlex.split(variables.get(f"{test.name}_CPPFLAGS", "")) if word.startswith("-")]
        self.compile([*flags, *(["-DMTEST_USE_THREAD"] if threads else []), f"-I{here}", "-o", target,
                      *(os.path.join(here, source) for source in sources), *(self.objects[name] for name in HELPERS),
                      self.objects[STARTS[threads]], "-lm", "-lpthread"])
        return target


def passed(test, code, text):
    if test.result in ("TestStatus", "TestErrFatal"):
        return code != 0
    return code == 0 and re.search(r"^\s*No [Ee]rrors\s*$", text, re.M) is not None


def judge(session, start, place, seconds, most_ranks):
    """Runs a folder's tests; start(ranks, argv) starts a job of the session and returns a Program. Returns all output."""
    suite = Suite(folder(), os.path.join(session.folder, "mpich"))
    reasons, text, failed, ran = excepted(), "", [], 0
    for test in suite.tests(place):
        name = f"{place}/{test.name}"
        if name in reasons or test.ranks > most_ranks:
            continue
        try:
            program = suite.program(test)
        except NotThere:
            continue
        job = start(test.ranks, [program, *test.arguments])
        try:
            said = job.wait(seconds, code=None)
            good = passed(test, job.process.returncode, said)
        except Failure:
            job.stop()
            said, good = job.output(), False
        ran += 1
        text += said
        if not good or re.search(r"UCX +(?:WARN|ERROR|FATAL) ", said):
            failed.append(" ".join([name, str(test.ranks), *test.arguments]))
        else:
            session.programs.remove(job)  # its output is not to be shown with a failure
    if failed:
        raise Failure(f"{len(failed)} of {ran} tests failed:\n  " + "\n  ".join(failed))
    if ran < 3:
        raise Failure(f"only {ran} tests of {place} were run")
    return text
