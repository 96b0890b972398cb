#!/usr/bin/python3
"""Tries one and the same libuct_mp.so with other versions of UCX: ucx_info and ucx_perftest on the emulated adapter.

  tests/build/ucx_try.py --build build/release PREFIX...

A PREFIX is where `make install` of a version has put bin/ucx_info, bin/ucx_perftest and lib/ ("/usr": the installed one).
One line per version and operation; exit code 1 if one fails. Not part of the suite, which has one version only."""
import argparse
import os
import subprocess
import sys
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
UCT = [(test, layout) for test in ("am_lat", "am_bw") for layout in ("short", "bcopy", "zcopy")] + \
      [(test, layout) for test in ("put_lat", "put_bw") for layout in ("short", "bcopy", "zcopy")] + \
      [("get", layout) for layout in ("bcopy", "zcopy")] + \
      [(test, "") for test in ("add_lat", "add_mr", "fadd", "swap", "cswap")]
UCP = ["tag_lat", "tag_bw", "tag_sync_lat", "ucp_am_lat", "ucp_am_bw", "stream_lat", "stream_bw", "ucp_put_lat",
       "ucp_put_bw", "ucp_get", "ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap"]
SIZES = {"tag_bw": ["64", "1000000"], "ucp_am_bw": ["64", "1000000"], "ucp_put_bw": ["8", "1000000"],
         "ucp_get": ["8", "1000000"], "tag_lat": ["8", "20000"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release", help="folder of libuct_mp.so and softhca")
    parser.add_argument("--fabric", default="config/fabrics/two-rail.yaml")
    parser.add_argument("--only", default="", help="operations whose name contains this")
    parser.add_argument("--iterations", default="200")
    parser.add_argument("prefix", nargs="+")
    args = parser.parse_args()
    build = os.path.abspath(args.build)
    failed = sum(try_version(args, build, prefix, port) for port, prefix in
                 zip(range(14000, 30000, 500), args.prefix))
    return 1 if failed else 0


def try_version(args, build, prefix, port):
    env = dict(os.environ, LD_LIBRARY_PATH=os.path.join(prefix, "lib") if prefix != "/usr" else "",
               UCX_WARN_UNUSED_ENV_VARS="n", UCX_LOG_LEVEL="warn",
               LD_PRELOAD=os.path.join(build, "lib", "libuct_mp.so"))
    softhca = os.path.join(build, "bin", "softhca")

    def command(session, node, words):
        return [softhca, "run", "--session", session, "--fabric", args.fabric, "--node", str(node), "--"] + words

    tool = [os.path.join(SOURCE, "tests", "judges", "on-terminal"), os.path.join(prefix, "bin", "ucx_perftest")]

    def report(name, begin, good, said):
        noise = [line for line in said.splitlines() if "ERROR" in line or "WARN" in line]
        good = good and not noise
        print(f"{prefix}: {name:28} {'ok' if good else 'FAILED'} ({time.monotonic() - begin:.1f} s)", flush=True)
        if not good:
            print("\n".join((noise or said.splitlines())[-8:]), flush=True)
        return 0 if good else 1

    def run_pair(name, words):
        nonlocal port
        port += 1
        session = f"try{port}"
        begin = time.monotonic()
        server = subprocess.Popen(command(session, 0, tool + ["-p", str(port)] + words), env=env, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        client = None
        for _ in range(100):  # the server listens a little later
            client = subprocess.run(["timeout", "60"] + command(session, 1, tool + ["127.0.0.1", "-p", str(port)] + words),
                                    env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if client.returncode == 0 or "onnection refused" not in client.stdout:
                break
            time.sleep(0.3)
        try:
            said, _ = server.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            server.kill()
            said, _ = server.communicate()
        return report(name, begin, client.returncode == 0 and server.returncode == 0, client.stdout + said)

    failed = 0
    info = subprocess.run(command(f"try{port}", 0, [os.path.join(prefix, "bin", "ucx_info"), "-d", "-v"]), env=env,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    version = [line for line in info.stdout.splitlines() if "ersion" in line][:1]
    good = "Transport: mp_rc" in info.stdout and "Transport: mp_dc" in info.stdout and "ERROR" not in info.stdout
    print(f"{prefix}: ucx_info {version} {'ok' if good else 'FAILED'}", flush=True)
    failed += not good
    for transport in ("mp_rc", "mp_dc"):
        for test, layout in UCT:
            if args.only in test:
                words = ["-t", test, "-d", "mp0", "-x", transport, "-n", args.iterations, "-w", "20"]
                failed += run_pair(f"{transport} {test} {layout}", words + (["-D", layout] if layout else []))
    env["UCX_TLS"] = "mp_rc"
    for test in UCP:
        for size in SIZES.get(test, ["8"]):
            if args.only in test:
                failed += run_pair(f"ucp {test} {size}", ["-t", test, "-s", size, "-n", args.iterations, "-w", "20"])
    return failed


if __name__ == "__main__":
    sys.exit(main())
