"""MPICH's own tests of MPI over our pml/mp and osc/mp, if TESTS_MPICH names their folder."""

import judge_pml
import mpich_suite
from judge import Group, check

group = Group()

# Folders, with the time that they take on two processors. Those of more ranks say nothing that fewer do not.
FOLDERS = {"rma": 900, "pt2pt": 400, "comm": 300, "topo": 100, "attr": 100, "errors/rma": 100, "errors/pt2pt": 100,
           "threads/pt2pt": 600, "threads/rma": 60, "coll": 600, "datatype": 200}
MOST_RANKS = 8


def suite(place, transport, seconds):
    def run(session):
        def start(ranks, argv):
            return session.start(judge_pml.launch_windows(ranks, *argv), env=judge_pml.environment(transport))

        text = mpich_suite.judge(session, start, place, 120, MOST_RANKS)
        check(judge_pml.totals(text).get(transport, (0, 0))[1] > 0, f"{transport} carried nothing")
        check("that made no sense" not in text and "makes no sense" not in text, "messages made no sense")
    group.add(run, f"{place.replace('/', '_')}_{transport}", ("ideal",), seconds=seconds, long=True)


for transport in judge_pml.TRANSPORTS:
    for place, seconds in FOLDERS.items():
        suite(place, transport, seconds)
