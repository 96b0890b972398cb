"""Our transport under stock UCX and stock Open MPI: libuct_mp.so is preloaded, nothing else carries anything.

ucx_perftest runs its tests from a batch file, so that one pair of processes does all sizes and layouts of a kind. Its
numbers are not judged here, only that every test comes to its end, silently; contents are checked by UCX's examples, by
NetPIPE and hpcc, and by tests/mpi.
"""

import os
import re
import time

from judge import ON_TERMINAL, SOURCE, Group, Skip, check, free_port, listening, preloaded
from judge_mpi import hpcc, mpi4py, netpipe, series
from judge_ucx import complaints, numbers

group = Group()

TRANSPORTS = ("mp_rc", "mp_dc")
EVERYWHERE = ("ideal", "modelled", "four-path")


# What UCX sees

def silent(texts):
    for text in texts:
        logged = [line for line in complaints(text) if re.match(r"\[\d+\.\d+\] |\[\w+:\d+", line)]
        check(not logged, "UCX complains: " + "; ".join(logged[:3]))


def ucx_info(session, *options, tls="mp_rc", **env):
    text = session.run(["ucx_info", *options], env=preloaded(tls, **env))
    silent([text])
    return text


def info(transport):
    def run(session):
        text = ucx_info(session, "-d", "-t", transport, tls=transport)
        check(re.findall(r"Transport: (\S+)", text) == [transport], f"not one device of {transport}")
        for pattern in (r"Device: mp0$", r"Type: network$", r"connection: to iface$", r"error handling: peer failure",
                        r"put_short: <= \d", r"put_zcopy: <= \d", r"get_bcopy: <= \d", r"get_zcopy: <= \d",
                        r"am_short: <= \d", r"am_bcopy: <= \d", r"am_zcopy: <= \d", r"atomic_add: 32, 64 bit",
                        r"atomic_fadd: 32, 64 bit", r"atomic_fxor: 32, 64 bit", r"atomic_cswap: 32, 64 bit",
                        r"memory invalidation is supported"):
            check(re.search(pattern, text, re.M), f"no /{pattern}/")
        bandwidth = re.search(r"bandwidth: ([\d.]+)/ppn \+ ([\d.]+) MB/sec", text)
        total = float(bandwidth[1]) + float(bandwidth[2])  # MiB/s; headers may be taken off
        most = 2 * (8e9 if session.modelled else 100e9) / 8 / 2**20  # two rails
        check(0.9 * most <= total <= 1.001 * most, f"bandwidth {total} MB/s of {most}")
    return run


for transport in TRANSPORTS:
    group.add(info(transport), f"info_{transport}", EVERYWHERE, alone=False)


@group.case(fabrics=("ideal",), alone=False)
def one_lane_for_everything(session):
    for transport in TRANSPORTS:
        text = ucx_info(session, "-e", "-u", "tamrwe", tls=transport)
        lanes = re.findall(r"lane\[\d\]:\s+\d+:(\S+)\s.*->\s*\S+ (.*)$", text, re.M)
        check(len(lanes) == 1 and lanes[0][0] == f"{transport}/mp0.0", f"lanes {lanes}")
        for use in ("rma_bw", "amo", "am", "keepalive"):
            check(use in lanes[0][1], f"no {use}: {lanes[0][1]}")


FOUR_RAILS = ",".join(f"softhca_{adapter}:{port}" for adapter in (0, 1) for port in (1, 2))


@group.case(fabrics=(*EVERYWHERE, "sixteen-rail"), alone=False)
def rendezvous_where_copies_cost_more(session):
    """Without any variable UCP reads large messages from their sender, by its old protocols and by its new ones."""
    for transport in TRANSPORTS:
        for rails in ("all", "softhca_0:1") if session.fabric != "sixteen-rail" else ("all", FOUR_RAILS):
            for new in "ny":
                text = ucx_info(session, "-e", "-u", "t", "-P", "inter", tls=transport, UCX_PROTO_ENABLE=new, UCX_MP_RAILS=rails)
                # The one table of UCX 1.13 is the last of several since.
                found = (re.search(r"tagged message by ucp_tag_send\*(?:\(\))? from host(?s:.*?)\| +(\d+)\.\.inf \|.* rendezvous",
                                   text)
                         if new == "y" else re.search(r"tag_send: .*\.\.(\d+)\.\.<rndv>\.\.\(inf\)", text))
                what = f"{transport}, rails {rails}, UCX_PROTO_ENABLE={new}"
                check(found, f"{what}: no rendezvous")
                check(8192 < int(found[1]) <= 32768, f"{what}: rendezvous from {found[1]} bytes on")


