#!/usr/bin/python3
"""Installs a build with DESTDIR and a prefix, moves it, and uses it from there: installed.py BUILD SOURCE CMAKE"""
import ctypes
import glob
import os
import re
import shlex
import shutil
import sys
import tempfile

import commands
from commands import need

build, source, cmake = (os.path.abspath(path) if os.sep in path else path for path in sys.argv[1:])


def run(argv, **env):
    return commands.run(argv, UCX_LOG_LEVEL="warn", **env)


with tempfile.TemporaryDirectory(prefix="ucx-mp-installed-") as folder:
    run([cmake, "--install", build, "--prefix", "/opt/ucx-mp", "--strip"], DESTDIR=os.path.join(folder, "first"))
    prefix = os.path.join(folder, "moved to here") # a blank separates names in LD_PRELOAD
    shutil.move(os.path.join(folder, "first", "opt", "ucx-mp"), prefix)

    knows = []
    for path in glob.glob(os.path.join(prefix, "**"), recursive=True):
        if os.path.islink(path):
            need(os.path.exists(path), f"{path} points nowhere: {os.readlink(path)}")
        elif os.path.isfile(path):
            content = open(path, "rb").read()
            if build.encode() in content:
                knows.append(path)
    need(not knows, f"these know the build's folder {build}: {knows}")

    library, = glob.glob(os.path.join(prefix, "lib", "libuct_mp.so")) or glob.glob(os.path.join(prefix, "lib", "*", "libuct_mp.so"))
    softhca = os.path.join(prefix, "bin", "softhca")
    text = run([softhca, "run", "--fabric", "two-rail", "--node", "0", "--", "ucx_info", "-d"],
               LD_PRELOAD="libuct_mp.so", LD_LIBRARY_PATH=os.path.dirname(library))
    need("Transport: mp_rc" in text, f"no transport:\n{text}")
    text = run([softhca, "run", "--fabric", "two-rail", "--node", "0", "--", os.path.join(prefix, "bin", "mp_info")])
    need("softhca_1:1" in text, f"mp_info shows no rail:\n{text}")
    text = run([os.path.join(prefix, "bin", "mp_sim"), "--help"])
    # One version everywhere, from CMakeLists.txt.
    version = re.search(r"VERSION ([0-9.]+)", open(os.path.join(source, "CMakeLists.txt")).read().split("project(")[1])[1]
    need(run([softhca, "--version"]) == f"softhca {version}\n", "softhca --version")
    need(run([os.path.join(prefix, "bin", "mp_info"), "--version"]) == f"mp_info {version}\n", "mp_info --version")
    told = ctypes.CDLL(library).uct_mp_version
    told.restype = ctypes.c_char_p
    need(told() == version.encode(), f"uct_mp_version(): {told()}")
    need(f"\n## {version} " in open(os.path.join(source, "CHANGELOG.md")).read(), f"CHANGELOG.md has no {version}")
    text = run([softhca, "run", "--fabric", "two-rail", "--", os.path.join(prefix, "bin", "mpirun-mp"), "--oversubscribe",
                "--bind-to", "none", "-n", "2", os.path.join(build, "bin", "mpi_storm"), "10000", "1"],
               OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    need("2 ranks ok" in text, f"the MPI job failed:\n{text}")
    pkgconfig = os.path.join(os.path.dirname(library), "pkgconfig")
    flags = shlex.split(run(["pkg-config", "--cflags", "--libs", "ucx-mp"], PKG_CONFIG_PATH=pkgconfig))
    include = next(flag[2:] for flag in flags if flag.startswith("-I"))
    need(os.path.exists(os.path.join(include, "uct_mp/api/uct_mp.h")), f"pkg-config: no header in {flags}")
    example = os.path.join(folder, "example")
    run(["cc", glob.glob(os.path.join(prefix, "share/doc/*/example.c"))[0], "-o", example, *flags, "-luct", "-lucs"])
    user = os.path.join(folder, "user")
    os.makedirs(user)
    open(os.path.join(user, "CMakeLists.txt"), "w").write(
        "cmake_minimum_required(VERSION 3.25)\nproject(user C)\nfind_package(ucx-mp REQUIRED)\n"
        "add_library(user SHARED user.c)\ntarget_link_libraries(user PRIVATE ucx-mp::uct_mp)\n")
    open(os.path.join(user, "user.c"), "w").write(
        "#include <uct/api/uct.h>\n#include <uct_mp/api/uct_mp.h>\n"
        "int hint(uct_ep_h ep) { return uct_mp_ep_set_hint(ep, UCT_MP_HINT_ONE_SIDED_EPOCH); }\n")
    run([cmake, "-S", user, "-B", os.path.join(user, "b"), "-DCMAKE_PREFIX_PATH=" + prefix])
    run([cmake, "--build", os.path.join(user, "b")])
    pages = glob.glob(os.path.join(prefix, "share/man/man1/*.1"))
    need(len(pages) >= 4, f"manual pages: {pages}")
