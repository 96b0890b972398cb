#!/usr/bin/python3
"""Common mistakes: what is said of each, and that nothing hangs: mistakes.py BUILD SOURCE [CASE]

Every case runs stock programs with something forgotten or wrong. The output has to have the line that says what to do,
once, and the program has to end.
"""
import os
import re
import subprocess
import sys
import tempfile

BUILD, SOURCE = (os.path.abspath(path) for path in sys.argv[1:3])
SOFTHCA, LIBRARY = os.path.join(BUILD, "bin/softhca"), os.path.join(BUILD, "lib/libuct_mp.so")
MPIRUN = os.path.join(SOURCE, "config/openmpi/mpirun-mp")
STORM = [os.path.join(BUILD, "bin/mpi_storm"), "1000", "1"]
MANY = ["--oversubscribe", "--bind-to", "none"]
SKIP = 77


def run(argv, limit=60, **env):
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(("UCX_", "UCT_", "SOFTHCA_", "LD_", "OMPI_"))}
    result = subprocess.run(argv, env=dict(clean, UCX_LOG_LEVEL="warn", OMPI_ALLOW_RUN_AS_ROOT="1",
                                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **env), cwd="/", text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit, errors="replace")
    return result.returncode, result.stdout


def need(output, pattern, times=1, fewer=False):
    """A line with the pattern, so often (or fewer times, but once); else the whole output and the end."""
    found = [line for line in output.splitlines() if re.search(pattern, line)]
    if len(found) != times and not (fewer and 0 < len(found) < times):
        sys.exit(f"{len(found)} lines have {pattern!r}, not {times}:\n{output}")
    return found


def adapter(*argv, fabric="two-rail", faults=None):
    where = [SOFTHCA, "run", "--fabric", fabric]
    return where + (["--faults", faults] if faults else []) + ["--", *argv]


def no_adapter():
    if os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
        print("SKIPPED: this host has adapters")
        sys.exit(SKIP)
    _, text = run(["ucx_info", "-d"], LD_PRELOAD=LIBRARY, UCX_TLS="mp_rc")
    need(text, r"mp: this host has no InfiniBand or RoCE port; ibv_devinfo shows.*UCX_MP_PORT_TIMEOUT.*softhca run")
    _, text = run(["ucx_info", "-d"], LD_PRELOAD=LIBRARY) # nobody has asked for us
    need(text, r"no InfiniBand", 0)


def no_active_port():
    with tempfile.NamedTemporaryFile("w", suffix=".faults") as faults:
        faults.write("at 0s port down all\n")
        faults.flush()
        _, text = run(adapter("sh", "-c", "sleep 1; exec ucx_info -d", faults=faults.name), LD_PRELOAD=LIBRARY, UCX_TLS="mp_rc")
    need(text, r"mp: no active InfiniBand or RoCE port on this host \(softhca_0: down, softhca_1: down\); .*UCX_MP_PORT_TIMEOUT")


def preload_behind_softhca():
    _, text = run(adapter("env", "LD_PRELOAD=" + LIBRARY, "ucx_info", "-d"), UCX_TLS="mp_rc")
    need(text, r"LD_PRELOAD: set LD_PRELOAD before `softhca run`, not behind it")


def preload_forgotten():
    code, text = run(adapter("mpirun.openmpi", "--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca",
                             "opal_common_ucx_devices", "any", *MANY, "-n", "2", *STORM), UCX_TLS="mp_rc")
    if code == 0:
        sys.exit("the job went on without the transport:\n" + text)
    said = need(text, r"transports? 'mp_rc'.* not available", len(re.findall(r"transports? 'mp_rc'.* not available", text)))
    if not said: # UCX's own words, as config/README.md quotes them
        sys.exit("UCX does not say what it lacks:\n" + text)
    _, text = run(adapter(os.path.join(BUILD, "bin/mp_info")), UCX_TLS="mp_rc")
    need(text, r"mp_info: UCX_TLS names mp_rc or mp_dc, but LD_PRELOAD has no libuct_mp\.so.*mpirun-mp")
    _, text = run(adapter(os.path.join(BUILD, "bin/mp_info")), UCX_TLS="mp_rc", LD_PRELOAD=LIBRARY)
    need(text, r"mp_info: UCX_TLS", 0)