SHARED = ("RAILS", "PKEY", "NUM_PATHS", "PATH_BITS", "CROSS_RAILS", "POLICY", "ATOMICS", "RCACHE", "FORK_INIT",
          "READ_BACK", "RECOVERY", "RECOVERY_THREAD", "PACKET_NUMBERS", "WATCH_INTERVAL", "HOLD_DOWN", "REOPEN_INTERVAL",
          "PARTITION_TIMEOUT")
BOTH = ("SEG_SIZE", "MAX_INLINE", "TX_QUEUE_LEN", "TX_CQ_LEN", "RX_QUEUE_LEN", "TX_WINDOW", "TX_MAX_BUFS",
        "TX_SIGNAL_INTERVAL", "POLL_BATCH", "TIMEOUT", "RETRY_COUNT", "RNR_TIMEOUT", "MAX_RD_ATOMIC", "SL",
        "CONNECT_TIMEOUT")
DC = ("NUM_DCI", "NUM_DCT", "DCI_POLICY")


@group.case(fabrics=("ideal",), alone=False)
def variables_are_shown_and_explained(session):
    text = ucx_info(session, "-c", "-f")
    names = [f"MP_{name}" for name in SHARED] + [f"MP_{t}_{name}" for t in ("RC", "DC") for name in BOTH] + \
        [f"MP_DC_{name}" for name in DC]
    shown = dict(re.findall(r"^(UCX_MP_\w+)=(.*)$", text, re.M))
    for name in names:
        check(f"UCX_{name}" in shown, f"UCX_{name} is not shown")
    for name in shown:  # those of UCX's own tables, too
        found = re.search(rf"((?:^#.*\n)+)^{name}=", text, re.M)
        check(found and len(found[1]) > 60 and "syntax:" in found[1], f"{name} is not explained")
        if name.endswith("MP_POLICY"):
            for policy in POLICIES:
                check(re.search(rf"\b{policy}\b", found[1]), f"the help of {name} does not mention {policy}")
    again = dict(re.findall(r"^(UCX_MP_\w+)=(.*)$", ucx_info(session, "-c", **shown), re.M))
    check(again == shown, "what is shown is not read back as it is: " +
          ", ".join(f"{name}={value} becomes {again.get(name)}" for name, value in shown.items()
                    if again.get(name) != value))


POLICIES = ("binding", "round_robin", "weighted_rr", "window_rr", "even", "weighted", "adaptive", "bss", "epc",
            "load_balanced", "spray")
# Checked by the transport.
WRONG = {
    "MP_RAILS": ("nonsense", "softhca_7:1", "softhca_0:9", "softhca_0:1,softhca_0:1"), "MP_NUM_PATHS": ("0", "33", "-1"),
    "MP_PATH_BITS": ("7", "200", "1,y"), "MP_HOLD_DOWN": ("2m",), "MP_REOPEN_INTERVAL": ("0",), "MP_PARTITION_TIMEOUT": ("1000000m",), "MP_POLICY": ("nonsense", "bss:n_batch=0", "bss:n_batch=9"), "MP_RC_SEG_SIZE": ("100", "1g"),
    "MP_RC_MAX_INLINE": ("1m",), "MP_RC_TX_WINDOW": ("0", "15", "1048576"), "MP_RC_TX_QUEUE_LEN": ("1",),
    "MP_RC_TX_CQ_LEN": ("1",), "MP_RC_RX_QUEUE_LEN": ("0",), "MP_RC_TIMEOUT": ("1ns", "1000000s"),
    "MP_RC_RNR_TIMEOUT": ("1s",), "MP_RC_RETRY_COUNT": ("8",), "MP_RC_SL": ("16",),
    "MP_RC_TX_SIGNAL_INTERVAL": ("65",), "MP_RC_POLL_BATCH": ("0",), "MP_RC_TX_MAX_BUFS": ("auto",),
    "MP_RC_MAX_RD_ATOMIC": ("0",), "MP_RC_CONNECT_TIMEOUT": ("0s",), "MP_DC_NUM_DCI": ("0", "65"), "MP_DC_NUM_DCT": ("0", "65"),
    "MP_DC_MAX_CONN": ("-1", "0"),
}
# Refused by UCX's own parser, which leaves the prefix of a name out.
UNREADABLE = {"MP_NUM_PATHS": "x", "MP_ATOMICS": "nonsense", "MP_READ_BACK": "never", "MP_CROSS_RAILS": "maybe",
              "MP_RC_SEG_SIZE": "many", "MP_RC_TIMEOUT": "3 hours", "MP_DC_DCI_POLICY": "nonsense"}


