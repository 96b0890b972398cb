#!/usr/bin/python3
"""A running job through the eyes of mp_info -a: shown.py BUILD SOURCE all|chosen|limited|without_dc [ENDPOINTS PROTOCOLS]

Four ranks, each on a host of its own, over UCX_TLS=mp_rc,mp_dc. all: every host has DC, and every peer has got RC at
once, with costs that are given. chosen: RC and rings are given by what is counted. limited: a process may have fewer
connections than peers. without_dc: host 1 has no DC, so it and all others talk over mp_rc, and the others among
themselves over mp_dc, whatever number of endpoints UCX expects (UCX_NUM_EPS), by its old protocols or its new ones
(UCX_PROTO_ENABLE=n, y).
"""
import os
import subprocess
import sys
import tempfile
import time

BUILD, SOURCE = (os.path.abspath(path) for path in sys.argv[1:3])
CASE = sys.argv[3]
RANKS, PATIENCE = 4, 60
COSTS = "r=1000,rho=1000,d=1000,p=1,c=1,delta=1000"
VARIABLES = {"all": {"UCX_MP_DC_ADAPT_COSTS": COSTS}, # measured, they need a window by DC now and then, and counts give RC back
             "chosen": {"UCX_MP_DC_ADAPT": "on", "UCX_MP_DC_ADAPT_INTERVAL": "100ms", "UCX_MP_DC_ADAPT_MAX_RINGS": "64",
                        "UCX_MP_DC_ADAPT_COSTS": COSTS},
             "limited": {"UCX_MP_DC_MAX_CONN": "2"}}


def ranks_in(folder):
    """The processes of our job: other tests run beside it."""
    for process in os.listdir("/proc"):
        try:
            with open(f"/proc/{process}/environ", "rb") as environ, open(f"/proc/{process}/comm", "rb") as name:
                if name.read() == b"mpi_endure\n" and f"SHOWN_IN={folder}".encode() in environ.read().split(b"\0"):
                    yield process
        except OSError:
            pass


def look(folder):
    """A line per interface: its transport, and its peers with what they have sent, and more that is told of them"""
    ranks = [word for rank in ranks_in(folder) for word in ("-p", rank)]
    if not ranks:
        return []
    run = subprocess.run([f"{BUILD}/bin/mp_info", *ranks, "--raw"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                         timeout=30, check=False)
    found, process = [], None
    for line in run.stdout.splitlines():
        words = line.split()
        pairs = dict(zip(words[2::2], words[3::2]))
        if words[0] == "interface":
            process = {"transport": pairs["transport"], "tear_downs": int(pairs["tear_downs"]), "peers": []}
            found.append(process)
        elif words[0] == "peer":
            process["peers"].append({"delivered": int(pairs["delivered"]), "sent": int(pairs["sent"])})
        elif words[0] in ("service", "memory", "ring"):
            process["peers"][-1][words[0]] = dict(zip(words[1::2], words[2::2]))
    return found


def talking(interface):
    return [peer for peer in interface["peers"] if peer["delivered"] > 20 and peer["sent"] > 20]


def is_right(found):
    by = {name: sorted(len(talking(one)) for one in found if one["transport"] == name and talking(one)) for name in ("mp_rc", "mp_dc")}
    if CASE == "without_dc":
        return by == {"mp_rc": [1, 1, 1, 3], "mp_dc": [2, 2, 2]}
    peers = [peer for one in found for peer in talking(one)]
    if CASE == "limited":
        return sum(one["transport"] == "mp_dc" and one["tear_downs"] > 2 for one in found) == RANKS
    if CASE == "chosen":
        return by["mp_dc"] == [3, 3, 3, 3] and all(
            peer.get("ring", {}).get("receives_by") == "open" and peer["ring"]["why"] == "counts" and
            int(peer["ring"]["switches"]) > 0 and int(peer["ring"]["messages"]) > 0 and int(peer["ring"]["messages_by_ring"]) > 0 and
            (peer["service"]["sends_by"] == "rc" or # one of both has wished it
             peer["service"]["receives_by"] == "rc" and peer["service"]["why"] == "counts" and int(peer["service"]["switches"]) > 0)
            for peer in peers)
    return by["mp_dc"] == [3, 3, 3, 3] and not by["mp_rc"] and all(
        "memory" in peer and "service" in peer and peer["service"]["receives_by"] == "rc" and peer["service"]["why"] == "first_peers" and
        int(peer["memory"]["queue_pairs"]) == int(peer["service"]["places"]) and int(peer["memory"]["bytes"]) > 10000
        for peer in peers)


with tempfile.TemporaryDirectory() as folder:
    end, faults = os.path.join(folder, "end"), os.path.join(folder, "without_dc.faults")
    with open(faults, "w", encoding="ascii") as file:
        file.write("at 0s lacks dc on 1:softhca_0\nat 0s lacks dc on 1:softhca_1\n")
    env = dict(os.environ, SHOWN_IN=folder, UCX_TLS="mp_rc,mp_dc", UCX_LOG_LEVEL="error",
               UCT_MP_LIBRARY=f"{BUILD}/lib/libuct_mp.so",
               OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    env |= VARIABLES.get(CASE, {})
    if len(sys.argv) > 5:
        env |= {"UCX_NUM_EPS": sys.argv[4], "UCX_PROTO_ENABLE": sys.argv[5]}
    with subprocess.Popen([f"{BUILD}/bin/softhca", "run", "--fabric", f"{SOURCE}/config/fabrics/two-rail.yaml",
                           *(["--faults", faults] if CASE == "without_dc" else []), "--", f"{SOURCE}/config/openmpi/mpirun-mp",
                           "--oversubscribe", "--bind-to", "none", "-n", str(RANKS), f"{BUILD}/bin/mpi_endure", "alltoall",
                           str(PATIENCE), "1000", end], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as job:
        until, found = time.monotonic() + PATIENCE - 10, []
        try:
            while time.monotonic() < until and job.poll() is None and not is_right(found):
                time.sleep(0.3)
                found = look(folder)
        finally:
            with open(end, "w", encoding="ascii"):
                pass
        said = job.communicate(timeout=120)[0]
if job.returncode or f"{RANKS} ranks ok" not in said:
    sys.exit(f"exit code {job.returncode}:\n{said}")
for one in found:
    print(one["transport"], one["tear_downs"], talking(one))
if not is_right(found):
    sys.exit("these are not the transports, or not what is said of peers")
