"""Jobs over the papers' fat tree (144 nodes, twelve routes) in virtual time: the default policy beside fixed ones."""
from speed.run import jobs

POLICIES = ("default", "even", "hsam", "bss:n_paths=4,n_batch=2", "binding")
# kernel, ranks, where they are
JOBS = (("alltoall", 48, "block"), ("alltoall", 64, "random"), ("alltoall", 64, "block"), ("alltoall-xor", 48, "block"),
        ("alltoall-xor", 64, "block"), ("alltoallv", 64, "random"), ("ring", 64, "random"), ("displaced", 24, "block"),
        ("incast", 16, "block"))
# Those of --quick.
QUICK = (JOBS[0], JOBS[1], JOBS[6], JOBS[7])
QUICK_READS = (JOBS[0], JOBS[7], JOBS[8])


def job(build, folder, kernel, ranks, mapping, size, host, rendezvous, seeds):
    """{policy: us} of the job, the mean of three after four for the learning policies, median of the seeds. Ranks begin
    within 2 us, drawn anew each time: in step or out of step, a single run would show one of them. And what links need for
    it over these routes (fractional maximum flow) if all ranks do each step together, us. Ranks may be ahead of others, so it
    is no lower bound."""
    rows = jobs(build, folder, ["--fabric", "fattree-144", "--kernel", kernel, "--nodes", str(ranks), "--mapping", mapping,
                                "--size", str(size), "--warm-up", "4", "--repeat", "3", "--host-post", str(host),
                                "--host-completion", str(host), "--late", "2000", "--seeds", str(seeds), "--rendezvous", rendezvous, "--bound", "--policy",
                                ";".join(POLICIES)])
    return {name: float(row["time_us"]) for name, row in zip(POLICIES, rows)}, float(rows[0]["in_order_us"])


def cases(quick):
    """(kernel, ranks, mapping, KiB, ns of a processor per request and completion, rendezvous). What the sender writes in all
    sizes; what the receiver reads, as by UCP's default, in two."""
    for host in (0, 2000) if quick else (0, 500, 2000):
        for kernel, ranks, mapping in QUICK if quick else JOBS:
            for size in (16, 64) if quick else (8, 16, 32, 64, 128, 1024):
                yield kernel, ranks, mapping, size, host, "put"
    for host in (500,) if quick else (0, 500, 2000):
        for kernel, ranks, mapping in QUICK_READS if quick else JOBS:
            for size in (16, 64):
                yield kernel, ranks, mapping, size, host, "get"
