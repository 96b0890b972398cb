"""The multi-path transport libuct_mp.so under UCX's own programs: ucx_perftest, ucx_info and the shipped examples.

ucx_perftest runs its tests from a batch file, so that one pair of processes does all sizes and layouts of a kind. Its
numbers are not judged here, only that every test comes to its end, silently; contents are checked by the examples, by
NetPIPE and hpcc (judge_mpi.py) and by tests/mpi.
"""

import os
import re

from judge import MP_LIBRARY, Group, Skip, check, free_port
from judge_ucx import complaints, numbers

group = Group()

WIRES = ("mp_rc", "mp_dc")
EVERYWHERE = ("ideal", "modelled", "four-path")


def preloaded(**env):
    return {"LD_PRELOAD": MP_LIBRARY, "UCX_LOG_LEVEL": "warn", **env}


def batch(*tests, options=(), env=None, warm_up=10, seconds=60):
    """One case: tests are (test, size list, iterations, more options); they run one after the other."""
    def run(session):
        with open(os.path.join(session.folder, "batch"), "w", encoding="ascii") as out:
            for number, (test, size, iterations, *more) in enumerate(tests):
                out.write(f"{number}:{test} -t {test} -s {size} -n {iterations} -w {warm_up} {' '.join(more)}\n")
        server, client = session.pair(["ucx_perftest", *options, "-b", "batch"], client=("-f", "-v"),
                                      env=preloaded(**(env or {})), seconds=seconds - 5)
        for text in (server, client):
            check(not complaints(text), "UCX complains: " + "; ".join(complaints(text)[:3]))
        lines = client.splitlines()
        for number, (test, size, iterations, *more) in enumerate(tests):
            what = f"{test} -s {size} {' '.join(more)}"
            row = [line for line in lines if line.startswith(f"{number}:{test},")]
            check(len(row) == 1, f"{len(row)} results of {what}")
            row = numbers(row[0].split(",", 1)[1])
            check(row[0] >= iterations, f"{row[0]:.0f} iterations of {iterations} in {what}")
            check(all(value > 0 for value in row[-2:]), f"impossible numbers of {what}: {row}")
    return run


# UCT: every test with every data layout, smallest to largest of what the transport offers (ucx_info -d).
def uct_tests():
    yield "am", [(test, size, n, "-D", layout) for test in ("am_lat", "am_bw") for layout, size, n in (
        ("short", 8, 200), ("short", 240, 200), ("shortiov", 64, 200), ("bcopy", 8, 200), ("bcopy", 8192, 100),
        ("zcopy", 16, 200), ("zcopy", 8192, 100))]
    yield "put", [(test, size, n, "-D", layout) for test in ("put_lat", "put_bw") for layout, size, n in (
        ("short", 8, 200), ("short", 256, 200), ("bcopy", 8, 200), ("bcopy", 8192, 100), ("zcopy", 1, 200),
        ("zcopy", 65536, 50), ("zcopy", 1 << 20, 10))]
    yield "get", [("get", size, n, "-D", layout) for layout, size, n in (
        ("bcopy", 8, 200), ("bcopy", 8192, 100), ("zcopy", 1, 200), ("zcopy", 65536, 50), ("zcopy", 1 << 20, 10))]
    yield "atomics", [(test, size, 100, "-D", "short") for test in ("add_lat", "add_mr", "fadd", "swap", "cswap")
                      for size in (4, 8)]


for wire in WIRES:
    for kind, tests in uct_tests():
        group.add(batch(*tests, options=("-d", "mp0", "-x", wire)), f"uct_{wire}_{kind}", EVERYWHERE, seconds=60)

# UCP: the protocols on top. The sizes are below, around and above the thresholds of eager and rendezvous.
SIZES = ((1, 200), (2000, 200), (16384, 50), (1 << 20, 10))


