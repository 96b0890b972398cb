"""The rows of perf/failover: what a fault costs, in virtual time (bench_sim_failover), against the targets.

A row is a function of a Context; it yields Result. All figures repeat bit for bit, except instructions (callgrind) and
resident memory.
"""
import collections
import json
import os
import re

from speed import instructions
from speed.rows import Plot, Result
from speed.run import ROOT, Failed, environment, output
from speed.run import bandwidth as rate_of

Context = collections.namedtuple("Context", "build quick say plots found")

RC_DC = ("mp_rc", "mp_dc")
OPS = ("am", "put", "get")
MIB = 1 << 20
SAMPLE = 1 # us: the wire is looked at so often
FOUR_ROUTE = os.path.join(ROOT, "perf", "fabrics", "four-route.yaml")
PORT = {"fault": "port down 0:softhca_0:1", "repair": "port up 0:softhca_0:1"}
SILENT_RAIL = {"fault": "drop 100% 0:softhca_0:1", "repair": "drop 0% 0:softhca_0:1"}
SILENT_ROUTE = {"fault": "drop 100% leaf1 spine1", "repair": "drop 0% leaf1 spine1"}
# fabric, the other host, what is left there after the fault
TWO_RAIL = ("two-rail", 1, {"rails": "softhca_1:1"})
FOUR_PATH = ("four-path", 4, {"rails": "softhca_1:1"})
ROUTES = (FOUR_ROUTE, 5, {"paths": 3})


def simulate(c, case, **options):
    """The line of bench_sim_failover, as a dictionary; kept, so that rows can share it."""
    words = [case]
    for name, value in options.items():
        words += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
    key = tuple(words)
    if key not in c.found:
        c.found[key] = json.loads(output([f"{c.build}/bin/bench_sim_failover", *words], timeout=300))
        if c.found[key]["mistakes"]:
            c.say(f"   WRONG DELIVERIES OR ERRORS ({c.found[key]['mistakes']}): bench_sim_failover {' '.join(words)}")
    return c.found[key]


def stream(c, fault, where, op, transport, **options):
    """A fault in a stream of data from host 0: gets are issued by the other host, so the side that hears of the fault is not
    the one that waits then. What the remaining paths can carry is measured without any fault, with those paths alone."""
    fabric, to, alone = where
    ends = {"from": to, "to": 0} if op == "get" else {"from": 0, "to": to}
    same = {"transport": transport, "op": op, "fabric": fabric, "window": 64 if fabric == "two-rail" else 256, **ends}
    share = simulate(c, "steady", **same, **alone)["rate"] / simulate(c, "steady", **same)["rate"]
    return simulate(c, "fault", curve=True, share=round(share, 6), **same, **fault, **options)


def ms(us):
    return "never" if us < 0 else f"{us / 1e3:.3f} ms"


def name_of(transport, where, op):
    return f"{transport}, {os.path.splitext(os.path.basename(where[0]))[0]}, {op}"


def port_runs(c):
    """(name, result) of a port that goes down with its event, and comes back."""
    for where in (TWO_RAIL, FOUR_PATH):
        for transport in RC_DC:
            for op in OPS:
                if not c.quick or where is TWO_RAIL or op == "put":
                    yield name_of(transport, where, op), stream(c, PORT, where, op, transport, down=100, after=100)


def silent_runs(c):
    """(name, result) of packets that vanish without a word: a rail's, and one of four routes'."""
    for where, fault, ops in ((TWO_RAIL, SILENT_RAIL, OPS), (ROUTES, SILENT_ROUTE, ("am", "put"))):
        for transport in RC_DC:
            for op in ("put",) if c.quick else ops:
                yield name_of(transport, where, op), stream(c, fault, where, op, transport, down=120, after=450)


def adapter_runs(c):
    """(name, result) of the same without the watchdog: the adapter gives up after all its repetitions."""
    for transport in RC_DC:
        for op in ("put",) if c.quick else ("am", "put"):
            yield name_of(transport, TWO_RAIL, op) + ", no watchdog", stream(c, SILENT_RAIL, TWO_RAIL, op, transport, down=700,
                                                                             after=100, watch=0)


