#!/usr/bin/python3
"""Compares what uct_mp/ucx/abi says of UCX with the sources of every tagged version from 1.13 to 1.22.

  git clone --bare https://github.com/openucx/ucx; tests/build/ucx_versions.py --mirror ucx.git

Needs a clone of UCX's repository (--mirror, or UCX_MP_UCX_MIRROR) and a compiler; nothing of UCX is built. Fails where a
structure, a function or a value is not as declared in that version's layout, and where a packaged header, of which
libuct_mp.so is compiled with one version's, says something that is not listed below. Without a clone: exit code 77."""
import argparse
import os
import re
import subprocess
import sys
import tempfile

FIRST, LAST = 13, 22
# What packaged headers of versions may say differently, and why that does no harm.
KNOWN = {
    "size uct_ep_params_t": "1.18 has members behind the others, which are not looked at",
}
# Stands for the config.h that UCX's configure writes: what decides layouts, as in a release build.
CONFIG = """
#define ENABLE_ASSERT {asserts}
#define UCS_ENABLE_ASSERT {asserts}
#define ENABLE_BUILTIN_MEMCPY 1
#define ENABLE_DEBUG_DATA 0
#define ENABLE_MT 1
#define ENABLE_PARAMS_CHECK 0
#define UCS_MAX_LOG_LEVEL UCS_LOG_LEVEL_DEBUG
#define HAVE_CPU_SET_T 1
#define HAVE_SCHED_H 1
#define HAVE_CLEARENV 1
#define STDC_HEADERS 1
#define NVALGRIND 1
#define UCS_MODULE_DIR ""
#define VALGRIND_MAKE_MEM_DEFINED(p, n)
"""
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def versions(mirror):
    tags = subprocess.run(["git", "-C", mirror, "tag"], check=True, text=True, stdout=subprocess.PIPE).stdout.split()
    found = [re.fullmatch(r"v1\.(\d+)\.(\d+)", tag) for tag in tags]
    return sorted((int(m[1]), int(m[2]), m[0]) for m in found if m and FIRST <= int(m[1]) <= LAST)


def compile_one(mirror, minor, tag, compiler, asserts, folder):
    """What its packaged headers say, by name; or None, and the compiler has told why."""
    if not os.path.isdir(os.path.join(folder, "src")):
        archive = subprocess.Popen(["git", "-C", mirror, "archive", tag, "src"], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", folder], stdin=archive.stdout, check=True)
    major, middle, patch = tag[1:].split(".")
    template = open(os.path.join(folder, "src/uct/api/version.h.in")).read()
    for key, value in (("MAJOR_VERSION", major), ("MINOR_VERSION", middle), ("PATCH_VERSION", patch)):
        template = template.replace("@" + key + "@", value)
    os.makedirs(os.path.join(folder, "made/uct/api"), exist_ok=True)
    open(os.path.join(folder, "made/uct/api/version.h"), "w").write(re.sub("@[A-Z_]*@", "", template))
    open(os.path.join(folder, "made/config.h"), "w").write(CONFIG.format(asserts=asserts))
    program = os.path.join(folder, "compare")
    result = subprocess.run(
        [compiler, "-std=gnu++20", "-w", "-fpermissive", "-O0", "-DHAVE_CONFIG_H=1", f"-DLAYOUT=V1_{minor}", f"-DMINOR={minor}",
         "-I", os.path.join(folder, "made"), "-I", os.path.join(folder, "src"), "-I", ROOT,
         os.path.join(ROOT, "tests/build/ucx_versions.cc"), "-o", program, "-Wl,--unresolved-symbols=ignore-all"],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode:
        errors = [line for line in result.stdout.splitlines() if "error:" in line] or result.stdout.splitlines()
        print("\n".join(errors[:12]))
        return None
    lines = subprocess.run([program], check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()
    return {" ".join(line.split()[:2]): line.split(maxsplit=2)[2] for line in lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirror", default=os.environ.get("UCX_MP_UCX_MIRROR"))
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--only", type=int, help="this minor version")
    args = parser.parse_args()
    if not args.mirror:
        print("skipped: no clone of UCX's repository (--mirror, UCX_MP_UCX_MIRROR)")
        return 77
    wrong, first, used = 0, None, set()
    minors = set()
    for minor, _, tag in versions(args.mirror):
        minors.add(minor)
        if args.only and minor != args.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            for asserts in (0, 1):
                said = compile_one(args.mirror, minor, tag, args.compiler, asserts, folder)
                if said is None:
                    print(f"{tag}: not as declared in abi/v1_{minor}.h")
                    wrong += 1
                    break
                first = first or said
                other = {name for name in first if first[name] != said.get(name)}
                used |= other & KNOWN.keys()
                for name in sorted(other - KNOWN.keys()):
                    print(f"{tag}: {name} is {said.get(name)}, was {first[name]}: not listed")
                    wrong += 1
            else:
                print(f"{tag}: as declared in abi/v1_{minor}.h", flush=True)
    missing = [f"1.{minor}" for minor in range(FIRST, LAST + 1) if minor not in minors]
    if missing:
        print("the clone has no tag of " + ", ".join(missing))
        wrong += 1
    if not args.only:
        for name in sorted(KNOWN.keys() - used):
            print(f"listed, but the same everywhere: {name}")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
