#!/usr/bin/python3
"""tests/summary.py on runs of ctest whose ends are known: a test that passes the second time, one that never does, one that takes
too long once, and judges that are skipped."""
import os
import subprocess
import sys
import tempfile

SUMMARY = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "summary.py")
TESTS = """\
cmake_minimum_required(VERSION 3.20)
project(tests NONE)
enable_testing()
add_test(NAME a.good COMMAND true)
add_test(NAME a.bad COMMAND false)
foreach(judge 1 2)
  add_test(NAME judge.some.case_${judge} COMMAND sh -c "echo 'SKIPPED: no source of it'; exit 77")
  set_tests_properties(judge.some.case_${judge} PROPERTIES SKIP_RETURN_CODE 77)
endforeach()
add_test(NAME a.flaky COMMAND sh -c "test -e flaky || { touch flaky; exit 1; }")
add_test(NAME a.slow COMMAND sh -c "test -e slow || { touch slow; sleep 60; }")
set_tests_properties(a.slow PROPERTIES TIMEOUT 1)
"""


def summary(folder, *options):
    with open(f"{folder}/output", "w", encoding="utf-8") as output:
        subprocess.run(["ctest", "--test-dir", f"{folder}/build", "--output-on-failure", *options], stdout=output, check=False)
    return subprocess.run([SUMMARY, f"{folder}/build", f"{folder}/output"], text=True, capture_output=True, check=True).stdout


with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/CMakeLists.txt", "w", encoding="ascii") as text:
        text.write(TESTS)
    subprocess.run(["cmake", "-S", folder, "-B", f"{folder}/build"], stdout=subprocess.DEVNULL, check=True)
    for options, wanted in (
            (["--repeat", "until-pass:2", "-j", "2"],
             "tests/run: a second try was needed by a.flaky, a.slow\n"
             "tests/run: did not run: judge.some.case_1, judge.some.case_2: no source of it\n"),
            (["-R", "a.good"],
             "tests/run: a second try was needed by no test\ntests/run: no judge that was asked for was skipped\n")):
        said = summary(folder, *options)
        if said != wanted:
            sys.exit(f"ctest {' '.join(options)}:\n{said}instead of\n{wanted}")