def show(c, title, run):
    c.plots.append(Plot(title, "time", [(0, "fault"), (run["repaired_ms"], "repaired")], {run["op"]: run["curve"]}, "GB/s"))


def switched(c, variable):
    """(transport, operation, instructions with y, with n), over two rails, send and receive side together"""
    # round_robin: the other policies learn from times that were measured, and so take other ways in every run.
    wanted = ("am_short_8", "put_zcopy_64k") if c.quick else ("am_short_8", "am_bcopy_1k", "put_zcopy_64k", "get_zcopy_64k")
    for transport in RC_DC[:1] if c.quick else RC_DC:
        counts = {}
        for switch in ("y", "n"):
            found = instructions.measure(c.build, transport, "mp0", wanted, 512, 16, env={
                "UCX_MP_RAILS": "softhca_0:1,softhca_1:1", "UCX_MP_POLICY": "round_robin", variable: switch})
            counts[switch] = {operation: sum(side[0] for side in found[operation].values()) for operation in wanted}
        for operation in wanted:
            yield transport, operation, counts["y"][operation], counts["n"][operation]


def cost(c):
    """Without faults, recovery on against off: instructions per message [callgrind], bandwidth; its thread on against off"""
    for transport, operation, on, off in switched(c, "UCX_MP_RECOVERY"):
        yield Result("cost", f"{transport}, two rails, {operation}", f"on {on:.1f}, off {off:.1f} instructions: "
                     f"{100 * (on / off - 1):+.2f} %", 100 * (on / off - 1), "<=", 2)
    for transport, operation, on, off in switched(c, "UCX_MP_RECOVERY_THREAD"):
        yield Result("cost", f"{transport}, two rails, {operation}, recovery's thread",
                     f"on {on:.1f}, off {off:.1f} instructions: {on - off:+.1f}", on - off, "<=", 5)
    for transport in RC_DC:
        for op in OPS:
            on = simulate(c, "steady", transport=transport, op=op)["rate"]
            off = simulate(c, "steady", transport=transport, op=op, no_recovery=True)["rate"]
            yield Result("cost", f"{transport}, bandwidth, {op}", f"on {on:.4f}, off {off:.4f} GB/s: {100 * (1 - on / off):+.3f} %",
                         100 * (1 - on / off), "<=", 0.5)


def port_down(c):
    """PORT_ERR: ms from the event until the remaining rails are full for good, less one round trip"""
    for name, r in port_runs(c):
        text = (f"{ms(r['full_us'])} (round trip {r['round_trip_us']:.1f} us, noticed after {r['first_noticed_us']:.0f} to "
                f"{r['last_noticed_us']:.0f} us; longest gap on the wire {r['wire_gap_us']:.0f} us, of deliveries "
                f"{r['delivery_gap_us']:.0f} us)")
        late = float("inf") if r["full_us"] < 0 else max(0, r["full_us"] - r["round_trip_us"]) / 1e3
        yield Result("port_down", name, text, late, "<=", 1)
        if "two-rail" in name or "put" in name:
            show(c, f"Port down: {name}", r)


def silent_loss(c):
    """Silent loss: ms from the queue pair's error or the watchdog's decision until full rate, less two round trips"""
    for name, r in (*silent_runs(c), *adapter_runs(c)):
        after = r["full_after_notice_us"]
        text = (f"{ms(max(after, 0) if r['full_us'] >= 0 else -1)} (round trip {r['round_trip_us']:.1f} us); detection "
                f"{r['first_noticed_us'] / 1e3:.1f} ms" +
                (f" to {r['last_noticed_us'] / 1e3:.1f} ms" if r["last_noticed_us"] - r["first_noticed_us"] > 100 else "") +
                f", longest gap on the wire {r['wire_gap_us'] / 1e3:.1f} ms, of deliveries {r['delivery_gap_us'] / 1e3:.1f} ms")
        late = float("inf") if r["full_us"] < 0 else max(0, after - 2 * r["round_trip_us"] - SAMPLE) / 1e3
        yield Result("silent_loss", name, text, late, "<=", 1)
        show(c, f"Silent loss: {name}", r)


