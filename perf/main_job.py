#!/usr/bin/python3
"""The main job: hpcc on four ranks over two rails and four routes, one spine congested; stock rc_verbs beside mp_rc.

Started by perf/quickstart. The fabric is config/fabrics/four-path-1x.yaml: two rails per node, LMC 2, every LID of a
port over another of four spines. The ranks are on nodes 0, 4, 1, 5: neighbours are under different leaf switches, so
that all traffic between them crosses the spines. Stock UCX uses the first LID of both rails, which is spine 1 to half of
the nodes and spine 2 to the others; mp uses all routes.

After that, a link is pulled in mid-run: the cable of one rank's first port, once over each.

The congestion: the links of one spine carry a quarter of their rate, as if a flow between other nodes took the rest
(`softhca fault rate`). A program that makes such a flow would do the same to the fabric, but it would compete with the
ranks for the few processors of this host, and more so with the one transport than with the other.

Leaves in the output folder: the link counters (CSV), hpcc's own reports, and the picture (SVG and PNG).
"""
import argparse
import collections
import csv
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FABRIC = os.path.join(ROOT, "config", "fabrics", "four-path-1x.yaml")
RANKS, PLACE = 4, "0,4,1,5"
CONGESTED = "spine1"
PULLED = "node0 leaf1"  # of the first rank's first port
LIMIT = 400  # seconds for one run of hpcc

Figure = collections.namedtuple("Figure", "key title scale unit more_is_better")
FIGURES = (
    Figure("HPL_Tflops", "HPL", 1e3, "Gflop/s", True),
    Figure("PTRANS_GBs", "PTRANS", 1e3, "MB/s", True),
    Figure("MPIRandomAccess_GUPs", "RandomAccess", 1e6, "kUp/s", True),
    Figure("MPIFFT_Gflops", "FFT", 1e3, "Mflop/s", True),
    Figure("MinPingPongBandwidth_GBytes", "Ping-pong, worst pair", 1e3, "MB/s", True),
    Figure("AvgPingPongBandwidth_GBytes", "Ping-pong, mean", 1e3, "MB/s", True),
    Figure("NaturallyOrderedRingBandwidth_GBytes", "Natural ring", 1e3, "MB/s", True),
    Figure("RandomlyOrderedRingBandwidth_GBytes", "Random ring", 1e3, "MB/s", True),
    Figure("AvgPingPongLatency_usec", "Ping-pong latency", 1, "us", False),
    Figure("RandomlyOrderedRingLatency_usec", "Random ring latency", 1, "us", False),
)
TRANSPORTS = {"stock": "rc_verbs,ud_verbs", "mp": "mp_rc"}


def fail(text):
    sys.exit(f"main_job: {text}")


def clean_environment(**more):
    env = {name: value for name, value in os.environ.items()
           if not re.match(r"(UCX|OMPI|PMIX|SOFTHCA|SLURM)_", name) and name != "LD_PRELOAD"}
    env.update(LC_ALL="C.UTF-8", OMP_NUM_THREADS="1", UCX_LOG_LEVEL="error", OMPI_ALLOW_RUN_AS_ROOT="1",
               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **more)
    return env


def job(args, kind):
    """(command, environment) of one hpcc job."""
    folder = os.path.join(ROOT, "config", "openmpi")
    if kind == "mp":
        launcher, transport = [os.path.join(folder, "mpirun-mp")], []
        env = clean_environment(UCX_TLS=args.tls, UCT_MP_LIBRARY=os.path.join(args.build, "lib", "libuct_mp.so"))
    else:
        with open(os.path.join(folder, "mp.conf"), encoding="ascii") as lines:  # Open MPI 5.0 does not read it itself
            same = [word for line in lines if line.startswith("--mca") for word in line.split(None, 2)]
        launcher, transport = ["mpirun.openmpi", *map(str.strip, same)], ["-x", "UCX_TLS=" + TRANSPORTS["stock"]]
        env = clean_environment()
    return [*launcher, "--oversubscribe", "--bind-to", "none", *transport, "-n", str(RANKS), "hpcc"], env


def congestion(args):
    return [] if args.free else [f"at 0s rate {args.rest} leaf{leaf} {CONGESTED}" for leaf in range(1, 5)]


