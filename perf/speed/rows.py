"""The rows of the speed table: each measures ours and what it is compared with in the same run, and gives results.

A row is a function of a Context; it yields Result. Figures in virtual time are exact and repeat bit for bit; those in real
time are medians of ratios of neighbouring turns.
"""
import collections
import os
from concurrent.futures import ThreadPoolExecutor

from speed import collectives as mpi_collectives, engines, fat_tree as trees, instructions, windows as mpi_windows
from speed.run import ROOT, bandwidth, environment, fabric, in_turn, jobs, output, perftest, simulate

# value: the ratio that is judged (None: printed only); target and sense: ">=" or "<="; text: what the table shows.
Result = collections.namedtuple("Result", "row what text value sense target", defaults=(None, "", None))
Context = collections.namedtuple("Context", "build folder quick say plots")
Plot = collections.namedtuple("Plot", "title kind labels series unit")  # series: {name: [y or (x, y)]}

MIB = 1 << 20


def met(result):
    if result.value is None:
        return None
    return result.value >= result.target if result.sense == ">=" else result.value <= result.target


def instruction_counts(c):
    """Instructions of the transport per operation, send + receive, one path; mp_rc - rc_verbs [callgrind]"""
    wanted = ("am_short_8", "am_bcopy_1k", "put_zcopy_64k", "get_zcopy_64k")
    count = 512 if c.quick else 2048
    rows, _, _ = instructions.table(c.build, count=count, operations=wanted)
    bars = {"rc_verbs": [], "mp_rc": [], "mp_dc": []}
    for name, stock_send, stock_receive, send, receive, more, *_ in rows:
        bars["rc_verbs"].append(stock_send + stock_receive)
        bars["mp_rc"].append(send + receive)
        yield Result("instructions", name, f"mp_rc {send + receive:.0f}, rc_verbs {stock_send + stock_receive:.0f}: {more:+.0f}",
                     more, "<=", 40)
    # mp_dc has given its only peer RC by then; no target: the tag before each message and the choice of paths cost something.
    by_dc = instructions.measure(c.build, "mp_dc", "mp0", wanted, count, 16)
    for name, _, _, send, receive, *_ in rows:
        dc = sum(side[0] for side in by_dc[name].values())
        bars["mp_dc"].append(dc)
        by = "DC" if any("post_dc" in function for function in by_dc[name]["send"][2]) else "RC"
        yield Result("instructions", f"{name}, mp_dc", f"mp_dc, by {by}, {dc:.0f}, mp_rc {send + receive:.0f}: {dc - send - receive:+.0f}",
                     None, "<=", None)
    yield from ring_instructions(c, count)
    c.plots.append(Plot("Instructions per operation, send and receive side", "bars", list(wanted), bars, "instructions"))


def ring_instructions(c, count):
    """A message over a ring beside the queue that it replaces: over RC and over DC. Judged is what the transport executes; all
    of it with the adapter's library, which takes what has come from a queue, stands beside that."""
    rings = {"UCX_MP_DC_ADAPT_MAX_RINGS": "8", "UCX_MP_DC_ADAPT_INTERVAL": "4ms"}  # there is one before counting begins
    # As if a ring saved much, and RC as well, or never its cost.
    ways = {"RC": ({**rings, "UCX_MP_DC_ADAPT_COSTS": "r=150,rho=1000,d=100000,p=1,c=1,delta=1"}, {"UCX_MP_DC_ADAPT": "eager"}),
            "DC": ({**rings, "UCX_MP_DC_ADAPT": "on", "UCX_MP_DC_ADAPT_COSTS": "r=1,rho=1000000000,d=100000,p=1,c=1,delta=1"},
                   {"UCX_MP_DC_ADAPT": "off"})}

    def both(env):
        found = instructions.measure(c.build, "mp_dc", "mp0", ("am_short_8",), count, 16, env=env)["am_short_8"]

        def takes(side, function):  # a few calls are no message each
            return sum(n for name, n in found[side][2].items() if function in name) > 20
        return (sum(side[0] for side in found.values()), sum(side[3] for side in found.values()),
                "DC" if takes("send", "post_dc") else "RC", takes("receive", "take_from_ring"))
    for name, (ring_env, queue_env) in ways.items():
        for _ in range(3):  # the clock says when there is one: another process may have been in the way
            ring, ring_all, by, is_ring = both(ring_env)
            if is_ring and by == name:
                break
        queue, queue_all, queue_by, _ = both(queue_env)
        what = f"am_short_8 over a ring of {name}, in place of its queue"
        if not is_ring or by != name or queue_by != name:
            yield Result("instructions", what, "there was none in time", None, "<=", None)
            continue
        yield Result("instructions", what, f"{ring:.0f}, by the queue {queue:.0f}: {ring - queue:+.0f}; "
                     f"with the adapter's library {ring_all:.0f}, {queue_all:.0f}: {ring_all - queue_all:+.0f}",
                     ring - queue, "<=", 0)


