#!/usr/bin/python3
"""Windows of a stock job, as mpirun-mp starts it: stock_windows.py BUILD SOURCE RANKS TRANSPORT

MPI_Win_allocate_shared has to work (osc/sm). What is put to a window of MPI_Win_allocate goes over the adapter, where each rank
is a node; who wants it otherwise (here: by another priority) gets it, and then osc/sm has it. And what mpirun-mp gives mpirun.
"""
import csv
import os
import subprocess
import sys
import tempfile

BYTES = 4_000_000
SAID = "windows (--mca osc_ucx_priority 110)"
BUILD, SOURCE = (os.path.abspath(path) for path in sys.argv[1:3])
RANKS, TRANSPORT = int(sys.argv[3]), sys.argv[4]
MPIRUN = f"{SOURCE}/config/openmpi/mpirun-mp"
ENV = {**os.environ, "UCX_TLS": TRANSPORT, "UCX_LOG_LEVEL": "warn", "UCT_MP_LIBRARY": f"{BUILD}/lib/libuct_mp.so",
       "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(folder, *options):
    """Bytes that the adapters have sent, and what was said."""
    links = os.path.join(folder, "links.csv")
    job = subprocess.run([f"{BUILD}/bin/softhca", "run", "--fabric", f"{SOURCE}/config/fabrics/two-rail.yaml", "--record", links, "--",
                          MPIRUN, "--oversubscribe", "--bind-to", "none", "-n", str(RANKS), *options, f"{BUILD}/bin/mpi_stock_windows",
                          str(BYTES)], env=ENV, text=True, timeout=100, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    print(job.stdout)
    if job.returncode or f"windows: {RANKS} ranks ok" not in job.stdout:
        sys.exit(f"exit code {job.returncode}")
    with open(links, encoding="ascii") as lines: # counters over time: the last ones stay
        sent = {row["link"]: int(row["bytes"]) for row in csv.DictReader(lines) if row["link"].startswith("node")}
    return sum(sent.values()), job.stdout


def given(folder, session, *options, **more):
    """What mpirun-mp gives the launcher, and says; `more`: of the environment, None: not set."""
    launcher = os.path.join(folder, "mpirun")
    with open(launcher, "w", encoding="ascii") as script:
        script.write('#!/bin/sh\ncase $1 in --version) echo "mpirun (Open MPI) 4.1.4";; *) echo "$@";; esac\n')
    os.chmod(launcher, 0o755)
    env = {**ENV, "MPIRUN": launcher, "SOFTHCA_SESSION": "some" if session else None, **more}
    env = {name: value for name, value in env.items() if value is not None}
    return subprocess.run([MPIRUN, *options, "-n", "2", "app"], env=env, text=True, check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT).stdout


with tempfile.TemporaryDirectory() as where:
    for session, options, kept in ((True, (), True), (False, (), False), (True, ("--mca", "osc", "ucx"), False),
                                   (True, ("--mca", "osc_ucx_priority", "50"), False), (True, ("--mca", "pml", "ob1"), True)):
        text = given(where, session, *options)
        if kept != ("--mca osc_ucx_priority 110" in text.splitlines()[-1]) or kept != (SAID in text):
            sys.exit(f"mpirun-mp {' '.join(options)}, {'with' if session else 'without'} a session of the adapter: {text}")
    # Shared memory, which on the emulated adapter would carry everything.
    with open(f"{SOURCE}/config/openmpi/mp.conf", encoding="ascii") as lines:
        shared = [line.split("UCX_TLS=")[1].strip() for line in lines if line.startswith("-x UCX_TLS=")]
    if shared != ["mp_rc,mp_dc,sm,self"]:
        sys.exit(f"mp.conf gives UCX_TLS {shared}")
    for session, tls, left_out in ((True, None, True), (True, shared[0], True), (True, "mp_rc,sm", False), (False, None, False)):
        text = given(where, session, UCX_TLS=tls)
        if left_out != ("no sm" in text) or left_out and "-x UCX_TLS " not in text:
            sys.exit(f"mpirun-mp with UCX_TLS={tls}, {'with' if session else 'without'} a session of the adapter: {text}")
    sent, text = run(where)
    if sent < RANKS * BYTES or SAID not in text:
        sys.exit(f"the adapters have sent {sent} bytes; {RANKS * BYTES} were put")
    otherwise, text = run(where, "--mca", "osc_ucx_priority", "50")
    if otherwise > BYTES or SAID in text:
        sys.exit(f"the adapters have sent {otherwise} bytes with osc/sm")
print(f"{sent} bytes over the adapters, {otherwise} with osc/sm")