def bandwidth(c):
    """Bandwidth after failover by what the remaining paths can carry, and after the return by the original"""
    for kind, runs in (("port", port_runs(c)), ("silent", silent_runs(c))):
        for name, r in runs:
            remaining = r["original"] * r["share"]
            yield Result("bandwidth", f"{kind}, {name}: failed over", f"{r['remaining']:.3f} / {remaining:.3f} GB/s: "
                         f"{r['remaining'] / remaining:.3f}", r["remaining"] / remaining, ">=", 0.98)
            yield Result("bandwidth", f"{kind}, {name}: back", f"{r['final']:.3f} / {r['original']:.3f} GB/s: "
                         f"{r['final'] / r['original']:.3f} (path back after {ms(r['path_back_us'])}, full after "
                         f"{ms(r['whole_us'])})", r["final"] / r["original"], ">=", 0.98)


def replay(c):
    """Bytes sent again by the bytes that were under way on what failed (messages: not acknowledged); messages, puts twice"""
    for kind, runs in (("port", port_runs(c)), ("silent", silent_runs(c)), ("silent", adapter_runs(c))):
        for name, r in runs:
            again, under_way = r["bytes_again"], r["in_flight"]
            text = (f"{again / 1e3:.0f} of {under_way / 1e3:.0f} kB again ({r['messages_again']:.0f} messages, {r['puts_again']:.0f} "
                    f"puts, {r['gets_again']:.0f} gets; {r['puts_found_done']:.0f} puts found done, {r['duplicates_dropped']:.0f} "
                    "duplicates dropped)")
            yield Result("replay", f"{kind}, {name}", text, again / under_way if under_way else float(again > 0), "<=", 1)
    wrong = sum(r["mistakes"] for r in c.found.values())
    yield Result("replay", "messages delivered twice, late or changed", f"{wrong:.0f} (the messages of all runs are numbered and "
                 "compared)", wrong, "<=", 0)
    events = failures = wrong = 0
    runs = 2 if c.quick else 6
    for transport in RC_DC:
        for fabric, nodes in (("two-rail", 2), ("four-path", 3)):
            try:
                text = output([f"{c.build}/bin/fault_campaign", "--transport", transport, "--fabric", fabric, "--nodes", str(nodes),
                               "--operations", "400", "--runs", str(runs)], environment(), timeout=300)
            except Failed as error: # it has printed the seed
                wrong += 1
                c.say(f"   {error}")
                continue
            last = re.search(r"^(\d+) faults, (\d+) path failures, .* no mistake$", text, re.M)
            events, failures = events + int(last[1]), failures + int(last[2])
    yield Result("replay", "campaigns in which a put was executed twice", f"{wrong} of 4 (fault_campaign: {events} faults, {failures} path "
                 "failures; targets overwrite what they have been told of and look at the end)", wrong, "<=", 0)


def peers(c):
    """Failover with many connected peers on the failed port, a verbs command costs its process 100 us"""
    for transport in RC_DC:
        for count in (1, 100) if c.quick else (1, 100, 1000):
            r = simulate(c, "peers", transport=transport, peers=count, op="put", **PORT)
            what = f"{transport}, {count} peers"
            never = float("inf")
            yield Result("peers", f"{what}: first traffic, ms", f"{ms(r['first_traffic_us'])} ({r['active']:.0f} peers with traffic, all "
                         f"of them: {ms(r['all_active_us'])}; longest gap {ms(r['gap_us'])})",
                         r["first_traffic_us"] / 1e3 if r["first_traffic_us"] >= 0 else never, "<=", 1)
            yield Result("peers", f"{what}: longest stall of progress, ms", f"{ms(r['stall_us'])}, of a peer {ms(r['peer_stall_us'])}; "
                         f"when the port is back {ms(r['repair_stall_us'])}, {ms(r['repair_peer_stall_us'])}",
                         max(r["stall_us"], r["peer_stall_us"], r["repair_stall_us"], r["repair_peer_stall_us"]) / 1e3, "<=", 1)
            yield Result("peers", f"{what}: all settled, all repaired", f"{ms(r['settled_us'])} after the fault, "
                         f"{ms(r['repaired_us'])} after the port's return (gap {ms(r['repair_gap_us'])}); {r['datagrams']:.0f} datagrams, "
                         f"{r['datagrams_unsent']:.0f} more found no room")