def start_hpcc(args, kind, folder, faults, limit):
    """One run, `faults` (lines of a script) beside the congestion.

    Returns (exit code, None if it had to be stopped; seconds; hpcc's report; output).
    """
    os.makedirs(folder)
    shutil.copy(args.input, os.path.join(folder, "hpccinf.txt"))
    softhca = [os.path.join(args.build, "bin", "softhca"), "run", "--fabric", FABRIC, "--place", PLACE,
               "--record", "links.csv", "--record-interval", "50"]
    faults = congestion(args) + faults
    if faults:
        with open(os.path.join(folder, "faults"), "w", encoding="ascii") as script:
            script.writelines(f"{line}\n" for line in faults)
        softhca += ["--faults", "faults"]
    command, env = job(args, kind)
    began = time.monotonic()
    with open(os.path.join(folder, "output"), "wb") as out:
        with subprocess.Popen([*softhca, "--", *command], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out,
                              stderr=subprocess.STDOUT) as process:
            try:
                code = process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                code = None
                process.terminate()  # mpirun ends its ranks
                try:
                    process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    process.kill()
    seconds = time.monotonic() - began
    texts = []
    for name in ("hpccoutf.txt", "output"):
        path = os.path.join(folder, name)
        texts.append("")
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as lines:
                texts[-1] = lines.read()
    return code, seconds, *texts


def is_right(code, report):
    """hpcc's own checks."""
    return code == 0 and "\nSuccess=1\n" in report and "FAILED" not in report


def run_hpcc(args, kind, folder):
    """One run without faults; returns {figure: value} and its seconds; leaves links.csv and hpccoutf.txt in `folder`."""
    code, seconds, text, output = start_hpcc(args, kind, folder, [], LIMIT)
    if not is_right(code, text):
        print(*output.splitlines()[-30:], sep="\n", file=sys.stderr)
        fail(f"hpcc over {kind} failed (exit code {code}, None: stopped after {LIMIT} s); see {folder}")
    values = {}
    for figure in FIGURES:
        found = re.search(rf"^{figure.key}=(.*)$", text, re.M)
        if not found:
            fail(f"hpcc printed no {figure.key}; see {folder}")
        values[figure.key] = float(found[1]) * figure.scale
    return values, seconds


def pulled_link(args, whole):
    """hpcc again, with PULLED pulled for good at half of `whole`, {kind: seconds} undisturbed; prints a table."""
    print(f"\n{'hpcc, a link is pulled in mid-run':36} undisturbed  pulled at  what becomes of it")
    for kind in TRANSPORTS:
        undisturbed = whole[kind]
        folder = os.path.join(args.out, f"{kind}-pulled")
        for _ in range(3):
            at = undisturbed / 2
            shutil.rmtree(folder, ignore_errors=True)
            code, seconds, report, output = start_hpcc(args, kind, folder, [f"at {at:.2f}s link down {PULLED}"], LIMIT)
            pulled = code != 0 or seconds > at + 1
            if pulled:
                break
            undisturbed = seconds  # the host was busy before: this time the job was done by then
        right = is_right(code, report)
        if not pulled:
            outcome = "was done before, three times"
        elif right:
            outcome = f"done after {seconds:.1f} s ({seconds / undisturbed:.2f} of undisturbed), all results right"
        elif code is None:
            outcome = f"hangs: stopped after {seconds:.1f} s"
        else:
            outcome = f"aborted after {seconds:.1f} s, exit code {code}"
        error = None if right else re.search(r"(?:ERROR|\w+\.c:\d+) +(.* error: [^\[\n]*)", output)
        print(f"{TRANSPORTS['stock'] if kind == 'stock' else args.tls:36} {undisturbed:9.1f} s {at:8.1f} s  {outcome}" +
              (f"\n{'':36} {error[1].strip()[:80]}" if error else ""), flush=True)
        if kind == "mp" and not (pulled and right):
            fail(f"the job over {args.tls} {'did not survive' if pulled else 'was never disturbed'}; see {folder}")


def spine_rates(path, step=0.2):
    """{spine: [(time, MB/s)]}: what went up to every spine, from all leaves."""
    bins = collections.defaultdict(collections.Counter)
    last = {}
    with open(path, encoding="ascii") as rows:
        for row in csv.DictReader(rows):
            found = re.match(r"(leaf\d+):\d+ -> (spine\d+):", row["link"])
            if not found:
                continue
            moved = int(row["bytes"]) - last.get(row["link"], 0)
            last[row["link"]] = int(row["bytes"])
            bins[found[2]][int(float(row["time_s"]) / step)] += moved
    end = max((max(counts) for counts in bins.values()), default=0)
    return {spine: [(i * step, counts[i] / step / 1e6) for i in range(end + 1)]
            for spine, counts in sorted(bins.items())}


