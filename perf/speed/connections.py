"""The rows of perf/adaptive about connections that come and go (ACTS): what a limit costs."""
import os

from speed import adaptive
from speed.rows import Plot, Result
from speed.run import ROOT, environment, output

TASKS = 3000 # of a process, in the text's 131 s: 44 ms each
TASK_NS = 43_000_000 # computation of one: the rest is communication
# The text's limits as parts of its 512 servers: connections are so many times fewer, and the job loses that much by LRU.
RATIOS = ((4, 0.02), (16, 0.05), (128, 0.07))
TEXT_TORN = {4: "0.12 (LRU), 0.10 (LRU-M)", 16: "0.78, 0.69"} # a task, at 300 us each; by ratio
TEAR_DOWN = 300e-6 # s: the text's "hundreds of micro-seconds"; 0.11 s and 0.70 s are then 370 and 2300 of them


class Lru:
    """The one that has not been used for longest."""

    def __init__(self, places, _future):
        self.places, self.order, self.tear_downs = places, {}, 0

    def use(self, _now, peer):
        held = self.order.pop(peer, None) is not None
        if not held and len(self.order) >= self.places:
            del self.order[self.victim()]
            self.tear_downs += 1
        self.order[peer] = True # the newest last
        return held

    def victim(self):
        return next(iter(self.order))


class LruM(Lru):
    """Of those that have been torn down least often, the one that has not been used for longest."""

    def __init__(self, places, future):
        super().__init__(places, future)
        self.torn = {}

    def victim(self):
        worst = min(self.order, key=lambda peer: self.torn.get(peer, 0)) # the first of them is the oldest
        self.torn[worst] = self.torn.get(worst, 0) + 1
        return worst


class Belady(Lru):
    """The optimum: whoever is used again last. It has to know the future."""

    def __init__(self, places, future):
        super().__init__(places, future)
        self.next_use = {} # of those held
        self.after = [0] * len(future)
        seen = {}
        for at in range(len(future) - 1, -1, -1):
            self.after[at] = seen.get(future[at], len(future) + 1)
            seen[future[at]] = at

    def use(self, now, peer):
        held = super().use(now, peer)
        self.next_use[peer] = self.after[now]
        return held

    def victim(self):
        return max(self.order, key=lambda peer: self.next_use[peer])


POLICIES = {"LRU": Lru, "LRU-M": LruM, "optimum": Belady}


def tear_downs(traces, policy, places):
    """Mean per process."""
    total = 0
    for trace in traces:
        held = policy(places, trace)
        for now, peer in enumerate(trace):
            held.use(now, peer)
        total += held.tear_downs
    return total / len(traces)