def connect(c):
    """Many peers connect at once to a process that has traffic, or it to them; a verbs command costs 100 us"""
    count = 100 if c.quick else 1000
    for way in ("outward", "inward"):
        options = {"inward": True} if way == "inward" else {}
        busy = simulate(c, "connect", peers=count, **options)
        idle = simulate(c, "connect", peers=count, idle=True, **options)
        never = float("inf")
        yield Result("connect", f"{way}, {count} peers: longest stall of progress, ms", f"{ms(busy['stall_us'])}, of a peer "
                     f"{ms(busy['peer_stall_us'])}; longest gap {ms(busy['gap_us'])}", max(busy["stall_us"], busy["peer_stall_us"]) / 1e3, "<=", 1)
        least = count * 8 * 100 # four commands for each queue pair; address handles are few, since the peers share hosts
        yield Result("connect", f"{way}, {count} peers: time over that of the commands, without traffic", f"all connected after "
                     f"{ms(idle['connected_us'])}, with traffic {ms(busy['connected_us'])}; {idle['datagrams']:.0f} datagrams",
                     idle["connected_us"] / least if idle["connected_us"] > 0 else never, "<=", 1.3)


def receiver(c):
    """A receiver that makes no progress for 10 s (RNR), all paths healthy: paths given up"""
    for transport in RC_DC:
        for op in ("am",) if c.quick else ("am", "put"):
            for stopped in (False, True):
                r = simulate(c, "receiver", transport=transport, op=op, seconds=10, poll=500, **({"stopped": True} if stopped else {}))
                yield Result("receiver", f"{transport}, {op}, {'stopped' if stopped else 'computing'}",
                             f"{r['path_failures']:.0f} failovers, goes on {ms(r['resumed_us'])} after its return",
                             r["path_failures"], "<=", 0)


def partition(c):
    """All paths gone for 10 s in the middle of an alltoall of 4 ranks: ms until the first message after their return"""
    for transport in RC_DC:
        for kind, fault, repair in (("silent", "drop 100% all", "drop 0% all"), ("ports", "port down all", "port up all")):
            r = simulate(c, "partition", transport=transport, fault=fault, repair=repair, seconds=10, count=300, poll=200)
            text = (f"{'completed' if r['completed'] else 'NOT COMPLETED'}; first message {ms(r['first_message_us'])}, all ranks "
                    f"{ms(r['all_ranks_us'])} after the return")
            late = r["all_ranks_us"] / 1e3 if r["completed"] and r["all_ranks_us"] >= 0 else float("inf")
            yield Result("partition", f"{transport}, {kind}: resumes", text, late, "<=", 100)
            yield Result("partition", f"{transport}, {kind}: memory per rank", f"buffers registered {r['buffers_before'] / 1e6:.1f} MB "
                         f"before, at most {r['buffers_most'] / 1e6:.1f} MB; {r['operations_open_most']:.0f} operations waiting; the "
                         f"whole job grew by {r['resident_growth'] / 1e6:.1f} MB",
                         r["buffers_most"] / r["buffers_before"], "<=", 2)


def flaps(c):
    """1,000 flaps of one rail in one job: growth of memory from a tenth of them to the end, queue pairs likewise"""
    for transport in RC_DC:
        for hold in ((0,) if c.quick else (0, 100)):
            count = 200 if c.quick else 1000 # without hold-down every flap is one failure and one return
            r = simulate(c, "flaps", transport=transport, count=count, down=1, after=4, hold_down=hold, window=4, **PORT)
            _, early, *_, last = r["looks"]
            most = max(look["queue_pairs"] for look in r["looks"])
            least = min(look["queue_pairs"] for look in r["looks"])
            growth = last["heap"] / early["heap"] - 1
            text = (f"{'completed' if r['completed'] else 'NOT COMPLETED'}, {r['path_returns']:.0f} returns on both sides, queue pairs "
                    f"{least} to {most}; heap {early['heap'] / 1e6:.2f} -> {last['heap'] / 1e6:.2f} MB, resident "
                    f"{early['resident'] / 1e6:.1f} -> {last['resident'] / 1e6:.1f} MB")
            what = f"{transport}, {count} flaps, {'no hold-down' if hold == 0 else 'hold-down as always'}"
            yield Result("flaps", f"{what}: growth, %", text, 100 * growth if r["completed"] else float("inf"), "<=", 1)
            yield Result("flaps", f"{what}: queue pairs more", f"{last['queue_pairs'] - early['queue_pairs']}",
                         last["queue_pairs"] - early["queue_pairs"], "<=", 0)