def ucp_tests():
    yield "tag", [(test, size, n) for test in ("tag_lat", "tag_bw", "tag_sync_lat", "tag_sync_bw") for size, n in SIZES] \
        + [("tag_lat", 4096, 100, "-U"), ("tag_bw", 65536, 20, "-C"), ("tag_bw", "1024,8192,64", 50, "-D", "iov,iov"),
           ("tag_bw", 1 << 22, 5)]
    yield "stream", [(test, size, n) for test in ("stream_lat", "stream_bw") for size, n in SIZES] \
        + [("stream_bw", 4096, 100, "-r", "recv_data")]
    yield "am", [(test, size, n) for test in ("ucp_am_lat", "ucp_am_bw") for size, n in SIZES] \
        + [("ucp_am_lat", 1000, 100, "-H", "64")]
    yield "rma", [(test, size, n) for test in ("ucp_put_lat", "ucp_put_bw", "ucp_get") for size, n in SIZES] \
        + [("ucp_put_bw", 65536, 20, "-z")]
    yield "atomics", [(test, size, 100) for test in ("ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap") for size in (4, 8)]


for wire in WIRES:
    for kind, tests in ucp_tests():
        for protocols in ("n", "y"):  # the second: UCX's new protocol selection
            fabrics = ("ideal", "four-path") if protocols == "n" else ("modelled",)
            group.add(batch(*tests, env={"UCX_TLS": wire, "UCX_PROTO_ENABLE": protocols}),
                      f"ucp_{wire}_{kind}" + ("_new_protocols" if protocols == "y" else ""), fabrics, seconds=60)
    group.add(batch(("tag_lat", 8, 200), ("tag_bw", 4096, 200), ("tag_bw", 1 << 20, 10), ("ucp_am_lat", 8, 100),
                    ("ucp_get", 4096, 100), ("ucp_fadd", 8, 100), options=("-E", "sleep"), env={"UCX_TLS": wire}),
              f"ucp_{wire}_sleep", EVERYWHERE)
    group.add(batch(("tag_lat", 8, 200), ("tag_bw", 4096, 200), ("tag_bw", 1 << 20, 10), ("ucp_put_bw", 4096, 100),
                    options=("-T", "2", "-M", "multi"), env={"UCX_TLS": wire}), f"ucp_{wire}_2_threads", EVERYWHERE)
    group.add(batch(("tag_lat", 8, 200), ("tag_bw", 65536, 20), ("tag_bw", 1 << 20, 10), options=("-e",),
                    env={"UCX_TLS": wire}), f"ucp_{wire}_error_handling")
for scheme in ("put_zcopy", "get_zcopy", "am"):
    group.add(batch(("tag_bw", 65536, 50), ("tag_bw", 1 << 22, 5), ("tag_lat", 300000, 20), env={
        "UCX_TLS": "mp_rc,mp_dc", "UCX_RNDV_SCHEME": scheme, "UCX_RNDV_THRESH": "32k"}),
              f"ucp_both_rendezvous_{scheme}", ("ideal", "four-path"))
group.add(batch(("fadd", 8, 100), ("cswap", 8, 100), ("add_mr", 8, 100), options=("-d", "mp0", "-x", "mp_rc"),
                env={"UCX_MP_ATOMICS": "adapter"}), "uct_mp_rc_atomics_by_adapter")


def with_option(wire, **option):
    return batch(("am_lat", 8, 50, "-D", "short"), ("am_bw", 4096, 100, "-D", "bcopy"),
                 ("put_bw", 1 << 18, 20, "-D", "zcopy"), ("get", 1 << 18, 20, "-D", "zcopy"),
                 options=("-d", "mp0", "-x", wire), env=option)


for policy in ("binding", "round_robin", "weighted_rr", "window_rr", "even", "weighted", "adaptive", "bss", "epc",
               "load_balanced", "spray"):
    group.add(with_option("mp_rc", UCX_MP_POLICY=policy), f"policy_{policy}", ("four-path",))
