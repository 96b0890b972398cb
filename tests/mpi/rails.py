#!/usr/bin/python3
"""An MPI job over hosts with sixteen rails: all of them carry traffic: rails.py BUILD SOURCE TRANSPORT"""
import csv
import os
import subprocess
import sys
import tempfile

# A rail more is used only where it saves more than its marker costs the host, so the last of sixteen needs long messages.
BYTES, ROUNDS = "16000000", "4"
build, source, transport = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3]
with tempfile.TemporaryDirectory() as folder:
    links = os.path.join(folder, "links.csv")
    env = dict(os.environ, UCX_TLS=transport, UCX_LOG_LEVEL="warn", UCT_MP_LIBRARY=os.path.join(build, "lib/libuct_mp.so"),
               OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    job = subprocess.run([os.path.join(build, "bin/softhca"), "run", "--fabric", os.path.join(source, "config/fabrics/sixteen-rail.yaml"),
                          "--record", links, "--", os.path.join(source, "config/openmpi/mpirun-mp"), "--oversubscribe", "--bind-to",
                          "none", "-n", "4", os.path.join(build, "bin/mpi_storm"), BYTES, ROUNDS], env=env, text=True, timeout=200,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(job.stdout)
    if job.returncode or "4 ranks ok" not in job.stdout:
        sys.exit(f"exit code {job.returncode}")
    with open(links, encoding="ascii") as lines:
        sent = {row["link"].removesuffix(" tx"): int(row["bytes"]) for row in csv.DictReader(lines) if row["link"].endswith(" tx")}
idle = [port for port, count in sent.items() if count < 100000]
if len(sent) != 4 * 16 or idle:
    sys.exit(f"{len(sent)} ports, not 64; these carried next to nothing: {idle}")
print(f"{len(sent)} ports, {min(sent.values())} to {max(sent.values())} bytes each")