@group.case(fabrics=("ideal",), seconds=90, alone=False)
def impossible_values_get_one_line(session):
    """A wrong value makes the open fail, with one line that names the variable and says what is allowed."""
    tries = [(name, value, True) for name, values in WRONG.items() for value in values]
    tries += [(name, value, False) for name, value in UNREADABLE.items()]
    for name, value, ours in tries:
        transport = "mp_dc" if "_DC_" in name else "mp_rc"
        text = session.run(["ucx_info", "-d", "-t", transport], env=preloaded(transport, **{"UCX_" + name: value}))
        what = f"UCX_{name}={value}"
        check("Transport: " not in text or "failed to open" in text, f"{what}: opened all the same")
        # What UCX adds is its own affair.
        errors = [line for line in complaints(text) if not re.search(r"Failed to read (MD|iface) config", line)]
        check(len(errors) == 1, f"{what}: {len(errors)} lines: {errors}")
        named = "UCX_" + name if ours else re.sub(r"^MP_(RC_|DC_)?", "", name)
        check(named in errors[0] and ("allowed" if ours else "Expected") in errors[0], f"{what}: {errors[0]}")


@group.case(fabrics=("ideal",), alone=False)
def misspelt_variable(session):
    text = session.run(["ucx_info", "-e", "-u", "t"], env=preloaded("mp_rc", UCX_MP_RC_TX_WINDOWS="64"))
    check(re.search(r"unused .*UCX_MP_RC_TX_WINDOWS", text), "UCX does not warn of UCX_MP_RC_TX_WINDOWS")


@group.case(fabrics=("ideal",), alone=False)
def no_adapter_is_no_error(session):
    if os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
        raise Skip("this machine has adapters")
    env = preloaded("mp_rc,tcp")(session)
    program = session.start(["env", "LD_PRELOAD=" + env["LD_PRELOAD"], "ucx_info", "-d"], env=env)
    text = program.wait(30)
    check("Transport: mp_rc" not in text and "ERROR" not in text, "complains, or finds an adapter where there is none")


def batch(*tests, options=(), tls="mp_rc", env=None, warm_up=10):
    """One case: tests are (test, size list, iterations, more options); they run one after the other."""
    def run(session):
        with open(os.path.join(session.folder, "batch"), "w", encoding="ascii") as out:
            for number, (test, size, iterations, *more) in enumerate(tests):
                words = [f"{number}:{test}", "-t", test, "-n", str(iterations), "-w", str(warm_up), *more]
                out.write(" ".join(words + (["-s", str(size)] if size else [])) + "\n")
        server, client = session.pair([ON_TERMINAL, "ucx_perftest", *options, "-b", "batch"], client=("-f", "-v"),
                                      env=preloaded(tls, **(env or {})), seconds=55)
        silent((server, client))
        lines = client.splitlines()
        for number, (test, size, iterations, *more) in enumerate(tests):
            what = f"{test} -s {size} {' '.join(more)}"
            row = [line for line in lines if line.startswith(f"{number}:{test},")]
            check(len(row) == 1, f"{len(row)} results of {what}")
            row = numbers(row[0].split(",", 1)[1])
            check(row[0] >= iterations, f"{row[0]:.0f} iterations of {iterations} in {what}")
            # Overall figures: those since the last report are 0 and inf where a report had just been made.
            check(row[3] > 0 and row[-1] > 0, f"impossible numbers of {what}: {row}")
    return run


