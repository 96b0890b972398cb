"""Our transport under stock UCX and stock Open MPI: libuct_mp.so is preloaded, nothing else carries anything."""

import os
import re

from judge import Group, Skip, check
from judge_mpi import hpcc, mpi4py, netpipe
from judge_ucx import measure

group = Group()
TRANSPORTS = ("mp_rc", "mp_dc")


def preloaded(tls, **more):
    def env(session):
        library = os.path.join(session.build, "lib", "libuct_mp.so")
        if not os.path.exists(library):
            raise Skip("libuct_mp.so is not built: UCX's source is missing (cmake/install-deps)")
        return {"LD_PRELOAD": library, "UCX_TLS": tls, "UCX_LOG_LEVEL": "warn", **more}
    return env


# What UCX sees

def devices(session, transport):
    text = session.run(["ucx_info", "-d", "-t", transport], env=preloaded(transport)(session))
    parts = [part for part in text.split("Transport: ") if part.startswith(transport + "\n")]
    check(len(parts) == 1, f"{len(parts)} devices of {transport}")
    return text, parts[0]


def info(transport):
    def run(session):
        text, part = devices(session, transport)
        check("memory invalidation is supported" in text, "no memory invalidation")
        for pattern in (r"Device: mp0$", r"Type: network$", r"connection: to iface$", r"error handling: peer failure",
                        r"atomic_fadd: 32, 64 bit", r"atomic_cswap: 32, 64 bit", r"am_short: <= \d\d",
                        r"put_zcopy: ", r"get_zcopy: "):
            check(re.search(pattern, part, re.M), f"no /{pattern}/")
        bandwidth = re.search(r"bandwidth: ([\d.]+)/ppn \+ ([\d.]+) MB/sec", part)
        total = float(bandwidth[1]) + float(bandwidth[2])
        # Two rails of 100 Gb/s on the ideal fabric.
        check(total > (20000 if not session.modelled else 100), f"bandwidth {total} MB/s")
    return run


for transport in TRANSPORTS:
    group.add(info(transport), f"info_{transport}", alone=False)


@group.case(fabrics=("ideal",), alone=False)
def one_lane_for_everything(session):
    for transport in TRANSPORTS:
        text = session.run(["ucx_info", "-e", "-u", "tamrwe"], env=preloaded(transport)(session))
        lanes = re.findall(r"lane\[\d\]:\s+\d+:(\S+)\s.*->\s*\S+ (.*)$", text, re.M)
        check(len(lanes) == 1 and lanes[0][0] == f"{transport}/mp0.0", f"lanes {lanes}")
        for use in ("rma_bw", "amo", "am", "keepalive"):
            check(use in lanes[0][1], f"no {use}: {lanes[0][1]}")


SHARED = ("RAILS", "NUM_PATHS", "PATH_BITS", "CROSS_RAILS", "POLICY", "ATOMICS", "RCACHE", "FORK_INIT")
BOTH = ("SEG_SIZE", "MAX_INLINE", "TX_QUEUE_LEN", "TX_CQ_LEN", "RX_QUEUE_LEN", "TX_WINDOW", "TX_MAX_BUFS",
        "TX_SIGNAL_INTERVAL", "POLL_BATCH", "TIMEOUT", "RETRY_COUNT", "RNR_TIMEOUT", "MAX_RD_ATOMIC", "SL",
        "CONNECT_TIMEOUT")
DC = ("NUM_DCI", "DCI_POLICY")


@group.case(fabrics=("ideal",), alone=False)
def variables_are_shown_and_explained(session):
    text = session.run(["ucx_info", "-c", "-f"], env=preloaded("mp_rc")(session))
    names = [f"MP_{name}" for name in SHARED] + [f"MP_{t}_{name}" for t in ("RC", "DC") for name in BOTH] + \
        [f"MP_DC_{name}" for name in DC]
    for name in names:
        found = re.search(rf"((?:^#.*\n)+)^UCX_{name}=", text, re.M)
        check(found, f"UCX_{name} is not shown")
        check(len(found[1]) > 60, f"UCX_{name} is not explained")


WRONG = {
    "UCX_MP_RAILS": ("nonsense", "softhca_0:9"), "UCX_MP_NUM_PATHS": ("0", "33"), "UCX_MP_PATH_BITS": ("7", "200"),
    "UCX_MP_POLICY": ("nonsense", "bss:n_batch=0"), "UCX_MP_RC_SEG_SIZE": ("100",), "UCX_MP_RC_MAX_INLINE": ("1m",),
    "UCX_MP_RC_TX_WINDOW": ("100", "1048576"), "UCX_MP_RC_TX_QUEUE_LEN": ("1",), "UCX_MP_RC_TIMEOUT": ("1ns",),
    "UCX_MP_RC_RNR_TIMEOUT": ("1s",), "UCX_MP_RC_RETRY_COUNT": ("8",), "UCX_MP_RC_SL": ("16",),
    "UCX_MP_RC_TX_SIGNAL_INTERVAL": ("64",), "UCX_MP_RC_POLL_BATCH": ("0",), "UCX_MP_RC_TX_MAX_BUFS": ("auto",),
    "UCX_MP_RC_MAX_RD_ATOMIC": ("0",), "UCX_MP_RC_CONNECT_TIMEOUT": ("0s",),
}


@group.case(fabrics=("ideal",), alone=False)
def impossible_values_get_one_line(session):
    for name, values in WRONG.items():
        for value in values:
            text = session.run(["ucx_info", "-d", "-t", "mp_rc"], env=preloaded("mp_rc", **{name: value})(session))
            errors = [line for line in text.splitlines() if re.search(r"\b(ERROR|FATAL|WARN|Assertion)\b", line)]
            check(len(errors) == 1 and name in errors[0] and "allowed" in errors[0], f"{name}={value}: {errors}")
            check("failed to open" in text, f"{name}={value}: opened all the same")


