"""Programs of users over the transport: LAMMPS, and the testers that BLACS and ScaLAPACK bring, which check themselves.

Three ways lead there: Open MPI's stock pml/ucx, our pml/mp, and MPICH, which comes through UCP as well. A run of LAMMPS is
right if every digit that it prints is that of the same run over shared memory, by Open MPI's own pml/ob1.
"""

import functools
import glob
import os
import re
import shutil
import tempfile
import time

import judge_faults
from judge import SOURCE, Group, Program, Skip, check, clean_environment
from judge_mpi import mpirun
from judge_pml import carried, launch
from judge_pml import logging as logging_pml

group = Group()

RANKS = 4


def mpich(ranks, *argv):
    return [os.path.join(SOURCE, "config", "mpich", "mpiexec-mp"), "-n", str(ranks), *argv]


def logging_mpich(tls):
    def env(session):
        env = judge_faults.logging(tls)(session)
        return {**env, "LD_PRELOAD": "", "UCT_MP_LIBRARY": env["LD_PRELOAD"]}
    return env


def silent(_session, _ranks, _text):
    """Nothing else carries messages there: UCX_TLS says so."""


# Name: environment for a transport, command line, what else is checked.
WAYS = {
    "ucx": (judge_faults.logging, mpirun, lambda _transport: silent),
    "pml": (logging_pml, launch, carried),
    "mpich": (logging_mpich, mpich, lambda _transport: silent),
}


# LAMMPS

MELT = """\
units lj
processors 2 2 1
atom_style atomic
lattice fcc 0.8
region all block 0 9 0 9 0 9
create_box 1 all
create_atoms 1 box
mass 1 1.0
velocity all create 2.5 40961
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0
neigh_modify every 5 delay 0 check yes
fix 1 all nve
compute far all msd
thermo_style custom step temp pe ke press c_far[4]
thermo_modify format float %.17g
thermo 25
run {steps}
"""
STEPS = 600


def thermo(text):
    """What LAMMPS prints of the physics, line by line, with all digits."""
    return re.findall(r"^ *\d+(?: +-?[\d.]+(?:e[-+]\d+)?){5} *$", text, re.M)


