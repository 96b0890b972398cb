"""Stock Open MPI with our pml/mp, which talks to the transport without UCP: hpcc, NetPIPE, mpi4py's own tests.

Windows of mpi4py go through our osc/mp (those of shared memory through osc/sm), without the exceptions that stock osc/ucx
needs. Every rank says at the end what it has sent by which transport: a job
whose messages went another way, or of which a rank did not come to its end, has failed.
"""

import os
import re
import subprocess

import judge_faults
from judge import Group, check
from judge_mpi import hpcc, mpi4py, mpirun, netpipe, series

group = Group()

TRANSPORTS = ("mp_rc", "mp_dc")
SAID = re.compile(r"pml/mp: rank (\d+): (.*); eager .* dropped (\d+);.*windows: [^;]* dropped (\d+)"
                  r"; collectives: [^;]* dropped (\d+)")
SENT = re.compile(r"(\w+) (\d+) messages (\d+) bytes(?: \+ (\d+) moves (\d+) bytes)?")


def module(session):
    return os.path.join(session.build, "lib", f"openmpi{series()}")


def stock():
    """The folder of Open MPI's own components."""
    said = subprocess.run(["ompi_info", "--parsable", "--path", "pkglibdir"], check=True, text=True, capture_output=True)
    return re.search(r"^path:pkglibdir:(.*)$", said.stdout, re.M)[1]


def environment(transport, **more):
    """MCA parameters by the environment: their folder is the session's. No library is preloaded.

    Which ranks came to MPI_Finalize is carried()'s to say, not the launcher's (tests/mpi/carried.py says why)."""
    def env(session):
        check(os.path.exists(os.path.join(module(session), "mca_pml_mp.so")), "mca_pml_mp.so is not built")
        return {"OMPI_MCA_mca_base_component_path": f"{module(session)}:{stock()}", "OMPI_MCA_pml_mp_statistics": "1",
                "OMPI_MCA_orte_allowed_exit_without_sync": "1",
                "OMPI_MCA_pml_mp_transports": f"self,posix,cma,{transport}", "UCX_LOG_LEVEL": "warn", **more}
    return env


def launch_windows(ranks, *argv):
    return mpirun(ranks, *argv, mca={"pml": "mp", "osc": "mp,sm", "btl": "^openib,uct"})


def launch(ranks, *argv):
    return mpirun(ranks, *argv, mca={"pml": "mp", "osc": "pt2pt" if series() < 5 else "mp,sm",
                                                     "btl": "^openib,uct"})


def totals(text):
    """{transport: [messages, bytes]} of all that ranks say at their ends; printed, too. Every lane that is open is named."""
    sent = {}
    for _, line, *_ in SAID.findall(text):
        for name, messages, in_messages, _, moved in SENT.findall(line):
            total = sent.setdefault(name, [0, 0])
            total[0] += int(messages)
            total[1] += int(in_messages) + int(moved or 0)
    print("carried: " + ", ".join(f"{name} {messages} messages {size} bytes" for name, (messages, size) in sent.items()),
          flush=True)
    return sent


def carried(transport, shared=False):
    """All ranks have said what they sent; it was our transport that carried it, and shared memory if `shared`."""
    def also(_session, ranks, text):
        said = SAID.findall(text)
        # A job of mpi4py's is one program; all of its ranks speak, or the suite itself says that it crashed.
        # So do processes that it has spawned.
        check({int(rank) for rank, *_ in said} >= set(range(ranks)), f"{len(said)} of {ranks} ranks say what they sent")
        check(all(dropped == ["0", "0", "0"] for _, _, *dropped in said), "messages that made no sense were dropped")
        sent = totals(text)
        for name, wanted in ((transport, True), ("posix", shared)):
            messages, size = sent.get(name, (0, 0))
            check((size > 0) == wanted, f"{name} carried {messages} messages, {size} bytes")
        complaint = re.search(r"^.*UCX +(?:WARN|ERROR|FATAL) .*", text, re.M)
        check(not complaint, f"UCX complains: {complaint and complaint[0]}")
    return also


for transport in TRANSPORTS:
    for ranks, rows in ((2, 1), (4, 2), (8, 2)):
        # With more than four ranks RandomAccess loses updates by itself (judge_mpi.py), more if several of its receives
        # have ended when it looks. The progress thread can end several while its program has no processor: up to 1 % were
        # seen with eight ranks on two busy ones.
        alone = {"OMPI_MCA_pml_mp_async": "n"} if ranks > 4 else {}
        group.add(hpcc(ranks, rows, ranks // rows, env=environment(transport, **alone), launch=launch,
                       also=carried(transport)),
                  f"hpcc_{ranks}_{transport}", ("four-path",) if ranks == 4 else ("ideal",), seconds=260,
                  # In every run over mp_rc here, and over mp_dc while links are pulled (faults_hpcc).
                  long=(transport == "mp_rc") != (ranks == 4) or ranks == 8)
    group.add(netpipe("-i", integrity=True, env=environment(transport), launch=launch, also=carried(transport)),
              f"netpipe_integrity_{transport}", ("ideal", "four-path"), seconds=60)
    group.add(netpipe("-i", "-a", integrity=True, env=environment(transport), launch=launch, also=carried(transport)),
              f"netpipe_integrity_async_{transport}", ("ideal",), seconds=60)
    group.add(netpipe("-i", integrity=True, env=environment(transport, OMPI_MCA_pml_mp_rendezvous="put"), launch=launch,
                      also=carried(transport)), f"netpipe_put_{transport}", ("ideal", "four-path"), seconds=60)