# mp_dc is what UCP takes by itself (UCX_TLS=mp_rc,mp_dc). Its few peers have RC here.
PINGPONG = ("mp_rc", "mp_dc")


def pingpong(c, transport):
    """{name: (ours, stock, ratio)}, made once for the rows that share it."""
    if not hasattr(pingpong, "found"):
        pingpong.found = {}
    if transport not in pingpong.found:
        turns = 31 if c.quick else 201
        text = output([f"{c.build}/bin/softhca", "run", "--session", f"pingpong-{os.getpid()}", "--",
                       f"{c.build}/bin/bench_ucx_pingpong", str(turns), "0", transport],
                      environment(LD_PRELOAD=f"{c.build}/lib/libuct_mp.so"), timeout=600)
        pingpong.found[transport] = {words[0]: tuple(map(float, words[1:])) for words in map(str.split, text.splitlines())}
    return pingpong.found[transport]


def latency(c):
    """UCP tag latency of 8 bytes, ideal fabric: mp_rc and mp_dc with two rails, rc_verbs with one"""
    for transport in PINGPONG:
        ours, stock, ratio = pingpong(c, transport)["ucp_tag_latency_8"]
        yield Result("latency", f"UCP tag 8 B, {transport}", f"{ours:.0f} ns, rc_verbs {stock:.0f} ns: {ratio:.2f}", ratio, "<=", 1.05)


def message_rate(c):
    """Messages of 8 bytes to 1, 2 and 8 peers, ideal fabric, everybody in one process: rate of sending and receiving"""
    for transport in PINGPONG:
        for peers in (1, 2, 8):
            ours, stock, ratio = pingpong(c, transport)[f"message_rate_8_peers_{peers}"]
            yield Result("rate", f"8 B to {peers} peers, {transport}", f"{ours:.2f} /us, rc_verbs {stock:.2f} /us: {ratio:.2f}",
                         ratio, ">=", 0.95)


def tail(c):
    """99th percentile of the latency under the load of the row before"""
    for transport in PINGPONG:
        for peers in (1, 2, 8):
            ours, stock, ratio = pingpong(c, transport)[f"latency_p99_peers_{peers}"]
            yield Result("p99", f"8 B to {peers} peers, {transport}",
                         f"{ours / 1e3:.2f} us, rc_verbs {stock / 1e3:.2f} us: {ratio:.2f}", ratio, "<=", 1.0)


