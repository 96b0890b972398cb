"""Stock UCX: ucx_perftest on rc_verbs and ud_verbs, at UCT level (one transport) and at UCP level (protocols)."""

import re

from judge import ON_TERMINAL, Group, check

group = Group(seldom=("ideal",))  # of the adapter alone; modelled links show more


def numbers(text):
    """The numbers of the last CSV line that ucx_perftest -f -v prints."""
    rows = [line for line in text.splitlines() if re.fullmatch(r"\s*[-0-9.]+(,([-0-9.]+|-?inf|-?nan))+", line)]
    check(rows, "no line of results")
    return [float(word) for word in rows[-1].split(",")]


def complaints(text):
    return [line for line in text.splitlines() if re.search(r"\b(ERROR|FATAL|WARN|Assertion)\b", line)]


def measure(*options, env, iterations=500, threads=1):
    def run(session):
        argv = [ON_TERMINAL, "ucx_perftest", *options, "-n", str(iterations), "-w", "50"]
        # The warning level shows a fall-back or a failed transport; a clean run prints none.
        server, client = session.pair(argv, client=("-f", "-v"), env={"UCX_LOG_LEVEL": "warn", **env}, seconds=35)
        for text in (server, client):
            check(not complaints(text), "UCX complains: " + "; ".join(complaints(text)[:3]))
        row = numbers(client)
        # Columns: iterations, 50 percentile, average and overall latency, average and overall bandwidth and rate; with
        # more than one thread only the overall ones.
        check(len(row) == (8 if threads == 1 else 4), f"{len(row)} columns")
        check(row[0] >= iterations, f"{row[0]:.0f} iterations of {iterations}")
        # Of the whole run: the average since the last report (one a second) is of no iterations if that came at the end.
        check(row[-1] > 0 and (threads > 1 or row[3] > 0), f"impossible numbers: {row}")
    return run


@group.case(fabrics=("modelled",), alone=False)
def on_terminal(session):
    """What starts ucx_perftest: input is a terminal, whatever it was; the rest is the program's own."""
    script = "test -t 0 && ! test -t 1 && echo it is; exit 3"
    check(session.run([ON_TERMINAL, "sh", "-c", script], code=3) == "it is\n", "the input is no terminal")
    closed = f"exec {ON_TERMINAL} sh -c '{script}' <&-"
    check(session.run(["sh", "-c", closed], code=3) == "it is\n", "closed input has become no terminal")
    said = session.run([ON_TERMINAL, "/no/such/program"], code=127)
    check(said == "on-terminal: can't run '/no/such/program': No such file or directory\n", f"it says {said}")


def uct(name, transport, test, *options, device="softhca_0:1", **kwargs):
    # UD's own timers expire on a loaded machine long before a real adapter would lose a packet.
    argv = ("-d", device, "-x", transport, "-t", test, *options)
    group.add(measure(*argv, env={"UCX_NET_DEVICES": "all"}, **kwargs), f"uct_{transport}_{name}")


for layout, size in (("short", 8), ("bcopy", 8), ("bcopy", 4096), ("zcopy", 4096)):
    for wire in ("rc_verbs", "ud_verbs"):
        if wire == "ud_verbs" and size > 2048:
            size = 2048
        uct(f"am_lat_{layout}_{size}", wire, "am_lat", "-D", layout, "-s", str(size))
        uct(f"am_bw_{layout}_{size}", wire, "am_bw", "-D", layout, "-s", str(size))
for layout, size in (("short", 8), ("bcopy", 4096), ("zcopy", 65536)):
    uct(f"put_lat_{layout}_{size}", "rc_verbs", "put_lat", "-D", layout, "-s", str(size))
    uct(f"put_bw_{layout}_{size}", "rc_verbs", "put_bw", "-D", layout, "-s", str(size))
for layout, size in (("bcopy", 4096), ("zcopy", 65536)):
    uct(f"get_{layout}_{size}", "rc_verbs", "get", "-D", layout, "-s", str(size))
for test in ("add_lat", "add_mr", "fadd", "cswap"):
    uct(test, "rc_verbs", test, "-s", "8")
uct("am_lat_rail1", "rc_verbs", "am_lat", device="softhca_1:1")
uct("am_lat_rail1", "ud_verbs", "am_lat", device="softhca_1:1")

BOTH_RAILS = {"UCX_NET_DEVICES": "softhca_0:1,softhca_1:1"}
ONE_RAIL = {"UCX_NET_DEVICES": "softhca_0:1"}


def ucp(name, test, *options, tls, env=None, **kwargs):
    settings = {"UCX_TLS": tls, **(env or ONE_RAIL)}
    group.add(measure("-t", test, *options, env=settings, **kwargs), f"ucp_{tls}_{name}")


for wire in ("rc_v", "ud_v"):
    for test in ("tag_lat", "tag_bw", "tag_sync_lat", "ucp_am_lat", "ucp_am_bw", "stream_lat", "stream_bw"):
        ucp(f"{test}_8", test, "-s", "8", tls=wire)
        ucp(f"{test}_4096", test, "-s", "4096", tls=wire, iterations=300)
    for test in ("tag_lat", "tag_bw", "ucp_am_bw", "stream_bw"):
        ucp(f"{test}_1MiB", test, "-s", str(1 << 20), tls=wire, iterations=20)
    for test in ("ucp_put_lat", "ucp_put_bw", "ucp_get"):
        ucp(f"{test}_8", test, "-s", "8", tls=wire)
        ucp(f"{test}_64KiB", test, "-s", "65536", tls=wire, iterations=50)
    for test in ("ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap"):
        for size in (4, 8):
            ucp(f"{test}_{size}", test, "-s", str(size), tls=wire, iterations=200)
    ucp("tag_lat_sleep", "tag_lat", "-E", "sleep", tls=wire, iterations=200)
    ucp("tag_bw_sleep", "tag_bw", "-E", "sleep", "-s", "4096", tls=wire, iterations=200)
    ucp("tag_lat_2_threads", "tag_lat", "-T", "2", "-M", "multi", tls=wire, iterations=200, threads=2)
    ucp("tag_bw_2_threads", "tag_bw", "-T", "2", "-M", "multi", "-s", "4096", tls=wire, iterations=200, threads=2)
    ucp("tag_bw_iov", "tag_bw", "-D", "iov,iov", "-s", "1024,8192,64", tls=wire, iterations=200)
    ucp("tag_lat_unexpected", "tag_lat", "-U", "-s", "4096", tls=wire, iterations=200)

for scheme in ("put_zcopy", "get_zcopy", "am"):
    ucp(f"tag_bw_two_rails_{scheme}", "tag_bw", "-s", str(4 << 20), tls="rc_v", iterations=10,
        env={**BOTH_RAILS, "UCX_MAX_RNDV_RAILS": "2", "UCX_RNDV_SCHEME": scheme, "UCX_RNDV_THRESH": "64k"})
ucp("tag_lat_two_rails", "tag_lat", "-s", "8", tls="rc_v", env={**BOTH_RAILS, "UCX_MAX_EAGER_RAILS": "2"})
ucp("tag_bw_error_handling", "tag_bw", "-e", "-s", "65536", tls="rc_v", iterations=100)