group.add(netpipe("-i", "-S", integrity=True, env=environment("mp_rc"), launch=launch, also=carried("mp_rc")),
          "netpipe_integrity_sync", ("ideal",), seconds=60)

# `jobs`: also what starts other jobs and meets them; 5.0's mpirun can't (pml_glue/README.md). A child is on a node of its
# parent's job, and nothing but our transport may carry what they say.
for ranks, transport, fabric, jobs in ((2, "mp_rc", "ideal", False), (2, "mp_rc", "ideal", True), (4, "mp_dc", "four-path", False),
                                       (8, "mp_rc", "ideal", False)):
    if jobs and series() >= 5:
        continue
    group.add(mpi4py(ranks, env=environment(transport, OMPI_MCA_pml_mp_transports=f"self,{transport}"), launch=launch_windows,
                     also=carried(transport), own_windows=True, jobs=jobs),
              f"mpi4py_{ranks}_{transport}" + ("_jobs" if jobs else ""), (fabric,), seconds=1000 if ranks == 8 else 700,
              long=jobs or ranks > 2)


# Collective operations of coll/mp: each kind has to be ours at some rank. Blocks are small there, so large ones begin early here.
OURS = ("barrier", "bcast", "allgather", "allreduce", "gather", "reduce", "scatter", "alltoall", "exchangev", "puts")


def ours(transport):
    def also(session, ranks, text):
        carried(transport)(session, ranks, text)
        sums = dict.fromkeys(OURS, 0)
        for line in re.findall(r"; collectives:([^;]*)", text):
            for name, count in re.findall(r"(\w+) (\d+),", line):
                if name in sums:
                    sums[name] += int(count)
        print("ours: " + ", ".join(f"{name} {count}" for name, count in sums.items()), flush=True)
        check(all(sums.values()), "not all kinds of operations were ours: " + ", ".join(n for n in OURS if not sums[n]))
    return also


group.add(mpi4py(2, env=environment("mp_rc", OMPI_MCA_pml_mp_transports="self,mp_rc", OMPI_MCA_coll_mp_enable="all",
                                    OMPI_MCA_coll_mp_eager="64"),
                 launch=launch, also=ours("mp_rc"), collectives=True), "mpi4py_collectives_2", ("ideal",), seconds=200)


# Ports and links are pulled while jobs run: nobody may notice (tests/faults/judge_faults.py).

def logging(transport, **more):
    def env(session):
        return {**environment(transport, **more)(session), **judge_faults.logging(transport)(session)}
    return env


def storm(transport):
    def run(session):
        path = os.path.join(session.build, "bin", "mpi_storm")
        text = session.run(launch(4, path, "1000000", "2", "2"), env=logging(transport), seconds=60)
        check("storm: 4 ranks ok" in text, "storm does not say that all is well")
        carried(transport)(session, 4, text)
    return run


def chapter(name, transport, *arguments, launch=launch, ranks=4, says="4 ranks ok"):
    """A program of ours that checks MPI's text."""
    def run(session):
        path = os.path.join(session.build, "bin", f"mpi_{name}")
        text = session.run(launch(ranks, path, *arguments), env=logging(transport), seconds=100)
        check(f"{name}: {says}" in text, f"{name} does not say that all is well")
        carried(transport)(session, ranks, text)
    return run


def under_faults(transport, ranks, job, gap, least):
    def run(session):
        # Faults come in real time. On a loaded machine a job has less of the processor than they leave it, and would not end;
        # so the last part of its time is quiet. What hangs still hangs then.
        judge_faults.harass(session, session.places[:ranks], "loud", 40, gap)
        for _ in range(4):  # a quick job may be over before faults meet it
            if judge_faults.judged(session, job)["down"] >= least:
                return
        check(False, f"fewer than {least} paths have failed: nothing has been tested")
    return run


for transport in TRANSPORTS:
    jobs = {"hpcc": (4, hpcc(4, 2, 2, env=logging(transport), launch=launch, also=carried(transport))),
            "netpipe": (2, netpipe("-i", "-n", "400", integrity=True, env=logging(transport), launch=launch,
                                   also=carried(transport))),
            "mpi4py": (2, mpi4py(2, env=logging(transport), launch=launch_windows, also=carried(transport), own_windows=True)),
            "storm": (4, storm(transport)), "point_to_point": (4, chapter("point_to_point", transport)),
            "one_sided": (4, chapter("one_sided", transport, launch=launch_windows)),
            # threads among which one makes progress, and which wait for each other's messages
            "threads": (4, chapter("threads", transport, "3", "150")),
            "window_threads": (2, chapter("window_threads", transport, "4", launch=launch_windows, ranks=2, says="ok"))}
    for name, (ranks, job) in jobs.items():
        suite = name == "mpi4py"
        group.add(under_faults(transport, ranks, job, 0.3 if suite else 0.15, 4), f"faults_{name}_{transport}", ("four-path",),
                  seconds=400 if suite else 260, long=transport == ("mp_rc" if name == "hpcc" else "mp_dc" if name in ("mpi4py", "netpipe", "threads", "window_threads") else ""))