def traces_of(c, ranks, tasks, some, seed, kernel="taskpool", nodes=64):
    """Whom `some` of the processes that have tasks talk to, in order."""
    path = os.path.join(c.folder, "trace.txt")
    output([f"{c.build}/bin/mp_sim", "--fabric", adaptive.FABRIC, "--kernel", kernel, "--nodes", str(nodes), "--ranks-per-node",
            str(ranks // nodes), "--messages", str(tasks), "--seed", str(seed), "--trace", path],
           environment(SOFTHCA_FABRICS=f"{ROOT}/config/fabrics"))
    with open(path, encoding="ascii") as lines:
        rows = [row for row in (line.split() for line in lines) if row]
    return [rows[i] for i in range(1, len(rows), max(1, len(rows) // some))][:some]


def of_transport(c, traces, policy, limits):
    """The transport's own policy on traces, told what it is told there: {limit: tear-downs, mean per process}."""
    path = os.path.join(c.folder, "traces.txt")
    with open(path, "w", encoding="ascii") as file:
        file.writelines(" ".join(trace) + "\n" for trace in traces)
    lines = output([f"{c.build}/bin/bench_victims_trace", policy, path, *map(str, limits)]).splitlines()
    return {int(limit): float(n) for limit, n in (line.split() for line in lines)}


def victims(c):
    """Tear-downs of the task pool with 2048 processes (512 servers), by policy, computed from its trace; no transport"""
    some, tasks = (8, TASKS) if c.quick else (24, TASKS)
    limits = (4, 8, 16, 32, 64, 128, 256)
    traces = traces_of(c, 2048, tasks, some, 1)
    found = {name: {limit: tear_downs(traces, policy, limit) for limit in limits} for name, policy in POLICIES.items()}
    found["own"] = of_transport(c, traces, "own", limits)
    for limit, text in ((128, "0.11 / 0.09 s"), (32, "0.704 / 0.621 s"), (4, "-")):
        yield Result("victims", f"2048 processes, max_conn {limit}",
                     f"text (LRU / LRU-M) {text}; ours at 300 us each: "
                     + ", ".join(f"{name} {n[limit]:.0f} = {n[limit] * TEAR_DOWN:.3f} s" for name, n in found.items()))
    # The text's policies hear of each use. In a transport they hear, as ours does, who was used since the last search.
    told = {name: of_transport(c, traces, name, limits) for name in ("lru", "lru_m")}
    parts = {limit: found["own"][limit] / min(told["lru"][limit], told["lru_m"][limit]) for limit in limits}
    yield Result("victims", "2048 processes, ours beside the better of LRU and LRU-M that hear the same, worst limit",
                 ", ".join(f"{limit}: {part:.3f}" for limit, part in parts.items()), max(parts.values()), "<=", 1)
    c.plots.append(Plot(f"Task pool of 2048 processes, {tasks} tasks each: tear-downs of a process, by its limit", "lines",
                        ["log2 of max_conn"],
                        {name: [(limit.bit_length() - 1, n) for limit, n in points.items()] for name, points in found.items()},
                        "tear-downs"))


def task_pool(c):
    """The task pool whose data servers have tasks of their own, and a limit like all others (not the text's setting)"""
    yield from limits_of(c, "taskpool", {}, 16, 4, 40)


def data_servers(c):
    """The task pool with data servers that only serve, and have no limit: the text's setting"""
    for nodes, per_node, tasks in ((16, 4, 40),) if c.quick else ((16, 16, 30), (64, 16, 10)):
        yield from limits_of(c, "dataservers", {"unlimited": 4}, nodes, per_node, tasks)


def job_of(nodes, per_node, tasks):
    """A task takes 44 ms, as the text's. Commands as that text has them (tear-down in hundreds of microseconds), not as the
    other's. The first run is not measured: there all meet for the first time, once in the text's 3000 tasks."""
    return {"nodes": nodes, "ranks_per_node": per_node, "messages": tasks, "compute": TASK_NS, "warm_up": 1,
            "fault": [f"command-cost {what} all" for what in ("create 100us", "modify 60us", "destroy 100us")]}


def servers_that(c):
    """Why LRU loses more in `taskpool` than in `dataservers`: servers that compute, servers with a limit, or both"""
    nodes, per_node, tasks = (16, 4, 40) if c.quick else (16, 16, 30)
    job, servers = job_of(nodes, per_node, tasks) | adaptive.RC | {"on_demand": True}, nodes * per_node // 4
    for computing in (True, False):
        kernel = "taskpool" if computing else "dataservers"
        free = adaptive.simulate(c, kernel, **job)["time_us"]
        for limited in (True, False):
            found = adaptive.simulate(c, kernel, **job, max_conn=servers // 4, victims="lru", **({} if limited else {"unlimited": 4}))
            yield Result("servers", f"{nodes * per_node} processes, max_conn {servers // 4}, lru; servers "
                         f"{'compute' if computing else 'only serve'}, {'have the limit, too' if limited else 'have none'}",
                         f"{100 * (found['time_us'] / free - 1):+.1f} %, {found['parks'] / tasks:.2f} tear-downs a task; a process waits "
                         f"{found['wait_us'] / 1e3:.1f} ms for places, its questions take {found['parting_us'] / 1e3:.1f} ms")


def limits_of(c, kernel, how, nodes, per_node, tasks):
    job = job_of(nodes, per_node, tasks)
    ranks = nodes * per_node
    servers = ranks // 4
    ready = adaptive.simulate(c, kernel, **job, **adaptive.RC, **how)
    demand = adaptive.simulate(c, kernel, **job, **adaptive.RC, on_demand=True, **how)
    dc = adaptive.simulate(c, kernel, **job, transport="mp_dc", on_demand=True)

    def text(found):
        pairs = found["limited_pairs"]
        return f"{found['time_us'] / 1e3:.1f} ms, {pairs:.1f} queue pairs = {pairs * adaptive.QUEUE_PAIR / 1e6:.3f} MB a process " \
               f"({demand['limited_pairs'] / pairs:.1f}x less), {found['parks'] / tasks:.2f} tear-downs a task"

    def spent(found):
        return f"a process waits {found['wait_us'] / 1e3:.1f} ms for places ({found['waits']:.1f} times), " \
               f"{found['handshake_us'] / 1e3:.1f} ms for {found['handshakes']:.1f} handshakes; " \
               f"its questions take {found['parting_us'] / 1e3:.1f} ms; {found['most']:.0f} places at most"
    yield Result(kernel, f"{ranks} processes, no limit", f"RC {text(demand)}; connected before {ready['time_us'] / 1e3:.1f} ms; "
                 f"DC {dc['time_us'] / 1e3:.1f} ms, {dc['queue_pairs']:.0f} queue pairs")
    if not adaptive.has_limit(c):
        return
    traces = traces_of(c, ranks, tasks, 64, 1, kernel, nodes)
    series = {victims: [] for victims in ("lru", "lru_m", "own")}
    for memory, loss in RATIOS:
        limit = servers // memory
        if limit == 0:
            continue # the job is too small for it
        by_trace = {name: tear_downs(traces, policy, limit) for name, policy in POLICIES.items()}
        by_trace["own"] = of_transport(c, traces, "own", [limit])[limit]
        computed = ", ".join(f"{name} {n / tasks:.2f}" for name, n in by_trace.items())
        yield Result(kernel, f"{ranks} processes, max_conn {limit}",
                     f"tear-downs a task by its trace, from nothing: {computed}; text of 2048 processes {TEXT_TORN.get(memory, '-')}")
        for name, points in series.items():
            found = adaptive.simulate(c, kernel, **job, **adaptive.RC, on_demand=True, max_conn=limit, victims=name, **how)
            ours = found["time_us"] / demand["time_us"] - 1
            points.append((limit, 100 * ours))
            judged = {"value": 1 + ours, "sense": "<=", "target": 1 + loss / 2} if name == "own" else {}
            yield Result(kernel, f"{ranks} processes, max_conn {limit}, {name}",
                         f"servers / {memory}: text (LRU) +{100 * loss:.0f} %, ours {100 * ours:+.1f} %: {text(found)}; {spent(found)}",
                         **judged)
        # With mp_rc,mp_dc it is the default that has the limit. RC for connections that come and go would cost it.
        dynamic, eager = (adaptive.simulate(c, kernel, **job, transport=name, on_demand=True, max_conn=limit, **how)
                          for name in ("mp_dc", "eager"))
        yield Result(kernel, f"{ranks} processes, max_conn {limit}, eager",
                     f"{text(eager)}; mp_dc without RC {text(dynamic)}: {eager['time_us'] / dynamic['time_us']:.2f}",
                     eager["time_us"] / dynamic["time_us"], "<=", 1.02)
    c.plots.append(Plot(f"{kernel}, {ranks} processes: time lost, by max_conn", "lines", ["log2 of max_conn"],
                        {name: sorted((limit.bit_length() - 1, lost) for limit, lost in points)
                         for name, points in series.items()}, "%"))
