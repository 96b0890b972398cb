#!/usr/bin/python3
"""A short run of every case of bench_sim_failover: nothing is lost, twice or changed, and the counters are right. No times but
one: handshakes don't stop progress.

    check.py BUILD [case ...]
"""
import json
import subprocess
import sys

PORT = ["--fault", "port down 0:softhca_0:1", "--repair", "port up 0:softhca_0:1"]
SILENT = ["--fault", "drop 100% 0:softhca_0:1", "--repair", "drop 0% 0:softhca_0:1", "--watch", "1"]
ALL = ["--fault", "drop 100% all", "--repair", "drop 0% all"]


def run(case, transport, *options):
    command = [f"{sys.argv[1]}/bin/bench_sim_failover", case, "--transport", transport, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    result = json.loads(done.stdout)

    def expect(what, good):
        if not good:
            raise SystemExit(f"{' '.join(command)}: {what}\n{done.stdout}")
    expect("something was lost, twice, changed or failed", result["mistakes"] == 0)
    return result, expect


def fault(transport):
    for op, kind in (("am", PORT), ("put", PORT), ("get", PORT), ("put", SILENT)):
        ends = ["--from", "1", "--to", "0"] if op == "get" else []
        r, expect = run("fault", transport, "--op", op, "--warm-up", "5", "--down", "15", "--after", "30", "--window", "16", *kind,
                        *ends)
        expect("no path has failed", r["path_failures"] >= 1)
        expect("both sides give up one path each, once", r["path_failures"] <= 2)
        expect("what has failed returns", r["path_returns"] == r["path_failures"])
        expect("more was sent again than was under way", r["bytes_again"] <= r["in_flight"])


def steady(transport):
    r, expect = run("steady", transport, "--after", "10")
    expect("nothing was delivered", r["rate"] > 0)


def peers(transport):
    r, expect = run("peers", transport, "--peers", "60")
    sides = 2 if transport == "mp_rc" else 1 # mp_dc: their side is told by a datagram, which may be lost
    expect("every peer's path fails once", 60 * sides <= r["path_failures"] <= 120)
    expect("and returns", r["path_returns"] == r["path_failures"] and r["repaired_us"] > 0 and r["settled_us"] > 0)


def connect(transport):
    for more in ([], ["--inward"], ["--idle"]):
        r, expect = run("connect", transport, "--peers", "40", *more)
        expect("all are connected", r["connected_us"] > 0)
        expect("progress stands still", max(r["stall_us"], r["peer_stall_us"]) <= 1000)


def receiver(transport):
    for more in ([], ["--stopped"]):
        r, expect = run("receiver", transport, "--op", "am", "--seconds", "0.3", "--poll", "200", *more)
        expect("a slow receiver is not a fault", r["path_failures"] == 0)


def partition(transport):
    r, expect = run("partition", transport, "--count", "20", "--seconds", "0.3", "--poll", "100", *ALL)
    expect("the job ends", r["completed"] == 1)


def flaps(transport):
    r, expect = run("flaps", transport, "--count", "40", "--down", "1", "--after", "4", "--hold-down", "0", "--warm-up", "5", *PORT)
    first, *_, last = r["looks"]
    expect("the job ends", r["completed"] == 1)
    expect("queue pairs leak", last["queue_pairs"] <= first["queue_pairs"])
    expect("every flap is a failure and a return", r["path_returns"] == r["path_failures"] and r["path_failures"] >= 40)


CASES = {"fault": fault, "steady": steady, "peers": peers, "connect": connect, "receiver": receiver, "partition": partition, "flaps": flaps}
for name in sys.argv[2:] or CASES:
    for transport_name in ("mp_rc", "mp_dc"):
        CASES[name](transport_name)