def draw(args, rates, medians):
    """quickstart.svg and .png: bytes per spine over time, stock and mp, and hpcc's figures side by side."""
    data = os.path.join(args.out, "plot.dat")
    spines = sorted({spine for kind in rates.values() for spine in kind})
    blocks = []
    with open(data, "w", encoding="ascii") as out:
        for kind in TRANSPORTS:
            for spine in spines:
                blocks.append((kind, spine))
                out.write("".join(f"{t:.2f} {rate:.1f}\n" for t, rate in rates[kind].get(spine, [(0, 0)])) + "\n\n")
        for figure in FIGURES:
            ratio = medians["mp"][figure.key] / medians["stock"][figure.key]
            out.write(f'"{figure.title}" {ratio if figure.more_is_better else 1 / ratio:.3f}\n')
    longest = max(t for kind in rates.values() for points in kind.values() for t, _ in points)
    highest = max(rate for kind in rates.values() for points in kind.values() for _, rate in points)
    lines = ["set multiplot layout 3,1", "set key outside right", "set ylabel 'MB/s through a spine'",
             f"set xrange [0:{longest}]", f"set yrange [0:{highest * 1.05}]"]
    for kind in TRANSPORTS:
        lines.append(f"set title 'hpcc over {kind}: {TRANSPORTS[kind] if kind == 'stock' else args.tls}' noenhanced")
        if kind == "mp":
            lines.append("set xlabel 'seconds'")
        lines.append("plot " + ", ".join(
            f"'{data}' index {blocks.index((kind, spine))} with lines lw 1.5 title "
            f"'{spine}{' (congested)' if spine == CONGESTED and not args.free else ''}'" for spine in spines))
    lines += ["set title 'mp against stock: above 1 mp is better'", "unset key", "set xrange [*:*]", "set yrange [0:*]",
              "set xlabel ''", "set ylabel 'ratio'", "set style fill solid 0.6", "set boxwidth 0.7",
              "set xtics rotate by -30", "set grid y",
              f"plot '{data}' index {len(blocks)} using 0:2:xtic(1) with boxes lc rgb '#4060a0', 1 with lines lc black"]
    for terminal, name in (("svg size 1000,1000", "quickstart.svg"), ("pngcairo size 1000,1000", "quickstart.png")):
        path = os.path.join(args.out, name)
        program = "\n".join([f"set terminal {terminal}", f"set output '{path}'", *lines, "unset multiplot"])
        done = subprocess.run(["gnuplot"], input=program, text=True, capture_output=True, check=False)
        if done.returncode:
            fail(f"gnuplot: {done.stderr}")


def table(args, medians):
    what = "hpcc, 4 ranks" + ("" if args.free else ", one spine congested")
    print(f"\n{what:36} {'stock':>10} {args.tls:>10} {'mp/stock':>9}")
    for figure in FIGURES:
        stock, mp = (medians[kind][figure.key] for kind in TRANSPORTS)
        name = f"{figure.title}, {figure.unit}" + ("" if figure.more_is_better else " (low is good)")
        print(f"{name:36} {stock:10.4g} {mp:10.4g} {mp / stock:9.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"), help="build folder")
    parser.add_argument("--out", help="output folder (default: quickstart in the build folder)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each; the table has medians (default: 3)")
    parser.add_argument("--tls", default=TRANSPORTS["mp"], help="mp_rc (default), mp_dc or mp_rc,mp_dc")
    parser.add_argument("--rest", default="0.5Gb/s", help="what congested links still carry (default: 0.5Gb/s of 2)")
    parser.add_argument("--free", action="store_true", help="no congestion")
    parser.add_argument("--input", default=os.path.join(ROOT, "perf", "hpccinf.txt"), help="hpcc's input file")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    args.out = os.path.abspath(args.out or os.path.join(args.build, "quickstart"))
    if not os.path.exists(os.path.join(args.build, "lib", "libuct_mp.so")):
        fail("the build has no lib/libuct_mp.so: UCX's source is missing (cmake/install-deps)")
    if args.rounds < 1:
        fail("--rounds: at least 1")
    for kind in TRANSPORTS:
        for number in (*range(args.rounds), "pulled"):
            shutil.rmtree(os.path.join(args.out, f"{kind}-{number}"), ignore_errors=True)

    values, times = {kind: [] for kind in TRANSPORTS}, {kind: [] for kind in TRANSPORTS}
    for number in range(args.rounds):
        for kind in TRANSPORTS:  # in turn, so that a busy host is as hard for both
            tls = TRANSPORTS[kind] if kind == "stock" else args.tls
            print(f"== hpcc over {tls}, {number + 1} of {args.rounds}", end="", flush=True)
            figures, seconds = run_hpcc(args, kind, os.path.join(args.out, f"{kind}-{number}"))
            values[kind].append(figures)
            times[kind].append(seconds)
            print(f" ({seconds:.0f} s)", flush=True)
    medians = {kind: {figure.key: statistics.median(run[figure.key] for run in runs) for figure in FIGURES}
               for kind, runs in values.items()}
    rates = {kind: spine_rates(os.path.join(args.out, f"{kind}-0", "links.csv")) for kind in TRANSPORTS}
    draw(args, rates, medians)
    table(args, medians)
    pulled_link(args, {kind: statistics.median(seconds) for kind, seconds in times.items()})
    print(f"\nA picture of it, with the bytes per spine over time: {args.out}/quickstart.svg (and .png)")


if __name__ == "__main__":
    main()
