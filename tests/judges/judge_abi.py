"""The binary interface: libsofthca.so has every symbol of the libraries that it stands in for, under its version."""

import os
import re
import subprocess

from judge import Group, Skip, check

group = Group()
PROGRAMS = (["ibv_devinfo", "-l"], ["ib_send_bw", "--version"], ["ucx_info", "-v"], ["rping", "-h"],
            ["/usr/bin/python3", "-c", "import pyverbs.device, pyverbs.cmid, pyverbs.providers.mlx5.mlx5dv, "
                                       "pyverbs.providers.efa.efadv"])
# Of rdma-core 56, beside those of the release before.
LATER = {"ibv_cmd_create_cq_ex2@@IBVERBS_PRIVATE_34", "ibv_wr_opcode_str@@IBVERBS_PRIVATE_34"}


def path_of(library):
    """Where the dynamic linker finds a library of the system."""
    table = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    match = re.search(rf"^\s*{re.escape(library)} .*x86-64.*=> (\S+)$", table, re.M) or \
        re.search(rf"^\s*{re.escape(library)} .*=> (\S+)$", table, re.M)
    if not match:
        raise Skip(f"{library} is not installed")
    return match[1]


def exported(path):
    """The defined dynamic symbols, as name@VERSION or name@@VERSION (the default)."""
    text = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", path], capture_output=True, text=True,
                          check=True).stdout
    return {line.split()[-1] for line in text.splitlines()}


@group.case(fabrics=("ideal",), alone=False)
def symbols(session):
    """Nothing of libibverbs is missing; mlx5dv calls are libmlx5's; and nothing else leaks out."""
    ours = exported(os.path.join(session.build, "lib", "libsofthca.so"))
    real = exported(path_of("libibverbs.so.1"))
    missing = sorted(real - ours)
    check(not missing, f"missing: {missing}")
    extra = ours - real
    direct = {name for name in extra if name.startswith("mlx5dv_")}
    check(direct <= exported(path_of("libmlx5.so.1")), f"not in libmlx5: {sorted(direct)}")
    calls = {"stat", "stat64", "__xstat", "__xstat64", "access"}
    leaked = sorted(name for name in extra - direct - LATER
                    if name not in calls and not name.startswith(("MLX5_", "SOFTHCA_1", "softhca_sim_")))
    check(not leaked, f"exported by mistake: {leaked}")


@group.case(fabrics=("ideal",), alone=False)
def binding(session):
    """Programs and the libraries that they load bind every symbol at once, not only those that they happen to call."""
    for argv in PROGRAMS:
        session.run(argv, node=0, env={"LD_BIND_NOW": "1"}, code=None)
        text = session.programs[-1].output()
        check(not re.search("undefined symbol|symbol lookup error|version .* not (found|defined)", text),
              f"{argv[0]} does not bind:\n{text}")
