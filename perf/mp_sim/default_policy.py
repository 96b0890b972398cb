#!/usr/bin/python3
"""The default policy beside fixed ones, in a few jobs that are cheap: 0.95 of the best of them on average, 0.85 in each.

default_policy.py BUILD [--mean RATIO] [--least RATIO]. Of ctest. Virtual time and fixed seeds: the figures repeat bit for bit. All jobs, and those
that the default loses, are rows of perf/transport-speed (fat_tree, halo).
"""
import argparse
import math
import re
import subprocess
import sys

FIXED = ("even", "hsam", "bss:n_paths=4,n_batch=2", "binding")
# kernel, ranks, mapping, size, ns of a processor per request and completion, rendezvous. One route for each peer would fail
# most of them.
CASES = (
    ("alltoall", 24, "block", "64K", 0, "put"),
    ("alltoall", 24, "block", "64K", 2000, "put"),
    ("alltoall", 24, "block", "16K", 0, "get"),
    ("ring", 32, "random", "16K", 0, "get"),
    ("ring", 32, "random", "16K", 500, "put"),
    ("displaced", 24, "block", "16K", 2000, "put"),
    ("displaced", 24, "block", "64K", 500, "put"),
    ("incast", 16, "block", "64K", 500, "get"),
    ("alltoall", 48, "block", "16K", 2000, "get"),
    # 0.68, 0.86, 0.76 if whoever sends to several neighbours at once does not know it.
    ("halo", 12, "block", "12K", 1000, "put"),
    ("halo", 12, "block", "64K", 0, "put"),
    ("halo", 12, "block", "32K", 2000, "put"),
)
FABRICS = {"halo": "two-rail"} # of the others: fattree-144


def times(build, case):
    """[us of the default, us of each fixed one]"""
    kernel, ranks, mapping, size, host, rendezvous = case
    words = [f"{build}/bin/mp_sim", "--quiet", "--fabric", FABRICS.get(kernel, "fattree-144"), "--kernel", kernel, "--nodes", str(ranks),
             "--mapping", mapping, "--size", size, "--messages", "4" if kernel == "halo" else "0", "--host-post", str(host),
             "--host-completion", str(host), "--rendezvous", rendezvous, "--warm-up", "4", "--repeat", "3", "--late", "2000",
             "--policy", ";".join(("default", *FIXED))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {' '.join(words)}\n{done.stderr}")
    return [float(us) for us in re.findall(r"^mp_rc \S+ +([\d.]+) ", done.stdout, re.MULTILINE)[:1 + len(FIXED)]]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--mean", type=float, default=0.95, help="geometric mean that must be reached (default: %(default)s)")
    parser.add_argument("--least", type=float, default=0.85, help="ratio that each case must reach (default: %(default)s)")
    args = parser.parse_args()
    ratios = []
    for case in CASES:
        ours, *fixed = times(args.build, case)
        best = min(fixed)
        ratios.append(min(1, best / ours))
        print(f"{' '.join(map(str, case))} ns: {ours:.1f} us, {FIXED[fixed.index(best)]} {best:.1f} us: {best / ours:.3f}", flush=True)
    mean = math.prod(ratios) ** (1 / len(ratios))
    print(f"mean {mean:.3f}, worst {min(ratios):.3f} (at most 1 each)")
    if mean < args.mean or min(ratios) < args.least:
        sys.exit(f"below: a mean of {args.mean} and {args.least} in each case are needed")


main()