def tag_bandwidth(c):
    """UCP tag bandwidth, two equal rails (2 Gb/s each, so that the host is not the limit), ucx_perftest in real time"""
    where = fabric(c.folder, "rails-2-2", (2, 2))
    rail = ("softhca_0:1",)
    bars = collections.defaultdict(list)
    for size, count in ((MIB, 60 if c.quick else 200), (4 * MIB, 16 if c.quick else 50)):
        found = in_turn(1 if c.quick else 3, {
            "mp, one rail": lambda: perftest(c.build, "mp", size, count // 2, where, rail),
            "mp, two rails": lambda: perftest(c.build, "mp", size, count, where),
            "rc_verbs, one rail": lambda: perftest(c.build, "stock", size, count // 2, where, rail),
            "rc_verbs, two rails": lambda: perftest(c.build, "stock", size, count, where)})
        for name, value in found.items():
            bars[name].append(value)
        one, two, stock = found["mp, one rail"], found["mp, two rails"], found["rc_verbs, two rails"]
        yield Result("tag_bandwidth", f"{size // MIB} MiB, two rails / one", f"{two:.1f} / {one:.1f} MB/s: {two / one:.3f}",
                     two / one, ">=", 1.95)
        # Both fill the links: what is left is the time of the first and the last message.
        yield Result("tag_bandwidth", f"{size // MIB} MiB, mp / rc_verbs, two rails", f"{two:.1f} / {stock:.1f} MB/s: "
                     f"{two / stock:.3f}", two / stock, ">=", 1.0)
    c.plots.append(Plot("Tag bandwidth, 2 Gb/s per rail", "bars", ["1 MiB", "4 MiB"], dict(bars), "MB/s"))
    exact = [bandwidth(c.build, fabric=fabric(c.folder, f"exact-{len(r)}", r), op="get", size=MIB) for r in ((8, 8), (8,))]
    yield Result("tag_bandwidth", "1 MiB get, virtual time, two rails / one", f"{exact[0]:.1f} / {exact[1]:.1f} MB/s: "
                 f"{exact[0] / exact[1]:.3f}", exact[0] / exact[1], ">=", 1.95)


def windows(c):
    """Windows of MPI messages, 1 B to 4 MiB, one and four pairs, two rails and four paths, stock Open MPI with defaults: mp / rc_verbs"""
    for name, ranks, mode, where, transports, sizes, variables in mpi_windows.cases(c.quick):
        if mpi_windows.processors() < 2 * ranks and ranks > 2:
            yield Result("windows", name, f"skipped: {2 * ranks} processors are needed, {mpi_windows.processors()} are here")
            continue
        turns, rounds = (3, 8) if c.quick else (9, 30)
        found = mpi_windows.compare(c.build, ranks, mode, turns, rounds, where, transports, sizes, **variables)
        for transport, by_size in found.items():
            for size, (ours, stock, ratio) in by_size.items():
                yield Result("windows", f"{name}, {mpi_windows.show(size)}, {transport}", f"{ours:.4g} / {stock:.4g} MB/s: {ratio:.2f}",
                             ratio, ">=", 1.0 if size < 8192 else 0.97)
        bars = {transport: [v[0] for v in by_size.values()] for transport, by_size in found.items()}
        bars["rc_verbs"] = [v[1] for v in found[transports[0]].values()]
        c.plots.append(Plot(f"Windows of messages, {name}", "bars", [mpi_windows.show(size) for size in sizes], bars, "MB/s"))


def collectives(c):
    """Barrier, allreduce and all-to-all of eight ranks, up to 64 KiB, two rails, stock Open MPI with defaults: mp / rc_verbs"""
    here = mpi_windows.processors()
    where = os.path.join(ROOT, "config", "fabrics", "two-rail.yaml")
    ranks, judged = (8, here >= 16) if here >= 8 else (4, False)
    if not judged:
        yield Result("collectives", "8 ranks", f"{'skipped' if here < 8 else 'not judged'}: 16 processors are needed, {here} are here"
                     f"{'; four ranks' * (here < 8)}")
    turns, rounds = (3, 20) if c.quick or here < 8 else (9, 200)
    sizes = mpi_collectives.QUICK if c.quick else mpi_collectives.SIZES
    for transport, found in mpi_collectives.compare(c.build, ranks, turns, rounds, where, ("mp_rc", "mp_rc,mp_dc"), sizes).items():
        for (name, size), (ours, stock, ratio) in found.items():
            yield Result("collectives", f"{name}{f' {mpi_windows.show(size)}' if size else ''}, {ranks} ranks, {transport}",
                         f"{ours:.4g} / {stock:.4g} us: {ratio:.2f}", ratio if judged else None, "<=", 1.0 if size < 8192 else 1 / 0.97)


def clocks(c):
    """Windows of 64 MPI messages, two rails of 2 Gb/s: real time beside virtual time, this host's costs calibrated"""
    for pairs in (1, 2, 4):
        name = f"{2 * pairs} nodes"
        # Two nodes are shown on two processors; more only where none waits for another's.
        if mpi_windows.processors() < 4 * pairs and pairs > 1:
            yield Result("clocks", name, f"skipped: {4 * pairs} processors are needed, {mpi_windows.processors()} are here")
            continue
        where = fabric(c.folder, f"clocks-{pairs}", (2, 2), nodes=2 * pairs)
        cost, found = mpi_windows.clocks(c.build, pairs, 3 if c.quick else 7, 4 if c.quick else 10, where)
        for size, (real, exact, ratio) in found.items():
            yield Result("clocks", f"{name}, {mpi_windows.show(size)}", f"{real:.0f} / {exact:.0f} MB/s: {ratio:.3f} (a request {cost} ns)",
                         min(ratio, 1 / ratio), ">=", 0.9)


def away(c):
    """Windows of 64 messages over two rails x four routes, both processors away half and three quarters of the time, virtual time: default / best fixed policy"""
    def case(size, ms, part, **more):
        found = {policy: bandwidth(c.build, to=4, op="rendezvous_get", window=64, size=size, policy=policy, away=1000 * ms,
                                   host_post=2000, host_completion=2000, **more)
                 for policy in ("default", "even", "spray", "round_robin")}
        ours = found.pop("default")
        best = max(found, key=found.get)
        return Result("away", f"{mpi_windows.show(size)}, away for {ms:g} ms, {part}",
                      f"{ours:.0f} / {found[best]:.0f} MB/s ({best}), spray {found['spray']:.0f}: {ours / found[best]:.2f}",
                      ours / found[best], ">=", 0.97)

    for ms in (3,) if c.quick else (0.3, 1, 3):
        for size in (MIB,) if c.quick else (256 * 1024, MIB, 2 * MIB):
            yield case(size, ms, "half, 2 Gb/s", fabric="four-path-1x", run=1500)
    for size in (MIB,) if c.quick else (256 * 1024, MIB, 4 * MIB):
        yield case(size, 3, "three quarters, 8 Gb/s", fabric="four-path", every=1000, run=1000)


def fat_tree(c):
    """Jobs over the papers' fat tree, processors free and at 0.5 and 2 us per request: the best fixed policy / default; links' need step by step"""
    def run(case):
        kernel, ranks, mapping, size, host, rendezvous = case
        return trees.job(c.build, c.folder, kernel, ranks, mapping, size * 1024, host, rendezvous, 1 if c.quick else 3)

    cases = list(trees.cases(c.quick))
    with ThreadPoolExecutor(mpi_windows.processors()) as pool:  # each run needs one
        for (kernel, ranks, mapping, size, host, rendezvous), (found, in_order) in zip(cases, pool.map(run, cases)):
            ours = found.pop("default")
            best = min(found, key=found.get)
            what = f"{kernel} {ranks} {mapping}, {size} KiB{f', {host / 1e3:g} us' if host else ''}{', read' if rendezvous == 'get' else ''}"
            yield Result("fat_tree", what, f"{ours:.0f} us, {best.split(':')[0]} {found[best]:.0f} us: {found[best] / ours:.2f}, "
                         f"links {in_order / min(ours, found[best]):.2f}", found[best] / ours, ">=", 0.97)


def halo(c):
    """Exchange with six neighbours over two rails of 8 Gb/s, 27 nodes, virtual time: the best fixed policy / default"""
    where, policies = fabric(c.folder, "halo", (8, 8), nodes=27), ("default", "binding", "even", "round_robin")

    def run(case):
        size, host, rendezvous = case
        rows = jobs(c.build, c.folder, ["--fabric", where, "--kernel", "halo", "--nodes", "27", "--size", f"{size}K", "--messages", "4",
                                        "--warm-up", "4", "--repeat", "3", "--late", "2000", "--seeds", "1" if c.quick else "3",
                                        "--host-post", str(host), "--host-completion", str(host), "--rendezvous", rendezvous,
                                        "--policy", ";".join(policies)])
        return {name: float(row["time_us"]) for name, row in zip(policies, rows)}

    cases = [(size, host, "put") for host in ((500, 2000) if c.quick else (0, 500, 1000, 2000)) for size in (4, 8, 12, 16, 32, 64)]
    cases += [(size, host, "get") for host in ((500,) if c.quick else (0, 500, 1000, 2000)) for size in (16, 64)]
    with ThreadPoolExecutor(mpi_windows.processors()) as pool:
        for (size, host, rendezvous), found in zip(cases, pool.map(run, cases)):
            ours = found.pop("default")
            best = min(found, key=found.get)
            yield Result("halo", f"{size} KiB{f', {host / 1e3:g} us' if host else ''}{', read' if rendezvous == 'get' else ''}",
                         f"{ours:.0f} us, {best} {found[best]:.0f} us: {found[best] / ours:.2f}", found[best] / ours, ">=", 0.97)


def unequal_rails(c):
    """Rails of 4:1: of the sum of both; ucx_perftest at 2 + 0.5 Gb/s, and virtual time at 8 + 2 Gb/s"""
    where = fabric(c.folder, "rails-2-05", (2, 0.5))
    count = 60 if c.quick else 200
    found = in_turn(1 if c.quick else 3, {
        "fast": lambda: perftest(c.build, "mp", MIB, count // 2, where, ("softhca_0:1",)),
        "slow": lambda: perftest(c.build, "mp", MIB, count // 6, where, ("softhca_1:1",)),
        "mp": lambda: perftest(c.build, "mp", MIB, count, where),
        "stock": lambda: perftest(c.build, "stock", MIB, count, where)})
    total = found["fast"] + found["slow"]
    yield Result("unequal", "1 MiB tag, mp / sum of the rails", f"{found['mp']:.1f} / {total:.1f} MB/s: {found['mp'] / total:.3f}",
                 found["mp"] / total, ">=", 0.95)
    yield Result("unequal", "1 MiB tag, rc_verbs / the same sum", f"{found['stock']:.1f} MB/s: {found['stock'] / total:.3f}")
    alone = [bandwidth(c.build, fabric=fabric(c.folder, f"alone-{rate}", (rate,)), op="get", size=MIB) for rate in (8, 2)]
    for policy in ("default", "hsam", "bss", "even"):
        got = bandwidth(c.build, fabric=fabric(c.folder, "exact-8-2", (8, 2)), op="get", size=MIB, policy=policy)
        target = (">=", 0.95) if policy == "default" else ("", None)
        text = f"{got:.1f} / {sum(alone):.1f} MB/s: {got / sum(alone):.3f}"
        yield Result("unequal", f"1 MiB get, virtual time, {policy}", text, got / sum(alone) if target[0] else None, *target)


def hot_route(c):
    """Four routes of 8 Gb/s, another flow takes 75 % of one, which stays or moves every 100 ms; part of what is free"""
    where = os.path.join(ROOT, "perf", "fabrics", "four-route.yaml")
    run = 400 if c.quick else 1600
    policies = ("default", "hsam", "bss", "even")
    bars = {"stays": [], "moves every 100 ms": []}
    for name, more in (("stays", {}), ("moves every 100 ms", {"hot_move": 100})):
        quiet = bandwidth(c.build, fabric=where, **{"from": 0}, to=5, run=100)
        for policy in policies:
            found = simulate(c.build, fabric=where, **{"from": 0}, to=5, policy=policy, hot=0.75, run=run, **more)
            # The other flow asked for 75 % of one route; what it got by pushing ours away is not ours.
            free = quiet * (4 - 0.75) / 4
            ratio = found["MB/s"] / free
            bars[name].append(ratio)
            target = (">=", 0.93) if policy == "default" else ("", None)
            yield Result("hot_route", f"{policy}, the hot route {name}", f"{found['MB/s']:.0f} / {free:.0f} MB/s: {ratio:.3f} (the "
                         f"other flow {found['other']:.0f})", ratio if target[0] else None, *target)
    c.plots.append(Plot("Four routes, one 75 % taken: part of what is free", "bars", list(policies), bars, "ratio"))


def put_get(c):
    """Puts, gets, and 16 of both per flush, from one node and from both at once, virtual time; two rails of 8 Gb/s and one"""
    two, one = fabric(c.folder, "two", (8, 8)), fabric(c.folder, "one", (8,))
    for op in ("put", "get"):
        for who, more in (("one node", {}), ("both nodes", {"back": True})):
            a, b = (bandwidth(c.build, fabric=where, op=op, window=16, size=MIB, run=400, **more) for where in (two, one))
            yield Result("put_get", f"1024 KiB, {op}, {who}, two rails / one", f"{a:.0f} / {b:.0f} MB/s: {a / b:.3f}", a / b, ">=", 1.95)
    for size in (8192, 12288):
        for host in (0, 1000):
            a, b = (bandwidth(c.build, fabric=where, op="get", window=1, size=size, host_post=host, host_completion=host, run=50)
                    for where in (two, one))
            yield Result("put_get", f"{size // 1024} KiB, one get at a time{', 1 us a request' if host else ''}, two rails / one",
                         f"{a:.0f} / {b:.0f} MB/s: {a / b:.3f}", a / b, ">=", 1.7 if host == 0 else 1.3)
    for size in (8192, 16384, 32768, 65536, MIB):
        for who, more in (("one node", {}), ("both nodes", {"back": True})):
            def run(where, policy, **split):
                return bandwidth(c.build, fabric=where, op="both", window=16, size=size, policy=policy, run=400, **more, **split)
            text_order = {"turns": "p" * 16 + "g" * 16}
            ours, apart = run(two, "default", **text_order), run(two, "default", split_reads=True, **text_order)
            yield Result("put_get", f"{size // 1024} KiB, 16 puts, then 16 gets, {who}, default / SPLIT_READS=y",
                         f"{ours:.0f} / {apart:.0f} MB/s: {ours / apart:.3f}", ours / apart, ">=", 0.95)
            if size < 65536:
                continue
            a, b, even = run(two, "default"), run(one, "default"), run(two, "even")
            yield Result("put_get", f"{size // 1024} KiB, 16 + 16, {who}, two rails / one", f"{a:.0f} / {b:.0f} MB/s: {a / b:.3f} "
                         f"(even: {even / b:.3f})", a / b, ">=", 1.95)
            a = run(two, "default", split_reads=True)
            yield Result("put_get", f"{size // 1024} KiB, 16 + 16, {who}, SPLIT_READS=y", f"{a:.0f} / {b:.0f} MB/s: {a / b:.3f}",
                         a / b, ">=", 1.95)


def accounts(c):
    """Reads and writes on load accounts of their own, and on one (policy load_balanced); 16 + 16 per flush, virtual time"""
    for name, rates in (("8 + 8 Gb/s", (8, 8)), ("8 + 2 Gb/s", (8, 2))):
        where = fabric(c.folder, "accounts-" + "-".join(map(str, rates)), rates)
        for back in (False, True):
            apart, joint = (bandwidth(c.build, fabric=where, op="both", window=16, size=65536, policy=policy,
                                      **({"back": True} if back else {}))
                            for policy in ("load_balanced", "load_balanced:accounts=1"))
            yield Result("accounts", f"64 KiB, {name}, {'both nodes' if back else 'one node'}",
                         f"apart {apart:.0f}, joint {joint:.0f} MB/s: {apart / joint:.3f}")
            for size in (65536, MIB):
                own, shared = (bandwidth(c.build, fabric=where, op="both", window=16, size=size, split_reads=split,
                                         **({"back": True} if back else {})) for split in (True, False))
                yield Result("accounts", f"{size // 1024} KiB, {name}, {'both nodes' if back else 'one node'}, queue pairs",
                             f"of their own {own:.0f}, shared {shared:.0f} MB/s: {own / shared:.3f}")


def engine_windows(c):
    """Window of 64 non-blocking messages, 4 queue pairs per port with send engines (dissertation, ch. 6), virtual time"""
    yield from engines.rows(c, Result, Plot)


def setup(c):
    """All-to-all connection set-up, 64 nodes of fattree-144, one message each way, virtual time"""
    for transport in ("mp_rc", "mp_dc"):
        nodes = 16 if c.quick else 64
        found = simulate(c.build, setup=nodes, fabric="fattree-144", transport=transport)
        yield Result("setup", f"{transport}, {nodes} nodes", f"{found['us'] / 1e3:.2f} ms for {found['connections']:.0f} connections: "
                     f"{found['us'] / found['connections']:.2f} us and {found['datagrams'] / found['connections']:.1f} datagrams each")


def memory(c):
    """Queue pairs and buffers of one interface, two rails, by peers and paths"""
    more = {}
    for transport in ("mp_rc", "mp_dc"):
        for paths in (1, 2, 8):
            found = {peers: simulate(c.build, memory=True, peers=peers, fabric="two-rail" if paths < 8 else "four-path",
                                     **({"paths": 1} if paths == 2 else {}), transport=transport)
                     if paths > 1 else
                     simulate(c.build, memory=True, peers=peers, fabric=fabric(c.folder, f"memory-{peers}", (8,)),
                              transport=transport) for peers in (1, 3)}
            of = {key: (found[3][key] - found[1][key]) / 2 for key in ("queue_pairs", "send_buffers", "receive_buffers")}
            more[transport] = of["queue_pairs"]
            first = found[1]
            yield Result("memory", f"{transport}, {found[1]['paths']:.0f} paths", f"per peer {of['queue_pairs']:.0f} queue pairs, "
                         f"{(of['send_buffers'] + of['receive_buffers']) / 1024:.0f} KiB of buffers; fixed: "
                         f"{first['queue_pairs'] - of['queue_pairs']:.0f} queue pairs, "
                         f"{first['receive_buffers'] / MIB:.1f} MiB receive, {first['send_buffers'] / 1024:.0f} KiB send buffers")
    yield Result("memory", "mp_dc, queue pairs more per peer", f"{more['mp_dc']:.0f}", more["mp_dc"], "<=", 0)


ROWS = {"instructions": instruction_counts, "latency": latency, "tag_bandwidth": tag_bandwidth, "windows": windows,
        "collectives": collectives, "clocks": clocks, "away": away, "fat_tree": fat_tree, "halo": halo, "unequal": unequal_rails, "hot_route": hot_route, "put_get": put_get, "accounts": accounts,
        "engines": engine_windows, "rate": message_rate, "p99": tail, "setup": setup, "memory": memory}