@functools.cache
def reference():
    if not shutil.which("lmp"):
        raise Skip("no LAMMPS (cmake/install-deps)")
    with tempfile.TemporaryDirectory() as folder:
        write(os.path.join(folder, "in.melt"), MELT.format(steps=STEPS))
        argv = mpirun(RANKS, "lmp", "-in", "in.melt", "-log", "none", mca={"pml": "ob1", "btl": "self,vader"})
        job = Program(argv, folder, clean_environment())
        try:
            text = job.wait(60)
        finally:
            job.stop()
    found = thermo(text)
    check(len(found) == STEPS // 25 + 1, f"the reference has {len(found)} lines")
    return found


def write(path, text):
    with open(path, "w", encoding="ascii") as out:
        out.write(text)


def lammps(way, transport):
    env, command, also = WAYS[way]

    def run(session):
        wanted = reference()
        write(os.path.join(session.folder, "in.melt"), MELT.format(steps=STEPS))
        text = session.run(command(RANKS, "lmp", "-in", "in.melt", "-log", "none"), env=env(transport),
                           seconds=60)
        found = thermo(text)
        check(len(found) == STEPS // 25 + 1, f"{len(found)} lines of {STEPS // 25 + 1}")
        for ours, right in zip(found, wanted):
            check(ours.split() == right.split(), f"it is\n{ours}\nand should be\n{right}")
        also(transport)(session, RANKS, text)
    return run


def under_faults(job, gap):
    def run(session):
        reference()
        judge_faults.harass(session, session.places[:RANKS], "loud", 120, gap)
        began = time.monotonic()
        while time.monotonic() - began < 120:  # a quick job may be over before faults meet it: the script goes on
            if judge_faults.judged(session, job)["down"] >= 4:
                return
        check(False, "fewer than 4 paths have failed: nothing has been tested")
    return run


# MPICH says nothing while it is at work that a count could be made of: it has its faults in tests/mpi.
for way, transport in (("ucx", "mp_rc"), ("ucx", "mp_dc"), ("pml", "mp_rc"), ("pml", "mp_dc")):
    group.add(under_faults(lammps(way, transport), 0.1), f"lammps_{way}_{transport}", ("four-path",), seconds=250,
              long=(way == "ucx") == (transport == "mp_dc"))


# BLACS: messages between all pairs, in all topologies, of all shapes, with a guard zone around each matrix. Its last test
# aborts the job.

BLACS = """\
'What passes is counted, what fails is shown'
6     device: standard output
'none'
'T'   point to point
'T'   broadcasts
'T'   reductions
'T'   the rest
{count}
{types}
0     verbosity
"""


def tester(kind, *path):
    found = glob.glob(os.path.join("/usr/lib", "*", "scalapack", f"{kind}-tests", *path))
    if not found:
        raise Skip(f"no tests of ScaLAPACK for {kind} (cmake/install-deps)")
    return found[0]


def inputs(session, *names):
    for name in names:
        with open(os.path.join("/usr/share/scalapack", name), encoding="ascii") as text:
            write(os.path.join(session.folder, os.path.basename(name)), text.read())


def blacs(way, transport, program, types):
    env, command, _ = WAYS[way]

    def run(session):
        inputs(session, *(f"BLACS/{name}.dat" for name in ("sdrv", "bsbr", "comb")))
        write(os.path.join(session.folder, "bt.dat"),
              BLACS.format(count=len(types), types=" ".join(f"'{letter}'" for letter in types)))
        argv = command(RANKS, tester("mpich" if way == "mpich" else "openmpi", program))
        # The job is killed at the end: nothing may be in a buffer still.
        job = session.start(argv, env=lambda session: {**env(transport)(session), "GFORTRAN_UNBUFFERED_ALL": "1"})
        text = job.wait(100, code=None)
        verdicts = re.findall(r"TESTS: *(\d+) TESTS; *(\d+) PASSED, *(\d+) SKIPPED, *(\d+) FAILED", text)
        # Of messages, broadcasts, sums, largest and smallest values.
        check(len(verdicts) == 5 * len(types), f"{len(verdicts)} verdicts of {5 * len(types)}")
        for tests, passed, skipped, failed in verdicts:
            check(int(failed) == 0 and int(passed) > 0, f"{failed} of {tests} tests failed, {passed} passed")
            check(int(passed) + int(skipped) == int(tests), f"of {tests} tests {passed} passed and {skipped} were skipped")
        check("FAILED" not in re.sub(r"\b0 FAILED", "", text), "an auxiliary test failed")
        check("PASSED  LOCALLY-BLOCKING NON-CONTIGUOUS SEND TEST" in text, "sends wait for their receives")
        check("The final auxiliary test is for BLACS_ABORT" in text and job.process.returncode != 0, "the job was not aborted")
    return run


group.add(blacs("ucx", "mp_dc", "xFbtest", "IZ"), "blacs_ucx_mp_dc", ("four-path",), seconds=120)
group.add(blacs("pml", "mp_rc", "xCbtest", "IC"), "blacs_pml_mp_rc", ("four-path",), seconds=120)
group.add(blacs("mpich", "mp_rc", "xCbtest", "I"), "blacs_mpich_mp_rc", ("modelled",), seconds=120, long=True)


# ScaLAPACK: factorizations and eigenvalues over grids of processes, by their residuals.

def scalapack(way, transport, program, data):
    env, command, also = WAYS[way]

    def run(session):
        inputs(session, data)
        argv = command(RANKS, tester("mpich" if way == "mpich" else "openmpi", program))
        text = session.run(argv, env=env(transport), seconds=90)
        verdict = re.search(r"(\d+) tests completed and passed residual checks\.(?s:.*?)"
                            r"(\d+) tests completed and failed(?: residual checks)?\.", text)
        check(verdict and int(verdict[1]) > 100 and verdict[2] == "0",
              f"{verdict[1]} passed, {verdict[2]} failed" if verdict else "no verdict")
        also(transport)(session, RANKS, text)
    return run


for way, transport, program, data in (("ucx", "mp_rc", "xdlu", "LU.dat"), ("pml", "mp_dc", "xdlu", "LU.dat"),
                                      ("pml", "mp_rc", "xzls", "LS.dat"), ("mpich", "mp_dc", "xdqr", "QR.dat")):
    group.add(scalapack(way, transport, program, data), f"scalapack_{program[1:]}_{way}_{transport}", ("four-path",),
              seconds=120, long=program == "xzls")
