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
SAID = "windows stay on it"
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


def given(folder, session, *options):
    """What mpirun-mp gives the launcher, and says."""
    launcher = os.path.join(folder, "mpirun")
    with open(launcher, "w", encoding="ascii") as script:
        script.write('#!/bin/sh\ncase $1 in --version) echo "mpirun (Open MPI) 4.1.4";; *) echo "$@";; esac\n')
    os.chmod(launcher, 0o755)
    env = {**ENV, "MPIRUN": launcher}
    env.pop("SOFTHCA_SESSION", None)
    if session:
        env["SOFTHCA_SESSION"] = "some"
    return subprocess.run([MPIRUN, *options, "-n", "2", "app"], env=env, text=True, check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT).stdout


with tempfile.TemporaryDirectory() as where:
    for session, options, kept in ((True, (), True), (False, (), False), (True, ("--mca", "osc", "ucx"), False),
                                   (True, ("--mca", "osc_ucx_priority", "50"), False), (True, ("--mca", "pml", "ob1"), True)):
        text = given(where, session, *options)
        if kept != ("--mca osc_ucx_priority 110" in text) or kept != (SAID in text):
            sys.exit(f"mpirun-mp {' '.join(options)}, {'with' if session else 'without'} a session of the adapter: {text}")
    sent, text = run(where)
    if sent < RANKS * BYTES or SAID not in text:
        sys.exit(f"the adapters have sent {sent} bytes; {RANKS * BYTES} were put")
    otherwise, text = run(where, "--mca", "osc_ucx_priority", "50")
    if otherwise > BYTES or SAID in text:
        sys.exit(f"the adapters have sent {otherwise} bytes with osc/sm")
print(f"{sent} bytes over the adapters, {otherwise} with osc/sm")
