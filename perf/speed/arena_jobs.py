"""Jobs drawn at random for perf/arena: what a job is, and how one is drawn. The same seed is the same job, everywhere."""
import dataclasses
import os
import random

from speed.run import ROOT

KIB, MIB = 1 << 10, 1 << 20
WINDOWS = (1, 1, 2, 2, 3, 4, 4, 6, 8, 16, 64)
# ns of a processor per request, per completion.
HOSTS = ((0, 0), (150, 100), (150, 100), (300, 200), (500, 500), (1000, 700), (2000, 2000))
MOST_BYTES = 64 * MIB  # that a run of a job moves: larger messages would only take longer to simulate


@dataclasses.dataclass(frozen=True)
class Place:
    """A fabric: how many nodes of it take part, how many ranks a node may have, what may be slow."""
    fabric: str
    nodes: tuple
    per_node: tuple
    rates: tuple  # Gb/s of links that are slow
    rails: tuple = ()  # links of a node, which may be slow: (adapter:port, the switch of the node with this number)
    links: tuple = ()  # between switches, by names with ranges: ("leaf", 1, 3, "spine", 1, 12)
    crossing: int = 0  # more nodes than this use these
    paths: tuple = (0,)

    def slow(self, rng, nodes):
        """A fault command: a link that this many nodes use."""
        if self.links and nodes > self.crossing and not (self.rails and rng.random() < 0.3):
            a, a_first, a_last, b, b_first, b_last = rng.choice(self.links)
            where = f"{a}{rng.randint(a_first, a_last)} {b}{rng.randint(b_first, b_last)}"
        else:
            (port, switch), node = rng.choice(self.rails), rng.randrange(nodes)
            where = f"{node}:{port} {switch(node)}"
        return f"rate {rng.choice(self.rates)}Gb/s {where}"


def on(adapter, port, switch, later=None, first_later=0):
    """A rail: its nodes hang on `switch`, from the node `first_later` on on `later`."""
    return f"softhca_{adapter}:{port}", lambda node: later if later and node >= first_later else switch


def own(name):
    return os.path.join("perf", "fabrics", f"{name}.yaml")


