"""Running the programs that measure: in virtual time, and stock UCX's ucx_perftest between two emulated nodes."""
import csv
import os
import random
import re
import statistics
import subprocess
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Failed(RuntimeError):
    pass


def environment(**more):
    env = {name: value for name, value in os.environ.items()
           if not re.match(r"(UCX|SOFTHCA)_", name) and name != "LD_PRELOAD"}
    env.update(UCX_LOG_LEVEL="error", LC_ALL="C.UTF-8", **more)
    return env


def output(command, env=None, timeout=300):
    try:
        done = subprocess.run(command, env=env or environment(), capture_output=True, text=True, timeout=timeout,
                              check=False)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"no end after {timeout} s: {' '.join(map(str, command))}") from late
    if done.returncode:
        raise Failed(f"exit code {done.returncode}: {' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return done.stdout


def simulate(build, **options):
    """bench_sim_transport with these options ({"hot_move": 100} -> --hot-move 100); {word: number} of its line."""
    words = []
    for name, value in options.items():
        if value is False:
            continue
        words += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
    line = output([f"{build}/bin/bench_sim_transport", *words]).split()
    found = {}
    for name, value in zip(line, line[1:]):
        if re.fullmatch(r"[\d.]+", value) and not re.match(r"[\d.]", name):
            found.setdefault(name, float(value))
    return found


def jobs(build, folder, words, timeout=3000):
    """Rows of mp_sim with these arguments, as its table has them: {column: text}."""
    table = os.path.join(folder, f"mp_sim-{threading.get_ident()}.csv")
    output([f"{build}/bin/mp_sim", *words, "--quiet", "--csv", table],
           environment(SOFTHCA_FABRICS=f"{ROOT}/config/fabrics"), timeout=timeout)
    with open(table, encoding="utf-8") as rows:
        return list(csv.DictReader(rows))


def bandwidth(build, **options):
    return simulate(build, **options)["MB/s"]


def fabric(folder, name, rates, nodes=4, **adapter):
    """Writes a fabric of nodes on a switch, a rail per rate (Gb/s); its path."""
    path = os.path.join(folder, name + ".yaml")
    limits = "".join(f"{key}: {value}, " for key, value in adapter.items())
    with open(path, "w", encoding="ascii") as out:
        out.write(f"name: {name}\nadapters:\n  rail: {{{limits}wire_header: 26 B}}\n"
                  f"nodes:\n  - {{name: 'node[0-{nodes - 1}]', adapters: [{', '.join(['rail'] * len(rates))}]}}\n"
                  f"switches:\n  - {{name: switch, ports: {max(36, nodes * len(rates))}, latency: 150 ns}}\n"
                  f"link_defaults: {{latency: 25 ns, buffer: 32 KiB}}\nlinks:\n")
        for rail, rate in enumerate(rates):
            out.write(f"  - {{from: 'node[0-{nodes - 1}]:{rail}', to: switch, rate: {rate} Gb/s}}\n")
    return path


def listening(port):
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}", encoding="ascii") as rows:
            if any(row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "0A" for row in list(rows)[1:]):
                return True
    return False


def perftest(build, transport, size, count, where, rails=("softhca_0:1", "softhca_1:1")):
    """MB/s (1e6) of ucx_perftest's tag_bw between two nodes of the fabric `where`, real time; stock or mp."""
    if transport == "mp":
        env = environment(UCX_TLS="mp_rc", UCX_MP_RAILS=",".join(rails), LD_PRELOAD=f"{build}/lib/libuct_mp.so")
    else:
        env = environment(UCX_TLS="rc_v", UCX_NET_DEVICES=",".join(rails), UCX_MAX_RNDV_RAILS=str(len(rails)))
    port = random.randrange(10000, 30000)
    session = f"speed-{os.getpid()}-{port}"
    node = [[f"{build}/bin/softhca", "run", "--session", session, "--fabric", where, "--node", str(n), "--"] for n in (0, 1)]
    test = [f"{ROOT}/tests/judges/on-terminal", "ucx_perftest", "-p", str(port), "-t", "tag_bw", "-s", str(size),
            "-n", str(count), "-w", str(count // 10 + 1), "-f", "-v"]
    with subprocess.Popen([*node[0], *test], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            until = time.monotonic() + 30
            while not listening(port):
                if time.monotonic() > until or server.poll() is not None:
                    raise Failed("the server of ucx_perftest did not start")
                time.sleep(0.02)
            text = output([*node[1], *test, "127.0.0.1"], env, timeout=120)
            server.wait(timeout=30)
        finally:
            if server.poll() is None:
                server.kill()
    rows = [line.split(",") for line in text.splitlines() if re.match(r" *\d+,", line)]
    if not rows:
        raise Failed("ucx_perftest printed no result")
    return float(rows[-1][5]) * 1.048576


def in_turn(rounds, cases):
    """{name: median} of functions that are called in turn, so that a busy host is as hard for all."""
    found = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            found[name].append(case())
    return {name: statistics.median(values) for name, values in found.items()}
