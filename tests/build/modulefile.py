#!/usr/bin/python3
"""`module load ucx-mp` of an installed and moved build: modulefile.py BUILD SOURCE CMAKE

Loads it with Debian's environment-modules (and with Lmod's reader, if that is here), runs plain mpirun and mpiexec over the
transport on the emulated adapter, and unloads it again. Reads config/ucx.conf as UCX does. Skipped (77) without modules.
"""
import glob
import os
import shutil
import sys
import tempfile

from commands import need, run

build, source, cmake = (os.path.abspath(path) if os.sep in path else path for path in sys.argv[1:])
READERS = [os.environ.get("MODULES_CMD", ""), *glob.glob("/usr/lib/*/modulecmd.tcl")]
RANKS = ["-n", "2"]


def environment(*commands):
    """What a shell has after `module COMMAND ucx-mp` for each of the commands."""
    script = "".join(f'eval "$("$0" bash {command} ucx-mp)"; ' for command in commands) + "env -0"
    said = run(["bash", "-c", script, reader], MODULEPATH=os.path.join(prefix, "share/modules/modulefiles"))
    need("ERROR" not in said, f"module: {said}")
    return dict(entry.split("=", 1) for entry in said.split("\0") if "=" in entry)


reader = next((path for path in READERS if path and os.path.exists(path)), None)
if not reader:
    print("SKIPPED: no modulecmd.tcl (package environment-modules)")
    sys.exit(77)
with tempfile.TemporaryDirectory(prefix="ucx-mp-module-") as folder:
    run([cmake, "--install", build, "--prefix", "/opt/ucx-mp", "--strip"], DESTDIR=os.path.join(folder, "first"))
    for name in ("moved", "moved to here"): # a blank separates names in LD_PRELOAD
        prefix = os.path.join(folder, name)
        shutil.move(os.path.join(folder, "first", "opt", "ucx-mp") if name == "moved" else os.path.join(folder, "moved"), prefix)
        before, loaded, after = environment(), environment("load"), environment("load", "unload")
        need(loaded["LOADEDMODULES"].startswith("ucx-mp/"), "module load ucx-mp")
        left = {name for name in after if after[name] != before.get(name)} - {"_", "LOADEDMODULES", "_LMFILES_"}
        need(not left, f"module unload ucx-mp leaves {left}")
        need(shutil.which("mp_info", path=loaded["PATH"]) == os.path.join(prefix, "bin/mp_info"), f"PATH={loaded['PATH']}")
        need(run(["mpirun-mp", "--help"], loaded).startswith("usage: mpirun-mp"), "mpirun-mp")

        # Two ranks on one host would share memory, but each is a node here.
        loaded.update(UCX_TLS="mp_rc", UCX_LOG_LEVEL="info", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        jobs = [["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", *RANKS, os.path.join(build, "bin/mpi_storm")]]
        if os.path.exists(os.path.join(build, "tests/mpi/storm.mpich")):
            jobs.append(["mpiexec.mpich", "-genv", "MPIR_CVAR_NOLOCAL", "1", *RANKS, os.path.join(build, "tests/mpi/storm.mpich")])
        for job in jobs:
            said = run(["softhca", "run", "--fabric", "two-rail", "--", *job, "1000", "1"], loaded)
            need("2 ranks ok" in said and "mp_rc/mp0" in said, f"{job[0]} has not used mp_rc:\n{said[-3000:]}")

    lua = next(iter(glob.glob("/usr/share/lmod/*/libexec/tcl2lua.tcl")), None)
    if lua:
        module, = glob.glob(os.path.join(prefix, "share/modules/modulefiles/ucx-mp/*"))
        said = run(["tclsh", lua, "-f", "ucx-mp", "-u", "ucx-mp", "-s", "bash", module], LMOD_VERSION="8")
        need('setenv("UCX_TLS","mp_rc,mp_dc,sm,self")' in said.replace(" ", "") and "LmodError" not in said, f"Lmod: {said}")

    # The example for a whole cluster: each line is a setting that UCX knows.
    def settings(**where):
        said = run(["ucx_info", "-c", "-f"], LD_PRELOAD=os.path.join(build, "lib/libuct_mp.so"), **where).splitlines()
        return dict(line.split("=", 1) for line in said if line.startswith("UCX_"))
    plain, again = settings(), settings()
    noise = {name for name in plain if plain[name] != again[name]} # UCX 1.18 prints one by how fast it takes the clock to be
    for active in (True, False):
        path = os.path.join(folder, "ucx.conf")
        lines = [line if active else line.removeprefix("# ") for line in open(os.path.join(source, "config/ucx.conf"))]
        given = dict(line.strip().split("=", 1) for line in lines if line.startswith("UCX_") and "=" in line)
        open(path, "w").write("".join(f"{name}={value}\n" for name, value in given.items()))
        shown = settings(UCX_CONFIG_DIR=folder)
        need(given and set(given) <= set(shown), f"config/ucx.conf: unknown: {set(given) - set(shown)}")
        changed = {name for name in shown if shown[name] != plain[name]} - noise
        need(changed == {name for name in given if name in ("UCX_MP_PARTITION_TIMEOUT", "UCX_LOG_FILE")},
             f"config/ucx.conf: these are not what they were: {changed}")