def mpi_without_ucx():
    for parameters in (["--mca", "pml", "ob1", "--mca", "btl", "^openib,uct"], ["--mca", "pml", "^ucx"]):
        code, text = run(adapter("mpirun.openmpi", *parameters, *MANY, "-n", "2", "-x", "LD_PRELOAD=" + LIBRARY, *STORM),
                         UCX_TLS="mp_rc")
        if code:
            sys.exit(f"the job failed:\n{text}")
        need(text, r"UCX_TLS names this transport, but Open MPI has not used (UCX|it): start the job with mpirun-mp, or")
    code, text = run(adapter(MPIRUN, *MANY, "-n", "2", *STORM), UCX_TLS="mp_rc", UCT_MP_LIBRARY=LIBRARY)
    need(text, r"has not used", 0)
    need(text, r"2 ranks ok")


def locked_memory():
    for kilobytes in (0, 64, 1024, 4096):
        code, text = run(["bash", "-c", f'ulimit -l {kilobytes} && exec "$0" "$@"', *adapter(MPIRUN, *MANY, "-n", "2", *STORM)],
                         UCX_TLS="mp_rc", UCT_MP_LIBRARY=LIBRARY, SOFTHCA_MEMLOCK="y")
        if code == 0:
            sys.exit(f"the job runs with {kilobytes} KiB of locked memory:\n{text}")
        if not re.search(rf"the limit of locked memory is {kilobytes} KiB \(ulimit -l\): raise it on every host", text):
            sys.exit(f"{kilobytes} KiB: nobody says that the limit is to be raised:\n{text}")
    code, text = run(adapter(MPIRUN, *MANY, "-n", "2", *STORM), UCX_TLS="mp_rc", UCT_MP_LIBRARY=LIBRARY)
    need(text, r"2 ranks ok")


def mixed_job(first, second, transport="mp_rc", **env):
    """Two ranks with settings of their own: lists of NAME=VALUE.

    One program that looks for its rank's: mpirun 5.0 ends with a fault of its own at `-n 1 env A=B program : ...`.
    """
    choose = 'settings=MIXED_$OMPI_COMM_WORLD_RANK; exec env ${!settings} "$0" "$@"'
    return run(adapter(MPIRUN, *MANY, "-n", "2", "bash", "-c", choose, *STORM,
                       fabric="sixteen-rail" if transport == "mp_rc" else "two-rail"),
               UCX_TLS=transport, UCT_MP_LIBRARY=LIBRARY, MIXED_0=" ".join(first), MIXED_1=" ".join(second), **env)


def mixed_versions():
    for transport in ("mp_rc", "mp_dc"):
        # A release without the features that came later.
        for old in ([["UCX_MP_FEATURES=0"]] if transport == "mp_rc" else [["UCX_MP_FEATURES=1"]]):
            for pair in ((old, []), ([], old)):
                code, text = mixed_job(*pair, transport)
                if code:
                    sys.exit(f"{pair} over {transport}: {code}\n{text}")
                need(text, r"2 ranks ok")
        # One that speaks another protocol: one line on each side, which says who is too old.
        for other in ("5", "7"):
            # Each process has a log of its own: a launcher may put one line amid another.
            with tempfile.TemporaryDirectory() as folder:
                code, text = mixed_job([f"UCX_MP_PROTOCOL={other}"], [], transport, UCX_LOG_FILE=os.path.join(folder, "%p"))
                if code == 0:
                    sys.exit(f"a job of two protocols went on:\n{text}")
                text = "".join(open(os.path.join(folder, name), encoding="utf-8").read() for name in sorted(os.listdir(folder)))
            lines = need(text, r"a peer cannot be reached: it speaks .*: libuct_mp\.so is too old (here|there); install the same release",
                         len(re.findall("a peer cannot be reached", text)))
            if not 1 <= len(lines) <= 4:
                sys.exit(f"{len(lines)} lines on the peer that is too old:\n{text}")


