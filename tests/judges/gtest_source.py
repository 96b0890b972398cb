#!/usr/bin/python3
"""Prepares the source of UCX 1.13.1 for judge_gtest: UCX's own unit tests over mp_rc and mp_dc.

    git clone --depth 1 -b v1.13.1 https://github.com/openucx/ucx UCX && tests/judges/gtest_source.py UCX
    cd UCX && ./autogen.sh && mkdir build && cd build      # needs autoconf, automake, libtool
    ../configure --disable-dependency-tracking --enable-mt --with-verbs --disable-logging --enable-cma --enable-gtest \\
        --without-java --without-go --without-cuda --without-rocm --without-knem --without-xpmem --without-rdmacm
    for part in src/ucm src/ucs src/uct src/ucp src/tools/perf test/gtest/common/googletest; do make -j4 -C $part; done
    make -j4 -C test/gtest gtest CXXFLAGS='-O0 -Wno-error' am_gtest_OBJECTS="$(.../tests/judges/gtest_source.py --objects ..)"
    TESTS_UCX_GTEST=$PWD/test/gtest/gtest ctest --test-dir .../build/release -C long -R '^judge.gtest'

Assertions, logging and threads are as in Debian's package, whose libraries the tests then run with: structures have the
same layout (`ucx_info -b` is the same as the build's config.h).

The lists of transports get ours. Beyond that, three tests assume what no transport need offer: that the target of an
atomic operation makes no progress, that no operation is refused, and that who registers any memory allocates some.
--objects prints the tests of UCT and UCP, without those of one transport or of what Debian's build does not have.
"""
import pathlib
import re
import sys

# File, expression, what takes its place, how often. Cray's transports make room: a list may have no more than 20.
CHANGES = (
    ("uct/uct_test.h", r"ugni_rdma, ( *\\\n *)ugni_udt, ", r"mp_rc,     \1mp_dc,    ", 1),
    ("uct/test_flush.cc", r'(GetParam\(\)->tl_name) != "rc_mlx5"\)(?=\) \{)',
     r'\1 != "rc_mlx5") && (\1.compare(0, 3, "mp_") != 0)', 1),
    ("ucp/ucp_test.h", r'( *\w+_TLS\(_test_case, )ugni, +"ugni"\) \\\n',
     r'\1mprc, "mp_rc") \\' "\n" r'\1mpdc, "mp_dc") \\' "\n", 1),
    ("ucp/ucp_test.h", r'( *\w+_GPU_AWARE\(_test_case, )ugni, \\\n *"ugni"\) \\\n',
     r'\1mprc, "mp_rc") \\' "\n" r'\1mpdc, "mp_dc") \\' "\n", 1),
    ("ucp/test_ucp_wireup.cc", r'(\w+_TLS\(test_ucp_wireup_fallback,\s+)tcp, "tcp"\)',
     r'\1tcp, "tcp")' "\n" r'\1mp, "mp_rc,mp_dc")', 1),
    ("uct/uct_p2p_test.cc", r"cap\.max_alloc", "cap.max_reg", 1),
    ("uct/test_amo.cc", r"pthread_join\((.*)\);", r"while (pthread_tryjoin_np(\1) != 0) test->receiver().progress();", 1),
    ("uct/test_amo.cc", r"sender\(i\)\.flush\(\);", "flush();", 1),
    ("uct/test_fence.cc", r"pthread_join\((.*)\);", r"while (pthread_tryjoin_np(\1) != 0) test->receiver().progress();", 1),
    ("uct/test_fence.cc", r"(?m)^( *)(\(test->\*m_(?:send|recv)\)\([^;]*\));",
     r"\1while (\2 == UCS_ERR_NO_RESOURCE) m_entity.progress();", 2),
)
OTHERS = ("test_mm", "test_tag", "test_stats", "test_ucp_mem_type", "test_ucp_tag_mem_type", "test_ucp_tag_offload")


def objects(folder):
    tests = folder / "test" / "gtest"
    files = [path.relative_to(tests) for part in ("common", "uct", "uct/v2", "ucp") for path in (tests / part).glob("*.cc")]
    return [f"{path.parent}/gtest-{path.stem}.o" for path in sorted(files) if path.stem not in OTHERS]


def main(folder):
    for name, old, new, times in CHANGES:
        path = folder / "test" / "gtest" / name
        text, count = re.subn(old, new, path.read_text(encoding="utf-8"))
        if count != times:
            sys.exit(f"{path}: {count} places for /{old}/ instead of {times}: not as in UCX 1.13.1, or prepared already")
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--objects":
        print(*objects(pathlib.Path(sys.argv[2])))
    elif len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        main(pathlib.Path(sys.argv[1]))
    else:
        sys.exit(__doc__)