def balance(c):
    """Section 9.2.3 lets a user migrate to another route for load balance. Nothing is migrated here: a queue pair that was always
    elsewhere is the best that it could give. That is compared with the routes together, while another flow takes most of the one."""
    run = 100 if c.quick else 400
    def rate(**more):
        return rate_of(c.build, fabric=FOUR_ROUTE, **{"from": 0}, to=6, run=run, **more) # the other flow's host: the same routes
    for op, size in (("put", MIB), ("put", 65536), ("get", MIB)):
        stays, moved = (rate(op=op, size=size, paths=1, policy="binding", **hot) for hot in ({"hot": 0.75}, {}))
        together = rate(op=op, size=size, hot=0.75)
        yield Result("apm", f"balance, {op} of {size // 1024} KiB, one of four routes is 75 % taken: striping by a queue pair that was "
                     "always elsewhere", f"stays {stays:.0f}, always elsewhere {moved:.0f}, default {together:.0f} MB/s",
                     together / moved, ">=", 2.5)


def apm(c):
    """Automatic path migration to the adapter's other port, mp_rc: pause of deliveries by that of software failover"""
    two_ports = {"fabric": "dual-port", "rails": "softhca_0:1,softhca_0:2", "paths": 1}
    for kind, fault in (("port down", PORT), ("silent", SILENT_RAIL)):
        # Both rails' queue pairs stay, on one port now, and its adapter serves them in turns of 16 KiB. Longer puts end in pairs by
        # that, with a gap of nearly both their times, from the fault to the port's return: perf/findings/apm.md.
        for op, size in (("am", 8000), ("put", 16384), ("put", 65536))[c.quick:]:
            soft, hard = (simulate(c, "fault", op=op, size=size, down=100, after=100, **two_ports, **fault, **more) for more in ({}, {"apm": True}))
            ratio = hard["delivery_gap_us"] / soft["delivery_gap_us"]
            what = f"{kind}, {op} of {size} bytes"
            yield Result("apm", what, f"{ms(hard['delivery_gap_us'])} with, {ms(soft['delivery_gap_us'])} without, on the wire "
                         f"{ms(hard['wire_gap_us'])} and {ms(soft['wire_gap_us'])} ({hard['migrations']:.0f} migrations, "
                         f"{hard['path_failures']:.0f} failures)", ratio, "<=", 1)
            if fault is PORT: # of a silent loss most of it is detection
                yield Result("apm", f"{what}: pause without migration, us", ms(soft["delivery_gap_us"]), soft["delivery_gap_us"], "<=", 200)
            yield Result("apm", f"{what}: after the port's return", f"{hard['final']:.3f} GB/s with, {soft['final']:.3f} GB/s without, "
                         f"{hard['original']:.3f} before")
    yield from balance(c)
    job = {"count": 400, "poll": 100, **two_ports}
    quiet = simulate(c, "partition", fault="drop 0% all", repair="drop 0% all", seconds=0.01, **job)["job_ms"]
    for length in (10, 100):
        for name, more in (("with", {"apm": True}), ("without", {})):
            r = simulate(c, "partition", seconds=length / 1e3, **PORT, **job, **more)
            worse = 100 * (r["job_ms"] / quiet - 1)
            yield Result("apm", f"alltoall, a port of one rank down for {length} ms, {name}: %", f"{r['job_ms']:.1f} ms, without a fault "
                         f"{quiet:.1f} ms: {worse:+.2f} %", *((worse, "<=", 5) if length == 10 else ()))


ROWS = {"cost": cost, "port_down": port_down, "silent_loss": silent_loss, "bandwidth": bandwidth, "replay": replay, "peers": peers, "connect": connect,
        "receiver": receiver, "partition": partition, "flaps": flaps, "apm": apm}
