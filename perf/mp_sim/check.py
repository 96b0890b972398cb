#!/usr/bin/python3
"""Runs every kernel of mp_sim with few processes, twice: it ends, and the times are the same to the last bit.

check.py BUILD. Of ctest.
"""
import re
import subprocess
import sys

PROGRAM = sys.argv[1] + "/bin/mp_sim"
POWERS_OF_TWO = ("cg",)  # these have to have so many processes, as the first of the jobs
JOBS = [["--nodes", "4", "--ranks-per-node", "2"], ["--nodes", "7", "--mapping", "random", "--of-nodes", "16"],
        ["--nodes", "4", "--ranks-per-node", "3", "--mapping", "cyclic", "--on-demand", "--eager", "64"]]


def run(words):
    done = subprocess.run([PROGRAM, "--quiet", "--policy", "default", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: mp_sim {' '.join(words)}\n{done.stderr}")
    return [line for line in done.stdout.splitlines() if re.match("mp_", line)]


def measured(line):
    """Without the real time that it took."""
    words = line.split()
    return words[:-2] + words[-1:]


def main():
    kernels = re.findall(r"^ {32}([a-z0-9-]+): ", subprocess.run([PROGRAM, "--help"], capture_output=True, text=True,
                                                                 check=True).stdout, re.MULTILINE)
    if len(kernels) < 15:
        sys.exit(f"--help names {len(kernels)} kernels only")
    for kernel in kernels:
        for i, job in enumerate(JOBS[:1] if kernel in POWERS_OF_TWO else JOBS):
            words = ["--fabric", "connect-ib-64", "--kernel", kernel, "--transport", "mp_rc;mp_dc", "--size", "3000",
                     "--messages", "5", *job]
            first, again = run(words), run(words)
            if [measured(line) for line in first] != [measured(line) for line in again]:
                sys.exit(f"{kernel}: two runs differ:\n" + "\n".join(first + again))
            if i == 0:
                print(kernel, *first, sep="\n")


main()