PLACES = (
    Place("two-rail", (2, 2, 3, 4, 6, 8, 16), (1, 1, 2), (1, 2, 4), rails=(on(0, 1, "switch"), on(1, 1, "switch"))),
    Place("two-rail-unequal", (2, 3, 4, 6, 8, 12), (1, 1, 2), (1, 2, 4), rails=(on(0, 1, "switch"),)),
    Place("four-path", (6, 8, 8), (1, 1, 2), (1, 2, 4), rails=(on(0, 1, "leaf1", "leaf3", 4), on(1, 1, "leaf2", "leaf4", 4)),
          links=(("leaf", 1, 4, "spine", 1, 4),)),
    Place(own("four-path-pair"), (2,), (1, 2, 4), (1, 2, 4), links=(("leaf", 1, 4, "spine", 1, 4),)),
    Place("dual-plane", (2, 4, 12, 16, 16), (1, 1, 2), (1, 2, 4), rails=(on(0, 1, "a-leaf1", "a-leaf2", 8), on(0, 2, "b-leaf1", "b-leaf2", 8)),
          links=(("a-leaf", 1, 2, "a-spine", 1, 2), ("b-leaf", 1, 2, "b-spine", 1, 2)), crossing=8),
    Place(own("eight-rail"), (2, 4, 6, 8, 12), (1, 1, 2), (2, 4, 8, 16), rails=tuple(on(i, 1, f"plane{i}") for i in range(8))),
    Place("fattree-144", (16, 24, 24, 32, 36), (1, 1, 2), (1, 2, 4, 8), links=(("leaf", 1, 3, "spine", 1, 12),), paths=(0, 0, 12)),
)


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel of mp_sim: sizes from and to (drawn evenly by their logarithms), the ranks that it needs."""
    name: str
    least: int
    most: int
    ranks: int
    count: object  # messages of `size` bytes of a run with so many ranks and options
    powers_of_two: bool = False


KERNELS = (
    Kernel("windows", KIB, 4 * MIB, 2, lambda n, o: n // 2 * o["window"] * o["messages"]),
    Kernel("windows", KIB, 4 * MIB, 2, lambda n, o: n // 2 * o["window"] * o["messages"]),
    Kernel("windows-both", KIB, 4 * MIB, 2, lambda n, o: n * o["window"] * o["messages"]),
    Kernel("windows-both", KIB, 4 * MIB, 2, lambda n, o: n * o["window"] * o["messages"]),
    Kernel("alltoall", 4 * KIB, MIB, 4, lambda n, o: n * (n - 1)),
    Kernel("alltoall-xor", 4 * KIB, MIB, 4, lambda n, o: n * (n - 1), True),
    Kernel("alltoallv", 4 * KIB, 512 * KIB, 4, lambda n, o: n * (n - 1)),
    Kernel("ring", 8 * KIB, 2 * MIB, 3, lambda n, o: n * (n - 1)),
    Kernel("doubling", 4 * KIB, 256 * KIB, 4, lambda n, o: n * (n - 1), True),
    Kernel("allreduce", 16 * KIB, 4 * MIB, 4, lambda n, o: 2 * n),
    Kernel("reduce-scatter", 64 * KIB, 4 * MIB, 4, lambda n, o: n),
    Kernel("bcast", 8 * KIB, 2 * MIB, 4, lambda n, o: n),
    Kernel("incast", 4 * KIB, 512 * KIB, 4, lambda n, o: n),
    Kernel("displaced", 8 * KIB, MIB, 4, lambda n, o: n * n // 4),
    Kernel("halo", 4 * KIB, 512 * KIB, 8, lambda n, o: 6 * n * o["messages"]),
    Kernel("epoch", 4 * KIB, 512 * KIB, 2, lambda n, o: 32 * n),
)


@dataclasses.dataclass(frozen=True)
class Job:
    """`words`: of mp_sim, but for transports, policies, seeds and runs. `traits`: what results are grouped by."""
    seed: int
    group: str
    words: tuple
    traits: dict = dataclasses.field(hash=False, compare=False)


def fitting(rng, place, kernel, small):
    """(nodes, ranks per node), or None: this place has not enough for this kernel."""
    def fits(nodes, per_node):
        ranks = nodes * per_node
        return ranks >= kernel.ranks and (not small or ranks <= 12) and (not kernel.powers_of_two or ranks & (ranks - 1) == 0)
    choices = [(nodes, per_node) for nodes in place.nodes for per_node in place.per_node if fits(nodes, per_node)]
    return rng.choice(choices) if choices else None


def draw(seed, group, small=False):
    """The job of this seed. group: clean, slow, or all, where half of the seeds are slow. A slow job is the clean one of the
    same seed with one to three slow links. `small`: few ranks, little data."""
    rng = random.Random(f"arena {seed}")
    where = None
    while where is None:
        place, kernel = rng.choice(PLACES), rng.choice(KERNELS)
        where = fitting(rng, place, kernel, small)
    nodes, per_node = where
    options = {}
    if kernel.name.startswith("windows"):
        options["window"] = rng.choice(WINDOWS)
        options["messages"] = max(2, 12 // options["window"])
    elif kernel.name == "halo":
        options["messages"] = 6
        options["compute"] = rng.choice((0, 0, 50_000))
    elif kernel.name == "alltoallv":
        options["skew"] = rng.choice((0.6, 1.0, 1.2))
    size = int(kernel.least * (kernel.most / kernel.least) ** rng.random())
    most = MOST_BYTES // (16 if small else 1)
    size = max(kernel.least, min(size, most // max(1, kernel.count(nodes * per_node, options)))) // 64 * 64
    post, completion = rng.choice(HOSTS)
    options |= {"size": size, "rendezvous": rng.choice(("put", "get")), "host-post": post, "host-completion": completion,
                "late": rng.choice((0, 2000, 20000)), "mapping": rng.choice(("block", "block", "random", "cyclic")),
                "paths": rng.choice(place.paths)}
    words = ["--kernel", kernel.name, "--fabric", place.fabric, "--nodes", nodes, "--ranks-per-node", per_node]
    for name, value in options.items():
        words += [f"--{name}", value]
    rng = random.Random(f"arena links {seed}")
    if group == "all":
        group = rng.choice(("clean", "slow"))
    if group == "slow":
        for fault in sorted({place.slow(rng, nodes) for _ in range(rng.choice((1, 1, 1, 2, 3)))}):
            words += ["--fault", fault]
    traits = {"kernel": kernel.name, "fabric": os.path.basename(place.fabric).removesuffix(".yaml"), "processor": f"{post}/{completion} ns",
              "size": "below 16K" if size < 16 * KIB else "16K to 128K" if size < 128 * KIB else "128K and more"}
    if "window" in options:
        traits["window"] = str(options["window"])
    return Job(seed, group, tuple(map(str, words)), traits)


def fabric_path(word):
    """Fabrics of perf/fabrics are named from the top of the tree, so that a job's words are the same everywhere."""
    return os.path.join(ROOT, word) if word.startswith("perf" + os.sep) else word
