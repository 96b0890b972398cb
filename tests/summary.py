#!/usr/bin/python3
"""What a run of ctest does not say at its end: summary.py BUILD OUTPUT

Prints which tests needed a second try (ctest --repeat until-pass), by ctest's output, and which judges did not run and
why, by its log. A test that needs a second try hides a race; a judge that is skipped judges nothing.
"""
import collections
import os
import re
import sys

ENDED = re.compile(r"^ *(?:\d+/\d+ )? *Test +#\d+: (\S+) \.*(?: +(Passed)|\*\*\*(\w[^0-9]*?)) +[\d.]+ sec", re.M)
SECTION = re.compile(r"^\d+/\d+ Testing: (\S+)\n(.*?)(?=^\d+/\d+ Testing: |\Z)", re.M | re.S)


def second_tries(output):
    """Tests that have failed and then passed."""
    said = collections.defaultdict(list)
    for name, passed, _ in ENDED.findall(output):
        said[name].append(bool(passed))
    return sorted(name for name, tries in said.items() if len(tries) > 1 and tries[-1] and not all(tries))


def skipped_judges(log):
    """{reason: judges}"""
    skipped = collections.defaultdict(set)
    for name, text in SECTION.findall(log):
        reason = re.search(r"^SKIPPED: (.*)", text, re.M)
        if name.startswith("judge.") and reason:
            skipped[reason[1]].add(name)
    return skipped


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, output = sys.argv[1:]
    with open(output, encoding="utf-8", errors="replace") as text:
        again = second_tries(text.read())
    print("tests/run: a second try was needed by " + (", ".join(again) or "no test"))
    with open(os.path.join(build, "Testing", "Temporary", "LastTest.log"), encoding="utf-8", errors="replace") as log:
        skipped = skipped_judges(log.read())
    for reason, judges in sorted(skipped.items()):
        print(f"tests/run: did not run: {', '.join(sorted(judges))}: {reason}")
    if not skipped:
        print("tests/run: no judge that was asked for was skipped")


if __name__ == "__main__":
    main()