def log_amid_results():
    """A variable that UCX does not know: its warning is no part of the job's results, unless the user says so."""
    storm = os.path.join(BUILD, "tests/mpi/storm.mpich")
    jobs = [[MPIRUN, *MANY, "-n", "2", *STORM]]
    if os.path.exists(storm):
        jobs.append([os.path.join(SOURCE, "config/mpich/mpiexec-mp"), "-n", "2", storm, *STORM[1:]])
    for job in jobs:
        with tempfile.TemporaryDirectory() as folder:
            kept = os.path.join(folder, "log")
            for said in ({}, {"UCX_LOG_FILE": kept}):
                # Both streams come together in run(): what has come to stdout is marked.
                _, text = run(["bash", "-c", "\"$0\" \"$@\" | sed 's/^/result: /'", *adapter(*job)], UCX_TLS="mp_rc",
                              UCT_MP_LIBRARY=LIBRARY, UCX_NO_SUCH_VARIABLE="1", **said)
                need(text, "^result: storm: 2 ranks ok")
                need(text, "^result: .*UCX", 0)
                if said:
                    need(text, "UCX  WARN", 0)
                elif "UCX  WARN" not in text:
                    sys.exit(f"the warning is not on stderr:\n{text}")
            if "UCX_NO_SUCH_VARIABLE" not in open(kept).read():
                sys.exit("UCX_LOG_FILE has no warning")


def bad_settings():
    """Each line once per process, over pml/mp as over stock pml/ucx; what pml/mp ends with points there. The first rank
    that ends may take the other with it before that one has said anything."""
    for name, value, line in (("UCX_MP_POLICY", "bss:n_batch=9", r"n_batch = 9 is not allowed; allowed: 1 to n_paths \(2\)"),
                              ("UCX_MP_RC_MAX_CONN", "-2", "allowed is 1 to 1048576"),
                              ("UCX_MP_RC_TX_WINDOW", "4294967295", "allowed is 16 to 32768")):
        for pml in ("mp", "ucx"):
            code, text = run(adapter(MPIRUN, "--mca", "pml", pml, *MANY, "-n", "2", *STORM), UCX_TLS="mp_rc",
                             UCT_MP_LIBRARY=LIBRARY, UCX_MP_RAILS="softhca_0:1,softhca_1:1", **{name: value})
            if code == 0:
                sys.exit(f"{name}={value} over pml/{pml}: the job went on:\n{text}")
            need(text, re.escape(f"{name}={value}: ") + line, 2, fewer=True)
            if pml == "mp":
                need(text, r"pml/mp: mp_rc cannot be opened with these settings: see its own line above", 2, fewer=True)
    # Two who switch off a third.
    code, text = run(adapter(MPIRUN, "--mca", "pml", "mp", *MANY, "-n", "2", *STORM), UCX_TLS="mp_rc",
                     UCT_MP_LIBRARY=LIBRARY, UCX_MP_RECOVERY="n", UCX_MP_APM="try", UCX_MP_HOLD_DOWN="1s")
    need(text, r"2 ranks ok")
    need(text, r"UCX_MP_APM=try has no effect: UCX_MP_RECOVERY=n", 2)
    need(text, r"UCX_MP_HOLD_DOWN=1s has no effect: UCX_MP_RECOVERY=n", 2)


CASES = (no_adapter, no_active_port, preload_behind_softhca, preload_forgotten, mpi_without_ucx, locked_memory, mixed_versions,
         log_amid_results, bad_settings)
if __name__ == "__main__":
    for case in CASES:
        if sys.argv[3:] in ([], [case.__name__]):
            case()
            print(case.__name__, "ok", flush=True)