group.add(with_option("mp_rc", UCX_MP_RAILS="softhca_1:1"), "one_rail", ("ideal", "four-path"))
group.add(with_option("mp_rc", UCX_MP_PATH_BITS="1,3"), "path_bits", ("four-path",))
group.add(with_option("mp_rc", UCX_MP_NUM_PATHS="8"), "more_paths_than_routes", ("modelled",))
group.add(with_option("mp_rc", UCX_MP_CROSS_RAILS="y"), "cross_rails", ("modelled",))
group.add(with_option("mp_rc", UCX_MP_RC_SPLIT_READS="y"), "split_reads", ("four-path",))
for policy in ("least", "quota"):
    group.add(with_option("mp_dc", UCX_MP_DC_DCI_POLICY=policy, UCX_MP_DC_NUM_DCI="2"), f"dci_{policy}", ("modelled",))


def ucx_info(session, *options, **env):
    text = session.run(["ucx_info", *options], env=preloaded(**env))
    logged = [line for line in complaints(text) if re.match(r"\[\d+\.\d+\] ", line)]
    check(not logged, "UCX complains: " + "; ".join(logged[:3]))
    return text


@group.case(fabrics=EVERYWHERE)
def info_devices(session):
    """What UCX is told of the transports is true: two rails' bandwidth, the operations and limits."""
    for wire in WIRES:
        text = ucx_info(session, "-d", "-t", wire)
        check(re.findall(r"Transport: (\S+)", text) == [wire], f"not one transport {wire}")
        check(re.findall(r"Device: (\S+)", text) == ["mp0"], "not one device mp0")
        found = re.search(r"bandwidth: .* ([\d.]+) MB/sec", text)
        check(found, "no bandwidth")
        if session.modelled:  # two links of 8 Gb/s
            check(1700 <= float(found[1]) <= 1908, f"two rails of 8 Gb/s are said to do {found[1]} MB/s (MiB/s)")
        for line in (r"put_short: <= \d", r"put_zcopy: <= \d", r"get_bcopy: <= \d", r"get_zcopy: <= \d",
                     r"am_short: <= \d", r"am_bcopy: <= \d", r"am_zcopy: <= \d", r"atomic_add: 32, 64 bit",
                     r"atomic_fxor: 32, 64 bit", r"atomic_cswap: 32, 64 bit", r"connection: to iface",
                     r"error handling: peer failure", r"memory invalidation is supported"):
            check(re.search(line, text), f"{wire}: no line /{line}/")


@group.case(fabrics=("ideal",))
def info_options(session):
    """Every option of ours is in `ucx_info -c -f` with a help text, and UCX reads back what it prints."""
    text = ucx_info(session, "-c", "-f")
    options = {}
    help_text = []
    for line in text.splitlines():
        if line.startswith("#"):
            help_text.append(line.strip("# "))
        elif "=" in line:
            options[line.split("=")[0]] = " ".join(filter(None, help_text))
            help_text = []
        else:
            help_text = []
    ours = [name for name in options if name.startswith("UCX_MP_")]
    check(len(ours) >= 45, f"only {len(ours)} options UCX_MP_*")
    for name in ("UCX_MP_RAILS", "UCX_MP_NUM_PATHS", "UCX_MP_PATH_BITS", "UCX_MP_POLICY", "UCX_MP_ATOMICS",
                 "UCX_MP_RC_SEG_SIZE", "UCX_MP_RC_TX_WINDOW", "UCX_MP_DC_SEG_SIZE", "UCX_MP_DC_NUM_DCI",
                 "UCX_MP_DC_DCI_POLICY"):
        check(name in ours, f"no option {name}")
    for name in ours:
        described = options[name].split("syntax:")[0].strip()
        check(len(described) >= 20, f"no help for {name}: '{described}'")
        check("syntax:" in options[name], f"no syntax of {name}")
    for policy in ("binding", "adaptive", "bss", "spray"):
        check(policy in options["UCX_MP_POLICY"], f"the help of UCX_MP_POLICY does not mention {policy}")
    defaults = dict(re.findall(r"^(UCX_MP_\w+)=(.*)$", text, re.M))
    again = dict(re.findall(r"^(UCX_MP_\w+)=(.*)$", ucx_info(session, "-c", **defaults), re.M))
    check(again == defaults, "printed defaults are not read back as they are: " +
          ", ".join(f"{name}={defaults[name]} became {again.get(name)}" for name in defaults
                    if again.get(name) != defaults[name]))