# UCT: every test with every data layout, from the smallest to the largest that the transport offers.
# The tool's server waits for the last of many writes to one address: it relies on an order that UCT does not promise, and
# that writes without a completion keep here (uct_mp/channel: lane_of_puts). With zcopy all of them read the same buffer,
# which has the last value by then.
UCT_TESTS = {
    "am": [(test, size, n, "-D", layout) for test in ("am_lat", "am_bw") for layout, size, n in (
        ("short", 8, 200), ("short", 240, 200), ("shortiov", 64, 200), ("bcopy", 8, 200), ("bcopy", 8192, 100),
        ("zcopy", 16, 200), ("zcopy", 8192, 100))],
    "put": [("put_lat", size, n, "-D", layout) for layout, size, n in (
        ("short", 8, 200), ("short", 256, 200), ("bcopy", 8, 200), ("bcopy", 8192, 100), ("zcopy", 1, 200),
        ("zcopy", 65536, 50), ("zcopy", 1 << 20, 10))] +
           [("put_bw", size, n, "-D", "zcopy") for size, n in ((1, 200), (65536, 50), (1 << 20, 10))] +
           [("put_bw", size, n, "-D", layout) for layout, size, n in (
        ("short", 8, 200), ("short", 256, 200), ("bcopy", 8, 200), ("bcopy", 8192, 1000))],
    "get": [("get", size, n, "-D", layout) for layout, size, n in (
        ("bcopy", 8, 200), ("bcopy", 8192, 100), ("zcopy", 1, 200), ("zcopy", 65536, 50), ("zcopy", 1 << 20, 10))],
    "atomics": [(test, size, 100, "-D", "short") for test in ("add_lat", "add_mr", "fadd", "swap", "cswap")
                for size in (4, 8)],
}
for transport in TRANSPORTS:
    for kind, tests in UCT_TESTS.items():
        group.add(batch(*tests, options=("-d", "mp0", "-x", transport), tls=transport), f"uct_{transport}_{kind}",
                  EVERYWHERE, seconds=60)

# UCP: the protocols on top. The sizes are below, around and above the thresholds of eager and rendezvous.
SIZES = ((1, 200), (2000, 200), (16384, 50), (1 << 20, 10))
UCP_TESTS = {
    "tag": [(test, size, n) for test in ("tag_lat", "tag_bw", "tag_sync_lat", "tag_sync_bw") for size, n in SIZES] +
           [("tag_lat", 4096, 100, "-U"), ("tag_bw", 65536, 20, "-C"), ("tag_bw", 1 << 22, 5)],
    "stream": [(test, size, n) for test in ("stream_lat", "stream_bw") for size, n in SIZES] +
              [("stream_bw", 4096, 100, "-r", "recv_data")],
    "am": [(test, size, n) for test in ("ucp_am_lat", "ucp_am_bw") for size, n in SIZES] +
          [("ucp_am_lat", 1000, 100, "-H", "64")],
    "rma": [(test, size, n) for test in ("ucp_put_lat", "ucp_put_bw", "ucp_get") for size, n in SIZES] +
           [("ucp_put_bw", 65536, 20, "-z")],
    "atomics": [(test, size, 100) for test in ("ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap") for size in (4, 8)],
}


def ucp(name, transport, tests, *options, fabrics=("ideal", "four-path"), **env):
    wires = "both" if "," in transport else transport
    group.add(batch(*tests, options=options, tls=transport, env=env), f"ucp_{wires}_{name}", fabrics, seconds=60)


