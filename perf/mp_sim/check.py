#!/usr/bin/python3
"""Runs every kernel of mp_sim with few processes, twice: it ends, and the times are the same to the last bit. No run is faster
than its links allow (--bound), and that bound is right where it can be told by hand.

check.py BUILD. Of ctest.
"""
import re
import subprocess
import sys

PROGRAM = sys.argv[1] + "/bin/mp_sim"
ATOMIC = ("taskpool", "dataservers")  # nothing for pml/mp
POWERS_OF_TWO = ("cg",)  # these have to have so many processes, as two of the jobs
JOBS = [["--nodes", "4", "--ranks-per-node", "2"], ["--nodes", "7", "--mapping", "random", "--of-nodes", "16"],
        ["--nodes", "4", "--ranks-per-node", "3", "--mapping", "cyclic", "--on-demand", "--eager", "64"],
        ["--nodes", "4", "--ranks-per-node", "2", "--rendezvous", "get"],
        ["--nodes", "6", "--on-demand", "--rendezvous", "get", "--host-post", "500", "--host-completion", "500"]]


def output(words):
    done = subprocess.run([PROGRAM, "--quiet", "--policy", "default", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: mp_sim {' '.join(words)}\n{done.stderr}")
    return done.stdout.splitlines()


def run(words):
    return [line for line in output(words) if re.match("mp_", line)]


def measured(line):
    """Without the real time that it took."""
    words = line.split()
    return words[:-2] + words[-1:]


def bound(words):
    """us: the time, what links need in order, what they need for all at once, what the busiest processor needs."""
    lines = [line.split() for line in output([*words, "--bound"]) if re.match("mp_", line)]
    time, needs = lines[0], lines[1]
    return float(time[2]), float(needs[needs.index("need") + 1]), float(needs[needs.index("time),") + 1]), \
        float(needs[needs.index("processors") + 1])


def check_bounds(kernels):
    for kernel in set(kernels) - {"barrier"}: # which has no data
        for rendezvous in ("put", "get"):
            time, _, at_once, _ = bound(["--fabric", "connect-ib-64", "--kernel", kernel, "--nodes", "8", "--size", "65536", "--messages", "5",
                                      "--rendezvous", rendezvous])
            if not 0 < at_once <= time:
                sys.exit(f"{kernel}, {rendezvous}: {time} us, but links need {at_once} us")
    # 15 times 64 KiB into one port of 2 GB/s, with 26 bytes around each 2048, by whatever routes.
    _, in_order, at_once, _ = bound(["--fabric", "fattree-144", "--kernel", "incast", "--nodes", "16", "--size", "65536"])
    # From leaf to leaf over one route each: in each of twelve steps some link has two flows at least, four at most.
    _, one_route, _, _ = bound(["--fabric", "fattree-144", "--kernel", "displaced", "--nodes", "24", "--size", "65536", "--paths", "1"])
    # A link of a quarter of the rate, to the one node that all send to.
    *_, slow, _ = bound(["--fabric", "two-rail", "--kernel", "incast", "--nodes", "4", "--size", "65536", "--fault", "rate 2Gb/s 0:softhca_0:1 switch"])
    if not 0.98 <= slow / (3 * 65536 / 1.25e3) <= 1.01:
        sys.exit(f"the bound of an incast over rails of 8 and 2 Gb/s: {slow} us")
    per_message = 65536 / 2 * 2074 / 2048 / 1000
    for what, us, least, most in (("incast", in_order, 15, 15), ("incast at once", at_once, 15, 15), ("one route", one_route, 24, 48)):
        if not 0.98 * least * per_message <= us <= 1.01 * most * per_message:
            sys.exit(f"the bound of {what}: {us} us, {us / per_message:.2f} messages")


def check_processors():
    """Rank 0 takes seven eager messages; by rendezvous it takes a request, posts a read, collects it and posts the finish."""
    for size, needed in ((1000, 7 * 0.3), (4000, 7 * (0.3 + 0.5 + 0.3 + 0.5))):
        time, _, _, processors = bound(["--fabric", "connect-ib-64", "--kernel", "incast", "--nodes", "8", "--size", str(size), "--rendezvous", "get",
                                        "--host-post", "500", "--host-completion", "300", "--host-receive", "300"])
        if abs(processors - needed) > 0.06 or processors > time:
            sys.exit(f"processors need {processors} us of {time} us for {size} bytes, by hand {needed}")


def check_window():
    """64 messages unless something else is said, and each takes longer in a smaller window."""
    words = ["--fabric", "two-rail", "--kernel", "windows", "--nodes", "2", "--size", "65536", "--messages", "4"]
    times = [float(run([*words, *more])[0].split()[2]) for more in ([], ["--window", "64"], ["--window", "2"])]
    if times[0] != times[1] or not 1 / 64 < times[2] / times[0] < 1:
        sys.exit(f"windows of 64, 64 and 2 messages: {times} us")


def check_rendezvous():
    """It is another one, and of no message that is eager."""
    for size, same in (("1024", True), ("1025", False)):
        put, get = (run(["--fabric", "fattree-144", "--kernel", "alltoall", "--nodes", "6", "--size", size, "--rendezvous", way])
                    for way in ("put", "get"))
        if ([measured(line) for line in put] == [measured(line) for line in get]) != same:
            sys.exit(f"put and get, {size} bytes:\n" + "\n".join(put + get))


def check_bound():
    """Two processes per node, each bound to a rail: half of what striping has, but for windows in both directions."""
    for kernel, least, most in (("windows", 1.9, 2.1), ("windows-both", 0.97, 1.03)):
        lines = run(["--fabric", "two-rail", "--kernel", kernel, "--nodes", "2", "--ranks-per-node", "2", "--size", "262144",
                     "--messages", "1", "--policy", "even;bound"])
        _, even, bound_us = (float(line.split()[2]) for line in lines)  # the first is the default's
        ratio = bound_us / even
        if not least <= ratio <= most:
            sys.exit(f"{kernel}: processes bound to a rail take {ratio} of the time of even striping")


def check_pml():
    """Large messages by pml/mp's core come about as fast as by the transport alone, and no faster than links can."""
    words = ["--fabric", "two-rail", "--kernel", "windows", "--nodes", "2", "--size", "1048576", "--messages", "2", "--rendezvous", "get"]
    alone, _, at_once, _ = bound(words)
    pml, *_ = bound([*words, "--module", "pml"])
    if not at_once <= pml <= 1.3 * alone:
        sys.exit(f"windows of 1 MiB: {alone} us, by pml/mp {pml} us; links need {at_once} us")


def check_fault():
    """A port that goes down in the middle of a job takes half of what carries the rest; one that does afterwards takes nothing."""
    words = ["--fabric", "two-rail", "--kernel", "windows", "--nodes", "2", "--size", "1048576", "--messages", "4"]
    def time(*more):
        return float(run([*words, *more])[0].split()[2])
    whole = time()
    for part, least, most in ((0.5, 1.4, 1.7), (2, 1, 1)):
        ratio = time("--fault-at", f"{int(part * whole * 1000)} port down 0:softhca_0:1") / whole
        if not least <= ratio <= most:
            sys.exit(f"a port that goes down after {part} of the job: {ratio} of the time without")


def check_refused(*words, said=""):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)
    if done.returncode == 0 or (said or words[-1]) not in done.stderr:
        sys.exit(f"mp_sim {' '.join(words)} is not refused")


def main():
    kernels = re.findall(r"^ {32}([a-z0-9-]+): ", subprocess.run([PROGRAM, "--help"], capture_output=True, text=True,
                                                                 check=True).stdout, re.MULTILINE)
    if len(kernels) < 15:
        sys.exit(f"--help names {len(kernels)} kernels only")
    for kernel in kernels:
        for i, job in enumerate(JOBS[::3] if kernel in POWERS_OF_TWO else JOBS):
            words = ["--fabric", "connect-ib-64", "--kernel", kernel, "--transport", "mp_rc;mp_dc", "--size", "3000",
                     "--messages", "5", *job]
            first, again = run(words), run(words)
            if [measured(line) for line in first] != [measured(line) for line in again]:
                sys.exit(f"{kernel}: two runs differ:\n" + "\n".join(first + again))
            if i == 0:
                print(kernel, *first, sep="\n")
        if kernel not in ATOMIC:
            words = ["--fabric", "two-rail", "--kernel", kernel, "--module", "pml", "--size", "3000", "--messages", "5", *JOBS[0]]
            first, again = run(words), run(words)
            if [measured(line) for line in first] != [measured(line) for line in again]:
                sys.exit(f"{kernel} by pml/mp: two runs differ:\n" + "\n".join(first + again))
    check_bounds(kernels)
    check_rendezvous()
    check_processors()
    check_window()
    check_bound()
    check_fault()
    check_pml()
    check_refused("--bound", "--on-demand")
    check_refused("--quiet", "--module", "pml", "--kernel", "taskpool", "--fabric", "two-rail", "--nodes", "2", said="atomic")
    check_refused("--fault-at", "port down 0:softhca_0:1")
    check_refused("--quiet", "--kernel", "windows", "--nodes", "2", "--fabric", "sixteen-rail", said="sixteen-rail")
    check_refused("--rendezvous", "neither")


main()