WRONG = {
    # Checked by the transport: the whole name, the value, and what is allowed.
    "MP_RAILS": ("nosuch", "softhca_7:1", "softhca_0:9", "softhca_0:1,softhca_0:1"),
    "MP_NUM_PATHS": ("0", "1000"), "MP_PATH_BITS": ("5",), "MP_POLICY": ("nosuch", "bss:0"),
    "MP_RC_SEG_SIZE": ("1", "1g"), "MP_RC_TX_WINDOW": ("0", "3"), "MP_RC_TX_QUEUE_LEN": ("0",),
    "MP_RC_TX_CQ_LEN": ("1",), "MP_RC_RX_QUEUE_LEN": ("0",), "MP_RC_TX_SIGNAL_INTERVAL": ("100",),
    "MP_RC_POLL_BATCH": ("0",), "MP_RC_MAX_INLINE": ("1g",), "MP_RC_TIMEOUT": ("-1", "1e9s"),
    "MP_RC_RETRY_COUNT": ("8",), "MP_RC_RNR_TIMEOUT": ("10s",), "MP_RC_MAX_RD_ATOMIC": ("0",), "MP_RC_SL": ("16",),
    "MP_DC_NUM_DCI": ("0", "65"),
}
# Refused by UCX's own parser, which leaves the prefix of a name out.
UNREADABLE = {"MP_NUM_PATHS": "x", "MP_PATH_BITS": "1,y", "MP_ATOMICS": "nosuch", "MP_CROSS_RAILS": "maybe",
              "MP_RC_SEG_SIZE": "many", "MP_RC_TIMEOUT": "3 hours", "MP_DC_DCI_POLICY": "nosuch"}


@group.case(fabrics=("ideal",), seconds=90)
def wrong_values(session):
    """A wrong value fails at once, with one line that names the variable, the value and what is allowed."""
    tries = [(name, value, True) for name, values in WRONG.items() for value in values]
    tries += [(name, value, False) for name, value in UNREADABLE.items()]
    for name, value, ours in tries:
        wire = "mp_dc" if "_DC_" in name else "mp_rc"
        argv = ["ucx_perftest", "-d", "mp0", "-x", wire, "-t", "am_lat", "-l", "-n", "10", "-w", "1", "-f", "-v"]
        program = session.start(argv, env=preloaded(**{"UCX_" + name: value}))
        text = program.wait(20, code=None)
        what = f"UCX_{name}={value}"
        check(program.process.returncode in (1, 255), f"{what}: exit code {program.process.returncode}")
        short = name.removeprefix("MP_").removeprefix("RC_").removeprefix("DC_")
        lines = [line for line in complaints(text) if ("UCX_" + name if ours else short) in line]
        check(len(lines) == 1, f"{what}: {len(lines)} lines name it")
        if ours:
            check(value.split(",")[0].split(":")[0] in lines[0] or re.search(r"\d", lines[0]),
                  f"{what}: the value is not in: {lines[0]}")
        check(re.search("allowed" if ours else "Expected", lines[0]), f"{what}: what is allowed is not in: {lines[0]}")
        # What else is printed are the callers' own lines, of UCX and of ucx_perftest.
        rest = [line for line in complaints(text) if line not in lines and
                not re.search(r"Failed to (run test|open iface|read (MD|iface) config)", line)]
        check(not rest, f"{what}: more lines: {rest}")


@group.case(fabrics=("ideal",))
def unknown_option(session):
    """A misspelt variable is found by UCX's check of unused ones, with our names as suggestions."""
    text = session.run(["ucx_info", "-e", "-u", "t"], env=preloaded(UCX_TLS="mp_rc", UCX_MP_RC_TX_WINDOWS="64"))
    check(re.search(r"unused .*UCX_MP_RC_TX_WINDOWS", text), "UCX does not warn of UCX_MP_RC_TX_WINDOWS")


