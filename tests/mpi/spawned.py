#!/usr/bin/python3
"""Runs a job that spawns processes, and again if its runtime hangs: spawned.py PROGRAM -- COMMAND...

Open MPI 4.1 with PMIx 4 (openpmix issue 2735): now and then a spawned process waits for ever in PMIx_Init(), and its parents in
PMIx_Lookup(). It has loaded no component for messages by then, neither stock ones nor ours. Such a job is ended and started
again, three times at most, and says so. A job that hangs elsewhere is left to ctest's time limit. Exit code: the job's.
"""
import glob
import os
import signal
import subprocess
import sys
import time

STARTS, PATIENCE = 4, 20  # seconds that a process takes to load a component for messages, at most


def is_stuck(pid, program):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as words, open(f"/proc/{pid}/maps", encoding="utf-8") as files:
            own = os.path.basename(words.read().split(b"\0")[0]) == program.encode()
            return own and "/mca_pml_" not in files.read()
    except OSError:
        return False  # it has ended


def stuck_of(session, program):
    found = set()
    for path in glob.glob("/proc/[0-9]*"):
        pid = int(os.path.basename(path))
        try:
            if os.getsid(pid) == session and is_stuck(pid, program):
                found.add(pid)
        except OSError:
            pass
    return found


def run(program, command):
    """The exit code; None: its runtime hung."""
    job = subprocess.Popen(command, start_new_session=True)
    since = {}
    while True:
        try:
            return job.wait(1)
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            since = {pid: since.get(pid, now) for pid in stuck_of(job.pid, program)}
            if any(now - begun > PATIENCE for begun in since.values()):
                os.killpg(job.pid, signal.SIGTERM)
                time.sleep(1)
                for pid in [p for p in map(int, filter(str.isdigit, os.listdir("/proc"))) if p != os.getpid()]:
                    try:
                        if os.getsid(pid) == job.pid:
                            os.kill(pid, signal.SIGKILL)
                    except OSError:
                        pass
                job.wait()
                return None


def main():
    if len(sys.argv) < 4 or sys.argv[2] != "--":
        sys.exit("usage: spawned.py PROGRAM -- COMMAND...")
    for _ in range(STARTS):
        code = run(sys.argv[1], sys.argv[3:])
        if code is not None:
            return code
        print(f"spawned: a process has not come out of PMIx_Init() in {PATIENCE} s: once more", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