for transport in TRANSPORTS:
    for kind, tests in UCP_TESTS.items():
        ucp(kind, transport, tests)
        ucp(kind + "_protocols", transport, tests, fabrics=("modelled",), UCX_PROTO_ENABLE="y")
    # No one-sided operations: ucx_perftest's server then sleeps for good, over stock rc_verbs as well.
    ucp("sleep", transport, [("tag_lat", 8, 200), ("tag_bw", 4096, 200), ("tag_lat", 65536, 20),
                             ("tag_bw", 1 << 20, 10), ("ucp_am_lat", 8, 100), ("stream_lat", 8, 100)], "-E", "sleep")
    ucp("2_threads", transport, [("tag_lat", 8, 200), ("tag_bw", 4096, 200), ("tag_bw", 1 << 20, 10)],
        "-T", "2", "-M", "multi")
    ucp("error_mode", transport, [("tag_lat", 8, 200), ("tag_bw", 65536, 20), ("tag_bw", 1 << 20, 10),
                                  ("ucp_get", 65536, 50)], "-e")
    ucp("iov", transport, [("tag_bw", None, 50), ("tag_lat", None, 50)], "-D", "iov,iov", "-s", "1024,8192,64",
        fabrics=("ideal",))
for scheme in ("put_zcopy", "get_zcopy", "am"):
    ucp(f"rendezvous_{scheme}", "mp_rc,mp_dc", [("tag_bw", 65536, 50), ("tag_bw", 1 << 22, 5), ("tag_lat", 300000, 20)],
        UCX_RNDV_SCHEME=scheme, UCX_RNDV_THRESH="32k")


def loop_back(transport):
    def run(session):
        for test, size in (("tag_lat", 8), ("tag_bw", 1 << 20), ("ucp_get", 65536), ("ucp_fadd", 8)):
            text = session.run([ON_TERMINAL, "ucx_perftest", "-l", "-t", test, "-s", str(size), "-n", "100", "-w", "10", "-f", "-v"],
                               env=preloaded(transport))
            check(re.search(r"^\s*100,", text, re.M), f"{test}: no line of results")
    return run


for transport in TRANSPORTS:
    group.add(loop_back(transport), f"loop_back_{transport}")

# Options that change what moves the data

def with_option(transport, **option):
    return batch(("am_lat", 8, 50, "-D", "short"), ("am_bw", 4096, 100, "-D", "bcopy"),
                 ("put_bw", 1 << 18, 20, "-D", "zcopy"), ("get", 1 << 18, 20, "-D", "zcopy"),
                 options=("-d", "mp0", "-x", transport), tls=transport, env=option)


for policy in POLICIES:
    group.add(with_option("mp_rc", UCX_MP_POLICY=policy), f"policy_{policy}", ("four-path",))
group.add(with_option("mp_rc", UCX_MP_RAILS="softhca_1:1"), "one_rail", ("four-path",))
group.add(with_option("mp_rc", UCX_MP_PATH_BITS="1,3"), "path_bits", ("four-path",))
group.add(with_option("mp_rc", UCX_MP_NUM_PATHS="8"), "more_paths_than_routes", ("modelled",))
group.add(with_option("mp_rc", UCX_MP_CROSS_RAILS="y"), "cross_rails", ("ideal", "modelled"))
group.add(with_option("mp_rc", UCX_MP_SPLIT_READS="y"), "split_reads", ("four-path",))
group.add(batch(("fadd", 8, 100), ("cswap", 8, 100), ("add_mr", 8, 100), options=("-d", "mp0", "-x", "mp_rc"),
                env={"UCX_MP_ATOMICS": "adapter"}), "atomics_by_adapter", seconds=60)
for policy in ("least", "quota"):
    group.add(with_option("mp_dc", UCX_MP_DC_DCI_POLICY=policy, UCX_MP_DC_NUM_DCI="2"), f"dci_{policy}", ("modelled",))

# UCX's own examples, built by tests/judges/CMakeLists.txt, unchanged.
def example(session, name):
    path = os.path.join(session.build, "bin", "ucx_examples", name)
    if not os.path.exists(path):
        raise Skip(f"{name} was not built (cmake/install-deps)")
    return path