# UCX's own examples, built by tests/judges/CMakeLists.txt from the unchanged source.
def example(session, name):
    path = os.path.join(session.build, "bin", "ucx_examples", name)
    if not os.path.exists(path):
        raise Skip(f"{name} was not built: no source of UCX (cmake/install-deps)")
    return path


def letters(count):
    """What the examples send as a string of `count` bytes."""
    return ("ABCDEFGHIJKLMNOPQRSTUVWXYZ" * (count // 26 + 1))[:count - 1]


def uct_hello(wire):
    def run(session):
        for layout, size in (("-i", 16), ("-b", 16), ("-b", 8000), ("-z", 8000)):
            argv = [example(session, "uct_hello_world"), "-d", "mp0", "-t", wire, layout, "-s", str(size)]
            texts = session.pair(argv, client=("-n",), env=preloaded())
            check(all(f"Using {wire}/mp0" in text for text in texts), f"not over {wire}/mp0")
            check(re.search(rf"^\[callback\] \S+ sent {letters(size)} \({size} bytes\)$", "\n".join(texts), re.M),
                  f"{layout} {size}: what came is not what was sent")
    return run


def ucp_hello(wire):
    def run(session):
        for options, size in (((), 16), (("-w",), 1000), (("-f",), 20000), (("-b",), 100), ((), 1 << 20)):
            argv = [example(session, "ucp_hello_world"), *options, "-s", str(size)]
            _, client = session.pair(argv, client=("-n",), env=preloaded(UCX_TLS=wire))
            check(letters(size) in client, f"{options} {size}: what came is not what was sent")
    return run


for wire in WIRES:
    group.add(uct_hello(wire), f"example_uct_hello_world_{wire}", ("ideal", "four-path"))
    group.add(ucp_hello(wire), f"example_ucp_hello_world_{wire}", ("ideal", "four-path"))


@group.case(fabrics=("ideal",))
def example_ucp_hello_world_killed(session):
    """The client kills itself before it receives: the server's send has to end with an error, not to hang. (The
    example's other deaths, -e send and -e keepalive, are not noticed over stock rc_verbs on this adapter either.)"""
    argv = [example(session, "ucp_hello_world"), "-e", "recv"]
    server = session.pair(argv, client=("-n",), client_code=137, env=preloaded(UCX_TLS="mp_rc"))[0]
    check("failure handler called" in server, "the server does not learn that its client was killed")


@group.case(fabrics=("ideal", "four-path"))
def example_ucp_client_server(session):
    """Connects by IP address, which takes a connection manager. UCX's bind to the names of real devices (eth0,
    mlx5_0:1), never to mp0, so with mp_rc alone the client's data find no lane ("Destination is unreachable"); with tcp
    beside it the tcp manager carries the exchange of addresses and the messages go over mp_rc. -c stream is left out: the
    example closes by force when the client is through, and over stock rc_verbs the server sometimes still reads."""
    for kind in ("tag", "am"):
        port = free_port()
        # The server never ends, so its output must not wait in a buffer.
        argv = ["stdbuf", "-oL", example(session, "ucp_client_server"), "-p", str(port), "-c", kind, "-i", "20",
                "-s", "3000"]
        env = preloaded(UCX_TLS="mp_rc,tcp", UCX_LOG_LEVEL="info")
        server = session.start(argv, session.places[0], env)
        server.wait_for("server is listening", 10)
        client = session.run([*argv, "-a", "127.0.0.1"], session.places[1], env)
        check(re.search(rf"ep_cfg.*{kind}\(mp_rc/mp0\)", client), f"{kind}: the messages do not go over mp_rc")
        text = server.wait_for(r"Server: iteration #20(?s:.*?)-------\n\n([A-Z]+)\.", 10)[1]
        check(text == letters(3000), f"{kind}: what came is not what was sent")
        server.stop()
