#!/usr/bin/python3
"""perf/main_job.py pulls a link in mid-run: what it says where the job is slower or quicker than its runs before, ends badly, or
never. hpcc is played: how each run ends, and after how many seconds."""
import argparse
import contextlib
import io
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "perf"))
import main_job  # noqa: E402

RIGHT, ABORTED, STOPPED = 0, 134, None


def pulled(stock, mp):
    """What is printed and said at the end, and when the link was pulled in each run of mp."""
    runs, pulls = {"stock": iter(stock), "mp": iter(mp)}, []

    def start_hpcc(_, kind, _folder, faults, _limit):
        if kind == "mp":
            pulls.append(faults[0].split()[1])
        code, seconds = next(runs[kind])
        return code, seconds, "\nSuccess=1\n" if code == RIGHT else "", ""

    main_job.start_hpcc = start_hpcc
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said):
        try:
            main_job.pulled_link(argparse.Namespace(out=folder, tls="mp_rc"), {"stock": 40.0, "mp": 40.0})
        except SystemExit as end:
            said.write(str(end.code))
    return said.getvalue(), pulls


for stock, mp, wanted, pulls in (
        ([(ABORTED, 29)], [(RIGHT, 60)], ("aborted after 29.0 s, exit code 134", "done after 60.0 s (1.50 of"), ["20.00s"]),
        ([(STOPPED, 170)], [(RIGHT, 10), (RIGHT, 12)], ("hangs: stopped", "5.0 s  done after 12.0 s (1.20 of"), ["20.00s", "5.00s"]),
        ([(RIGHT, 60)], [(RIGHT, 10), (RIGHT, 5), (RIGHT, 2)], ("was never disturbed",), ["20.00s", "5.00s", "2.50s"]),
        ([(RIGHT, 60)], [(ABORTED, 30)], ("did not survive",), ["20.00s"]),
        ([(RIGHT, 60)], [(STOPPED, 170)], ("did not survive",), ["20.00s"])):
    said, when = pulled(stock, mp)
    for text in wanted:
        if text not in said:
            sys.exit(f"stock {stock}, mp {mp}: no '{text}' in\n{said}")
    if when != pulls:
        sys.exit(f"mp {mp}: pulled at {when}, not at {pulls}")