def letters(count):
    """What the examples send as a string of `count` bytes."""
    return ("ABCDEFGHIJKLMNOPQRSTUVWXYZ" * (count // 26 + 1))[:count - 1]


def uct_hello(transport):
    def run(session):
        for layout, size in (("-i", 16), ("-b", 16), ("-b", 8000), ("-z", 8000)):
            argv = [example(session, "uct_hello_world"), "-d", "mp0", "-t", transport, layout, "-s", str(size)]
            texts = session.pair(argv, client=("-n",), env=preloaded(transport))
            check(all(f"Using {transport}/mp0" in text for text in texts), f"not over {transport}/mp0")
            check(re.search(rf"^\[callback\] \S+ sent {letters(size)} \({size} bytes\)$", "\n".join(texts), re.M),
                  f"{layout} {size}: what came is not what was sent")
    return run


def ucp_hello(transport):
    def run(session):
        for options, size in (((), 16), (("-w",), 1000), (("-f",), 20000), (("-b",), 100), ((), 1 << 20)):
            argv = [example(session, "ucp_hello_world"), *options, "-s", str(size)]
            _, client = session.pair(argv, client=("-n",), env=preloaded(transport))
            check(letters(size) in client, f"{options} {size}: what came is not what was sent")
    return run


for transport in TRANSPORTS:
    group.add(uct_hello(transport), f"example_uct_hello_world_{transport}", ("ideal", "four-path"))
    group.add(ucp_hello(transport), f"example_ucp_hello_world_{transport}", ("ideal", "four-path"))


def ucp_hello_killed(transport, how):
    """One side kills itself (which one and when: `how`), and the other has to learn of it, not to hang: from its send
    (recv), from its keepalive while it waits for a message (send), or for nothing (keepalive). (The last two are not
    noticed over stock rc_verbs on this adapter.)"""
    def run(session):
        argv = [example(session, "ucp_hello_world"), "-e", how]
        # Nobody else is on the dead one's node, so it looks like a partition.
        options = {"UCX_KEEPALIVE_INTERVAL": "1s", "UCX_MP_PARTITION_TIMEOUT": "1s"}
        # recv: the client kills itself when its first message has been sent. The server reads that (by UCX 1.18's own choice the
        # client would write it, and be done before it has left): the emulated adapter dies with its process, and what it had
        # not sent yet nobody would ever hear of.
        if how == "recv":
            options["UCX_RNDV_SCHEME"] = "get_zcopy"
        env = preloaded(transport, **options)
        clients_env = preloaded(transport, **options, UCX_RNDV_THRESH="0") if how == "recv" else env
        port = free_port()
        server = session.start([*argv, "-p", str(port)], session.places[0], env)
        end = time.monotonic() + 10
        while not listening(port):
            check(server.running() and time.monotonic() < end, "the server does not listen")
            time.sleep(0.01)
        client = session.start([*argv, "-p", str(port), "-n", "127.0.0.1"], session.places[1], clients_env)
        killed, left = (server, client) if how == "send" else (client, server)
        killed.wait(20, 137)
        text = left.wait(90, code=None)
        check(left.process.returncode in (0, 255), f"exit code {left.process.returncode}") # 255: the example gives up
        check("failure handler called with status -80 (Endpoint timeout)" in text, "the peer's death is not noticed")
        check(text.count("failure handler called") == 1, "noticed more than once")
        told = [line for line in complaints(text) if not re.search(r"no path to .* is left|unreachable for ", line)]
        check(not told, "UCX complains: " + "; ".join(told[:3]))
    return run


for transport in TRANSPORTS:
    for how in ("recv", "send", "keepalive"):
        group.add(ucp_hello_killed(transport, how), f"example_ucp_hello_world_killed_{how}_{transport}",
                  ("ideal", "four-path"), seconds=120)


def client_server(session, kind):
    """Whether the server got the client's messages; False if the client had closed before it read them."""
    port = free_port()
    # The server never ends, so its output must not wait in a buffer.
    argv = ["stdbuf", "-oL", example(session, "ucp_client_server"), "-p", str(port), "-c", kind, "-i", "20", "-s",
            "3000"]
    env = preloaded("mp_rc,tcp", UCX_LOG_LEVEL="info")
    server = session.start(argv, session.places[0], env)
    server.wait_for("server is listening", 10)
    program = session.start([*argv, "-a", "127.0.0.1"], session.places[1], env)
    client = program.wait(30, None)
    cut_off = program.process.returncode != 0 and re.search("#(19|20)$", client, re.M) and re.search(
        "Connection reset by remote peer", client)
    check(cut_off or program.process.returncode == 0, f"{kind}: the client failed: {program}")
    check(re.search(rf"cfg.*{kind}\(mp_rc/mp0\)", client), f"{kind}: the messages do not go over mp_rc")
    received = r"Server: iteration #20(?s:.*?)-------\n\n([A-Z]+)\.\n"
    server.wait_for(f"{received}|error handling callback", 10)
    time.sleep(0.2)  # with -c am the server may wait for good
    found = re.search(received, server.output())
    server.stop()
    check(found is None or found[1] == letters(3000), f"{kind}: what came is not what was sent")
    return found is not None and not cut_off


@group.case(fabrics=("ideal", "four-path"), seconds=60)
def example_ucp_client_server(session):
    """Connects by IP address, which takes a connection manager. UCX's bind to the names of real devices (eth0,
    mlx5_0:1), never to mp0, so with mp_rc alone the client's data find no lane ("Destination is unreachable"); with tcp
    beside it the tcp manager carries the exchange of addresses and the messages go over mp_rc.
    The client closes by force when all is sent, which cuts its last messages off, over stock rc_verbs, too: now and then
    with -c stream, always with -c am where links cost something. So only -c tag, and one try of several must do."""
    check(any(client_server(session, "tag") for _ in range(6)), "the server never gets all messages")


# Open MPI. NetPIPE is for two ranks (with four, NPopenmpi 3.7.2 hangs over stock rc_verbs, too).
for ranks, tls, fabric, long in ((2, "mp_dc", "four-path", False), (4, "mp_rc", "four-path", False),
                                 (8, "mp_rc,mp_dc", "four-path", False), (2, "mp_rc,mp_dc", "ideal", True),
                                 (4, "mp_dc", "modelled", True), (8, "mp_dc", "ideal", True)):
    rows = 1 if ranks == 2 else 2
    group.add(hpcc(ranks, rows, ranks // rows, env=preloaded(tls)), f"hpcc_{ranks}_" + ("both" if "," in tls else tls),
              (fabric,), seconds=260, long=long)
for transport in TRANSPORTS:
    group.add(netpipe("-i", integrity=True, env=preloaded(transport)), f"netpipe_integrity_{transport}", EVERYWHERE,
              seconds=60)
    group.add(netpipe("-2", "-a", integrity=False, env=preloaded(transport)), f"netpipe_both_ways_{transport}",
              ("four-path",), seconds=60)
group.add(netpipe("-i", "-a", integrity=True, env=preloaded("mp_rc,mp_dc")), "netpipe_integrity_async_both",
          ("four-path",), seconds=60)


@group.case(fabrics=("ideal", "four-path"), seconds=60)
def mpirun_mp(session):
    """The short command line: parameter file and wrapper of config/openmpi. With several programs, where Open MPI can: the
    launcher of 5.0.7 crashes with them, also without us (mpirun -n 1 hostname : -n 1 hostname)."""
    def environment(session):
        env = preloaded("", UCX_LOG_LEVEL="info")(session)
        del env["UCX_TLS"]
        return {**env, "LD_PRELOAD": "", "UCT_MP_LIBRARY": env["LD_PRELOAD"]}
    rank = ["NPopenmpi", "-l", "1", "-u", "4096", "-n", "3", "-i"]
    ranks = ["-n", "2", *rank] if series() >= 5 else ["-n", "1", *rank, ":", "-n", "1", *rank]
    options = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    text = session.run([os.path.join(SOURCE, "config", "openmpi", "mpirun-mp"), *options, *ranks], env=environment,
                       seconds=50)
    check(len(re.findall(r"cfg.*tag\(mp_dc/mp0\)", text)) >= 2, "the ranks do not talk over mp_dc, which adapts")
    check("Integrity check passed" in text and "Integrity check failed" not in text, "integrity check")


group.add(mpi4py(2, env=preloaded("mp_rc")), "mpi4py_2_mp_rc", fabrics=("four-path",), seconds=400)
group.add(mpi4py(4, env=preloaded("mp_dc")), "mpi4py_4_mp_dc", fabrics=("ideal",), seconds=400, long=True)