@group.case(fabrics=("ideal",), alone=False)
def no_adapter_is_no_error(session):
    if os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
        raise Skip("this machine has adapters")
    env = preloaded("mp_rc,tcp")(session)
    program = session.start(["env", "LD_PRELOAD=" + env["LD_PRELOAD"], "ucx_info", "-d"], env=env)
    text = program.wait(30)
    check("Transport: mp_rc" not in text and "ERROR" not in text, "complains, or finds an adapter where there is none")


# ucx_perftest at UCT level

UCT_TESTS = (
    ("am_lat", "short", 8), ("am_bw", "short", 8), ("am_lat", "shortiov", 64), ("am_lat", "bcopy", 1024),
    ("am_bw", "bcopy", 8192), ("am_lat", "zcopy", 4096), ("am_bw", "zcopy", 8192), ("put_lat", "short", 8),
    ("put_bw", "short", 64), ("put_lat", "bcopy", 4096), ("put_bw", "bcopy", 8192), ("put_lat", "zcopy", 65536),
    ("put_bw", "zcopy", 1 << 20), ("get", "bcopy", 4096), ("get", "zcopy", 65536), ("get", "zcopy", 1 << 20),
    ("add_lat", "short", 8), ("add_mr", "short", 4), ("fadd", "short", 8), ("fadd", "short", 4), ("swap", "short", 8),
    ("swap", "short", 4), ("cswap", "short", 8), ("cswap", "short", 4))

for transport in TRANSPORTS:
    for test, layout, size in UCT_TESTS:
        # The tool's server waits for the last of many writes to one address. UCT orders writes by fences only, and two
        # paths overtake each other: the last one need not be the one that stays.
        more = {"UCX_MP_POLICY": "binding"} if (test, layout) == ("put_bw", "bcopy") else {}
        group.add(measure("-d", "mp0", "-x", transport, "-t", test, "-D", layout, "-s", str(size),
                          env=preloaded(transport, **more), iterations=500 if size < 1 << 16 else 30),
                  f"uct_{transport}_{test}_{layout}_{size}")

# ucx_perftest at UCP level

UCP_TESTS = (
    ("tag_lat", 8), ("tag_bw", 8), ("tag_sync_lat", 8), ("tag_bw", 4096), ("tag_bw", 65536), ("tag_bw", 1 << 20),
    ("ucp_am_lat", 8), ("ucp_am_bw", 65536), ("ucp_am_bw", 1 << 20), ("stream_lat", 8), ("stream_bw", 65536),
    ("ucp_put_lat", 8), ("ucp_put_bw", 65536), ("ucp_get", 8), ("ucp_get", 65536), ("ucp_add", 8), ("ucp_fadd", 4),
    ("ucp_swap", 8), ("ucp_cswap", 4))


def ucp(name, transport, test, size, *options, threads=1, **more):
    group.add(measure("-t", test, "-s", str(size), *options, env=preloaded(transport, **more), threads=threads,
                      iterations=300 if size < 1 << 16 else 30), f"ucp_{transport}_{name}_{size}")


for transport in TRANSPORTS:
    for test, size in UCP_TESTS:
        ucp(test, transport, test, size)
    for test, size in (("tag_bw", 1 << 20), ("ucp_am_bw", 65536), ("ucp_put_bw", 65536), ("ucp_cswap", 8)):
        ucp(test + "_protocols", transport, test, size, UCX_PROTO_ENABLE="y")
    for test, size in (("tag_lat", 8), ("tag_bw", 1 << 20), ("ucp_get", 65536)):
        ucp(test + "_error_mode", transport, test, size, "-e")
    for test, size in (("tag_lat", 8), ("tag_bw", 4096), ("tag_lat", 65536), ("stream_lat", 8)):
        ucp(test + "_sleep", transport, test, size, "-E", "sleep")
    for test, size in (("tag_lat", 8), ("tag_bw", 4096)):
        ucp(test + "_2_threads", transport, test, size, "-T", "2", "-M", "multi", threads=2)


def loop_back(transport):
    def run(session):
        for test, size in (("tag_lat", 8), ("tag_bw", 1 << 20), ("ucp_get", 65536), ("ucp_fadd", 8)):
            text = session.run(["ucx_perftest", "-l", "-t", test, "-s", str(size), "-n", "100", "-w", "10", "-f", "-v"],
                               env=preloaded(transport)(session))
            check(re.search(r"^\s*100,", text, re.M), f"{test}: no line of results")
    return run


for transport in TRANSPORTS:
    group.add(loop_back(transport), f"loop_back_{transport}")

# Open MPI

for transport in TRANSPORTS:
    group.add(hpcc(4, 2, 2, env=preloaded(transport)), f"hpcc_4_{transport}", seconds=120)
    group.add(netpipe("-i", integrity=True, env=preloaded(transport)), f"netpipe_integrity_{transport}", seconds=60)
group.add(hpcc(2, 1, 2, env=preloaded("mp_rc,mp_dc")), "hpcc_2_both", fabrics=("ideal",), seconds=120)
group.add(mpi4py(2, env=preloaded("mp_rc")), "mpi4py_2_mp_rc", fabrics=("ideal",), seconds=400)
group.add(mpi4py(4, env=preloaded("mp_dc")), "mpi4py_4_mp_dc", fabrics=("ideal",), seconds=400)
