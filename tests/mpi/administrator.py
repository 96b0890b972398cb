#!/usr/bin/python3
"""A running job as an administrator sees it: administrator.py BUILD SOURCE

Four ranks, each on a node of its own. One node is cut off for two seconds. Before and meanwhile mp_info is asked in all
its forms; afterwards the log has a line or two per process and not one per path.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

BUILD, SOURCE = (os.path.abspath(path) for path in sys.argv[1:3])
RANKS, PATIENCE = 4, 60
SESSION = f"administrator-{os.getpid()}"
PORTS = [f"1:softhca_{i}:1" for i in range(2)]


def need(good, what):
    if not good:
        sys.exit(what)


def mp_info(*words, code=0):
    run = subprocess.run([f"{BUILD}/bin/mp_info", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30,
                         check=False)
    need(code in (None, run.returncode), f"mp_info {' '.join(words)}: exit code {run.returncode}:\n{run.stdout}")
    return run.stdout


def processes(job):
    """Of our job: other tests run beside it."""
    found = json.loads(mp_info("--json", *(["--job", job] if job else []), code=None)) # 1: there is none yet
    return [one for one in found if one["program"] == "mpi_endure" and (job or is_ours(one["pid"]))]


def is_ours(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return f"ADMINISTRATOR={SESSION}".encode() in environ.read().split(b"\0")
    except OSError:
        return False


def peers(found):
    return [peer for process in found for interface in process["interfaces"] for peer in interface["peers"]]


def connected(found):
    """Pairs of different ranks."""
    return [peer for process in found for interface in process["interfaces"] for peer in interface["peers"]
            if peer["state"] == "established" and len(peer["paths"]) == 2 and peer["rank"] not in (-1, process["rank"])]


def wait(condition, what):
    until = time.monotonic() + PATIENCE
    while not condition():
        need(time.monotonic() < until, f"in vain: {what}")
        time.sleep(0.1)


def faults(word):
    for port in PORTS:
        subprocess.run([f"{BUILD}/bin/softhca", "fault", "--session", SESSION, "port", word, port], check=True)


def look(folder):
    """While the job runs."""
    wait(lambda: len(connected(processes(None))) >= RANKS * (RANKS - 1), "all ranks talk with each other")
    found = processes(None)
    need(sorted(one["rank"] for one in found) == list(range(RANKS)), f"ranks: {found}")
    job, pids = found[0]["job"], [word for one in found for word in ("-p", str(one["pid"]))]
    need(job and all(one["job"] == job and one["size"] == RANKS for one in found), "one job")
    need(len(processes(job)) == RANKS, "--job")
    mp_info("-a", "--job", "no such job", code=1)
    for one in connected(found):
        need(one["host"] == found[0]["host"] and one["rank"] in range(RANKS) and not one["cut_off"], f"a peer: {one}")
        need([path["port_there"] for path in one["paths"]] == ["softhca_0:1", "softhca_1:1"], f"its paths: {one}")
    text = mp_info(*pids)
    need(text.count("mpi_endure") == RANKS and text.count("well") == RANKS and len(text.splitlines()) == RANKS + 1, text)
    need(max(map(len, text.splitlines())) <= 100, text)
    need(mp_info(*pids, "--all").count("softhca_1:1 -> softhca_1:1") >= RANKS * (RANKS - 1), "--all shows every path")
    file = os.path.join(folder, "metrics.prom")

    def metrics():
        mp_info("--metrics", file)
        with open(file, encoding="ascii") as lines:
            return lines.read()
    counter = r'ucx_mp_path_written_bytes{{[^}}]*rank="{}",job="{}"[^}}]*,port="softhca_[01]:1"[^}}]*}} [1-9]'
    wait(lambda: all(re.search(counter.format(rank, job), metrics()) for rank in range(RANKS)), "bytes of every rank")
    need(all(re.fullmatch(r'# (HELP|TYPE) .*|\w+({(\w+="[^"]*",?)+})? \d+', line) for line in metrics().splitlines()), metrics())

    faults("down")
    # Who has nothing under way to it need not know.
    wait(lambda: any(sum(peer["cut_off"] for peer in peers([one])) == RANKS - 1 for one in processes(job) if one["rank"] == 1),
         "a node is cut off")
    text = mp_info(*pids)
    need("cut off: no path" in text and "its port is down here" in text and "3 cut off" in text, text)
    need(max(map(len, text.splitlines())) <= 100, text)
    time.sleep(2)
    faults("up")


    def is_back():
        found = processes(job)
        return len(found) == RANKS and not any(peer["cut_off"] for peer in peers(found))
    wait(is_back, "it is back")
    time.sleep(1) # lines wait for half a second


with tempfile.TemporaryDirectory() as folder:
    end = os.path.join(folder, "end")
    env = dict(os.environ, ADMINISTRATOR=SESSION, UCX_TLS="mp_rc", UCX_LOG_LEVEL="warn", UCT_MP_LIBRARY=f"{BUILD}/lib/libuct_mp.so",
               OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    with subprocess.Popen([f"{BUILD}/bin/softhca", "run", "--session", SESSION, "--fabric", f"{SOURCE}/config/fabrics/two-rail.yaml", "--",
                           f"{SOURCE}/config/openmpi/mpirun-mp", "--oversubscribe", "--bind-to", "none", "-n", str(RANKS),
                           f"{BUILD}/bin/mpi_endure", "alltoall", str(PATIENCE), "1000", end], env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        try:
            look(folder)
        finally:
            with open(end, "w", encoding="ascii"):
                pass
            out, log = job.communicate(timeout=120)
need(job.returncode == 0 and f"{RANKS} ranks ok" in out, f"exit code {job.returncode}:\n{out}{log}")
lines = [line for line in log.splitlines() if " WARN " in line or " ERROR " in line]
print("\n".join(lines))
# A port that only a silent path leads over has no cause yet.
LOST = r"mp: \S+ rank (\d): no path to \S+ rank \d is left: (softhca_[01]:1 -> softhca_[01]:1 \([^)]*\)(, )?)+: operations"
BACK = r"mp: \S+ rank (\d): \S+ rank \d can be reached again after \d"
need(all(re.search(LOST, line) or re.search(BACK, line) for line in lines), "another line")
for pattern in (LOST, BACK): # of three hosts there, and of one host at most elsewhere
    count = [sum(1 for line in lines if (found := re.search(pattern, line)) and int(found[1]) == rank) for rank in range(RANKS)]
    need(count[1] == RANKS - 1 and max(count[0], *count[2:]) <= 1, f"lines of ranks: {count}")
